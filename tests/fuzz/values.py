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
"""Random tensors: ordinary, exact and special values of each dtype."""

import ml_dtypes
import numpy as np

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int64", "int32", "int8", "int16")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED

KINDS = ("exact", "normal", "special", "positive")

_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 1e-7, 3e4, -3e4, 1.0, -1.0, 0.5)


def dtype_of(name: str) -> np.dtype:
    """The dtype `name`, including those of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else np.dtype(name)


def random_array(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], kind: str
) -> np.ndarray:
    """A random array.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`.  ``exact``: small integers, whose sums and products are exact in any
        order; ``normal``: a normal distribution (for integers, like ``exact``); ``special``: with
        NaN, infinities and extremes; ``positive``: from 0.25 to 4.  For integers also ``wide``: all
        numbers of the dtype.
    """
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS and kind == "wide":
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))
    if dtype in INTEGERS:
        low = 0 if dtype in UNSIGNED else -4
        values = rng.integers(low, 5, shape).astype(dtype)
        if kind == "positive":
            values = np.maximum(values, np.asarray(1, dtype))
        if kind == "special" and values.size:
            info = np.iinfo(dtype)
            chosen = rng.random(shape) < 0.2
            values = np.where(
                chosen, rng.choice(np.array([info.min, info.max], dtype), shape), values
            )
        # For rank 0, NumPy returns a number.
        return np.asarray(values)
    if kind == "exact":
        values = rng.integers(-4, 5, shape).astype("float64")
    elif kind == "positive":
        values = rng.uniform(0.25, 4.0, shape)
    else:
        values = rng.standard_normal(shape)
    if kind == "special":
        values = np.where(rng.random(shape) < 0.3, rng.choice(_SPECIAL, shape), values)
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(dtype_of(dtype))
