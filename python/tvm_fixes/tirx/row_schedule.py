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
"""A row-by-row schedule for kernels that reduce rows, such as norms and softmax."""

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import detect_linear_equation
from tvm_ffi import structural_map, structural_walk

from .loop_nest import uses
from .parallel import parallelize
from .transform.lower_elementary_functions import nests_functions
from .util import count_of, is_one

# Smaller groups are likely the windows of a pooling.
_MIN_GROUP = 8

# A result with at most this many times the elements of an operand pads it.
_MAX_PADDING = 1.25

# Calls that take no more time than a load.
_CHEAP = ("tirx.isnan", "tirx.fabs", "tirx.reinterpret", "tirx.likely")


def schedule_rows(function: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """Schedule a PrimFunc so that it finishes each row before it begins the next one.

    If reductions run across rows, as in a sum over the first axis, all columns count as one row.

    Parameters
    ----------
    function : tirx.PrimFunc
        An unscheduled PrimFunc of blocks.

    Returns
    -------
    tirx.PrimFunc or None
        None if there is no reduction, or if the result does not consist of rows.
    """
    # 1. Find the reductions, and inline what is cheap or read once into its readers.
    # TVM cannot prove that the blocks cover a result of unknown extents.
    sch = Schedule(function, enable_check=False)
    reductions = [block for block in _blocks(sch) if sch.get(block).init is not None]
    if not reductions:
        return None
    row_counts = [count_of(sch.get(block).writes[0].source.shape) for block in reductions]
    _inline(sch, row_counts)
    # 2. The loops over rows are those of the result that index the values of the reductions.
    *before, result = _blocks(sch)
    rows = _row_loops(sch, result)
    if rows is None or _is_of_elements(sch, rows, result, row_counts):
        return None
    # 3. All reductions run along rows, or all across them: then all columns count as one row.
    across = {_reduces_across(sch.get(block)) for block in reductions}
    if len(across) > 1 or None in across or (True in across and not rows):
        return None
    if True in across:
        rows = _before_windows(sch, rows[:-1], [*before, result])
    # 4. Move all other blocks into the innermost loop over rows, and run the rows in parallel.
    if rows:
        row_loops = [sch.get(loop) for loop in rows]
        others = [
            loop
            for loop in sch.get_loops(result)
            if not any(sch.get(loop).same_as(known) for known in row_loops)
        ]
        sch.reorder(*rows, *others)
        for block in reversed(before):
            sch.compute_at(block, rows[-1], preserve_unit_loops=True)
        parallelize(sch, rows)
    # 5. A row of intermediate values takes the place of its results: less data in the cache.
    return _in_place(sch.mod["main"])


def _blocks(sch: Schedule) -> list[SBlockRV]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _inline(sch: Schedule, row_counts: Sequence[tirx.Expr]) -> None:
    """Inline blocks that are cheap or read once.

    Keep blocks that compute one element per row; their sizes are in `row_counts`.
    """
    for block in _blocks(sch):
        node = sch.get(block)
        consumers = sch.get_consumers(block)
        if node.init is not None or not isinstance(node.body, tirx.BufferStore) or not consumers:
            continue
        buffer = node.body.buffer
        size = count_of(buffer.shape)
        if any(tvm_ffi.structural_equal(size, count) for count in row_counts):
            continue
        readers = [sch.get(consumer) for consumer in consumers]
        if not all(_reads_only(reader, buffer) for reader in readers):
            continue
        if any(nests_functions(node.body, reader.body) for reader in readers):
            continue
        if _is_cheap(node.body.value) or _is_read_about_once(buffer, size, readers):
            sch.compute_inline(block)


def _is_read_about_once(buffer: tirx.Var, size: tirx.Expr, readers: Sequence[SBlock]) -> bool:
    """Whether each of the `size` elements of `buffer` is read once, or by a reader that pads it."""
    if sum(_loads(reader).count(buffer) for reader in readers) != 1:
        return False
    (reader,) = readers
    count = count_of(i.dom.extent for i in reader.iter_vars)
    if isinstance(count, tirx.IntImm) and isinstance(size, tirx.IntImm):
        return size.value <= count.value <= _MAX_PADDING * size.value
    return tvm_ffi.structural_equal(count, size)


def _loads(node: SBlock) -> list[tirx.Var]:
    """The buffer of each load in a block."""
    buffers: list[tirx.Var] = []
    structural_walk(node.body, (tvm.ir.TensorLoad, lambda load: buffers.append(load.source)))
    return buffers


def _is_cheap(value: tirx.Expr) -> bool:
    calls: list[str] = []
    structural_walk(value, (tvm.ir.Call, lambda call: calls.append(str(call.op.name))))
    return all(name in _CHEAP for name in calls)


def _row_loops(sch: Schedule, result: SBlockRV) -> list[LoopRV] | None:
    """The loops of `result` over rows; a loop over rows and groups is split."""
    node, loops = sch.get(result), sch.get_loops(result)
    if not loops:
        return []
    if len(loops) != len(node.iter_vars):
        return None
    if node.init is not None:
        return [
            loop
            for loop, iterator in zip(loops, node.iter_vars, strict=True)
            if iterator.iter_type == tirx.IterVar.DataPar
        ]
    divisors = _row_variables(node, sch.get(sch.get_sblock("root")).alloc_buffers)
    if divisors is None:
        return None
    rows = []
    for loop, iterator in zip(loops, node.iter_vars, strict=True):
        divisor = divisors.get(iterator.var)
        if divisor is not None:
            rows.append(loop if divisor == 1 else sch.split(loop, [None, divisor])[0])
    return rows


def _is_of_elements(
    sch: Schedule, rows: Sequence[LoopRV], result: SBlockRV, row_counts: Sequence[tirx.Expr]
) -> bool:
    """Whether each apparent row is a single element.

    It is if the result is computed from results of the same size, not from reductions.
    """
    node = sch.get(result)
    extents = [iterator.dom.extent for iterator in node.iter_vars]
    if node.init is not None or len(rows) < sum(not is_one(extent) for extent in extents):
        return False
    count = count_of(extents)
    return not any(tvm_ffi.structural_equal(count, own) for own in row_counts)


def _row_variables(node: SBlock, allocated: Sequence[tirx.Var]) -> dict[tirx.Var, int] | None:
    """The iterators of the result that index rows, and how many values of each share a row.

    These iterators index the intermediate results that have fewer elements than the result; None if
    those results use different ones.
    """
    iterators = {iterator.var for iterator in node.iter_vars if not is_one(iterator.dom.extent)}
    strides: list[dict[tirx.Var, int]] = []
    reads_known: list[bool] = []

    def look(load: tvm.ir.TensorLoad) -> None:
        if load.source not in allocated:
            return
        used: dict[tirx.Var, int] = {}
        for index in load.indices:
            divisor = 1
            if isinstance(index, tirx.FloorDiv) and isinstance(index.b, tirx.IntImm):
                index, divisor = index.a, int(index.b)
            if index in iterators:
                used[index] = divisor
            elif uses(index, iterators):
                reads_known.append(False)
        strides.append(used)

    structural_walk(node.body, (tvm.ir.TensorLoad, look))
    partial = [
        used for used in strides if set(used) != iterators or any(d != 1 for d in used.values())
    ]
    if reads_known or any(used != partial[0] for used in partial):
        return None
    return partial[0] if partial else dict.fromkeys(iterators, 1)


def _reduces_across(node: SBlock) -> bool | None:
    """Whether a block reduces elements that are not adjacent; None if it reduces both kinds.

    Windows of elements are neither kind; groups of channels count as adjacent.
    """
    kept: set[tirx.Var] = set()
    reduced: set[tirx.Var] = set()
    for iterator in node.iter_vars:
        if not is_one(iterator.dom.extent):
            reduces = iterator.iter_type == tirx.IterVar.CommReduce
            (reduced if reduces else kept).add(iterator.var)
    ends: set[str] = set()

    def look(load: tvm.ir.TensorLoad) -> None:
        if not any(uses(index, reduced) for index in load.indices):
            return
        last = next((i for i in reversed(load.indices) if uses(i, kept | reduced)), None)
        of_kept, of_reduced = uses(last, kept), uses(last, reduced)
        is_window = of_kept and of_reduced and not _is_group(last, node)
        ends.add("window" if is_window else "along" if of_reduced else "across")

    structural_walk(node.body, (tvm.ir.TensorLoad, look))
    return {frozenset(["along"]): False, frozenset(["across"]): True}.get(frozenset(ends))


def _before_windows(sch: Schedule, rows: list[LoopRV], blocks: Sequence[SBlockRV]) -> list[LoopRV]:
    """The loops of the last of `blocks` before the first axis with windows of another's result.

    Later rows would compute the common elements of their windows again.
    """
    nodes = [sch.get(block) for block in blocks]
    computed = {node.writes[0].source for node in nodes}
    axes: list[int] = []
    for node in nodes:
        reduced = {i.var for i in node.iter_vars if i.iter_type == tirx.IterVar.CommReduce}
        kept = {i.var for i in node.iter_vars} - reduced
        loads: list[tvm.ir.TensorLoad] = []
        structural_walk(node.body, (tvm.ir.TensorLoad, loads.append))
        for load in loads:
            if load.source in computed:
                is_window = [uses(index, kept) and uses(index, reduced) for index in load.indices]
                axes += [axis for axis, is_one_of_many in enumerate(is_window) if is_one_of_many]
    if not axes:
        return rows
    shared = [sch.get(loop) for loop in sch.get_loops(blocks[-1])[: min(axes)]]
    return [row for row in rows if any(sch.get(row).same_as(loop) for loop in shared)]


def _is_group(index: tirx.Expr, node: SBlock) -> bool:
    """Whether `index` selects an element of a normalization group."""
    used: list[tirx.Var] = []
    structural_walk(index, (tirx.Var, used.append))
    extents = {
        i.var: i.dom.extent for i in node.iter_vars if i.iter_type == tirx.IterVar.CommReduce
    }
    reduced = [var for var in used if var in extents]
    if len(used) != 2 or len(reduced) != 1 or not isinstance(extents[reduced[0]], tirx.IntImm):
        return False
    (group,) = (var for var in used if var not in extents)
    size = extents[reduced[0]].value
    step = detect_linear_equation(index, [group, reduced[0]])
    is_adjacent = bool(step) and [getattr(factor, "value", None) for factor in step[:2]] == [
        size,
        1,
    ]
    return is_adjacent and size >= _MIN_GROUP


def _in_place(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Let an intermediate result of the result's shape share the memory of the result."""
    root = function.body.block
    blocks: list[SBlock] = []
    structural_walk(root.body, (SBlock, blocks.append))
    result = blocks[-1]
    if result.init is not None or not isinstance(result.body, tirx.BufferStore):
        return function
    out, indices = result.body.buffer, result.body.indices
    if any(out in _loads(block) for block in blocks):
        return function
    replaced = next(
        (
            buffer
            for buffer in root.alloc_buffers
            if _has_same_elements(buffer, out)
            and _reads_only(result, buffer, indices)
            and all(_reads_only(block, buffer) for block in blocks)
        ),
        None,
    )
    if replaced is None:
        return function
    kept = [buffer for buffer in root.alloc_buffers if not buffer.same_as(replaced)]
    root = SBlock([], [], [], root.name_hint, root.body, alloc_buffers=kept)
    body = structural_map(
        SBlockRealize([], True, root),
        (tirx.Var, lambda var: out if var.same_as(replaced) else var),
    )
    return function.with_body(body)


def _has_same_elements(one: tirx.Var, other: tirx.Var) -> bool:
    return str(one.dtype) == str(other.dtype) and tvm_ffi.structural_equal(one.shape, other.shape)


def _reads_only(
    block: SBlock, buffer: tirx.Var, indices: Sequence[tirx.Expr] | None = None
) -> bool:
    """Whether a block reads `buffer` only at its own iterators, or only at `indices` if given."""
    variables = [iterator.var for iterator in block.iter_vars]
    fits: list[bool] = []

    def look(load: tvm.ir.TensorLoad) -> None:
        if not load.source.same_as(buffer):
            return
        if indices is not None:
            fits.append(tvm_ffi.structural_equal(load.indices, indices))
        else:
            fits.append(all(i in variables or isinstance(i, tirx.IntImm) for i in load.indices))

    structural_walk(block.body, (tvm.ir.TensorLoad, look))
    return all(fits)
