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
"""The elementwise operators of the QNN dialect, concatenation and softmax.

By default Relay requantizes in int64 and rounds halves up, but in float32 for x86 targets with
SSE4.1. The translation does not depend on the target: it always uses int64.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ...call import Call, converts
from ...values.values import constant_value
from .arithmetic import (
    Quantization,
    along,
    cast,
    constant_scale,
    multiply_fixed_point,
    requantize,
    requantize_if_different,
    round_away,
    same_constant,
    saturate,
    subtract_zero,
)


@converts("qnn.quantize")
def quantize(call: Call) -> relax.Expr:
    """Divide by the scale, round halves away from zero, add the zero point, clip."""
    data, scale, zero = call.operands
    axis = call.attributes["axis"]
    ndim = data.ty.ndim
    scaled = call.emit(relax.op.divide(data, along(call, scale, ndim, axis)))
    rounded = round_away(call, scaled)
    zero = cast(call, along(call, zero, ndim, axis), "float32")
    return saturate(call, call.emit(relax.op.add(rounded, zero)), call.attributes["out_dtype"])


@converts("qnn.dequantize")
def dequantize(call: Call) -> relax.Expr:
    """Subtract the zero point in int32 and multiply by the scale in float32."""
    data, scale, zero = call.operands
    axis = call.attributes["axis"]
    shifted = cast(call, subtract_zero(call, data, zero, axis), "float32")
    result = call.emit(relax.op.multiply(shifted, along(call, scale, data.ty.ndim, axis)))
    if call.attributes["out_dtype"] == "float32":
        return result
    return cast(call, call.emit(relax.op.clip(result, -65504.0, 65504.0)), "float16")


@converts("qnn.requantize")
def convert_requantize(call: Call) -> relax.Expr:
    """Convert to another scale and zero point."""
    data, scale, zero, output_scale, output_zero = call.operands
    return requantize(
        call,
        data,
        Quantization(scale, zero, call.attributes["axis"]),
        Quantization(output_scale, output_zero),
        call.attributes["out_dtype"],
        call.attributes["rounding"],
        call.attributes["compute_dtype"],
    )


_INT8, _UINT8, _INT32 = 1, 2, 3
"""The dtypes to simulate, by code; any other code leaves the values unchanged."""


@converts("qnn.simulated_quantize")
def simulated_quantize(call: Call) -> relax.Expr:
    """Quantize to a dtype that is known only at run time, with a float32 result."""
    data, code, scale, zero = call.operands
    axis = call.attributes["axis"]
    ndim = data.ty.ndim
    scaled = call.emit(relax.op.divide(data, along(call, scale, ndim, axis)))
    zero = cast(call, along(call, zero, ndim, axis), "float32")
    result = call.emit(relax.op.add(round_away(call, scaled), zero))
    output = data
    for number, dtype in ((_INT8, "int8"), (_UINT8, "uint8"), (_INT32, "int32")):
        limits = np.iinfo(dtype)
        chosen = call.emit(relax.op.equal(code, relax.const(number, "int32")))
        clipped = call.emit(relax.op.clip(result, float(limits.min), float(limits.max)))
        output = call.emit(relax.op.where(chosen, clipped, output))
    return output


@converts("qnn.simulated_dequantize")
def simulated_dequantize(call: Call) -> relax.Expr:
    """Dequantize float32 that holds integers of a dtype that is known only at run time."""
    data, code, scale, zero = call.operands
    axis = call.attributes["axis"]
    ndim = data.ty.ndim
    zero = cast(call, along(call, zero, ndim, axis), "float32")
    shifted = call.emit(relax.op.subtract(data, zero))
    result = call.emit(relax.op.multiply(shifted, along(call, scale, ndim, axis)))
    known = call.emit(
        relax.op.logical_and(
            relax.op.greater_equal(code, relax.const(_INT8, "int32")),
            relax.op.less_equal(code, relax.const(_INT32, "int32")),
        )
    )
    return call.emit(relax.op.where(known, result, data))


def _binary_operands(call: Call) -> tuple[relax.Expr, relax.Expr, Quantization]:
    """Return both operands in int32 with the result's scale and zero point, and these."""
    lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero = call.operands
    target = Quantization(scale, zero)
    left = Quantization(lhs_scale, lhs_zero, call.attributes["lhs_axis"])
    right = Quantization(rhs_scale, rhs_zero, call.attributes["rhs_axis"])
    return (
        requantize_if_different(call, lhs, left, target),
        requantize_if_different(call, rhs, right, target),
        target,
    )


