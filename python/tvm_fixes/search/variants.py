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
"""Builds of a model with some passes of the pipeline, or with some scheduled kernels."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import tvm
from tvm import relax
from tvm_ffi import structural_equal

from .. import target as targets
from ..compiler.linking import export
from ..compiler.steps import build_executable
from ..lowering import Stages, stages, stock_rest
from ..observe.changes import changed_constants, text_of, unified_diff
from ..pipeline import steps
from ..runtime.compiled_model import CompiledModel
from ..source import Source
from ..support import switches
from .trial import Settings


@dataclass(frozen=True)
class PassRun:
    """A pass of the pipeline that changed the module.

    Attributes
    ----------
    at : int
        The place of its stage among those of :class:`tvm_fixes.lowering.Stages`.
    stage, name : str
        The stage, and the pass, which may be the stage.
    executed : int
        The number of passes of the stage that have run, with this one.
    user_pass : str
        The user's pass, as it was given; empty for a pass of the pipeline.
    """

    at: int
    stage: str
    name: str
    executed: int
    user_pass: str = ""

    def __str__(self) -> str:
        if self.user_pass:
            return f"{self.name} ({self.user_pass})"
        return self.name if self.name == self.stage else f"{self.name} (of {self.stage})"


class _Stopped(Exception):
    pass


@tvm.instrument.pass_instrument
class _Recorder:
    """Records the passes of a stage, and stops after one of them, or leaves one out.

    A stage for one target runs a sequence with its own name; the passes of the sequence count.
    What a user's pass runs does not.
    """

    def __init__(
        self,
        is_users: bool,
        is_last: Callable[[int], bool],
        on_start: Callable[[str], object],
        left_out: int | None = None,
    ) -> None:
        self.path: list[str] = []
        self.mods: list[tvm.IRModule] = []
        self.names: list[str] = []
        self._depth = 1 if is_users else 3
        self._is_last, self._on_start, self._left_out = is_last, on_start, left_out

    def should_run(self, _mod: tvm.IRModule, info: tvm.transform.PassInfo) -> bool:
        is_left_out = self._is_inner([*self.path, str(info.name)]) and (
            len(self.names) + 1 == self._left_out
        )
        if is_left_out:
            self._left_out = None
        return not is_left_out

    def _is_inner(self, path: list[str]) -> bool:
        return len(path) == self._depth == 3 and path[0] == path[1]

    def run_before_pass(self, _mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        self.path.append(str(info.name))
        if len(self.path) in (1, self._depth):
            self._on_start(self.path[-1])

    def run_after_pass(self, mod: tvm.IRModule, _info: tvm.transform.PassInfo) -> None:
        path = list(self.path)
        self.path.pop()
        if self._is_inner(path) or (len(path) == 1 and not self.names):
            self.names.append(path[-1])
            self.mods.append(mod)
            if self._is_last(len(self.names)):
                raise _Stopped


def _run_stage(
    stage: tvm.transform.Pass,
    mod: tvm.IRModule,
    settings: Settings,
    executed: int | None = None,
    on_start: Callable[[str], object] = str,
    left_out: int | None = None,
) -> tuple[tvm.IRModule, _Recorder]:
    """Run a stage, or only its first passes, or all but one; return the module and the record of
    its passes."""
    is_users = str(stage.info.name) in {each.name for each in settings.user_passes}
    recorder = _Recorder(is_users, lambda number: number == executed, on_start, left_out)
    target = targets.resolve(settings.target)
    with tvm.transform.PassContext(instruments=[recorder]), target:
        try:
            return stage(mod), recorder
        except Exception:
            if executed is None or len(recorder.names) != executed:
                raise
            return recorder.mods[-1], recorder


def _stages(settings: Settings) -> Stages:
    # As a compilation's, except that the constants stay in the module.
    names = ("runtime_checks", "max_growth", "unsafe_indices")
    chosen = {name: settings.options[name] for name in names if name in settings.options}
    return stages(layout=settings.layout, passes=settings.passes, merge_constants=True, **chosen)


def passes_of(
    source: Source, settings: Settings, on_start: Callable[[str], object] = str
) -> list[PassRun]:
    """The passes that change the module, in order; call it in a forked child.

    `on_start` is called with the name of each pass before it runs.
    """
    mod = source.to_relax()
    variants = []
    left = [step.user_pass for _, step in steps(settings.phases) if step.user_pass is not None]
    for at, stage in enumerate(_stages(settings)):
        before = mod
        mod, recorder = _run_stage(stage, mod, settings, on_start=on_start)
        for executed, (name, after) in enumerate(
            zip(recorder.names, recorder.mods, strict=True), 1
        ):
            is_users = bool(left) and left[0].name == name
            user_pass = str(left.pop(0)) if is_users else ""
            if not structural_equal(before, after, map_free_vars=True):
                variants.append(PassRun(at, str(stage.info.name), name, executed, user_pass))
            before = after
    return variants


def fixes_of_passes(source: Source, settings: Settings) -> dict[str, list[str]]:
    """For each fix, the passes that apply it; call it in a forked child."""
    report = replace(settings, options={**settings.options, "explain": True}).build(source).report
    explanation = None if report is None else report.explanation
    return {} if explanation is None else {one.fix: one.by for one in explanation.fixes}


def diff_of(source: Source, settings: Settings, run: PassRun) -> str:
    """The changes of a pass, as a diff of TVMScript; call it in a forked child."""
    mod = source.to_relax()
    for at, stage in enumerate(_stages(settings)):
        before, is_last = mod, at == run.at
        mod, recorder = _run_stage(stage, mod, settings, run.executed if is_last else None)
        if is_last:
            if run.executed > 1:
                before = recorder.mods[run.executed - 2]
            return _diff(before, mod)
    raise AssertionError(f"the pipeline has no stage {run.stage}")


def _diff(before: tvm.IRModule, after: tvm.IRModule) -> str:
    lines = "".join(unified_diff(text_of(before), text_of(after), "before", "after"))
    return lines + "".join(f"# {line}\n" for line in changed_constants(before, after))


def build_after(
    source: Source, settings: Settings, last: PassRun | None, *, with_fixes: bool
) -> CompiledModel:
    """Build a model with the pipeline up to a pass, and TVM's own passes from there on.

    Parameters
    ----------
    last : PassRun or None
        The last pass; None for TVM's own pipeline.
    with_fixes : bool
        Whether the fixes of operators stay on in TVM's own passes.
    """
    target = targets.resolve(settings.target)
    mod = imported = source.to_relax()
    every = list(_stages(settings))
    names = [str(stage.info.name) for stage in every]
    begun = 0 if last is None else last.at
    for stage in every[:begun]:
        mod, _ = _run_stage(stage, mod, settings)
    executed = 0
    if last is not None:
        executed = last.executed
        mod, _ = _run_stage(every[begun], mod, settings, executed)
    rest = stock_rest(target, names[begun:], executed, settings.phases)
    fixes: AbstractContextManager[object] = nullcontext()
    with fixes if with_fixes else switches.without(switches.FIX_IDS):
        if rest:
            with target:
                mod = tvm.transform.Sequential(rest)(mod)
        executable = build_executable(mod, target)
    return export(executable, target, source.signature(imported["main"]), (), {})


def build_without(source: Source, settings: Settings, run: PassRun | None) -> CompiledModel:
    """Build a model with all passes, or all but one."""
    target = targets.resolve(settings.target)
    mod = imported = source.to_relax()
    for at, stage in enumerate(_stages(settings)):
        if run is None or run.at != at:
            mod, _ = _run_stage(stage, mod, settings)
        elif run.name != run.stage:
            mod, _ = _run_stage(stage, mod, settings, left_out=run.executed)
    executable = build_executable(mod, target)
    return export(executable, target, source.signature(imported["main"]), (), {})


def scheduled_kernels(source: Source, settings: Settings) -> list[str]:
    """The kernels that schedules change, in the order of their first calls."""
    before, after, _ = _around_schedules(source, settings)
    return [name for name in _calls(before) if _may_differ(before, after, name)]


def build_with_kernels(
    source: Source, settings: Settings, kernels: Collection[str]
) -> CompiledModel:
    """Build a model whose other kernels have no schedule."""
    before, mod, imported = _around_schedules(source, settings)
    mod = tvm.IRModule(mod.functions, attrs=mod.attrs)
    for name in _calls(before):
        if name not in kernels and _may_differ(before, mod, name):
            mod.update_func(mod.get_global_var(name), before[name])
    target = targets.resolve(settings.target)
    lowering = _stages(settings)
    with target:
        for stage in lowering.instructions:
            mod = stage(mod)
    executable = build_executable(mod, target)
    return export(executable, target, source.signature(imported["main"]), (), {})


def diff_of_kernel(source: Source, settings: Settings, name: str) -> str:
    """The changes of a kernel's schedule, as a diff; call it in a forked child."""
    before, after, _ = _around_schedules(source, settings)
    return _diff(tvm.IRModule({name: before[name]}), tvm.IRModule({name: after[name]}))


def _around_schedules(
    source: Source, settings: Settings
) -> tuple[tvm.IRModule, tvm.IRModule, tvm.IRModule]:
    """The module before and after its kernels are scheduled, and as imported."""
    target = targets.resolve(settings.target)
    mod = imported = source.to_relax()
    lowering = _stages(settings)
    with target:
        for stage in (*lowering.operators, *lowering.kernels):
            mod = stage(mod)
        before = mod
        for stage in lowering.schedules:
            mod = stage(mod)
    return before, mod, imported


def _calls(mod: tvm.IRModule) -> list[str]:
    """The kernels by name, those of earlier calls first."""
    variants: dict[str, None] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GlobalVar) and isinstance(mod[expr], tvm.tirx.PrimFunc):
            variants.setdefault(str(expr.name_hint))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return list(variants)


def _may_differ(before: tvm.IRModule, after: tvm.IRModule, name: str) -> bool:
    """Whether a kernel has changed, but not its parameters."""
    if name not in [str(var.name_hint) for var in after.get_global_vars()]:
        return False
    old, new = before[name], after[name]
    is_changed = not structural_equal(old, new, map_free_vars=True)
    return is_changed and len(old.params) == len(new.params)
