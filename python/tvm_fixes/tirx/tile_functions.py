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
"""Elementary functions of a tile's elements, in vectors.

Before, for a tile of 14 columns of 16 channels, with channels outside of columns in the result::

    for channel in range(16):
        for column in range(14):
            y[channel, column] = T.erf(tile[column, channel])

and after::

    for column in range(14):
        for channel in T.vectorized(16):
            y[channel, column] = T.erf(tile[column, channel])

The elements are stored one by one either way, but a function of a vector takes the time of one of
an element.  If the channels are in few sets of the cache, each would evict the line of another one:
then the elements go through a buffer of the size of the tile.
"""

import math
from collections.abc import Sequence
from itertools import takewhile

import tvm
from tvm import tirx
from tvm.ir import Range
from tvm.s_tir import SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

from .loop_nest import substitute, uses
from .transform.lower_elementary_functions import applies_functions
from .util import item_bytes_of

_MIN_LANES, _MAX_LANES = 4, 64

# Addresses at a multiple of the first number apart are in one set of the L1 cache; vectors whose
# lanes are at multiples of the second one apart have few sets.
_CACHE_WAY_BYTES, _MIN_CONFLICT_BYTES = 4096, 1024


def vectorize_functions(schedule: Schedule, block: SBlockRV) -> None:
    """Vectorize the loop over adjacent elements of the tile that a block reads.

    Parameters
    ----------
    schedule : Schedule
    block : SBlockRV
        A block that stores functions of a tile's elements, inside the loops of the tile.  It stays
        unchanged if it calls no elementary function, or if its innermost loop is a vector.
    """
    node = schedule.get(block)
    if not isinstance(node.body, tirx.BufferStore) or not applies_functions(node.body.value):
        return
    own = [loop for loop in schedule.get_loops(block) if _is_of_one_block(schedule, loop)]
    if not own or schedule.get(own[-1]).kind != tirx.ForKind.SERIAL:
        return
    lanes = next((loop for loop in own[:-1] if _are_adjacent(schedule, block, loop)), None)
    if lanes is None:
        return
    others = [loop for loop in own[own.index(lanes) :] if loop is not lanes]
    outside = _serial_before(schedule, own[: own.index(lanes)])
    if outside is not None and _share_cache_sets(schedule, block, lanes):
        copy = schedule.cache_write(block, 0, "global")
        schedule.reverse_compute_at(copy, outside, preserve_unit_loops=True)
    schedule.reorder(*others, lanes)
    schedule.vectorize(lanes)


def _share_cache_sets(schedule: Schedule, block: SBlockRV, lanes: LoopRV) -> bool:
    """Whether the lanes of a vector are stored in few sets of the cache, and evict each other."""
    store = schedule.get(block).body
    position, var = _position(schedule, block), schedule.get(lanes).loop_var
    places = [
        place
        for place, index in enumerate(store.indices)
        if uses(substitute(index, position), [var])
    ]
    apart = store.buffer.shape[max(places) + 1 :] if places else []
    if not apart or not all(isinstance(extent, tirx.IntImm) for extent in apart):
        return False
    stride = math.prod(int(extent) for extent in apart) * item_bytes_of(store.buffer)
    return math.gcd(stride, _CACHE_WAY_BYTES) >= _MIN_CONFLICT_BYTES


def _serial_before(schedule: Schedule, loops: Sequence[LoopRV]) -> LoopRV | None:
    """The last of the loops before the first one of another kind."""
    serial = list(takewhile(lambda loop: schedule.get(loop).kind == tirx.ForKind.SERIAL, loops))
    return serial[-1] if serial else None


def _is_of_one_block(schedule: Schedule, loop: LoopRV) -> bool:
    return len(schedule.get_child_blocks(loop)) == 1


def _are_adjacent(schedule: Schedule, block: SBlockRV, loop: LoopRV) -> bool:
    """Whether the iterations of `loop` read adjacent elements of what the producers wrote."""
    node, lanes = schedule.get(block), schedule.get(loop)
    extent = lanes.extent
    if lanes.kind != tirx.ForKind.SERIAL or not isinstance(extent, tirx.IntImm):
        return False
    if not _MIN_LANES <= extent.value <= _MAX_LANES or extent.value & (extent.value - 1):
        return False
    tiles = [schedule.get(each).writes[0].source for each in schedule.get_producers(block)]
    loads: list[tvm.ir.TensorLoad] = []
    structural_walk(node.body.value, (tvm.ir.TensorLoad, loads.append))
    loads = [load for load in loads if any(load.source.same_as(tile) for tile in tiles)]
    position = _position(schedule, block)
    analyzer = Analyzer()
    for each in map(schedule.get, schedule.get_loops(block)):
        span = each.extent - 1 if each.same_as(lanes) else each.extent
        analyzer.bind(each.loop_var, Range.from_min_extent(each.min, span))
    return bool(loads) and all(
        analyzer.can_prove_equal(substitute(last, {lanes.loop_var: lanes.loop_var + 1}) - last, 1)
        for last in (substitute(load.indices[-1], position) for load in loads)
    )


def _position(schedule: Schedule, block: SBlockRV) -> dict[tirx.Var, tirx.Expr]:
    """The values of the iterators of a block."""
    node = schedule.get(block)
    realizes: list[SBlockRealize] = []
    structural_walk(schedule.mod["main"].body, (SBlockRealize, realizes.append))
    realize = next(each for each in realizes if each.block.same_as(node))
    return {
        axis.var: value for axis, value in zip(node.iter_vars, realize.iter_values, strict=True)
    }
