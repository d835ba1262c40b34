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
from tvm.relax.frontend.onnx.onnx_frontend import _is_empty_optional

from ...fixes.onnx_importer import OPERATORS
from ...support import switches
from .node import Converter, Node
from .shape_operands import axes_of, extents_or_symbols, length_of, shaped, vector
from .slice import take_ranges

__all__ = ["SEQUENCES", "convert_sequence_operator"]


def _fields(node: Node, index: int = 0) -> list[relax.Expr]:
    """The tensors of a sequence."""
    sequence = node.operand(index)
    if not isinstance(sequence, relax.Tuple):
        what = "nothing" if sequence is None else sequence.ty
        raise node.invalid(f"operand {index}", what, "expected a sequence of static length")
    return list(sequence.fields)


def _position(node: Node, index: int, count: int, default: int) -> int:
    """A position from 0 to `count` - 1; a negative one counts from the end."""
    position = default
    if node.operand(index) is not None:
        constant = node.constant(index)
        if constant is None or constant.size != 1:
            raise node.invalid("operand position", node.operand(index), "expected a constant")
        position = int(constant.item())
    if not -count <= position < count:
        reason = f"expected {-count} to {count - 1}"
        raise node.invalid("operand position", position, reason)
    return position % count


def _at(node: Node) -> relax.Expr:
    fields = _fields(node)
    return fields[_position(node, 1, len(fields), -1)]


def _erase(node: Node) -> relax.Expr:
    fields = _fields(node)
    del fields[_position(node, 1, len(fields), -1)]
    return relax.Tuple(fields)


def _insert(node: Node) -> relax.Expr:
    fields = _fields(node)
    # The position after the last tensor is valid too.
    count = len(fields)
    constant = None if node.operand(2) is None else node.constant(2)
    if constant is not None and constant.size == 1 and -count <= constant.item() < 0:
        position = int(constant.item()) + count
    else:
        position = _position(node, 2, count + 1, count)
    fields.insert(position, node.operands[1])
    return relax.Tuple(fields)


def _concat(node: Node) -> relax.Expr:
    fields = _fields(node)
    if not fields:
        raise node.invalid("length of the sequence", 0, "expected 1 tensor or more")
    axis, is_new = node.attributes["axis"], node.attributes.get("new_axis", 0)
    if is_new not in (0, 1):
        raise node.invalid("attribute new_axis", is_new, "expected 0 or 1")
    ranks = [len(shaped(node.with_operands(field), 0, "input")[1]) for field in fields]
    (axis,) = axes_of(node, [axis], ranks[0] + is_new)
    if set(ranks) != {ranks[0]}:
        raise node.invalid("ranks of the tensors", ranks, "expected equal ranks")
    if is_new:
        fields = [node.emit(op.expand_dims(field, axis)) for field in fields]
    return op.concat(fields, axis)


def _split(node: Node) -> relax.Expr:
    """Split a tensor into parts of extent 1, of one extent, or of a list of extents."""
    data, extents = shaped(node, 0, "input")
    (axis,) = axes_of(node, [node.attributes.get("axis", 0)], len(extents))
    extent = extents[axis]
    if node.operand(1) is not None and len(node.operands[1].ty.shape) == 1:
        count = length_of(vector(node, 1, "split"))
        sizes = extents_or_symbols(node, 1, "split")
        total = sum(sizes[1:], sizes[0]) if count else 0
        if node.known.equal(total, extent) is False:
            raise node.invalid("operand split", sizes, f"expected a sum of {extent}")
    else:
        given = node.constant(1) if node.operand(1) is not None else None
        if not isinstance(extent, int) or (node.operand(1) is not None and given is None):
            place = f"extent {extent} and split {node.operand(1)}"
            raise node.invalid("input", place, "expected a static extent and a constant split")
        size = 1 if given is None else int(given.item())
        if size < 1:
            raise node.invalid("operand split", size, "expected 1 or more")
        sizes = [min(size, extent - start) for start in range(0, extent, size)]
    parts, start = [], 0
    for size in sizes:
        part = node.emit(take_ranges(node, data, [axis], [(start, size)], [1]))
        parts.append(part)
        start = start + size
    if node.operand(1) is None and not node.attributes.get("keepdims", 1):
        parts = [node.emit(op.squeeze(part, [axis])) for part in parts]
    return relax.Tuple(parts)


def _is_empty(node: Node) -> bool:
    """Whether the operand is missing, or the result of an Optional without an operand."""
    return node.operand(0) is None or _is_empty_optional(node.operands[0])


def _has_element(node: Node) -> relax.Expr:
    return relax.const(not _is_empty(node), "bool")


def _get_element(node: Node) -> relax.Expr:
    if _is_empty(node):
        raise node.invalid("operand", "an empty optional", "expected an element")
    return node.operands[0]


_CONVERTERS = {
    "ConcatFromSequence": _concat,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": lambda node: relax.Tuple(list(node.operands)),
    "SequenceEmpty": lambda node: relax.Tuple([]),
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda node: relax.const(len(_fields(node)), "int64"),
    "SplitToSequence": _split,
}

SEQUENCES: Sequence[str] = tuple(_CONVERTERS)
"""The operators on sequences and optionals with a converter here."""


def convert_sequence_operator(node: Node, convert: Converter) -> relax.Expr:
    """Convert one of :data:`SEQUENCES`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the length of a sequence or a position is unknown, or a position is out of range.
    """
    switches.note(OPERATORS)
    return _CONVERTERS[node.operator](node)
