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
"""A pass that keeps register tiles of 1 KiB or more on the stack, and divides long sums.

Mechanism
    ``LowerTVMBuiltin`` leaves only buffers of less than 1 KiB on the stack, where LLVM promotes
    them to registers.
"""

from collections.abc import Sequence

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import SBlock
from tvm_ffi import structural_map, structural_walk

from ...attributes import LAST_COLUMNS, TILE
from ...fixes.memory import TILES_ON_STACK as FIX_ID
from ...target.cpu import Cpu
from ..last_tile import split_last_tiles
from ..loop_nest import positions_of, redirected, substitute
from ..tile_sums import has_parts, sum_in_parts
from ..util import bytes_of, contains, count_of, item_bytes_of, prim_func_pass

# More sums than all registers hold, but few enough for the stack of a thread.
_MAX_BYTES = 4096


def KeepTilesOnStack() -> tvm.transform.Pass:
    """Lower kernels with large tiles or long sums to loops, and divide each large tile.

    Before::

        tile = T.alloc_buffer((2, 14, 16))
        for i in T.unroll(2):
            for j in T.unroll(14):
                for k in T.vectorized(16): tile[i, j, k] = …

    and after::

        tile_0 = T.alloc_buffer((14, 16))
        tile_1 = T.alloc_buffer((14, 16))
        for j in T.unroll(14):
            for k in T.vectorized(16): tile_0[j, k] = …
        for j in T.unroll(14):
            for k in T.vectorized(16): tile_1[j, k] = …

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs of a CPU target, for those with a block that has the
        annotation :data:`TILE`.  A tile is divided along an axis whose indices are constants and
        variables of unrolled loops; without such an axis, it is not divided.  Long sums of floats
        have parts: see :func:`~tvm_fixes.tirx.tile_sums.sum_in_parts`.  Loops with the
        annotation :data:`LAST_COLUMNS` compute their last tile apart. Run it last: schedules need
        blocks.
    """
    return prim_func_pass("KeepTilesOnStack", FIX_ID, _divide_tiles)


def _divide_tiles(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    limit = Cpu.of(target).max_stack_buffer_bytes

    def is_large(block: SBlock) -> bool:
        if TILE not in block.annotations:
            return False
        [written] = block.writes
        return int(block.annotations[TILE]) * item_bytes_of(written.source) > limit

    def is_affected(block: SBlock) -> bool:
        return is_large(block) or _sums_many(block)

    has_last_tile = contains(function.body, tirx.For, lambda loop: LAST_COLUMNS in loop.annotations)
    if not has_last_tile and not contains(function.body, SBlock, is_affected):
        return function
    lowered = split_last_tiles(without_blocks(function))
    for tile in _tiles(lowered):
        if bytes_of(tile) <= _MAX_BYTES:
            lowered = lowered.with_body(sum_in_parts(lowered.body, tile))
    for tile in _tiles(lowered):
        if limit < bytes_of(tile) <= _MAX_BYTES:
            lowered = _divide(lowered, tile, limit)
    return lowered


def _sums_many(block: SBlock) -> bool:
    """Whether the sums of a block are long enough for parts."""
    extents = [
        axis.dom.extent for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce
    ]
    return TILE in block.annotations and bool(extents) and has_parts(count_of(extents))


def _tiles(function: tirx.PrimFunc) -> list[tirx.Buffer]:
    tiles: list[tirx.Buffer] = []
    structural_walk(function.body, (tirx.AllocBuffer, lambda alloc: tiles.append(alloc.buffer)))
    return tiles


def without_blocks(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel as loops, with each buffer as small as its uses allow."""
    transform = s_tir.transform
    steps = tvm.transform.Sequential(
        [
            transform.CanonicalizeLoop(),
            transform.LowerInitBlock(),
            transform.PlanAndUpdateBufferAllocationLocation(),
            transform.ConvertBlocksToOpaque(),
            transform.CompactBufferAllocation(),
            transform.LowerMatchBuffer(),
            transform.StmtSimplify(),
            transform.AnnotateIrregularLoop(),
            transform.LowerOpaqueBlock(),
        ]
    )
    [lowered] = steps(tvm.IRModule({"main": function})).functions.values()
    return lowered


def _divide(function: tirx.PrimFunc, tile: tirx.Buffer, limit: int) -> tirx.PrimFunc:
    """Divide a tile into buffers of at most `limit` bytes; the same function if that fails."""
    loops: dict[tirx.Var, tirx.For] = {}
    structural_walk(function.body, (tirx.For, lambda loop: loops.update({loop.loop_var: loop})))
    positions = positions_of(function.body, tile)
    for axis, extent in enumerate(int(extent) for extent in tile.shape):
        indices = [position[axis] for position in positions]
        if extent == 1 or bytes_of(tile) // extent > limit or not _are_known(indices, loops):
            continue
        variables = {index for index in indices if isinstance(index, tirx.Var)}
        repeated = _repeat(function, variables)
        return _replace(repeated, tile, axis)
    return function


def _are_known(indices: list[tirx.Expr], loops: dict[tirx.Var, tirx.For]) -> bool:
    """Whether indices are constants, or variables of loops that are unrolled from 0."""

    def is_known(index: tirx.Expr) -> bool:
        if isinstance(index, tirx.IntImm):
            return True
        loop = loops.get(index) if isinstance(index, tirx.Var) else None
        if loop is None or loop.kind != tirx.ForKind.UNROLLED:
            return False
        return isinstance(loop.extent, tirx.IntImm) and int(loop.min) == 0

    return all(map(is_known, indices))


def _repeat(function: tirx.PrimFunc, variables: set[tirx.Var]) -> tirx.PrimFunc:
    """Unroll the loops over `variables`."""

    def unroll(loop: tirx.For) -> tirx.Stmt:
        if loop.loop_var not in variables:
            return loop
        dtype = str(loop.loop_var.ty)
        steps = (tirx.IntImm(dtype, step) for step in range(int(loop.extent)))
        return tirx.SeqStmt(
            [_with_own_loops(substitute(loop.body, {loop.loop_var: step})) for step in steps]
        )

    return structural_map(function, (tirx.For, unroll))


def _with_own_loops(body: tirx.Stmt) -> tirx.Stmt:
    """A copy of `body` with new loop variables: each variable has one loop."""
    loops: dict[tirx.Var, tirx.Var] = {}

    def rename(loop: tirx.For) -> None:
        loops[loop.loop_var] = tirx.Var(loop.loop_var.name, loop.loop_var.ty)

    structural_walk(body, (tirx.For, rename))
    return substitute(body, loops)


def _replace(function: tirx.PrimFunc, tile: tirx.Buffer, axis: int) -> tirx.PrimFunc:
    """Replace a tile by a buffer for each index along `axis`."""
    shape = [extent for at, extent in enumerate(tile.shape) if at != axis]
    parts = [
        tirx.decl_buffer(shape, tile.dtype, f"{tile.name}_{number}", layout=None)
        for number in range(int(tile.shape[axis]))
    ]

    def moved(indices: Sequence[tirx.Expr]) -> tuple[tirx.Buffer, list[tirx.Expr]]:
        rest = list(indices)
        return parts[int(rest.pop(axis))], rest

    return redirected(function, tile, parts, moved)
