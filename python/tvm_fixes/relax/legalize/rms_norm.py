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
"""Lowering of ``relax.nn.rms_norm`` over any axes.

Mechanism
    TVM's lowering indexes the weight by the reduced axes in ascending order, and gives the sum of
    squares a shape that its reader does not expect. It computes in float32 for any dtype.
"""

from tvm import relax

from ...fixes.norms import RMS_NORM_LEGALIZE as FIX_ID
from ...support import switches
from .override import Legalize, legalizes

_OPERATOR = "relax.nn.rms_norm"


@legalizes(_OPERATOR)
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    """Lower ``x / sqrt(mean(x**2) + epsilon) * weight``; axis ``k`` of weight is ``axes[k]`` of x.

    Sums are in float32 or wider, and rounded once: 16-bit squares would overflow.
    """
    if not switches.enabled(FIX_ID):
        return stock(bb, call)
    switches.note(FIX_ID)
    op = relax.op
    data, weight = call.args
    ndim, dtype = data.ty.ndim, data.ty.dtype.dtype
    axes = [int(axis) % ndim for axis in call.attrs.axes]
    sum_dtype = "float64" if dtype == "float64" else "float32"
    epsilon = relax.const(call.attrs.epsilon, sum_dtype)

    values = data if dtype == sum_dtype else bb.emit(op.astype(data, sum_dtype))
    mean_square = bb.emit(op.mean(op.square(values), axes, keepdims=True))
    scaled = bb.emit(op.multiply(values, op.rsqrt(op.add(mean_square, epsilon))))
    ascending = op.permute_dims(weight, sorted(range(len(axes)), key=axes.__getitem__))
    factors = op.expand_dims(ascending, [axis for axis in range(ndim) if axis not in axes])
    if dtype == sum_dtype:
        return op.multiply(scaled, factors)
    return op.astype(op.multiply(scaled, op.astype(factors, sum_dtype)), dtype)
