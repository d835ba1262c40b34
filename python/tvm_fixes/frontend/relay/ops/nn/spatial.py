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
"""Padding, upsampling, space to depth and batch and back, losses and layout_transform."""

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ...call import Call, converts
from .layouts import convert_layout, extents


def _pairs(call: Call, attr: str) -> tuple[list[int], list[int]]:
    """The first and the second int of each pair."""
    pairs = [[int(value) for value in pair] for pair in call.attributes[attr]]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


@converts("nn.pad")
def pad(call: Call) -> relax.Expr:
    """Add elements before and after the data; a negative width removes them."""
    data = call.operands[0]
    before, after = _pairs(call, "pad_width")
    mode = str(call.attributes["pad_mode"])
    if mode != "constant":
        widths = [width for pair in zip(before, after, strict=True) for width in pair]
        mode = "replicate" if mode == "edge" else mode
        return call.emit(relax.op.nn.pad(data, widths, mode))
    value: Any = np.asarray(call.attributes["pad_value"])
    if len(call.operands) > 1:
        value = call.constant(1)
    dtype = str(call.type.dtype)
    if value is None:

        def padded(data: te.Tensor, value: te.Tensor) -> te.Tensor:
            return topi.nn.pad(data, before, after, value().astype(dtype))

        return call.emit_te(padded, data, call.operands[1])
    number = value.astype(dtype).item() if dtype != "bfloat16" else float(value)
    if float(number) == number or number != number:
        widths = [width for pair in zip(before, after, strict=True) for width in pair]
        return call.emit(relax.op.nn.pad(data, widths, "constant", float(number)))
    return call.emit_te(topi.nn.pad, data, before, after, tirx.const(number, dtype))


@converts("nn.mirror_pad")
def mirror_pad(call: Call) -> relax.Expr:
    """Add a mirror image of the data before and after it."""
    before, after = _pairs(call, "pad_width")
    return call.emit_te(
        topi.nn.mirror_pad, call.operands[0], before, after, str(call.attributes["mode"])
    )


def _scaled(call: Call, extent: Any, known: Any, attr: str) -> Any:
    """The extent of the result: that of its type, or the input's times an integer."""
    scale = float(call.attributes[attr])
    if isinstance(known, int):
        return known
    if not scale.is_integer():
        raise call.fail(f"{attr} of an unknown extent must be a whole number, not {scale}")
    return extent * int(scale)


def _resize(call: Call, spatial: str, scales: list[str], mode: str) -> relax.Expr:
    layout = str(call.attributes["layout"])
    channels_last = "N" + spatial + "C"
    plain = layout if layout == channels_last else "NC" + spatial
    data = convert_layout(call, call.operands[0], layout, plain)
    letters = "".join(letter for letter in layout if not letter.isdigit())
    places = [letters.index(letter) for letter in spatial]
    lengths = extents(call, data)
    size = [
        _scaled(call, lengths[plain.index(letter)], call.type.shape[place], attr)
        for letter, place, attr in zip(spatial, places, scales, strict=True)
    ]
    method = str(call.attributes["method"])
    resize = relax.op.image.resize2d if len(spatial) == 2 else relax.op.image.resize3d
    result = resize(
        data,
        relax.ShapeExpr(size),
        layout=plain,
        method=method.removeprefix("bi").removeprefix("tri"),
        coordinate_transformation_mode=mode,
        rounding_method="",
        cubic_alpha=-0.5,
    )
    return convert_layout(call, call.emit(result), plain, layout)


@converts("nn.upsampling")
def upsampling(call: Call) -> relax.Expr:
    """Scale an image."""
    mode = "align_corners" if call.attributes["align_corners"] else "asymmetric"
    return _resize(call, "HW", ["scale_h", "scale_w"], mode)


@converts("nn.upsampling3d")
def upsampling3d(call: Call) -> relax.Expr:
    """Scale a volume."""
    mode = str(call.attributes["coordinate_transformation_mode"])
    return _resize(call, "DHW", ["scale_d", "scale_h", "scale_w"], mode)


@converts("nn.depth_to_space")
def depth_to_space(call: Call) -> relax.Expr:
    """Move channels into blocks of pixels."""
    layout, block = str(call.attributes["layout"]), int(call.attributes["block_size"])
    data = convert_layout(call, call.operands[0], layout, "NCHW")
    n, c, h, w = extents(call, data)
    depth = c // (block * block)
    if call.attributes["mode"] == "DCR":
        shape, order = [n, block, block, depth, h, w], [0, 3, 4, 1, 5, 2]
    else:
        shape, order = [n, depth, block, block, h, w], [0, 1, 4, 2, 5, 3]
    data = call.emit(relax.op.permute_dims(call.emit(relax.op.reshape(data, shape)), order))
    data = call.emit(relax.op.reshape(data, [n, depth, h * block, w * block]))
    return convert_layout(call, data, "NCHW", layout)


