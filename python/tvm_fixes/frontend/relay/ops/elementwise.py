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
"""Unary math, binary operators that broadcast, clip and fixed-point multiplication."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ..call import Call, converts
from ..values.extents import shaped
from .broadcasting import operands

UNARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atan", "atanh"), ("float",)),
    **dict.fromkeys(("cos", "cosh", "sin", "sinh", "tan", "tanh"), ("float",)),
    **dict.fromkeys(("erf", "exp", "log", "rsqrt", "sigmoid", "sqrt"), ("float",)),
    **dict.fromkeys(("abs", "isfinite", "isinf", "isnan", "negative"), ("float", "int")),
    "bitwise_not": ("int", "bool"),
    "logical_not": ("bool",),
}
"""The kinds of operands of operators that Relax has under the same name."""

BINARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "divide", "floor_divide", "floor_mod"), ("float", "int")),
    **dict.fromkeys(("mod", "multiply", "subtract"), ("float", "int")),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("int", "bool")),
    **dict.fromkeys(("equal", "not_equal", "greater", "greater_equal"), ("float", "int", "bool")),
    **dict.fromkeys(("less", "less_equal"), ("float", "int", "bool")),
    **dict.fromkeys(("left_shift", "right_shift"), ("int",)),
    **dict.fromkeys(("logical_and", "logical_or"), ("bool",)),
    "power": ("float",),
}
"""As `UNARY`, of operators that broadcast: divide and mod of integers truncate."""

TE_FUNCTIONS: dict[str, Callable[..., te.Tensor]] = {
    name: getattr(topi, name) for name in ("fast_erf", "fast_exp", "fast_tanh", "log10", "log2")
}
"""Functions of floating-point numbers that only TOPI has."""


def first_input(call: Call) -> relax.Expr:
    """Return the first input, whose shape Relax knows."""
    return shaped(call)[0]


def input_dtype(call: Call, index: int = 0) -> str:
    """Return the dtype of an input that is a tensor."""
    return str(call.input_types[index].dtype)


def integer_range(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest value of a dtype of integers."""
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    if dtype.startswith("u"):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def is_float(dtype: str) -> bool:
    """Return whether a dtype is of floating-point numbers."""
    return "float" in dtype


def require(call: Call, *kinds: str) -> str:
    """Return the dtype of the first input, which must be "float", "int" or "bool".

    Raises
    ------
    RelayError
        If its kind is not among `kinds`. Relay has no result for it either.
    """
    dtype = input_dtype(call)
    kind = "float" if is_float(dtype) else "bool" if dtype == "bool" else "int"
    if kind not in kinds:
        raise call.fail(f"expected a tensor of {' or '.join(kinds)}, found dtype {dtype}")
    return dtype


@converts(*UNARY)
def unary(call: Call) -> relax.Expr:
    """An operator on one operand that Relax has."""
    require(call, *UNARY[call.operator])
    return call.emit(getattr(relax.op, call.operator)(first_input(call)))


@converts(*BINARY)
def binary(call: Call) -> relax.Expr:
    """An operator on two operands that Relax has."""
    require(call, *BINARY[call.operator])
    return call.emit(getattr(relax.op, call.operator)(*operands(call, *call.operands)))


@converts(*TE_FUNCTIONS)
def te_function(call: Call) -> relax.Expr:
    """A function of floating-point numbers that Relax lacks."""
    require(call, "float")
    return call.emit_te(TE_FUNCTIONS[call.operator], first_input(call))


@converts("ceil", "floor", "trunc")
def rounding(call: Call) -> relax.Expr:
    """Round up, down or towards zero."""
    if not is_float(require(call, "float", "int")):
        return first_input(call)
    return call.emit(getattr(relax.op, call.operator)(first_input(call)))


@converts("round")
def round_half_away(call: Call) -> relax.Expr:
    """Round to the nearest integer, halves away from zero; Relax rounds them to even."""
    if not is_float(require(call, "float", "int")):
        return first_input(call)
    return call.emit_te(te_round, first_input(call))


def te_round(data: te.Tensor) -> te.Tensor:
    """Round without adding 0.5, which is inexact."""

    def element(*index: tirx.Var) -> Any:
        value = data(*index)
        whole = tirx.trunc(value)
        one = tirx.const(1, data.dtype)
        away = whole + tirx.Select(value < 0, -one, one)
        is_far = tirx.abs(value - whole) >= tirx.const(0.5, data.dtype)
        return tirx.Select(is_far, away, whole)

    return te.compute(data.shape, element, name="round_half_away")


@converts("sign")
def sign(call: Call) -> relax.Expr:
    """1, 0 or -1."""
    if require(call, "float", "int").startswith("uint"):
        raise call.fail("the sign of unsigned integers is not defined")
    return call.emit(relax.op.sign(first_input(call)))


@converts("copy")
def copy(call: Call) -> relax.Expr:
    """The input: Relax values do not change."""
    return first_input(call)


