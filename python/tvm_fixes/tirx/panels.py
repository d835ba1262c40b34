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
"""Vectors for panels: parts of an operand that a kernel copies in the order of its reads."""

import tvm
import tvm_ffi
from tvm import tirx
from tvm_ffi import structural_mutate

from ..attributes import PANEL
from .loop_nest import Nest, analyzer_of, around_loops, steps_of, substitute, uses
from .tiled_transpose import transpose_in_tiles
from .util import is_if_then_else, is_one, with_parts
from .vectorize import serial_loop, vector_loop

# With fewer lanes, vectors are not worthwhile.
_MIN_LANES = 4


def vectorize_panels(body: tirx.Stmt, size: int) -> tirx.Stmt:
    """Copy panels by vectors, or transpose them in registers.

    Before, with the annotation :data:`PANEL` of the block::

        for k, column in T.grid(256, 16):
            panel[k, column] = T.if_then_else(
                tile * 16 + column < n, w[tile * 16 + column, k], 0
            )

    and after::

        if tile * 16 + 15 < n:
            …  # Squares of w are loaded, shuffled and stored.
        else:
            …  # The loops as they were.

    Parameters
    ----------
    body : tirx.Stmt
    size : int
        The size of a vector in bytes.

    Returns
    -------
    tirx.Stmt
        The same statement if there are no panels, or if vectors do not fit.
    """

    def rewrite(loop: tirx.For, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Stmt:
        nest = Nest.of(loop)
        if nest is None or PANEL not in nest.block.annotations:
            return mutator.default_mutate(loop)
        return _in_vectors(loop, nest, size)

    return structural_mutate(body, (tirx.For, rewrite))


def _in_vectors(loop: tirx.For, nest: Nest, size: int) -> tirx.Stmt:
    store = nest.block.body
    value, condition = store.value, None
    if is_if_then_else(value):
        condition, value, _ = value.args
    whole = with_parts(nest.block, body=tirx.BufferStore(store.buffer, value, store.indices))
    copied = structural_mutate(loop, (type(nest.block), lambda _block, _mutator: whole))
    vectors = transpose_in_tiles(copied, size) or _copied(nest, copied, value)
    if vectors is None or condition is None:
        return _unrolled(nest) if vectors is None else vectors
    *outer, last = nest.loops
    ends = {each.loop_var: each.min for each in outer if is_one(each.extent)}
    is_whole = substitute(
        _in_loops(nest, condition), ends | {last.loop_var: last.min + last.extent - 1}
    )
    if uses(is_whole, [each.loop_var for each in outer]):
        return _unrolled(nest)
    return tirx.IfThenElse(is_whole, vectors, _unrolled(nest))


def _in_loops(nest: Nest, expr: tirx.Expr) -> tirx.Expr:
    """An expression of the block in terms of the loops."""
    iterators = (iterator.var for iterator in nest.block.iter_vars)
    return substitute(expr, dict(zip(iterators, nest.values, strict=True)))


def _copied(nest: Nest, loop: tirx.For, value: tirx.Expr) -> tirx.Stmt | None:
    """The loops of `nest` with vectors of adjacent elements; None if they are not adjacent."""
    *outer, last = nest.loops
    if not isinstance(value, tvm.ir.TensorLoad):
        return None
    steps = steps_of(_in_loops(nest, value), [last.loop_var], analyzer_of(nest.loops))
    # LLVM scalarizes vectors of other lengths.
    lanes = int(last.extent) & -int(last.extent)
    if steps is None or not is_one(steps[0]) or lanes < _MIN_LANES:
        return None
    body: tirx.Stmt = loop
    for _ in nest.loops:
        body = body.body
    vector = tirx.Var("vector", last.loop_var.ty)

    def in_lane(lane: tirx.Expr) -> tirx.Stmt:
        return substitute(body, {last.loop_var: vector * lanes + lane.astype(vector.ty)})

    vectors = serial_loop(vector, last.extent // lanes, vector_loop(lanes, in_lane))
    return around_loops(outer, vectors)


def _unrolled(nest: Nest) -> tirx.Stmt:
    """The loops, the last one unrolled: LLVM moves what its positions take out of the others."""
    *outer, last = nest.loops
    unrolled = tirx.For(last.loop_var, last.min, last.extent, tirx.ForKind.UNROLLED, last.body)
    return around_loops(outer, unrolled)
