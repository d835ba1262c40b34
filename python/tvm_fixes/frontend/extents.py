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
"""Extents of tensors, which are ints or TIR expressions, and arithmetic on them.

What is provable depends on the importer: ONNX knows which extents its nodes require to be equal
(:class:`~.onnx.values.known.KnownValues`), PyTorch the ranges that ``torch.export`` recorded
(:class:`~.torch.symbols.Symbols`), and Relay nothing (:data:`NO_FACTS`).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Protocol, TypeAlias

from tvm import relax, tirx
from tvm.sym import Analyzer

__all__ = [
    "END",
    "MAX_EXTENT",
    "NO_FACTS",
    "Extent",
    "Facts",
    "choose",
    "equal",
    "expression",
    "extents_of",
    "is_static",
    "maximum",
    "minimum",
    "product",
    "simplified",
    "slice_at",
    "slice_range",
    "static_extent",
]

Extent: TypeAlias = int | tirx.Expr
"""The extent of a dim: an int if it is static, else an expression."""


def extents_of(tensor: relax.Expr) -> list[Extent] | None:
    """The extents of a tensor, static ones as int, or None if they are unknown."""
    shape = getattr(tensor.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in shape.values]


def static_extent(extent: Any) -> int | None:
    """An extent as an int, or None if it is symbolic or no extent."""
    return int(extent) if isinstance(extent, int | tirx.IntImm) else None


class Facts(Protocol):
    """Facts about symbols, by which extents are simplified and compared."""

    def simplify(self, element: Any) -> Any:
        """Simplify an extent or a condition; return a number if it is constant."""

    def equal(self, a: Any, b: Any) -> bool | None:
        """Whether two extents are equal for all values of symbols; None if unknown."""

    def less(self, a: Any, b: Any) -> bool | None:
        """Whether `a` is less than `b` for all values of symbols; None if unknown."""


class _NoFacts:
    def simplify(self, element: Any) -> Any:
        if not isinstance(element, tirx.Expr):
            return element
        element = Analyzer().simplify(element)
        return int(element) if isinstance(element, tirx.IntImm) else element

    def equal(self, a: Any, b: Any) -> bool | None:
        if is_static(a, b):
            return bool(a == b)
        return True if Analyzer().can_prove_equal(a, b) else None

    def less(self, a: Any, b: Any) -> bool | None:
        if is_static(a, b):
            return bool(a < b)
        return True if Analyzer().can_prove(expression(a) < expression(b)) else None


NO_FACTS: Facts = _NoFacts()
"""The facts where nothing is known of symbols."""

END = 2**31 - 1
"""A slice bound of at least this value means the end of an axis (ONNX specification, Slice)."""

MAX_EXTENT = 2**40
"""No axis is longer: a larger step of a slice takes one element, a larger bound means the end."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def minimum(facts: Facts, *values: Extent) -> Extent:
    """The minimum of `values`."""
    return _extreme(facts, values, facts.less, tirx.min)


def maximum(facts: Facts, *values: Extent) -> Extent:
    """The maximum of `values`."""
    return _extreme(facts, values, lambda a, b: facts.less(b, a), tirx.max)


def _extreme(
    facts: Facts,
    values: Sequence[Extent],
    precedes: Callable[[Extent, Extent], bool | None],
    combine: Callable[[tirx.Expr, tirx.Expr], tirx.Expr],
) -> Extent:
    """The value that no other one precedes; an expression if that depends on symbols."""

    def first_of(a: Extent, b: Extent) -> Extent:
        if precedes(b, a) is False:
            return a
        if precedes(a, b) is False:
            return b
        return facts.simplify(combine(expression(a), expression(b)))

    return reduce(first_of, values)


def product(facts: Facts, values: Iterable[Extent]) -> Extent:
    """The product of `values`; 1 for an empty sequence."""
    return facts.simplify(reduce(lambda a, b: a * b, values, 1))


def is_static(*values: Extent) -> bool:
    """Whether all extents are ints."""
    return not any(isinstance(value, tirx.Expr) for value in values)


