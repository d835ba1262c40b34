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

Trigger
    The outputs Mean and InvStdDev of a LayerNormalization; a BatchNormalization in training
    mode; LpNormalization; a MeanVarianceNormalization of data with a large mean, or of equal
    elements; a GroupNormalization, LRN or MeanVarianceNormalization that is not float32; a scale of
    static shape for data of symbolic shape; a LayerNormalization whose scale has fewer axes than
    it normalizes.
Mechanism
    The converter returns constants for Mean and InvStdDev. ONNX's momentum is the
    weight of the old statistics, TVM's that of the new ones. LpNormalization has no converter. The
    variance is computed as a difference of two means, which rounding can make 0 or negative.
    Constants are float32.
"""

import onnx
from tvm import relax

from ....fixes.onnx_importer import NORMS
from ....support import switches
from ...dtypes import accumulation_dtype, dtype_of
from ...extents import equal, is_static
from ..call import Call, Extent, converts
from .shape_operands import axes_of, matched, require, shaped


@converts("LayerNormalization", fix=NORMS)
def convert_layer_norm(call: Call) -> relax.Expr:
    """Convert a LayerNormalization, including its outputs Mean and InvStdDev.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the axis is out of range, or the scale or the bias does not broadcast to the axes.
    """
    call = _with_matched_shapes(call, _axes_from(call), broadcast=True)
    if call.operand(2) is None and not is_static(*shaped(call, 1, "Scale")[1]):
        # TVM would create a constant bias, which needs static extents.
        switches.note(NORMS)
        data, scale = call.operands[:2]
        call = call.with_operands(data, scale, call.emit(relax.op.zeros_like(scale)))
    count = call.outputs
    if count < 2:
        return call.proceed()
    switches.note(NORMS)
    data = call.operands[0]
    axes = _axes_from(call)
    # stash_type 1, float32, is the only one that the specification allows.
    wide = call.emit(relax.op.astype(data, accumulation_dtype(dtype_of(data))))
    mean = call.emit(relax.op.mean(wide, axes, keepdims=True))
    variance = relax.op.mean(relax.op.square(relax.op.subtract(wide, mean)), axes, keepdims=True)
    epsilon = relax.const(call.attributes.get("epsilon", 1e-5), dtype_of(wide))
    inverse_deviation = call.emit(relax.op.rsqrt(relax.op.add(variance, epsilon)))
    out = call.builder.normalize(call.proceed())
    out = out.fields[0] if isinstance(out, relax.Tuple) else relax.TupleGetItem(out, 0)
    return relax.Tuple([call.emit(out), mean, inverse_deviation][:count])


@converts("BatchNormalization", fix=NORMS)
def convert_batch_norm(call: Call) -> relax.Expr:
    """Convert a BatchNormalization whose ``momentum`` is the weight of the old statistics.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the number of elements of an operand differs from the number of channels; or if operands
        with an element for each one of a sample (``spatial`` 0, up to opset 8) have another shape.
    """
    if not call.attributes.get("spatial", 1):
        return _normalize_elements(call)
    call = _with_matched_shapes(call, [1])
    if not call.attributes.get("training_mode", 0):
        return call.proceed()
    switches.note(NORMS)
    return call.with_attributes(momentum=1 - call.attributes.get("momentum", 0.9)).proceed()


def _normalize_elements(call: Call) -> relax.Expr:
    """Convert a BatchNormalization whose operands have the shape of a sample."""
    switches.note(NORMS)
    _, extents = shaped(call, 0, "X")
    call = _with_matched_shapes(call, list(range(1, len(extents))))
    data, scale, bias, mean, variance = call.operands
    epsilon = relax.const(call.attributes.get("epsilon", 1e-5), dtype_of(variance))
    factor = call.emit(relax.op.multiply(scale, relax.op.rsqrt(relax.op.add(variance, epsilon))))
    centered = call.emit(relax.op.subtract(data, mean))
    return relax.op.add(relax.op.multiply(centered, factor), bias)


@converts("InstanceNormalization", fix=NORMS)
def convert_instance_norm(call: Call) -> relax.Expr:
    """Convert an InstanceNormalization.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the number of elements of an operand differs from the number of channels.
    """
    return _with_matched_shapes(call, [1]).proceed()


@converts("RMSNormalization", fix=NORMS)
def convert_rms_norm(call: Call) -> relax.Expr:
    """Convert an RMSNormalization.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the axis is out of range, or the scale does not broadcast to the axes.
    """
    call = _with_matched_shapes(call, _axes_from(call), broadcast=True)
    if dtype_of(call.operands[0]) == "float64":
        # ONNX Runtime computes in float64 too; the default stash_type would round to float32.
        switches.note(NORMS)
        call = call.with_attributes(stash_type=int(onnx.TensorProto.DOUBLE))
    return call.proceed()


def _axes_from(call: Call) -> list[int]:
    """The attribute ``axis`` and all axes after it."""
    rank = len(shaped(call, 0, "X")[1])
    axis = call.attributes.get("axis", -1)
    if not -rank <= axis < rank:
        raise call.invalid("attribute axis", axis, f"expected an axis of X, which has rank {rank}")
    return list(range(axis % rank, rank))


def _with_matched_shapes(call: Call, axes: list[int], *, broadcast: bool = False) -> Call:
    """This node with the shapes of all operands matched to the extents of the first one on `axes`.

    The model checks symbolic extents at run time; without that, TVM infers no shape of the result.
    If `broadcast` is set, the operands are broadcast to these extents.
    """
    data, extents = shaped(call, 0, "X")
    if not len(extents) > axes[0]:
        raise call.invalid("shape of X", extents, f"expected an axis {axes[0]}")
    operands = [data, *call.operands[1:]]
    shapes = [call.known.extents(x) if x is not None else None for x in operands]
    wanted = list(extents)
    for shape in filter(None, shapes[1:]):
        for axis, extent in zip(reversed(axes), reversed(shape), strict=False):
            is_static_extent = isinstance(extent, int) and (extent != 1 or not broadcast)
            if is_static_extent and not isinstance(wanted[axis], int):
                wanted[axis] = extent
    if any(a is not b for a, b in zip(wanted, extents, strict=True)):
        switches.note(NORMS)
        operands[0] = matched(call, data, extents, wanted)
    target = [wanted[axis] for axis in axes]
    for index, own in enumerate(shapes):
        if index and own is not None:
            operands[index] = _fit_to_shape(call, index, own, target, broadcast)
    return call.with_operands(*operands)


def _fit_to_shape(
    call: Call, index: int, shape: list[Extent], target: list[Extent], broadcast: bool
) -> relax.Expr:
    """The operand at `index`, of shape `shape`, checked and broadcast to shape `target`."""
    known, operand = call.known, call.operands[index]
    subject, reason = f"shape of operand {index}", f"expected {target}"
    missing_axes = len(target) - len(shape)
    if missing_axes < 0 or (missing_axes and not broadcast):
        raise call.invalid(subject, shape, reason)
    pairs = list(zip(shape, target[missing_axes:], strict=True))
    if not missing_axes and all(known.equal(*pair) for pair in pairs):
        return operand
    switches.note(NORMS)
    broadcasts = [broadcast and known.equal(extent, 1) is True for extent in shape]
    for pair, is_broadcast in zip(pairs, broadcasts, strict=True):
        if not is_broadcast:
            require(call, equal(known, *pair), subject, shape, reason)
    shape = [a if keeps_one else b for (a, b), keeps_one in zip(pairs, broadcasts, strict=True)]
    checked = call.emit(relax.op.reshape(operand, relax.ShapeExpr(shape)))
    return call.emit(relax.op.broadcast_to(checked, relax.ShapeExpr(target)))


@converts("LpNormalization", fix=NORMS)
def convert_lp_norm(call: Call) -> relax.Expr:
    """Convert an LpNormalization, ``x / norm``, or 0 if the norm is 0.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If ``p`` is neither 1 nor 2.
    """
    data = call.operands[0]
    p, axis = call.attributes.get("p", 2), call.attributes.get("axis", -1)
    if p not in (1, 2):
        raise call.invalid("attribute p", p, "expected 1 or 2")
    switches.note(NORMS)
    power = relax.op.abs(data) if p == 1 else relax.op.square(data)
    norm = call.emit(relax.op.sum(power, axis, keepdims=True))
    if p == 2:
        norm = call.emit(relax.op.sqrt(norm))
    zero = relax.const(0, dtype_of(data))
    return relax.op.where(relax.op.equal(norm, zero), zero, relax.op.divide(data, norm))


@converts("MeanVarianceNormalization", fix=NORMS)
def convert_mean_variance_norm(call: Call) -> relax.Expr:
    """Convert a MeanVarianceNormalization, ``(x - mean) / (deviation + 1e-9)``."""
    data, extents = shaped(call, 0, "X")
    axes = axes_of(call, list(call.attributes.get("axes", (0, 2, 3))), len(extents))
    switches.note(NORMS)
    dtype = dtype_of(data)
    wide = call.emit(relax.op.astype(data, accumulation_dtype(dtype)))
    mean = relax.op.mean(wide, axes, keepdims=True)
    centered = call.emit(relax.op.subtract(wide, mean))
    variance = relax.op.mean(relax.op.square(centered), axes, keepdims=True)
    epsilon = relax.const(1e-9, accumulation_dtype(dtype))
    deviation = relax.op.add(relax.op.sqrt(variance), epsilon)
    return relax.op.astype(relax.op.divide(centered, deviation), dtype)


@converts("GroupNormalization", fix=NORMS)
def convert_group_norm(call: Call) -> relax.Expr:
    """Convert a GroupNormalization; before opset 21, scale and bias have one element per group.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank or the channels of the data are unknown, or ``num_groups`` does not divide them.
    """
    if call.version >= 21:
        call = _with_matched_shapes(call, [1])
    data, extents = shaped(call, 0, "X")
    channels, groups = extents[1], call.attributes["num_groups"]
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        reason = f"expected a divisor of the {channels} channels"
        raise call.invalid("attribute num_groups", groups, reason)
    switches.note(NORMS)
    dtype = dtype_of(data)
    wide, scale, bias = (
        call.emit(relax.op.astype(operand, accumulation_dtype(dtype)))
        for operand in call.operands[:3]
    )
    if call.version < 21:
        repeats = channels // groups
        scale, bias = (call.emit(relax.op.repeat(value, repeats, 0)) for value in (scale, bias))
    out = relax.op.nn.group_norm(
        wide,
        scale,
        bias,
        groups,
        channel_axis=1,
        axes=list(range(2, len(extents))),
        epsilon=call.attributes.get("epsilon", 1e-5),
    )
    return relax.op.astype(out, dtype)


@converts("LRN", fix=NORMS)
def convert_lrn(call: Call) -> relax.Expr:
    """Convert an LRN, ``x / (bias + alpha / size * sum) ** beta``; it sums squares over channels.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown, or ``size`` is not positive.
    """
    data, extents = shaped(call, 0, "X")
    size = call.attributes["size"]
    if size < 1:
        raise call.invalid("attribute size", size, "expected at least 1")
    switches.note(NORMS)
    dtype = dtype_of(data)
    wide = call.emit(relax.op.astype(data, accumulation_dtype(dtype)))
    squares = call.emit(relax.op.square(wide))
    squares = call.emit(relax.op.reshape(squares, [extents[0], 1, extents[1], -1]))
    padding = [(size - 1) // 2, 0, size // 2, 0]
    mean = relax.op.nn.avg_pool2d(squares, (size, 1), padding=padding, count_include_pad=True)
    mean = relax.op.reshape(call.emit(mean), relax.ShapeExpr(extents))

    def number(name: str, default: float) -> relax.Expr:
        return relax.const(call.attributes.get(name, default), accumulation_dtype(dtype))

    base = relax.op.add(relax.op.multiply(mean, number("alpha", 1e-4)), number("bias", 1.0))
    scale = relax.op.power(base, number("beta", 0.75))
    return relax.op.astype(relax.op.divide(wide, scale), dtype)
