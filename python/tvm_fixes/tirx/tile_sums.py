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
"""Long sums of tiles, as sums of partial sums.

Before, for a tile of a convolution over 512 channels::

    for h, w, channel in T.grid(3, 3, 512):
        tile[0:16] = tile[0:16] + x[…] * y[…]

and after::

    for h in range(3):
        partial[0:16] = 0.0
        for w, channel in T.grid(3, 512):
            partial[0:16] = partial[0:16] + x[…] * y[…]
        tile[0:16] = tile[0:16] + partial[0:16]

The partial sums are in registers, the tile is in the L1 cache.
"""

from collections.abc import Callable, Sequence

import tvm_ffi
from tvm import tirx
from tvm_ffi import structural_map, structural_mutate, structural_walk

from .loop_nest import uses, with_new_variables
from .partial_sums import in_parts
from .util import count_of

# The number of summands of a part; the tile is read and written once per part.
_LENGTH = 768


def has_parts(count: tirx.Expr) -> bool:
    """Whether a sum of `count` elements has parts."""
    return not isinstance(count, tirx.IntImm) or count.value >= 2 * _LENGTH


def sum_in_parts(body: tirx.Stmt, tile: tirx.Buffer) -> tirx.Stmt:
    """Sum a tile of floats in parts, if it has many summands.

    Parameters
    ----------
    body : tirx.Stmt
        Loops.
    tile : tirx.Buffer

    Returns
    -------
    tirx.Stmt
        The same statement if it sums few elements, or in other ways.
    """
    if "float" not in str(tile.dtype):
        return body

    def rewrite(loop: tirx.For, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Stmt:
        loops = _serial_loops(loop)
        if not loops or not _sums_only(loops, tile):
            return mutator.default_mutate(loop)
        if not has_parts(count_of(each.extent for each in loops)):
            return loop
        partial = tirx.decl_buffer(tile.shape, tile.dtype, f"{tile.name}_part", layout=None)
        return tirx.SeqStmt([tirx.AllocBuffer(partial), _parts(loops, tile, partial)])

    return structural_mutate(body, (tirx.For, rewrite))


def _parts(loops: Sequence[tirx.For], tile: tirx.Buffer, partial: tirx.Buffer) -> tirx.Stmt:
    """The loops with a partial sum for each element of the tile."""

    def stores(change: Callable[[tirx.BufferStore], tirx.Stmt]) -> tirx.Stmt:
        return with_new_variables(structural_map(loops[-1].body, (tirx.BufferStore, change)))

    zero = tirx.const(0.0, str(tile.dtype))

    def begin(node: tirx.BufferStore) -> tirx.Stmt:
        return tirx.BufferStore(partial, zero, node.indices)

    def add(node: tirx.BufferStore) -> tirx.Stmt:
        value = tirx.BufferLoad(partial, node.indices) + node.value.b
        return tirx.BufferStore(partial, value, node.indices)

    def end(node: tirx.BufferStore) -> tirx.Stmt:
        value = node.value.a + tirx.BufferLoad(partial, node.indices)
        return tirx.BufferStore(tile, value, node.indices)

    return in_parts(loops, (stores(begin), stores(add), stores(end)), _LENGTH)


def _serial_loops(loop: tirx.For) -> list[tirx.For]:
    """The loop and the serial loops that are all of its body."""
    loops: list[tirx.For] = []
    body: tirx.Stmt = loop
    while isinstance(body, tirx.For) and body.kind == tirx.ForKind.SERIAL:
        loops.append(body)
        body = body.body
    return loops


def _sums_only(loops: Sequence[tirx.For], tile: tirx.Buffer) -> bool:
    """Whether the loops do nothing but add to elements of `tile` that they do not choose."""
    stores: list[tirx.BufferStore] = []
    structural_walk(loops[-1].body, (tirx.BufferStore, stores.append))
    variables = [loop.loop_var for loop in loops]
    return bool(stores) and all(
        store.buffer.same_as(tile)
        and isinstance(store.value, tirx.Add)
        and tvm_ffi.structural_equal(
            store.value.a, tirx.BufferLoad(store.buffer, store.indices), map_free_vars=False
        )
        and not any(uses(index, variables) for index in store.indices)
        for store in stores
    )
