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
"""The lowering of a Relax module to TVM's virtual machine: the passes of the pipeline's table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as cpu_passes
from tvm.relax.backend.cuda import pipeline as cuda_passes
from tvm.relax.backend.gpu_generic import pipeline as gpu_passes

from . import transform
from .errors import PassError, UnsupportedOperatorError, UsageError, summarize
from .pipeline import PHASES, TVM_LISTS, Phase, Stage, Step, steps
from .relax.constants.growth import MAX_GROWTH, check_growth
from .relax.described_calls import failing_legalization
from .relax.transform.check_lowered import CheckLowered
from .relax.transform.choose_layout import LAYOUTS, convert_layout
from .relax.transform.copy_host_results import CopyHostResults
from .relax.transform.fuse_ops import FuseOps
from .support import ambient
from .support.memory import LARGE
from .target.cpu import is_cpu
from .target.gpu import is_gpu
from .user_passes import Given, phases_with, read

# The passes of the table that are not public.
_INTERNAL: dict[str, Callable[..., tvm.transform.Pass]] = {
    "CheckLowered": CheckLowered,
    "CopyHostResults": CopyHostResults,
    "FuseOps": FuseOps,
    "Layout": convert_layout,
}

_IS_DEVICE = {"cpu": is_cpu, "gpu": is_gpu}


@dataclass(frozen=True)
class Options:
    """The options that rows of the table name.

    Attributes
    ----------
    layout, runtime_checks, max_growth, unsafe_indices, passes
        As for :func:`pipeline`.
    merge_constants : bool
        Store equal constants once.
    collected : dict of Tensor to relax.Var, optional
        Turn constants into parameters, and collect both here.
    min_bytes : int
        The minimum size of such a constant.

    Raises
    ------
    UsageError
        If `layout` or a pass is unknown, or `max_growth` is negative.
    """

    layout: str | None = None
    runtime_checks: bool = False
    max_growth: float = MAX_GROWTH
    unsafe_indices: bool = False
    passes: Iterable[Given] = ()
    merge_constants: bool = False
    collected: dict[tvm.runtime.Tensor, relax.Var] | None = None
    min_bytes: int = LARGE

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", layout_named(self.layout))
        object.__setattr__(self, "passes", read(self.passes))
        check_growth(self.max_growth)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The table with the users' passes."""
        return phases_with(read(self.passes))

    def enable(self, step: Step) -> bool:
        """Whether a pass runs."""
        # An empty dict of `collected` counts.
        is_set = {name for name, value in vars(self).items() if value not in (None, False)}
        return (not step.option or step.option in is_set) and step.unless not in is_set

    def make(self, step: Step) -> tvm.transform.Pass:
        """A pass of ours, or of a user."""
        if step.user_pass is not None:
            return step.user_pass.as_pass()
        make = _INTERNAL.get(step.name) or getattr(transform, step.name)
        return make(**{name: getattr(self, name) for name in step.takes})


