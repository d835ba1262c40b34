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
"""Factorizations of matrices, and the solution of triangular systems.

The kernels compute in float64, so that their rounding errors do not exceed LAPACK's.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops import effects
from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T

from ....fixes.torch_importer import DECOMPOSITIONS as FIX_ID
from ....support import switches
from ....tirx.loop_kernels import Outputs, cast, local, loops, nest, when
from ..call import Call, converts

__all__ = ["pure_checks"]

_INNER = "float64"

_CHECK = torch.ops.aten._linalg_check_errors.default


@contextmanager
def pure_checks() -> Iterator[None]:
    """Let decompositions keep the checks of factorizations as calls without tokens."""
    if not hasattr(effects, "_register_effectful_op"):  # it is private to PyTorch
        yield
        return
    fx.node.has_side_effect(_CHECK)
    name = _CHECK.name()
    effects._register_effectful_op(name, None)
    try:
        yield
    finally:
        effects._register_effectful_op(name, effects._EffectType.ORDERED)


def _kernel(
    call: Call,
    inputs: Sequence[relax.Expr],
    outputs: Callable[..., Outputs],
    body: Callable[..., None],
) -> list[relax.Expr]:
    """Emit loops on float64 operands, and cast the results to the dtypes of the node's."""
    switches.note(FIX_ID)
    emit, name = call.emit, call.operator.partition(".")[0]
    result = call.builder.emit_te(loops(name, outputs, body), *inputs, primfunc_name_hint=name)
    values = call.recorded
    if not isinstance(values, tuple | list):
        return [call.astype(result, call.context.dtype(values.dtype))]
    fields = [emit(relax.TupleGetItem(result, i)) for i in range(len(values))]
    return [
        call.astype(field, call.context.dtype(value.dtype))
        for field, value in zip(fields, values, strict=True)
    ]


def _transposed_matrix(call: Call, x: relax.Expr) -> relax.Expr:
    *batch, rows, columns = range(x.ty.ndim)
    return call.emit(relax.op.permute_dims(x, [*batch, columns, rows]))


@converts("linalg_lu_factor_ex.default", fix=FIX_ID)
def convert_lu_factor(call: Call) -> relax.Expr:
    """Convert an LU factorization, with pivots unless they are off."""
    x, pivot, _ = call.arguments(A=None, pivot=True, check_errors=False)

    def outputs(a: te.Tensor) -> Outputs:
        *batch, rows, columns = a.shape
        count = tirx.min(rows, columns)
        return [(a.shape, _INNER), ([*batch, count], "int32"), (batch or [1], "int32")]

    def body(a: Any, lu: Any, pivots: Any, info: Any) -> None:
        with nest(a.shape[:-2]) as b:
            _factor_lu(b, a, lu, pivots, info, pivot)

    results = _kernel(call, [call.astype(x, _INNER)], outputs, body)
    return _shaped_tuple(call, results)


def _shaped_tuple(call: Call, results: Sequence[relax.Expr]) -> relax.Expr:
    """Return the results; those of one element become tensors of rank 0 as in PyTorch."""
    emit = call.emit
    return relax.Tuple(
        [
            emit(relax.op.reshape(result, ())) if value.ndim == 0 else result
            for result, value in zip(results, call.recorded, strict=True)
        ]
    )


@converts("lu_unpack.default", fix=FIX_ID)
def convert_lu_unpack(call: Call) -> relax.Expr:
    """Convert the unpacking of an LU factorization into three matrices."""
    x, pivots, unpack_data, unpack_pivots = call.arguments(
        LU_data=None, LU_pivots=None, unpack_data=True, unpack_pivots=True
    )

    def outputs(lu: te.Tensor, _: te.Tensor) -> Outputs:
        *batch, rows, columns = lu.shape
        count = tirx.min(rows, columns)
        return [
            ([*batch, rows, rows], _INNER),
            ([*batch, rows, count], _INNER),
            ([*batch, count, columns], _INNER),
        ]

    inputs = [call.astype(x, _INNER), call.astype(pivots, "int64")]
    permutation, lower, upper = _kernel(call, inputs, outputs, _unpack_lu)
    empty = relax.const([], call.context.dtype(call.recorded[0].dtype))
    return relax.Tuple(
        [
            permutation if unpack_pivots else empty,
            lower if unpack_data else empty,
            upper if unpack_data else empty,
        ]
    )


@converts("linalg_cholesky_ex.default", fix=FIX_ID)
def convert_cholesky(call: Call) -> relax.Expr:
    """Convert a Cholesky factorization."""
    x, upper, _ = call.arguments(input=None, upper=False, check_errors=False)
    x = call.astype(_transposed_matrix(call, x) if upper else x, _INNER)

    def outputs(a: te.Tensor) -> Outputs:
        *batch, _, _ = a.shape
        return [(a.shape, _INNER), (batch or [1], "int32")]

    factor, info = _kernel(call, [x], outputs, _factor_cholesky)
    if upper:
        factor = _transposed_matrix(call, factor)
    return _shaped_tuple(call, [factor, info])


