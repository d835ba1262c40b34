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
"""Symbols of extents that fused kernels receive.

TVM's FuseTIR first runs CanonicalizeBindings, which replaces a symbol that a ``match_cast`` binds
to a known shape by its expression.  It then rejects an expression as an argument of a fused kernel
(``Check failed: … All shape inputs are expected to be single tirx var``).
"""

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from .analysis import bindings
from .ir import relax_functions

__all__ = ["keep_symbols"]


def keep_symbols(mod: tvm.IRModule) -> tvm.IRModule:
    """Hide the values of the symbols that calls of fused kernels pass as shapes.

    Parameters
    ----------
    mod : tvm.IRModule
        The result of FuseOps.

    Returns
    -------
    tvm.IRModule
        The module; a ``match_cast`` of a known shape to such a symbol reads it from a tensor.
    """
    changed = {}
    for variable, function in relax_functions(mod).items():
        passed, known = _symbols_of(function)
        if passed & known:
            changed[variable] = _Hiding(mod, passed & known).visit_expr(function)
    return tvm.IRModule(dict(mod.functions_items()) | changed, attrs=mod.attrs) if changed else mod


def _symbols_of(function: relax.Function) -> tuple[set[tirx.Var], set[tirx.Var]]:
    """The symbols that calls of functions pass in shapes, and those bound to known shapes."""
    passed: set[tirx.Var] = set()
    known: set[tirx.Var] = set()
    shapes = set()
    for binding in bindings(function):
        value = binding.value
        if isinstance(binding, relax.MatchCast):
            if isinstance(binding.ty, relax.ShapeType) and binding.ty.values is not None:
                if isinstance(value, relax.ShapeExpr) or value in shapes:
                    known.update(
                        extent for extent in binding.ty.values if isinstance(extent, tirx.Var)
                    )
        elif isinstance(value, relax.ShapeExpr):
            shapes.add(binding.var)
        elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            for argument in value.args:
                if isinstance(argument, relax.ShapeExpr):
                    passed.update(
                        extent for extent in argument.values if isinstance(extent, tirx.Var)
                    )
    return passed, known


@mutator
class _Hiding(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, symbols: set[tirx.Var]) -> None:
        super().__init__(mod)
        self._symbols = symbols

    def visit_match_cast_(self, binding: relax.MatchCast) -> None:
        ty, shape = binding.ty, self.visit_expr(binding.value)
        if isinstance(ty, relax.ShapeType) and ty.values and self._symbols & set(ty.values):
            count = len(ty.values)
            elements = relax.op.call_pure_packed(
                "relax.run.shape_to_tensor", shape, ty_args=relax.TensorType((count,), "int64")
            )
            shape = self.builder_.emit(
                relax.op.call_pure_packed(
                    "vm.builtin.tensor_to_shape",
                    self.builder_.emit(elements),
                    ty_args=relax.ShapeType(ndim=count),
                )
            )
        var = self.visit_var_def(binding.var)
        self.builder_.emit_normalized(relax.MatchCast(var, shape, ty))
