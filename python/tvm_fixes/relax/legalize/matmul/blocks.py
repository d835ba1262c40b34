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
"""Products with constant matrices that are quantized in blocks: kernels read the integers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax, s_tir, te, tirx
from tvm.relax.utils import gen_call_tir_inputs
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_walk

from ....support.tensors import array_of
from ....target.cpu import Cpu
from ....tirx.accumulation import MultiplyAccumulate
from ....tirx.elementary.expressions import BIAS, MANTISSA_BITS, int32
from ....tirx.loop_nest import substitute
from ....tirx.parallel import parallelize
from ....tirx.util import count_of
from ...constants.make import empty_constant, made_constant
from ...ir import in_block
from ...quantized_blocks import WORD_BITS, BlockMatrix
from ..targets import target_of
from .lower import pad_to_multiple, reshape_to
from .product import Product
from .schedule import schedule
from .tiles import Tile, choose_tile, depth_chunk

# More vectors of sums do not hide more of the latency of a multiplication.
_MAX_VECTORS = 4

# With more rows in a tile, multiplications take longer than conversions.
_FEW_ROWS = 2


@dataclass(frozen=True)
class PackedBlocks:
    """A :class:`BlockMatrix` whose integers are packed in words, tile by tile.

    Attributes
    ----------
    words : GenericConst
        Of shape (tiles, K / n, columns), in int32: a word has n rows of a column, the first in its
        lowest bits.
    scale : GenericConst
        Of shape (tiles, K / `block`, columns), in float32.
    zero : GenericConst, optional
        Of the shape of `scale`.
    bits, block : int
        As in :class:`BlockMatrix`.
    column_count : int
        The number of columns; the last tile is padded with zeros.
    """

    words: relax.Expr
    scale: relax.Expr
    zero: relax.Expr | None
    bits: int
    block: int
    column_count: int

    @property
    def operands(self) -> list[relax.Expr]:
        """The constants."""
        return [self.words, self.scale, *([] if self.zero is None else [self.zero])]

    @property
    def per_word(self) -> int:
        """The number of integers in a word."""
        return WORD_BITS // self.bits

    def factor(
        self,
        words: te.Tensor,
        zero: Sequence[te.Tensor],
        tile: tirx.Expr,
        block: tirx.Expr,
        row: tirx.Expr,
        column: tirx.Expr,
        *,
        few_rows: bool = False,
    ) -> tirx.Expr:
        """An element of the matrix minus its zero point; `zero` is empty for 0.

        With `few_rows`, the element is multiplied only once or twice.
        """
        word, within = words(tile, row // self.per_word, column), row % self.per_word
        convert = _in_mantissa if few_rows else _converted
        factor = convert(word, within, self.bits)
        for points in zero:
            factor = factor - points(tile, block, column).astype("float32")
        return factor


def _converted(word: tirx.Expr, within: tirx.Expr, bits: int) -> tirx.Expr:
    """The signed integer at place `within` of a word, in float32: two shifts and a conversion."""
    left = (WORD_BITS - bits) - bits * within
    high = tirx.shift_left(word, left.astype("int32"))
    # Shifting right extends the sign.
    return tirx.shift_right(high, int32(WORD_BITS - bits)).astype("float32")


def _in_mantissa(word: tirx.Expr, within: tirx.Expr, bits: int) -> tirx.Expr:
    """The same as :func:`_converted`, faster where conversions take longer than multiplications.

    The number 2^(23 - p), with an integer i at bit p of its mantissa, is 2^(23 - p) + i.  Most
    integers need no shift, and several share one.
    """
    of_mantissa = MANTISSA_BITS // bits
    first = within // of_mantissa * of_mantissa
    word = tirx.shift_right(word, (first * bits).astype("int32"))
    place = ((within - first) * bits).astype("int32")
    power = tirx.shift_left(int32(BIAS + MANTISSA_BITS) - place, int32(MANTISSA_BITS))
    # With its sign bit inverted, the integer is that much larger.
    larger = power | tirx.shift_left(int32(2 ** (bits - 1)), place)
    integer = word & tirx.shift_left(int32(2**bits - 1), place)
    return tirx.reinterpret("float32", integer ^ larger) - tirx.reinterpret("float32", larger)


def tile_of(call: relax.Call) -> Tile:
    """The register tile for a product; for many rows, its chunks have a depth."""
    cpu, rows = Cpu.of(target_of(call)), count_of(list(call.ty.shape.values)[:-1])
    depth, columns = call.args[1].ty.shape.values
    tile = choose_tile(cpu, "float32", rows, columns, packed=True)
    chunk = depth_chunk(tile, rows, columns, depth)
    if chunk is not None:
        return replace(tile, depth=chunk)
    # A packed matrix has tiles of columns.
    assert tile.columns is not None
    return replace(tile, columns=min(tile.columns, _MAX_VECTORS * cpu.vector_bytes // 4))


def pack_blocks(
    matrix: BlockMatrix, columns: int, constants: list[tvm.runtime.Tensor], made_by: str
) -> PackedBlocks:
    """Pack a matrix for tiles of this many columns.

    `constants` are the tensors that it was computed from, and `made_by` names the operator.
    """

    def tiled(array: np.ndarray) -> relax.Expr:
        rows, column_count = array.shape
        tensor = empty_constant((-(-column_count // columns), rows, columns), array.dtype.name)
        whole = np.pad(array, [(0, 0), (0, -column_count % columns)])
        array_of(tensor)[...] = whole.reshape(rows, -1, columns).transpose(1, 0, 2)
        return made_constant(tensor, constants, made_by)

    per_word = WORD_BITS // matrix.bits
    words = np.zeros((len(matrix.data) // per_word, matrix.data.shape[1]), "uint32")
    for place in range(per_word):
        part = matrix.data[place::per_word].astype("uint32") & (2**matrix.bits - 1)
        words |= part << (matrix.bits * place)
    return PackedBlocks(
        tiled(words.view("int32")),
        tiled(matrix.scale),
        None if matrix.zero is None else tiled(matrix.zero),
        matrix.bits,
        matrix.block,
        matrix.data.shape[1],
    )


def multiply_blocks(
    bb: relax.BlockBuilder, call: relax.Call, packed: PackedBlocks, tile: Tile
) -> relax.SeqExpr:
    """Lower a product with a matrix that :func:`pack_blocks` has packed for `tile`.

    Few rows are multiplied by the integers, and the sums of each block are scaled.  For many rows,
    a chunk of the matrix is dequantized at a time, and stays in the cache.

    Returns
    -------
    relax.SeqExpr
        A dataflow block and its result.
    """

    def lower(emit: Callable[[relax.Expr], relax.Var]) -> relax.Expr:
        lhs = call.args[0]
        *rows, depth = lhs.ty.shape.values
        lhs = reshape_to(emit, lhs, [count_of(rows), depth])
        lhs = pad_to_multiple(emit, lhs, -1, packed.block)
        lowering = _Scaling(packed, tile) if tile.depth is None else _Dequantizing(packed, tile)
        func, args, out_type = gen_call_tir_inputs(lowering.compute, lhs, *packed.operands)
        func = lowering.schedule(func)
        if not isinstance(lhs.ty.shape.values[0], tirx.IntImm):
            single = _Scaling(packed, replace(tile, rows=1, depth=None))
            of_one = gen_call_tir_inputs(single.compute, lhs, *packed.operands)[0]
            func = _for_one_row(single.schedule(of_one), func)
        out = emit(relax.call_tir(bb.add_func(func, "matmul_blocks"), args, out_type))
        return reshape_to(emit, out, list(call.ty.shape.values))

    return in_block(bb, lower)


def _for_one_row(single: tirx.PrimFunc, other: tirx.PrimFunc) -> tirx.PrimFunc:
    """Run `single` if the first parameter has one row, and `other` if it has more or none."""
    variables = ([*func.params, *_symbols(func)] for func in (single, other))
    body = substitute(single.body, dict(zip(*variables, strict=True)))
    is_one = tirx.EQ(other.params[0].ty.shape[0], tirx.const(1, "int64"))
    chosen = tirx.IfThenElse(is_one, _named(body, "one_row"), _named(other.body, "rows"))
    root = SBlock([], [], [], "root", chosen)
    return other.with_body(SBlockRealize([], tirx.const(True, "bool"), root))


def _symbols(func: tirx.PrimFunc) -> list[tirx.Var]:
    """The variables in the shape of the first parameter."""
    variables: list[tirx.Var] = []
    for extent in func.params[0].ty.shape:
        structural_walk(extent, (tirx.Var, variables.append))
    return list(dict.fromkeys(variables))


def _named(body: SBlockRealize, name: str) -> SBlockRealize:
    """A body whose block is not called ``root``, which later schedules look for."""
    block = body.block
    renamed = SBlock([], [], [], name, block.body, alloc_buffers=block.alloc_buffers)
    return SBlockRealize([], body.predicate, renamed)


@dataclass(frozen=True)
class _Dequantizing:
    """Dequantizes chunks of the matrix, and multiplies many rows by each."""

    packed: PackedBlocks
    tile: Tile

    def compute(
        self, lhs: te.Tensor, words: te.Tensor, scale: te.Tensor, *zero: te.Tensor
    ) -> te.Tensor:
        """The output, of shape (rows, columns)."""
        packed = self.packed

        def element(tile: tirx.Var, row: tirx.Var, column: tirx.Var) -> tirx.Expr:
            block = row // packed.block
            factor = packed.factor(words, zero, tile, block, row, column)
            return factor * scale(tile, block, column)

        tiles, _, columns = words.shape
        matrix = te.compute((tiles, lhs.shape[-1], columns), element, name="dequantized")
        product = Product(
            "float32",
            MultiplyAccumulate("float32"),
            self.tile,
            tirx.const(packed.column_count, "int64"),
        )
        return product.compute(lhs, matrix)

    def schedule(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        return schedule(func, self.tile, None)


@dataclass(frozen=True)
class _Scaling:
    """Multiplies few rows by the integers, and scales the sums of each block."""

    packed: PackedBlocks
    tile: Tile

    def compute(
        self, lhs: te.Tensor, words: te.Tensor, scale: te.Tensor, *zero: te.Tensor
    ) -> te.Tensor:
        """The output, of shape (rows, columns)."""
        packed, rows = self.packed, self.tile.rows
        per_word, block_words = packed.per_word, packed.block // packed.per_word
        row_count, depth = lhs.shape
        tiles, columns = words.shape[0], words.shape[-1]
        word = te.reduce_axis((0, block_words), "word")
        within = te.reduce_axis((0, per_word), "within")
        block = te.reduce_axis((0, depth // packed.block), "block")

        def sums(*position: tirx.Var) -> tirx.Expr:
            block, row_tile, tile, row, column = position
            at = (block * block_words + word) * per_word + within
            few_rows = rows <= _FEW_ROWS
            factor = packed.factor(words, zero, tile, block, at, column, few_rows=few_rows)
            # Rows beyond the matrix repeat its last row, and are not stored.
            lhs_row = tirx.min(row_tile * rows + row, row_count - 1)
            return te.sum(lhs(lhs_row, at) * factor, axis=[word, within])

        shape = (tirx.ceildiv(row_count, rows), tiles, tirx.const(rows, "int64"), columns)
        parts = te.compute((depth // packed.block, *shape), sums, name="matmul")

        def scaled(*position: tirx.Var) -> tirx.Expr:
            _, tile, _, column = position
            part = parts(block.var, *position)
            return te.sum(part * scale(tile, block.var, column), axis=block)

        acc = te.compute(shape, scaled, name="sum_of_parts")

        def element(row: tirx.Var, column: tirx.Var) -> tirx.Expr:
            return acc(row // rows, column // columns, row % rows, column % columns)

        out = (row_count, tirx.const(packed.column_count, "int64"))
        return te.compute(out, element, name="out")

    def schedule(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        # TVM cannot prove that the tiles cover an unknown number of rows.
        sch = s_tir.Schedule(func, enable_check=False)
        parts, acc, out = (sch.get_sblock(name) for name in ("matmul", "sum_of_parts", "out"))
        row, column = sch.get_loops(out)
        rows, row = sch.split(row, [None, self.tile.rows])
        columns, column = sch.split(column, [None, self.tile.columns])
        sch.reorder(columns, rows, row, column)
        sch.vectorize(column)
        sch.compute_at(acc, rows, preserve_unit_loops=True)
        *_, row, column, block = sch.get_loops(acc)
        sch.reorder(block, row, column)
        sch.compute_at(parts, block, preserve_unit_loops=True)
        *_, row, column, word, within = sch.get_loops(parts)
        sch.reorder(word, within, row, column)
        sch.unroll(within)
        for of, loop in ((parts, word), (acc, block)):
            for part in (sch.decompose_reduction(of, loop), of):
                *_, row, column = sch.get_loops(part)
                sch.unroll(row)
                sch.vectorize(column)
        parallelize(sch, [columns, rows])
        return sch.mod["main"]
