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
"""Lowering of ``relax.layout_transform`` of booleans.

Mechanism
    TVM's lowering always sets a padding value: an integer for integers, and float32 for all other
    dtypes.
"""

from tvm import relax, topi

from ...fixes.layout import LAYOUT_TRANSFORM_LEGALIZE as FIX_ID
from ...support import switches
from .override import Legalize, legalizes

_OPERATOR = "relax.layout_transform"


@legalizes(_OPERATOR)
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data = call.args[0]
    if data.ty.dtype != "bool" or not switches.enabled(FIX_ID):
        return stock(bb, call)
    switches.note(FIX_ID)
    integers = bb.emit(bb.call_te(topi.cast, data, "uint8"))
    padding = call.attrs.pad_value
    moved = relax.op.layout_transform(
        integers, call.attrs.index_map, None if padding is None else int(padding.value)
    )
    return bb.call_te(topi.cast, bb.emit(stock(bb, bb.normalize(moved))), "bool")
