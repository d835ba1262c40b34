# Licensed to the Apache Software Foundation (ASF) under one or more contributor license
# agreements.  See the NOTICE file distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
# Version 2.0 (the "License"); you may not use this file except in compliance with the
# License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the
# License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
# either express or implied.  See the License for the specific language governing permissions
# and limitations under the License.

"""Arrays moved by rounding errors."""

import numpy as np

# By dtype, the integer of the same size, and the low bits of the fraction. A number whose low bits
# are all zero, such as 0.5, 255 or -10000, is not the result of rounding.
_BITS = {
    "float64": ("uint64", (1 << 26) - 1),
    "float32": ("uint32", (1 << 12) - 1),
    "float16": ("uint16", (1 << 5) - 1),
    "bfloat16": ("uint16", (1 << 3) - 1),
}


def moved(array: np.ndarray, rng: np.random.Generator, steps: int = 1) -> np.ndarray:
    """Move the elements of an array by rounding errors.

    Parameters
    ----------
    array : numpy.ndarray
    rng : numpy.random.Generator
    steps : int
        The largest distance, in units in the last place.

    Returns
    -------
    array : numpy.ndarray
        A copy, or the array itself if its dtype is not a float.  Numbers that few bits represent,
        infinities and NaN do not move: no computation rounds them.
    """
    if not steps or array.dtype.name not in _BITS:
        return array
    kind, low = _BITS[array.dtype.name]
    bits = np.array(array, order="C").reshape(-1).view(kind)
    places = rng.integers(-steps, steps, bits.size, dtype="int8", endpoint=True).astype(kind)
    places[(bits & np.array(low, kind)) == 0] = 0
    if array.dtype.itemsize == 2:
        values = array.reshape(-1).astype("float32")
        with np.errstate(invalid="ignore"):
            places[(np.abs(values) < 256) & (values == np.rint(values))] = 0
    bits += places
    return bits.view(array.dtype).reshape(array.shape)


# Other kernels add the terms of a sum in another order, so their errors are several units.
_FEW_RUNS, _MORE_STEPS = 8, 4


def steps_of(seed: int) -> int:
    """The distance in units in the last place by which the run `seed` of a reference moves."""
    if seed == 0:
        return 0
    return 1 if seed < _FEW_RUNS else _MORE_STEPS
