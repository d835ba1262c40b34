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
"""FuseSafeSoftmax: on a GPU, compute a softmax that is zero in masked rows in one kernel."""

import math

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..analysis import operator_calls
from ..ir import operator_name, relax_functions, tensor_of

_SOFTMAX = "relax.nn.softmax"


def FuseSafeSoftmax() -> tvm.transform.Pass:
    """Compute a softmax whose rows of negative infinities become zeros in one kernel.

    Before, as PyTorch writes an attention with a mask::

        lv = R.nn.softmax(x)
        lv1 = R.equal(x, R.const(-inf))
        lv2 = R.astype(R.min(R.astype(lv1, "int8"), axis=[-1], keepdims=True), "bool")
        y = R.where(lv2, R.const(0), lv)

    and after::

        y = R.call_tir(cls.safe_softmax, (x,), …)

    A row is masked if the sum of its exponentials is 0; else, the largest element adds 1. 16-bit
    data is computed in float32.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if all(binding.value.op.name != _SOFTMAX for _, binding in operator_calls(mod)):
            return mod
        fusing = _Fusing(mod)
        for var, function in relax_functions(mod).items():
            changed = fusing.visit_expr(function)
            if not changed.same_as(function):
                changed = relax.analysis.remove_all_unused(changed)
                fusing.builder_.update_func(var, changed)
        return fusing.builder_.get()

    return tvm.transform.module_pass(run, opt_level=0, name="FuseSafeSoftmax")


@mutator
class _Fusing(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        data = self._data_of(call)
        if data is None:
            return call
        return self.builder_.call_te(_safe_softmax, data, primfunc_name_hint="safe_softmax")

    def _data_of(self, call: relax.Call) -> relax.Expr | None:
        """The operand of the safe softmax that a call computes; None if it does not compute one."""
        if operator_name(call) != "relax.where" or _value(call.args[1]) != 0:
            return None
        softmax = self._calls(call.args[2], _SOFTMAX)
        masked = self._calls(
            call.args[0], "relax.astype", "relax.min", "relax.astype", "relax.equal"
        )
        if not softmax or not masked or call.ty != softmax[0].ty:
            return None
        data, last = softmax[0].args[0], len(call.ty.shape) - 1
        _, minimum, _, equal = masked
        axes = [int(axis) % (last + 1) for axis in minimum.attrs.axis or ()]
        is_along_rows = axes == [last] and int(softmax[0].attrs.axis) % (last + 1) == last
        if not is_along_rows or not minimum.attrs.keepdims or not equal.args[0].same_as(data):
            return None
        return data if _value(equal.args[1]) == -math.inf else None

    def _calls(self, expr: relax.Expr, *operators: str) -> list[relax.Call]:
        """The calls of `operators` that define `expr`, each the first operand of the one before."""
        calls: list[relax.Call] = []
        for operator in operators:
            value = self.lookup_binding(expr) if isinstance(expr, relax.Var) else None
            if value is None or operator_name(value) != operator:
                return []
            calls.append(value)
            expr = value.args[0]
        return calls


def _value(expr: relax.Expr) -> float | None:
    """The value of a constant of one element."""
    tensor = tensor_of(expr)
    if tensor is None or math.prod(tensor.shape) != 1:
        return None
    return float(tensor.numpy().reshape(()))


def _safe_softmax(x: te.Tensor) -> te.Tensor:
    *rows, count = x.shape
    # The lowest float32 is infinite as bfloat16, and a 16-bit sum stops growing.
    sum_dtype = "float32" if tvm.DataType(x.dtype).bits < 32 else x.dtype
    zero = tirx.const(0, sum_dtype)
    k, n = (te.reduce_axis((0, count), name) for name in "kn")
    largest = te.compute(
        rows, lambda *i: te.max(x[(*i, k)].astype(sum_dtype), axis=k), name="largest"
    )
    exponential = te.compute(
        x.shape, lambda *i: te.exp(x[i].astype(sum_dtype) - largest[i[:-1]]), name="exponential"
    )
    total = te.compute(rows, lambda *i: te.sum(exponential[(*i, n)], axis=n), name="total")

    def normalized(*i: tirx.Var) -> tirx.Expr:
        sum_of_row = total[i[:-1]]
        value = tirx.Select(sum_of_row == zero, zero, exponential[i] / sum_of_row)
        return value.astype(x.dtype)

    return te.compute(x.shape, normalized, name="normalized")
