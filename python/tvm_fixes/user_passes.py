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
"""A user's own passes: reading them by name, and their places in the pipeline's table."""

import hashlib
import inspect
import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import tvm

from .errors import CompileError, PassError, UsageError, VerifyError, summarize
from .observe.changes import is_equal
from .pipeline import PHASES, Phase, Stage, Step
from .source.user_code import import_named, place_of
from .support import ambient
from .support.suggestions import did_you_mean

_Item = TypeVar("_Item")

_PLACE = re.compile(r"(before|after)=(\S+)")

# Code in these folders is not the user's.
_LIBRARIES = tuple(
    str(Path(path).parent) + os.sep
    for name in ("tvm", "tvm_ffi", __package__)
    if (path := sys.modules[name].__file__) is not None
)


@dataclass(frozen=True)
class UserPass:
    """A user's pass at its place in the pipeline.

    Attributes
    ----------
    name : str
        The name that instruments and errors use.
    origin : str
        What was given: ``my_pass.py:MyPass``, or the name for an object.
    side, anchor : str
        ``"before"`` or ``"after"``, and a name of the pipeline's table; `anchor` is empty for the
        start of the pipeline.
    made : tvm.transform.Pass
    code : str
        A digest of the file that defines the pass; empty for an object.
    on_error : callable, optional
        Called with the traceback if the pass raises.
    """

    name: str
    origin: str
    side: str
    anchor: str
    made: tvm.transform.Pass = field(repr=False, compare=False)
    code: str = ""
    on_error: Callable[[str], object] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.origin}@{self.side}={self.anchor}" if self.anchor else self.origin

    @property
    def where(self) -> str:
        """The pass and its place in words."""
        place = f", {self.side} {self.anchor}" if self.anchor else ""
        return f"{self.name} ({self.origin}{place})"

    def as_pass(self) -> tvm.transform.Pass:
        """The pass for the pipeline: its errors name it and the line of its code."""

        def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
            before = mod.functions
            try:
                # A pass in Python may change the module in place.
                after = self.made(mod.clone())
            except (MemoryError, VerifyError):
                raise
            except Exception as error:
                raise self._error(error).with_traceback(error.__traceback__) from error
            ambient.record(UserPassRun(str(self), not is_equal(before, after)))
            return after

        return tvm.transform.module_pass(run, opt_level=0, name=self.name)

    def _error(self, error: Exception) -> PassError:
        frames = traceback.extract_tb(error.__traceback__)
        first = next((at for at, one in enumerate(frames) if _is_users(one)), 0)
        if self.on_error is not None:
            lines = [
                f'  File "{one.filename}", line {one.lineno}, in {one.name}\n    {one.line}\n'
                for one in frames[first:]
            ]
            lines = ["Traceback (most recent call last):\n", *lines]
            self.on_error("".join([*lines, f"{type(error).__name__}: {error}\n"]))
        users = [one for one in frames if _is_users(one)]
        line = f" ({_shown(users[-1].filename)}:{users[-1].lineno})" if users else ""
        return PassError(f"pass {self.where}: {summarize(error)}{line}", stage=self.name)


@dataclass(frozen=True)
class UserPassRun:
    """The fact that a user's pass has run.

    Attributes
    ----------
    name : str
        The pass with its place, as it was given.
    changed : bool
        Whether it changed the module.
    """

    name: str
    changed: bool


Given = str | UserPass | tuple[object, str]
"""A user's pass: ``"my_pass.py:MyPass@after=Legalize"``, or ``(MyPass, "after=Legalize")``."""


def read(
    passes: Iterable[Given], on_error: Callable[[str], object] | None = None
) -> tuple[UserPass, ...]:
    """Read passes, which executes the files and modules that define them.

    Parameters
    ----------
    passes : iterable of str, UserPass or tuple
        ``"package.module:MyPass@after=Legalize"``, ``"my_pass.py:MyPass@before=FuseOps"``, or a
        pair of an object and its place.  Without a place, a pass runs first.  The object is a pass,
        or a class or function without arguments that makes one.
    on_error : callable, optional
        Called with the traceback if a pass raises.

    Raises
    ------
    UsageError
        If there is no such module, pass or place.
    CompileError
        If the module cannot be imported, or the pass cannot be made.
    """
    found = tuple(one if isinstance(one, UserPass) else _read(one, on_error) for one in passes)
    phases_with(found)
    return found


def _read(given: str | tuple[object, str], on_error: Callable[[str], object] | None) -> UserPass:
    if not isinstance(given, str):
        value, place = given
        name = str(getattr(value, "__name__", type(value).__name__))
        made = _made(value, name)
        side, anchor = _place(place, name)
        return UserPass(_name_of(made, name), name, side, anchor, made, on_error=on_error)
    origin, at, place = given.rpartition("@")
    if not at or ":" in place:
        origin, place = given, ""
    side, anchor = _place(place, origin)
    made, code = load(origin)
    name = _name_of(made, origin.rpartition(":")[2])
    return UserPass(name, origin, side, anchor, made, code, on_error)


def _place(text: str, origin: str) -> tuple[str, str]:
    if not text:
        return "before", ""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise UsageError(f"pass {origin}: expected before=NAME or after=NAME, got {text!r}")
    return found[1], found[2]


def _name_of(made: tvm.transform.Pass, name: str) -> str:
    """The pass's own name, unless it is that of every sequence."""
    own = str(made.info.name)
    return name if own in ("", "sequential") else own


