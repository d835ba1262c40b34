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
"""Matrix products ``x @ w.T`` with `w` unpacked.

The weights of such a linear layer are not packed if they have another reader, such as a tied
embedding.  Each sum runs along a row of both operands, which is contiguous.  The output is computed
one register tile at a time, with a vector of partial sums for each element.
"""

from collections.abc import Callable
from functools import partial

import tvm
from tvm import relax, s_tir, te, tirx
from tvm.relax.utils import gen_call_tir_inputs

from ....target.cpu import Cpu
from ....tirx.accumulation import MultiplyAccumulate
from ....tirx.parallel import parallelize
from ....tirx.register_tile import even_part, max_columns
from ....tirx.util import count_of
from ...ir import in_block
from ..targets import cpu_of, multiply_accumulate_of

# More rows read the second operand less often, but leave registers for fewer columns.
_MAX_ROWS = 4


def multiply_transposed(
    bb: relax.BlockBuilder, call: relax.Call, rows: relax.Expr
) -> relax.SeqExpr:
    """Lower ``lhs @ rows.T``.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Receives the kernel.
    call : relax.Call
        The matrix product to replace; its first operand has shape (…, K).
    rows : relax.Expr
        The second operand, of static shape (N, K).

    Returns
    -------
    relax.SeqExpr
        A dataflow block and its result, of shape (…, N).  The sums are in float32 or wider for
        floating-point operands, and are rounded once.
    """
    lhs, shape, out_dtype = call.args[0], list(call.ty.shape.values), str(call.ty.dtype)
    *batch, depth = lhs.ty.shape.values
    cpu, multiply_accumulate = cpu_of(call), multiply_accumulate_of(call)
    dtype = multiply_accumulate.accumulator
    matrix = relax.Var("lhs", relax.TensorType([count_of(batch), depth], lhs.ty.dtype))
    is_known = isinstance(depth, tirx.IntImm) and depth.value > 0
    if cpu is not None and "float" in dtype and is_known:
        lanes = min(cpu.vector_bytes // (tvm.DataType(dtype).bits // 8), depth.value)
        tile = choose_tile(cpu, matrix.ty.shape.values[0], int(rows.ty.shape.values[0]))
        compute = partial(
            _multiply_in_tiles,
            multiply_accumulate=multiply_accumulate,
            tile=tile,
            lanes=lanes,
            out_dtype=out_dtype,
        )
        func, args, out_type = gen_call_tir_inputs(compute, matrix, rows)
        func = _schedule(func, tile)
    else:
        compute = partial(_multiply, multiply_accumulate=multiply_accumulate, out_dtype=out_dtype)
        func, args, out_type = gen_call_tir_inputs(compute, matrix, rows)

    def make(emit: Callable[[relax.Expr], relax.Var]) -> relax.Expr:
        flat = emit(relax.op.reshape(lhs, matrix.ty.shape))
        operands = [flat if arg is matrix else arg for arg in args]
        product = emit(relax.call_tir(bb.add_func(func, "NT_matmul"), operands, out_type))
        return relax.op.reshape(product, shape)

    return in_block(bb, make)


def choose_tile(cpu: Cpu, rows: tirx.Expr, columns: int) -> tuple[int, int]:
    """Choose the rows and columns of a tile, with a vector of partial sums per element."""
    tile_rows = even_part(rows.value, _MAX_ROWS) if isinstance(rows, tirx.IntImm) else _MAX_ROWS
    # The operands are a vector per column and a vector of a row.
    limit = max_columns(cpu, rows=tile_rows, operands_per_column=1, other_operands=1)
    return tile_rows, min(limit, columns)


def _multiply_in_tiles(
    lhs: te.Tensor,
    rhs: te.Tensor,
    *,
    multiply_accumulate: MultiplyAccumulate,
    tile: tuple[int, int],
    lanes: int,
    out_dtype: str,
) -> te.Tensor:
    """(M, K), (N, K) -> (M, N), in tiles with `lanes` partial sums per element."""
    row_count, depth = lhs.shape[0], int(lhs.shape[1])
    column_count = int(rhs.shape[0])
    tile_rows, tile_columns = tile
    tiles = (tirx.ceildiv(row_count, tile_rows), -(-column_count // tile_columns))
    vectors, rest = (
        te.reduce_axis((0, depth // lanes), "k"),
        te.reduce_axis((0, depth % lanes), "r"),
    )

    def product(*position: tirx.Expr) -> tirx.Expr:
        row_tile, column_tile, row, column, k = position
        # Rows beyond a matrix repeat its last row, and are not stored.
        lhs_row = tirx.min(row_tile * tile_rows + row, row_count - 1)
        rhs_row = tirx.min(column_tile * tile_columns + column, column_count - 1)
        return multiply_accumulate.product(lhs(lhs_row, k), rhs(rhs_row, k))

    partial = te.compute(
        (*tiles, *tile, lanes),
        lambda *at: te.sum(product(*at[:-1], vectors.var * lanes + at[-1]), axis=vectors),
        name="partial",
    )
    lane = te.reduce_axis((0, lanes), "lane")
    total = te.compute(
        (*tiles, *tile), lambda *at: te.sum(partial(*at, lane.var), axis=lane), name="total"
    )
    if depth % lanes:
        tail = te.compute(
            (*tiles, *tile),
            lambda *at: te.sum(product(*at, depth // lanes * lanes + rest.var), axis=rest),
            name="tail",
        )

    def element(row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
        at = (
            tirx.floordiv(row, tile_rows),
            tirx.floordiv(column, tile_columns),
            row % tile_rows,
            column % tile_columns,
        )
        value = total(*at) + tail(*at) if depth % lanes else total(*at)
        return value.astype(out_dtype)

    return te.compute((row_count, column_count), element, name="out")


def _schedule(func: tirx.PrimFunc, tile: tuple[int, int]) -> tirx.PrimFunc:
    """Compute tile by tile, rows innermost, so that the second operand is read once."""
    # TVM cannot prove that the tiles cover an unknown number of rows.
    sch = s_tir.Schedule(func, enable_check=False)
    row, column = sch.get_loops(sch.get_sblock("out"))
    rows, row = sch.split(row, [None, tile[0]])
    columns, column = sch.split(column, [None, tile[1]])
    sch.reorder(columns, rows, row, column)
    names = [sch.get(block).name_hint for block in sch.get_child_blocks(sch.get_sblock("root"))]
    for name in ("tail", "total", "partial"):
        if name in names:
            sch.compute_at(sch.get_sblock(name), rows, preserve_unit_loops=True)
    partial = sch.get_sblock("partial")
    *_, row, column, lane, common = sch.get_loops(partial)
    sch.reorder(common, row, column, lane)
    for loop in (row, column):
        sch.unroll(loop)
    sch.vectorize(lane)
    init = sch.decompose_reduction(partial, common)
    *_, row, column, lane = sch.get_loops(init)
    for loop in (row, column):
        sch.unroll(loop)
    sch.vectorize(lane)
    # If an index is not constant, LLVM keeps the sums on the stack.
    for loop in sch.get_loops(sch.get_sblock("total"))[-3:]:
        sch.unroll(loop)
    parallelize(sch, sch.get_loops(sch.get_sblock("out"))[:2])
    return sch.mod["main"]


def _multiply(
    lhs: te.Tensor, rhs: te.Tensor, *, multiply_accumulate: MultiplyAccumulate, out_dtype: str
) -> te.Tensor:
    """(M, K), (N, K) -> (M, N)."""
    k = te.reduce_axis((0, rhs.shape[1]), "k")
    shape = (lhs.shape[0], rhs.shape[0])
    product = te.compute(
        shape,
        lambda row, column: te.sum(
            multiply_accumulate.product(lhs(row, k), rhs(column, k)), axis=k
        ),
        name="NT_matmul",
    )
    if multiply_accumulate.accumulator == out_dtype:
        return product
    return te.compute(shape, lambda *at: product(*at).astype(out_dtype), name="narrowed")
