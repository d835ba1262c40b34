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
"""Resizing of one axis by interpolation, for the importers of ONNX and PyTorch."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from .extents import Extent

__all__ = ["COORDINATES", "ROUNDINGS", "Method", "as_float", "resize_axis"]


@dataclass(frozen=True)
class Method:
    """How an element is interpolated; the fields are ONNX's attributes of Resize."""

    mode: str
    coordinates: str
    rounding: str
    cubic_coeff_a: float
    exclude_outside: bool


def as_float(value: Extent | float, dtype: str = "float32") -> tirx.Expr:
    """An extent or a number as a float."""
    if isinstance(value, tirx.Expr):
        # TVM's analysis of a float divisor raises at a cast from an integer; floor hides the cast.
        return te.floor(value.astype(dtype))
    return tirx.const(np.dtype(dtype).type(value), dtype)


def _like(value: Extent | float, other: tirx.Expr) -> tirx.Expr:
    return as_float(value, str(other.ty))


def _half_pixel(i: tirx.Expr, extent: Extent, count: Extent, scale: tirx.Expr) -> tirx.Expr:
    half = _like(0.5, i)
    return (i + half) / scale - half


def _pytorch_half_pixel(i: tirx.Expr, extent: Extent, count: Extent, scale: tirx.Expr) -> tirx.Expr:
    source = _half_pixel(i, extent, count, scale)
    return tirx.Select(_like(count, i) > _like(1, i), source, _like(0, i))


def _half_pixel_symmetric(
    i: tirx.Expr, extent: Extent, count: Extent, scale: tirx.Expr
) -> tirx.Expr:
    adjustment = _like(count, i) / (scale * _like(extent, i))
    offset = _like(extent, i) / _like(2, i) * (_like(1, i) - adjustment)
    return offset + _half_pixel(i, extent, count, scale)


def _align_corners(i: tirx.Expr, extent: Extent, count: Extent, scale: tirx.Expr) -> tirx.Expr:
    if isinstance(count, int):
        return i * _like(extent - 1, i) / _like(max(count - 1, 1), i)
    source = i * _like(extent - 1, i) / _like(count - 1, i)
    return tirx.Select(count > 1, source, _like(0, i))


COORDINATES: dict[str, Callable[[tirx.Expr, Extent, Extent, tirx.Expr], tirx.Expr]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "align_corners": _align_corners,
    "asymmetric": lambda i, extent, count, scale: i / scale,
    "tf_half_pixel_for_nn": lambda i, extent, count, scale: (i + _like(0.5, i)) / scale,
}
"""Functions from an output index to a coordinate in the data (ONNX specification, Resize)."""

# The distance from a tie within which ONNX Runtime 1.31 treats a coordinate as a tie.
_TIE = 1e-6

ROUNDINGS: dict[str, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]] = {
    "floor": lambda source, scale: te.floor(source),
    "ceil": lambda source, scale: te.ceil(source),
    # `source - floor(source)` is exact; adding or subtracting one half could round.
    "round_prefer_floor": lambda source, scale: tirx.Select(
        source - te.floor(source) > _like(0.5 + _TIE, source), te.ceil(source), te.floor(source)
    ),
    "round_prefer_ceil": lambda source, scale: tirx.Select(
        source - te.floor(source) < _like(0.5 - _TIE, source), te.floor(source), te.ceil(source)
    ),
    "simple": lambda source, scale: tirx.Select(
        scale < _like(1, scale), te.ceil(source), te.floor(source)
    ),
}
"""Functions from a coordinate to an index; ONNX Runtime uses "simple" for Upsample and opset 10."""


def _cubic_weights(t: tirx.Expr, a: float) -> list[tirx.Expr]:
    """The weights of four adjacent elements for a coordinate `t` past the second one.

    Keys, "Cubic convolution interpolation for digital image processing" (1981), with the
    coefficient `a`.
    """
    one, a_plus_2, a_plus_3 = (_like(number, t) for number in (1, a + 2, a + 3))
    a1, a5, a8, a4 = (_like(number * a, t) for number in (1, 5, 8, 4))
    near = lambda d: ((a_plus_2 * d - a_plus_3) * d) * d + one  # noqa: E731
    far = lambda d: ((a1 * d - a5) * d + a8) * d - a4  # noqa: E731
    return [far(t + one), near(t), near(one - t), far(one - t + one)]


def resize_axis(
    data: te.Tensor, axis: int, count: Extent, factor: tirx.Expr, method: Method
) -> te.Tensor:
    """Resize one axis of `data` to `count` elements.

    Parameters
    ----------
    data : te.Tensor
    axis : int
    count : int or tirx.Expr
        The new extent.
    factor : tirx.Expr
        The scale: an output index divided by it is a coordinate of the data.  Coordinates are
        computed in its dtype.
    method : Method
    """
    extent = data.shape[axis]
    dtype, coordinate_dtype = str(data.dtype), str(factor.ty)

    def compute(*indices: tirx.Var) -> tirx.Expr:
        def element_at(index: tirx.Expr) -> tirx.Expr:
            clamped = te.max(te.min(index, extent - 1), 0)
            return data(*indices[:axis], clamped, *indices[axis + 1 :])

        i = indices[axis].astype(coordinate_dtype)
        source = COORDINATES[method.coordinates](i, extent, count, factor)
        if method.mode == "nearest":
            return element_at(ROUNDINGS[method.rounding](source, factor).astype("int64"))
        if method.mode == "linear":
            source = te.max(te.min(source, _like(extent - 1, source)), _like(0, source))
        low = te.floor(source)
        t = source - low
        low = low.astype("int64")
        if method.mode == "linear":
            t = t.astype(dtype)
            return element_at(low) * (tirx.const(1, dtype) - t) + element_at(low + 1) * t
        weights = _cubic_weights(t, method.cubic_coeff_a)
        if method.exclude_outside:
            inside = [tirx.all(low + k >= 0, low + k < extent) for k in range(-1, 3)]
            weights = [
                tirx.Select(is_inside, weight, _like(0, weight))
                for is_inside, weight in zip(inside, weights, strict=True)
            ]
            total = weights[0] + weights[1] + weights[2] + weights[3]
            weights = [weight / total for weight in weights]
        return sum(
            (element_at(low + k) * weight.astype(dtype) for k, weight in enumerate(weights, -1)),
            tirx.const(0, dtype),
        )

    shape = [*data.shape[:axis], count, *data.shape[axis + 1 :]]
    return te.compute(shape, compute)
