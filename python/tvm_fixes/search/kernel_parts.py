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
"""Kernels with fewer statements, shorter loops and simpler values."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial

import tvm
from tvm import relax, tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.analysis import get_sblock_read_write_region
from tvm_ffi import structural_map, structural_walk

from ..errors import UsageError
from ..tirx.loop_nest import substitute
from ..tirx.util import contains, is_one, with_parts

_NOTHING = tirx.Evaluate(0)

_DECLARATIONS = (tirx.AllocBuffer, tirx.DeclBuffer, tirx.Bind, tirx.SeqStmt)


def with_main(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, or if it has only kernels, one with a function ``main`` that calls them.

    As for ``R.call_tir``, the last parameters of a kernel are its results.

    Raises
    ------
    UsageError
        If the results of a kernel cannot be told, or a parameter is no tensor of a known shape.
    """
    functions = {str(var.name_hint): function for var, function in mod.functions_items()}
    kernels = {n: f for n, f in functions.items() if isinstance(f, tirx.PrimFunc)}
    if len(kernels) < len(functions) or not kernels:
        return mod
    builder = relax.BlockBuilder()
    calls, params = [], []
    for name, kernel in kernels.items():
        types = [_type_of(param, name) for param in kernel.params]
        first = len(types) - _count_results(kernel, name)
        own = [
            relax.Var(f"{name}_{param.name}" if len(kernels) > 1 else param.name, type_)
            for param, type_ in zip(kernel.params[:first], types, strict=False)
        ]
        label = "kernel" if name == "main" else name
        kernel = kernel.with_attr("global_symbol", label)
        calls.append((builder.add_func(kernel, label), own, types[first:]))
        params += own
    with builder.function("main", params):
        results = [builder.emit(relax.call_tir(*call)) for call in calls]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.get()


def _type_of(param: tirx.Var, kernel: str) -> relax.TensorType:
    shape = getattr(param.ty, "shape", None)
    if shape is None or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise UsageError(
            f"parameter {param.name!r} of the kernel {kernel!r}: expected a tensor with known "
            "extents; give a Relax module that calls the kernel"
        )
    return relax.TensorType(shape, param.ty.dtype)


def _count_results(kernel: tirx.PrimFunc, name: str) -> int:
    """The number of the last parameters, which the kernel writes to."""
    _, stored = _accesses(kernel.body)
    written = [param in stored for param in kernel.params]
    count = sum(written)
    if not count or not all(written[-count:]):
        raise UsageError(
            f"the kernel {name!r} must write to its last parameters only; give a Relax module that "
            "calls it"
        )
    return count


def _accesses(body: tirx.Stmt) -> tuple[set[tirx.Var], set[tirx.Var]]:
    """The buffers that are read, and those that are written."""
    read: set[tirx.Var] = set()
    stored: set[tirx.Var] = set()
    structural_walk(body, (tvm.ir.TensorLoad, lambda load: read.add(load.source)))
    structural_walk(body, (tirx.BufferStore, lambda store: stored.add(store.buffer)))
    return read, stored


def statements_of(mod: tvm.IRModule) -> list[tirx.Stmt]:
    """The statements of sequences in the kernels, but no declarations."""
    found: dict[tirx.Stmt, None] = {}

    def visit(sequence: tirx.SeqStmt) -> None:
        found.update(dict.fromkeys(s for s in sequence.seq if not isinstance(s, _DECLARATIONS)))

    for _, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(function.body, (tirx.SeqStmt, visit), order="pre")
    return list(found)


def without_statements(mod: tvm.IRModule, dropped: Collection[tirx.Stmt]) -> tvm.IRModule | None:
    """The module without some statements; None if nothing writes to a result of a kernel."""
    found = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for var, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            changed = _with_body(
                function, _replaced(function.body, dict.fromkeys(dropped, _NOTHING))
            )
            if changed is None:
                return None
            found.update_func(var, changed)
    return found


def simpler_modules(mod: tvm.IRModule) -> Iterator[tuple[str, tvm.IRModule]]:
    """Modules with one simpler kernel each, the most promising first, and what is simpler."""
    for var, function in mod.functions_items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        for number, make in enumerate(_simpler_bodies(function.body)):
            changed = None
            with suppress(Exception):  # TVM rejects it
                changed = _with_body(function, make())
            if changed is not None:
                found = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
                found.update_func(var, changed)
                yield f"{var.name_hint} {number}", found


