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
"""FoldPermuteIntoScatter: scatter along an axis instead of permuting the tensor and back.

Mechanism
    A ScatterND with one index per row writes only along the first axis.
"""

from collections import Counter

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...fixes.memory import FOLD_PERMUTE_INTO_SCATTER as FIX_ID
from ...tirx.util import is_one
from ..analysis import operator_calls, reads
from ..guard import fix_pass
from ..ir import operator_name, permuted_axes
from ..rewrite import rewrite_functions

_PERMUTE, _SCATTER = "relax.permute_dims", "relax.scatter_nd"


def FoldPermuteIntoScatter() -> tvm.transform.Pass:
    """Replace a scatter of rows between a permute and its inverse by a scatter along an axis.

    Before::

        moved = R.permute_dims(cache, axes=[2, 0, 1, 3])
        new = R.scatter_nd(moved, at, rows)                  # at has the shape (n, 1)
        y = R.permute_dims(new, axes=[1, 2, 0, 3])

    and after, where `index` repeats `at` for each element of the rows::

        values = R.permute_dims(rows, axes=[1, 2, 0, 3])
        y = R.scatter_elements(cache, index, values, axis=2)

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        if all(binding.value.op.name != _SCATTER for _, binding in operator_calls(mod)):
            return None
        folding = _Folding(mod)
        folded = rewrite_functions(folding, mod, folding.enter)
        if not folding.count:
            return None
        return relax.transform.DeadCodeElimination()(folded)

    return fix_pass("FoldPermuteIntoScatter", FIX_ID, rewrite)


@mutator
class _Folding(PyExprMutator):
    count = 0
    reads: Counter[relax.Var]
    calls: dict[relax.Var, relax.Call]

    def enter(self, function: relax.Function) -> None:
        """Prepare to visit `function`."""
        self.reads = reads(function)
        self.calls = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call = binding.value
        if operator_name(call) in (_PERMUTE, _SCATTER):
            self.calls[binding.var] = call
        super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        folded = self._folded(call)
        return super().visit_call_(call) if folded is None else folded

    def _folded(self, back: relax.Call) -> relax.Expr | None:
        scatter = self._call_of(back.args[0], _SCATTER) if operator_name(back) == _PERMUTE else None
        there = None if scatter is None else self._call_of(scatter.args[0], _PERMUTE)
        if scatter is None or there is None or self.reads[back.args[0]] > 1:
            return None
        axes = permuted_axes(back)
        indices, shape = scatter.args[1], there.args[0].ty.shape
        is_along_axis = (
            [axes[axis] for axis in permuted_axes(there)] == list(range(len(axes)))
            and isinstance(shape, relax.ShapeExpr)
            and isinstance(indices.ty.shape, relax.ShapeExpr)
            and indices.ty.ndim == 2
            and is_one(indices.ty.shape[1])
        )
        if not is_along_axis:
            return None
        self.count += 1
        axis = axes.index(0)
        count, column = indices.ty.shape[0], [1] * len(axes)
        column[axis] = count
        repeated = [count if other == axis else extent for other, extent in enumerate(shape)]
        data, indices, rows = map(self.visit_expr, (there.args[0], indices, scatter.args[2]))
        emit = self.builder_.emit
        index = emit(relax.op.broadcast_to(emit(relax.op.reshape(indices, column)), repeated))
        values = emit(relax.op.permute_dims(rows, axes))
        reduction = str(scatter.attrs.reduction)
        return relax.op.scatter_elements(data, index, values, axis, reduction)

    def _call_of(self, var: relax.Expr, operator: str) -> relax.Call | None:
        call = self.calls.get(var) if isinstance(var, relax.Var) else None
        return call if call is not None and operator_name(call) == operator else None
