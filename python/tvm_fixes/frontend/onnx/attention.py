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

Query, key and value have the shape (batch, heads, length, head size) and the same dtype, in which
the steps compute.
"""

from collections.abc import Sequence

import numpy as np
from tvm import relax

from ..dtypes import dtype_of
from .extents import equal
from .microsoft_operands import check_rank, named_shape, round_to, widen
from .node import Extent, Node
from .shape_operands import named, require

__all__ = [
    "after_pair",
    "after_past",
    "as_pair",
    "hide_later",
    "join_heads",
    "masked",
    "scaled_product",
    "split_heads",
    "weighted_sum",
    "with_bias",
]


def split_heads(node: Node, name: str, value: relax.Expr, heads: int) -> relax.Expr:
    """Reshape (batch, length, heads * size) to (batch, heads, length, size).

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
    """Reshape (batch, heads, length, size) to (batch, length, heads * size)."""
    batch, heads, length, size = named_shape(node, "value", value)
    moved = node.emit(relax.op.permute_dims(value, [0, 2, 1, 3]))
    return node.emit(relax.op.reshape(moved, relax.ShapeExpr([batch, length, heads * size])))


def after_past(
    node: Node, names: tuple[str, str], past: Sequence[relax.Expr], new: Sequence[relax.Expr]
) -> list[relax.Expr]:
    """Append keys and values to those of earlier positions.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the shapes differ on an axis other than that of the positions.
    """
    joined, total = [], None
    for name, old, part in zip(names, past, new, strict=True):
        shape, own = check_rank(node, name, old, 4), named_shape(node, name, part)
        for axis in (0, 1, 3):
            expected = [*own[:2], "positions", own[3]]
            holds = equal(node.known, shape[axis], own[axis])
            require(node, holds, f"shape of {name}", shape, f"expected {expected}")
        if total is None:
            # A new symbol: TVM cannot lower transposed matrices whose extent is a sum.
            total = named(node, node.known.simplify(shape[2] + own[2]), "total")
        both = node.emit(relax.op.concat([old, part], axis=2))
        joined.append(_with_length(node, both, [*own[:2], total, own[3]]))
    return joined


def after_pair(node: Node, past: relax.Expr, new: Sequence[relax.Expr]) -> list[relax.Expr]:
    """Append keys and values to those in `past`, of shape (2, batch, heads, length, size)."""
    check_rank(node, "past", past, 5)
    wide = widen(node, past)
    old = [node.emit(relax.op.take(wide, relax.const(index, "int64"), axis=0)) for index in (0, 1)]
    return after_past(node, ("past", "past"), old, new)


def as_pair(node: Node, parts: Sequence[relax.Expr], dtype: str) -> relax.Expr:
    """Keys and values as one tensor of shape (2, batch, heads, length, size)."""
    pair = [node.emit(relax.op.expand_dims(part, 0)) for part in parts]
    return round_to(node, relax.op.concat(pair), dtype)


def _with_length(node: Node, value: relax.Expr, shape: list[Extent]) -> relax.Expr:
    """`value` with this shape; the model checks unknown extents at run time."""
    found = node.known.extents(value)
    if found is not None and all(
        node.known.equal(*pair) for pair in zip(found, shape, strict=True)
    ):
        return value
    return node.builder.match_cast(value, relax.TensorType(shape, dtype_of(value)))


def scaled_product(
    node: Node, query: relax.Expr, key: relax.Expr, scale: float | None = None
) -> relax.Expr:
    """The products of all queries and keys; the default scale is 1 / sqrt(head size)."""
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
    node: Node, name: str, mask: relax.Expr, scores: relax.Expr, filler: float
) -> relax.Expr:
    """The scores, plus `filler` where the integer mask hides a key.

    A mask of rank 1 holds the number of keys of each element of the batch, optionally followed by
    the first key of each, or by bounds that ONNX Runtime ignores. Other masks are positive where a
    key is visible.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the shape of the mask does not agree with the scores.
    """
    dtype = dtype_of(scores)
    visible = _visible(node, name, mask, named_shape(node, "scores", scores))
    zero, hidden = relax.const(0, dtype), relax.const(filler, dtype)
    return node.emit(relax.op.add(scores, node.emit(relax.op.where(visible, zero, hidden))))


def _visible(node: Node, name: str, mask: relax.Expr, extents: list[Extent]) -> relax.Expr:
    """Whether each query sees each key, as a tensor that broadcasts to the scores."""
    batch, _, length, total = extents
    shape = named_shape(node, name, mask)
    if len(shape) == 1:
        return _in_range(node, name, mask, batch, total)
    expected: dict[int, list[Extent]] = {2: [batch, total], 3: [batch, length, total]}
    if len(shape) not in expected:
        raise node.invalid(f"rank of {name}", len(shape), "expected 1 to 3")
    wanted = expected[len(shape)]
    for pair in zip(shape, wanted, strict=True):
        holds = equal(node.known, *pair)
        require(node, holds, f"shape of {name}", shape, f"expected {wanted}")
    rows = [1] if len(shape) == 2 else []
    mask = node.emit(relax.op.reshape(mask, relax.ShapeExpr([batch, 1, *rows, *wanted[1:]])))
    return node.emit(relax.op.greater(mask, relax.const(0, dtype_of(mask))))


def _in_range(
    node: Node, name: str, bounds: relax.Expr, batch: Extent, total: Extent
) -> relax.Expr:
    """Whether each key is between the start and the end of its element of the batch."""
    (count,) = named_shape(node, name, bounds)
    matches = [node.known.equal(count, n) is True for n in (batch, 2 * batch, 3 * batch + 2)]
    if not any(matches):
        reason = f"expected [{batch}], the batch, or two or three bounds of each element"
        raise node.invalid(f"shape of {name}", [count], reason)
    positions = node.emit(relax.op.arange(0, total, 1, "int64"))
    wide = node.emit(relax.op.astype(bounds, "int64"))

    def bound(first: Extent) -> relax.Expr:
        part = node.emit(relax.op.strided_slice(wide, [0], [first], [first + batch]))
        return node.emit(relax.op.reshape(part, relax.ShapeExpr([batch, 1, 1, 1])))

    before = node.emit(relax.op.less(positions, bound(0)))
    if not matches[1]:
        return before
    after = node.emit(relax.op.greater_equal(positions, bound(batch)))
    return node.emit(relax.op.logical_and(before, after))


def hide_later(node: Node, scores: relax.Expr) -> relax.Expr:
    """The scores, with those of keys after each query replaced by the lowest number.

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
