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
    An If with tensors of one size in both of its branches. A call with effects that keeps a tensor
    argument, such as ``set_item`` of ``LazyTransformParams``. A slice of a symbolic axis whose
    constant end is far beyond it.
Symptom
    The process crashes (SIGSEGV) when the second branch runs. A tensor that was kept silently gets
    the elements of a later one. ``std::bad_alloc`` at run time.
Mechanism
    The planner walks one branch after the other as if both ran, and gives the second one storage
    that is allocated in the first. It reuses the storage of a tensor after the last call that reads
    it, even if the call keeps the tensor. It allocates the upper bound of a symbolic extent: all
    2147483647 rows of ``min(2147483647, n)``.
How to remove
    When TVM plans both correctly, use its pass in :mod:`tvm_fixes.pipeline`; delete this file, its
    tests, :mod:`..allocation_sizes` and the fix ids ``plan-memory-if``, ``plan-memory-escape`` and
    ``plan-memory-bounds``.
"""

import tvm
from tvm import relax, tirx

from ...fixes.memory import PLAN_MEMORY_BOUNDS, PLAN_MEMORY_ESCAPE, PLAN_MEMORY_IF
from ...support import switches
from ..allocation_sizes import with_exact_sizes
from ..analysis import bindings
from ..guard import guarded
from ..ir import with_functions

# Prefixes of TVM's functions that do not keep their arguments.
_KEEPS_NOTHING = ("vm.builtin.", "relax.run.")


def StaticPlanBlockMemory() -> tvm.transform.Pass:
    """Plan which tensors share storage.

    TVM's pass of this name, skipped for modules with an If: it would let one branch use storage
    that is allocated in the other, and the process would crash. Such a module comes back unchanged
    and allocates each tensor separately.

    Functions that pass tensors to a call with effects are skipped too, since the callee may keep
    them: a packed function, or a function of the module with effects.

    A large tensor of symbolic extents gets the memory that it needs, not that of the upper bounds
    of its extents.

    Returns
    -------
    tvm.transform.Pass
        A module pass.
    """
    stock = relax.transform.StaticPlanBlockMemory()

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if switches.enabled(PLAN_MEMORY_BOUNDS):
            exact = with_exact_sizes(mod)
            if not exact.same_as(mod):
                switches.note(PLAN_MEMORY_BOUNDS)
                mod = exact
        kept = {
            var: function
            for var, function in mod.functions_items()
            if isinstance(function, relax.Function) and _lets_tensors_escape(function, mod)
        }
        if not kept or not switches.enabled(PLAN_MEMORY_ESCAPE):
            return stock(mod)
        switches.note(PLAN_MEMORY_ESCAPE)
        return with_functions(stock(mod), kept)

    escaping = tvm.transform.module_pass(run, opt_level=stock.info.opt_level, name=stock.info.name)
    return guarded(escaping, PLAN_MEMORY_IF, _has_if)


def _lets_tensors_escape(function: relax.Function, mod: tvm.IRModule) -> bool:
    """Whether a function passes tensors to a callee that may keep them.

    A pure function calls only pure functions, which keep nothing.
    """
    return not function.is_pure and any(
        isinstance(binding.value, relax.Call)
        and _may_keep(binding.value.op, mod)
        and any(map(_holds_tensors, binding.value.args))
        for binding in bindings(function)
    )


def _may_keep(callee: relax.Expr, mod: tvm.IRModule) -> bool:
    if isinstance(callee, relax.ExternFunc):
        return not str(callee.global_symbol).startswith(_KEEPS_NOTHING)
    if isinstance(callee, tvm.ir.GlobalVar):
        return not isinstance(mod.functions.get(callee), tirx.PrimFunc)
    return isinstance(callee, relax.Var) or "closure" in str(getattr(callee, "name", ""))


def _holds_tensors(expr: relax.Expr) -> bool:
    """Whether a value is a tensor or may contain one."""
    ty = getattr(expr, "ty", None)
    return isinstance(ty, relax.TensorType | relax.TupleType | relax.AnyType)


def _has_if(mod: tvm.IRModule) -> bool:
    return any(
        isinstance(binding.value, relax.If)
        for _, function in mod.functions_items()
        if isinstance(function, relax.Function)
        for binding in bindings(function)
    )
