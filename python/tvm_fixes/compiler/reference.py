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
"""The original model as reference, and the comparison of the compiled model with it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from ..errors import CompileError, UsageError, summarize
from ..observe import latency
from ..observe.reference_process import ReferenceProcess
from ..observe.repetition import disagreements
from ..observe.unwritten import MAX_REPEATED_SECONDS, unwritten_memory, varying
from ..observe.verdicts import Evidence, compare_all
from ..runtime.compiled_model import CompiledModel
from ..runtime.manifest import TensorSpec, describe_shape
from ..runtime.report import Report
from ..source import Source
from ..source.examples import Example, candidates, used_sizes
from ..support.signals import interruptible

# The time in which runs of the reference with other rounding errors begin.
_MAX_ROUNDED_SECONDS = 20.0

# The time in which further inputs are tried.
_MAX_SEARCH_SECONDS = 20.0


class Reference(AbstractContextManager["Reference"]):
    """The original model in its own process, with the same inputs until others replace them.

    Attributes
    ----------
    source : Source
    inputs : list of numpy.ndarray
    name : str
        The runtime and its version.
    """

    def __init__(self, source: Source, inputs: list[np.ndarray]) -> None:
        self.source = source
        self.inputs = inputs
        self._outputs: list[np.ndarray] | None = None
        with self._errors():
            self._process = ReferenceProcess(
                source.reference, self.inputs, source.rounded_reference
            )
        self.name = self._process.name

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End its process."""
        self._process.close()

    def outputs(self) -> list[np.ndarray]:
        """The outputs of the first run with these inputs."""
        if self._outputs is None:
            with self._errors():
                self._outputs = self._process.outputs()
        return self._outputs

    def use(self, inputs: list[np.ndarray]) -> None:
        """Replace the inputs."""
        self.inputs, self._outputs = inputs, None
        with self._errors():
            self._process.use(inputs)

    def evidence(self) -> Evidence:
        """Further runs that judge outputs."""
        return Evidence(
            partial(self._process.rounded_outputs, seconds=_MAX_ROUNDED_SECONDS),
            partial(self.source.float64_outputs, self.inputs),
            partial(self.source.stepwise_outputs, self.inputs),
            partial(self.source.exported_outputs, self.inputs),
            self._again,
        )

    def _again(self) -> list[np.ndarray]:
        """The outputs of another run with these inputs."""
        first, self._outputs = self._outputs, None
        try:
            return self.outputs()
        finally:
            self._outputs = first

    def block(self, runs: int, budget: float) -> list[float]:
        """Time the reference: see :func:`tvm_fixes.observe.latency.block`."""
        with self._errors():
            return self._process.block(runs, budget)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except CompileError:
            raise
        except Exception as error:
            raise CompileError(
                f"{self.source.name}: the reference fails with inputs "
                f"{_describe(self.source, self.inputs)}: {summarize(error)}"
            ) from error


def _describe(source: Source, inputs: Sequence[np.ndarray]) -> str:
    """The names and shapes of inputs."""
    return ", ".join(
        f"{spec.name} {describe_shape(value.shape)}"
        for spec, value in zip(source.inputs, inputs, strict=True)
    )


def _accept_all(_: list[np.ndarray]) -> bool:
    return True


def start_reference(
    source: Source, seed: int, accepts: Callable[[list[np.ndarray]], bool] = _accept_all
) -> tuple[Reference | None, str]:
    """Start the reference of a model with random inputs that it accepts.

    Parameters
    ----------
    source : Source
    seed : int
    accepts : callable
        Whether to try the given inputs.

    Returns
    -------
    reference : Reference or None
        It has run with the first inputs of :func:`.examples.candidates` for which its outputs are
        finite, or else with the first that it accepts; with this one if the source has a magnitude.
    problem : str
        Why it accepts none, in one line.

    Raises
    ------
    UsageError
        If its runtime is not installed.
    """
    end = time.monotonic() + _MAX_SEARCH_SECONDS
    problem, accepted = "", None
    for example in candidates(source.chosen_inputs()):
        inputs = source.example_inputs(np.random.default_rng(seed), example)
        if not accepts(inputs):
            continue
        try:
            reference = Reference(source, inputs)
        except UsageError:
            raise
        except CompileError as error:
            # It cannot be built, with any inputs.
            return None, problem or error.message
        try:
            if _are_usual(reference.outputs()) or source.magnitude is not None:
                return reference, ""
            accepted = accepted or example
        except CompileError as error:
            problem = problem or error.message
        reference.close()
        if time.monotonic() > end:
            break
    if accepted is None:
        return None, problem
    inputs = source.example_inputs(np.random.default_rng(seed), accepted)
    return Reference(source, inputs), ""


