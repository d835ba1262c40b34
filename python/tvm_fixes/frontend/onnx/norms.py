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
"""Normalizations.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    The mean and deviation that a LayerNormalization puts out; a BatchNormalization in training;
    LpNormalization; a MeanVarianceNormalization of data with a large mean, or of equal elements;
    a GroupNormalization, LRN or MeanVarianceNormalization that is not float32.
Symptom
    Scalars of 0, running statistics with the weights exchanged, and NaN, silently;
    LpNormalization and the other dtypes are refused.
Mechanism
    The converter puts out constants. ONNX's momentum is the weight of the old statistics, and
    TVM's that of the new ones. LpNormalization has no converter. The variance is a difference of
    two means, which rounding makes 0 or negative. Constants are float32.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-norms``.
"""

from tvm import relax

from ... import switches
from ..dtypes import accumulation_dtype, dtype_of
from .node import Converter, Node
from .parameters import axes_of, shaped

__all__ = [
    "NORMS",
    "convert_batch_norm",
    "convert_group_norm",
    "convert_layer_norm",
    "convert_lp_norm",
    "convert_lrn",
    "convert_mean_variance_norm",
]

NORMS = "onnx-norms"


def convert_layer_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a LayerNormalization with the mean and 1 / deviation, if they are put out."""
    count = node.attributes["tvm_custom"]["num_outputs"]
    if count < 2:
        return convert(node)
    switches.note(NORMS)
    data = node.operands[0]
    rank = data.ty.ndim
    axis = node.attributes.get("axis", -1)
    if not -rank <= axis < rank:
        raise node.invalid("attribute axis", axis, f"expected an axis of X, of rank {rank}")
    axes = list(range(axis % rank, rank))
    # stash_type 1, the only one of the specification: float32.
    wide = node.emit(relax.op.astype(data, accumulation_dtype(dtype_of(data))))
    mean = node.emit(relax.op.mean(wide, axes, keepdims=True))
    variance = relax.op.mean(relax.op.square(relax.op.subtract(wide, mean)), axes, keepdims=True)
    epsilon = relax.const(node.attributes.get("epsilon", 1e-5), dtype_of(wide))
    deviation = node.emit(relax.op.rsqrt(relax.op.add(variance, epsilon)))
    out = node.builder.normalize(convert(node))
    out = out.fields[0] if isinstance(out, relax.Tuple) else relax.TupleGetItem(out, 0)
    return relax.Tuple([node.emit(out), mean, deviation][:count])


def convert_batch_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a BatchNormalization whose ``momentum`` is the weight of the old statistics."""
    if not node.attributes.get("training_mode", 0):
        return convert(node)
    switches.note(NORMS)
    return convert(node.with_attributes(momentum=1 - node.attributes.get("momentum", 0.9)))


def convert_lp_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert an LpNormalization, ``x / norm``, which is 0 where the norm is.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If ``p`` is neither 1 nor 2.
    """
    data = node.operands[0]
    p, axis = node.attributes.get("p", 2), node.attributes.get("axis", -1)
    if p not in (1, 2):
        raise node.invalid("attribute p", p, "expected 1 or 2")
    switches.note(NORMS)
    power = relax.op.abs(data) if p == 1 else relax.op.square(data)
    norm = node.emit(relax.op.sum(power, axis, keepdims=True))
    if p == 2:
        norm = node.emit(relax.op.sqrt(norm))
    zero = relax.const(0, dtype_of(data))
    return relax.op.where(relax.op.equal(norm, zero), zero, relax.op.divide(data, norm))


def convert_mean_variance_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a MeanVarianceNormalization, ``(x - mean) / (deviation + 1e-9)``."""
    data, extents = shaped(node, 0, "X")
    axes = axes_of(node, list(node.attributes.get("axes", (0, 2, 3))), len(extents))
    switches.note(NORMS)
    dtype = dtype_of(data)
    wide = node.emit(relax.op.astype(data, accumulation_dtype(dtype)))
    mean = relax.op.mean(wide, axes, keepdims=True)
    centered = node.emit(relax.op.subtract(wide, mean))
    variance = relax.op.mean(relax.op.square(centered), axes, keepdims=True)
    epsilon = relax.const(1e-9, accumulation_dtype(dtype))
    deviation = relax.op.add(relax.op.sqrt(variance), epsilon)
    return relax.op.astype(relax.op.divide(centered, deviation), dtype)


def convert_group_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a GroupNormalization; before opset 21 scale and bias are those of the groups.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank or the channels of the data are unknown, or ``num_groups`` does not divide them.
    """
    data, extents = shaped(node, 0, "X")
    channels, groups = extents[1], node.attributes["num_groups"]
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        reason = f"expected a divisor of the {channels} channels"
        raise node.invalid("attribute num_groups", groups, reason)
    switches.note(NORMS)
    dtype = dtype_of(data)
    wide, scale, bias = (
        node.emit(relax.op.astype(operand, accumulation_dtype(dtype)))
        for operand in node.operands[:3]
    )
    if node.opset < 21:
        repeats = channels // groups
        scale, bias = (node.emit(relax.op.repeat(value, repeats, 0)) for value in (scale, bias))
    out = relax.op.nn.group_norm(
        wide,
        scale,
        bias,
        groups,
        channel_axis=1,
        axes=list(range(2, len(extents))),
        epsilon=node.attributes.get("epsilon", 1e-5),
    )
    return relax.op.astype(out, dtype)


def convert_lrn(node: Node, convert: Converter) -> relax.Expr:
    """Convert an LRN, ``x / (bias + alpha / size * sum) ** beta``, the sum of squares of channels.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown, or ``size`` is not positive.
    """
    data, extents = shaped(node, 0, "X")
    size = node.attributes["size"]
    if size < 1:
        raise node.invalid("attribute size", size, "expected at least 1")
    switches.note(NORMS)
    dtype = dtype_of(data)
    wide = node.emit(relax.op.astype(data, accumulation_dtype(dtype)))
    squares = node.emit(relax.op.square(wide))
    squares = node.emit(relax.op.reshape(squares, [extents[0], 1, extents[1], -1]))
    padding = [(size - 1) // 2, 0, size // 2, 0]
    mean = relax.op.nn.avg_pool2d(squares, (size, 1), padding=padding, count_include_pad=True)
    mean = relax.op.reshape(node.emit(mean), relax.ShapeExpr(extents))

    def number(name: str, default: float) -> relax.Expr:
        return relax.const(node.attributes.get(name, default), accumulation_dtype(dtype))

    base = relax.op.add(relax.op.multiply(mean, number("alpha", 1e-4)), number("bias", 1.0))
    scale = relax.op.power(base, number("beta", 0.75))
    return relax.op.astype(relax.op.divide(wide, scale), dtype)
