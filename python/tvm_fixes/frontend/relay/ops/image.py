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
"""Resizing, sampling and dilation of images.

TVM 0.19 ignores the rounding method of a nearest-neighbor ``image.resize2d`` with ``asymmetric``
coordinates and an integer factor: it always rounds down. The translation uses the rounding method
of the program.
"""

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx, topi

from .... import relay
from ..call import Call, converts
from ..values.extents import shaped
from .indices import checked_indices

_INTERPOLATE = {
    "image.resize1d": topi.image.resize1d,
    "image.resize2d": topi.image.resize2d,
    "image.resize3d": topi.image.resize3d,
}


@converts(*_INTERPOLATE)
def resize(call: Call) -> relax.Expr:
    """Resize by interpolation in 1, 2 or 3 dimensions."""
    attrs = call.attributes
    size = list(attrs["size"])
    if not all(isinstance(extent, int) for extent in size):
        raise call.fail(f"size must be known, but it is {relay.TensorType(size, 'float32').shape}")
    mode, method = attrs["coordinate_transformation_mode"], attrs["method"]
    if min(size) < 2 and mode in ("align_corners", "tf_crop_and_resize"):
        raise call.fail(f"{mode} needs a size above 1, but size is {size}")
    if method == "cubic" and attrs["cubic_exclude"] and len(size) == 3:
        raise call.fail("TVM 0.19 computes cubic_exclude with wrong weights in 3 dimensions")
    roi = [float(value) for value in attrs["roi"] or []] or [0.0] * (2 * len(size))
    if len(roi) != 2 * len(size):
        raise call.fail(f"roi must have {2 * len(size)} floats, but it has {len(roi)}")
    layout, default = attrs["layout"], "NC" + "DHW"[3 - len(size) :]
    data = call.operands[0]
    if layout != default:
        data = call.emit(relax.op.permute_dims(data, [layout.index(axis) for axis in default]))
    extrapolation, dtype = float(attrs["extrapolation_value"]), str(call.type.dtype)
    rounding = attrs["rounding_method"]
    if method == "nearest_neighbor":
        rounding = rounding or ("round" if mode == "align_corners" else "floor")
        result = call.emit_te(_nearest, data, roi, size, mode, rounding, extrapolation, dtype)
    else:
        cubic = float(attrs["cubic_alpha"]), int(attrs["cubic_exclude"])
        arguments = (roi, size, default, method, mode, rounding, *cubic, extrapolation, dtype)
        result = call.emit_te(_INTERPOLATE[call.operator], data, *arguments)
    if layout != default:
        result = call.emit(relax.op.permute_dims(result, [default.index(axis) for axis in layout]))
    return result


def _round_away(x: tirx.Expr) -> tirx.Expr:
    """Round to the nearest integer, halves away from zero."""
    whole = tirx.trunc(x)
    rest = x - whole
    up = tirx.Select(rest >= 0.5, whole + 1.0, whole)
    return tirx.Select(rest <= -0.5, whole - 1.0, up)


_ROUND: dict[str, Callable[[tirx.Expr], tirx.Expr]] = {
    "round": _round_away,
    "round_prefer_floor": lambda x: tirx.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: tirx.floor(x + 0.5),
    # A tolerance, so that integers stay integers.
    "floor": lambda x: tirx.floor(x + 1e-5),
    "ceil": lambda x: tirx.ceil(x - 1e-5),
}


def _source(
    x: tirx.Var, extent: tirx.Expr, size: int, mode: str, start: float, end: float
) -> tirx.Expr:
    """The coordinate in the input of a pixel of the result."""
    at = x.astype("float32")
    last = (extent - 1).astype("float32")
    scale = extent.astype("float32") / tirx.const(size, "float32")
    if mode == "align_corners":
        return last / tirx.const(size - 1, "float32") * at
    if mode == "asymmetric":
        return scale * at
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) * scale
    if mode == "tf_crop_and_resize":
        return start * last + at * (end - start) * last / tirx.const(size - 1, "float32")
    if mode == "pytorch_half_pixel" and size == 1:
        return tirx.const(0.0, "float32")
    return (at + 0.5) * scale - 0.5