@converts("qnn.add")
def add(call: Call) -> relax.Expr:
    """Add after both operands are requantized; subtract the zero point that counts twice."""
    lhs, rhs, target = _binary_operands(call)
    result = call.emit(relax.op.add(lhs, rhs))
    return saturate(call, subtract_zero(call, result, target.zero, -1), str(call.type.dtype))


@converts("qnn.subtract")
def subtract(call: Call) -> relax.Expr:
    """Subtract after both operands are requantized; add the zero point that is lost."""
    lhs, rhs, target = _binary_operands(call)
    result = call.emit(relax.op.subtract(lhs, rhs))
    if not same_constant(target.zero, 0):
        result = call.emit(relax.op.add(result, target.zero))
    return saturate(call, result, str(call.type.dtype))


@converts("qnn.mul")
def mul(call: Call) -> relax.Expr:
    """Multiply in int32 and requantize; the scale is the product of the operands' scales."""
    lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero = call.operands
    left = constant_scale(call, lhs_scale, "the scale of lhs")
    right = constant_scale(call, rhs_scale, "the scale of rhs")
    lhs_axis, rhs_axis = call.attributes["lhs_axis"], call.attributes["rhs_axis"]
    if max(left.size, right.size) > 1 and lhs_axis != rhs_axis:
        raise call.fail("vectors of scales must have the same axis")
    if min(left.size, right.size) == 1 < max(left.size, right.size):
        raise call.fail("either both scales are vectors or none")
    lhs = subtract_zero(call, lhs, lhs_zero, lhs_axis)
    rhs = subtract_zero(call, rhs, rhs_zero, rhs_axis)
    product = call.emit(relax.op.multiply(lhs, rhs))
    source = Quantization(
        relax.const((left * right).astype("float32")), relax.const(0, "int32"), lhs_axis
    )
    target = Quantization(scale, zero)
    return requantize(call, product, source, target, str(call.type.dtype))


@converts("qnn.concatenate")
def concatenate(call: Call) -> relax.Expr:
    """Requantize each tensor to the result's scale and zero point, then join them."""
    data, scales, zeros, output_scale, output_zero = call.operands
    target = Quantization(output_scale, output_zero)
    parts = [
        requantize_if_different(call, part, Quantization(scale, zero), target, str(call.type.dtype))
        for part, scale, zero in zip(data, scales, zeros, strict=True)
    ]
    return call.emit(relax.op.concat(parts, axis=call.attributes["axis"]))


@converts("qnn.leaky_relu")
def leaky_relu(call: Call) -> relax.Expr:
    """Requantize; scale elements below the input's zero point by alpha, in fixed point."""
    data, scale, zero, output_scale, output_zero = call.operands
    data = cast(call, data, "int32")
    source, target = Quantization(scale, zero), Quantization(output_scale, output_zero)
    above = requantize_if_different(call, data, source, target)
    alpha = call.attributes["alpha"]
    scaled = multiply_fixed_point(call, above, np.array(alpha))
    moved = multiply_fixed_point(call, output_zero, np.array(1.0 - alpha))
    below = call.emit(relax.op.add(scaled, moved))
    negative = call.emit(relax.op.less(data, zero))
    result = call.emit(relax.op.where(negative, below, above))
    return saturate(call, result, str(call.type.dtype))


