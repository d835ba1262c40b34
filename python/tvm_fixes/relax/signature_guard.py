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
"""SignatureGuard: report the passes that change the parameters of a function."""

import warnings
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax

from ..attributes import LIFTED
from .lift.callers import SUFFIX, public_functions
from .transform.lift_transform_params import type_text


@dataclass(frozen=True)
class SignatureChange:
    """A change that a pass made to the parameters of a public function.

    Attributes
    ----------
    pass_name : str
        The pass, after the passes that it is nested in: ``"Sequence > Pass"``.
    function : str
        The name of the function.
    changed : str
        A short description of the change, such as ``"their order"``.
    before, after : str
        The parameters with their types.
    hint : str
        How to call the function after the pass, or how to keep its signature.
    """

    pass_name: str
    function: str
    changed: str
    before: str
    after: str
    hint: str

    def __str__(self) -> str:
        return (
            f"{self.pass_name} changes the parameters of {self.function} ({self.changed}): "
            f"before ({self.before}), after ({self.after}); {self.hint}"
        )


class SignatureGuard(tvm.ir.instrument.PassInstrument):
    """Warn about passes that change how a public function must be called.

    >>> with tvm.transform.PassContext(instruments=[tvm_fixes.SignatureGuard()]):
    ...     mod = pipeline(mod)

    A pass may change the number, the names, the order or the types of the parameters, or their
    meaning: a lifted weight may keep its type and have other values.  Each change is reported once,
    for the innermost pass that made it.

    Attributes
    ----------
    changes : list of SignatureChange
        The changes since the context was entered, in the order of the passes.

    Warns
    -----
    UserWarning
        For each change.

    Notes
    -----
    A change of meaning is detected only for ``LiftTransformParams``, TVM's or ours, by the
    transform function that it adds.
    """

    # TVM's objects have no __dict__ for Python attributes.
    __slots__ = ("__dict__",)

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[SignatureChange] = []
        self._running: list[tuple[str, dict[str, _Signature]]] = []

    def enter_pass_ctx(self) -> None:
        """Forget the changes of an earlier context."""
        self.changes = []
        self._running = []

    def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Record the signatures of the public functions."""
        self._running.append((str(info.name), _signatures(mod)))

    def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Compare the signatures with those before the pass, and warn of changes."""
        name = str(info.name)
        path = " > ".join(running for running, _ in self._running)
        # A nested pass that raised never got here: discard it.
        while self._running:
            running, before = self._running.pop()
            if running == name:
                break
        else:
            return
        after = _signatures(mod)
        for function, old in before.items():
            differences = _compare(function, old, after.get(function))
            if differences is not None:
                changed, hint = differences
                now = after[function].text if function in after else "gone"
                change = SignatureChange(path, function, changed, old.text, now, hint)
                self.changes.append(change)
                warnings.warn(str(change), stacklevel=2)
        # The enclosing passes must not report these changes again.
        self._running = [(running, after) for running, _ in self._running]


@dataclass(frozen=True)
class _Signature:
    """The parameters of a function, and the transform function that prepares its weights."""

    names: list[str]
    types: relax.TupleType
    transform: str | None
    has_params: bool

    @property
    def text(self) -> str:
        fields = zip(self.names, self.types.fields, strict=True)
        return ", ".join(f"{name}: {type_text(ty)}" for name, ty in fields)


def _signatures(mod: tvm.IRModule) -> dict[str, _Signature]:
    names = {str(var.name_hint) for var in mod.get_global_vars()}
    signatures = {}
    for var, function in public_functions(mod).items():
        attrs = function.attrs or {}
        name, transform = str(var.name_hint), None
        if name.endswith(SUFFIX):
            # A transform function: other passes may change its signature.
            pass
        elif LIFTED in attrs:
            transform = str(attrs[LIFTED]["transform"])
        elif "num_input" in attrs:
            of_its_own = f"{name}_{SUFFIX}"
            candidates = [attribute for attribute in (of_its_own, SUFFIX) if attribute in names]
            transform = candidates[0] if candidates else None
        if transform is not None and _passes_on(mod, transform):
            transform = None
        signatures[name] = _Signature(
            [str(param.name) for param in function.params],
            relax.TupleType([param.ty for param in function.params]),
            transform,
            "params" in attrs,
        )
    return signatures


def _passes_on(mod: tvm.IRModule, transform: str) -> bool:
    """Whether a transform function returns the weights unchanged."""
    function = mod[transform]
    if not isinstance(function, relax.Function) or not function.params:
        return True
    return bool(function.body.body.same_as(function.params[-1]))


def _compare(function: str, old: _Signature, new: _Signature | None) -> tuple[str, str] | None:
    """The change, and a hint for the user; None if nothing has changed."""
    if new is None:
        return "it is gone", "give it a global_symbol, or pass its name to DeadCodeElimination"
    if new.transform is not None and old.transform is None:
        hint = (
            f"{new.transform} prepares the weights: call {function}(*inputs, "
            f"*{new.transform}(weights)), or use tvm_fixes.lift, whose model keeps the signature"
        )
        if new.has_params:
            hint += (
                f"; the weights that relax.frontend.detach_params takes from {function} are "
                f"arguments of {new.transform}"
            )
        return "meaning of the weights", hint
    if _callbacks(new) > _callbacks(old):
        return "callbacks", (
            "pass callbacks that provide the weights or receive the results, or use "
            "tvm_fixes.lift(…, lazy=True), which does both"
        )
    if len(new.names) != len(old.names):
        return f"{len(old.names)} became {len(new.names)}", _hint_of_number(function, old, new)
    if not tvm_ffi.structural_equal(old.types, new.types, map_free_vars=True):
        if sorted(old.names) == sorted(new.names) and old.names != new.names:
            return "their order", "pass them in the new order, or by name to tvm_fixes.lift"
        if _is_bundled(new) and not _is_bundled(old):
            return "their types", _hint_of_number(function, old, new)
        return "their types", "convert the arguments, or run the pass before the inputs are fixed"
    if old.names != new.names:
        changed = "their order" if sorted(old.names) == sorted(new.names) else "their names"
        return changed, "check that each argument still goes to the right parameter"
    return None


def _hint_of_number(function: str, old: _Signature, new: _Signature) -> str:
    if _is_bundled(new) and not _is_bundled(old):
        return f"the weights are one tuple: call {function}(*inputs, weights)"
    if set(new.names) < set(old.names):
        gone = ", ".join(name for name in old.names if name not in new.names)
        return (
            f"{gone}: no longer a parameter; to keep weights outside, do not bind them, and use "
            "relax.frontend.detach_params or tvm_fixes.lift"
        )
    return "pass an argument for each parameter"


def _callbacks(signature: _Signature) -> int:
    return sum(isinstance(ty, relax.FuncType) for ty in signature.types.fields)


def _is_bundled(signature: _Signature) -> bool:
    fields = signature.types.fields
    return bool(fields) and isinstance(fields[-1], relax.TupleType)
