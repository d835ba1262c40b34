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
"""Object detection: anchors, regions of interest, reorganization."""

import math
from collections.abc import Sequence

from tvm import relax, te, tirx, topi

from ...call import Call, converts
from ...values.extents import shaped
from ..indices import checked_indices


def _floats(call: Call, attr: str) -> list[float]:
    return [float(value) for value in call.attributes[attr]]


@converts("vision.multibox_prior")
def multibox_prior(call: Call) -> relax.Expr:
    """Anchor boxes around the center of each pixel."""
    if str(call.type.dtype) != "float32":
        raise call.fail(f"the input must be float32, but it is {call.type.dtype}")
    shape = [call.operands[0].ty.shape[axis] for axis in (2, 3)]
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise call.fail("the height and width must be known")
    names = ("sizes", "ratios", "steps", "offsets")
    extents = [int(extent) for extent in shape]
    return call.emit_te(
        _anchors, *extents, *(_floats(call, name) for name in names), bool(call.attributes["clip"])
    )


def _anchors(
    height: int,
    width: int,
    sizes: Sequence[float],
    ratios: Sequence[float],
    steps: Sequence[float],
    offsets: Sequence[float],
    clip: bool,
) -> te.Tensor:
    """Boxes as left, top, right, bottom; several for each pixel."""
    halves = [(size * height / width / 2.0, size / 2.0) for size in sizes]
    for ratio in ratios[1:]:
        root = math.sqrt(ratio)
        halves.append((sizes[0] * height / width * root / 2.0, sizes[0] / root / 2.0))
    step_y = steps[0] if steps[0] > 0 else 1.0 / height
    step_x = steps[1] if steps[1] > 0 else 1.0 / width

    def select(values: Sequence[float], index: tirx.Expr) -> tirx.Expr:
        chosen = tirx.const(values[0], "float32")
        for i, value in enumerate(values[1:], 1):
            chosen = tirx.Select(index == i, tirx.const(value, "float32"), chosen)
        return chosen

    def corner(_: tirx.Var, box: tirx.Var, side: tirx.Var) -> tirx.Expr:
        pixel, kind = tirx.floordiv(box, len(halves)), tirx.floormod(box, len(halves))
        row = tirx.floordiv(pixel, width).astype("float32")
        column = tirx.floormod(pixel, width).astype("float32")
        x = (column + tirx.const(offsets[1], "float32")) * tirx.const(step_x, "float32")
        y = (row + tirx.const(offsets[0], "float32")) * tirx.const(step_y, "float32")
        half_x = select([half for half, _ in halves], kind)
        half_y = select([half for _, half in halves], kind)
        vertical = tirx.floormod(side, 2) == 1
        center, half = tirx.Select(vertical, y, x), tirx.Select(vertical, half_y, half_x)
        value = tirx.Select(side < 2, center - half, center + half)
        if not clip:
            return value
        return tirx.max(tirx.min(value, tirx.const(1.0, "float32")), tirx.const(0.0, "float32"))

    return te.compute((1, height * width * len(halves), 4), corner, name="anchors")


def _regions(call: Call) -> list[relax.Expr]:
    """Return the images, and the regions with the checked index of an image in column 0."""
    data, (images, *_) = shaped(call)
    regions = call.operands[1]
    index, box = (
        call.emit(relax.op.strided_slice(regions, [1], [begin], [end]))
        for begin, end in ((0, 1), (1, 5))
    )
    index = checked_indices(call, call.emit(relax.op.astype(index, "int64")), images)
    index = call.emit(relax.op.astype(index, regions.ty.dtype))
    return [data, call.emit(relax.op.concat([index, box], 1))]


@converts("vision.roi_align")
def roi_align(call: Call) -> relax.Expr:
    """Means or maxima of samples in the bins of each region."""
    mode = call.attributes["mode"]
    if mode not in ("avg", "max"):
        raise call.fail(f'mode must be "avg" or "max", but it is "{mode}"')
    layout = call.attributes["layout"]
    align = topi.vision.roi_align_nchw if layout == "NCHW" else topi.vision.roi_align_nhwc
    return call.emit_te(
        align,
        *_regions(call),
        call.ints("pooled_size", 2),
        float(call.attributes["spatial_scale"]),
        mode,
        int(call.attributes["sample_ratio"]),
    )


