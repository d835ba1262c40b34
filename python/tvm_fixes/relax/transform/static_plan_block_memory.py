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
"""A guard around TVM's ``StaticPlanBlockMemory``.

Upstream
    No thread is known.
Versions
    Seen in 0.27.0.post1.
Trigger
    An If with tensors of one size in both of its branches.
Symptom
    The process crashes (SIGSEGV) when the branch runs that comes second.
Mechanism
    The planner walks one branch after the other as if both ran, and gives the second one storage
    whose allocation stands in the first.
How to remove
    When TVM plans both branches rightly, use its pass in :mod:`tvm_fixes.pipeline`; delete this
    file, its tests and the fix id ``plan-memory-if``.
"""

import tvm
from tvm import relax

from ..analysis import bindings
from .guard import guarded


def StaticPlanBlockMemory() -> tvm.transform.Pass:
    """Plan which tensors share storage.

    TVM's pass of this name, kept from modules with an If: it lets one branch use storage that is
    allocated in the other, and the process crashes when it does. Such a module comes back
    unchanged, and allocates each tensor by itself.

    Returns
    -------
    tvm.transform.Pass
        A module pass.
    """
    return guarded(relax.transform.StaticPlanBlockMemory(), "plan-memory-if", _has_if)


def _has_if(mod: tvm.IRModule) -> bool:
    return any(
        isinstance(binding.value, relax.If)
        for _, function in mod.functions_items()
        if isinstance(function, relax.Function)
        for binding in bindings(function)
    )
