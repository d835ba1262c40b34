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
"""Lowering of ``relax.vision.roi_align`` and ``roi_pool``: no region is of a batch there is not.

See :mod:`.indices`.
"""

import functools

from tvm import relax, te, tirx

from ... import switches
from .indices import FIX_ID, takes_effect
from .override import Legalize, override


def _bounded(regions: te.Tensor, data: te.Tensor, axis: int) -> te.Tensor:
    """Regions whose first number, the place in the batch, is one; 0 in the place of a NaN."""
    dtype = str(regions.dtype)
    zero, last = tirx.const(0, dtype), (data.shape[axis] - 1).astype(dtype)

    def element(*position: tirx.Var) -> tirx.Expr:
        value = regions(*position)
        nearest = tirx.Select(value > zero, tirx.Select(value < last, value, last), zero)
        return tirx.Select(position[-1] > 0, value, nearest)

    return te.compute(regions.shape, element, name="bounded_regions")


def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, regions = call.args
    if not takes_effect(data, regions):
        return stock(bb, call)
    switches.note(FIX_ID)
    axis = str(call.attrs.layout).index("N")
    bounded = bb.call_te(_bounded, regions, data, axis, primfunc_name_hint="bounded_regions")
    operands = [data, bb.emit(bounded)]
    return stock(bb, bb.normalize(relax.Call(call.op, operands, call.attrs)))


@functools.cache
def register() -> None:
    """Put the lowerings in force. A second call does nothing."""
    override("relax.vision.roi_align", _legalize)
    override("relax.vision.roi_pool", _legalize)
