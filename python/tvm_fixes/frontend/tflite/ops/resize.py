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
"""Resizing of images."""

import numpy as np
from tvm import relax

from ...extents import is_static
from ..call import Call, converts, is_quantized


def _sizes(call: Call) -> tuple[list[int], list[int]]:
    """The height and width before and after."""
    shape = call.shape(0)
    if len(shape) != 4 or not is_static(*shape[1:3]):
        raise call.fail(f"data of shape {shape}; expected rank 4 with a static height and width")
    target = call.ints(1, "the size")
    if len(target) != 2 or min(target) < 1:
        raise call.fail(f"the size is {target}")
    for size in target:
        call.limited(size, "the size")
    if call.option("align_corners") and call.option("half_pixel_centers"):
        raise call.fail("align_corners and half_pixel_centers exclude each other")
    return [int(extent) for extent in shape[1:3]], target


def _scale(call: Call, before: int, after: int) -> np.float32:
    """The step in the original for each step in the result."""
    if call.option("align_corners") and after > 1:
        return np.float32(np.float32(before - 1) / np.float32(after - 1))
    return np.float32(np.float32(before) / np.float32(after))


@converts("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest_neighbor(call: Call) -> relax.Expr:
    """The nearest element for each place of the result."""
    call.require_same_quantization()
    value = call.operand(0)
    for axis, (before, after) in enumerate(zip(*_sizes(call), strict=True), 1):
        offset = np.float32(0.5 if call.option("half_pixel_centers") else 0)
        exact = (np.arange(after, dtype="float32") + offset) * _scale(call, before, after)
        nearest = np.floor(exact + np.float32(0.5)) if call.option("align_corners") else exact
        places = np.clip(np.floor(nearest), 0, before - 1).astype("int32")
        if not np.array_equal(places, np.arange(before)):
            value = call.emit(relax.op.take(value, relax.const(places), axis))
    return value


@converts("RESIZE_BILINEAR")
def resize_bilinear(call: Call) -> relax.Expr:
    """Interpolation between the four elements around each place of the result."""
    call.require_same_quantization()
    if call.input(0).dtype == "int16":
        raise call.fail("16-bit quantized operands are not supported")
    sizes = list(zip(*_sizes(call), strict=True))
    data = call.input(0)
    if not is_quantized(data):
        return _interpolated(call, call.operand(0), sizes)
    if data.dtype == "int8":
        return _in_fixed_point(call, sizes)
    value = call.emit(relax.op.astype(call.operand(0), "float32"))
    value = _interpolated(call, value, sizes)
    return call.clipped(call.rounded_away(value), data.dtype)


def _in_fixed_point(call: Call, sizes: list[tuple[int, int]]) -> relax.Expr:
    """Interpolation as LiteRT's: places and weights have 10 bits behind the point."""
    op, emit = relax.op, call.emit
    value = emit(op.astype(call.operand(0), "int32"))
    for axis, (before, after) in enumerate(sizes, 1):
        is_aligned = call.option("align_corners") and after > 1
        top, bottom = (before - 1, after - 1) if is_aligned else (before, after)
        step = ((top << 10) + bottom // 2) // bottom
        places = np.arange(after) * step
        if call.option("half_pixel_centers"):
            places = places + step // 2 - (1 << 9)
        low = np.maximum(places >> 10, 0)
        high = np.clip((places + (1 << 10) - 1) >> 10, 0, before - 1)
        low = np.minimum(low, before - 1)
        shape = [-1 if place == axis else 1 for place in range(4)]
        part = (places - (low << 10)).reshape(shape).astype("int32")

        def weighted(
            indices: np.ndarray, weights: np.ndarray, axis: int = axis, value: relax.Expr = value
        ) -> relax.Expr:
            taken = emit(op.take(value, relax.const(indices.astype("int32")), axis))
            return emit(op.multiply(taken, relax.const(weights)))

        value = emit(op.add(weighted(low, np.int32(1 << 10) - part), weighted(high, part)))
    size = emit(op.add(emit(op.abs(value)), relax.const(1 << 19, "int32")))
    rounded = emit(op.right_shift(size, relax.const(20, "int32")))
    signed = emit(op.multiply(emit(op.sign(value)), rounded))
    return emit(op.astype(signed, "int8"))


def _interpolated(call: Call, value: relax.Expr, sizes: list[tuple[int, int]]) -> relax.Expr:
    if call.option("align_corners"):
        mode = "align_corners"
    elif call.option("half_pixel_centers"):
        mode = "half_pixel"
    else:
        mode = "asymmetric"
    return call.emit(
        relax.op.image.resize2d(
            value,
            [after for _, after in sizes],
            layout="NHWC",
            method="linear",
            coordinate_transformation_mode=mode,
        )
    )
