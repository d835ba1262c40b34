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
"""The changes of each pass in a module, as a diff of its TVMScript."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
import tvm
import tvm_ffi

from ..errors import summarize
from ..relax.constants.provenance import constants_of

MAX_TEXT = 8 << 20
"""The text of a module is cut off at this number of characters."""

# Longer functions are not compared line by line: difflib takes minutes.
_MAX_LINES = 20_000

# The names of passes that only group others.
_GROUPS = frozenset({"_pipeline", "sequential", "tvm_fixes"})


def text_of(mod: tvm.IRModule) -> str:
    """The TVMScript of a module, with constants elided, up to :data:`MAX_TEXT` characters."""
    try:
        text = str(mod.script())
    except Exception as error:
        return f"# TVM cannot print this module: {summarize(error)}\n"
    text = text.rstrip("\n") + "\n"
    if len(text) <= MAX_TEXT:
        return text
    kept = text[: text.rindex("\n", 0, MAX_TEXT) + 1]
    return f"{kept}# {len(text) - len(kept)} more characters\n"


@dataclass(frozen=True)
class Change:
    """A module that differs from the one before.

    Attributes
    ----------
    name : str
        The pass, after the passes that it runs in: ``Legalize/FuseOps``.
    before, after : str
        The text of the module: see :func:`text_of`.
    is_whole : bool
        Whether `after` is another module instead of a changed one, such as only its kernels.
    constants : tuple of str
        The constants whose values changed: see :func:`changed_constants`.
    """

    name: str
    before: str
    after: str
    is_whole: bool = False
    constants: tuple[str, ...] = ()

    @cached_property
    def diff(self) -> str:
        """A unified diff, or a comment if the texts are equal or of different modules."""
        if self.is_whole:
            return "# another module, such as the kernels of the one before\n"
        if self.before == self.after:
            lines = "".join(f"# {line}\n" for line in self.constants)
            return lines or "# only elided values differ\n"
        lines = "".join(unified_diff(self.before, self.after, "before", self.name))
        return lines + "".join(f"# {line}\n" for line in self.constants)


def unified_diff(before: str, after: str, old_name: str, new_name: str) -> Iterator[str]:
    """A unified diff of two texts; a part that is too long for one is replaced as a whole."""
    old, new = before.splitlines(True), after.splitlines(True)
    # difflib compares long texts slowly, even where they are equal.
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    old_part, new_part = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(old_part), len(new_part)) > _MAX_LINES:
        head = f"@@ -{start + 1},{len(old_part)} +{start + 1},{len(new_part)} @@\n"
        whole = (
            f"{sign}{line}" for sign, part in (("-", old_part), ("+", new_part)) for line in part
        )
        return chain((f"--- {old_name}\n", f"+++ {new_name}\n", head), whole)
    return difflib.unified_diff(old, new, old_name, new_name)


def _common(one: list[str], other: list[str]) -> int:
    """The number of equal lines at the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


class _Running(NamedTuple):
    name: str
    is_watched: bool


