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
"""Normalizations of the domain com.microsoft, and SimplifiedLayerNormalization."""

from collections.abc import Sequence

import numpy as np
from tvm import relax

from .....fixes.onnx_importer import MICROSOFT
from ....dtypes import dtype_of
from ...call import Call, converts
from ..quantized.steps import named_operands
from .operands import as_onnx, check_rank, check_vector, named_shape, round_to, widen


@converts("com.microsoft.SkipLayerNormalization", fix=MICROSOFT, noted=True)
def convert_skip_layer_norm(call: Call) -> relax.Expr:
    """Convert a SkipLayerNormalization, with its outputs mean, inv_std_var and sum."""
    inputs = named_operands(call, "input skip gamma beta bias", ("input", "skip", "gamma"))
    total = _sum_with_skip(call, inputs["input"], inputs["skip"], inputs["bias"])
    width = named_shape(call, "input", inputs["input"])[-1]
    for name in ("gamma", "beta"):
        check_vector(call, name, inputs[name], width)
    mean = call.emit(relax.op.mean(total, [-1], keepdims=True))
    centered = call.emit(relax.op.subtract(total, mean))
    inverse = _inverse_root(call, relax.op.mean(relax.op.square(centered), [-1], keepdims=True))
    out = relax.op.multiply(relax.op.multiply(centered, inverse), widen(call, inputs["gamma"]))
    if inputs["beta"] is not None:
        out = relax.op.add(out, widen(call, inputs["beta"]))
    return _outputs(call, [out, mean, inverse, total], rounded=(0, 3))


@converts("com.microsoft.SkipSimplifiedLayerNormalization", fix=MICROSOFT, noted=True)
def convert_skip_simplified_layer_norm(call: Call) -> relax.Expr:
    """Convert a SkipSimplifiedLayerNormalization, which divides by the root of the mean square.

    Its output mean is 0, as in ONNX Runtime, because the operator subtracts no mean.
    """
    inputs = named_operands(call, "input skip gamma bias", ("input", "skip", "gamma"))
    total = _sum_with_skip(call, inputs["input"], inputs["skip"], inputs["bias"])
    check_vector(call, "gamma", inputs["gamma"], named_shape(call, "input", inputs["input"])[-1])
    inverse = _inverse_root(call, relax.op.mean(relax.op.square(total), [-1], keepdims=True))
    out = relax.op.multiply(relax.op.multiply(total, inverse), widen(call, inputs["gamma"]))
    mean = call.emit(relax.op.zeros_like(inverse))
    return _outputs(call, [out, mean, inverse, total], rounded=(0, 3))


@converts("SimplifiedLayerNormalization", fix=MICROSOFT, noted=True)
def convert_simplified_layer_norm(call: Call) -> relax.Expr:
    """Convert a SimplifiedLayerNormalization, which ONNX Runtime saves in ONNX's domain.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the axis is out of range, or the shape of scale differs from that of the normalized axes.
    """
    inputs = named_operands(call, "X scale", ("X", "scale"))
    shape = named_shape(call, "X", inputs["X"])
    axis, rank = call.attributes.get("axis", -1), len(shape)
    if not -rank <= axis < rank:
        raise call.invalid("attribute axis", axis, f"expected an axis of X, which has rank {rank}")
    axes = list(range(axis % rank, rank))
    data, scale = widen(call, inputs["X"]), inputs["scale"]
    scale_shape = named_shape(call, "scale", scale)
    expected = shape[axes[0] :]
    if len(scale_shape) != len(expected) or any(
        call.known.equal(*pair) is False for pair in zip(scale_shape, expected, strict=True)
    ):
        raise call.invalid("shape of scale", scale_shape, f"expected {expected}")
    inverse = _inverse_root(
        call, relax.op.mean(relax.op.square(data), axes, keepdims=True), default=1e-5
    )
    out = relax.op.multiply(relax.op.multiply(data, inverse), widen(call, scale))
    fields = [round_to(call, out, dtype_of(scale)), inverse]
    count = call.outputs
    return fields[0] if count == 1 else relax.Tuple(fields[:count])


@converts("com.microsoft.EmbedLayerNormalization", fix=MICROSOFT, noted=True)
def convert_embed_layer_norm(call: Call) -> relax.Expr:
    """Convert an EmbedLayerNormalization, which normalizes a sum of embeddings.

    Its other outputs are the number of unmasked tokens in each row, and the sum.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand is missing, or the shapes of operands do not agree.
    """
    names = (
        "input_ids segment_ids word_embedding position_embedding segment_embedding gamma beta "
        "mask position_ids"
    )
    required = ("input_ids", "word_embedding", "position_embedding", "gamma", "beta")
    inputs = named_operands(call, names, required)
    if (inputs["segment_ids"] is None) != (inputs["segment_embedding"] is None):
        reason = "expected segment_ids and segment_embedding, or neither"
        raise call.invalid("operands", "incomplete", reason)
    _, length = check_rank(call, "input_ids", inputs["input_ids"], 2)
    positions = inputs["position_ids"]
    if positions is None:
        positions = call.emit(relax.op.arange(0, length, 1, "int64"))
    pairs = [(inputs["word_embedding"], inputs["input_ids"])]
    pairs += [(inputs["position_embedding"], positions)]
    if inputs["segment_ids"] is not None:
        pairs.append((inputs["segment_embedding"], inputs["segment_ids"]))
    total: relax.Expr | None = None
    for table, indices in pairs:
        embeddings = widen(call, as_onnx(call, "Gather", table, indices, axis=0))
        total = embeddings if total is None else call.emit(relax.op.add(total, embeddings))
    dtype = dtype_of(inputs["word_embedding"])
    epsilon = call.attributes.get("epsilon", 1e-12)
    operands = (total, *(widen(call, inputs[name]) for name in ("gamma", "beta")))
    out = as_onnx(call, "LayerNormalization", *operands, opset=17, axis=-1, epsilon=epsilon)
    fields = [round_to(call, out, dtype), _row_lengths(call, inputs), round_to(call, total, dtype)]
    return relax.Tuple(fields[: call.outputs])


