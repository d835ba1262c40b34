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
"""Operands that say what a node does: read while it is imported, or bound to symbols."""

from collections.abc import Sequence

from tvm import relax, tirx

from .extents import simplified
from .node import Extent, Node
from .values import as_vector

__all__ = [
    "axes_of",
    "extents_or_symbols",
    "integers",
    "length_of",
    "named",
    "require",
    "require_all",
    "shaped",
    "symbols",
    "to_shape_tensor",
    "vector",
]


# Checks


def require(
    node: Node, condition: bool | tirx.Expr, subject: str, value: object, reason: str
) -> None:
    """Refuse the `value` of `subject` where `condition` does not hold.

    Where that depends on symbols, the model raises an error at run time, of a ``match_cast``.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If it never holds.
    """
    condition = simplified(node.known, condition)
    if isinstance(condition, tirx.Expr):
        holds = tirx.Select(condition, tirx.const(1, "int64"), tirx.const(0, "int64"))
        # TVM lowers no match_cast of a ShapeExpr itself.
        _match(node, node.emit(relax.ShapeExpr([holds])), [1])
    elif not condition:
        raise node.invalid(subject, value, reason)


def require_all(node: Node, conditions: relax.Expr) -> None:
    """Raise an error at run time, of a ``match_cast``, where an element is False.

    Parameters
    ----------
    conditions : Expr
        A tensor of one dimension and dtype bool.
    """
    conditions = node.emit(relax.op.astype(node.emit(conditions), "int64"))
    # The least of none is none.
    conditions = node.emit(relax.op.concat([conditions, relax.const([1], "int64")]))
    holds = node.emit(relax.op.min(conditions, axis=[0], keepdims=True))
    _match(node, node.emit(relax.op.tensor_to_shape(holds)), [1])


def _match(node: Node, shape: relax.Expr, extents: list[Extent]) -> None:
    node.builder.match_cast(shape, relax.ShapeType(extents))


# Operands


def shaped(node: Node, index: int, name: str) -> tuple[relax.Expr, list[Extent]]:
    """An operand and its extents, which are bound to symbols where the importer lost them.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If not even the rank is known.
    """
    tensor = node.operands[index]
    extents = node.known.extents(tensor)
    if extents is None:
        rank = getattr(tensor.ty, "ndim", -1)
        if rank < 0:
            raise node.invalid(f"type of {name}", tensor.ty, "expected a tensor of known rank")
        dims = [tirx.Var(f"{name}_{axis}", "int64") for axis in range(rank)]
        tensor = node.builder.match_cast(tensor, relax.TensorType(dims, tensor.ty.dtype))
        extents = node.known.extents(tensor) or []
    return tensor, extents


def axes_of(node: Node, axes: Sequence[int], rank: int) -> list[int]:
    """Axes, which may be negative, as the dimensions of a tensor of `rank` that they are.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If one is out of range or given twice.
    """
    found = [axis + rank if axis < 0 else axis for axis in axes]
    if len(set(found)) != len(found) or not set(found) <= set(range(rank)):
        raise node.invalid("axes", list(axes), f"expected different axes of {rank}")
    return found


def integers(node: Node, index: int, name: str) -> list[int]:
    """The elements of an operand that has to be known.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If one of them is not known, or not static.
    """
    array = node.constant(index)
    if array is None:
        raise node.invalid(f"operand {name}", node.operand(index), "expected a constant")
    return [int(element) for element in array.ravel()]


def extents_or_symbols(node: Node, index: int, name: str) -> list[Extent]:
    """The elements of an operand of at most one dimension, of which none may be negative.

    Those that are not known are symbols, which are bound at run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If one of them is known to be negative, or their number is unknown.
    """
    value = node.value(index)
    if value is None:
        tensor = vector(node, index, name)
        require_all(node, relax.op.greater_equal(tensor, relax.const(0, "int64")))
        return symbols(node, tensor, name)
    found = value.extents()
    for extent in found:
        require(node, extent >= 0, f"operand {name}", found, "expected no negative element")
    return found


def vector(node: Node, index: int, name: str) -> relax.Expr:
    """An operand of at most one dimension as an int64 tensor of one, of static extent.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the number of its elements is unknown.
    """
    value = node.value(index)
    tensor = node.operand(index) if value is None else value.tensor(node.builder)
    extents = node.known.extents(tensor)
    if extents is None or len(extents) > 1 or not all(isinstance(e, int) for e in extents):
        reason = "expected at most one dimension, of static extent"
        raise node.invalid(f"type of {name}", tensor.ty, reason)
    if str(tensor.ty.dtype.dtype) != "int64":
        tensor = node.emit(relax.op.astype(tensor, "int64"))
    return tensor if extents else node.emit(relax.op.reshape(tensor, (1,)))


def length_of(tensor: relax.Expr) -> int:
    """The number of elements of what :func:`vector` gives."""
    return int(tensor.ty.shape[0])


def symbols(node: Node, tensor: relax.Expr, name: str) -> list[Extent]:
    """Symbols that are bound to the elements, not negative, of what :func:`vector` gives."""
    count = length_of(tensor)
    if count == 0:
        return []
    found = [tirx.Var(f"{name}_{index}", "int64") for index in range(count)]
    _match(node, node.emit(relax.op.tensor_to_shape(tensor)), found)
    # This is where symbols are told to be extents.
    node.known.extents(relax.Var(name, relax.TensorType(found, "int64")))
    return found


def named(node: Node, extent: Extent, name: str) -> Extent:
    """A symbol that is bound to an extent, or the extent itself if it is no expression."""
    if not isinstance(extent, tirx.Expr) or isinstance(extent, tirx.Var):
        return extent
    symbol = tirx.Var(name, "int64")
    _match(node, node.emit(relax.ShapeExpr([extent])), [symbol])
    # This is where symbols are told to be extents.
    node.known.extents(relax.Var(name, relax.TensorType([symbol], "int64")))
    return symbol


def to_shape_tensor(node: Node, extents: Sequence[Extent]) -> relax.Expr:
    """An int64 tensor of one dimension whose elements are `extents`."""
    if all(isinstance(extent, int) for extent in extents):
        return relax.const(list(extents), "int64")
    return as_vector(node.builder, extents)
