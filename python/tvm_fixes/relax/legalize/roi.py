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
"""Lowering of ``relax.vision.roi_align`` and ``roi_pool`` with batch indices in bounds.

See :mod:`.indices`.
"""

from collections.abc import Sequence

from tvm import relax, te, tirx

from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import is_zero
from .indices import takes_effect
from .override import Legalize, legalizes

_FAR = -60000
"""A coordinate outside any image; it fits into float16."""


def _bounded(regions: te.Tensor, data: te.Tensor, axis: int) -> te.Tensor:
    """Clamp the batch index, the first number of each region; a NaN becomes 0.

    If the data has no elements, move the corners far outside the images, where nothing is read.
    """
    dtype = str(regions.dtype)
    zero, last = tirx.const(0, dtype), (data.shape[axis] - 1).astype(dtype)
    far = tirx.const(_FAR, dtype)

    def element(*position: tirx.Var) -> tirx.Expr:
        value = regions(*position)
        nearest = tirx.Select(value > zero, tirx.Select(value < last, value, last), zero)
        corner = tirx.Select(_has_elements(data.shape), value, far)
        return tirx.Select(position[-1] > 0, corner, nearest)

    return te.compute(regions.shape, element, name="bounded_regions")


def _has_elements(shape: Sequence[tirx.Expr]) -> tirx.Expr:
    return tirx.all(*(extent > 0 for extent in shape))


def _zero_if_empty(result: te.Tensor, *shape: tirx.Expr) -> te.Tensor:
    """`result`, or 0 if the data of `shape` has no elements."""
    zero = tirx.const(0, str(result.dtype))

    def element(*position: tirx.Var) -> tirx.Expr:
        return tirx.Select(_has_elements(shape), result(*position), zero)

    return te.compute(result.shape, element, name="of_elements")


@legalizes("relax.vision.roi_align", "relax.vision.roi_pool")
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, regions = call.args
    if not takes_effect(data, regions):
        return stock(bb, call)
    switches.note(FIX_ID)
    shape = list(data.ty.shape.values)
    if any(map(is_zero, shape)):
        return relax.op.zeros(call.ty.shape, str(call.ty.dtype))
    axis = str(call.attrs.layout).index("N")
    bounded = bb.call_te(_bounded, regions, data, axis, primfunc_name_hint="bounded_regions")
    operands = [data, bb.emit(bounded)]
    result = stock(bb, bb.normalize(relax.Call(call.op, operands, call.attrs)))
    unknown = [extent for extent in shape if not isinstance(extent, tirx.IntImm)]
    if not unknown:
        return result
    return bb.call_te(_zero_if_empty, bb.emit(result), *unknown, primfunc_name_hint="of_elements")
