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
"""The result of a comparison of a compiled model with the original, value by value."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from ..relax.source_nodes import SourceNode
from ..runtime.report import (
    REFERENCE_OFF,
    REFERENCE_VARIES,
    FurtherComparison,
    OutputComparison,
)


@dataclass(frozen=True)
class ValueComparison:
    """A value of ours and of the reference.

    Attributes
    ----------
    node : SourceNode
        The node that computes it.
    result : OutputComparison
        The verdict and the errors; its ``name`` is that of the value.
    nans, reference_nans : int
        The number of elements that are not a number.
    infinities, reference_infinities : int
        The number of infinite elements.
    stock : OutputComparison or None
        The comparison of plain TVM with the reference, if it ran.
    """

    node: SourceNode
    result: OutputComparison
    nans: int
    reference_nans: int
    infinities: int
    reference_infinities: int
    stock: OutputComparison | None = None

    @property
    def name(self) -> str:
        """The name of the value."""
        return self.result.name


@dataclass(frozen=True)
class ValueFailure:
    """The first value that cannot be computed.

    Attributes
    ----------
    node : SourceNode
        The node that computes it.
    name : str
        The name of the value.
    problem : str
        The reason, such as the compiler's error, or ``SIGSEGV: crashed``.
    """

    node: SourceNode
    name: str
    problem: str


@dataclass(frozen=True)
class LayerComparison:
    """The result of :func:`compare`.

    Attributes
    ----------
    source, reference : str
        The model, and the runtime that it is compared with.
    outputs : list of OutputComparison
        The outputs of the model, compiled as it is.
    sizes : dict of str to int
        The sizes of the symbolic dims for `outputs` and `values`: the first at which an output
        differs.
    magnitude : float
        The factor of random floats in the inputs for these, likewise.
    further : list of FurtherComparison
        The comparisons of the outputs with other inputs.
    unstable : dict of str to str
        The outputs and values that differ among runs with the same inputs, each with a sentence.
    unwritten : dict of str to str
        The outputs and values that depend on memory that nothing wrote, each with a sentence.
    runtime : dict of str to str
        The outputs that are wrong because of the runtime, each with a sentence.
    fixes : dict of str to list of str
        The fixes applied at the node of `suspect`, each with where: ``import``, ``lowering``,
        ``operator rule`` or passes.
    values : list of ValueComparison
        The intermediate values, in the order of the model.
    is_hidden : bool
        Whether the outputs differ although all values are equal when they are compared in groups;
        `values` then ends with the first one that differs when only it is an output.
    skipped : dict of str to str
        Values that could not be compared, with the reason.
    skipped_before : list of str
        Those before the first value that differs, which may be at fault instead.
    stock_outputs : list of OutputComparison
        The outputs of plain TVM, if it ran.
    stock_problems : list of str
        Why plain TVM did not run.
    problem : str
        Why the model as it is cannot be compiled or run; `outputs` is then empty.
    crashes : bool
        Whether the compiler or the model crashes, or exceeds the time limit, instead of an error.
    failure : ValueFailure or None
        The first value that cannot be computed then; `values` ends before it.  None if each value
        can be computed, although not the whole model.
    """

    source: str
    reference: str
    outputs: list[OutputComparison]
    values: list[ValueComparison] = field(default_factory=list)
    is_hidden: bool = False
    skipped: dict[str, str] = field(default_factory=dict)
    stock_outputs: list[OutputComparison] = field(default_factory=list)
    stock_problems: list[str] = field(default_factory=list)
    problem: str = ""
    failure: ValueFailure | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    magnitude: float = 1.0
    further: list[FurtherComparison] = field(default_factory=list)
    unstable: dict[str, str] = field(default_factory=dict)
    unwritten: dict[str, str] = field(default_factory=dict)
    fixes: dict[str, list[str]] = field(default_factory=dict)
    crashes: bool = False
    runtime: dict[str, str] = field(default_factory=dict)
    skipped_before: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether the model runs, and all outputs and values are equal."""
        return not self.problem and all(result.equal for result in self._results())

    @property
    def accepted(self) -> bool:
        """Whether the model runs, and all are equal, or differ because the reference is off."""
        has_fault = self.problem or self.unstable or self.unwritten or self.runtime
        return not has_fault and all(result.accepted for result in self._results())

    @property
    def first_inputs(self) -> FurtherComparison:
        """The comparison of the outputs with the inputs of the values."""
        return FurtherComparison(self.sizes, self.outputs, magnitude=self.magnitude)

    def _results(self) -> list[OutputComparison]:
        return [*self.outputs, *(value.result for value in self.values)]

    @property
    def first(self) -> ValueComparison | None:
        """The first value that is not accepted; None if all are."""
        return next((value for value in self.values if not value.result.accepted), None)

    @property
    def first_unstable(self) -> ValueComparison | None:
        """The first value in `unstable`; None without one."""
        return next((value for value in self.values if value.name in self.unstable), None)

    @property
    def suspect(self) -> ValueComparison | None:
        """The first value that is not accepted, or else that is in `unstable` or `unwritten`."""
        named = self.unstable | self.unwritten
        return self.first or next((value for value in self.values if value.name in named), None)

    @property
    def reference_off(self) -> list[ValueComparison]:
        """The values that differ because the reference is off: the float64 run agrees with ours."""
        return [value for value in self.values if value.result.verdict == REFERENCE_OFF]

    @property
    def varying(self) -> list[ValueComparison]:
        """The values that cannot be compared, because runs of the reference vary."""
        return [value for value in self.values if value.result.verdict == REFERENCE_VARIES]

    @property
    def first_stock(self) -> ValueComparison | None:
        """The first value of plain TVM that is not accepted; None without one."""
        return next((v for v in self.values if v.stock is not None and not v.stock.accepted), None)

    def first_with(self, counted: str) -> ValueComparison | None:
        """The first value with a positive ``nans``, ``reference_infinities`` or similar count."""
        return next((value for value in self.values if getattr(value, counted)), None)

    @property
    def growth(self) -> list[ValueComparison]:
        """The first value not accepted, and each later one with a larger relative error."""
        found: list[ValueComparison] = []
        largest = -1.0
        begin = self.values.index(self.first) if self.first is not None else len(self.values)
        for value in self.values[begin:]:
            error = value.result.max_rel_error
            if not found or (error is not None and error > largest):
                found.append(value)
                largest = max(largest, error or 0.0)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values, including the computed ones."""
        firsts = {
            f"first_{counted}": value.name
            for counted in ("nans", "reference_nans", "infinities", "reference_infinities")
            if (value := self.first_with(counted)) is not None
        }
        values = asdict(self) | firsts
        for kind in ("outputs", "stock_outputs"):
            values[kind] = [output.to_dict() for output in getattr(self, kind)]
        values["further"] = [each.to_dict() for each in self.further]
        for plain, value in zip(values["values"], self.values, strict=True):
            plain["result"] = value.result.to_dict()
            plain["stock"] = None if value.stock is None else value.stock.to_dict()
        return values | {
            "equal": self.equal,
            "accepted": self.accepted,
            "first": None if self.first is None else self.first.name,
            "growth": [value.name for value in self.growth],
            "reference_off": [value.name for value in self.reference_off],
            "varying": [value.name for value in self.varying],
        }

    def to_json(self) -> str:
        """The comparison as one JSON object, indented."""
        return json.dumps(self.to_dict(), indent=2)
