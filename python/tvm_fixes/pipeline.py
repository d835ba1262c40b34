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
"""The lowering pipeline from a Relax module to TVM's virtual machine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as cpu_passes
from tvm.relax.backend.cuda import pipeline as cuda_passes
from tvm.relax.backend.gpu_generic import pipeline as gpu_passes

from .errors import UnsupportedOperatorError, UsageError, summarize
from .relax.analysis import operator_calls
from .relax.constants.growth import MAX_GROWTH
from .relax.legalize.indices import trusting_indices
from .relax.source_nodes import nodes_of
from .relax.transform import (
    AllocateEmptyConstants,
    BroadcastFreeMatmul,
    CheckIndices,
    CopyHostResults,
    DecomposeConvTranspose,
    DecomposeEinsum,
    DecomposeGroupNorm,
    DispatchToCublas,
    DispatchToCudnn,
    DynamicToStatic,
    FoldConstant,
    FoldLayoutTransform,
    FoldPadIntoConv,
    FoldPermuteIntoScatter,
    FuseDequantizeMatmul,
    FuseOps,
    FuseQuantized,
    FuseSafeSoftmax,
    InsertRuntimeChecks,
    LiftWorkspaces,
    LowerAssertOp,
    LowerRecurrence,
    LowerScan,
    MergeReshapes,
    MergeSmallKernels,
    ReadTransposedRows,
    ReadTransposedWeights,
    ReadTupleFields,
    RecordKernelCalls,
    RewriteCUDAGraph,
    SortByKeys,
    SplitDataflow,
    SpreadSourceNodes,
    StaticPlanBlockMemory,
    TrimConvKernel,
    UpdateInPlace,
    ViewReshapes,
    VMShapeLower,
)
from .relax.transform.choose_layout import LAYOUTS, ChooseLayout, convert_layout
from .target.cpu import is_cpu
from .target.gpu import is_gpu
from .tirx import semantics
from .tirx.transform import (
    ApplyGpuSchedule,
    InlineElementwise,
    ScheduleElementwise,
    ScheduleReductions,
)

# The operators that TVM's code generator for the virtual machine emits; all others must be lowered.
_EMITTED = frozenset(
    {
        "relax.call_builtin_with_ctx",
        "relax.null_value",
        "relax.vm.alloc_storage",
        "relax.vm.alloc_tensor",
        "relax.vm.kill_object",
    }
)

# TVM's pass that schedules kernels for a GPU; in TVM's lists, a pass is only known by its name.
_SCHEDULE = "ApplyDefaultSchedule"

# TVM's pass that replaces calls of kernels by instructions.
_REWRITE = "CallTIRRewrite"


def pipeline(
    name: str | None = None,
    *,
    layout: str | None = None,
    runtime_checks: bool = False,
    max_growth: float = MAX_GROWTH,
    unsafe_indices: bool = False,
) -> tvm.transform.Pass:
    """Make the pass that lowers a module for ``relax.build``.

    Use it as ``relax.build(mod, target, relax_pipeline=tvm_fixes.pipeline())`` or
    ``relax.build(mod, target, relax_pipeline="tvm_fixes")``.  It runs in the scope of a target,
    which ``relax.build`` provides.

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

    Returns
    -------
    tvm.transform.Pass
        The sequence of the :class:`Stages`; instruments see each by its name.

    Raises
    ------
    UsageError
        If `name` or `layout` is unknown, or if `max_growth` is negative; when the pass runs, if
        the target is not of the kind `name`.

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
    )
    return tvm.transform.Sequential(list(lowering), name="tvm_fixes")


