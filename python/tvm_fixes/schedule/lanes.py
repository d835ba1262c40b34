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
"""Loops over adjacent elements, in vectors of explicit lanes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.analysis import get_sblock_access_region
from tvm.sym import Analyzer, detect_linear_equation
from tvm_ffi import structural_map, structural_mutate, structural_walk

from ..relax.legalize.targets import vector_registers

# Whether a lane has not been done before.
IsNew = Callable[[tirx.Expr], tirx.Expr]

# So many vectors are summed side by side, that an addition need not wait for the one before.
_VECTORS = 4

# With fewer lanes it is not worth it.
_FEWEST = 4

# Calls that LLVM's code generator takes for vectors; others it would make for one element.
_OF_VECTORS = frozenset(
    f"tirx.{name}"
    for name in (
        *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "pow", "sigmoid", "tanh"),
        *("fabs", "floor", "ceil", "trunc", "round", "nearbyint", "isnan", "reinterpret"),
        *("shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    )
)


def vectorize(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Let the blocks of a PrimFunc that read and write adjacent elements do so in vectors.

    Before::

        for k in range(n):
            with T.sblock("total"):
                with T.init():
                    total[i] = 0.0
                total[i] = total[i] + x[i, k]

    and after, with 64 lanes in 4 vectors::

        lanes[0:64] = 0.0
        for k in range(n // 64):
            lanes[0:64] = lanes[0:64] + x[i, k * 64 : k * 64 + 64]
        for k in range(n % 64 // 16):
            lanes[0:16] = lanes[0:16] + x[i, n // 64 * 64 + k * 16 : …]
        # The last 16 elements, of which n % 16 are new.
        lanes[0:16] = T.Select(0:16 >= 16 - n % 16, lanes[0:16] + x[i, n - 16 : n], lanes[0:16])
        lanes[0:32] = lanes[0:32] + lanes[32:64]
        …
        total[i] = lanes[0]

    With fewer elements than lanes in a vector, if that is seen at run time alone, they are summed
    one by one.

    Parameters
    ----------
    function : tirx.PrimFunc
        Of blocks; those that are not recognised stay as they are.
    target : tvm.target.Target
        A CPU; says how long its vectors are.

    Returns
    -------
    tirx.PrimFunc
    """
    size, _ = vector_registers(target)

    def rewrite(loop: tirx.For, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Stmt:
        nest = _Nest.of(loop)
        if nest is None:
            return mutator.default_mutate(loop)
        new = _reduction(nest, size) if nest.block.init is not None else _elementwise(nest, size)
        return loop if new is None else new

    body = structural_mutate(function.body, (tirx.For, rewrite))
    return function if body.same_as(function.body) else function.with_body(body)


@dataclass(frozen=True)
class _Nest:
    """Serial loops, one in the other, around a block."""

    loops: list[tirx.For]
    block: SBlock
    values: list[tirx.Expr]

    @classmethod
    def of(cls, stmt: tirx.Stmt) -> "_Nest | None":
        loops = []
        while isinstance(stmt, tirx.For):
            begins_at_zero = isinstance(stmt.min, tirx.IntImm) and stmt.min == 0
            if stmt.kind != tirx.ForKind.SERIAL or stmt.annotations or not begins_at_zero:
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
        """What the block stores, in terms of the loops; None if it does anything else."""
        body = self.block.body
        values = dict(zip((i.var for i in self.block.iter_vars), self.values, strict=True))
        stores = []
        for stmt in body if isinstance(body, tirx.SeqStmt) else [body]:
            if isinstance(stmt, tirx.Bind):
                values[stmt.var] = _substitute(stmt.value, values)
            elif isinstance(stmt, tirx.BufferStore):
                stores.append(_substitute(stmt, values))
            else:
                return None
        return stores

    @property
    def reduced(self) -> int | None:
        """How many of the innermost loops reduce; None where they are not the innermost ones."""
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
        stmt = _sequence(body)
        block = SBlock([], [], [], self.block.name_hint, stmt, alloc_buffers=list(buffers))
        regions = [*self.block.reads, *self.block.writes]
        known = {region.source: region.source for region in regions}
        reads, writes, _ = get_sblock_access_region(block, known)
        block = SBlock([], reads, writes, block.name_hint, stmt, alloc_buffers=list(buffers))
        return _loops(self.loops[:count], SBlockRealize([], True, block))


@dataclass(frozen=True)
class _Update:
    """``target = combine(target, element)``, where 16-bit floats are widened to sum them."""

    target: tirx.BufferStore
    initial: tirx.Expr
    element: tirx.Expr
    combine: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]

    @property
    def dtype(self) -> str:
        return str(self.initial.ty)


