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
"""The natural logarithm."""

import math
from collections.abc import Callable

from tvm import tirx

from .expressions import BIAS, MANTISSA_BITS, float32, int32, let, polynomial

__all__ = ["log", "split"]

# log(1 + f) = f - f^2 / 2 + f^3 p(f) for sqrt(1/2) <= 1 + f <= sqrt(2); relative error 5.9e-9.
_LOG = (
    0.3333333134651184,
    -0.2500081956386566,
    0.2000124305486679,
    -0.1662341207265854,
    0.14201544225215912,
    -0.13159537315368652,
    0.1276242733001709,
    -0.07636890560388565,
)
# ln(2) in two parts.  The product of the upper one with an exponent is exact.
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06
# The bits of sqrt(1/2), the smallest mantissa.
_MIN_BITS = 0x3F3504F3
_SMALLEST_NORMAL = 2.0 ** (1 - BIAS)


def log(x: tirx.Var) -> tirx.Expr:
    """log(x) = n ln(2) + log(1 + f), where x = 2^n (1 + f), with an error below 1 ulp."""

    def of_parts(n: tirx.Var, f: tirx.Var) -> tirx.Expr:
        square = f * f
        curved = f * square * polynomial(f, _LOG) - square * float32(0.5) + n * float32(_LN2_LOW)
        return n * float32(_LN2_HIGH) + (f + curved)

    def special(value: tirx.Var) -> tirx.Expr:
        finite = tirx.Select(x > float32(0), value, float32(math.nan))
        at_ends = tirx.Select(x == float32(math.inf), x, finite)
        return tirx.Select(x == float32(0), float32(-math.inf), at_ends)

    return let(split(x, lambda n, m: let(m - float32(1), lambda f: of_parts(n, f))), special)


def split(x: tirx.Var, body: Callable[[tirx.Var, tirx.Var], tirx.Expr]) -> tirx.Expr:
    """Apply `body` to n and m, where x = 2^n m and sqrt(1/2) <= m < sqrt(2).

    If x is negative, zero, infinite or NaN, n and m are arbitrary.
    """
    is_small = x < float32(_SMALLEST_NORMAL)
    normal = tirx.Select(is_small, x * float32(2.0**MANTISSA_BITS), x)
    offset = tirx.Select(is_small, float32(-MANTISSA_BITS), float32(0))

    def of_bits(bits: tirx.Var) -> tirx.Expr:
        def of_exponent(exponent: tirx.Var) -> tirx.Expr:
            m = bits - tirx.op.shift_left(exponent, int32(MANTISSA_BITS))
            n = exponent.astype("float32") + offset
            return let(n, lambda n: let(tirx.reinterpret("float32", m), lambda m: body(n, m)))

        exponent = tirx.op.shift_right(bits - int32(_MIN_BITS), int32(MANTISSA_BITS))
        return let(exponent, of_exponent)

    return let(tirx.reinterpret("int32", normal), of_bits)
