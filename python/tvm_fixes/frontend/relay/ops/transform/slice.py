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
"""Converters of the operators that slice, broadcast, or sum over what was broadcast."""

from typing import Any

from tvm import relax, te, tirx, topi

from ....extents import NO_FACTS, Extent, expression, is_static
from ...call import Call, converts
from ...values.extents import positive_axis, shaped
from ..broadcasting import broadcast

MAX_INDEX = 2**63 - 1
MAX_EXTENT = 2**31 - 1
"""The maximum extent in Relay; importers use it as the end of a slice that has none."""


@converts("strided_slice")
def strided_slice(call: Call) -> relax.Expr:
    """Take a range of each axis."""
    data, extents = shaped(call)
    begin, end, strides = (call.ints(name) for name in ("begin", "end", "strides"))
    is_size = call.attributes["slice_mode"] == "size"
    if call.attributes["axes"] is None:
        axes = list(range(max(len(begin), len(end), len(strides))))
    else:
        axes = [positive_axis(axis, len(extents)) for axis in call.ints("axes")]
        strides = strides * len(axes) if len(strides) == 1 else strides
    ranges = []
    for i, axis in enumerate(axes):
        stride = strides[i] if i < len(strides) else 1
        low = begin[i] if i < len(begin) else (0 if stride > 0 else MAX_INDEX)
        high = end[i] if i < len(end) else (MAX_INDEX if stride > 0 else 0)
        if is_size:
            stride = 1
            if i < len(end):
                high = MAX_INDEX if end[i] < 0 else min(low + end[i], MAX_INDEX)
        ranges.append(within(extents[axis], low, high, stride))
    if not axes:
        return data
    if is_static(*(extents[axis] for axis in axes)):
        bounds = [list(bound) for bound in zip(*ranges, strict=True)]
        return call.emit(relax.op.strided_slice(data, axes, *bounds))
    # Relax infers a T.if_then_else for a symbolic extent, which other passes reject.
    starts, shape = [0] * len(extents), list(extents)
    steps = [1] * len(extents)
    for axis, (low, high, stride) in zip(axes, ranges, strict=True):
        starts[axis], shape[axis] = start_and_length(extents[axis], low, high, stride)
        steps[axis] = stride
    return call.emit_te(te_slice, data, shape, starts, steps)


def te_slice(
    data: te.Tensor, shape: list[Extent], starts: list[Extent], steps: list[int]
) -> te.Tensor:
    """Take elements at equal distances; each slice begins within the data."""

    def element(*index: tirx.Var) -> Any:
        places = zip(index, starts, steps, strict=True)
        return data(*(start + i * step for i, start, step in places))

    return te.compute(shape, element, name="slice")


def start_and_length(extent: Extent, begin: int, end: int, stride: int) -> tuple[Extent, Extent]:
    """Return the first index of a range, and the number of its elements."""
    low, high = (-1, extent - 1) if stride < 0 else (0, extent)
    first, last = (
        clamped(index + extent if index < 0 else index, low, high) for index in (begin, end)
    )
    distance = last - first if stride > 0 else first - last
    length = tirx.max(tirx.floordiv(distance + abs(stride) - 1, abs(stride)), expression(0))
    return NO_FACTS.simplify(first), NO_FACTS.simplify(length)


def clamped(index: Extent, low: Extent, high: Extent) -> Any:
    """Limit an index."""
    if isinstance(index, int) and index >= MAX_EXTENT:
        # With a minimum, TVM would expand sizes to constants that overflow int64.
        return expression(high)
    return tirx.max(tirx.min(expression(index), expression(high)), expression(low))


def within(extent: Extent, begin: int, end: int, stride: int) -> tuple[int, int, int]:
    """Move begin and end into an axis with a known extent."""
    if not isinstance(extent, int):
        return begin, end, stride
    low, high = (-1, extent - 1) if stride < 0 else (0, extent)
    begin, end = (
        min(max(index + extent if index < 0 else index, low), high) for index in (begin, end)
    )
    # An end before the first element counts from the end of the axis, one element too far.
    return begin, -extent - 1 if end < 0 else end, stride


@converts("sliding_window")
def sliding_window(call: Call) -> relax.Expr:
    """Copy windows of the last axes, side by side."""
    data = shaped(call)[0]
    window, strides = call.ints("window_shape"), call.ints("strides")
    return call.emit_te(topi.sliding_window, data, int(call.attributes["axis"]), window, strides)


