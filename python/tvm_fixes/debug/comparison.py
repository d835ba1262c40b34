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
"""The comparison of outputs with a reference's, and the time that each takes."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..runtime.report import OutputComparison

TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-9, 1e-11),
    "float32": (1e-4, 1e-5),
    "float16": (1e-2, 5e-3),
    "bfloat16": (5e-2, 2e-2),
}
"""Relative tolerance by the reference's dtype, and absolute for a largest magnitude of 1.

The absolute tolerance is multiplied by the reference's largest magnitude: the rounding of a sum is
in proportion to its terms, and an output of small numbers must not equal zeros.  Half precision has
room for sums that are rounded at every step.  Other dtypes have to be identical.
"""

_TIMES_THE_MEDIAN = 4.0
"""How many median distances of the reference an element may be from float64, if ours is closer."""


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
        Tolerances as they are; those of :data:`TOLERANCES` by default.

    Returns
    -------
    comparison : OutputComparison
        The verdict, and the errors that it rests on.
    """
    largest = _largest_magnitude(theirs)
    default_rtol, default_atol = TOLERANCES.get(theirs.dtype.name, (0.0, 0.0))
    rtol = default_rtol if rtol is None else rtol
    atol = default_atol * largest if atol is None else atol

    def verdict(problem: str, max_abs: float | None = None) -> OutputComparison:
        max_rel = max_abs / largest if max_abs and largest else max_abs
        shape, dtype = list(theirs.shape), theirs.dtype.name
        return OutputComparison(
            name, shape, dtype, max_abs, max_rel, rtol, atol, not problem, problem
        )

    if ours.dtype != theirs.dtype:
        return verdict(f"expected dtype {theirs.dtype.name}, got {ours.dtype.name}")
    if ours.shape != theirs.shape:
        return verdict(f"expected shape {theirs.shape}, got {ours.shape}")
    same = ours == theirs
    if theirs.dtype.kind in "biu":
        # Python's integers: a difference of two int64 may not fit one.
        pairs = zip(ours[~same].tolist(), theirs[~same].tolist(), strict=True)
        errors = [(abs(int(a) - int(b)), abs(int(b))) for a, b in pairs]
        outside = sum(error > atol + rtol * magnitude for error, magnitude in errors)
        return verdict(
            f"{outside} of {theirs.size} elements differ" if outside else "",
            float(max((error for error, _ in errors), default=0)),
        )

    wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
    a, b = ours.astype(wide), theirs.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    odd = int(np.count_nonzero(~(same | finite | (np.isnan(a) & np.isnan(b)))))
    if odd:
        return verdict(f"{odd} of {b.size} elements are not finite, and not the reference's")
    error = np.abs(a[finite] - b[finite])
    outside = int(np.count_nonzero(error > atol + rtol * np.abs(b[finite])))
    problem = ""
    if outside:
        problem = (
            f"{outside} of {b.size} elements differ by more than "
            f"{atol:.2g} + {rtol:.2g} * |reference|"
        )
    return verdict(problem, float(error.max(initial=0.0)))


def judge(
    found: OutputComparison, ours: np.ndarray, theirs: np.ndarray, exact: np.ndarray
) -> OutputComparison:
    """Decide by a run in float64 whether it is the reference that is off.

    Parameters
    ----------
    found : OutputComparison
        What :func:`compare` found of `ours` and `theirs`.
    ours, theirs : numpy.ndarray
        The output to judge, and the reference's.
    exact : numpy.ndarray
        That of the reference in float64.

    Returns
    -------
    comparison : OutputComparison
        Equal if each element that :func:`compare` finds too far from `theirs` is within the same
        tolerance of `exact`, at least as close to it as that of `theirs`, or, if the median
        distance of `ours` is no larger than that of `theirs`, within four times that; with both
        largest differences in any case.
    """
    is_comparable = found.max_abs_error is not None and exact.shape == theirs.shape
    if found.equal or theirs.dtype.name not in TOLERANCES or not is_comparable:
        return found
    a, b, c = (array.astype("float64") for array in (ours, theirs, exact))
    finite = np.isfinite(a)
    if np.any(np.isfinite(c) != finite):
        return found
    apart, magnitude = np.abs(a - b)[finite], np.abs(b)[finite]
    own, other = np.abs(a - c)[finite], np.abs(b - c)[finite]
    largest, reference_largest = float(own.max()), float(other.max())
    # One element where the reference is far off excuses no other one.
    outside = ~(apart <= found.atol + found.rtol * magnitude)
    # Where most are off, it is by rounding that the model enlarges, and each is so by chance.
    allowed = np.maximum(other, found.atol + found.rtol * np.abs(c)[finite])
    if np.median(own) <= np.median(other):
        allowed = np.maximum(allowed, _TIMES_THE_MEDIAN * np.median(other))
    is_closer = np.all(own[outside] <= allowed[outside])
    return replace(
        found,
        equal=bool(is_closer),
        problem="" if is_closer else found.problem,
        float64_error=largest,
        reference_float64_error=reference_largest,
    )


def _largest_magnitude(array: np.ndarray) -> float:
    """The largest absolute value of the finite elements; 0 where there are none."""
    wide = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    return float(wide.max(initial=0.0, where=np.isfinite(wide)))


def latencies_ms(
    timers: Sequence[Callable[[int, float], float]],
    *,
    blocks: int = 3,
    runs: int = 5,
    budget: float = 2.0,
) -> list[float]:
    """Measure the latency of several calls, in milliseconds.

    They take turns in blocks, so that all see the same machine: each block is one call that is
    not counted, then `runs` of the same in a row, for the idle threads of another runtime spin on
    for a while and take the processor.  The latency is the median of the block where it is least.

    Parameters
    ----------
    timers : sequence of callable
        Each measures one block of its call: :func:`median_seconds` with the call bound, or the same
        in another process.
    blocks : int
        The most blocks of each.
    runs : int
        The most calls that count in a block.
    budget : float
        Seconds after which nothing further begins; each call counts once in any case.
    """
    medians: list[list[float]] = [[] for _ in timers]
    share = budget / (blocks * len(timers))
    end = time.perf_counter() + budget
    for _ in range(blocks):
        for timer, found in zip(timers, medians, strict=True):
            found.append(timer(runs, share))
        if time.perf_counter() >= end:
            break
    return [1e3 * min(found) for found in medians]


def median_seconds(call: Callable[[], object], runs: int, budget: float) -> float:
    """Call once, then `runs` times or until `budget` seconds are over; the median of these."""
    end = time.perf_counter() + budget
    call()
    taken: list[float] = []
    while not taken or (len(taken) < runs and time.perf_counter() < end):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
