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
"""Broadcasting of tensors whose symbolic extents may differ."""

from typing import Any

import tvm
from tvm import relax, te, tirx

from ...extents import NO_FACTS, Extent, expression
from ..call import Call
from ..values.extents import check, with_extents


def operands(call: Call, *exprs: relax.Expr) -> list[relax.Expr]:
    """Return tensors so that Relax can broadcast them, with checks at run time where needed.

    Relax broadcasts two extents only if it can prove that they are equal, or that one is 1.
    Relay decides that at run time. Then, an operand with one of several unclear extents is expanded
    to the common extent.

    Parameters
    ----------
    call : Call
        The call.
    *exprs : relax.Expr
        The tensors.
    """
    shaped = [with_extents(call, expr) for expr in exprs]
    common = common_extents(call, [extents for _, extents in shaped])
    return [expanded(call, expr, extents, common) for expr, extents in shaped]


def common_extents(call: Call, shapes: list[list[Extent]]) -> list[Extent]:
    """Return the shape that shapes broadcast to."""
    result: list[Extent] = []
    for distance in range(max(map(len, shapes)), 0, -1):
        extent: Extent = 1
        for shape in shapes:
            if distance <= len(shape):
                extent = common_extent(call, extent, shape[-distance])
        result.append(extent)
    return result


def common_extent(call: Call, a: Extent, b: Extent) -> Extent:
    """Return what two extents broadcast to; check at run time that they do."""
    if is_one(b) or NO_FACTS.equal(a, b):
        return a
    if is_one(a):
        return b
    equal = tirx.any(*(tirx.EQ(expression(x), expression(y)) for x, y in ((a, b), (a, 1), (b, 1))))
    check(call.builder, equal)
    for extent in (a, b):
        if isinstance(extent, int):
            return extent
    larger = NO_FACTS.simplify(tirx.Select(tirx.EQ(expression(a), expression(1)), b, a))
    if tvm.ir.is_prim_var(larger):
        # TVM's CanonicalizeBindings does not terminate if one symbol stands for another.
        return larger
    symbol = tirx.Var("extent", "int64")
    call.builder.match_cast(call.emit(relax.ShapeExpr([larger])), relax.ShapeType([symbol]))
    return symbol


def is_one(extent: Extent) -> bool:
    """Return whether an extent is the constant 1."""
    return isinstance(extent, int) and extent == 1


def broadcast(
    call: Call, expr: relax.Expr, extents: list[Extent], target: list[Extent]
) -> relax.Expr:
    """Broadcast a tensor with these extents to `target`; check at run time that it fits."""
    own = target[len(target) - len(extents) :]
    for extent, wanted in zip(extents, own, strict=True):
        if not is_one(extent) and not NO_FACTS.equal(extent, wanted):
            fits = (tirx.EQ(expression(extent), expression(other)) for other in (wanted, 1))
            check(call.builder, tirx.any(*fits))
    return call.emit(relax.op.broadcast_to(expanded(call, expr, extents, own), target))


def expanded(
    call: Call, expr: relax.Expr, extents: list[Extent], common: list[Extent]
) -> relax.Expr:
    """Repeat a tensor along axes whose extent may be 1 only at run time."""
    target = common[len(common) - len(extents) :]
    shape = [
        extent if is_one(extent) or NO_FACTS.equal(extent, wanted) else wanted
        for extent, wanted in zip(extents, target, strict=True)
    ]
    if all(new is old for new, old in zip(shape, extents, strict=True)):
        return expr
    return call.emit_te(te_expand, expr, shape)


def te_expand(data: te.Tensor, shape: list[Any]) -> te.Tensor:
    """Repeat a tensor along the axes of extent 1."""

    def element(*index: tirx.Var) -> Any:
        return data(*(tirx.min(i, extent - 1) for i, extent in zip(index, data.shape, strict=True)))

    return te.compute(shape, element, name="expand")
