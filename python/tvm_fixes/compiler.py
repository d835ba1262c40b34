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
"""From a model to a library, in one call."""

import math
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.support import cc

from . import target as targets
from . import verifier
from .debug import comparison
from .debug.reference_process import ReferenceProcess
from .errors import CompileError, UsageError, summarize
from .fixes.verifier import VERIFIER
from .pipeline import stages
from .relax.analysis import activation_transforms
from .relax.constants.growth import MAX_GROWTH
from .relax.constants.make import making_constants
from .relax.constants.provenance import ConstantRecord, Origins, Weight, constants_of
from .relax.constants.size_check import check_ratio, check_volume
from .relax.transform import ConstantsToParams
from .relax.transform.fold_constant import collect_unfolded
from .runtime.compiled_model import CompiledModel
from .runtime.manifest import (
    LIBRARY,
    WEIGHTS,
    Manifest,
    TensorSpec,
    WeightsRecord,
    describe_function,
    describe_shape,
    hash_file,
    package_versions,
)
from .runtime.report import Report
from .runtime.staging import check_destination
from .runtime.weights import write_weights
from .source import Shapes, Source, open_source
from .support import switches
from .support.isolate import OutcomeKind, run_forked
from .support.memory import LARGE, Scratch
from .support.signals import interruptible
from .target import cuda

WEIGHTS_CHOICES = ("auto", "inside", "outside")
"""Where the weights may be: see :func:`compile`."""

OUTSIDE_FROM = 1 << 30
"""The size of the parameters, in bytes, from which on they lie outside unless asked for inside."""

# With less than this left, in bytes, it is the disk that a failure to write is about.
_FULL_DISK = 1 << 20


@dataclass(frozen=True)
class Step:
    """One step of a compilation, as it begins and as it ends.

    Attributes
    ----------
    name : str
        ``load``, ``import``, ``verify``, ``reference``, a stage of
        :func:`tvm_fixes.pipeline.stages`, ``verify kernels`` after its ``Legalize``, ``build``,
        ``export``, ``compare`` or ``save``.
    seconds : float or None
        The time that it took; None while it runs.
    """

    name: str
    seconds: float | None = None


Progress = Callable[[Step], None]

_Specs = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], dict[str, tuple[int, int | None]]]


