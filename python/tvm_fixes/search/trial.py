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
"""Trials of a model in forked children: build it, run it, and observe a problem."""

import os
import resource
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import tvm
from tvm import relax

from .. import target as targets
from ..compiler.compilation import compile
from ..compiler.further_inputs import FurtherInputs, Groups
from ..compiler.inputs import load_inputs
from ..compiler.linking import export
from ..compiler.reference import Reference as ReferenceModel
from ..compiler.reference import compare_outputs, run_model, varying_results
from ..errors import CompileError, UsageError, summarize
from ..observe.unwritten import MAX_REPEATED_SECONDS
from ..pipeline import Phase
from ..relax.transform.prepare_layout import PrepareLayout
from ..runtime.compiled_model import CompiledModel
from ..runtime.manifest import describe_function
from ..runtime.report import Report
from ..source import Params, Reference, Shapes, Source, open_source
from ..source.examples import MAGNITUDES, Drawn, with_sizes
from ..source.module_file import open_module
from ..source.relax import RelaxSource
from ..support import switches
from ..support.isolate import Outcome, OutcomeKind, run_forked
from ..support.suggestions import did_you_mean
from ..support.tensors import arrays_of, to_tvm
from ..user_passes import Given, UserPass, phases_with, read
from .finding import Finding, describe
from .kernel_parts import with_main
from .problem import Degree, Kind, Measure, Observed, Problem, cause_of

# The least that a trial needs on top, such as for the stacks of its threads.
_MIN_GIGABYTES = 0.1

_MAX_LISTED = 10

REPEAT = 5
"""The runs of the whole model in its first trial."""


@dataclass(frozen=True)
class Settings:
    """How trials build and run models.

    Attributes
    ----------
    target, layout, passes, shapes, sizes, magnitude, trust, params, rtol, atol, seed
        As for :func:`tvm_fixes.compile`.
    stock : bool
        Build with TVM's own importer and pipeline, without fixes.
    inputs : mapping of str to numpy.ndarray
        Values of all inputs by name; random ones if it is empty.
    seconds : float
        Time limit of a trial.
    gigabytes : float or None
        Memory limit of a trial; by default, the memory of the machine.
    value : str
        An intermediate value that is the only output; empty for the outputs of the model.
    options : mapping of str to object
        Further options of :func:`tvm_fixes.compile` that shape the artifact, such as ``static``.
    """

    target: str | Mapping[str, object] | tvm.target.Target = "native"
    layout: str | None = None
    passes: Iterable[Given] = ()
    shapes: Shapes | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    magnitude: float | None = None
    trust: bool = False
    params: Params | None = None
    rtol: float | None = None
    atol: float | None = None
    seed: int = 0
    stock: bool = False
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 120.0
    gigabytes: float | None = None
    value: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def user_passes(self) -> tuple[UserPass, ...]:
        """The passes."""
        return read(self.passes)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The pipeline's table with the passes."""
        return phases_with(self.user_passes)

    def __post_init__(self) -> None:
        object.__setattr__(self, "passes", read(self.passes))
        if self.stock and self.passes:
            raise UsageError("TVM's own pipeline has no places for passes of yours")

    def open(self, model: Any) -> Source:
        """Open a model in any form that :func:`tvm_fixes.compile` accepts, or a TVM module."""
        if isinstance(model, Source):
            return model
        source = self._opened(model)
        source.set_sizes(self.sizes)
        is_static = self.options.get("static", False)
        if is_static:
            source.make_static()
        if self.value:
            source = self._part(source)
            if not is_static:
                source.set_sizes(self.sizes)
        source.set_magnitude(self.magnitude)
        return source

    def open_whole(self, model: Any, part: Source) -> Source:
        """The model that a part computes a value of: the part may accept inputs that it rejects."""
        return replace(self, value="").open(model) if self.value else part

    def _part(self, source: Source) -> Source:
        """The part of a model that computes the value."""
        inputs = source.example_inputs(np.random.default_rng(self.seed))
        known = [value.name for value in source.values(inputs)]
        if self.value not in known:
            more = ", …" if len(known) > _MAX_LISTED else ""
            hint = did_you_mean(self.value, known) or (
                f"its values are {', '.join(known[:_MAX_LISTED])}{more}"
            )
            raise UsageError(f"{source.name}: no value {self.value!r}; {hint}")
        return source.with_outputs([self.value])

    def _opened(self, model: Any) -> Source:
        if isinstance(model, str | os.PathLike):
            name = os.fspath(model)
            stem, _, _ = name.rpartition(":")
            if name.endswith((".py", ".json")) or stem.endswith(".py"):
                model = open_module(name, self.shapes, params=self.params)
        if isinstance(model, tvm.tirx.PrimFunc):
            model = tvm.IRModule({"kernel": model})
        if isinstance(model, tvm.IRModule):
            return ReferencedModule(with_main(model))
        return open_source(model, self.shapes, trust=self.trust, params=self.params)

    def draw_inputs(self, source: Source) -> list[np.ndarray]:
        """The inputs of a run of the whole model.

        Raises
        ------
        UsageError
            If a given input is missing or unknown, or has another dtype or shape.
        """
        return load_inputs(source, self.inputs or None, self.seed)

    def further_inputs(self, source: Source, problem: Problem) -> Groups:
        """Inputs of further sizes and magnitudes, after :meth:`draw_inputs`, for a comparison."""
        if self.inputs or problem.kind is not Kind.WRONG:
            return ()
        return source.further_inputs(self.seed, MAGNITUDES)

    def check_memory(self) -> None:
        """Check that the memory limit leaves some memory to a trial.

        Raises
        ------
        UsageError
            If it does not.
        """
        if self.gigabytes is None:
            return
        least = _mapped_gigabytes() + _MIN_GIGABYTES
        if self.gigabytes < least:
            raise UsageError(
                f"a memory limit of {self.gigabytes:g} GiB is too small: the compiler and the "
                f"model take {least:.2g} GiB before the first trial"
            )

    def build(self, source: Source) -> CompiledModel:
        """Compile a model."""
        if self.stock:
            # As the script: TVM's own default.
            return build_stock(source, "llvm" if self.target == "native" else self.target)
        # The source is static already.
        options = {name: value for name, value in self.options.items() if name != "static"}
        # Not the model: a factory may make another one, with other random weights.
        return compile(
            source.to_relax() if isinstance(source, RelaxSource) else source,
            target=self.target,
            layout=self.layout,
            passes=self.passes,
            compare=False,
            trust=self.trust,
            params=self.params,
            **options,
        )