def _simpler_bodies(body: tirx.Stmt) -> Iterator[Callable[[], tirx.Stmt]]:
    """Functions that make simpler bodies of a kernel."""
    stores: list[tirx.BufferStore] = []
    structural_walk(body, (tirx.BufferStore, stores.append))
    for store in stores:
        if isinstance(store.value, tvm.ir.TensorLoad):
            yield partial(_without_copy, body, store)
    for old, new in _simpler_parts(body):
        yield partial(_replaced, body, {old: new})


def _without_copy(body: tirx.Stmt, copy: tirx.BufferStore) -> tirx.Stmt:
    """Without a copy of an intermediate buffer: what writes to it writes to the copy."""
    buffer = copy.value.source
    declared: list[tirx.AllocBuffer] = []
    structural_walk(body, (tirx.AllocBuffer, declared.append))
    (declaration,) = [one for one in declared if one.buffer.same_as(buffer)]
    body = _replaced(body, {copy: _NOTHING, declaration: _NOTHING})
    return substitute(body, {buffer: copy.buffer})


def _simpler_parts(body: tirx.Stmt) -> Iterator[tuple[tirx.Stmt, tirx.Stmt]]:
    """Statements, each with a simpler one."""
    nodes: list[tirx.Stmt] = []
    structural_walk(body, (tirx.Stmt, nodes.append), order="pre")
    for node in nodes:
        if isinstance(node, tirx.IfThenElse):
            yield node, node.then_case
            if node.else_case is not None:
                yield node, node.else_case
        elif isinstance(node, tirx.For):
            if is_one(node.extent):
                yield node, substitute(node.body, {node.loop_var: node.min})
            elif node.thread_binding is None and (
                node.kind != tirx.ForKind.SERIAL or node.annotations
            ):
                plain = tirx.For(
                    node.loop_var, node.min, node.extent, tirx.ForKind.SERIAL, node.body
                )
                yield node, plain
        elif isinstance(node, SBlockRealize) and not _has_blocks(node.block):
            block = node.block
            if block.init is None and not (block.alloc_buffers or block.match_buffers):
                values = zip(block.iter_vars, node.iter_values, strict=True)
                yield node, substitute(block.body, {one.var: value for one, value in values})
        elif isinstance(node, tirx.BufferStore):
            for value in _simpler_values(node.value):
                yield node, tirx.BufferStore(node.buffer, value, node.indices)


def _has_blocks(block: SBlock) -> bool:
    return contains(block.body, SBlockRealize)


def _simpler_values(value: tirx.Expr) -> Iterator[tirx.Expr]:
    """A constant, the parts of a value with its type, and the value with a constant for a part."""
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return
    parts: list[tirx.Expr] = []
    structural_walk(value, (tirx.Expr, parts.append))
    one = tirx.const(1, value.ty.dtype)
    yield one
    fitting = [part for part in parts if part.ty == value.ty and not part.same_as(value)]
    yield from fitting
    for part in fitting:
        if not isinstance(part, tirx.IntImm | tirx.FloatImm):
            yield structural_map(
                value, (tirx.Expr, lambda node, part=part: one if node.same_as(part) else node)
            )


def without_unused_parameters(mod: tvm.IRModule) -> tuple[tvm.IRModule, list[int]] | None:
    """The module without parameters that its kernel does not read, and the places of the others.

    None if it reads all, or if ``main`` does more than call one kernel with its own parameters.
    """
    name = _only_kernel(mod)
    if name is None:
        return None
    function = mod[name]
    read, stored = _accesses(function.body)
    kept = [place for place, param in enumerate(function.params) if param in read | stored]
    if len(kept) == len(function.params):
        return None
    smaller = _with_params(function, [function.params[place] for place in kept])
    changed = with_main(tvm.IRModule({name: smaller}))
    return changed, kept[: len(changed["main"].params)]