@converts("linalg_solve_triangular.default", fix=FIX_ID)
def convert_solve_triangular(call: Call) -> relax.Expr:
    """Convert the solution of a triangular system."""
    a, b, upper, left, unit = call.arguments(
        A=None, B=None, upper=None, left=True, unitriangular=False
    )
    if not left:
        # X A = B is the transpose of A' X' = B'.
        a, b, upper = _transposed_matrix(call, a), _transposed_matrix(call, b), not upper
    emit, batch = call.emit, call.symbols.shape(call.recorded.shape[:-2])
    a, b = (
        emit(relax.op.broadcast_to(call.astype(x, _INNER), [*batch, *x.ty.shape.values[-2:]]))
        for x in (a, b)
    )

    def outputs(_: te.Tensor, right: te.Tensor) -> Outputs:
        return [(right.shape, _INNER)]

    def body(a: Any, b: Any, x: Any) -> None:
        _solve_triangular(a, b, x, upper, unit)

    [x] = _kernel(call, [a, b], outputs, body)
    return x if left else _transposed_matrix(call, x)


@converts("geqrf.default", fix=FIX_ID)
def convert_qr_reflectors(call: Call) -> relax.Expr:
    """Convert a QR factorization into Householder reflectors."""
    [x] = call.arguments(input=None)

    def outputs(a: te.Tensor) -> Outputs:
        *batch, rows, columns = a.shape
        return [(a.shape, _INNER), ([*batch, tirx.min(rows, columns)], _INNER)]

    return relax.Tuple(_kernel(call, [call.astype(x, _INNER)], outputs, _factor_reflectors))


@converts("linalg_householder_product.default", fix=FIX_ID)
def convert_householder_product(call: Call) -> relax.Expr:
    """Convert a product of Householder reflectors."""
    inputs = [call.astype(x, _INNER) for x in call.arguments(input=None, tau=None)]

    def outputs(a: te.Tensor, _: te.Tensor) -> Outputs:
        return [(a.shape, _INNER)]

    [product] = _kernel(call, inputs, outputs, _multiply_reflectors)
    return product


@converts("_linalg_check_errors.default", fix=FIX_ID, noted=True)
def convert_check_errors(call: Call) -> relax.Expr:
    """Fail at run time if a factorization failed, as PyTorch does."""
    emit, info = call.emit, call.context.env[call.node.args[0]]
    failed = call.astype(emit(relax.op.not_equal(info, relax.const(0, "int32"))), "int64")
    count = emit(relax.op.reshape(emit(relax.op.sum(failed)), (1,)))
    count = emit(relax.op.tensor_to_shape(count))
    return call.builder.match_cast(count, relax.ShapeType([0]))


def _factor_lu(b: tuple[Any, ...], a: Any, lu: Any, pivots: Any, info: Any, pivot: bool) -> None:
    """Factor matrix `b` of the batch in place, in `lu`."""
    rows, columns = a.shape[-2:]
    at = b or (0,)
    with nest((rows, columns)) as (i, j):
        lu[(*b, i, j)] = a[(*b, i, j)]
    info[at] = cast(0, "int32")
    with T.serial(0, tirx.min(rows, columns)) as k:
        place = local("int64", k)
        if pivot:
            best = local(_INNER, tirx.abs(lu[(*b, k, k)]))
            with (
                T.serial(k + 1, rows) as i,
                when(tirx.abs(lu[(*b, i, k)]) > best[0]),
            ):
                best[0] = tirx.abs(lu[(*b, i, k)])
                place[0] = cast(i, "int64")
            with T.serial(0, columns) as j:
                kept = local(_INNER, lu[(*b, k, j)])
                lu[(*b, k, j)] = lu[(*b, place[0], j)]
                lu[(*b, place[0], j)] = kept[0]
        pivots[(*b, k)] = cast(place[0] + 1, "int32")
        with when(lu[(*b, k, k)] == 0.0, info[at] == 0):
            info[at] = cast(k + 1, "int32")
        with T.serial(k + 1, rows) as i:
            with when(lu[(*b, k, k)] != 0.0):
                lu[(*b, i, k)] = lu[(*b, i, k)] / lu[(*b, k, k)]
            with T.serial(k + 1, columns) as j:
                lu[(*b, i, j)] = lu[(*b, i, j)] - lu[(*b, i, k)] * lu[(*b, k, j)]