class ReferencedModule(RelaxSource):
    """A Relax module, with TVM's own pipeline without fixes as its reference.

    If that does not build, ``PrepareLayout`` runs first: it has simpler operators for some that TVM
    does not lower.
    """

    def __init__(self, module: tvm.IRModule):
        super().__init__(module)
        self.inputs = describe_function(module["main"]).inputs

    def reference(self) -> tuple[str, Reference]:
        name = "TVM's own pipeline"
        try:
            executable = _built(self._module)
        except Exception:
            name += " after PrepareLayout"
            executable = _built(PrepareLayout()(self._module))
        machine = relax.VirtualMachine(executable, tvm.cpu())

        def run(inputs: list[np.ndarray]) -> list[np.ndarray]:
            return arrays_of(machine["main"](*map(to_tvm, inputs)))

        return name, run


def _built(module: tvm.IRModule) -> Any:
    """Build with TVM's own pipeline for a CPU, without fixes."""
    with switches.without(switches.FIX_IDS):
        return relax.build(module, "llvm")


def build_stock(source: Source, target: Any = "llvm") -> CompiledModel:
    """Build with TVM's own importer and pipeline; call it in a forked child."""
    resolved = targets.resolve(target)
    with switches.without(switches.FIX_IDS):
        mod = source.to_stock_relax()
        executable = relax.build(mod, resolved)
        return export(executable, resolved, source.signature(mod["main"]), (), {})


