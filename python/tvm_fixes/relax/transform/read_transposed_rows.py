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
"""ReadTransposedRows: let a matmul read a transposed activation, or an input, untransposed.

Mechanism
    TVM lowers the permute, such as that of the keys of a cache, to a separate kernel.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tvm
from tvm import relax, te, tirx
from tvm_ffi import structural_equal

from ...fixes.matmul import MATMUL_LEGALIZE as FIX_ID
from ...tirx.util import is_one
from ..analysis import bindings, dataflow_bindings, is_matmul
from ..guard import fix_pass
from ..ir import in_block, permuted_axes, relax_functions, tensor_of, variables
from ..legalize.matmul.lower import multiply_in_panels, suits_panels
from .fold_constant import rebind_variables

_MAX_ROWS = 4
"""With more rows, a product that reads the matrix in tiles is worth transposing it."""

_DTYPES = ("float32", "float64")


def ReadTransposedRows() -> tvm.transform.Pass:
    """Let a matmul read the transposed activation without a permute.

    Before::

        transposed = R.permute_dims(keys, axes=[0, 1, 3, 2])
        scores = R.matmul(query, transposed)

    and after::

        scores = R.call_tir(cls.NT_matmul, (query, keys), …)

    Returns
    -------
    tvm.transform.Pass
        A module pass for a CPU, for high-level operators.  It looks through a reshape of leading
        axes after the permute, and skips 16-bit products and activations with other readers.  Run
        :func:`~tvm_fixes.tirx.transform.ScheduleReductions` on the kernels.  More than
        :data:`_MAX_ROWS` rows share a single matrix: the kernel of their product transposes it tile
        by tile.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        builder = relax.BlockBuilder(mod)
        values: dict[relax.Var, relax.Expr] = {}
        for function in relax_functions(mod).values():
            for product, rows in _products(function):
                values[product.var] = _lowered(builder, product.value, rows)
        if not values:
            return None
        return rebind_variables(builder.get(), values)

    return fix_pass("ReadTransposedRows", FIX_ID, rewrite)


class _Rows(NamedTuple):
    """An activation that is read with its last two axes swapped, after a reshape to `shape`."""

    activation: relax.Expr
    shape: Sequence[tirx.Expr]


def _products(function: relax.Function) -> list[tuple[relax.VarBinding, _Rows]]:
    """The products to replace, each with the rows that it reads."""
    known: dict[relax.Var, _Rows] = {}
    products: list[tuple[relax.VarBinding, _Rows]] = []
    # If the permute has other readers, it is computed anyway.
    others = set(variables(function.body.body))
    in_dataflow = set(dataflow_bindings(function))
    for binding in bindings(function):
        value = binding.value
        rows = _rows_of(value, known)
        if rows is not None:
            known[binding.var] = rows
        operand = known.get(value.args[1]) if is_matmul(binding) else None
        # The reshape needs a binding, which is local to a dataflow block.
        is_bound = binding in in_dataflow
        if (
            operand is not None
            and (_has_few_rows(value, operand) or _suits_panels(value, operand))
            and (is_bound or not _is_reshaped(operand))
        ):
            products.append((binding, operand))
            others.update(variables(value.args[0]))
        elif rows is None:
            others.update(variables(value))
    return [pair for pair in products if pair[0].value.args[1] not in others]


def _rows_of(value: relax.Expr, known: Mapping[relax.Var, _Rows]) -> _Rows | None:
    """The rows that `value` transposes by a permute, whose leading axes may be reshaped."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if value.op.name == "relax.reshape" and value.args[0] in known:
        old, new = (expr.ty.shape for expr in (value.args[0], value))
        if not isinstance(new, relax.ShapeExpr) or len(new.values) < 3:
            return None
        *leading, depth, count = new.values
        is_kept = _are_equal(list(old.values)[-2:], [depth, count])
        return _Rows(known[value.args[0]].activation, [*leading, count, depth]) if is_kept else None
    if value.op.name != "relax.permute_dims" or tensor_of(value.args[0]) is not None:
        return None
    rank, shape = int(value.args[0].ty.ndim), value.args[0].ty.shape
    if permuted_axes(value) != [*range(rank - 2), rank - 1, rank - 2] or not isinstance(
        shape, relax.ShapeExpr
    ):
        return None
    return _Rows(value.args[0], list(shape.values))


def _is_reshaped(rows: _Rows) -> bool:
    return not _are_equal(rows.activation.ty.shape.values, rows.shape)


def _are_equal(some: Sequence[tirx.Expr], others: Sequence[tirx.Expr]) -> bool:
    return structural_equal(relax.ShapeExpr(list(some)), relax.ShapeExpr(list(others)))


def _has_few_rows(product: relax.Call, rows: _Rows) -> bool:
    lhs = product.args[0].ty
    if lhs.ndim < 2 or any(
        str(ty.dtype) not in _DTYPES for ty in (lhs, rows.activation.ty, product.ty)
    ):
        return False
    *outer, depth = lhs.shape.values
    *batch, _, _ = rows.shape
    if len(batch) not in (0, len(outer) - 1):
        return False
    # The rows that are multiplied by the same matrix.
    shared = [not batch or axis == len(batch) or is_one(batch[axis]) for axis in range(len(outer))]
    own = [(one, other) for one, other in zip(outer, batch, strict=False) if not is_one(other)]
    if not _are_equal(*zip(*own, strict=True) if own else ([], [])):
        return False
    counted = [extent for extent, is_shared in zip(outer, shared, strict=True) if is_shared]
    if not all(isinstance(extent, tirx.IntImm) for extent in (*counted, depth)):
        return False
    return math.prod(int(extent) for extent in counted) <= _MAX_ROWS


def _suits_panels(product: relax.Call, rows: _Rows) -> bool:
    """Whether the kernel of the product can transpose the matrix tile by tile."""
    return not _is_reshaped(rows) and suits_panels(product)


def _lowered(builder: relax.BlockBuilder, product: relax.Call, rows: _Rows) -> relax.Expr:
    if not _has_few_rows(product, rows):
        return multiply_in_panels(builder, product, rows.activation)

    def multiplied(matrix: relax.Expr) -> relax.Expr:
        return builder.call_te(_multiply, product.args[0], matrix, primfunc_name_hint="NT_matmul")

    if not _is_reshaped(rows):
        return builder.normalize(multiplied(rows.activation))
    shape = list(rows.shape)
    return in_block(
        builder, lambda emit: multiplied(emit(relax.op.reshape(rows.activation, shape)))
    )


def _multiply(lhs: te.Tensor, rows: te.Tensor) -> te.Tensor:
    """(…, M, K), (…, N, K) -> (…, M, N), or (…, K), (N, K) -> (…, N)."""
    k = te.reduce_axis((0, rows.shape[-1]), "k")
    *batch, count, _ = rows.shape

    def element(*at: tirx.Var) -> tirx.Expr:
        matrix = [0 if is_one(extent) else at[axis] for axis, extent in enumerate(batch)]
        return te.sum(lhs(*at[:-1], k) * rows(*matrix, at[-1], k), axis=k)

    return te.compute((*lhs.shape[:-1], count), element, name="NT_matmul")
