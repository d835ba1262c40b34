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

Versions
    Seen in 0.27.0.post1.
Trigger
    ``relax.nn.max_pool1d``, ``max_pool2d`` or ``max_pool3d`` of floating-point data that contains a
    NaN, or a window of only negative infinities.
Symptom
    Silently wrong results: the lowest finite number instead of negative infinity; whether a NaN is
    kept depends on its position.
Mechanism
    The padding and the initial value of the maximum are the lowest finite number, and comparisons
    with NaN are false.
How to remove
    When TVM passes the tests of this file, delete this file and its tests.
"""

import functools
from collections.abc import Sequence

from tvm import relax, te, tirx, topi

from ...fixes.elements import REDUCTION_LEGALIZE as FIX_ID
from ...support import switches
from ..layouts import SPATIAL_AXES, Layout
from .override import Legalize, override
from .pool_ceil_mode import round_down
from .pool_window import clip_window
from .reductions import comparable, extremum_reducer


def max_pool(
    data: te.Tensor,
    shape: Sequence[tirx.Expr],
    axes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding: tuple[Sequence[int], Sequence[int]],
) -> te.Tensor:
    """Compute the largest element of each window.

    Parameters
    ----------
    data : te.Tensor
        The floating-point data, in any layout.
    shape : sequence of tirx.Expr
        The shape of the result.
    axes : sequence of int
        The spatial axes, in the order of `kernel`, `strides`, `dilation` and `padding`.
    kernel, strides, dilation : sequence of int
        The extent of a window, the distance between neighboring windows, and the distance between
        neighboring elements of a window.
    padding : pair of sequence of int
        The padding before and after the data; every window must lie inside the padded data.

    Returns
    -------
    te.Tensor
        The maxima, in the dtype of `data`: NaN for a window that contains a NaN, negative infinity
        for a window of padding only.
    """
    wide = comparable(data)
    before, after = ([0] * len(data.shape) for _ in range(2))
    for axis, first, last in zip(axes, *padding, strict=True):
        before[axis], after[axis] = first, last
    along = [te.reduce_axis((0, extent), f"k{axis}") for axis, extent in enumerate(kernel)]
    clamps = max(axes) < len(shape) - 1 and all(
        _has_data(data.shape[axis], shape[axis], extent, stride, step, first)
        for axis, extent, stride, step, first in zip(
            axes, kernel, strides, dilation, padding[0], strict=True
        )
    )
    if not clamps and (any(before) or any(after)):
        lowest = tirx.const(float("-inf"), wide.dtype)
        wide = topi.nn.pad(wide, before, after, pad_value=lowest)

    def element(at: Sequence[tirx.Expr]) -> tirx.Expr:
        position = list(at)
        for axis, offset, stride, step in zip(axes, along, strides, dilation, strict=True):
            position[axis] = at[axis] * stride + offset.var * step
            if clamps and (before[axis] or after[axis]):
                # The element at the edge is in the window, too.
                inside = tirx.max(position[axis] - before[axis], 0)
                position[axis] = tirx.min(inside, data.shape[axis] - 1)
        return wide(*position)

    reducer = extremum_reducer("max")
    found = te.compute(shape, lambda *at: reducer(element(at), along), name="max_pool")
    if found.dtype == data.dtype:
        return found
    return te.compute(shape, lambda *at: found(*at).astype(data.dtype), name="narrowed")


def _has_data(
    extent: tirx.Expr, windows: tirx.Expr, kernel: int, stride: int, dilation: int, before: int
) -> bool:
    """Whether each window along an axis is known to contain adjacent elements of the data."""
    is_static = isinstance(extent, tirx.IntImm) and isinstance(windows, tirx.IntImm)
    if not is_static or extent.value == 0 or dilation > 1 or before >= kernel:
        return False
    return (windows.value - 1) * stride - before < extent.value


def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    call = clip_window(bb, round_down(bb, call))
    (data,), attrs = call.args, call.attrs
    layout, out_layout = str(attrs.layout), str(attrs.out_layout)
    is_supported = (
        switches.enabled(FIX_ID)
        and "float" in str(data.ty.dtype)
        and out_layout in ("", layout)
        and isinstance(data.ty.shape, relax.ShapeExpr)
        and isinstance(call.ty.shape, relax.ShapeExpr)
    )
    if not is_supported:
        return stock(bb, call)
    switches.note(FIX_ID)
    kernel, strides, dilation, padding = (
        [int(value) for value in listed]
        for listed in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )
    rank = len(kernel)
    before, after = padding[:rank], padding[rank:]
    if attrs.ceil_mode:
        after = [last + stride - 1 for last, stride in zip(after, strides, strict=True)]
    letters = Layout(layout).letters
    return bb.call_te(
        max_pool,
        data,
        list(call.ty.shape.values),
        [letters.index(letter) for letter in SPATIAL_AXES[rank]],
        kernel,
        strides,
        dilation,
        (before, after),
        primfunc_name_hint=str(call.op.name).rpartition(".")[2],
    )


@functools.cache
def register() -> None:
    """Register the lowering; a second call is a no-op."""
    for rank in SPATIAL_AXES:
        override(f"relax.nn.max_pool{rank}d", _legalize)
