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
"""The schedule rule for elementwise kernels of a GPU: 16 bytes per access."""

import math

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.dlight import ScheduleRule, normalize_prim_func, try_inline
from tvm.s_tir.schedule import LoopRV, SBlockRV, ScheduleError
from tvm.sym import Analyzer
from tvm_ffi import structural_equal, structural_walk

from .loop_nest import offset_of, steps_of, substitute, uses
from .util import count_of, is_if_then_else

_ACCESS_BYTES = 16
_THREADS = 256

# The thread blocks that fill a large GPU; with fewer, shorter vectors use more of its cores.
_MIN_BLOCKS = 256

_BYTES = {"float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1}

# A thread computes its elements one after another.
_MAX_LANES = 8


class Elementwise(ScheduleRule):
    """Each thread computes consecutive elements of the result, and loads and stores them at once.

    The rule applies to a kernel without reductions whose steps can be inlined into one, if all
    tensors that vary along the last axis are contiguous there.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        schedule = Schedule(func)
        block = only_block(schedule)
        lanes = 1 if block is None else _lanes(schedule.get(block))
        if lanes == 1:
            return None
        *outer, last = schedule.get_loops(block)
        last, vector = schedule.split(last, [None, lanes])
        grid, threads = schedule.split(schedule.fuse(*outer, last), [None, _THREADS])
        schedule.bind(grid, "blockIdx.x")
        schedule.bind(threads, "threadIdx.x")
        # TVM vectorizes only some functions, so only the copies to and from registers are vectors.
        schedule.unroll(vector)
        schedule = load_at_once(schedule, block, threads, lanes)
        store_at_once(schedule, block, threads)
        return schedule


def only_block(schedule: Schedule) -> SBlockRV | None:
    """Inline the steps of a kernel into one block with a loop per axis.

    Returns
    -------
    SBlockRV or None
        The block; None if the kernel has a reduction, or several blocks are left.
    """
    blocks = normalize_prim_func(schedule)
    blocks = try_inline(schedule, blocks) if blocks else blocks
    if not blocks or len(blocks) > 1 or set(blocks[0].dom_kind()) != {"S"}:
        return None
    (block,) = blocks
    has_loops = len(schedule.get_loops(block.block_rv)) == len(block.iters)
    return block.block_rv if has_loops else None


def store_at_once(schedule: Schedule, block: SBlockRV, outer: LoopRV) -> None:
    """Let a thread store the elements that a block computes in one iteration of `outer` at once."""
    stored = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(stored, outer)
    schedule.vectorize(schedule.get_loops(stored)[-1])


def load_at_once(schedule: Schedule, block: SBlockRV, outer: LoopRV, lanes: int) -> Schedule:
    """Let a thread load what a block reads in one iteration of `outer` as vectors.

    Parameters
    ----------
    schedule : Schedule
    block : SBlockRV
        A block whose last loop has `lanes` iterations.
    outer : LoopRV
        The loop around it.
    lanes : int
        A number of elements; see :func:`vector_lanes`.

    Returns
    -------
    Schedule
        A new schedule. Reads of one element are unchanged.
    """
    # A load under a condition stays there, because it may be out of bounds elsewhere.
    if conditions_of(schedule.get(block).body):
        return schedule
    for index in range(len(schedule.get(block).reads)):
        schedule = _loaded_at_once(schedule, block, index, outer, lanes)
    return schedule


def _loaded_at_once(
    schedule: Schedule, block: SBlockRV, index: int, outer: LoopRV, lanes: int
) -> Schedule:
    cached = schedule.copy()
    try:
        loaded = cached.cache_read(block, index, "local", [block])
        cached.compute_at(loaded, outer)
    except ScheduleError:
        return schedule
    loops = cached.get_loops(loaded)[len(cached.get_loops(block)) - 1 :]
    extents = [cached.get(loop).extent for loop in loops]
    is_static = all(isinstance(extent, tirx.IntImm) for extent in extents)
    if not is_static or math.prod(map(int, extents)) != lanes:
        return schedule
    cached.vectorize(cached.fuse(*loops))
    return cached


def _lanes(block: SBlock) -> int:
    """The number of elements per thread: the longest vector that still leaves enough threads."""
    lanes = vector_lanes(block)
    count = count_of(iter_var.dom.extent for iter_var in block.iter_vars)
    if isinstance(count, tirx.IntImm):
        while lanes > 1 and int(count) < lanes * _THREADS * _MIN_BLOCKS:
            lanes //= 2
    return lanes


def vector_lanes(block: SBlock) -> int:
    """The number of adjacent elements along its last axis that a block can load and store at once.

    All accesses are then to one element or to an aligned vector.
    """
    last = block.iter_vars[-1]
    accesses = accesses_of(block.body)
    if not accesses or not isinstance(last.dom.extent, tirx.IntImm):
        return 1
    if any(str(access.source.dtype) not in _BYTES for access in accesses):
        return 1
    moving = [a for a in accesses if any(uses(index, [last.var]) for index in a.indices)]
    widest = max((_BYTES[str(access.source.dtype)] for access in moving), default=_ACCESS_BYTES)
    lanes = min(_ACCESS_BYTES // widest, _MAX_LANES)
    while lanes > 1 and (
        int(last.dom.extent) % lanes or not _are_contiguous(block, lanes, accesses)
    ):
        lanes //= 2
    return lanes


def accesses_of(body: tirx.Stmt) -> list[tvm.ir.TensorLoad]:
    """The elements that a statement stores and loads; none if it has branches or loops."""
    steps = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    accesses: list[tvm.ir.TensorLoad] = []
    for step in steps:
        if isinstance(step, tirx.BufferStore):
            accesses.append(tirx.BufferLoad(step.buffer, step.indices))
        elif not isinstance(step, tirx.Bind):
            return []
        structural_walk(step, (tvm.ir.TensorLoad, accesses.append))
    return accesses


def conditions_of(body: tirx.Stmt) -> list[tirx.Expr]:
    """The conditions under which values are computed."""
    conditions: list[tirx.Expr] = []

    def look(call: tvm.ir.Call) -> None:
        if is_if_then_else(call):
            conditions.append(call.args[0])

    structural_walk(body, (tvm.ir.Call, look))
    return conditions


def _are_contiguous(block: SBlock, lanes: int, accesses: list[tvm.ir.TensorLoad]) -> bool:
    """Whether each access is to one element or an aligned vector, and under one condition."""
    *others, last = block.iter_vars
    vector, lane = tirx.Var("vector", last.var.ty), tirx.Var("lane", last.var.ty)
    analyzer = Analyzer()
    for iter_var in others:
        analyzer.bind(iter_var.var, iter_var.dom)
    analyzer.bind(vector, tvm.ir.Range(0, last.dom.extent // lanes))
    analyzer.bind(lane, tvm.ir.Range(0, lanes))
    place = {last.var: vector * lanes + lane}

    def is_contiguous(access: tvm.ir.TensorLoad) -> bool:
        moved = substitute(access, place)
        # Otherwise, TVM computes a vector of positions.
        if any(uses(analyzer.simplify(index), [lane]) for index in list(moved.indices)[:-1]):
            return False
        steps = steps_of(moved, [lane], analyzer)
        step = steps[0] if steps else None
        if not isinstance(step, tirx.IntImm) or step.value not in (0, 1):
            return False
        return step.value == 0 or is_aligned(offset_of(moved))

    def is_aligned(offset: tirx.Expr) -> bool:
        first = analyzer.modular_set(analyzer.simplify(offset - lane))
        return int(first.coeff) % lanes == 0 and int(first.base) % lanes == 0

    def is_uniform(condition: tirx.Expr) -> bool:
        first, *others = (
            analyzer.simplify(substitute(condition, {last.var: vector * lanes + offset}))
            for offset in range(lanes)
        )
        return all(structural_equal(first, other) for other in others)

    conditions = conditions_of(block.body)
    return all(map(is_contiguous, accesses)) and all(map(is_uniform, conditions))
