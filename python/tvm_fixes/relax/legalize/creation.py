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
"""Lowering of ``relax.full``, ``full_like`` and ``shape_to_tensor``.

Mechanism
    The value becomes a Python float, and TVM's code for an infinite constant expects its dtype as a
    string.  The extents are scalar arguments of the kernel and symbolic dims of the function that
    it is fused into, so one variable becomes a parameter twice.
"""

import math

from tvm import ir, relax, te, tirx

from ...fixes.elements import CREATION_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import OPAQUE
from .override import Legalize, legalizes


@legalizes("relax.full", "relax.full_like")
def _legalize_full(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    value, shape = call.args[1], call.ty.shape
    is_known = isinstance(value, ir.GenericConst) and isinstance(shape, relax.ShapeExpr)
    if not switches.enabled(FIX_ID) or not is_known:
        return stock(bb, call)
    number, dtype = value.value.numpy().item(), str(call.ty.dtype)
    if "float" not in dtype or math.isfinite(number):
        return stock(bb, call)
    switches.note(FIX_ID)
    fill = tirx.const(number, dtype)
    return bb.call_te(lambda: te.compute(shape.values, lambda *_: fill), primfunc_name_hint="full")


@legalizes("relax.shape_to_tensor")
def _legalize_shape_to_tensor(
    bb: relax.BlockBuilder, call: relax.Call, stock: Legalize
) -> relax.Expr:
    (shape,) = call.args
    extents = list(shape.values if isinstance(shape, relax.ShapeExpr) else shape.ty.values or [])
    if not switches.enabled(FIX_ID) or all(isinstance(e, tirx.IntImm) for e in extents):
        return stock(bb, call)
    switches.note(FIX_ID)

    def compute(*symbolic: tirx.Expr) -> te.Tensor:
        symbols = iter(symbolic)
        values = [e if isinstance(e, tirx.IntImm) else next(symbols) for e in extents]

        def element(index: tirx.Var) -> tirx.Expr:
            result = values[-1]
            for place, value in reversed(list(enumerate(values[:-1]))):
                result = tirx.Select(index == place, value, result)
            return tirx.Cast("int64", result)

        return te.compute((len(values),), element, name="extents")

    symbolic = [extent for extent in extents if not isinstance(extent, tirx.IntImm)]
    attributes = {"op_pattern": OPAQUE}
    return bb.call_te(
        compute, *symbolic, primfunc_name_hint="shape_to_tensor", primfunc_attrs=attributes
    )
