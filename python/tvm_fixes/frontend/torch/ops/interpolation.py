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
"""Interpolation with PyTorch's semantics.

Mechanism
    Nearest elements are found by rounding half-pixel coordinates; scale factors and antialiasing
    are dropped.

TVM's ``resize2d`` and ``resize3d`` use the ratio of the extents as the scale, compute in float32,
and round coordinates with a tolerance.  The importer emits them if PyTorch computes the same.
Otherwise (1-D data, float64, a scale factor other than the ratio, antialiasing, ...), it gathers
one axis at a time with the positions and weights of PyTorch's own kernel. It derives them from the
kernel's results for unit vectors.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tvm import relax, te, tirx

from ....errors import OpAttributeInvalid
from ....fixes.torch_importer import INTERPOLATE as FIX_ID
from ....support import switches
from ....tirx.util import factor_of
from ...axis_resize import Method, as_float, resize_axis
from ...dtypes import accumulation_dtype, dtype_of
from ..call import Call, converts

__all__ = ["INTERPOLATIONS"]

# ATen's interpolation operators, and the mode of ``torch.nn.functional.interpolate`` for each.
_NEAREST = {
    f"{prefix}{rank}d": mode
    for prefix, mode in (
        ("upsample_nearest", "nearest"),
        ("_upsample_nearest_exact", "nearest-exact"),
    )
    for rank in (1, 2, 3)
}
_WEIGHTED = {
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "bilinear",
    "upsample_trilinear3d": "trilinear",
    "upsample_bicubic2d": "bicubic",
    "_upsample_bilinear2d_aa": "bilinear",
    "_upsample_bicubic2d_aa": "bicubic",
}

INTERPOLATIONS = (*_NEAREST, *_WEIGHTED)
"""The operators of interpolation, whose overload ``vec`` has a converter here."""

# TVM's name of the method for each of PyTorch's modes.
_METHODS = {
    "nearest": "nearest_neighbor",
    "nearest-exact": "nearest_neighbor",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}
# Dtypes whose values are all exact in float32, in which TVM resizes.
_IN_FLOAT32 = ("float16", "bfloat16", "float32", "int8", "uint8", "int16", "uint16")

# An integer, or an expression of symbols.
Extent = Any


@dataclass(frozen=True)
class _Interpolation:
    """The arguments of an interpolation besides the data.

    Attributes
    ----------
    origin : str
        The name of the node, for messages.
    size, scale_factor : list, optional
        One of them, with one element per spatial axis.  Elements of `size` may be symbolic.
    mode : str
        A mode of ``torch.nn.functional.interpolate``.
    align_corners : bool or None
    antialias : bool
    """

    origin: str
    size: list[Any] | None
    scale_factor: list[float] | None
    mode: str
    align_corners: bool | None
    antialias: bool

    @property
    def is_nearest(self) -> bool:
        return self.mode.startswith("nearest")

    def invalid(self, attribute: str, reason: str) -> OpAttributeInvalid:
        """Return the error for an attribute that can't be imported."""
        return OpAttributeInvalid(
            f"interpolate {self.origin!r}: attribute {attribute} is {getattr(self, attribute)!r}; "
            f"{reason}"
        )


@dataclass(frozen=True)
class _Axis:
    """A spatial axis: its position in the data, its extents, and PyTorch's scale factor, if any."""

    position: int
    extent: Extent
    out: Extent
    scale_factor: float | None

    @property
    def is_static(self) -> bool:
        return isinstance(self.extent, int) and isinstance(self.out, int)

    @property
    def shrinkage(self) -> Fraction | None:
        """``extent / out``, or None if it is symbolic."""
        if isinstance(self.extent, int) and isinstance(self.out, int):
            return Fraction(self.extent, self.out)
        factor = factor_of(self.out, self.extent)
        return None if factor is None else Fraction(1, factor)


def _extent(value: Any) -> Extent:
    return int(value) if isinstance(value, int | tirx.IntImm) else value


def _spatial_axes(arguments: _Interpolation, x: relax.Expr, layout: str) -> list[_Axis]:
    """Return the spatial axes of `x`, in their order.

    Without a size, the output has ``floor(extent * scale_factor)`` elements.
    """
    positions = [position for position, axis in enumerate(layout) if axis in "DHW"]
    extents = [_extent(x.ty.shape[position]) for position in positions]
    if arguments.size is not None:
        return [
            _Axis(position, extent, _extent(size), None)
            for position, extent, size in zip(positions, extents, arguments.size, strict=True)
        ]
    factors = arguments.scale_factor or []
    axes = []
    for position, extent, factor in zip(positions, extents, factors, strict=True):
        if isinstance(extent, int):
            out = int(np.floor(extent * float(factor)))
        elif factor == int(factor):
            out = extent * int(factor)
        else:
            # The cast rounds down.  A call of floor would prevent fusion.
            product = extent.astype("float64") * tirx.const(float(factor), "float64")
            out = product.astype("int64")
        axes.append(_Axis(position, extent, out, float(factor)))
    return axes


