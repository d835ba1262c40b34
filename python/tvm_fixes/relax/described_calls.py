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
"""Calls of Relax operators, described for messages."""

from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import relax

from .analysis import operator_calls
from .source_nodes import nodes_of


@dataclass(frozen=True)
class OperatorCall:
    """A call of a Relax operator, bound to a variable."""

    function: str
    var: relax.Var
    call: relax.Call

    @property
    def operator(self) -> str:
        """The name of the operator."""
        return str(self.call.op.name)

    @property
    def is_dynamic(self) -> bool:
        """Whether the shape of an operand is unknown or has symbols."""
        types = (getattr(arg, "ty", None) for arg in self.call.args)
        return any(
            not isinstance(ty.shape, relax.ShapeExpr) or relax.analysis.tir_vars_in_type(ty)
            for ty in types
            if isinstance(ty, relax.TensorType)
        )

    def __str__(self) -> str:
        nodes = nodes_of(self.var) or nodes_of(self.call)
        origin = f" at {nodes[0].operator} {(nodes[0].path or nodes[0].name)!r}" if nodes else ""
        # TVMScript prints a call on one line, and comments about metadata below it.
        script = str(self.call.script(show_meta=False))
        text = next(line for line in script.splitlines() if line and not line.startswith("#"))
        types = ", ".join(_type_of(arg) for arg in self.call.args)
        return (
            f"{self.operator}{origin} in {self.function!r}: {self.var.name} = {text}, "
            f"arguments of type ({types})"
        )


def described_calls(mod: tvm.IRModule) -> Iterator[OperatorCall]:
    """Walk over the calls of operators in a normalized module."""
    for function, binding in operator_calls(mod):
        yield OperatorCall(function, binding.var, binding.value)


def failing_legalization(mod: tvm.IRModule) -> OperatorCall | None:
    """The first call whose legalization raises outside the module."""
    for described in described_calls(mod):
        call = described.call
        legalize = call.op.get_attr("FLegalize")
        if legalize is None:
            continue
        builder = relax.BlockBuilder(mod)
        try:
            with builder.function("probe", params=relax.analysis.free_vars(call)):
                builder.emit_func_output(builder.emit(legalize(builder, call)))
        except Exception:
            return described
    return None


def _type_of(expr: relax.Expr) -> str:
    text = str(expr.ty.script(show_meta=False)) if hasattr(expr.ty, "script") else str(expr.ty)
    return " ".join(line for line in text.splitlines() if not line.startswith("#")).strip()
