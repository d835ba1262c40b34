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
"""ReadTupleFields: read a field of a known tuple directly.

TVM's CanonicalizeBindings does so too, but it also replaces each symbol that a ``match_cast`` binds
to a known extent in the types, and not in the scalar arguments of lowered kernels.  FuseTIR then
defines the symbol twice (``Check failed: (VarRemapGet(source) == nullptr) is false``).
"""

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..analysis import bindings
from ..ir import operator_name, relax_functions

_FREES = ("relax.memory.kill_tensor", "relax.vm.kill_object")


def ReadTupleFields() -> tvm.transform.Pass:
    """Replace a field of a tuple that the function makes by the field's value.

    A variable of a dataflow block that only names another variable is replaced by it.  Fusion looks
    through neither.  A field that is freed before the read stays a read of the tuple.

    Returns
    -------
    tvm.transform.Pass
        A module pass.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        changed = {
            variable: _Reader(mod).visit_expr(function)
            for variable, function in relax_functions(mod).items()
            if _has_other_names(function)
        }
        if not changed:
            return mod
        return tvm.IRModule(dict(mod.functions_items()) | changed, attrs=mod.attrs)

    return tvm.transform.module_pass(run, opt_level=0, name="ReadTupleFields")


def _has_other_names(function: relax.Function) -> bool:
    """Whether a binding names a field of a tuple, or another variable."""
    return any(
        isinstance(binding.value, relax.TupleGetItem | relax.Var) for binding in bindings(function)
    )


@mutator
class _Reader(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._freed: set[relax.Expr] = set()

    def visit_tuple_getitem_(self, op: relax.TupleGetItem) -> relax.Expr:
        value = self.visit_expr(op.tuple_value)
        known = self.lookup_binding(value) if isinstance(value, relax.Var) else value
        if isinstance(known, relax.Tuple) and known.fields[op.index] not in self._freed:
            return known.fields[op.index]
        return op if value.same_as(op.tuple_value) else relax.TupleGetItem(value, op.index)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        if isinstance(value, relax.Var) and isinstance(binding.var, relax.DataflowVar):
            self.set_var_remap(binding.var, value)
            return
        if operator_name(value) in _FREES:
            self._freed.add(value.args[0])
        self.builder_.emit_normalized(relax.VarBinding(self.visit_var_def(binding.var), value))
