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
"""The schedule rule for products of 16-bit matrices on a GPU's tensor cores."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, Schedule, TensorIntrin
from tvm.s_tir.dlight import ScheduleRule
from tvm.s_tir.dlight.analysis import get_root_block
from tvm.s_tir.dlight.gpu.matmul import (
    auto_inline_consumer_chain,
    auto_inline_producers,
    get_index_map,
    get_reduction_blocks,
    get_sblock_info,
)
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

from ..target.cuda import capability
from .gpu_elementwise import vector_lanes
from .gpu_threads import WARP, compute_in_threads
from .loop_nest import offset_of, steps_of, substitute
from .util import contains, is_zero

_SHARED = "shared.dyn"
_DTYPES = ("float16", "bfloat16")

# A fragment has 16 x 16 elements.
_FRAGMENT = 16

# The maximum factor by which padding increases the number of products.
_MAX_PADDING = 32

# With fewer thread blocks, smaller tiles use more of a large GPU.
_MIN_BLOCKS = 132

# The minimum number of products per thread block, and per sum that is worth a second launch.
_MIN_DEPTH = 256
_MIN_DIVIDED_DEPTH = 768


@dataclass(frozen=True)
class _Tile:
    """The tile of a thread block: `rows` x `columns` results, with `depth` products per step.

    The steps of a sum are divided among `parts` thread blocks.
    """

    rows: int
    columns: int
    depth: int
    row_warps: int = 2
    column_warps: int = 2
    parts: int = 1

    @property
    def staging(self) -> str:
        """The memory scope that stages results before they are written to global memory.

        If the results need no more memory than the tiles of an operand, TVM reuses that memory, and
        then rejects the access with another dtype. So small results have a scope of their own.
        """
        return _SHARED if self.rows * self.columns > 64 * 64 else "shared"


_LARGE = _Tile(128, 128, 32)

_SMALL = (_Tile(16, 64, 64, row_warps=1, column_warps=4), _Tile(32, 64, 64), _Tile(64, 64, 32))


class TensorCores(ScheduleRule):
    """Multiply matrices of float16 or bfloat16 with sums in float32, in tiles in shared memory.

    The rule applies to matrix products, and to convolutions that are matrix products. Each step
    copies a tile of both operands while the previous tiles are multiplied. If the result has few
    tiles, several thread blocks share a sum, and a second launch adds their parts.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> Schedule | None:
        """Schedule a kernel; None if the rule does not apply."""
        # Earlier tensor cores do not multiply bfloat16.
        if target.kind.name != "cuda" or capability(str(target.attrs["arch"])) < (8, 0):
            return None
        schedule = Schedule(func)
        reductions = get_reduction_blocks(
            schedule, schedule.get_child_blocks(get_root_block(schedule))
        )
        if reductions is None or len(reductions) != 1:
            return None
        (main,) = reductions
        block = schedule.get(main)
        is_empty = any(is_zero(each.dom.extent) for each in block.iter_vars)
        if is_empty or get_index_map(block) is None or not _has_dtypes(block):
            return None
        # TVM drops the condition of padded rows and columns where such a block is inlined.
        if any(divides_positions(schedule.get(each)) for each in _readers(schedule, main)):
            return None
        dtype = str(block.reads[0].source.dtype)
        columns_are_contiguous = _reads_columns(block)
        _normalize(schedule, main, columns_are_contiguous)
        tile = _choose_tile(schedule, main)
        if tile is None:
            return None
        schedule.pad_einsum(main, [1, tile.rows, tile.columns, tile.depth * tile.parts])
        if tile.parts == 1:
            _schedule(schedule, main, tile, dtype, columns_are_contiguous)
            return schedule
        *_, depth = schedule.get_loops(main)
        part, _ = schedule.split(depth, [tile.parts, None])
        partial = schedule.rfactor(part, 0)
        _schedule(schedule, partial, tile, dtype, columns_are_contiguous)
        return schedule if _add_parts(schedule, main, target) else None


def divides_positions(block: SBlock) -> bool:
    """Whether the indices of a block's reads have divisions, as after a reshape."""
    divisions = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
    parts = (part for read in block.reads for part in read.region)
    return any(contains(part.min, kind, lambda _: True) for part in parts for kind in divisions)


def _readers(schedule: Schedule, block: SBlockRV) -> Iterator[SBlockRV]:
    """The direct and indirect consumers of a block."""
    for consumer in schedule.get_consumers(block):
        yield consumer
        yield from _readers(schedule, consumer)


def _has_dtypes(block: SBlock) -> bool:
    (lhs, rhs), (out,) = ([str(r.source.dtype) for r in rs] for rs in (block.reads, block.writes))
    return lhs == rhs and lhs in _DTYPES and out == "float32"


def _reads_columns(block: SBlock) -> bool:
    """Whether the second operand is contiguous along an axis of the result."""
    access = block.reads[1]
    load = tirx.BufferLoad(access.source, [r.min for r in access.region])
    spatial = [v.var for v in block.iter_vars if v.iter_type == tirx.IterVar.DataPar]
    steps = steps_of(load, spatial, Analyzer())
    return steps is not None and any(
        isinstance(step, tirx.IntImm) and step.value == 1 for step in steps
    )


