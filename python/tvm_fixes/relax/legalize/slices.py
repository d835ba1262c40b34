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
"""Lowering of ``relax.slice_scatter``, ``dynamic_strided_slice``, ``reverse_sequence``, and of
``strided_slice`` with ``assume_inbound``.

See :mod:`.indices`.
"""

from collections.abc import Sequence

from tvm import relax, te, tirx

from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import switches
from .extents import fit_extents
from .indices import clamp_index, read, takes_effect, wrap_negative
from .override import Legalize, legalizes

_ZERO = tirx.const(0, "int64")
_FAR = tirx.const(1 << 62, "int64")


def _clamp(value: tirx.Expr, lower: tirx.Expr, upper: tirx.Expr) -> tirx.Expr:
    return tirx.max(tirx.min(value, upper), lower)


def _slice_scatter(
    data: te.Tensor,
    source: te.Tensor,
    start: tirx.Expr,
    end: tirx.Expr,
    step: tirx.Expr,
    axis: int,
) -> te.Tensor:
    extent = data.shape[axis]
    begin, stop = (_clamp(wrap_negative(bound, extent), _ZERO, extent) for bound in (start, end))
    step = step.astype("int64")

    def element(*position: tirx.Var) -> tirx.Expr:
        offset = position[axis] - begin
        is_set = tirx.all(
            offset >= 0, position[axis] < stop, tirx.floormod(offset, step).equal(_ZERO)
        )
        places: list[tirx.Expr] = list(position)
        places[axis] = clamp_index(tirx.floordiv(offset, step), source.shape[axis])
        return tirx.if_then_else(is_set, read(source, places, [axis]), data(*position))

    return te.compute(data.shape, element, name="slice_scatter")


@legalizes("relax.slice_scatter")
def _legalize_slice_scatter(
    bb: relax.BlockBuilder, call: relax.Call, stock: Legalize
) -> relax.Expr:
    data, source, *bounds = call.args
    if not takes_effect(data, source):
        return stock(bb, call)
    switches.note(FIX_ID)
    axis = int(call.attrs.axis) % data.ty.ndim
    return bb.call_te(
        _slice_scatter, data, source, *bounds, axis, primfunc_name_hint="slice_scatter"
    )


def _inbound_slice(
    data: te.Tensor,
    axes: Sequence[int],
    begins: Sequence[tirx.Expr],
    strides: Sequence[tirx.Expr],
    shape: relax.ShapeExpr,
) -> te.Tensor:
    def element(*position: tirx.Var) -> tirx.Expr:
        places: list[tirx.Expr] = list(position)
        for axis, begin, stride in zip(axes, begins, strides, strict=True):
            extent = data.shape[axis]
            is_from_end = isinstance(begin, tirx.IntImm) and begin.value < 0
            first = begin + extent if is_from_end else begin
            place = first.astype("int64") + position[axis] * stride.astype("int64")
            places[axis] = clamp_index(place, extent)
        return read(data, places, axes)

    return te.compute(shape, element, name="strided_slice")


