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
"""ReadTransposedWeights: let matmuls read transposed weights without transposing at run time."""

import tvm
from tvm import relax

from ...fixes.weights import FOLD_CONSTANT as FIX_ID
from ..analysis import bindings, is_matmul
from ..constants.fold_plan import FoldPlan, Value
from ..constants.growth import MAX_GROWTH
from ..guard import fix_pass
from ..ir import relax_functions, tensor_of, variables
from ..legalize.matmul.lower import multiply, packing_of
from ..legalize.matmul.packing import pack
from ..legalize.matmul.transposed import multiply_transposed
from .fold_constant import rebind_variables


def ReadTransposedWeights(max_growth: float = MAX_GROWTH) -> tvm.transform.Pass:
    """Let a matmul read a transposed weight prepacked for its kernel, or in its original layout.

    The weights of a linear layer, ``R.matmul(x, R.permute_dims(w))``, become one constant, packed
    for the kernel.  An embedding that is tied to the last linear layer is read both plain and
    transposed: :func:`FoldConstant` keeps only the plain constant, so each call would transpose it.
    This pass reads it untransposed.  Before::

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
        A module pass, for high-level operators.  It skips a transposed matrix that an
        operator other than matmul reads.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        plan = FoldPlan(mod, max_growth)
        builder = relax.BlockBuilder(mod)
        values: dict[relax.Var, relax.Expr] = {}
        for transposed, products in _products(mod, plan).items():
            matrices = [plan.bindings[call.value.args[1]].value.args[0] for call in products]
            if transposed in plan.kept:
                for product, matrix in zip(products, matrices, strict=True):
                    values[product.var] = multiply_transposed(builder, product.value, matrix)
            elif tensor_of(matrices[0]) is not None:
                values |= _packed(builder, products, matrices[0], transposed.made_by)
        if not values:
            return None
        return rebind_variables(builder.get(), values)

    return fix_pass("ReadTransposedWeights", FIX_ID, rewrite)


def _packed(
    builder: relax.BlockBuilder,
    products: list[relax.VarBinding],
    matrix: tvm.ir.GenericConst,
    made_by: str,
) -> dict[relax.Var, relax.Expr]:
    """The products with the packed transposed matrix; empty if they need different packings."""
    packings = {packing_of(binding.value) for binding in products}
    packing = packings.pop()
    if packings or packing is None:
        return {}
    packed = pack(matrix, packing, made_by, transposed=True)
    return {binding.var: multiply(builder, binding.value, packed) for binding in products}


def _products(mod: tvm.IRModule, plan: FoldPlan) -> dict[Value, list[relax.VarBinding]]:
    """The products that read each transposed matrix, if nothing else reads it."""
    transposed = {
        var: value
        for var, value in plan.values.items()
        if (value in plan.kept or value in plan.folded)
        and value.operator == "relax.permute_dims"
        and var.ty.ndim == 2
        and _swaps_axes(plan.bindings[var].value)
    }
    # A variable that is not a DataflowVar may be a result of the function.
    others = {value for var, value in transposed.items() if not isinstance(var, relax.DataflowVar)}
    products: dict[Value, list[relax.VarBinding]] = {}
    for function in relax_functions(mod).values():
        for binding in bindings(function):
            is_product = is_matmul(binding)
            if is_product and binding.value.args[1] in transposed:
                products.setdefault(transposed[binding.value.args[1]], []).append(binding)
            for expr in binding.value.args[:1] if is_product else [binding.value]:
                for var in variables(expr):
                    if var in transposed:
                        others.add(transposed[var])
    return {value: readers for value, readers in products.items() if value not in others}


def _swaps_axes(permute: relax.Call) -> bool:
    axes = permute.attrs.axes
    return axes is None or [int(axis) % 2 for axis in axes] == [1, 0]
