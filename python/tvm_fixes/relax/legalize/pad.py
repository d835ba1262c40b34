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
"""Lowering of ``relax.nn.pad`` in the modes ``reflect``, ``replicate`` and ``circular``.

See :mod:`.indices`.  A padding wider than the axis reflects or wraps around repeatedly, like
NumPy's.
"""

from collections.abc import Callable, Sequence

from tvm import relax, te, tirx

from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import is_zero
from .indices import clamp_index, is_at_most, read, takes_effect
from .override import Legalize, legalizes


def _reflected(index: tirx.Expr, extent: tirx.Expr) -> tirx.Expr:
    last = extent - 1
    # An extent of 1 has a period of 0; the divisor must not be 0.
    period = tirx.max(last * 2, tirx.const(1, "int64"))
    return last - tirx.abs(last - tirx.floormod(index, period))


def _wrapped_around(index: tirx.Expr, extent: tirx.Expr) -> tirx.Expr:
    return tirx.floormod(index, tirx.max(extent, tirx.const(1, "int64")))


_PLACES: dict[str, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]] = {
    "reflect": _reflected,
    "replicate": clamp_index,
    "circular": _wrapped_around,
}
"""The position to read for an element of the padding, by mode."""


def _pad(data: te.Tensor, widths: Sequence[tuple[int, int]], mode: str) -> te.Tensor:
    padded = [axis for axis, pair in enumerate(widths) if any(pair)]
    shape = [e + sum(pair) for e, pair in zip(data.shape, widths, strict=True)]

    def element(*position: tirx.Var) -> tirx.Expr:
        places: list[tirx.Expr] = list(position)
        for axis in padded:
            index = position[axis].astype("int64") - widths[axis][0]
            places[axis] = clamp_index(_PLACES[mode](index, data.shape[axis]), data.shape[axis])
        return read(data, places, padded)

    return te.compute(shape, element, name="pad")


@legalizes("relax.nn.pad")
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, mode = call.args[0], str(call.attrs.pad_mode)
    if not takes_effect(data) or mode not in _PLACES:
        return stock(bb, call)
    ends = [int(width) for width in call.attrs.pad_width]
    widths = list(zip(ends[::2], ends[1::2], strict=True))
    # If the axis is long enough, TVM's kernel is correct and needs fewer divisions.
    minimum = {"reflect": 1, "replicate": 1, "circular": 0}[mode]
    is_long = [
        is_at_most(tirx.const(max(*pair, 0) * (mode != "replicate") + minimum, "int64"), extent)
        for extent, pair in zip(data.ty.shape.values, widths, strict=True)
        if any(pair)
    ]
    # TVM's circular pad divides by the extents of all axes.
    if all(is_long) and not any(map(is_zero, data.ty.shape.values)):
        return stock(bb, call)
    switches.note(FIX_ID)
    return bb.call_te(_pad, data, widths, mode, primfunc_name_hint=f"{mode}_pad")