@converts("nn.space_to_depth")
def space_to_depth(call: Call) -> relax.Expr:
    """Move blocks of pixels into channels."""
    layout, block = str(call.attributes["layout"]), int(call.attributes["block_size"])
    data = convert_layout(call, call.operands[0], layout, "NCHW")
    n, c, h, w = extents(call, data)
    rows, columns = h // block, w // block
    data = call.emit(relax.op.reshape(data, [n, c, rows, block, columns, block]))
    data = call.emit(relax.op.permute_dims(data, [0, 3, 5, 1, 2, 4]))
    data = call.emit(relax.op.reshape(data, [n, c * block * block, rows, columns]))
    return convert_layout(call, data, "NCHW", layout)


@converts("nn.space_to_batch_nd")
def space_to_batch_nd(call: Call) -> relax.Expr:
    """Move blocks into the batch."""
    before, after = _pairs(call, "paddings")
    return call.emit_te(
        topi.nn.space_to_batch_nd,
        call.operands[0],
        call.ints("block_shape"),
        before,
        after,
        float(call.attributes["pad_value"]),
    )


@converts("nn.batch_to_space_nd")
def batch_to_space_nd(call: Call) -> relax.Expr:
    """Move parts of the batch into blocks."""
    begin, end = _pairs(call, "crops")
    blocks = call.ints("block_shape")
    count = len(blocks)
    batch, *shape = extents(call, call.operands[0])
    batch = batch // math.prod(blocks)
    data = call.emit(relax.op.reshape(call.operands[0], [*blocks, batch, *shape]))
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    order += range(2 * count + 1, len(blocks) + 1 + len(shape))
    data = call.emit(relax.op.permute_dims(data, order))
    shape[:count] = [extent * block for extent, block in zip(shape, blocks, strict=False)]
    data = call.emit(relax.op.reshape(data, [batch, *shape]))
    if not any(begin) and not any(end):
        return data
    axes = list(range(1, count + 1))
    ends = [shape[i] - end[i] for i in range(count)]
    return call.emit(relax.op.strided_slice(data, axes, begin, ends))


@converts("nn.dilate")
def dilate(call: Call) -> relax.Expr:
    """Put a value between the elements."""
    strides = call.ints("strides")
    if len(strides) == 1:
        strides = strides * len(call.type.shape)
    return call.emit_te(
        topi.nn.dilate, call.operands[0], strides, float(call.attributes["dilation_value"])
    )


@converts("nn.fifo_buffer")
def fifo_buffer(call: Call) -> relax.Expr:
    """Append new data to a buffer, and drop the same amount of its oldest data."""
    axis = int(call.attributes["axis"]) % len(call.type.shape)
    data, buffer = call.operands
    begin = extents(call, data)[axis]
    end = begin + extents(call, buffer)[axis]
    joined = call.emit(relax.op.concat([buffer, data], axis))
    return call.emit(relax.op.strided_slice(joined, [axis], [begin], [end]))


@converts("layout_transform")
def layout_transform(call: Call) -> relax.Expr:
    """Change the layout of a tensor."""
    source, target = str(call.attributes["src_layout"]), str(call.attributes["dst_layout"])
    return convert_layout(call, call.operands[0], source, target)


@converts("nn.nll_loss")
def nll_loss(call: Call) -> relax.Expr:
    """The negative log likelihood of targets."""
    return call.emit(
        relax.op.nn.nll_loss(
            *call.operands, str(call.attributes["reduction"]), int(call.attributes["ignore_index"])
        )
    )


@converts("nn.cross_entropy", "nn.cross_entropy_with_logits")
def cross_entropy(call: Call) -> relax.Expr:
    """The cross entropy of predictions, or of their logarithms, averaged over the batch."""
    takes_logarithm = call.operator == "nn.cross_entropy"

    def loss(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        x = topi.log(x) if takes_logarithm else x
        total = topi.negative(topi.sum(topi.multiply(x, y)))
        return topi.divide(total, tirx.Cast(str(x.dtype), x.shape[0]))

    return call.emit_te(loss, *call.operands)
