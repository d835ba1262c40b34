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
"""LowerAssertOp: lower assertions to kernels, which cost almost nothing if they hold."""

from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tirx.util import assertion_failure, contains
from ..analysis import operator_calls
from ..ir import tensor_of
from ..rewrite import rewrite_functions

_OPERATOR = "relax.assert_op"

_SCALARS: dict[str, Callable[..., tirx.Expr]] = {
    "relax.equal": lambda a, b: a.equal(b),
    "relax.greater": lambda a, b: a > b,
    "relax.greater_equal": lambda a, b: a >= b,
    "relax.less": lambda a, b: a < b,
    "relax.less_equal": lambda a, b: a <= b,
    "relax.logical_and": tirx.all,
    "relax.logical_or": tirx.any,
}
"""The operators on tensors of rank 0 that the kernel computes itself."""


def LowerAssertOp() -> tvm.transform.Pass:
    """Evaluate the condition of ``R.assert_op`` in a kernel, and call Python only if it is false.

    The operator calls a Python function, which takes about 0.1 ms with cold caches, as between the
    kernels of a model.  Before::

        ok = R.less(greatest, R.const(8))
        R.assert_op(ok, [greatest], format="`lv`: expected less than 8, got {}")

    and after, where ``assert_op`` is a PrimFunc::

        cls.assert_op(greatest)
        # if not greatest[()] < 8: T.call_packed("relax.run.assert_op", False, ..., greatest[()])

    Returns
    -------
    tvm.transform.Pass
        A module pass for CPU operators.  It skips assertions with values other than tensors of rank
        0 and scalars.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not any(operator == _OPERATOR for operator in _operators(mod)):
            return mod
        # The kernel reads the operands of the condition, which may be local to a dataflow block, so
        # flatten the blocks, and form them again around the kernels.
        plain = relax.transform.ToNonDataflow()(mod)
        lowering = _Lowering(plain)
        lowered = rewrite_functions(lowering, plain)
        if not lowering.is_lowered:
            return mod
        if contains(mod, relax.DataflowBlock):
            lowered = relax.transform.ConvertToDataflow(1)(lowered)
        # Removes the conditions, which the kernels compute.
        return relax.transform.DeadCodeElimination()(lowered)

    return tvm.transform.module_pass(run, opt_level=0, name="LowerAssertOp")


@mutator
class _Lowering(PyExprMutator):
    is_lowered = False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.Op) or call.op.name != _OPERATOR:
            return call
        condition, message, *values = call.args
        kernel = _Kernel(self.lookup_binding)
        holds, *taken = [kernel.take(value) for value in (condition, *values)]
        if holds is None or any(value is None for value in taken):
            return call
        self.is_lowered = True
        fail = assertion_failure(message.value, *taken)
        function = kernel.function(tirx.IfThenElse(tirx.Not(holds), fail, None))
        return relax.Call(self.builder_.add_func(function, "assert_op"), kernel.args)


class _Kernel:
    """The parameters of a PrimFunc under construction, and the arguments of its call.

    Parameters
    ----------
    bound_to : callable
        Returns the value that a variable is bound to; None for a parameter.
    """

    def __init__(self, bound_to: Callable[[relax.Var], relax.Expr | None]) -> None:
        self.args: list[relax.Expr] = []
        self._params: list[tirx.Var | tirx.Buffer] = []
        self._bound_to = bound_to
        self._scalars: dict[relax.Expr, tirx.Expr] = {}

    def take(self, value: relax.Expr) -> tirx.Expr | None:
        """The TIR expression for `value` in the kernel; None if a kernel cannot take it."""
        if _is_scalar(value.ty):
            return self._scalar(value)
        if isinstance(value.ty, tvm.ir.PrimType):
            return self._parameter(value, tirx.Var(f"value{len(self._params)}", value.ty))
        return None

    def _scalar(self, value: relax.Expr) -> tirx.Expr:
        if value not in self._scalars:
            self._scalars[value] = self._scalar_expr(value)
        return self._scalars[value]

    def _scalar_expr(self, value: relax.Expr) -> tirx.Expr:
        dtype, constant = str(value.ty.dtype), tensor_of(value)
        if constant is not None:
            return tirx.const(constant.numpy().item(), dtype)
        call = self._bound_to(value) if isinstance(value, relax.Var) else None
        if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op):
            args = [arg for arg in call.args if _is_scalar(arg.ty)]
            if call.op.name == "relax.astype" and args:
                return self._scalar(args[0]).astype(dtype)
            if call.op.name in _SCALARS and len(args) == len(call.args):
                return _SCALARS[call.op.name](*map(self._scalar, args))
        return self._parameter(value, tirx.decl_buffer((), dtype, f"value{len(self._params)}"))[()]

    def _parameter(self, value: relax.Expr, param: Any) -> Any:
        self.args.append(value)
        self._params.append(param)
        return param

    def function(self, body: tirx.Stmt) -> tirx.PrimFunc:
        return tirx.PrimFunc(self._params, body)


def _operators(mod: tvm.IRModule) -> Iterator[str]:
    return (str(binding.value.op.name) for _, binding in operator_calls(mod))


def _is_scalar(ty: Any) -> bool:
    """Whether a type is a tensor of rank 0 without a vdevice."""
    if not isinstance(ty, relax.TensorType) or ty.ndim != 0:
        return False
    return ty.dtype is not None and ty.vdevice is None
