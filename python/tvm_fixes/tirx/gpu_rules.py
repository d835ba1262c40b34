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
"""The schedule rules for the kernels of a GPU."""

import math

import tvm
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.dlight import ScheduleRule, gpu, normalize_prim_func, try_inline
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.dlight.analysis.common_analysis import get_sblockrealize
from tvm.s_tir.schedule import LoopRV, ScheduleError
from tvm.sym import Analyzer

from ..target.gpu import limits_of
from .gpu_elementwise import Elementwise
from .gpu_kernel import contains_threads, in_one_thread
from .gpu_tensor_cores import TensorCores
from .initial_values import set_initial_values
from .loop_nest import offset_of, substitute, uses
from .util import contains, count_of, item_bytes_of

MAX_THREADS = 256
"""The threads of a block: few, so that a small output is spread over the GPU."""

_WARP = 32

# The results of a reduction that fill a large GPU with a thread each.
_MANY = 1 << 14

# What the threads of a warp may read at once, in lines of memory.
_LINE_BYTES = 128
_MAX_LINES = 8


def stock_rules() -> list[ScheduleRule]:
    """The rules of TVM's own pipeline in the order in which they are tried."""
    return [gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback()]


def gpu_rules(target: tvm.target.Target) -> list[ScheduleRule]:
    """The rules for a GPU in the order in which they are tried; the last takes every kernel."""
    _, gemv, *reductions, _ = stock_rules()
    rules = [Matmul(), gemv, ManyElements(), *reductions]
    return [Elementwise(), TensorCores(), *rules, ElementPerThread(), LaunchPerBlock(), OneThread()]


class ElementPerThread(ScheduleRule):
    """Each thread computes one element of the result, and what it needs for it, in registers.

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
        *producers, result = try_inline(schedule, blocks)
        spatial = _spatial_loops(schedule, result)
        for producer in reversed(producers):
            try:
                schedule.compute_at(producer.block_rv, spatial[-1])
            except ScheduleError:
                return None
            if not _is_computed_once(schedule, producer, result):
                return None
        for block in (*producers, result):
            _keep_in_registers(schedule, block, [])
        _bind(schedule, spatial, target)
        return Schedule(set_initial_values(schedule.mod["main"]))


class Matmul(gpu.Matmul):
    """TVM's rule, except for products that divide a position, such as transposed convolutions.

    It pads the product, and there reads such operands out of bounds.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        divisions = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
        schedule = Schedule(func)
        for block in normalize_prim_func(schedule) or []:
            reads = schedule.get(block.block_rv).reads if "R" in block.dom_kind() else []
            for region in (part for read in reads for part in read.region):
                if any(contains(region.min, kind, lambda _: True) for kind in divisions):
                    return None
        return super().apply(func, target, tunable)


class ManyElements(ElementPerThread):
    """Like :class:`ElementPerThread`, for reductions where neighboring threads read neighbors.

    Examples are poolings, and convolutions that are no matrix product.  TVM's rules for reductions
    use a block of threads per element of the result.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        blocks = normalize_prim_func(schedule) or []
        reductions = [block for block in blocks if "R" in block.dom_kind()]
        if len(reductions) != 1 or not _has_many_neighbors(schedule, reductions[0]):
            return None
        return super().apply(func, target, tunable)


def _has_many_neighbors(schedule: Schedule, reduction: SBlockInfo) -> bool:
    """Whether a reduction has many results, and the threads of a warp read few lines of memory."""
    block = schedule.get(reduction.block_rv)
    spatial = [v for v in block.iter_vars if v.iter_type == tirx.IterVar.DataPar]
    extents = [v.dom.extent for v in spatial]
    if not extents or not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return False
    if math.prod(map(int, extents)) < _MANY:
        return False
    *_, last = (v for v in spatial if int(v.dom.extent) > 1)
    origin = {v.var: tirx.const(0, v.var.ty.dtype) for v in block.iter_vars}
    analyzer = Analyzer()
    for region in block.reads:
        load = tirx.BufferLoad(region.source, [r.min for r in region.region])
        lines = set()
        for thread in range(min(_WARP, int(last.dom.extent))):
            place = origin | {last.var: tirx.const(thread, last.var.ty.dtype)}
            offset = analyzer.simplify(offset_of(substitute(load, place)))
            if not isinstance(offset, tirx.IntImm):
                return False
            lines.add(int(offset) * item_bytes_of(region.source) // _LINE_BYTES)
        if len(lines) > _MAX_LINES:
            return False
    return True


class LaunchPerBlock(ScheduleRule):
    """The blocks of a kernel run one after another, with their results in global memory.

    Each thread computes one element of a block.  One thread computes a block whose loops cannot be
    divided among threads; blocks that have threads of their own stay as they are.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        blocks = normalize_prim_func(schedule)
        if not blocks:
            return None
        blocks = try_inline(schedule, blocks)
        for block in blocks:
            if _has_threads(schedule, block):
                continue
            divided = schedule.copy()
            try:
                spatial = _spatial_loops(divided, block)
                _keep_in_registers(divided, block, [each for each in blocks if each is not block])
                _bind(divided, spatial, target)
            except ScheduleError:
                continue
            schedule = divided
        return Schedule(set_initial_values(in_one_thread(schedule.mod["main"])))


class OneThread(ScheduleRule):
    """One thread executes a kernel; statements that have threads of their own stay as they are."""

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> Schedule:
        """Schedule a kernel."""
        return Schedule(set_initial_values(in_one_thread(func)))


def _has_threads(schedule: Schedule, block: SBlockInfo) -> bool:
    """Whether a block runs in threads, or starts them."""
    loops = (schedule.get(loop) for loop in schedule.get_loops(block.block_rv))
    is_bound = any(loop.thread_binding is not None for loop in loops)
    return is_bound or contains_threads(schedule.get(block.block_rv).body)


def _spatial_loops(schedule: Schedule, block: SBlockInfo) -> list[LoopRV]:
    """The loops over the elements that a block computes; they become the outermost ones."""
    loops = schedule.get_loops(block.block_rv)
    kinds = block.dom_kind() if len(loops) == len(block.iters) else "O" * len(loops)
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    others = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != "S"]
    if not spatial:
        spatial = [schedule.add_unit_loop(block.block_rv)]
    schedule.reorder(*spatial, *others)
    return spatial


def _is_computed_once(schedule: Schedule, producer: SBlockInfo, result: SBlockInfo) -> bool:
    """Whether each thread computes an element of its own of a producer that it contains."""
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


def _keep_in_registers(schedule: Schedule, block: SBlockInfo, others: list[SBlockInfo]) -> None:
    """Keep what a block computes in registers, unless the kernel returns it or `others` read it."""
    allocated = schedule.get(schedule.get_sblock("root")).alloc_buffers
    read = [region.source for each in others for region in schedule.get(each.block_rv).reads]
    for index, region in enumerate(schedule.get(block.block_rv).writes):
        if region.source in allocated and region.source not in read:
            schedule.set_scope(block.block_rv, index, "local")


def _bind(schedule: Schedule, spatial: list[LoopRV], target: tvm.target.Target) -> None:
    """Divide the outermost loops among threads; neighbors differ in the innermost of them."""
    every = schedule.fuse(*spatial)
    extent = schedule.get(every).extent
    threads = min(MAX_THREADS, limits_of(target).threads)
    if isinstance(extent, tirx.IntImm):
        threads = min(threads, -(-max(int(extent), 1) // _WARP) * _WARP)
    outer, inner = schedule.split(every, [None, threads])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