def _reduction(nest: _Nest, size: int) -> tirx.Stmt | None:
    """The reduction of `nest` with vectors of `size` bytes, None where it does not fit."""
    stores, reduced = nest.stores, nest.reduced
    if not stores or not reduced:
        return None
    updates = _updates(nest, stores)
    if updates is None:
        return None
    return _along(nest, updates, reduced, size) or _across(nest, updates, reduced, size)


def _along(nest: _Nest, updates: list[_Update], reduced: int, size: int) -> tirx.Stmt | None:
    """A reduction of adjacent elements: each lane has a part of the sum."""
    loops = nest.loops[len(nest.loops) - reduced :]
    run = _run(loops, [update.element for update in updates])
    if run is None:
        return None
    lanes = _lanes(run.extent, size, [update.dtype for update in updates])
    if lanes is None:
        return None
    vectors = _vectors(run.extent, lanes, updates)
    parts = _Parts(updates, vectors * lanes)

    def fold(start: tirx.Expr, count: int, is_new: IsNew | None = None) -> tirx.Stmt:
        def in_lane(lane: tirx.Expr) -> tirx.Stmt:
            def element(update: _Update) -> tirx.Expr:
                return run.at(update.element, start + lane)

            return parts.fold(lane, element, None if is_new is None else is_new(lane))

        return _vector(count, in_lane)

    within = _sequence(_in_vectors(run.extent, lanes, vectors, fold))
    body = [
        parts.begin(),
        _loops(loops[: reduced - run.count], within),
        *parts.halve(),
        parts.end(),
    ]
    return nest.around(len(nest.loops) - reduced, body, parts.buffers)


def _across(nest: _Nest, updates: list[_Update], reduced: int, size: int) -> tirx.Stmt | None:
    """A reduction of elements that are apart: each lane has a result of its own."""
    outer, loops = nest.loops[: len(nest.loops) - reduced], nest.loops[len(nest.loops) - reduced :]
    targets = [tirx.BufferLoad(u.target.buffer, u.target.indices) for u in updates]
    run = _run(outer, [update.element for update in updates], targets)
    if run is None:
        return None
    lanes = _lanes(run.extent, size, [update.dtype for update in updates])
    if lanes is None:
        return None
    vectors = _vectors(run.extent, lanes, updates)
    parts = _Parts(updates, vectors * lanes)

    def reduce(start: tirx.Expr, count: int, _is_new: IsNew | None = None) -> tirx.Stmt:
        def fold(lane: tirx.Expr) -> tirx.Stmt:
            return parts.fold(lane, lambda update: run.at(update.element, start + lane))

        def end(lane: tirx.Expr) -> tirx.Stmt:
            return parts.store(lane, lambda target: run.at(target, start + lane))

        return tirx.SeqStmt(
            [parts.begin(count), _loops(loops, _vector(count, fold)), _vector(count, end)]
        )

    body = _in_vectors(run.extent, lanes, vectors, reduce)
    return nest.around(len(outer) - run.count, body, parts.buffers)


