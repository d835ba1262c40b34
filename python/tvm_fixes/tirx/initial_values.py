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
"""Initial values of reductions in GPU kernels."""

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_equal, structural_map, structural_walk

from .loop_nest import uses, with_new_variables
from .util import contains, is_one, with_parts


def set_initial_values(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Set the initial value of each reduction before its loops, not in their first iteration.

    Unlike ``Schedule.decompose_reduction``, this works for the loops and indices of any schedule.
    A cross-thread reduction stays unchanged; TVM sets its initial value when it lowers it.
    """
    return function.with_body(_visit(function.body, []))


def without_unit_reductions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Turn each reduction of a single element into an assignment.

    Once TVM's schedules drop the loops of such a reduction, they treat it as an elementwise block.
    They then apply its consumers, such as the addition of a bias, to its initial value too.
    """
    return structural_map(function, (SBlock, _assignment))


def _assignment(block: SBlock) -> SBlock:
    reduced = [each for each in block.iter_vars if each.iter_type == tirx.IterVar.CommReduce]
    if block.init is None or not reduced or not all(is_one(each.dom.extent) for each in reduced):
        return block
    if contains(block.body, tirx.For):
        # The loops of a block inside, whose number depends on the element, are a reduction too.
        return block
    initial: list[tirx.BufferStore] = []
    structural_walk(block.init, (tirx.BufferStore, initial.append))

    def value_of(load: tvm.ir.TensorLoad) -> tirx.Expr:
        for store in initial:
            if store.buffer.same_as(load.source) and structural_equal(store.indices, load.indices):
                return store.value
        return load

    body = structural_map(block.body, (tvm.ir.TensorLoad, value_of))
    spatial = [
        tirx.IterVar(each.dom, each.var, tirx.IterVar.DataPar, each.thread_tag)
        for each in block.iter_vars
    ]
    return with_parts(block, iter_vars=spatial, body=body, init=None)


def _visit(stmt: tirx.Stmt, outer: list[tirx.Var]) -> tirx.Stmt:
    """A statement within loops over `outer`."""
    if isinstance(stmt, tirx.SeqStmt):
        return tirx.SeqStmt([_visit(part, outer) for part in stmt])
    if isinstance(stmt, SBlockRealize):
        block = with_parts(stmt.block, body=_visit(stmt.block.body, []))
        return SBlockRealize(stmt.iter_values, stmt.predicate, block)
    if not isinstance(stmt, tirx.For):
        return stmt
    parts = _separated(stmt, outer)
    if parts is not None:
        return tirx.SeqStmt(parts)
    return _with_loop_body(stmt, _visit(stmt.body, [*outer, stmt.loop_var]))


def _separated(loop: tirx.For, outer: list[tirx.Var]) -> list[tirx.Stmt] | None:
    """The initial value and the reduction, if `loop` is its outermost one; otherwise None."""
    loops = [loop]
    while isinstance(loops[-1].body, tirx.For):
        loops.append(loops[-1].body)
    realize = loops[-1].body
    if not isinstance(realize, SBlockRealize) or realize.block.init is None:
        return None
    pairs = list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
    kept = [(v, value) for v, value in pairs if v.iter_type == tirx.IterVar.DataPar]
    reduced = [value for v, value in pairs if v.iter_type != tirx.IterVar.DataPar]
    is_outermost = any(uses(value, [loop.loop_var]) for value in reduced)
    needed = [each for each in loops if any(uses(value, [each.loop_var]) for _, value in kept)]
    dropped = [each.loop_var for each in loops if each not in needed]
    if (
        not is_outermost
        or any(uses(value, outer) for value in reduced)
        or any(each.thread_binding is not None for each in loops)
        or uses(realize.predicate, dropped)
    ):
        return None
    block = realize.block
    name = f"{block.name_hint}_init"
    first = SBlock([v for v, _ in kept], [], block.writes, name, block.init)
    initial: tirx.Stmt = SBlockRealize([value for _, value in kept], realize.predicate, first)
    rest: tirx.Stmt = SBlockRealize(
        realize.iter_values, realize.predicate, with_parts(block, init=None)
    )
    for each in reversed(needed):
        initial = _with_loop_body(each, initial)
    for each in reversed(loops):
        rest = _with_loop_body(each, rest)
    return [with_new_variables(initial), rest]


def _with_loop_body(loop: tirx.For, body: tirx.Stmt) -> tirx.For:
    parts = (loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding)
    return tirx.For(*parts, loop.annotations, loop.step)
