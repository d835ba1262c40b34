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
"""The remainder of a division."""

import math

from tvm import tirx

from .expressions import WIDE_ROUNDER, float32, float64, let, magnitude_with_sign

__all__ = ["fmod", "has_large_quotient"]

# The product of a smaller integer and a float32 is exact in float64.
_MAX_QUOTIENT = 2.0**28


def has_large_quotient(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """Whether :func:`fmod` is inaccurate: for a large quotient, or an infinite divisor."""
    # A product, not a quotient: TVM folds no division by a constant 0.
    dividend, divisor = (tirx.abs(value).astype("float64") for value in (x, y))
    is_large = dividend >= divisor * float64(_MAX_QUOTIENT)
    return tirx.Or(is_large, tirx.abs(y) == float32(math.inf))


def fmod(x: tirx.Var, y: tirx.Var) -> tirx.Expr:
    """The exact remainder of x / y, with the sign of x, unless :func:`has_large_quotient`."""

    def of_magnitudes(a: tirx.Var, b: tirx.Var) -> tirx.Expr:
        # Either the remainder, or that minus the divisor: at most half a divisor from 0, and exact.
        def of_rounded(rounded: tirx.Var) -> tirx.Expr:
            nearest = rounded - float64(WIDE_ROUNDER)
            return let(a - nearest * b, lambda rest: upward(rest, b))

        return let(a / b + float64(WIDE_ROUNDER), of_rounded)

    def upward(rest: tirx.Var, b: tirx.Var) -> tirx.Expr:
        remainder = tirx.Select(rest < float64(0), rest + b, rest).astype("float32")
        return magnitude_with_sign(tirx.abs(remainder), x)

    a, b = (tirx.abs(value).astype("float64") for value in (x, y))
    return let(a, lambda a: let(b, lambda b: of_magnitudes(a, b)))
