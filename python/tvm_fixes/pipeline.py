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
"""The pipeline: every pass in the order in which it runs, ours and TVM's, and why it stands there.

:mod:`tvm_fixes.lowering` makes passes from this table, ``tvm-fixes opt --print-pipeline`` prints
it, and ``docs/pipeline.md`` is generated from it.  It is data, and loads neither TVM nor PyTorch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DISPATCH, LEGALIZE, DATAFLOW, FINALIZE = (
    "library_dispatch_passes",
    "legalize_passes",
    "dataflow_lower_passes",
    "finalize_passes",
)
"""TVM's lists of passes, in order: functions of ``tvm.relax.backend.*.pipeline``."""

TVM_LISTS = (DISPATCH, LEGALIZE, DATAFLOW, FINALIZE)


@dataclass(frozen=True)
class Step:
    """A pass at its place in the pipeline.

    Attributes
    ----------
    name : str
        The pass: one of ours, or TVM's.
    why : str
        Why it stands here: what it does, and what it must follow or precede.
    device : str
        ``"cpu"`` or ``"gpu"`` if it runs only there, ``"cuda"`` for a list that only CUDA has, and
        ``""`` if it runs everywhere.
    option : str
        The option that switches it on, if there is one.
    unless : str
        The option that switches it off, if there is one.
    takes : tuple of str
        The options that are its arguments.
    tvm_list : str
        The list of :data:`TVM_LISTS` with this pass, or with the one that it replaces.
    replaces : str
        TVM's pass that it stands in for.
    user_pass : tvm_fixes.user_passes.UserPass, optional
        The user's pass that stands here.
    defines_kernels : bool
        Whether it defines what a kernel computes and rejects, so that the kernels which evaluate
        constants need it too.
    """

    name: str
    why: str
    device: str = ""
    option: str = ""
    unless: str = ""
    takes: tuple[str, ...] = ()
    tvm_list: str = ""
    replaces: str = ""
    defines_kernels: bool = False
    user_pass: Any = None

    @property
    def tvm_name(self) -> str:
        """TVM's pass at this place, or an empty string."""
        return self.replaces or (self.name if self.tvm_list else "")

    @property
    def is_own(self) -> bool:
        """Whether the pass is one of ours."""
        return bool(self.replaces) or not self.tvm_list

    @property
    def owner(self) -> str:
        """Whose pass it is, in words."""
        if self.user_pass is not None:
            return "yours"
        if not self.is_own:
            return "TVM"
        return f"ours for TVM's {self.replaces}".removesuffix(" for TVM's ")

    @property
    def condition(self) -> str:
        """When it runs, in words."""
        device = {"": "", "cpu": "on a CPU", "gpu": "on a GPU", "cuda": "on CUDA"}[self.device]
        option = f"with {self.option}" if self.option else ""
        unless = f"without {self.unless}" if self.unless else ""
        return ", ".join(filter(None, (device, option, unless))) or "always"


@dataclass(frozen=True)
class Stage:
    """Passes that run as one, because some depend on the target.

    Attributes
    ----------
    name : str
        The name that instruments, errors and ``tvm-fixes opt`` use.
    steps : tuple of Step
    """

    name: str
    steps: tuple[Step, ...]

    def path(self, step: Step) -> str:
        """The name of a pass after the stage that it runs in: ``Legalize/FuseOps``."""
        return step.name if step.name == self.name else f"{self.name}/{step.name}"


