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
from tvm.s_tir.schedule import ScheduleError
from tvm.sym import Analyzer

from .gpu_elementwise import Elementwise
from .gpu_kernel import contains_threads, in_one_thread
from .gpu_rows import BlockPerRow, OneResult, WarpPerRow
from .gpu_tensor_cores import TensorCores, divides_positions
from .gpu_threads import WARP, ElementPerThread, bind, keep_in_registers, spatial_loops
from .gpu_transpose import Transpose
from .initial_values import set_initial_values
from .loop_nest import offset_of, substitute
from .util import item_bytes_of

# With one thread per result, this many results of a reduction fill a large GPU.
_MANY = 1 << 14

# The maximum number of cache lines that the threads of a warp may read at once.
_LINE_BYTES = 128
_MAX_LINES = 8


def stock_rules() -> list[ScheduleRule]:
    """The rules of TVM's own pipeline in the order in which they are tried."""
    return [gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback()]


def gpu_rules(target: tvm.target.Target) -> list[ScheduleRule]:
    """The rules for a GPU, in the order to try them; the last one applies to every kernel."""
    _, gemv, *reductions, _ = stock_rules()
    rows = [WarpPerRow(), BlockPerRow(), OneResult()]
    rules = [Matmul(), gemv, ManyElements(), *rows, *reductions]
    elementwise = [Transpose(), Elementwise()]
    return [*elementwise, TensorCores(), *rules, ElementPerThread(), LaunchPerBlock(), OneThread()]


class Matmul(gpu.Matmul):
    """TVM's rule, except for products whose indices have divisions, as in transposed convolutions.

    The rule pads the product, and in the padding reads such operands out of bounds. A consumer
    whose indices have divisions writes the padding.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        blocks = normalize_prim_func(schedule) or []
        is_after = False
        for block in blocks:
            is_after = is_after or "R" in block.dom_kind()
            if is_after and divides_positions(schedule.get(block.block_rv)):
                return None
        return super().apply(func, target, tunable)


class ManyElements(ElementPerThread):
    """Like :class:`ElementPerThread`, for reductions where adjacent threads read adjacent elements.

    Examples are poolings, and convolutions that are not matrix products. TVM's rules for reductions
    use a thread block per element of the result.
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
    """Whether a reduction has many results, and the threads of a warp read few cache lines."""
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
        for thread in range(min(WARP, int(last.dom.extent))):
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

    Each thread computes one element of a block. One thread computes a block whose loops cannot be
    divided among threads; blocks that already launch threads stay unchanged.
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
                spatial = spatial_loops(divided, block)
                keep_in_registers(divided, block, [each for each in blocks if each is not block])
                bind(divided, spatial, target)
            except ScheduleError:
                continue
            schedule = divided
        return Schedule(set_initial_values(in_one_thread(schedule.mod["main"])))


class OneThread(ScheduleRule):
    """One thread executes a kernel; statements that already launch threads stay unchanged."""

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> Schedule:
        """Schedule a kernel."""
        return Schedule(set_initial_values(in_one_thread(func)))


def _has_threads(schedule: Schedule, block: SBlockInfo) -> bool:
    """Whether a block runs in threads, or launches them."""
    loops = (schedule.get(loop) for loop in schedule.get_loops(block.block_rv))
    is_bound = any(loop.thread_binding is not None for loop in loops)
    return is_bound or contains_threads(schedule.get(block.block_rv).body)
