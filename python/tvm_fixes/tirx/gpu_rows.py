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

import tvm
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.dlight import ScheduleRule, normalize_prim_func, try_inline_contiguous_spatial
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import LoopRV

from .gpu_threads import WARP

# Longer rows keep all threads of a block busy.
_MAX_ROW = 512

# With fewer rows, one thread block per row uses more of a large GPU.
_MIN_ROWS = 2048

_MAX_ROWS_PER_BLOCK = 8


class WarpPerRow(ScheduleRule):
    """A warp reduces a short row, as in a softmax, and computes the elements of the row.

    TVM's rules use a block of 256 threads or more per row.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        blocks = normalize_prim_func(schedule)
        blocks = try_inline_contiguous_spatial(schedule, blocks) if blocks else None
        if not blocks or not _have_short_rows(blocks):
            return None
        *producers, result = (block.block_rv for block in blocks)
        *leading, column = schedule.get_loops(result)
        row = _divide(schedule, leading)
        schedule.bind(schedule.fuse(*leading), "blockIdx.x")
        schedule.bind(row, "threadIdx.y")
        _bind_lanes(schedule, column)
        for producer in reversed(producers):
            for index in range(len(schedule.get(producer).writes)):
                # Every lane has the result of a reduction across lanes.
                schedule.set_scope(producer, index, "local")
            schedule.compute_at(producer, row, preserve_unit_loops=True)
            _bind_lanes(schedule, schedule.get_loops(producer)[-1])
        return schedule


def _divide(schedule: Schedule, leading: list[LoopRV]) -> LoopRV:
    """Split one of the `leading` loops by the number of rows per thread block.

    This is the loop with the largest suitable factor. The fused loops may have a larger one, but
    TVM could not compute the other blocks inside a part of a fused loop.
    """
    factors = [
        max(f for f in range(1, _MAX_ROWS_PER_BLOCK + 1) if int(schedule.get(loop).extent) % f == 0)
        for loop in leading
    ]
    # Among equals, the last loop, whose rows are closest in memory.
    divided = len(factors) - 1 - factors[::-1].index(max(factors))
    leading[divided], row = schedule.split(leading[divided], [None, factors[divided]])
    schedule.reorder(*leading, row)
    return row


def _bind_lanes(schedule: Schedule, column: LoopRV) -> None:
    """Divide a loop along a row among the lanes of a warp; adjacent lanes get adjacent elements."""
    part, lane = schedule.split(column, [None, WARP])
    schedule.reorder(lane, part)
    schedule.bind(lane, "threadIdx.x")


def _have_short_rows(blocks: list[SBlockInfo]) -> bool:
    """Whether blocks reduce many short rows, and the last one computes elements of such rows."""
    *reductions, result = blocks
    kind = "S" * (len(result.iters) - 1) + "R"
    if not reductions or not result.is_injective() or len(kind) < 2:
        return False
    if any(each.dom_kind() != kind for each in reductions):
        return False
    shape, *shapes = [[each.dom for each in block.iters] for block in blocks]
    if any(not isinstance(extent, int) for extent in shape) or any(s != shape for s in shapes):
        return False
    *leading, row = shape
    return WARP <= row <= _MAX_ROW and math.prod(leading) >= _MIN_ROWS
