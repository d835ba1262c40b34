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
"""ScheduleElementwise: tile transpositions, and parallelize large elementwise kernels, on CPUs.

Mechanism
    TVM's pipeline for CPUs has no schedules.  A transposition reads adjacent elements of its result
    from different pages.
How to remove
    When TVM passes the tests of this file, and ``make bench`` shows no difference, delete it,
    ``tiled_transpose.py``, ``repetition.py`` and ``loop_partition.py``, their tests, its line in
    :mod:`tvm_fixes.pipeline` and the fix id ``elementwise-schedule``.  ``non_temporal.py`` goes
    with the last of its users, this file and ``schedule_reductions.py``.
"""

import math
from collections.abc import Collection, Sequence

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

from ...errors import UsageError
from ...fixes.elements import ELEMENTWISE_SCHEDULE as FIX_ID
from ...target.cpu import Cpu
from ..loop_nest import Nest, substitute, unfused, uses, with_new_variables
from ..loop_partition import partition_loops
from ..non_temporal import use_non_temporal_stores
from ..panels import vectorize_panels
from ..parallel import MIN_PARALLEL_WORK
from ..repetition import split_repetition
from ..tiled_transpose import transpose_in_tiles
from ..util import OPAQUE, contains, count_of, is_zero, prim_func_pass, with_parts
from ..vectorize import int64, serial_loop, vectorize_elementwise

# Enough parallel iterations for the cores of a CPU to share the work evenly.
_ENOUGH_ITERATIONS = 64

# With fewer elements, LLVM unrolls the loops; if they have vectors, its SLP vectorizer then makes
# code that its verifier rejects ("Instruction does not dominate all uses").
_MIN_VECTORIZED = 64

# The number of iterations per part of an innermost loop that becomes parallel.
_PART = 1 << 14
_PART_OF_TILES = 64


def ScheduleElementwise() -> tvm.transform.Pass:
    """Tile transpositions, and parallelize large kernels of plain loops.

    Before::

        for i, j in T.grid(4096, 4096): y[i, j] = x[i, j] * T.float32(2)

    and after::

        for i in T.parallel(4096):
            for j in range(4096): y[i, j] = x[i, j] * T.float32(2)

    :func:`~tvm_fixes.tirx.tiled_transpose.transpose_in_tiles` makes the tiles, and
    :func:`~tvm_fixes.tirx.repetition.split_repetition` splits loops that read each element several
    times in a row.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs, for a CPU target.  It changes the outermost loops that are
        not scheduled yet.  Run it after the other schedules.

    Raises
    ------
    UsageError
        When the pass runs: between FuseOps and FuseTIR.
    """

    return prim_func_pass("ScheduleElementwise", FIX_ID, _schedule, check=_reject_unfused)


def _reject_unfused(mod: tvm.IRModule) -> None:
    """Raise a UsageError between FuseOps and FuseTIR, which cannot merge vectors of two lengths."""
    for variable, function in mod.functions_items():
        if not isinstance(function, tirx.PrimFunc) and (function.attrs or {}).get("Primitive", 0):
            raise UsageError(
                f"ScheduleElementwise needs a module of kernels, but FuseTIR has not merged those "
                f"of {variable.name_hint!r}: run it after FuseTIR"
            )


