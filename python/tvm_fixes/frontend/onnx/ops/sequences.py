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
"""Sequences of static length, as tuples, and optionals.

An operation on a sequence only changes which tensors the tuple has, so its positions must be known.
A SequenceMap is a function of these operators and a Loop, which is unrolled.
"""

from collections.abc import Sequence

from tvm import relax
from tvm.relax import op

from ....fixes.onnx_importer import OPERATORS
from ....support import switches
from ..call import Call, converts
from ..stock import is_empty_optional
from .shape_operands import axes_of, extents_or_symbols, length_of, shaped, vector
from .slice import take_ranges


def _fields(call: Call, index: int = 0) -> list[relax.Expr]:
    """The tensors of a sequence."""
    sequence = call.operand(index)
    if not isinstance(sequence, relax.Tuple):
        what = "nothing" if sequence is None else sequence.ty
        raise call.invalid(f"operand {index}", what, "expected a sequence of static length")
    return list(sequence.fields)


def _position(call: Call, index: int, count: int, default: int) -> int:
    """A position from 0 to `count` - 1; a negative one counts from the end."""
    position = default
    if call.operand(index) is not None:
        constant = call.constant(index)
        if constant is None or constant.size != 1:
            raise call.invalid("operand position", call.operand(index), "expected a constant")
        position = int(constant.item())
    if not -count <= position < count:
        reason = f"expected {-count} to {count - 1}"
        raise call.invalid("operand position", position, reason)
    return position % count


def _at(call: Call) -> relax.Expr:
    fields = _fields(call)
    return fields[_position(call, 1, len(fields), -1)]


def _erase(call: Call) -> relax.Expr:
    fields = _fields(call)
    del fields[_position(call, 1, len(fields), -1)]
    return relax.Tuple(fields)


def _insert(call: Call) -> relax.Expr:
    fields = _fields(call)
    # The position after the last tensor is valid too.
    count = len(fields)
    constant = None if call.operand(2) is None else call.constant(2)
    if constant is not None and constant.size == 1 and -count <= constant.item() < 0:
        position = int(constant.item()) + count
    else:
        position = _position(call, 2, count + 1, count)
    fields.insert(position, call.operands[1])
    return relax.Tuple(fields)


def _concat(call: Call) -> relax.Expr:
    fields = _fields(call)
    if not fields:
        raise call.invalid("length of the sequence", 0, "expected 1 tensor or more")
    axis, is_new = call.attributes["axis"], call.attributes.get("new_axis", 0)
    if is_new not in (0, 1):
        raise call.invalid("attribute new_axis", is_new, "expected 0 or 1")
    ranks = [len(shaped(call.with_operands(field), 0, "input")[1]) for field in fields]
    (axis,) = axes_of(call, [axis], ranks[0] + is_new)
    if set(ranks) != {ranks[0]}:
        raise call.invalid("ranks of the tensors", ranks, "expected equal ranks")
    if is_new:
        fields = [call.emit(op.expand_dims(field, axis)) for field in fields]
    return op.concat(fields, axis)


def _split(call: Call) -> relax.Expr:
    """Split a tensor into parts of extent 1, of one extent, or of a list of extents."""
    data, extents = shaped(call, 0, "input")
    (axis,) = axes_of(call, [call.attributes.get("axis", 0)], len(extents))
    extent = extents[axis]
    if call.operand(1) is not None and len(call.operands[1].ty.shape) == 1:
        count = length_of(vector(call, 1, "split"))
        sizes = extents_or_symbols(call, 1, "split")
        total = sum(sizes[1:], sizes[0]) if count else 0
        if call.known.equal(total, extent) is False:
            raise call.invalid("operand split", sizes, f"expected a sum of {extent}")
    else:
        given = call.constant(1) if call.operand(1) is not None else None
        if not isinstance(extent, int) or (call.operand(1) is not None and given is None):
            place = f"extent {extent} and split {call.operand(1)}"
            raise call.invalid("input", place, "expected a static extent and a constant split")
        size = 1 if given is None else int(given.item())
        if size < 1:
            raise call.invalid("operand split", size, "expected 1 or more")
        sizes = [min(size, extent - start) for start in range(0, extent, size)]
    parts, start = [], 0
    for size in sizes:
        part = call.emit(take_ranges(call, data, [axis], [(start, size)], [1]))
        parts.append(part)
        start = start + size
    if call.operand(1) is None and not call.attributes.get("keepdims", 1):
        parts = [call.emit(op.squeeze(part, [axis])) for part in parts]
    return relax.Tuple(parts)


def _is_empty(call: Call) -> bool:
    """Whether the operand is missing, or the result of an Optional without an operand."""
    return call.operand(0) is None or is_empty_optional(call.operands[0])


def _has_element(call: Call) -> relax.Expr:
    return relax.const(not _is_empty(call), "bool")


def _get_element(call: Call) -> relax.Expr:
    if _is_empty(call):
        raise call.invalid("operand", "an empty optional", "expected an element")
    return call.operands[0]


_CONVERTERS = {
    "ConcatFromSequence": _concat,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": lambda call: relax.Tuple(list(call.operands)),
    "SequenceEmpty": lambda call: relax.Tuple([]),
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda call: relax.const(len(_fields(call)), "int64"),
    "SplitToSequence": _split,
}

SEQUENCES: Sequence[str] = tuple(_CONVERTERS)
"""The operators on sequences and optionals with a converter here."""


@converts(*SEQUENCES, fix=OPERATORS)
def convert_sequence_operator(call: Call) -> relax.Expr:
    """Convert one of :data:`SEQUENCES`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the length of a sequence or a position is unknown, or a position is out of range.
    """
    switches.note(OPERATORS)
    return _CONVERTERS[call.operator](call)
