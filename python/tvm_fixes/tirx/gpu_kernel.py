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
"""Scheduled GPU kernels: corrections, and checks whether they can run."""

import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence

import tvm
from tvm import s_tir, tirx
from tvm.tirx.build import codegen_build, split_host_device_mods
from tvm_ffi import structural_equal, structural_map, structural_mutate, structural_walk
from tvm_ffi.structural import StructuralMutator

from ..errors import summarize
from ..target import cuda
from ..target.gpu import Limits, limits_of
from .loop_nest import sequence, uses
from .util import bytes_of, contains, count_of, is_positive, with_parts

_THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")

_ONE = tirx.const(1, "int64")

_MAX_REASON = 200


def why_not_runnable(function: tirx.PrimFunc, target: tvm.target.Target) -> str | None:
    """Say why a scheduled kernel cannot run on a GPU.

    Parameters
    ----------
    function : tirx.PrimFunc
        A scheduled kernel.
    target : tvm.target.Target
        The GPU.

    Returns
    -------
    reason : str or None
        The error of its lowering, or the limit of the GPU that it exceeds, in one line; None if it
        can run. Symbolic extents are not checked, neither of the grid nor of threads that the
        kernel itself launches.
    """
    if _accesses_memory_on_host(function):
        return "it accesses memory outside its threads"
    if contains(function.body, tirx.For, _has_variable_block):
        return "the number of threads in a block is not constant"
    try:
        if _races(function):
            return "TVM does not lower a cross-thread reduction in it"
        launches = _lower(function, target)
    except Exception as error:
        return reason_of(error)
    limits = limits_of(target)
    excesses = (excess for launch in launches for excess in _excesses(launch, limits))
    return next(excesses, None)


def reason_of(error: Exception) -> str:
    """The message of an exception in one line, without the program that TVM prints before it."""
    text = summarize(error, sys.maxsize).rpartition("Error message: ")[2]
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…"


