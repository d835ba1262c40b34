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
"""Normalizations of the domain com.microsoft, and SimplifiedLayerNormalization.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A SkipLayerNormalization, SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization,
    EmbedLayerNormalization, GroupNorm or SkipGroupNorm.
Symptom
    ``OpNotImplemented``; a SkipLayerNormalization returns no mean, and its sum lacks the bias.
Mechanism
    TVM has converters for only some of these operators, and some of their outputs.
How to remove
    Together with the fix ``onnx-microsoft``.
"""

from collections.abc import Sequence

import numpy as np
from tvm import relax

from ..dtypes import dtype_of
from .microsoft_operands import as_onnx, check_rank, check_vector, named_shape, round_to, widen
from .node import Converter, Node
from .quantization import named_operands

__all__ = [
    "convert_embed_layer_norm",
    "convert_group_norm",
    "convert_simplified_layer_norm",
    "convert_skip_layer_norm",
    "convert_skip_simplified_layer_norm",
]


def convert_skip_layer_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a SkipLayerNormalization, with its outputs mean, inv_std_var and sum."""
    given = named_operands(node, "input skip gamma beta bias", ("input", "skip", "gamma"))
    total = _with_skip(node, given["input"], given["skip"], given["bias"])
    width = named_shape(node, "input", given["input"])[-1]
    for name in ("gamma", "beta"):
        check_vector(node, name, given[name], width)
    mean = node.emit(relax.op.mean(total, [-1], keepdims=True))
    centered = node.emit(relax.op.subtract(total, mean))
    inverse = _inverse_root(node, relax.op.mean(relax.op.square(centered), [-1], keepdims=True))
    out = relax.op.multiply(relax.op.multiply(centered, inverse), widen(node, given["gamma"]))
    if given["beta"] is not None:
        out = relax.op.add(out, widen(node, given["beta"]))
    return _outputs(node, [out, mean, inverse, total], rounded=(0, 3))


def convert_skip_simplified_layer_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a SkipSimplifiedLayerNormalization, which divides by the root of the mean square.

    Its output mean is 0, as in ONNX Runtime, because the operator subtracts no mean.
    """
    given = named_operands(node, "input skip gamma bias", ("input", "skip", "gamma"))
    total = _with_skip(node, given["input"], given["skip"], given["bias"])
    check_vector(node, "gamma", given["gamma"], named_shape(node, "input", given["input"])[-1])
    inverse = _inverse_root(node, relax.op.mean(relax.op.square(total), [-1], keepdims=True))
    out = relax.op.multiply(relax.op.multiply(total, inverse), widen(node, given["gamma"]))
    mean = node.emit(relax.op.zeros_like(inverse))
    return _outputs(node, [out, mean, inverse, total], rounded=(0, 3))


