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
"""Operands that broadcast along symbolic dims.

Trigger
    Operands that broadcast along two different symbolic dims.
Mechanism
    Type inference infers no shape if it cannot compare two extents.

The extent that two extents broadcast to gets its own symbol: the expression ``b == 1 ? a : b``
repeats them, so its size would double with each operator that follows.  Broadcasting is
associative, commutative and idempotent, so the set of extents that broadcast together identifies
the result.
"""

from collections.abc import Sequence

from tvm import relax, te, tirx

from ....fixes.onnx_importer import EXPAND
from ....support import switches
from ...extents import choose, equal, expression
from ..call import Call, Extent, converts
from .shape_operands import named, require, retyped

__all__ = [
    "BROADCASTING",
    "broadcast_batches",
    "broadcast_extent",
    "broadcast_to",
    "convert_broadcasting",
    "require_broadcast",
]

BROADCASTING = (
    "Add",
    "And",
    "BitShift",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "Or",
    "Pow",
    "Sub",
    "Sum",
    "Where",
    "Xor",
)
"""The operators whose operands broadcast to one shape."""

# For these, TVM takes the maximum extent, which is wrong for 0 and 1, and for a symbol and 1.
_STACKED = frozenset({"Max", "Mean", "Min", "Sum"})


@converts(*BROADCASTING, place="broadcast", fix=EXPAND)
def convert_broadcasting(call: Call) -> relax.Expr:
    """Convert one of :data:`BROADCASTING`; broadcast its operands if TVM would not.

    If neither of two dims is known to be 1, the model checks at run time that they broadcast.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If dims do not broadcast.
    """
    return _broadcast(call, rank=0)


@converts("MatMul", place="operands", fix=EXPAND)
def broadcast_batches(call: Call) -> relax.Expr:
    """Convert a MatMul; broadcast its batch dims if TVM would not.

    If neither of two dims is known to be 1, the model checks at run time that they broadcast.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If dims do not broadcast.
    """
    return _broadcast(call, rank=2)


def _broadcast(call: Call, *, rank: int) -> relax.Expr:
    """Convert a node whose operands broadcast on all but their last `rank` axes."""
    shapes = _shapes(call, rank)
    if len(shapes) < 2 or _is_broadcast_by_tvm(call, shapes):
        return call.proceed()
    switches.note(EXPAND)
    reason = "expected extents that are equal or 1"
    result = []
    for column in _columns(shapes):
        extent = column[0]
        for other in column[1:]:
            require_broadcast(call, extent, other, "shapes of the operands", shapes, reason)
            extent = broadcast_extent(call, extent, other)
        result.append(extent)
    # The requirements may imply that extents are equal.
    call = call.with_operands(*(call.known.refined(call.builder, x) for x in call.operands))
    if _is_broadcast_by_tvm(call, _shapes(call, rank)):
        return call.proceed()
    whole = _shapes(call, 0)
    operands = [
        call.emit(broadcast_to(call, operand, shape, [*result, *shape[len(shape) - rank :]]))
        for operand, shape in zip(call.operands, whole, strict=True)
    ]
    return call.with_operands(*operands).proceed()


def _shapes(call: Call, rank: int) -> list[list[Extent]]:
    """The operands' shapes without the last `rank` axes; [] if one is unknown or too short."""
    shapes = [call.known.extents(operand) for operand in call.operands]
    known = [shape[: len(shape) - rank] for shape in shapes if shape is not None]
    if len(known) < len(shapes) or any(rank and len(shape or ()) < rank for shape in shapes):
        return []
    return known


def _columns(shapes: Sequence[list[Extent]]) -> list[tuple[Extent, ...]]:
    """The extents of each axis of the result."""
    rank = max(map(len, shapes))
    return list(zip(*([1] * (rank - len(shape)) + shape for shape in shapes), strict=True))


def _is_broadcast_by_tvm(call: Call, shapes: Sequence[list[Extent]]) -> bool:
    for extents in _columns(shapes):
        # The extents that may not be 1.
        others = [extent for extent in extents if not call.known.equal(extent, 1)]
        is_stacked = call.operator in _STACKED and 0 < len(others) < len(extents)
        if is_stacked and any(extent == 0 or not isinstance(extent, int) for extent in others):
            return False
        if not all(call.known.is_evident(extent, others[0]) for extent in others[1:]):
            return False
    return True


def require_broadcast(
    call: Call, a: Extent, b: Extent, subject: str, value: object, reason: str
) -> None:
    """Reject the `value` of `subject` unless two extents broadcast; see :func:`require`."""
    known = call.known
    if known.covers(a, b) or known.covers(b, a):
        return
    is_one = [equal(known, a, 1), equal(known, b, 1)]
    same = equal(known, a, b)
    if True in (*is_one, same):
        return
    # If an extent being 1 implies that both are equal, the check for equality covers it.
    own = [one for one in is_one if one is not False and not known.follows(one, a, b)]
    unknown = own if same is False else [*own, same]
    require(call, tirx.any(*unknown) if unknown else False, subject, value, reason)
    if not own:
        known.assume_equal(a, b)


def broadcast_extent(call: Call, a: Extent, b: Extent) -> Extent:
    """The extent that two extents broadcast to; the caller has required that they do."""
    known = call.known
    if known.equal(a, 1) or known.covers(b, a) or known.equal(b, 1) is False:
        return known.simplify(b)
    if known.equal(b, 1) or known.covers(a, b) or known.equal(a, 1) is False:
        return known.simplify(a)
    extent = known.join_of(a, b)
    if extent is None:
        extent = named(call, choose(known, equal(known, b, 1), a, b), "broadcast")
        known.remember_join(extent, a, b)
    return extent


def broadcast_to(
    call: Call, data: relax.Expr, extents: Sequence[Extent], result: Sequence[Extent]
) -> relax.Expr:
    """Broadcast `data` of shape `extents` to `result`; each extent is 1 or that of the result."""
    lead = len(result) - len(extents)
    pairs = list(zip(extents, result[lead:], strict=True))
    if not lead and all(call.known.equal(*pair) for pair in pairs):
        return retyped(call, data, result)
    if all(call.known.equal(source, 1) or call.known.equal(source, got) for source, got in pairs):
        return relax.op.broadcast_to(data, relax.ShapeExpr(result))

    def broadcast(tensor: te.Tensor, *shape: Extent) -> te.Tensor:
        def element(*indices: tirx.Var) -> tirx.Expr:
            positions = [
                tirx.Select(extent == 1, tirx.const(0, "int64"), index)
                for extent, index in zip(tensor.shape, indices[lead:], strict=True)
            ]
            return tensor(*positions)

        return te.compute([expression(extent) for extent in shape], element)

    return call.builder.emit_te(broadcast, data, *result)
