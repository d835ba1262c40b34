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
"""Reductions over no elements, whose results only our pipeline defines."""

import math
from collections.abc import Iterator

import tvm
from tvm import relax, tirx
from tvm_ffi.access_path import AccessPath

from ..relax.ir import relax_functions
from .diagnostic import Diagnostic

__all__ = ["empty_reductions"]

_REDUCTIONS = {f"relax.{name}" for name in ("max", "mean", "min", "prod", "std", "sum", "variance")}


def empty_reductions(mod: tvm.IRModule) -> Iterator[Diagnostic]:
    """Yield a note for each reduction over an axis of extent 0 whose result has elements.

    TVM sets the initial value in the first iteration of the loop, which has none.
    """
    for variable, function in relax_functions(mod).items():
        root = AccessPath.root().attr("functions").map_item(variable).attr("body")
        for path, call in _calls(function.body, root):
            if _is_empty(call):
                yield Diagnostic(
                    severity="note",
                    rule="op.empty",
                    function=variable.name_hint,
                    path=path,
                    message=f"{call.op.name} over no elements",
                    hint="use tvm_fixes.pipeline(): others return uninitialized memory",
                )


def _calls(body: relax.Expr, path: AccessPath) -> Iterator[tuple[AccessPath, relax.Call]]:
    """Yield the calls of operators in `body`, also those in branches."""
    if not isinstance(body, relax.SeqExpr):
        return
    for i, block in enumerate(body.blocks):
        for j, binding in enumerate(block.bindings):
            value = getattr(binding, "value", None)
            place = path.attr("blocks").array_item(i).attr("bindings").array_item(j).attr("value")
            if isinstance(value, relax.If):
                yield from _calls(value.true_branch, place.attr("true_branch"))
                yield from _calls(value.false_branch, place.attr("false_branch"))
            elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
                yield place, value


def _is_empty(call: relax.Call) -> bool:
    name = call.op.name
    if name != "relax.matmul" and name not in _REDUCTIONS:
        return False
    extents, result = _extents(call.args[0]), _extents(call)
    if extents is None or result is None or 0 in result:
        return False
    if name == "relax.matmul":
        return bool(extents) and extents[-1] == 0
    axes = call.attrs.axis
    reduced = extents if axes is None else [extents[int(axis)] for axis in axes]
    return math.prod(-1 if extent is None else extent for extent in reduced) == 0


def _extents(expr: relax.Expr) -> list[int | None] | None:
    """The extents of a tensor, None for a symbolic one; None if the rank is unknown."""
    ty = getattr(expr, "ty", None)
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    return [int(e) if isinstance(e, tirx.IntImm) else None for e in ty.shape.values]
