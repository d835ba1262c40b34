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
"""Arithmetic on extents, which are ints or TIR expressions."""

from collections.abc import Iterable
from functools import reduce

from tvm import tirx

from .known import Extent, KnownValues

__all__ = [
    "END",
    "MAX_EXTENT",
    "choose",
    "equal",
    "expression",
    "is_static",
    "maximum",
    "minimum",
    "product",
    "simplified",
    "slice_range",
]

END = 2**31 - 1
"""A slice bound of at least this value means the end of an axis (ONNX specification, Slice)."""

MAX_EXTENT = 2**40
"""The maximum extent of an axis; a larger step of a slice takes one element."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def minimum(known: KnownValues, *values: Extent) -> Extent:
    """The minimum of `values`."""

    def smaller_of(a: Extent, b: Extent) -> Extent:
        if known.less(b, a) is False:
            return a
        if known.less(a, b) is False:
            return b
        return known.simplify(tirx.min(expression(a), expression(b)))

    return reduce(smaller_of, values)


def maximum(known: KnownValues, *values: Extent) -> Extent:
    """The maximum of `values`."""

    def larger_of(a: Extent, b: Extent) -> Extent:
        if known.less(a, b) is False:
            return a
        if known.less(b, a) is False:
            return b
        return known.simplify(tirx.max(expression(a), expression(b)))

    return reduce(larger_of, values)


def product(known: KnownValues, values: Iterable[Extent]) -> Extent:
    """The product of `values`; 1 for an empty sequence."""
    return known.simplify(reduce(lambda a, b: a * b, values, 1))


def is_static(*values: Extent) -> bool:
    """Whether all extents are ints."""
    return not any(isinstance(value, tirx.Expr) for value in values)


def equal(known: KnownValues, a: Extent, b: Extent) -> bool | tirx.Expr:
    """Whether two extents are equal; an expression if that depends on symbols."""
    verdict = known.equal(a, b)
    if verdict is not None:
        return verdict
    for extreme, number in ((a, b), (b, a)):
        if isinstance(extreme, tirx.Min | tirx.Max) and isinstance(number, int):
            for bound, other in ((extreme.a, extreme.b), (extreme.b, extreme.a)):
                # If `bound` exceeds `number`, min(bound, other) == number iff other == number; the
                # same holds for max with the order reversed.
                if known.less(*_ordered(extreme, number, bound)):
                    return equal(known, other, number)
    return tirx.EQ(expression(a), expression(b))


def _ordered(extreme: tirx.Expr, number: Extent, bound: Extent) -> tuple[Extent, Extent]:
    return (number, bound) if isinstance(extreme, tirx.Min) else (bound, number)


def choose(
    known: KnownValues, condition: bool | tirx.Expr, then: Extent, otherwise: Extent
) -> Extent:
    """The extent `then` if `condition` holds, else `otherwise`."""
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
    """The first index and the number of indices of a slice of an axis.

    Negative bounds count from the end of the axis; then bounds are clamped to the axis (ONNX
    operator specification, Slice; NumPy does not clamp ``start`` to 0 if the step is negative).
    The largest integer as ``end`` means the end in the direction of the step, as in ONNX Runtime.
    """
    if step < 0 and isinstance(end, int) and end in (END, _INT64_MAX):
        end = _INT64_MIN
    start, end = (_from_end(known, bound, extent) for bound in (start, end))
    if step > 0:
        # Clamped to the extent: TVM would compute a negative extent from a start beyond the axis.
        first = minimum(known, maximum(known, start, 0), extent)
        # The difference of the clamped bounds, as a minimum of terms in which extents cancel.
        span = minimum(known, extent, end, extent - start, end - start)
    else:
        start = maximum(known, start, 0)
        first = maximum(known, minimum(known, start, extent - 1), 0)
        last = maximum(known, minimum(known, end, extent - 1), -1)
        # An axis without elements has the last index -1, so that nothing is left of it.
        span = minimum(known, start - last, extent - 1 - last)
    # TVM multiplies the divisors of quotients of quotients, and the product may overflow.
    count = minimum(known, span, 1) if abs(step) >= MAX_EXTENT else (span - 1) // abs(step) + 1
    return first, maximum(known, count, 0)


def _from_end(known: KnownValues, bound: Extent, extent: Extent) -> Extent:
    if isinstance(bound, int):
        if bound >= END:
            return extent
        if bound < -END:
            return -1
    return choose(known, bound < 0, bound + extent, bound)
