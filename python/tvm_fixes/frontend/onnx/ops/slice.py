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
"""Slice and Split.

Trigger
    A Slice with a bound that is a dim or is computed from dims, or with bounds, axes or steps that
    are known only at run time. A Slice of opset 9 or older. A Split with such sizes, or with opset
    18's num_outputs.
Mechanism
    The converter sets ``assume_inbound`` if any bound is an expression; then no bound is clamped.
    It reads bounds from operands, which are attributes up to opset 9.
"""

from collections.abc import Sequence

from tvm import relax, te, tirx
from tvm.relax import op

from ....fixes.onnx_importer import SLICE
from ....support import switches
from ...extents import END, MAX_EXTENT, equal, is_static, slice_range
from ..call import Call, Extent, converts
from .computed_axes import nonnegative_axes
from .shape_operands import (
    axes_of,
    extents_or_symbols,
    integers,
    length_of,
    require,
    require_all,
    shaped,
    symbols,
    to_shape_tensor,
    vector,
)

__all__ = ["take_ranges"]

_LARGE_END = 10**9
"""Converters write this, or more, for the end of an axis."""

_SPLIT_AT_ONCE = 64
"""The maximum number of outputs of one kernel; more compile slowly and crash LLVM."""


_INT64_MAX = 2**63 - 1


@converts("Slice", fix=SLICE)
def convert_slice(call: Call) -> relax.Expr:
    """Convert a Slice; clamp its bounds to the extents of the data.

    If bounds, axes or steps are known only at run time, they are clamped then, and the first index
    and the number of indices on each axis are bound to symbols.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data or the number of bounds is unknown, the numbers of starts, ends,
        axes and steps differ, an axis is out of range or given twice, or a step is 0.
    """
    data, extents = shaped(call, 0, "data")
    values = [call.value(index) for index in range(5)]
    if call.version < 10:
        starts, ends = (list(call.attributes[name]) for name in ("starts", "ends"))
        axes, steps = call.attributes.get("axes"), None
    elif any(call.operand(i) is not None and not _is_known(call, i) for i in range(1, 5)):
        switches.note(SLICE)
        return _slice_at_run_time(call, data, extents)
    else:
        starts, ends = ([] if value is None else value.extents() for value in values[1:3])
        axes, steps = (
            None if call.operand(index) is None else integers(call, index, name)
            for index, name in ((3, "axes"), (4, "steps"))
        )
    axes = list(range(len(starts))) if axes is None else list(axes)
    steps = [1] * len(starts) if steps is None else steps
    _check_counts(call, [len(values) for values in (starts, ends, axes, steps)])
    if 0 in steps:
        raise call.invalid("operand steps", steps, "expected nonzero steps")
    has_huge_step = max(map(abs, steps), default=1) > MAX_EXTENT
    steps = [max(-MAX_EXTENT, min(step, MAX_EXTENT)) for step in steps]
    axes = axes_of(call, axes, len(extents))
    ends = [
        _end(call, extents[axis], end) if step > 0 else end
        for axis, end, step in zip(axes, ends, steps, strict=True)
    ]
    ranges = [
        slice_range(call.known, extents[axis], start, end, step)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
    ]
    bounds = [*starts, *ends, *(extents[axis] for axis in axes)]
    # TVM's converter takes no scalars, which an unrolled loop may compute.
    is_of_vectors = all(len(value.shape) == 1 for value in values[1:] if value is not None)
    counts = [count for _, count in ranges]
    # Up to opset 9, bounds are not operands. TVM's extents overflow with huge steps.
    is_tvms = is_of_vectors and call.version >= 10 and not has_huge_step
    if is_tvms and is_static(*bounds) and min([*steps, *counts], default=1) > 0:
        return call.proceed()
    switches.note(SLICE)
    return take_ranges(call, data, axes, ranges, steps)


def _is_known(call: Call, index: int) -> bool:
    """Whether an operand is known at import; bounds may be computed from dims."""
    return (call.value(index) if index < 3 else call.constant(index)) is not None


def _end(call: Call, extent: Extent, end: Extent) -> Extent:
    """A large constant end of a symbolic axis as its end, which is checked at run time.

    Kernels of data with the extent ``min(n, 10**9)`` take three times as long.
    """
    if isinstance(end, int) and _LARGE_END <= end < END and not is_static(extent):
        require(call, extent <= end, "extent of the data", extent, f"expected at most {end}")
        return END
    return end