def _nearest(
    data: te.Tensor,
    roi: list[float],
    size: list[int],
    mode: str,
    rounding: str,
    extrapolation: float,
    dtype: str,
) -> te.Tensor:
    """The nearest pixels, for any number of axes after the first two."""

    def pixel(n: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
        indices, outside = [], []
        for i, x in enumerate(place):
            extent = data.shape[2 + i]
            at = _source(x, extent, size[i], mode, roi[i], roi[len(size) + i])
            nearest = _ROUND[rounding](at).astype("int32")
            indices.append(tirx.max(tirx.min(nearest, (extent - 1).astype("int32")), 0))
            outside += [at < 0.0, at > (extent - 1).astype("float32")]
        value = data(n, c, *indices).astype(dtype)
        if mode != "tf_crop_and_resize":
            return value
        return tirx.Select(tirx.any(*outside), tirx.const(extrapolation, dtype), value)

    return te.compute((*data.shape[:2], *size), pixel, name="resize_nearest")


@converts("image.crop_and_resize")
def crop_and_resize(call: Call) -> relax.Expr:
    """Cut boxes out of images and resize them to one size."""
    size = call.ints("crop_size", 2)
    if min(size) < 2:
        raise call.fail(f"crop_size must be above 1, but it is {size}")
    layout = call.attributes["layout"]
    extrapolation, dtype = float(call.attributes["extrapolation_value"]), str(call.type.dtype)
    data, (images, *_) = shaped(call)
    inputs = [data, call.operands[1], checked_indices(call, call.operands[2], images)]
    if call.attributes["method"] == "nearest_neighbor":
        return call.emit_te(_crop_nearest, *inputs, size, layout, extrapolation, dtype)
    arguments = (size, layout, call.attributes["method"], extrapolation, dtype)
    return call.emit_te(topi.image.crop_and_resize, *inputs, *arguments)


def _crop_nearest(
    data: te.Tensor,
    boxes: te.Tensor,
    images: te.Tensor,
    size: list[int],
    layout: str,
    extrapolation: float,
    dtype: str,
) -> te.Tensor:
    """The nearest pixels within boxes."""
    first = layout.index("H")
    shape = [boxes.shape[0], *data.shape[1:]]
    shape[first : first + 2] = size

    def pixel(*place: tirx.Var) -> tirx.Expr:
        indices: list[Any] = list(place)
        indices[0] = images(place[0])
        outside = []
        for i in range(2):
            last = data.shape[first + i] - 1
            start, end = boxes(place[0], i), boxes(place[0], 2 + i)
            step = last.astype("float32") * (end - start) / tirx.const(size[i] - 1, "float32")
            at = start * last.astype("float32") + step * place[first + i].astype("float32")
            nearest = _round_away(at).astype("int32")
            indices[first + i] = tirx.max(tirx.min(nearest, last.astype("int32")), 0)
            outside += [at < 0.0, at > last.astype("float32")]
        value = data(*indices).astype(dtype)
        return tirx.Select(tirx.any(*outside), tirx.const(extrapolation, dtype), value)

    return te.compute(shape, pixel, name="crop_nearest")


@converts("image.dilation2d")
def dilation2d(call: Call) -> relax.Expr:
    """Grayscale dilation: the maximum of sums with the weight; the padding is 0."""
    padding = call.ints("padding")
    if len(padding) < 4:
        padding = padding * (4 // len(padding))
    return call.emit_te(
        _dilation2d,
        *call.operands,
        call.ints("strides", 2),
        padding,
        call.ints("dilations", 2),
        call.attributes["data_layout"],
        str(call.type.dtype),
    )


def _dilation2d(
    data: te.Tensor,
    weight: te.Tensor,
    strides: list[int],
    padding: list[int],
    dilations: list[int],
    layout: str,
    dtype: str,
) -> te.Tensor:
    """Dilation of NCHW by IHW, or of NHWC by HWI."""
    first = layout.index("H")
    kernel = "IHW" if layout == "NCHW" else "HWI"
    size = [weight.shape[kernel.index(axis)] for axis in "HW"]
    extents = [data.shape[first], data.shape[first + 1]]
    axes = [te.reduce_axis((0, extent), name="r") for extent in size]
    shape: list[Any] = list(data.shape)
    for i in range(2):
        room = extents[i] + padding[i] + padding[i + 2] - (size[i] - 1) * dilations[i] - 1
        shape[first + i] = tirx.floordiv(room, strides[i]) + 1

    def element(*place: tirx.Var) -> tirx.Expr:
        at = list(place)
        inside = []
        for i in range(2):
            index = place[first + i] * strides[i] + axes[i] * dilations[i] - padding[i]
            inside += [index >= 0, index < extents[i]]
            at[first + i] = index
        zero = tirx.const(0, data.dtype)
        value = tirx.if_then_else(tirx.all(*inside), data(*at), zero).astype(dtype)
        channel = place[layout.index("C")]
        taps = [channel, *axes] if kernel == "IHW" else [*axes, channel]
        return te.max(value + weight(*taps).astype(dtype), axis=axes)

    return te.compute(shape, element, name="dilation2d")


@converts("image.affine_grid")
def affine_grid(call: Call) -> relax.Expr:
    """Apply an affine map to the points of a regular grid over [-1, 1]."""
    return call.emit_te(_affine_grid, call.operands[0], call.ints("target_shape", 2))


def _affine_grid(data: te.Tensor, shape: list[int]) -> te.Tensor:
    """The points as (x, y) on axis 1."""
    dtype = data.dtype
    # The last point stays just below 1.
    steps = [tirx.const((2.0 - 1e-7) / (extent - 1), dtype) for extent in shape]
    start = tirx.const(-1.0, dtype)

    def point(n: tirx.Var, row: tirx.Var, i: tirx.Var, j: tirx.Var) -> tirx.Expr:
        y = start + i.astype(dtype) * steps[0]
        x = start + j.astype(dtype) * steps[1]
        return data(n, row, 0) * x + data(n, row, 1) * y + data(n, row, 2)

    return te.compute((data.shape[0], 2, *shape), point, name="affine_grid")


@converts("image.grid_sample")
def grid_sample(call: Call) -> relax.Expr:
    """Sample images at the points of a grid."""
    return call.emit_te(
        topi.image.grid_sample,
        *call.operands,
        call.attributes["method"],
        call.attributes["layout"],
        call.attributes["padding_mode"],
        bool(call.attributes["align_corners"]),
    )