@converts("vision.roi_pool")
def roi_pool(call: Call) -> relax.Expr:
    """The maximum in the bins of each region; 0 for an empty bin."""
    if call.attributes["layout"] != "NCHW":
        raise call.fail("only the layout NCHW is supported, as in TVM 0.19")
    scale = float(call.attributes["spatial_scale"])
    return call.emit_te(_roi_pool, *_regions(call), call.ints("pooled_size", 2), scale)


def _roi_pool(data: te.Tensor, rois: te.Tensor, size: list[int], scale: float) -> te.Tensor:
    """Pool the regions (image, left, top, right, bottom)."""
    dtype = rois.dtype
    extents = data.shape[2:]

    def rounded(value: tirx.Expr) -> tirx.Expr:
        """Round halves away from zero."""
        value = value * tirx.const(scale, dtype)
        whole = tirx.trunc(value)
        up = tirx.Select(value - whole >= 0.5, whole + 1.0, whole)
        return tirx.Select(value - whole <= -0.5, whole - 1.0, up).astype("int32")

    def bounds(i: tirx.Var, axis: int, place: tirx.Var) -> tuple[tirx.Expr, tirx.Expr]:
        """The first pixel of a bin, and the one after the last."""
        first, last = rounded(rois(i, 2 - axis)), rounded(rois(i, 4 - axis))
        length = tirx.max(last - first + 1, 1).astype(dtype)
        step = length / tirx.const(size[axis], dtype)
        room = tirx.const(0.00001, dtype)
        start = tirx.floor(place.astype(dtype) * step + room).astype("int32")
        end = tirx.ceil((place + 1).astype(dtype) * step - room).astype("int32")
        extent = extents[axis].astype("int32")
        return tuple(tirx.min(tirx.max(at + first, 0), extent) for at in (start, end))

    axes = [te.reduce_axis((0, extent), name="r") for extent in extents]

    def largest(i: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
        inside = []
        for axis in range(2):
            start, end = bounds(i, axis, place[axis])
            inside += [axes[axis] >= start, axes[axis] < end]
        value = data(rois(i, 0).astype("int32"), c, *axes)
        return te.max(tirx.if_then_else(tirx.all(*inside), value, te.min_value(data.dtype)), axes)

    def filled(i: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
        empty = []
        for axis in range(2):
            start, end = bounds(i, axis, place[axis])
            empty.append(start >= end)
        return tirx.Select(tirx.any(*empty), tirx.const(0, data.dtype), maxima(i, c, *place))

    shape = (rois.shape[0], data.shape[1], *size)
    maxima = te.compute(shape, largest, name="roi_max")
    return te.compute(shape, filled, name="roi_pool")


@converts("vision.yolo_reorg")
def yolo_reorg(call: Call) -> relax.Expr:
    """Move blocks of pixels to channels, in the order of Darknet."""
    data, stride = call.operands[0], int(call.attributes["stride"])
    shape = list(data.ty.shape)
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise call.fail("the shape must be known")
    batch, channels, height, width = (int(extent) for extent in shape)
    if batch != 1:
        raise call.fail(f"TVM 0.19 reads outside of the input for a batch of {batch}; 1 is allowed")
    if channels % stride**2 or height % stride or width % stride:
        raise call.fail(f"stride {stride} does not divide the shape {call.input_types[0].shape}")
    flat = call.emit(relax.op.reshape(data, [channels * height * width]))
    result = call.emit_te(_reorganize, flat, channels, height, width, stride)
    new_shape = [1, channels * stride**2, height // stride, width // stride]
    return call.emit(relax.op.reshape(result, new_shape))


def _reorganize(data: te.Tensor, channels: int, height: int, width: int, stride: int) -> te.Tensor:
    """Gather pixels `stride` apart; positions are those in a flat array."""
    blocks = channels // stride**2

    def element(k: tirx.Var, j: tirx.Var, i: tirx.Var) -> tirx.Expr:
        block, part = tirx.floormod(k, blocks), tirx.floordiv(k, blocks)
        row = (j * stride + tirx.floordiv(part, stride)) * stride
        column = i * stride + tirx.floormod(part, stride)
        return data((block * stride**2 * height + row) * width + column)

    return te.compute((channels, height, width), element, name="reorganize")
