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
"""Lowering of ``relax.nn.batch_norm`` to fusible arithmetic with the result dtypes of its type.

Mechanism
    TVM's lowering computes in float32 and does not round to the dtype of the result. In training
    mode it sums the data, and the squares, in their own dtype. It creates one function with three
    results, which FuseOps does not fuse with a convolution.
"""

from tvm import relax

from ...fixes.norms import BATCH_NORM_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.accumulation import accumulator_dtype
from .override import Legalize, legalizes

_OPERATOR = "relax.nn.batch_norm"


@legalizes(_OPERATOR)
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    """Lower `call`, and round each result to the dtype of its type."""
    if not switches.enabled(FIX_ID):
        return stock(bb, call)
    dtypes = [field.dtype.dtype for field in call.ty.fields]
    if not call.attrs.training and call.args[0].ty.ndim > 0:
        switches.note(FIX_ID)
        return _normalize(bb, call)
    if call.attrs.training and dtypes[0] in ("float16", "bfloat16"):
        in_float32 = [bb.emit(relax.op.astype(arg, "float32")) for arg in call.args]
        call = bb.normalize(relax.Call(call.op, in_float32, call.attrs))
    lowered = bb.normalize(stock(bb, call))
    if dtypes == [field.dtype.dtype for field in lowered.ty.fields]:
        return lowered
    switches.note(FIX_ID)
    results = bb.emit(lowered)
    return relax.Tuple(
        [
            bb.emit(relax.op.astype(relax.TupleGetItem(results, index), dtype))
            for index, dtype in enumerate(dtypes)
        ]
    )


def _normalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Tuple:
    """Lower to ``data * scale + shift``; with constant statistics, both factors are constant."""
    data, gamma, beta, mean, variance = call.args
    dtype, attrs = data.ty.dtype.dtype, call.attrs
    sum_dtype = accumulator_dtype(dtype, dtype, dtype)

    def cast(value: relax.Expr, to: str) -> relax.Expr:
        return value if value.ty.dtype.dtype == to else bb.emit(relax.op.astype(value, to))

    def along_axis(vector: relax.Expr) -> relax.Expr:
        rank, axis = data.ty.ndim, int(attrs.axis)
        others = [i for i in range(rank) if i != axis % rank]
        return bb.emit(relax.op.expand_dims(vector, others)) if others else vector

    epsilon = relax.const(float(attrs.epsilon), sum_dtype)
    deviation = bb.emit(relax.op.sqrt(bb.emit(relax.op.add(cast(variance, sum_dtype), epsilon))))
    numerator = cast(gamma, sum_dtype) if attrs.scale else relax.const(1.0, sum_dtype)
    scale = bb.emit(relax.op.divide(numerator, deviation))
    offset = bb.emit(relax.op.multiply(cast(mean, sum_dtype), scale))
    if attrs.center:
        shift = bb.emit(relax.op.subtract(cast(beta, sum_dtype), offset))
    else:
        shift = bb.emit(relax.op.negative(offset))
    scaled = bb.emit(relax.op.multiply(cast(data, sum_dtype), along_axis(scale)))
    normalized = bb.emit(relax.op.add(scaled, along_axis(shift)))
    results = zip((normalized, mean, variance), call.ty.fields, strict=True)
    return relax.Tuple([cast(result, field.dtype.dtype) for result, field in results])