def equal(facts: Facts, a: Extent, b: Extent) -> bool | tirx.Expr:
    """Whether two extents are equal; an expression if that depends on symbols."""
    verdict = facts.equal(a, b)
    if verdict is not None:
        return verdict
    for extreme, number in ((a, b), (b, a)):
        if isinstance(extreme, tirx.Min | tirx.Max) and isinstance(number, int):
            for bound, other in ((extreme.a, extreme.b), (extreme.b, extreme.a)):
                # If `bound` exceeds `number`, min(bound, other) == number iff other == number; the
                # same holds for max with the order reversed.
                if facts.less(*_ordered(extreme, number, bound)):
                    return equal(facts, other, number)
    return tirx.EQ(expression(a), expression(b))


def _ordered(extreme: tirx.Expr, number: Extent, bound: Extent) -> tuple[Extent, Extent]:
    return (number, bound) if isinstance(extreme, tirx.Min) else (bound, number)


def choose(facts: Facts, condition: bool | tirx.Expr, then: Extent, otherwise: Extent) -> Extent:
    """The extent `then` if `condition` holds, else `otherwise`."""
    condition = simplified(facts, condition)
    if isinstance(condition, bool):
        return then if condition else otherwise
    if facts.equal(then, otherwise):
        return then
    return facts.simplify(tirx.Select(condition, expression(then), expression(otherwise)))


def expression(value: Extent) -> tirx.Expr:
    """An extent as an expression of dtype int64."""
    return value if isinstance(value, tirx.Expr) else tirx.const(value, "int64")


def simplified(facts: Facts, condition: bool | tirx.Expr) -> bool | tirx.Expr:
    condition = facts.simplify(condition)
    return condition if isinstance(condition, tirx.Expr) else bool(condition)


def slice_at(
    builder: relax.BlockBuilder, tensor: relax.Expr, axis: int, position: Extent
) -> relax.Expr:
    """Emit the slice of `tensor` at a position on an axis, without that axis."""
    part = relax.op.strided_slice(tensor, [axis], [position], [position + 1], assume_inbound=True)
    return builder.emit(relax.op.squeeze(builder.emit(part), [axis]))


def slice_range(
    facts: Facts, extent: Extent, start: Extent, end: Extent, step: int
) -> tuple[Extent, Extent]:
    """The first index and the number of indices of a slice of an axis.

    Negative bounds count from the end of the axis; then bounds are clamped to the axis (ONNX
    operator specification, Slice; NumPy does not clamp ``start`` to 0 if the step is negative).
    The largest integer as ``end`` means the end in the direction of the step, as in ONNX Runtime.
    """
    if step < 0 and isinstance(end, int) and end in (END, _INT64_MAX):
        end = _INT64_MIN
    start, end = (_from_end(facts, bound, extent) for bound in (start, end))
    if step > 0:
        # Clamped to the extent: TVM would compute a negative extent from a start beyond the axis.
        first = minimum(facts, maximum(facts, start, 0), extent)
        # The difference of the clamped bounds, as a minimum of terms in which extents cancel.
        span = minimum(facts, extent, end, extent - start, end - start)
    else:
        start = maximum(facts, start, 0)
        first = maximum(facts, minimum(facts, start, extent - 1), 0)
        last = maximum(facts, minimum(facts, end, extent - 1), -1)
        # An axis without elements has the last index -1, so that nothing is left of it.
        span = minimum(facts, start - last, extent - 1 - last)
    # TVM multiplies the divisors of quotients of quotients, and the product may overflow.
    count = minimum(facts, span, 1) if abs(step) >= MAX_EXTENT else (span - 1) // abs(step) + 1
    return first, maximum(facts, count, 0)


def _from_end(facts: Facts, bound: Extent, extent: Extent) -> Extent:
    if isinstance(bound, int):
        if bound >= END:
            return extent
        if bound < -END:
            return -1
    return choose(facts, bound < 0, bound + extent, bound)
