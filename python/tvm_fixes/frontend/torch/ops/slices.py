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
"""Converters of slices, splits and pads with symbolic sizes.

The extents of results that PyTorch records hold only under its guards.  Sizes at run time may
violate a guard, so the program checks the conditions that it needs.

The docstring of ``shapes`` describes the faults of TVM's converters.
"""

from typing import Any

from torch.fx.experimental.symbolic_shapes import statically_known_true
from tvm import relax, te, tirx

from ....errors import OpAttributeInvalid
from ....fixes.torch_importer import DECOMPOSITIONS, DYNAMIC_SHAPES
from ....support import switches
from ...dtypes import dtype_of
from ...extents import MAX_EXTENT, static_extent
from ..call import Call, converts
from ..values.guarded_extents import require
from ..values.symbols import Size

__all__ = ["slice_of"]


def slice_of(call: Call, x: relax.Expr, axis: int, begin: Size, length: Size) -> relax.Expr:
    """Emit ``x[begin : begin + length]`` along `axis`; both bounds are within the axis."""
    return call.emit(
        relax.op.strided_slice(x, [axis], [begin], [begin + length], assume_inbound=True)
    )


def _from_front(call: Call, position: Any, extent: Size) -> Size:
    """Convert a Python index, which may be negative, to a position from the start of an axis."""
    if call.symbols.at_least(position, 0):
        return position
    from_end = call.symbols.analyzer.simplify(extent + position)
    if not call.symbols.at_least(from_end, 0):
        from_end = tirx.max(from_end, 0)
    if call.symbols.at_least(-1, position):
        return from_end
    return tirx.Select(position < 0, from_end, position)


def _count(call: Call, start: Any, end: Any, step: Size, extent: Size) -> Size:
    """The length of the Python slice ``start:end:step`` of an axis of `extent`."""
    reaches_end = end is None or (isinstance(end, int) and end >= MAX_EXTENT)
    starts_at_front = start is None or (isinstance(start, int) and start <= -MAX_EXTENT)
    first = 0 if starts_at_front else tirx.min(_from_front(call, start, extent), extent)
    last = extent if reaches_end else tirx.min(_from_front(call, end, extent), extent)
    if static_extent(step) == 1 and starts_at_front:
        return call.symbols.analyzer.simplify(last)
    count = (last - first + step - 1) // step
    return call.symbols.analyzer.simplify(tirx.max(count, 0))


@converts("slice.Tensor", place="sizes", fix=DYNAMIC_SHAPES)
def convert_slice(call: Call) -> relax.Expr:
    """Convert a slice whose bounds may be symbolic."""
    x, axis, start, end, step = call.arguments(input=None, dim=0, start=0, end=None, step=1)
    axis %= x.ty.ndim
    extent = x.ty.shape[axis]
    sizes = [extent, step, *(bound for bound in (start, end) if bound is not None)]
    recorded = length = call.recorded.shape[axis]
    is_static = all(static_extent(size) is not None for size in sizes)
    if statically_known_true(length == 0):
        # TVM computes the extent as end - start, which may be negative.
        switches.note(DYNAMIC_SHAPES)
        return slice_of(call, x, axis, 0, 0)
    if call.context.is_in_branch or is_static or not call.symbols.knows(length):
        return call.proceed()
    length = call.symbols.convert(length)
    count = _count(call, start, end, step, extent)
    if not call.symbols.equal(length, count):
        require(call, length == count, f"expected a slice of {recorded} elements on axis {axis}")
    if call.symbols.equal(length, extent):
        return x
    switches.note(DYNAMIC_SHAPES)
    begin = _from_front(call, 0 if start is None else start, extent)
    if static_extent(step) == 1:
        return slice_of(call, x, axis, begin, length)
    end = begin + (length - 1) * step + 1
    return call.emit(relax.op.strided_slice(x, [axis], [begin], [end], [step], assume_inbound=True))


@converts("select.int", place="sizes", fix=DYNAMIC_SHAPES)
def convert_select(call: Call) -> relax.Expr:
    """Convert the selection of one index along an axis."""
    x, axis, index = call.operands
    axis %= x.ty.ndim
    extent = x.ty.shape[axis]
    is_within = tirx.And(-extent <= index, index < extent)
    require(call, is_within, f"expected an index within axis {axis}")
    # `take` does not support negative indices into a symbolic extent.
    if isinstance(index, int) and index >= 0:
        return call.proceed()
    switches.note(DYNAMIC_SHAPES)
    element = slice_of(call, x, axis, _from_front(call, index, extent), 1)
    return call.emit(relax.op.squeeze(element, [axis]))


