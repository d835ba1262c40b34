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
"""The extents of converted inputs, static or symbolic."""

from collections.abc import Sequence

from tvm import relax, tirx

from .... import relay
from ...extents import NO_FACTS, Extent, expression
from ..call import Call


def shaped(call: Call, index: int = 0) -> tuple[relax.Expr, list[Extent]]:
    """Return an input and its extents; new symbols stand for those that Relax does not know."""
    return with_extents(call, call.operands[index])


def with_extents(call: Call, expr: relax.Expr) -> tuple[relax.Expr, list[Extent]]:
    """Return a tensor and its extents; new symbols stand for those that Relax does not know."""
    expr = call.builder.normalize(expr)
    if not isinstance(expr.ty.shape, relax.ShapeExpr):
        dims = [tirx.Var(f"extent_{axis}", "int64") for axis in range(expr.ty.ndim)]
        expr = call.builder.match_cast(expr, relax.TensorType(dims, expr.ty.dtype))
    return expr, [NO_FACTS.simplify(extent) for extent in expr.ty.shape.values]


def quotient(dividend: Extent, divisor: Extent) -> Extent:
    """Return dividend // divisor."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    return NO_FACTS.simplify(tirx.floordiv(dividend, divisor))


def check(builder: relax.BlockBuilder, condition: tirx.Expr) -> None:
    """Emit a check of extents: the program fails at run time unless the condition holds."""
    failure = relax.ShapeExpr([tirx.Select(condition, expression(0), expression(1))])
    builder.match_cast(builder.emit(failure), relax.ShapeType([0]))


def reshaped(call: Call, expr: relax.Expr, target: Sequence[Extent]) -> relax.Expr:
    """Give a tensor another shape."""
    if any(isinstance(extent, int) and extent == 0 for extent in target):
        # relax.reshape interprets 0 as the extent of the input.
        return call.emit(relax.op.zeros(relax.ShapeExpr(list(target)), expr.ty.dtype))
    return call.emit(relax.op.reshape(expr, relax.ShapeExpr(list(target))))


def static_shape(ty: relay.Type) -> list[int] | None:
    """Return the shape of a tensor type if it is static."""
    if isinstance(ty, relay.TensorType) and ty.is_static:
        return [int(dim) for dim in ty.shape]
    return None


def positive_axis(axis: int, rank: int) -> int:
    """Normalize an axis that may be negative."""
    return axis + rank if axis < 0 else axis
