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
"""InlineElementwise: compute the elementwise steps of a kernel in one pass over memory.

Mechanism
    TVM's pipeline for CPUs has no schedules: each step is a separate loop, whose result goes
    through memory.
"""

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

from ...fixes.elements import INLINE_ELEMENTWISE as FIX_ID
from ..dead_blocks import without_dead_blocks
from ..expression_size import MAX_NODES, is_large, node_count, with_values
from ..tile_functions import vectorize_functions
from ..util import contains, count_of, is_one, prim_func_pass
from .lower_elementary_functions import is_elementary_function, nests_functions, repeats_functions

# The maximum number of steps inlined in each other. Deeper nesting costs the simplifier and TVM's
# other passes far more time than it saves.
_MAX_STEPS = 16
# The number of nodes to which LowerElementaryFunctions later expands an elementary function.
_NODES_OF_FUNCTION = 32


def InlineElementwise() -> tvm.transform.Pass:
    """Inline the elementwise steps of a CPU's kernels into each other, and into tiled kernels.

    Before::

        for i, j in T.grid(n, m): a[i, j] = x[i, j] * T.float32(2)
        for i, j in T.grid(n, m): y[i, j] = T.exp(a[i, j])

    and after::

        for i, j in T.grid(n, m): y[i, j] = T.exp(x[i, j] * T.float32(2))

    An elementwise step after a tiled kernel, such as the addition of a bias, is inlined where the
    tiles are written, and its elementary functions are vectorized: see
    :func:`~tvm_fixes.tirx.tile_functions.vectorize_functions`.  A reshape or another copy after a
    transposition is inlined into it.

    Some values stay in memory: a value that is read more often than it is computed, as in a
    broadcast, a window or a reduction, unless it is a copy, or a 16-bit element cast to float32; a
    value that a transposition reads, unless it is a copy itself; and the result of an elementary
    function, if it is compared, read twice, or the operand of another elementary function.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs, for a CPU target.  Run it after fusion.
    """

    return prim_func_pass("InlineElementwise", FIX_ID, _inline)


def _inline(function: tirx.PrimFunc, _target: tvm.target.Target) -> tirx.PrimFunc:
    if not contains(function.body, SBlock, lambda block: len(block.alloc_buffers) > 0):
        return function
    function = without_dead_blocks(function)
    try:
        # No checks: TVM cannot prove the region cover of tiles of symbolic extents.
        schedule = Schedule(function, enable_check=False)
    except tvm.error.InternalError:
        # TVM cannot bound the region of an index that is cast from a float.
        return function
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    names = [schedule.get(block).name_hint for block in blocks]
    if len(set(names)) < len(names):
        return function
    is_changed = False
    steps = dict.fromkeys(names, 0)
    tiles: list[str] = []
    for name in names:
        block = schedule.get_sblock(name)
        if steps[name] < _MAX_STEPS and _is_elementwise_producer(schedule, block):
            readers = [schedule.get(reader).name_hint for reader in schedule.get_consumers(block)]
            if _try_step(schedule.compute_inline, block):
                is_changed = True
                for reader in readers:
                    steps[reader] = max(steps[reader], steps[name] + 1)
        elif _follows_tiles(schedule, block) or _reshapes_transposed(schedule, block):
            (producer,) = schedule.get_producers(block)
            tile = schedule.get(producer).name_hint
            inlined = _inline_into_producer(schedule, block)
            if inlined is not None:
                is_changed, schedule = True, inlined
                tiles.append(tile)
    for name in dict.fromkeys(tiles):
        vectorize_functions(schedule, schedule.get_sblock(name))
    return schedule.mod["main"] if is_changed else function


def _inline_into_producer(schedule: Schedule, consumer: SBlockRV) -> Schedule | None:
    """A schedule with `consumer` inlined into its producer; None if TVM rejects that.

    reverse_compute_inline replaces the predicate of the producer's block by that of the consumer's
    block if it cannot prove the latter. Such a schedule is rejected: it would write out of bounds.
    """
    (producer,) = schedule.get_producers(consumer)
    condition = _condition_of(schedule, producer)
    is_conditional = not isinstance(condition, tirx.IntImm)
    # The blocks of a schedule are those of its copy, too.
    inlined = schedule.copy() if is_conditional else schedule
    if not _try_step(inlined.reverse_compute_inline, consumer):
        return None
    if not is_conditional:
        return inlined
    kept = _condition_of(inlined, producer)
    return inlined if tvm_ffi.structural_equal(condition, kept, map_free_vars=True) else None


