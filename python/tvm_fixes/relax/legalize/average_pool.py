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
"""Lowering of average pooling of 16-bit floats, and of adaptive windows of different extents.

Mechanism
    Sums and element counts have the dtype of the data.  The element count of an adaptive window
    is a product of casts.  If it is used twice, TVM binds it to a variable, and its analysis of
    integers builds an ``IntImm`` of that float.
How to remove
    When TVM passes the tests of this file, delete it, its test, its call in
    ``pool_window.py`` and the fix id ``average-pool``.
"""

import functools
import operator
from collections.abc import Sequence

from tvm import relax, te, tirx

from ...fixes.elements import AVERAGE_POOL as FIX_ID
from ...support import switches
from ...support.dtypes import accumulation_dtype
from ...target.gpu import is_gpu
from ...tirx.util import divides
from ..layouts import SPATIAL_AXES, Layout
from .override import Legalize, legalizes
from .targets import target_of


def widen(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Lower an average pooling of 16-bit floats to float32, rounded once, as PyTorch does.

    Parameters
    ----------
    bb : relax.BlockBuilder
    call : relax.Call
        A call of an average pooling.

    Returns
    -------
    relax.Expr or None
        None if the fix is off or the dtype is another one.
    """
    dtype = str(call.args[0].ty.dtype)
    inner = accumulation_dtype(dtype)
    if inner == dtype or not switches.enabled(FIX_ID):
        return None
    switches.note(FIX_ID)
    widened = bb.emit(relax.op.astype(call.args[0], inner))
    return relax.op.astype(bb.emit(relax.Call(call.op, [widened], call.attrs)), dtype)


@legalizes(*(f"relax.nn.adaptive_avg_pool{rank}d" for rank in SPATIAL_AXES))
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    widened = widen(bb, call)
    if widened is not None:
        return widened
    (data,), attrs = call.args, call.attrs
    layout, dtype = Layout(str(attrs.layout)), str(data.ty.dtype)
    shapes = [value.ty.shape for value in (data, call)]
    needs_fix = (
        switches.enabled(FIX_ID)
        and "float" in dtype
        and str(attrs.out_layout) in ("", layout.name)
        and all(isinstance(shape, relax.ShapeExpr) for shape in shapes)
    )
    if not needs_fix:
        return stock(bb, call)
    extents, counts = (list(shape.values) for shape in shapes)
    letters = SPATIAL_AXES[data.ty.ndim - 2 - len(layout.blocks)]
    axes = [layout.letters.index(letter) for letter in letters]
    if all(_has_equal_windows(counts[axis], extents[axis]) for axis in axes):
        return stock(bb, call)
    switches.note(FIX_ID)
    name = str(call.op.name).rpartition(".")[2]
    is_padded = is_gpu(target_of(call))
    return bb.call_te(adaptive_average, data, counts, axes, is_padded, primfunc_name_hint=name)


def _has_equal_windows(count: tirx.Expr, extent: tirx.Expr) -> bool:
    """Whether both are known and `count` windows divide `extent` elements evenly."""
    is_known = isinstance(count, tirx.IntImm) and isinstance(extent, tirx.IntImm)
    return is_known and count.value > 0 and divides(count.value, extent)


def adaptive_average(
    data: te.Tensor, shape: list[tirx.Expr], axes: list[int], is_padded: bool = False
) -> te.Tensor:
    """Compute the averages of windows that cover `data`.

    Window ``i`` of ``n`` on an axis of ``extent`` elements begins at ``i * extent // n`` and ends
    before ``ceil((i + 1) * extent / n)``, as in PyTorch.

    Parameters
    ----------
    data : te.Tensor
        Floating-point data in any layout.
    shape : list of Expr
        The shape of the result.
    axes : list of int
        The spatial axes.
    is_padded : bool
        Whether all windows along an axis of a known extent have as many steps as the largest, for a
        GPU, whose schedules cannot divide loops of different extents among threads.

    Returns
    -------
    te.Tensor
        The averages, in the dtype of `data`.
    """

    def largest(axis: int) -> int | None:
        """The number of elements of the largest window, if it is known."""
        extents = data.shape[axis], shape[axis]
        if not is_padded or not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return None
        extent, count = map(int, extents)
        sizes = (-(-(i + 1) * extent // count) - i * extent // count for i in range(count))
        return max(sizes, default=0)

    def window(axis: int, at: Sequence[tirx.Expr]) -> tuple[tirx.Expr, tirx.Expr]:
        """The first element of a window, and its number of elements."""
        index, count = at[axis].astype("int64"), shape[axis]
        begin = tirx.floordiv(index * data.shape[axis], count)
        return begin, tirx.ceildiv((index + 1) * data.shape[axis], count) - begin

    def total(*at: tirx.Expr) -> tirx.Expr:
        position, along, inside = list(at), [], []
        for axis in axes:
            begin, count = window(axis, at)
            steps = largest(axis)
            along.append(te.reduce_axis((0, count if steps is None else steps), name=f"r{axis}"))
            position[axis] = begin + along[-1]
            if steps is not None:
                inside.append(along[-1] < count)
        value = data(*position)
        if inside:
            value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, data.dtype))
        return te.sum(value, axis=along)

    summed = te.compute(shape, total, name="adaptive_pool_sum")

    def average(*at: tirx.Expr) -> tirx.Expr:
        counts = [window(axis, at)[1] for axis in axes]
        return summed(*at) / functools.reduce(operator.mul, counts).astype(data.dtype)

    return te.compute(shape, average, name="adaptive_pool_avg")
