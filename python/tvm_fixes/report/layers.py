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

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from .. import target as targets
from ..compiler import Progress, Step
from ..compiler import compile as compile_model
from ..compiler.further_inputs import FurtherInputs, Groups
from ..compiler.inputs import load_inputs
from ..compiler.options import Options
from ..compiler.reference import Reference, results_of, run_model, varying_results
from ..errors import CompileError, UsageError, summarize
from ..observe.runtime_faults import runtime_faults
from ..observe.unwritten import MAX_REPEATED_SECONDS, unwritten_memory
from ..observe.verdicts import compare_all
from ..runtime.compiled_model import CompiledModel
from ..runtime.report import FurtherComparison, OutputComparison, Report
from ..source import Params, Shapes, Source, open_source
from ..source.base import ModelValue
from ..source.examples import MAGNITUDES, used_sizes, with_sizes
from ..source.inputs import GivenInputs, save_arrays
from ..support.isolate import OutcomeKind, run_forked
from ..support.signals import interruptible
from ..target.cpu import is_cpu
from ..tirx.transform.fill_allocations import FillAllocations
from .explaining import explain_until_error
from .layer_comparison import LayerComparison, ValueComparison, ValueFailure
from .stock import run_stock

MAX_BYTES = 256 << 20
"""The default limit on the size of the values that are compared at once."""

# A group of values of unknown size has at most this many.
_MAX_UNSIZED = 64

_FILL = (FillAllocations(), "after=KeepTilesOnStack")

_Item = TypeVar("_Item")


