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
"""Register tiles of matrix products."""

from dataclasses import dataclass, replace

import tvm
from tvm import tirx
from tvm.sym import Analyzer

from ....target.cpu import Cpu
from ....tirx.register_tile import even_part, max_columns
from ....tirx.util import divides

# The steps of a chunk of the second operand's tile that stays in the L1 cache next to the rows
# multiplied by it. A step is an element of a column, or the elements that a dot product reads at
# once.
_CHUNK_STEPS = (256, 192, 128)
# With fewer rows, a chunk is reused too few times.
_MIN_ROWS_TO_CHUNK = 16

# More rows read the second operand less often, but leave registers for fewer columns.
_MAX_ROWS = 6

# The maximum number of vectors in a row of a tile.
_MAX_VECTORS = 8

# More streams do not read faster; fewer do not hide the latency of a page.
_STREAMS = 4
_STREAM_VECTORS = 2


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
    streams : int
        The number of adjacent tiles that are computed at once.  Each reads its own part of the
        second operand, so that the CPU prefetches several pages.
    """

    rows: int
    columns: int | None
    depth: int | None = None
    streams: int = 1

    @property
    def size(self) -> int:
        """The number of sums that are in registers."""
        return self.rows * (self.columns or 0)


def _tile_rows(rows: tirx.Expr) -> int:
    if isinstance(rows, tirx.IntImm):
        return even_part(rows.value, _MAX_ROWS)
    # If TVM can prove that one tile holds all rows, it replaces the extent of the tile by the
    # symbolic number of rows.
    return 1 if Analyzer().const_int_bound(rows).max_value <= _MAX_ROWS else _MAX_ROWS


def choose_tile(
    cpu: Cpu,
    dtype: str,
    rows: tirx.Expr,
    columns: tirx.Expr,
    *,
    packed: bool,
    widens: bool = False,
) -> Tile:
    """Choose a tile for a product of `rows` and `columns` with sums of `dtype`.

    The elements of the second operand are narrower than the sums if it `widens` them.

    A tile with more rows reads the second operand less often; one with more columns, the first.
    If the second operand is not `packed`, tiles that divide its columns avoid packing at run time.
    """
    lanes = cpu.vector_bytes // (tvm.DataType(dtype).bits // 8)
    tile_rows = _tile_rows(rows)
    # The operands are a vector per column and an element of a row; keep one register spare.
    vectors = max_columns(
        cpu, rows=tile_rows, operands_per_column=1, other_operands=2, parts=tile_rows
    )
    vectors = min(vectors, _MAX_VECTORS)
    if widens:
        # If the length of a vector is not a power of two, LLVM widens it element by element.
        vectors = 1 << (vectors.bit_length() - 1)
    count = -(-columns.value // lanes) if isinstance(columns, tirx.IntImm) else None
    if count is not None:
        vectors = min(vectors, count)
    fewer = () if packed else range(vectors, vectors // 2, -1)
    whole = [number for number in fewer if divides(number * lanes, columns)]
    if whole:
        vectors = whole[0]
    elif count is not None and not widens:
        vectors = _even_vectors(tile_rows, count, vectors)
    # Packing a matrix takes as long as multiplying few rows by it.
    has_few_rows = isinstance(rows, tirx.IntImm) and rows.value <= 4
    if has_few_rows and not packed and not divides(vectors * lanes, columns):
        return Tile(tile_rows, None)
    return Tile(tile_rows, vectors * lanes)


def _even_vectors(rows: int, count: int, limit: int) -> int:
    """The number of vectors per tile, at most `limit`, that is fastest for a row of `count`."""

    def time(vectors: int) -> int:
        return -(-count // vectors) * (max(rows * vectors, rows + vectors) + 1)

    return min(range(limit, limit // 2, -1), key=time)


def in_streams(tile: Tile, cpu: Cpu, columns: tirx.Expr) -> Tile:
    """Divide a tile of one row into streams; reading the second operand dominates its time.

    The second operand is packed, and the sums are in float32.
    """
    width = _STREAM_VECTORS * cpu.vector_bytes // 4
    is_wide = isinstance(columns, tirx.IntImm) and columns.value >= _STREAMS * width
    if tile.rows > 1 or not is_wide:
        return tile
    return replace(tile, columns=width, streams=_STREAMS)


def depth_chunk(
    tile: Tile, rows: tirx.Expr, columns: tirx.Expr, depth: tirx.Expr, at_once: int = 1
) -> int | None:
    """The depth of a chunk; None for a single chunk.

    A dot product multiplies `at_once` elements of the depth.
    """
    if tile.columns is None or not isinstance(depth, tirx.IntImm):
        return None
    has_few_rows = isinstance(rows, tirx.IntImm) and rows.value < _MIN_ROWS_TO_CHUNK
    # The tiles of columns run in parallel.
    has_few_tiles = not isinstance(columns, tirx.IntImm) or columns.value < 8 * tile.columns
    chunks = [steps * at_once for steps in _CHUNK_STEPS]
    if depth.value < 2 * chunks[0] or has_few_rows or has_few_tiles:
        return None
    return next((chunk for chunk in chunks if depth.value % chunk == 0), None)
