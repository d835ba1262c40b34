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
"""Quantized operators, in exact integer arithmetic."""

import math
from typing import Any

import numpy as np

from helpers import references

from .nn import conv_options
from .registry import Attrs, along, operator

F32 = np.float32


def away(x: Any) -> Any:
    """Round halves away from zero."""
    return np.trunc(x) + np.sign(x) * (np.abs(x - np.trunc(x)) >= 0.5)


def clipped(x: Any, dtype: str) -> np.ndarray:
    """Limit to the range of an integer dtype."""
    limits = np.iinfo(dtype)
    return np.clip(x.astype("float64"), limits.min, limits.max).astype(dtype)


def quantized(x: Any, scale: Any, zero: Any, dtype: str) -> np.ndarray:
    """The integers for floating-point numbers."""
    return clipped(away(x / scale).astype(F32) + np.asarray(zero).astype(F32), dtype)


def factor(multiplier: float) -> tuple[int, int]:
    """A factor in fixed point, with Python's integers: value * 2**-31 and an exponent."""
    fraction, exponent = math.frexp(multiplier)
    return math.floor(fraction * 2**31 + 0.5), exponent


def scaled(x: np.ndarray, multiplier: float, rounding: str = "UPWARD") -> np.ndarray:
    """Multiply integers by a factor in fixed point."""
    value, exponent = factor(multiplier)
    shift = 31 - min(exponent, 0)

    def one(number: int) -> int:
        product = (number << max(exponent, 0)) * value
        half = 1 << (shift - 1)
        if rounding == "TONEAREST" and product < 0:
            half -= 1
        return (product + half) >> shift

    return np.vectorize(one, otypes=["int64"])(x.astype(object)).astype("int64")


def requantized(
    x: np.ndarray,
    scale: Any,
    zero: Any,
    target: Any,
    target_zero: Any,
    dtype: str = "int32",
    rounding: str = "UPWARD",
    axis: int = -1,
) -> np.ndarray:
    """Compute qnn.requantize in fixed point; scale and zero may be vectors."""
    shape = [1] * x.ndim
    if x.ndim:
        shape[axis] = -1
    scales = np.broadcast_to(np.reshape(scale, shape) if np.ndim(scale) else scale, x.shape)
    zeros = np.reshape(zero, shape) if np.ndim(zero) else zero
    moved = x.astype("int64") - zeros
    if np.ndim(scale) or scale != target:
        result = np.empty(x.shape, "int64")
        for number in np.unique(scales):
            ratio = float(number) / float(target)
            result = np.where(scales == number, scaled(moved, ratio, rounding), result)
        moved = result
    return clipped(moved + target_zero, dtype)


def of_axis(value: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    """A scale or zero point that broadcasts: a scalar, or a vector along `axis`."""
    return along(value, axis, x.ndim) if value.ndim else value


@operator("qnn.quantize")
def quantize(attrs: Attrs, x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Integers for floating-point numbers."""
    scale, zero = (of_axis(v, x, attrs["axis"]) for v in (scale, zero))
    return quantized(x.astype(F32), scale.astype(F32), zero, attrs["out_dtype"])


@operator("qnn.dequantize")
def dequantize(attrs: Attrs, x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Floating-point numbers for integers."""
    scale, zero = (of_axis(v, x, attrs["axis"]) for v in (scale, zero))
    return (x.astype("int32") - zero).astype(F32) * scale.astype(F32)


@operator("qnn.requantize")
def requantize(
    attrs: Attrs,
    x: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray,
    target: np.ndarray,
    target_zero: np.ndarray,
) -> np.ndarray:
    """Integers of another scale."""
    rounding = "UPWARD" if attrs["rounding"] == "None" else attrs["rounding"]
    options = {"dtype": attrs["out_dtype"], "rounding": rounding, "axis": attrs["axis"]}
    return requantized(x, scale, zero, target, target_zero, **options)


@operator("qnn.conv2d")
def conv2d(attrs: Attrs, x: np.ndarray, weight: np.ndarray, *quantization: np.ndarray) -> Any:
    """Convolution of the integers minus their zero points; the padding is zero."""
    zero, weight_zero, *_ = quantization
    moved = x.astype("int64") - zero
    weight_moved = weight.astype("int64") - weight_zero
    return references.conv(moved, weight_moved, **conv_options(attrs, 2)).astype("int32")


@operator("qnn.dense")
def dense(attrs: Attrs, x: np.ndarray, weight: np.ndarray, *quantization: np.ndarray) -> Any:
    """Products of the integers minus their zero points."""
    zero, weight_zero, *_ = quantization
    return ((x.astype("int64") - zero) @ (weight.astype("int64") - weight_zero).T).astype("int32")


@operator("qnn.add")
def add(attrs: Attrs, x: np.ndarray, y: np.ndarray, *quantization: np.ndarray) -> np.ndarray:
    """Sums in the scale of the result."""
    x_scale, x_zero, y_scale, y_zero, scale, zero = quantization
    lhs = requantized(x.astype("int32"), x_scale, x_zero, scale, zero)
    rhs = requantized(y.astype("int32"), y_scale, y_zero, scale, zero)
    return clipped(lhs.astype("int64") + rhs - zero, x.dtype.name)


@operator("qnn.mul")
def mul(attrs: Attrs, x: np.ndarray, y: np.ndarray, *quantization: np.ndarray) -> np.ndarray:
    """Products in the scale of the result."""
    x_scale, x_zero, y_scale, y_zero, scale, zero = quantization
    product = (x.astype("int32") - x_zero) * (y.astype("int32") - y_zero)
    return requantized(product, x_scale * y_scale, 0, scale, zero, x.dtype.name)