def _condition_of(schedule: Schedule, block: SBlockRV) -> tirx.Expr:
    """The predicate of a block."""
    node = schedule.get(block)
    found: list[tirx.Expr] = []

    def look(realize: SBlockRealize) -> None:
        if realize.block.same_as(node):
            found.append(realize.predicate)

    structural_walk(schedule.mod["main"].body, (SBlockRealize, look))
    (condition,) = found
    return condition


def _try_step(step: Callable[[SBlockRV], None], block: SBlockRV) -> bool:
    """Apply a schedule step; False if TVM rejects it, and then nothing has changed."""
    try:
        step(block)
    except (ScheduleError, tvm.error.InternalError):
        # TVM raises an InternalError if axes of extent 1 leave a part of an index without a range.
        return False
    return True


def _is_elementwise_producer(schedule: Schedule, producer: SBlockRV) -> bool:
    """Whether each reader computes one element from each element of `producer`, in its order.

    A copy may also be read in another order.
    """
    block = schedule.get(producer)
    stored = _stored(block)
    consumers = [schedule.get(consumer) for consumer in schedule.get_consumers(producer)]
    if stored is None or not consumers or _shares_loops(schedule, producer):
        return False
    for consumer in consumers:
        reader = _stored(consumer)
        if reader is None:
            return False
        reads = _reads_of(stored.buffer, reader.value)
        is_part = len(reads) == 1 and (
            _is_copy(stored) or (_is_arithmetic(stored) and _visits_once(reads[0], consumer))
        )
        if not (is_part or _has_fewer(consumer, block) or _widens_16_bits(stored)):
            return False
        if _grows_large(stored, reader):
            return False
        innermost = consumer.iter_vars[-1].var if consumer.iter_vars else None
        if innermost is None or all(_ends_in(read, innermost) for read in reads):
            continue
        if not (_is_copy(stored) and all(_is_permuted(read, consumer) for read in reads)):
            return False
    return True


def _follows_tiles(schedule: Schedule, consumer: SBlockRV) -> bool:
    """Whether a block reads, element by element, the result of a tiled kernel."""
    only = _only_producer(schedule, consumer)
    if only is None or not _shares_loops(schedule, only):
        return False
    producer, block = schedule.get(only), schedule.get(consumer)
    stored, reader = _stored(producer), _stored(block)
    if stored is None or reader is None or _grows_large(stored, reader):
        return False
    return _has_fewer(producer, block)


def _only_producer(schedule: Schedule, consumer: SBlockRV) -> SBlockRV | None:
    """The only producer of a block, if no other block reads its result; else None."""
    producers = schedule.get_producers(consumer)
    if len(producers) != 1 or len(schedule.get_consumers(producers[0])) != 1:
        return None
    return producers[0]


def _reshapes_transposed(schedule: Schedule, consumer: SBlockRV) -> bool:
    """Whether a block reshapes the result of a transposition, and is its only reader."""
    only = _only_producer(schedule, consumer)
    block = schedule.get(consumer)
    reader = _stored(block)
    if only is None or reader is None or not _is_copy(reader):
        return False
    if _is_permuted(reader.value, block) or _shares_loops(schedule, only):
        return False
    producer = schedule.get(only)
    stored = _stored(producer)
    if stored is None or not _has_fewer(producer, block):
        return False
    loads: list[tvm.ir.TensorLoad] = []
    structural_walk(stored.value, (tvm.ir.TensorLoad, loads.append))
    order = [iterator.var for iterator in producer.iter_vars]

    def is_transposed(load: tvm.ir.TensorLoad) -> bool:
        places = [order.index(index) for index in load.indices if index in order]
        return _is_permuted(load, producer) and places != sorted(places)

    return any(map(is_transposed, loads))


