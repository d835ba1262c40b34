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
"""A convolution of small groups, channels-first, in vectors along its innermost spatial axis.

A vector of a group's channels would be empty for the most part.  What neighbours in the output read
are neighbours too; with a stride of 2 the columns in between are summed, too, and left out of the
result.  The data of a group is copied, padded, so that all columns are computed alike.
"""

import math

import tvm
from tvm import s_tir, tirx

from ....target.cpu import vector_registers
from ....tirx.parallel import parallelize
from ..targets import even_part
from .compute import Convolution, Tile

# Of more output channels in a group vectors are made.
_MOST_CHANNELS = 7

# To compile the code of more rows of a kernel takes long.
_MOST_UNROLLED = 16

# With a larger stride most sums would be of columns that are not wanted.
MOST_STRIDE = 2

# So many elements an output may be away from what it reads, or the padded copy is mostly padding.
_MOST_SPREAD = 1 << 14


def has_small_groups(convolution: Convolution, kernel: dict[str, tirx.Expr]) -> bool:
    """Whether vectors of columns fit `convolution`; `kernel` has the extents of its axes."""
    plain = f"NC{''.join(convolution.spatial)}"
    *_, column = convolution.spatial.values()
    if {convolution.data_layout.name, convolution.out_layout.name} != {plain}:
        return False
    # The columns of a transposed convolution that are neighbours take other elements of the kernel.
    if convolution.groups == 1 or column.phases > 1 or column.stride > MOST_STRIDE:
        return False
    if not all(isinstance(extent, tirx.IntImm) for extent in kernel.values()):
        return False
    spread = math.prod(
        (kernel[axis].value - 1) * spatial.dilation + 1
        for axis, spatial in convolution.spatial.items()
    )
    if spread > _MOST_SPREAD:
        return False
    _, channels = convolution.group_channels(kernel)
    return channels.value <= _MOST_CHANNELS


def choose_tile_of_columns(
    target: tvm.target.Target, dtype: str, spatial: list[tirx.Expr], stride: int
) -> Tile:
    """As many sums as fit into the registers, next to a vector of the data and an element.

    Parameters
    ----------
    target : tvm.target.Target
        A CPU.
    dtype : str
        The dtype of the sums.
    spatial : list of tirx.Expr
        Extents of the output.
    stride : int
        How far apart the sums of its columns are: those in between are computed in vain.
    """
    register_bytes, registers = vector_registers(target)
    lanes = register_bytes // (tvm.DataType(dtype).bits // 8)
    *outer, columns = [int(e) if isinstance(e, tirx.IntImm) else None for e in spatial]
    columns = None if columns is None else (columns - 1) * stride + 1
    # Less than 1024 bytes TVM puts on the stack, from where LLVM takes them into registers.
    most = min(registers - 3, 1023 // register_bytes)
    if columns is not None and 2 * columns <= lanes:
        lanes = max(lanes // 2, stride)
    most_vectors = most // 2 if outer else most
    vectors = 2 if columns is None else even_part(-(-columns // lanes), most_vectors)
    rows = most // vectors if outer else 1
    if outer and outer[-1] is not None:
        rows = even_part(outer[-1], rows)
    return Tile(vectors * lanes, 1, rows=rows, by_columns=True)


def schedule_by_columns(func: tirx.PrimFunc, convolution: Convolution, tile: Tile) -> tirx.PrimFunc:
    """Copy the data of a group, and sum its outputs tile by tile; the groups run in parallel.

    Parameters
    ----------
    func : tirx.PrimFunc
        Made from :meth:`Convolution.compute`; its output is not empty.
    convolution : Convolution
    tile : Tile
        That of `convolution`, as from :func:`choose_tile_of_columns`.

    Returns
    -------
    tirx.PrimFunc
    """
    # That whole tiles cover an unknown number of columns cannot be proved.
    sch = s_tir.Schedule(func, enable_check=False)
    padded, sums = sch.get_sblock("padded"), sch.get_sblock("convolution")
    if not sch.get_consumers(sums):
        sch.cache_write(sums, 0, "global")
    (out,) = sch.get_consumers(sums)
    rank = len(convolution.spatial)
    loops = sch.get_loops(sums)
    batch, channel, *spatial, column = loops[: rank + 2]
    *taps, column_tap, in_channel = loops[-rank - 1 :]
    group, channel = sch.split(channel, [convolution.groups, None])
    columns = tile.columns // convolution.column_stride
    column_tile, column = sch.split(column, [None, columns], disable_predication=True)
    if convolution.column_stride > 1:
        column = sch.fuse(column, loops[rank + 2])
    rows, row_taps = [], []
    if spatial:
        # What a column of the kernel reads of a row is read once for all of the kernel's rows.
        *taps, row_tap = taps
        *spatial, row = spatial
        row_tile, row = sch.split(row, [None, tile.rows], disable_predication=True)
        spatial, rows, row_taps = [*spatial, row_tile], [row], [row_tap]
    outer = [batch, group, channel, *spatial, column_tile]
    sch.reorder(*outer, in_channel, *taps, column_tap, *row_taps, *rows, column)
    sch.compute_at(padded, group, preserve_unit_loops=True)
    sch.reverse_compute_at(out, column_tile, preserve_unit_loops=True)
    parallelize(sch, [batch, group])
    for loop in (*row_taps, *rows):
        if int(sch.get(loop).extent) <= _MOST_UNROLLED:
            sch.unroll(loop)
    _vectorize(sch, column)
    *_, row, column = sch.get_loops(sch.decompose_reduction(sums, in_channel))
    if rows:
        sch.unroll(row)
    _vectorize(sch, column)
    return sch.mod["main"]


def _vectorize(sch: s_tir.Schedule, column: s_tir.schedule.LoopRV) -> None:
    """Make vectors of as many lanes as a power of two divides: others LLVM makes for elements."""
    extent = int(sch.get(column).extent)
    vector, lane = sch.split(column, [None, extent & -extent])
    sch.unroll(vector)
    sch.vectorize(lane)