def _unpack_lu(lu: Any, pivots: Any, permutation: Any, lower: Any, upper: Any) -> None:
    rows, columns = lu.shape[-2:]
    count = lower.shape[-1]
    zero, one = cast(0.0, _INNER), cast(1.0, _INNER)
    with nest(lu.shape[:-2]) as b:
        with nest((rows, rows)) as (i, j):
            permutation[(*b, i, j)] = tirx.Select(i == j, one, zero)
        # The permutation is the product of the exchanges, in their order.
        with nest((count, rows)) as (k, i):
            place = pivots[(*b, k)] - 1
            kept = local(_INNER, permutation[(*b, i, k)])
            permutation[(*b, i, k)] = permutation[(*b, i, place)]
            permutation[(*b, i, place)] = kept[0]
        with nest((rows, count)) as (i, j):
            below = tirx.if_then_else(i > j, lu[(*b, i, j)], zero)
            lower[(*b, i, j)] = tirx.Select(i == j, one, below)
        with nest((count, columns)) as (i, j):
            upper[(*b, i, j)] = tirx.if_then_else(i <= j, lu[(*b, i, j)], zero)


def _factor_cholesky(a: Any, factor: Any, info: Any) -> None:
    count = a.shape[-1]
    with nest(a.shape[:-2]) as b:
        at = b or (0,)
        info[at] = cast(0, "int32")
        with nest((count, count)) as (i, j):
            factor[(*b, i, j)] = cast(0.0, _INNER)
        with T.serial(0, count) as j, T.serial(j, count) as i:
            total = local(_INNER, a[(*b, i, j)])
            with T.serial(0, j) as k:
                total[0] = total[0] - factor[(*b, i, k)] * factor[(*b, j, k)]
            with when(i == j):
                with when(tirx.Not(total[0] > 0.0), info[at] == 0):
                    info[at] = cast(j + 1, "int32")
                factor[(*b, j, j)] = tirx.sqrt(total[0])
            with when(i != j):
                factor[(*b, i, j)] = total[0] / factor[(*b, j, j)]


def _solve_triangular(a: Any, b: Any, x: Any, upper: bool, unit: bool) -> None:
    rows, columns = b.shape[-2:]
    with nest((*b.shape[:-2], columns, rows)) as (*at, c, step):
        # An upper triangle is solved from the last row up.
        i = rows - 1 - step if upper else step
        total = local(_INNER, b[(*at, i, c)])
        with T.serial(0, step) as k:
            j = rows - 1 - k if upper else k
            total[0] = total[0] - a[(*at, i, j)] * x[(*at, j, c)]
        x[(*at, i, c)] = total[0] if unit else total[0] / a[(*at, i, i)]


def _factor_reflectors(a: Any, qr: Any, tau: Any) -> None:
    """Factor by Householder reflections as LAPACK's ``geqrf``, with the signs of its results."""
    rows, columns = a.shape[-2:]
    with nest(a.shape[:-2]) as b:
        with nest((rows, columns)) as (i, j):
            qr[(*b, i, j)] = a[(*b, i, j)]
        with T.serial(0, tau.shape[-1]) as k:
            squares, first = local(_INNER, 0.0), local(_INNER, qr[(*b, k, k)])
            with T.serial(k + 1, rows) as i:
                squares[0] = squares[0] + qr[(*b, i, k)] * qr[(*b, i, k)]
            tau[(*b, k)] = cast(0.0, _INNER)
            with when(squares[0] != 0.0):
                norm = local(_INNER, tirx.sqrt(first[0] * first[0] + squares[0]))
                with when(first[0] >= 0.0):
                    norm[0] = -norm[0]
                tau[(*b, k)] = (norm[0] - first[0]) / norm[0]
                with T.serial(k + 1, rows) as i:
                    qr[(*b, i, k)] = qr[(*b, i, k)] / (first[0] - norm[0])
                qr[(*b, k, k)] = norm[0]
                with T.serial(k + 1, columns) as j:
                    _reflect(b, qr, tau, qr, k, j)


def _multiply_reflectors(a: Any, tau: Any, product: Any) -> None:
    rows, columns = a.shape[-2:]
    count = tau.shape[-1]
    with nest(a.shape[:-2]) as b:
        with nest((rows, columns)) as (i, j):
            one, zero = cast(1.0, _INNER), cast(0.0, _INNER)
            product[(*b, i, j)] = tirx.Select(i == j, one, zero)
        with nest((count, columns)) as (step, j):
            _reflect(b, a, tau, product, count - 1 - step, j)


def _reflect(b: tuple[Any, ...], vectors: Any, tau: Any, target: Any, k: Any, j: Any) -> None:
    """Apply reflection `k` to column `j`; its vector is 1 in row `k`, and `vectors` below it."""
    rows = target.shape[-2]
    total = local(_INNER, target[(*b, k, j)])
    with T.serial(k + 1, rows) as i:
        total[0] = total[0] + vectors[(*b, i, k)] * target[(*b, i, j)]
    total[0] = total[0] * tau[(*b, k)]
    target[(*b, k, j)] = target[(*b, k, j)] - total[0]
    with T.serial(k + 1, rows) as i:
        target[(*b, i, j)] = target[(*b, i, j)] - vectors[(*b, i, k)] * total[0]