def _vectors(extent: tirx.Expr, lanes: int, updates: list[_Update]) -> int:
    """How many vectors to reduce side by side."""
    if any(_has_call(update.element) for update in updates):
        return 1
    if not isinstance(extent, tirx.IntImm):
        return _VECTORS
    return min(_VECTORS, _power_of_two(extent.value // lanes))


class _Parts:
    """The lanes of each of some results that are updated together."""

    def __init__(self, updates: Sequence[_Update], count: int) -> None:
        self._count = count
        # As many bytes as TVM puts on the stack, from where LLVM takes them into registers.
        self.buffers = [
            tirx.decl_buffer([_int64(count)], update.dtype, "lanes", layout=None)
            for update in updates
        ]
        self._parts = list(zip(self.buffers, updates, strict=True))

    def begin(self, count: int | None = None) -> tirx.Stmt:
        def initial(lane: tirx.Expr) -> tirx.Stmt:
            return _sequence(
                tirx.BufferStore(buffer, update.initial, [lane]) for buffer, update in self._parts
            )

        return _vector(self._count if count is None else count, initial)

    def fold(
        self,
        lane: tirx.Expr,
        element: Callable[[_Update], tirx.Expr],
        is_new: tirx.Expr | None = None,
    ) -> tirx.Stmt:
        """Take an element into a lane; where there is a condition, only if it holds."""
        stmts = []
        for buffer, update in self._parts:
            old = tirx.BufferLoad(buffer, [lane])
            new = update.combine(old, element(update))
            if is_new is not None:
                new = tirx.Select(is_new, new, old)
            stmts.append(tirx.BufferStore(buffer, new, [lane]))
        return _sequence(stmts)

    def halve(self) -> list[tirx.Stmt]:
        """Take one half of the lanes into the other, until one is left."""
        stmts = []
        half = self._count // 2
        while half:

            def fold_half(lane: tirx.Expr, half: int = half) -> tirx.Stmt:
                return _sequence(
                    tirx.BufferStore(
                        buffer,
                        update.combine(
                            tirx.BufferLoad(buffer, [lane]), tirx.BufferLoad(buffer, [lane + half])
                        ),
                        [lane],
                    )
                    for buffer, update in self._parts
                )

            stmts.append(_vector(half, fold_half))
            half //= 2
        return stmts

    def end(self) -> tirx.Stmt:
        """Store the first lane."""
        return self.store(_int64(0), lambda target: target)

    def store(self, lane: tirx.Expr, position: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Stmt:
        """Store a lane at a position of the result."""
        return _sequence(
            tirx.BufferStore(
                update.target.buffer,
                tirx.BufferLoad(buffer, [lane]).astype(str(update.target.value.ty)),
                [position(index) for index in update.target.indices],
            )
            for buffer, update in self._parts
        )


def _elementwise(nest: _Nest, size: int) -> tirx.Stmt | None:
    """The loops of `nest`, the innermost ones in vectors; None where they do not fit."""
    stores = nest.stores
    if not nest.loops or stores is None or len(stores) != 1:
        return None
    (store,) = stores
    target = tirx.BufferLoad(store.buffer, store.indices)
    run = _run(nest.loops, [store.value], [target])
    if run is None:
        return None
    lanes = _lanes(run.extent, size, [str(store.value.ty)])
    if lanes is None:
        return None
    is_in_place = store.buffer in _sources(store.value)
    # What is hoisted must not be written in between.
    variables = [loop.loop_var for loop in run.loops]
    value, constants = (store.value, []) if is_in_place else _hoist(store.value, variables)

    def assign(start: tirx.Expr, count: int, is_new: IsNew | None = None) -> tirx.Stmt:
        def in_lane(lane: tirx.Expr) -> tirx.Stmt:
            new, old = run.at(value, start + lane), run.at(target, start + lane)
            if is_new is not None and is_in_place:
                new = tirx.Select(is_new(lane), new, old)
            return tirx.BufferStore(store.buffer, new, old.indices)

        return _vector(count, in_lane)

    body = [*constants, *_in_vectors(run.extent, lanes, 1, assign)]
    return nest.around(len(nest.loops) - run.count, body)


def _in_vectors(
    extent: tirx.Expr, lanes: int, vectors: int, body: Callable[..., tirx.Stmt]
) -> list[tirx.Stmt]:
    """Do `body` for `extent` elements.

    It is called with the first element and the number of lanes; and where the first ones of these
    have been done, with what tells of a lane whether it has not.
    """
    stmts: list[tirx.Stmt] = []
    done: tirx.Expr = _int64(0)
    for count in (vectors * lanes, lanes) if vectors > 1 else (lanes,):
        full = _simplified(tirx.floordiv(extent - done, count))
        if not (isinstance(full, tirx.IntImm) and full.value == 0):
            outer = tirx.Var("vector", "int64")
            stmts.append(_for(outer, full, body(done + outer * count, count)))
            done = _simplified(done + full * count)
    left = _simplified(tirx.floormod(extent, lanes))
    if isinstance(left, tirx.IntImm) and left.value == 0:
        return stmts
    last = body(extent - lanes, lanes, lambda lane: lane >= lanes - left)
    if isinstance(extent, tirx.IntImm):
        return [*stmts, last]
    single = tirx.Var("single", "int64")
    few = _for(single, extent, body(single, 1))
    # TVM's simplifier refuses a branch that is known to be for an extent of 0, and divides by it.
    factors = Analyzer().modular_set(extent)
    if factors.base == 0 and factors.coeff >= lanes:
        few = None
    return [*stmts, tirx.IfThenElse(extent >= lanes, last, few)]


@dataclass(frozen=True)
class _Run:
    """The innermost loops, along which what a block reads and writes is adjacent or the same."""

    loops: list[tirx.For]
    extent: tirx.Expr

    @property
    def count(self) -> int:
        return len(self.loops)

    def at(self, node: tirx.Expr, position: tirx.Expr) -> tirx.Expr:
        return _substitute(node, _unfused(self.loops, position))


def _run(
    loops: Sequence[tirx.For], values: Sequence[tirx.Expr], targets: Sequence[tirx.Expr] = ()
) -> _Run | None:
    """The longest run of the innermost of `loops`; `targets` are written element by element."""
    for count in range(len(loops), 0, -1):
        inner = list(loops[len(loops) - count :])
        analyzer = Analyzer()
        extent = tirx.const(1, "int64")
        for loop in inner:
            extent = extent * loop.extent.astype("int64")
        extent = analyzer.simplify(extent)
        fused = tirx.Var("fused", "int64")
        analyzer.bind(fused, tvm.ir.Range(0, extent))
        within = _unfused(inner, fused)
        steps = [_step(_substitute(value, within), fused, analyzer) for value in values]
        written = [_step(_substitute(target, within), fused, analyzer) for target in targets]
        is_adjacent = all(step <= {0, 1} for step in steps) and 1 in set().union(*steps, *written)
        if is_adjacent and all(step == {1} for step in written):
            return _Run(inner, extent)
    return None


def _unfused(loops: Sequence[tirx.For], position: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
    """The variables of `loops` at a position in all their iterations."""
    values = {}
    for loop in reversed(loops[1:]):
        extent = loop.extent.astype("int64")
        values[loop.loop_var] = tirx.floormod(position, extent).astype(loop.loop_var.ty)
        position = tirx.floordiv(position, extent)
    values[loops[0].loop_var] = position.astype(loops[0].loop_var.ty)
    return values


def _step(value: tirx.Expr, along: tirx.Var, analyzer: Analyzer) -> set[int | None]:
    """How far apart in memory the elements that `value` reads are for adjacent `along`.

    None stands for what is not known, or not fit for vectors.
    """
    steps: set[int | None] = set()

    def look(load: tvm.ir.TensorLoad) -> None:
        if load.source.strides:
            steps.add(None)
            return
        offset = tirx.const(0, "int64")
        for index, extent in zip(load.indices, load.source.shape, strict=True):
            offset = offset * extent + index
        offset = analyzer.simplify(offset)
        linear = detect_linear_equation(offset, [along])
        step = analyzer.simplify(linear[0]) if linear else None
        steps.add(step.value if isinstance(step, tirx.IntImm) else None)

    def look_at_call(call: tvm.ir.Call) -> None:
        if _uses(call, [along]) and str(call.op.name) not in _OF_VECTORS:
            steps.add(None)

    structural_walk(value, [(tvm.ir.TensorLoad, look), (tvm.ir.Call, look_at_call)])
    return steps


def _updates(nest: _Nest, stores: Sequence[tirx.BufferStore]) -> list[_Update] | None:
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
        if update is None or any(buffer in _sources(update.element) for buffer in buffers):
            return None
        updates.append(update)
    return updates


def _update(store: tirx.BufferStore, initial: tirx.Expr) -> _Update | None:
    value = store.value
    old = tirx.BufferLoad(store.buffer, store.indices)
    identity = {tirx.Add: 0, tirx.Mul: 1}.get(type(value))
    if not isinstance(initial, tirx.IntImm | tirx.FloatImm):
        return None
    if isinstance(value, tirx.Add | tirx.Mul | tirx.Max | tirx.Min):
        if not tvm_ffi.structural_equal(value.a, old) or identity not in (None, initial.value):
            return None
        dtype = str(old.ty)
        if dtype in ("float16", "bfloat16"):
            dtype = "float32"
        wide = tirx.const(initial.value, dtype)
        return _Update(store, wide, value.b.astype(dtype), type(value))
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
    if _sources(condition):
        return None

    def combine(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        return tirx.Select(_substitute(condition, {kept: a, other: b}), b, a)

    return _Update(store, initial, value.true_value, combine)


def _hoist(value: tirx.Expr, variables: Sequence[tirx.Var]) -> tuple[tirx.Expr, list[tirx.Stmt]]:
    """`value` with the calls that are the same for all `variables`, which are bound before."""
    constants: list[tirx.Stmt] = []

    def hoist(call: tvm.ir.Call, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Expr:
        if _uses(call, variables):
            return mutator.default_mutate(call)
        constant = tirx.Var("constant", call.ty)
        constants.append(tirx.Bind(constant, call))
        return constant

    return structural_mutate(value, (tvm.ir.Call, hoist)), constants


def _lanes(extent: tirx.Expr, size: int, dtypes: Sequence[str]) -> int | None:
    """How many elements a vector of `size` bytes has; None for too few."""
    if "bool" in dtypes:
        return None
    lanes = size // max(tvm.DataType(dtype).bits // 8 for dtype in dtypes)
    if isinstance(extent, tirx.IntImm):
        lanes = min(lanes, _power_of_two(extent.value))
    return lanes if lanes >= _FEWEST else None


def _power_of_two(count: int) -> int:
    """The largest one that is no larger than `count`."""
    return 1 << max(count.bit_length() - 1, 0)


def _has_call(expr: tirx.Expr) -> bool:
    calls: list[tvm.ir.Call] = []
    structural_walk(expr, (tvm.ir.Call, calls.append))
    return bool(calls)


def _uses(expr: tirx.Expr, variables: Sequence[tirx.Var]) -> bool:
    used: list[tirx.Var] = []
    structural_walk(expr, (tirx.Var, used.append))
    return any(var in variables for var in used)


def _sources(expr: tirx.Expr) -> set[tirx.Var]:
    """The buffers that `expr` reads."""
    found: set[tirx.Var] = set()
    structural_walk(expr, (tvm.ir.TensorLoad, lambda load: found.add(load.source)))
    return found


def _substitute(node: tvm.Object, values: dict[tirx.Var, tirx.Expr]) -> tvm.Object:
    return structural_map(node, (tirx.Var, lambda var: values.get(var, var)))


def _simplified(expr: tirx.Expr) -> tirx.Expr:
    return Analyzer().simplify(expr)


def _is_true(predicate: tirx.Expr) -> bool:
    return isinstance(predicate, tirx.IntImm) and bool(predicate.value)


def _int64(value: int) -> tirx.IntImm:
    return tirx.const(value, "int64")


def _sequence(stmts: Iterable[tirx.Stmt]) -> tirx.Stmt:
    listed = list(stmts)
    return listed[0] if len(listed) == 1 else tirx.SeqStmt(listed)


def _vector(lanes: int, body: Callable[[tirx.Var], tirx.Stmt]) -> tirx.Stmt:
    if lanes == 1:
        return body(_int64(0))
    lane = tirx.Var("lane", "int64")
    return tirx.For(lane, _int64(0), _int64(lanes), tirx.ForKind.VECTORIZED, body(lane))


def _for(var: tirx.Var, extent: tirx.Expr, body: tirx.Stmt) -> tirx.Stmt:
    return tirx.For(var, _int64(0), extent, tirx.ForKind.SERIAL, body)


def _loops(loops: Sequence[tirx.For], stmt: tirx.Stmt) -> tirx.Stmt:
    """Loops like `loops` around a statement; their variables are new."""
    new = {loop.loop_var: tirx.Var(loop.loop_var.name, loop.loop_var.ty) for loop in loops}
    stmt = _substitute(stmt, new)
    for loop in reversed(loops):
        stmt = tirx.For(new[loop.loop_var], loop.min, loop.extent, loop.kind, stmt)
    return stmt