def shrunk(mod: tvm.IRModule, size: int, new: int) -> tvm.IRModule | None:
    """A module with another extent for `size` wherever it occurs.

    None if ``main`` does more than call one kernel with its own parameters.
    """
    name = _only_kernel(mod)
    if name is None:
        return None

    def resized(value: tirx.IntImm) -> tirx.IntImm:
        return tirx.IntImm(value.ty.dtype, new) if int(value.value) == size else value

    function = structural_map(mod[name], (tirx.IntImm, resized))
    return with_main(tvm.IRModule({name: _with_params(function, function.params)}))


def _with_params(function: tirx.PrimFunc, params: Sequence[tirx.Var]) -> tirx.PrimFunc:
    """The kernel with other parameters, and with the type that follows from them."""
    return tirx.PrimFunc(params, function.body, function.ret_type, function.attrs)


def _only_kernel(mod: tvm.IRModule) -> str | None:
    """The name of the kernel, if all that ``main`` does is to call it with its own parameters."""
    kernels = [var for var, one in mod.functions_items() if isinstance(one, tirx.PrimFunc)]
    main = mod["main"]
    bindings = [one.value for block in main.body.blocks for one in block.bindings]
    calls = [one for one in bindings if isinstance(one, relax.Call)]
    if len(kernels) != 1 or len(calls) != 1 or list(calls[0].args[1].fields) != list(main.params):
        return None
    return str(kernels[0].name_hint)


def _replaced(body: tirx.Stmt, replacements: dict[tirx.Stmt, tirx.Stmt]) -> tirx.Stmt:
    return structural_map(body, (tirx.Stmt, lambda one: replacements.get(one, one)), order="pre")


def _with_body(function: tirx.PrimFunc, body: tirx.Stmt) -> tirx.PrimFunc | None:
    """The kernel with a tidied body, in which reads of what nothing writes are a constant.

    None if nothing writes to a result.
    """
    body = structural_map(body, (tirx.Stmt, _tidied))
    _, stored = _accesses(body)
    if not set(function.params) & _accesses(function.body)[1] <= stored:
        return None
    known = stored | set(function.params)

    def defined(load: tvm.ir.TensorLoad) -> tirx.Expr:
        return load if load.source in known else tirx.const(1, load.ty.dtype)

    body = structural_map(body, (tvm.ir.TensorLoad, defined))
    read, stored = _accesses(body)
    used = read | stored

    def without_unused(one: tirx.Stmt) -> tirx.Stmt:
        return _NOTHING if one.buffer not in used else one

    body = structural_map(body, (tirx.AllocBuffer, without_unused))
    body = structural_map(body, (tirx.Stmt, _tidied))
    return function.with_body(body)


def _is_nothing(stmt: tirx.Stmt | None) -> bool:
    return stmt is None or (isinstance(stmt, tirx.Evaluate) and isinstance(stmt.value, tirx.IntImm))


def _tidied(stmt: tirx.Stmt) -> tirx.Stmt:
    """A statement whose parts are tidied, without those that do nothing."""
    if isinstance(stmt, tirx.SeqStmt):
        kept = [one for one in stmt.seq if not _is_nothing(one)]
        return tirx.SeqStmt(kept) if len(kept) > 1 else (kept or [_NOTHING])[0]
    if isinstance(stmt, tirx.For | tirx.AttrStmt):
        return _NOTHING if _is_nothing(stmt.body) else stmt
    if isinstance(stmt, tirx.IfThenElse):
        return _NOTHING if _is_nothing(stmt.then_case) and _is_nothing(stmt.else_case) else stmt
    if isinstance(stmt, SBlock):
        block = with_parts(stmt, init=None if _is_nothing(stmt.init) else stmt.init)
        if block.name_hint == "root":
            return block
        read, stored = _accesses(block)
        buffers = {one: one for one in read | stored}
        with suppress(Exception):  # the accesses of some blocks are unknown
            reads, writes = get_sblock_read_write_region(block, buffers)
            block = with_parts(block, reads=reads, writes=writes)
        return block
    if isinstance(stmt, SBlockRealize) and stmt.block.name_hint != "root":
        is_empty = _is_nothing(stmt.block.body) and stmt.block.init is None
        return _NOTHING if is_empty else stmt
    return stmt
