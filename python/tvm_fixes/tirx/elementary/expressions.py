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
"""Expressions of which the elementary functions are composed.

The polynomials of this package are minimax polynomials over the given interval, by Lawson's
iteration with 40 digits; each coefficient is rounded before the next one is fitted.
"""

import functools
from collections.abc import Callable, Sequence

import tvm
from tvm import tirx

__all__ = [
    "BIAS",
    "MANTISSA_BITS",
    "ROUNDER",
    "WIDE_ROUNDER",
    "clamp",
    "float32",
    "float64",
    "int32",
    "let",
    "magnitude_with_sign",
    "opaque",
    "polynomial",
    "power_of_two",
    "unbound",
]

# The bias of a float32's exponent, and the position of its lowest bit.
BIAS = 127
MANTISSA_BITS = 23
# From 2^23 to 2^24, all float32 numbers are integers: adding this number rounds to an integer. The
# same holds for float64 and 2^52.
ROUNDER = 1.5 * 2**MANTISSA_BITS
WIDE_ROUNDER = 1.5 * 2**52


def let(value: tirx.Expr, body: Callable[[tirx.Var], tirx.Expr]) -> tirx.Expr:
    """Apply `body` to `value`, bound to a variable so that it is computed once.

    The value is hidden from TVM's analyzer, which fails if it finds other bounds for the variable
    after it has simplified the value.
    """
    var = tirx.Var("x", value.ty)
    return tirx.Let(var, opaque(value), body(var))


def opaque(value: tirx.Expr) -> tirx.Expr:
    """The same number, from which TVM derives no bounds."""
    dtype = str(value.ty)
    if "float" in dtype:
        return tirx.reinterpret(dtype, tirx.reinterpret(dtype.replace("float", "int"), value))
    return tirx.bitwise_or(value, tirx.const(0, dtype))


def unbound(value: tirx.Expr) -> tirx.Expr:
    """The same number, to read it often from a variable.

    TVM's analyzer replaces a variable by its pure value wherever it is read, in each of a dozen
    passes, but not by a value that may depend on memory.  TVM makes a branch of a Select with such
    an operand.
    """
    return tvm.ir.Call(_unbound(), [value], ret_ty=str(value.ty))


@functools.cache
def _unbound() -> tvm.ir.Op:
    name = "tvm_fixes.unbound"
    reads_memory = 2  # CallEffectKind::kReadState
    attributes = {
        "TCallEffectKind": reads_memory,
        "TVectorizable": True,
        "TScriptPrinterName": name,
        "default.FLowerIntrinsic": lambda call: call.args[0],
    }
    for key, attribute in attributes.items():
        tvm.ir.register_op_attr(name, key, attribute)
    return tvm.ir.Op.get(name)


def polynomial(x: tirx.Expr, coefficients: Sequence[float]) -> tirx.Expr:
    """The polynomial with these coefficients, the constant one first, by Horner's rule."""
    *rest, result = [tirx.const(coefficient, str(x.ty)) for coefficient in coefficients]
    for coefficient in reversed(rest):
        result = result * x + coefficient
    return result


def power_of_two(biased: tirx.Expr) -> tirx.Expr:
    """2^n, where the lower 9 bits of `biased` are n + 127, from 1 to 254."""
    return tirx.reinterpret("float32", tirx.op.shift_left(biased, int32(MANTISSA_BITS)))


def clamp(x: tirx.Var, lowest: float, highest: float) -> tirx.Expr:
    """Clamp x to the limits; NaN stays NaN."""
    lower, upper = tirx.const(lowest, str(x.ty)), tirx.const(highest, str(x.ty))
    # In this form, each Select is one x86 instruction.
    below = tirx.Select(x > upper, upper, x)
    return tirx.Select(below < lower, lower, below)


def magnitude_with_sign(magnitude: tirx.Expr, sign: tirx.Expr) -> tirx.Expr:
    """A float32 that is not negative, with the sign bit of `sign` instead."""
    bit = tirx.op.bitwise_and(tirx.reinterpret("int32", sign), int32(-(2**31)))
    bits = tirx.op.bitwise_or(tirx.reinterpret("int32", magnitude), bit)
    return tirx.reinterpret("float32", bits)


def float32(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


def float64(value: float) -> tirx.Expr:
    return tirx.const(value, "float64")


def int32(value: int) -> tirx.Expr:
    return tirx.const(value, "int32")
