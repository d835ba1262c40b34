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
"""Activation functions, softmax and normalizations of vectors.

An 8-bit quantized function of one element is a table of 256 integers, as in LiteRT.
"""

from collections.abc import Callable
from math import erf, sqrt
from typing import Any

import numpy as np
from tvm import relax

from ..call import Array, Call, converts, is_quantized
from ..values.fixed_point import hard_swish, rescaled_array
from .elementwise import reject_wide

_erf: Callable[[Any], Any] = np.vectorize(erf, otypes=["float64"])


def _gelu(call: Call, x: Array) -> Array:
    if call.option("approximate"):
        return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / sqrt(2)))


# Functions of float64 arrays.
_TABLES: dict[str, Callable[[Call, Array], Array]] = {
    "ELU": lambda call, x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    "EXP": lambda call, x: np.exp(x),
    "GELU": _gelu,
    "HARD_SWISH": lambda call, x: x * np.clip(x + 3, 0, 6) / 6,
    "LEAKY_RELU": lambda call, x: np.where(x < 0, call.option("alpha") * x, x),
    "LOG": lambda call, x: np.log(x),
    "LOGISTIC": lambda call, x: 1 / (1 + np.exp(-x)),
    "RSQRT": lambda call, x: 1 / np.sqrt(x),
    "TANH": lambda call, x: np.tanh(x),
}

_MAX_RADIUS = 64

_LIMITS = {
    "RELU": (0, None),
    "RELU6": (0, 6),
    "RELU_N1_TO_1": (-1, 1),
    "RELU_0_TO_1": (0, 1),
}


def _by_table(call: Call) -> relax.Expr:
    """The function of 8-bit integers, whose results are rounded half away from zero."""
    data, out = call.input(0), call.outputs[0]
    source, target = call.quantization(data), call.quantization(out)
    limits, bounds = np.iinfo(data.dtype), np.iinfo(out.dtype)
    integers = np.arange(limits.min, limits.max + 1)
    moved = integers - source.zero_point[0]
    if call.operator == "HARD_SWISH":
        rounded = hard_swish(moved, source.scale[0], target.scale[0])
    elif call.operator == "LEAKY_RELU":
        slope = np.float32(call.option("alpha"))
        factors = source.scale[0] / target.scale[0], source.scale[0] * slope / target.scale[0]
        positive, negative = (rescaled_array(moved, float(abs(factor))) for factor in factors)
        rounded = np.where(moved < 0, np.int64(np.sign(slope)) * negative, positive)
    else:
        with np.errstate(all="ignore"):
            reals = (source.scale[0] * moved.astype("float32")).astype("float64")
            values = _TABLES[call.operator](call, reals).astype("float32")
            scaled = values * (np.float32(1) / target.scale[0])
        if np.isnan(scaled).any():
            raise call.fail("the function is undefined for some integers of the operand")
        rounded = np.sign(scaled) * np.floor(np.abs(scaled.astype("float64")) + 0.5)
    table = np.clip(rounded + target.zero_point[0], bounds.min, bounds.max).astype(out.dtype)
    index = call.emit(relax.op.astype(call.operand(0), "int32"))
    if limits.min:
        index = call.emit(relax.op.subtract(index, relax.const(limits.min, "int32")))
    return relax.op.take(relax.const(table), index, axis=0)


@converts(*_TABLES)
def function(call: Call) -> relax.Expr:
    """A function of each element."""
    call.check_operands(1)
    reject_wide(call)
    if is_quantized(call.input(0)):
        return _by_table(call)
    return _function_of(call, call.operand(0))


