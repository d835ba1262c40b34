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
"""Padding, slices, and blocks of space in other axes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax, tirx

from ...extents import NO_FACTS, Extent, is_static, slice_range
from ..call import Call, Value, converts, is_quantized, is_small_integer
from .shape import shape_of


def _paddings(call: Call, index: int, rank: int) -> list[tuple[int, int]]:
    """The padding of each axis, before and after the elements."""
    values = call.ints(index, "the padding")
    if len(values) != 2 * rank or min(values, default=0) < 0:
        raise call.fail(f"the padding is {values}, of data of rank {rank}")
    return list(zip(values[::2], values[1::2], strict=True))


@converts("PAD", "PADV2")
def pad(call: Call) -> relax.Expr:
    """The tensor, with a value around it: 0, or a third operand."""
    call.require_same_quantization()
    data = call.input(0)
    pads = _paddings(call, 1, call.rank(0))
    value: float = 0
    if call.has(2):
        call.require_same_quantization(data, call.input(2))
        value = call.elements(2, "the value of the padding").reshape(-1)[0].item()
    elif is_quantized(data):
        value = int(call.quantization(data).zero_point[0])
    widths = [width for pair in pads for width in pair]
    if not any(widths):
        return call.operand(0)
    return relax.op.nn.pad(call.operand(0), widths, "constant", value)


@converts("MIRROR_PAD")
def mirror_pad(call: Call) -> relax.Expr:
    """The tensor, with its own elements in reverse around it."""
    call.require_same_quantization()
    value, shape = call.operand(0), call.shape(0)
    inner = 1 if call.option("mode") == "REFLECT" else 0
    for axis, (before, after) in enumerate(_paddings(call, 1, len(shape))):
        extent = shape[axis]
        if before == after == 0:
            continue
        call.limited(before + after, "the padding")
        if not isinstance(extent, int) or max(before, after) > extent - inner:
            raise call.fail(f"the padding of axis {axis} is {before} and {after}; extent {extent}")
        places = [
            *range(before - 1 + inner, inner - 1, -1),
            *range(extent),
            *range(extent - 1 - inner, extent - 1 - inner - after, -1),
        ]
        value = call.emit(relax.op.take(value, relax.const(np.array(places, "int32")), axis))
    return value


@converts("REVERSE_V2")
def reverse_v2(call: Call) -> relax.Expr:
    """The tensor, reversed along axes."""
    call.require_same_quantization()
    value = call.operand(0)
    for axis in call.ints(1, "the axes"):
        value = call.emit(relax.op.flip(value, call.axis(axis, call.rank(0))))
    return value


@converts("REVERSE_SEQUENCE")
def reverse_sequence(call: Call) -> relax.Expr:
    """The tensor, of each batch the first elements reversed."""
    call.require_same_quantization()
    rank = call.rank(0)
    axes = (call.axis(call.option(name), rank) for name in ("seq_dim", "batch_dim"))
    return relax.op.reverse_sequence(call.operand(0), call.operand(1), *axes)


@converts("SLICE")
def slice_(call: Call) -> Value:
    """A part of the tensor, by its first index and its size on each axis; -1 is the rest."""
    call.require_same_quantization()
    shape = call.shape(0)
    begin = call.extents(1, "the first index")
    size = call.extents(2, "the size")
    if not len(begin) == len(size) == len(shape):
        raise call.fail(f"begin {begin} and size {size}, of data of shape {shape}")
    end = [
        extent if isinstance(count, int) and count == -1 else NO_FACTS.simplify(first + count)
        for first, count, extent in zip(begin, size, shape, strict=True)
    ]
    for first, last, extent in zip(begin, end, shape, strict=True):
        if is_static(first, last, extent) and not 0 <= first <= last <= extent:
            raise call.fail(f"begin {begin} and size {size}, of data of shape {shape}")
    return _sliced(call, list(range(len(shape))), begin, end, [1] * len(shape))


def _sliced(
    call: Call,
    axes: Sequence[int],
    begin: Sequence[Extent],
    end: Sequence[Extent],
    strides: Sequence[int],
) -> Value:
    """The part of the first operand along axes."""
    value = call.known(0)
    if is_small_integer(value) and is_static(*begin, *end):
        parts: list[Any] = [slice(None)] * value.ndim
        for axis, first, last, step in zip(axes, begin, end, strides, strict=True):
            # A negative bound of a backward slice means the start of the axis.
            stop = None if step < 0 and int(last) < 0 else int(last)
            parts[axis] = slice(int(first), stop, step)
        return value[tuple(parts)]
    if not axes:
        return call.operand(0)
    return call.emit(
        relax.op.strided_slice(call.operand(0), list(axes), list(begin), list(end), list(strides))
    )


@dataclass
class _Part:
    """A part of a tensor, under construction.

    Attributes
    ----------
    axes, begin, end, strides : list
        The axes that are sliced, and their bounds.
    removed : list of int
        The axes of the operand that the result lacks.
    added : list of int
        The axes of extent 1 that only the result has.
    """

    axes: list[int] = field(default_factory=list)
    begin: list[Extent] = field(default_factory=list)
    end: list[Extent] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    added: list[int] = field(default_factory=list)


@converts("STRIDED_SLICE")
def strided_slice(call: Call) -> Value:
    """A part of the tensor by bounds and steps; masks tell which bounds do not count."""
    call.require_same_quantization()
    part = _part(call)
    value = _sliced(call, part.axes, part.begin, part.end, part.strides)
    if isinstance(value, np.ndarray):
        value = np.squeeze(value, tuple(part.removed))
        for axis in part.added:
            value = np.expand_dims(value, axis)
        return value
    if part.removed:
        value = call.emit(relax.op.squeeze(value, part.removed))
    for axis in part.added:
        value = call.emit(relax.op.expand_dims(value, axis))
    return value


def _part(call: Call) -> _Part:
    """The part that the operands and masks describe."""
    shape = call.shape(0)
    begin, end = (call.extents(index, "a bound") for index in (1, 2))
    strides = call.ints(3, "the steps")
    if not len(begin) == len(end) == len(strides) or 0 in strides:
        raise call.fail(f"bounds {begin} and {end}, with steps {strides}")
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    opened, closed, ellipsis, new, shrunk = (call.option(f"{name}_mask") for name in names)
    if call.option_or("offset", False):
        end = [NO_FACTS.simplify(first + last) for first, last in zip(begin, end, strict=True)]
    part, axis, result_axis = _Part(), 0, 0
    new &= ~ellipsis & ((1 << len(begin)) - 1)
    for place, step in enumerate(strides):
        bit = 1 << place
        if ellipsis & bit:
            skipped = len(shape) - (len(begin) - 1 - new.bit_count())
            if skipped < 0 or ellipsis != bit:
                raise call.fail(f"{len(begin)} bounds, of data of shape {shape}")
            axis, result_axis = axis + skipped, result_axis + skipped
            continue
        if new & bit:
            part.added.append(result_axis)
            result_axis += 1
            continue
        if axis >= len(shape):
            raise call.fail(f"{len(begin)} bounds, of data of shape {shape}")
        is_shrunk = bool(shrunk & bit)
        stop = None if is_shrunk or closed & bit else end[place]
        is_open = bool(opened & bit) and not is_shrunk
        bounds = _bounds(call, shape[axis], begin[place], stop, step, is_open, is_shrunk)
        if bounds != (0, shape[axis], 1):
            part.axes.append(axis)
            part.begin.append(bounds[0])
            part.end.append(bounds[1])
            part.strides.append(bounds[2])
        if is_shrunk:
            part.removed.append(axis)
        else:
            result_axis += 1
        axis += 1
    return part


def _bounds(
    call: Call,
    extent: Extent,
    begin: Extent,
    end: Extent | None,
    step: int,
    is_open: bool,
    is_shrunk: bool,
) -> tuple[Extent, Extent, int]:
    """The first index, the end and the step on an axis."""
    if is_shrunk:
        first = begin
        if isinstance(first, int) and first < 0:
            first = NO_FACTS.simplify(first + extent)
        if is_static(first, extent) and not 0 <= first < extent:
            raise call.fail(f"index {begin} of an axis of extent {extent}")
        return first, NO_FACTS.simplify(first + 1), 1
    if is_open:
        begin = 0 if step > 0 else -1
    if end is None:
        end = extent if step > 0 else -(2**31)
    first, count = slice_range(NO_FACTS, extent, begin, end, step)
    last = NO_FACTS.simplify(first + count * step)
    if step > 1 and is_static(last, extent):
        last = min(int(last), int(extent))
    if step < 0 and isinstance(last, tirx.Expr):
        raise call.fail("a backward slice of a symbolic extent is not supported")
    if step < 0 and isinstance(last, int) and last < 0:
        # One before the start: relax counts -1 from the end.
        last = -(int(extent) + 1) if isinstance(extent, int) else last
    return first, last, step


@converts("SPACE_TO_DEPTH")
def space_to_depth(call: Call) -> relax.Expr:
    """Blocks of height and width as channels."""
    call.require_same_quantization()
    batch, height, width, channels = call.shape(0)
    size = call.option("block_size")
    if size < 1 or (is_static(height, width) and (height % size or width % size)):
        raise call.fail(f"blocks of {size} in data of shape {call.shape(0)}")
    rows, columns = (NO_FACTS.simplify(extent // size) for extent in (height, width))
    value = _reshaped(call, call.operand(0), [batch, rows, size, columns, size, channels])
    value = call.emit(relax.op.permute_dims(value, [0, 1, 3, 2, 4, 5]))
    depth = NO_FACTS.simplify(channels * size * size)
    return _reshaped(call, value, [batch, rows, columns, depth])


@converts("DEPTH_TO_SPACE")
def depth_to_space(call: Call) -> relax.Expr:
    """Channels as blocks of height and width."""
    call.require_same_quantization()
    batch, height, width, channels = call.shape(0)
    size = call.option("block_size")
    if size < 1 or not isinstance(channels, int) or channels % (size * size):
        raise call.fail(f"blocks of {size} in data of shape {call.shape(0)}")
    depth = channels // size**2
    value = _reshaped(call, call.operand(0), [batch, height, width, size, size, depth])
    value = call.emit(relax.op.permute_dims(value, [0, 1, 3, 2, 4, 5]))
    rows, columns = (NO_FACTS.simplify(extent * size) for extent in (height, width))
    return _reshaped(call, value, [batch, rows, columns, depth])


def _reshaped(call: Call, value: relax.Expr, shape: Sequence[Extent]) -> relax.Expr:
    return call.emit(relax.op.reshape(value, shape_of(shape)))


@converts("SPACE_TO_BATCH_ND")
def space_to_batch_nd(call: Call) -> relax.Expr:
    """Blocks of the axes after the first as batches, after padding."""
    call.require_same_quantization()
    blocks = call.ints(1, "the blocks")
    batch, *rest = call.shape(0)
    count = len(blocks)
    pads = _paddings(call, 2, count)
    if min(blocks, default=1) < 1 or count > len(rest):
        raise call.fail(f"the blocks are {blocks}, of data of shape {call.shape(0)}")
    spatial = [
        NO_FACTS.simplify(extent + sum(pair))
        for extent, pair in zip(rest[:count], pads, strict=True)
    ]
    for extent, block in zip(spatial, blocks, strict=True):
        if isinstance(extent, int) and extent % block:
            raise call.fail(f"the blocks are {blocks}, of padded extents {spatial}")
    widths = [0, 0, *(width for pair in pads for width in pair), *[0, 0] * (len(rest) - count)]
    zero = int(call.quantization(call.input(0)).zero_point[0]) if is_quantized(call.input(0)) else 0
    value = call.operand(0)
    if any(widths):
        value = call.emit(relax.op.nn.pad(value, widths, "constant", zero))
    places = [
        NO_FACTS.simplify(extent // block) for extent, block in zip(spatial, blocks, strict=True)
    ]
    pairs = [part for pair in zip(places, blocks, strict=True) for part in pair]
    value = _reshaped(call, value, [batch, *pairs, *rest[count:]])
    order = [
        *(2 + 2 * axis for axis in range(count)),
        0,
        *(1 + 2 * axis for axis in range(count)),
        *range(2 * count + 1, 2 * count + 1 + len(rest) - count),
    ]
    value = call.emit(relax.op.permute_dims(value, order))
    total = NO_FACTS.simplify(batch * int(np.prod(blocks)))
    return _reshaped(call, value, [total, *places, *rest[count:]])


@converts("BATCH_TO_SPACE_ND")
def batch_to_space_nd(call: Call) -> relax.Expr:
    """Batches as blocks of the axes after the first, which are then cropped."""
    call.require_same_quantization()
    blocks = call.ints(1, "the blocks")
    batch, *rest = call.shape(0)
    count = len(blocks)
    crops = _paddings(call, 2, count)
    number = int(np.prod(blocks))
    if min(blocks, default=1) < 1 or count > len(rest) or (is_static(batch) and batch % number):
        raise call.fail(f"the blocks are {blocks}, of data of shape {call.shape(0)}")
    batches = NO_FACTS.simplify(batch // number)
    value = _reshaped(call, call.operand(0), [*blocks, batches, *rest])
    pairs = [place for axis in range(count) for place in (count + 1 + axis, axis)]
    order = [count, *pairs, *range(2 * count + 1, count + 1 + len(rest))]
    value = call.emit(relax.op.permute_dims(value, order))
    spatial = [
        NO_FACTS.simplify(extent * block)
        for extent, block in zip(rest[:count], blocks, strict=True)
    ]
    value = _reshaped(call, value, [batches, *spatial, *rest[count:]])
    if not any(width for pair in crops for width in pair):
        return value
    ends = [
        NO_FACTS.simplify(extent - pair[1]) for extent, pair in zip(spatial, crops, strict=True)
    ]
    begins = [pair[0] for pair in crops]
    return relax.op.strided_slice(value, list(range(1, count + 1)), begins, ends)
