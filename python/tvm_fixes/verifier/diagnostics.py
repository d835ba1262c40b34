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
"""The verifier's entry point and the list of its findings."""

import json
from collections.abc import Iterable

import tvm
from tvm import relax
from tvm_ffi.access_path import AccessPath

from .. import _ffi
from ..fixes.verifier import ATTRIBUTES, CALL_TIR, FUNCTIONS, OPERATORS, PRIM_FUNC, TYPES
from ..support import switches
from . import render
from .diagnostic import Diagnostic, Note
from .empty_reductions import empty_reductions
from .paths import node_at

SCHEMA_VERSION = 1

_FIX_OF_RULE = {
    "call_tir": CALL_TIR,
    "call_tir_inplace": CALL_TIR,
    "call": FUNCTIONS,
    "global": FUNCTIONS,
    "op": OPERATORS,
    "tir": PRIM_FUNC,
    "if": TYPES,
    "shape": TYPES,
    "type": TYPES,
}
"""The fix whose switch disables a rule, by the rule's family.

TVM's own check covers the families that are missing here.
"""


class Diagnostics(list[Diagnostic]):
    """All findings in a module, sorted by the names of the functions.

    Parameters
    ----------
    diagnostics : iterable of Diagnostic
        The findings.
    module : tvm.IRModule
        The module that they are about.

    Attributes
    ----------
    module : tvm.IRModule
        As given; :meth:`text` prints lines of it.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic], module: tvm.IRModule):
        super().__init__(diagnostics)
        self.module = module

    @property
    def errors(self) -> list[Diagnostic]:
        """The proven violations."""
        return [found for found in self if found.severity == "error"]

    @property
    def warnings(self) -> list[Diagnostic]:
        """The possible violations, which the verifier can neither prove nor disprove."""
        return [found for found in self if found.severity == "warning"]

    def text(self) -> str:
        """Return the findings as readable text.

        Each has its location, its line of TVMScript and its notes; the last line counts them.
        """
        return render.text(self.module, self)

    def json(self) -> str:
        """Return the findings as one JSON object.

        Returns
        -------
        document : str
            ``version`` (:data:`SCHEMA_VERSION`), the numbers of ``errors`` and ``warnings``, and
            ``diagnostics``, an array of objects with ``severity``, ``rule``, ``function``,
            ``path``, ``message``, ``notes`` (objects with ``message`` and ``path``, which may be
            null) and ``hint``.  Later versions may add members; they change existing ones only
            with a new ``version``.
        """
        return json.dumps(
            {
                "version": SCHEMA_VERSION,
                "errors": len(self.errors),
                "warnings": len(self.warnings),
                "diagnostics": [found.to_dict() for found in self],
            },
            indent=2,
        )

    def raise_if_errors(self) -> None:
        """Raise the errors, if there are any.

        Raises
        ------
        VerifyError
            If there are errors; its text is that of :meth:`text` without the warnings.  A single
            error carries the node that it is about: within a pass, TVM adds the name of the pass
            and the lines around that node.
        """
        errors = Diagnostics(self.errors, self.module)
        if errors:
            node = _innermost_node(self.module, errors[0].path) if len(errors) == 1 else None
            _ffi.get("tvm_fixes.analysis.RaiseVerifyError")(errors.text(), node)


def verify(mod: tvm.IRModule) -> Diagnostics:
    """Find all violations in a module.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, at any stage of compilation.

    Returns
    -------
    Diagnostics
        All findings, sorted by the names of the functions.

    Raises
    ------
    TypeError
        If `mod` is not an IRModule.  Findings are returned, not raised.
    """
    diagnostics = (
        Diagnostic(
            severity=str(diagnostic["severity"]),
            rule=str(diagnostic["rule"]),
            function=str(diagnostic["function"]),
            path=diagnostic["path"],
            message=str(diagnostic["message"]),
            notes=tuple(Note(str(text), path) for text, path in diagnostic["notes"]),
            hint=str(diagnostic["hint"]),
        )
        for diagnostic in _ffi.get("tvm_fixes.analysis.Verify")(mod)
    )
    off = switches.disabled()
    kept = [diagnostic for diagnostic in diagnostics if fix_of(diagnostic.rule) not in off]
    if OPERATORS not in off and not any(diagnostic.severity == "error" for diagnostic in kept):
        # In a module with errors, the arguments of a call may not be those of its operator.
        kept += empty_reductions(mod)
        kept.sort(key=lambda diagnostic: diagnostic.function)
    return Diagnostics(kept, mod)


def fix_of(rule: str) -> str | None:
    """Return the fix whose switch disables a rule, or None if no switch does."""
    if rule == "op.attrs":
        return ATTRIBUTES
    return _FIX_OF_RULE.get(rule.split(".")[0])


def _innermost_node(module: tvm.IRModule, path: AccessPath) -> tvm.runtime.Object | None:
    """Return the innermost binding, call or function on `path`.

    TVM shows the first location where it finds a node; unlike a variable, these occur only once.
    """
    node = None
    value = module
    for step in path.to_steps():
        try:
            value = node_at(value, [step])
        except (AttributeError, IndexError, KeyError, TypeError):
            break
        if isinstance(value, relax.Binding | relax.Call | relax.Function | tvm.tirx.PrimFunc):
            node = value
    return node