class WatchChanges(tvm.ir.instrument.PassInstrument):
    """Calls back after each pass that changes the module.

    A pass that runs others is named with them, and is not reported itself unless it changes
    something after them.  Passes on modules that a pass makes for its own use, as to fold
    constants, are not reported.

    Parameters
    ----------
    on_change : callable
        Called with a :class:`Change`.
    mod : tvm.IRModule, optional
        The module that the first pass gets, if that is known.
    """

    # Without a dict, an object of a TVM class cannot have new attributes.
    __slots__ = ("__dict__",)

    def __init__(self, on_change: Callable[[Change], None], mod: tvm.IRModule | None = None):
        super().__init__()
        self._on_change = on_change
        self._running: list[_Running] = []
        self._see(mod, "" if mod is None else text_of(mod))

    def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Report a module that changed after the last pass, or that is another one."""
        name = str(info.name)
        is_same = self._is_same_model(mod)
        is_watched = not self._running or (self._running[-1].is_watched and is_same)
        if is_watched and not self._is_seen(mod):
            self._report(mod, self._path() or f"before {name}")
        self._running.append(_Running(name, is_watched))

    def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Report a module that the pass changed."""
        name = str(info.name)
        while self._running and self._running[-1].name != name:
            self._running.pop()  # a pass in it that raised
        path = self._path() or name
        if self._running and self._running.pop().is_watched and not self._is_seen(mod):
            self._report(mod, path)

    def _path(self) -> str:
        """The names of the running passes, without those that only group others."""
        names = (one.name for one in self._running if one.name not in _GROUPS)
        return "/".join(name for name, _ in groupby(names))

    def _is_seen(self, mod: tvm.IRModule) -> bool:
        return self._functions is not None and self._functions.same_as(mod.functions)

    def _is_same_model(self, mod: tvm.IRModule) -> bool:
        """Whether a module has all public functions of the last one."""
        return self._public <= set(mod.get_global_vars())

    def _report(self, mod: tvm.IRModule, name: str) -> None:
        before, functions, is_whole = self._text, self._functions, not self._is_same_model(mod)
        self._see(mod, text_of(mod))
        if before != self._text or not is_equal(functions, mod):
            is_whole = is_whole or functions is None
            old = {} if functions is None or is_whole else functions
            constants = changed_constants(tvm.IRModule(dict(old)), mod)
            self._on_change(Change(name, before, self._text, is_whole, constants))

    def _see(self, mod: tvm.IRModule | None, text: str) -> None:
        # While this reference exists, TVM copies the table instead of changing it in place.
        self._functions = None if mod is None else mod.functions
        self._text = text
        items = [] if mod is None else mod.functions_items()
        self._public = {var for var, function in items if "global_symbol" in function.attrs}


def changed_constants(before: tvm.IRModule, after: tvm.IRModule) -> tuple[str, ...]:
    """The constants whose values changed, a line each; none if their number or types changed."""
    old, new = constants_of(before), constants_of(after)
    if [(each.shape, each.dtype) for each in old] != [(each.shape, each.dtype) for each in new]:
        return ()
    pairs = ((a, b) for a, b in zip(old, new, strict=True) if not a.same_as(b))
    lines = (_changed_values(a.numpy(), b.numpy()) for a, b in pairs)
    return tuple(line for line in lines if line)


def _changed_values(old: np.ndarray, new: np.ndarray) -> str:
    """The number of values of a constant that changed, with the largest; empty if none did."""
    # Unlike the values, their bytes tell a NaN from another, and 0.0 from -0.0.
    item = max(old.dtype.itemsize, 1)
    differs = np.frombuffer(old.tobytes(), "uint8") != np.frombuffer(new.tobytes(), "uint8")
    places = np.flatnonzero(differs.reshape(-1, item).any(axis=1))
    if not places.size:
        return ""
    a, b = (values.reshape(-1)[places].astype("float64") for values in (old, new))
    with np.errstate(invalid="ignore"):
        change = np.where(np.isfinite(a - b), np.abs(a - b), np.inf)
    at = int(np.argmax(change))
    index = [int(i) for i in np.unravel_index(places[at], old.shape)]
    size = f"{change[at]:.6g}" if np.isfinite(change[at]) else f"from {a[at]:g} to {b[at]:g}"
    return (
        f"constant {tuple(old.shape)}: {places.size:,} of {old.size:,} values changed, largest "
        f"change {size} at {index}"
    )


def is_equal(
    functions: Mapping[tvm.ir.GlobalVar, tvm.ir.BaseFunc] | None, mod: tvm.IRModule
) -> bool:
    """Whether the functions of a module, whose text is equal, have equal constants too."""
    if functions is None or set(functions) != set(mod.get_global_vars()):
        return False
    return all(
        function.same_as(functions[var]) or tvm_ffi.structural_equal(functions[var], function)
        for var, function in mod.functions_items()
    )
