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
"""RotaryEmbedding of the domain com.microsoft, and the rotation of heads."""

from tvm import relax

from .....fixes.onnx_importer import MICROSOFT
from ....dtypes import dtype_of
from ....extents import equal
from ...call import Call, Extent, converts
from ..attention import join_heads, split_heads
from ..quantized.steps import named_operands
from ..shape_operands import require
from .operands import as_onnx, check_rank, named_shape, round_to, widen

__all__ = ["rotate"]


@converts("com.microsoft.RotaryEmbedding", fix=MICROSOFT, noted=True)
def convert_rotary_embedding(call: Call) -> relax.Expr:
    """Convert a RotaryEmbedding of data of rank 3, or of heads.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute is not supported, or the shapes of operands do not agree.
    """
    names = "input position_ids cos_cache sin_cache"
    inputs = named_operands(call, names, names.split())
    scale = call.attributes.get("scale", 1.0)
    if scale != 1:
        raise call.invalid("attribute scale", scale, "expected 1")
    data, dtype = widen(call, inputs["input"]), dtype_of(inputs["input"])
    shape = check_rank(call, "input", data, 3, 4)
    if len(shape) == 3:
        data = split_heads(call, "input", data, _heads(call, inputs, shape))
    batch, _, length, _ = named_shape(call, "input", data)
    positions = inputs["position_ids"]
    found = check_rank(call, "position_ids", positions, 1, 2)
    if len(found) == 1:  # the position of the first element
        is_one = equal(call.known, found[0], 1)
        require(call, is_one, "shape of position_ids", found, "expected [1]")
        offsets = call.emit(relax.op.arange(0, length, 1, dtype_of(positions)))
        positions = call.emit(relax.op.expand_dims(relax.op.add(offsets, positions), 0))
    else:
        for pair in zip(found, (batch, length), strict=True):
            reason = f"expected [{batch}, {length}]"
            require(call, equal(call.known, *pair), "shape of position_ids", found, reason)
    interleaved = bool(call.attributes.get("interleaved", 0))
    caches = (inputs["cos_cache"], inputs["sin_cache"])
    rotated = rotate(call, data, positions, caches, interleaved)
    out = join_heads(call, rotated) if len(shape) == 3 else rotated
    return round_to(call, out, dtype)


def _heads(call: Call, inputs: dict[str, relax.Expr], shape: list[Extent]) -> int:
    """The number of heads of data of rank 3, from the attribute or from the shape of the caches."""
    heads = call.attributes.get("num_heads", 0)
    if call.attributes.get("rotary_embedding_dim", 0) or heads:
        return heads
    half = check_rank(call, "cos_cache", inputs["cos_cache"], 2)[1]
    if not isinstance(half, int) or not isinstance(shape[2], int) or shape[2] % (2 * half):
        reason = f"expected half of a divisor of the width of input, {shape[2]}"
        raise call.invalid("width of cos_cache", half, reason)
    return shape[2] // (2 * half)


def rotate(
    call: Call,
    heads: relax.Expr,
    positions: relax.Expr,
    caches: tuple[relax.Expr, relax.Expr],
    interleaved: bool,
) -> relax.Expr:
    """Rotate pairs of elements by the angles at `positions`.

    Parameters
    ----------
    heads : Expr
        A tensor of shape (batch, heads, length, size) in the accumulation dtype.
    positions : Expr
        Indices of rows of the caches, of shape (batch or 1, length).
    caches : tuple of Expr
        Cosines and sines, each of shape (positions, half of the rotated elements).
    interleaved : bool
        Whether the elements of a pair are adjacent; else they are half of the elements apart.
    """
    _, half = check_rank(call, "cos_cache", caches[0], 2)
    size = named_shape(call, "input", heads)[-1]
    if not isinstance(half, int) or not isinstance(size, int) or 2 * half > size:
        raise call.invalid("width of cos_cache", half, f"expected at most half of {size}")
    if named_shape(call, "sin_cache", caches[1])[-1] != half:
        found = named_shape(call, "sin_cache", caches[1])
        raise call.invalid("shape of sin_cache", found, f"expected a width of {half}")
    cosine, sine = (
        call.emit(relax.op.expand_dims(widen(call, as_onnx(call, "Gather", x, positions)), 1))
        for x in caches
    )
    first, second = _halves(call, heads, half, interleaved)
    emit, op = call.emit, relax.op
    turned = [
        emit(op.subtract(op.multiply(first, cosine), op.multiply(second, sine))),
        emit(op.add(op.multiply(first, sine), op.multiply(second, cosine))),
    ]
    if interleaved:
        batch, count, length, _ = named_shape(call, "input", heads)
        pairs = emit(op.concat([emit(op.expand_dims(part, -1)) for part in turned], axis=-1))
        turned = [emit(op.reshape(pairs, relax.ShapeExpr([batch, count, length, 2 * half])))]
    if 2 * half < size:
        turned.append(emit(op.strided_slice(heads, [3], [2 * half], [size])))
    return turned[0] if len(turned) == 1 else emit(op.concat(turned, axis=-1))


def _halves(
    call: Call, heads: relax.Expr, half: int, interleaved: bool
) -> tuple[relax.Expr, relax.Expr]:
    """The first and the second elements of the pairs."""
    starts, step = ((0, 1), 2) if interleaved else ((0, half), 1)
    first, second = (
        call.emit(relax.op.strided_slice(heads, [3], [start], [end], [step]))
        for start, end in zip(starts, (2 * half if interleaved else half, 2 * half), strict=True)
    )
    return first, second
