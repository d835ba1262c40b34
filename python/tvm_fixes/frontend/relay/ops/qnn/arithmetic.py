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
"""The arithmetic of quantized numbers: fixed-point products, rounding, requantization."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from ....fixed_point import fixed_point
from ...call import Call
from ...values.values import constant_value

INT64_SHIFTS = 63
"""Shifts of an int64 must stay below this."""


@dataclass(frozen=True)
class Quantization:
    """A scale and a zero point, and the axis along which they vary if they are vectors."""

    scale: relax.Expr
    zero: relax.Expr
    axis: int = -1


def same_constant(lhs: relax.Expr, rhs: relax.Expr | int) -> bool:
    """Return whether both are constants of one element, and equal."""
    left = constant_value(lhs)
    right = np.asarray(rhs) if isinstance(rhs, int) else constant_value(rhs)
    if left is None or right is None or left.size != 1 or right.size != 1:
        return False
    return bool(left.item() == right.item())


def cast(call: Call, value: relax.Expr, dtype: str) -> relax.Expr:
    """Convert to a dtype."""
    if str(value.ty.dtype) == dtype:
        return value
    return call.emit(relax.op.astype(value, dtype))


def along(call: Call, value: relax.Expr, ndim: int, axis: int) -> relax.Expr:
    """Reshape a vector so that it broadcasts along an axis; one element becomes a scalar."""
    if value.ty.ndim == 0:
        return value
    extent = value.ty.shape[0]
    single = isinstance(extent, tirx.IntImm) and extent.value == 1
    shape = [1] * ndim
    shape[axis] = -1
    constant = constant_value(value)
    if constant is not None:
        return relax.const(constant.reshape(() if single else shape), str(constant.dtype))
    return call.emit(relax.op.reshape(value, [] if single else shape))


def spread(values: np.ndarray[Any, Any], ndim: int, axis: int) -> relax.Expr:
    """Reshape constants so that they broadcast along an axis; one element becomes a scalar."""
    if values.size == 1:
        return relax.const(values.reshape(()), str(values.dtype))
    shape = [1] * ndim
    shape[axis] = values.size
    return relax.const(values.reshape(shape), str(values.dtype))


def multiply_fixed_point(
    call: Call,
    value: relax.Expr,
    multipliers: np.ndarray[Any, Any],
    axis: int = -1,
    *,
    upward: bool = True,
) -> relax.Expr:
    """Multiply int32 by factors in int64, and round to int32.

    Parameters
    ----------
    multipliers : numpy.ndarray
        One float64 factor, or one for each element along `axis`.
    upward : bool
        Whether to round halves toward positive infinity; otherwise, away from zero.
    """
    parts = [fixed_point(float(multiplier)) for multiplier in multipliers.reshape(-1)]
    # A factor that shifts out all bits rounds everything to 0.
    parts = [part if 31 - part[1] < INT64_SHIFTS else (0, 0) for part in parts]
    ndim = value.ty.ndim

    def constants(numbers: list[int]) -> relax.Expr:
        return spread(np.array(numbers, "int64"), ndim, axis)

    product = cast(call, value, "int64")
    left = [max(exponent, 0) for _, exponent in parts]
    if any(left):
        product = call.emit(relax.op.left_shift(product, constants(left)))
    product = call.emit(relax.op.multiply(product, constants([part for part, _ in parts])))
    right = [31 + max(-exponent, 0) for _, exponent in parts]
    half = constants([1 << (shift - 1) for shift in right])
    if not upward:
        # Below zero, adding one less than a half rounds halves down.
        negative = call.emit(relax.op.less(product, relax.const(0, "int64")))
        half = call.emit(relax.op.subtract(half, cast(call, negative, "int64")))
    product = call.emit(relax.op.add(product, half))
    product = call.emit(relax.op.right_shift(product, constants(right)))
    return cast(call, product, "int32")


def round_away(call: Call, value: relax.Expr) -> relax.Expr:
    """Round floats, halves away from zero."""
    dtype = str(value.ty.dtype)
    whole = call.emit(relax.op.trunc(value))
    rest = call.emit(relax.op.abs(relax.op.subtract(value, whole)))
    away = call.emit(relax.op.greater_equal(rest, relax.const(0.5, dtype)))
    step = call.emit(relax.op.multiply(relax.op.sign(value), cast(call, away, dtype)))
    return call.emit(relax.op.add(whole, step))


def round_up(call: Call, value: relax.Expr) -> relax.Expr:
    """Round floats, halves toward positive infinity."""
    moved = relax.op.add(value, relax.const(0.5, str(value.ty.dtype)))
    return call.emit(relax.op.floor(call.emit(moved)))


def saturate(call: Call, value: relax.Expr, dtype: str) -> relax.Expr:
    """Clip to the range of an integer dtype and convert to it."""
    limits = np.iinfo(dtype)
    source = str(value.ty.dtype)
    if source == "float32" and limits.bits == 32:
        # float32 does not represent the largest int32: compare with the next number above.
        high = call.emit(relax.op.greater_equal(value, relax.const(2.0**31, source)))
        low = call.emit(relax.op.clip(value, limits.min, 2.0**31 - 128))
        largest = relax.const(limits.max, dtype)
        return call.emit(relax.op.where(high, largest, cast(call, low, dtype)))
    if source == dtype:
        return value
    return cast(call, call.emit(relax.op.clip(value, limits.min, limits.max)), dtype)


def constant_scale(call: Call, scale: relax.Expr, name: str) -> np.ndarray[Any, Any]:
    """Return the elements of a scale, which must be constant, as float64."""
    value = constant_value(scale)
    if value is None:
        raise call.fail(f"{name} must be a constant")
    return np.asarray(value, "float64").reshape(-1)


def subtract_zero(
    call: Call, value: relax.Expr, zero: relax.Expr, axis: int, dtype: str = "int32"
) -> relax.Expr:
    """Return value - zero in a dtype; a vector of zero points applies along the axis."""
    value = cast(call, value, dtype)
    if same_constant(zero, 0):
        return value
    zero = cast(call, along(call, zero, value.ty.ndim, axis), dtype)
    return call.emit(relax.op.subtract(value, zero))


def requantize(
    call: Call,
    value: relax.Expr,
    source: Quantization,
    target: Quantization,
    dtype: str,
    rounding: str = "None",
    compute_dtype: str = "None",
) -> relax.Expr:
    """Convert integers from one scale and zero point to others.

    Parameters
    ----------
    rounding : str
        "UPWARD" or "None" rounds halves toward positive infinity, "TONEAREST" away from zero.
    compute_dtype : str
        "int64" (also for "None"): in fixed point; or "float32" or "float64".
    """
    scales = constant_scale(call, source.scale, "the input scale")
    target_scale = constant_scale(call, target.scale, "the output scale").item()
    if target_scale == 0.0:
        raise call.fail("the output scale must not be 0")
    multipliers = scales / target_scale
    same = scales.size == 1 and scales.item() == target_scale
    upward = rounding != "TONEAREST"
    if compute_dtype in ("float32", "float64"):
        value = subtract_zero(call, value, source.zero, source.axis, compute_dtype)
        if not same:
            factor = spread(multipliers.astype(compute_dtype), value.ty.ndim, source.axis)
            value = call.emit(relax.op.multiply(value, factor))
        if not same_constant(target.zero, 0):
            value = call.emit(relax.op.add(value, cast(call, target.zero, compute_dtype)))
        value = round_up(call, value) if upward else round_away(call, value)
        return saturate(call, saturate(call, value, "int32"), dtype)
    value = subtract_zero(call, value, source.zero, source.axis)
    if not same:
        value = multiply_fixed_point(call, value, multipliers, source.axis, upward=upward)
    if not same_constant(target.zero, 0):
        value = call.emit(relax.op.add(cast(call, target.zero, "int32"), value))
    return saturate(call, value, dtype)


def requantize_if_different(
    call: Call,
    value: relax.Expr,
    source: Quantization,
    target: Quantization,
    dtype: str = "int32",
) -> relax.Expr:
    """Requantize; only convert the dtype if both scales and zero points are the same constants."""
    if same_constant(source.scale, target.scale) and same_constant(source.zero, target.zero):
        return cast(call, value, dtype)
    return requantize(call, value, source, target, dtype)