@dataclass(frozen=True)
class Phase:
    """A part of the pipeline between two forms of the module.

    Attributes
    ----------
    name : str
        The field of :class:`tvm_fixes.lowering.Stages`.
    purpose : str
        What it makes of the module.
    result : str
        What the module consists of after it.
    stages : tuple of Stage
        The passes; a pass that depends on nothing is a stage of its own.
    """

    name: str
    purpose: str
    result: str
    stages: tuple[Stage, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The passes in order."""
        return tuple(step for stage in self.stages for step in stage.steps)


def _phase(name: str, purpose: str, result: str, *parts: Step | Stage) -> Phase:
    alone = (Stage(part.name, (part,)) if isinstance(part, Step) else part for part in parts)
    return Phase(name, purpose, result, tuple(alone))


def _tvm(name: str, tvm_list: str, why: str, device: str = "") -> Step:
    return Step(name, why, device=device, tvm_list=tvm_list)


PHASES = (
    _phase(
        "operators",
        "Operators become fewer and cheaper, and convolutions get the layout of their data.",
        "operators in their final layouts",
        Step("DynamicToStatic", "first: every later pass can do more with static shapes"),
        Step(
            "InsertRuntimeChecks",
            "while the module has the operators of the model, which its messages name",
            option="runtime_checks",
        ),
        Step("DecomposeEinsum", "before BroadcastFreeMatmul, which sees the matmuls of an einsum"),
        Step(
            "BroadcastFreeMatmul",
            "before constants are folded, and before a permute is fused into the matmul after it",
        ),
        Step(
            "FoldPadIntoConv",
            "before the layout is chosen: a pad between convolutions would interrupt it",
        ),
        Step("TrimConvKernel", "after FoldPadIntoConv, which shows what meets only padding"),
        Step(
            "FoldPermuteIntoScatter",
            "before the layout is chosen, while a permute and its inverse stand around a scatter",
        ),
        Step(
            "FuseDequantizeMatmul",
            "before constants are folded: it reads the integers of a weight. Only CPUs have "
            "kernels for products of narrow integers",
            device="cpu",
            takes=("max_growth",),
        ),
        Step(
            "FuseQuantized",
            "before the layout is chosen, while quantization stands beside its operator",
            device="cpu",
        ),
        Step(
            "ChooseLayout",
            "last: it looks at all operators between the convolutions",
            unless="layout",
        ),
        Step(
            "Layout",
            "in place of ChooseLayout, if a layout is given: TVM's ConvertLayout between the "
            "passes that it needs",
            option="layout",
            takes=("layout",),
        ),
    ),
    _phase(
        "kernels",
        "Each operator becomes a call of a kernel, and kernels that follow each other are fused.",
        "calls of fused kernels",
        Step("SplitDataflow", "before fusion, which ignores which binding defines a symbol"),
        Step(
            "CheckIndices",
            "before lowering: only operators show where indices come from",
            unless="unsafe_indices",
        ),
        Stage(
            "Legalize",
            (
                Step(
                    "SortByKeys",
                    "before TVM's dispatch, whose kernels write out of bounds for empty rows",
                ),
                Step("LowerScan", "before TVM's dispatch, for the same reason"),
                Step("LowerRecurrence", "before constants are folded: it packs weights"),
                Step(
                    "CopyHostResults",
                    "before kernels on the GPU read what functions on the host return",
                    device="gpu",
                ),
                Step(
                    "DecomposeGroupNorm",
                    "before its operator is lowered to one block",
                    device="gpu",
                ),
                Step(
                    "FuseSafeSoftmax", "while the operators of the softmax are seen", device="gpu"
                ),
                Step(
                    "DispatchToCublas",
                    "before lowering: it takes whole matmuls with their bias",
                    device="gpu",
                ),
                Step(
                    "DispatchToCudnn",
                    "before lowering: it takes whole convolutions",
                    device="gpu",
                ),
                Step(
                    "DecomposeConvTranspose",
                    "after DispatchToCudnn: handles the convolutions that cuDNN does not compute",
                    device="gpu",
                ),
                _tvm("DispatchSampling", DISPATCH, "kernels for sampling from a distribution"),
                _tvm("DispatchSortScan", DISPATCH, "what SortByKeys and LowerScan leave, on a GPU"),
                Step("SpreadSourceNodes", "after passes that add variables, for messages"),
                Step(
                    "LowerAssertOp",
                    "before TVM lowers an assertion to a call of Python for every run",
                    device="cpu",
                ),
                Step(
                    "ReadTransposedWeights",
                    "before FoldConstant: a weight is packed for its matmul, not transposed",
                    takes=("max_growth",),
                ),
                Step(
                    "FoldLayoutTransform",
                    "before LegalizeOps: a layout transform of a constant needs no kernel",
                    takes=("max_growth",),
                ),
                Step(
                    "ReadTransposedRows",
                    "after ReadTransposedWeights, for the permutes of activations that are left",
                    device="cpu",
                ),
                Step(
                    "MergeReshapes",
                    "after all passes on operators, for the reshapes that they add",
                    device="cpu",
                ),
                _tvm("LegalizeOps", LEGALIZE, "an operator becomes a call of its kernel"),
                Step("SpreadSourceNodes", "after LegalizeOps, which adds variables"),
                Step("ReadTupleFields", "before fusion, which does not look through tuples"),
                Step(
                    "SplitDataflow", "again, before fusion: also for bindings that lowering added"
                ),
                _tvm("AnnotateTIROpPattern", LEGALIZE, "FuseOps reads the kind of each kernel"),
                Step(
                    "FoldConstant",
                    "before fusion: otherwise, the layout transform of a constant weight is fused "
                    "into its consumer, and runs each time",
                    takes=("max_growth",),
                    tvm_list=LEGALIZE,
                    replaces="FoldConstant",
                ),
                Step(
                    "FuseOps",
                    "kernels that follow each other become one function",
                    tvm_list=LEGALIZE,
                    replaces="FuseOps",
                ),
                _tvm("FuseTIR", LEGALIZE, "the function becomes one kernel"),
            ),
        ),
        Step(
            "UpdateInPlace",
            "after fusion, which may move a read of the old value after the write",
        ),
    ),
    _phase(
        "schedules",
        "The loops of each kernel are tiled, vectorized and made parallel.",
        "calls of scheduled kernels",
        Step(
            "InlineElementwise",
            "after fusion, which recognizes reductions by their initial values",
        ),
        Step("ViewReshapes", "before a schedule hides that a kernel is a reshape", device="cpu"),
        Step("ScheduleReductions", "before ScheduleElementwise, which takes what has no schedule"),
        Step("ScheduleElementwise", "after all kernels that have a schedule of their own"),
        Step(
            "GuardFloatCasts",
            "after the schedules, and before small kernels are merged",
            defines_kernels=True,
        ),
        Step(
            "DecomposeReduction",
            "after fusion and the schedules, which know a reduction by its initial value",
            defines_kernels=True,
        ),
        Step(
            "LowerElementaryFunctions",
            "after the schedules, and before kernels are merged or scheduled for a GPU",
            defines_kernels=True,
        ),
    ),
    _phase(
        "instructions",
        "Calls, memory and shapes become instructions of the virtual machine; guards protect all "
        "kernels, also those that compute shapes.",
        "instructions and kernels",
        Step(
            "MergeEqualConstants",
            "before ConstantsToParams: equal constants are stored once",
            option="merge_constants",
        ),
        Step(
            "ConstantsToParams",
            "before memory is planned: parameters need none",
            option="collected",
            takes=("min_bytes", "collected"),
        ),
        Stage(
            "Lower",
            (
                Step(
                    "MergeSmallKernels", "after all passes that look for one kernel", device="cpu"
                ),
                Step("AllocateEmptyConstants", "before memory is planned"),
                Step(
                    "ApplyGpuSchedule",
                    "when kernels are whole, and before memory is planned",
                    device="gpu",
                    tvm_list=LEGALIZE,
                    replaces="ApplyDefaultSchedule",
                ),
                Step(
                    "LiftWorkspaces",
                    "after ApplyGpuSchedule, which adds workspaces, and before memory is planned",
                    device="gpu",
                ),
                _tvm("RewriteDataflowReshape", DATAFLOW, "a reshape becomes a view of its data"),
                _tvm("ToNonDataflow", DATAFLOW, "the virtual machine has no dataflow blocks"),
                _tvm("RemovePurityChecking", DATAFLOW, "instructions have effects"),
                Step("RecordKernelCalls", "just before calls of kernels become instructions"),
                _tvm("CallTIRRewrite", DATAFLOW, "a call writes to memory that is allocated first"),
                Step(
                    "StaticPlanBlockMemory",
                    "as soon as allocations are explicit: tensors share storage",
                    tvm_list=FINALIZE,
                    replaces="StaticPlanBlockMemory",
                ),
                Step(
                    "RewriteCUDAGraph",
                    "after the memory is planned: a graph keeps its addresses",
                    device="cuda",
                    tvm_list=FINALIZE,
                    replaces="RewriteCUDAGraph",
                ),
                _tvm("LowerAllocTensor", FINALIZE, "allocations become instructions"),
                _tvm("KillAfterLastUse", FINALIZE, "memory is released after its last use"),
                _tvm("LowerRuntimeBuiltin", FINALIZE, "builtins become instructions"),
                _tvm("ComputePrimValue", FINALIZE, "computed numbers become calls of kernels"),
                Step(
                    "VMShapeLower",
                    "after ComputePrimValue, for all shapes that are left",
                    tvm_list=FINALIZE,
                    replaces="VMShapeLower",
                ),
                _tvm("AttachGlobalSymbol", FINALIZE, "last: every function needs its symbol"),
            ),
        ),
        Step(
            "GuardFloatArithmetic",
            "after all rewrites of ours: TVM's simplifier must not undo it",
            defines_kernels=True,
        ),
        Step(
            "GuardIntegerDivision",
            "after VMShapeLower: kernels that compute shapes divide, too",
            defines_kernels=True,
        ),
        Step(
            "GuardIntegerOverflow",
            "after the schedules, which read plain arithmetic",
            defines_kernels=True,
        ),
        Step(
            "GuardLongLoops",
            "after the loops have their final extents",
            defines_kernels=True,
        ),
        Step(
            "GuardShapeBounds",
            "after all passes that read the extents of parameters",
            defines_kernels=True,
        ),
        Step(
            "GuardSplitIndices",
            "after all passes that read indices",
            defines_kernels=True,
        ),
        Step(
            "HoistSelectLoads",
            "after all passes that add a Select",
            defines_kernels=True,
        ),
        Step(
            "LowerAlignment",
            "after the schedules, which store past the caches only where memory is aligned",
        ),
        Step(
            "KeepTilesOnStack",
            "last on kernels: it lowers those with large tiles to loops",
            defines_kernels=True,
        ),
        Step(
            "CheckLowered",
            "last: calls that an external code generator takes are gone by now",
        ),
    ),
)
"""The phases in order.  After the last, ``relax.build`` runs TVM's own pipeline for kernels."""


def steps(phases: tuple[Phase, ...] = PHASES) -> Iterator[tuple[Stage, Step]]:
    """Yield each pass with its stage, in order."""
    for phase in phases:
        for stage in phase.stages:
            for step in stage.steps:
                yield stage, step


def kernel_guards() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The passes that define what a kernel computes: those before memory is planned, and after."""
    of_phase = {
        phase.name: tuple(step.name for step in phase.steps if step.defines_kernels)
        for phase in PHASES
    }
    return of_phase["schedules"], of_phase["instructions"]
