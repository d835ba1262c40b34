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
"""Steps of attention: heads, earlier positions, masks and the weighted sum.

Query, key and value have the shape (batch, heads, length, size of a head), and one dtype, in which
the steps compute.
"""

import numpy as np
from tvm import relax

from ..dtypes import dtype_of
from .extents import equal
from .microsoft_operands import check_rank, named_shape, widen
from .node import Extent, Node
from .shape_operands import require

__all__ = [
    "after_past",
    "hide_later",
    "join_heads",
    "masked",
    "scaled_product",
    "split_heads",
    "weighted_sum",
    "with_bias",
]


def split_heads(node: Node, name: str, value: relax.Expr, heads: int) -> relax.Expr:
    """A tensor of shape (batch, length, heads times size) as (batch, heads, length, size).

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the width is not a multiple of the number of heads.
    """
    batch, length, width = named_shape(node, name, value)
    if heads < 1 or not isinstance(width, int) or width % heads:
        reason = f"expected a divisor of the width of {name}, {width}"
        raise node.invalid("number of heads", heads, reason)
    split = relax.op.reshape(value, relax.ShapeExpr([batch, length, heads, width // heads]))
    return node.emit(relax.op.permute_dims(node.emit(split), [0, 2, 1, 3]))


def join_heads(node: Node, value: relax.Expr) -> relax.Expr:
    """A tensor of shape (batch, heads, length, size) as (batch, length, heads times size)."""
    batch, heads, length, size = named_shape(node, "value", value)
    moved = node.emit(relax.op.permute_dims(value, [0, 2, 1, 3]))
    return node.emit(relax.op.reshape(moved, relax.ShapeExpr([batch, length, heads * size])))


def after_past(node: Node, name: str, past: relax.Expr, new: relax.Expr) -> relax.Expr:
    """Keys or values after those of earlier positions.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If a shape differs on another axis than that of the positions.
    """
    shapes = [named_shape(node, name, past), named_shape(node, name, new)]
    if len(shapes[0]) != 4:
        raise node.invalid(f"rank of {name}", len(shapes[0]), "expected 4")
    for axis in (0, 1, 3):
        expected = [*shapes[1][:2], "positions", shapes[1][3]]
        holds = equal(node.known, shapes[0][axis], shapes[1][axis])
        require(node, holds, f"shape of {name}", shapes[0], f"expected {expected}")
    return node.emit(relax.op.concat([past, new], axis=2))


def scaled_product(
    node: Node, query: relax.Expr, key: relax.Expr, scale: float | None = None
) -> relax.Expr:
    """The products of all queries and keys; the default scale is the root of the size of a head."""
    size = named_shape(node, "query", query)[-1]
    factor = scale or 1 / np.sqrt(float(size))
    turned = node.emit(relax.op.permute_dims(key, [0, 1, 3, 2]))
    scores = node.emit(relax.op.matmul(query, turned))
    return node.emit(relax.op.multiply(scores, relax.const(factor, dtype_of(scores))))


def with_bias(node: Node, scores: relax.Expr, bias: relax.Expr) -> relax.Expr:
    """The scores plus a bias, which broadcasts over batch and heads.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the shape of the bias does not agree with the scores.
    """
    extents = named_shape(node, "scores", scores)
    shape = check_rank(node, "attention_bias", bias, 4)
    target = list(extents)
    for axis in range(4):
        if axis < 2 and node.known.equal(shape[axis], 1):
            target[axis] = 1
        holds = equal(node.known, shape[axis], target[axis])
        require(node, holds, "shape of attention_bias", shape, f"expected {extents}")
    bias = node.emit(relax.op.reshape(widen(node, bias), relax.ShapeExpr(target)))
    return node.emit(relax.op.add(scores, bias))


def masked(
    node: Node, name: str, mask: relax.Expr, scores: relax.Expr, filler: float, past: Extent
) -> relax.Expr:
    """The scores, plus `filler` where the mask of integers hides a key.

    A mask of rank 1 has the number of keys of each element of the batch, perhaps followed by the
    first key of each; others are positive where a key is visible.

    Parameters
    ----------
    past : int or PrimExpr
        The number of earlier positions, which are rows of a square mask of rank 4.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the shape of the mask does not agree with the scores.
    """
    dtype = dtype_of(scores)
    visible = _visible(node, name, mask, named_shape(node, "scores", scores), past)
    zero, hidden = relax.const(0, dtype), relax.const(filler, dtype)
    return node.emit(relax.op.add(scores, node.emit(relax.op.where(visible, zero, hidden))))


def _visible(
    node: Node, name: str, mask: relax.Expr, extents: list[Extent], past: Extent
) -> relax.Expr:
    """Which keys each query sees, as a tensor that broadcasts to the scores."""
    batch, _, length, total = extents
    shape = named_shape(node, name, mask)
    if len(shape) == 1:
        return _in_range(node, name, mask, batch, total)
    expected: dict[int, list[Extent]] = {2: [batch, total], 3: [batch, length, total]}
    if len(shape) == 4:
        rows = node.emit(relax.op.arange(past, past + length, 1, "int64"))
        columns = node.emit(relax.op.arange(0, total, 1, "int64"))
        require(node, equal(node.known, shape[1], 1), f"shape of {name}", shape, "expected one")
        for axis in (2, 3):
            reason = f"expected at least {total} rows and columns"
            require(node, shape[axis] >= total, f"shape of {name}", shape, reason)
        mask = node.emit(relax.op.take(node.emit(relax.op.take(mask, rows, 2)), columns, 3))
    elif len(shape) not in expected:
        raise node.invalid(f"rank of {name}", len(shape), "expected 1 to 4")
    else:
        wanted = expected[len(shape)]
        for pair in zip(shape, wanted, strict=True):
            holds = equal(node.known, *pair)
            require(node, holds, f"shape of {name}", shape, f"expected {wanted}")
        wanted = [batch, 1, *([1] if len(shape) == 2 else []), *wanted[1:]]
        mask = node.emit(relax.op.reshape(mask, relax.ShapeExpr(wanted)))
    return node.emit(relax.op.greater(mask, relax.const(0, dtype_of(mask))))


def _in_range(
    node: Node, name: str, bounds: relax.Expr, batch: Extent, total: Extent
) -> relax.Expr:
    """Which keys are before the end of each element of the batch, and not before its start."""
    shape = named_shape(node, name, bounds)
    has_start = node.known.equal(shape[0], batch) is not True
    if has_start and node.known.equal(shape[0], 2 * batch) is not True:
        raise node.invalid(f"shape of {name}", shape, f"expected [{batch}], the batch")
    positions = node.emit(relax.op.arange(0, total, 1, "int64"))
    wide = node.emit(relax.op.astype(bounds, "int64"))
    if not has_start:
        end = node.emit(relax.op.expand_dims(wide, [1, 2, 3]))
        return node.emit(relax.op.less(positions, end))
    pair = node.emit(relax.op.reshape(wide, relax.ShapeExpr([2, batch, 1, 1, 1])))
    end, start = (
        node.emit(relax.op.take(pair, relax.const(index, "int64"), axis=0)) for index in range(2)
    )
    before = relax.op.less(positions, end)
    return node.emit(relax.op.logical_and(before, relax.op.greater_equal(positions, start)))


def hide_later(node: Node, scores: relax.Expr) -> relax.Expr:
    """The scores, with those of keys after each query replaced by the least number.

    The last query is at the position of the last key.
    """
    *_, length, total = named_shape(node, "scores", scores)
    rows = node.emit(relax.op.arange(total - length, total, 1, "int64"))
    columns = node.emit(relax.op.arange(0, total, 1, "int64"))
    earlier = relax.op.less_equal(columns, node.emit(relax.op.expand_dims(rows, -1)))
    dtype = dtype_of(scores)
    least = relax.const(np.finfo(dtype).min, dtype)
    return node.emit(relax.op.where(node.emit(earlier), scores, least))


def weighted_sum(node: Node, scores: relax.Expr, value: relax.Expr) -> relax.Expr:
    """The sum of the values, weighted by the softmax of the scores."""
    weights = node.emit(relax.op.nn.softmax(scores, -1))
    return node.emit(relax.op.matmul(weights, value))
