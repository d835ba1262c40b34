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
"""Loop nests around a block: which elements they read and write, and how they reduce them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.analysis import get_sblock_access_region
from tvm.sym import Analyzer, detect_linear_equation
from tvm_ffi import structural_map, structural_mutate, structural_walk

from ..support.dtypes import accumulation_dtype
from .util import contains, count_of, is_zero

# Calls that TVM's code generator for LLVM accepts on vectors; it compiles others only on scalars.
_VECTOR_CALLS = frozenset(
    f"tirx.{name}"
    for name in (
        *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "pow", "sigmoid", "tanh", "erf"),
        *("sin", "cos", "atan", "atan2", "fmod"),
        *("fabs", "floor", "ceil", "trunc", "round", "nearbyint", "isnan", "reinterpret"),
        *("shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    )
)

# The number of vectors from which starting another loop costs little.
_MANY_VECTORS = 8


@dataclass(frozen=True)
class Nest:
    """Perfectly nested serial loops around a block."""

    loops: list[tirx.For]
    block: SBlock
    values: list[tirx.Expr]

    @classmethod
    def of(cls, stmt: tirx.Stmt) -> "Nest | None":
        """`stmt` as a nest; None if it is not one."""
        loops = []
        while isinstance(stmt, tirx.For):
            if stmt.kind != tirx.ForKind.SERIAL or stmt.annotations or not is_zero(stmt.min):
                return None
            loops.append(stmt)
            stmt = stmt.body
        if not isinstance(stmt, SBlockRealize) or not _is_true(stmt.predicate):
            return None
        if stmt.block.alloc_buffers or stmt.block.match_buffers:
            return None
        return cls(loops, stmt.block, list(stmt.iter_values))

    @property
    def stores(self) -> list[tirx.BufferStore] | None:
        """The stores of the block, in terms of the loops; None if it does more than store."""
        body = self.block.body
        values = dict(zip((i.var for i in self.block.iter_vars), self.values, strict=True))
        stores = []
        for stmt in body if isinstance(body, tirx.SeqStmt) else [body]:
            if isinstance(stmt, tirx.Bind):
                values[stmt.var] = substitute(stmt.value, values)
            elif isinstance(stmt, tirx.BufferStore):
                stores.append(substitute(stmt, values))
            else:
                return None
        return stores

    @property
    def reduced(self) -> int | None:
        """The number of innermost loops that reduce; None if an outer loop reduces too."""
        reducing: list[tirx.Var] = []
        kept: list[tirx.Var] = []
        for value, iterator in zip(self.values, self.block.iter_vars, strict=True):
            reduces = iterator.iter_type == tirx.IterVar.CommReduce
            structural_walk(value, (tirx.Var, (reducing if reduces else kept).append))
        count = 0
        for loop in reversed(self.loops):
            if loop.loop_var in kept or loop.loop_var not in reducing:
                break
            count += 1
        rest = self.loops[: len(self.loops) - count]
        return None if any(loop.loop_var in reducing for loop in rest) else count

    def around(
        self, count: int, body: Sequence[tirx.Stmt], buffers: Sequence[tirx.Var] = ()
    ) -> tirx.Stmt:
        """The outermost `count` loops around another body, in a block of the same name."""
        block = self.block_of([], sequence(body), buffers)
        return around_loops(self.loops[:count], SBlockRealize([], True, block))

    def block_of(
        self,
        iter_vars: Sequence[tirx.IterVar],
        body: tirx.Stmt,
        buffers: Sequence[tirx.Var] = (),
    ) -> SBlock:
        """A block of the same name with another body and the regions that this accesses."""
        name = self.block.name_hint
        undescribed = SBlock(iter_vars, [], [], name, body, alloc_buffers=list(buffers))
        regions = [*self.block.reads, *self.block.writes]
        known = {region.source: region.source for region in regions}
        reads, writes, _ = get_sblock_access_region(undescribed, known)
        return SBlock(iter_vars, reads, writes, name, body, alloc_buffers=list(buffers))


@dataclass(frozen=True)
class Update:
    """``target = combine(target, element)``; 16-bit floats are summed in float32."""

    target: tirx.BufferStore
    initial: tirx.Expr
    element: tirx.Expr
    combine: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]

    @property
    def dtype(self) -> str:
        return str(self.initial.ty)


def updates_of(nest: Nest, stores: Sequence[tirx.BufferStore]) -> list[Update] | None:
    """The updates of a reduction, one per result; None if it is not recognized."""
    body = nest.block.init
    initial = list(body) if isinstance(body, tirx.SeqStmt) else [body]
    if len(initial) != len(stores):
        return None
    buffers = [store.buffer for store in stores]
    updates = []
    for store, first in zip(stores, initial, strict=True):
        if not isinstance(first, tirx.BufferStore) or not first.buffer.same_as(store.buffer):
            return None
        update = _update(store, first.value)
        if update is None or any(buffer in sources(update.element) for buffer in buffers):
            return None
        updates.append(update)
    return updates


def _update(store: tirx.BufferStore, initial: tirx.Expr) -> Update | None:
    value = store.value
    old = tirx.BufferLoad(store.buffer, store.indices)
    identity = {tirx.Add: 0, tirx.Mul: 1}.get(type(value))
    if not isinstance(initial, tirx.IntImm | tirx.FloatImm):
        return None
    if isinstance(value, tirx.Add | tirx.Mul | tirx.Max | tirx.Min):
        if not tvm_ffi.structural_equal(value.a, old) or identity not in (None, initial.value):
            return None
        dtype = accumulation_dtype(str(old.ty))
        widened = tirx.const(initial.value, dtype)
        return Update(store, widened, value.b.astype(dtype), type(value))
    is_extremum = isinstance(value, tirx.Select) and tvm_ffi.structural_equal(
        value.false_value, old
    )
    if not is_extremum:
        return None
    kept, other = tirx.Var("kept", old.ty), tirx.Var("other", old.ty)

    def name(expr: tirx.Expr, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Expr:
        for known, var in ((old, kept), (value.true_value, other)):
            if tvm_ffi.structural_equal(expr, known):
                return var
        return mutator.default_mutate(expr)

    condition = structural_mutate(value.condition, (tvm.ir.Expr, name))
    if sources(condition):
        return None

    def combine(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        return tirx.Select(substitute(condition, {kept: a, other: b}), b, a)

    return Update(store, initial, value.true_value, combine)


@dataclass(frozen=True)
class Run:
    """Innermost loops along which a block reads and writes adjacent or equal elements."""

    loops: list[tirx.For]
    extent: tirx.Expr

    @property
    def count(self) -> int:
        return len(self.loops)

    def at(self, node: tirx.Expr, position: tirx.Expr) -> tirx.Expr:
        return substitute(node, unfused(self.loops, position))

    def in_whole_vectors(self, lanes: int) -> "Run":
        """The shortest part that many whole vectors fill, or all of the run.

        TVM simplifies each index before it adds them up to a position in memory.  For vectors, the
        quotients of three or more loops then differ in form, and the position keeps divisions.
        """
        extent = 1
        for count, loop in enumerate(reversed(self.loops), 1):
            if not isinstance(loop.extent, tirx.IntImm):
                break
            extent *= loop.extent.value
            if extent % lanes == 0 and extent >= _MANY_VECTORS * lanes:
                return Run(self.loops[len(self.loops) - count :], tirx.const(extent, "int64"))
        return self


def run_of(
    loops: Sequence[tirx.For],
    values: Sequence[tirx.Expr],
    targets: Sequence[tirx.Expr] = (),
    intermediates: Collection[tirx.Var] = (),
) -> Run | None:
    """The longest run of innermost loops that writes each element of `targets` once.

    A run that accesses one of the buffers `intermediates` does not divide by a symbolic extent:
    CompactBufferAllocation would compute an extent of the buffer from the loop variable.
    """
    accessed = set().union(*(sources(access) for access in (*values, *targets)))
    may_divide = accessed.isdisjoint(intermediates)
    for count in range(len(loops), 0, -1):
        outer, inner = loops[: len(loops) - count], list(loops[len(loops) - count :])
        are_known = all(isinstance(loop.extent, tirx.IntImm) for loop in inner[1:])
        if not are_known and not may_divide:
            continue
        analyzer = analyzer_of(outer)
        extent = count_of(loop.extent for loop in inner)
        fused = tirx.Var("fused", "int64")
        analyzer.bind(fused, tvm.ir.Range(0, extent))
        within = unfused(inner, fused)
        steps = [_step(substitute(value, within), fused, analyzer) for value in values]
        written = [_step(substitute(target, within), fused, analyzer) for target in targets]
        is_adjacent = all(step <= {0, 1} for step in steps) and 1 in set().union(*steps, *written)
        if is_adjacent and all(step == {1} for step in written):
            return Run(inner, extent)
    return None


def analyzer_of(loops: Sequence[tirx.For]) -> Analyzer:
    """An analyzer that knows the extents of loops."""
    analyzer = Analyzer()
    for loop in loops:
        analyzer.bind(loop.loop_var, tvm.ir.Range(0, loop.extent))
    return analyzer


def unfused(loops: Sequence[tirx.For], position: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
    """The variables of `loops` at a position in the sequence of all their iterations."""
    values = {}
    for loop in reversed(loops[1:]):
        # Avoid a division by 0, which TVM fails to fold; a loop that never runs has no position.
        extent = tirx.const(1, "int64") if is_zero(loop.extent) else loop.extent.astype("int64")
        values[loop.loop_var] = tirx.floormod(position, extent).astype(loop.loop_var.ty)
        position = tirx.floordiv(position, extent)
    values[loops[0].loop_var] = position.astype(loops[0].loop_var.ty)
    return values


def _step(value: tirx.Expr, along: tirx.Var, analyzer: Analyzer) -> set[int | None]:
    """The distances in memory between the elements that `value` reads for adjacent `along`.

    None marks an unknown distance, or a value that cannot be vectorized.
    """
    steps: set[int | None] = set()

    def look(load: tvm.ir.TensorLoad) -> None:
        strides = steps_of(load, [along], analyzer)
        step = strides[0] if strides else None
        steps.add(step.value if isinstance(step, tirx.IntImm) else None)

    structural_walk(value, (tvm.ir.TensorLoad, look))
    return steps if is_vectorizable(value, [along]) else {*steps, None}


def steps_of(
    access: tvm.ir.TensorLoad, variables: Sequence[tirx.Var], analyzer: Analyzer
) -> list[tirx.Expr] | None:
    """The step of an access along each variable: the distance in memory when it grows by 1.

    None if a step is not constant.
    """
    if access.source.strides:
        return None
    linear = detect_linear_equation(analyzer.simplify(offset_of(access)), list(variables))
    return [analyzer.simplify(step) for step in linear[: len(variables)]] if linear else None


def offset_of(access: tvm.ir.TensorLoad) -> tirx.Expr:
    """The position of an element in memory, in elements from the first one."""
    offset = tirx.const(0, "int64")
    for index, extent in zip(access.indices, access.source.shape, strict=True):
        offset = offset * extent + index
    return offset


def is_vectorizable(value: tirx.Expr, variables: Sequence[tirx.Var]) -> bool:
    """Whether all calls in `value` that depend on `variables` work on vectors."""

    def is_for_scalars(call: tvm.ir.Call) -> bool:
        return str(call.op.name) not in _VECTOR_CALLS and uses(call, variables)

    return not contains(value, tvm.ir.Call, is_for_scalars)


def uses(expr: tirx.Expr, variables: Collection[tirx.Var]) -> bool:
    """Whether one of `variables` occurs in `expr`."""
    return contains(expr, tirx.Var, lambda var: var in variables)


def sources(node: tvm.Object) -> set[tirx.Var]:
    """The buffers that an expression or a statement reads."""
    buffers: set[tirx.Var] = set()
    structural_walk(node, (tvm.ir.TensorLoad, lambda load: buffers.add(load.source)))
    return buffers


def positions_of(node: tvm.Object, buffer: tirx.Buffer) -> list[Sequence[tirx.Expr]]:
    """The indices of all accesses to `buffer`."""
    positions: list[Sequence[tirx.Expr]] = []

    def load(access: tvm.ir.TensorLoad) -> None:
        if access.source.same_as(buffer):
            positions.append(list(access.indices))

    def store(access: tirx.BufferStore) -> None:
        if access.buffer.same_as(buffer):
            positions.append(list(access.indices))

    structural_walk(node, [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store)])
    return positions


def redirected(
    node: tvm.Object,
    buffer: tirx.Buffer,
    targets: Sequence[tirx.Buffer],
    move: Callable[[Sequence[tirx.Expr]], tuple[tirx.Buffer, Sequence[tirx.Expr]]],
) -> tvm.Object:
    """Allocate and access `targets` instead of `buffer`.

    Parameters
    ----------
    node : tvm.Object
        A statement or a PrimFunc.
    buffer : tirx.Buffer
    targets : sequence of tirx.Buffer
    move : callable
        Returns the target and the indices for the indices of an access to `buffer`.
    """

    def load(access: tvm.ir.TensorLoad) -> tirx.Expr:
        return tirx.BufferLoad(*move(access.indices)) if access.source.same_as(buffer) else access

    def store(access: tirx.BufferStore) -> tirx.Stmt:
        if not access.buffer.same_as(buffer):
            return access
        target, indices = move(access.indices)
        return tirx.BufferStore(target, access.value, indices)

    def allocate(statement: tirx.AllocBuffer) -> tirx.Stmt:
        if not statement.buffer.same_as(buffer):
            return statement
        return sequence(tirx.AllocBuffer(target) for target in targets)

    callbacks = [
        (tvm.ir.TensorLoad, load),
        (tirx.BufferStore, store),
        (tirx.AllocBuffer, allocate),
    ]
    return structural_map(node, callbacks)


def substitute(node: tvm.Object, values: dict[tirx.Var, tirx.Expr]) -> tvm.Object:
    """Replace variables in `node` by their `values`."""
    return structural_map(node, (tirx.Var, lambda var: values.get(var, var)))


def _is_true(predicate: tirx.Expr) -> bool:
    return isinstance(predicate, tirx.IntImm) and bool(predicate.value)


def sequence(stmts: Iterable[tirx.Stmt]) -> tirx.Stmt:
    listed = list(stmts)
    return listed[0] if len(listed) == 1 else tirx.SeqStmt(listed)


def around_loops(loops: Sequence[tirx.For], stmt: tirx.Stmt) -> tirx.Stmt:
    """Loops like `loops`, with new variables, around a statement."""
    for loop in reversed(loops):
        stmt = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, stmt)
    return substitute(
        stmt, {loop.loop_var: tirx.Var(loop.loop_var.name, loop.loop_var.ty) for loop in loops}
    )


def with_new_variables(stmt: tirx.Stmt) -> tirx.Stmt:
    """A copy of `stmt` that defines new variables."""
    defined: list[tirx.Var] = []

    def look(block: SBlock) -> None:
        defined.extend(iterator.var for iterator in block.iter_vars)
        defined.extend(block.alloc_buffers)

    callbacks = [
        (tirx.For, lambda loop: defined.append(loop.loop_var)),
        (tirx.Bind, lambda bind: defined.append(bind.var)),
        (tirx.AllocBuffer, lambda alloc: defined.append(alloc.buffer)),
        (SBlock, look),
    ]
    structural_walk(stmt, callbacks)
    return substitute(stmt, {var: tirx.Var(var.name, var.ty) for var in defined})
