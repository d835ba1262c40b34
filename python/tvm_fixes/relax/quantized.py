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
"""Quantized tensors: integers, zero points and scales."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..support.tensors import array_of
from .constants.make import rearranged
from .ir import tensor_of

NARROW_DTYPES = ("int8", "uint8")
"""The dtypes of integers whose products are summed in int32."""

MAX_DEPTH = (2**31 - 1) // 255**2
"""The maximum number of products of such integers, minus zero points, whose sum fits in int32."""


@dataclass(frozen=True)
class Integers:
    """A tensor whose elements are ``(data - zero) * scale``.

    Attributes
    ----------
    data : relax.Expr
        Integers.
    zero : relax.Expr, optional
        The zero point: a scalar, a vector along `axis`, or a tensor that broadcasts to `data` and
        has its rank.  None for 0.
    scale : relax.Expr, optional
        A float32 scalar, or a vector along `axis`. None if the elements are the integers
        themselves.
    axis : int
    is_constant : bool
        Whether `data` is a constant, or a constant whose elements have been moved.
    largest : int
        An upper bound on the magnitudes in `data`.
    """

    data: relax.Expr
    zero: relax.Expr | None = None
    scale: relax.Expr | None = None
    axis: int = 0
    is_constant: bool = False
    largest: int = 2**31

    @property
    def is_per_tensor(self) -> bool:
        """Whether zero point and scale are scalars."""
        return all(part is None or part.ty.ndim == 0 for part in (self.zero, self.scale))

    @property
    def limit(self) -> int:
        """An upper bound on the magnitudes of ``data - zero``, for 8-bit integers."""
        is_signed = str(self.data.ty.dtype) == "int8"
        return 128 if is_signed and not _has_zero(self.zero) else 255

    def has_parameters(self, scale: relax.Expr, zero: relax.Expr, dtype: str) -> bool:
        """Whether a quantization with these constants has the same integers."""
        if str(self.data.ty.dtype) != dtype:
            return False
        own_zero = np.zeros((), dtype) if self.zero is None else constant(self.zero)
        return _are_equal(constant(self.scale), constant(scale)) and _are_equal(
            own_zero, constant(zero)
        )


def _are_equal(own: np.ndarray | None, other: np.ndarray | None) -> bool:
    return own is not None and other is not None and np.array_equal(own, other)


@dataclass(frozen=True)
class Sums:
    """A float32 tensor whose elements are ``total * scale``, between two bounds.

    Attributes
    ----------
    total : relax.Expr
        Sums of products, in int32.
    scale : relax.Expr
        Has a shape that broadcasts to that of `total`.
    limit : int
        An upper bound on the magnitudes in `total`.
    low, high : float
    """

    total: relax.Expr
    scale: relax.Expr
    limit: int
    low: float = -np.inf
    high: float = np.inf


def constant(expr: relax.Expr | None) -> np.ndarray | None:
    """The array of a constant; None for anything else."""
    tensor = None if expr is None else tensor_of(expr)
    return None if tensor is None else array_of(tensor)


def as_scalar(bb: relax.BlockBuilder, parameter: relax.Expr) -> relax.Expr:
    """A scale or zero point with a single element as a scalar; others are returned unchanged."""
    shape = parameter.ty.shape
    if parameter.ty.ndim == 0 or not isinstance(shape, relax.ShapeExpr):
        return parameter
    if any(str(extent) != "1" for extent in shape.values):
        return parameter
    return reshaped(bb, parameter, [])


def reshaped(bb: relax.BlockBuilder, parameter: relax.Expr, shape: list[int]) -> relax.Expr:
    """A scale or zero point in another shape, at compile time if it is constant."""
    array = constant(parameter)
    if array is not None:
        return relax.const(array.reshape(shape))
    return bb.emit(relax.op.reshape(parameter, shape))


def as_dtype_of(data: relax.Expr, zero: relax.Expr) -> relax.Expr | None:
    """A zero point in the dtype of its data; None if it may not fit in that dtype."""
    dtype = str(data.ty.dtype)
    if str(zero.ty.dtype) == dtype:
        return zero
    array = constant(zero)
    if array is None or "int" not in dtype:
        return None
    float64 = array.astype("float64")
    is_same = fits(float64, dtype) and np.array_equal(float64, np.rint(float64))
    return relax.const(array.astype(dtype)) if is_same else None


def fits(array: np.ndarray, dtype: str) -> bool:
    """Whether all elements are in the range of an integer dtype."""
    limits = np.iinfo(dtype)
    return bool(np.all((array >= limits.min) & (array <= limits.max)))


def along(bb: relax.BlockBuilder, parameter: relax.Expr, axis: int, rank: int) -> relax.Expr:
    """A vector along `axis` of a tensor of `rank`, in a shape that broadcasts.

    A scalar, or a tensor of that rank, is returned unchanged.
    """
    if parameter.ty.ndim in (0, rank):
        return parameter
    shape = [1] * rank
    shape[axis] = int(parameter.ty.shape.values[0])
    return reshaped(bb, parameter, shape)


def without_zero(bb: relax.BlockBuilder, value: Integers) -> relax.Expr:
    """The tensor ``data - zero`` in int8 if its elements are known to fit, and in int16 otherwise.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Receives the subtraction.  That of constants is done at once.
    value : Integers
        Its data has one of :data:`NARROW_DTYPES`.
    """
    data, zero = value.data, value.zero
    has_zero = _has_zero(zero)
    if not has_zero and str(data.ty.dtype) == "int8":
        return data
    if has_zero:
        zero = along(bb, zero, value.axis, data.ty.ndim)
    array, of_zero = constant(data), constant(zero) if has_zero else np.zeros((), "int16")
    if array is not None and of_zero is not None:
        return rearranged(data, lambda whole: _narrowed(whole, of_zero), "subtract")
    in_int16 = bb.emit(relax.op.astype(data, "int16"))
    if not has_zero:
        return in_int16
    return bb.emit(relax.op.subtract(in_int16, bb.normalize(relax.op.astype(zero, "int16"))))


def _has_zero(zero: relax.Expr | None) -> bool:
    """Whether a zero point may be other than 0."""
    return zero is not None and (constant(zero) is None or bool(np.any(constant(zero))))


def as_dtype(bb: relax.BlockBuilder, value: relax.Expr, dtype: str) -> relax.Expr:
    """`value` in another dtype; a constant is converted at once."""
    if constant(value) is None:
        return bb.emit(relax.op.astype(value, dtype))
    return rearranged(value, lambda array: array.astype(dtype), "astype")


def _narrowed(data: np.ndarray, zero: np.ndarray) -> np.ndarray:
    difference = data.astype("int16") - zero.astype("int16")
    return difference.astype("int8") if fits(difference, "int8") else difference


def requantized(
    bb: relax.BlockBuilder, sums: Sums, scale: relax.Expr, zero: relax.Expr, dtype: str
) -> relax.Expr | None:
    """Quantize sums of products: scale, round half to even, add the zero point, and clip.

    The arithmetic is that of ONNX Runtime: one multiplication, by the ratio of the scales in
    float32.

    Returns
    -------
    relax.Expr or None
        None if a scale or the zero point is not constant, the scale is not one positive number, or
        the ratio of the scales is beyond float32.
    """
    from_scale, to_scale, to_zero = constant(sums.scale), constant(scale), constant(zero)
    if from_scale is None or to_scale is None or to_zero is None:
        return None
    if to_scale.ndim or to_zero.ndim or not to_scale > 0 or not np.all(from_scale > 0):
        return None
    with np.errstate(over="ignore", under="ignore"):
        ratio = (from_scale / to_scale).astype("float32")
    if not is_normal(ratio) or not np.all(ratio):
        return None
    limits: Any = np.iinfo(dtype)
    low, high = (
        int(np.clip(np.round(np.float32(bound) / to_scale) + to_zero, limits.min, limits.max))
        for bound in (sums.low, sums.high)
    )
    scaled = relax.op.multiply(
        bb.emit(relax.op.astype(sums.total, "float32")),
        relax.const(ratio),
    )
    rounded = bb.emit(relax.op.round(bb.emit(scaled)))
    moved = bb.emit(relax.op.add(rounded, relax.const(to_zero.astype("float32"))))
    return relax.op.astype(bb.emit(relax.op.clip(moved, low, high)), dtype)


def as_floats(bb: relax.BlockBuilder, sums: Sums) -> relax.Expr:
    """The tensor ``total * scale``, in float32."""
    return relax.op.multiply(bb.emit(relax.op.astype(sums.total, "float32")), sums.scale)


def is_bias(call: relax.Call, sums: Sums, bias: Integers) -> bool:
    """Whether `bias` can be added to the sums before they are scaled."""
    scales = constant(sums.scale), constant(bias.scale)
    if str(bias.data.ty.dtype) != "int32" or scales[0] is None or scales[1] is None:
        return False
    if sums.low != -np.inf or sums.high != np.inf:
        return False
    if bias.zero is not None and (constant(bias.zero) is None or np.any(constant(bias.zero))):
        return False
    shape = np.ones(call.ty.ndim, int)
    if scales[1].ndim == 1:
        # The axis of the bias, counted from the last one.
        position = bias.axis - bias.data.ty.ndim + call.ty.ndim
        shape[position] = scales[1].size
    of_sums = np.broadcast_to(scales[0], np.broadcast_shapes(scales[0].shape, tuple(shape)))
    # The scale of a bias is the product of the other scales, up to rounding.
    return bool(np.all(np.abs(of_sums - scales[1].reshape(shape)) <= 4 * np.spacing(of_sums)))


def multiplied(bb: relax.BlockBuilder, lhs: relax.Expr, rhs: relax.Expr) -> relax.Expr:
    """The product of two scales, at compile time if both are constant."""
    arrays = constant(lhs), constant(rhs)
    if arrays[0] is not None and arrays[1] is not None:
        return relax.const(np.asarray(arrays[0] * arrays[1], "float32"))
    return bb.emit(relax.op.multiply(lhs, rhs))


def is_normal(scales: np.ndarray) -> bool:
    """Whether float32 scales are 0, or neither infinite, NaN nor subnormal."""
    magnitude = np.abs(scales)
    is_whole = (magnitude >= np.finfo("float32").tiny) | (magnitude == 0)
    return bool(np.all(is_whole & np.isfinite(magnitude)))


def is_static(expr: relax.Expr) -> bool:
    """Whether the rank and all extents of a tensor are known."""
    shape = expr.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return False
    return all(isinstance(extent, tvm.tirx.IntImm) for extent in shape.values)
