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
"""The last tile of a loop over register tiles whose number of columns is unknown.

Before::

    for tile in range((n + 3) // 4):
        sums = T.alloc_buffer((4,))
        for column in T.unroll(4): sums[column] = …
        for column in range(4):
            if tile * 4 + column < n: out[tile * 4 + column] = sums[column]

and after, with 2 last columns::

    for tile in range(n // 4):
        sums = T.alloc_buffer((4,))
        for column in T.unroll(4): sums[column] = …
        for column in T.vectorized(4): out[tile * 4 + column] = sums[column]
    if n % 4 > 2: … (the body of the loop before, for tile n // 4)
    elif n % 4 > 0: … (the same for 2 columns)

Whole tiles are stored without conditions, and few columns take less time than a tile.

The steps:

1. Find the sums of a tile, the loops over its columns, and the conditions that guard their stores
   (:func:`_tiles_of`).
2. Prove that a column depends only on its position ``tile * size + column``
   (:func:`_are_independent`).  Then it may be computed in any tile, of any number of columns.
3. Run ``limit // size`` whole tiles, whose stores need no condition (:func:`_unguarded`).
4. Compute the ``limit % size`` columns that are left in one more tile: in one of
   :data:`LAST_COLUMNS` columns if they suffice, otherwise in a whole one with its conditions.

A tile of `rows` rows and `size` columns keeps ``rows * size`` sums in registers. The smaller one
computes ``rows * columns`` of them, so at most one tile in a row computes sums that are not stored.
"""

import functools
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_equal, structural_map, structural_walk

from ..attributes import LAST_COLUMNS
from .loop_nest import positions_of, redirected, sources, substitute, uses, with_new_variables
from .util import contains, is_zero

# Statements that may depend on a column without an index.
_UNKNOWN = tirx.Bind, tirx.Evaluate, tirx.While, tirx.AssertStmt


@dataclass(frozen=True)
class _Tiles:
    """A loop over tiles.

    Attributes
    ----------
    loop : tirx.For
    buffer : tirx.Buffer
        The sums of a tile.
    axis : int
        The axis of the columns in `buffer`.
    columns : dict of tirx.Var to tirx.For
        The loops over the columns of a tile.
    bounds : list of tuple of tirx.Expr
        The conditions for storing a column, and the bound of its position in each.
    """

    loop: tirx.For
    buffer: tirx.Buffer
    axis: int
    columns: dict[tirx.Var, tirx.For]
    bounds: list[tuple[tirx.Expr, tirx.Expr]]

    @property
    def size(self) -> int:
        """The columns of a tile."""
        return int(self.buffer.shape[self.axis])

    @property
    def limit(self) -> tirx.Expr:
        """The number of columns to store."""
        bounds = (bound for _, bound in self.bounds)
        return functools.reduce(tirx.min, bounds, self.loop.extent * self.size)