@converts("trunc_divide")
def trunc_divide(call: Call) -> relax.Expr:
    """The quotient, rounded towards zero."""
    quotient = call.emit(relax.op.divide(*operands(call, *call.operands)))
    return (
        call.emit(relax.op.trunc(quotient)) if is_float(require(call, "float", "int")) else quotient
    )


@converts("trunc_mod")
def trunc_mod(call: Call) -> relax.Expr:
    """The remainder of trunc_divide."""
    lhs, rhs = operands(call, *call.operands)
    if not is_float(require(call, "float", "int")):
        return call.emit(relax.op.mod(lhs, rhs))
    quotient = call.emit(relax.op.trunc(call.emit(relax.op.divide(lhs, rhs))))
    product = call.emit(relax.op.multiply(quotient, rhs))
    return call.emit(relax.op.subtract(lhs, product))


@converts("maximum", "minimum")
def extremum(call: Call) -> relax.Expr:
    """The larger or smaller value; of bools their disjunction or conjunction."""
    name = call.operator
    if require(call, "float", "int", "bool") == "bool":
        name = "logical_or" if name == "maximum" else "logical_and"
    return call.emit(getattr(relax.op, name)(*operands(call, *call.operands)))


@converts("logical_xor")
def logical_xor(call: Call) -> relax.Expr:
    """Exclusive disjunction of all bits, as in Relay."""
    require(call, "bool", "int")
    return call.emit(relax.op.bitwise_xor(*operands(call, *call.operands)))


@converts("clip")
def clip(call: Call) -> relax.Expr:
    """Clip values; the limits of integers are truncated, and limits out of range have no effect."""
    dtype = require(call, "float", "int")
    low, high = float(call.attributes["a_min"]), float(call.attributes["a_max"])
    if is_float(dtype):
        return clip_floats(call, dtype, low, high)
    least, largest = integer_range(dtype)
    limits = [largest if limit >= largest else int(max(limit, least)) for limit in (low, high)]
    return call.emit(relax.op.clip(first_input(call), *limits))


def clip_floats(call: Call, dtype: str, low: float, high: float) -> relax.Expr:
    """Clip floating-point numbers; limits that the dtype cannot represent have no effect."""
    largest = float("inf") if dtype == "bfloat16" else float(np.finfo(dtype).max)
    if max(abs(low), abs(high)) <= largest:
        return call.emit(relax.op.clip(first_input(call), low, high))
    result = first_input(call)
    if abs(high) <= largest:
        result = call.emit(relax.op.minimum(result, relax.const(high, dtype)))
    if abs(low) <= largest:
        result = call.emit(relax.op.maximum(result, relax.const(low, dtype)))
    return result


def scaled(value: Any, multiplier: Any, left: Any, right: Any) -> Any:
    """Multiply by multiplier / 2^31 and a power of two in int64, rounding halves up."""
    value = (value.astype("int64") << left.astype("int64")) * multiplier.astype("int64")
    total = right.astype("int64") + 31
    one = tirx.const(1, "int64")
    return ((value + (one << (total - 1))) >> total).astype("int32")


@converts("fixed_point_multiply")
def fixed_point_multiply(call: Call) -> relax.Expr:
    """Multiply int32 by multiplier / 2^31 * 2^shift."""
    if input_dtype(call) != "int32":
        raise call.fail(f"expected a tensor of int32, found dtype {input_dtype(call)}")
    multiplier, shift_by = int(call.attributes["multiplier"]), int(call.attributes["shift"])
    if not -32 < shift_by < 32:
        raise call.fail(f"attribute 'shift': expected int in [-31, 31], found {shift_by}")

    def element(value: Any) -> Any:
        if multiplier != 1 << 30 or shift_by < -30:
            left, right = max(shift_by, 0), max(-shift_by, 0)
            return scaled(value, *(tirx.const(v, "int32") for v in (multiplier, left, right)))
        # A power of two: Relay shifts in int32.
        if shift_by > 1:
            return value << tirx.const(shift_by - 1, "int32")
        if shift_by == 1:
            return value
        distance = 1 - shift_by
        rounded = value + tirx.const(1 << (distance - 1), "int32")
        return rounded >> tirx.const(distance, "int32")

    return call.emit_te(
        lambda data: te.compute(data.shape, lambda *index: element(data(*index))), first_input(call)
    )


@converts("fixed_point_multiply_per_axis")
def fixed_point_multiply_per_axis(call: Call) -> relax.Expr:
    """Multiply int32 by multipliers / 2^31 and powers of two, one for each index of the axes."""
    if any(input_dtype(call, i) != "int32" for i in range(4)):
        raise call.fail("expected tensors of int32")
    axes = call.ints("axes")
    has_left = bool(call.attributes["is_lshift_required"])

    def te_multiply(data: te.Tensor, *factors: te.Tensor) -> te.Tensor:
        def element(*index: tirx.Var) -> Any:
            channel = [index[axis] for axis in axes]
            multiplier, left, right = (factor(*channel) for factor in factors)
            left = left if has_left else tirx.const(0, "int32")
            return scaled(data(*index), multiplier, left, right)

        return te.compute(data.shape, element)

    return call.emit_te(te_multiply, *call.operands)