def _row_lengths(call: Call, inputs: dict[str, relax.Expr | None]) -> relax.Expr:
    """The number of nonzero elements in each row of the mask; zeros without a mask."""
    if inputs["mask"] is None:
        (batch, _) = named_shape(call, "input_ids", inputs["input_ids"])
        return call.emit(relax.op.zeros(relax.ShapeExpr([batch]), "int32"))
    return call.emit(relax.op.sum(relax.op.astype(inputs["mask"], "int32"), [1]))


# Groups of channels


@converts("com.microsoft.GroupNorm", "com.microsoft.SkipGroupNorm", fix=MICROSOFT, noted=True)
def convert_group_norm(call: Call) -> relax.Expr:
    """Convert a GroupNorm or SkipGroupNorm.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If ``groups`` does not divide the channels, or the activation is neither 0 nor 1.
    """
    has_skip = call.operator.endswith("SkipGroupNorm")
    names = "X gamma beta skip bias" if has_skip else "X gamma beta"
    inputs = named_operands(call, names, names.split()[: 4 if has_skip else 3])
    shape = check_rank(call, "X", inputs["X"], 4)
    channels_last = call.attributes.get("channels_last", 1)
    channels, groups = shape[3 if channels_last else 1], call.attributes.get("groups", 0)
    activation = call.attributes.get("activation", 0)
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        reason = f"expected a divisor of the {channels} channels"
        raise call.invalid("attribute groups", groups, reason)
    if activation not in (0, 1):
        raise call.invalid("attribute activation", activation, "expected 0 or 1")
    for name in ("gamma", "beta", "bias"):
        check_vector(call, name, inputs.get(name), channels)
    total = widen(call, inputs["X"])
    for name in ("skip", "bias"):
        if inputs.get(name) is not None:
            total = call.emit(
                relax.op.add(total, _per_channel(call, name, inputs[name], channels_last))
            )
    axes = [1, 2] if channels_last else [2, 3]
    out = relax.op.nn.group_norm(
        total,
        *(widen(call, inputs[name]) for name in ("gamma", "beta")),
        groups,
        channel_axis=3 if channels_last else 1,
        axes=axes,
        epsilon=float(np.float32(call.attributes.get("epsilon", 1e-5))),
    )
    out = call.emit(out)
    if activation:
        out = call.emit(relax.op.nn.silu(out))
    return _outputs(call, [out, total], rounded=(0, 1))


def _per_channel(call: Call, name: str, value: relax.Expr, channels_last: int) -> relax.Expr:
    """A bias or a residual in a shape that broadcasts to the data."""
    rank = len(check_rank(call, name, value, 1, 2, 4))
    widened = widen(call, value)
    if rank == 4:
        return widened
    axes = [1, 2] if channels_last else [2, 3]
    if rank == 1:
        axes = [0, *axes]
    return call.emit(relax.op.expand_dims(widened, axes))


# Sums and roots


def _sum_with_skip(
    call: Call, data: relax.Expr, skip: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    """The sum of data, residual and bias in the accumulation dtype."""
    shape = check_rank(call, "input", data, 2, 3)
    skip_shape = check_rank(call, "skip", skip, 2, 3)
    aligned = list(zip(reversed(shape), reversed(skip_shape), strict=False))
    mismatched = [call.known.equal(*pair) is False for pair in aligned]
    # `skip` may broadcast only along the batch axis of three axes.
    if len(mismatched) == 3 and call.known.equal(skip_shape[0], 1):
        mismatched[2] = False
    if any(mismatched) or len(skip_shape) > len(shape):
        raise call.invalid("shape of skip", skip_shape, f"expected {shape}")
    check_vector(call, "bias", bias, shape[-1])
    total = call.emit(relax.op.add(widen(call, data), widen(call, skip)))
    return total if bias is None else call.emit(relax.op.add(total, widen(call, bias)))


def _inverse_root(call: Call, mean_square: relax.Expr, default: float = 1e-12) -> relax.Expr:
    """Emit ``1 / sqrt(mean_square + epsilon)``."""
    mean_square = call.emit(mean_square)
    epsilon = float(np.float32(call.attributes.get("epsilon", default)))
    shifted = relax.op.add(mean_square, relax.const(epsilon, dtype_of(mean_square)))
    return call.emit(relax.op.rsqrt(shifted))


def _outputs(call: Call, values: Sequence[relax.Expr], rounded: Sequence[int]) -> relax.Expr:
    """The outputs that the node uses; those at the indices `rounded` have the dtype of the data."""
    dtype = dtype_of(call.operands[0])
    fields = [
        round_to(call, value, dtype) if index in rounded else call.emit(value)
        for index, value in enumerate(values[: call.outputs])
    ]
    return fields[0] if len(fields) == 1 else relax.Tuple(fields)
