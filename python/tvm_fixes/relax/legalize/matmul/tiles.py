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
"""Lowering of ``relax.matmul`` for CPUs.

Versions
    Seen in 0.27.0.post1.
Trigger
    A product of floating-point matrices that is compiled for a CPU.
Symptom
    16-bit sums stop growing: a row of 4096 ones times a column of ones is 2048 in float16 and 256
    in bfloat16. A linear layer takes a hundred times as long as PyTorch's.
Mechanism
    TVM's lowering sums in the dtype of the output, one element after the other, and reads along a
    column, whose elements are a row apart.
How to remove
    When TVM sums in float32 and schedules matrix products for CPUs, delete this file, its test and
    the fix id ``matmul-legalize``.

Here the output is computed one register tile at a time. For each element of the common axis, the
microkernel loads one row of the tile from the second operand, in vectors, and multiplies it by one
element of each row of the first. A constant matrix that the whole batch shares is packed tile by
tile at compile time; other matrices are packed at run time if the tiles do not divide the columns,
or if many rows are multiplied. Calls with unknown shapes, and calls that are not known to be for a
CPU, go to TVM's function.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx
from tvm.relax.utils import gen_call_tir_inputs
from tvm.sym import Analyzer

from ....fixes.matmul import MATMUL_LEGALIZE as FIX_ID
from ....support import switches
from ....target.cpu import Cpu
from ....tirx.accumulation import MultiplyAccumulate
from ....tirx.parallel import is_worth_threads, parallelize
from ....tirx.register_tile import even_part, max_columns
from ....tirx.util import broadcast_position, count_of, divides
from ...constants.make import filled
from ...ir import in_block
from ..override import Legalize, override
from ..targets import multiply_accumulate_of, schedules_for_cpu, target_of

# The depths of a chunk of the second operand's tile that stays in the L1 cache next to the rows
# multiplied by it.
_CHUNK_DEPTHS = (256, 192, 128)
# With fewer rows, a chunk is reused too few times.
_MIN_ROWS_TO_CHUNK = 16

# The chunks and the sums of this many row tiles stay in the L2 cache.
_MAX_ROW_TILES_IN_L2 = 32

# With this many rows, packing a matrix at run time pays off.  In an unpacked matrix, each row of a
# tile is in a different page.
_MIN_ROWS_TO_PACK = 256

# More rows read the second operand less often, but leave registers for fewer columns.
_MAX_ROWS = 6

# The maximum number of vectors in a row of a tile.
_MAX_VECTORS = 8


@dataclass(frozen=True)
class Tile:
    """A register tile: rows and columns of the output that are computed together.

    Attributes
    ----------
    rows : int
    columns : int, optional
        The vectorized columns.  None for all columns; their sums are then in memory.
    depth : int, optional
        The depth of a chunk of the second operand that stays in the L1 cache: all rows are
        multiplied by it before the next chunk.  None for a single chunk.
    """

    rows: int
    columns: int | None
    depth: int | None = None


@dataclass(frozen=True)
class _Product:
    """The product of two matrices, or of two batches of matrices.

    Attributes
    ----------
    out_dtype : str
        The dtype of the output.
    multiply_accumulate : MultiplyAccumulate
        Multiplies elements and accumulates the products.
    tile : Tile
        The register tile.
    packed_columns : tirx.Expr or None
        The number of columns of the second operand if :func:`pack` has packed it.
    """

    out_dtype: str
    multiply_accumulate: MultiplyAccumulate
    tile: Tile
    packed_columns: tirx.Expr | None

    def compute(self, lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        """The output, of shape (*batch, rows, columns)."""
        *lhs_batch, row_count, depth = lhs.shape
        rhs_batch = [] if self.packed_columns is not None else list(rhs.shape)[:-2]
        column_count = rhs.shape[-1] if self.packed_columns is None else self.packed_columns
        batch_extents = cast(list[tirx.Expr], _broadcast(lhs_batch, rhs_batch))
        rows, columns = tirx.const(self.tile.rows, "int64"), self.tile.columns
        row_tiles = tirx.ceildiv(row_count, rows)
        column_tiles = 1 if columns is None else tirx.ceildiv(column_count, columns)
        chunk = self.tile.depth
        common = te.reduce_axis((0, depth if chunk is None else chunk), "k")
        is_packed = self.packed_columns is not None
        is_divided = columns is not None and divides(columns, column_count)
        is_read_often = isinstance(row_count, tirx.IntImm) and row_count.value >= _MIN_ROWS_TO_PACK
        if columns is not None and not is_packed and (is_read_often or not is_divided):
            rhs, is_packed = _pack_at_run_time(rhs, columns), True

        def sums(*position: tirx.Var) -> tirx.Expr:
            *batch, row_tile, column_tile, row, column = position
            at = common.var
            if chunk is not None:
                at, batch = batch[0] * chunk + at, batch[1:]
            # Rows beyond the matrix repeat its last row, and are not stored.
            lhs_row = tirx.min(row_tile * rows + row, row_count - 1)
            lhs_at = (*broadcast_position(batch, lhs_batch), lhs_row, at)
            rhs_at = broadcast_position(batch, rhs_batch)
            if is_packed:
                rhs_at += [column_tile, at, column]
            else:
                rhs_at += [
                    at,
                    column if columns is None else column_tile * columns + column,
                ]
            return te.sum(self.multiply_accumulate.product(lhs(*lhs_at), rhs(*rhs_at)), axis=common)

        tile = (rows, column_count if columns is None else columns)
        shape = (*batch_extents, row_tiles, column_tiles, *tile)
        if chunk is None:
            acc = te.compute(shape, sums, name="matmul")
        else:
            parts = te.compute((depth // chunk, *shape), sums, name="matmul")
            part = te.reduce_axis((0, depth // chunk), "part")
            acc = te.compute(
                shape, lambda *at: te.sum(parts(part.var, *at), axis=part), name="sum_of_parts"
            )

        def element(*position: tirx.Var) -> tirx.Expr:
            *batch, row, column = position
            column_tile = 0 if columns is None else tirx.floordiv(column, columns)
            within = (row % rows, column if columns is None else column % columns)
            value = acc(*batch, tirx.floordiv(row, rows), column_tile, *within)
            return value.astype(self.out_dtype)

        return te.compute((*batch_extents, row_count, column_count), element, name="out")


def _pack_at_run_time(matrices: te.Tensor, columns: int) -> te.Tensor:
    """(…, K, N) -> (…, ceil(N / columns), K, columns); the last tile is padded with zeros."""
    *batch_extents, depth, column_count = matrices.shape

    def element(*position: tirx.Var) -> tirx.Expr:
        *batch, tile, row, column = position
        at = tile * columns + column
        value = matrices(*batch, row, at)
        return tirx.if_then_else(at < column_count, value, tirx.const(0, matrices.dtype))

    tiles = tirx.ceildiv(column_count, columns)
    shape = (*batch_extents, tiles, depth, tirx.const(columns, "int64"))
    return te.compute(shape, element, name="in_tiles")


def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    """Lower `call`, or pass it to `stock` if the fix is off or does not apply."""
    if not (switches.enabled(FIX_ID) and _applies(call)):
        return stock(bb, call)
    switches.note(FIX_ID)
    rhs = call.args[1]
    if isinstance(rhs, tvm.ir.GenericConst) and len(rhs.ty.shape.values) == 2:
        columns = _tile_of(call, packed=True).columns
        if columns is not None:
            return _lower(bb, bb.emit, call, pack(rhs, columns, str(call.op.name)))
    return _lower(bb, bb.emit, call)


def packed_columns(call: relax.Call) -> int | None:
    """The tile columns for packing a constant second operand of `call`.

    Returns
    -------
    int or None
        None if the product is left to TVM, or reads the matrix unpacked.
    """
    if not (switches.enabled(FIX_ID) and _applies(call)):
        return None
    return _tile_of(call, packed=True).columns


def pack(
    matrix: tvm.ir.GenericConst, columns: int, made_by: str, *, transposed: bool = False
) -> relax.Expr:
    """Pack a constant of shape (K, N), or (N, K) if it is `transposed`, for :func:`multiply`.

    `made_by` names the operator and its location.

    Returns
    -------
    GenericConst
        A constant of shape (ceil(N / columns), K, columns); the last tile is padded with zeros.
    """
    depth, extent = map(int, matrix.ty.shape.values)
    if transposed:
        depth, extent = extent, depth
    whole, rest = divmod(extent, columns)

    def fill(tiles: np.ndarray, array: np.ndarray) -> None:
        of_depth = array.T if transposed else array
        within = of_depth[:, : whole * columns].reshape(depth, whole, columns)
        tiles[:whole] = within.transpose(1, 0, 2)
        if rest:
            tiles[whole, :, :rest] = of_depth[:, whole * columns :]
            tiles[whole, :, rest:] = 0

    return filled(matrix, (whole + bool(rest), depth, columns), fill, made_by)


def multiply(bb: relax.BlockBuilder, call: relax.Call, packed: relax.Expr) -> relax.SeqExpr:
    """Lower `call` with a packed second operand.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Receives the kernel.
    call : relax.Call
        A call for which :func:`packed_columns` is not None.
    packed : relax.Expr
        The second operand, from :func:`pack`.

    Returns
    -------
    relax.SeqExpr
        A dataflow block and its result.
    """
    switches.note(FIX_ID)
    return in_block(bb, lambda emit: _lower(bb, emit, call, packed))


def _tile_of(call: relax.Call, *, packed: bool) -> Tile:
    lhs, rhs = (list(arg.ty.shape.values) for arg in call.args)
    rows = lhs[-2] if len(rhs) > 2 and len(lhs) > 1 else count_of(lhs[:-1])
    columns = rhs[-1] if len(rhs) > 1 else tirx.const(1, "int64")
    cpu, dtype = Cpu.of(target_of(call)), multiply_accumulate_of(call).accumulator
    tile = choose_tile(cpu, dtype, rows, columns, packed=packed)
    return replace(tile, depth=_depth_chunk(tile, rows, columns, lhs[-1])) if packed else tile


def _lower(
    bb: relax.BlockBuilder,
    emit: Callable[[relax.Expr], relax.Var],
    call: relax.Call,
    packed: relax.Expr | None = None,
) -> relax.Expr:
    lhs, rhs = call.args
    *lhs_rows, depth = lhs.ty.shape.values
    if len(rhs.ty.shape.values) == 1:
        rhs = _reshape(emit, rhs, [depth, tirx.const(1, "int64")])
    if len(rhs.ty.shape.values) == 2 or not lhs_rows:
        lhs = _reshape(emit, lhs, [count_of(lhs_rows), depth])
    tile = _tile_of(call, packed=packed is not None)
    columns = None if packed is None else rhs.ty.shape.values[-1]
    product = _Product(str(call.ty.dtype), multiply_accumulate_of(call), tile, columns)
    func, args, out_type = gen_call_tir_inputs(
        product.compute, lhs, rhs if packed is None else packed
    )
    func = _schedule(func, tile) if tile.depth is None else _schedule_in_chunks(func, tile)
    out = relax.call_tir(bb.add_func(func, "matmul"), args, out_type)
    return _reshape(emit, emit(out), list(call.ty.shape.values))


def _applies(call: relax.Call) -> bool:
    """Whether `call` is in floating point and for a CPU, and its extents provably agree."""
    if not all(isinstance(expr.ty.shape, relax.ShapeExpr) for expr in (*call.args, call)):
        return False
    lhs, rhs = (list(arg.ty.shape.values) for arg in call.args)
    dtypes = [str(expr.ty.dtype) for expr in (*call.args, call)]
    if not all("float" in dtype and "float8" not in dtype for dtype in dtypes):
        return False
    analyzer = Analyzer()
    depths = lhs[-1], rhs[-2] if len(rhs) > 1 else rhs[0]
    return (
        schedules_for_cpu(call)
        and analyzer.can_prove_equal(*depths)
        and not analyzer.can_prove_equal(depths[0], 0)
        and _broadcast(lhs[:-2], rhs[:-2]) is not None
    )


def _broadcast(lhs: list[tirx.Expr], rhs: list[tirx.Expr]) -> list[tirx.Expr] | None:
    """The batch extents of the output; None if it is unknown which extents are broadcast."""
    rank = max(len(lhs), len(rhs))
    one, analyzer = tirx.const(1, "int64"), Analyzer()
    result = []
    for a, b in zip([one] * (rank - len(lhs)) + lhs, [one] * (rank - len(rhs)) + rhs, strict=True):
        if analyzer.can_prove_equal(a, b) or analyzer.can_prove_equal(b, 1):
            result.append(a)
        elif analyzer.can_prove_equal(a, 1):
            result.append(b)
        else:
            return None
    return result


def _tile_rows(rows: tirx.Expr) -> int:
    if isinstance(rows, tirx.IntImm):
        return even_part(rows.value, _MAX_ROWS)
    # If TVM can prove that one tile holds all rows, it replaces the extent of the tile by the
    # symbolic number of rows.
    return 1 if Analyzer().const_int_bound(rows).max_value <= _MAX_ROWS else _MAX_ROWS


def choose_tile(cpu: Cpu, dtype: str, rows: tirx.Expr, columns: tirx.Expr, *, packed: bool) -> Tile:
    """Choose a tile for a product of `rows` and `columns` with sums of `dtype`.

    A tile with more rows reads the second operand less often; one with more columns, the first.
    If the second operand is not `packed`, tiles that divide its columns avoid packing at run time.
    """
    lanes = cpu.vector_bytes // (tvm.DataType(dtype).bits // 8)
    tile_rows = _tile_rows(rows)
    # The operands are a vector per column and an element of a row; keep one register spare.
    vectors = max_columns(cpu, rows=tile_rows, operands_per_column=1, other_operands=2)
    vectors = min(vectors, _MAX_VECTORS)
    if isinstance(columns, tirx.IntImm):
        vectors = min(vectors, -(-columns.value // lanes))
    if not packed:
        fewer = range(vectors, vectors // 2, -1)
        vectors = next((n for n in fewer if divides(n * lanes, columns)), vectors)
    # Packing a matrix takes as long as multiplying few rows by it.
    has_few_rows = isinstance(rows, tirx.IntImm) and rows.value <= 4
    if has_few_rows and not packed and not divides(vectors * lanes, columns):
        return Tile(tile_rows, None)
    return Tile(tile_rows, vectors * lanes)


def _depth_chunk(tile: Tile, rows: tirx.Expr, columns: tirx.Expr, depth: tirx.Expr) -> int | None:
    """The depth of a chunk; None for a single chunk."""
    if tile.columns is None or not isinstance(depth, tirx.IntImm):
        return None
    has_few_rows = isinstance(rows, tirx.IntImm) and rows.value < _MIN_ROWS_TO_CHUNK
    # The tiles of columns run in parallel.
    has_few_tiles = not isinstance(columns, tirx.IntImm) or columns.value < 8 * tile.columns
    if depth.value < 2 * _CHUNK_DEPTHS[0] or has_few_rows or has_few_tiles:
        return None
    return next((chunk for chunk in _CHUNK_DEPTHS if depth.value % chunk == 0), None)


def _schedule(func: tirx.PrimFunc, tile: Tile) -> tirx.PrimFunc:
    """Compute tile by tile, rows innermost, so that the second operand is read once."""
    # TVM cannot prove that the tiles cover an unknown number of rows.
    sch = s_tir.Schedule(func, enable_check=False)
    acc, out = sch.get_sblock("matmul"), sch.get_sblock("out")
    *batch, row, column = sch.get_loops(out)
    rows, row = sch.split(row, [None, tile.rows])
    outer = [*batch, rows]
    if tile.columns is not None:
        columns, column = sch.split(column, [None, tile.columns])
        outer = [*batch, columns, rows]
    sch.reorder(*outer, row, column)
    sch.compute_at(acc, outer[-1], preserve_unit_loops=True)
    *_, acc_row, acc_column, common = sch.get_loops(acc)
    sch.reorder(common, acc_row, acc_column)
    if tile.columns is not None:
        sch.unroll(acc_row)
        sch.vectorize(acc_column)
    work = count_of([sch.get(loop).extent for loop in (*outer, row, column, common)])
    if is_worth_threads(work):
        parallelize(sch, outer)
    if (in_tiles := _find(sch, "in_tiles")) is not None:
        sch.parallel(sch.get_loops(in_tiles)[0])
    init = sch.decompose_reduction(acc, common)
    if tile.columns is not None:
        *_, row, column = sch.get_loops(init)
        sch.unroll(row)
        sch.vectorize(column)
    return sch.mod["main"]


def _schedule_in_chunks(func: tirx.PrimFunc, tile: Tile) -> tirx.PrimFunc:
    """Compute one column tile after the other, and within it all rows of each chunk."""
    sch = s_tir.Schedule(func, enable_check=False)
    parts, acc, out = (sch.get_sblock(name) for name in ("matmul", "sum_of_parts", "out"))
    rows, columns, row, column, part = sch.get_loops(acc)
    # All rows at once, or in blocks if there are known to be more than two.
    row_block, tiles = columns, sch.get(rows).extent
    if isinstance(tiles, tirx.IntImm) and tiles.value > 2 * _MAX_ROW_TILES_IN_L2:
        row_block, rows = sch.split(rows, [None, even_part(tiles.value, _MAX_ROW_TILES_IN_L2)])
        sch.reorder(columns, row_block, part, rows, row, column)
    else:
        sch.reorder(columns, part, rows, row, column)
    sch.compute_at(parts, rows, preserve_unit_loops=True)
    *_, part_row, part_column, common = sch.get_loops(parts)
    sch.reorder(common, part_row, part_column)
    sch.reverse_compute_at(out, row_block, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(out)[-1])
    for loop in (part_row, row):
        sch.unroll(loop)
    for loop in (part_column, column):
        sch.vectorize(loop)
    sch.parallel(columns)
    for block, loop in ((parts, common), (acc, part)):
        *_, row, column = sch.get_loops(sch.decompose_reduction(block, loop))
        sch.unroll(row)
        sch.vectorize(column)
    return sch.mod["main"]


def _find(sch: s_tir.Schedule, name: str) -> s_tir.schedule.SBlockRV | None:
    """The block called `name`; None if the schedule has no such block."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    return next((block for block in blocks if sch.get(block).name_hint == name), None)


def _reshape(
    emit: Callable[[relax.Expr], relax.Var], tensor: relax.Expr, shape: list[tirx.Expr]
) -> relax.Expr:
    if tvm_ffi.structural_equal(tensor.ty.shape, relax.ShapeExpr(shape)):
        return tensor
    return emit(relax.op.reshape(tensor, shape))


@functools.cache
def register() -> None:
    """Register the lowering; a second call is a no-op."""
    override("relax.matmul", _legalize)
