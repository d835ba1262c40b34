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
"""exp, and the functions that are computed from it or resemble it: erf, tanh and sigmoid."""

import math
from collections.abc import Callable, Sequence

from tvm import tirx

from .expressions import (
    BIAS,
    ROUNDER,
    clamp,
    float32,
    int32,
    let,
    polynomial,
    power_of_two,
    unbound,
)

__all__ = ["erf", "exp", "sigmoid", "tanh"]

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
# Below _LOWEST, exp is 0 in float32; above _HIGHEST, it is infinite.
_LOWEST, _HIGHEST = -104.0, 89.0


def exp(x: tirx.Var) -> tirx.Expr:
    return let(clamp(x, _LOWEST, _HIGHEST), _exp_inside)


def _exp_inside(x: tirx.Var) -> tirx.Expr:
    """exp between the limits at which it is 0 and infinite in float32."""

    def scaled(power: tirx.Expr, biased: tirx.Var) -> tirx.Expr:
        # In two steps, since neither 2^-150 nor 2^128 is a normal number.
        def in_steps(half: tirx.Var) -> tirx.Expr:
            return power * power_of_two(half) * power_of_two(biased - half)

        return let(tirx.op.shift_right(biased, int32(1)), in_steps)

    return _exp_scaled(x, 2 * BIAS, scaled)


def _exp_normal(x: tirx.Var) -> tirx.Expr:
    """exp for -87 <= x <= 88, where it is a normal number."""
    return _exp_scaled(x, BIAS, lambda power, biased: power * power_of_two(biased))


def _exp_scaled(
    x: tirx.Var, bias: int, scaled: Callable[[tirx.Expr, tirx.Var], tirx.Expr]
) -> tirx.Expr:
    """exp(x) = 2^n exp(r), where n is x / ln(2) rounded to an integer, and r = x - n ln(2).

    `scaled` gets exp(r), and an int32 whose lower 22 bits are n + `bias`. If x is NaN, exp(r) is
    NaN, and the bits are arbitrary.
    """
    rounder = float32(ROUNDER + bias)

    def of_rounded(rounded: tirx.Var) -> tirx.Expr:
        n = rounded - rounder
        rest = (x - n * float32(_LN2_HIGH)) - n * float32(_LN2_LOW)
        power = let(rest, lambda r: float32(1) + (r + r * r * polynomial(r, _EXP)))
        biased = tirx.reinterpret("int32", rounded)
        return let(biased, lambda bits: scaled(power, bits))

    return let(x * float32(1 / math.log(2)) + rounder, of_rounded)


def erf(x: tirx.Var) -> tirx.Expr:
    def inside(clamped: tirx.Var) -> tirx.Expr:
        shifted = clamped * clamped - float32(_ERF_MIDDLE)
        # Rounding may give a magnitude above 1.
        value = clamped * let(unbound(shifted), lambda s: polynomial(s, _ERF))
        return let(value, lambda value: clamp(value, -1, 1))

    return let(clamp(x, -_ERF_END, _ERF_END), inside)


def tanh(x: tirx.Var) -> tirx.Expr:
    def of_magnitude(a: tirx.Var) -> tirx.Expr:
        clamped = tirx.Select(a > float32(_TANH_END), float32(_TANH_END), a)
        large = float32(1) - float32(2) / (let(clamped * float32(2), _exp_normal) + float32(1))
        return _odd(x, a, _TANH_BEGIN, _TANH, large)

    return let(tirx.abs(x), of_magnitude)


def _odd(
    x: tirx.Var, magnitude: tirx.Var, begin: float, small: Sequence[float], large: tirx.Expr
) -> tirx.Expr:
    """An odd function: x p(x^2) up to a magnitude of `begin`, then `large`, negated for x < 0."""
    near_zero = x * let(x * x, lambda square: polynomial(square, small))
    signed = tirx.Select(x < float32(0), float32(0) - large, large)
    return tirx.Select(magnitude < float32(begin), near_zero, signed)


def sigmoid(x: tirx.Var) -> tirx.Expr:
    # The exponential of -|x| does not overflow.
    def of_exponential(e: tirx.Var) -> tirx.Expr:
        return tirx.Select(x < float32(0), e, float32(1)) / (float32(1) + e)

    return let(let(float32(0) - tirx.abs(x), exp), of_exponential)