def compile(
    source: Any,
    *,
    target: str | Mapping[str, object] | tvm.target.Target = "native",
    layout: str | None = None,
    shapes: Shapes | None = None,
    static: bool = False,
    output: str | os.PathLike[str] | None = None,
    compare: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    verify: bool = True,
    verify_each: bool = False,
    runtime_checks: bool = False,
    max_growth: float = MAX_GROWTH,
    max_size_ratio: float | None = None,
    weights: str = "auto",
    unsafe_indices: bool = False,
    trust: bool = False,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compile a model into a library and hold its answers against the original's.

    Parameters
    ----------
    source : str, path or object
        A file ``.onnx``, or ``.pt2`` of ``torch.export.save``; ``"package.module:factory"``, a
        callable that returns an ``nn.Module`` in eval mode and a tuple of example inputs; or an
        ``onnx.ModelProto``, a ``torch.export.ExportedProgram``, such a module and tuple, or an
        ``IRModule`` (which nothing can be compared with).
    target : str, mapping or tvm.target.Target
        ``"native"`` (this CPU with its features), ``"cuda/sm_90"`` (a GPU of that architecture) or
        ``"cuda"`` (the one of this machine), a TVM tag, or a configuration as a mapping or JSON.
    layout : str, optional
        One of :data:`tvm_fixes.pipeline.LAYOUTS`: the convolutions channels-first (``"NCHW"``),
        channels-last (``"NHWC"``) or in blocks of channels (``"NCHW8c"``), in any rank.  By default
        as they are, or in blocks where :func:`~tvm_fixes.transform.ChooseLayout` finds that faster.
    shapes : mapping of str to sequence of int and str, optional
        Shapes of inputs by name.  A name makes a dim of a PyTorch module symbolic, and elsewhere
        calls one that is symbolic: the same size wherever it stands.  A size makes a symbolic dim
        of an ONNX model static; for PyTorch it is the size to compare at.
    static : bool
        Make every dim static, with the sizes of `shapes`, or of PyTorch's example inputs.
    output : path, optional
        A directory that the artifact is saved to, unless it was compared and is not equal.
    compare : bool
        Run the library and ONNX Runtime or PyTorch on the same random inputs.
    rtol, atol : float, optional
        Tolerances, in place of those of :data:`tvm_fixes.debug.comparison.TOLERANCES`.
    seed : int
        Of the random inputs; not negative.
    verify : bool
        Verify the module after import, and again when its operators have become calls of kernels.
    verify_each : bool
        Verify it after each pass too, so that an error names the pass that is at fault.
    runtime_checks : bool
        Have the model check what could not be proved, and raise an ``AssertionError`` that names
        operator and values.
    max_growth : float
        The ratio of values computed at compile time to the constants they are computed of, in
        bytes. What would exceed it is computed when the model runs; ``report.unfolded`` lists it.
    max_size_ratio : float, optional
        Refuse a model whose constants would exceed this ratio to its parameters, in bytes; the
        first 256 KiB do not count.  By default there is no limit, and a warning from 1.2 on.
    weights : str
        Where the parameters are: ``"inside"`` the library, ``"outside"`` it in a file
        ``weights.safetensors``, or ``"auto"``: outside from 1 GiB of them on.
    unsafe_indices : bool
        Trust the indices that the model computes, in the place of an ``AssertionError`` where one
        is out of range: see :func:`tvm_fixes.pipeline`.
    trust : bool
        Read a file ``.pt2`` as PyTorch does, which runs the code in it; else a file that may run
        code is refused.  To name a factory is to trust it: it always runs.
    progress : callable, optional
        Called with a :class:`Step` as each begins and ends.

    Returns
    -------
    model : CompiledModel
        The library, loaded from the file that :meth:`CompiledModel.save` writes; its ``report``
        tells what was found, ``report.equal`` whether every output is equal.

    Raises
    ------
    UsageError
        If what is asked for does not exist or does not fit the model.
    CompileError
        If the model cannot be compiled, or is larger than `max_size_ratio` lets it be; the message
        names operator and node where one is at fault.
    UntrustedError
        If the file may run code and `trust` was not given.
    VerifyError
        If a module on the way is wrong, as :func:`tvm_fixes.verify` finds it; ``stage`` tells when.
    ArtifactError
        If the artifact cannot be written to `output`, such as on a full disk.
    """
    run = _Run(progress)
    with switches.collect() as fixes, ExitStack() as ended:
        with run.step("load"):
            # What is certain to fail later fails before the work.
            _check_switches()
            check_ratio(max_size_ratio)
            checks = _Checks(verify, verify_each)
            resolved = targets.resolve(target)
            lowering = stages(
                layout=layout,
                runtime_checks=runtime_checks,
                max_growth=max_growth,
                unsafe_indices=unsafe_indices,
            )
            _check_options(resolved, output, compare=compare, rtol=rtol, atol=atol, seed=seed)
            _check_weights(weights)
            opened = open_source(source, shapes, trust=trust)
            if static:
                opened.make_static()
            scratch = Scratch() if _are_outside(weights, opened.parameter_bytes) else None
            if scratch is not None:
                opened.keep_in(scratch)
        mod, origins, warned = _import(opened, static, run)
        checks.check(mod, run, "verify")
        specs = describe_function(
            mod["main"], [spec.name for spec in opened.inputs], opened.output_names
        )
        expected = None
        if compare:
            with run.step("reference"):
                expected = ended.enter_context(_Expectation(opened, seed))
        outside: dict[tvm.runtime.Tensor, relax.Var] = {}
        if scratch is not None:
            names = [stage.info.name for stage in lowering]
            lowering.insert(names.index("Lower"), ConstantsToParams(LARGE, outside))
        with collect_unfolded() as unfolded, making_constants(scratch, origins.add):
            mod, transforms = _lower(mod, resolved, lowering, run, checks)
        with run.step("build"):
            inside = constants_of(mod)
            origins.forget_others([*inside, *outside])
            constant_bytes, large = check_volume(
                [*inside, *outside], origins, opened.parameter_bytes, max_size_ratio
            )
            executable = _build(mod, resolved)
        with run.step("export"):
            constants = origins.records(inside)
            model = _export(executable, resolved, specs, constants, origins.named(outside))

        report = Report(
            source=opened.name,
            layout=layout,
            seconds={},
            artifact_bytes=model.manifest.nbytes,
            parameter_bytes=opened.parameter_bytes,
            activation_transforms=transforms,
            fixes=sorted(fixes),
            constant_bytes=constant_bytes,
            warnings=warned + large,
            unproved=checks.unproved,
            unfolded=unfolded,
        )
        if expected is not None:
            with run.step("compare"):
                # A model may run for ever.
                report = interruptible(partial(_compare, model, expected, report, rtol, atol))
        model.report = replace(report, seconds=dict(run.seconds))
        if output is not None and report.equal is not False:
            with run.step("save"):
                model.save(output)
        return model


def build(
    mod: tvm.IRModule,
    target: str | tvm.target.Target | None = None,
    params: dict[str, list[Any]] | None = None,
    relax_pipeline: str | tvm.transform.Pass | None = "default",
    tir_pipeline: str | tvm.transform.Pass | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> relax.VMExecutable:
    """``relax.build`` with the verifier in front.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, verified before anything else is done with it.
    target, params, relax_pipeline, tir_pipeline, exec_mode, system_lib
        As for ``tvm.relax.build``.

    Returns
    -------
    executable : relax.VMExecutable

    Raises
    ------
    VerifyError
        If :func:`tvm_fixes.verify` finds an error.
    """
    if switches.enabled(VERIFIER):
        verifier.verify(mod).raise_if_errors()
    return relax.build(
        mod, target, params, relax_pipeline, tir_pipeline, exec_mode, system_lib=system_lib
    )


class _Run:
    """The steps of one compilation: their times, and their names in what they raise."""

    def __init__(self, progress: Progress | None):
        self.seconds: dict[str, float] = {}
        self._progress = progress or (lambda step: None)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._progress(Step(name))
        start = time.perf_counter()
        try:
            yield
        except CompileError as error:
            error.stage = error.stage or name
            raise
        except MemoryError as error:
            raise CompileError("out of memory", stage=name) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A model's own code may leave by SystemExit, too.
            raise CompileError(summarize(error), stage=name) from error
        self.seconds[name] = round(time.perf_counter() - start, 3)
        self._progress(Step(name, self.seconds[name]))


@dataclass
class _Checks:
    """When the module is verified on its way, and how much of it was not proved.

    Switched off, TVM's check takes the verifier's place.
    """

    is_on: bool
    after_each_pass: bool
    unproved: int | None = None

    def check(self, mod: tvm.IRModule, run: _Run, step: str) -> None:
        """Verify `mod` as the step `step`.

        Raises
        ------
        VerifyError
            If there are errors.
        """
        if not self.is_on:
            return
        with run.step(step):
            if not switches.enabled(VERIFIER):
                relax.analysis.well_formed(mod)
                return
            found = verifier.verify(mod)
            found.raise_if_errors()
            self.unproved = (self.unproved or 0) + len(found.warnings)

    def context(self) -> AbstractContextManager[object]:
        """The context to run passes in: the current one, with an instrument where asked for."""
        if not self.after_each_pass or not switches.enabled(VERIFIER):
            return nullcontext()
        current = tvm.transform.PassContext.current()
        return tvm.transform.PassContext(
            opt_level=current.opt_level,
            required_pass=current.required_pass,
            disabled_pass=current.disabled_pass,
            instruments=[*current.instruments, verifier.VerifyEach()],
            config=current.config,
        )


def _check_switches() -> None:
    try:
        switches.disabled()
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_weights(weights: str) -> None:
    if weights not in WEIGHTS_CHOICES:
        raise UsageError(
            f"unknown weights {weights!r}; expected one of {', '.join(WEIGHTS_CHOICES)}"
        )


def _are_outside(weights: str, parameter_bytes: int) -> bool:
    return weights == "outside" or (weights == "auto" and parameter_bytes >= OUTSIDE_FROM)


def _check_options(
    target: tvm.target.Target,
    output: str | os.PathLike[str] | None,
    *,
    compare: bool,
    rtol: float | None,
    atol: float | None,
    seed: int,
) -> None:
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and not 0 <= tolerance < math.inf:
            raise UsageError(f"{name} must be a number that is not negative, got {tolerance}")
    if seed < 0:
        raise UsageError(f"seed must not be negative, got {seed}")
    problem = targets.why_not_here(
        targets.to_json(target), targets.triple_of(target), targets.instruction_sets(target)
    )
    if compare and problem:
        raise UsageError(
            f"cannot compare what cannot run here: {problem}; pass compare=False (--no-compare)"
        )
    if target.kind.name == "cuda":
        cuda.find_compiler(str(target.attrs["arch"]))
    _check_linker(targets.triple_of(target))
    if output is not None:
        check_destination(output, _FULL_DISK)


def _check_linker(triple: str) -> None:
    """Make sure that there is a compiler to link with, and that it is not for another CPU."""
    compiler = cc.get_cc()
    if compiler is None:
        raise CompileError("no C++ compiler to link the library: install g++, or set CXX to one")
    try:
        done = subprocess.run(
            [compiler, "-dumpmachine"], capture_output=True, text=True, errors="replace", timeout=10
        )
    except OSError as error:
        raise CompileError(
            f"{compiler} (CXX names another) cannot be run to link the library: {error.strerror}"
        ) from error
    except subprocess.TimeoutExpired:
        return
    machine = done.stdout.strip()
    ours, theirs = map(targets.architecture, (triple, machine))
    # What does not say is tried.
    if done.returncode == 0 and ours and theirs and ours != theirs:
        raise CompileError(
            f"{compiler} links for {machine}, cannot link for {triple}: set CXX to a compiler for "
            "that"
        )


def _import(source: Source, static: bool, run: _Run) -> tuple[tvm.IRModule, Origins, list[str]]:
    """Import the model; return where its constants come from and what the importer warned of."""
    with run.step("import"), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        mod = source.to_relax()
        if static:
            _check_static(mod["main"])
        origins = Origins(mod, source.parameters())
    # Not what libraries say of themselves: deprecations are subclasses or others.
    texts = (" ".join(str(w.message).split()) for w in warned if w.category is UserWarning)
    return mod, origins, list(dict.fromkeys(texts))


def _check_static(main: relax.Function) -> None:
    for param in main.params:
        shape = getattr(param.ty, "shape", None)
        if not isinstance(shape, relax.ShapeExpr) or not all(
            isinstance(dim, tvm.tirx.IntImm) for dim in shape.values
        ):
            raise UsageError(f"input {param.name!r} cannot be made static: it is {param.ty}")


def _lower(
    mod: tvm.IRModule,
    target: tvm.target.Target,
    lowering: list[tvm.transform.Pass],
    run: _Run,
    checks: _Checks,
) -> tuple[tvm.IRModule, int]:
    """Run the stages; count the activation transforms before operators become kernels."""
    transforms = len(activation_transforms(mod))
    with checks.context():
        for stage in lowering:
            with run.step(stage.info.name), target:
                mod = stage(mod)
                if stage.info.name in ("ChooseLayout", "Layout"):
                    transforms = len(activation_transforms(mod))
            if stage.info.name == "Legalize":
                checks.check(mod, run, "verify kernels")
    return mod, transforms


def _build(mod: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    if target.kind.name == "cuda":
        return cuda.build(mod, target)
    return relax.build(mod, target, relax_pipeline=None)


def _export(
    executable: relax.VMExecutable,
    target: tvm.target.Target,
    specs: _Specs,
    constants: tuple[ConstantRecord, ...],
    weights: Mapping[str, Weight] | None = None,
) -> CompiledModel:
    """Link the library into a directory of its own, and load it from there if it runs here."""
    owner = tempfile.TemporaryDirectory(prefix="tvm-fixes-")
    try:
        directory = Path(owner.name)
        with tempfile.TemporaryDirectory(dir=directory) as workspace:
            _link(executable, directory / LIBRARY, workspace, targets.triple_of(target))
        written = _write_weights(directory / WEIGHTS, weights) if weights else None
        inputs, outputs, bounds = specs
        manifest = Manifest(
            inputs=inputs,
            outputs=outputs,
            bounds=bounds,
            target=targets.to_json(target),
            triple=targets.triple_of(target),
            cpu_features=targets.instruction_sets(target),
            versions=package_versions(),
            sha256=hash_file(directory / LIBRARY),
            size=(directory / LIBRARY).stat().st_size,
            constants=constants,
            weights=written,
        )
        return CompiledModel(directory, manifest, owner=owner)
    except BaseException:
        owner.cleanup()
        raise


def _write_weights(path: Path, weights: Mapping[str, Weight]) -> WeightsRecord:
    try:
        return write_weights(path, weights)
    except OSError as error:
        raise CompileError(
            f"the weights cannot be written to {path.parent}: {error.strerror}"
        ) from error


def _link(executable: relax.VMExecutable, library: Path, workspace: str, triple: str) -> None:
    # In a child, for LLVM calls exit() when it cannot write an object file.
    export = partial(executable.export_library, str(library), workspace_dir=workspace)
    outcome = run_forked(export, timeout=None)
    if outcome.kind is OutcomeKind.VALUE:
        return
    said = [line for line in outcome.output.splitlines() if line.startswith("LLVM ERROR:")]
    # A linker's first complaint tells; then come repetitions.
    reason, *rest = [*said, *str(outcome).splitlines()]
    if reason.endswith("Compilation error:"):
        reason = f"{cc.get_cc()} (CXX names another) cannot link for {triple}: {rest[0]}"
    if shutil.disk_usage(library.parent).free < _FULL_DISK:
        reason = f"{reason} (no space left for {library.parent})"
    raise CompileError(f"the library cannot be written: {reason}")


class _Expectation(AbstractContextManager["_Expectation"]):
    """The reference in a process of its own, and the random inputs that it answers to."""

    def __init__(self, source: Source, seed: int) -> None:
        self.source = source
        self.inputs = source.example_inputs(np.random.default_rng(seed))
        with self._errors():
            self._process = ReferenceProcess(source.reference, self.inputs)
        self.name = self._process.name

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def outputs(self) -> list[np.ndarray]:
        """Run the reference."""
        with self._errors():
            return self._process.outputs()

    def median_seconds(self, runs: int, budget: float) -> float:
        """As :func:`tvm_fixes.debug.comparison.median_seconds`."""
        with self._errors():
            return self._process.median_seconds(runs, budget)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except CompileError:
            raise
        except Exception as error:
            shapes = ", ".join(
                f"{spec.name} {describe_shape(value.shape)}"
                for spec, value in zip(self.source.inputs, self.inputs, strict=True)
            )
            raise CompileError(
                f"{self.source.name}: the reference cannot run it with inputs {shapes}: "
                f"{summarize(error)}"
            ) from error


def _compare(
    model: CompiledModel,
    expected: _Expectation,
    report: Report,
    rtol: float | None,
    atol: float | None,
) -> Report:
    result = model.run(*expected.inputs)
    ours = list(result) if len(model.outputs) > 1 else [result]
    theirs = expected.outputs()
    outputs = [
        comparison.compare(spec.name, *pair, rtol=rtol, atol=atol)
        for spec, *pair in zip(model.outputs, ours, theirs, strict=True)
    ]
    if rtol is None and atol is None and not all(output.equal for output in outputs):
        exact = expected.source.float64_outputs(expected.inputs)
        if exact is not None and len(exact) == len(outputs):
            outputs = list(map(comparison.judge, outputs, ours, theirs, exact))
    latency, reference_latency = comparison.latencies_ms(
        [
            partial(comparison.median_seconds, partial(model.run, *expected.inputs)),
            expected.median_seconds,
        ]
    )
    return replace(
        report,
        reference=expected.name,
        outputs=outputs,
        latency_ms=latency,
        reference_latency_ms=reference_latency,
    )
