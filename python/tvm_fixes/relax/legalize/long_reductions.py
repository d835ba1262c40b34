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
"""Lowering of a maximum, minimum, argmax or argmin of long rows for a GPU, in several steps.

TVM's schedules divide only sums among threads.  In one step, one thread would reduce a row.
"""

import math
from collections.abc import Callable, Sequence

from tvm import relax, te, tirx

from ...target.gpu import is_gpu
from ...tirx.util import unravel
from .targets import target_of

# The least number of parts: adjacent threads then read a cache line.
_MIN_PARTS = 32

# How many elements a thread reduces: at least in the first step, and at most in the last one.
_MIN_LENGTH, _MAX_LENGTH = 8, 64

# The number of results from which a step uses all of a large GPU.
_MANY_RESULTS = 1 << 14

Reducer = Callable[..., te.Tensor]


def parts_of(call: relax.Call, axes: Sequence[int]) -> list[int]:
    """The number of partial results of a row after each step but the last.

    Parameters
    ----------
    call : relax.Call
        The call of a reduction.
    axes : sequence of int
        The reduced axes, not negative.

    Returns
    -------
    list of int
        Decreasing powers of two; none if one step is enough, or the target is not a GPU.
    """
    shape = list(call.args[0].ty.shape.values)
    reduced = [shape[axis] for axis in axes]
    if not is_gpu(target_of(call)) or not all(isinstance(n, tirx.IntImm) for n in reduced):
        return []
    row = math.prod(map(int, reduced))
    results = math.prod(int(n) for n in shape if isinstance(n, tirx.IntImm)) // max(row, 1)
    # Threads of neighboring results read neighboring elements.
    is_coalesced = len(shape) - 1 not in axes and results >= _MANY_RESULTS
    if is_coalesced or row < _MIN_PARTS * _MIN_LENGTH:
        return []
    parts = _MIN_PARTS
    while parts * results < _MANY_RESULTS and row >= 2 * parts * _MIN_LENGTH:
        parts *= 2
    steps = [parts]
    while steps[-1] > _MAX_LENGTH:
        # Two steps of about equal length, if those are not too long.
        left = steps[-1].bit_length() - 1
        steps.append(1 << (left // 2) if left <= 12 else steps[-1] // _MIN_PARTS)
    return steps


def rows_of(data: te.Tensor, axes: Sequence[int], parts: int, padding: tirx.Expr) -> te.Tensor:
    """The elements along `axes` as one last axis, padded to a multiple of `parts`."""
    kept = [extent for axis, extent in enumerate(data.shape) if axis not in axes]
    reduced = [data.shape[axis] for axis in sorted(axes)]
    count = math.prod(map(int, reduced))

    def element(*at: tirx.Var) -> tirx.Expr:
        others, along = iter(at[:-1]), iter(unravel(at[-1], reduced))
        place = [next(along if axis in axes else others) for axis in range(len(data.shape))]
        if count % parts == 0:
            return data(*place)
        return tirx.if_then_else(at[-1] < count, data(*place), padding)

    return te.compute([*kept, -(-count // parts) * parts], element, name="rows")


def positions_like(rows: te.Tensor, count: int, dtype: str) -> te.Tensor:
    """The index of each element of a row, and -1 after the first `count`."""

    def position(*at: tirx.Var) -> tirx.Expr:
        index = at[-1].astype(dtype)
        return tirx.Select(at[-1] < count, index, tirx.const(-1, dtype))

    return te.compute(rows.shape, position, name="positions")


def reduce_parts(operands: Sequence[te.Tensor], reducer: Reducer, parts: int) -> list[te.Tensor]:
    """Reduce the last axis to `parts` elements, each from elements at that distance."""
    *kept, extent = operands[0].shape
    along = te.reduce_axis((0, tirx.floordiv(extent, parts)), "k")

    def reduced(*at: tirx.Var) -> tirx.Expr:
        elements = [operand(*at[:-1], along.var * parts + at[-1]) for operand in operands]
        return reducer(elements[0] if len(elements) == 1 else tuple(elements), axis=along)

    partial = te.compute([*kept, parts], reduced, name="partial")
    return [partial] if len(operands) == 1 else list(partial)
