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
"""Comparison of a compiled model with the original, value by value.

The model is compiled again with some of its intermediate values as outputs, and ONNX Runtime or
PyTorch runs the same part of it.  A group of values is as large as a limit on memory allows.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from .. import target as targets
from ..compiler import Progress, Step
from ..compiler import compile as compile_model
from ..compiler.further_sizes import FurtherSizes, Groups
from ..compiler.inputs import load_inputs
from ..compiler.options import Options
from ..compiler.reference import Reference, results_of, run_model
from ..errors import CompileError, UsageError, summarize
from ..observe.repetition import disagreements
from ..observe.verdicts import compare_all
from ..relax.source_nodes import SourceNode
from ..runtime.report import REFERENCE_OFF, OutputComparison, Report, SizeComparison
from ..source import Params, Shapes, Source, open_source
from ..source.base import ModelValue
from ..source.examples import used_sizes, with_sizes
from ..source.inputs import GivenInputs, save_arrays
from ..support.isolate import OutcomeKind, run_forked
from ..support.signals import interruptible
from ..target.cpu import is_cpu
from .explaining import explain
from .stock import run_stock

MAX_BYTES = 256 << 20
"""The default limit on the size of the values that are compared at once."""

# A group of values of unknown size has at most this many.
_MAX_UNSIZED = 64


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
    further : list of SizeComparison
        The comparisons of the outputs at other sizes.
    unstable : dict of str to str
        The outputs and values that differ among runs with the same inputs, each with a sentence.
    fixes : dict of str to list of str
        The fixes applied at the node of `first`, each with where: ``import``, ``lowering``,
        ``operator rule`` or passes.
    values : list of ValueComparison
        The intermediate values, in the order of the model.
    is_hidden : bool
        Whether the outputs differ although all values are equal when they are compared in groups;
        `values` then ends with the first one that differs when only it is an output.
    skipped : dict of str to str
        Values that could not be compared, with the reason.
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
    further: list[SizeComparison] = field(default_factory=list)
    unstable: dict[str, str] = field(default_factory=dict)
    fixes: dict[str, list[str]] = field(default_factory=dict)
    crashes: bool = False

    @property
    def equal(self) -> bool:
        """Whether the model runs, and all outputs and values are equal."""
        return not self.problem and all(result.equal for result in self._results())

    @property
    def accepted(self) -> bool:
        """Whether the model runs, and all are equal, or differ because the reference is off."""
        is_stable = not self.problem and not self.unstable
        return is_stable and all(result.accepted for result in self._results())

    def _results(self) -> list[OutputComparison]:
        return [*self.outputs, *(value.result for value in self.values)]

    @property
    def first(self) -> ValueComparison | None:
        """The first value that is not accepted; None if all are."""
        return next((value for value in self.values if not value.result.accepted), None)

    @property
    def reference_off(self) -> list[ValueComparison]:
        """The values that differ because the reference is off: the float64 run agrees with ours."""
        return [value for value in self.values if value.result.verdict == REFERENCE_OFF]

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
        }

    def to_json(self) -> str:
        """The comparison as one JSON object, indented."""
        return json.dumps(self.to_dict(), indent=2)


def compare(
    source: Any,
    *,
    shapes: Shapes | None = None,
    inputs: GivenInputs | None = None,
    sizes: Mapping[str, int] | None = None,
    save_inputs: str | os.PathLike[str] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    max_bytes: int = MAX_BYTES,
    stock: bool = False,
    trust: bool = False,
    params: Params | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
    repeat: int = 1,
    **options: Any,
) -> LayerComparison:
    """Compare each intermediate value of a compiled model with the original's.

    Parameters
    ----------
    source, shapes, sizes, seed, rtol, atol, trust, params
        As for :func:`tvm_fixes.compile`.
    inputs : path or mapping of str to numpy.ndarray, optional
        The inputs by name, or an ``.npz`` file of them; by default, random ones.
    save_inputs : path, optional
        An ``.npz`` file to write the inputs to.
    max_bytes : int
        The limit on the size of the values that are compared at once.
    stock : bool
        Also compare plain TVM, which runs in its own process.
    timeout : float, optional
        The time limit in seconds to compile and run a group of values; ignored for a GPU.
    progress : callable, optional
        Called with a :class:`~tvm_fixes.compiler.Step` for each group of values.
    repeat : int
        The number of runs of each compiled part, whose results must agree in every bit.
    **options
        Further options of :func:`tvm_fixes.compile`, such as ``target`` and ``layout``.

    Returns
    -------
    comparison : LayerComparison

    Raises
    ------
    UsageError
        If an option is invalid, the inputs do not fit the model, or no other runtime can run it.
    CompileError
        If the reference does not run, or if the model fails although each of its values can be
        computed.

    Notes
    -----
    For a CPU, the compiler and the model run in forked children, so a crash is reported as a
    failure.
    """
    Options(rtol=rtol, atol=atol, seed=seed, **options).check()
    opened = open_source(source, shapes, trust=trust, params=params)
    opened.set_sizes(sizes or {})
    if options.pop("static", False):
        opened.make_static()
    drawn = load_inputs(opened, inputs, seed)
    further = [] if inputs is not None else opened.further_inputs(seed)
    comparing = _Comparing(
        opened, drawn, further, rtol, atol, stock, timeout, repeat, progress, options
    )

    def save() -> None:
        if save_inputs is not None:
            pairs = zip(opened.inputs, comparing.inputs, strict=True)
            save_arrays(save_inputs, {spec.name: value for spec, value in pairs})

    save()
    found = comparing.run(max_bytes)
    if found.sizes != used_sizes(opened.chosen_inputs(), drawn):
        save()
    return found


@dataclass(frozen=True)
class _Found:
    """The comparison of the outputs of a part of a model."""

    reference: str
    results: list[OutputComparison]
    counts: list[tuple[int, int, int, int]] = field(default_factory=list)
    stock: list[OutputComparison] = field(default_factory=list)
    stock_problems: list[str] = field(default_factory=list)
    further: list[SizeComparison] = field(default_factory=list)
    unstable: dict[str, str] = field(default_factory=dict)


class _Comparing:
    """One comparison of a model, with given inputs; `further` ones replace them if only they show a
    difference."""

    def __init__(
        self,
        source: Source,
        inputs: list[np.ndarray],
        further: Groups,
        rtol: float | None,
        atol: float | None,
        stock: bool,
        timeout: float | None,
        repeat: int,
        progress: Progress | None,
        options: Mapping[str, Any],
    ) -> None:
        self._source, self.inputs, self._further = source, inputs, further
        self._rtol, self._atol = rtol, atol
        self._stock, self._options = stock, options
        self._timeout, self._repeat = timeout, repeat
        self._is_isolated = is_cpu(targets.resolve(options.get("target", "native")))
        self._progress = progress or (lambda step: None)
        self._skipped: dict[str, str] = {}
        self._problems: dict[str, None] = {}
        self._reference = ""
        self._stops = False
        self._failure: ValueFailure | None = None
        self._unstable: dict[str, str] = {}
        self._crashes = False

    def run(self, max_bytes: int) -> LayerComparison:
        self._progress(Step("outputs"))
        found, further = self._outputs()
        known = self._source.values(self.inputs)
        # If the model fails, only the values before the first failure are compared.
        self._stops = isinstance(found, str)
        values: list[ValueComparison] = []
        for group in _groups(known, max_bytes):
            if self._failure is None:
                self._progress(Step(f"values {len(values) + 1} to {len(values) + len(group)}"))
                values += self._compare(group)
        is_equal = all(value.result.accepted for value in values)
        fails = isinstance(found, str) or not all(result.accepted for result in found.results)
        is_hidden = fails and is_equal and self._failure is None
        if is_hidden:
            values += self._search([value for value in known if value.name not in self._skipped])
        problem = found if isinstance(found, str) else ""
        if isinstance(found, str):
            if self._failure is None and all(value.result.accepted for value in values):
                raise CompileError(found)
            found = _Found(self._reference, [])
        return LayerComparison(
            self._source.name,
            found.reference,
            found.results,
            values,
            is_hidden,
            self._skipped,
            found.stock,
            list(self._problems),
            problem,
            self._failure,
            self._sizes(self.inputs),
            further,
            self._unstable,
            self._fixes_at(next((one for one in values if not one.result.accepted), None)),
            bool(problem) and self._crashes,
        )

    def _fixes_at(self, value: ValueComparison | None) -> dict[str, list[str]]:
        """The fixes applied at the node of a value, by a compilation up to it."""
        if value is None:
            return {}

        def explained() -> dict[str, list[str]]:
            part = self._source.with_outputs([value.name])
            found = explain(part, **self._options).fixes
            return {one.fix: one.by for one in found if str(value.node) in one.nodes}

        self._progress(Step("fixes at the first difference"))
        if not self._is_isolated:
            return explained()
        outcome = run_forked(explained, timeout=self._timeout)
        is_known = outcome.kind is OutcomeKind.VALUE
        return cast(dict[str, list[str]], outcome.value) if is_known else {}

    def _outputs(self) -> tuple[_Found | str, list[SizeComparison]]:
        """Compare the outputs, with the inputs of the first size at which one differs, and at other
        sizes."""
        found = self._try(self._source, self._further)
        if isinstance(found, str):
            return found, []
        first = SizeComparison(self._sizes(self.inputs), found.results)
        wrong = next((each for each in found.further if not each.accepted), None)
        if not first.accepted or wrong is None:
            return found, found.further
        candidates = (inputs for group in self._further for inputs in group)
        inputs = with_sizes(self._source.chosen_inputs(), candidates, wrong.sizes)
        assert inputs is not None
        self.inputs = inputs
        others = [first, *(each for each in found.further if each is not wrong)]
        return self._try(self._source), others

    def _sizes(self, inputs: Sequence[np.ndarray]) -> dict[str, int]:
        return used_sizes(self._source.chosen_inputs(), inputs)

    def _compare(self, group: Sequence[ModelValue]) -> list[ValueComparison]:
        """Compare some values; skip those that cannot be computed, or stop at the first of them."""
        found = self._try(self._source.with_outputs([value.name for value in group]))
        if isinstance(found, str) and len(group) == 1:
            if self._stops:
                self._failure = ValueFailure(group[0].node, group[0].name, found)
            else:
                self._skipped[group[0].name] = found
            return []
        if isinstance(found, str):
            middle = len(group) // 2
            values = self._compare(group[:middle])
            return values if self._failure else [*values, *self._compare(group[middle:])]
        others: list[OutputComparison | None] = [*found.stock] or [None] * len(group)
        return [
            ValueComparison(value.node, result, *count, other)
            for value, result, count, other in zip(
                # New values of inputs may follow.
                group,
                found.results,
                found.counts,
                others,
                strict=False,
            )
        ]

    def _search(self, values: Sequence[ModelValue]) -> list[ValueComparison]:
        """The first value that differs, or fails, when it is the only output."""
        low, high = 0, len(values)
        found: list[ValueComparison] = []
        while low < high:
            middle = (low + high) // 2
            self._progress(Step(f"value {middle + 1} alone"))
            single = self._compare([values[middle]])
            differs = bool(single) and not single[0].result.accepted
            if (not single) if self._stops else differs:
                found, high = single, middle
            else:
                low = middle + 1
        return found

    def _try(self, part: Source, further: Groups = ()) -> _Found | str:
        """Compare the outputs of a part of the model; return a str if they cannot be computed."""
        if self._is_isolated:
            outcome = run_forked(partial(self._answer, part, further), timeout=self._timeout)
            if outcome.kind is not OutcomeKind.VALUE:
                self._crashes |= outcome.kind is not OutcomeKind.EXCEPTION
                return " ".join(str(outcome).split())
            answer = cast(_Found | UsageError | str, outcome.value)
        else:
            answer = self._answer(part, further)
        if isinstance(answer, UsageError):
            raise answer
        if isinstance(answer, _Found):
            self._reference = answer.reference
            self._problems.update(dict.fromkeys(answer.stock_problems))
            self._unstable |= answer.unstable
        return answer

    def _answer(self, part: Source, further: Groups) -> _Found | UsageError | str:
        try:
            return self._pairs(part, further)
        except UsageError as error:
            return error
        except CompileError as error:
            return error.message
        except Exception as error:
            return summarize(error)

    def _pairs(self, part: Source, further: Groups) -> _Found:
        model = compile_model(part, compare=False, **self._options)
        with Reference(part, inputs=self.inputs) as reference:
            name = reference.name
            theirs = reference.outputs()
            names = [spec.name for spec in results_of(model)]
            ours = interruptible(partial(run_model, model, self.inputs))
            evidence = reference.evidence()
            judged = partial(compare_all, evidence=evidence, rtol=self._rtol, atol=self._atol)
            counts = [
                (_count(np.isnan, a), _count(np.isnan, b), _count(np.isinf, a), _count(np.isinf, b))
                for a, b in zip(ours, theirs, strict=True)
            ]
            unstable = disagreements(
                names, ours, lambda: run_model(model, self.inputs)[: len(names)], self._repeat
            )
            found = _Found(name, judged(names, ours, theirs), counts, unstable=unstable)
            if self._stock:
                stock = run_stock(part, self.inputs)
                if isinstance(stock, str):
                    found.stock_problems.append(stock)
                else:
                    # Plain TVM does not return the new values of inputs.
                    number = len(stock)
                    found.stock.extend(judged(names[:number], stock, theirs[:number]))
            sizes = FurtherSizes(model, reference, self._rtol, self._atol)
            report = Report(part.name, None, {}, 0, 0, outputs=found.results)
            found.further.extend(sizes.added(report, further, all_sizes=False).further)
            return found


def _groups(values: Sequence[ModelValue], max_bytes: int) -> Iterator[list[ModelValue]]:
    """Split values into runs of at most `max_bytes`."""
    group: list[ModelValue] = []
    size = 0
    for value in values:
        nbytes = max_bytes // _MAX_UNSIZED if value.nbytes is None else value.nbytes
        if group and size + nbytes > max_bytes:
            yield group
            group, size = [], 0
        group.append(value)
        size += nbytes
    if group:
        yield group


def _count(test: Callable[[np.ndarray], np.ndarray], array: np.ndarray) -> int:
    if array.dtype.kind not in "fcV":
        return 0
    return int(np.count_nonzero(test(array)))