def in_one_thread(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with a launch of one thread around each statement that has no threads."""
    return _map_statements(_with_shared_buffers(function), _in_one_thread)


def _with_shared_buffers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make two statements use each global buffer, or TVM allocates it inside a kernel."""
    realize = function.body
    if not isinstance(realize, s_tir.SBlockRealize):
        return function
    root = realize.block
    body, inner = _without_allocations(root.body)
    allocated = [*root.alloc_buffers, *inner]
    statements = list(body) if isinstance(body, tirx.SeqStmt) else [body]
    private = [
        buffer
        for buffer in allocated
        if buffer.scope() == "global" and sum(uses(each, [buffer]) for each in statements) < 2
    ]
    if private:
        body = tirx.SeqStmt([*map(_touch, private), *statements])
    root = with_parts(root, body=body, alloc_buffers=allocated)
    return function.with_body(s_tir.SBlockRealize(realize.iter_values, realize.predicate, root))


def _without_allocations(body: tirx.Stmt) -> tuple[tirx.Stmt, list[tirx.Buffer]]:
    """Remove the allocations of static global buffers from blocks; return these buffers too."""
    taken: list[tirx.Buffer] = []

    def take(block: s_tir.SBlock) -> s_tir.SBlock:
        static = [each for each in block.alloc_buffers if each.scope() == "global"]
        static = [each for each in static if isinstance(count_of(each.shape), tirx.IntImm)]
        taken.extend(static)
        kept = [each for each in block.alloc_buffers if each not in static]
        return with_parts(block, alloc_buffers=kept) if static else block

    return structural_map(body, (s_tir.SBlock, take)), taken


def _touch(buffer: tirx.Buffer) -> tirx.Stmt:
    zeros = [tirx.const(0, extent.ty.dtype) for extent in buffer.shape]
    store = tirx.BufferStore(buffer, tirx.const(0, str(buffer.dtype)), zeros)
    block = s_tir.SBlock([], [], [], f"allocate_{buffer.name}", store)
    touch = s_tir.SBlockRealize([], True, block)
    return _if_positive([extent for extent in buffer.shape if not is_positive(extent)], touch)


def _in_one_thread(body: tirx.Stmt) -> tirx.Stmt:
    return body if contains_threads(body) else _thread(body)


def _thread(body: tirx.Stmt) -> tirx.Stmt:
    """A launch of one thread."""
    for tag in (_THREADS[0], _BLOCKS[0]):
        variable = tirx.Var(tag.replace(".", "_"), "int64")
        domain = tvm.ir.Range(tirx.const(0, "int64"), tirx.const(1, "int64"))
        thread = tirx.IterVar(domain, variable, tirx.IterVar.ThreadIndex, tag)
        kind = tirx.ForKind.THREAD_BINDING
        body = tirx.For(variable, domain.min, domain.extent, kind, body, thread)
    return body


def contains_threads(statement: tirx.Stmt) -> bool:
    """Whether a statement launches threads."""
    launches: list[tirx.Stmt] = []

    def look(node: tirx.AttrStmt | tirx.For) -> None:
        if _starts_threads(node):
            launches.append(node)

    structural_walk(statement, [(tirx.AttrStmt, look), (tirx.For, look)])
    return bool(launches)


def _starts_threads(node: tirx.AttrStmt | tirx.For) -> bool:
    if isinstance(node, tirx.For):
        return node.thread_binding is not None
    return node.attr_key in ("thread_extent", "virtual_thread")


def keep_predicates(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Keep TVM from dropping the predicate of a cross-thread reduction.

    TVM keeps a predicate with several clauses, but drops one with a single clause. Threads beyond
    the last element then write beyond the end of the result.
    """

    def conjunction(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        condition = realize.predicate
        is_single = not isinstance(condition, tirx.And | tirx.IntImm)
        if realize.block.init is None or not is_single:
            return realize
        # With a constant as the second clause, TVM would not recognize the reduction.
        twice = tirx.And(condition, condition)
        return s_tir.SBlockRealize(realize.iter_values, twice, realize.block)

    return structural_map(function, (s_tir.SBlockRealize, conjunction))


def without_vectors_of_bool(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Unroll vectorized loops that access bool tensors.

    In a vector, TVM's code for CUDA accesses two bytes per bool.
    """

    def unroll(loop: tirx.For, mutator: StructuralMutator) -> tirx.For:
        loop = mutator.default_mutate(loop)
        if loop.kind != tirx.ForKind.VECTORIZED or not _accesses_bool(loop.body):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, loop.body)

    return structural_mutate(function, (tirx.For, unroll))


def _accesses_bool(statement: tirx.Stmt) -> bool:
    buffers: list[tirx.Buffer] = []
    structural_walk(
        statement,
        [
            (tvm.ir.TensorLoad, lambda load: buffers.append(load.source)),
            (tirx.BufferStore, lambda store: buffers.append(store.buffer)),
        ],
    )
    return any(str(buffer.dtype) == "bool" for buffer in buffers)


def read_results_first(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Read an element of a result into a variable before it is combined with others.

    All parameters of a kernel are ``__restrict__``. Of a choice between an element of an input and
    one of the result, nvcc may therefore read either through the cache of read-only data, which
    lacks recent writes.
    """

    def visit(block: s_tir.SBlock) -> s_tir.SBlock:
        # A block with an initial value is a reduction across threads.
        if block.init is not None or contains(block.body, s_tir.SBlock):
            return block
        return with_parts(block, body=_read_first(block.body))

    return function.with_body(structural_map(function.body, (s_tir.SBlock, visit)))


def _read_first(body: tirx.Stmt) -> tirx.Stmt:
    """The body of a block, with a variable for each element that it reads and then replaces."""
    parts = list(body) if isinstance(body, tirx.SeqStmt) else [body]
    if not all(isinstance(part, tirx.Bind | tirx.BufferStore) for part in parts):
        # A load in a branch or a loop may be out of bounds elsewhere.
        return structural_map(body, (tirx.BufferStore, lambda store: sequence(_with_old([store]))))
    return sequence(_with_old(parts))


def _with_old(parts: Sequence[tirx.Bind | tirx.BufferStore]) -> list[tirx.Stmt]:
    """Statements that replace elements, after those that read the elements into variables."""
    bound = [part.var for part in parts if isinstance(part, tirx.Bind)]
    buffers = [part.buffer for part in parts if isinstance(part, tirx.BufferStore)]
    reads: list[tirx.Stmt] = []
    changed: list[tirx.Stmt] = list(parts)
    for position, store in enumerate(parts):
        if not isinstance(store, tirx.BufferStore) or store.buffer.scope() != "global":
            continue
        is_only = sum(store.buffer.same_as(buffer) for buffer in buffers) == 1
        is_first = is_only and not any(uses(index, bound) for index in store.indices)
        affected = slice(0 if is_first else position, position + 1)
        variable = tirx.Var("old", store.value.ty)
        new = [_with_element(part, store, variable) for part in changed[affected]]
        if all(part.same_as(old) for part, old in zip(new, changed[affected], strict=True)):
            continue
        read = tirx.Bind(variable, tirx.BufferLoad(store.buffer, store.indices))
        if is_first:
            reads.append(read)
            changed[affected] = new
        else:
            # The index is computed, or the element replaced, by a statement before.
            changed[position] = tirx.SeqStmt([read, *new])
    return [*reads, *changed]


def _with_element(part: tirx.Stmt, store: tirx.BufferStore, variable: tirx.Var) -> tirx.Stmt:
    """The statement with `variable` instead of the element that `store` replaces."""

    def read(load: tvm.ir.TensorLoad) -> tirx.Expr:
        is_element = load.source.same_as(store.buffer)
        return variable if is_element and structural_equal(load.indices, store.indices) else load

    return structural_map(part, (tvm.ir.TensorLoad, read))


def skip_empty_grids(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Skip launches of empty grids: TVM would launch one block, which writes out of bounds."""
    return structural_mutate(_map_statements(function, _unless_empty), (tirx.AttrStmt, _guarded))


def _guarded(node: tirx.AttrStmt, mutator: StructuralMutator) -> tirx.Stmt:
    """Guard a launch that attributes declare.

    A kernel may have several launches, such as a copy and a scatter; only some may be empty.
    """
    if node.attr_key != "thread_extent":
        return mutator.default_mutate(node)
    grid: list[tirx.Expr] = []

    def look(inner: tirx.AttrStmt) -> None:
        if inner.attr_key == "thread_extent" and inner.node.thread_tag in _BLOCKS:
            grid.append(inner.value)

    structural_walk(node, (tirx.AttrStmt, look))
    return _if_positive([extent for extent in grid if not is_positive(extent)], node)


def _map_statements(
    function: tirx.PrimFunc, change: Callable[[tirx.Stmt], tirx.Stmt]
) -> tirx.PrimFunc:
    """Change the outermost statements of a kernel."""

    def every(body: tirx.Stmt) -> tirx.Stmt:
        is_sequence = isinstance(body, tirx.SeqStmt)
        return tirx.SeqStmt([every(part) for part in body]) if is_sequence else change(body)

    root = function.body
    if not isinstance(root, s_tir.SBlockRealize):
        return function.with_body(every(root))
    block = with_parts(root.block, body=every(root.block.body))
    return function.with_body(s_tir.SBlockRealize(root.iter_values, root.predicate, block))


def _unless_empty(launch: tirx.Stmt) -> tirx.Stmt:
    inner: list[tirx.Var] = []
    grid: list[tirx.Expr] = []

    def look(loop: tirx.For) -> None:
        inner.append(loop.loop_var)
        if loop.thread_binding is not None and loop.thread_binding.thread_tag in _BLOCKS:
            grid.append(loop.extent)

    structural_walk(launch, (tirx.For, look))
    unknown = [extent for extent in grid if not is_positive(extent) and not uses(extent, inner)]
    return _if_positive(unknown, launch)


def _if_positive(extents: Sequence[tirx.Expr], stmt: tirx.Stmt) -> tirx.Stmt:
    """Execute a statement if all `extents` are positive.

    This is a loop of at most one iteration: within a condition, even outside the kernel, TVM
    inserts no barriers between threads.
    """
    if not extents:
        return stmt
    count = functools.reduce(tirx.min, [extent.astype("int64") for extent in extents], _ONE)
    variable = tirx.Var("launch", "int64")
    return tirx.For(variable, tirx.const(0, "int64"), count, tirx.ForKind.SERIAL, stmt)


def _has_variable_block(loop: tirx.For) -> bool:
    is_bound = loop.thread_binding is not None and loop.thread_binding.thread_tag in _THREADS
    return is_bound and not isinstance(loop.extent, tirx.IntImm)


def _races(function: tirx.PrimFunc) -> bool:
    """Whether threads race to update an element, because TVM does not recognize a reduction."""
    lower = s_tir.transform.LowerCrossThreadReduction()
    lowered = lower(tvm.IRModule({"main": function}))["main"]
    threads: list[tirx.Var] = []

    def look(loop: tirx.For) -> None:
        if loop.thread_binding is not None:
            threads.append(loop.loop_var)

    def races(realize: s_tir.SBlockRealize) -> bool:
        if all(region.source.scope() == "local" for region in realize.block.writes):
            return False
        pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        return any(
            each.iter_type == tirx.IterVar.CommReduce and uses(value, threads)
            for each, value in pairs
        )

    structural_walk(lowered.body, (tirx.For, look))
    return contains(lowered.body, s_tir.SBlockRealize, races)


def _accesses_memory_on_host(function: tirx.PrimFunc) -> bool:
    """Whether code outside the threads reads or writes a buffer, which TVM does not check."""
    nothing = tirx.Evaluate(0)

    def drop(node: tirx.For | tirx.AttrStmt) -> tirx.Stmt:
        return nothing if _starts_threads(node) else node

    host = structural_map(function.body, [(tirx.For, drop), (tirx.AttrStmt, drop)])
    accesses: list[tvm.Object] = []
    callbacks = [(tirx.BufferStore, accesses.append), (tvm.ir.TensorLoad, accesses.append)]
    structural_walk(host, callbacks)
    return bool(accesses)


def _lower(function: tirx.PrimFunc, target: tvm.target.Target) -> list[tirx.PrimFunc]:
    """Lower a kernel to device functions; for CUDA, also generate their source."""
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    pipeline, _, finish = tirx.get_default_tir_pipeline(target)
    mod = pipeline(tirx.transform.BindTarget(target)(mod))
    _, modules = split_host_device_mods(mod)
    launches = []
    for device, module in modules.items():
        module = finish()(module)
        if device.kind.name == "cuda":
            with cuda.placeholders():
                codegen_build(module, device)
        launches += [each for _, each in module.functions_items()]
    return launches


def _excesses(launch: tirx.PrimFunc, limits: Limits) -> Iterator[str]:
    """How a device function exceeds the limits of a GPU."""
    extents, allocated = _resources(launch)
    if not any(tag in extents for tag in (*_THREADS, *_BLOCKS)):
        yield "it has no threads"
    for tags, most in ((_THREADS, limits.block), (_BLOCKS, limits.grid)):
        for tag, bound in zip(tags, most, strict=True):
            extent = extents.get(tag)
            if isinstance(extent, tirx.IntImm) and int(extent) > bound:
                yield f"the extent of {tag} is {int(extent)}, but at most {bound} are allowed"
    threads = [extents[tag] for tag in _THREADS if tag in extents]
    count = math.prod(int(extent) for extent in threads if isinstance(extent, tirx.IntImm))
    if count > limits.threads:
        yield f"a block has {count} threads, but at most {limits.threads} are allowed"
    yield from _excesses_of_memory(allocated, limits)
    if _mixes_registers(launch):
        yield "a thread reads the registers of another one"


def _mixes_registers(launch: tirx.PrimFunc) -> bool:
    """Whether an index into a thread's own array depends on the thread.

    It does if the steps of a kernel are divided differently among threads; a step then reads
    elements that another thread has computed.
    """
    varying: list[tirx.Var] = []
    vary: list[bool] = []

    def enter(node: tirx.AttrStmt) -> None:
        if node.attr_key == "thread_extent":
            varying.append(node.node.var)

    def bind(node: tirx.Bind) -> None:
        if uses(node.value, varying):
            varying.append(node.var)

    def store(node: tirx.BufferStore) -> None:
        look(node.buffer, node.indices)

    def load(node: tvm.ir.TensorLoad) -> None:
        look(node.source, node.indices)

    def look(buffer: tirx.Buffer, indices: Sequence[tirx.Expr]) -> None:
        if buffer.scope() == "local":
            vary.append(any(uses(index, varying) for index in indices))

    callbacks = [(tirx.AttrStmt, enter), (tirx.Bind, bind), (tirx.BufferStore, store)]
    structural_walk(launch.body, [*callbacks, (tvm.ir.TensorLoad, load)], order="pre")
    return any(vary)


def _excesses_of_memory(allocated: list[tirx.Buffer], limits: Limits) -> Iterator[str]:
    sums = dict.fromkeys(("local", "shared", "shared.dyn"), 0)
    for buffer in allocated:
        scope = buffer.scope()
        if scope == "global":
            yield f"it allocates global memory ({buffer.name})"
        elif not all(isinstance(extent, tirx.IntImm) for extent in buffer.shape):
            yield f"it allocates a variable amount of {scope} memory ({buffer.name})"
        elif scope in sums:
            sums[scope] += int(bytes_of(buffer))
    bounds = {
        "local": (sums["local"], limits.local),
        "shared": (sums["shared"], limits.shared),
        "dynamic shared": (sums["shared"] + sums["shared.dyn"], limits.dynamic_shared),
    }
    if sums["shared.dyn"] < limits.shared:
        # TVM's runtime raises the default limit only for a larger amount of dynamic memory.
        bounds["dynamic shared"] = (bounds["dynamic shared"][0], limits.shared)
    for scope, (used, most) in bounds.items():
        if used > most:
            yield f"it allocates {used} bytes of {scope} memory, but at most {most} are allowed"


def _resources(launch: tirx.PrimFunc) -> tuple[dict[str, tirx.Expr], list[tirx.Buffer]]:
    """The extents of threads by their tags, and the buffers that a device function allocates."""
    extents: dict[str, tirx.Expr] = {}
    allocated: list[tirx.Buffer] = []

    def look(node: tirx.AttrStmt) -> None:
        if node.attr_key == "thread_extent":
            extents[str(node.node.thread_tag)] = node.value

    structural_walk(
        launch.body,
        [(tirx.AttrStmt, look), (tirx.AllocBuffer, lambda node: allocated.append(node.buffer))],
    )
    return extents, allocated
