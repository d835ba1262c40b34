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

from ...dtypes import dtype_of
from ...extents import equal
from ..call import Call, Extent
from .microsoft.operands import check_rank, named_shape, round_to, widen
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


def split_heads(call: Call, name: str, value: relax.Expr, heads: int) -> relax.Expr:
    """Reshape (batch, length, heads * size) to (batch, heads, length, size).

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the width is not a multiple of the number of heads.
    """
    batch, length, width = named_shape(call, name, value)
    if heads < 1 or not isinstance(width, int) or width % heads:
        reason = f"expected a divisor of the width of {name}, {width}"
        raise call.invalid("number of heads", heads, reason)
    split = relax.op.reshape(value, relax.ShapeExpr([batch, length, heads, width // heads]))
    return call.emit(relax.op.permute_dims(call.emit(split), [0, 2, 1, 3]))


def join_heads(call: Call, value: relax.Expr) -> relax.Expr:
    """Reshape (batch, heads, length, size) to (batch, length, heads * size)."""
    batch, heads, length, size = named_shape(call, "value", value)
    moved = call.emit(relax.op.permute_dims(value, [0, 2, 1, 3]))
    return call.emit(relax.op.reshape(moved, relax.ShapeExpr([batch, length, heads * size])))


def after_past(
    call: Call, names: tuple[str, str], past: Sequence[relax.Expr], new: Sequence[relax.Expr]
) -> list[relax.Expr]:
    """Append keys and values to those of earlier positions.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the shapes differ on an axis other than that of the positions.
    """
    joined, total = [], None
    for name, old, part in zip(names, past, new, strict=True):
        shape, own = check_rank(call, name, old, 4), named_shape(call, name, part)
        for axis in (0, 1, 3):
            expected = [*own[:2], "positions", own[3]]
            holds = equal(call.known, shape[axis], own[axis])
            require(call, holds, f"shape of {name}", shape, f"expected {expected}")
        if total is None:
            # A new symbol: TVM cannot lower transposed matrices whose extent is a sum.
            total = named(call, call.known.simplify(shape[2] + own[2]), "total")
        both = call.emit(relax.op.concat([old, part], axis=2))
        joined.append(_with_length(call, both, [*own[:2], total, own[3]]))
    return joined


def after_pair(call: Call, past: relax.Expr, new: Sequence[relax.Expr]) -> list[relax.Expr]:
    """Append keys and values to those in `past`, of shape (2, batch, heads, length, size)."""
    check_rank(call, "past", past, 5)
    wide = widen(call, past)
    old = [call.emit(relax.op.take(wide, relax.const(index, "int64"), axis=0)) for index in (0, 1)]
    return after_past(call, ("past", "past"), old, new)


def as_pair(call: Call, parts: Sequence[relax.Expr], dtype: str) -> relax.Expr:
    """Keys and values as one tensor of shape (2, batch, heads, length, size)."""
    pair = [call.emit(relax.op.expand_dims(part, 0)) for part in parts]
    return round_to(call, relax.op.concat(pair), dtype)


def _with_length(call: Call, value: relax.Expr, shape: list[Extent]) -> relax.Expr:
    """`value` with this shape; the model checks unknown extents at run time."""
    found = call.known.extents(value)
    if found is not None and all(
        call.known.equal(*pair) for pair in zip(found, shape, strict=True)
    ):
        return value
    return call.builder.match_cast(value, relax.TensorType(shape, dtype_of(value)))


def scaled_product(
    call: Call, query: relax.Expr, key: relax.Expr, scale: float | None = None
) -> relax.Expr:
    """The products of all queries and keys; the default scale is 1 / sqrt(head size)."""
    size = named_shape(call, "query", query)[-1]
    factor = scale or 1 / np.sqrt(float(size))
    turned = call.emit(relax.op.permute_dims(key, [0, 1, 3, 2]))
    scores = call.emit(relax.op.matmul(query, turned))
    return call.emit(relax.op.multiply(scores, relax.const(factor, dtype_of(scores))))


def with_bias(call: Call, scores: relax.Expr, bias: relax.Expr) -> relax.Expr:
    """The scores plus a bias, which broadcasts over batch and heads.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the shape of the bias does not agree with the scores.
    """
    extents = named_shape(call, "scores", scores)
    shape = check_rank(call, "attention_bias", bias, 4)
    target = list(extents)
    for axis in range(4):
        if axis < 2 and call.known.equal(shape[axis], 1):
            target[axis] = 1
        holds = equal(call.known, shape[axis], target[axis])
        require(call, holds, "shape of attention_bias", shape, f"expected {extents}")
    bias = call.emit(relax.op.reshape(widen(call, bias), relax.ShapeExpr(target)))
    return call.emit(relax.op.add(scores, bias))


def masked(
    call: Call, name: str, mask: relax.Expr, scores: relax.Expr, filler: float
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
    visible = _visible(call, name, mask, named_shape(call, "scores", scores))
    zero, hidden = relax.const(0, dtype), relax.const(filler, dtype)
    return call.emit(relax.op.add(scores, call.emit(relax.op.where(visible, zero, hidden))))


def _visible(call: Call, name: str, mask: relax.Expr, extents: list[Extent]) -> relax.Expr:
    """Whether each query sees each key, as a tensor that broadcasts to the scores."""
    batch, _, length, total = extents
    shape = named_shape(call, name, mask)
    if len(shape) == 1:
        return _in_range(call, name, mask, batch, total)
    expected: dict[int, list[Extent]] = {2: [batch, total], 3: [batch, length, total]}
    if len(shape) not in expected:
        raise call.invalid(f"rank of {name}", len(shape), "expected 1 to 3")
    wanted = expected[len(shape)]
    for pair in zip(shape, wanted, strict=True):
        holds = equal(call.known, *pair)
        require(call, holds, f"shape of {name}", shape, f"expected {wanted}")
    rows = [1] if len(shape) == 2 else []
    mask = call.emit(relax.op.reshape(mask, relax.ShapeExpr([batch, 1, *rows, *wanted[1:]])))
    return call.emit(relax.op.greater(mask, relax.const(0, dtype_of(mask))))


def _in_range(
    call: Call, name: str, bounds: relax.Expr, batch: Extent, total: Extent
) -> relax.Expr:
    """Whether each key is between the start and the end of its element of the batch."""
    (count,) = named_shape(call, name, bounds)
    matches = [call.known.equal(count, n) is True for n in (batch, 2 * batch, 3 * batch + 2)]
    if not any(matches):
        reason = f"expected [{batch}], the batch, or two or three bounds of each element"
        raise call.invalid(f"shape of {name}", [count], reason)
    positions = call.emit(relax.op.arange(0, total, 1, "int64"))
    wide = call.emit(relax.op.astype(bounds, "int64"))

    def bound(first: Extent) -> relax.Expr:
        part = call.emit(relax.op.strided_slice(wide, [0], [first], [first + batch]))
        return call.emit(relax.op.reshape(part, relax.ShapeExpr([batch, 1, 1, 1])))

    before = call.emit(relax.op.less(positions, bound(0)))
    if not matches[1]:
        return before
    after = call.emit(relax.op.greater_equal(positions, bound(batch)))
    return call.emit(relax.op.logical_and(before, after))


def hide_later(call: Call, scores: relax.Expr) -> relax.Expr:
    """The scores, with those of keys after each query replaced by the lowest number.

    The last query is at the position of the last key.
    """
    *_, length, total = named_shape(call, "scores", scores)
    rows = call.emit(relax.op.arange(total - length, total, 1, "int64"))
    columns = call.emit(relax.op.arange(0, total, 1, "int64"))
    earlier = relax.op.less_equal(columns, call.emit(relax.op.expand_dims(rows, -1)))
    dtype = dtype_of(scores)
    least = relax.const(np.finfo(dtype).min, dtype)
    return call.emit(relax.op.where(call.emit(earlier), scores, least))


def weighted_sum(call: Call, scores: relax.Expr, value: relax.Expr) -> relax.Expr:
    """The sum of the values, weighted by the softmax of the scores."""
    weights = call.emit(relax.op.nn.softmax(scores, -1))
    return call.emit(relax.op.matmul(weights, value))
