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
"""sin, cos and atan2."""

import math
from collections.abc import Callable

from tvm import tirx

from .expressions import (
    WIDE_ROUNDER,
    float32,
    float64,
    int32,
    let,
    magnitude_with_sign,
    polynomial,
)

__all__ = ["atan", "atan2", "cos", "is_far", "sin"]

# sin(r) = r + r^3 p(r^2) for |r| <= pi / 4; relative error 4.1e-9.
_SIN = (-0.16666655242443085, 0.008332187309861183, -0.00019517909095156938)
# cos(r) = 1 - r^2 / 2 + r^4 p(r^2) for |r| <= pi / 4; relative error 1.2e-10.
_COS = (0.04166664555668831, -0.0013887309469282627, 2.4432338250335306e-05)
# atan(q) = q + q^3 p(q^2) for 0 <= q <= 1; relative error 2.7e-9.
_ATAN = (
    -0.33333298563957214,
    0.1999853402376175,
    -0.14264102280139923,
    0.10951506346464157,
    -0.08401580899953842,
    0.05792718753218651,
    -0.03114885278046131,
    0.010899621061980724,
    -0.0017903806874528527,
)

# pi / 2 in two parts of float64.  The upper one has 33 bits: its products with integers of up to 20
# bits are exact.
_HALF_PI_HIGH, _HALF_PI_LOW = 1.5707963267341256, 6.077100506506192e-11
# Up to here, the two parts suffice.
_MAX_REDUCIBLE = 2.0**20
# pi / 2 and pi in two parts of float32.


def is_far(x: tirx.Expr) -> tirx.Expr:
    """Whether :func:`sin` and :func:`cos` are inaccurate: x is too large; false for NaN."""
    return tirx.abs(x) > float32(_MAX_REDUCIBLE)


def sin(x: tirx.Var) -> tirx.Expr:
    """sin(x) unless :func:`is_far`, with an error below 1.6 ulp."""
    # A sum of zeros would lose the sign.
    return tirx.Select(x == float32(0), x, _of_quadrant(x, 0))


def cos(x: tirx.Var) -> tirx.Expr:
    """cos(x) unless :func:`is_far`, with an error below 1.6 ulp."""
    return _of_quadrant(x, 1)


def _of_quadrant(x: tirx.Var, quarters: int) -> tirx.Expr:
    """sin(x + quarters pi / 2) = +-sin(r) or +-cos(r), where x = n pi / 2 + r."""

    def choose(r: tirx.Var, quadrant: tirx.Var) -> tirx.Expr:
        def of_square(square: tirx.Var) -> tirx.Expr:
            sine = r + r * (square * polynomial(square, _SIN))
            curved = square * square * polynomial(square, _COS)
            cosine = float32(1) + (curved - square * float32(0.5))
            is_odd = tirx.op.bitwise_and(quadrant, int32(1)) != int32(0)
            return let(tirx.Select(is_odd, cosine, sine), signed)

        def signed(value: tirx.Var) -> tirx.Expr:
            is_lower = tirx.op.bitwise_and(quadrant, int32(2)) != int32(0)
            return tirx.Select(is_lower, float32(0) - value, value)

        return let(r * r, of_square)

    return _reduced(x, lambda r, n: let(n + int32(quarters), lambda n: choose(r, n)))


def _reduced(x: tirx.Var, body: Callable[[tirx.Var, tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """Apply `body` to r and the lower bits of n, where x = n pi / 2 + r, |r| <= pi / 4."""

    def of_rounded(x: tirx.Var, rounded: tirx.Var) -> tirx.Expr:
        n = rounded - float64(WIDE_ROUNDER)
        rest = (x - n * float64(_HALF_PI_HIGH)) - n * float64(_HALF_PI_LOW)
        bits = tirx.reinterpret("int64", rounded).astype("int32")
        return let(rest.astype("float32"), lambda r: body(r, bits))

    def of_wide(x: tirx.Var) -> tirx.Expr:
        rounded = x * float64(2 / math.pi) + float64(WIDE_ROUNDER)
        return let(rounded, lambda rounded: of_rounded(x, rounded))

    return let(x.astype("float64"), of_wide)


def atan(x: tirx.Var) -> tirx.Expr:
    """atan(x), with an error below 0.6 ulp."""
    return let(float32(1), lambda one: atan2(x, one))


def atan2(y: tirx.Var, x: tirx.Var) -> tirx.Expr:
    """The angle of the point (x, y), with an error below 0.6 ulp."""

    def of_magnitudes(a: tirx.Var, b: tirx.Var) -> tirx.Expr:
        is_steep = a > b
        smaller, larger = tirx.Select(is_steep, b, a), tirx.Select(is_steep, a, b)
        # The quotient of two infinities or zeros would be NaN.
        of_equal = tirx.Select(a == float64(0), a, float64(1))
        quotient = tirx.Select(a == b, of_equal, smaller / larger)
        return let(quotient, lambda q: let(arc(q), lambda angle: turned(angle, is_steep)))

    def arc(q: tirx.Var) -> tirx.Expr:
        """atan(q) for 0 <= q <= 1."""
        return q + q * let(q * q, lambda square: square * polynomial(square, _ATAN))

    def turned(angle: tirx.Var, is_steep: tirx.Expr) -> tirx.Expr:
        # The sign bit: the angle of a negative zero is pi.
        is_left = tirx.reinterpret("int32", x) < int32(0)
        steep = tirx.Select(is_left, float64(math.pi / 2) + angle, float64(math.pi / 2) - angle)
        flat = tirx.Select(is_left, float64(math.pi) - angle, angle)
        return tirx.Select(is_steep, steep, flat).astype("float32")

    a, b = (tirx.abs(value).astype("float64") for value in (y, x))
    whole = let(a, lambda a: let(b, lambda b: of_magnitudes(a, b)))
    return magnitude_with_sign(whole, y)