def convert_simplified_layer_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a SimplifiedLayerNormalization, which ONNX Runtime writes in ONNX's domain.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the axis is out of range, or the shape of scale differs from that of the normalized axes.
    """
    given = named_operands(node, "X scale", ("X", "scale"))
    shape = named_shape(node, "X", given["X"])
    axis, rank = node.attributes.get("axis", -1), len(shape)
    if not -rank <= axis < rank:
        raise node.invalid("attribute axis", axis, f"expected an axis of X, which has rank {rank}")
    axes = list(range(axis % rank, rank))
    data, scale = widen(node, given["X"]), given["scale"]
    scale_shape = named_shape(node, "scale", scale)
    expected = shape[axes[0] :]
    if len(scale_shape) != len(expected) or any(
        node.known.equal(*pair) is False for pair in zip(scale_shape, expected, strict=True)
    ):
        raise node.invalid("shape of scale", scale_shape, f"expected {expected}")
    inverse = _inverse_root(
        node, relax.op.mean(relax.op.square(data), axes, keepdims=True), default=1e-5
    )
    out = relax.op.multiply(relax.op.multiply(data, inverse), widen(node, scale))
    fields = [round_to(node, out, dtype_of(scale)), inverse]
    count = node.attributes["tvm_custom"]["num_outputs"]
    return fields[0] if count == 1 else relax.Tuple(fields[:count])


def convert_embed_layer_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert an EmbedLayerNormalization: the sum of embeddings, normalized; the lengths of rows.

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
    given = named_operands(node, names, required)
    if (given["segment_ids"] is None) != (given["segment_embedding"] is None):
        reason = "expected segment_ids and segment_embedding, or neither"
        raise node.invalid("operands", "incomplete", reason)
    _, length = check_rank(node, "input_ids", given["input_ids"], 2)
    positions = given["position_ids"]
    if positions is None:
        positions = node.emit(relax.op.arange(0, length, 1, "int64"))
    pairs = [(given["word_embedding"], given["input_ids"])]
    pairs += [(given["position_embedding"], positions)]
    if given["segment_ids"] is not None:
        pairs.append((given["segment_embedding"], given["segment_ids"]))
    total: relax.Expr | None = None
    for table, indices in pairs:
        rows = widen(node, as_onnx(node, convert, "Gather", table, indices, axis=0))
        total = rows if total is None else node.emit(relax.op.add(total, rows))
    dtype = dtype_of(given["word_embedding"])
    epsilon = node.attributes.get("epsilon", 1e-12)
    operands = (total, *(widen(node, given[name]) for name in ("gamma", "beta")))
    out = as_onnx(
        node, convert, "LayerNormalization", *operands, opset=17, axis=-1, epsilon=epsilon
    )
    fields = [round_to(node, out, dtype), _row_lengths(node, given), round_to(node, total, dtype)]
    return relax.Tuple(fields[: node.attributes["tvm_custom"]["num_outputs"]])


def _row_lengths(node: Node, given: dict[str, relax.Expr | None]) -> relax.Expr:
    """The number of nonzero elements in each row of the mask; zeros without a mask."""
    if given["mask"] is None:
        (batch, _) = named_shape(node, "input_ids", given["input_ids"])
        return node.emit(relax.op.zeros(relax.ShapeExpr([batch]), "int32"))
    return node.emit(relax.op.sum(relax.op.astype(given["mask"], "int32"), [1]))


# Groups of channels


def convert_group_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a GroupNorm or SkipGroupNorm.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If ``groups`` does not divide the channels, or the activation is neither 0 nor 1.
    """
    skips = node.operator.endswith("SkipGroupNorm")
    names = "X gamma beta skip bias" if skips else "X gamma beta"
    given = named_operands(node, names, names.split()[: 4 if skips else 3])
    shape = check_rank(node, "X", given["X"], 4)
    last = node.attributes.get("channels_last", 1)
    channels, groups = shape[3 if last else 1], node.attributes.get("groups", 0)
    activation = node.attributes.get("activation", 0)
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        reason = f"expected a divisor of the {channels} channels"
        raise node.invalid("attribute groups", groups, reason)
    if activation not in (0, 1):
        raise node.invalid("attribute activation", activation, "expected 0 or 1")
    for name in ("gamma", "beta", "bias"):
        check_vector(node, name, given.get(name), channels)
    total = widen(node, given["X"])
    for name in ("skip", "bias"):
        if given.get(name) is not None:
            total = node.emit(relax.op.add(total, _per_channel(node, name, given[name], last)))
    axes = [1, 2] if last else [2, 3]
    out = relax.op.nn.group_norm(
        total,
        *(widen(node, given[name]) for name in ("gamma", "beta")),
        groups,
        channel_axis=3 if last else 1,
        axes=axes,
        epsilon=float(np.float32(node.attributes.get("epsilon", 1e-5))),
    )
    out = node.emit(out)
    if activation:
        out = node.emit(relax.op.nn.silu(out))
    return _outputs(node, [out, total], rounded=(0, 1))


def _per_channel(node: Node, name: str, value: relax.Expr, last: int) -> relax.Expr:
    """A bias or a residual in a shape that broadcasts to the data."""
    rank = len(check_rank(node, name, value, 1, 2, 4))
    wide = widen(node, value)
    if rank == 4:
        return wide
    axes = {1: [0, 1, 2] if last else [0, 2, 3], 2: [1, 2] if last else [2, 3]}[rank]
    return node.emit(relax.op.expand_dims(wide, axes))


# Sums and roots


def _with_skip(
    node: Node, data: relax.Expr, skip: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    """The sum of data, residual and bias in the accumulation dtype."""
    shape = check_rank(node, "input", data, 2, 3)
    skip_shape = check_rank(node, "skip", skip, 2, 3)
    aligned = list(zip(reversed(shape), reversed(skip_shape), strict=False))
    wrong = [node.known.equal(*pair) is False for pair in aligned]
    # Only the first axis of three broadcasts.
    if len(wrong) == 3 and node.known.equal(skip_shape[0], 1):
        wrong[2] = False
    if any(wrong) or len(skip_shape) > len(shape):
        raise node.invalid("shape of skip", skip_shape, f"expected {shape}")
    check_vector(node, "bias", bias, shape[-1])
    total = node.emit(relax.op.add(widen(node, data), widen(node, skip)))
    return total if bias is None else node.emit(relax.op.add(total, widen(node, bias)))


def _inverse_root(node: Node, mean_square: relax.Expr, default: float = 1e-12) -> relax.Expr:
    """The inverse of the root of `mean_square` and epsilon."""
    mean_square = node.emit(mean_square)
    epsilon = float(np.float32(node.attributes.get("epsilon", default)))
    shifted = relax.op.add(mean_square, relax.const(epsilon, dtype_of(mean_square)))
    return node.emit(relax.op.rsqrt(shifted))


def _outputs(node: Node, values: Sequence[relax.Expr], rounded: Sequence[int]) -> relax.Expr:
    """The outputs that the node uses; those at the indices `rounded` have the dtype of the data."""
    dtype = dtype_of(node.operands[0])
    fields = [
        round_to(node, value, dtype) if index in rounded else node.emit(value)
        for index, value in enumerate(values[: node.attributes["tvm_custom"]["num_outputs"]])
    ]
    return fields[0] if len(fields) == 1 else relax.Tuple(fields)