def _tvm_resizes_equally(arguments: _Interpolation, axis: _Axis, dtype: str) -> bool:
    """Whether TVM's resize takes the same elements of an axis with the same weights as PyTorch."""
    if arguments.antialias or dtype not in _IN_FLOAT32:
        return False
    shrinkage = axis.shrinkage
    if arguments.align_corners:
        # TVM divides by out - 1.
        return axis.out > 1 if axis.is_static else shrinkage is not None and shrinkage < 1
    if axis.scale_factor is not None and shrinkage != 1 / Fraction(axis.scale_factor):
        return False
    if arguments.is_nearest:
        # If the scale is a binary fraction, a coordinate is exact, and so is its floor.
        return shrinkage is not None and shrinkage.denominator.bit_count() == 1
    return True


def _resize(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    axes: Sequence[_Axis],
    arguments: _Interpolation,
    layout: str,
) -> relax.Var:
    attributes = {"layout": layout, "method": _METHODS[arguments.mode]}
    if arguments.is_nearest:
        exact = arguments.mode == "nearest-exact"
        coordinates = "tf_half_pixel_for_nn" if exact else "asymmetric"
        attributes["rounding_method"] = "floor"
    else:
        coordinates = "align_corners" if arguments.align_corners else "half_pixel"
    operator = relax.op.image.resize2d if len(axes) == 2 else relax.op.image.resize3d
    return builder.emit(
        operator(
            x,
            tuple(axis.out for axis in axes),
            coordinate_transformation_mode=coordinates,
            **attributes,
        )
    )


