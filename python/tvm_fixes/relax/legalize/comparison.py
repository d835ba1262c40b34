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
"""Lowering of comparisons of booleans, and of the greater and the lesser of two.

Versions
    Seen in 0.27.0.post1.
Trigger
    ``relax.equal``, ``not_equal``, ``less``, ``less_equal``, ``greater``, ``greater_equal``,
    ``maximum`` and ``minimum`` of booleans.
Symptom
    ``fcmp oeq i1`` is no valid LLVM, or a failed check of TVM's code generator.
Mechanism
    The code generator takes what is neither a signed nor an unsigned integer for a float.
How to remove
    When TVM passes the tests of this file, delete it, its test, its call in :mod:`tvm_fixes` and
    the fix id ``comparison-legalize``.
"""

import functools

from tvm import relax, te, topi

from ... import switches
from .override import Legalize, override

FIX_ID = "comparison-legalize"

_OPERATORS = (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "maximum",
    "minimum",
)


def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    dtypes = {str(getattr(operand.ty, "dtype", None)) for operand in call.args}
    if not switches.enabled(FIX_ID) or dtypes != {"bool"}:
        return stock(bb, call)
    switches.note(FIX_ID)
    name = call.op.name.rpartition(".")[2]

    def compare(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        compared = getattr(topi, name)(topi.cast(a, "uint8"), topi.cast(b, "uint8"))
        return topi.cast(compared, "bool")

    return bb.call_te(compare, *call.args, primfunc_name_hint=name)


@functools.cache
def register() -> None:
    """Put the lowering in force. A second call does nothing."""
    for operator in _OPERATORS:
        override(f"relax.{operator}", _legalize)
