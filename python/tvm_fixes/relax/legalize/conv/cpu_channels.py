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
"""CPU schedule of a convolution with vectors of output channels."""

import math
from dataclasses import dataclass
from typing import cast

import tvm
from tvm import s_tir, tirx
from tvm.sym import Analyzer

from ....attributes import LAST_COLUMNS, TILE
from ....target.cpu import Cpu
from ....tirx.dot_product import DotProduct
from ....tirx.parallel import parallelize
from ....tirx.register_tile import max_columns
from ....tirx.util import divides, is_one
from ...layouts import Layout
from .compute import COPIED_COLUMNS, Convolution, Tile

# The sums that hide the latency of a multiply-add: it takes four cycles, and two issue per cycle.
_MIN_SUMS = 8

# The numbers of columns that are likely, if the number is unknown: most networks halve 224 or 256.
_LIKELY_COLUMNS = (7, 8, 14, 16, 28, 32, 56, 64, 112, 128)
_MANY_COLUMNS = 1024

# A vector of the kernel comes from the L2 cache, which takes twice as long as from the L1 cache.
_LOADS_OF_KERNEL = 2

# The columns of a tile without vectors: all their channels stay in the L1 cache, and in NCHW they
# share a cache line.
_SCALAR_COLUMNS = 8


@dataclass(frozen=True)
class TileOfChannels:
    """The extents of a :class:`Tile`: columns, and vectors of channels."""

    columns: int
    channels: int
    vectors: int = 1


def max_vector_bytes(cpu: Cpu) -> int:
    """The maximum size of a vector of sums: two registers, but at most a cache line."""
    return min(2 * cpu.vector_bytes, cpu.cache_line_bytes)


def choose_tile_of_channels(
    cpu: Cpu,
    dtype: str,
    columns: tirx.Expr,
    channels: tirx.Expr,
    *,
    phases: int,
    may_pad: bool,
    max_vectors: int = 1,
) -> TileOfChannels:
    """Choose the columns and channels of a :class:`Tile`.

    A vector of channels takes up to two registers, but at most a cache line.

    Parameters
    ----------
    cpu : Cpu
    dtype : str
        The dtype of the sums.
    columns, channels : tirx.Expr
        The extents of the output: its columns, and the channels to vectorize.
    phases : int
        The phases of the columns, as in :class:`SpatialAxis`.  If possible, all tiles begin with
        the same phase.
    may_pad : bool
        Whether the last vector may be padded.
    max_vectors : int
        The maximum number of vectors that share an element of the data.

    Returns
    -------
    TileOfChannels
        With 1 channel if no vector length suits them.
    """
    vector_bytes = max_vector_bytes(cpu)
    extent = int(columns) if isinstance(columns, tirx.IntImm) else None
    element_bytes = max(tvm.DataType(dtype).bits // 8, 4)
    lanes, register_lanes = vector_bytes // element_bytes, cpu.vector_bytes // element_bytes
    vector = _vector(channels, lanes, register_lanes, may_pad=may_pad)
    if vector == 1:
        return TileOfChannels(
            _SCALAR_COLUMNS if extent is None else min(_SCALAR_COLUMNS, extent), 1
        )
    vector_bytes = vector * vector_bytes // lanes
    registers = -(-vector_bytes // cpu.vector_bytes)
    best, least = TileOfChannels(1, vector), math.inf
    for vectors in range(1, max_vectors + 1):
        count = -(-int(channels) // vector) if isinstance(channels, tirx.IntImm) else max_vectors
        if count % vectors:
            continue
        # The operands are an element of the data and a vector of the kernel.
        limit = max_columns(
            cpu,
            accumulator_bytes=vectors * vector_bytes,
            other_operands=1 + vectors * registers,
            parts=vectors,
        )
        tile_columns, time = _columns(extent, limit, vectors * registers, phases)
        time *= count // vectors
        if time < least:
            best, least = TileOfChannels(tile_columns, vector, vectors), time
    return best


def _vector(channels: tirx.Expr, lanes: int, register_lanes: int, *, may_pad: bool) -> int:
    """The channels of a vector: `lanes` or half of that; 1 if neither suits."""
    vectors = (lanes, lanes // 2)
    if not may_pad or not isinstance(channels, tirx.IntImm):
        return next((vector for vector in vectors if divides(vector, channels)), 1)

    def cost(vector: int) -> tuple[int, int]:
        """The registers that are computed, each in the same time, and the channels stored."""
        count = -(-channels.value // vector)
        return count * -(-vector // register_lanes), count * vector

    return min(vectors, key=cost)


def _columns(extent: int | None, limit: int, registers: int, phases: int) -> tuple[int, float]:
    """The columns of `extent` to sum at once, at most `limit`, and the time that one takes.

    The sums of a column are in `registers` registers. The time of a step of a tile is the maximum
    of its sums, its loads and :data:`_MIN_SUMS` sums, plus overhead: most CPUs issue two
    multiply-adds and two loads per cycle. The last tile is computed whole. If the extent is
    unknown, the time is the sum of those for :data:`_LIKELY_COLUMNS`; with several phases, the last
    tile is not computed apart, and a tile has at most :data:`_MIN_SUMS` sums.
    """
    extents = _LIKELY_COLUMNS if extent is None else (extent,)
    if extent is None and phases > 1:
        limit = min(limit, math.lcm(-(-_MIN_SUMS // registers), phases))
        extents = (_MANY_COLUMNS,)

    def time(columns: int) -> float:
        loads = columns + _LOADS_OF_KERNEL * registers
        step = max(columns * registers, loads, _MIN_SUMS) + 1
        return step * sum(-(-count // columns) / count for count in extents)

    limit = min(limit, max(extents))
    columns = min(range(phases, limit + 1, phases) or range(1, limit + 1), key=time)
    return columns, time(columns)


def schedule_channels(
    func: tirx.PrimFunc,
    convolution: Convolution,
    data: dict[str, tirx.Expr],
    kernel: dict[str, tirx.Expr],
    cpu: Cpu,
) -> tirx.PrimFunc:
    """Order the loops of `convolution`, and run the outermost ones in parallel.

    Parameters
    ----------
    func : tirx.PrimFunc
        Made from :meth:`Convolution.compute`, with a non-empty output.
    data, kernel : dict of str to tirx.Expr
        The extent of each axis of its arguments.
    cpu : Cpu

    Returns
    -------
    tirx.PrimFunc
        The scheduled function. If `convolution` has a tile, the output is computed tile by tile, in
        a buffer of that size.
    """
    # TVM cannot prove that whole tiles cover an unknown number of columns.
    sch = s_tir.Schedule(func, enable_check=False)
    block = sch.get_sblock("convolution")
    loops = sch.get_loops(block)
    layout, out_extent = convolution.out_layout, convolution.out_extent(data, kernel)
    dot_product = convolution.multiply_accumulate.dot_product
    within = [] if dot_product is None else [loops.pop()]
    reduction_count = len(convolution.spatial) + 1
    outer, reductions = loops[:-reduction_count], loops[-reduction_count:]
    vectors = 1 if convolution.tile is None else convolution.tile.vectors
    # The sums of several vectors have an axis for the lanes.
    lane = [outer.pop()] if vectors > 1 else []
    *outer, column, channel = outer
    if convolution.tile is None:
        outer.append(column)
        _write_out(sch, block, column, layout, out_extent)
        parallelize(sch, outer)
        return sch.mod["main"]

    vector = convolution.tile.channels
    tile, column = sch.split(
        column, [None, convolution.tile.columns], disable_predication=vector > 1
    )
    channels = [channel]
    groups = convolution.groups
    if groups > 1 and not Analyzer().can_prove_equal(out_extent["C"], groups):
        # One group at a time, so that the innermost loop reads a single input channel.
        channels = sch.split(channel, [groups, None])
    if vector > 1:
        at_once = vectors if lane else vector
        channels = [*channels[:-1], *sch.split(channels[-1], [None, at_once])]
        if not sch.get_consumers(block):
            sch.cache_write(block, 0, "global")
    *channel_tiles, channel = channels
    by_vector = vector > 1 and vector % layout.blocks.get("C", 1) == 0
    order = [*outer, tile, *channel_tiles]
    copies_data = convolution.copies_data(data, kernel)
    if copies_data:
        is_interleaved = "C" in convolution.copy_layout(data, kernel).blocks
        _schedule_copy(sch, convolution.data_layout, is_interleaved=is_interleaved)
    row_by_row = copies_data and _exceeds_cache(data, kernel, cpu)
    if by_vector and _reads_own_block(convolution, out_extent):
        # Each block of channels reads one block of the data, from front to back.
        order = outer = [outer[0], *channel_tiles, *outer[1:], tile]
    elif by_vector and row_by_row and len(outer) > 1:
        # Compute all channels of an output row while the data that they read is in the cache.
        order = [*outer, *channel_tiles, tile]
    elif by_vector and not row_by_row and (copies_data or _elements(kernel) > _elements(data)):
        # The data stays in the cache, and the kernel is read once.
        order = outer = [*channel_tiles, *outer, tile]
        is_static = [isinstance(sch.get(loop).extent, tirx.IntImm) for loop in outer]
        if len(channel_tiles) == 1 and is_static[0] and not is_static[1]:
            # parallelize() fuses these two loops: TVM takes seconds for a kernel whose indices are
            # quotients of an unknown batch.
            order = outer = [outer[1], outer[0], *outer[2:]]
    elif len(outer) == 1:
        outer = [*outer, tile]  # in 1-D there are no rows
    sch.reorder(*order, *reductions, column, channel, *lane, *within)
    is_vectorized = by_vector and _writes_vectors(convolution, out_extent)
    loop = order[-1] if by_vector else tile
    _write_out(sch, block, loop, layout, out_extent, convolution.tile, is_vectorized=is_vectorized)
    # If the channel loops are fused with others, TVM cannot prove that a vector is in one group.
    has_vectors = len(channel_tiles) > 1 and not is_one(sch.get(channel_tiles[-1]).extent)
    is_apart = has_vectors and outer[0].same_as(channel_tiles[0])
    outer = outer[len(channel_tiles) :] if is_apart else outer
    is_fused = any(loop.same_as(tile) for loop in outer[:2])  # by parallelize()
    if vector > 1 and not is_fused and not isinstance(sch.get(tile).extent, tirx.IntImm):
        sch.annotate(tile, LAST_COLUMNS, _last_columns(convolution, cpu))
    parallelize(sch, outer)
    if vector > 1:
        loops = [column, channel, *lane]
        _keep_in_registers(sch, block, loops, reductions[0], dot_product)
    else:
        sch.decompose_reduction(block, reductions[0])
    return sch.mod["main"]


def _last_columns(convolution: Convolution, cpu: Cpu) -> int:
    """The columns of a smaller last tile: half of a tile if its sums still hide the latency."""
    tile = cast(Tile, convolution.tile)
    bits = tvm.DataType(convolution.multiply_accumulate.accumulator).bits
    registers = tile.vectors * -(-tile.channels * bits // (8 * cpu.vector_bytes))
    half = tile.columns // 2
    return half if half * registers >= _MIN_SUMS else tile.columns


def _reads_own_block(convolution: Convolution, out_extent: dict[str, tirx.Expr]) -> bool:
    """Whether a convolution is depthwise and the channels of its data are in blocks."""
    is_depthwise = convolution.groups > 1 and Analyzer().can_prove_equal(
        out_extent["C"], convolution.groups
    )
    return is_depthwise and "C" in convolution.data_layout.blocks


def _keep_in_registers(
    sch: s_tir.Schedule,
    block: s_tir.schedule.SBlockRV,
    tile: list[s_tir.schedule.LoopRV],
    reduction: s_tir.schedule.LoopRV,
    dot_product: DotProduct | None,
) -> None:
    """Unroll the loops of a tile except for the last one, over the channels of a vector."""
    *unrolled, lane = tile
    sch.annotate(block, TILE, math.prod(int(sch.get(loop).extent) for loop in tile))
    for loop in unrolled:
        sch.unroll(loop)
    if dot_product is None:
        sch.vectorize(lane)
    init = sch.decompose_reduction(block, reduction)
    if dot_product is not None:
        dot_product.tensorize(sch, lane)
    *unrolled, lane = sch.get_loops(init)[-len(tile) :]
    for loop in unrolled:
        sch.unroll(loop)
    sch.vectorize(lane)


def _schedule_copy(sch: s_tir.Schedule, layout: Layout, *, is_interleaved: bool) -> None:
    """Copy the data: read along a row of each channel, and write several channels at a time."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    copies = [block for block in blocks if sch.get(block).name_hint == "padded"]
    if not copies:  # the kernel or the data is empty
        return
    *rows, column, channel = sch.get_loops(copies[0])
    if is_interleaved:
        sch.unroll(channel)
        parallelize(sch, rows)
        return
    if len(rows) == 1:  # in 1-D
        part, column = sch.split(column, [None, COPIED_COLUMNS])
        rows.append(part)
    if layout.axes[-1][0] != "C":
        counts = [layout.blocks["C"]] if layout.axes[-1][0] == "c" else [16, 8, 4]
        extent = sch.get(channel).extent
        count = next((count for count in counts if divides(count, extent)), 1)
        if count > 1:
            channels, channel = sch.split(channel, [None, count])
            sch.reorder(*rows, channels, column, channel)
            # Otherwise LLVM vectorizes the columns and scatters their elements.
            sch.vectorize(channel)
    parallelize(sch, rows)


def _writes_vectors(convolution: Convolution, out_extent: dict[str, tirx.Expr]) -> bool:
    """Whether each tile is whole along the innermost axis of the output."""
    innermost = convolution.out_layout.axes[-1][0].upper()
    if convolution.tile is None or innermost not in ("C", list(convolution.spatial)[-1]):
        return False
    if innermost == "C":
        return convolution.tile.padding == 0
    return divides(convolution.tile.columns, out_extent[innermost])


def _exceeds_cache(data: dict[str, tirx.Expr], kernel: dict[str, tirx.Expr], cpu: Cpu) -> bool:
    """Whether the data is larger than the kernel and, in float32, than the L2 cache."""
    return _elements(data) > max(cpu.l2_bytes // 4, _elements(kernel))


def _elements(extents: dict[str, tirx.Expr]) -> int:
    """The number of elements; 0 if it is unknown."""
    if not all(isinstance(extent, tirx.IntImm) for extent in extents.values()):
        return 0
    return math.prod(int(extent) for extent in extents.values())


def _write_out(
    sch: s_tir.Schedule,
    block: s_tir.schedule.SBlockRV,
    loop: s_tir.schedule.LoopRV,
    layout: Layout,
    out_extent: dict[str, tirx.Expr],
    tile: Tile | None = None,
    *,
    is_vectorized: bool = False,
) -> None:
    """Write the sums of `block` to the output; inside `loop` if they fill whole layout blocks.

    Each of several vectors of a tile is written on its own.  With `is_vectorized`, a tile whose
    channels are not innermost is transposed in registers.
    """
    is_apart = set(layout.blocks) - {"C"} or layout.has_padding(out_extent)
    has_vectors = tile is not None and tile.vectors > 1
    for consumer in sch.get_consumers(block):
        if not is_apart:
            sch.reverse_compute_at(consumer, loop, preserve_unit_loops=has_vectors)
            if has_vectors:
                channel = sch.get_loops(consumer)[layout.letters.index("C") - len(layout.letters)]
                if tile is not None and "C" not in layout.blocks:
                    channel, _ = sch.split(channel, [None, tile.channels])
                sch.unroll(channel)
            if is_vectorized:
                sch.vectorize(sch.get_loops(consumer)[-1])
        else:
            parallelize(sch, sch.get_loops(consumer)[:-1])
