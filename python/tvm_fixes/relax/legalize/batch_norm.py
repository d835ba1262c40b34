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
"""Lowering of ``relax.nn.batch_norm`` in the dtype of its type.

Versions
    Seen in 0.27.0.post1.
Trigger
    A batch normalization in float16 or bfloat16.
Symptom
    The result is float32 although its type says otherwise: the output of the model has the wrong
    dtype, or the next operator that meets a 16-bit value refuses it. In training mode a float16
    result is wrong, or NaN: over 16384 elements it is off by 2.
Mechanism
    TVM's lowering computes in float32 and does not round to the dtype of the result. In training
    mode it sums the data, and the squares, in their own dtype.
How to remove
    When TVM lowers it right, delete this file, its test, its call in :mod:`tvm_fixes` and the fix
    id ``batch-norm-dtype``.
"""

import functools

from tvm import relax

from ... import switches
from .override import Legalize, override

FIX_ID = "batch-norm-dtype"

_OPERATOR = "relax.nn.batch_norm"


def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    """TVM's lowering of `call`, each result rounded to the dtype of its type."""
    if not switches.enabled(FIX_ID):
        return stock(bb, call)
    dtypes = [field.dtype.dtype for field in call.ty.fields]
    if call.attrs.training and dtypes[0] in ("float16", "bfloat16"):
        wide = [bb.emit(relax.op.astype(arg, "float32")) for arg in call.args]
        call = bb.normalize(relax.Call(call.op, wide, call.attrs))
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


@functools.cache
def register() -> None:
    """Put the lowering in force. A second call does nothing."""
    override(_OPERATOR, _legalize)
