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
"""Callers of functions with changed parameters: checks and rewriting."""

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...attributes import LIFTED
from ...errors import UsageError
from ..analysis import bindings
from ..ir import relax_functions, with_functions

SUFFIX = "transform_params"
"""The suffix of the names of functions that prepare weights."""


def public_functions(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, relax.Function]:
    """The Relax functions that can be called from outside the module."""
    return {
        var: function
        for var, function in relax_functions(mod).items()
        if "global_symbol" in (function.attrs or {})
    }


def callers_of(
    mod: tvm.IRModule, targets: dict[tvm.ir.GlobalVar, relax.Function]
) -> dict[tvm.ir.GlobalVar, str]:
    """The `targets` that are called within the module, each with the name of a caller.

    Raises
    ------
    UsageError
        If a target is used other than in a call, or called with the wrong number of arguments.
    """
    calls = {}

    def reject_other_uses(caller: str, expr: relax.Expr) -> None:
        if isinstance(expr, relax.Tuple):
            for field in expr.fields:
                reject_other_uses(caller, field)
        elif expr in targets:
            raise UsageError(
                f"{caller} uses {expr.name_hint} other than in a call, but its parameters change; "
                "call it, or remove its attribute num_input"
            )

    for global_var, function in relax_functions(mod).items():
        caller = str(global_var.name_hint)
        for binding in bindings(function):
            value = binding.value
            if not isinstance(value, relax.Call):
                reject_other_uses(caller, value)
                continue
            for arg in value.args:
                reject_other_uses(caller, arg)
            if isinstance(value.op, tvm.ir.GlobalVar) and value.op in targets:
                expected = len(targets[value.op].params)
                if len(value.args) != expected:
                    raise UsageError(
                        f"{caller} calls {value.op.name_hint} with {len(value.args)} arguments, "
                        f"expected {expected}"
                    )
                calls[value.op] = caller
        reject_other_uses(caller, function.body.body)
    return calls


def reject_callers(
    mod: tvm.IRModule, targets: dict[tvm.ir.GlobalVar, relax.Function], name: str
) -> None:
    """Raise a UsageError if other functions call those whose parameters the pass `name` changes."""
    for var, caller in callers_of(mod, targets).items():
        raise UsageError(
            f"{name}: {caller} calls {var.name_hint}, whose parameters change; run the pass on a "
            f"module without {caller}"
        )


@mutator
class _Callers(PyExprMutator):
    """Inserts a call of the transform before calls that pass the original weights."""

    def __init__(self, mod: tvm.IRModule, transforms: dict[str, str]):
        super().__init__(mod)
        self._mod = mod
        self._transforms = transforms

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.GlobalVar):
            return call
        name = str(call.op.name_hint)
        if name not in self._transforms:
            return call
        transform = self._mod.get_global_var(self._transforms[name])
        record = self._mod[call.op].attrs[LIFTED]
        inputs = list(call.args)[: int(record["num_input"])]
        weights = list(call.args)[int(record["num_input"]) :]
        # Bundled weights are still one tuple.
        is_tuple = len(weights) == 1 and isinstance(weights[0].ty, relax.TupleType)
        whole = weights[0] if is_tuple else relax.Tuple(weights)
        prepared = self.builder_.emit(relax.Call(transform, [whole]), "prepared")
        fields = [
            self.builder_.emit(relax.TupleGetItem(prepared, index))
            for index in range(len(prepared.ty.fields))
        ]
        return relax.Call(call.op, [*inputs, *fields], call.attrs, call.ty_args)


def rewrite_callers(mod: tvm.IRModule, transforms: dict[str, str]) -> tvm.IRModule:
    """Insert a call of the transform before each call of a lifted function.

    `transforms` has the transform by the name of the lifted function.
    """
    changed = {}
    for var, function in relax_functions(mod).items():
        callees = {
            str(binding.value.op.name_hint)
            for binding in bindings(function)
            if isinstance(binding.value, relax.Call)
            and isinstance(binding.value.op, tvm.ir.GlobalVar)
        }
        if callees & set(transforms):
            changed[var] = _Callers(mod, transforms).visit_expr(function)
    return with_functions(mod, changed)
