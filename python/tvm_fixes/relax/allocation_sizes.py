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
"""The sizes of tensors for the memory planner, without upper bounds of symbolic extents."""

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.sym import Analyzer, ConstIntBound
from tvm_ffi import StructuralKey

from ..support.tensors import nbytes_of
from .analysis import bindings
from .ir import relax_functions
from .rewrite import rewrite_functions

__all__ = ["with_exact_sizes"]

_ALLOC = tvm.ir.Op.get("relax.builtin.alloc_tensor")
_MAX_BOUNDED_BYTES = 1 << 20
"""The planner may allocate upper bounds of at most this size: it then reuses more memory."""

_MAX_DECLARED_BYTES = 1 << 28
"""The same, for upper bounds that the model declares."""

_NO_BOUND = 2**63 - 1


def with_exact_sizes(mod: tvm.IRModule) -> tvm.IRModule:
    """Hide the upper bounds of symbolic extents from the memory planner.

    Before::

        y = R.builtin.alloc_tensor(R.shape([T.min(2147483647, n)]), R.dtype("float32"), 0)

    and after::

        R.match_cast(R.shape([T.min(2147483647, n)]), R.Shape([s]))
        y = R.builtin.alloc_tensor(R.shape([s]), R.dtype("float32"), 0)

    Parameters
    ----------
    mod : tvm.IRModule
        A module whose tensors are allocated. Extents whose symbols all have a bound in the
        function's attribute ``tir_var_upper_bound`` stay unchanged unless the tensor is very large.

    Returns
    -------
    tvm.IRModule
        The same module if no upper bound is large.
    """
    is_bounded = any(
        _bounded_axes(binding.value, function)
        for function in relax_functions(mod).values()
        for binding in bindings(function)
    )
    if not is_bounded:
        return mod
    exact = _Exact(mod)
    return rewrite_functions(exact, mod, exact.enter)


def _bounded_axes(call: relax.Expr, function: relax.Function) -> list[int]:
    """The symbolic axes whose upper bounds the planner would allocate, if that is too much."""
    if not isinstance(call, relax.Call) or call.op != _ALLOC:
        return []
    shape, dtype = call.args[0], call.args[1]
    if not isinstance(shape, relax.ShapeExpr):
        return []
    declared = (function.attrs or {}).get("tir_var_upper_bound", {})
    analyzer, is_declared = Analyzer(), []
    for dim in shape.values:
        symbols = tirx.analysis.undefined_vars(dim)
        is_declared.append(all(symbol.name in declared for symbol in symbols))
        for symbol in symbols:
            if symbol.name in declared:
                analyzer.update(symbol, ConstIntBound(0, min(int(declared[symbol.name]), 2**62)))
    bounds = [int(analyzer.const_int_bound(dim).max_value) for dim in shape.values]
    if nbytes_of(bounds, str(dtype.value)) <= _MAX_BOUNDED_BYTES:
        return []
    known = [1 if bound >= _NO_BOUND else bound for bound in bounds]
    keeps_declared = nbytes_of(known, str(dtype.value)) <= _MAX_DECLARED_BYTES
    return [
        axis
        for axis, (dim, bound) in enumerate(zip(shape.values, bounds, strict=True))
        if not isinstance(dim, tirx.IntImm)
        and bound < _NO_BOUND
        and not (is_declared[axis] and keeps_declared)
    ]


@mutator
class _Exact(PyExprMutator):
    _function: relax.Function
    _symbols: dict[StructuralKey, tirx.Var]

    def enter(self, function: relax.Function) -> None:
        """Prepare to rewrite a function."""
        self._function, self._symbols = function, {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        axes = _bounded_axes(call, self._function)
        if not axes:
            return super().visit_call_(call)
        dims = list(call.args[0].values)
        for axis in axes:
            dims[axis] = self._symbol(dims[axis])
        return relax.Call(call.op, [relax.ShapeExpr(dims), *call.args[1:]], call.attrs)

    def _symbol(self, dim: tirx.Expr) -> tirx.Var:
        """A symbol that is bound to an extent at run time."""
        key = StructuralKey(dim)
        if key not in self._symbols:
            symbol = tirx.Var("size", "int64")
            shape = self.builder_.emit(relax.ShapeExpr([dim]))
            self.builder_.match_cast(shape, relax.ShapeType([symbol]))
            self._symbols[key] = symbol
        return self._symbols[key]
