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
"""LowerElementaryFunctions: expands exp, erf, tanh, sigmoid and small powers, to vectorize them.

Upstream
    None known.
Versions
    Seen in 0.27.0.post1.
Trigger
    ``exp``, ``erf``, ``tanh``, ``sigmoid`` or ``pow`` of floats with 32 bits or fewer, on a CPU;
    gelu, silu and softmax use them. ``round``. ``atanh``, and ``tanh`` of float64; ``acos``,
    ``sinh`` and others of float16, also on a GPU.
Symptom
    ``tanh`` of 1e-6 is 5% off.  A build fails with "unknown intrinsic".  A kernel takes about ten
    times as long as PyTorch's.
Mechanism
    ``tanh`` is lowered to ``(1 - e) / (1 + e)`` with ``e = exp(-2 x)``, whose numerator cancels.
    The other functions become a call of the C library for each element, and LLVM does not vectorize
    a loop with a call.  TVM does not vectorize ``nearbyint``, which ``R.round`` becomes.
How to remove
    When TVM passes the tests of this file, delete it, its tests, its line in
    :mod:`tvm_fixes.tirx.semantics` and the fix id ``elementary-functions``.
"""

import math
from collections.abc import Callable, Sequence

import tvm
from tvm import s_tir, tirx
from tvm_ffi import structural_map, structural_walk

from ...fixes.elements import ELEMENTARY_FUNCTIONS as FIX_ID
from ...target.cpu import is_cpu
from ..library_functions import with_library_functions, with_wide_functions
from ..util import contains, prim_func_pass, scalarized, widened_bfloat16

_DTYPES = ("float32", "float16", "bfloat16")
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def LowerElementaryFunctions() -> tvm.transform.Pass:
    """Expand the elementary functions of a CPU's kernels to polynomials; widen those of a GPU's.

    Before::

        y[i] = T.tanh(x[i])

    and after, in one expression::

        a = T.fabs(x[i])
        small = x[i] * (1 + x[i] * x[i] * (...))
        large = 1 - 2 / (exp(2 * a) + 1)
        y[i] = T.Select(a < 0.625, small, T.Select(x[i] < 0, -large, large))

    The error is less than 1.1 units in the last place of float32 for ``exp``, 2 for ``tanh``, 3 for
    ``sigmoid`` and 4 for ``erf``.  ``pow`` is expanded if the exponent is 2 or 3, as in PyTorch.
    NaN, infinities and signed zeros are handled.  float16 and bfloat16 are computed in float32;
    float64 is not expanded.  For a GPU, nothing is expanded: the functions that CUDA lacks for
    float16 and bfloat16 are computed in float32.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs.
    """

    return prim_func_pass("LowerElementaryFunctions", FIX_ID, _lower, any_target=True)


def is_elementary_function(call: tvm.ir.Call) -> bool:
    """Whether a call expands to dozens of operations; powers expand to few."""
    return _function_of(call) is not None and call.op.name in _FUNCTIONS


def nests_functions(stored: tirx.BufferStore, reader: tvm.Object) -> bool:
    """Whether `reader` applies an elementary function to a stored result of another one.

    Compiling both in one expression takes minutes: TVM's code generator simplifies the value of
    each variable after substituting the values of the variables in it.
    """
    if not contains(stored.value, tvm.ir.Call, is_elementary_function):
        return False

    def reads(argument: tirx.Expr) -> bool:
        return contains(
            argument, tvm.ir.TensorLoad, lambda load: load.source.same_as(stored.buffer)
        )

    return contains(
        reader, tvm.ir.Call, lambda call: is_elementary_function(call) and reads(call.args[0])
    )


def repeats_functions(stored: tirx.BufferStore, reader: tvm.Object) -> bool:
    """Whether `reader` compares a stored result of an elementary function, or reads it twice.

    Compiling these in one expression takes as long as for nested functions.
    """
    if not contains(stored.value, tvm.ir.Call, is_elementary_function):
        return False
    reads: list[tvm.ir.TensorLoad] = []

    def look(load: tvm.ir.TensorLoad) -> None:
        if load.source.same_as(stored.buffer):
            reads.append(load)

    def compares(pair: tirx.LT) -> bool:
        count = len(reads)
        structural_walk(pair, (tvm.ir.TensorLoad, look))
        return len(reads) > count

    if contains(reader, _COMPARISONS, compares):
        return True
    structural_walk(reader, (tvm.ir.TensorLoad, look))
    return len(reads) > 1


