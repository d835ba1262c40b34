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
"""Resize and Upsample.

Trigger
    Scales that give fractional extents, e.g. 1.5 for extent 5; scales of the batch or channel
    axis; the attributes ``axes``, ``antialias`` and ``keep_aspect_ratio_policy``; ``align_corners``
    to one element; opset 10 and older; integers; sizes that are computed from dims or are inputs.
Mechanism
    The converter converts scales to extents and drops the scales, but ONNX Runtime divides
    coordinates by the given scale. It reads only the attributes and operands of opset 13. TVM's
    operator computes in float32, and finds the nearest element differently from Upsample.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ....fixes.onnx_importer import RESIZE
from ....relax.legalize.resize import repeats
from ....support import switches
from ....tirx.util import factor_of
from ...axis_resize import COORDINATES, ROUNDINGS, Method, as_float, resize_axis
from ...dtypes import dtype_of
from ...extents import expression
from ..call import Call, Extent, converts, extents_of
from .shape_operands import (
    extents_or_symbols,
    require_all,
    shaped,
    symbols,
    to_shape_tensor,
)

_POLICIES = {"stretch": None, "not_larger": min, "not_smaller": max}


@dataclass(frozen=True)
class _Axis:
    """An axis to resize; `count` is its new extent, and a `scale` of None means count / extent.

    If the scales are known only at run time, `place` is the position of the scale among them.
    """

    index: int
    extent: Extent
    count: Extent
    scale: float | None
    place: int | None = None

    @property
    def grows(self) -> bool:
        """Whether the axis is known not to become smaller."""
        if self.place is not None:
            return False
        if self.scale is not None:
            return self.scale >= 1
        return (
            isinstance(self.extent, int)
            and isinstance(self.count, int)
            and (self.count >= self.extent)
        )

    @property
    def is_ratio(self) -> bool:
        """Whether the scale equals the ratio of the extents."""
        if self.scale is None:
            return True
        if isinstance(self.extent, int):
            return float(np.float32(self.scale) * np.float32(self.extent)).is_integer()
        return self.scale.is_integer()


def _method_of(call: Call) -> Method:
    old = call.operator == "Upsample" or call.version < 11
    mode = call.text("mode", "nearest")
    coordinates = call.text("coordinate_transformation_mode", "half_pixel")
    rounding = call.text("nearest_mode", "round_prefer_floor")
    if old:
        coordinates, rounding = "asymmetric", "simple"
        mode = "linear" if mode == "bilinear" else mode
    for attribute, value, known in (
        ("mode", mode, ("nearest", "linear", "cubic")),
        ("coordinate_transformation_mode", coordinates, (*COORDINATES, "tf_crop_and_resize")),
        ("nearest_mode", rounding, tuple(ROUNDINGS)),
    ):
        if value not in known:
            reason = f"expected one of {', '.join(known)}"
            raise call.invalid(f"attribute {attribute}", value, reason)
    rounds_up = coordinates == "tf_half_pixel_for_nn" and rounding.startswith("round")
    if mode == "nearest" and (coordinates == "half_pixel_symmetric" or rounds_up):
        # Ties are common here, and ONNX Runtime does not document how it rounds them.
        reason = f"not supported with mode nearest and nearest_mode {rounding}"
        raise call.invalid("attribute coordinate_transformation_mode", coordinates, reason)
    return Method(
        mode=mode,
        coordinates=coordinates,
        rounding=rounding,
        cubic_coeff_a=call.attributes.get("cubic_coeff_a", -0.75),
        exclude_outside=bool(call.attributes.get("exclude_outside", 0)),
    )


@converts("Resize", "Upsample", fix=RESIZE)
def convert_resize(call: Call) -> relax.Expr:
    """Convert a Resize or Upsample; axis by axis if TVM's operator computes something else.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute has an unknown value; if scales and sizes are both given or both missing, or
        their number is not that of the axes; or if ``antialias`` is set and an axis may become
        smaller.
    """
    data = call.operands[0]
    method = _method_of(call)
    if method.coordinates == "tf_crop_and_resize":
        return call.proceed()
    extents = extents_of(data)
    if extents is None:
        raise call.invalid("type of X", data.ty, "expected a tensor of known rank")
    axes = _axes(call, extents)
    if call.attributes.get("antialias", 0) and not all(axis.grows for axis in axes):
        raise call.invalid("attribute antialias", 1, "expected 0 if an axis may become smaller")
    if not axes:
        switches.note(RESIZE)
        return data
    sizes = call.value(3)
    # TVM's converter requires all sizes to be static, even the size of an unchanged batch axis.
    if _is_supported_by_tvm(call, method, axes, extents) and (sizes is None or sizes.is_static):
        return call.proceed()

    switches.note(RESIZE)
    factors = [_factor(axis, method) for axis in axes]
    if None not in factors:
        for axis, factor in zip(axes, factors, strict=True):
            data = call.builder.emit(relax.op.repeat(data, factor, axis.index))
        return data

    computed = [call.operand(_scales_index(call))] if axes[0].place is not None else []

    def resize(tensor: te.Tensor, *operands: Any) -> te.Tensor:
        scales, counts = operands[: len(computed)], operands[len(computed) :]
        dtype = str(tensor.dtype)
        if method.mode != "nearest" and dtype not in ("float32", "float64"):
            tensor = topi.cast(tensor, "float32")
        pairs = [(tensor.shape[a.index], expression(c)) for a, c in zip(axes, counts, strict=True)]
        same = tirx.all(*(tirx.EQ(extent, count) for extent, count in pairs))
        for axis, count in zip(axes, counts, strict=True):
            place = (tensor, axis.index, count)
            if scales:
                tensor = _resize_unless(same, *place, scales[0](axis.place), method)
                continue
            ratio = as_float(count) / as_float(tensor.shape[axis.index])
            scale = ratio if axis.scale is None else as_float(axis.scale)
            tensor = resize_axis(*place, scale, method)
        return topi.cast(tensor, dtype)

    return call.builder.emit_te(resize, data, *computed, *(axis.count for axis in axes))


def _factor(axis: _Axis, method: Method) -> int | None:
    """The number of times that each element of an axis repeats; None if it varies."""
    # "simple" rounds down if the axis grows.
    rounding = "floor" if method.rounding == "simple" else method.rounding
    if method.mode != "nearest" or not repeats(method.coordinates, rounding):
        return None
    if axis.place is not None:
        return None
    count, extent = (
        tirx.const(value, "int64") if isinstance(value, int) else value
        for value in (axis.count, axis.extent)
    )
    factor = factor_of(count, extent)
    return factor if axis.scale in (None, factor) else None


def _axes(call: Call, extents: list[Extent]) -> list[_Axis]:
    """The axes whose extent changes, or may change."""
    index = _scales_index(call)
    if call.operand(index) is not None and call.constant(index) is None:
        return _computed_axes(call, extents)
    if call.operator == "Upsample" or call.version < 11:
        given = call.attributes.get("scales")
        scales = list(_numbers(call, 1, "scales") or []) if given is None else list(given)
        sizes: list[Extent] = []
    else:
        scales = _numbers(call, 2, "scales")
        sizes = [] if call.operand(3) is None else extents_or_symbols(call, 3, "sizes")
    if bool(scales) == bool(sizes):
        raise call.invalid(
            "operands scales and sizes", (scales, sizes), "expected exactly one of them"
        )
    axes = [axis % len(extents) for axis in call.attributes.get("axes", range(len(extents)))]
    if len(scales or sizes) != len(axes):
        reason = f"expected {len(axes)} elements, one per axis"
        raise call.invalid("operand scales or sizes", scales or sizes, reason)

    if scales:
        resized = [
            _Axis(axis, extents[axis], _scaled(extents[axis], scale), float(np.float32(scale)))
            for axis, scale in zip(axes, scales, strict=True)
        ]
        return _changed(call, resized)
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy not in _POLICIES:
        reason = f"expected one of {', '.join(_POLICIES)}"
        raise call.invalid("attribute keep_aspect_ratio_policy", policy, reason)
    resized = [
        _Axis(axis, extents[axis], count, None) for axis, count in zip(axes, sizes, strict=True)
    ]
    choose = _POLICIES[policy]
    if choose is not None:
        if not all(isinstance(a.count, int) and isinstance(a.extent, int) for a in resized):
            reason = "expected static extents or stretch"
            raise call.invalid("attribute keep_aspect_ratio_policy", policy, reason)
        scale = choose(np.float32(axis.count) / np.float32(axis.extent) for axis in resized)
        resized = [
            _Axis(a.index, a.extent, int(np.floor(scale * a.extent + 0.5)), float(scale))
            for a in resized
        ]
    return _changed(call, resized)


def _changed(call: Call, axes: list[_Axis]) -> list[_Axis]:
    """The axes whose elements change.

    As in ONNX Runtime, an axis that keeps its extent, but not with a scale of 1, is interpolated if
    the extent of another axis changes.
    """
    same = [call.known.equal(axis.count, axis.extent) is True for axis in axes]
    if all(same):
        return []
    return [
        axis
        for axis, is_same in zip(axes, same, strict=True)
        if not is_same or axis.scale not in (None, 1)
    ]


def _scales_index(call: Call) -> int:
    return 1 if call.operator == "Upsample" or call.version < 11 else 2


def _computed_axes(call: Call, extents: list[Extent]) -> list[_Axis]:
    """The axes of a node whose scales are known only at run time."""
    scales, shape = shaped(call, _scales_index(call), "scales")
    axes = [axis % len(extents) for axis in call.attributes.get("axes", range(len(extents)))]
    if len(shape) != 1 or shape[0] != len(axes) or call.operand(3) is not None:
        reason = f"expected {len(axes)} elements, one per axis, and no sizes"
        raise call.invalid("shape of scales", shape, reason)
    require_all(call, relax.op.greater(scales, relax.const(0, "float32")))
    given = to_shape_tensor(call, [extents[axis] for axis in axes])
    wide = call.emit(relax.op.astype(given, "float32"))
    scaled = call.emit(relax.op.floor(call.emit(relax.op.multiply(wide, scales))))
    counts = symbols(call, call.emit(relax.op.astype(scaled, "int64")), "count")
    return [
        _Axis(axis, extents[axis], count, None, place)
        for place, (axis, count) in enumerate(zip(axes, counts, strict=True))
    ]


def _numbers(call: Call, index: int, name: str) -> list[Any]:
    """The elements of a constant operand; [] if it is omitted or empty."""
    operand = call.operand(index)
    if operand is None:
        return []
    value = call.constant(index)
    if value is None:
        raise call.invalid(f"operand {name}", operand, "expected a constant")
    return value.ravel().tolist()


def _scaled(extent: Extent, scale: float) -> Extent:
    """``floor(extent * scale)``, computed in float32 as in ONNX Runtime."""
    factor = np.float32(scale)
    if isinstance(extent, int):
        return int(np.floor(factor * np.float32(extent)))
    if float(factor).is_integer():
        return extent * int(factor)
    # The cast rounds down.  A call of floor would prevent fusion of an operator with this shape.
    return (extent.astype("float32") * tirx.const(factor, "float32")).astype("int64")


def _is_supported_by_tvm(
    call: Call, method: Method, axes: list[_Axis], extents: list[Extent]
) -> bool:
    """Whether TVM's converter and operator compute the correct result."""
    counts = dict(enumerate(extents)) | {axis.index: axis.count for axis in axes}
    divides = method.coordinates == "align_corners" and not all(
        isinstance(count, int) and count > 1 for index, count in counts.items() if index >= 2
    )
    return (
        not divides
        and call.operator == "Resize"
        and call.version >= 11
        and len(extents) in (3, 4, 5)
        and "axes" not in call.attributes
        and call.text("keep_aspect_ratio_policy", "stretch") == "stretch"
        and dtype_of(call.operands[0]) in ("float32", "float16", "bfloat16", "uint8", "int8")
        and method.coordinates != "half_pixel_symmetric"
        and (method.mode != "nearest" or _is_exact(method))
        # An empty operand counts as omitted, but TVM would use it instead of the other one.
        and (call.operand(2) is None or call.operand(3) is None)
        and all(axis.index >= 2 and axis.is_ratio for axis in axes)
        # TVM computes symbolic extents in float32, and kernels that read them may not build.
        and all(isinstance(count, int) for index, count in counts.items() if index >= 2)
    )


def _is_exact(method: Method) -> bool:
    """Whether TVM's operator, which shifts coordinates by 1e-5, rounds all ties correctly."""
    return (
        method.coordinates in ("asymmetric", "align_corners")
        or method.rounding == "round_prefer_ceil"
    )


def _resize_unless(
    same: tirx.Expr,
    data: te.Tensor,
    axis: int,
    count: Extent,
    scale: tirx.Expr,
    method: Method,
) -> te.Tensor:
    """Resize one axis of `data`, unless the scale is 1 or the shape stays the `same`."""
    resized = resize_axis(data, axis, count, scale, method)
    is_copy = tirx.any(same, tirx.EQ(scale, as_float(1)))

    def unless_copied(*at: tirx.Var) -> tirx.Expr:
        return tirx.if_then_else(is_copy, data(*at), resized(*at))

    return te.compute(resized.shape, unless_copied)
