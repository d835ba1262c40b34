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
"""Lowering of resizing: exact for all dtypes, and fast if it only repeats elements.

Trigger
    ``relax.image.resize2d`` or ``resize3d`` of float64, of integers, with an ``out_dtype``, between
    symbolic extents, or to one element with aligned corners; ``resize3d`` of a region, or with
    ``cubic_exclude``; nearest-neighbor resizing by integer factors, as in the decoders of U-Nets.
Mechanism
    TVM's lowering reads the data as float32, at coordinates that it computes for each element.
    Its analysis of bounds multiplies intervals as if they held integers.  In three dimensions it
    swaps the bounds of a region, and the weights of cubic sums, between axes.
"""

import functools
import operator
from collections.abc import Sequence

import tvm
from tvm import relax, te, tirx
from tvm.topi.image.resize import _cubic_spline_weights, get_closest_index

from ...fixes.elements import RESIZE_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import factor_of
from ..layouts import SPATIAL_AXES, Layout
from .indices import read
from .override import Legalize, legalizes

# The dtypes whose values float32 represents exactly.
_NARROW = ("float32", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "bool")

# The modes that repeat each element ``factor`` times. The coordinate of ``i`` is ``i / factor``, or
# half an element more, and its floor is ``i // factor``; or it rounds to ``i // factor``.
_REPEATS = {
    "asymmetric": ("floor",),
    "tf_half_pixel_for_nn": ("floor",),
    "half_pixel": ("round", "round_prefer_floor", "round_prefer_ceil"),
    "pytorch_half_pixel": ("round", "round_prefer_floor", "round_prefer_ceil"),
}


def repeats(coordinates: str, rounding: str) -> bool:
    """Whether an axis that grows by an integer repeats each of its elements.

    Parameters
    ----------
    coordinates, rounding : str
        As ``coordinate_transformation_mode`` and ``rounding_method`` of ``relax.image.resize2d``.
    """
    return rounding in _REPEATS.get(coordinates, ())


def repeat(data: te.Tensor, factors: Sequence[int]) -> te.Tensor:
    """Repeat each element along each axis.

    Parameters
    ----------
    data : te.Tensor
        Data of any dtype.
    factors : sequence of int
        The number of repetitions for each axis.

    Returns
    -------
    te.Tensor
        The result; each extent is multiplied by its factor.
    """

    def element(*index: tirx.Var) -> tirx.Expr:
        pairs = zip(index, factors, strict=True)
        return data(*(i if factor == 1 else tirx.floordiv(i, factor) for i, factor in pairs))

    shape = [extent * factor for extent, factor in zip(data.shape, factors, strict=True)]
    return te.compute(shape, element, name="resize")


def _factors(call: relax.Call) -> list[int] | None:
    """The repetitions of each element along each axis; None for any other resizing."""
    data, attrs = call.args[0], call.attrs
    shapes = (data.ty.shape, call.ty.shape)
    is_repetition = (
        str(attrs.method) == "nearest_neighbor"
        and repeats(str(attrs.coordinate_transformation_mode), str(attrs.rounding_method))
        and str(call.ty.dtype) == str(data.ty.dtype)
        and all(isinstance(shape, relax.ShapeExpr) for shape in shapes)
    )
    if not is_repetition:
        return None
    factors: list[int] = []
    for letter, extent, out in zip(Layout(str(attrs.layout)).letters, *shapes, strict=True):
        factor = factor_of(out, extent) if letter in SPATIAL_AXES[3] else 1
        if factor is None:
            return None
        factors.append(factor)
    return factors


def _needs_fix(call: relax.Call) -> bool:
    """Whether TVM's lowering of a resizing is wrong, or raises."""
    data, attrs = call.args[0], call.attrs
    shapes = (data.ty.shape, call.ty.shape)
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return False
    letters = Layout(str(attrs.layout)).letters
    if any(len(shape.values) != len(letters) for shape in shapes):
        return False
    pairs = zip(letters, *(shape.values for shape in shapes), strict=True)
    spatial = [pair for letter, *pair in pairs if letter in SPATIAL_AXES[3]]
    is_static = all(isinstance(extent, tirx.IntImm) for pair in spatial for extent in pair)
    mode, dtypes = (
        str(attrs.coordinate_transformation_mode),
        {str(t.ty.dtype) for t in (data, call)},
    )
    is_swapped = len(spatial) == 3 and (mode == "tf_crop_and_resize" or attrs.cubic_exclude)
    return (
        not is_static
        or is_swapped
        or len(dtypes) > 1
        or not dtypes <= {"float32", "float16", "bfloat16"}
        or (mode == "align_corners" and any(out.value == 1 for _, out in spatial))
    )