def _lower(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    if not is_cpu(target):
        return with_wide_functions(function)
    function = structural_map(with_library_functions(function), (tvm.ir.Call, _vectorizable_round))
    if not contains(function.body, tvm.ir.Call, lambda call: _function_of(call) is not None):
        return function
    function = _read_as_integers(_without_bfloat16(function, target))
    lowered = structural_map(function, (tvm.ir.Call, _lower_call))
    return structural_map(lowered, (tirx.For, _scalarized))


def _vectorizable_round(call: tvm.ir.Call) -> tvm.ir.Call:
    """``round`` for ``nearbyint``: both round half to even, but TVM vectorizes only the former."""
    is_nearbyint = isinstance(call.op, tvm.ir.Op) and call.op.name == "tirx.nearbyint"
    return tirx.round(call.args[0]) if is_nearbyint else call


def _scalarized(loop: tirx.For) -> tirx.For:
    """Turn a vectorized loop that stores bfloat16 into a scalar loop.

    TVM rounds to bfloat16 by an expression that repeats the value with the variables bound in it,
    and it does not vectorize that.
    """

    def repeats_variables(store: tirx.BufferStore) -> bool:
        value = store.value
        if _is_reinterpret(value):
            value = value.args[0]
        return str(value.ty) == "bfloat16" and contains(value, tirx.Let)

    return scalarized(loop, lambda body: contains(body, tirx.BufferStore, repeats_variables))


def _without_bfloat16(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Legalize bfloat16 computations to float32; later, TVM would miss those in a Let's value."""
    is_bound = "target" in function.attrs
    bound = function if is_bound else function.with_attr("target", target)
    legal = tirx.transform.BF16ComputeLegalize()(tvm.IRModule({"main": bound}))["main"]
    return legal if is_bound else legal.without_attr("target")


def _read_as_integers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Read and store bfloat16 buffers as uint16, except parameters and parts of them.

    In the value of a Let, TVM misses that it has replaced a bfloat16 buffer by integers, and would
    convert the integers to floats.
    """
    kept = list(function.params)

    def keep(part: s_tir.MatchBufferRegion) -> None:
        if part.source.source in kept:
            kept.append(part.buffer)

    structural_walk(function.body, (s_tir.MatchBufferRegion, keep))
    integers: dict[tirx.Var, tirx.Var] = {}

    def look(buffer: tirx.Var) -> None:
        if str(buffer.dtype) == "bfloat16" and buffer not in kept:
            if buffer not in integers:
                integers[buffer] = tirx.decl_buffer(
                    buffer.shape, "uint16", buffer.name, scope=buffer.scope()
                )

    structural_walk(function.body, (tvm.ir.TensorLoad, lambda load: look(load.source)))
    structural_walk(function.body, (tirx.BufferStore, lambda store: look(store.buffer)))

    def load(old: tvm.ir.TensorLoad) -> tirx.Expr:
        if old.source not in integers:
            return old
        return tirx.reinterpret(str(old.ty), tirx.BufferLoad(integers[old.source], old.indices))

    def store(old: tirx.BufferStore) -> tirx.Stmt:
        if old.buffer not in integers:
            return old
        bits = tirx.reinterpret(str(old.value.ty).replace("bfloat16", "uint16"), old.value)
        return tirx.BufferStore(integers[old.buffer], bits, old.indices)

    def widen(old: tirx.Cast) -> tirx.Expr:
        is_widening = str(old.ty) == "float32" and str(old.value.ty) == "bfloat16"
        return widened_bfloat16(old.value) if is_widening else old

    function = structural_map(function, (tvm.ir.TensorLoad, load))
    function = structural_map(function, (tirx.BufferStore, store))
    function = structural_map(function, (tirx.Cast, widen))
    return structural_map(function, (tirx.Var, lambda var: integers.get(var, var)))


def _is_reinterpret(value: tirx.Expr) -> bool:
    return (
        isinstance(value, tvm.ir.Call)
        and isinstance(value.op, tvm.ir.Op)
        and value.op.name == "tirx.reinterpret"
    )


def _function_of(call: tvm.ir.Call) -> Callable[..., tirx.Expr] | None:
    if not isinstance(call.op, tvm.ir.Op) or str(call.ty) not in _DTYPES:
        return None
    if call.op.name == "tirx.pow":
        exponent = call.args[1]
        return _POWERS.get(exponent.value) if isinstance(exponent, tirx.FloatImm) else None
    return _FUNCTIONS.get(call.op.name)


def _lower_call(call: tvm.ir.Call) -> tirx.Expr:
    function = _function_of(call)
    if function is None:
        return call
    return _let(call.args[0].astype("float32"), function).astype(str(call.ty))


def _let(value: tirx.Expr, body: Callable[[tirx.Var], tirx.Expr]) -> tirx.Expr:
    """Apply `body` to `value`, bound to a variable so that it is computed once."""
    var = tirx.Var("x", value.ty)
    return tirx.Let(var, value, body(var))


def _polynomial(x: tirx.Expr, coefficients: Sequence[float]) -> tirx.Expr:
    """The polynomial with these coefficients, the constant one first, by Horner's rule."""
    *rest, result = [tirx.const(coefficient, "float32") for coefficient in coefficients]
    for coefficient in reversed(rest):
        result = result * x + coefficient
    return result


# The polynomials are minimax polynomials over the given interval, by Lawson's iteration with 40
# digits; each coefficient is rounded to float32 before the next one is fitted.

# exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2) / 2; relative error 3.4e-9.
_EXP = (
    0.4999999403953552,
    0.16666516661643982,
    0.041668280959129333,
    0.008369249291718006,
    0.001382077462039888,
)
# erf(x) = x p(x^2 - 7.683...) for |x| <= 3.92, where erf is 1 in float32; relative error 4.6e-8.
# Around the middle of the interval of x^2, the terms are not much larger than their sum.
_ERF_END = 3.92
_ERF_MIDDLE = 7.683199882507324
_ERF = (
    0.36073681712150574,
    -0.023441873490810394,
    0.00227139750495553,
    -0.00024072338419500738,
    2.6000972866313532e-05,
    -2.7641378892440116e-06,
    2.8349830927254516e-07,
    -2.7524187373728637e-08,
    2.4718951330271466e-09,
    -2.125549874998356e-10,
    1.8836368229080414e-11,
    -1.430725980397507e-12,
    6.578608100979433e-14,
    -3.83078781912051e-15,
    6.210713972833691e-16,
    -4.607614718474323e-17,
    9.524694206357954e-19,
)
# tanh(x) = x p(x^2) for |x| <= 0.625; relative error 4.5e-9.  From 10 on it is 1 in float32.
_TANH_END = 10.0
_TANH_BEGIN = 0.625
_TANH = (
    1.0,
    -0.3333328068256378,
    0.1333140879869461,
    -0.05373706296086311,
    0.02063090354204178,
    -0.0056963395327329636,
)

# ln(2) in two parts.  The upper one has few enough bits that its product with an exponent is exact.
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06
# The bias of a float32's exponent, and the position of its lowest bit.
_BIAS = 127
_MANTISSA_BITS = 23
# From 2^23 to 2^24, all float32 numbers are integers: adding this number rounds to an integer.
_ROUNDER = 1.5 * 2**_MANTISSA_BITS
# Below _LOWEST, exp is 0 in float32; above _HIGHEST, it is infinite.
_LOWEST, _HIGHEST = -104.0, 89.0


def _exp(x: tirx.Var) -> tirx.Expr:
    return _let(_clamp(x, _LOWEST, _HIGHEST), _exp_inside)


def _exp_inside(x: tirx.Var) -> tirx.Expr:
    """exp between the limits at which it is 0 and infinite in float32."""

    def scaled(power: tirx.Expr, biased: tirx.Var) -> tirx.Expr:
        # In two steps, since neither 2^-150 nor 2^128 is a normal number.
        def in_steps(half: tirx.Var) -> tirx.Expr:
            return power * _power_of_two(half) * _power_of_two(biased - half)

        return _let(tirx.op.shift_right(biased, tirx.const(1, "int32")), in_steps)

    return _exp_scaled(x, 2 * _BIAS, scaled)


def _exp_normal(x: tirx.Var) -> tirx.Expr:
    """exp for -87 <= x <= 88, where it is a normal number."""
    return _exp_scaled(x, _BIAS, lambda power, biased: power * _power_of_two(biased))


def _exp_scaled(
    x: tirx.Var, bias: int, scaled: Callable[[tirx.Expr, tirx.Var], tirx.Expr]
) -> tirx.Expr:
    """exp(x) = 2^n exp(r), where n is x / ln(2) rounded to an integer, and r = x - n ln(2).

    `scaled` gets exp(r), and an int32 whose lower 22 bits are n + `bias`. If x is NaN, exp(r) is
    NaN, and the bits are arbitrary.
    """
    rounder = _float(_ROUNDER + bias)

    def of_rounded(rounded: tirx.Var) -> tirx.Expr:
        n = rounded - rounder
        rest = (x - n * _float(_LN2_HIGH)) - n * _float(_LN2_LOW)
        power = _let(rest, lambda r: _float(1) + (r + r * r * _polynomial(r, _EXP)))
        biased = tirx.reinterpret("int32", rounded)
        return _let(biased, lambda bits: scaled(power, bits))

    return _let(x * _float(1 / math.log(2)) + rounder, of_rounded)


def _power_of_two(biased: tirx.Expr) -> tirx.Expr:
    """2^n, where the lower 9 bits of `biased` are n + 127, from 1 to 254."""
    bits = tirx.op.shift_left(biased, tirx.const(_MANTISSA_BITS, "int32"))
    return tirx.reinterpret("float32", bits)


def _erf(x: tirx.Var) -> tirx.Expr:
    def inside(clamped: tirx.Var) -> tirx.Expr:
        shifted = clamped * clamped - _float(_ERF_MIDDLE)
        # Rounding may give a magnitude above 1.
        value = clamped * _let(shifted, lambda s: _polynomial(s, _ERF))
        return _let(value, lambda value: _clamp(value, -1, 1))

    return _let(_clamp(x, -_ERF_END, _ERF_END), inside)


def _clamp(x: tirx.Var, lowest: float, highest: float) -> tirx.Expr:
    """Clamp x to the limits; NaN stays NaN."""
    lower, upper = _float(lowest), _float(highest)
    # In this form, each Select is one x86 instruction.
    below = tirx.Select(x > upper, upper, x)
    return tirx.Select(below < lower, lower, below)


def _tanh(x: tirx.Var) -> tirx.Expr:
    def of_magnitude(a: tirx.Var) -> tirx.Expr:
        clamped = tirx.Select(a > _float(_TANH_END), _float(_TANH_END), a)
        large = _float(1) - _float(2) / (_let(clamped * _float(2), _exp_normal) + _float(1))
        return _odd(x, a, _TANH_BEGIN, _TANH, large)

    return _let(tirx.abs(x), of_magnitude)


def _odd(
    x: tirx.Var, magnitude: tirx.Var, begin: float, small: Sequence[float], large: tirx.Expr
) -> tirx.Expr:
    """An odd function: x p(x^2) up to a magnitude of `begin`, then `large`, negated for x < 0."""
    near_zero = x * _let(x * x, lambda square: _polynomial(square, small))
    signed = tirx.Select(x < _float(0), _float(0) - large, large)
    return tirx.Select(magnitude < _float(begin), near_zero, signed)


def _sigmoid(x: tirx.Var) -> tirx.Expr:
    # The exponential of -|x| does not overflow.
    def of_exponential(e: tirx.Var) -> tirx.Expr:
        return tirx.Select(x < _float(0), e, _float(1)) / (_float(1) + e)

    return _let(_let(_float(0) - tirx.abs(x), _exp), of_exponential)


def _float(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


_FUNCTIONS: dict[str, Callable[[tirx.Var], tirx.Expr]] = {
    "tirx.exp": _exp,
    "tirx.erf": _erf,
    "tirx.tanh": _tanh,
    "tirx.sigmoid": _sigmoid,
}

_POWERS: dict[float, Callable[[tirx.Var], tirx.Expr]] = {
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
}