@functools.lru_cache(maxsize=64)
def _taps(
    rank: int,
    extent: int,
    out: int,
    scale_factor: float | None,
    mode: str,
    align_corners: bool | None,
    antialias: bool,
    double: bool,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the input positions and weights that PyTorch uses for the elements of an output axis.

    Returns
    -------
    positions : np.ndarray
        int64, ``(taps, out)``, or ``(out,)`` for a single tap of weight 1.
    weights : np.ndarray or None
        ``(taps, out)``; None for a weight of 1.
    """
    # PyTorch's coordinates depend on the dtype.
    dtype = torch.float64 if double else torch.float32
    if mode.startswith("nearest"):
        # PyTorch's kernel for two spatial axes rounds coordinates differently: keep the rank.
        others = (1,) * (rank - 1)
        options: dict[str, Any] = {"mode": mode}
        if scale_factor is None:
            options["size"] = (*others, out)
        else:
            options["scale_factor"] = (*map(float, others), scale_factor)
        elements = torch.arange(extent, dtype=dtype).reshape(1, 1, *others, extent)
        return F.interpolate(elements, **options).flatten().long().numpy(), None

    options = {"mode": "bicubic" if mode == "bicubic" else "bilinear"}
    if scale_factor is None:
        options["size"] = (1, out)
    else:
        options["scale_factor"] = (1.0, scale_factor)
    # Interpolate the last axis: along the one before, PyTorch antialiases a single column wrongly.
    unit_vectors = torch.eye(extent, dtype=dtype)[None, :, None, :]
    matrix = F.interpolate(
        unit_vectors, align_corners=bool(align_corners), antialias=antialias, **options
    )[0, :, 0, :].numpy()
    taps = max(int(np.count_nonzero(matrix, axis=0).max()), 1)
    # A stable sort keeps the positions in ascending order.
    positions = np.argsort(matrix == 0, axis=0, kind="stable")[:taps]
    weights = np.take_along_axis(matrix, positions, axis=0)
    # An unused tap repeats the first position, because 0 * inf of another element would be NaN.
    return np.where(weights == 0, positions[0], positions), weights


def _nearest_positions(
    builder: relax.BlockBuilder, axis: _Axis, arguments: _Interpolation
) -> relax.Expr:
    """The input positions of a symbolic output axis.

    As in PyTorch, the product of a position, or its center, and the ratio of the extents is
    computed in float32 and rounded down.
    """
    emit = builder.emit
    if axis.scale_factor is None:
        shape = emit(relax.op.shape_to_tensor(relax.ShapeExpr([axis.extent, axis.out])))
        extents = emit(relax.op.split(emit(relax.op.astype(shape, "float32")), 2))
        scale = emit(relax.op.divide(extents[0], extents[1]))
    else:
        scale = relax.const(np.float32(1 / axis.scale_factor))
    places = emit(relax.op.astype(emit(relax.op.arange(0, axis.out, 1, "int64")), "float32"))
    if arguments.mode == "nearest-exact":
        places = emit(relax.op.add(places, relax.const(np.float32(0.5))))
    positions = emit(relax.op.floor(emit(relax.op.multiply(places, scale))))
    return emit(relax.op.astype(positions, "int64"))


def _resized_axis(
    builder: relax.BlockBuilder, x: relax.Expr, axis: _Axis, arguments: _Interpolation
) -> relax.Expr:
    """Interpolate one axis of symbolic extents of `x`, with weights of the dtype of `x`."""
    dtype = dtype_of(x)
    method = Method(
        mode="cubic" if arguments.mode == "bicubic" else "linear",
        coordinates="align_corners" if arguments.align_corners else "half_pixel",
        rounding="floor",
        cubic_coeff_a=-0.75,
        exclude_outside=False,
    )

    def resize(data: te.Tensor, count: Extent) -> te.Tensor:
        if axis.scale_factor is None:
            scale = as_float(count, dtype) / as_float(data.shape[axis.position], dtype)
        else:
            scale = tirx.const(axis.scale_factor, dtype)
        return resize_axis(data, axis.position, count, scale, method)

    if isinstance(axis.out, int):
        return builder.emit_te(lambda data: resize(data, axis.out), x, primfunc_name_hint="resize")
    return builder.emit_te(resize, x, axis.out, primfunc_name_hint="resize")


def _gather(
    builder: relax.BlockBuilder, x: relax.Expr, axis: _Axis, arguments: _Interpolation
) -> relax.Expr:
    """Interpolate one axis of `x` with weights of the dtype of `x`."""
    # For float64, PyTorch's kernels round differently from each other.
    if arguments.is_nearest and not axis.is_static and dtype_of(x) != "float64":
        positions = _nearest_positions(builder, axis, arguments)
        return builder.emit(relax.op.take(x, positions, axis.position, mode="clip"))
    if not axis.is_static and not arguments.antialias and not arguments.is_nearest:
        return _resized_axis(builder, x, axis, arguments)
    if not axis.is_static:
        raise arguments.invalid(
            "size" if arguments.scale_factor is None else "scale_factor",
            f"expected static extents, because TVM's resize differs from PyTorch's mode "
            f"{arguments.mode!r}; axis {axis.position} has {axis.extent} in the input and "
            f"{axis.out} in the output",
        )
    dtype = dtype_of(x)
    positions, weights = _taps(
        x.ty.ndim - 2,
        axis.extent,
        axis.out,
        axis.scale_factor,
        arguments.mode,
        arguments.align_corners,
        arguments.antialias,
        dtype == "float64",
    )
    emit = builder.emit
    times = axis.out // axis.extent
    if weights is None and np.array_equal(positions, np.arange(axis.extent).repeat(times)):
        return emit(relax.op.repeat(x, times, axis.position))
    # TVM warns about the default mode, which does not check the positions.
    taken = emit(relax.op.take(x, relax.const(positions, "int64"), axis.position, mode="clip"))
    if weights is None:
        return taken
    # The axis became two axes: the taps and the output elements.
    after = x.ty.ndim - axis.position - 1
    weights = weights.reshape(weights.shape + (1,) * after)
    weighted = emit(relax.op.multiply(taken, relax.const(weights, dtype)))
    return emit(relax.op.sum(weighted, axis.position))


@converts(*(f"{name}.vec" for name in INTERPOLATIONS), fix=FIX_ID)
def convert_interpolation(call: Call) -> relax.Expr:
    """Convert an interpolation to an output size, or by scale factors."""
    name = call.operator.removesuffix(".vec")
    x, size, *flags, scale_factors = call.operands
    arguments = _Interpolation(
        call.node.name,
        size=size,
        scale_factor=scale_factors,
        mode=(_NEAREST | _WEIGHTED)[name],
        align_corners=flags[0] if flags else None,
        antialias=name.endswith("_aa"),
    )
    return _interpolate(call.builder, x, arguments)


def _interpolate(
    builder: relax.BlockBuilder, x: relax.Expr, arguments: _Interpolation
) -> relax.Expr:
    """Emit an interpolation.

    Parameters
    ----------
    builder : relax.BlockBuilder
    x : relax.Expr
        ``(N, C, *spatial)``, with 1 to 3 spatial axes.
        Floating-point, or of any dtype for the nearest modes.
    arguments : _Interpolation
        Spatial extents may be symbolic, except in nearest modes
        of float64 and with antialiasing.

    Returns
    -------
    relax.Expr
        In the dtype and layout of `x`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the arguments can't be imported.
    """
    rank = x.ty.ndim - 2
    layout = "NC" + "DHW"[3 - rank :]
    dtype = dtype_of(x)
    if not (arguments.is_nearest or dtype.startswith(("float", "bfloat"))):
        raise arguments.invalid("mode", f"expected floating-point data, got {dtype}")
    axes = _spatial_axes(arguments, x, layout)
    resized = rank > 1 and all(_tvm_resizes_equally(arguments, axis, dtype) for axis in axes)
    if arguments.is_nearest or not resized:
        switches.note(FIX_ID)
    if resized:
        return _resize(builder, x, axes, arguments, layout)

    inner = dtype if arguments.is_nearest else accumulation_dtype(dtype)
    if inner != dtype:
        x = builder.emit(relax.op.astype(x, inner))
    for axis in axes:
        same = axis.scale_factor is None and axis.shrinkage == 1
        if not same:
            x = _gather(builder, x, axis, arguments)
    if inner != dtype:
        x = builder.emit(relax.op.astype(x, dtype))
    return x
