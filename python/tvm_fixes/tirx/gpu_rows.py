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
"""A schedule of reductions along short rows for a GPU."""

import math
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.dlight import ScheduleRule, normalize_prim_func, try_inline_contiguous_spatial
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ..target.gpu import limits_of
from .gpu_elementwise import load_at_once, store_at_once, vector_lanes
from .gpu_threads import WARP

# Longer rows keep all threads of a block busy.
_MAX_SHORT_ROW = 512

# With fewer rows, one thread block per row uses more of a large GPU.
_MIN_ROWS = 2048

_MAX_ROWS_PER_BLOCK = 8

# The threads of a long row. With few rows, several warps per multiprocessor hide delays better.
_THREADS = (256, 128, 64, 32)
_FEW_ROWS = 1024
_MIN_THREADS_OF_FEW_ROWS = 64

# The maximum number of vectors per thread, which are unrolled.
_MAX_VECTORS = 16


@dataclass(frozen=True)
class _Division:
    """How threads divide rows.

    Attributes
    ----------
    rows : int
        The maximum number of rows per thread block.
    threads : int
        The number of threads per row.
    lanes : int
        The number of adjacent elements that a thread loads and stores at once.
    """

    rows: int
    threads: int
    lanes: int


class WarpPerRow(ScheduleRule):
    """A warp reduces a short row, as in a softmax, and computes the elements of the row.

    TVM's rules use a block of 256 threads or more per row.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        blocks = _blocks_of_rows(schedule)
        if blocks is None:
            return None
        *leading, row = (each.dom for each in blocks[-1].iters)
        if not WARP <= row <= _MAX_SHORT_ROW or math.prod(leading) < _MIN_ROWS:
            return None
        lanes = _lanes(schedule, blocks)
        while row % (lanes * WARP) and lanes > 1:
            lanes //= 2
        return _divided(schedule, blocks, _Division(_MAX_ROWS_PER_BLOCK, WARP, lanes))


class BlockPerRow(ScheduleRule):
    """A thread block reduces a long row, and its threads load and store 16 bytes at once.

    TVM's rules load an element at once. This one applies to rows that threads divide evenly.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        blocks = _blocks_of_rows(schedule)
        if blocks is None or blocks[-1].iters[-1].dom <= _MAX_SHORT_ROW:
            return None
        division = _division_of_long_rows(schedule, blocks)
        return None if division is None else _divided(schedule, blocks, division)


