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
"""The verdict on the outputs of a compiled model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import ml_dtypes
import numpy as np

from ..errors import CompileError
from ..runtime.report import BOTH, FLOAT64, OURS, ROUNDING, THEIRS, VARYING, OutputComparison
from .comparison import compare, judge
from .repetition import disagreements
from .sensitivity import Rounding, examine

# The runs of the reference with different rounding errors: those that always run, and those that
# confirm a difference.  Even ones take another arithmetic path: Source.rounded_reference.
FIRST_RUNS, _MORE_RUNS = (0, 1, 2, 4, 6), (8, 9, 10, 11, 12, 14, 16, 18, 20, 22)

# Without a run in float64: a model that quantizes at run time rounds a number to another integer in
# few of the runs.
_LAST_RUNS = tuple(range(24, 72, 2))

# The least number of further runs that show how sensitive a model is.
_MIN_RUNS = 3

# Errors of a few units in the last place need no explanation: as a norm, and of one element.
_NORM_UNITS, _PEAK_UNITS = 4, 16


_EXPORT_OFF = "so does the exported program, before it is compiled: torch.export changes the result"


@dataclass(frozen=True)
class Evidence:
    """Further runs of the reference, on the same inputs.

    Attributes
    ----------
    rounded : callable
        The outputs of runs with other rounding errors, one for each seed; maybe fewer.
    exact : callable
        The outputs of a run in float64; None if that is not possible.
    stepwise : callable
        The outputs of runs that round to 16 bits after each node; maybe none.
    exported : callable
        The outputs of what is compiled and runs in float64, if that is not the reference itself;
        None otherwise.
    again : callable
        The outputs of a second run of the unchanged reference; None if it cannot run again.
    """

    rounded: Callable[[Sequence[int]], list[list[np.ndarray]]]
    exact: Callable[[], Sequence[np.ndarray] | None]
    stepwise: Callable[[], list[list[np.ndarray]]] = field(default=list)
    exported: Callable[[], Sequence[np.ndarray] | None] = field(default=lambda: None)
    again: Callable[[], Sequence[np.ndarray] | None] = field(default=lambda: None)


def compare_all(
    names: Sequence[str],
    ours: Sequence[np.ndarray],
    theirs: Sequence[np.ndarray],
    evidence: Evidence,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> list[OutputComparison]:
    """Compare outputs, and decide whether rounding explains their differences.

    Parameters
    ----------
    names : sequence of str
    ours, theirs : sequence of numpy.ndarray
    evidence : Evidence
        Runs only as far as a verdict needs it.
    rtol, atol : float, optional
        As for :func:`.comparison.compare`.  If one is given, the tolerances decide.

    Notes
    -----
    Outputs are equal within rounding if :func:`.sensitivity.examine` finds that their errors are of
    the kind that runs of the reference have among themselves: first five runs, then more, and many
    if there is no run in float64, or only one that is itself at fault.  Otherwise, that run decides
    which of the two is off.  This also applies to outputs within the tolerances that differ by
    more than a few units in the last place: a model that hardly rounds shows smaller faults.
    An output has no verdict if two runs of the reference differ beyond the tolerances there.

    Raises
    ------
    CompileError
        If the numbers of outputs differ.
    """
    if not len(names) == len(ours) == len(theirs):
        raise CompileError(
            f"expected {len(theirs)} results, those of the reference with the new values of the "
            f"inputs that it changes; the compiled model has {len(ours)}: {', '.join(names)}"
        )
    found = [
        compare(name, *pair, rtol=rtol, atol=atol)
        for name, *pair in zip(names, ours, theirs, strict=True)
    ]
    found = _unless_varying(found, ours, theirs, evidence, rtol, atol)
    pairs = list(zip(ours, theirs, strict=True))
    open_places = [
        place
        for place, (one, pair) in enumerate(zip(found, pairs, strict=True))
        if one.reason != VARYING
        and _is_like(pair[:1], pair[1:])
        and not (one.max_abs_error is not None and _is_near(*pair))
    ]
    if rtol is not None or atol is not None or not open_places:
        return found
    runs: list[list[np.ndarray]] = [list(theirs)]
    exact: Sequence[np.ndarray] | None = None
    is_export_off = False
    for seeds in (FIRST_RUNS, _MORE_RUNS, _LAST_RUNS):
        if seeds is _LAST_RUNS:
            is_export_off = _differs(evidence.exported(), runs, open_places)
            if not is_export_off:
                exact = _unless_at_fault(evidence.exact(), ours, runs, open_places)
        if exact is not None:
            break
        runs += [run for run in evidence.rounded(seeds) if _is_like(run, theirs)]
        if len(runs) <= _MIN_RUNS:
            is_export_off = _differs(evidence.exported(), runs, open_places)
            if not is_export_off:
                exact = _unless_at_fault(evidence.exact(), ours, runs, open_places)
            break
        for place in list(open_places):
            arrays = [run[place] for run in runs]
            rounding = examine(ours[place], arrays)
            # An optimizer at fault would make every error look like rounding.
            if rounding.is_within and examine(arrays[0], arrays[1:]).is_within:
                found[place] = _within(found[place], rounding)
                open_places.remove(place)
        if seeds is _MORE_RUNS and open_places:
            stepwise = [run for run in evidence.stepwise() if _is_like(run, theirs)]
            open_places = _judge_stepwise(found, ours, runs, stepwise, open_places)
        if not open_places:
            return found
    for place in open_places:
        arrays = [run[place] for run in runs]
        wide = None if exact is None else exact[place]
        found[place] = _by_float64(found[place], ours[place], arrays, wide)
        if is_export_off and not found[place].accepted:
            found[place] = replace(found[place], problem=f"{found[place].problem}; {_EXPORT_OFF}")
    return found


def _unless_varying(
    found: Sequence[OutputComparison],
    ours: Sequence[np.ndarray],
    theirs: Sequence[np.ndarray],
    evidence: Evidence,
    rtol: float | None,
    atol: float | None,
) -> list[OutputComparison]:
    """The results; the reference is no evidence for an output of which two of its own runs differ
    beyond the tolerances."""
    again = None if all(one.equal for one in found) else evidence.again()
    if again is None:
        return list(found)
    judged = []
    for one, own, first, second in zip(found, ours, theirs, again, strict=True):
        # What has another type, or an infinity that neither run has, is a fault anyway.
        is_typed = (own.dtype, own.ndim) == (first.dtype, first.ndim)
        is_finite = one.max_abs_error is not None or first.shape != second.shape
        varies = not one.equal and is_typed and is_finite
        if varies and not compare(one.name, second, first, rtol=rtol, atol=atol).equal:
            again_once = partial(list[np.ndarray], [second])
            [sentence] = disagreements([one.name], [first], again_once, runs=2).values()
            one = replace(one, reason=VARYING, variation=sentence)
        judged.append(one)
    return judged


def _differs(
    exported: Sequence[np.ndarray] | None,
    runs: Sequence[Sequence[np.ndarray]],
    places: Sequence[int],
) -> bool:
    """Whether what was exported differs from the reference by more than rounding."""
    if exported is None:
        return False
    if not _is_like(exported, runs[0]):
        return True
    for place in places:
        arrays = [run[place] for run in runs]
        is_within = len(runs) > _MIN_RUNS and examine(exported[place], arrays).is_within
        if not (is_within or _is_near(exported[place], arrays[0])):
            return True
    return False


def _judge_stepwise(
    found: list[OutputComparison],
    ours: Sequence[np.ndarray],
    runs: Sequence[Sequence[np.ndarray]],
    stepwise: Sequence[Sequence[np.ndarray]],
    places: Sequence[int],
) -> list[int]:
    """Judge with runs that round after each node, too; return the places still open."""
    left = []
    for place in places:
        extra = [run[place] for run in stepwise]
        arrays = [run[place] for run in runs]
        rounding = examine(ours[place], [*arrays, *extra]) if extra else None
        if rounding is None or not rounding.is_within:
            left.append(place)
            continue
        own, other = _distance(ours[place], extra[0]), _distance(arrays[0], extra[0])
        rounds = OURS if 2 * own < other else THEIRS if 2 * other < own else BOTH
        found[place] = replace(_within(found[place], rounding), rounds=rounds)
    return left


def _is_near(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether arrays are equal up to a few units in the last place."""
    if theirs.dtype.kind in "biu":
        return bool(np.array_equal(ours, theirs))
    wide = "complex128" if theirs.dtype.kind == "c" else "float64"
    with np.errstate(invalid="ignore"):
        a, b = ours.astype(wide), theirs.astype(wide)
        finite = np.isfinite(a) & np.isfinite(b)
        error, magnitude = np.abs(a - b)[finite], np.abs(b)[finite]
    eps = float(ml_dtypes.finfo(theirs.dtype).eps)
    usual = _norm(magnitude)
    return bool(
        _norm(error) <= _NORM_UNITS * eps * usual
        and np.all(error <= _PEAK_UNITS * eps * np.maximum(magnitude, usual))
    )


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    """The norm of the differences of finite elements."""
    return _norm(_errors(a, b))


