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
"""Convolutions, in the layouts of TFLite: channels last."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from ...extents import Extent, is_static
from ..call import Call, converts, is_quantized
from ..file.model import Quantization

_WEIGHTS = ("int8", "uint8", "int4", "int2", "uint4")


def window_padding(
    call: Call, extent: Extent, kernel: int, stride: int, dilation: int = 1
) -> tuple[int, int]:
    """The padding of an axis before and after the elements."""
    if stride < 1 or dilation < 1 or kernel < 1:
        raise call.fail(f"stride {stride}, dilation {dilation}, window {kernel}; expected positive")
    if call.option("padding") == "VALID":
        return 0, 0
    span = (kernel - 1) * dilation + 1
    if not isinstance(extent, int):
        if stride != 1:
            raise call.fail("padding SAME with a stride needs static extents; set their sizes")
        total = span - 1
    else:
        total = max((-(-extent // stride) - 1) * stride + span - extent, 0)
    return total // 2, total - total // 2


def paddings(
    call: Call,
    extents: Sequence[Extent],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int] | None = None,
) -> list[int]:
    """The padding before each axis, and then that after each."""
    axes = zip(extents, kernel, strides, dilation or [1] * len(kernel), strict=True)
    before, after = zip(*(window_padding(call, *axis) for axis in axes), strict=True)
    return [*before, *after]


def weight_of(call: Call, index: int, order: list[int]) -> relax.Expr:
    """The weights, their axes permuted, dequantized if they are integers."""
    tensor = call.input(index)
    known = call.known(index)
    moved: Any
    if known is not None:
        moved = call.context.expression(
            np.ascontiguousarray(known.transpose(order)), str(known.dtype)
        )
    elif order == sorted(order):
        moved = call.operand(index)
    else:
        moved = call.emit(relax.op.permute_dims(call.operand(index), order))
    if not is_quantized(tensor):
        return moved
    parameters = call.quantization(tensor, per_axis=True)
    dtype = str(known.dtype) if known is not None else tensor.dtype
    if not parameters.is_per_tensor:
        parameters = replace(parameters, axis=order.index(parameters.axis))
    return call.dequantized(moved, parameters, dtype)


def check_product(call: Call, data: int, weight: int) -> None:
    """Reject operands of dtypes whose product is not supported."""
    x, w, out = call.input(data), call.input(weight), call.outputs[0]
    if x.dtype == w.dtype == out.dtype == "float32":
        return
    is_8_bit = x.dtype in ("int8", "uint8") and out.dtype in ("int8", "uint8")
    if is_8_bit and w.dtype in _WEIGHTS and all(map(is_quantized, (x, w, out))):
        return
    if x.dtype == "float32" and is_quantized(w):
        raise call.fail(
            f"float32 data with {w.dtype} weights (dynamic-range quantization) is not supported"
        )
    raise call.fail(f"{x.dtype} data with {w.dtype} weights and {out.dtype} results: not supported")


def with_bias(
    call: Call, value: relax.Expr, index: int, data: int, weight: int, axis: int
) -> relax.Expr:
    """Add a bias; a quantized one has the product of the scales of data and weights."""
    if not call.has(index):
        return value
    bias = call.operand(index)
    if is_quantized(call.input(data)):
        call.require_dtype(index, "int32")
        w = call.quantization(call.input(weight), per_axis=True)
        if not w.is_per_tensor and w.axis != axis:
            raise call.fail(f"the scales of the weights are along axis {w.axis}, not {axis}")
        scale = call.quantization(call.input(data)).scale * w.scale
        parameters = Quantization(scale, np.zeros(scale.size, "int64"), 0)
        bias = call.dequantized(bias, parameters, "int32")
    else:
        call.require_dtype(index, "float32")
    return call.emit(relax.op.add(value, bias))


@converts("CONV_2D")
def conv_2d(call: Call) -> relax.Expr:
    """Convolution with weights in OHWI; fewer input channels than the data's mean groups."""
    call.check_operands(2, 3)
    check_product(call, 0, 1)
    _, *extents, channels = call.shape(0)
    _, *kernel, depth = _static(call, 1)
    if not isinstance(channels, int) or not depth or channels % depth:
        raise call.fail(f"{channels} channels of the data, {depth} of the weights")
    weight = weight_of(call, 1, [0, 1, 2, 3])
    return _convolved(call, weight, extents, kernel, channels // depth, 0)


@converts("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(call: Call) -> relax.Expr:
    """Convolution of each channel, with weights in 1HWO."""
    call.check_operands(2, 3)
    check_product(call, 0, 1)
    _, *extents, channels = call.shape(0)
    first, *kernel, results = _static(call, 1)
    if first != 1 or not isinstance(channels, int) or not channels or results % channels:
        raise call.fail(f"weights of shape {_static(call, 1)} for {channels} channels")
    weight = weight_of(call, 1, [3, 1, 2, 0])
    return _convolved(call, weight, extents, kernel, channels, 3)


def _static(call: Call, index: int) -> list[int]:
    shape = call.shape(index)
    if len(shape) != 4 or not is_static(*shape):
        raise call.fail(f"weights of shape {shape}; expected four static extents")
    return [int(dim) for dim in shape]


def _convolved(
    call: Call,
    weight: relax.Expr,
    extents: list[Extent],
    kernel: list[int],
    groups: int,
    channel_axis: int,
) -> relax.Expr:
    strides = [call.option("stride_h"), call.option("stride_w")]
    dilation = [call.option("dilation_h_factor"), call.option("dilation_w_factor")]
    if len(extents) != 2:
        raise call.fail(f"data of rank {len(extents) + 2}; expected 4")
    value = call.emit(
        relax.op.nn.conv2d(
            call.real(0),
            weight,
            strides=strides,
            padding=paddings(call, extents, kernel, strides, dilation),
            dilation=dilation,
            groups=groups,
            data_layout="NHWC",
            kernel_layout="OHWI",
        )
    )
    value = with_bias(call, value, 2, 0, 1, channel_axis)
    return call.quantized_product(call.activated(value))


@converts("TRANSPOSE_CONV")
def transpose_conv(call: Call) -> relax.Expr:
    """Transposed convolution to a given shape, with weights in OHWI."""
    call.check_operands(3, 4)
    check_product(call, 2, 1)
    shape = call.ints(0, "the shape of the result")
    _, *extents, channels = call.shape(2)
    _, *kernel, depth = _static(call, 1)
    strides = [call.option("stride_h"), call.option("stride_w")]
    if len(shape) != 4 or channels != depth or not is_static(*extents):
        raise call.fail(f"data {call.shape(2)}, weights {call.shape(1)}, result {shape}")
    before, after, extra = [], [], []
    for extent, result, size, stride in zip(extents, shape[1:3], kernel, strides, strict=True):
        first, _ = window_padding(call, result, size, stride)
        last = (int(extent) - 1) * stride + size - result - first
        if -last >= stride:
            raise call.fail(f"the result {shape} is too large for data of shape {call.shape(2)}")
        before.append(first)
        after.append(max(last, 0))
        extra.append(max(-last, 0))
    value = call.emit(
        relax.op.nn.conv2d_transpose(
            call.real(2),
            weight_of(call, 1, [3, 0, 1, 2]),
            strides=strides,
            padding=before + after,
            output_padding=extra,
            data_layout="NHWC",
            kernel_layout="IOHW",
        )
    )
    value = with_bias(call, value, 3, 2, 1, 0)
    return call.quantized_product(call.activated(value))


@converts("CONV_3D")
def conv_3d(call: Call) -> relax.Expr:
    """Convolution of volumes, with weights in DHWIO."""
    for index in range(len(call.operands)):
        if call.has(index):
            call.require_dtype(index, "float32")
    _, *extents, channels = call.shape(0)
    *kernel, depth, _ = call.shape(1)
    if len(extents) != 3 or not isinstance(channels, int) or channels % int(depth or 1):
        raise call.fail(f"data {call.shape(0)}, weights {call.shape(1)}")
    strides = [call.option(f"stride_{axis}") for axis in "dhw"]
    dilation = [call.option(f"dilation_{axis}_factor") for axis in "dhw"]
    value = call.emit(
        relax.op.nn.conv3d(
            call.operand(0),
            weight_of(call, 1, [4, 3, 0, 1, 2]),
            strides=strides,
            padding=paddings(call, extents, kernel, strides, dilation),
            dilation=dilation,
            groups=channels // int(depth),
            data_layout="NDHWC",
            kernel_layout="OIDHW",
        )
    )
    return call.activated(with_bias(call, value, 2, 0, 1, 4))
