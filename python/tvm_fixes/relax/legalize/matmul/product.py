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
"""Products of matrices as tensor expressions, one register tile at a time."""

from dataclasses import dataclass
from typing import cast

from tvm import te, tirx
from tvm.sym import Analyzer

from ....tirx.accumulation import MultiplyAccumulate
from ....tirx.util import broadcast_position, divides
from .packing import pack_at_run_time
from .tiles import Tile

# With this many rows, packing a matrix at run time pays off.  In an unpacked matrix, each row of a
# tile is in a different page.
_MIN_ROWS_TO_PACK = 256


@dataclass(frozen=True)
class Product:
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
    panels : bool
        Whether the second operand is packed in panels: see :func:`.schedule.schedule`.
    transposed : bool
        Whether the matrices of the second operand have shape (N, K); they are packed in panels.
    """

    out_dtype: str
    multiply_accumulate: MultiplyAccumulate
    tile: Tile
    packed_columns: tirx.Expr | None
    panels: bool = False
    transposed: bool = False

    def compute(self, lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        """The output, of shape (*batch, rows, columns)."""
        *lhs_batch, row_count, depth = lhs.shape
        rhs_batch = [] if self.packed_columns is not None else list(rhs.shape)[:-2]
        column_count = self.packed_columns
        if column_count is None:
            column_count = rhs.shape[-2 if self.transposed else -1]
        batch_extents = cast(list[tirx.Expr], broadcast_extents(lhs_batch, rhs_batch))
        rows, columns = tirx.const(self.tile.rows, "int64"), self.tile.columns
        row_tiles = tirx.ceildiv(row_count, rows)
        column_tiles = 1
        if columns is not None:
            streams = self.tile.streams
            column_tiles = tirx.ceildiv(column_count, columns * streams) * streams
        chunk, at_once = self.tile.depth, self.multiply_accumulate.depth
        common = te.reduce_axis((0, (depth if chunk is None else chunk) // at_once), "k")
        within = [te.reduce_axis((0, at_once), "within")] if at_once > 1 else []
        is_packed = self.packed_columns is not None
        is_divided = columns is not None and divides(columns, column_count)
        is_read_often = isinstance(row_count, tirx.IntImm) and row_count.value >= _MIN_ROWS_TO_PACK
        pays_off = self.panels or is_read_often or at_once > 1 or not is_divided
        if columns is not None and not is_packed and pays_off:
            rhs = pack_at_run_time(
                rhs, columns, self.multiply_accumulate, transposed=self.transposed
            )
            is_packed = True

        def sums(*position: tirx.Var) -> tirx.Expr:
            *batch, row_tile, column_tile, row, column = position
            step = common.var
            if chunk is not None:
                step, batch = batch[0] * (chunk // at_once) + step, batch[1:]
            at = step * at_once + within[0].var if within else step
            # Rows beyond the matrix repeat its last row, and are not stored.
            lhs_row = tirx.min(row_tile * rows + row, row_count - 1)
            lhs_at = (*broadcast_position(batch, lhs_batch), lhs_row, at)
            rhs_at = broadcast_position(batch, rhs_batch)
            if is_packed:
                rhs_at += [column_tile, step, column, *(axis.var for axis in within)]
            else:
                rhs_at += [
                    at,
                    column if columns is None else column_tile * columns + column,
                ]
            product = self.multiply_accumulate.product(lhs(*lhs_at), rhs(*rhs_at))
            return te.sum(product, axis=[common, *within])

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


def broadcast_extents(lhs: list[tirx.Expr], rhs: list[tirx.Expr]) -> list[tirx.Expr] | None:
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
