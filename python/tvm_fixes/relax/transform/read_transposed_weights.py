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
"""Matmuls that read a transposed weight as it lies."""

import tvm
from tvm import relax

from ... import switches
from ..analysis import bindings
from ..ir import leaves
from ..legalize.matmul_transposed import multiply_by_rows
from .fold_constant import FIX_ID, MAX_GROWTH, rebind
from .fold_plan import FoldPlan


def ReadTransposedWeights(max_growth: float = MAX_GROWTH) -> tvm.transform.Pass:
    """Let a matmul read a matrix as it lies where its transposition is not folded.

    An embedding that is the last linear layer too is read as it is and transposed:
    :func:`FoldConstant` keeps one of it, and it would be transposed on every call.  Before::

        rows = R.take(w, tokens, axis=0)
        transposed = R.permute_dims(w)
        logits = R.matmul(hidden, transposed)

    and after::

        rows = R.take(w, tokens, axis=0)
        logits = R.reshape(R.call_tir(NT_matmul, (R.reshape(hidden, …), w), …), …)

    Parameters
    ----------
    max_growth : float
        As for :func:`FoldConstant`.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.  The same module comes back where nothing is
        transposed at run time, or where something else reads the transposed matrix.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not switches.enabled(FIX_ID):
            return mod
        matrices = _transposed_matrices(mod, max_growth)
        if not matrices:
            return mod
        switches.note(FIX_ID)
        builder = relax.BlockBuilder(mod)
        calls: dict[tvm.ir.GlobalVar, dict[relax.Var, relax.Expr]] = {}
        for global_var, function in mod.functions_items():
            if isinstance(function, relax.Function):
                calls[global_var] = {
                    binding.var: multiply_by_rows(
                        builder, binding.value, matrices[binding.value.args[1]]
                    )
                    for binding in bindings(function)
                    if _is_matmul(binding) and binding.value.args[1] in matrices
                }
        return rebind(builder.get(), calls)

    return tvm.transform.module_pass(run, opt_level=0, name="ReadTransposedWeights")


def _transposed_matrices(mod: tvm.IRModule, max_growth: float) -> dict[relax.Var, relax.Expr]:
    """The matrices by the variables of their transpositions, which only matmuls read."""
    plan = FoldPlan(mod, max_growth)
    transposed = {
        var: plan.bindings[var].value.args[0]
        for var, value in plan.values.items()
        if value in plan.kept
        and value.operator == "relax.permute_dims"
        and var.ty.ndim == 2
        # No function gives it out, and it is none that keeps the order.
        and isinstance(var, relax.DataflowVar)
        and _swaps(plan.bindings[var].value)
    }
    if not transposed:
        return {}
    for _, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        for binding in bindings(function):
            read = binding.value.args[:1] if _is_matmul(binding) else [binding.value]
            for expr in read:
                for leaf in leaves(expr):
                    if isinstance(leaf, relax.Var):
                        transposed.pop(leaf, None)
    return transposed


def _swaps(permute: relax.Call) -> bool:
    axes = permute.attrs.axes
    return axes is None or [int(axis) % 2 for axis in axes] == [1, 0]


def _is_matmul(binding: relax.Binding) -> bool:
    call = binding.value
    return (
        isinstance(binding, relax.VarBinding)
        and isinstance(call, relax.Call)
        and isinstance(call.op, tvm.ir.Op)
        and call.op.name == "relax.matmul"
        and isinstance(binding.var.ty.shape, relax.ShapeExpr)
        and isinstance(call.args[0].ty.shape, relax.ShapeExpr)
    )