def _coordinate(
    index: tirx.Expr,
    extent: tirx.Expr,
    out: tirx.Expr,
    mode: str,
    region: Sequence[float],
    dtype: str,
) -> tirx.Expr:
    """The coordinate in the data, along an axis, of the element `index` of the result."""
    zero, half = (tirx.const(value, dtype) for value in (0, 0.5))
    # TVM's analysis of bounds raises for a product of two floats; a trunc hides the product.
    at = tirx.trunc(index.astype(dtype))
    scale = extent.astype(dtype) / out.astype(dtype)
    last, steps = (extent - 1).astype(dtype), tirx.max(out - 1, 1).astype(dtype)
    if mode == "asymmetric":
        return scale * at
    if mode == "align_corners":
        return last / steps * at
    if mode == "tf_half_pixel_for_nn":
        return (at + half) * scale
    if mode == "tf_crop_and_resize":
        start, end = (tirx.const(value, dtype) for value in region)
        inside = start * last + at * (end - start) * last / steps
        return tirx.Select(out > 1, inside, half * (start + end) * last)
    centered = (at + half) * scale - half
    return tirx.Select(out > 1, centered, zero) if mode == "pytorch_half_pixel" else centered


def _taps(
    place: tirx.Expr, extent: tirx.Expr, attrs: tvm.ir.Attrs
) -> list[tuple[tirx.Expr, tirx.Expr | None]]:
    """The data elements and weights that an element of the result sums along an axis."""
    method = str(attrs.method).lower()
    if method == "nearest_neighbor":
        aligned = str(attrs.coordinate_transformation_mode) == "align_corners"
        rounding = str(attrs.rounding_method) or ("round" if aligned else "floor")
        return [(get_closest_index(place, rounding, None).astype("int64"), None)]
    first = tirx.floor(place)
    part, index = place - first, first.astype("int64")
    one, zero = (tirx.const(value, part.ty.dtype) for value in (1, 0))
    if method == "linear":
        return [(index, one - part), (index + 1, part)]
    indices = [index + offset for offset in (-1, 0, 1, 2)]
    weights = _cubic_spline_weights(part, tirx.const(float(attrs.cubic_alpha), part.ty.dtype))
    if attrs.cubic_exclude:
        weights = [
            tirx.Select(tirx.all(at >= 0, at < extent), weight, zero)
            for at, weight in zip(indices, weights, strict=True)
        ]
    return list(zip(indices, weights, strict=True))


def _blend(
    data: te.Tensor,
    position: list[tirx.Expr],
    taps: dict[int, list[tuple[tirx.Expr, tirx.Expr | None]]],
    axes: Sequence[int],
    sum_dtype: str,
) -> tirx.Expr:
    """The weighted sum of the elements at `taps` along `axes`."""
    if not axes:
        value = read(data, position, list(taps))
        is_sum = any(len(own) > 1 for own in taps.values())
        return value.astype(sum_dtype) if is_sum else value
    axis, *inner = axes
    terms = []
    for index, factor in taps[axis]:
        clamped = tirx.max(tirx.min(index, data.shape[axis] - 1), tirx.const(0, "int64"))
        there = [*position[:axis], clamped, *position[axis + 1 :]]
        term = _blend(data, there, taps, inner, sum_dtype)
        terms.append(term if factor is None else term * factor)
    return sum(terms[1:], terms[0])


def _resize(
    data: te.Tensor, shape: Sequence[tirx.Expr], attrs: tvm.ir.Attrs, dtype: str
) -> te.Tensor:
    """Resize with coordinates and sums in a dtype that represents the data exactly."""
    sum_dtype = "float32" if str(data.dtype) in _NARROW else "float64"
    mode, letters = str(attrs.coordinate_transformation_mode), Layout(str(attrs.layout)).letters
    axes = [axis for axis, letter in enumerate(letters) if letter in SPATIAL_AXES[3]]
    roi = [float(bound) for bound in attrs.roi] or [0.0] * (2 * len(axes))

    def element(*position: tirx.Var) -> tirx.Expr:
        places = {
            axis: _coordinate(
                position[axis], data.shape[axis], shape[axis], mode, region, sum_dtype
            )
            for axis, *region in zip(axes, roi[: len(axes)], roi[len(axes) :], strict=True)
        }
        taps = {axis: _taps(place, data.shape[axis], attrs) for axis, place in places.items()}
        value = _blend(data, list(position), taps, axes, sum_dtype)
        if attrs.cubic_exclude and str(attrs.method).lower() == "cubic":
            # Divide the sum once, not each of its up to 64 terms.
            for own in taps.values():
                value = value / functools.reduce(operator.add, (factor for _, factor in own))
        if mode == "tf_crop_and_resize":
            zero = tirx.const(0, sum_dtype)
            outside = [
                tirx.any(place < zero, place > (data.shape[axis] - 1).astype(sum_dtype))
                for axis, place in places.items()
            ]
            fill = tirx.const(float(attrs.extrapolation_value), value.ty.dtype)
            value = tirx.Select(tirx.any(*outside), fill, value)
        return value.astype(dtype)

    return te.compute(shape, element, name="resize")


@legalizes(*(f"relax.image.resize{rank}d" for rank in (2, 3)))
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    factors = _factors(call) if switches.enabled(FIX_ID) else None
    if factors is not None:
        switches.note(FIX_ID)
        return bb.call_te(repeat, call.args[0], factors, primfunc_name_hint="resize")
    if not switches.enabled(FIX_ID) or not _needs_fix(call):
        return stock(bb, call)
    switches.note(FIX_ID)
    dtype = str(call.ty.dtype)
    data, shape = call.args[0], call.ty.shape
    return bb.call_te(_resize, data, shape, call.attrs, dtype, primfunc_name_hint="resize")