def _schedule(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    realize = function.body
    if not isinstance(realize, SBlockRealize):
        return function
    size = Cpu.of(target).vector_bytes
    root = realize.block
    stmts = list(root.body) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    split = [part for stmt in stmts for part in _split(vectorize_panels(stmt, size))]
    scheduled = [_schedule_loop(stmt, size, root.alloc_buffers) for stmt in split]
    scheduled = [
        new if new.same_as(old) else use_non_temporal_stores(new, function, target)
        for new, old in zip(scheduled, split, strict=True)
    ]
    is_same = len(scheduled) == len(stmts)
    if is_same and all(new.same_as(old) for new, old in zip(scheduled, stmts, strict=True)):
        return function
    body = scheduled[0] if len(scheduled) == 1 else tirx.SeqStmt(scheduled)
    new = with_parts(root, body=body)
    function = function.with_body(SBlockRealize(realize.iter_values, realize.predicate, new))
    # FuseTIR cannot merge vectors of two lengths.
    is_classified = "op_pattern" in (function.attrs or {})
    return function.with_attr("op_pattern", OPAQUE) if is_classified else function


def _split(stmt: tirx.Stmt) -> list[tirx.Stmt]:
    if not isinstance(stmt, tirx.For):
        return [stmt]
    return [split_repetition(part) for part in partition_loops(stmt)]


def _schedule_loop(stmt: tirx.Stmt, size: int, allocated: Collection[tirx.Var]) -> tirx.Stmt:
    nest = Nest.of(stmt) if isinstance(stmt, tirx.For) else None
    if nest is None:
        return stmt
    work = count_of([*(loop.extent for loop in nest.loops), int64(_repeated(nest.block))])
    if is_zero(work):
        return stmt
    tiles = transpose_in_tiles(stmt, size, allocated)
    if isinstance(work, tirx.IntImm):
        return _scheduled(stmt, nest, tiles, size, work.value)
    many = _scheduled(stmt, nest, tiles, size, MIN_PARALLEL_WORK)
    # DecomposeReduction needs a single block that writes a reduction's result.
    if many.same_as(stmt) or tiles is not None or nest.block.init is not None:
        return many
    # In such a branch, TVM would prove that an extent is 0, and reject a division by it.
    if _is_large_or_empty(work) or _divides_by_zero(stmt, work >= MIN_PARALLEL_WORK):
        return many
    return tirx.IfThenElse(work >= MIN_PARALLEL_WORK, many, with_new_variables(stmt))


def _is_large_or_empty(work: tirx.Expr) -> bool:
    """Whether `work` is enough for threads unless a symbolic extent is 0."""
    analyzer = Analyzer()
    for variable in tirx.analysis.undefined_vars(work):
        analyzer.bind(variable, tvm.ir.Range(1, 1 << 40))
    return bool(analyzer.can_prove(work >= MIN_PARALLEL_WORK))


def _divides_by_zero(stmt: tirx.Stmt, condition: tirx.Expr) -> bool:
    """Whether a divisor is 0 wherever `condition` holds."""
    analyzer = Analyzer()
    with analyzer.constraint_scope(condition):
        return contains(
            stmt,
            (tirx.FloorDiv, tirx.FloorMod),
            lambda division: analyzer.can_prove(division.b == 0),
        )


def _scheduled(
    loop: tirx.For, nest: Nest, tiles: tirx.Stmt | None, size: int, work: int
) -> tirx.Stmt:
    """Schedule `loop`, or its `tiles` if there are any; in parallel if `work` is large enough."""
    is_large = work >= MIN_PARALLEL_WORK
    if tiles is None:
        return loop if work < _MIN_VECTORIZED else _schedule_rows(loop, nest, size, is_large)
    if not is_large:
        return tiles
    if isinstance(tiles, tirx.For):
        return _tiles_in_parallel(tiles)
    return tirx.IfThenElse(tiles.condition, _tiles_in_parallel(tiles.then_case), tiles.else_case)


def _schedule_rows(loop: tirx.For, nest: Nest, size: int, is_large: bool) -> tirx.Stmt:
    """Vectorize the rows of an elementwise kernel; parallelize it, or a reduction, if large."""
    independent = _count_independent(nest)
    outer = _count_enough(nest.loops[: min(independent, len(nest.loops) - 1)]) if is_large else 0
    vectors = None
    if nest.block.init is None and independent == len(nest.loops):
        # Do not fuse a row of symbolic extent with others: TVM cannot divide by that extent.
        unknown = [i for i, row in enumerate(nest.loops) if not isinstance(row.extent, tirx.IntImm)]
        vectors = vectorize_elementwise(nest, size, max([outer, *unknown]))
    if not is_large:
        return loop if vectors is None else vectors
    rows = nest.loops[:outer]
    are_known = all(isinstance(row.extent, tirx.IntImm) for row in rows)
    if vectors is None or (are_known and _iterations(rows) < _ENOUGH_ITERATIONS):
        return _in_parallel(loop, independent, max(_PART // _repeated(nest.block), 1))
    return _in_parallel(vectors, outer)


def _repeated(block: SBlock) -> int:
    """The greatest number of times that a loop in a block repeats, at least 1."""
    extents = [1]

    def look(loop: tirx.For) -> None:
        if isinstance(loop.extent, tirx.IntImm):
            extents.append(loop.extent.value)

    structural_walk(block.body, (tirx.For, look))
    return max(extents)


def _tiles_in_parallel(loop: tirx.For) -> tirx.For:
    return _in_parallel(loop, len(_nested(loop)), _PART_OF_TILES)


def _nested(loop: tirx.For) -> list[tirx.For]:
    """The loops of a perfect nest, outermost first."""
    loops = []
    stmt: tirx.Stmt = loop
    while isinstance(stmt, tirx.For):
        loops.append(stmt)
        stmt = stmt.body
    return loops


def _iterations(loops: Sequence[tirx.For]) -> int:
    """The number of iterations of nested loops, without those of symbolic extent."""
    known = [loop.extent.value for loop in loops if isinstance(loop.extent, tirx.IntImm)]
    return math.prod(known)


def _count_enough(loops: Sequence[tirx.For]) -> int:
    """The number of outermost loops that together have enough iterations, at most all of them.

    It stops before a symbolic extent other than the first: TVM cannot divide by that.
    """
    counts = range(len(loops))
    enough = next((n for n in counts if _iterations(loops[:n]) >= _ENOUGH_ITERATIONS), len(loops))
    inner = range(1, enough)
    return next((n for n in inner if not isinstance(loops[n].extent, tirx.IntImm)), enough)


def _count_independent(nest: Nest) -> int:
    """The number of outermost loops whose iterations write different elements."""
    iterators = nest.block.iter_vars
    kinds = {iterator.iter_type for iterator in iterators}
    if nest.reduced is None or not kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}:
        return 0
    own = [
        value
        for value, iterator in zip(nest.values, iterators, strict=True)
        if iterator.iter_type == tirx.IterVar.DataPar
    ]
    count = 0
    for loop in nest.loops[: len(nest.loops) - nest.reduced]:
        if not any(uses(value, [loop.loop_var]) for value in own):
            break
        count += 1
    return count


def _in_parallel(loop: tirx.For, count: int, part: int | None = None) -> tirx.For:
    """Fuse enough of the first `count` loops to one parallel loop.

    If these include the innermost loop and `part` is given, an iteration of the parallel loop runs
    `part` iterations of the innermost one.
    """
    nested = _nested(loop)[:count]
    loops = nested[: _count_enough(nested)]
    if not loops:
        return loop
    body = loops[-1].body
    position = outer = tirx.Var("parallel", "int64")
    extents = [inner.extent for inner in loops]
    if part is not None and not isinstance(body, tirx.For):
        last = loops.pop()
        extent = last.extent.astype("int64")
        parts = tirx.ceildiv(extent, part)
        start = (tirx.floormod(position, parts) if loops else position) * part
        within = tirx.Var("within", "int64")
        at = (start + within).astype(last.loop_var.ty)
        count_of_part = Analyzer().simplify(tirx.min(extent - start, part))
        body = serial_loop(within, count_of_part, substitute(body, {last.loop_var: at}))
        extents[-1] = parts
        outer = tirx.floordiv(position, parts)
    if loops:
        body = substitute(body, unfused(loops, outer))
    return tirx.For(position, int64(0), count_of(extents), tirx.ForKind.PARALLEL, body)
