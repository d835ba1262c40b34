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
"""tvm_fixes.observe.comparison."""

import ml_dtypes
import numpy as np
import pytest
import tvm.testing

from tvm_fixes.observe.comparison import TOLERANCES, compare, judge

NAN, INF = np.nan, np.inf


def f32(*values: float) -> np.ndarray:
    return np.array(values, "float32")


def test_equal():
    result = compare("y", f32(1, 2, 4), f32(1, 2, 4))
    assert result.equal
    assert (result.max_abs_error, result.max_rel_error, result.problem) == (0, 0, "")
    assert (result.name, result.shape, result.dtype) == ("y", [3], "float32")


def test_errors_are_absolute_and_relative_to_the_largest_magnitude():
    result = compare("y", f32(1.5, 2, -4), f32(1, 2, -4), rtol=0, atol=1)
    assert result.equal
    assert (result.max_abs_error, result.max_rel_error) == (0.5, 0.125)
    result = compare("y", f32(1.5, 2, -4), f32(1, 2, -4), rtol=0.1, atol=0.25)
    assert not result.equal
    assert result.problem == "1 of 3 elements differ by more than 0.25 + 0.1 * |reference|"


@pytest.mark.parametrize(
    "rtol, atol, equal", [(0, 0.5, True), (0, 0.49, False), (0.25, 0, True), (0.24, 0, False)]
)
def test_tolerances_are_inclusive(rtol, atol, equal):
    assert compare("y", f32(2.5), f32(2), rtol=rtol, atol=atol).equal is equal


def test_shape_and_dtype_must_agree():
    result = compare("y", np.zeros((1, 3), "float32"), np.zeros(3, "float32"))
    assert not result.equal
    assert result.problem == "expected shape (3,), got (1, 3)"
    result = compare("y", np.zeros(3, "float64"), np.zeros(3, "float32"))
    assert not result.equal
    assert result.problem == "expected dtype float32, got float64"
    assert result.max_abs_error is None


@pytest.mark.parametrize(
    "ours, theirs, equal",
    [
        ((NAN, 1), (NAN, 1), True),
        ((INF, -INF), (INF, -INF), True),
        ((NAN, 1), (0, 1), False),
        ((0, 1), (NAN, 1), False),
        ((INF, 1), (-INF, 1), False),
        ((INF, 1), (3e38, 1), False),
        ((NAN, 1), (INF, 1), False),
    ],
)
def test_values_that_are_not_finite(ours, theirs, equal):
    assert compare("y", f32(*ours), f32(*theirs), rtol=1e9, atol=1e9).equal is equal


def test_an_output_of_small_numbers_does_not_equal_zeros():
    theirs = 1e-7 * np.random.default_rng(0).standard_normal(100).astype("float32")
    assert not compare("y", np.zeros_like(theirs), theirs).equal
    assert compare("y", theirs, np.zeros_like(theirs)).max_rel_error == np.abs(theirs).max()
    assert compare("y", theirs * np.float32(1 + 1e-6), theirs).equal


def test_rounding_of_large_sums_is_equal_near_zero():
    assert compare("y", f32(1e4, 0.01), f32(1e4, 0.0)).equal


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_defaults_fit_the_dtype(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    eps = float(ml_dtypes.finfo(kind).eps)
    assert all(2 * eps <= tolerance <= 1e7 * eps for tolerance in TOLERANCES[dtype])
    theirs = np.array([1, 2, 3], kind)
    assert compare("y", (theirs.astype("float64") * (1 + eps)).astype(kind), theirs).equal
    assert not compare("y", (theirs.astype("float64") * 1.2).astype(kind), theirs).equal


def test_integers_and_booleans_are_exact():
    big = np.array([2**62, -(2**62)], "int64")
    assert compare("y", big, big).equal
    result = compare("y", big, -big)
    assert not result.equal
    assert (result.problem, result.max_abs_error) == ("2 of 2 elements differ", 2.0**63)
    assert not compare("y", np.array([255], "uint8"), np.array([0], "uint8")).equal
    assert not compare("y", np.array([True]), np.array([False])).equal
    assert compare("y", np.array([3], "int32"), np.array([4], "int32"), atol=1).equal


def test_empty_and_scalar():
    assert compare("y", np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32")).equal
    assert compare("y", np.array(2.0, "float32"), np.array(2.0, "float32")).equal
    assert not compare("y", np.array(2.0, "float32"), np.array(3.0, "float32")).equal


def judged(ours, theirs, exact):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return judge(compare("y", ours, theirs), ours, theirs, np.array(exact, "float64"))


def test_float64_decides_which_result_is_off():
    result = judged(f32(1, 2), f32(1, 2.5), [1, 2.0625])
    assert result.accepted and not result.equal
    assert (result.float64_error, result.reference_float64_error) == (0.0625, 0.4375)
    result = judged(f32(1, 2.5), f32(1, 2), [1, 2.0625])
    assert not result.accepted
    assert result.problem.startswith("1 of 2 elements differ by more than")
    assert (result.float64_error, result.reference_float64_error) == (0.4375, 0.0625)


def test_float64_hides_no_errors():
    # A smaller error in one element, but errors in more elements.
    assert not judged(f32(1.4, 2.4, 3.4), f32(1, 2, 3.5), [1, 2, 3]).accepted
    # A larger error of the reference elsewhere does not excuse one where it is exact.
    exact = np.ones(1000)
    ours, theirs = np.ones((2, 1000), "float32")
    theirs[0] += 1e-2
    assert judged(ours, theirs, exact).accepted
    ours[1:100] += 9e-4
    assert not judged(ours, theirs, exact).accepted
    # An error relative only to the reference is not compared with float64.
    ours[1:100] = 1 + 9e-5
    theirs[1:100] = 1 - 8e-5
    assert judged(ours, theirs, exact).accepted
    # Not comparable: different shapes, NaN, integers.
    assert not judged(f32(1, 2), f32(1, 2.5), [1, 2, 3]).accepted
    assert not judged(f32(1, NAN), f32(1, 2.5), [1, 2]).accepted
    assert not judged(f32(1, 2), f32(1, 2.5), [1, INF]).accepted
    assert not judged(np.array([1]), np.array([2]), [1]).accepted
    # Equal results are not examined.
    assert judged(f32(1), f32(1), [5]).float64_error is None


def test_amplified_rounding_is_accepted():
    """Our error is smaller than the reference's overall, but not in every element."""
    rng = np.random.default_rng(0)
    exact = rng.standard_normal(1000)
    theirs = (exact + 0.01 * rng.standard_normal(1000)).astype("float32")
    ours = (exact + 0.003 * rng.standard_normal(1000)).astype("float32")
    assert judged(ours, theirs, exact).accepted
    ours[7] += 0.1
    assert not judged(ours, theirs, exact).accepted
    twice_as_far = (exact + 2 * (theirs - exact)).astype("float32")
    assert not judged(twice_as_far, theirs, exact).accepted


if __name__ == "__main__":
    tvm.testing.main()
