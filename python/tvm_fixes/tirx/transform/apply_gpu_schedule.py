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
"""ApplyGpuSchedule: schedules every kernel for a GPU.

Trigger
    For a GPU: a grouped convolution, a convolution with one channel, an argmax; a kernel whose
    output may have no elements; a bias after a sum of one product; a product of a matrix with fewer
    than 16 rows and a vector; a consumer of a grouped convolution; a transposed convolution. A
    product of 16-bit matrices, with or without a mask.
Mechanism
    An exception of one schedule rule ends the build, and nothing checks whether its schedule can be
    lowered or fits the GPU.  A grid without blocks is launched with one block, and the check of an
    index is omitted where the extent is a multiple of the number of threads. The lowering of
    cross-thread reductions drops a predicate with a single clause. A schedule keeps sums in
    registers, but divides the next step differently among threads. TVM's schedules treat a
    reduction of one element as an elementwise block. A copy of an input to faster memory has no
    condition, even if its use has one. A vector of bool is accessed with two bytes per element.
    TVM's tensor intrinsics are parsed on first use, and for each of them Python searches all
    modules for the sources of the importing frames.
How to remove
    When TVM passes the tests of this file, delete it, its tests, the rest of the fix id
    ``gpu-schedule``, :mod:`tvm_fixes.tirx.gpu_rules`, :mod:`tvm_fixes.tirx.guarded_loads` and
    :mod:`tvm_fixes.tirx.gpu_kernel`, and use TVM's ``ApplyDefaultSchedule`` in
    :mod:`tvm_fixes.pipeline`.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import ApplyDefaultSchedule, ScheduleRule

from ...errors import CompileError, UsageError
from ...fixes.elements import DECOMPOSE_REDUCTION
from ...fixes.gpu import GPU_SCHEDULE as FIX_ID
from ...support import activity, ambient, switches
from ...support.declined import decline
from ...target.gpu import is_gpu, with_limits
from ..dead_blocks import without_dead_blocks
from ..gpu_kernel import (
    keep_predicates,
    read_results_first,
    reason_of,
    skip_empty_grids,
    why_not_runnable,
    without_vectors_of_bool,
)
from ..gpu_rules import gpu_rules, stock_rules
from ..guarded_loads import clamp_guarded_loads
from ..initial_values import set_initial_values, without_unit_reductions
from ..large_values import keep_large_values
from . import decompose_reduction
from .guard_integer_overflow import guard

# The modules of the importing frames, which have no source files.
_IMPORTING_MODULES = ("importlib._bootstrap", "importlib._bootstrap_external")

# Set for functions that need no schedule.
_IS_SCHEDULED = "tirx.is_scheduled"


@dataclass(frozen=True)
class ScheduledKernel:
    """Which rule scheduled a kernel.

    Attributes
    ----------
    name : str
        The function.
    rule : str
        The name of the rule's class.
    failures : tuple of str
        The rules before it that failed, each with the reason in one line; it does not include those
        that do not apply to the kernel.
    """

    name: str
    rule: str
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.rule} instead of {'; '.join(self.failures)}"


def ApplyGpuSchedule(rules: Sequence[ScheduleRule] | None = None) -> tvm.transform.Pass:
    """Schedule the kernels for a GPU.

    For each kernel, the rules are tried in order.  A rule is skipped if it does not apply or fails,
    if its schedule cannot be lowered or exceeds a limit of the GPU, or if it does not set the
    result of an empty reduction.

    Parameters
    ----------
    rules : sequence of ScheduleRule, optional
        By default, :func:`tvm_fixes.tirx.gpu_rules.gpu_rules`.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs for GPUs; in those that are scheduled already, it only
        guards grids that may be empty.  It needs a current target.  It raises a
        :class:`~tvm_fixes.errors.CompileError` that names the kernel if no rule succeeds.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not switches.enabled(FIX_ID):
            return ApplyDefaultSchedule(*stock_rules())(mod)
        _prepare_import_of_intrinsics()
        current = tvm.target.Target.current(allow_none=True)
        if current is None:
            raise UsageError("ApplyGpuSchedule needs a target: run it within 'with target:'")
        scheduled = {}
        functions = mod.functions_items()
        for number, (variable, function) in enumerate(functions, 1):
            activity.report(f"kernel {number} of {len(functions)}")
            target = (function.attrs or {}).get("target", current)
            if not isinstance(function, tirx.PrimFunc) or not is_gpu(target):
                continue
            target = with_limits(target)
            if function.attrs.get(_IS_SCHEDULED, False):
                scheduled[variable] = skip_empty_grids(function)
            else:
                tried = gpu_rules(target) if rules is None else rules
                scheduled[variable] = _schedule(variable.name_hint, function, target, tried)
        mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in scheduled.items():
            mod.update_func(variable, function)
        return mod

    return tvm.transform.module_pass(run, opt_level=0, name="ApplyGpuSchedule")


def _prepare_import_of_intrinsics() -> None:
    for name in _IMPORTING_MODULES:
        inspect.modulesbyfile.setdefault(f"<frozen {name}>", name)


def _schedule(
    name: str,
    function: tirx.PrimFunc,
    target: tvm.target.Target,
    rules: Sequence[ScheduleRule],
) -> tirx.PrimFunc:
    """Schedule a kernel by the first rule that succeeds."""
    failures: list[str] = []
    function = without_dead_blocks(function)
    function = clamp_guarded_loads(without_unit_reductions(function))
    function = keep_large_values(function)
    for rule in rules:
        rule_name, reason = type(rule).__name__, None
        try:
            scheduled = _apply(rule, function, target)
            # The integers as the pipeline guards them later: TVM may fail to lower others.
            if scheduled is not None:
                reason = why_not_runnable(guard(scheduled, target), target)
        except Exception as error:
            reason = reason_of(error)
        if reason is not None:
            failures.append(f"{rule_name} ({reason})")
        elif scheduled is not None:
            if failures:
                decline("schedule", name, f"{rule_name} instead of {'; '.join(failures)}")
            if failures or not type(rule).__module__.startswith("tvm."):
                switches.note(FIX_ID)
            ambient.record(ScheduledKernel(name, rule_name, tuple(failures)))
            return read_results_first(scheduled).with_attr(_IS_SCHEDULED, True)
    raise CompileError(f"no schedule of kernel {name!r} runs on {target}: {'; '.join(failures)}")


def _apply(
    rule: ScheduleRule, function: tirx.PrimFunc, target: tvm.target.Target
) -> tirx.PrimFunc | None:
    """The schedule of a rule, with the initial values of empty reductions and no empty grids."""
    made = rule.apply(function, target, False)
    if made is None:
        return None
    [schedule] = made if isinstance(made, list) else [made]
    scheduled = without_vectors_of_bool(keep_predicates(schedule.mod["main"]))
    if switches.enabled(DECOMPOSE_REDUCTION) and _leaves_results_unset(scheduled):
        scheduled = set_initial_values(scheduled)
    return skip_empty_grids(scheduled)


def _leaves_results_unset(function: tirx.PrimFunc) -> bool:
    """Whether a reduction may be empty and has no initial value then.

    A cross-thread reduction has one, because each thread first reduces its own part.
    """
    lower = s_tir.transform.LowerCrossThreadReduction()
    return decompose_reduction.may_be_empty(lower(tvm.IRModule({"main": function}))["main"])
