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
"""The verifier after each pass: the pass that broke a module, and the binding it changed."""

from collections.abc import Collection
from dataclasses import dataclass

import tvm
from tvm import relax

from ..errors import VerifyError
from ..relax import analysis
from . import render
from .diagnostic import Diagnostic
from .diagnostics import verify


@dataclass(frozen=True)
class Finding:
    """A violation, and the pass that introduced it.

    Attributes
    ----------
    pass_name : str or None
        The pass that introduced the violation; None if the module had it before.
    found_before : str or None
        If no verified pass introduced the violation, the pass before which it was found; else None.
    diagnostic : Diagnostic
        The violation.
    text : str
        The diagnostic with its line, the faulty pass, and the binding before and after.
    """

    pass_name: str | None
    found_before: str | None
    diagnostic: Diagnostic
    text: str

    def __str__(self) -> str:
        return self.text


_Key = tuple[str, str, str]


class VerifyEach(tvm.ir.instrument.PassInstrument):
    """Verify a module before the first pass and after each pass that changes it.

    >>> with tvm.transform.PassContext(instruments=[tvm_fixes.VerifyEach()]):
    ...     mod = pipeline(mod)

    A module is not verified again if its functions have just been verified, so the error of a pass
    is not attributed to the sequence around it.

    Parameters
    ----------
    raise_on_error : bool
        Raise after the first pass that introduces an error, instead of only collecting findings.
    only : collection of str, optional
        The names of the passes before and after which to verify; by default, all.

    Attributes
    ----------
    findings : list of Finding
        The new errors and warnings since the context was entered, in the order of the passes.

    Raises
    ------
    VerifyError
        When a pass runs with `raise_on_error`.  The message has every new error, the pass that
        introduced it, and the binding before and after.
    """

    # Without a dict, an object of a TVM class cannot have new attributes.
    __slots__ = ("__dict__",)

    def __init__(self, *, raise_on_error: bool = True, only: Collection[str] | None = None):
        super().__init__()
        self._only = only
        self.raise_on_error = raise_on_error
        self.findings: list[Finding] = []
        self._forget()

    def enter_pass_ctx(self) -> None:
        """Reset the findings."""
        self.findings = []
        self._forget()

    def exit_pass_ctx(self) -> None:
        """Release the modules."""
        self._forget()

    def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Verify the module, unless it is the result of the previous pass."""
        name = str(info.name)
        if not self._is_watched(name):
            return
        if not self._is_verified(mod):
            self._verify(mod, None, found_before=name)
        # A pass in Python may change the module in place.
        self._running.append((name, mod.clone()))

    def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Verify the module if the pass changed it."""
        if not self._is_watched(str(info.name)):
            return
        before = self._pop(str(info.name))
        if not self._is_verified(mod):
            self._verify(mod, before, pass_name=str(info.name))

    def _is_watched(self, name: str) -> bool:
        return self._only is None or name in self._only

    def _forget(self) -> None:
        # The functions that were verified last. While this reference exists, TVM copies their
        # table instead of changing it in place.
        self._verified: tvm.runtime.Object | None = None
        self._running: list[tuple[str, tvm.IRModule]] = []
        self._known: set[_Key] = set()

    def _pop(self, name: str) -> tvm.IRModule | None:
        """Return the input module of the pass `name`; discard passes in it that raised."""
        while self._running:
            running, mod = self._running.pop()
            if running == name:
                return mod
        return None

    def _is_verified(self, mod: tvm.IRModule) -> bool:
        return self._verified is not None and self._verified.same_as(mod.functions)

    def _verify(
        self,
        mod: tvm.IRModule,
        before: tvm.IRModule | None,
        *,
        pass_name: str | None = None,
        found_before: str | None = None,
    ) -> None:
        diagnostics = verify(mod)
        self._verified = mod.functions
        # The key has no location, because a pass that removes bindings moves the others.
        new = [
            finding
            for finding in diagnostics
            if finding.severity != "note" and _key(finding) not in self._known
        ]
        self._known.update(map(_key, new))
        if pass_name is None:
            origin = f"  present before the pass {found_before}"
        else:
            origin = f"  introduced by the pass {pass_name}"
        texts = render.texts(
            mod,
            new,
            render.unprintable_functions(diagnostics),
            lambda finding: _describe_change(finding, before, mod),
        )
        findings = [
            Finding(pass_name, found_before, finding, "\n".join([text, origin]))
            for finding, text in zip(new, texts, strict=True)
        ]
        self.findings += findings
        errors = [finding for finding in findings if finding.diagnostic.severity == "error"]
        if self.raise_on_error and errors:
            counts = render.count_text(finding.diagnostic for finding in errors)
            raise VerifyError("\n".join([*(finding.text for finding in errors), counts]))


def _key(diagnostic: Diagnostic) -> _Key:
    return diagnostic.rule, diagnostic.function, diagnostic.message


def _describe_change(one: Diagnostic, before: tvm.IRModule | None, mod: tvm.IRModule) -> list[str]:
    """Return the binding that a finding is about, before and after the pass."""
    binding = render.binding_at(mod, one.path)
    if binding is None or before is None:
        return []
    earlier = _binding_of(before, one.function, binding.var)
    text = "no such binding" if earlier is None else _indent(render.binding_text(earlier))
    return [f"  before: {text}", f"  after:  {_indent(render.binding_text(binding))}"]


def _indent(text: str) -> str:
    return text.replace("\n", "\n          ")


def _binding_of(mod: tvm.IRModule, function: str, var: relax.Var) -> relax.Binding | None:
    """Return the binding of `var` in `function`, or else of a variable of the same name."""
    by_name = None
    for global_var, candidate in mod.functions_items():
        if global_var.name_hint != function or not isinstance(candidate, relax.Function):
            continue
        for binding in analysis.bindings(candidate):
            if binding.var.same_as(var):
                return binding
            if by_name is None and binding.var.name == var.name:
                by_name = binding
    return by_name
