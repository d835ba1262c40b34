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
"""Operands such as shapes and axes: read at import time, or bound to symbols at run time."""

from collections.abc import Sequence

from tvm import relax, te, tirx

from ....relax.source_nodes import SourceNode, mark_check
from ...extents import equal, expression, simplified
from ..call import Call, Extent
from ..values.known import as_vector

__all__ = [
    "axes_of",
    "extents_or_symbols",
    "integers",
    "length_of",
    "matched",
    "named",
    "require",
    "require_all",
    "require_equal",
    "retyped",
    "shaped",
    "symbols",
    "to_shape_tensor",
    "vector",
]


# Checks


def require(
    call: Call, condition: bool | tirx.Expr, subject: str, value: object, reason: str
) -> None:
    """Reject the `value` of `subject` unless `condition` holds.

    If `condition` depends on symbols, a ``match_cast`` in the model checks it at run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the condition never holds.
    """
    condition = simplified(call.known, condition)
    if isinstance(condition, tirx.Expr):
        holds = tirx.Select(condition, tirx.const(1, "int64"), tirx.const(0, "int64"))
        # The ShapeExpr is bound first: TVM does not lower a match_cast of a ShapeExpr itself.
        _match(call, call.emit(relax.ShapeExpr([holds])), [1], f"{subject}: {reason}")
    elif not condition:
        raise call.invalid(subject, value, reason)


def require_equal(
    call: Call, a: Extent, b: Extent, subject: str, value: object, reason: str
) -> None:
    """Reject the `value` of `subject` unless two extents are equal; see :func:`require`.

    From then on, both count as equal.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If they are known to differ.
    """
    condition = equal(call.known, a, b)
    if condition is True or (condition is not False and call.known.unify(a, b)):
        return
    require(call, condition, subject, value, reason)
    call.known.assume_equal(a, b)


def matched(
    call: Call, tensor: relax.Expr, extents: Sequence[Extent], wanted: Sequence[Extent]
) -> relax.Expr:
    """The tensor with `wanted` extents, which are checked at run time; both then count as equal.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If they are known to differ.
    """
    for extent, other in zip(extents, wanted, strict=True):
        if extent is other:
            continue
        if call.known.equal(extent, other) is False:
            raise call.invalid("shape of the data", extents, f"expected {list(wanted)}")
        if not call.known.unify(extent, other):
            call.known.assume_equal(extent, other)
    return call.builder.match_cast(tensor, relax.TensorType(wanted, tensor.ty.dtype))


def retyped(call: Call, tensor: relax.Expr, extents: Sequence[Extent]) -> relax.Expr:
    """The tensor with other expressions for the same extents, which are known to be equal.

    TVM's type inference compares expressions, so the operands of an operator must have the same.
    """
    known = call.known.extents(tensor)
    if known is None or all(map(call.known.is_evident, known, extents)):
        return tensor
    shape = [expression(extent) for extent in extents]
    return call.builder.emit_te(
        lambda data: te.compute(shape, lambda *indices: data(*indices)), tensor
    )


def require_all(call: Call, conditions: relax.Expr) -> None:
    """Emit a ``match_cast`` that raises an error at run time if an element is False.

    Parameters
    ----------
    conditions : Expr
        A 1-D tensor of dtype bool.
    """
    conditions = call.emit(relax.op.astype(call.emit(conditions), "int64"))
    # Append a 1, because an empty tensor has no minimum.
    conditions = call.emit(relax.op.concat([conditions, relax.const([1], "int64")]))
    holds = call.emit(relax.op.min(conditions, axis=[0], keepdims=True))
    _match(call, call.emit(relax.op.tensor_to_shape(holds)), [1])


def _match(
    call: Call, shape: relax.Expr, extents: list[Extent], reason: str = "an operand is out of range"
) -> None:
    var = call.builder.match_cast(shape, relax.ShapeType(extents))
    mark_check(var, SourceNode(call.source.name, call.operator), reason)


# Operands