def bounded_slice(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Lower a ``relax.strided_slice`` with ``assume_inbound``; return None for other calls.

    Indices beyond the axis read the nearest element.
    """
    data, axes, begins, _, *strides = call.args
    if not call.attrs.assume_inbound or not takes_effect(data, call):
        return None
    tuples = [axes, begins, *strides]
    if not all(isinstance(operand, relax.Tuple) for operand in tuples):
        return None
    own = [int(axis) % data.ty.ndim for axis in axes.fields]
    steps = list(strides[0].fields) if strides else [tirx.const(1, "int64")] * len(own)
    switches.note(FIX_ID)
    return bb.call_te(
        _inbound_slice,
        data,
        own,
        list(begins.fields),
        steps,
        call.ty.shape,
        primfunc_name_hint="strided_slice",
    )


def _step(stride: tirx.Expr) -> tirx.Expr:
    """The stride as an int64, clamped to a limit above any extent, so that no sum overflows."""
    return _clamp(stride.astype("int64"), -_FAR, _FAR)


def _first(begin: tirx.Expr, stride: tirx.Expr, extent: tirx.Expr) -> tirx.Expr:
    """The first index of a slice; that of an empty slice may be just outside the axis."""
    is_backwards = stride < 0
    least = tirx.Select(is_backwards, tirx.const(-1, "int64"), _ZERO)
    last = tirx.Select(is_backwards, extent - 1, extent)
    return _clamp(wrap_negative(begin, extent), least, last)


def _lengths(data: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor) -> te.Tensor:
    """The number of elements of a slice along each axis."""

    def length(axis: tirx.Var) -> tirx.Expr:
        extent: tirx.Expr = _ZERO
        for place, own in enumerate(data.shape):
            extent = tirx.Select(axis.equal(tirx.const(place, "int64")), own, extent)
        stride = _step(strides(axis))
        stop = wrap_negative(end(axis), extent)
        stop = tirx.Select(
            stride < 0,
            _clamp(stop, tirx.const(-1, "int64"), extent),
            _clamp(stop, _ZERO, extent),
        )
        first = _first(begin(axis), stride, extent)
        distance = tirx.Select(stride < 0, first - stop, stop - first)
        # A slice with a stride of 0 has no elements; the divisor must not be 0.
        size = tirx.max(tirx.max(stride, -stride), 1)
        count = tirx.floordiv(tirx.max(distance, 1) - 1, size) + 1
        is_empty = tirx.any(stride.equal(_ZERO), distance <= 0, extent <= 0)
        return tirx.Select(is_empty, _ZERO, count)

    return te.compute((len(data.shape),), length, name="lengths")


def _dynamic_slice(
    data: te.Tensor,
    begin: te.Tensor,
    strides: te.Tensor,
    shape: list[tirx.Expr],
) -> te.Tensor:
    def element(*position: tirx.Var) -> tirx.Expr:
        places = []
        for axis, index in enumerate(position):
            stride = _step(strides(axis))
            first = _first(begin(axis), stride, data.shape[axis])
            places.append(clamp_index(first + index * stride, data.shape[axis]))
        return read(data, places, range(len(places)))

    return te.compute(shape, element, name="dynamic_strided_slice")


@legalizes("relax.dynamic_strided_slice")
def _legalize_dynamic_slice(
    bb: relax.BlockBuilder, call: relax.Call, stock: Legalize
) -> relax.Expr:
    data, begin, end, strides = call.args
    if not takes_effect(*call.args):
        return stock(bb, call)
    switches.note(FIX_ID)
    lengths = bb.emit(bb.call_te(_lengths, data, begin, end, strides))
    shape = bb.emit(relax.op.tensor_to_shape(lengths))
    extents = [tirx.Var("s", "int64") for _ in range(data.ty.ndim)]
    bb.match_cast(shape, relax.ShapeType(extents))
    return bb.call_te(
        _dynamic_slice,
        data,
        begin,
        strides,
        relax.ShapeExpr(extents),
        primfunc_name_hint="dynamic_strided_slice",
    )


def _reverse_sequence(data: te.Tensor, lengths: te.Tensor, axis: int, batch: int) -> te.Tensor:
    extent = data.shape[axis]

    def element(*position: tirx.Var) -> tirx.Expr:
        length = tirx.min(lengths(position[batch]).astype("int64"), extent)
        places: list[tirx.Expr] = list(position)
        is_reversed = position[axis] < length
        places[axis] = clamp_index(
            tirx.Select(is_reversed, length - 1 - position[axis], position[axis]), extent
        )
        return data(*places)

    return te.compute(data.shape, element, name="reverse_sequence")


@legalizes("relax.reverse_sequence")
def _legalize_reverse_sequence(
    bb: relax.BlockBuilder, call: relax.Call, stock: Legalize
) -> relax.Expr:
    data, lengths = call.args
    if not takes_effect(data, lengths) or lengths.ty.ndim != 1:
        return stock(bb, call)
    switches.note(FIX_ID)
    axis, batch = (int(a) % data.ty.ndim for a in (call.attrs.seq_axis, call.attrs.batch_axis))
    lengths = fit_extents(bb, call, "lengths", lengths, [data.ty.shape.values[batch]])
    return bb.call_te(
        _reverse_sequence, data, lengths, axis, batch, primfunc_name_hint="reverse_sequence"
    )
