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
"""Rewriting of poolings with ``ceil_mode`` and symbolic extents to poolings without it.

Mechanism
    TVM excludes a last window that may begin beyond the data with an ``if_then_else`` in the
    extent, which Relax treats as one of its own operators.
How to remove
    When TVM passes the tests of this file, delete it, its test, its calls in ``max_pool.py`` and
    ``pool_window.py``, ``src/relax/op/pool.cc`` and the fix id ``pool-ceil-mode``.
"""

import tvm_ffi
from tvm import relax, tirx, topi

from ...fixes.elements import POOL_CEIL_MODE as FIX_ID
from ...support import switches
from ..ir import nn_call
from ..layouts import SPATIAL_AXES, Layout


def ends_rounded_up(ends: list[int], strides: list[int], spans: list[int]) -> list[int]:
    """The padding after each axis for which ``floor`` gives the same windows as ``ceil_mode``.

    Parameters
    ----------
    ends, strides, spans : list of int
        For each axis: the padding after it, less than the span; the distance between windows; and
        the span of a window, from its first to its last element.

    Returns
    -------
    list of int
        The paddings.  The last window begins within the data or the padding before it.
    """
    axes = zip(ends, strides, spans, strict=True)
    return [min(end + stride, span) - 1 for end, stride, span in axes]


def round_down(bb: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """Rewrite a pooling with ``ceil_mode`` to one without it that has the same windows.

    The rewritten pooling has up to ``stride - 1`` more elements of padding after each axis, limited
    such that no window begins beyond the last element.  An average does not count these.  With
    ``count_include_pad`` it must still count the original padding, which a separate pad adds to the
    data first.

    Parameters
    ----------
    bb : relax.BlockBuilder
    call : relax.Call
        A call of an average or max pooling, in any layout.

    Returns
    -------
    relax.Call
        `call` itself if the fix is off, if it has no ``ceil_mode``, or if its shape is static.
    """
    (data,), attrs = call.args, call.attrs
    known = isinstance(data.ty.shape, relax.ShapeExpr) and isinstance(
        call.ty.shape, relax.ShapeExpr
    )
    if not (switches.enabled(FIX_ID) and attrs.ceil_mode and known):
        return call
    if all(isinstance(extent, tirx.IntImm) for extent in call.ty.shape.values):
        return call
    rank = len(attrs.pool_size)
    sizes, strides, dilation, padding = (
        list(map(int, values))
        for values in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )
    before, after = padding[:rank], padding[rank:]
    spans = [step * (size - 1) + 1 for step, size in zip(dilation, sizes, strict=True)]
    ends = ends_rounded_up(after, strides, spans)
    operator = str(call.op.name).rpartition(".")[2]
    if operator.startswith("avg") and attrs.count_include_pad and any(padding):
        data = bb.emit(_padded(bb, data, str(attrs.layout), before, after))
        ends = [end - width for end, width in zip(ends, after, strict=True)]
        before = [0] * rank
    rounded = bb.normalize(
        nn_call(call, data, padding=[*before, *ends], ceil_mode=False, count_include_pad=False)
    )
    if not tvm_ffi.structural_equal(rounded.ty, call.ty):
        return call
    switches.note(FIX_ID)
    return rounded


def _padded(
    bb: relax.BlockBuilder, data: relax.Expr, layout: str, before: list[int], after: list[int]
) -> relax.Expr:
    letters = Layout(layout).letters
    widths = [[0] * len(letters), [0] * len(letters)]
    for axis, letter in enumerate(SPATIAL_AXES[len(before)]):
        for width, of_axis in zip(widths, (before, after), strict=True):
            width[letters.index(letter)] = of_axis[axis]
    return bb.call_te(topi.nn.pad, data, *widths)
