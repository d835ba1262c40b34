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

Mechanism
    The converter does not check the widths; its TIR for ``wrap`` does not support negative widths;
    it emits a TIR call although Relax has an operator.
"""

from collections.abc import Callable

from tvm import relax, te, tirx
from tvm.relax import op

from ....fixes.onnx_importer import PAD
from ....support import switches
from ...dtypes import dtype_of
from ...extents import expression
from ..call import Call, Extent, converts, extents_of
from .computed_axes import axes_count, pairs_of_all_axes
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

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@converts("Pad", fix=PAD)
def convert_pad(call: Call) -> relax.Expr:
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
    data = call.operands[0]
    extents = extents_of(data)
    mode = call.text("mode", "constant")
    if mode not in _MODES or (mode == "wrap" and call.version < 19):
        known = [name for name in _MODES if name != "wrap" or call.version >= 19]
        raise call.invalid("attribute mode", mode, f"expected one of {', '.join(known)}")
    if extents is None:
        raise call.invalid("type of data", data.ty, "expected a tensor of known rank")
    if call.operand(3) is not None and call.constant(3) is None:
        call = _with_all_axes(call, len(extents))
    if call.version >= 11 and any(
        call.operand(index) is not None and call.constant(index) is None for index in (1, 2)
    ):
        switches.note(PAD)
        return _pad_at_run_time(call, mode)
    widths = given = _widths(call, len(extents))
    fill = _fill_value(call)
    if fill != float(fill):  # the fill of relax.nn.pad is a float, which would round this integer
        return call.proceed()

    switches.note(PAD)
    if mode != "constant":
        data, extents, widths = _crop(call, data, extents, widths)
    for axis, (extent, (before, after)) in enumerate(zip(extents, widths, strict=True)):
        min_extent = {"constant": 0, "reflect": max(before, after) + 1}.get(mode, 1)
        min_extent = max(min_extent if max(before, after) > 0 else 0, -before - after)
        reason = f"expected less in mode {mode} for axis {axis}, which has {extent} elements"
        if min_extent > 0:
            require(call, extent >= min_extent, "pads (before, after) of each axis", given, reason)
    if not any(map(any, widths)):
        return data
    return relax.op.nn.pad(data, [w for pair in widths for w in pair], _MODES[mode], float(fill))


def _widths(call: Call, rank: int) -> list[tuple[int, int]]:
    """The padding before and after each axis."""
    if call.version < 11:
        pads, axes = list(call.attributes.get("pads", [])), list(range(rank))
    else:
        pads, axes = integers(call, 1, "pads"), _axes(call, rank)
    _check_count(call, len(pads), len(axes))
    widths = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        widths[axis] = (pads[index], pads[index + len(axes)])
    return widths


def _with_all_axes(call: Call, rank: int) -> Call:
    """The node with pads for all axes, without the operand axes, whose values are computed."""
    pads, count = vector(call, 1, "pads"), axes_count(call, 3)
    if not isinstance(count, int):
        raise call.invalid("shape of axes", [count], "expected a static extent")
    _check_count(call, length_of(pads), count)
    return call.with_operands(
        call.operands[0], pairs_of_all_axes(call, pads, 3, rank), call.operand(2)
    )


def _axes(call: Call, rank: int) -> list[int]:
    if call.operand(3) is None:
        return list(range(rank))
    return axes_of(call, integers(call, 3, "axes"), rank)


def _check_count(call: Call, pads: int, axes: int) -> None:
    if pads != 2 * axes:
        reason = f"expected two per axis for {axes} axes"
        raise call.invalid("number of pads", pads, reason)


def _fill_value(call: Call) -> float:
    if call.version < 11:
        return call.attributes.get("value", 0.0)
    if call.operand(2) is None:
        return 0.0
    value = call.constant(2)
    if value is None:
        raise call.invalid("operand constant_value", call.operand(2), "expected a constant")
    return value.item()


def _crop(
    call: Call,
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
            raise call.invalid("pads (before, after) of each axis", widths, reason)
    data = call.emit(relax.op.strided_slice(data, axes, begin, end))
    return data, cropped, [(max(before, 0), max(after, 0)) for before, after in widths]


def _pad_at_run_time(call: Call, mode: str) -> relax.Expr:
    """Convert a Pad with computed `pads`."""
    data, extents = shaped(call, 0, "data")
    axes, pads = _axes(call, len(extents)), vector(call, 1, "pads")
    _check_count(call, length_of(pads), len(axes))
    dtype = dtype_of(data)
    fill = relax.const(0, dtype) if call.operand(2) is None else call.operands[2]
    fill = call.emit(op.reshape(fill, ()))
    result = list(extents)
    for axis, extent in zip(axes, _padded_extents(call, mode, extents, axes, pads), strict=True):
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
    return call.builder.emit_te(pad, data, pads, fill, *map(expression, result))


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
    call: Call, mode: str, extents: list[Extent], axes: list[int], pads: relax.Expr
) -> list[Extent]:
    """The padded extents of `axes`, with run-time checks that `pads` are valid for the mode."""
    zero, count = relax.const(0, "int64"), len(axes)
    if not axes:
        return []
    before, after = (
        call.emit(op.strided_slice(pads, [0], [first], [first + count])) for first in (0, count)
    )
    extent = to_shape_tensor(call, [extents[axis] for axis in axes])
    result = call.emit(op.add(op.add(extent, before), after))
    require_all(call, op.greater_equal(result, zero))
    if mode != "constant":
        cropped = op.add(op.add(extent, op.minimum(before, zero)), op.minimum(after, zero))
        cropped = call.emit(cropped)
        widest = call.emit(op.maximum(before, after))
        is_enough = op.greater(cropped, widest if mode == "reflect" else zero)
        require_all(call, op.logical_or(is_enough, op.less_equal(widest, zero)))
        require_all(call, op.greater_equal(cropped, zero))
    value = call.value(1)
    if value is None:
        return symbols(call, result, "padded")
    given = value.extents()
    return [
        call.known.simplify(extents[axis] + given[index] + given[index + count])
        for index, axis in enumerate(axes)
    ]