def load(origin: str) -> tuple[tvm.transform.Pass, str]:
    """Load ``package.module:MyPass`` or ``my_pass.py:MyPass``; return a digest of its file, too.

    Raises
    ------
    UsageError
        If there is no such module, or no such pass in it.
    CompileError
        If the module cannot be imported, or the pass cannot be made.
    """
    module_name, colon, attribute = origin.rpartition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(
            f"pass {origin!r}: expected package.module:MyPass or my_pass.py:MyPass, and perhaps "
            "@before=NAME or @after=NAME"
        )
    module = import_named(module_name)
    if not hasattr(module, attribute):
        makers = {name: value for name, value in vars(module).items() if _may_be_pass(value)}
        hint = did_you_mean(attribute, makers)
        listed = f"; passes in it: {', '.join(makers)}" if makers and not hint else ""
        raise UsageError(
            f"pass {origin}: no {attribute!r} in {module_name}{'; ' + hint if hint else listed}"
        )
    file = getattr(module, "__file__", None)
    code = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    return _made(getattr(module, attribute), origin), code


def _may_be_pass(value: object) -> bool:
    return isinstance(value, tvm.transform.Pass) or (
        isinstance(value, type)
        and issubclass(value, tvm.transform.Pass)
        and "pass_info" not in inspect.signature(value).parameters
    )


def _made(value: object, origin: str) -> tvm.transform.Pass:
    """A pass, or the pass that a class or function without arguments makes."""
    if isinstance(value, tvm.transform.Pass):
        return value
    if not callable(value):
        raise UsageError(f"pass {origin}: expected a pass, got {type(value).__name__}")
    try:
        inspect.signature(value).bind()
    except TypeError as error:
        advice = (
            "name a function without arguments that makes it"
            if isinstance(value, type)
            else "decorate a function of a module with @tvm.transform.module_pass(opt_level=0)"
        )
        raise UsageError(f"pass {origin}: {error}; {advice}") from error
    except ValueError:  # a callable without a signature
        pass
    try:
        made = value()
    except (Exception, SystemExit) as error:
        raise CompileError(
            f"pass {origin}: cannot make the pass: {summarize(error)} ({place_of(error)})"
        ) from error
    if not isinstance(made, tvm.transform.Pass):
        raise UsageError(f"pass {origin}: expected a pass, got {type(made).__name__}")
    return made


def phases_with(passes: Iterable[UserPass]) -> tuple[Phase, ...]:
    """The phases of the pipeline with users' passes at their places, in the order given.

    Raises
    ------
    UsageError
        If a place is unknown.
    """
    phases: tuple[Phase, ...] = PHASES
    for one in passes:
        step = Step(one.name, f"a pass of yours: {one}", user_pass=one)
        phase, stage, at = _find(phases, one)
        if at is None:
            place = phase.stages.index(stage)
            whole = Stage(step.name, (step,))
            stages = _inserted(phase.stages, place, whole, one.side, _is_users_stage)
        else:
            steps = _inserted(stage.steps, at, step, one.side, _is_users_step)
            grown = replace(stage, steps=steps)
            stages = tuple(grown if each is stage else each for each in phase.stages)
        grown_phase = replace(phase, stages=stages)
        phases = tuple(grown_phase if each is phase else each for each in phases)
    return phases


def _is_users_step(step: Step) -> bool:
    return step.user_pass is not None


def _is_users_stage(stage: Stage) -> bool:
    return all(map(_is_users_step, stage.steps))


def _inserted(
    items: tuple[_Item, ...],
    at: int,
    item: _Item,
    side: str,
    is_users: Callable[[_Item], bool],
) -> tuple[_Item, ...]:
    """Insert next to the item `at`, after the users' items there."""
    if side == "after":
        at += 1 + len(list(itertools.takewhile(is_users, items[at + 1 :])))
    return (*items[:at], item, *items[at:])


def _find(phases: tuple[Phase, ...], one: UserPass) -> tuple[Phase, Stage, int | None]:
    """The place of a pass: the phase, the stage, and the step unless it is the whole stage.

    Of several passes of a name, ``before`` means the first and ``after`` the last.
    """
    if not one.anchor:
        first = next(each for each in phases[0].stages if not _is_users_stage(each))
        return phases[0], first, None
    by_path: dict[str, list[tuple[Phase, Stage, int | None]]] = {}
    by_name: dict[str, list[tuple[Phase, Stage, int | None]]] = {}
    for phase in phases:
        for stage in phase.stages:
            by_path.setdefault(stage.name, []).append((phase, stage, None))
            if len(stage.steps) == 1:
                continue
            for at, step in enumerate(stage.steps):
                by_path.setdefault(stage.path(step), []).append((phase, stage, at))
                for name in {step.name, step.tvm_name} - {""}:
                    by_name.setdefault(name, []).append((phase, stage, at))
    places = by_path.get(one.anchor) or by_name.get(one.anchor)
    if places is None:
        hint = did_you_mean(one.anchor, [*by_path, *by_name])
        raise UsageError(
            f"pass {one.origin}: no pass {one.anchor!r} in the pipeline; "
            f"{hint or '`tvm-fixes opt --print-pipeline` lists its passes'}"
        )
    return places[0 if one.side == "before" else -1]


def _is_users(frame: traceback.FrameSummary) -> bool:
    is_python = frame.filename.endswith(".py") or frame.filename.startswith("<ipython")
    return is_python and not frame.filename.startswith(_LIBRARIES)


def _shown(file: str) -> str:
    """A path, relative to the working directory if it is in it."""
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative
