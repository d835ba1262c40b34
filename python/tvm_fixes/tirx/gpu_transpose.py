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
"""The schedule rule for kernels of a GPU that transpose a tensor: tiles in shared memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.dlight import ScheduleRule
from tvm.s_tir.schedule import SBlockRV

from .gpu_elementwise import accesses_of, conditions_of, load_at_once, only_block, store_at_once
from .util import item_bytes_of

_MAX_THREADS = 256
_MIN_THREADS = 64

# The longest side of a tile, and that of a tile of a small tensor.
_SIDES = (64, 32)
_MIN_SIDE = 16

# An axis without a suitable divisor is the side of a tile as a whole, up to this length.
_MAX_WHOLE_SIDE = 256
_MAX_TILE_BYTES = 32 << 10

# The thread blocks that fill a large GPU, and those from which tiles are faster.
_MANY_BLOCKS, _MIN_BLOCKS = 256, 64

# A thread accesses such a word at once, so a warp accesses a cache line.
_WORD_BYTES, _LINE_BYTES = 4, 128


@dataclass(frozen=True)
class _Tile:
    """The part of the result that a thread block computes.

    Attributes
    ----------
    sides : list of int
        The extent along each axis of the block.
    reads : dict of int to int
        The transposed reads by index, with the axis of each that becomes the last one.
    threads : int
        The number of threads.
    lanes : int
        The number of elements that a thread accesses at once.
    """

    sides: list[int]
    reads: dict[int, int]
    threads: int
    lanes: int


class Transpose(ScheduleRule):
    """A thread block copies a tile to shared memory, and reads it there along another axis.

    The rule applies to a kernel without reductions whose steps can be inlined into one, if the last
    axis of an operand is not the last axis of the result. Both are then accessed by cache lines.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        block = only_block(schedule)
        tile = None if block is None else _tile_of(schedule.get(block))
        if tile is None:
            return None
        loops = schedule.get_loops(block)
        pairs = [schedule.split(loop, [None, n]) for loop, n in zip(loops, tile.sides, strict=True)]
        outer, inner = ([pair[i] for pair in pairs] for i in range(2))
        schedule.reorder(*outer, *inner)
        grid = schedule.fuse(*outer)
        schedule.bind(grid, "blockIdx.x")
        copies = [schedule.cache_read(block, read, "shared", [block]) for read in tile.reads]
        for copy, axis in zip(copies, tile.reads.values(), strict=True):
            schedule.compute_at(copy, grid)
            # With such a distance, the threads of a warp read from different banks.
            line = _LINE_BYTES // item_bytes_of(schedule.get(copy).writes[0].source)
            schedule.storage_align(copy, 0, axis, line, 1)
        schedule = _bind_threads(schedule, block, tile)
        if tile.lanes > 1:
            *_, threads, _vector = schedule.get_loops(block)
            store_at_once(schedule, block, threads)
        for copy in copies:
            schedule = _bind_threads(schedule, copy, tile)
        return schedule


def _bind_threads(schedule: Schedule, block: SBlockRV, tile: _Tile) -> Schedule:
    """Divide the elements of a tile among threads; adjacent threads get adjacent elements."""
    _grid, *others, last = schedule.get_loops(block)
    last, vector = schedule.split(last, [None, tile.lanes])
    _, threads = schedule.split(schedule.fuse(*others, last), [None, tile.threads])
    schedule.bind(threads, "threadIdx.x")
    schedule.unroll(vector)
    return load_at_once(schedule, block, threads, tile.lanes) if tile.lanes > 1 else schedule


def _tile_of(block: SBlock) -> _Tile | None:
    """The tile for a block; None if it transposes nothing, or other rules are faster."""
    extents = [iter_var.dom.extent for iter_var in block.iter_vars]
    reads = _transposed_reads(block)
    if not reads or not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    buffers = [block.body.buffer, *(block.reads[read].source for read in reads)]
    widths = {item_bytes_of(buffer) for buffer in buffers}
    rows = {axes[-2:][::-1] for axes in reads.values()}
    # TVM's vectors of bool have two bytes per element.
    if len(rows) > 1 or len(widths) > 1 or "bool" in {str(buffer.dtype) for buffer in buffers}:
        return None
    (row, *before), (width,) = rows.pop(), widths
    shape = list(map(int, extents))
    # Short rows that follow one another in memory are one row of the tile.
    joined = before[0] if before == [row - 1] else None
    longest, shorter = (_sides(shape, row, joined, side) for side in _SIDES)
    sides = longest
    if longest is None or math.prod(shape) < math.prod(longest) * _MANY_BLOCKS:
        sides = shorter
    if sides is None:
        return None
    elements = math.prod(sides)
    if math.prod(shape) < elements * _MIN_BLOCKS or elements * width > _MAX_TILE_BYTES:
        return None
    lanes = max(1, _WORD_BYTES // width)
    if any(side % lanes for side in (sides[row], sides[-1])):
        lanes = 1
    vectors = elements // lanes
    threads = max(n for n in range(1, _MAX_THREADS + 1) if vectors % n == 0)
    columns = {read: axes.index(len(shape) - 1) for read, axes in reads.items()}
    return _Tile(sides, columns, threads, lanes) if threads >= _MIN_THREADS else None


def _transposed_reads(block: SBlock) -> dict[int, tuple[int, ...]]:
    """The axis of the block for each axis of a read, for the transposed reads by their index."""
    variables = [iter_var.var for iter_var in block.iter_vars]
    accesses = accesses_of(block.body)
    if not accesses or conditions_of(block.body):
        return {}
    stored, *loaded = ([_axis(index, variables) for index in each.indices] for each in accesses)
    last = len(variables) - 1
    if not isinstance(block.body, tirx.BufferStore) or stored[-1] != last:
        return {}
    first_axes = {}
    for read, region in enumerate(block.reads):
        axes = {
            tuple(axes)
            for axes, access in zip(loaded, accesses[1:], strict=True)
            if access.source.same_as(region.source)
        }
        first = [axis for axis in axes.pop() if axis is not None] if len(axes) == 1 else []
        is_permuted = len(first) == len(region.region) == len(set(first))
        if is_permuted and last in first[:-1]:
            first_axes[read] = tuple(first)
    return first_axes


def _axis(index: tirx.Expr, variables: Sequence[tirx.Var]) -> int | None:
    """The position of an index among the variables; None if it is not one of them."""
    return next((i for i, variable in enumerate(variables) if index.same_as(variable)), None)


def _sides(shape: list[int], row: int, joined: int | None, longest: int) -> list[int] | None:
    """The sides of a tile of rows and columns; None if an axis has no suitable part."""
    of_row, of_column = (_side(shape[axis], longest) for axis in (row, len(shape) - 1))
    if of_row is None or of_column is None:
        return None
    sides = [1] * len(shape)
    sides[row], sides[-1] = of_row, of_column
    if joined is not None and sides[row] == shape[row]:
        fitting = (n for n in range(longest // sides[row], 0, -1) if shape[joined] % n == 0)
        sides[joined] = next(fitting, 1)
    return sides


def _side(extent: int, longest: int) -> int | None:
    """The longest divisor of an extent up to a limit; the extent if that is too short."""
    divisor = max(n for n in range(1, longest + 1) if extent % n == 0)
    if divisor >= min(_MIN_SIDE, extent):
        return divisor
    return extent if extent <= _MAX_WHOLE_SIDE else None
