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
"""Lowering of a reshape to an extent that is a quotient of symbolic dims.

Mechanism
    The index of a reshape of ``k - 1`` to ``n * 3 * (k - 1) // 5`` elements is divided by ``k - 1``
    again, and TVM's index simplifier fails if it cannot prove that the quotient is divisible.
"""

from collections.abc import Iterable

from tvm import relax, tirx, topi

from ...attributes import IS_COPY
from ...fixes.dynamic_shapes import RESHAPE_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import contains
from ..ir import is_kernel_call
from .override import Legalize, legalizes

_SUMS = (tirx.Add, tirx.Sub)
_QUOTIENTS = (tirx.FloorDiv, tirx.FloorMod)


@legalizes("relax.reshape")
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, shape = call.args[0].ty, call.ty.shape
    if not (
        switches.enabled(FIX_ID)
        and isinstance(data.shape, relax.ShapeExpr)
        and isinstance(shape, relax.ShapeExpr)
        and _has(data.shape.values, _SUMS)
        and _has(shape.values, _QUOTIENTS)
    ):
        return stock(bb, call)
    switches.note(FIX_ID)
    # The virtual machine reshapes with a view, which must not share the caller's memory.
    return call if _is_copy(bb, call.args[0]) else _reshaped_copy(bb, call)


def _reshaped_copy(bb: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """Reshape a copy; LegalizeOps visits the reshape again and finds the copy."""
    data, shape = call.args
    attrs = {IS_COPY: True}
    copy = bb.call_te(topi.identity, data, primfunc_name_hint="copy", primfunc_attrs=attrs)
    return relax.Call(call.op, [bb.emit(copy), shape], call.attrs)


def _is_copy(bb: relax.BlockBuilder, data: relax.Expr) -> bool:
    """Whether `data` is a copy that :func:`_reshaped_copy` has made."""
    value = bb.lookup_binding(data) if isinstance(data, relax.Var) else None
    if value is None or not is_kernel_call(value):
        return False
    return IS_COPY in (bb.get()[value.args[0]].attrs or {})


def _has(extents: Iterable[tirx.Expr], kinds: tuple[type, ...]) -> bool:
    return any(contains(extent, kinds) for extent in extents)
