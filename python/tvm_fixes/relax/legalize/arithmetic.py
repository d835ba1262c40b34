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
"""Lowering of arithmetic operators whose textbook formulas are inaccurate or overflow.

Trigger
    ``relax.nn.selu``, ``nn.softplus`` and ``log_add_exp`` near zero and far from it;
    ``floor_divide`` and ``floor_mod`` of floating-point numbers; ``power``, ``mod`` and
    ``log_add_exp`` of bfloat16; ``nn.gelu``, ``nn.gelu_tanh`` and ``nn.silu`` of 16-bit floats;
    ``add``, ``multiply``, ``divide`` and ``nn.leakyrelu`` with a scalar 0, ``subtract`` with a
    scalar -0; ``sign`` and ``negative`` of unsigned integers, and ``sign`` of booleans;
    ``ewise_fma``; ``add``, ``subtract`` and ``multiply`` of uint32 and uint64; casts to bfloat16,
    and of it to integers.
Mechanism
    The formulas add 1 to a much smaller exponential, or subtract 1 from an exponential near 1;
    exponentials overflow; each step of a gelu is rounded to 16 bits; quotients are rounded before
    the floor.  Scalar constants in a kernel are folded, so 0 times an element is 0.  bfloat16 is
    computed in float32, and casts between the two are dropped.  The sign of booleans and unsigned
    integers uses a -1 of their dtype, and TVM marks unsigned 32-bit and 64-bit arithmetic as never
    wrapping around in LLVM (``nuw``).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax, te, tirx, topi

from ...fixes.elements import ARITHMETIC_LEGALIZE as FIX_ID
from ...support import switches
from . import wrapping
from .numbers import as_tensors, with_constants
from .override import Legalize, legalizes

_NARROW = ("float16", "bfloat16")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_SIGNED = ("int8", "int16", "int32", "int64")
_WRAPPING = ("uint32", "uint64")
_FLOATS = (*_NARROW, "float32", "float64")

# S. Hochreiter et al., Self-Normalizing Neural Networks.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _selu(x: te.Tensor) -> te.Tensor:
    numbers = (_SELU_SCALE, _SELU_ALPHA * _SELU_SCALE, 0.5, 1, 0)
    scale, alpha, half, one, zero = (tirx.const(number, x.dtype) for number in numbers)

    def element(*at: tirx.Var) -> tirx.Expr:
        # The exponential of a positive number might overflow.
        least = tirx.Select(x(*at) < zero, x(*at), zero)
        less = tirx.tanh(least * half) * (tirx.exp(least) + one)  # exp(least) - 1
        return tirx.Select(x(*at) < zero, alpha * less, scale * x(*at))

    return te.compute(x.shape, element, name="selu")


def _gelu(x: te.Tensor) -> te.Tensor:
    half, one, factor = (tirx.const(number, x.dtype) for number in (0.5, 1, math.sqrt(0.5)))
    return te.compute(
        x.shape, lambda *at: x(*at) * half * (one + tirx.erf(x(*at) * factor)), name="gelu"
    )


def _gelu_tanh(x: te.Tensor) -> te.Tensor:
    numbers = (0.5, 1, math.sqrt(2 / math.pi), 0.044715)
    half, one, factor, cubic = (tirx.const(number, x.dtype) for number in numbers)

    def element(*at: tirx.Var) -> tirx.Expr:
        inner = factor * (x(*at) + cubic * (x(*at) * x(*at) * x(*at)))
        return x(*at) * half * (one + tirx.tanh(inner))

    return te.compute(x.shape, element, name="gelu_tanh")


def _silu(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *at: x(*at) * tirx.sigmoid(x(*at)), name="silu")


def _softplus(x: te.Tensor, beta: float, threshold: float) -> te.Tensor:
    factor, limit, zero = (tirx.const(number, x.dtype) for number in (beta, threshold, 0))

    def element(*at: tirx.Var) -> tirx.Expr:
        scaled = x(*at) * factor
        logarithm = tirx.log1p(tirx.exp(zero - tirx.abs(scaled)))
        soft = (tirx.Select(scaled < zero, zero, scaled) + logarithm) / factor
        return tirx.Select(scaled > limit, x(*at), soft)

    return te.compute(x.shape, element, name="softplus")


def _log_add_exp(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    distance = topi.negative(topi.abs(topi.subtract(a, b)))
    beyond = te.compute(
        distance.shape, lambda *at: tirx.log1p(tirx.exp(distance(*at))), name="beyond"
    )
    total = topi.add(topi.maximum(a, b), beyond)
    # The difference of equal infinities is NaN.  A NaN operand must stay NaN, but the maximum may
    # drop it.
    same = topi.logical_and(topi.equal(a, b), topi.isinf(topi.add(a, b)))
    return topi.where(same, topi.add(a, b), total)


def _floor_mod(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The exact remainder, moved to the sign of the divisor; zero keeps the sign of the dividend.

    PyTorch's zeros have these signs; those of Python and NumPy have the sign of the divisor.
    """
    zero = tirx.const(0, a.dtype)
    remainder = topi.mod(a, b)
    negative, positive = topi.less(b, zero), topi.greater(b, zero)
    below = topi.logical_and(topi.less(remainder, zero), positive)
    above = topi.logical_and(topi.greater(remainder, zero), negative)
    return topi.where(topi.logical_or(below, above), topi.add(remainder, b), remainder)