def _normalize(schedule: Schedule, main: SBlockRV, columns_are_contiguous: bool) -> None:
    """Make the kernel out[s, i, j] += lhs[s, i, k] * rhs[s, j, k], or with rhs[s, k, j]."""
    lhs, rhs = (schedule.reindex(main, ("read", index)) for index in (0, 1))
    out = schedule.reindex(main, ("write", 0))
    # After the copies, whose buffers have no axis for the window of a 1x1 convolution.
    of_main, of_lhs, of_rhs, of_out = get_index_map(schedule.get(main))
    schedule.transform_layout(lhs, ("write", 0), of_lhs)
    if columns_are_contiguous:
        batch, column, depth = of_rhs.final_indices
        of_rhs = tirx.IndexMap(of_rhs.initial_indices, [batch, depth, column], None)
    schedule.transform_layout(rhs, ("write", 0), of_rhs)
    schedule.transform_layout(out, ("read", 0), of_out)
    schedule.transform_block_layout(main, of_main)


def _choose_tile(schedule: Schedule, main: SBlockRV) -> _Tile | None:
    extents = [schedule.get(loop).extent for loop in schedule.get_loops(main)]
    batch, rows, columns, depth = (
        int(extent) if isinstance(extent, tirx.IntImm) else None for extent in extents
    )
    # A product with a single row or column is a matrix-vector product.
    if columns is None or depth is None or columns == 1 or rows == 1:
        return None
    if rows is None or batch is None:
        tile = _SMALL[-1]
        rows = tile.rows
    elif batch * -(-rows // _LARGE.rows) * -(-columns // _LARGE.columns) >= _MIN_BLOCKS:
        tile = _LARGE
    else:
        tile = next((each for each in _SMALL if rows <= each.rows), _SMALL[-1])
        blocks = batch * -(-rows // tile.rows) * -(-columns // tile.columns)
        tile = replace(tile, parts=_parts(blocks, depth, tile.depth))
    return tile if _padding(tile, rows, columns, depth) <= _MAX_PADDING else None


def _padding(tile: _Tile, rows: int, columns: int, depth: int) -> float:
    """The factor by which tiling increases the number of products of a kernel."""
    sides = ((rows, tile.rows), (columns, tile.columns), (depth, tile.depth))
    return math.prod(-(-extent // side) * side / extent for extent, side in sides)


def _parts(blocks: int, depth: int, step: int) -> int:
    """The number of thread blocks that share the steps of a sum."""
    if depth < _MIN_DIVIDED_DEPTH:
        return 1
    most = max(1, min(2 * _MIN_BLOCKS // blocks, depth // _MIN_DEPTH))
    steps = -(-depth // step)
    return -(-steps // -(-steps // most))


def _schedule(
    schedule: Schedule, main: SBlockRV, tile: _Tile, dtype: str, columns_are_contiguous: bool
) -> None:
    batch, i, j, *parts, k = schedule.get_loops(main)
    if parts:
        schedule.reorder(*parts, batch, i, j)
        batch = schedule.fuse(*parts, batch)
    i, i_warp, i_part, i_in = schedule.split(
        i, [None, tile.row_warps, tile.rows // tile.row_warps // _FRAGMENT, _FRAGMENT]
    )
    j, j_warp, j_part, j_in = schedule.split(
        j, [None, tile.column_warps, tile.columns // tile.column_warps // _FRAGMENT, _FRAGMENT]
    )
    k, k_part, k_in = schedule.split(k, [None, tile.depth // _FRAGMENT, _FRAGMENT])
    schedule.reorder(i, j, i_warp, j_warp, k, k_part, i_part, j_part, i_in, j_in, k_in)
    fragment = schedule.blockize(i_in)
    schedule.bind(batch, "blockIdx.z")
    schedule.bind(schedule.fuse(i, j), "blockIdx.x")
    warp = schedule.fuse(i_warp, j_warp)
    schedule.bind(warp, "threadIdx.y")
    for index in (0, 1):
        _copy_to_shared(schedule, fragment, index, k, tile)
    # Load the next tiles, multiply the current ones, and store the next ones.
    schedule.annotate(k, "software_pipeline_stage", [0, 0, 0, 0, 1])
    schedule.annotate(k, "software_pipeline_order", [0, 3, 1, 4, 2])
    loaded = []
    for index, scope in enumerate(("wmma.matrix_a", "wmma.matrix_b")):
        loaded.append(schedule.cache_read(fragment, index, scope))
        schedule.compute_at(loaded[-1], k_part)
    shared = schedule.cache_write(fragment, 0, tile.staging)
    stored = schedule.cache_write(fragment, 0, "wmma.accumulator")
    # Rows of a power of two would be in the same banks.
    schedule.storage_align(stored, 0, -2, _FRAGMENT, 4)
    for copy in (stored, shared):
        schedule.reverse_compute_at(copy, warp)
    initial = schedule.decompose_reduction(fragment, k)
    names = _intrinsics(dtype, columns_are_contiguous, tile.staging)
    for copy, name in zip((*loaded, stored), ("lhs", "rhs", "store"), strict=True):
        schedule.tensorize(_by_fragments(schedule, copy), names[name])
    (innermost,) = schedule.get_child_blocks(initial)
    schedule.tensorize(schedule.get_loops(innermost)[-2], names["fill"])
    (innermost,) = schedule.get_child_blocks(fragment)
    schedule.tensorize(schedule.get_loops(innermost)[-3], names["multiply"])
    if not parts:
        auto_inline_consumer_chain(schedule, shared)
    _write(schedule, shared)


def _add_parts(schedule: Schedule, main: SBlockRV, target: tvm.target.Target) -> bool:
    """Schedule the sum of the parts of several thread blocks, and its consumers."""
    result = main
    while consumers := schedule.get_consumers(result):
        result = consumers[-1]
    while others := [
        each
        for each in schedule.get_producers(result)
        if not schedule.get(each).same_as(schedule.get(main))
    ]:
        schedule.compute_inline(others[0])
    infos = [get_sblock_info(schedule, block) for block in (main, result)]
    return compute_in_threads(schedule, infos, target)


def _copy_to_shared(
    schedule: Schedule, fragment: SBlockRV, index: int, step: LoopRV, tile: _Tile
) -> None:
    """Let all threads copy a tile of an operand to shared memory."""
    copied = schedule.cache_read(fragment, index, _SHARED)
    schedule.compute_at(copied, step)
    auto_inline_producers(schedule, copied)
    lanes = vector_lanes(schedule.get(copied))
    row, column = schedule.get_loops(copied)[-2:]
    if lanes == 1 and _is_contiguous_along_rows(schedule.get(copied)):
        # Neighboring threads read neighboring elements.
        schedule.reorder(column, row)
        row, column = column, row
    warps = tile.row_warps * tile.column_warps
    _, warp, lane, vector = schedule.split(schedule.fuse(row, column), [None, warps, WARP, lanes])
    schedule.bind(warp, "threadIdx.y")
    schedule.bind(lane, "threadIdx.x")
    schedule.vectorize(vector)
    # Rows of a power of two would be in the same banks.
    schedule.storage_align(copied, 0, -2, _FRAGMENT, 8)
    schedule.annotate(copied, "tirx.manifest_shared_memory_local_stage", 1)
    schedule.annotate(copied, "double_buffer_scope", 0)


def _is_contiguous_along_rows(block: SBlock) -> bool:
    """Whether a copy reads adjacent elements along its second to last axis."""
    *_, row, _ = (iter_var.var for iter_var in block.iter_vars)
    loads: list[tvm.ir.TensorLoad] = []
    structural_walk(block.body.value, (tvm.ir.TensorLoad, loads.append))
    analyzer = Analyzer()
    steps = [
        analyzer.simplify(substitute(offset_of(load), {row: row + 1}) - offset_of(load))
        for load in loads
    ]
    return any(isinstance(step, tirx.IntImm) and step.value == 1 for step in steps)


def _by_fragments(schedule: Schedule, copy: SBlockRV) -> LoopRV:
    """Split the loops of a copy into fragments; return the outer loop of one."""
    i, j = schedule.get_loops(copy)[-2:]
    i, i_in = schedule.split(i, [None, _FRAGMENT])
    j, j_in = schedule.split(j, [None, _FRAGMENT])
    schedule.reorder(i, j, i_in, j_in)
    schedule.unroll(i)
    schedule.unroll(j)
    return i_in


def _write(schedule: Schedule, shared: SBlockRV) -> None:
    """Write a tile of the result, or of its elementwise consumer."""
    every = schedule.fuse(*schedule.get_loops(shared)[-2:])
    _, lane, vector = schedule.split(every, [None, WARP, 4])
    schedule.bind(lane, "threadIdx.x")
    schedule.vectorize(vector)


@cache
def _intrinsics(dtype: str, columns_are_contiguous: bool, staging: str) -> dict[str, str]:
    """Register TVM's fragment intrinsics for a dtype; return their names by use."""
    # This import parses all of TVM's intrinsics, which takes seconds.
    from tvm.s_tir.tensor_intrin import cuda as intrinsics

    shape = (_FRAGMENT,) * 3
    order = "kj" if columns_are_contiguous else "jk"
    made = {
        "lhs": intrinsics.get_wmma_load_intrin(*shape, dtype, _SHARED, False, False),
        "rhs": intrinsics.get_wmma_load_intrin(
            *shape, dtype, _SHARED, True, not columns_are_contiguous
        ),
        "fill": intrinsics.get_wmma_fill_intrin(*shape, "float32"),
        "multiply": intrinsics.get_wmma_sync_intrin(
            *shape, dtype, "float32", not columns_are_contiguous
        ),
        "store": intrinsics.get_wmma_store_intrin(*shape, "float32", staging),
    }
    names = {}
    for use, (description, implementation) in made.items():
        names[use] = f"tvm_fixes_{dtype}_{order}_{staging}_{use}"
        TensorIntrin.register(names[use], description, implementation, override=True)
    return names
