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
"""DispatchToCublas: matrix products by cuBLAS, for a target with that library."""

from collections import Counter

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_equal

from ...tirx.util import is_one
from ..analysis import bindings, operator_calls, reads
from ..ir import operator_name, permuted_axes, variables
from ..libraries import call_library, computes, uses
from ..rewrite import rewrite_functions

_MATMUL, _ADD, _PERMUTE, _CAST = (
    f"relax.{name}" for name in ("matmul", "add", "permute_dims", "astype")
)


def DispatchToCublas() -> tvm.transform.Pass:
    """Replace matmuls by calls of cuBLAS, with transposed operands and a bias.

    Before, for a target whose ``libs`` contain ``cublas``::

        wt = R.permute_dims(w)
        lv = R.matmul(x, wt)
        y = R.add(lv, bias)

    and after, where the options say that the second operand is transposed::

        lv = R.call_dps_packed("tvm_fixes_cublas_matmul", (x, w, bias, R.shape([0, 1])), ...)
        y = lv[0]

    The second result is the workspace. A product of 16-bit operands is accumulated in float32; if
    it is rounded to 16 bits after the addition of a bias, cuBLAS rounds it. The pass skips matmuls
    of dtypes other than float32, float16 and bfloat16, of vectors, and of batches that broadcast
    along only some of their axes.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.  For another target, it changes nothing.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not uses("cublas"):
            return mod
        if all(binding.value.op.name != _MATMUL for _, binding in operator_calls(mod)):
            return mod
        dispatching = _Dispatching(mod)
        dispatched = rewrite_functions(dispatching, mod, dispatching.enter)
        return relax.transform.DeadCodeElimination()(dispatched)

    return tvm.transform.module_pass(run, opt_level=0, name="DispatchToCublas")


@mutator
class _Dispatching(PyExprMutator):
    reads: Counter[relax.Var]
    calls: dict[relax.Var, relax.Call]

    def enter(self, function: relax.Function) -> None:
        """Prepare to visit `function`."""
        self.reads = reads(function)
        self.calls = {
            binding.var: binding.value
            for binding in bindings(function)
            if isinstance(binding, relax.VarBinding)
            and isinstance(binding.value, relax.Call)
            and _has_visible_operands(binding)
        }

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        matmul, bias = self._without_cast(call)
        if matmul is None or not _fits(matmul):
            return super().visit_call_(call)
        (transposes_lhs, lhs), (transposes_rhs, rhs) = map(self._transposed, matmul.args)
        operands = [lhs, rhs] if bias is None else [lhs, rhs, bias]
        operands = [self.visit_expr(operand) for operand in operands]
        options = [int(transposes_lhs), int(transposes_rhs)]
        return call_library(self.builder_, "cublas_matmul", operands, options, call.ty)

    def _read_once(self, var: relax.Expr) -> relax.Call | None:
        """The call that `var` is bound to, unless something else reads it too."""
        is_read_once = isinstance(var, relax.Var) and self.reads[var] == 1
        return self.calls.get(var) if is_read_once else None

    def _without_cast(self, call: relax.Call) -> tuple[relax.Call | None, relax.Expr | None]:
        """The matmul and the bias of the sum `call`, which may be cast to the operands' dtype."""
        if operator_name(call) != _CAST:
            return self._without_bias(call)
        total = self._read_once(call.args[0])
        matmul, bias = self._without_bias(total) if total is not None else (None, None)
        if matmul is None or matmul.args[0].ty.dtype != call.ty.dtype:
            return None, None
        if bias is None:
            return matmul, None
        # cuBLAS adds a bias of the result's dtype.
        original = self._original(bias)
        return (None, None) if original.ty.dtype != call.ty.dtype else (matmul, original)

    def _without_bias(self, call: relax.Call) -> tuple[relax.Call | None, relax.Expr | None]:
        """The matmul and the bias, if `call` is a matmul or adds a bias to one."""
        if operator_name(call) == _MATMUL:
            return call, None
        if operator_name(call) != _ADD:
            return None, None
        for value, bias in (call.args, reversed(call.args)):
            matmul = self._read_once(value)
            if matmul is not None and operator_name(matmul) == _MATMUL and _is_bias(bias, matmul):
                return matmul, bias
        return None, None

    def _original(self, value: relax.Expr) -> relax.Expr:
        """The operand of the cast `value`; `value` itself if it is not a cast."""
        cast = self.calls.get(value) if isinstance(value, relax.Var) else None
        return cast.args[0] if cast is not None and operator_name(cast) == _CAST else value

    def _transposed(self, operand: relax.Expr) -> tuple[bool, relax.Expr]:
        """Whether `operand` is a transpose, and the value before it."""
        permute = self.calls.get(operand) if isinstance(operand, relax.Var) else None
        if permute is None or operator_name(permute) != _PERMUTE:
            return False, operand
        *batch, row, column = range(operand.ty.ndim)
        if permuted_axes(permute) != [*batch, column, row]:
            return False, operand
        return True, permute.args[0]


def _has_visible_operands(binding: relax.VarBinding) -> bool:
    """Whether all readers of a binding may read its operands: a block hides its dataflow variables.

    A dataflow variable has no readers in other blocks.
    """
    operands = variables(binding.value)
    is_hidden = isinstance(binding.var, relax.DataflowVar)
    return is_hidden or not any(isinstance(var, relax.DataflowVar) for var in operands)


def _fits(matmul: relax.Call) -> bool:
    """Whether cuBLAS can compute a matmul."""
    if not computes(matmul) or any(operand.ty.ndim < 2 for operand in matmul.args):
        return False
    *batch, _, _ = matmul.ty.shape
    return all(_covers(list(operand.ty.shape)[:-2], batch) for operand in matmul.args)


def _covers(axes: list[tirx.Expr], batch: list[tirx.Expr]) -> bool:
    """Whether an operand with these batch axes has all matrices of the batch, or a single one."""
    if all(map(is_one, axes)):
        return True
    missing = len(batch) - len(axes)
    return all(map(is_one, batch[:missing])) and all(map(structural_equal, axes, batch[missing:]))


def _is_bias(bias: relax.Expr, matmul: relax.Call) -> bool:
    ty = bias.ty
    return (
        isinstance(ty, relax.TensorType)
        and isinstance(ty.shape, relax.ShapeExpr)
        and ty.ndim == 1
        and ty.dtype == matmul.ty.dtype
        and structural_equal(ty.shape[0], matmul.ty.shape[-1])
    )
