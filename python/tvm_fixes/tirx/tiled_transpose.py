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
"""Transpositions in square register tiles, for kernels that read and write along different axes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_mutate, structural_walk

from .loop_nest import Nest, analyzer_of, is_vectorizable, steps_of, substitute, unfused
from .util import count_of, divides, is_one
from .vectorize import int64, lanes_of, serial_loop, vector_loop

# The maximum number of tensors with tiles in registers at the same time.
_MAX_TILES = 2

# The minimum number of columns of a panel; a panel has less than twice as many.  Each column is a
# row of the source, which may be in a separate page; a TLB holds about a thousand pages.
_MIN_PANEL = 512

_INT64 = "int64"

# Evaluates an expression of the loops at a row and a column of a tile.
_At = Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]


def transpose_in_tiles(
    loop: tirx.For, size: int, allocated: Collection[tirx.Var] = ()
) -> tirx.Stmt | None:
    """Rewrite a transposition to loops over square tiles.

    Before::

        for i, j in T.grid(n, m):
            y[i, j] = x[j, i] + T.float32(1)

    and after, with vectors of 4 elements::

        for i, j in T.grid(n // 4, m // 4):
            row0[0:4] = x[j * 4, i * 4 : i * 4 + 4]
            …
            # Shuffled: now row0 has the first elements of all rows, and so on.
            y[i * 4, j * 4 : j * 4 + 4] = row0[0:4] + T.float32(1)
            …

    If the tiles do not divide an axis, the last one overlaps the one before it.

    Parameters
    ----------
    loop : tirx.For
        The outermost loop of the nest.
    size : int
        The size of a vector in bytes.
    allocated : collection of tirx.Var
        The buffers that the kernel allocates.  The result may share the memory of one that is read
        at the same indices; then tiles must not overlap.

    Returns
    -------
    tirx.Stmt or None
        None if adjacent elements of the result are read from adjacent elements, or if vectors do
        not fit: the elements must have 4 or 8 bytes.
    """
    nest = Nest.of(loop)
    if nest is None or nest.block.init is not None:
        return None
    stores = nest.stores
    if stores is None or len(stores) != 1:
        return None
    store = _with_simple_indices(stores[0], nest.loops)
    transposition = _Transposition.of(nest, store, size)
    if transposition is None or transposition.may_read_results(allocated):
        return None
    tiles, fits = transposition.stmt(nest), transposition.fits
    return tiles if fits is None else tirx.IfThenElse(fits, tiles, loop)


@dataclass(frozen=True)
class _Axis:
    """Adjacent loops that count as one: each access has the same step along all of them.

    Attributes
    ----------
    loops : list[tirx.For]
    extent : tirx.Expr
        The total number of iterations.
    steps : list[tirx.Expr]
        For each access, the distance in memory between neighbors.
    """

    loops: list[tirx.For]
    extent: tirx.Expr
    steps: list[tirx.Expr]

    def at(self, position: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        return unfused(self.loops, position)

    def has_step(self, access: int, step: int) -> bool:
        return bool(Analyzer().can_prove_equal(self.steps[access], step))


@dataclass(frozen=True)
class _Transposition:
    """An elementwise kernel that reads some tensors along a different axis than it writes.

    Attributes
    ----------
    store : tirx.BufferStore
    along, across : _Axis
        The axes along which adjacent elements are written and read, respectively.
    others : list[_Axis]
    transposed : list[tvm.ir.TensorLoad]
        The loads along `across`.
    lanes : int
        The lanes of a vector, which are also the rows and columns of a tile.
    """

    store: tirx.BufferStore
    along: _Axis
    across: _Axis
    others: list[_Axis]
    transposed: list[tvm.ir.TensorLoad]
    lanes: int

    @classmethod
    def of(cls, nest: Nest, store: tirx.BufferStore, size: int) -> "_Transposition | None":
        """The transposition of a nest; None if it is not one, or if vectors do not fit."""
        loads = _loads(store.value)
        target = tirx.BufferLoad(store.buffer, store.indices)
        axes = _axes(nest.loops, [target, *loads])
        along = next((axis for axis in axes if axis.has_step(0, 1)), None)
        variables = [loop.loop_var for loop in nest.loops]
        if along is None or not is_vectorizable(store.value, variables):
            return None
        transposed, found = [], []
        for access, load in enumerate(loads, start=1):
            if any(along.has_step(access, step) for step in (0, 1)):
                continue
            transposed.append(load)
            found.append(next((axis for axis in axes if axis.has_step(access, 1)), None))
        if not 1 <= len(transposed) <= _MAX_TILES:
            return None
        across = found[0]
        if across is None or any(axis is not across for axis in found):
            return None
        dtypes = [str(load.ty) for load in transposed]
        if any(tvm.DataType(dtype).bits not in (32, 64) for dtype in dtypes):
            return None
        lanes = lanes_of([along.extent, across.extent], size, [str(store.value.ty), *dtypes])
        if lanes is None:
            return None
        others = [axis for axis in axes if axis is not along and axis is not across]
        return cls(store, along, across, others, transposed, lanes)

    def may_read_results(self, allocated: Collection[tirx.Var]) -> bool:
        """Whether a tile may read results that an overlapping tile has already written."""
        if all(divides(self.lanes, axis.extent) for axis in (self.along, self.across)):
            return False
        direct = [
            load
            for load in _loads(self.store.value)
            if not any(tvm_ffi.structural_equal(load, known) for known in self.transposed)
        ]
        return any(load.source in allocated for load in direct)

    @property
    def fits(self) -> tirx.Expr | None:
        """The condition that both axes are at least as long as a tile; None if always true."""
        unknown = [
            axis.extent >= self.lanes
            for axis in (self.along, self.across)
            if not isinstance(axis.extent, tirx.IntImm)
        ]
        return tirx.all(*unknown) if unknown else None

    def stmt(self, nest: Nest) -> tirx.Stmt:
        """Loop over panels of columns of the result, and over rows of tiles in each panel."""
        # Only the variables and extents of these loops are used.
        loops, nothing = [], tirx.Evaluate(0)
        values: dict[tirx.Var, tirx.Expr] = {}
        for axis in self.others:
            position = tirx.Var("other", _INT64)
            loops.append(serial_loop(position, axis.extent, nothing))
            values |= axis.at(position)
        row_tile, column_tile = tirx.Var("row_tile", _INT64), tirx.Var("column_tile", _INT64)
        rows, columns = (tirx.ceildiv(a.extent, self.lanes) for a in (self.across, self.along))
        column, size = column_tile, self._panel()
        if size is not None:
            panel = tirx.Var("panel", _INT64)
            loops.append(serial_loop(panel, tirx.ceildiv(columns, size), nothing))
            column = panel * size + column_tile
            left = columns - panel * size
            columns = int64(size) if divides(size, columns) else tirx.min(left, size)
        loops.append(serial_loop(row_tile, rows, nothing))
        loops.append(serial_loop(column_tile, columns, nothing))
        starts = []
        for axis, tile in ((self.across, row_tile), (self.along, column)):
            start = tile * self.lanes
            is_divided = divides(self.lanes, axis.extent)
            starts.append(start if is_divided else tirx.min(start, axis.extent - self.lanes))

        def at(node: tirx.Expr, row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
            within = self.across.at(starts[0] + row) | self.along.at(starts[1] + column)
            return substitute(node, values | within)

        body, buffers = self._tile(at)
        return Nest(loops, nest.block, []).around(len(loops), body, buffers)

    def _panel(self) -> int | None:
        """The width of a panel in tiles; None for a single panel, as with unknown extents.

        Threads can share the loops within a panel only if their extents are known.
        """
        if not all(isinstance(axis.extent, tirx.IntImm) for axis in (self.along, self.across)):
            return None
        columns = self.along.extent.value
        panels = columns // _MIN_PANEL
        return -(-columns // (panels * self.lanes)) if panels > 1 else None

    def _tile(self, at: _At) -> tuple[list[tirx.Stmt], list[tirx.Var]]:
        """Load, shuffle and store the rows; return the statements and the buffers of the rows."""
        stmts: list[tirx.Stmt] = []
        tiles: list[list[tirx.Var]] = []
        for load in self.transposed:
            # A buffer per row is small enough for the stack and for a register.
            extent = int64(self.lanes)
            rows = [
                tirx.decl_buffer([extent], str(load.ty), f"row{i}", layout=None)
                for i in range(self.lanes)
            ]
            tiles.append(rows)
            stmts += [self._load_row(load, row, i, at) for i, row in enumerate(rows)]
            stmts += _shuffle(rows)
        stmts += [self._store_row([rows[i] for rows in tiles], i, at) for i in range(self.lanes)]
        return stmts, [row for rows in tiles for row in rows]

    def _load_row(self, load: tvm.ir.TensorLoad, row: tirx.Var, i: int, at: _At) -> tirx.Stmt:
        """Load adjacent elements, for column `i` of the result."""

        def in_lane(lane: tirx.Expr) -> tirx.Stmt:
            return tirx.BufferStore(row, at(load, lane, int64(i)), [lane])

        return vector_loop(self.lanes, in_lane)

    def _store_row(self, rows: Sequence[tirx.Var], i: int, at: _At) -> tirx.Stmt:
        """Compute and store row `i` of the result, from a row of each tile."""

        def in_lane(lane: tirx.Expr) -> tirx.Stmt:
            def read(
                load: tvm.ir.TensorLoad, mutator: tvm_ffi.structural.StructuralMutator
            ) -> tirx.Expr:
                for known, row in zip(self.transposed, rows, strict=True):
                    if tvm_ffi.structural_equal(load, known):
                        return tirx.BufferLoad(row, [lane])
                return mutator.default_mutate(load)

            value = structural_mutate(self.store.value, (tvm.ir.TensorLoad, read))
            row_at = int64(i)
            indices = [at(index, row_at, lane) for index in self.store.indices]
            return tirx.BufferStore(self.store.buffer, at(value, row_at, lane), indices)

        return vector_loop(self.lanes, in_lane)


def _with_simple_indices(store: tirx.BufferStore, loops: Sequence[tirx.For]) -> tirx.BufferStore:
    """Simplify the indices of a store's loads by the extents of the loops.

    After a chain of reshapes they are long, and TVM's region analysis takes minutes for a tile.
    """
    analyzer = analyzer_of(loops)

    def simplify(
        load: tvm.ir.TensorLoad, _mutator: tvm_ffi.structural.StructuralMutator
    ) -> tirx.Expr:
        return tirx.BufferLoad(load.source, [analyzer.simplify(index) for index in load.indices])

    value = structural_mutate(store.value, (tvm.ir.TensorLoad, simplify))
    return tirx.BufferStore(store.buffer, value, store.indices)


def _loads(value: tirx.Expr) -> list[tvm.ir.TensorLoad]:
    """The distinct loads in `value`."""
    found: list[tvm.ir.TensorLoad] = []

    def look(load: tvm.ir.TensorLoad) -> None:
        if not any(tvm_ffi.structural_equal(load, known) for known in found):
            found.append(load)

    structural_walk(value, (tvm.ir.TensorLoad, look))
    return found


def _axes(loops: Sequence[tirx.For], accesses: Sequence[tvm.ir.TensorLoad]) -> list[_Axis]:
    """Join loops into as few axes as possible; none if the steps of an access are not constant."""
    analyzer = analyzer_of(loops)
    variables = [loop.loop_var for loop in loops]
    steps = [steps_of(access, variables, analyzer) for access in accesses]
    if any(step is None for step in steps):
        return []
    axes: list[_Axis] = []
    for loop, step in zip(loops, zip(*steps, strict=True), strict=True):
        axes.append(_Axis([loop], loop.extent.astype(_INT64), list(step)))
        while len(axes) > 1 and (joined := _joined(*axes[-2:])) is not None:
            axes[-2:] = [joined]
    return axes


def _joined(outer: _Axis, inner: _Axis) -> _Axis | None:
    """Join two axes; None if an access has a different step at the end of the inner one.

    The extent of the inner one must be known, since TVM cannot divide by a symbolic extent.
    """
    loops = [*outer.loops, *inner.loops]
    extent = count_of([outer.extent, inner.extent])
    if is_one(inner.extent):
        return _Axis(loops, extent, outer.steps)
    analyzer = Analyzer()
    if not isinstance(inner.extent, tirx.IntImm):
        return None
    is_even = is_one(outer.extent) or all(
        analyzer.can_prove_equal(far, near * inner.extent)
        for far, near in zip(outer.steps, inner.steps, strict=True)
    )
    return _Axis(loops, extent, inner.steps) if is_even else None


def _shuffle(rows: Sequence[tirx.Var]) -> list[tirx.Stmt]:
    """Transpose the square of `rows`: swap its off-diagonal blocks, then transpose each block."""
    lanes = len(rows)
    ramp = tirx.Ramp(int64(0), int64(1), lanes)
    vectors: list[tirx.Expr] = [tirx.BufferLoad(row, [ramp]) for row in rows]
    stmts: list[tirx.Stmt] = []
    distance = lanes // 2
    while distance:
        exchanged = list(vectors)
        for i in range(lanes):
            if i & distance:
                continue
            pair = [vectors[i], vectors[i + distance]]
            # The left halves of the upper and the lower row; then their right halves.
            for row, right in ((i, 0), (i + distance, distance)):
                chosen = [
                    k + right if not k & distance else lanes + k + right - distance
                    for k in range(lanes)
                ]
                indices = [tirx.const(k, "int32") for k in chosen]
                new = tirx.Var(f"exchanged{distance}_{row}", vectors[row].ty)
                stmts.append(tirx.Bind(new, tirx.Shuffle(pair, indices)))
                exchanged[row] = new
        vectors = exchanged
        distance //= 2
    return [
        *stmts,
        *(tirx.BufferStore(row, v, [ramp]) for row, v in zip(rows, vectors, strict=True)),
    ]
