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
"""Application of passes by name, with a verification after each: the command ``tvm-fixes opt``."""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import tvm

from .. import passes as registry
from .. import target as targets
from .. import verifier
from ..errors import CompileError, UsageError, summarize
from ..observe.changes import Change, WatchChanges
from ..source import Params, Shapes, Source
from ..source.module_file import open_module
from ..support.instruments import watched_by
from ..support.serial import in_turn
from ..user_passes import Given, UserPass, read
from ..verifier import VerifyEach


@dataclass(frozen=True)
class PassRun:
    """One pass of :func:`opt`.

    Attributes
    ----------
    name : str
        The pass, as it was given.
    seconds : float
        The time that it took, with the verification.
    changes : tuple of str
        The names of the passes in it that changed the module, or its own; empty if none did.
    """

    name: str
    seconds: float
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Optimized:
    """The result of :func:`opt`.

    Attributes
    ----------
    module : tvm.IRModule
        The module after the last pass.
    runs : tuple of PassRun
        The passes, in order.
    """

    module: tvm.IRModule
    runs: tuple[PassRun, ...]

    def to_dict(self) -> dict[str, Any]:
        """The passes and the text of the module, as plain values."""
        return {"passes": [asdict(run) for run in self.runs], "module": self.module.script()}


@in_turn
def opt(
    source: str | os.PathLike[str] | tvm.IRModule,
    passes: str | Iterable[str | UserPass | tvm.transform.Pass],
    *,
    target: str | Mapping[str, object] | tvm.target.Target = "native",
    verify: bool = True,
    on_change: Callable[[Change], None] | None = None,
    shapes: Shapes | None = None,
    sizes: Mapping[str, int] | None = None,
    static: bool = False,
    trust: bool = False,
    params: Params | None = None,
    user_passes: Iterable[Given] = (),
) -> Optimized:
    """Apply passes to a module in order, and verify it after each.

    Without passes, it is only verified.

    Parameters
    ----------
    source : str, path or IRModule
        A module, or a file that :func:`tvm_fixes.source.module_file.read_module` reads; a ``.py``
        file is executed.
    passes : str or iterable of str and Pass
        Names of passes, such as ``"LegalizeOps,FuseOps"`` or ``["pipeline(layout=NHWC)"]``: see
        :func:`tvm_fixes.passes.make`.  ``"my_pass.py:MyPass"`` is a pass of your own.
    target : str, mapping or Target
        The target in whose scope the passes run, as for :func:`tvm_fixes.compile`.
    verify : bool
        Verify the module before the first pass, and after each.
    on_change : callable, optional
        Called after each pass that changes the module, also after those that run within another,
        with its name, the text before and after, and their difference.
    shapes, sizes, static, trust, params
        As for :func:`tvm_fixes.compile`; only if `source` is a file.
    user_passes : iterable
        Passes of your own for each ``pipeline`` in `passes`, as for :func:`tvm_fixes.compile`.

    Returns
    -------
    result : Optimized

    Raises
    ------
    UsageError
        If there is no such pass, file or target.
    VerifyError
        If the verifier finds an error; the message names the pass that introduced it.
    CompileError
        If a pass fails; the message names it.
    """
    resolved = targets.resolve(target)
    names = registry.split(passes) if isinstance(passes, str) else list(passes)
    own = read(user_passes)
    if own and not any(re.match(r"pipeline\b", name) for name in names if isinstance(name, str)):
        raise UsageError(
            f"pass {own[0]}: only `pipeline` has such places; in a list of passes, name it at its "
            f"place: {own[0].origin}"
        )
    made = [_named(each, resolved, own) for each in names]
    if isinstance(source, tvm.IRModule):
        mod = source
    else:
        opened = open_module(source, shapes, trust=trust, params=params)
        mod = _imported(opened, sizes or {}, static)
    changes: list[str] = []

    def changed(change: Change) -> None:
        changes.append(change.name)
        if on_change is not None:
            on_change(change)

    # The verifier comes first: TVM's printer may crash on a module with errors.
    instruments = [*([VerifyEach()] if verify else []), WatchChanges(changed, mod)]
    runs = []
    if verify and not made:
        verifier.verify(mod).raise_if_errors()
    with watched_by(*instruments), resolved:
        for name, one in made:
            start = time.perf_counter()
            mod = _apply(name, one, mod)
            runs.append(PassRun(name, round(time.perf_counter() - start, 3), tuple(changes)))
            changes.clear()
    return Optimized(mod, tuple(runs))


def _imported(
    opened: tvm.IRModule | Source, sizes: Mapping[str, int], static: bool
) -> tvm.IRModule:
    """The module of what a file has, which is not verified."""
    if isinstance(opened, Source):
        opened.set_sizes(sizes)
        if static:
            opened.make_static()
        return opened.to_relax()
    if sizes or static:
        raise UsageError("sizes can be given, and dims be made static, only for a model")
    return opened


def _named(
    one: str | UserPass | tvm.transform.Pass,
    target: tvm.target.Target,
    own: Iterable[UserPass],
) -> tuple[str, tvm.transform.Pass]:
    """A pass with its name."""
    if isinstance(one, str) and ":" in one.partition("(")[0]:
        [one] = read([one])
    if isinstance(one, UserPass):
        if one.anchor:
            raise UsageError(f"pass {one}: its place is that in the list; leave out @{one.side}=")
        return one.origin, one.as_pass()
    if isinstance(one, str):
        return one, registry.make(one, target, own)
    return str(one.info.name), one


def _apply(name: str, one: tvm.transform.Pass, mod: tvm.IRModule) -> tvm.IRModule:
    try:
        return one(mod)
    except CompileError as error:
        error.stage = error.stage or name
        raise
    except MemoryError as error:
        raise CompileError(f"pass {name}: out of memory", stage=name) from error
    except Exception as error:
        raise CompileError(f"pass {name}: {summarize(error)}", stage=name) from error
