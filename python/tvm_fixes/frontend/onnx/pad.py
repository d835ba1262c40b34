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
    Pads or a constant_value that are known only at run time, or pads that depend on dims; mode
    ``reflect`` with pads that are not less than the extent; mode ``wrap`` with a negative pad; a
    Pad between operators whose layout is converted.
Symptom
    ``Dynamic pads are not supported yet``; undefined elements, silently; wrong elements, silently;
    a permute on each side of the Pad.
Mechanism
    The converter does not check the widths; its TIR for ``wrap`` does not support negative widths;
    it emits a TIR call although Relax has an operator.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-pad``.
"""

from collections.abc import Callable

from tvm import relax, te, tirx
from tvm.relax import op

from ...fixes.onnx_importer import PAD
from ...support import switches
from ..dtypes import dtype_of
from .computed_axes import axes_count, pairs_of_all_axes
from .extents import expression
from .node import Converter, Extent, Node, extents_of
from .shape_operands import (
    axes_of,
    integers,
    length_of,
    require,
    require_all,
    shaped,
    symbols,
    to_shape_tensor,
    vector,
)

__all__ = ["convert_pad"]

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def convert_pad(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Pad to ``relax.nn.pad``.

    A TIR function pads instead if the pads depend on dims, or if the pads or constant_value are
    known only at run time.  Negative pads in a mode other than ``constant`` first crop the data;
    then the rest is reflected, repeated or wrapped, as in ONNX Runtime.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the mode is unknown, the axes are out of range, the number of pads does not match the
        axes, or the pads crop or reflect more elements than an axis has.  If the last check depends
        on symbols, a ``match_cast`` raises an error at run time instead.
    """
    data = node.operands[0]
    extents = extents_of(data)
    mode = node.text("mode", "constant")
    if mode not in _MODES or (mode == "wrap" and node.opset < 19):
        known = [name for name in _MODES if name != "wrap" or node.opset >= 19]
        raise node.invalid("attribute mode", mode, f"expected one of {', '.join(known)}")
    if extents is None:
        raise node.invalid("type of data", data.ty, "expected a tensor of known rank")
    if node.operand(3) is not None and node.constant(3) is None:
        node = _with_all_axes(node, len(extents))
    if node.opset >= 11 and any(
        node.operand(index) is not None and node.constant(index) is None for index in (1, 2)
    ):
        switches.note(PAD)
        return _pad_at_run_time(node, mode)
    widths = given = _widths(node, len(extents))
    fill = _fill_value(node)
    if fill != float(fill):  # the fill of relax.nn.pad is a float, which would round this integer
        return convert(node)

    switches.note(PAD)
    if mode != "constant":
        data, extents, widths = _crop(node, data, extents, widths)
    for axis, (extent, (before, after)) in enumerate(zip(extents, widths, strict=True)):
        min_extent = {"constant": 0, "reflect": max(before, after) + 1}.get(mode, 1)
        min_extent = max(min_extent if max(before, after) > 0 else 0, -before - after)
        reason = f"expected less in mode {mode} for axis {axis}, which has {extent} elements"
        if min_extent > 0:
            require(node, extent >= min_extent, "pads (before, after) of each axis", given, reason)
    if not any(map(any, widths)):
        return data
    return relax.op.nn.pad(data, [w for pair in widths for w in pair], _MODES[mode], float(fill))


def _widths(node: Node, rank: int) -> list[tuple[int, int]]:
    """The padding before and after each axis."""
    if node.opset < 11:
        pads, axes = list(node.attributes.get("pads", [])), list(range(rank))
    else:
        pads, axes = integers(node, 1, "pads"), _axes(node, rank)
    _check_count(node, len(pads), len(axes))
    widths = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        widths[axis] = (pads[index], pads[index + len(axes)])
    return widths


def _with_all_axes(node: Node, rank: int) -> Node:
    """The node with pads for all axes, without the operand axes, whose values are computed."""
    pads, count = vector(node, 1, "pads"), axes_count(node, 3)
    if not isinstance(count, int):
        raise node.invalid("shape of axes", [count], "expected a static extent")
    _check_count(node, length_of(pads), count)
    return node.with_operands(
        node.operands[0], pairs_of_all_axes(node, pads, 3, rank), node.operand(2)
    )


def _axes(node: Node, rank: int) -> list[int]:
    if node.operand(3) is None:
        return list(range(rank))
    return axes_of(node, integers(node, 3, "axes"), rank)


def _check_count(node: Node, pads: int, axes: int) -> None:
    if pads != 2 * axes:
        reason = f"expected two per axis for {axes} axes"
        raise node.invalid("number of pads", pads, reason)