@dataclass(frozen=True)
class Subject:
    """A variant of a model to try.

    Attributes
    ----------
    open : callable
        Opens the source, which has the reference.
    build : callable
        Builds the variant of that source.
    inputs : list of numpy.ndarray
    save : callable
        Writes what the command of a check gets, the path of a new file or folder in the folder
        given.
    further : sequence of sequence of Drawn
        Other inputs, with which it is compared if it does not differ with the first:
        :meth:`tvm_fixes.source.Source.further_inputs`.
    symbolic : mapping of str to sequence of int
        The axes of inputs that are symbolic in the model: if one is not, only the problem itself
        is an answer.
    repeat : int
        The number of runs with the same inputs, if the results are compared with the reference's.
    """

    open: Callable[[], Source]
    build: Callable[[Source], CompiledModel]
    inputs: list[np.ndarray]
    save: Callable[[Path], Path]
    further: Groups = ()
    symbolic: Mapping[str, Sequence[int]] = field(default_factory=dict)
    repeat: int = 1

    def lost_dims(self, source: Source) -> str:
        """A sentence, if dims of the source are static that must be symbolic; empty otherwise."""
        lost = [
            f"axis {axis} of {spec.name!r}"
            for spec in source.inputs
            for axis in self.symbolic.get(spec.name, ())
            if spec.shape is not None and isinstance(spec.shape[axis], int)
        ]
        return f"PyTorch makes {', '.join(lost)} static in this part" if lost else ""

    def at(self, sizes: Mapping[str, int], magnitude: float) -> "Subject":
        """The subject with only the inputs of some sizes of the symbolic dims and of a magnitude;
        with all, if these are not known."""
        source = self.open()
        first = Drawn(self.inputs, source.magnitude or 1.0)
        candidates = [first, *(drawn for group in self.further for drawn in group)]
        is_known = bool(sizes) or magnitude != first.magnitude
        shapes = {tuple(np.shape(array) for array in drawn.arrays) for drawn in candidates}
        if not is_known and len(shapes) == 1:  # the first inputs are those of this magnitude
            return replace(self, further=())
        specs = source.chosen_inputs()
        inputs = with_sizes(specs, candidates, sizes, magnitude) if is_known else None
        return self if inputs is None else replace(self, inputs=inputs, further=())


@dataclass(frozen=True)
class Trial:
    """One trial of a search.

    Attributes
    ----------
    label : str
        What was tried.
    size : int
        The number of its operators, fixes, passes or kernels.
    observed : Observed
    known : bool
        Whether the result is that of an earlier, interrupted search.
    """

    label: str
    size: int
    observed: Observed
    known: bool = False


Progress = Callable[[Trial], None]


def observe(
    problem: Problem, subject: Subject, settings: Settings, *, off: frozenset[str] = frozenset()
) -> Observed:
    """Try a variant in a forked child.

    Parameters
    ----------
    problem : Problem
    subject : Subject
    settings : Settings
        The limits and tolerances.
    off : frozenset of str
        The fixes to turn off.
    """
    start = time.monotonic()
    if problem.kind is Kind.CHECK:
        observation = _check(problem, subject, settings, off)
    else:
        examined = partial(_examine, problem.kind, subject, settings, off)
        outcome = run_forked(examined, timeout=settings.seconds)
        observation = _judge(problem, outcome)
    return replace(observation, seconds=round(time.monotonic() - start, 3))


def _judge(problem: Problem, outcome: Outcome) -> Observed:
    """The meaning of the outcome of :func:`_examine` for a problem."""
    if outcome.kind is not OutcomeKind.VALUE:
        what = " ".join(str(outcome).split())
        # An exception here is one of the examination, such as a lack of memory.
        is_crash = outcome.kind is not OutcomeKind.EXCEPTION
        kind = Kind.CRASHES if is_crash else Kind.FAILS
        return Observed(_fits(problem, kind, what), what)
    found = cast(Finding, outcome.value)
    if found.kind is Kind.FAILS:
        return Observed(_fits(problem, found.kind, found.what), found.what, fixes=found.fixes)
    if not found.is_valid:
        return Observed(None, found.what)
    is_problem = found.kind is problem.kind
    if problem.kind in (Kind.SLOWER, Kind.LARGER):
        is_problem = found.degrees[0].value > problem.limit
    if found.lost_dims and not is_problem:
        return Observed(None, f"{found.lost_dims}, so it proves nothing: {found.what}")
    return Observed(
        is_problem,
        found.what,
        fixes=found.fixes,
        sizes=found.sizes,
        magnitude=found.magnitude,
        degrees=found.degrees,
        accepted=found.accepted,
        tolerances=found.tolerances,
        unstable=found.unstable,
    )


def _fits(problem: Problem, kind: Kind, what: str) -> bool | None:
    """Whether a crash or an error is the problem; None if it hides the problem."""
    if problem.kind is kind and problem.cause in ("", cause_of(what)):
        return True
    return None


