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
"""Comparison of outputs with a reference's."""

from dataclasses import replace

import numpy as np

from ..runtime.report import FLOAT64, OutputComparison

TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-9, 1e-11),
    "float32": (1e-4, 1e-5),
    "float16": (1e-2, 5e-3),
    "bfloat16": (5e-2, 2e-2),
}
"""Relative and absolute tolerance by the reference's dtype.

The absolute tolerance is multiplied by the reference's largest magnitude: the rounding error of a
sum is proportional to its terms, and a fixed tolerance would accept zeros for an output of small
numbers.  The 16-bit tolerances allow for sums that are rounded at every step.  Other dtypes must
match exactly.
"""

_MEDIAN_FACTOR = 4.0
"""Limit of an element's float64 error, as a multiple of the reference's median float64 error."""


def compare(
    name: str,
    ours: np.ndarray,
    theirs: np.ndarray,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> OutputComparison:
    """Compare `ours` with `theirs`.

    Parameters
    ----------
    name : str
        The output's name.
    ours, theirs : numpy.ndarray
        The output to judge, and the reference's.
    rtol, atol : float, optional
        Tolerances, used unchanged; by default, those of :data:`TOLERANCES`.

    Returns
    -------
    comparison : OutputComparison
        The verdict and the errors.
    """
    largest = largest_magnitude(theirs)
    default_rtol, default_atol = TOLERANCES.get(theirs.dtype.name, (0.0, 0.0))
    rtol = default_rtol if rtol is None else rtol
    atol = default_atol * largest if atol is None else atol

    def verdict(problem: str, outside: int, max_abs: float | None = None) -> OutputComparison:
        max_rel = max_abs / largest if max_abs and largest else max_abs
        shape, dtype = list(theirs.shape), theirs.dtype.name
        return OutputComparison(
            name, shape, dtype, max_abs, max_rel, rtol, atol, not problem, problem, outside=outside
        )

    if ours.dtype != theirs.dtype:
        problem = f"expected dtype {theirs.dtype.name}, got {ours.dtype.name}"
        return verdict(problem, theirs.size)
    if ours.shape != theirs.shape:
        return verdict(f"expected shape {theirs.shape}, got {ours.shape}", theirs.size)
    same = ours == theirs
    if theirs.dtype.kind in "biu":
        # Python integers: the difference of two int64 values may overflow.
        pairs = zip(ours[~same].tolist(), theirs[~same].tolist(), strict=True)
        errors = [(abs(int(a) - int(b)), abs(int(b))) for a, b in pairs]
        outside = sum(error > atol + rtol * magnitude for error, magnitude in errors)
        return verdict(
            f"{outside} of {theirs.size} elements differ" if outside else "",
            outside,
            float(max((error for error, _ in errors), default=0)),
        )

    wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
    a, b = ours.astype(wide), theirs.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    odd = int(np.count_nonzero(~(same | finite | (np.isnan(a) & np.isnan(b)))))
    if odd:
        problem = f"{odd} of {b.size} elements are not finite and differ from the reference"
        return verdict(problem, odd)
    error = np.abs(a[finite] - b[finite])
    outside = int(np.count_nonzero(error > atol + rtol * np.abs(b[finite])))
    problem = ""
    if outside:
        problem = (
            f"{outside} of {b.size} elements differ by more than "
            f"{atol:.2g} + {rtol:.2g} * |reference|"
        )
    return verdict(problem, outside, float(error.max(initial=0.0)))


def judge(
    found: OutputComparison, ours: np.ndarray, theirs: np.ndarray, exact: np.ndarray
) -> OutputComparison:
    """Judge again with a float64 run of the reference, in case the reference itself is off.

    Parameters
    ----------
    found : OutputComparison
        The result of :func:`compare` for `ours` and `theirs`.
    ours, theirs : numpy.ndarray
        The output to judge, and the reference's.
    exact : numpy.ndarray
        The output of the reference in float64.

    Returns
    -------
    comparison : OutputComparison
        The result with the largest float64 error (distance from `exact`) of `ours` and of
        `theirs`.  It is accepted if each element of `ours` that :func:`compare` finds outside the
        tolerance satisfies one of these conditions:

        - It is within the tolerance of `exact`.
        - Its float64 error is no larger than that of the same element of `theirs`.
        - The median float64 error of `ours` is no larger than that of `theirs`, and the element's
          is within four times the latter.
    """
    is_comparable = (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    is_comparable &= exact.shape == theirs.shape and theirs.dtype.name in TOLERANCES
    if found.equal or not is_comparable:
        return found
    a, b, c = (array.astype("float64") for array in (ours, theirs, exact))
    finite = np.isfinite(a)
    if np.any(np.isfinite(c) != finite):
        return found
    with np.errstate(invalid="ignore"):
        apart, magnitude = np.abs(a - b)[finite], np.abs(b)[finite]
        own, other = np.abs(a - c)[finite], np.abs(b - c)[finite]
    # An infinity of the reference excuses only what agrees with float64.
    other[~np.isfinite(other)] = 0.0
    largest, reference_largest = float(own.max(initial=0)), float(other.max(initial=0))
    # Judge each element: a large error of the reference in one element excuses no other.
    outside = ~(apart <= found.atol + found.rtol * magnitude) | ~np.isfinite(apart)
    # If most elements are off, the model amplifies rounding errors, and each error is random.
    allowed = np.maximum(other, found.atol + found.rtol * np.abs(c)[finite])
    if own.size and np.median(own) <= np.median(other):
        allowed = np.maximum(allowed, _MEDIAN_FACTOR * np.median(other))
    is_closer = np.all(own[outside] <= allowed[outside])
    return replace(
        found,
        reason=FLOAT64 if is_closer else "",
        float64_error=largest,
        reference_float64_error=reference_largest,
    )


def largest_magnitude(array: np.ndarray) -> float:
    """The largest absolute value of the finite elements; 0 without finite elements."""
    wide = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    return float(wide.max(initial=0.0, where=np.isfinite(wide)))