def _fill_value(node: Node) -> float:
    if node.opset < 11:
        return node.attributes.get("value", 0.0)
    if node.operand(2) is None:
        return 0.0
    value = node.constant(2)
    if value is None:
        raise node.invalid("operand constant_value", node.operand(2), "expected a constant")
    return value.item()


def _crop(
    node: Node,
    data: relax.Expr,
    extents: list[Extent],
    widths: list[tuple[int, int]],
) -> tuple[relax.Expr, list[Extent], list[tuple[int, int]]]:
    """Crop `data` by negative `widths`; return it with its extents and the remaining widths."""
    axes = [axis for axis, width in enumerate(widths) if min(width) < 0]
    if not axes:
        return data, extents, widths
    begin = [max(-widths[axis][0], 0) for axis in axes]
    end = [extents[axis] - max(-widths[axis][1], 0) for axis in axes]
    cropped = list(extents)
    for axis, first, last in zip(axes, begin, end, strict=True):
        cropped[axis] = last - first
        if isinstance(cropped[axis], int) and cropped[axis] < 0:
            reason = f"expected to crop less of axis {axis}, which has {extents[axis]} elements"
            raise node.invalid("pads (before, after) of each axis", widths, reason)
    data = node.emit(relax.op.strided_slice(data, axes, begin, end))
    return data, cropped, [(max(before, 0), max(after, 0)) for before, after in widths]


def _pad_at_run_time(node: Node, mode: str) -> relax.Expr:
    """Convert a Pad with computed `pads`."""
    data, extents = shaped(node, 0, "data")
    axes, pads = _axes(node, len(extents)), vector(node, 1, "pads")
    _check_count(node, length_of(pads), len(axes))
    dtype = dtype_of(data)
    fill = relax.const(0, dtype) if node.operand(2) is None else node.operands[2]
    fill = node.emit(op.reshape(fill, ()))
    result = list(extents)
    for axis, extent in zip(axes, _padded_extents(node, mode, extents, axes, pads), strict=True):
        result[axis] = extent

    def pad(data: te.Tensor, pads: te.Tensor, fill: te.Tensor, *shape: tirx.Expr) -> te.Tensor:
        def element(*indices: tirx.Var) -> tirx.Expr:
            positions, is_inside = list(indices), []
            for number, axis in enumerate(axes):
                before, after = pads(number), pads(number + len(axes))
                first = tirx.max(-before, zero)
                last = data.shape[axis] - 1 - tirx.max(-after, zero)
                position = indices[axis] - before
                is_inside += [position >= 0, position < data.shape[axis]]
                positions[axis] = _POSITIONS[mode](position, first, last)
            if mode != "constant":
                return data(*positions)
            return tirx.if_then_else(tirx.all(*is_inside), data(*positions), fill())

        return te.compute(shape, element)

    zero = tirx.const(0, "int64")
    return node.builder.emit_te(pad, data, pads, fill, *map(expression, result))


_POSITIONS: dict[str, Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]] = {
    "constant": lambda position, first, last: position,
    "edge": lambda position, first, last: tirx.max(tirx.min(position, last), first),
    "reflect": lambda position, first, last: tirx.Select(
        position < first,
        first * 2 - position,
        tirx.Select(position > last, last * 2 - position, position),
    ),
    "wrap": lambda position, first, last: (
        first + tirx.floormod(position - first, tirx.max(last - first + 1, 1))
    ),
}
"""For each mode, the position, from `first` to `last`, of the element to store at a position."""


def _padded_extents(
    node: Node, mode: str, extents: list[Extent], axes: list[int], pads: relax.Expr
) -> list[Extent]:
    """The padded extents of `axes`, with run-time checks that `pads` are valid for the mode."""
    zero, count = relax.const(0, "int64"), len(axes)
    if not axes:
        return []
    before, after = (
        node.emit(op.strided_slice(pads, [0], [first], [first + count])) for first in (0, count)
    )
    extent = to_shape_tensor(node, [extents[axis] for axis in axes])
    result = node.emit(op.add(op.add(extent, before), after))
    require_all(node, op.greater_equal(result, zero))
    if mode != "constant":
        cropped = op.add(op.add(extent, op.minimum(before, zero)), op.minimum(after, zero))
        cropped = node.emit(cropped)
        widest = node.emit(op.maximum(before, after))
        is_enough = op.greater(cropped, widest if mode == "reflect" else zero)
        require_all(node, op.logical_or(is_enough, op.less_equal(widest, zero)))
        require_all(node, op.greater_equal(cropped, zero))
    value = node.value(1)
    if value is None:
        return symbols(node, result, "padded")
    given = value.extents()
    return [
        node.known.simplify(extents[axis] + given[index] + given[index + count])
        for index, axis in enumerate(axes)
    ]
