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
"""Tiles and repeats.

Mechanism
    ``relax.op.tile`` takes only integers.
"""

from tvm import relax

from ....fixes.torch_importer import TILE
from ....support import switches
from ...extents import static_extent
from ..call import Call, converts


@converts("tile.default", "repeat.default", fix=TILE)
def convert_tile(call: Call) -> relax.Expr:
    """Convert ``tile`` and ``repeat``; the numbers of repeats may be symbolic."""
    x, *repeats = call.operands
    if len(repeats) == 1 and isinstance(repeats[0], list | tuple):
        [repeats] = repeats
    emit = call.emit
    numbers = [static_extent(number) for number in repeats]
    if None not in numbers:
        return emit(relax.op.tile(x, numbers))

    switches.note(TILE)
    rank = max(x.ty.ndim, len(repeats))
    extents = [1] * (rank - x.ty.ndim) + list(x.ty.shape)
    repeats = [1] * (rank - len(repeats)) + list(repeats)
    pairs = list(zip(repeats, extents, strict=True))
    x = emit(relax.op.reshape(x, [e for _, extent in pairs for e in (1, extent)]))
    x = emit(relax.op.broadcast_to(x, [e for pair in pairs for e in pair]))
    return emit(relax.op.reshape(x, [repeat * extent for repeat, extent in pairs]))
