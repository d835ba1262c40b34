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
"""Schedules in which a GPU thread computes an element of the result."""

import tvm
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.dlight import ScheduleRule, normalize_prim_func, try_inline
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.dlight.analysis.common_analysis import get_sblockrealize
from tvm.s_tir.schedule import LoopRV, ScheduleError
from tvm.sym import Analyzer

from ..target.gpu import limits_of
from .gpu_kernel import contains_threads
from .initial_values import set_initial_values
from .loop_nest import uses
from .util import count_of

MAX_THREADS = 256
"""The threads per block: few, so that a small output is spread over the GPU."""

WARP = 32
"""The number of threads that execute an instruction together."""


class ElementPerThread(ScheduleRule):
    """Each thread computes one element of the result, and its operands, in registers.

    The rule does not apply if threads would repeat the work of others.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        blocks = normalize_prim_func(schedule)
        if not blocks or any("O" in block.dom_kind() for block in blocks):
            return None
        if contains_threads(func.body):
            return None
        if not compute_in_threads(schedule, blocks, target):
            return None
        return Schedule(set_initial_values(schedule.mod["main"]))


def compute_in_threads(
    schedule: Schedule, blocks: list[SBlockInfo], target: tvm.target.Target
) -> bool:
    """Let each thread compute an element of the last block, and the elements that it depends on.

    Returns
    -------
    bool
        False if threads would repeat the work of others; then, discard the schedule.
    """
    *producers, result = try_inline(schedule, blocks)
    spatial = spatial_loops(schedule, result)
    for producer in reversed(producers):
        try:
            schedule.compute_at(producer.block_rv, spatial[-1])
        except ScheduleError:
            return False
        if not _is_computed_once(schedule, producer, result):
            return False
    for block in (*producers, result):
        keep_in_registers(schedule, block, [])
    bind(schedule, spatial, target)
    return True


def spatial_loops(schedule: Schedule, block: SBlockInfo) -> list[LoopRV]:
    """Move the spatial loops of a block outermost; return them."""
    loops = schedule.get_loops(block.block_rv)
    kinds = block.dom_kind() if len(loops) == len(block.iters) else "O" * len(loops)
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    others = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != "S"]
    if not spatial:
        spatial = [schedule.add_unit_loop(block.block_rv)]
    schedule.reorder(*spatial, *others)
    return spatial


def keep_in_registers(schedule: Schedule, block: SBlockInfo, others: list[SBlockInfo]) -> None:
    """Keep the result of a block in registers, unless the kernel returns it or `others` read it."""
    allocated = schedule.get(schedule.get_sblock("root")).alloc_buffers
    read = [region.source for each in others for region in schedule.get(each.block_rv).reads]
    for index, region in enumerate(schedule.get(block.block_rv).writes):
        if region.source in allocated and region.source not in read:
            schedule.set_scope(block.block_rv, index, "local")


def bind(schedule: Schedule, spatial: list[LoopRV], target: tvm.target.Target) -> None:
    """Divide the outermost loops among threads; adjacent threads differ in the innermost one."""
    every = schedule.fuse(*spatial)
    extent = schedule.get(every).extent
    threads = min(MAX_THREADS, limits_of(target).threads)
    if isinstance(extent, tirx.IntImm):
        threads = min(threads, -(-max(int(extent), 1) // WARP) * WARP)
    outer, inner = schedule.split(every, [None, threads])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")


def _is_computed_once(schedule: Schedule, producer: SBlockInfo, result: SBlockInfo) -> bool:
    """Whether no two threads compute the same element of `producer`."""
    block = schedule.get(producer.block_rv)
    inner = [schedule.get(loop).loop_var for loop in schedule.get_loops(producer.block_rv)]
    outer = len([info for info in result.iters if info.kind == "S"])
    values = get_sblockrealize(schedule, producer.block_rv).iter_values
    for variable, value in zip(block.iter_vars, values, strict=True):
        if variable.iter_type == tirx.IterVar.DataPar and uses(value, inner[max(outer, 1) :]):
            return False
    counts = [
        count_of(tirx.convert(info.dom) for info in block.iters if info.kind == "S")
        for block in (result, producer)
    ]
    return bool(Analyzer().can_prove(counts[0] <= counts[1]))
