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
"""Loop partition: a loop for each side of a condition on an index, as in a concatenation."""

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi import structural_mutate, structural_walk

from .loop_nest import Nest, around_loops, substitute, uses, with_new_variables
from .util import is_if_then_else, is_zero

# Each split adds a loop nest.
_MAX_NESTS = 16

_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


@dataclass(frozen=True)
class _Boundary:
    """A condition that holds on only one side of an index of a loop.

    Attributes
    ----------
    condition : tirx.Expr
        A comparison of the iterator bound to the variable of `loop`.
    loop : tirx.For
    first : tirx.Expr
        The first index of the upper side.
    holds_above : bool
        Whether the condition holds on the upper side.
    """

    condition: tirx.Expr
    loop: tirx.For
    first: tirx.Expr
    holds_above: bool


def partition_loops(loop: tirx.For) -> list[tirx.For]:
    """Split the loops of a nest where a condition on an index changes its value.

    Before::

        for i in range(9):
            y[i] = T.if_then_else(4 <= i, b[i - 4], a[i])

    and after::

        for i in range(4):
            y[i] = a[i]
        for i in range(5):
            y[4 + i] = b[i]

    Parameters
    ----------
    loop : tirx.For
        The outermost loop of the nest.

    Returns
    -------
    list[tirx.For]
        Nests that, in this order, compute the same; only `loop` itself if there is no such
        condition, if there are too many, or if it has no iterations.
    """
    done: list[tirx.For] = []
    pending = [loop]
    while pending:
        if len(done) + len(pending) > _MAX_NESTS:
            return [loop]
        first = pending.pop(0)
        nest = Nest.of(first)
        boundary = None if nest is None else _boundary(nest)
        if nest is None or boundary is None:
            done.append(first)
        else:
            pending = [*_split(nest, boundary), *pending]
    return done or [loop]


def _boundary(nest: Nest) -> _Boundary | None:
    """The first boundary of an elementwise nest whose iterators are the variables of its loops."""
    loops = {loop.loop_var: loop for loop in nest.loops}
    by_iterator = {
        iterator.var: loops.get(value)
        for value, iterator in zip(nest.values, nest.block.iter_vars, strict=True)
    }
    is_elementwise = nest.block.init is None and all(
        iterator.iter_type == tirx.IterVar.DataPar for iterator in nest.block.iter_vars
    )
    if not is_elementwise or not isinstance(nest.block.body, tirx.BufferStore):
        return None
    boundaries: list[_Boundary] = []

    def look(value: tirx.Expr) -> None:
        branches = branches_of(value)
        condition = None if branches is None else branches[0]
        if not isinstance(condition, _COMPARISONS):
            return
        is_left = condition.a in by_iterator
        index, first = (condition.a, condition.b) if is_left else (condition.b, condition.a)
        loop = by_iterator.get(index) if isinstance(index, tirx.Var) else None
        if loop is None or uses(first, by_iterator):
            return
        # i > first and i <= first change one later than i >= first and i < first.
        if isinstance(condition, tirx.GT | tirx.LE) == is_left:
            first = first + 1
        holds_above = isinstance(condition, tirx.GT | tirx.GE) == is_left
        boundaries.append(_Boundary(condition, loop, first, holds_above))

    structural_walk(nest.block.body, [(tvm.ir.Call, look), (tirx.Select, look)])
    return boundaries[0] if boundaries else None


def _split(nest: Nest, boundary: _Boundary) -> list[tirx.For]:
    """The nests below and above the boundary, without provably empty ones."""
    extent = boundary.loop.extent
    first = Analyzer().simplify(
        tirx.max(tirx.min(boundary.first, extent), 0).astype(boundary.loop.loop_var.ty)
    )
    pieces: list[tirx.For] = []
    for begin, end, is_above in ((0, first, False), (first, extent, True)):
        count = Analyzer().simplify(end - begin)
        if is_zero(count):
            continue
        block = _resolved(nest, boundary.condition, is_above == boundary.holds_above)
        variable = boundary.loop.loop_var
        values = [substitute(value, {variable: variable + begin}) for value in nest.values]
        loops = [
            tirx.For(variable, loop.min, count, loop.kind, loop.body)
            if loop.same_as(boundary.loop)
            else loop
            for loop in nest.loops
        ]
        piece = around_loops(loops, SBlockRealize(values, True, block))
        # Each variable must be defined only once.
        pieces.append(with_new_variables(piece) if pieces else piece)
    return pieces


def _resolved(nest: Nest, condition: tirx.Expr, holds: bool) -> SBlock:
    """The block of a nest with each choice by `condition` resolved."""

    def choose(choice: tirx.Expr, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Expr:
        branches = branches_of(choice)
        if branches is None or not tvm_ffi.structural_equal(branches[0], condition):
            return mutator.default_mutate(choice)
        return mutator.mutate(branches[1] if holds else branches[2])

    body = structural_mutate(nest.block.body, (tirx.Expr, choose))
    return nest.block_of(nest.block.iter_vars, body)


def branches_of(value: tirx.Expr) -> list[tirx.Expr] | None:
    """The condition of a choice, its value if the condition holds, and its value otherwise."""
    if isinstance(value, tirx.Select):
        return [value.condition, value.true_value, value.false_value]
    if is_if_then_else(value):
        return list(value.args)
    return None


def with_branches(value: tirx.Expr, branches: Sequence[tirx.Expr]) -> tirx.Expr:
    """The choice `value` with other :func:`branches_of`."""
    make = tirx.Select if isinstance(value, tirx.Select) else tirx.if_then_else
    return make(*branches)