def split_last_tiles(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Compute the last tile of loops with the annotation :data:`LAST_COLUMNS` apart.

    A loop is unchanged unless it stores columns under conditions on their positions.

    Parameters
    ----------
    function : tirx.PrimFunc
        A kernel without blocks.
    """

    def split(loop: tirx.For) -> tirx.Stmt:
        if LAST_COLUMNS not in loop.annotations:
            return loop
        tiles = _tiles_of(loop)
        return loop if tiles is None else _split(tiles, int(loop.annotations[LAST_COLUMNS]))

    return structural_map(function, (tirx.For, split))


def _tiles_of(loop: tirx.For) -> _Tiles | None:
    """The tiles of a loop; None unless its columns are known to be independent."""
    loops: dict[tirx.Var, tirx.For] = {}
    buffers: list[tirx.Buffer] = []
    # The only allocation in the loop holds the sums.
    callbacks = [
        (tirx.For, lambda inner: loops.update({inner.loop_var: inner})),
        (tirx.AllocBuffer, lambda alloc: buffers.append(alloc.buffer)),
    ]
    structural_walk(loop.body, callbacks)
    if loop.kind != tirx.ForKind.SERIAL or not is_zero(loop.min) or len(buffers) != 1:
        return None
    if any(contains(loop.body, kind) for kind in _UNKNOWN):
        return None
    [buffer] = buffers
    # The axis of the columns is the one that bounded stores are indexed with.
    for axis in range(len(buffer.shape)):
        columns = _columns(loop.body, buffer, axis, loops)
        if columns is None:
            continue
        bounds = _bounds(loop, buffer, columns)
        if bounds and _are_independent(loop, buffer, axis, columns):
            return _Tiles(loop, buffer, axis, columns, bounds)
    return None


def _columns(
    body: tirx.Stmt, buffer: tirx.Buffer, axis: int, loops: dict[tirx.Var, tirx.For]
) -> dict[tirx.Var, tirx.For] | None:
    """The loops whose variables are the indices of `buffer` along `axis`; None unless all are."""
    indices = [position[axis] for position in positions_of(body, buffer)]
    if not indices or not all(index in loops for index in indices):
        return None
    columns = {index: loops[index] for index in indices}
    is_whole = all(
        is_zero(over.min) and structural_equal(over.extent, buffer.shape[axis])
        for over in columns.values()
    )
    return columns if is_whole else None


def _bounds(
    loop: tirx.For, buffer: tirx.Buffer, columns: dict[tirx.Var, tirx.For]
) -> list[tuple[tirx.Expr, tirx.Expr]]:
    """The conditions ``column < bound`` of the statement that stores columns, and each `bound`.

    Empty unless one such statement contains all stores except those to `buffer`.
    """
    inner = [loop.loop_var]
    structural_walk(loop.body, (tirx.For, lambda node: inner.append(node.loop_var)))

    def bound_of(condition: tirx.Expr) -> tirx.Expr | None:
        if not isinstance(condition, tirx.LT | tirx.LE) or uses(condition.b, inner):
            return None
        if not _is_position(condition.a, loop, columns):
            return None
        return condition.b if isinstance(condition, tirx.LT) else condition.b + 1

    guarded: list[tuple[tirx.IfThenElse, list[tuple[tirx.Expr, tirx.Expr]]]] = []

    def look(statement: tirx.IfThenElse) -> None:
        pairs = [(part, bound_of(part)) for part in _conjuncts(statement.condition)]
        bounds = [(part, bound) for part, bound in pairs if bound is not None]
        if bounds and statement.else_case is None:
            guarded.append((statement, bounds))

    structural_walk(loop.body, (tirx.IfThenElse, look))
    if len(guarded) != 1:
        return []
    [(statement, bounds)] = guarded
    return bounds if _stores(statement, buffer) == _stores(loop.body, buffer) else []


def _is_position(expr: tirx.Expr, loop: tirx.For, columns: dict[tirx.Var, tirx.For]) -> bool:
    """Whether an expression is the position of a column among those of all tiles."""
    positions = (loop.loop_var * over.extent + column for column, over in columns.items())
    return any(Analyzer().can_prove_equal(expr, position) for position in positions)


def _conjuncts(condition: tirx.Expr) -> list[tirx.Expr]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _stores(stmt: tirx.Stmt, but: tirx.Buffer) -> int:
    """The number of stores, except those to `but`."""
    stores: list[tirx.BufferStore] = []
    structural_walk(stmt, (tirx.BufferStore, stores.append))
    return sum(not store.buffer.same_as(but) for store in stores)


def _are_independent(
    loop: tirx.For, buffer: tirx.Buffer, axis: int, columns: dict[tirx.Var, tirx.For]
) -> bool:
    """Whether columns are independent, and depend only on their positions, in any order.

    The indices of `axis` are exempt.  The position is ``tile * size + column``: it stays the same
    if the tile is one more and the column `size` less.
    """
    analyzer, tile = Analyzer(), loop.loop_var
    # Each index, extent and condition must be the same before and after this shift.
    loaded = sources(loop.body)
    shift = {tile: tile + 1} | {column: column - over.extent for column, over in columns.items()}
    depends = False

    def check(index: tirx.Expr) -> None:
        nonlocal depends
        if uses(index, shift) and not analyzer.can_prove_equal(index, substitute(index, shift)):
            depends = True

    def load(node: tvm.ir.TensorLoad) -> tirx.Expr:
        for at, index in enumerate(node.indices):
            if not (node.source.same_as(buffer) and at == axis):
                check(index)
        return tirx.Var("loaded", node.ty)

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        nonlocal depends
        for at, index in enumerate(node.indices):
            if not (node.buffer.same_as(buffer) and at == axis):
                check(index)
        if not node.buffer.same_as(buffer):
            # Columns would depend on each other.
            is_shared = not any(uses(index, columns) for index in node.indices)
            depends |= is_shared or node.buffer in loaded
        depends |= uses(node.value, shift)
        return node

    callbacks = [
        (tvm.ir.TensorLoad, load),
        (tirx.BufferStore, store),
        (tirx.For, lambda node: check(node.extent)),
        (tirx.IfThenElse, lambda node: check(node.condition)),
    ]
    structural_map(loop.body, callbacks)
    return not depends


def _split(tiles: _Tiles, columns: int) -> tirx.Stmt:
    """The loop over whole tiles, and the last tile after it: steps 3 and 4."""
    loop, size = tiles.loop, tiles.size
    limit, whole = (tirx.Var(name, loop.loop_var.ty) for name in ("limit", "whole"))
    main = tirx.For(loop.loop_var, loop.min, whole, loop.kind, _unguarded(tiles))
    # The last tile begins after all whole ones; its body keeps the conditions.
    at_end = {loop.loop_var: whole}
    last = substitute(loop.body, at_end)
    rest = limit - whole * size
    if columns < size:
        small = substitute(_with_columns(tiles, columns), at_end)
        last = tirx.IfThenElse(rest > columns, with_new_variables(last), small)
    last = tirx.IfThenElse(rest > 0, with_new_variables(last), None)
    # The limit may be negative where an extent is: then there is no tile.
    count = tirx.max(tirx.floordiv(limit, size), 0)
    return tirx.SeqStmt([tirx.Bind(limit, tiles.limit), tirx.Bind(whole, count), main, last])


def _unguarded(tiles: _Tiles) -> tirx.Stmt:
    """The body without the conditions of columns, which are stored as a vector.

    Without ``min(position, bound - 1)`` either, the columns of a tile are adjacent for LLVM.
    """
    guards = [condition for condition, _ in tiles.bounds]

    def unclamp(smaller: tirx.Min) -> tirx.Expr:
        is_position = _is_position(smaller.a, tiles.loop, tiles.columns)
        beyond = smaller.b + 1
        is_last = any(Analyzer().can_prove_equal(beyond, bound) for _, bound in tiles.bounds)
        return smaller.a if is_position and is_last else smaller

    def keep(statement: tirx.IfThenElse) -> tirx.Stmt:
        parts = _conjuncts(statement.condition)
        kept = [part for part in parts if not any(part.same_as(guard) for guard in guards)]
        if len(kept) == len(parts):
            return statement
        if not kept:
            return statement.then_case
        return tirx.IfThenElse(tirx.all(*kept), statement.then_case, None)

    def vectorize(loop: tirx.For) -> tirx.Stmt:
        is_store = isinstance(loop.body, tirx.BufferStore) and loop.kind == tirx.ForKind.SERIAL
        if loop.loop_var not in tiles.columns or not is_store:
            return loop
        return _like(loop, loop.extent, tirx.ForKind.VECTORIZED)

    unguarded = structural_map(tiles.loop.body, [(tirx.IfThenElse, keep), (tirx.Min, unclamp)])
    return structural_map(unguarded, (tirx.For, vectorize))


def _with_columns(tiles: _Tiles, count: int) -> tirx.Stmt:
    """The body for the first `count` columns of a tile."""
    # Fewer columns are a shorter axis of the sums, and loops of as many steps.
    shape = [count if at == tiles.axis else extent for at, extent in enumerate(tiles.buffer.shape)]
    buffer = tirx.decl_buffer(shape, tiles.buffer.dtype, tiles.buffer.name, layout=None)

    def shorten(loop: tirx.For) -> tirx.Stmt:
        if loop.loop_var not in tiles.columns:
            return loop
        return _like(loop, tirx.const(count, str(loop.loop_var.ty)), loop.kind)

    shorter = structural_map(tiles.loop.body, (tirx.For, shorten))
    return redirected(shorter, tiles.buffer, [buffer], lambda position: (buffer, position))


def _like(loop: tirx.For, extent: tirx.Expr, kind: tirx.ForKind) -> tirx.For:
    return tirx.For(loop.loop_var, loop.min, extent, kind, loop.body, None, loop.annotations)