@dataclass(frozen=True)
class Stages:
    """The stages of :func:`pipeline`; iteration yields all passes in order.

    Attributes
    ----------
    operators : tuple of Pass
        Rewrites of operators: ``DynamicToStatic``, ``InsertRuntimeChecks`` (if `runtime_checks`),
        ``DecomposeEinsum``, ``BroadcastFreeMatmul``, ``FoldPadIntoConv``, ``TrimConvKernel``,
        ``FoldPermuteIntoScatter`` and, for a CPU, ``FuseDequantizeMatmul`` and ``FuseQuantized``.
    layout : Pass
        The layouts of convolutions: ``ChooseLayout``, or ``Layout`` for a given one.
    preparation : tuple of Pass
        The last passes on operators: ``SplitDataflow``, and ``CheckIndices`` unless
        `unsafe_indices`.
    legalize : Pass
        ``Legalize`` lowers operators to kernels, and folds constants.
    update : Pass
        ``UpdateInPlace`` writes to inputs that the model may overwrite.
    inline : Pass
        ``InlineElementwise`` merges the steps of a kernel.
    schedules : tuple of Pass
        ``ViewReshapes`` for a CPU, and schedules of kernels: ``ScheduleReductions``,
        ``ScheduleElementwise``, ``GuardFloatCasts``, ``DecomposeReduction`` and
        ``LowerElementaryFunctions``.
    lower : Pass
        ``Lower`` lowers memory, shapes and calls to the virtual machine.
    guards : tuple of Pass
        ``GuardFloatArithmetic``, ``GuardIntegerDivision``, ``GuardIntegerOverflow``,
        ``GuardLongLoops``, ``GuardShapeBounds``, ``GuardSplitIndices``, ``HoistSelectLoads``,
        ``KeepTilesOnStack`` and ``CheckLowered``.
    """

    operators: tuple[tvm.transform.Pass, ...]
    layout: tvm.transform.Pass
    preparation: tuple[tvm.transform.Pass, ...]
    legalize: tvm.transform.Pass
    update: tvm.transform.Pass
    inline: tvm.transform.Pass
    schedules: tuple[tvm.transform.Pass, ...]
    lower: tvm.transform.Pass
    guards: tuple[tvm.transform.Pass, ...]

    def __iter__(self) -> Iterator[tvm.transform.Pass]:
        yield from (*self.operators, self.layout, *self.preparation, self.legalize, self.update)
        yield from (self.inline, *self.schedules, self.lower, *self.guards)


