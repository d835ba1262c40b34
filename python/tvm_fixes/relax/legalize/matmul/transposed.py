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
"""Matrix products of which the second operand is read as it lies, row by row.

A linear layer ``x @ w.T`` whose weights something else reads too, such as a tied embedding, is
computed of the rows of both: each sum is one of products along the rows, which are contiguous in
both. One tile of the output is summed after the other, in registers, with a vector of partial sums
for each of its elements.
"""

from collections.abc import Callable

import tvm
from tvm import relax, s_tir, te, tirx
from tvm.relax.utils import gen_call_tir_inputs

from ....target.cpu import vector_registers
from ....tirx.parallel import parallelize
from ....tirx.util import count_of
from ...ir import in_block
from ..targets import accumulator_dtype, even_part, schedules_for_cpu, target_of


def multiply_by_rows(bb: relax.BlockBuilder, call: relax.Call, rows: relax.Expr) -> relax.SeqExpr:
    """Lower ``lhs @ rows.T``.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Takes the kernel.
    call : relax.Call
        The matrix product whose place it takes, of a tensor of shape (…, K).
    rows : relax.Expr
        Of shape (N, K), both static.

    Returns
    -------
    relax.SeqExpr
        A dataflow block and its result, of shape (…, N).  The sums are in float32 or wider for
        floating-point operands, and are rounded once.
    """
    lhs, shape, out_dtype = call.args[0], list(call.ty.shape.values), str(call.ty.dtype)
    *batch, depth = lhs.ty.shape.values
    dtype = accumulator_dtype(str(lhs.ty.dtype), str(rows.ty.dtype), out_dtype)
    matrix = relax.Var("lhs", relax.TensorType([count_of(batch), depth], lhs.ty.dtype))
    if schedules_for_cpu(call) and "float" in dtype and int(depth) > 0:
        vector, registers = vector_registers(target_of(call))
        lanes = min(vector // (tvm.DataType(dtype).bits // 8), int(depth))
        extents = matrix.ty.shape.values[0], int(rows.ty.shape.values[0])
        tile = _choose_tile(*extents, vector, registers)
        func, args, out_type = gen_call_tir_inputs(
            _multiply_by_tiles, matrix, rows, tile, lanes, out_dtype
        )
        func = _schedule(func, tile)
    else:
        func, args, out_type = gen_call_tir_inputs(_multiply, matrix, rows, out_dtype)

    def make(emit: Callable[[relax.Expr], relax.Var]) -> relax.Expr:
        flat = emit(relax.op.reshape(lhs, matrix.ty.shape))
        operands = [flat if arg is matrix else arg for arg in args]
        product = emit(relax.call_tir(bb.add_func(func, "NT_matmul"), operands, out_type))
        return relax.op.reshape(product, shape)

    return in_block(bb, make)


def _choose_tile(rows: tirx.Expr, columns: int, vector: int, registers: int) -> tuple[int, int]:
    """Rows and columns whose sums fit into the registers, next to the operands.

    These are a vector of each column, and one of a row.
    """
    tile_rows = even_part(rows.value, most=4) if isinstance(rows, tirx.IntImm) else 4
    most = (registers - 1) // (tile_rows + 1)
    # Less than 1024 bytes TVM puts on the stack, from where LLVM takes them into registers.
    return tile_rows, min(most, 1023 // (tile_rows * vector), columns)


def _multiply_by_tiles(
    lhs: te.Tensor, rhs: te.Tensor, tile: tuple[int, int], lanes: int, out_dtype: str
) -> te.Tensor:
    """(M, K), (N, K) -> (M, N), by tiles of which each element has `lanes` partial sums."""
    row_count, depth = lhs.shape[0], int(lhs.shape[1])
    column_count = int(rhs.shape[0])
    tile_rows, tile_columns = tile
    dtype = accumulator_dtype(str(lhs.dtype), str(rhs.dtype), out_dtype)
    tiles = (tirx.ceildiv(row_count, tile_rows), -(-column_count // tile_columns))
    vectors, rest = (
        te.reduce_axis((0, depth // lanes), "k"),
        te.reduce_axis((0, depth % lanes), "r"),
    )

    def product(*position: tirx.Expr) -> tirx.Expr:
        row_tile, column_tile, row, column, k = position
        # Rows beyond a matrix are its last one again, and are not stored.
        lhs_row = tirx.min(row_tile * tile_rows + row, row_count - 1)
        rhs_row = tirx.min(column_tile * tile_columns + column, column_count - 1)
        return lhs(lhs_row, k).astype(dtype) * rhs(rhs_row, k).astype(dtype)

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
    """Compute one tile after the other, rows innermost, so that the second operand is read once."""
    # That the tiles cover the output cannot be proved for an unknown number of rows.
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
    # With an index that is not constant LLVM would keep the sums on the stack.
    for loop in sch.get_loops(sch.get_sblock("total"))[-3:]:
        sch.unroll(loop)
    parallelize(sch, sch.get_loops(sch.get_sblock("out"))[:2])
    return sch.mod["main"]


def _multiply(x: te.Tensor, matrix: te.Tensor, dtype: str) -> te.Tensor:
    """(M, K), (N, K) -> (M, N)."""
    k = te.reduce_axis((0, matrix.shape[1]), "k")
    wide = accumulator_dtype(str(x.dtype), str(matrix.dtype), dtype)
    shape = (x.shape[0], matrix.shape[0])
    product = te.compute(
        shape,
        lambda row, column: te.sum(x(row, k).astype(wide) * matrix(column, k).astype(wide), axis=k),
        name="NT_matmul",
    )
    if wide == dtype:
        return product
    return te.compute(shape, lambda *at: product(*at).astype(dtype), name="narrowed")
