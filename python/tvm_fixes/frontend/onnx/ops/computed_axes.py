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
"""Operators along axes that are known only at run time.

The data is reshaped, with extents computed at run time, so that the axes are known at import time.
"""

from collections.abc import Sequence

from tvm import relax
from tvm.relax import op

from ..call import Call, Extent
from .shape_operands import require_all, shaped, symbols, to_shape_tensor

__all__ = [
    "axes_count",
    "axis_parts",
    "is_axis",
    "kept_extents",
    "nonnegative_axes",
    "pairs_of_all_axes",
    "split_axes",
]


def nonnegative_axes(call: Call, axes: relax.Expr, rank: int) -> relax.Expr:
    """The axes as nonnegative numbers; the model checks at run time that they are in range."""
    bounds = [relax.const(bound, "int64") for bound in (-rank, rank)]
    is_above = call.emit(op.greater_equal(axes, bounds[0]))
    is_below = call.emit(op.less(axes, bounds[1]))
    require_all(call, op.logical_and(is_above, is_below))
    is_negative = call.emit(op.less(axes, relax.const(0, "int64")))
    return call.emit(op.where(is_negative, op.add(axes, bounds[1]), axes))


def _numbers(rank: int) -> relax.Expr:
    return relax.const(list(range(rank)), "int64")


def is_axis(call: Call, rank: int, axis: relax.Expr) -> relax.Expr:
    """Whether each of `rank` axes is the computed `axis`, an int64 tensor of one element."""
    return call.emit(op.equal(_numbers(rank), nonnegative_axes(call, axis, rank)))


def axis_parts(
    call: Call, extents: Sequence[Extent], axis: relax.Expr
) -> tuple[Extent, Extent, Extent]:
    """The extents before, on and after the computed `axis`: products, as symbols."""
    rank = len(extents)
    axis = nonnegative_axes(call, axis, rank)
    shape, one = to_shape_tensor(call, extents), relax.const(1, "int64")
    parts = []
    for compare in (op.less, op.equal, op.greater):
        is_part = call.emit(compare(_numbers(rank), axis))
        parts.append(call.emit(op.prod(op.where(is_part, shape, one), axis=[0], keepdims=True)))
    before, extent, after = symbols(call, call.emit(op.concat(parts)), "extent")
    return before, extent, after


def axes_count(call: Call, index: int) -> Extent:
    """The number of axes that the operand at `index` lists.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If its rank is unknown, or more than 1.
    """
    _, extents = shaped(call, index, "axes")
    if len(extents) > 1:
        raise call.invalid("shape of axes", extents, "expected rank 0 or 1")
    return extents[0] if extents else 1


def _matches(call: Call, index: int, rank: int) -> relax.Expr:
    """An int64 matrix with a row per axis that an operand lists, and 1 in the column of the axis.

    A last row of zeros avoids sums of no elements.
    """
    axes = call.emit(op.astype(call.operands[index], "int64"))
    if axes.ty.ndim == 0:
        axes = call.emit(op.reshape(axes, (1,)))
    listed = call.emit(
        op.concat([nonnegative_axes(call, axes, rank), relax.const([rank], "int64")])
    )
    column = call.emit(op.expand_dims(listed, 1))
    return call.emit(op.astype(op.equal(column, _numbers(rank)), "int64"))


def pairs_of_all_axes(call: Call, pairs: relax.Expr, index: int, rank: int) -> relax.Expr:
    """Two numbers for each axis, 0 for those that the operand at `index` does not list.

    Parameters
    ----------
    pairs : relax.Expr
        An int64 vector of the first numbers of the listed axes, then of the second ones.
    """
    matches = _matches(call, index, rank)
    rows = call.emit(op.reshape(pairs, (2, -1)))
    rows = call.emit(op.concat([rows, relax.const([[0], [0]], "int64")], axis=1))
    spread = op.multiply(op.expand_dims(rows, 2), op.expand_dims(matches, 0))
    return call.emit(op.reshape(call.emit(op.sum(spread, axis=[1])), (2 * rank,)))


def split_axes(
    call: Call, data: relax.Expr, extents: Sequence[Extent], index: int, all_if_none: bool
) -> tuple[relax.Expr, relax.Expr]:
    """The data with two axes for each axis, and a mask of the axes that operand `index` lists.

    For an axis that is listed, their extents are 1 and that of the axis; for others, that of the
    axis and 1.

    Parameters
    ----------
    all_if_none : bool
        Whether an operand without elements lists all axes.

    Returns
    -------
    tuple of relax.Expr
        The reshaped data, and a bool tensor with one element per axis.
    """
    rank, one, count = len(extents), relax.const(1, "int64"), axes_count(call, index)
    counts = call.emit(op.sum(_matches(call, index, rank), axis=[0]))
    require_all(call, op.less_equal(counts, one))
    is_listed = call.emit(op.equal(counts, one))
    if all_if_none and not isinstance(count, int):
        is_empty = call.emit(op.equal(to_shape_tensor(call, [count]), relax.const([0], "int64")))
        is_listed = call.emit(op.logical_or(is_listed, is_empty))
    shape = to_shape_tensor(call, extents)
    outer = symbols(call, call.emit(op.where(is_listed, one, shape)), "kept")
    inner = symbols(call, call.emit(op.where(is_listed, shape, one)), "reduced")
    pairs = [extent for pair in zip(outer, inner, strict=True) for extent in pair]
    return call.emit(op.reshape(data, relax.ShapeExpr(pairs))), is_listed


def kept_extents(
    call: Call, extents: Sequence[Extent], is_listed: relax.Expr, count: int
) -> list[Extent]:
    """The extents of the `count` axes that are not listed, in order."""
    rank = len(extents)
    # Listed axes get numbers above all others, so they sort to the end.
    behind = op.multiply(op.astype(is_listed, "int64"), relax.const(rank, "int64"))
    order = call.emit(op.argsort(call.emit(op.add(_numbers(rank), behind)), dtype="int64"))
    first = call.emit(op.strided_slice(order, [0], [0], [count]))
    shape = to_shape_tensor(call, extents)
    return symbols(call, call.emit(op.take(shape, first, axis=0)), "kept")
