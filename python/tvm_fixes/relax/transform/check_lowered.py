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
"""CheckLowered: reject what the virtual machine cannot run."""

import tvm

from ...errors import UnsupportedOperatorError
from ..described_calls import described_calls

# The operators that TVM's code generator for the virtual machine emits; all others must be lowered.
_EMITTED = frozenset(
    {
        "relax.call_builtin_with_ctx",
        "relax.null_value",
        "relax.vm.alloc_storage",
        "relax.vm.alloc_tensor",
        "relax.vm.kill_object",
    }
)

_STATIC = "; static shapes may compile (--static, or --shape)"


def CheckLowered() -> tvm.transform.Pass:
    """Reject a module with operator calls that the virtual machine's code generator cannot emit.

    Returns
    -------
    tvm.transform.Pass
        A module pass that returns its module unchanged, or raises
        :class:`~tvm_fixes.errors.UnsupportedOperatorError`, which names the first such call with
        its operator, binding, attributes and argument types.
    """

    def check(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        left = [found for found in described_calls(mod) if found.operator not in _EMITTED]
        if left:
            more = f" (and {len(left) - 1} more such calls)" if len(left) > 1 else ""
            remedy = _STATIC if left[0].is_dynamic else ""
            raise UnsupportedOperatorError(f"no lowering for {left[0]}{more}{remedy}")
        return mod

    return tvm.transform.module_pass(check, opt_level=0, name="CheckLowered")
