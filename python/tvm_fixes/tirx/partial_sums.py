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
"""Sums of partial sums, whose rounding errors do not grow with the number of summands.

Before, for a sum over the first axis::

    for k in range(n):
        lanes[0:64] = lanes[0:64] + x[k, 0:64]

and after::

    for part in range(n // 32):
        partial[0:64] = 0.0
        for k in range(32):
            partial[0:64] = partial[0:64] + x[part * 32 + k, 0:64]
        lanes[0:64] = lanes[0:64] + partial[0:64]
    partial[0:64] = 0.0
    for k in range(n % 32):
        partial[0:64] = partial[0:64] + x[n // 32 * 32 + k, 0:64]
    lanes[0:64] = lanes[0:64] + partial[0:64]
"""

from collections.abc import Sequence

from tvm import tirx
from tvm.sym import Analyzer

from .loop_nest import Update, around_loops, sequence, substitute, with_new_variables
from .util import count_of, is_zero

# The number of summands of a part.
_LENGTH = 32


def have_parts(updates: Sequence[Update], loops: Sequence[tirx.For]) -> bool:
    """Whether `updates` are sums of floats that are long enough for parts."""
    are_sums = all(u.combine is tirx.Add and "float" in u.dtype for u in updates)
    return are_sums and not _is_less(count_of(loop.extent for loop in loops), 2 * _LENGTH)


def in_parts(
    loops: Sequence[tirx.For],
    part: tuple[tirx.Stmt, tirx.Stmt, tirx.Stmt],
    summands: int = _LENGTH,
) -> tirx.Stmt:
    """Run a sum in parts.

    Parameters
    ----------
    loops : sequence of tirx.For
        The loops of the sum, of at least two parts.
    part : tuple of tirx.Stmt
        What begins a partial sum, adds a summand to it, and adds it to the sum.
    summands : int
        About how many summands a part has.
    """
    begin, step, end = part
    depth = len(loops) - 1
    while depth and _is_less(count_of(loop.extent for loop in loops[depth:]), summands):
        depth -= 1
    first, others = loops[depth], loops[depth + 1 :]
    count = count_of(loop.extent for loop in others)
    length = max(summands // count.value, 1) if isinstance(count, tirx.IntImm) else 1
    if length == 1 and others:
        whole = sequence([begin, around_loops(others, step), end])
        return around_loops(loops[: depth + 1], whole)
    if _is_less(first.extent, 2 * length):
        whole = sequence([begin, around_loops(loops[depth:], step), end])
        return around_loops(loops[:depth], whole)
    dtype = str(first.loop_var.ty)
    parts = Analyzer().simplify(tirx.floordiv(first.extent, length))
    left = Analyzer().simplify(tirx.floormod(first.extent, length))

    def sum_of(start: tirx.Expr, extent: tirx.Expr) -> tirx.Stmt:
        at = tirx.Var(first.loop_var.name, dtype)
        inner = substitute(around_loops(others, step), {first.loop_var: first.min + start + at})
        steps = tirx.For(at, tirx.const(0, dtype), extent, tirx.ForKind.SERIAL, inner)
        return with_new_variables(sequence([begin, steps, end]))

    index = tirx.Var("part", dtype)
    within = sum_of(index * length, tirx.const(length, dtype))
    stmts = [tirx.For(index, tirx.const(0, dtype), parts, tirx.ForKind.SERIAL, within)]
    if not is_zero(left):
        # Outer loops may repeat it often, with few summands that are in no whole part.
        stmts.append(sum_of(parts * length, left))
    return around_loops(loops[:depth], sequence(stmts))


def _is_less(extent: tirx.Expr, bound: int) -> bool:
    return isinstance(extent, tirx.IntImm) and extent.value < bound