def compare(
    source: Any,
    *,
    shapes: Shapes | None = None,
    inputs: GivenInputs | None = None,
    sizes: Mapping[str, int] | None = None,
    magnitude: float | None = None,
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
    fill_memory: bool = False,
    **options: Any,
) -> LayerComparison:
    """Compare each intermediate value of a compiled model with the original's.

    Parameters
    ----------
    source, shapes, sizes, magnitude, seed, rtol, atol, trust, params
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
    fill_memory : bool
        Also fill the memory within kernels, to find reads of memory that nothing wrote, not only
        the tensors between them.  The memory within the kernels of the first value that differs is
        filled in any case.
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
    opened.set_magnitude(magnitude)
    if options.pop("static", False):
        opened.make_static()
    drawn = load_inputs(opened, inputs, seed)
    further = [] if inputs is not None else opened.further_inputs(seed, MAGNITUDES)
    comparing = _Comparing(
        opened, drawn, further, rtol, atol, stock, timeout, repeat, fill_memory, progress, options
    )

    def save() -> None:
        if save_inputs is not None:
            pairs = zip(opened.inputs, comparing.inputs, strict=True)
            save_arrays(save_inputs, {spec.name: value for spec, value in pairs})

    save()
    found = comparing.run(max_bytes)
    if comparing.inputs is not drawn:
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
    further: list[FurtherComparison] = field(default_factory=list)
    unstable: dict[str, str] = field(default_factory=dict)
    unwritten: dict[str, str] = field(default_factory=dict)
    runtime: dict[str, str] = field(default_factory=dict)


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
        fill_memory: bool,
        progress: Progress | None,
        options: Mapping[str, Any],
    ) -> None:
        self._source, self.inputs, self._further = source, inputs, further
        self._rtol, self._atol = rtol, atol
        self._stock, self._options = stock, options
        self._timeout, self._repeat, self._fill_memory = timeout, repeat, fill_memory
        self._is_isolated = is_cpu(targets.resolve(options.get("target", "native")))
        self._progress = progress or (lambda step: None)
        self._skipped: dict[str, str] = {}
        self._problems: dict[str, None] = {}
        self._reference = ""
        self._stops = False
        self._failure: ValueFailure | None = None
        self._unstable: dict[str, str] = {}
        self._unwritten: dict[str, str] = {}
        self._crashes = False
        self._magnitude = source.magnitude or 1.0

    def run(self, max_bytes: int) -> LayerComparison:
        self._progress(Step("outputs"))
        outputs, further = self._outputs()
        known = self._source.values(self.inputs)
        # If the model fails, only the values before the first failure are compared.
        self._stops = isinstance(outputs, str)
        values: list[ValueComparison] = []
        for group in _groups(known, max_bytes):
            if self._failure is None:
                self._progress(Step(f"values {len(values) + 1} to {len(values) + len(group)}"))
                values += self._compare(group)
        is_equal = all(value.result.accepted for value in values)
        fails = isinstance(outputs, str) or not all(result.accepted for result in outputs.results)
        is_of_code = isinstance(outputs, str) or not outputs.runtime
        is_hidden = fails and is_equal and is_of_code and self._failure is None
        if is_hidden:
            values += self._search([value for value in known if value.name not in self._skipped])
        problem = outputs if isinstance(outputs, str) else ""
        first = next((value for value in values if not value.result.accepted), None)
        if (fails and not problem) or first is not None:
            self._fill_at(first)
        if isinstance(outputs, str):
            if self._failure is None and all(value.result.accepted for value in values):
                raise CompileError(outputs)
            outputs = _Found(self._reference, [])
        comparison = LayerComparison(
            self._source.name,
            outputs.reference,
            outputs.results,
            values,
            is_hidden,
            self._skipped,
            outputs.stock,
            list(self._problems),
            problem,
            self._failure,
            self._sizes(self.inputs),
            self._magnitude,
            further,
            self._unstable,
            self._in_order(self._unwritten, known),
            crashes=bool(problem) and self._crashes,
            runtime=outputs.runtime,
            skipped_before=self._skipped_before(first, known),
        )
        suspect = comparison.suspect or self._failure
        return replace(comparison, fixes=self._fixes_at(suspect))

    def _skipped_before(
        self, first: ValueComparison | None, known: Sequence[ModelValue]
    ) -> list[str]:
        """The values before the first that differs which could not be compared."""
        names = [value.name for value in known]
        if first is None or first.name not in names:
            return []
        return [name for name in names[: names.index(first.name)] if name in self._skipped]

    def _fixes_at(self, value: ValueComparison | ValueFailure | None) -> dict[str, list[str]]:
        """The fixes applied at the node of a value, by a compilation up to it.

        The first are those applied at fewest other nodes, whose values are equal: the fault is
        probably in what is special to the node.
        """
        if value is None:
            return {}

        def explained() -> dict[str, list[str]]:
            part = self._source.with_outputs([value.name])
            fixes = explain_until_error(part, **self._options).fixes
            there = [fix for fix in fixes if str(value.node) in fix.nodes]
            return {fix.fix: fix.by for fix in sorted(there, key=lambda fix: len(fix.nodes))}

        self._progress(Step("fixes at the first difference"))
        return self._isolated(explained)

    def _fill_at(self, value: ValueComparison | None) -> None:
        """Look for reads of memory that nothing wrote, within the kernels of a value, too."""
        if self._fill_memory or self._unwritten:
            return
        source = self._source

        def found() -> dict[str, str]:
            part = source if value is None else source.with_outputs([value.name])
            return unwritten_memory(self._compiled(part, fill_memory=True), self.inputs)

        self._progress(Step("memory at the first difference"))
        self._unwritten |= self._isolated(found)

    @staticmethod
    def _in_order(found: dict[str, str], known: Sequence[ModelValue]) -> dict[str, str]:
        """The sentences in the order of the model's values; the outputs were found first."""
        order = {value.name: place for place, value in enumerate(known)}
        return dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))

    def _isolated(self, run: Callable[[], dict[str, _Item]]) -> dict[str, _Item]:
        """The result of `run`, in a forked child if possible; empty if it fails there."""
        if not self._is_isolated:
            return run()
        outcome = run_forked(run, timeout=self._timeout)
        is_known = outcome.kind is OutcomeKind.VALUE
        return cast(dict[str, _Item], outcome.value) if is_known else {}

    def _compiled(self, part: Source, *, fill_memory: bool) -> CompiledModel:
        passes = [*self._options.get("passes", ()), *([_FILL] if fill_memory else [])]
        return compile_model(part, compare=False, **{**self._options, "passes": passes})

    def _outputs(self) -> tuple[_Found | str, list[FurtherComparison]]:
        """Compare the outputs, with the first inputs for which one differs, and with others."""
        found = self._try(self._source, self._further)
        if isinstance(found, str):
            return found, []
        first = FurtherComparison(
            self._sizes(self.inputs), found.results, magnitude=self._magnitude
        )
        wrong = next((each for each in found.further if not each.accepted), None)
        if not first.accepted or wrong is None:
            return found, found.further
        candidates = (drawn for group in self._further for drawn in group)
        specs = self._source.chosen_inputs()
        inputs = with_sizes(specs, candidates, wrong.sizes, wrong.magnitude)
        assert inputs is not None
        self.inputs, self._magnitude = inputs, wrong.magnitude
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
            self._unwritten |= answer.unwritten
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
        model = self._compiled(part, fill_memory=self._fill_memory)
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
            unstable = varying_results(model, self.inputs, ours, self._repeat)
            limit = math.inf if self._fill_memory else MAX_REPEATED_SECONDS
            filled = partial(unwritten_memory, model, self.inputs, limit)
            found = _Found(
                name,
                judged(names, ours, theirs),
                counts,
                unstable=unstable,
                # A result that varies by itself tells nothing about memory.
                unwritten={} if unstable else interruptible(filled),
            )
            if part is self._source:
                run = partial(run_model, model)
                faults = interruptible(partial(runtime_faults, names, model, run, self.inputs))
                found.runtime.update(faults)
            if self._stock:
                stock = run_stock(part, self.inputs)
                if isinstance(stock, str):
                    found.stock_problems.append(stock)
                else:
                    # Plain TVM does not return the new values of inputs.
                    number = len(stock)
                    found.stock.extend(judged(names[:number], stock, theirs[:number]))
            others = FurtherInputs(model, reference, self._rtol, self._atol)
            report = Report(part.name, None, {}, 0, 0, outputs=found.results)
            found.further.extend(others.added(report, further, all_groups=False).further)
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
