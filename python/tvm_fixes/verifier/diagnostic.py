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
"""One finding of the verifier."""

from dataclasses import dataclass, field
from typing import Any

from tvm_ffi.access_path import AccessPath

from .paths import path_text


@dataclass(frozen=True)
class Note:
    """An additional line of a diagnostic, and the location that it is about, if any."""

    message: str
    path: AccessPath | None = None


@dataclass(frozen=True)
class Diagnostic:
    """One finding of :func:`tvm_fixes.verify`.

    Attributes
    ----------
    severity : str
        ``"error"`` (a proven violation), ``"warning"`` (a possible violation) or ``"note"``.
    rule : str
        The id of the rule, such as ``"call_tir.arg"``.
    function : str
        The name of the function.
    path : AccessPath
        The location, as the steps from the module.
    message : str
        The problem, in one line.
    notes : tuple of Note
        Both sides of a mismatch, and their origins.
    hint : str
        The remedy; may be empty.
    """

    severity: str
    rule: str
    function: str
    path: AccessPath
    message: str
    notes: tuple[Note, ...] = field(default=())
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.severity}[{self.rule}]: {self.function}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnostic as plain values, with its locations as text."""
        return {
            "severity": self.severity,
            "rule": self.rule,
            "function": self.function,
            "path": path_text(self.path),
            "message": self.message,
            "notes": [
                {
                    "message": note.message,
                    "path": None if note.path is None else path_text(note.path),
                }
                for note in self.notes
            ],
            "hint": self.hint,
        }