def _zero_signed_as(x: te.Tensor) -> te.Tensor:
    # TVM considers -0.0 and 0.0 equal, and drops a Select between them.
    zero = tirx.const(0, x.dtype)
    return te.compute(x.shape, lambda *at: tirx.copysign(zero, x(*at)), name="signed_zero")


def _floor_divide(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The floor of the exact quotient, as in Python and PyTorch; a divisor of 0 gives a / b."""
    zero, half, one = (tirx.const(number, a.dtype) for number in (0, 0.5, 1))
    quotient = topi.divide(a, b)
    remainder = topi.mod(a, b)
    # An integer up to rounding.
    whole = topi.divide(topi.subtract(a, remainder), b)
    below = topi.logical_and(topi.less(remainder, zero), topi.greater(b, zero))
    above = topi.logical_and(topi.greater(remainder, zero), topi.less(b, zero))
    whole = topi.where(topi.logical_or(below, above), topi.subtract(whole, one), whole)
    floor = topi.floor(whole)
    is_more = topi.greater(topi.subtract(whole, floor), half)
    floor = topi.where(is_more, topi.add(floor, one), floor)
    floor = topi.where(topi.equal(whole, zero), _zero_signed_as(quotient), floor)
    return topi.where(topi.equal(b, zero), quotient, floor)


def _sign(x: te.Tensor) -> te.Tensor:
    if x.dtype == "bool":
        return topi.identity(x)
    zero = tirx.const(0, x.dtype)
    return te.compute(x.shape, lambda *at: (x(*at) > zero).astype(x.dtype), name="sign")


def _leakyrelu(x: te.Tensor, slope: te.Tensor) -> te.Tensor:
    zero = tirx.const(0, x.dtype)

    def element(*at: tirx.Var) -> tirx.Expr:
        return tirx.Select(x(*at) > zero, x(*at), x(*at) * slope())

    return te.compute(x.shape, element, name="leakyrelu")


# The computation of each operator with a scalar 0, which is read as a tensor element so that TVM
# does not fold it.
_WITH_ZERO = {
    "relax.add": topi.add,
    "relax.subtract": topi.subtract,
    "relax.multiply": topi.multiply,
    "relax.divide": topi.divide,
    "relax.nn.leakyrelu": _leakyrelu,
}


@legalizes(*_WITH_ZERO)
def _legalize_zero(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    name, dtype, arguments = call.op.name, str(call.ty.dtype), with_constants(bb, call).args
    if name == "relax.nn.leakyrelu":
        arguments = [*arguments, relax.const(float(call.attrs.alpha), dtype)]
    folds = isinstance(call.ty, relax.TensorType) and _folds(name, arguments)
    if not (switches.enabled(FIX_ID) and "float" in dtype and folds):
        return _legalize(bb, call, stock) if name in _OPERATORS else stock(bb, call)
    switches.note(FIX_ID)
    return bb.call_te(_WITH_ZERO[name], *arguments, primfunc_name_hint=name.rpartition(".")[2])


def _folds(name: str, arguments: Sequence[relax.Expr]) -> bool:
    """Whether TVM folds a scalar 0 among the arguments, and changes a result.

    Sums with -0 and differences with 0 equal the other operand.
    """
    zeros = [argument for argument in arguments if _is_zero(argument)]
    if name == "relax.add":
        return any(not _is_negative(zero) for zero in zeros)
    if name == "relax.subtract":
        return _is_zero(arguments[1]) and _is_negative(arguments[1])
    return bool(zeros)


def _is_zero(expr: relax.Expr) -> bool:
    """Whether an expression is a scalar constant 0 or -0."""
    return _is_number(expr) and not expr.value.numpy().any()


def _is_negative(number: relax.Expr) -> bool:
    return bool(np.signbit(number.value.numpy().astype("float64")))


def _is_number(expr: relax.Expr) -> bool:
    """Whether an expression is a scalar constant."""
    return isinstance(expr, tvm.ir.GenericConst) and not expr.value.shape


def _cast_rounded(x: te.Tensor, dtype: str) -> te.Tensor:
    """Round a number to the nearest bfloat16, ties to even, and cast that to `dtype`."""

    def element(*at: tirx.Var) -> tirx.Expr:
        bits = tirx.reinterpret("uint32", x(*at).astype("float32"))
        sixteen, one, half, upper = (tirx.const(n, "uint32") for n in (16, 1, 0x7FFF, 0xFFFF_0000))
        rounded = (bits + half + ((bits >> sixteen) & one)) & upper
        # TVM does not vectorize isnan, and rounding may turn the bits of a NaN into a number's.
        magnitude, infinity, nan = (
            tirx.const(n, "uint32") for n in (0x7FFF_FFFF, 0x7F80_0000, 0x7FC0_0000)
        )
        nearest = tirx.Select((bits & magnitude) > infinity, nan, rounded)
        return tirx.reinterpret("float32", nearest).astype(dtype)

    return te.compute(x.shape, element, name="round")


@legalizes("relax.astype")
def _legalize_cast(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    """Lower a cast to bfloat16, or of a computed bfloat16 to an integer, with explicit rounding.

    In a fused kernel, TVM computes bfloat16 in float32 and drops casts between the two.
    """
    [x], target = call.args, str(call.ty.dtype)
    source = str(x.ty.dtype)
    if source == "bfloat16":
        is_computed = isinstance(x, relax.Var) and bb.lookup_binding(x) is not None
        needs_rounding = is_computed and "int" in target
    else:
        is_exact = source in ("bool", "int8", "uint8")
        needs_rounding = target == "bfloat16" and not is_exact and "float8" not in source
    if not (switches.enabled(FIX_ID) and needs_rounding):
        return stock(bb, call)
    switches.note(FIX_ID)
    return bb.call_te(_cast_rounded, x, target, primfunc_name_hint="cast")


def _multiply_add(a: te.Tensor, b: te.Tensor, c: te.Tensor) -> te.Tensor:
    if a.dtype in _WRAPPING:
        return wrapping.add(wrapping.multiply(a, b), c)
    return topi.add(topi.multiply(a, b), c)


_Compute = Callable[..., te.Tensor]

# The computation of each operator and the dtypes it applies to; TVM lowers other dtypes.
_OPERATORS: dict[str, tuple[_Compute, tuple[str, ...]]] = {
    "relax.nn.gelu": (_gelu, _NARROW),
    "relax.nn.gelu_tanh": (_gelu_tanh, _NARROW),
    "relax.nn.silu": (_silu, _NARROW),
    "relax.nn.selu": (_selu, _FLOATS),
    "relax.nn.softplus": (_softplus, _FLOATS),
    "relax.log_add_exp": (_log_add_exp, _FLOATS),
    "relax.floor_divide": (_floor_divide, _FLOATS),
    "relax.floor_mod": (_floor_mod, _FLOATS),
    "relax.sign": (_sign, (*_UNSIGNED, "bool")),
    "relax.negative": (wrapping.negative, _UNSIGNED),
    "relax.add": (wrapping.add, _WRAPPING),
    "relax.subtract": (wrapping.subtract, _WRAPPING),
    "relax.multiply": (wrapping.multiply, _WRAPPING),
    "relax.ewise_fma": (_multiply_add, (*_FLOATS, *_UNSIGNED, *_SIGNED)),
    "relax.mod": (topi.mod, ("bfloat16",)),
    "relax.power": (topi.power, ("bfloat16",)),
}


@legalizes(*(_OPERATORS.keys() - _WITH_ZERO.keys()))
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    compute, dtypes = _OPERATORS[call.op.name]
    operands = {str(getattr(operand.ty, "dtype", None)) for operand in call.args}
    is_known = len(operands) == 1 and operands.issubset(dtypes)
    if not (switches.enabled(FIX_ID) and is_known and isinstance(call.ty, relax.TensorType)):
        return stock(bb, call)
    [dtype] = operands
    switches.note(FIX_ID)
    call = with_constants(bb, call)
    numbers = [call.attrs.beta, call.attrs.threshold] if compute is _softplus else []
    tensors = list(call.args)
    if compute is topi.power and _is_number(tensors[1]):
        # LowerElementaryFunctions multiplies for a known exponent.
        numbers.append(tensors.pop().value.numpy())

    def wide(*operands: te.Tensor | tirx.Expr) -> te.Tensor:
        tensors = as_tensors(*operands)
        if dtype not in _NARROW:
            return compute(*tensors, *map(float, numbers))
        result = compute(*(topi.cast(t, "float32") for t in tensors), *map(float, numbers))
        return topi.cast(result, dtype)

    name = call.op.name.rpartition(".")[2]
    return bb.call_te(wide, *tensors, primfunc_name_hint=name)
