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
"""Schedules of matrix products."""

from tvm import s_tir, tirx

from ....attributes import PANEL, TILE
from ....tirx.dot_product import DotProduct
from ....tirx.parallel import parallelize
from ....tirx.register_tile import even_part, vectorize_in_powers_of_two
from .tiles import Tile

# The chunks and the sums of this many row tiles stay in the L2 cache.
_MAX_ROW_TILES_IN_L2 = 32
# A panel for fewer tiles of rows takes too long to pack.
_MIN_ROW_TILES = 8
# Enough tiles of columns to share the work among threads.
_ENOUGH_TILES = 16


def schedule(
    func: tirx.PrimFunc, tile: Tile, dot_product: DotProduct | None, *, panels: bool = False
) -> tirx.PrimFunc:
    """Compute `func`, the product and its output, tile by tile.

    Parameters
    ----------
    func : tirx.PrimFunc
        Its blocks are ``matmul``, ``out``, and with a chunk depth ``sum_of_parts``; ``in_tiles`` if
        the second operand is packed at run time, and ``dequantized`` if its chunks are dequantized.
    tile : Tile
    dot_product : DotProduct, optional
        The instruction that computes the sums; the innermost loop of ``matmul`` is over its depth.
    panels : bool
        Whether to pack the second operand in panels: a tile, or a chunk of it, just before rows are
        multiplied by it, which read it from the L1 or L2 cache.
    """
    of_kind = _schedule_whole if tile.depth is None else _schedule_in_chunks
    return of_kind(func, tile, dot_product, panels=panels)


def _schedule_whole(
    func: tirx.PrimFunc, tile: Tile, dot_product: DotProduct | None, *, panels: bool
) -> tirx.PrimFunc:
    """Compute tile by tile, rows innermost, so that the second operand is read once."""
    # TVM cannot prove that the tiles cover an unknown number of rows.
    sch = s_tir.Schedule(func, enable_check=False)
    acc, out = sch.get_sblock("matmul"), sch.get_sblock("out")
    *batch, row, column = sch.get_loops(out)
    rows, row = sch.split(row, [None, tile.rows])
    outer, inner = [*batch, rows], [row, column]
    if tile.columns is not None:
        columns, stream, column = sch.split(column, [None, tile.streams, tile.columns])
        outer, inner = [*batch, columns, rows], [stream, row, column]
    if panels:
        blocks, rows = _in_blocks(sch, rows, dot_product, columns)
        outer = [*batch, columns, *blocks, rows]
    sch.reorder(*outer, *inner)
    sch.compute_at(acc, outer[-1], preserve_unit_loops=True)
    if panels:
        outer = _pack_panels(sch, [*batch, columns], blocks)
    common = _order_sums(sch, acc, dot_product)
    if tile.streams > 1:
        *_, stream, _, _, _ = sch.get_loops(acc)[: -1 if dot_product is not None else None]
        sch.reorder(common, stream)
    parallelize(sch, outer)
    if not panels and (in_tiles := _find(sch, "in_tiles")) is not None:
        parallelize(sch, sch.get_loops(in_tiles)[:1])
    if tile.rows > 1:
        sch.unroll(row)
    sch.annotate(acc, TILE, tile.size)
    init = sch.decompose_reduction(acc, common)
    if tile.streams > 1:
        sch.unroll(stream)
        sch.unroll(sch.get_loops(init)[-3])
    if tile.columns is not None:
        _vectorize(sch, acc, dot_product)
        _vectorize(sch, init)
    return sch.mod["main"]


def _order_sums(
    sch: s_tir.Schedule, acc: s_tir.schedule.SBlockRV, dot_product: DotProduct | None
) -> s_tir.schedule.LoopRV:
    """Move the sums of a tile into the loop over the common axis; return that loop."""
    loops = sch.get_loops(acc)
    within = [] if dot_product is None else [loops.pop()]
    *_, row, column, common = loops
    sch.reorder(common, row, column, *within)
    return common


def _vectorize(
    sch: s_tir.Schedule, block: s_tir.schedule.SBlockRV, dot_product: DotProduct | None = None
) -> None:
    """Unroll the rows of a tile, and vectorize its columns."""
    loops = sch.get_loops(block)
    if dot_product is not None:
        loops.pop()
    *_, row, column = loops
    sch.unroll(row)
    if dot_product is None:
        vectorize_in_powers_of_two(sch, column)
    else:
        dot_product.tensorize(sch, column)


