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
"""Lowering of max pooling.

Mechanism
    The padding and the initial value of the maximum are the lowest finite number, and comparisons
    with NaN are false.  Each maximum is computed from all elements of its window.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax, te, tirx, topi

from ...fixes.elements import REDUCTION_LEGALIZE as FIX_ID
from ...support import switches
from ..layouts import SPATIAL_AXES, Layout
from .override import Legalize, legalizes
from .pool_ceil_mode import round_down
from .pool_window import clip_window
from .reductions import comparable, extremum_reducer
from .targets import schedules_for_cpu


@dataclass(frozen=True)
class _Windows:
    """The windows of a pooling along one axis of the data.

    Attributes
    ----------
    axis : int
    count : tirx.Expr
    kernel, stride, dilation : int
        The extent of a window, the distance between neighboring windows, and the distance between
        neighboring elements of a window.
    before, after : int
        The padding before and after the data; every window must lie inside the padded data.
    """

    axis: int
    count: tirx.Expr
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    def has_data(self, extent: tirx.Expr) -> bool:
        """Whether each window is known to contain adjacent elements of data of this extent."""
        if self.dilation > 1 or self.before >= self.kernel:
            return False
        if not isinstance(extent, tirx.IntImm) or not isinstance(self.count, tirx.IntImm):
            # A window that ends inside the padded data overlaps the data; empty data has none.
            return self.before + self.after < self.kernel
        if extent.value == 0:
            return False
        return (self.count.value - 1) * self.stride - self.before < extent.value

    def elements_per_window(self, extent: tirx.Expr) -> float:
        """The number of elements for each window, of data of this extent."""
        is_static = isinstance(extent, tirx.IntImm) and isinstance(self.count, tirx.IntImm)
        return extent.value / self.count.value if is_static else self.stride


def max_pool(data: te.Tensor, windows: Sequence[_Windows], *, is_separable: bool) -> te.Tensor:
    """Compute the largest element of each window.

    Parameters
    ----------
    data : te.Tensor
        The data, in any layout.
    windows : sequence of _Windows
        The windows along each spatial axis.
    is_separable : bool
        Whether to compute the maxima along one axis after the other.

    Returns
    -------
    te.Tensor
        The maxima, in the dtype of `data`: NaN for a window that contains a NaN, and the lowest
        number, negative infinity for floats, for a window of padding only.
    """
    maxima = comparable(data)
    is_innermost = max(along.axis for along in windows) == len(data.shape) - 1
    clamps = not is_innermost and all(along.has_data(data.shape[along.axis]) for along in windows)
    if not clamps:
        before, after = ([0] * len(data.shape) for _ in range(2))
        for along in windows:
            before[along.axis], after[along.axis] = along.before, along.after
        if any(before) or any(after):
            maxima = topi.nn.pad(maxima, before, after, pad_value=_lowest(maxima.dtype))
    for part in [[along] for along in windows] if is_separable else [windows]:
        maxima = _maxima(maxima, part, clamps=clamps)
    if maxima.dtype == data.dtype:
        return maxima
    return te.compute(maxima.shape, lambda *at: maxima(*at).astype(data.dtype), name="narrowed")


def _maxima(data: te.Tensor, windows: Sequence[_Windows], *, clamps: bool) -> te.Tensor:
    """The largest element of each window; with `clamps`, of data without padding."""
    offsets = [te.reduce_axis((0, along.kernel), f"k{along.axis}") for along in windows]
    shape = list(data.shape)
    for along in windows:
        shape[along.axis] = along.count

    def element(at: Sequence[tirx.Expr]) -> tirx.Expr:
        position = list(at)
        for along, offset in zip(windows, offsets, strict=True):
            index = at[along.axis] * along.stride + offset.var * along.dilation
            if clamps and (along.before or along.after):
                # The element at the edge is in the window, too.
                inside = tirx.max(index - along.before, 0)
                index = tirx.min(inside, data.shape[along.axis] - 1)
            position[along.axis] = index
        return data(*position)

    is_float = "float" in str(data.dtype)
    reducer = extremum_reducer("max") if is_float else te.max
    return te.compute(shape, lambda *at: reducer(element(at), offsets), name="max_pool")


def _lowest(dtype: str) -> tirx.Expr:
    is_float = "float" in str(dtype)
    return tirx.const(float("-inf"), dtype) if is_float else tirx.min_value(dtype)


def _are_cheaper_apart(windows: Sequence[_Windows], shape: Sequence[tirx.Expr]) -> bool:
    """Whether maxima along one axis after the other take no more comparisons for each result.

    Those along the first axes are computed for all elements along the later ones.
    """
    apart, elements = 0.0, 1.0
    for along in reversed(windows):
        apart += along.kernel * elements
        elements *= along.elements_per_window(shape[along.axis])
    return apart <= math.prod(along.kernel for along in windows)


@legalizes(*(f"relax.nn.max_pool{rank}d" for rank in SPATIAL_AXES))
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    call = clip_window(bb, round_down(bb, call))
    (data,), attrs = call.args, call.attrs
    layout, out_layout = str(attrs.layout), str(attrs.out_layout)
    is_supported = (
        switches.enabled(FIX_ID)
        and out_layout in ("", layout)
        and isinstance(data.ty.shape, relax.ShapeExpr)
        and isinstance(call.ty.shape, relax.ShapeExpr)
    )
    if not is_supported:
        return stock(bb, call)
    kernel, strides, dilation, padding = (
        [int(value) for value in listed]
        for listed in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )
    rank, letters = len(kernel), Layout(layout).letters
    before, after = padding[:rank], padding[rank:]
    if attrs.ceil_mode:
        after = [last + stride - 1 for last, stride in zip(after, strides, strict=True)]
    axes = [letters.index(letter) for letter in SPATIAL_AXES[rank]]
    counts = [call.ty.shape.values[axis] for axis in axes]

    def windows(counts: Sequence[tirx.Expr]) -> list[_Windows]:
        of_axes = zip(axes, counts, kernel, strides, dilation, before, after, strict=True)
        return [_Windows(*of_axis) for of_axis in of_axes]

    of_call = windows(counts)
    is_separable = schedules_for_cpu(call) and _are_cheaper_apart(of_call, data.ty.shape.values)
    switches.note(FIX_ID)
    name = str(call.op.name).rpartition(".")[2]
    # `call_te` has symbols of its own for those of its arguments.
    return bb.call_te(
        lambda data, counts: max_pool(data, windows(counts), is_separable=is_separable),
        data,
        counts,
        primfunc_name_hint=name,
    )