class OneResult(ScheduleRule):
    """A thread block reduces all elements to one result, as in a mean or variance of a tensor.

    TVM's rules do so in one thread if another operator is fused with the reduction.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        blocks = normalize_prim_func(schedule)
        blocks = try_inline_contiguous_spatial(schedule, blocks) if blocks else None
        if not blocks or not any("R" in block.dom_kind() for block in blocks):
            return None
        if any(each.dom != 1 for block in blocks for each in block.iters if each.kind != "R"):
            return None
        *producers, result = (block.block_rv for block in blocks)
        grid = schedule.add_unit_loop([*schedule.get_loops(result), result][0])
        schedule.bind(grid, "blockIdx.x")
        for producer in reversed(producers):
            for index in range(len(schedule.get(producer).writes)):
                schedule.set_scope(producer, index, "shared")
            schedule.compute_at(producer, grid, preserve_unit_loops=True)
        for block in blocks:
            count = len([each for each in block.iters if each.kind == "R"])
            # One thread computes a block without a reduction.
            loops = schedule.get_loops(block.block_rv)[-count:] if count else []
            every = schedule.fuse(*loops) if loops else schedule.add_unit_loop(block.block_rv)
            _, thread = schedule.split(every, [None, limits_of(target).threads])
            schedule.bind(thread, "threadIdx.x")
        return schedule


def _division_of_long_rows(schedule: Schedule, blocks: list[SBlockInfo]) -> _Division | None:
    """The division with the longest vectors; None if elements would be loaded singly."""
    *leading, row = (each.dom for each in blocks[-1].iters)
    least = _MIN_THREADS_OF_FEW_ROWS if math.prod(leading) < _FEW_ROWS else WARP
    lanes = _lanes(schedule, blocks)
    while lanes > 1:
        for threads in _THREADS:
            vectors, rest = divmod(row, threads * lanes)
            if rest == 0 and threads >= least and vectors <= _MAX_VECTORS:
                return _Division(1, threads, lanes)
        lanes //= 2
    return None


def _lanes(schedule: Schedule, blocks: list[SBlockInfo]) -> int:
    """The number of adjacent elements of a row that each block can load and store at once."""
    return min(vector_lanes(schedule.get(block.block_rv)) for block in blocks)


def _divided(schedule: Schedule, blocks: list[SBlockInfo], division: _Division) -> Schedule:
    *producers, result = (block.block_rv for block in blocks)
    *leading, column = schedule.get_loops(result)
    row = _split_rows(schedule, leading, division.rows)
    schedule.bind(schedule.fuse(*leading), "blockIdx.x")
    schedule.bind(row, "threadIdx.y")
    schedule = _bind_threads(schedule, result, column, division)
    if division.lanes > 1:
        *_, part, vector = schedule.get_loops(result)
        store_at_once(schedule, result, part)
        # TVM vectorizes only some functions, so only the copies to and from registers are vectors.
        schedule.unroll(vector)
    # Every lane of a warp has the result of a reduction.  Threads of several warps read it from
    # shared memory: TVM's own copy there is volatile, so that each element would load it again.
    scope = "local" if division.threads == WARP else "shared"
    for producer in reversed(producers):
        for index in range(len(schedule.get(producer).writes)):
            schedule.set_scope(producer, index, scope)
        schedule.compute_at(producer, row, preserve_unit_loops=True)
        schedule = _bind_threads(schedule, producer, schedule.get_loops(producer)[-1], division)
    return schedule


def _split_rows(schedule: Schedule, leading: list[LoopRV], rows: int) -> LoopRV:
    """Split one of the `leading` loops by the number of rows per thread block, at most `rows`.

    This is the loop with the largest suitable factor. The fused loops may have a larger one, but
    TVM could not compute the other blocks inside a part of a fused loop.
    """
    factors = [
        max(f for f in range(1, rows + 1) if int(schedule.get(loop).extent) % f == 0)
        for loop in leading
    ]
    # Among equals, the last loop, whose rows are closest in memory.
    divided = len(factors) - 1 - factors[::-1].index(max(factors))
    leading[divided], row = schedule.split(leading[divided], [None, factors[divided]])
    schedule.reorder(*leading, row)
    return row


def _bind_threads(
    schedule: Schedule, block: SBlockRV, column: LoopRV, division: _Division
) -> Schedule:
    """Divide a loop along a row among threads; adjacent threads get adjacent elements."""
    part, thread, vector = schedule.split(column, [None, division.threads, division.lanes])
    schedule.reorder(thread, part, vector)
    schedule.bind(thread, "threadIdx.x")
    return load_at_once(schedule, block, part, division.lanes) if division.lanes > 1 else schedule


def _blocks_of_rows(schedule: Schedule) -> list[SBlockInfo] | None:
    """The blocks of a kernel that reduce rows, and one that computes elements of such rows."""
    blocks = normalize_prim_func(schedule)
    blocks = try_inline_contiguous_spatial(schedule, blocks) if blocks else None
    if not blocks:
        return None
    *reductions, result = blocks
    kind = "S" * (len(result.iters) - 1) + "R"
    if not reductions or not result.is_injective() or len(kind) < 2:
        return None
    if any(each.dom_kind() != kind for each in reductions):
        return None
    shape, *shapes = [[each.dom for each in block.iters] for block in blocks]
    if any(not isinstance(extent, int) for extent in shape) or any(s != shape for s in shapes):
        return None
    return blocks