def pipeline(
    name: str | None = None,
    *,
    layout: str | None = None,
    runtime_checks: bool = False,
    max_growth: float = MAX_GROWTH,
    unsafe_indices: bool = False,
    passes: Iterable[Given] = (),
) -> tvm.transform.Pass:
    """Make the pass that lowers a module for ``relax.build``.

    Use it as ``relax.build(mod, target, relax_pipeline=tvm_fixes.pipeline())`` or
    ``relax.build(mod, target, relax_pipeline="tvm_fixes")``.  It runs in the scope of a target,
    which ``relax.build`` provides.  ``tvm-fixes opt --print-pipeline`` lists its passes.

    Parameters
    ----------
    name : str, optional
        The kind of device, ``"cpu"`` or ``"gpu"``; by default, that of the target.
    layout : str, optional
        One of :data:`LAYOUTS`: convert convolutions of any rank to channels-first (``"NCHW"``),
        channels-last (``"NHWC"``) or blocked channels (``"NCHW8c"``).  By default,
        :func:`~tvm_fixes.relax.transform.ChooseLayout` decides.
    runtime_checks : bool
        Check at run time what cannot be proved at compile time: see
        :func:`~tvm_fixes.relax.transform.InsertRuntimeChecks`.
    max_growth : float
        Limit constants that are computed at compile time to this multiple of the constants that
        they are computed from, in bytes: see :func:`~tvm_fixes.relax.transform.FoldConstant`.
    unsafe_indices : bool
        Trust computed indices: a gather or scatter with an index out of range then reads or writes
        arbitrary memory.  By default, such an index is an error on a CPU
        (:func:`~tvm_fixes.relax.transform.CheckIndices`); on a GPU, a gather clamps it, and a
        scatter drops the update.
    passes : iterable of str, or of tuple of object and str
        Passes of your own: ``"my_pass.py:MyPass@after=Legalize"``, or ``(MyPass,
        "after=Legalize")``: see :func:`tvm_fixes.compile`.

    Returns
    -------
    tvm.transform.Pass
        The sequence of the :class:`Stages`; instruments see each by its name.

    Raises
    ------
    UsageError
        If `name`, `layout` or a pass is unknown, or if `max_growth` is negative; when the pass
        runs, if the target is not of the kind `name`.

    Notes
    -----
    :func:`~tvm_fixes.tirx.transform.ApplyGpuSchedule` schedules the kernels of a GPU.  The pass
    raises :class:`~tvm_fixes.errors.UnsupportedOperatorError` if an operator call cannot be lowered
    and no external code generator takes it.
    """
    lowering = stages(
        name,
        layout=layout,
        runtime_checks=runtime_checks,
        max_growth=max_growth,
        unsafe_indices=unsafe_indices,
        passes=passes,
    )
    return tvm.transform.Sequential(list(lowering), name="tvm_fixes")


@dataclass(frozen=True)
class Stages:
    """The stages of :func:`pipeline` by phase; iteration yields all passes in order.

    A stage is a pass, or several that run as one: ``Legalize`` and ``Lower``.

    Attributes
    ----------
    operators : tuple of Pass
        Rewrites of operators; the last one chooses the layouts of convolutions.
    kernels : tuple of Pass
        From operators to calls of kernels.
    schedules : tuple of Pass
        The loops of the kernels.
    instructions : tuple of Pass
        From calls of kernels to instructions of the virtual machine, and guards of all kernels.
    """

    operators: tuple[tvm.transform.Pass, ...]
    kernels: tuple[tvm.transform.Pass, ...]
    schedules: tuple[tvm.transform.Pass, ...]
    instructions: tuple[tvm.transform.Pass, ...]

    def __iter__(self) -> Iterator[tvm.transform.Pass]:
        for phase in PHASES:
            yield from getattr(self, phase.name)

    def __getitem__(self, name: str) -> tvm.transform.Pass:
        return {str(stage.info.name): stage for stage in self}[name]


def stages(name: str | None = None, **options: Any) -> Stages:
    """Make the stages of :func:`pipeline`.

    Parameters
    ----------
    name : str, optional
        As for :func:`pipeline`; so are the errors.
    **options
        Fields of :class:`Options`.
    """
    if name not in (None, "cpu", "gpu"):
        raise UsageError(f"unknown pipeline {name!r}; expected 'cpu' or 'gpu'")
    chosen = Options(**options)
    return Stages(
        **{
            phase.name: tuple(
                _stage(stage, name, chosen)
                for stage in phase.stages
                if any(map(chosen.enable, stage.steps))
            )
            for phase in chosen.phases
        }
    )


def layout_named(name: str | None) -> str | None:
    """The layout of :data:`LAYOUTS` with a name in upper or lower case; None for None.

    Raises
    ------
    UsageError
        If no layout has this name.
    """
    if name is None or name in LAYOUTS:
        return name
    by_lower = {layout.lower(): layout for layout in LAYOUTS}
    if name.lower() not in by_lower:
        raise UsageError(f"unknown layout {name!r}; expected one of {', '.join(LAYOUTS)}")
    return by_lower[name.lower()]


class Place(NamedTuple):
    """A pass of the pipeline for a target.

    Attributes
    ----------
    stage : Stage
    step : Step
        Its row; a pass of a later TVM has a row of its own after the pass that it follows in TVM's
        list.
    stock : Pass or None
        TVM's pass that runs here, or that `step` replaces.
    """

    stage: Stage
    step: Step
    stock: tvm.transform.Pass | None


