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
"""Clipping of pooling windows that are larger than the padded data.

Mechanism
    TVM's lowering pads the data to the size of the window.
How to remove
    When TVM passes the tests of this file, delete it, its test, its call in
    ``max_pool.py`` and the fix id ``pool-window``.
"""

import tvm_ffi
from tvm import relax, tirx

from ...fixes.elements import POOL_WINDOW as FIX_ID
from ...support import switches
from ..ir import nn_call
from ..layouts import SPATIAL_AXES, Layout
from .average_pool import widen
from .override import Legalize, legalizes
from .pool_ceil_mode import round_down


def clip_window(bb: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """Clip the window of a pooling to the padded data along axes with a single window.

    The divisor of an average does not change: PyTorch counts elements of the padding (with
    ``count_include_pad``), but no elements beyond it.

    Parameters
    ----------
    bb : relax.BlockBuilder
    call : relax.Call
        A call of an average or max pooling, in any layout.

    Returns
    -------
    relax.Call
        `call` itself if the fix is off, or if the window is not known to be larger than the padded
        data.
    """
    (data,), attrs = call.args, call.attrs
    known = isinstance(data.ty.shape, relax.ShapeExpr) and isinstance(
        call.ty.shape, relax.ShapeExpr
    )
    if not (
        switches.enabled(FIX_ID) and known and str(attrs.out_layout) in ("", str(attrs.layout))
    ):
        return call
    sizes = [int(size) for size in attrs.pool_size]
    clipped, strides = list(sizes), list(map(int, attrs.strides))
    letters = Layout(str(attrs.layout)).letters
    for axis, letter in enumerate(SPATIAL_AXES[len(sizes)]):
        extents = [expr.ty.shape.values[letters.index(letter)] for expr in (data, call)]
        is_one_window = isinstance(extents[1], tirx.IntImm) and extents[1].value == 1
        if not (is_one_window and isinstance(extents[0], tirx.IntImm)):
            continue
        if int(attrs.dilation[axis]) == 1:
            before, after = (int(attrs.padding[i]) for i in (axis, axis + len(sizes)))
            padded = extents[0].value + before + after
            if sizes[axis] > padded > 0:
                # With ceil_mode, TVM's padding grows with the stride.
                clipped[axis], strides[axis] = padded, 1
    if clipped == sizes:
        return call
    smaller = bb.normalize(nn_call(call, call.args[0], pool_size=clipped, strides=strides))
    if not tvm_ffi.structural_equal(smaller.ty, call.ty):
        return call
    switches.note(FIX_ID)
    return smaller


@legalizes(*(f"relax.nn.avg_pool{rank}d" for rank in SPATIAL_AXES))
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    widened = widen(bb, call)
    return stock(bb, clip_window(bb, round_down(bb, call))) if widened is None else widened
