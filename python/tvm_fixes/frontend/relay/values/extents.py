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

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from tvm import relax, tirx
from tvm.sym import Analyzer

from .... import relay
from ..call import Call

Extent: TypeAlias = Any
"""An int, or an expression of symbols."""


def shaped(call: Call, index: int = 0) -> tuple[relax.Expr, list[Extent]]:
    """Return an input and its extents; new symbols stand for those that Relax does not know."""
    return with_extents(call, call.operands[index])


def with_extents(call: Call, expr: relax.Expr) -> tuple[relax.Expr, list[Extent]]:
    """Return a tensor and its extents; new symbols stand for those that Relax does not know."""
    expr = call.builder.normalize(expr)
    if not isinstance(expr.ty.shape, relax.ShapeExpr):
        dims = [tirx.Var(f"extent_{axis}", "int64") for axis in range(expr.ty.ndim)]
        expr = call.builder.match_cast(expr, relax.TensorType(dims, expr.ty.dtype))
    return expr, [number(extent) for extent in expr.ty.shape.values]


def number(extent: Any) -> Extent:
    """Return a constant as an int, anything else simplified."""
    if isinstance(extent, int):
        return extent
    extent = Analyzer().simplify(extent)
    return int(extent.value) if isinstance(extent, tirx.IntImm) else extent


def product(extents: Iterable[Extent]) -> Extent:
    """Return the number of elements."""
    result: Extent = 1
    for extent in extents:
        result = result * extent
    return number(result)


def quotient(dividend: Extent, divisor: Extent) -> Extent:
    """Return dividend // divisor."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    return number(tirx.floordiv(dividend, divisor))


def same(a: Extent, b: Extent) -> bool:
    """Return whether two extents are known to be equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(Analyzer().can_prove_equal(a, b))


def is_static(extents: Sequence[Extent]) -> bool:
    """Return whether all extents are ints."""
    return all(isinstance(extent, int) for extent in extents)


def wide(extent: Extent) -> Any:
    """Return an extent as an expression."""
    return tirx.const(extent, "int64") if isinstance(extent, int) else extent


def check(builder: relax.BlockBuilder, condition: tirx.Expr) -> None:
    """Emit a check of extents: the program fails at run time unless the condition holds."""
    failure = relax.ShapeExpr([tirx.Select(condition, wide(0), wide(1))])
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