def stages(
    name: str | None = None,
    *,
    layout: str | None = None,
    runtime_checks: bool = False,
    max_growth: float = MAX_GROWTH,
    unsafe_indices: bool = False,
) -> Stages:
    """Make the stages of :func:`pipeline`.

    The parameters and errors are those of :func:`pipeline`.
    """
    if name not in (None, "cpu", "gpu"):
        raise UsageError(f"unknown pipeline {name!r}; expected 'cpu' or 'gpu'")
    layout = layout_named(layout)
    return Stages(
        operators=(
            DynamicToStatic(),
            *([InsertRuntimeChecks()] if runtime_checks else []),
            # Before a matmul reads operands before they are broadcast.
            DecomposeEinsum(),
            # Before constant folding, and before a permute is fused into the matmul after it.
            BroadcastFreeMatmul(),
            # Before the layout is chosen: a pad between convolutions would interrupt it.
            FoldPadIntoConv(),
            TrimConvKernel(),
            FoldPermuteIntoScatter(),
            # Only CPUs have kernels for products of narrow integers.
            _cpu_stage(FuseDequantizeMatmul(max_growth)),
            _cpu_stage(FuseQuantized()),
        ),
        layout=ChooseLayout() if layout is None else convert_layout(layout),
        preparation=(
            # Fusion ignores which binding defines a symbol.
            SplitDataflow(),
            # Before lowering: only operators show where indices come from.
            *([] if unsafe_indices else [CheckIndices()]),
        ),
        legalize=_target_stage(
            "Legalize",
            partial(_legalize_passes, name, FoldConstant(max_growth), max_growth),
            unsafe_indices,
        ),
        # After fusion, which may move a read of the old value after the write.
        update=UpdateInPlace(),
        # After fusion: fusion recognizes reductions by their initial values.
        inline=InlineElementwise(),
        schedules=(
            # Before a schedule hides that a kernel is a reshape.
            _cpu_stage(ViewReshapes()),
            ScheduleReductions(),
            ScheduleElementwise(),
            *semantics.before_lowering(),
        ),
        lower=_target_stage("Lower", partial(_lower_passes, name)),
        guards=(
            # After all schedules, and on functions that compute shapes too.
            *semantics.after_lowering(),
            # Last: calls that an external code generator takes are gone by now.
            CheckLowered(),
        ),
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


def _cpu_stage(fusing: tvm.transform.Pass) -> tvm.transform.Pass:
    """A stage that runs only for CPUs."""
    return _target_stage(fusing.info.name, lambda target: [fusing] if is_cpu(target) else [])


def _legalize_passes(
    name: str | None,
    fold: tvm.transform.Pass,
    max_growth: float,
    target: tvm.target.Target | None,
) -> list[tvm.transform.Pass]:
    """TVM's passes that legalize operators, with ours.

    Constants are folded before kernels are fused.  Otherwise, the layout transform of a constant
    kernel would be fused into its consumer.
    """
    stock = _stock(name, target)
    own = {step.info.name: step for step in (fold, FuseOps())}
    passes = [
        own.get(step.info.name, step)
        for step in stock.legalize_passes(target)
        if step.info.name != _SCHEDULE
    ]
    # Replace reads of a lowered tuple by its fields: fusion does not look through tuples.
    lowered = 1 + [step.info.name for step in passes].index("LegalizeOps")
    passes[lowered:lowered] = [
        SpreadSourceNodes(),
        ReadTupleFields(),
        SplitDataflow(),
    ]
    first = [SpreadSourceNodes(), *([LowerAssertOp()] if is_cpu(target) else [])]
    first += [ReadTransposedWeights(max_growth), FoldLayoutTransform(max_growth)]
    first += [ReadTransposedRows(), MergeReshapes()] if is_cpu(target) else []
    on_gpu = [
        *(CopyHostResults(), DecomposeGroupNorm(), FuseSafeSoftmax()),
        *(DispatchToCublas(), DispatchToCudnn()),
        # Handles the convolutions that cuDNN does not compute.
        DecomposeConvTranspose(),
    ]
    # Before TVM's dispatch, whose kernels write out of bounds for empty rows.
    before = [SortByKeys(), LowerScan(), LowerRecurrence(), *([] if is_cpu(target) else on_gpu)]
    dispatch = [*before, *stock.library_dispatch_passes(target)]
    return [*dispatch, *first, *passes]


def _lower_passes(name: str | None, target: tvm.target.Target | None) -> list[tvm.transform.Pass]:
    """TVM's passes that lower a module of kernels; guarded versions replace some of them."""
    stock = _stock(name, target)
    is_scheduled = any(step.info.name == _SCHEDULE for step in stock.legalize_passes(target))
    schedule = [ApplyGpuSchedule(), LiftWorkspaces()] if is_scheduled else []
    guarded = {
        step.info.name: step
        for step in (StaticPlanBlockMemory(), VMShapeLower(), RewriteCUDAGraph())
    }
    passes = [*schedule, *stock.dataflow_lower_passes(target), *stock.finalize_passes(target)]
    passes.insert([step.info.name for step in passes].index(_REWRITE), RecordKernelCalls())
    # After all passes that look for one kernel.
    merge = [MergeSmallKernels()] if is_cpu(target) else []
    return [*merge, AllocateEmptyConstants(), *(guarded.get(p.info.name, p) for p in passes)]


def stock_rest(stage: str, executed: int, target: tvm.target.Target) -> list[tvm.transform.Pass]:
    """TVM's own passes that lower a module from within the pipeline.

    Parameters
    ----------
    stage : str
        The stage of :class:`Stages` that the module is in.
    executed : int
        The number of passes of that stage that have run.
    target : tvm.target.Target
    """
    stock = _stock(None, target)
    lowering = [*stock.dataflow_lower_passes(target), *stock.finalize_passes(target)]
    if stage in [one.info.name for one in stages().guards]:
        return []
    if stage != "Lower":
        return [*stock.library_dispatch_passes(target), *stock.legalize_passes(target), *lowering]
    own = len(_lower_passes(None, target)) - len(lowering)
    return lowering[max(0, executed - own) :]


def CheckLowered() -> tvm.transform.Pass:
    """Reject a module with operator calls that the virtual machine's code generator cannot emit.

    Returns
    -------
    tvm.transform.Pass
        A module pass that returns its module unchanged, or raises
        :class:`~tvm_fixes.errors.UnsupportedOperatorError`, which names the first such call with
        its operator, binding, attributes and argument types.
    """

    def check(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        left = [found for found in _operator_calls(mod) if found.operator not in _EMITTED]
        if left:
            more = f" (and {len(left) - 1} more such calls)" if len(left) > 1 else ""
            remedy = _STATIC if left[0].is_dynamic else ""
            raise UnsupportedOperatorError(f"no lowering for {left[0]}{more}{remedy}")
        return mod

    return tvm.transform.module_pass(check, opt_level=0, name="CheckLowered")


def register() -> None:
    """Register the pipeline with TVM as ``"tvm_fixes"``; ``import tvm_fixes`` calls this."""
    if "tvm_fixes" not in relax.pipeline.PIPELINE_MAP:
        relax.register_pipeline("tvm_fixes")(pipeline)


def _stock(name: str | None, target: tvm.target.Target | None) -> ModuleType:
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


def _target_stage(
    name: str,
    make_passes: Callable[[tvm.target.Target | None], list[tvm.transform.Pass]],
    unsafe_indices: bool = False,
) -> tvm.transform.Pass:
    """TVM's own passes for the current target, as one named stage."""

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current()
        passes = make_passes(target)
        try:
            with trusting_indices(unsafe_indices):
                return tvm.transform.Sequential(passes, name=name)(mod)
        except UnsupportedOperatorError:
            raise
        except Exception as error:
            # The exception of a failing legalization does not name the call.
            found = _find_failing_legalization(mod)
            if found is None:
                raise
            raise UnsupportedOperatorError(f"cannot lower {found}: {summarize(error)}") from error

    return tvm.transform.module_pass(run, opt_level=0, name=name)


_STATIC = "; static shapes may compile (--static, or --shape)"


@dataclass(frozen=True)
class _OperatorCall:
    """A call of a Relax operator, bound to a variable."""

    function: str
    var: relax.Var
    call: relax.Call

    @property
    def operator(self) -> str:
        return str(self.call.op.name)

    @property
    def is_dynamic(self) -> bool:
        """Whether the shape of an operand is unknown or has symbols."""
        types = (getattr(arg, "ty", None) for arg in self.call.args)
        return any(
            not isinstance(ty.shape, relax.ShapeExpr) or relax.analysis.tir_vars_in_type(ty)
            for ty in types
            if isinstance(ty, relax.TensorType)
        )

    def __str__(self) -> str:
        nodes = nodes_of(self.var) or nodes_of(self.call)
        origin = f" at {nodes[0].operator} {(nodes[0].path or nodes[0].name)!r}" if nodes else ""
        # TVMScript prints a call on one line, and comments about metadata below it.
        script = str(self.call.script(show_meta=False))
        text = next(line for line in script.splitlines() if line and not line.startswith("#"))
        types = ", ".join(_type_of(arg) for arg in self.call.args)
        return (
            f"{self.operator}{origin} in {self.function!r}: {self.var.name} = {text}, "
            f"arguments of type ({types})"
        )


def _operator_calls(mod: tvm.IRModule) -> Iterator[_OperatorCall]:
    for function, binding in operator_calls(mod):
        yield _OperatorCall(function, binding.var, binding.value)


def _find_failing_legalization(mod: tvm.IRModule) -> _OperatorCall | None:
    """The first call whose legalization raises outside the module."""
    for found in _operator_calls(mod):
        legalize = found.call.op.get_attr("FLegalize")
        if legalize is None:
            continue
        builder = relax.BlockBuilder(mod)
        try:
            with builder.function("probe", params=relax.analysis.free_vars(found.call)):
                builder.emit_func_output(builder.emit(legalize(builder, found.call)))
        except Exception:
            return found
    return None


def _type_of(expr: relax.Expr) -> str:
    text = str(expr.ty.script(show_meta=False)) if hasattr(expr.ty, "script") else str(expr.ty)
    return " ".join(line for line in text.splitlines() if not line.startswith("#")).strip()
