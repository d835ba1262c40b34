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
"""Lowering of slices along negative axes, and of empty slices.

Mechanism
    If the shape of the output is not static, TVM's lowering does not normalize negative axes; if it
    is static, the lowering rejects the bounds of an empty slice.
"""

from tvm import relax, te, tirx

from ...fixes.elements import STRIDED_SLICE_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import is_zero
from .override import Legalize, legalizes
from .slices import bounded_slice


def _empty(data: te.Tensor, shape: list[tirx.Expr]) -> te.Tensor:
    """A slice without elements.  A kernel without arguments would become an empty constant."""
    return te.compute(shape, lambda *_: tirx.const(0, data.dtype), name="strided_slice")


@legalizes("relax.strided_slice")
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    inbound = bounded_slice(bb, call)
    if inbound is not None:
        return inbound
    data, axes, *bounds = call.args
    if not switches.enabled(FIX_ID) or not isinstance(axes, relax.Tuple):
        return stock(bb, call)
    shape = call.ty.shape
    if isinstance(shape, relax.ShapeExpr) and any(map(is_zero, shape.values)):
        switches.note(FIX_ID)
        return bb.call_te(_empty, data, shape, primfunc_name_hint="strided_slice")
    indices = [int(axis) for axis in axes.fields]
    if min(indices, default=0) >= 0:
        return stock(bb, call)
    switches.note(FIX_ID)
    positive = relax.Tuple([relax.prim_value(axis % data.ty.ndim) for axis in indices])
    return stock(bb, bb.normalize(relax.Call(call.op, [data, positive, *bounds], call.attrs)))
