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
"""Whether rounding explains an error."""

import ml_dtypes
import numpy as np
import pytest
import tvm.testing

from tvm_fixes.observe.sensitivity import examine

EXACT = np.random.default_rng(0).standard_normal(20_000)


def rounded(seed, noise=1e-3, exact=EXACT, dtype="float32"):
    rng = np.random.default_rng(seed)
    return (exact + noise * rng.standard_normal(exact.shape)).astype(dtype)


RUNS = [rounded(seed) for seed in range(1, 6)]


@pytest.mark.parametrize("seed", range(20, 30))
def test_the_same_kind_of_error_is_within(seed):
    found = examine(rounded(seed), RUNS)
    assert found.is_within
    assert 0.8 < found.norm < 1.5 and found.peak < 1.5
    assert 3e-3 < found.max_error < 8e-3


def test_larger_errors_everywhere_are_not():
    assert examine(rounded(20, 2e-3), RUNS).is_within
    found = examine(rounded(20, 5e-3), RUNS)
    assert not found.is_within and found.norm > 3
    assert "times the error that rounding causes" in found.describe()


def test_one_wrong_element_is_not():
    ours = rounded(20)
    ours[7] += 2e-2
    found = examine(ours, RUNS)
    assert not found.is_within and found.peak > 2 and found.norm < 1.5


def test_errors_fit_the_element():
    """The noise of an element that rounding moves does not excuse one that it does not move."""
    noise = np.where(np.arange(EXACT.size) % 100, 1e-6, 1e-1)
    runs = [rounded(seed, noise) for seed in range(1, 6)]
    assert examine(rounded(20, noise), runs).is_within
    ours = rounded(20, noise)
    ours[:100] += 0.1
    assert not examine(ours, runs).is_within


def test_many_elements_of_a_usual_error_are_not():
    """Such as the flips of a quantization."""

    def flipped(seed, count):
        values = np.round(EXACT * 20).clip(-128, 127).astype("int8")
        places = np.random.default_rng(seed).permutation(values.size)[:count]
        values[places] += 1
        return values

    runs = [flipped(seed, 5) for seed in range(1, 6)]
    assert examine(flipped(20, 12), runs).is_within
    found = examine(flipped(20, 40), runs)
    assert not found.is_within and "elements fewer" in found.describe()
    ours = flipped(20, 4)
    ours[3] -= 20
    assert not examine(ours, runs).is_within
    assert not examine(flipped(20, 1), [flipped(0, 0)] * 5).is_within


def test_infinities_and_nan():
    runs = [run.copy() for run in RUNS]
    for run in runs:
        run[:3] = np.nan, np.inf, -np.inf
    runs[0][3] = np.inf  # rounding decides
    ours = rounded(20)
    ours[:4] = np.nan, np.inf, -np.inf, np.inf
    assert examine(ours, runs).is_within
    for place, value in ((0, 1), (1, -np.inf), (2, np.nan), (9, np.inf)):
        wrong = ours.copy()
        wrong[place] = value
        found = examine(wrong, runs)
        assert not found.is_within and found.unlike == 1
        assert found.describe().startswith("1 elements are not finite")


def test_an_exact_center():
    """A bias of the reference excuses nothing."""
    runs = [run + np.float32(0.1) for run in RUNS]
    assert examine(rounded(20), runs, EXACT).is_within
    assert not examine(rounded(20), runs).is_within
    assert not examine(runs[0], runs[1:], EXACT).is_within


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
def test_dtypes(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    runs = [rounded(seed, 1e-1).astype(kind) for seed in range(1, 6)]
    assert examine(rounded(20, 1e-1).astype(kind), runs).is_within
    assert not examine(rounded(20, 5e-1).astype(kind), runs).is_within


def test_an_exact_result_has_the_last_places_of_the_dtype():
    theirs = EXACT.astype("float32")
    assert examine(np.nextafter(theirs, np.float32(9)), [theirs] * 5).is_within
    assert not examine(theirs * np.float32(1 + 2e-6), [theirs] * 5).is_within
    empty = theirs[:0]
    assert examine(empty, [empty] * 5).is_within


if __name__ == "__main__":
    tvm.testing.main()
