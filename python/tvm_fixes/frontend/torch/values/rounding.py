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
"""Sizes that PyTorch computes with floating point, as integers.

``ceil(n / 4)`` is a float that is rounded, and so is the number of elements of ``arange(0.5, n)``.
Relax cannot infer the type of a call such as ``ceil`` within an extent, and nothing is provable
of a float.  The same integer is a quotient of integers::

    before: CeilToInt(IntTrueDiv(n, 4))
    after:  -(-n // 4)
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

import sympy
import torch
from torch.utils._sympy.functions import (
    CeilToInt,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    ToFloat,
    TruncToInt,
)
from tvm import tirx

__all__ = ["rounded_to_int", "with_integer_quotients"]

_ROUNDINGS = (CeilToInt, FloorToInt, TruncToInt)

_MAX_DENOMINATOR = 2**10
"""A float of less than 2**43 with this denominator, or a smaller power of two, is exact."""

_Ratio: TypeAlias = tuple[sympy.Expr, int]
"""An integer, and the power of two by which it is divided."""


@cache
def with_integer_quotients(expression: sympy.Basic) -> sympy.Basic:
    """Replace each rounded float whose value is that of a quotient of integers."""
    if not expression.has(*_ROUNDINGS):
        return expression
    return expression.replace(lambda part: isinstance(part, _ROUNDINGS), _rounded)


def _rounded(rounding: Any) -> Any:
    """A rounded quotient as an integer; `rounding` itself if its value may differ."""
    [value] = rounding.args
    is_quotient = isinstance(value, FloatTrueDiv | IntTrueDiv)
    # A quotient of integers below 2**53 is never rounded up to the next integer.
    ratios = _ratios(value.args if is_quotient else (value,))
    if not ratios:
        return rounding
    numerator, denominator = ratios[0][0], sympy.Integer(ratios[0][1])
    if is_quotient:
        numerator, denominator = numerator * ratios[1][1], denominator * ratios[1][0]
    if isinstance(rounding, CeilToInt):
        return -FloorDiv(-numerator, denominator)
    is_floor = isinstance(rounding, FloorToInt)
    if is_floor or (numerator.is_nonnegative and denominator.is_positive):
        return FloorDiv(numerator, denominator)
    return rounding


def _ratio(value: Any) -> _Ratio | None:
    """An exact float as an integer by a power of two; None if it may be inexact."""
    if isinstance(value, ToFloat):
        return value.args[0], 1
    if isinstance(value, sympy.Float | sympy.Rational):
        exact = Fraction(float(value))
        is_power = exact.denominator & (exact.denominator - 1) == 0
        fits = is_power and exact.denominator <= _MAX_DENOMINATOR
        return (sympy.Integer(exact.numerator), exact.denominator) if fits else None
    if not isinstance(value, sympy.Add | sympy.Mul):
        return (value, 1) if value.is_integer and not value.has(sympy.Float) else None
    ratios = _ratios(value.args)
    if not ratios:
        return None
    numerator, denominator = ratios[0]
    for factor, divisor in ratios[1:]:
        if isinstance(value, sympy.Mul):
            numerator, denominator = numerator * factor, denominator * divisor
        else:
            common = max(denominator, divisor)
            numerator = numerator * (common // denominator) + factor * (common // divisor)
            denominator = common
    return (numerator, denominator) if denominator <= _MAX_DENOMINATOR else None


def _ratios(values: Sequence[Any]) -> list[_Ratio]:
    """The ratio of each value; none if one may be inexact."""
    ratios = [_ratio(value) for value in values]
    known = [ratio for ratio in ratios if ratio is not None]
    return known if len(known) == len(ratios) else []


def rounded_to_int(
    is_beyond: Callable[..., tirx.Expr] | None, step: int
) -> Callable[[Any, torch.dtype], Any]:
    """The rounding of a float as an expression without a call.

    Parameters
    ----------
    is_beyond : callable, optional
        Whether the truncated value is past the float, and takes one more step.
    step : int
        The step.
    """

    def rounded(value: Any, _dtype: torch.dtype) -> Any:
        if isinstance(value, int):
            return value
        truncated = tirx.Cast("int64", value)
        if is_beyond is None:
            return truncated
        is_past = is_beyond(tirx.Cast("float64", truncated), value)
        return tirx.Select(is_past, truncated + step, truncated)

    return rounded