def shaped(call: Call, index: int, name: str) -> tuple[relax.Expr, list[Extent]]:
    """An operand and its extents; unknown extents become symbols.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank is unknown.
    """
    tensor = call.operands[index]
    extents = call.known.extents(tensor)
    if extents is None:
        rank = getattr(tensor.ty, "ndim", -1)
        if rank < 0:
            raise call.invalid(f"type of {name}", tensor.ty, "expected a tensor of known rank")
        dims = [tirx.Var(f"{name}_{axis}", "int64") for axis in range(rank)]
        tensor = call.builder.match_cast(tensor, relax.TensorType(dims, tensor.ty.dtype))
        extents = call.known.extents(tensor) or []
    return tensor, extents


def axes_of(call: Call, axes: Sequence[int], rank: int) -> list[int]:
    """The `axes` of a tensor of `rank` as nonnegative numbers.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If one is out of range or given twice.
    """
    found = [axis + rank if axis < 0 else axis for axis in axes]
    if len(set(found)) != len(found) or not set(found) <= set(range(rank)):
        raise call.invalid("axes", list(axes), f"expected distinct axes of a tensor of rank {rank}")
    return found


def integers(call: Call, index: int, name: str) -> list[int]:
    """The elements of an operand that must be a constant.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an element is unknown or not static.
    """
    array = call.constant(index)
    if array is None:
        raise call.invalid(f"operand {name}", call.operand(index), "expected a constant")
    return [int(element) for element in array.ravel()]


def extents_or_symbols(call: Call, index: int, name: str) -> list[Extent]:
    """The elements, which must not be negative, of an operand of rank 0 or 1.

    Unknown elements become symbols, which are bound at run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an element is known to be negative, or the number of elements is unknown.
    """
    value = call.value(index)
    if value is None:
        tensor = vector(call, index, name)
        require_all(call, relax.op.greater_equal(tensor, relax.const(0, "int64")))
        return symbols(call, tensor, name)
    found = value.extents()
    for extent in found:
        require(call, extent >= 0, f"operand {name}", found, "expected no negative element")
    return found


def vector(call: Call, index: int, name: str) -> relax.Expr:
    """An operand of rank 0 or 1 as a 1-D int64 tensor of static extent.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the number of its elements is unknown.
    """
    value = call.value(index)
    tensor = call.operand(index) if value is None else value.tensor(call.builder)
    extents = call.known.extents(tensor)
    if extents is None or len(extents) > 1 or not all(isinstance(e, int) for e in extents):
        reason = "expected a scalar or one dimension of static extent"
        raise call.invalid(f"type of {name}", tensor.ty, reason)
    if str(tensor.ty.dtype.dtype) != "int64":
        tensor = call.emit(relax.op.astype(tensor, "int64"))
    return tensor if extents else call.emit(relax.op.reshape(tensor, (1,)))


def length_of(tensor: relax.Expr) -> int:
    """The number of elements of a tensor that :func:`vector` returned."""
    return int(tensor.ty.shape[0])


def symbols(call: Call, tensor: relax.Expr, name: str) -> list[Extent]:
    """Symbols bound to the nonnegative elements of a tensor that :func:`vector` returned."""
    count = length_of(tensor)
    if count == 0:
        return []
    found = [tirx.Var(f"{name}_{index}", "int64") for index in range(count)]
    _match(call, call.emit(relax.op.tensor_to_shape(tensor)), found)
    # This call records that the symbols are extents, i.e. not negative.
    call.known.extents(relax.Var(name, relax.TensorType(found, "int64")))
    return found


def named(call: Call, extent: Extent, name: str) -> Extent:
    """A symbol bound to an extent; the extent itself if it is an int or a symbol."""
    if not isinstance(extent, tirx.Expr) or isinstance(extent, tirx.Var):
        return extent
    symbol = tirx.Var(name, "int64")
    _match(call, call.emit(relax.ShapeExpr([extent])), [symbol])
    # This call records that the symbols are extents, i.e. not negative.
    call.known.extents(relax.Var(name, relax.TensorType([symbol], "int64")))
    return symbol


def to_shape_tensor(call: Call, extents: Sequence[Extent]) -> relax.Expr:
    """A 1-D int64 tensor whose elements are `extents`."""
    if all(isinstance(extent, int) for extent in extents):
        return relax.const(list(extents), "int64")
    return as_vector(call.builder, extents)
