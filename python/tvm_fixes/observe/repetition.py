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
"""Runs of one model with the same inputs, which should agree in every bit."""

from collections.abc import Callable, Sequence

import numpy as np

# The maximum number of results that a sentence lists.
_MAX_LISTED = 4


def disagreements(
    names: Sequence[str],
    first: Sequence[np.ndarray],
    run: Callable[[], Sequence[np.ndarray]],
    runs: int,
) -> dict[str, str]:
    """Run a model again, and describe the outputs that are not the same in all runs.

    Parameters
    ----------
    names : sequence of str
        The names of the outputs.
    first : sequence of numpy.ndarray
        The outputs of the first run.
    run : callable
        Returns those of another run.
    runs : int
        The number of runs, with the first.

    Returns
    -------
    found : dict of str to str
        A sentence for each output of which two runs differ.
    """
    every = [[array] for array in first]
    for _ in range(runs - 1):
        for arrays, array in zip(every, run(), strict=True):
            arrays.append(array)
    found = {}
    for name, arrays in zip(names, every, strict=True):
        sentence = _describe(arrays)
        if sentence:
            found[name] = sentence
    return found


def _describe(arrays: Sequence[np.ndarray]) -> str:
    results = list(dict.fromkeys(array.tobytes() for array in arrays))
    if len(results) == 1:
        return ""
    other = next(array for array in arrays if array.tobytes() != results[0])
    count = f"{len(results)} different results in {len(arrays)} runs"
    if other.shape != arrays[0].shape:
        return f"{count}: shapes {arrays[0].shape} and {other.shape}"
    size = arrays[0].dtype.itemsize
    raw = [
        np.ascontiguousarray(a).reshape(-1).view("uint8").reshape(-1, size)
        for a in (arrays[0], other)
    ]
    flat = int(np.flatnonzero((raw[0] != raw[1]).any(axis=1))[0])
    place = tuple(map(int, np.unravel_index(flat, other.shape)))
    values = list(dict.fromkeys(str(array.reshape(-1)[flat]) for array in arrays))
    more = ", …" if len(values) > _MAX_LISTED else ""
    return f"{count}: at {list(place)} {', '.join(values[:_MAX_LISTED])}{more}"