def _examine(kind: Kind, subject: Subject, settings: Settings, off: frozenset[str]) -> Finding:
    """Build and run a variant; call it in a forked child."""
    _limit_memory(settings.gigabytes)
    source = subject.open()
    reference = None
    if kind in (Kind.WRONG, Kind.SLOWER):
        try:
            reference = ReferenceModel(source, subject.inputs)
            reference.outputs()
        except Exception as error:
            return Finding(None, f"no reference: {summarize(error)}", is_valid=False)
    with switches.without(off), switches.collect() as applied:
        try:
            found = _run(kind, subject, source, settings, reference)
        except Exception as error:
            stage = error.stage if isinstance(error, CompileError) else None
            what = summarize(error)
            found = Finding(Kind.FAILS, f"{stage}: {what}" if stage else what)
        finally:
            if reference is not None:
                reference.__exit__()
    return replace(found, fixes=tuple(sorted(applied)), lost_dims=subject.lost_dims(source))


def _run(
    kind: Kind,
    subject: Subject,
    source: Source,
    settings: Settings,
    reference: ReferenceModel | None,
) -> Finding:
    model = subject.build(source)
    # A compilation collects its own.
    for fix_id in model.report.fixes if model.report is not None else ():
        switches.note(fix_id)
    if reference is not None:
        report = compare_outputs(
            model,
            reference,
            Report(source.name, None, {}, 0, source.parameter_bytes),
            settings.rtol,
            settings.atol,
            timed=kind is Kind.SLOWER,
        )
        if report.decisive.accepted:
            others = FurtherInputs(model, reference, settings.rtol, settings.atol)
            report = others.added(report, subject.further, all_groups=False)
        return replace(describe(report), unstable=_unstable(model, subject, report))
    if kind is Kind.LARGER:
        nbytes = model.manifest.nbytes
        return Finding(None, f"{nbytes} bytes", (Degree.counted(Measure.BYTES, nbytes),))
    model.run(*[value.copy() for value in subject.inputs])
    return Finding(None, "runs")


def _unstable(model: CompiledModel, subject: Subject, report: Report) -> str:
    """A sentence about a result that differs among runs, with the inputs that decide."""
    if subject.repeat < 2:
        return ""
    where = report.decisive
    inputs = subject.at(where.sizes, where.magnitude).inputs
    start = time.monotonic()
    first = run_model(model, inputs)
    if time.monotonic() - start > MAX_REPEATED_SECONDS:
        return ""
    found = varying_results(model, inputs, first, subject.repeat)
    sentences = [f"not deterministic: {name}: {sentence}" for name, sentence in found.items()]
    return next(iter(sentences), "")


def _mapped_gigabytes() -> float:
    """The memory of this process that :func:`_limit_memory` counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        label, _, value = line.partition(":")
        if label == "VmData":
            return int(value.split()[0]) / (1 << 20)
    return 0.0


def _limit_memory(gigabytes: float | None) -> None:
    """Limit the memory of this process, which includes what is mapped already."""
    if gigabytes is None:
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        limit = int(gigabytes * (1 << 30))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


def _check(problem: Problem, subject: Subject, settings: Settings, off: frozenset[str]) -> Observed:
    """Run the command of a check on what the variant saves."""
    with tempfile.TemporaryDirectory(prefix="tvm-fixes-") as folder:

        def save() -> str:
            with switches.without(off):
                return str(subject.save(Path(folder)))

        outcome = run_forked(save, timeout=settings.seconds)
        if outcome.kind is not OutcomeKind.VALUE:
            return Observed(None, " ".join(str(outcome).split()))
        with switches.without(off):
            environment = dict(os.environ)
        status = _status_of(
            [*shlex.split(problem.command), str(outcome.value)], environment, settings.seconds
        )
    if status is None:
        return Observed(None, f"the command timed out after {settings.seconds:g} s")
    return Observed(status == 0, f"the command exits with {status}")


def _status_of(command: list[str], environment: dict[str, str], seconds: float) -> int | None:
    """The exit status of a command; None if it exceeds the time limit and is killed.

    Raises
    ------
    UsageError
        If the command cannot be run.
    """
    try:
        return subprocess.run(
            command,
            env=environment,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ).returncode
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise UsageError(f"cannot run the command {command[0]!r}: {error.strerror}") from error