def _errors(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The differences of elements where they are finite."""
    wide = "complex128" if a.dtype.kind == "c" else "float64"
    with np.errstate(invalid="ignore"):
        errors = np.abs(a.astype(wide) - b.astype(wide))
    return errors[np.isfinite(errors)]


def _norm(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).mean())) if values.size else 0.0


def _is_like(run: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    return [(a.shape, a.dtype) for a in run] == [(b.shape, b.dtype) for b in theirs]


def _within(found: OutputComparison, rounding: Rounding) -> OutputComparison:
    """The verdict on an output whose error is rounding."""
    reason = "" if found.equal else ROUNDING
    return replace(found, equal=True, problem="", reason=reason, rounding_error=rounding.max_error)


def _unless_at_fault(
    exact: Sequence[np.ndarray] | None,
    ours: Sequence[np.ndarray],
    runs: Sequence[Sequence[np.ndarray]],
    places: Sequence[int],
) -> Sequence[np.ndarray] | None:
    """The outputs of the run in float64; None if it is far from both and these are close."""
    if exact is None or len(exact) != len(ours):
        return None
    for place in places:
        theirs = runs[0][place]
        if exact[place].shape != theirs.shape:
            return None
        distance = _distance(theirs, exact[place])
        is_far = len(runs) > _MIN_RUNS and not _is_within(runs, place, exact[place])
        if is_far and _distance(ours[place], theirs) < distance / 2:
            return None
    return exact


def _is_within(runs: Sequence[Sequence[np.ndarray]], place: int, exact: np.ndarray) -> bool:
    theirs, *others = (run[place] for run in runs)
    return examine(theirs, others, exact).is_within


def _is_closer(
    ours: np.ndarray, runs: Sequence[np.ndarray], exact: np.ndarray, own: Rounding, other: Rounding
) -> bool:
    """Whether no figure of the error of `ours` exceeds that of the reference's first run."""
    return (
        own.norm <= other.norm
        and own.peak <= other.peak
        and own.excess <= max(other.excess, 0)
        and own.unlike <= other.unlike
        and _errors(ours, exact).max(initial=0) <= _errors(runs[0], exact).max(initial=0)
    )


def _by_float64(
    found: OutputComparison,
    ours: np.ndarray,
    runs: Sequence[np.ndarray],
    exact: np.ndarray | None,
) -> OutputComparison:
    """The verdict on an output whose error is not of the kind of the reference's own."""
    theirs, others = runs[0], runs[1:]
    judged = found if exact is None else judge(found, ours, theirs, exact)
    if len(others) < _MIN_RUNS:
        return judged
    rounding = examine(ours, others)
    judged = replace(judged, rounding_error=rounding.max_error)
    if exact is not None:
        own, other = examine(ours, others, exact), examine(theirs, others, exact)
        is_closer = _is_closer(ours, runs, exact, own, other) or judged.reason == FLOAT64
        if own.is_within or is_closer:
            is_infinite = np.any(~np.isfinite(theirs) & np.isfinite(exact))
            if found.equal or (other.is_within and not is_infinite):
                reason = "" if found.equal else ROUNDING
                return replace(judged, equal=True, problem="", reason=reason)
            return replace(judged, reason=FLOAT64)
    problem = found.problem or f"{found.max_abs_error:.2g} is more than rounding explains"
    if not (found.problem and found.max_abs_error is None and rounding.unlike):
        # Otherwise both say that elements are not finite.
        problem = f"{problem}; {rounding.describe()}"
    return replace(judged, equal=False, problem=problem)
