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

Trigger
    An If with tensors of one size in both of its branches. A call with effects that keeps a tensor
    argument, such as ``set_item`` of ``LazyTransformParams``. A slice of a symbolic axis whose
    constant end is far beyond it.
Mechanism
    The planner walks one branch after the other as if both ran, and gives the second one storage
    that is allocated in the first. It reuses the storage of a tensor after the last call that reads
    it, even if the call keeps the tensor. It allocates the upper bound of a symbolic extent: all
    2147483647 rows of ``min(2147483647, n)``.
How to remove
    When TVM plans both correctly, use its pass in :mod:`tvm_fixes.pipeline`; delete this file, its
    tests, :mod:`..allocation_sizes`, the call of :func:`register` and the fix ids
    ``plan-memory-if``, ``plan-memory-escape`` and ``plan-memory-bounds``.
"""

from collections.abc import Iterable

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.transform import transform as tvm_transform

from ...fixes.memory import PLAN_MEMORY_BOUNDS, PLAN_MEMORY_ESCAPE, PLAN_MEMORY_IF
from ...support import switches
from ..allocation_sizes import with_exact_sizes
from ..analysis import bindings
from ..ir import relax_functions, with_functions
from ..owned_results import may_keep

_ALLOC_STORAGE = tvm.ir.Op.get("relax.memory.alloc_storage")
_ALLOC_TENSOR = tvm.ir.Op.get("relax.memory.alloc_tensor")


def StaticPlanBlockMemory() -> tvm.transform.Pass:
    """Plan which tensors share storage.

    TVM's pass of this name. A function in which it would let one branch of an If use storage that
    is allocated in the other one allocates each tensor separately.

    So do functions that pass tensors to a call with effects, since the callee may keep them: a
    packed function, or a function of the module with effects.

    A large tensor of symbolic extents gets the memory that it needs, not that of the upper bounds
    of its extents.

    Returns
    -------
    tvm.transform.Pass
        A module pass.
    """
    stock = tvm_ffi.get_global_func("relax.transform.StaticPlanBlockMemory")()

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if switches.enabled(PLAN_MEMORY_BOUNDS):
            exact = with_exact_sizes(mod)
            if not exact.same_as(mod):
                switches.note(PLAN_MEMORY_BOUNDS)
                mod = exact
        planned = stock(mod)
        kept: dict[tvm.ir.GlobalVar, relax.Function] = {}
        for variable, function in relax_functions(mod).items():
            reason = PLAN_MEMORY_IF if _leaves_its_scope(planned[variable].body) else None
            if _lets_tensors_escape(function, mod):
                reason = PLAN_MEMORY_ESCAPE
            if reason is not None and switches.enabled(reason):
                switches.note(reason)
                kept[variable] = function
        return with_functions(planned, kept) if kept else planned

    return tvm.transform.module_pass(run, opt_level=stock.info.opt_level, name=stock.info.name)


def register() -> None:
    """Make TVM's pipelines use this pass; TVM's Python function of its name returns it."""
    tvm_transform._ffi_api.StaticPlanBlockMemory = StaticPlanBlockMemory


def _leaves_its_scope(body: relax.SeqExpr, outer: Iterable[relax.Var] = ()) -> bool:
    """Whether a tensor uses storage that is allocated in another branch of an If.

    Parameters
    ----------
    outer : iterable of Var
        The storage that is allocated before `body`.
    """
    scope = set(outer)
    for block in body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, relax.If):
                branches = (value.true_branch, value.false_branch)
                if any(_leaves_its_scope(branch, scope) for branch in branches):
                    return True
            elif isinstance(value, relax.Call) and value.op == _ALLOC_STORAGE:
                scope.add(binding.var)
            elif isinstance(value, relax.Call) and value.op == _ALLOC_TENSOR:
                if value.args[0] not in scope:
                    return True
    return False


def _lets_tensors_escape(function: relax.Function, mod: tvm.IRModule) -> bool:
    """Whether a function passes tensors to a callee that may keep them.

    A pure function calls only pure functions, which keep nothing.
    """
    return not function.is_pure and any(
        isinstance(binding.value, relax.Call)
        and may_keep(binding.value.op, mod)
        and any(map(_holds_tensors, binding.value.args))
        for binding in bindings(function)
    )


def _holds_tensors(expr: relax.Expr) -> bool:
    """Whether a value is a tensor or may contain one."""
    ty = getattr(expr, "ty", None)
    return isinstance(ty, relax.TensorType | relax.TupleType | relax.AnyType)