def _check_counts(call: Call, counts: list[int]) -> None:
    if len(set(counts)) > 1:
        reason = "expected equal numbers"
        raise call.invalid("numbers of starts, ends, axes and steps", counts, reason)


def _slice_at_run_time(call: Call, data: relax.Expr, extents: list[Extent]) -> relax.Expr:
    """Convert a Slice whose bounds, axes or steps are tensors; see :func:`slice_range`."""
    rank = len(extents)
    starts, ends = vector(call, 1, "starts"), vector(call, 2, "ends")
    count = length_of(starts)
    axes, steps = (
        relax.const(default, "int64") if call.operand(index) is None else vector(call, index, name)
        for index, name, default in ((3, "axes", list(range(count))), (4, "steps", [1] * count))
    )
    _check_counts(call, [length_of(v) for v in (starts, ends, axes, steps)])
    if call.operand(3) is None or call.constant(3) is not None:
        given = list(range(count)) if call.operand(3) is None else integers(call, 3, "axes")
        sliced_axes = axes_of(call, given, rank)
    else:
        sliced_axes = list(range(rank))
        axes = nonnegative_axes(call, axes, rank)
        numbers = relax.const([0] * rank, "int64"), relax.const([1] * count, "int64")
        given_times = op.scatter_elements(numbers[0], axes, numbers[1], reduction="add")
        require_all(call, op.less_equal(call.emit(given_times), relax.const(1, "int64")))
        starts, ends, steps = (
            call.emit(op.scatter_elements(relax.const([default] * rank, "int64"), axes, values))
            for values, default in ((starts, 0), (ends, _INT64_MAX), (steps, 1))
        )
    require_all(call, op.not_equal(steps, relax.const(0, "int64")))
    extent = to_shape_tensor(call, [extents[axis] for axis in sliced_axes])
    first, counts = _clamp_at_run_time(call, extent, starts, ends, steps)
    ranges = list(zip(symbols(call, first, "first"), symbols(call, counts, "count"), strict=True))
    if call.operand(4) is None:
        return take_ranges(call, data, sliced_axes, ranges, [1] * len(sliced_axes))
    return take_ranges(call, data, sliced_axes, ranges, steps)


def _clamp_at_run_time(
    call: Call, extent: relax.Expr, start: relax.Expr, end: relax.Expr, step: relax.Expr
) -> tuple[relax.Expr, relax.Expr]:
    zero, one, minus_one = (relax.const(number, "int64") for number in (0, 1, -1))
    to_end = op.logical_or(
        *(op.equal(end, relax.const(bound, "int64")) for bound in (END, _INT64_MAX))
    )
    start, end = (
        call.emit(op.where(op.less(bound, zero), op.add(bound, extent), bound))
        for bound in (start, end)
    )
    end = call.emit(op.maximum(op.minimum(end, extent), minus_one))
    is_reversed = call.emit(op.less(step, zero))
    last = op.subtract(extent, one)
    first = op.where(is_reversed, op.minimum(start, last), op.minimum(start, extent))
    first = call.emit(op.maximum(first, zero))
    backward = op.subtract(first, op.where(to_end, minus_one, op.minimum(end, last)))
    span = op.where(is_reversed, backward, op.subtract(end, first))
    span = op.where(op.equal(extent, zero), zero, span)
    width = op.abs(op.maximum(step, relax.const(-_INT64_MAX, "int64")))
    count = op.add(op.floor_divide(op.subtract(span, one), width), one)
    return first, call.emit(op.maximum(count, zero))


def take_ranges(
    call: Call,
    data: relax.Expr,
    axes: Sequence[int],
    ranges: Sequence[tuple[Extent, Extent]],
    steps: Sequence[int] | relax.Expr,
) -> relax.Expr:
    """Take a range of indices on each of some axes of `data`.

    Parameters
    ----------
    ranges : sequence
        For each of the `axes`, the first index and the number of indices, all within the data.
    steps : sequence of int or Expr
        The steps between indices on each axis; an int64 tensor if they are unknown.
    """
    if isinstance(steps, relax.Expr):
        return _take_at_run_time(call, data, axes, ranges, steps)
    if all(step > 0 for step in steps):
        begin = [first for first, _ in ranges]
        # The last index + 1: a whole step further may be out of bounds.
        end = [
            call.known.simplify(first + _extent_of_range(count, step))
            for (first, count), step in zip(ranges, steps, strict=True)
        ]
        return op.strided_slice(data, list(axes), begin, end, list(steps), assume_inbound=True)
    return _take_at_run_time(call, data, axes, ranges, relax.const(list(steps), "int64"))


