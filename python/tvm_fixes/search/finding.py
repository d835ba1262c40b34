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
"""The result of a variant of a model, before it is judged for a problem."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..runtime.report import OutputComparison, Report, describe_compared, describe_varying
from .problem import Degree, Kind, Measure


@dataclass(frozen=True)
class Finding:
    """The result of a variant.

    Attributes
    ----------
    kind : Kind or None
        ``FAILS``, ``WRONG`` or None.
    what : str
        The result in one line.
    degrees : tuple of Degree
        As of the trial; so is `accepted`.
    fixes : tuple of str
        The fixes applied.
    sizes : dict of str to int
        The sizes of symbolic dims at which an output differs, if not the first.
    magnitude : float
        The magnitude of the inputs then.
    tolerances : tuple of float
        As of the trial.
    lost_dims : str
        A sentence about the dims that must be symbolic and are not, if any.
    is_valid : bool
        Whether there is a reference to compare with, which gives the same results each time.
    unstable : str
        As of the trial.
    """

    kind: Kind | None
    what: str
    degrees: tuple[Degree, ...] = ()
    fixes: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    accepted: bool = True
    magnitude: float = 1.0
    tolerances: tuple[float, ...] = ()
    lost_dims: str = ""
    is_valid: bool = True
    unstable: str = ""


def describe(report: Report) -> Finding:
    """The result of a comparison: the latencies if they were measured, else the errors."""
    if report.latency_ms is not None and report.latency_ratio is not None:
        ratio, low, high = report.latency_ratio
        noise = f"quartiles {low:.2f} to {high:.2f}"
        what = f"{report.latency_ms:.3f} ms, {ratio:.2f} x the reference ({noise})"
        what += "" if report.accepted else f"; {report.comparison}"
        degree = Degree(Measure.LATENCY, ratio, low, high)
        return Finding(None, what, (degree,), accepted=bool(report.accepted))
    for name, sentence in report.unwritten.items():
        degrees = degrees_of(report.outputs, report.unwritten)
        return Finding(Kind.WRONG, f"{name} {sentence}", degrees, accepted=False)
    where = report.decisive
    degrees = degrees_of(where.outputs)
    wrong = next((output for output in where.outputs if not output.accepted), None)
    varies = describe_varying(report.reference, where)
    if wrong is None and varies:
        return Finding(None, varies, is_valid=False)
    if wrong is None:
        compared = describe_compared(report.first_inputs, report.further)
        known = "equal" if report.equal else report.comparison
        return Finding(None, f"{known} with {compared}" if compared else known, degrees)
    size = "" if wrong.max_abs_error is None else f", by up to {wrong.max_abs_error:.3g}"
    at = f" with {where.where}" if where.where else ""
    what = f"{wrong.name}: {wrong.problem}{size}{at}"
    return Finding(
        Kind.WRONG,
        what,
        degrees,
        sizes=where.sizes,
        accepted=False,
        magnitude=where.magnitude,
        tolerances=_beyond(wrong),
    )


def _beyond(wrong: OutputComparison) -> tuple[float, float]:
    """Tolerances beyond which an output differs: its own, unless it differs by little more."""
    error = wrong.max_abs_error
    largest = error / wrong.max_rel_error if error and wrong.max_rel_error else 0.0
    if error is None or error > 2 * (wrong.atol + wrong.rtol * largest):
        return wrong.rtol, wrong.atol
    return 0.0, error / 2


def degrees_of(
    outputs: Sequence[OutputComparison], unwritten: Collection[str] = ()
) -> tuple[Degree, ...]:
    """How wrong outputs are, of which some read memory that nothing wrote: zero if accepted."""
    undefined, elements, error = 0, 0, 0.0
    for output in outputs:
        if output.name in unwritten:
            undefined += math.prod(output.shape)
            elements += math.prod(output.shape)
        elif not output.accepted:
            undefined += output.outside if output.max_abs_error is None else 0
            elements += output.outside
            error = max(error, _error(output))
    counts = {
        Measure.UNDEFINED: undefined,
        Measure.ERROR: error,
        Measure.ELEMENTS: elements,
    }
    return tuple(Degree.counted(measure, count) for measure, count in counts.items())


def _error(output: OutputComparison) -> float:
    """The largest error relative to the tolerance of the largest element.

    Without a tolerance, such as of integers, it is the error itself.
    """
    error, relative = output.max_abs_error, output.max_rel_error
    if not error or not relative:
        return 0.0
    tolerance = output.atol + output.rtol * (error / relative)
    return error / (tolerance or 1.0)
