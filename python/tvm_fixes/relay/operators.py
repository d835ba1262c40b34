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
"""The declarations of the operators."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .. import _ffi
from .expr import Call, Span
from .module import IRModule


@dataclass(frozen=True)
class OperatorInfo:
    """The declaration of an operator.

    Attributes
    ----------
    name : str
        The name.
    input_names : tuple of str
        The names of the inputs; empty for an operator with any number of them.
    min_inputs, max_inputs : int
        The number of inputs of a call; a maximum of -1 means no limit.
    attrs_key : str
        The type key of the attributes in saved JSON; empty without attributes.
    attrs : tuple of dict
        Each attribute's "name", "kind", "required" and "default".
    effect : str
        "computes", "annotation" or "rejected".
    rejection : str
        Why the operator is rejected.
    has_relation : bool
        Whether its type can be inferred.
    """

    name: str
    input_names: tuple[str, ...]
    min_inputs: int
    max_inputs: int
    attrs_key: str
    attrs: tuple[dict[str, Any], ...]
    effect: str
    rejection: str
    has_relation: bool


@cache
def operators() -> dict[str, OperatorInfo]:
    """Return the declarations of all operators by name."""
    rows = _ffi.get("tvm_fixes.relay.Operators")()
    return {
        str(name): OperatorInfo(
            name=str(name),
            input_names=tuple(map(str, row["input_names"])),
            min_inputs=row["min_inputs"],
            max_inputs=row["max_inputs"],
            attrs_key=str(row["attrs_key"]),
            attrs=tuple(dict(field) for field in row["attrs"]),
            effect=str(row["effect"]),
            rejection=str(row["rejection"]),
            has_relation=row["has_relation"],
        )
        for name, row in rows.items()
    }


def complete_attrs(call: Call) -> Mapping[str, Any]:
    """Return the attributes of a call of an operator, checked, with the defaults.

    Raises
    ------
    RelayError
        If an attribute is unknown, missing or of another kind.
    """
    attrs: Mapping[str, Any] = _ffi.get("tvm_fixes.relay.CompleteAttrs")(call)
    return attrs


def operator_uses(mod: IRModule) -> list[tuple[str, Span]]:
    """Return the name and the place of each call of an operator, in the order of the program."""
    rows = _ffi.get("tvm_fixes.relay.OperatorUses")(mod)
    return [(str(name), Span(int(line), int(column))) for name, line, column in rows]
