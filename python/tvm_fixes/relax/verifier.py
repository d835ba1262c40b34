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
"""The verifier: everything that is wrong with a module, found before it is built."""

from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm_ffi.access_path import AccessPath


@dataclass(frozen=True)
class Note:
    """A further line of a diagnostic, and the place that it is about, if any."""

    message: str
    path: AccessPath | None = None


@dataclass(frozen=True)
class Diagnostic:
    """One finding of :func:`verify`.

    Attributes
    ----------
    severity : str
        ``"error"``, ``"warning"`` (what is unknown, and may be wrong) or ``"note"``.
    rule : str
        The id of the rule, such as ``"call_tir.arg"``.
    function : str
        The name of the function.
    path : AccessPath
        The place, as the steps from the module.
    message : str
        What is wrong, in one line.
    notes : tuple of Note
        Both sides of what disagrees, and where they come from.
    hint : str
        What to do about it; may be empty.
    """

    severity: str
    rule: str
    function: str
    path: AccessPath
    message: str
    notes: tuple[Note, ...] = field(default=())
    hint: str = ""


def verify(mod: tvm.IRModule) -> list[Diagnostic]:
    """Find everything that is wrong with a module.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, at any stage of compilation.

    Returns
    -------
    list of Diagnostic
        All findings, function by function in the order of their names.
    """
    found = tvm_ffi.get_global_func("tvm_fixes.analysis.Verify")(mod)
    return [
        Diagnostic(
            severity=str(one["severity"]),
            rule=str(one["rule"]),
            function=str(one["function"]),
            path=one["path"],
            message=str(one["message"]),
            notes=tuple(Note(str(text), path) for text, path in one["notes"]),
            hint=str(one["hint"]),
        )
        for one in found
    ]