@converts("qnn.softmax")
def softmax(call: Call) -> relax.Expr:
    """Softmax in int32: powers of two with a linear approximation between them."""
    data, scale, zero, output_scale, output_zero = call.operands
    axis = call.attributes["axis"]
    step = constant_scale(call, scale, "the input scale").item()
    if not 0.0 < step <= 1.0:
        raise call.fail("the input scale must be above 0 and at most 1")
    unit = math.floor(float(np.float32(1.0) / np.float32(step)) + 0.5)

    def emit(operator: Callable[..., Any], lhs: relax.Expr, rhs: relax.Expr | int) -> relax.Expr:
        rhs = relax.const(rhs, "int32") if isinstance(rhs, int) else rhs
        return call.emit(operator(lhs, rhs))

    shifted = subtract_zero(call, data, zero, -1)
    largest = call.emit(relax.op.max(shifted, [axis], keepdims=True))
    x = emit(relax.op.subtract, shifted, largest)
    # x / ln 2 is about x + x / 2 - x / 16.
    power = emit(relax.op.add, x, emit(relax.op.right_shift, x, 1))
    power = emit(relax.op.subtract, power, emit(relax.op.right_shift, x, 4))
    # Both are at most 0, so all kinds of integer division give the same quotient.
    quotient = emit(relax.op.floor_divide, power, -unit)
    quotient = call.emit(relax.op.clip(quotient, 0, 20))
    rest = emit(relax.op.subtract, power, emit(relax.op.multiply, quotient, -unit))
    base = emit(relax.op.add, emit(relax.op.right_shift, rest, 1), unit)
    highest = call.emit(relax.op.max(quotient, [axis], keepdims=True))
    exps = emit(relax.op.left_shift, base, emit(relax.op.subtract, highest, quotient))
    total = call.emit(relax.op.sum(exps, [axis], keepdims=True))
    share = call.emit(relax.op.floor_divide(relax.const(1 << 30, "int32"), total))
    result = emit(relax.op.right_shift, emit(relax.op.multiply, share, exps), 23)
    source = Quantization(relax.const(1.0 / 128.0, "float32"), relax.const(0, "int32"))
    return requantize(call, result, source, Quantization(output_scale, output_zero), "int8")


def _hardswish(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x * np.clip(x + np.float32(3.0), 0.0, 6.0) / np.float32(6.0)


_FUNCTIONS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "qnn.abs": np.abs,
    "qnn.erf": np.vectorize(math.erf, otypes=["float32"]),
    "qnn.exp": np.exp,
    "qnn.hardswish": _hardswish,
    "qnn.log": np.log,
    "qnn.rsqrt": lambda x: 1 / np.sqrt(x),
    "qnn.sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "qnn.sqrt": np.sqrt,
    "qnn.tanh": np.tanh,
}


@converts(*_FUNCTIONS)
def unary(call: Call) -> relax.Expr:
    """Look up each value in a table of the function's results, which is built here."""
    data = call.operands[0]
    names = ("scale", "zero_point", "output_scale", "output_zero_point")
    parameters = [constant_value(value) for value in call.operands[1:]]
    for name, value in zip(names, parameters, strict=True):
        if value is None:
            raise call.fail(f"{name} must be a constant")
    scale, zero, output_scale, output_zero = parameters
    dtype = str(call.type.dtype)
    limits = np.iinfo(dtype)
    values = np.arange(limits.min, limits.max + 1, dtype="int32")
    with np.errstate(all="ignore"):
        floats = (values - zero).astype("float32") * scale
        scaled = _FUNCTIONS[call.operator](floats).astype("float32") / output_scale
        rounded = np.trunc(scaled)
        rounded = rounded + np.sign(scaled) * (np.abs(scaled - rounded) >= 0.5)
        rounded = np.where(np.isinf(scaled), scaled, rounded) + np.float32(output_zero)
    # Relay's clip turns NaN into the largest number.
    table = np.clip(np.nan_to_num(rounded, nan=limits.max), limits.min, limits.max)
    return _look_up(call, data, table.astype(dtype), int(limits.min))


def _look_up(call: Call, data: relax.Expr, table: np.ndarray[Any, Any], first: int) -> relax.Expr:
    """Return table[data - first]."""

    def compute(data: te.Tensor, table: te.Tensor) -> te.Tensor:
        return te.compute(
            data.shape,
            lambda *i: table[data(*i).astype("int32") - tirx.const(first, "int32")],
            name="look_up",
        )

    return call.emit_te(compute, data, relax.const(table))
