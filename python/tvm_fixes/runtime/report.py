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
"""The report of a compilation."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .explanation import Explanation

ROUNDING, FLOAT64, VARYING = "rounding", "float64", "varying"
"""Why an output is accepted although it differs by more than the tolerances: by no more than runs
of the reference with other rounding errors do, because the run in float64 agrees with it, or
because runs of the reference itself differ as much, such as those of random numbers."""

EQUAL, WITHIN, DIFFERENT = "equal", "equal within rounding", "different"
REFERENCE_OFF = "differs; the float64 run agrees with ours"
REFERENCE_VARIES = "not comparable; the reference is not deterministic"
"""The verdicts."""

OURS, THEIRS, BOTH = "ours", "reference", "both"
"""Which of the two rounds to 16 bits after each node: :attr:`OutputComparison.rounds`."""


@dataclass(frozen=True)
class OutputComparison:
    """The comparison of an output with the reference's.

    Attributes
    ----------
    name : str
        The output's name.
    shape : list of int
        The reference's shape.
    dtype : str
        The reference's dtype.
    max_abs_error : float or None
        The largest absolute difference; None if it is undefined (shapes or dtypes differ, or only
        one of the two has a NaN or an infinity).
    max_rel_error : float or None
        `max_abs_error` divided by the largest magnitude in the reference; `max_abs_error` itself
        if that is zero.
    rtol, atol : float
        The tolerances used.  By default, `atol` is proportional to the largest magnitude in the
        reference (:data:`tvm_fixes.observe.comparison.TOLERANCES`).
    equal : bool
        Whether shape and dtype agree, and ``|ours - theirs| <= atol + rtol * |theirs|`` for every
        element; a NaN equals a NaN, and an infinity equals itself.  If they differ by more than a
        few units in the last place, further runs of the reference decide:
        :func:`tvm_fixes.observe.verdicts.compare_all`.  False if the reference is off.
    problem : str
        Why it is not equal, in one line; empty if it is.
    float64_error, reference_float64_error : float or None
        The largest absolute differences of ours and of the reference from the reference in float64.
        It runs if rounding does not explain the difference.  None if it did not run.
    reason : str
        Why it is accepted beyond the tolerances: :data:`ROUNDING`, :data:`FLOAT64` for one that
        differs because the reference is off, or :data:`VARYING`; empty otherwise.
    rounding_error : float or None
        The largest absolute difference among runs of the reference with other rounding errors.
        None if they did not run.
    rounds : str
        If only runs that round to 16 bits after each node explain the difference, which of the two
        is nearer to them: :data:`OURS` or :data:`THEIRS`; :data:`BOTH` if neither clearly is.
        Empty otherwise.
    outside : int
        The number of elements outside the tolerances, or whose error is undefined.
    variation : str
        How two runs of the reference with the same inputs differ, beyond the tolerances, if that is
        the `reason`; empty otherwise.
    """

    name: str
    shape: list[int]
    dtype: str
    max_abs_error: float | None
    max_rel_error: float | None
    rtol: float
    atol: float
    equal: bool
    problem: str = ""
    float64_error: float | None = None
    reference_float64_error: float | None = None
    reason: str = ""
    rounding_error: float | None = None
    rounds: str = ""
    outside: int = 0
    variation: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it is equal, or the reference is no evidence against it: the run in float64
        agrees with ours instead, or runs of the reference vary as much."""
        return self.equal or self.reason in (FLOAT64, VARYING)

    @property
    def verdict(self) -> str:
        """:data:`EQUAL`, :data:`WITHIN`, :data:`REFERENCE_OFF`, :data:`REFERENCE_VARIES` or
        :data:`DIFFERENT`."""
        if not self.equal:
            excuses = {FLOAT64: REFERENCE_OFF, VARYING: REFERENCE_VARIES}
            return excuses.get(self.reason, DIFFERENT)
        return WITHIN if self.reason == ROUNDING else EQUAL

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values, including the computed ones."""
        return asdict(self) | {"accepted": self.accepted, "verdict": self.verdict}


@dataclass(frozen=True)
class FurtherComparison:
    """The comparison of the outputs with other inputs.

    Attributes
    ----------
    sizes : dict of str to int
        The sizes of the symbolic dims.
    outputs : list of OutputComparison
        One comparison per output; empty if they were not compared.
    skipped : str
        Why they were not compared, in one line; empty if they were.
    magnitude : float
        The factor of the random floats.
    """

    sizes: dict[str, int]
    outputs: list[OutputComparison] = field(default_factory=list)
    skipped: str = ""
    magnitude: float = 1.0

    @property
    def where(self) -> str:
        """The sizes and the magnitude in a few words; empty for static dims and usual inputs."""
        return describe_inputs(self.sizes, self.magnitude)

    @property
    def accepted(self) -> bool:
        """Whether no output is rejected."""
        return all(output.accepted for output in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values, including the computed ones."""
        return asdict(self) | {"outputs": [output.to_dict() for output in self.outputs]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "FurtherComparison":
        """Convert the result of :meth:`to_dict`, of any later version."""
        own = _known(cls, values)
        return cls(**own | {"outputs": _outputs_from(own)})


@dataclass(frozen=True)
class PassTime:
    """The time of a pass in a compilation.

    Attributes
    ----------
    name : str
        The pass: one of ours or of TVM's, or a sequence.
    calls : int
    seconds : float
        The time of all calls, with the passes that run in them.
    own_seconds : float
        The time without those passes.
    """

    name: str
    calls: int
    seconds: float
    own_seconds: float


@dataclass(frozen=True)
class Report:
    """The report of :func:`tvm_fixes.compile`.

    Attributes
    ----------
    source : str
        The name of the model.
    layout : str or None
        The requested layout.
    seconds : dict of str to float
        The time of each step, up to the comparison.
    artifact_bytes, parameter_bytes : int
        The size of the artifact, and of the model's parameters and constants.
    activation_transforms : int or None
        The number of permutes and layout transforms of activations that are left; None if unknown.
    fixes : list of str
        The fixes applied.
    reference : str or None
        The runtime that the outputs were compared with; None if they were not compared.
    outputs : list of OutputComparison
        One comparison per output; empty if they were not compared.
    sizes : dict of str to int
        The sizes of the symbolic dims for `outputs` and the latencies.
    magnitude : float
        The factor of the random floats for `outputs` and the latencies.
    further : list of FurtherComparison
        The comparisons at other sizes of the symbolic dims, and with inputs of other magnitudes.
    unwritten : dict of str to str
        The outputs that depend on memory that nothing wrote, each with a sentence that names the
        kernel.
    not_compared : str
        Why the outputs were not compared although they should be, in one line; empty otherwise.
    latency_ms, reference_latency_ms : float or None
        The median times of a run, measured in turns, with as many threads: see
        :mod:`tvm_fixes.observe.latency`.
    latency_ratio : list of float, or None
        The median over the turns of the ratio of the two, and its quartiles.
    constant_bytes : int or None
        The size of the constants in the artifact; None if unknown.
    warnings : list of str
        Warnings of the importer, and the constants that make the artifact much larger than the
        parameters.
    unproved : int or None
        The number of obligations, such as equal extents, that the verifier could neither prove nor
        disprove, after import and after ``Legalize``; None if it did not run.
    unfolded : list of str
        The operators and sizes of constant expressions that the model computes at run time, because
        folding them would make the library larger.
    integer_products : int
        The number of convolutions and matrix products of quantized operands that are computed in
        integers.
    float_products : list of str
        The others with a quantized operand, each with the reason.
    fallbacks : list of str
        The kernels of a GPU that a later schedule rule had to take, each with that rule, and with
        the rules that failed and why.
    explanation : Explanation or None
        What each fix did, and which optimizations were not made; None without ``explain``.
    options : dict of str to value
        The options of :func:`tvm_fixes.compile` that shape the artifact, except defaults and those
        that the manifest has.
    passes : list of PassTime
        The time of each pass, those that took longest first; empty without ``time_passes``.
    user_passes : dict of str to bool
        The passes given as an option, and whether each changed the module.
    cached : bool
        Whether the library comes from the cache.  A comparison is always a new one.
    """

    source: str
    layout: str | None
    seconds: dict[str, float]
    artifact_bytes: int
    parameter_bytes: int
    activation_transforms: int | None = None
    constant_bytes: int | None = None
    fixes: list[str] = field(default_factory=list)
    reference: str | None = None
    outputs: list[OutputComparison] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    magnitude: float = 1.0
    further: list[FurtherComparison] = field(default_factory=list)
    unwritten: dict[str, str] = field(default_factory=dict)
    not_compared: str = ""
    latency_ms: float | None = None
    reference_latency_ms: float | None = None
    latency_ratio: list[float] | None = None
    warnings: list[str] = field(default_factory=list)
    unproved: int | None = None
    unfolded: list[str] = field(default_factory=list)
    integer_products: int = 0
    float_products: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    explanation: Explanation | None = None
    options: dict[str, Any] = field(default_factory=dict)
    passes: list[PassTime] = field(default_factory=list)
    user_passes: dict[str, bool] = field(default_factory=dict)
    cached: bool = False

    @property
    def equal(self) -> bool | None:
        """Whether all outputs equal the reference's; None if they were not compared."""
        return all(output.equal for output in self.every_output) if self.reference else None

    @property
    def every_output(self) -> list[OutputComparison]:
        """The comparisons of the outputs with all inputs."""
        return [*self.outputs, *(output for each in self.further for output in each.outputs)]

    @property
    def first_inputs(self) -> FurtherComparison:
        """The comparison with the first inputs."""
        return FurtherComparison(self.sizes, self.outputs, magnitude=self.magnitude)

    @property
    def decisive(self) -> FurtherComparison:
        """The first inputs with which an output is rejected, or else the first ones."""
        every = [self.first_inputs, *self.further]
        return next((each for each in every if not each.accepted), every[0])

    @property
    def accepted(self) -> bool | None:
        """Whether all outputs are accepted, and none depends on memory that nothing wrote; None if
        they were not compared."""
        if not self.reference:
            return None
        return not self.unwritten and all(output.accepted for output in self.every_output)

    @property
    def verdict(self) -> str:
        """:data:`EQUAL`, :data:`WITHIN`, :data:`REFERENCE_OFF`, :data:`REFERENCE_VARIES` or
        :data:`DIFFERENT`.

        Of the outputs' verdicts, it is the last in this order; ``"not compared"`` without any.
        An output that depends on memory that nothing wrote is different.
        """
        if not self.reference:
            return "not compared"
        return DIFFERENT if self.unwritten else worst_verdict(self.every_output)

    @property
    def size_ratio(self) -> float | None:
        """The artifact's size divided by the parameters'; None for a model without parameters."""
        return self.artifact_bytes / self.parameter_bytes if self.parameter_bytes else None

    @property
    def max_abs_error(self) -> float | None:
        """The largest absolute error of all outputs, with inputs of the magnitude that decides the
        verdict; None if it is undefined."""
        return largest_error(self._shown)

    @property
    def _place(self) -> FurtherComparison:
        """The first inputs with the verdict."""
        verdict, first = worst_verdict(self.every_output), self.first_inputs
        return next(
            (e for e in (first, *self.further) if worst_verdict(e.outputs) == verdict), first
        )

    @property
    def _shown(self) -> list[OutputComparison]:
        """The outputs with inputs of the same magnitude: errors grow with it."""
        every, magnitude = (self.first_inputs, *self.further), self._place.magnitude
        return [one for each in every if each.magnitude == magnitude for one in each.outputs]

    @property
    def comparison(self) -> str:
        """The verdict and the largest error, in one line.

        Within rounding, the largest of the outputs that are equal only within it.
        """
        if not self.reference:
            return "not compared" + (f": {self.not_compared}" if self.not_compared else "")
        for name, sentence in self.unwritten.items():
            return f"{name} {sentence}"
        error, place = self.max_abs_error, self._place.where
        figure = "" if error is None else f", max error {error:.2g}"
        where = f" with {place}" if self._place != self.first_inputs else ""
        if self.verdict == REFERENCE_OFF:
            return describe_off(self.reference, self._shown, where=where)
        if self.verdict == REFERENCE_VARIES:
            return describe_varying(self.reference, self._place)
        if self.verdict == WITHIN:
            rounded = [output for output in self._shown if output.verdict == WITHIN]
            worst = max(rounded, key=lambda output: output.max_abs_error or 0.0)
            error, own = worst.max_abs_error, worst.rounding_error or 0.0
            figure = "infinite in places" if error is None else f"max error {error:.2g}"
            rounds = describe_rounds(self.reference, worst)
            by = f"; {rounds}" if rounds else ""
            known = f"equal within rounding to {self.reference}{where}"
            return f"{known}, {figure} (its own: {own:.2g}){by}"
        known = "equal" if self.equal else "not equal"
        return f"{known} to {self.reference}{where}{figure}"

    def __str__(self) -> str:
        parts = ["not compared"]
        if self.reference is not None:
            parts = [self.comparison]
        if self.latency_ms is not None and self.reference_latency_ms is not None:
            parts.append(f"{self.latency_ms:.3g} ms (reference {self.reference_latency_ms:.3g} ms)")
        parts.append(f"{self.artifact_bytes} bytes")
        parts += ["from the cache"] if self.cached else []
        parts.append(f"fixes: {', '.join(self.fixes) or 'none'}")
        layout = f" in {self.layout}" if self.layout else ""
        return f"{self.source}{layout}: {', '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, including the computed ones."""
        computed = ("equal", "accepted", "verdict", "size_ratio")
        outputs = [output.to_dict() for output in self.outputs]
        values = asdict(self) | {name: getattr(self, name) for name in computed}
        return values | {"outputs": outputs, "further": [each.to_dict() for each in self.further]}

    def to_json(self) -> str:
        """The report as one JSON object, indented."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Report":
        """Convert the result of ``dataclasses.asdict`` or :meth:`to_dict`, of any later version."""
        own = _known(cls, values)
        own["outputs"] = _outputs_from(own)
        own["further"] = [FurtherComparison.from_dict(each) for each in own.get("further", [])]
        own["passes"] = [PassTime(**_known(PassTime, each)) for each in own.get("passes", [])]
        if own.get("explanation") is not None:
            own["explanation"] = Explanation.from_dict(own["explanation"])
        return cls(**own)


def worst_verdict(outputs: Iterable[OutputComparison]) -> str:
    """The verdict that comes last in the order of :attr:`OutputComparison.verdict`."""
    found = {output.verdict for output in outputs}
    order = (DIFFERENT, REFERENCE_VARIES, REFERENCE_OFF, WITHIN)
    return next((verdict for verdict in order if verdict in found), EQUAL)


def largest_error(outputs: Iterable[OutputComparison]) -> float | None:
    """The largest absolute error; None if there is none, or one is undefined."""
    errors = [output.max_abs_error for output in outputs]
    known = [error for error in errors if error is not None]
    return max(known) if known and len(known) == len(errors) else None


def describe_off(
    reference: str | None,
    outputs: Iterable[OutputComparison],
    *,
    verb: str = "differs",
    whose: str = "ours",
    where: str = "",
) -> str:
    """Describe by how much outputs differ for which the reference is off, in one line."""
    error = largest_error(output for output in outputs if output.verdict == REFERENCE_OFF)
    by = "" if error is None else f" by {error:.2g}"
    return f"{verb} from {reference}{by}{where}; the float64 run agrees with {whose}"


def describe_varying(reference: str | None, compared: FurtherComparison) -> str:
    """Describe that the reference is not deterministic, with values, in one line; empty if nothing
    shows it."""
    first = next((output for output in compared.outputs if output.variation), None)
    if first is None:
        return ""
    where = f" with {compared.where}" if compared.where else ""
    return (
        f"not comparable: {reference} is not deterministic{where}: {first.name}: {first.variation}"
    )


def describe_rounds(reference: str | None, output: OutputComparison) -> str:
    """Describe which of the two rounds to 16 bits where; empty if this explains nothing."""
    kind = output.dtype if output.dtype in ("float16", "bfloat16") else "16 bits"
    match output.rounds:
        case "ours":
            return f"ours rounds to {kind} after each node, {reference} does not"
        case "reference":
            return f"{reference} rounds to {kind} after each node, ours does not"
        case "both":
            return f"ours and {reference} round to {kind} after different nodes"
    return ""


def describe_sizes(sizes: Mapping[str, int]) -> str:
    """The sizes as a list: ``N=2, seq=32``."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def describe_inputs(sizes: Mapping[str, int], magnitude: float) -> str:
    """The sizes and the magnitude of inputs: ``N=2, inputs x 1/64``."""
    factor = f"1/{1 / magnitude:g}" if magnitude < 1 else f"{magnitude:g}"
    return ", ".join(
        filter(None, [describe_sizes(sizes), f"inputs x {factor}" if magnitude != 1 else ""])
    )


def describe_compared(first: FurtherComparison, further: Iterable[FurtherComparison]) -> str:
    """All inputs that were compared, in one line: ``N=2; N=7; N=2, inputs x 64``; empty if there
    were only usual ones, with static dims."""
    places = [each.where for each in (first, *further) if not each.skipped]
    return "; ".join(place or "usual inputs" for place in places) if any(places) else ""


def _outputs_from(values: Mapping[str, Any]) -> list[OutputComparison]:
    outputs = values.get("outputs", [])
    return [OutputComparison(**_known(OutputComparison, output)) for output in outputs]


def _known(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The `values` of fields of the dataclass `cls`."""
    names = {known.name for known in fields(cls)}
    return {key: value for key, value in values.items() if key in names}
