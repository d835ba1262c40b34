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
"""Elementwise functions of one and two operands, comparisons, selections and casts."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from ...extents import is_static
from ..call import MAX_KNOWN, Array, Call, Value, converts, is_quantized

_UNARY: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "ABS": relax.op.abs,
    "CEIL": relax.op.ceil,
    "COS": relax.op.cos,
    "FLOOR": relax.op.floor,
    "NEG": relax.op.negative,
    "ROUND": relax.op.round,
    "SIGN": relax.op.sign,
    "SIN": relax.op.sin,
    "SQRT": relax.op.sqrt,
    "SQUARE": relax.op.square,
}

_ARITHMETIC: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "ADD": relax.op.add,
    "SUB": relax.op.subtract,
    "MUL": relax.op.multiply,
    "DIV": relax.op.divide,
    "POW": relax.op.power,
    "ATAN2": relax.op.atan2,
    "FLOOR_DIV": relax.op.floor_divide,
    "FLOOR_MOD": relax.op.floor_mod,
}

_ON_INTEGERS: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "MAXIMUM": relax.op.maximum,
    "MINIMUM": relax.op.minimum,
}

_COMPARISONS: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "EQUAL": relax.op.equal,
    "NOT_EQUAL": relax.op.not_equal,
    "LESS": relax.op.less,
    "LESS_EQUAL": relax.op.less_equal,
    "GREATER": relax.op.greater,
    "GREATER_EQUAL": relax.op.greater_equal,
}

# What can be computed of extents at import.
_OF_EXTENTS: dict[str, Callable[..., Any]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "FLOOR_DIV": np.floor_divide,
}
_OF_INTEGERS: dict[str, Callable[..., Any]] = {
    **_OF_EXTENTS,
    "FLOOR_MOD": np.mod,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
}


def _evaluated(call: Call) -> Array | None:
    """The result, if the operands are few integers that are known at import."""
    known = call.known_integers()
    if known is None:
        return None
    is_symbolic = not all(is_static(*value.flat) for value in known)
    function = (_OF_EXTENTS if is_symbolic else _OF_INTEGERS).get(call.operator)
    if function is None or call.option_or("fused_activation_function", "NONE") != "NONE":
        return None
    if call.operator.startswith("FLOOR_") and not np.all(known[1] != 0):
        return None
    values = [value if is_symbolic else value.astype(call.input(0).dtype) for value in known]
    return np.asarray(function(*values))


def reject_wide(call: Call) -> None:
    """Reject 16-bit quantized operands, which LiteRT computes by tables of its own."""
    if is_quantized(call.input(0)) and call.input(0).dtype == "int16":
        raise call.fail("16-bit quantized operands are not supported")


@converts(*_UNARY)
def unary(call: Call) -> relax.Expr:
    """A function of each element."""
    call.check_operands(1)
    return call.as_output(call.emit(_UNARY[call.operator](call.real(0))))


@converts("LOGICAL_NOT")
def logical_not(call: Call) -> relax.Expr:
    """The negation of each element."""
    return relax.op.logical_not(call.operand(0))


@converts("ZEROS_LIKE")
def zeros_like(call: Call) -> relax.Expr:
    """Zeros in the shape of the operand."""
    call.reject_quantized(call.input(0))
    return relax.op.zeros_like(call.operand(0))


@converts(*_ARITHMETIC)
def arithmetic(call: Call) -> Value:
    """A function of two operands, which broadcast."""
    call.check_operands(2)
    known = _evaluated(call)
    if known is not None:
        return known
    is_integer = call.input(0).dtype.startswith(("int", "uint"))
    if is_integer and not is_quantized(call.input(0)) and call.operator in ("DIV", "POW"):
        raise call.fail(f"operands of {call.input(0).dtype} are not supported")
    result = call.emit(_ARITHMETIC[call.operator](call.real(0), call.real(1)))
    return call.as_output(call.activated(result))


@converts("SQUARED_DIFFERENCE")
def squared_difference(call: Call) -> relax.Expr:
    """The square of the difference of two operands."""
    difference = call.emit(relax.op.subtract(call.real(0), call.real(1)))
    return call.as_output(call.emit(relax.op.multiply(difference, difference)))


@converts("ADD_N")
def add_n(call: Call) -> relax.Expr:
    """The sum of all operands, from the first on."""
    total = call.real(0)
    for index in range(1, len(call.operands)):
        total = call.emit(relax.op.add(total, call.real(index)))
    return call.as_output(total)


@converts(*_ON_INTEGERS)
def extremum(call: Call) -> Value:
    """The larger or the smaller one of two elements."""
    known = _evaluated(call)
    if known is not None:
        return known
    call.require_same_quantization(call.outputs[0], call.input(0), call.input(1))
    return _ON_INTEGERS[call.operator](call.operand(0), call.operand(1))


@converts(*_COMPARISONS)
def comparison(call: Call) -> Value:
    """A comparison of two operands."""
    known = _evaluated(call)
    if known is not None:
        return known
    call.require_same_quantization(call.input(0), call.input(1))
    return _COMPARISONS[call.operator](call.operand(0), call.operand(1))


@converts("LOGICAL_AND", "LOGICAL_OR", "BITWISE_XOR", "RIGHT_SHIFT")
def bits(call: Call) -> relax.Expr:
    """A function of two booleans or of the bits of two integers."""
    op = relax.op
    functions = {
        "LOGICAL_AND": op.logical_and,
        "LOGICAL_OR": op.logical_or,
        "BITWISE_XOR": op.logical_xor if call.input(0).dtype == "bool" else op.bitwise_xor,
        "RIGHT_SHIFT": op.right_shift,
    }
    return functions[call.operator](call.operand(0), call.operand(1))


@converts("SELECT", "SELECT_V2")
def select(call: Call) -> relax.Expr:
    """One of two elements, by a condition."""
    condition, then, otherwise = (call.operand(index) for index in range(3))
    call.require_same_quantization(call.outputs[0], call.input(1), call.input(2))
    rank = call.rank(1)
    if call.operator == "SELECT" and call.rank(0) == 1 and rank > 1:
        # A vector of conditions selects along the first axis.
        condition = call.emit(relax.op.expand_dims(condition, list(range(1, rank))))
    return relax.op.where(condition, then, otherwise)


@converts("CAST")
def cast(call: Call) -> Value:
    """The elements in another dtype; quantized ones are integers here."""
    dtype = call.outputs[0].dtype
    known = call.known(0)
    if known is not None and known.size <= MAX_KNOWN and dtype in ("int32", "int64"):
        if known.dtype == object or known.dtype.kind in "iu":
            return known if known.dtype == object else known.astype(dtype)
    if dtype == "bool":
        zero = relax.const(0, call.input(0).dtype)
        return relax.op.not_equal(call.operand(0), zero)
    return relax.op.astype(call.operand(0), dtype)