def _schedule_in_chunks(
    func: tirx.PrimFunc, tile: Tile, dot_product: DotProduct | None, *, panels: bool
) -> tirx.PrimFunc:
    """Compute one column tile after the other, and within it all rows of each chunk."""
    sch = s_tir.Schedule(func, enable_check=False)
    parts, acc, out = (sch.get_sblock(name) for name in ("matmul", "sum_of_parts", "out"))
    *batch, rows, columns, row, column, part = sch.get_loops(acc)
    blocks, rows = _in_blocks(sch, rows, dot_product, columns if panels else None)
    outer = [*batch, columns, *blocks]
    sch.reorder(*outer, part, rows, row, column)
    sch.compute_at(parts, rows, preserve_unit_loops=True)
    if (dequantized := _find(sch, "dequantized")) is not None:
        sch.compute_at(dequantized, part, preserve_unit_loops=True)
        vectorize_in_powers_of_two(sch, sch.get_loops(dequantized)[-1])
    in_parallel = _pack_panels(sch, [*batch, columns], blocks, part) if panels else [columns]
    common = _order_sums(sch, parts, dot_product)
    sch.reverse_compute_at(out, outer[-1], preserve_unit_loops=True)
    vectorize_in_powers_of_two(sch, sch.get_loops(out)[-1])
    sch.unroll(row)
    vectorize_in_powers_of_two(sch, column)
    parallelize(sch, in_parallel)
    sch.annotate(parts, TILE, tile.size)
    for block, loop in ((parts, common), (acc, part)):
        _vectorize(sch, sch.decompose_reduction(block, loop))
    _vectorize(sch, parts, dot_product)
    return sch.mod["main"]


def _pack_panels(
    sch: s_tir.Schedule,
    columns: list[s_tir.schedule.LoopRV],
    blocks: list[s_tir.schedule.LoopRV],
    part: s_tir.schedule.LoopRV | None = None,
) -> list[s_tir.schedule.LoopRV]:
    """Pack panels within loops over tiles of columns and blocks of rows.

    Returns
    -------
    list of LoopRV
        The loops that can run in parallel.
    """
    in_tiles = sch.get_sblock("in_tiles")
    is_once = bool(blocks) and _has_many(sch, columns[-1])
    outer = columns if is_once else [*columns, *blocks]
    loop = outer[-1] if is_once or part is None else part
    sch.compute_at(in_tiles, loop, preserve_unit_loops=True)
    sch.annotate(in_tiles, PANEL, 1)
    return outer


def _has_many(sch: s_tir.Schedule, columns: s_tir.schedule.LoopRV) -> bool:
    """Whether the tiles of columns are enough for the threads, without the blocks of rows."""
    extent = sch.get(columns).extent
    return not isinstance(extent, tirx.IntImm) or extent.value >= _ENOUGH_TILES


def _in_blocks(
    sch: s_tir.Schedule,
    rows: s_tir.schedule.LoopRV,
    dot_product: DotProduct | None,
    columns: s_tir.schedule.LoopRV | None,
) -> tuple[list[s_tir.schedule.LoopRV], s_tir.schedule.LoopRV]:
    """Split the loop over tiles of rows in blocks if there are known to be more than two.

    If panels are packed for few tiles of `columns`, smaller blocks share the work among threads.
    """
    tiles, limit = sch.get(rows).extent, 2 * _MAX_ROW_TILES_IN_L2
    if not isinstance(tiles, tirx.IntImm):
        return [], rows
    size = _tiles_of_block(tiles.value, dot_product)
    if columns is not None and not _has_many(sch, columns):
        wanted = -(-_ENOUGH_TILES // int(sch.get(columns).extent))
        size = even_part(tiles.value, min(max(tiles.value // wanted, _MIN_ROW_TILES), size))
        limit = size
    if tiles.value <= limit:
        return [], rows
    block, rows = sch.split(rows, [None, size])
    return [block], rows


def _tiles_of_block(tiles: int, dot_product: DotProduct | None) -> int:
    """The row tiles of a block; ``tensorize`` rejects a partial last block."""
    if dot_product is None:
        return even_part(tiles, _MAX_ROW_TILES_IN_L2)
    return max(count for count in range(1, _MAX_ROW_TILES_IN_L2 + 1) if tiles % count == 0)


def _find(sch: s_tir.Schedule, name: str) -> s_tir.schedule.SBlockRV | None:
    """The block called `name`; None if the schedule has no such block."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    return next((block for block in blocks if sch.get(block).name_hint == name), None)
