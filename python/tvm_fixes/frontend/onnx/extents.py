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
"""Arithmetic of extents, which are ints or expressions."""

from collections.abc import Iterable
from functools import reduce

from tvm import tirx

from .values import Extent, KnownValues

__all__ = [
    "END",
    "choose",
    "equal",
    "expression",
    "greatest",
    "is_static",
    "least",
    "product",
    "simplified",
    "slice_range",
]

END = 2**31 - 1
"""A bound from which on it is the end of an axis (ONNX operator specification, Slice)."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def least(known: KnownValues, *values: Extent) -> Extent:
    """The least of some extents."""

    def lesser(a: Extent, b: Extent) -> Extent:
        if known.less(b, a) is False:
            return a
        if known.less(a, b) is False:
            return b
        return known.simplify(tirx.min(expression(a), expression(b)))

    return reduce(lesser, values)


def greatest(known: KnownValues, *values: Extent) -> Extent:
    """The greatest of some extents."""

    def greater(a: Extent, b: Extent) -> Extent:
        if known.less(a, b) is False:
            return a
        if known.less(b, a) is False:
            return b
        return known.simplify(tirx.max(expression(a), expression(b)))

    return reduce(greater, values)


def product(known: KnownValues, values: Iterable[Extent]) -> Extent:
    """The product of some extents; 1 of none."""
    return known.simplify(reduce(lambda a, b: a * b, values, 1))


def is_static(*values: Extent) -> bool:
    """Whether no extent is an expression."""
    return not any(isinstance(value, tirx.Expr) for value in values)


def equal(known: KnownValues, a: Extent, b: Extent) -> bool | tirx.Expr:
    """Whether two extents are equal."""
    verdict = known.equal(a, b)
    if verdict is not None:
        return verdict
    for extreme, number in ((a, b), (b, a)):
        if isinstance(extreme, tirx.Min | tirx.Max) and isinstance(number, int):
            for bound, other in ((extreme.a, extreme.b), (extreme.b, extreme.a)):
                # What the least of an extent and a greater number is, the extent is.
                if known.less(*_ordered(extreme, number, bound)):
                    return equal(known, other, number)
    return tirx.EQ(expression(a), expression(b))


def _ordered(extreme: tirx.Expr, number: Extent, bound: Extent) -> tuple[Extent, Extent]:
    return (number, bound) if isinstance(extreme, tirx.Min) else (bound, number)


def choose(
    known: KnownValues, condition: bool | tirx.Expr, then: Extent, otherwise: Extent
) -> Extent:
    """One of two extents."""
    condition = simplified(known, condition)
    if isinstance(condition, bool):
        return then if condition else otherwise
    if known.equal(then, otherwise):
        return then
    return known.simplify(tirx.Select(condition, expression(then), expression(otherwise)))


def expression(value: Extent) -> tirx.Expr:
    """An extent as an expression of dtype int64."""
    return value if isinstance(value, tirx.Expr) else tirx.const(value, "int64")


def simplified(known: KnownValues, condition: bool | tirx.Expr) -> bool | tirx.Expr:
    condition = known.simplify(condition)
    return condition if isinstance(condition, tirx.Expr) else bool(condition)


def slice_range(
    known: KnownValues, extent: Extent, start: Extent, end: Extent, step: int
) -> tuple[Extent, Extent]:
    """The first index and the number of indices on an axis.

    Bounds that are negative count from the end of the axis, and are then clamped to it (ONNX
    operator specification, Slice; NumPy does not clamp ``start`` to 0 where the step is negative).
    The largest integer as ``end`` stands for the end in the direction of the step, as in ONNX
    Runtime.
    """
    if step < 0 and isinstance(end, int) and end in (END, _INT64_MAX):
        end = _INT64_MIN
    start, end = (_from_end(known, bound, extent) for bound in (start, end))
    if step > 0:
        # At most the end: TVM computes the extent from it, negative if it were behind the axis.
        first = least(known, greatest(known, start, 0), extent)
        # The least of the differences of clamped bounds, in which extents cancel out.
        span = least(known, extent, end, extent - start, end - start)
    else:
        first = greatest(known, least(known, start, extent - 1), 0)
        last = greatest(known, least(known, end, extent - 1), -1)
        span = choose(known, equal(known, extent, 0), 0, first - last)
    return first, greatest(known, (span - 1) // abs(step) + 1, 0)


def _from_end(known: KnownValues, bound: Extent, extent: Extent) -> Extent:
    if isinstance(bound, int):
        if bound >= END:
            return extent
        if bound < -END:
            return -1
    return choose(known, bound < 0, bound + extent, bound)