@converts("strided_set")
def strided_set(call: Call) -> relax.Expr:
    """Write a tensor to a range of each axis."""
    data, extents = shaped(call)
    inputs = [data, *(shaped(call, i)[0] for i in range(1, 5))]
    lengths = [shaped(call, i)[1][0] for i in (2, 3, 4)]
    if not all(isinstance(length, int) and length <= len(extents) for length in lengths):
        raise call.fail(f"expected at most {len(extents)} begins, ends and strides")
    return call.emit_te(te_strided_set, *inputs)


def te_strided_set(
    data: te.Tensor, values: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor
) -> te.Tensor:
    """Compute which elements are in the range, and which values they get."""

    def given(indices: te.Tensor, axis: int) -> Any:
        return indices[axis].astype("int64") if axis < int(indices.shape[0]) else None

    def element(*position: tirx.Var) -> Any:
        inside, source = [], []
        for axis, index in enumerate(position):
            extent = tirx.Cast("int64", data.shape[axis])
            index = tirx.Cast("int64", index)
            stride = given(strides, axis)
            stride = tirx.const(1, "int64") if stride is None else stride
            up = stride > 0
            low, high = given(begin, axis), given(end, axis)
            if low is None:
                low = tirx.Select(up, tirx.const(0, "int64"), extent - 1)
            else:
                low = tirx.Select(low < 0, low + extent, low)
                low = tirx.Select(up, tirx.max(low, 0), tirx.min(low, extent - 1))
            if high is None:
                high = tirx.Select(up, extent, tirx.const(-1, "int64"))
            else:
                high = tirx.Select(high < 0, high + extent, high)
            step = tirx.Select(up, stride, -stride)
            distance = tirx.Select(up, index - low, low - index)
            before_end = tirx.Select(up, index < high, index > high)
            inside += [distance >= 0, before_end, tirx.truncmod(distance, step) == 0]
            source.append(tirx.truncdiv(distance, step))
        return tirx.if_then_else(tirx.all(*inside), values(*source), data(*position))

    return te.compute(data.shape, element, name="strided_set")


@converts("slice_like")
def slice_like(call: Call) -> relax.Expr:
    """Keep the beginning of axes, up to the extents of another tensor."""
    data, extents = shaped(call)
    _, like = shaped(call, 1)
    if call.attributes["axes"] is None:
        axes = list(range(min(len(extents), len(like))))
    else:
        axes = sorted({positive_axis(axis, len(extents)) for axis in call.ints("axes")})
    if not axes:
        return data
    end = [like[axis] for axis in axes]
    begin = [0] * len(axes)
    return call.emit(relax.op.strided_slice(data, axes, begin, end, assume_inbound=True))


@converts("broadcast_to")
def broadcast_to(call: Call) -> relax.Expr:
    """Broadcast to a shape."""
    if not call.type.is_static:
        raise call.fail("attribute 'shape': expected extents, found ?")
    return broadcast(call, *shaped(call), list(call.ints("shape")))


@converts("broadcast_to_like")
def broadcast_to_like(call: Call) -> relax.Expr:
    """Broadcast to the shape of another tensor."""
    return broadcast(call, *shaped(call), shaped(call, 1)[1])


@converts("collapse_sum_like")
def collapse_sum_like(call: Call) -> relax.Expr:
    """Sum over the axes along which the other tensor would be broadcast."""
    return collapse(call, shaped(call, 1)[1])


@converts("collapse_sum_to")
def collapse_sum_to(call: Call) -> relax.Expr:
    """Sum over the axes along which a tensor of this shape would be broadcast."""
    if not call.type.is_static:
        raise call.fail("the target shape must be a constant")
    return collapse(call, list(call.type.shape))


def collapse(call: Call, target: list[Extent]) -> relax.Expr:
    """Sum over leading axes, and over axes that have extent 1 in the target."""
    data, extents = shaped(call)
    extra = len(extents) - len(target)
    axes = list(range(extra))
    for axis, extent in enumerate(target):
        source = extents[extra + axis]
        if extent == 1 and source != 1:
            axes.append(extra + axis)
        elif not isinstance(extent, int) and not NO_FACTS.equal(extent, source):
            raise call.fail(f"it is unknown whether axis {axis} of the target has extent 1")
    if not axes:
        return data
    total = call.emit(relax.op.sum(data, axes, keepdims=True))
    return call.emit(relax.op.reshape(total, relax.ShapeExpr(target)))