def choose_inputs(source: Source, seed: int) -> list[np.ndarray]:
    """Random inputs that the reference of a model accepts, or any without a reference."""
    if source.has_reference:
        reference, _ = start_reference(source, seed)
        if reference is not None:
            reference.close()
            return reference.inputs
    return source.example_inputs(np.random.default_rng(seed), Example())


def _are_usual(outputs: Sequence[np.ndarray]) -> bool:
    """Whether all elements are finite, and there are any."""
    are_finite = (
        np.isfinite(value.astype("float32") if value.dtype.kind == "V" else value).all()
        for value in outputs
        if value.dtype.kind in "fcV"
    )
    return any(value.size for value in outputs) and all(are_finite)


def compare_outputs(
    model: CompiledModel,
    reference: Reference,
    report: Report,
    rtol: float | None,
    atol: float | None,
    *,
    timed: bool = True,
    seed: int | None = None,
) -> Report:
    """Run the model and the reference on the same inputs; add errors to the report.

    If `timed`, also add latencies.  If the model rejects the inputs of the reference, and a `seed`
    is given, other random inputs are tried; the report gets a warning.

    Further runs of the reference judge outputs that differ by more than a few units in the last
    place.
    """

    def finish(reference: Reference, ours: list[np.ndarray], report: Report) -> Report:
        report = interruptible(partial(_compare, model, reference, ours, report, rtol, atol))
        return interruptible(partial(_time, model, reference, report)) if timed else report

    # A model may run forever.
    try:
        ours = interruptible(partial(run_model, model, reference.inputs))
    except Exception as error:
        other, ours = (None, []) if seed is None else _accepted(model, reference.source, seed)
        if other is None:
            raise
        warning = (
            f"rejects inputs that {reference.name} accepts, "
            f"{_describe(reference.source, reference.inputs)}: {summarize(error)}"
        )
        with other:
            return finish(other, ours, replace(report, warnings=[*report.warnings, warning]))
    return finish(reference, ours, report)


def _accepted(
    model: CompiledModel, source: Source, seed: int
) -> tuple[Reference | None, list[np.ndarray]]:
    """The reference with inputs that the model accepts, too, and the model's outputs."""

    def accepts(inputs: list[np.ndarray]) -> bool:
        try:
            interruptible(partial(run_model, model, inputs))
        except Exception:  # a failed check of any kind: other inputs may pass
            return False
        return True

    reference, _ = start_reference(source, seed, accepts)
    return reference, [] if reference is None else run_model(model, reference.inputs)


def run_model(model: CompiledModel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of the model, and the new values of the inputs that it overwrites."""
    copies = [value.copy() for value in inputs]
    result = model.run(*copies)
    outputs = list(result) if len(model.outputs) > 1 else [result]
    return outputs + [copies[place] for place in model.manifest.hidden_updates()]


def results_of(model: CompiledModel) -> list[TensorSpec]:
    """The outputs of the model, and the inputs that it overwrites."""
    return [*model.outputs, *(model.inputs[place] for place in model.manifest.hidden_updates())]


def varying_results(
    model: CompiledModel, inputs: Sequence[np.ndarray], first: Sequence[np.ndarray], runs: int
) -> dict[str, str]:
    """The results that are not the same in all runs with the same inputs, each with a sentence.

    As many further runs follow in memory that holds NaN: see
    :func:`tvm_fixes.observe.unwritten.varying`.

    Parameters
    ----------
    model : CompiledModel
    inputs : sequence of numpy.ndarray
    first : sequence of numpy.ndarray
        The results of the first run: :func:`run_model`.
    runs : int
        The number of runs, with the first.
    """
    names = [spec.name for spec in results_of(model)]
    unstable = disagreements(names, first, lambda: run_model(model, inputs)[: len(names)], runs)
    return unstable | varying(names, model, inputs, runs)


def _compare(
    model: CompiledModel,
    reference: Reference,
    ours: list[np.ndarray],
    report: Report,
    rtol: float | None,
    atol: float | None,
) -> Report:
    outputs = compare_all(
        [spec.name for spec in results_of(model)],
        ours,
        reference.outputs(),
        reference.evidence(),
        rtol=rtol,
        atol=atol,
    )
    sizes = used_sizes(reference.source.chosen_inputs(), reference.inputs)
    unwritten = unwritten_memory(model, reference.inputs, MAX_REPEATED_SECONDS)
    return replace(
        report,
        reference=reference.name,
        outputs=outputs,
        sizes=sizes,
        magnitude=reference.source.magnitude or 1.0,
        unwritten=unwritten,
    )


def _time(model: CompiledModel, reference: Reference, report: Report) -> Report:
    inputs = [value.copy() for value in reference.inputs]
    ours, theirs = latency.measure(
        [partial(latency.block, partial(model.run, *inputs)), reference.block]
    )
    return replace(
        report,
        latency_ms=1e3 * ours.seconds,
        reference_latency_ms=1e3 * theirs.seconds,
        latency_ratio=list(ours.ratio(theirs)),
    )
