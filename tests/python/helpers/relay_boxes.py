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
"""Boxes, scores and comparisons for the tests of Relay's object detection."""

import numpy as np

from helpers.relay_calls import Program, assert_same

F32 = np.float32


def boxes_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Corners on a coarse grid: all areas are exact, and many overlaps are equal."""
    return (rng.integers(0, 6, (*shape, 4)) / 4).astype(F32)


def scores_of(rng: np.random.Generator, *shape: int, least: int = -2) -> np.ndarray:
    """Scores with many ties, also at 0, -1 and below."""
    return (rng.integers(least, 9, shape) / 8 * rng.choice([1, 8], shape)).astype(F32)


def check(program: Program, expected: list, **tolerance: float) -> None:
    """Compare results that are arrays or tuples of arrays."""
    for case, (results, references) in enumerate(zip(program.run(), expected, strict=True)):
        if isinstance(references, np.ndarray):
            results, references = [results], [references]
        if not tolerance:
            assert_same(results, {f"{case}.{i}": part for i, part in enumerate(references)})
            continue
        for result, reference in zip(results, references, strict=True):
            assert (result.shape, result.dtype) == (reference.shape, reference.dtype), case
            np.testing.assert_allclose(result, reference, **tolerance, err_msg=str(case))
