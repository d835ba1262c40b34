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
"""Vectorization of loops over adjacent elements, with explicit lanes."""

from collections.abc import Callable, Collection, Sequence

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm_ffi import structural_mutate, structural_walk

from ..target.cpu import Cpu
from .loop_nest import Nest, Run, Update, around_loops, run_of, sequence, sources, updates_of, uses
from .partial_sums import have_parts, in_parts
from .util import contains, is_zero

# Whether a lane has not been computed before.
IsNew = Callable[[tirx.Expr], tirx.Expr]

# The number of vectors to sum side by side, so that an addition need not wait for the previous one.
_MAX_VECTORS = 4

# With fewer lanes, vectors are not worthwhile.
_MIN_LANES = 4


def vectorize(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Vectorize the blocks of a PrimFunc that read and write adjacent elements.

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

    If the extent is unknown and turns out smaller than the lanes, elements are summed one by one.

    Parameters
    ----------
    function : tirx.PrimFunc
        Blocks that are not recognized stay unchanged.
    target : tvm.target.Target
        A CPU.
    """
    size = Cpu.of(target).vector_bytes
    intermediates: set[tirx.Var] = set()
    structural_walk(
        function.body, (SBlock, lambda block: intermediates.update(block.alloc_buffers))
    )

    def rewrite(loop: tirx.For, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Stmt:
        nest = Nest.of(loop)
        if nest is None:
            return mutator.default_mutate(loop)
        if nest.block.init is not None:
            new = _reduction(nest, size, intermediates)
        else:
            new = vectorize_elementwise(nest, size, intermediates=intermediates)
        return loop if new is None else new

    body = structural_mutate(function.body, (tirx.For, rewrite))
    return function if body.same_as(function.body) else function.with_body(body)


def _reduction(nest: Nest, size: int, intermediates: Collection[tirx.Var]) -> tirx.Stmt | None:
    """The reduction of `nest` with vectors of `size` bytes; None if they do not fit."""
    stores, reduced = nest.stores, nest.reduced
    if not stores or not reduced:
        return None
    updates = updates_of(nest, stores)
    if updates is None:
        return None
    arguments = nest, updates, reduced, size, intermediates
    return _reduce_along(*arguments) or _reduce_across(*arguments)


def _reduce_along(
    nest: Nest, updates: list[Update], reduced: int, size: int, intermediates: Collection[tirx.Var]
) -> tirx.Stmt | None:
    """A reduction of adjacent elements: each lane has a partial sum."""
    loops = nest.loops[len(nest.loops) - reduced :]
    run = run_of(loops, [update.element for update in updates], intermediates=intermediates)
    accumulators = None if run is None else _Accumulators.of(run, updates, size)
    if run is None or accumulators is None:
        return None

    def fold(start: tirx.Expr, count: int, is_new: IsNew | None = None) -> tirx.Stmt:
        def in_lane(lane: tirx.Expr) -> tirx.Stmt:
            def element(update: Update) -> tirx.Expr:
                return run.at(update.element, start + lane)

            return accumulators.fold(lane, element, None if is_new is None else is_new(lane))

        return vector_loop(count, in_lane)

    within = sequence(_in_vectors(run.extent, accumulators.lanes, accumulators.vectors, fold))
    body = [
        accumulators.begin(),
        around_loops(loops[: reduced - run.count], within),
        *accumulators.halve(),
        accumulators.end(),
    ]
    return nest.around(len(nest.loops) - reduced, body, accumulators.buffers)


def _reduce_across(
    nest: Nest, updates: list[Update], reduced: int, size: int, intermediates: Collection[tirx.Var]
) -> tirx.Stmt | None:
    """A reduction of elements that are not adjacent: each lane computes a separate result.

    Long sums are sums of partial sums: see :mod:`.partial_sums`.
    """
    outer, loops = nest.loops[: len(nest.loops) - reduced], nest.loops[len(nest.loops) - reduced :]
    targets = [tirx.BufferLoad(u.target.buffer, u.target.indices) for u in updates]
    run = run_of(outer, [update.element for update in updates], targets, intermediates)
    accumulators = None if run is None else _Accumulators.of(run, updates, size)
    if run is None or accumulators is None:
        return None

    partial = accumulators.like() if have_parts(updates, loops) else None

    def reduce(start: tirx.Expr, count: int, _is_new: IsNew | None = None) -> tirx.Stmt:
        def fold_into(sums: _Accumulators) -> tirx.Stmt:
            def fold(lane: tirx.Expr) -> tirx.Stmt:
                return sums.fold(lane, lambda update: run.at(update.element, start + lane))

            return vector_loop(count, fold)

        def end(lane: tirx.Expr) -> tirx.Stmt:
            return accumulators.store(lane, lambda target: run.at(target, start + lane))

        sums = around_loops(loops, fold_into(accumulators))
        if partial is not None:
            part = partial.begin(count), fold_into(partial), accumulators.add(partial, count)
            sums = in_parts(loops, part)
        return tirx.SeqStmt([accumulators.begin(count), sums, vector_loop(count, end)])

    body = _in_vectors(run.extent, accumulators.lanes, accumulators.vectors, reduce)
    buffers = [*accumulators.buffers, *(partial.buffers if partial else ())]
    return nest.around(len(outer) - run.count, body, buffers)


def _vectors(extent: tirx.Expr, lanes: int, updates: list[Update]) -> int:
    """The number of vectors to reduce side by side; 1 if calls compute the elements."""
    if any(contains(update.element, tvm.ir.Call) for update in updates):
        return 1
    if not isinstance(extent, tirx.IntImm):
        return _MAX_VECTORS
    return min(_MAX_VECTORS, _floor_power_of_two(extent.value // lanes))


class _Accumulators:
    """The accumulators of results that are updated together: a buffer of lanes for each."""

    def __init__(self, updates: Sequence[Update], lanes: int, vectors: int) -> None:
        self.lanes = lanes
        self.vectors = vectors
        self._count = count = vectors * lanes
        # Few enough vectors for Cpu.max_stack_buffer_bytes.
        self.buffers = [
            tirx.decl_buffer([int64(count)], update.dtype, "lanes", layout=None)
            for update in updates
        ]
        self._parts = list(zip(self.buffers, updates, strict=True))

    @classmethod
    def of(cls, run: Run, updates: list[Update], size: int) -> "_Accumulators | None":
        """The accumulators of a run in vectors of `size` bytes; None if it has too few elements."""
        lanes = lanes_of([run.extent], size, [update.dtype for update in updates])
        if lanes is None:
            return None
        return cls(updates, lanes, _vectors(run.extent, lanes, updates))

    def begin(self, count: int | None = None) -> tirx.Stmt:
        """Set all lanes, or the first `count`, to the initial values."""

        def initial(lane: tirx.Expr) -> tirx.Stmt:
            return sequence(
                tirx.BufferStore(buffer, update.initial, [lane]) for buffer, update in self._parts
            )

        return vector_loop(self._count if count is None else count, initial)

    def fold(
        self,
        lane: tirx.Expr,
        element: Callable[[Update], tirx.Expr],
        is_new: tirx.Expr | None = None,
    ) -> tirx.Stmt:
        """Combine a lane with an element; with `is_new`, only where it holds."""
        stmts = []
        for buffer, update in self._parts:
            old = tirx.BufferLoad(buffer, [lane])
            new = update.combine(old, element(update))
            if is_new is not None:
                new = tirx.Select(is_new, new, old)
            stmts.append(tirx.BufferStore(buffer, new, [lane]))
        return sequence(stmts)

    def like(self) -> "_Accumulators":
        """Accumulators of the same form."""
        return _Accumulators([update for _, update in self._parts], self.lanes, self.vectors)

    def add(self, others: "_Accumulators", count: int) -> tirx.Stmt:
        """Combine the first `count` lanes with those of `others`."""

        def add_lane(lane: tirx.Expr) -> tirx.Stmt:
            lanes = {id(u): b for b, u in others._parts}
            return self.fold(lane, lambda update: tirx.BufferLoad(lanes[id(update)], [lane]))

        return vector_loop(count, add_lane)

    def halve(self) -> list[tirx.Stmt]:
        """Combine one half of the lanes with the other until one lane is left."""
        stmts = []
        half = self._count // 2
        while half:

            def fold_half(lane: tirx.Expr, half: int = half) -> tirx.Stmt:
                return sequence(
                    tirx.BufferStore(
                        buffer,
                        update.combine(
                            tirx.BufferLoad(buffer, [lane]), tirx.BufferLoad(buffer, [lane + half])
                        ),
                        [lane],
                    )
                    for buffer, update in self._parts
                )

            stmts.append(vector_loop(half, fold_half))
            half //= 2
        return stmts

    def end(self) -> tirx.Stmt:
        """Store the first lane."""
        return self.store(int64(0), lambda target: target)

    def store(self, lane: tirx.Expr, position: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Stmt:
        """Store a lane at a position of the result."""
        return sequence(
            tirx.BufferStore(
                update.target.buffer,
                tirx.BufferLoad(buffer, [lane]).astype(str(update.target.value.ty)),
                [position(index) for index in update.target.indices],
            )
            for buffer, update in self._parts
        )


def vectorize_elementwise(
    nest: Nest, size: int, outer: int = 0, intermediates: Collection[tirx.Var] = ()
) -> tirx.Stmt | None:
    """Vectorize the innermost loops of an elementwise kernel.

    Parameters
    ----------
    nest : Nest
    size : int
        The size of a vector in bytes.
    outer : int
        The number of outermost loops to keep.
    intermediates : collection of tirx.Var
        The buffers that the kernel allocates: see :func:`~.loop_nest.run_of`.

    Returns
    -------
    tirx.Stmt or None
        None if vectors do not fit.
    """
    stores = nest.stores
    if not nest.loops or stores is None or len(stores) != 1:
        return None
    (store,) = stores
    target = tirx.BufferLoad(store.buffer, store.indices)
    run = run_of(nest.loops[outer:], [store.value], [target], intermediates)
    if run is None:
        return None
    variables = [loop.loop_var for loop in run.loops]
    # TVM's rounding to bfloat16 repeats the value, with the variables bound in it, and cannot be
    # vectorized. TVM also cannot store a vector of equal bfloat16 elements as integers.
    if str(store.value.ty) == "bfloat16":
        value = _simplified(store.value, nest.loops)
        if not uses(value, variables) or contains(value, tvm.ir.Call):
            return None
    lanes = lanes_of([run.extent], size, [str(store.value.ty)])
    if lanes is None:
        return None
    run = run.in_whole_vectors(lanes)
    is_in_place = store.buffer in sources(store.value)
    # A hoisted value must not be overwritten in between.
    value, constants = (store.value, []) if is_in_place else _hoist_calls(store.value, variables)

    def assign(start: tirx.Expr, count: int, is_new: IsNew | None = None) -> tirx.Stmt:
        def in_lane(lane: tirx.Expr) -> tirx.Stmt:
            new, old = run.at(value, start + lane), run.at(target, start + lane)
            # Finished lanes may have overwritten their operands: TVM lets a result share the memory
            # of an intermediate one that is not read again.
            if is_new is not None:
                new = tirx.Select(is_new(lane), new, old)
            return tirx.BufferStore(store.buffer, new, old.indices)

        return vector_loop(count, in_lane)

    body = [*constants, *_in_vectors(run.extent, lanes, 1, assign)]
    return nest.around(len(nest.loops) - run.count, body)


def _in_vectors(
    extent: tirx.Expr, lanes: int, vectors: int, body: Callable[..., tirx.Stmt]
) -> list[tirx.Stmt]:
    """Statements that run `body` for `extent` elements.

    `body` takes the first element and the number of lanes.  For a last vector that overlaps the
    previous one, it also takes a function that tells whether a lane is new.
    """
    stmts: list[tirx.Stmt] = []
    done: tirx.Expr = int64(0)
    for count in (vectors * lanes, lanes) if vectors > 1 else (lanes,):
        full = _simplified(tirx.floordiv(extent - done, count))
        if not is_zero(full):
            outer = tirx.Var("vector", "int64")
            stmts.append(serial_loop(outer, full, body(done + outer * count, count)))
            done = _simplified(done + full * count)
    left = _simplified(tirx.floormod(extent, lanes))
    if is_zero(left):
        return stmts
    last = body(extent - lanes, lanes, lambda lane: lane >= lanes - left)
    if isinstance(extent, tirx.IntImm):
        return [*stmts, last]
    single = tirx.Var("single", "int64")
    few = serial_loop(single, extent, body(single, 1))
    # In a branch that is known to run only for an extent of 0, TVM's simplifier divides by 0.
    factors = Analyzer().modular_set(extent)
    if factors.base == 0 and factors.coeff >= lanes:
        few = None
    return [*stmts, tirx.IfThenElse(extent >= lanes, last, few)]


def _hoist_calls(
    value: tirx.Expr, variables: Sequence[tirx.Var]
) -> tuple[tirx.Expr, list[tirx.Stmt]]:
    """Bind the calls in `value` that do not depend on `variables`; return both."""
    constants: list[tirx.Stmt] = []

    def hoist(call: tvm.ir.Call, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Expr:
        # After TVM's BF16ComputeLegalize, the value and the variable differ in dtype.
        if uses(call, variables) or "bfloat16" in str(call.ty):
            return mutator.default_mutate(call)
        constant = tirx.Var("constant", call.ty)
        constants.append(tirx.Bind(constant, call))
        return constant

    def keep(load: tvm.ir.TensorLoad, _: tvm_ffi.structural.StructuralMutator) -> tirx.Expr:
        # TVM computes the extents of intermediate buffers from their indices, above the loops.
        return load

    rewrites = ((tvm.ir.Call, hoist), (tvm.ir.TensorLoad, keep))
    return structural_mutate(value, rewrites), constants


def lanes_of(extents: Sequence[tirx.Expr], size: int, dtypes: Sequence[str]) -> int | None:
    """The lanes of vectors of `size` bytes along axes of `extents`; None if they are too few."""
    if "bool" in dtypes:
        return None
    lanes = size // max(tvm.DataType(dtype).bits // 8 for dtype in dtypes)
    for extent in extents:
        if isinstance(extent, tirx.IntImm):
            lanes = min(lanes, _floor_power_of_two(extent.value))
    return lanes if lanes >= _MIN_LANES else None


def _floor_power_of_two(count: int) -> int:
    """The largest power of two that is at most `count`."""
    return 1 << max(count.bit_length() - 1, 0)


def _simplified(expr: tirx.Expr, loops: Sequence[tirx.For] = ()) -> tirx.Expr:
    """`expr` in a simple form; `loops` bound its variables."""
    analyzer = Analyzer()
    for loop in loops:
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))
    return analyzer.simplify(expr)


def int64(value: int) -> tirx.IntImm:
    return tirx.const(value, "int64")


def vector_loop(lanes: int, body: Callable[[tirx.Var], tirx.Stmt]) -> tirx.Stmt:
    if lanes == 1:
        return body(int64(0))
    lane = tirx.Var("lane", "int64")
    return tirx.For(lane, int64(0), int64(lanes), tirx.ForKind.VECTORIZED, body(lane))


def serial_loop(var: tirx.Var, extent: tirx.Expr, body: tirx.Stmt) -> tirx.Stmt:
    return tirx.For(var, int64(0), extent, tirx.ForKind.SERIAL, body)