def _function_of(call: Call, x: relax.Expr) -> relax.Expr:
    op, emit, number = relax.op, call.emit, call.number
    if call.operator == "ELU":
        negative = emit(op.minimum(x, number(0)))
        grown = emit(op.subtract(emit(op.exp(negative)), number(1)))
        return op.where(emit(op.less(x, number(0))), grown, x)
    if call.operator == "GELU":
        return op.nn.gelu_tanh(x) if call.option("approximate") else op.nn.gelu(x)
    if call.operator == "HARD_SWISH":
        gate = emit(op.clip(emit(op.add(x, number(3))), 0, 6))
        return op.multiply(emit(op.multiply(x, gate)), number(1 / 6))
    if call.operator == "LEAKY_RELU":
        return op.nn.leakyrelu(x, call.option("alpha"))
    functions: dict[str, Callable[[relax.Expr], relax.Expr]] = {
        "EXP": op.exp,
        "LOG": op.log,
        "LOGISTIC": op.sigmoid,
        "RSQRT": op.rsqrt,
        "TANH": op.tanh,
    }
    return functions[call.operator](x)


@converts(*_LIMITS)
def relu(call: Call) -> relax.Expr:
    """Elements within limits."""
    low, high = _LIMITS[call.operator]
    data, out = call.input(0), call.outputs[0]
    if is_quantized(data) and call.has_same_quantization(data, out):
        parameters = call.quantization(data)
        bounds = np.iinfo(data.dtype)

        def integer(limit: int) -> int:
            scaled = np.float32(limit) / parameters.scale[0]
            rounded = np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))
            return int(np.clip(rounded + parameters.zero_point[0], bounds.min, bounds.max))

        limits = integer(low), bounds.max if high is None else integer(high)
        return relax.op.clip(call.operand(0), *map(int, limits))
    value = call.real(0)
    if high is None:
        return call.as_output(call.emit(relax.op.nn.relu(value)))
    return call.as_output(call.emit(relax.op.clip(value, low, high)))


@converts("PRELU")
def prelu(call: Call) -> relax.Expr:
    """Elements, the negative ones times a slope."""
    x, slope = call.real(0), call.real(1)
    scaled = call.emit(relax.op.multiply(x, slope))
    is_negative = call.emit(relax.op.less(x, call.number(0)))
    return call.as_output(call.emit(relax.op.where(is_negative, scaled, x)))


@converts("SOFTMAX")
def softmax(call: Call) -> relax.Expr:
    """Softmax of ``beta`` times the elements along the last axis."""
    reject_wide(call)
    value, beta = call.real(0), call.option("beta")
    if beta != 1:
        value = call.emit(relax.op.multiply(value, call.number(beta)))
    return call.as_output(call.emit(relax.op.nn.softmax(value, axis=-1)))


@converts("LOG_SOFTMAX")
def log_softmax(call: Call) -> relax.Expr:
    """The logarithm of the softmax along the last axis."""
    return call.as_output(call.emit(relax.op.nn.log_softmax(call.real(0), axis=-1)))


@converts("L2_NORMALIZATION")
def l2_normalization(call: Call) -> relax.Expr:
    """Vectors along the last axis, divided by their length, which is at least 1e-6."""
    value = call.real(0)
    squares = call.emit(relax.op.multiply(value, value))
    total = call.emit(relax.op.sum(squares, axis=-1, keepdims=True))
    length = call.emit(relax.op.maximum(call.emit(relax.op.sqrt(total)), call.number(1e-6)))
    return call.as_output(call.activated(call.emit(relax.op.divide(value, length))))


@converts("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(call: Call) -> relax.Expr:
    """Elements, divided by a power of the sum of squares of the channels around them."""
    call.require_dtype(0, "float32")
    value, rank, channels = call.operand(0), call.rank(0), call.shape(0)[-1]
    if not isinstance(channels, int) or not 0 <= call.option("radius") <= _MAX_RADIUS:
        raise call.fail(f"the radius is {call.option('radius')}, of {channels} channels")
    radius = min(call.option("radius"), channels)
    op, emit = relax.op, call.emit
    squares = emit(op.multiply(value, value))
    padded = emit(op.nn.pad(squares, [0, 0] * (rank - 1) + [radius, radius]))
    total = None
    for offset in range(2 * radius + 1):
        part = emit(op.strided_slice(padded, [rank - 1], [offset], [channels + offset]))
        total = part if total is None else emit(op.add(total, part))
    scaled = emit(op.multiply(total, call.number(call.option("alpha"))))
    base = emit(op.add(scaled, call.number(call.option("bias"))))
    return op.multiply(value, emit(op.power(base, call.number(-call.option("beta")))))
