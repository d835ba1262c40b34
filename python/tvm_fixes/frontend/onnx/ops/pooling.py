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
"""Pooling.

Trigger
    auto_pad with symbolic dims, of MaxPool with strides, and of AveragePool with dilations;
    windows longer than the padded data; LpPool with ceil_mode; the indices of MaxPool; MaxUnpool
    with output_shape, or with pads that differ between axes.
Mechanism
    The converter rounds the extents of SAME_LOWER down and allows negative pads, ignores dilations,
    multiplies an average over part of a window by the size of the whole window, and adds up pads of
    different axes. ONNX Runtime rounds the number of windows towards 0, not down.
"""

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np
from tvm import relax, tirx, topi

from ....fixes.onnx_importer import POOLING
from ....relax.legalize.pool_ceil_mode import ends_rounded_up
from ....support import switches
from ...dtypes import dtype_of
from ..call import Call, Extent, converts, extents_of
from .auto_pad import AUTO_PADS, same_count, same_pads
from .shape_operands import require

__all__ = ["convert_pool"]


@dataclass(frozen=True)
class _Windows:
    """The geometry of pooling windows; each list has one element per spatial axis.

    `before` and `after` are the padding. `symbolic` is padding that depends on symbols, which must
    be added to the data; then the others are 0.
    """

    extents: list[Extent]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]
    rounds_up: bool
    symbolic: list[tuple[Extent, Extent]] | None = None

    @property
    def spans(self) -> list[int]:
        """The extents of the dilated kernel."""
        return [d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True)]

    @classmethod
    def of(cls, call: Call) -> Self:
        """Read the windows of `node`, with ``auto_pad`` resolved.

        Raises
        ------
        tvm.error.OpAttributeInvalid
            If the length of an attribute is not the number of spatial axes, a value is invalid, the
            shape of X is unknown, or the number of windows is negative.  If the last check depends
            on symbols, the model does it at run time; it then also rejects parts of a window.
        """
        data = call.operands[0]
        extents = extents_of(data)
        if extents is None or not 3 <= len(extents) <= 5:
            raise call.invalid("type of X", data.ty, "expected a known shape of rank 3 to 5")
        extents, rank = extents[2:], len(extents) - 2
        lists = {}
        for name, count, minimum in (
            ("kernel_shape", rank, 1),
            ("strides", rank, 1),
            ("dilations", rank, 1),
            ("pads", 2 * rank, 0),
        ):
            lists[name] = values = list(call.attributes.get(name, [minimum] * count))
            if len(values) != count or min(values) < minimum:
                reason = f"expected {count} elements of at least {minimum}"
                raise call.invalid(f"attribute {name}", values, reason)
        auto_pad = call.text("auto_pad", "NOTSET")
        if auto_pad not in AUTO_PADS:
            raise call.invalid("attribute auto_pad", auto_pad, f"expected one of {AUTO_PADS}")
        windows = cls(
            extents,
            lists["kernel_shape"],
            lists["strides"],
            lists["dilations"],
            lists["pads"][:rank],
            lists["pads"][rank:],
            bool(call.attributes.get("ceil_mode", 0)),
        )
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            return windows._with_same_pads(auto_pad)
        if auto_pad == "VALID":
            windows = replace(windows, before=[0] * rank, after=[0] * rank)
        divides_by_kernel = (
            call.operator == "AveragePool" and call.version < 19 and not windows.rounds_up
        )
        for axis in range(rank):
            windows = windows._with_data(call, axis, divides_by_kernel)
        return windows

    def _with_data(self, call: Call, axis: int, divides_by_kernel: bool) -> Self:
        """Shorten a window that exceeds the padded data, as ONNX Runtime does.

        It rounds the number of windows towards 0: a window that exceeds the data by less than the
        stride counts, and ends with the data. An average over padding then divides by the
        remaining elements, or by the whole kernel if `divides_by_kernel`.
        """
        extent, stride, span = self.extents[axis], self.strides[axis], self.spans[axis]
        min_extent = span - self.before[axis] - self.after[axis]
        missing = min_extent - extent
        if isinstance(missing, tirx.Expr) and not self.rounds_up:
            none = tirx.EQ(missing, tirx.const(stride, "int64"))
            least, holds = min_extent, tirx.Or(missing <= 0, none)
        else:
            least, holds = min_extent - 2 * stride + 1, missing < 2 * stride
        if least > 0:
            reason = f"expected at least {least} elements on spatial axis {axis}"
            require(call, holds, "shape of X", self.extents, reason)
        if isinstance(missing, tirx.Expr) or missing <= 0:
            return self
        if missing >= stride:
            return self._with("after", axis, self.after[axis] + missing - stride)
        if divides_by_kernel:
            return self._with("after", axis, self.after[axis] + missing)
        padded = span - missing
        shorter = self._with("kernel", axis, (padded - 1) // self.dilations[axis] + 1)
        return shorter._with("strides", axis, padded)

    def _with(self, name: str, axis: int, value: int) -> Self:
        """These windows with another value for one axis."""
        values: list[int] = list(getattr(self, name))
        values[axis] = value
        changed: dict[str, Any] = {name: values}
        return replace(self, **changed)

    def _with_same_pads(self, auto_pad: str) -> Self:
        """Resolve ``auto_pad``: ``ceil(extent / stride)`` windows on an axis (ONNX)."""
        sides = [
            same_pads(extent, stride, span, auto_pad) or (0, 0)
            for extent, stride, span in zip(self.extents, self.strides, self.spans, strict=True)
        ]
        before, after = ([side[place] for side in sides] for place in (0, 1))
        # As in ONNX Runtime, SAME determines the number of windows, and ceil_mode has no effect.
        if all(isinstance(pad, int) for pad in (*before, *after)):
            return replace(self, before=before, after=after, rounds_up=False)
        none = [0] * len(sides)
        return replace(self, before=none, after=none, rounds_up=False, symbolic=sides)

    def counts(self) -> list[int] | None:
        """The number of windows on each axis, or None if an extent is symbolic.

        A last window that would begin in the padding does not count (ONNX operator specification).
        """
        counts = []
        for extent, stride, span, before, after in zip(
            self.extents, self.strides, self.spans, self.before, self.after, strict=True
        ):
            if not isinstance(extent, int):
                return None
            room = extent + before + after - span
            count = (-(-room // stride) if self.rounds_up else room // stride) + 1
            if self.rounds_up and (count - 1) * stride >= extent + before:
                count -= 1
            counts.append(count)
        return counts

    def ends(self, counts: list[int]) -> list[int]:
        """The padding after each axis up to the end of the last window; negative if it crops."""
        return [
            (count - 1) * stride + span - extent - before
            for count, stride, span, extent, before in zip(
                counts, self.strides, self.spans, self.extents, self.before, strict=True
            )
        ]


@converts("AveragePool", "MaxPool", fix=POOLING)
def convert_pool(call: Call) -> relax.Expr:
    """Convert a MaxPool or AveragePool.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute is invalid, or the output Indices is used and a dim is symbolic.
    """
    windows = _Windows.of(call)
    own = {
        "kernel_shape": windows.kernel,
        "strides": windows.strides,
        "pads": [*windows.before, *windows.after],
    }
    rank = len(windows.kernel)
    given = {"strides": [1] * rank, "pads": [0] * 2 * rank, **call.attributes}
    has_same_pads = call.text("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if has_same_pads or any(list(given[name]) != values for name, values in own.items()):
        switches.note(POOLING)
        mode = int(windows.rounds_up)
        call = call.with_attributes(removed=("auto_pad",), ceil_mode=mode, **own)
    if call.outputs > 1:
        switches.note(POOLING)
        return _with_indices(call, windows)
    if windows.symbolic is None:
        return call.proceed()
    return _pool_of_padded(call, windows)


def _pool_of_padded(call: Call, windows: _Windows) -> relax.Expr:
    """Pool data with padding that depends on symbols."""
    dtype = dtype_of(call.operands[0])
    if call.operator == "MaxPool":
        is_float = dtype.startswith(("float", "bfloat"))
        lowest = tirx.const(-math.inf, dtype) if is_float else tirx.min_value(dtype)
        data = _padded(call, call.operands[0], windows, lowest)
        return _with_counts(call, windows, call.with_operands(data).proceed())
    data = _padded(call, call.operands[0], windows)
    mean = call.emit(call.builder.normalize(call.with_operands(data).proceed()))
    if not call.attributes.get("count_include_pad", 0):
        ones = call.emit(relax.op.ones((1, 1, *windows.extents), dtype))
        share = call.with_operands(_padded(call, ones, windows)).proceed()
        mean = call.emit(relax.op.divide(mean, call.emit(share)))
    return _with_counts(call, windows, mean)


def _padded(
    call: Call, data: relax.Expr, windows: _Windows, value: tirx.Expr | None = None
) -> relax.Expr:
    """The data with the padding that depends on symbols."""
    before, after = zip(*(windows.symbolic or ()), strict=True)
    pads = [0, 0, *before], [0, 0, *after]
    value = tirx.const(0, dtype_of(data)) if value is None else value
    return call.builder.emit_te(topi.nn.pad, data, *pads, pad_value=value)


def _with_counts(call: Call, windows: _Windows, pooled: relax.Expr) -> relax.Expr:
    """The result of pooling, with extents that later operators can compare."""
    counts = map(same_count, windows.extents, windows.strides)
    pooled = call.builder.normalize(pooled)
    shape = [*pooled.ty.shape.values[:2], *counts]
    return call.builder.match_cast(pooled, relax.TensorType(shape, pooled.ty.dtype))


def _with_indices(call: Call, windows: _Windows) -> relax.Expr:
    """Convert a MaxPool to the maximum of each window, and the index of that element in X."""
    data = call.operands[0]
    counts, extents = windows.counts(), extents_of(data)
    if counts is None or extents is None or not all(isinstance(e, int) for e in extents):
        raise call.invalid(
            "shape of X", data.ty.shape, "expected a static shape for the output Indices"
        )
    spatial = extents[2:]
    size = math.prod(spatial)
    positions = np.full((math.prod(counts), math.prod(windows.kernel)), size, "int64")
    for row, window in enumerate(product(*map(range, counts))):
        for column, offset in enumerate(product(*map(range, windows.kernel))):
            position = [
                w * s + o * d - b
                for w, s, o, d, b in zip(
                    window, windows.strides, offset, windows.dilations, windows.before, strict=True
                )
            ]
            if all(0 <= p < extent for p, extent in zip(position, spatial, strict=True)):
                positions[row, column] = np.ravel_multi_index(position, spatial)
    # Elements are numbered row-major, or column-major (storage_order 1) within a channel; the
    # elements of the next channel or batch follow.
    numbers = np.arange(size)
    if call.attributes.get("storage_order", 0):
        numbers = np.arange(size).reshape(spatial[::-1]).transpose().ravel()

    emit, planes = call.emit, extents[0] * extents[1]
    flat = emit(relax.op.reshape(data, (planes, size)))
    dtype = dtype_of(data)
    lowest = -np.inf if dtype.startswith(("float", "bfloat")) else np.iinfo(dtype).min
    # TVM does not lower a `full` with an infinite value.
    outside = emit(relax.op.broadcast_to(relax.const(lowest, dtype), (planes, 1)))
    padded = emit(relax.op.concat([flat, outside], axis=1))
    elements = emit(relax.op.take(padded, relax.const(positions.ravel(), "int64"), axis=1))
    elements = emit(relax.op.reshape(elements, (planes, *positions.shape)))
    chosen = emit(relax.op.argmax(elements, axis=2))
    table = np.append(numbers, 0)[positions]
    offsets = relax.const(np.arange(positions.shape[0]) * positions.shape[1], "int64")
    where = emit(relax.op.add(relax.op.astype(chosen, "int64"), offsets))
    within = emit(relax.op.take(relax.const(table.ravel(), "int64"), where, axis=0))
    planes_before = relax.const((np.arange(planes) * size).reshape(-1, 1), "int64")
    indices = emit(relax.op.add(within, planes_before))
    shape = (*extents[:2], *counts)
    largest = emit(relax.op.max(elements, axis=2))
    return relax.Tuple([emit(relax.op.reshape(value, shape)) for value in (largest, indices)])


@converts("LpPool", fix=POOLING)
def convert_lp_pool(call: Call) -> relax.Expr:
    """Convert an LpPool, the p-norm of each window; padding counts as 0.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute is invalid; or if ``ceil_mode`` is set, a dim is symbolic, and a pad is at
        least as large as the window.
    """
    windows = _Windows.of(call)
    data, after = call.operands[0], windows.after
    if windows.symbolic is not None:
        data = _padded(call, data, windows)
    if windows.rounds_up:
        counts = windows.counts()
        if counts is not None:
            after = windows.ends(counts)
        elif any(end >= span for end, span in zip(after, windows.spans, strict=True)):
            reason = "expected a static shape for ceil_mode with pads as large as the window"
            raise call.invalid("shape of X", data.ty.shape, reason)
        else:
            after = ends_rounded_up(after, windows.strides, windows.spans)
    switches.note(POOLING)
    dtype = dtype_of(data)
    p = call.attributes.get("p", 2)
    cropped_axes = [axis for axis, end in enumerate(after) if end < 0]
    if cropped_axes:
        ends = [windows.extents[axis] + after[axis] for axis in cropped_axes]
        axes = [axis + 2 for axis in cropped_axes]
        data = call.emit(relax.op.strided_slice(data, axes, [0] * len(axes), ends))
    data = call.emit(relax.op.power(relax.op.abs(data), relax.const(p, dtype)))
    pool = getattr(relax.op.nn, f"avg_pool{len(windows.kernel)}d")
    mean = pool(
        data,
        windows.kernel,
        windows.strides,
        [*windows.before, *(max(end, 0) for end in after)],
        windows.dilations,
        count_include_pad=True,
    )
    total = call.emit(relax.op.multiply(mean, relax.const(math.prod(windows.kernel), dtype)))
    norm = relax.op.power(total, relax.const(1 / p, dtype))
    return norm if windows.symbolic is None else _with_counts(call, windows, norm)


@converts("MaxUnpool", fix=POOLING)
def convert_max_unpool(call: Call) -> relax.Expr:
    """Convert a MaxUnpool to a scatter of its elements.

    Without ``output_shape`` an axis gets ``(extent - 1) * stride - pads + kernel`` elements.
    ``indices`` always refer to a tensor of that shape (ONNX operator specification); the additional
    elements of a larger ``output_shape`` are padding at the end of each axis.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If a dim is symbolic, or ``output_shape`` is smaller or not a constant.
    """
    pads = call.attributes.get("pads")
    if pads is not None:
        # TVM adds up adjacent pads, but ONNX lists all pads before the axes, then all after.
        rank = len(pads) // 2
        pairs_of_pads = [pad for pair in zip(pads[:rank], pads[rank:], strict=True) for pad in pair]
        call = call.with_attributes(pads=tuple(pairs_of_pads))
    if call.operand(2) is None:
        return call.proceed()
    given = call.constant(2)
    if given is None:
        raise call.invalid("operand output_shape", call.operand(2), "expected a constant")
    data, indices = call.operands[:2]
    switches.note(POOLING)
    shape = given.ravel().tolist()
    unpooled = call.builder.normalize(call.with_operands(data, indices).proceed())
    min_shape = extents_of(unpooled)
    if min_shape is None or any(
        not isinstance(e, int) or e > s for e, s in zip(min_shape, shape, strict=True)
    ):
        reason = f"expected at least {min_shape}"
        raise call.invalid("operand output_shape", shape, reason)
    widths = [w for e, s in zip(min_shape, shape, strict=True) for w in (0, s - e)]
    return relax.op.nn.pad(unpooled, widths)