def places(
    target: tvm.target.Target | None,
    name: str | None = None,
    phases: tuple[Phase, ...] = PHASES,
) -> Iterator[Place]:
    """Yield the passes for a target, in order.

    Parameters
    ----------
    target : Target or None
    name : str, optional
        As for :func:`pipeline`.
    phases : tuple of Phase
        The table, perhaps with users' passes.

    Raises
    ------
    UsageError
        If the target is not of the kind `name`.
    """
    stock = _stock_passes(_stock_lists(name, target), target)
    for stage, step in steps(phases):
        if not step.tvm_list:
            if not step.device or _IS_DEVICE[step.device](target):
                yield Place(stage, step, None)
            continue
        for each in stock.get(step.tvm_name, ()):
            tvm_name = str(each.info.name)
            is_known = tvm_name == step.tvm_name
            later = Step(tvm_name, "a pass of another version of TVM", tvm_list=step.tvm_list)
            yield Place(stage, step if is_known else later, each)


def stock_rest(
    target: tvm.target.Target,
    left: Sequence[str],
    executed: int = 0,
    phases: tuple[Phase, ...] = PHASES,
) -> list[tvm.transform.Pass]:
    """TVM's own passes that lower a module from within the pipeline.

    Parameters
    ----------
    target : tvm.target.Target
    left : sequence of str
        The names of the stages that are left.
    executed : int
        The number of passes of the first of them that have run.
    phases : tuple of Phase
        The table that the stages are of.
    """
    rest = [place for place in places(target, phases=phases) if place.stage.name in left]
    in_first = sum(place.stage.name == left[0] for place in rest)
    return [place.stock for place in rest[min(executed, in_first) :] if place.stock is not None]


def register() -> None:
    """Register the pipeline with TVM as ``"tvm_fixes"``; ``import tvm_fixes`` calls this."""
    if "tvm_fixes" not in relax.pipeline.PIPELINE_MAP:
        relax.register_pipeline("tvm_fixes")(pipeline)


def _stock_lists(name: str | None, target: tvm.target.Target | None) -> ModuleType:
    """TVM's module with the lists of passes for `target`.

    Raises
    ------
    UsageError
        If `target` is not of the kind `name`.
    """
    kind = "gpu" if is_gpu(target) else "cpu"
    if name not in (None, kind):
        raise UsageError(f"the pipeline {name!r} is not for a {kind}, but the target is {target}")
    if target is None or kind == "cpu":
        return cpu_passes
    return cuda_passes if target.kind.name == "cuda" else gpu_passes


def _stock_passes(
    lists: ModuleType, target: tvm.target.Target | None
) -> dict[str, list[tvm.transform.Pass]]:
    """TVM's passes by their names in the table; one that it lacks stays with the one before."""
    known = {step.tvm_name for _, step in steps()}
    passes: dict[str, list[tvm.transform.Pass]] = {}
    at = next(step.tvm_name for _, step in steps() if step.tvm_list)
    for tvm_list in TVM_LISTS:
        for each in getattr(lists, tvm_list)(target):
            at = str(each.info.name) if each.info.name in known else at
            passes.setdefault(at, []).append(each)
    return passes


def _stage(stage: Stage, name: str | None, options: Options) -> tvm.transform.Pass:
    """A stage as a pass: a pass of its own, or those for the current target."""
    [step, *others] = stage.steps
    if not others and not step.device:
        return options.make(step)

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        passes = [
            options.make(place.step) if place.step.is_own else place.stock
            for place in places(tvm.target.Target.current(), name, options.phases)
            if place.stage is stage and options.enable(place.step)
        ]
        try:
            with ambient.within(trusts_indices=options.unsafe_indices):
                return tvm.transform.Sequential(passes, name=stage.name)(mod)
        except (PassError, UnsupportedOperatorError):
            raise
        except Exception as error:
            # The exception of a failing legalization does not name the call.
            failing = failing_legalization(mod)
            if failing is None:
                raise
            raise UnsupportedOperatorError(f"cannot lower {failing}: {summarize(error)}") from error

    return tvm.transform.module_pass(run, opt_level=0, name=stage.name)
