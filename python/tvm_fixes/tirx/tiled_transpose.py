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
from .util import count_of, divides, is_one, item_bytes_of
from .vectorize import int64, lanes_of, serial_loop, vector_loop

# The maximum number of tensors with tiles in registers at the same time.
_MAX_TILES = 2

# The minimum number of columns of a panel; a panel has less than twice as many.  Each column is a
# row of the source, which may be in a separate page; a TLB holds about a thousand pages.
_MIN_PANEL = 512

# The bytes of a row of elements of 8 or 16 bits.
_NARROW_ROW = 16

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

    If the tiles do not divide an axis, the last one overlaps the one before it.  A result with
    fewer bits than what it reads, such as a quantized tensor, is computed before it is shuffled.

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
        not fit.
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
    if transposition.has_widened_buffers(allocated):
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
    shuffled : list[tirx.Expr]
        What is shuffled in tiles: these loads, or the value that is stored.
    lanes : int
        The lanes of a vector, which are also the rows and columns of a tile.
    """

    store: tirx.BufferStore
    along: _Axis
    across: _Axis
    others: list[_Axis]
    transposed: list[tvm.ir.TensorLoad]
    shuffled: list[tirx.Expr]
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
        transposed, unit_axes = [], []
        for access, load in enumerate(loads, start=1):
            if any(along.has_step(access, step) for step in (0, 1)):
                continue
            transposed.append(load)
            unit_axes.append(next((axis for axis in axes if axis.has_step(access, 1)), None))
        if not 1 <= len(transposed) <= _MAX_TILES:
            return None
        across = unit_axes[0]
        if across is None or any(axis is not across for axis in unit_axes):
            return None
        narrows = min(map(_bits, transposed)) > _bits(store.value) and not _is_widened(store.value)
        is_along_rows = all(
            across.has_step(access, 0) or across.has_step(access, 1)
            for access in range(1, len(loads) + 1)
        )
        shuffled = [store.value] if narrows and is_along_rows else transposed
        lanes = _lanes([along.extent, across.extent], size, [*shuffled, store.value])
        if lanes is None:
            return None
        others = [axis for axis in axes if axis is not along and axis is not across]
        return cls(store, along, across, others, transposed, shuffled, lanes)

    def has_widened_buffers(self, allocated: Collection[tirx.Var]) -> bool:
        """Whether this shuffles the bits of a buffer that TVM will widen."""
        target = tirx.BufferLoad(self.store.buffer, self.store.indices)
        accesses = [load for load in self.shuffled if isinstance(load, tvm.ir.TensorLoad)]
        return any(load.source in allocated and _is_widened(load) for load in (*accesses, target))

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
        for value in self.shuffled:
            # A buffer per row is small enough for the stack and for a register.
            extent, dtype = int64(self.lanes), _shuffled_dtype(value)
            rows = [
                tirx.decl_buffer([extent], dtype, f"row{i}", layout=None) for i in range(self.lanes)
            ]
            tiles.append(rows)
            stmts += [self._load_row(value, row, i, at) for i, row in enumerate(rows)]
            stmts += _shuffle(rows)
        stmts += [self._store_row([rows[i] for rows in tiles], i, at) for i in range(self.lanes)]
        return stmts, [row for rows in tiles for row in rows]

    def _load_row(self, value: tirx.Expr, row: tirx.Var, i: int, at: _At) -> tirx.Stmt:
        """Load or compute adjacent elements, for column `i` of the result."""

        def in_lane(lane: tirx.Expr) -> tirx.Stmt:
            bits = _as_dtype(at(value, lane, int64(i)), str(row.dtype))
            return tirx.BufferStore(row, bits, [lane])

        return vector_loop(self.lanes, in_lane)

    def _store_row(self, rows: Sequence[tirx.Var], i: int, at: _At) -> tirx.Stmt:
        """Compute and store row `i` of the result, from a row of each tile."""

        def in_lane(lane: tirx.Expr) -> tirx.Stmt:
            def read(expr: tirx.Expr, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Expr:
                for known, row in zip(self.shuffled, rows, strict=True):
                    if tvm_ffi.structural_equal(expr, known):
                        return _as_dtype(tirx.BufferLoad(row, [lane]), str(known.ty))
                return mutator.default_mutate(expr)

            value = structural_mutate(self.store.value, (type(self.shuffled[0]), read))
            row_at = int64(i)
            indices = [at(index, row_at, lane) for index in self.store.indices]
            return tirx.BufferStore(self.store.buffer, at(value, row_at, lane), indices)

        return vector_loop(self.lanes, in_lane)


def _bits(value: tirx.Expr) -> int:
    return int(tvm.DataType(str(value.ty)).bits)


def _lanes(extents: Sequence[tirx.Expr], size: int, values: Sequence[tirx.Expr]) -> int | None:
    """The rows and columns of a tile; None if vectors do not fit."""
    dtypes = [str(value.ty) for value in values]
    bits = min(map(_bits, values))
    if bits not in (8, 16, 32, 64):
        return None
    if bits >= 32:
        return lanes_of(extents, size, dtypes)
    narrow = [dtype for dtype, value in zip(dtypes, values, strict=True) if _bits(value) == bits]
    return None if "bool" in dtypes else lanes_of(extents, _NARROW_ROW, narrow)


def _shuffled_dtype(value: tirx.Expr) -> str:
    """The dtype in which a value is shuffled: not every CPU has vectors of narrow floats."""
    dtype, bits = str(value.ty), _bits(value)
    return f"uint{bits}" if "float" in dtype and bits < 32 else dtype


def _is_widened(value: tirx.Expr) -> bool:
    """Whether TVM computes such values, and keeps them within a kernel, in another dtype."""
    return str(value.ty).startswith(("bfloat16", "float8"))


def _as_dtype(value: tirx.Expr, dtype: str) -> tirx.Expr:
    """The bits of a value as another dtype."""
    return value if str(value.ty) == dtype else tirx.reinterpret(dtype, value)


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
    loads: list[tvm.ir.TensorLoad] = []

    def look(load: tvm.ir.TensorLoad) -> None:
        if not any(tvm_ffi.structural_equal(load, known) for known in loads):
            loads.append(load)

    structural_walk(value, (tvm.ir.TensorLoad, look))
    return loads


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
    """Transpose the square of `rows`."""
    ramp = tirx.Ramp(int64(0), int64(1), len(rows))
    vectors: list[tirx.Expr] = [tirx.BufferLoad(row, [ramp]) for row in rows]
    is_narrow = item_bytes_of(rows[0]) < 4
    stmts, vectors = _interleaved(vectors) if is_narrow else _exchanged(vectors)
    return [
        *stmts,
        *(tirx.BufferStore(row, v, [ramp]) for row, v in zip(rows, vectors, strict=True)),
    ]


def _exchanged(vectors: list[tirx.Expr]) -> tuple[list[tirx.Stmt], list[tirx.Expr]]:
    """Transpose a square: swap its off-diagonal blocks, then transpose each block."""
    lanes = len(vectors)
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
                stmt = _shuffled(pair, chosen, f"exchanged{distance}_{row}")
                stmts.append(stmt)
                exchanged[row] = stmt.var
        vectors = exchanged
        distance //= 2
    return stmts, vectors


def _interleaved(vectors: list[tirx.Expr]) -> tuple[list[tirx.Stmt], list[tirx.Expr]]:
    """Transpose a square: interleave the elements of its upper and its lower half, repeatedly.

    Vectors of 16 bytes have an instruction for that on all CPUs.
    """
    lanes = len(vectors)
    stmts: list[tirx.Stmt] = []
    for step in range(lanes.bit_length() - 1):
        interleaved: list[tirx.Expr] = []
        for i in range(lanes // 2):
            pair = [vectors[i], vectors[i + lanes // 2]]
            for first in (0, lanes // 2):
                chosen = [k for at in range(first, first + lanes // 2) for k in (at, lanes + at)]
                stmts.append(_shuffled(pair, chosen, f"interleaved{step}_{len(interleaved)}"))
                interleaved.append(stmts[-1].var)
        vectors = interleaved
    return stmts, vectors


def _shuffled(pair: list[tirx.Expr], chosen: Sequence[int], name: str) -> tirx.Bind:
    indices = [tirx.const(k, "int32") for k in chosen]
    return tirx.Bind(tirx.Var(name, pair[0].ty), tirx.Shuffle(pair, indices))