@converts("narrow.default", place="sizes", fix=DYNAMIC_SHAPES, noted=True)
def convert_narrow(call: Call) -> relax.Expr:
    """Convert a slice given by its start and length."""
    x, axis, start, length = call.operands
    axis %= x.ty.ndim
    extent = x.ty.shape[axis]
    begin = _from_front(call, start, extent)
    is_within = tirx.And(-extent <= start, begin + length <= extent)
    require(call, is_within, f"expected {length} elements from {start} on axis {axis}")
    return slice_of(call, x, axis, begin, length)


@converts("constant_pad_nd.default", place="sizes", fix=DYNAMIC_SHAPES)
def convert_pad(call: Call) -> relax.Expr:
    """Convert a padding, whose widths may be symbolic or negative."""
    x, widths, value = call.arguments(input=None, pad=None, value=0)
    numbers = [static_extent(width) for width in widths]
    if all(number is not None and number >= 0 for number in numbers):
        return call.proceed()
    switches.note(DYNAMIC_SHAPES)
    fill = relax.const(0 if value is None else value, dtype_of(x))
    for index, axis in enumerate(reversed(range(x.ty.ndim))):
        for end, width in enumerate(widths[2 * index : 2 * index + 2]):
            x = _pad_end(call, x, axis, width, end == 1, fill)
    return x


def _pad_end(
    call: Call, x: relax.Expr, axis: int, width: Size, is_end: bool, fill: relax.Expr
) -> relax.Expr:
    """Add `width` elements at one end of an axis of `x`, or remove them if it is negative."""
    if call.symbols.equal(width, 0):
        return x
    if call.symbols.at_least(0, width):
        length = call.symbols.analyzer.simplify(x.ty.shape[axis] + width)
        require(call, length >= 0, f"expected at least {-width} elements on axis {axis}")
        return slice_of(call, x, axis, 0 if is_end else -width, length)
    if not call.symbols.at_least(width, 0):
        raise OpAttributeInvalid(
            f"{call.where}: attribute pad contains {width}; "
            "expected elements whose sign is known at import"
        )
    shape = list(x.ty.shape)
    shape[axis] = width
    padding = call.emit(relax.op.full(relax.ShapeExpr(shape), fill, dtype_of(x)))
    parts = [x, padding] if is_end else [padding, x]
    return call.emit(relax.op.concat(parts, axis))


@converts("split.Tensor", "split_with_sizes.default", place="sizes", fix=DYNAMIC_SHAPES)
def convert_split(call: Call) -> relax.Expr:
    """Convert a split into parts of the lengths that PyTorch recorded."""
    x, _, axis = call.arguments(input=None, sizes=None, dim=0)
    axis %= x.ty.ndim
    lengths = [part.shape[axis] for part in call.recorded]
    if call.context.is_in_branch or all(isinstance(length, int) for length in lengths):
        if static_extent(x.ty.shape[axis]) is not None:
            return call.proceed()
    switches.note(DYNAMIC_SHAPES)
    parts, begin = [], 0
    for length in call.symbols.shape(lengths):
        require(call, length >= 0, "expected parts of at least 0 elements")
        parts.append(slice_of(call, x, axis, begin, length))
        begin = begin + length
    is_whole = begin == x.ty.shape[axis]
    require(call, is_whole, f"expected parts of {begin} elements on axis {axis}")
    return call.emit(relax.Tuple(parts))


@converts("unfold.default", fix=DECOMPOSITIONS, noted=True)
def convert_unfold(call: Call) -> relax.Expr:
    """Convert the windows of an axis; a decomposition would not be a view, as in PyTorch."""
    x, axis, _, step = call.operands
    shape, rank = call.shape, x.ty.ndim
    axis %= max(rank, 1)

    def windows(data: te.Tensor) -> te.Tensor:
        def element(*index: tirx.Var) -> tirx.Expr:
            *window, place = index
            if not rank:
                return data()
            window[axis] = window[axis] * step + place
            return data(*window)

        return te.compute(shape, element, name="unfold")

    return call.builder.emit_te(windows, x, primfunc_name_hint="unfold")