def _extent_of_range(count: Extent, step: int) -> Extent:
    """The number of elements from the first to the last of `count` indices, `step` apart."""
    if step == 1:
        return count
    reach = count * step - (step - 1)
    return max(reach, 0) if isinstance(reach, int) else tirx.max(reach, tirx.IntImm("int64", 0))


def _take_at_run_time(
    call: Call,
    data: relax.Expr,
    axes: Sequence[int],
    ranges: Sequence[tuple[Extent, Extent]],
    steps: relax.Expr,
) -> relax.Expr:
    def take(tensor: te.Tensor, steps: te.Tensor, *bounds: Extent) -> te.Tensor:
        shape, first = list(tensor.shape), [0] * len(tensor.shape)
        for axis, begin, count in zip(axes, bounds[::2], bounds[1::2], strict=True):
            first[axis], shape[axis] = begin, count

        def element(*indices: tirx.Var) -> tirx.Expr:
            positions = list(indices)
            for number, axis in enumerate(axes):
                positions[axis] = first[axis] + indices[axis] * steps(number)
            return tensor(*positions)

        return te.compute(shape, element)

    bounds = [extent for pair in ranges for extent in pair]
    return call.builder.emit_te(take, data, steps, *bounds)


@converts("Split", fix=SLICE)
def convert_split(call: Call) -> relax.Expr:
    """Convert a Split to one slice per output.

    Unknown sizes become symbols, which are bound at run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data or the number of sizes is unknown, the axis is out of range, the
        number of sizes is not that of the outputs, a size is negative, or their sum is not the
        extent of the axis.
    """
    data, extents = shaped(call, 0, "input")
    (axis,) = axes_of(call, [call.attributes.get("axis", 0)], len(extents))
    sizes = _split_sizes(call, extents[axis])
    firsts: list[Extent] = [0]
    for size in sizes:
        firsts.append(call.known.simplify(firsts[-1] + size))
    reason = f"expected a sum of {extents[axis]}, the extent of axis {axis}"
    require(call, equal(call.known, firsts[-1], extents[axis]), "split", sizes, reason)
    if _is_split_by_tvm(call, extents[axis], sizes):
        return call.proceed()
    switches.note(SLICE)
    parts = [
        call.emit(take_ranges(call, data, [axis], [part], [1]))
        for part in zip(firsts, sizes, strict=False)
    ]
    return parts[0] if len(parts) == 1 else relax.Tuple(parts)


def _is_split_by_tvm(call: Call, extent: Extent, sizes: list[Extent]) -> bool:
    """Whether TVM's converter handles these sizes correctly."""
    return (
        is_static(extent, *sizes)
        and 1 < len(sizes) <= _SPLIT_AT_ONCE
        and min(sizes) > 0
        and (sizes[0] == sizes[-1] or call.operand(1) is not None or "split" in call.attributes)
    )


def _split_sizes(call: Call, extent: Extent) -> list[Extent]:
    outputs = call.outputs
    if call.operand(1) is not None:
        sizes = extents_or_symbols(call, 1, "split")
    elif "split" in call.attributes:
        sizes = list(call.attributes["split"])
    else:
        if call.attributes.get("num_outputs", outputs) != outputs:
            reason = f"expected {outputs}, the number of outputs of the node"
            raise call.invalid("attribute num_outputs", call.attributes["num_outputs"], reason)
        # From opset 18 on, the last part is smaller if the extent is not divisible.
        size = call.known.simplify((extent + outputs - 1) // outputs)
        sizes = [size] * (outputs - 1)
        sizes.append(call.known.simplify(extent - size * (outputs - 1)))
        if call.version < 18:
            reason = f"expected {outputs} equal parts"
            require(call, equal(call.known, sizes[-1], size), "extent of the axis", extent, reason)
    if len(sizes) != outputs:
        raise call.invalid("split", sizes, f"expected {outputs} elements, one per output")
    if call.operand(1) is None:
        for size in sizes:
            require(call, size >= 0, "split", sizes, "expected no negative element")
    return sizes
