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
"""ReadTransposedRows: let a matmul of few rows read a transposed activation as it is stored.

Upstream
    No thread is known.
Versions
    Seen in 0.27.0.post1.
Trigger
    The product of a query with the transposed keys of a cache, in a decoding step.
Symptom
    Each step transposes all keys of the cache, which takes several times as long as the product.
Mechanism
    TVM lowers the permute to a separate kernel.
How to remove
    Delete this file, its test and its line in :mod:`tvm_fixes.pipeline`; its switch is that of
    ``matmul-legalize``.
"""

import math

import tvm
from tvm import relax, te, tirx
from tvm_ffi import structural_equal

from ...fixes.matmul import MATMUL_LEGALIZE as FIX_ID
from ...support import switches
from ..analysis import bindings, is_matmul
from ..ir import tensor_of, variables
from .fold_constant import rebind_variables

_MAX_ROWS = 4
"""With more rows, a product that reads rows of the matrix in tiles is worth the permute."""

_DTYPES = ("float32", "float64")


def ReadTransposedRows() -> tvm.transform.Pass:
    """Let a matmul of few rows read the transposed activation without a permute.

    Before::

        transposed = R.permute_dims(keys, axes=[0, 1, 3, 2])
        scores = R.matmul(query, transposed)

    and after::

        scores = R.call_tir(cls.NT_matmul, (query, keys), …)

    Returns
    -------
    tvm.transform.Pass
        A module pass for a CPU, for high-level operators.  It skips an activation whose leading
        extents differ from those of the rows, one with other readers, and 16-bit products.  Run
        :func:`~tvm_fixes.tirx.transform.ScheduleReductions` on the kernels.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not switches.enabled(FIX_ID):
            return mod
        builder = relax.BlockBuilder(mod)
        values: dict[relax.Var, relax.Expr] = {}
        for _, function in mod.functions_items():
            if isinstance(function, relax.Function):
                for product, permute in _products(function):
                    operands = product.value.args[0], permute.args[0]
                    call = builder.call_te(_multiply, *operands, primfunc_name_hint="NT_matmul")
                    values[product.var] = builder.normalize(call)
        if not values:
            return mod
        switches.note(FIX_ID)
        return rebind_variables(builder.get(), values)

    return tvm.transform.module_pass(run, opt_level=0, name="ReadTransposedRows")


def _products(function: relax.Function) -> list[tuple[relax.VarBinding, relax.Call]]:
    """The products to replace, each with the permute that it reads."""
    permutes: dict[relax.Var, relax.Call] = {}
    found: list[tuple[relax.VarBinding, relax.Call]] = []
    # A permute that something else reads is computed anyway.
    others = set(variables(function.body.body))
    for binding in bindings(function):
        value = binding.value
        if _transposes(value):
            permutes[binding.var] = value
        permute = permutes.get(value.args[1]) if is_matmul(binding) else None
        if permute is not None and _has_few_rows(value, permute):
            found.append((binding, permute))
            others.update(variables(value.args[0]))
        else:
            others.update(variables(value))
    return [pair for pair in found if pair[0].value.args[1] not in others]


def _transposes(value: relax.Expr) -> bool:
    """Whether a value is an activation with its last two axes swapped."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    if value.op.name != "relax.permute_dims" or tensor_of(value.args[0]) is not None:
        return False
    rank = int(value.args[0].ty.ndim)
    axes = value.attrs.axes
    order = list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]
    return order == [*range(rank - 2), rank - 1, rank - 2]


def _has_few_rows(product: relax.Call, permute: relax.Call) -> bool:
    lhs, rows = (expr.ty for expr in (product.args[0], permute.args[0]))
    if not isinstance(rows.shape, relax.ShapeExpr) or lhs.ndim < 2:
        return False
    if any(str(ty.dtype) not in _DTYPES for ty in (lhs, rows, product.ty)):
        return False
    *outer, depth = lhs.shape.values
    batch, counted = (outer[:-1], outer[-1:]) if rows.ndim > 2 else ([], outer)
    if not all(isinstance(extent, tirx.IntImm) for extent in (*counted, depth)):
        return False
    if math.prod(int(extent) for extent in counted) > _MAX_ROWS:
        return False
    return structural_equal(relax.ShapeExpr(batch), relax.ShapeExpr(rows.shape.values[:-2]))


def _multiply(lhs: te.Tensor, rows: te.Tensor) -> te.Tensor:
    """(…, M, K), (…, N, K) -> (…, M, N), or (…, K), (N, K) -> (…, N)."""
    k = te.reduce_axis((0, rows.shape[-1]), "k")
    is_batched = len(rows.shape) > 2

    def element(*at: tirx.Var) -> tirx.Expr:
        row = rows(*at[:-2], at[-1], k) if is_batched else rows(at[-1], k)
        return te.sum(lhs(*at[:-1], k) * row, axis=k)

    return te.compute((*lhs.shape[:-1], rows.shape[-2]), element, name="NT_matmul")
