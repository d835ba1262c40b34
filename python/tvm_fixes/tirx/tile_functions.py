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
an element.
"""

import tvm
from tvm import tirx
from tvm.ir import Range
from tvm.s_tir import SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

from .loop_nest import substitute
from .transform.lower_elementary_functions import applies_functions

_MIN_LANES, _MAX_LANES = 4, 64


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
    schedule.reorder(*(loop for loop in own[own.index(lanes) :] if loop is not lanes), lanes)
    schedule.vectorize(lanes)


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
    found: list[SBlockRealize] = []
    structural_walk(schedule.mod["main"].body, (SBlockRealize, found.append))
    realize = next(each for each in found if each.block.same_as(node))
    return {
        axis.var: value for axis, value in zip(node.iter_vars, realize.iter_values, strict=True)
    }