def _is_copy(stored: tirx.BufferStore) -> bool:
    """Whether a store copies elements unchanged, at indices that are not data."""
    value = stored.value
    return isinstance(value, tvm.ir.TensorLoad) and not any(
        contains(index, tvm.ir.TensorLoad) for index in value.indices
    )


def _is_arithmetic(stored: tirx.BufferStore) -> bool:
    """Whether a store calls no function."""
    return not contains(stored.value, tvm.ir.Call)


def _widens_16_bits(stored: tirx.BufferStore) -> bool:
    """Whether a store copies 16-bit elements as float32, which takes as long as a load."""
    value = stored.value
    if not isinstance(value, tirx.Cast) or str(value.ty) != "float32":
        return False
    load = value.value
    return isinstance(load, tvm.ir.TensorLoad) and str(load.ty) in ("float16", "bfloat16")


def _is_permuted(read: tvm.ir.TensorLoad, consumer: SBlock) -> bool:
    """Whether the indices of a read are the block's iterators, in any order, or constants."""
    variables = [iterator.var for iterator in consumer.iter_vars]
    return all(index in variables or isinstance(index, tirx.IntImm) for index in read.indices)


def _grows_large(stored: tirx.BufferStore, reader: tirx.BufferStore) -> bool:
    """Whether the expression of `reader` would be too large with `stored` inlined."""
    reads = _reads_of(stored.buffer, reader.value)
    count = node_count(reader.value, _weight) + len(reads) * node_count(stored.value, _weight)
    inlined = with_values(reader.value, {stored.buffer: stored.value})
    if count > MAX_NODES or is_large(inlined, _weight):
        return True
    return nests_functions(stored, reader.value) or repeats_functions(stored, reader.value)


def _weight(node: tirx.Expr) -> int:
    is_function = isinstance(node, tvm.ir.Call | tirx.Mod) and is_elementary_function(node)
    return _NODES_OF_FUNCTION if is_function else 1


def _shares_loops(schedule: Schedule, block: SBlockRV) -> bool:
    """Whether other blocks are computed in the same loops, as in a tiled kernel."""
    loops = schedule.get_loops(block)
    return bool(loops) and len(schedule.get_child_blocks(loops[0])) > 1


def _stored(block: SBlock) -> tirx.BufferStore | None:
    """The store of a block that does nothing but store one element per iteration; else None."""
    is_spatial = all(axis.iter_type == tirx.IterVar.DataPar for axis in block.iter_vars)
    if not is_spatial or block.init is not None or not isinstance(block.body, tirx.BufferStore):
        return None
    return None if _reads_of(block.body.buffer, block.body.value) else block.body


def _has_fewer(few: SBlock, many: SBlock) -> bool:
    """Whether block `few` provably computes no more elements than `many`."""
    counts = [count_of(axis.dom.extent for axis in block.iter_vars) for block in (few, many)]
    return bool(Analyzer().can_prove(counts[0] <= counts[1]))


def _reads_of(buffer: tirx.Buffer, value: tirx.Expr) -> list[tvm.ir.TensorLoad]:
    found: list[tvm.ir.TensorLoad] = []

    def look(load: tvm.ir.TensorLoad) -> None:
        if load.source.same_as(buffer):
            found.append(load)

    structural_walk(value, (tvm.ir.TensorLoad, look))
    return found


def _ends_in(read: tvm.ir.TensorLoad, innermost: tirx.Var) -> bool:
    """Whether the innermost iterator, or its sum with a constant, is the last index, as vector
    loads need; true for a scalar."""
    if not read.indices:
        return True
    return bool(_without_offset(read.indices[-1]).same_as(innermost))


def _visits_once(read: tvm.ir.TensorLoad, consumer: SBlock) -> bool:
    """Whether no two iterations of a block read the same element."""
    indices = [_without_offset(index) for index in read.indices]
    iterators = [each.var for each in consumer.iter_vars if not is_one(each.dom.extent)]
    return all(sum(var.same_as(index) for index in indices) == 1 for var in iterators)


def _without_offset(index: tirx.Expr) -> tirx.Expr:
    """An index without a constant that is added or subtracted."""
    is_shifted = isinstance(index, tirx.Add | tirx.Sub) and isinstance(index.b, tirx.IntImm)
    return index.a if is_shifted else index
