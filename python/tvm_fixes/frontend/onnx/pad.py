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
"""Pad.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    Mode ``reflect`` with pads that are not less than the extent; mode ``wrap`` with a negative pad;
    a Pad that a layout is to pass.
Symptom
    Elements that no definition gives, silently; wrong elements, silently; permutes on both sides
    of it.
Mechanism
    The converter checks no width; its TIR for ``wrap`` knows no negative width; it emits a call of
    TIR where there is an operator.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-pad``.
"""

from tvm import relax

from ... import switches
from .node import Converter, Extent, Node, extents_of

__all__ = ["PAD", "convert_pad"]

PAD = "onnx-pad"

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def convert_pad(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Pad to ``relax.nn.pad``.

    Where pads of a mode other than ``constant`` are negative, what they cut off is cut off first
    and what is left is reflected, repeated or wrapped, as in ONNX Runtime.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the mode is unknown, pads, axes or constant_value are no constants or do not fit the
        rank, or more is cut off or reflected than there is.
    """
    data = node.operands[0]
    extents = extents_of(data)
    mode = node.text("mode", "constant")
    if mode not in _MODES or (mode == "wrap" and node.opset < 19):
        known = [name for name in _MODES if name != "wrap" or node.opset >= 19]
        raise node.invalid("attribute mode", mode, f"expected one of {', '.join(known)}")
    if extents is None:
        raise node.invalid("type of data", data.ty, "expected a tensor of known rank")
    widths = given = _widths(node, len(extents))
    fill = _fill(node)
    if fill != float(fill):  # an integer that relax.nn.pad, whose fill is a float, would round
        return convert(node)

    switches.note(PAD)
    if mode != "constant":
        data, extents, widths = _cut(node, data, extents, widths)
    for axis, (extent, (before, after)) in enumerate(zip(extents, widths, strict=True)):
        if not isinstance(extent, int):
            continue
        least = {"constant": 0, "reflect": max(before, after) + 1}.get(mode, 1)
        if extent + before + after < 0 or (max(before, after) > 0 and extent < least):
            reason = f"expected less in mode {mode} for axis {axis}, of {extent} elements"
            raise node.invalid("pads (before, after) of each axis", given, reason)
    if not any(map(any, widths)):
        return data
    return relax.op.nn.pad(data, [w for pair in widths for w in pair], _MODES[mode], float(fill))


def _widths(node: Node, rank: int) -> list[tuple[int, int]]:
    """The padding before and after each axis."""
    if node.opset < 11:
        pads, axes = list(node.attributes.get("pads", [])), None
    else:
        pads = _integers(node, 1, "pads")
        axes = None if node.operand(3) is None else _integers(node, 3, "axes")
    if axes is None:
        axes = list(range(rank))
    positions = [axis + rank if axis < 0 else axis for axis in axes]
    if len(set(positions)) != len(positions) or not set(positions) <= set(range(rank)):
        reason = f"expected different axes of {rank}"
        raise node.invalid("operand axes", axes, reason)
    if len(pads) != 2 * len(axes):
        reason = f"expected two for each of {len(axes)} axes"
        raise node.invalid("pads", pads, reason)
    widths = [(0, 0)] * rank
    for index, axis in enumerate(positions):
        widths[axis] = (pads[index], pads[index + len(axes)])
    return widths


def _integers(node: Node, index: int, name: str) -> list[int]:
    value = node.constant(index)
    if value is None:
        raise node.invalid(f"operand {name}", node.operand(index), "expected a constant")
    return value.ravel().tolist()


def _fill(node: Node) -> float:
    if node.opset < 11:
        return node.attributes.get("value", 0.0)
    if node.operand(2) is None:
        return 0.0
    value = node.constant(2)
    if value is None:
        raise node.invalid("operand constant_value", node.operand(2), "expected a constant")
    return value.item()


def _cut(
    node: Node,
    data: relax.Expr,
    extents: list[Extent],
    widths: list[tuple[int, int]],
) -> tuple[relax.Expr, list[Extent], list[tuple[int, int]]]:
    """`data` without the elements that negative `widths` cut off, and what is then to be padded."""
    axes = [axis for axis, width in enumerate(widths) if min(width) < 0]
    if not axes:
        return data, extents, widths
    begin = [max(-widths[axis][0], 0) for axis in axes]
    end = [extents[axis] - max(-widths[axis][1], 0) for axis in axes]
    left = list(extents)
    for axis, first, last in zip(axes, begin, end, strict=True):
        left[axis] = last - first
        if isinstance(left[axis], int) and left[axis] < 0:
            reason = f"expected to cut off less of axis {axis}, of {extents[axis]} elements"
            raise node.invalid("pads (before, after) of each axis", widths, reason)
    data = node.emit(relax.op.strided_slice(data, axes, begin, end))
    return data, left, [(max(before, 0), max(after, 0)) for before, after in widths]
