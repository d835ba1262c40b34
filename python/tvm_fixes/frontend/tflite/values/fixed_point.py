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
"""The arithmetic of LiteRT's reference kernels: products with fixed-point factors, rounded twice.

A product with a 31-bit significand is rounded to an integer, then shifted and rounded again.
"""

from typing import Any, TypeAlias

import numpy as np
from tvm import relax

from ...fixed_point import fixed_point
from ..call import Call

__all__ = ["hard_swish", "rescaled", "rescaled_array"]

Array: TypeAlias = np.ndarray[Any, Any]

_BITS_16 = np.iinfo("int16")


def rescaled_array(values: Array, multiplier: float) -> Array:
    """Integers times a positive factor."""
    significand, exponent = fixed_point(multiplier)
    wide = values.astype("int64") << max(exponent, 0)
    high = (wide * significand + (1 << 30)) >> 31
    return _shifted(high, max(-exponent, 0))


def _shifted(values: Array, shift: int) -> Array:
    """Integers divided by a power of 2, halves rounded away from zero."""
    return values if shift == 0 else (values + (1 << (shift - 1)) - (values < 0)) >> shift


def rescaled(call: Call, value: relax.Expr, significand: int, exponent: int) -> relax.Expr:
    """int32 numbers times ``significand * 2**(exponent - 31)``."""
    op, emit = relax.op, call.emit

    def number(integer: int) -> relax.Expr:
        return relax.const(integer, "int64")

    wide = emit(op.astype(value, "int64"))
    product = emit(op.multiply(wide, number(significand << max(exponent, 0))))
    high = emit(op.right_shift(emit(op.add(product, number(1 << 30))), number(31)))
    shift = max(-exponent, 0)
    if shift:
        below = emit(op.astype(emit(op.less(high, number(0))), "int64"))
        moved = emit(op.subtract(emit(op.add(high, number(1 << (shift - 1)))), below))
        high = emit(op.right_shift(moved, number(shift)))
    return emit(op.astype(high, "int32"))


def hard_swish(values: Array, scale: np.float32, result_scale: np.float32) -> Array:
    """Hard swish of integers, whose zero points are subtracted, in 16-bit fixed point.

    Raises
    ------
    ValueError
        If the scale of the result is too small.
    """
    fine = np.float32(scale * np.float32(1 / 128))
    factor, exponent = _factor_16(float(fine / result_scale))
    if exponent > 0:
        raise ValueError(f"the scale of the result, {result_scale}, is too small")
    slope, slope_exponent = _factor_16(float(fine / np.float32(3 / 32768)))
    wide = values.astype("int64") << 7
    gate = wide
    if slope_exponent > 0:
        gate = np.clip(gate << (slope_exponent - 1), _BITS_16.min, _BITS_16.max)
    gate = _high_16(gate, slope)
    if slope_exponent > 0:
        gate = np.clip(gate << 1, _BITS_16.min, _BITS_16.max)
    gate = (_shifted(gate, max(-slope_exponent, 0)) + (1 << 15)) >> 1
    product = gate * _high_16(wide, factor)
    # Rounded towards zero.
    return _shifted(np.sign(product) * (np.abs(product) >> 15), -exponent)


def _factor_16(multiplier: float) -> tuple[int, int]:
    """A factor with a significand of 15 bits."""
    significand, exponent = fixed_point(multiplier)
    return min((significand + (1 << 15)) >> 16, int(_BITS_16.max)), exponent


def _high_16(values: Array, factor: int) -> Array:
    """The high half of twice the product, rounded."""
    return (values * factor + (1 << 14)) >> 15
