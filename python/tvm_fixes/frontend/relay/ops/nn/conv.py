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
"""Convolutions."""

from typing import Any

from tvm import relax, topi

from ...call import Call, converts
from .layouts import convert_layout, extents, is_packed, spatial_axes


def _count_axes(call: Call) -> int:
    """The number of spatial axes, from the operator's name."""
    return next(count for count in (1, 2, 3) if f"conv{count}d" in call.operator)


def _layouts(call: Call) -> tuple[str, str, str]:
    """The layouts of data, weights and result."""
    data = str(call.attributes["data_layout"])
    return data, str(call.attributes["kernel_layout"]), str(call.attributes["out_layout"]) or data


def _same_dtype(call: Call, *operands: relax.Expr) -> list[relax.Expr]:
    """Cast operands of different dtypes to the dtype of the result, in which TVM multiplies."""
    if len({str(operand.ty.dtype) for operand in operands}) == 1:
        return list(operands)
    return [call.emit(relax.op.astype(operand, str(call.type.dtype))) for operand in operands]


def _plain(call: Call, expr: relax.Expr, layout: str, order: str) -> tuple[relax.Expr, str]:
    """Convert a tensor with packed axes to an order of axes; keep any other layout."""
    if not is_packed(layout):
        return expr, layout
    return convert_layout(call, expr, layout, order), order


def conv_weight(
    call: Call, weight: relax.Expr, layout: str, inputs: Any, spatial: str
) -> tuple[relax.Expr, str]:
    """Convert weights to a layout without packed axes and without an axis of groups."""
    groups = int(call.attributes["groups"])
    if groups > 1 and "G" in layout:
        weight = convert_layout(call, weight, layout, "GOI" + spatial)
        shape = extents(call, weight)
        return call.emit(relax.op.reshape(weight, [-1, *shape[2:]])), "OI" + spatial
    weight, layout = _plain(call, weight, layout, "OI" + spatial)
    shape = extents(call, weight)
    # A depthwise convolution with several results for each channel has them along axis I.
    is_depthwise = groups > 1 and groups == inputs == shape[layout.index("O")]
    if is_depthwise and shape[layout.index("I")] != 1:
        weight = convert_layout(call, weight, layout, "OI" + spatial)
        shape = extents(call, weight)
        return call.emit(relax.op.reshape(weight, [-1, 1, *shape[2:]])), "OI" + spatial
    return weight, layout


@converts("nn.conv1d", "nn.conv2d", "nn.conv3d")
@converts("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
def conv(call: Call) -> relax.Expr:
    """Convolution along one to three axes."""
    num_axes = _count_axes(call)
    data_layout, kernel_layout, out_layout = _layouts(call)
    spatial = spatial_axes(num_axes)
    data, layout = _plain(call, call.operands[0], data_layout, "NC" + spatial)
    inputs = extents(call, data)[layout.index("C")]
    weight, kernel = conv_weight(call, call.operands[1], kernel_layout, inputs, spatial)
    data, weight = _same_dtype(call, data, weight)
    result = getattr(relax.op.nn, f"conv{num_axes}d")(
        data,
        weight,
        strides=call.ints("strides", num_axes),
        padding=call.ints("padding"),
        dilation=call.ints("dilation", num_axes),
        groups=int(call.attributes["groups"]),
        data_layout=layout,
        kernel_layout=kernel,
        out_dtype=str(call.type.dtype),
    )
    return convert_layout(call, call.emit(result), layout, out_layout)


@converts("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def conv_transpose(call: Call) -> relax.Expr:
    """Transposed convolution along one to three axes."""
    num_axes = _count_axes(call)
    data_layout, kernel_layout, out_layout = _layouts(call)
    spatial = spatial_axes(num_axes)
    data = convert_layout(call, call.operands[0], data_layout, "NC" + spatial)
    weight = convert_layout(call, call.operands[1], kernel_layout, "IO" + spatial)
    data, weight = _same_dtype(call, data, weight)
    result = getattr(relax.op.nn, f"conv{num_axes}d_transpose")(
        data,
        weight,
        strides=call.ints("strides", num_axes),
        padding=call.ints("padding"),
        output_padding=call.ints("output_padding", num_axes),
        dilation=call.ints("dilation", num_axes),
        groups=int(call.attributes["groups"]),
        out_dtype=str(call.type.dtype),
    )
    return convert_layout(call, call.emit(result), "NC" + spatial, out_layout)


@converts("nn.deformable_conv2d")
def deformable_conv2d(call: Call) -> relax.Expr:
    """Convolution whose elements are read at positions that an input shifts."""
    if int(call.attributes["groups"]) != 1:
        raise call.fail(f"groups must be 1, not {call.attributes['groups']}")
    data_layout, kernel_layout, out_layout = _layouts(call)
    data, offset = (
        convert_layout(call, operand, data_layout, "NCHW") for operand in call.operands[:2]
    )
    weight = convert_layout(call, call.operands[2], kernel_layout, "OIHW")
    padding = call.ints("padding")
    result = call.emit_te(
        topi.nn.deformable_conv2d_nchw,
        data,
        offset,
        weight,
        tuple(call.ints("strides", 2)),
        tuple(padding * 2 if len(padding) < 4 else padding) if len(padding) > 1 else padding[0],
        tuple(call.ints("dilation", 2)),
        int(call.attributes["deformable_groups"]),
        int(call.attributes["groups"]),
        str(call.type.dtype),
    )
    return convert_layout(call, result, "NCHW", out_layout)


@converts("nn.correlation")
def correlation(call: Call) -> relax.Expr:
    """Correlation of the patches of two images."""
    padding = call.ints("padding")
    return call.emit_te(
        topi.nn.correlation_nchw,
        *call.operands,
        *(int(call.attributes[name]) for name in ("kernel_size", "max_displacement")),
        *(int(call.attributes[name]) for name in ("stride1", "stride2")),
        padding[0] if len(padding) == 1 else padding,
        bool(call.attributes["is_multiply"]),
    )
