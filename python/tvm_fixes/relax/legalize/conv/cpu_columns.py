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
"""CPU schedule of a convolution with small groups, with vectors of columns.

A vector of a group's channels would be mostly empty.  In a channels-first layout, adjacent columns
of the output read adjacent data elements; with a stride of 2 the skipped columns are summed too,
and dropped.  The data of a group is copied to a padded buffer, so that all columns are computed
alike.
"""

import math
from dataclasses import replace

import tvm
from tvm import s_tir, tirx

from ....attributes import LAST_COLUMNS
from ....target.cpu import Cpu
from ....tirx.parallel import parallelize
from ....tirx.register_tile import even_part, max_columns, vectorize_in_powers_of_two
from ....tirx.util import is_one
from ...layouts import Layout
from .compute import Convolution, Tile

# With more output channels per group, channels are vectorized instead.
_MAX_CHANNELS = 7

# Unrolling a loop over more kernel rows takes long to compile.
_MAX_UNROLLED = 16

# The rows of a tile, if their number is unknown: most networks halve 224 or 256.
_UNKNOWN_ROWS = 8

# With a larger stride, most sums would be dropped.
MAX_STRIDE = 2

# The maximum span of a dilated kernel, in elements: with a larger one, the copy is mostly padding.
_MAX_SPAN = 1 << 14


def channels_first(convolution: Convolution, kernel: dict[str, tirx.Expr]) -> Convolution | None:
    """A channels-last convolution of small groups with its channels first; None for others.

    It is faster, even with the transpositions of data and output.  A depthwise convolution is not:
    a vector of its channels, which are in different groups, is full.
    """
    axes = "".join(convolution.spatial)
    if {convolution.data_layout.name, convolution.out_layout.name} != {f"N{axes}C"}:
        return None
    first = Layout(f"NC{axes}")
    moved = replace(convolution, data_layout=first, out_layout=first)
    is_depthwise = all(map(is_one, convolution.group_channels(kernel)))
    return None if is_depthwise or not has_small_groups(moved, kernel) else moved


def has_small_groups(convolution: Convolution, kernel: dict[str, tirx.Expr]) -> bool:
    """Whether `convolution` suits vectors of columns; `kernel` has the extents of its axes."""
    plain = f"NC{''.join(convolution.spatial)}"
    *_, column = convolution.spatial.values()
    if {convolution.data_layout.name, convolution.out_layout.name} != {plain}:
        return False
    # Adjacent columns of a transposed convolution read different elements of the kernel.
    if convolution.groups == 1 or column.phases > 1 or column.stride > MAX_STRIDE:
        return False
    if not all(isinstance(extent, tirx.IntImm) for extent in kernel.values()):
        return False
    span = math.prod(
        (kernel[axis].value - 1) * spatial.dilation + 1
        for axis, spatial in convolution.spatial.items()
    )
    if span > _MAX_SPAN:
        return False
    _, channels = convolution.group_channels(kernel)
    return channels.value <= _MAX_CHANNELS


def choose_tile_of_columns(cpu: Cpu, dtype: str, spatial: list[tirx.Expr], stride: int) -> Tile:
    """Choose a tile of rows and vectorized columns.

    Parameters
    ----------
    cpu : Cpu
    dtype : str
        The dtype of the sums.
    spatial : list of tirx.Expr
        The spatial extents of the output.
    stride : int
        The distance between output columns among the columns that are summed.
    """
    lanes = cpu.vector_bytes // (tvm.DataType(dtype).bits // 8)
    *outer, columns = [int(e) if isinstance(e, tirx.IntImm) else None for e in spatial]
    columns = None if columns is None else (columns - 1) * stride + 1
    if columns is not None and 2 * columns <= lanes:
        lanes = max(lanes // 2, stride)
    # The operands are a vector of the data and an element of the kernel; keep one register spare.
    limit = max_columns(cpu, other_operands=3)
    max_vectors = limit // 2 if outer else limit  # room for two rows
    # The last tile is computed whole: of unknown extents, a tile has few rows and columns.
    of_unknown = 1 if outer else 2
    vectors = of_unknown if columns is None else even_part(-(-columns // lanes), max_vectors)
    rows = limit // vectors if outer else 1
    if outer:
        rows = min(rows, _UNKNOWN_ROWS) if outer[-1] is None else even_part(outer[-1], rows)
    return Tile(vectors * lanes, 1, rows=rows, vectorizes_columns=True)


def schedule_columns(func: tirx.PrimFunc, convolution: Convolution, tile: Tile) -> tirx.PrimFunc:
    """Copy the data of a group, and compute its outputs tile by tile; groups run in parallel.

    Parameters
    ----------
    func : tirx.PrimFunc
        Made from :meth:`Convolution.compute`, with a non-empty output.
    convolution : Convolution
    tile : Tile
        The tile of `convolution`, from :func:`choose_tile_of_columns`.
    """
    # TVM cannot prove that whole tiles cover an unknown number of columns.
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
        # The kernel rows are innermost, so that each data row is read once for all of them.
        *taps, row_tap = taps
        *spatial, row = spatial
        row_tile, row = sch.split(row, [None, tile.rows], disable_predication=True)
        spatial, rows, row_taps = [*spatial, row_tile], [row], [row_tap]
    outer = [batch, group, channel, *spatial, column_tile]
    sch.reorder(*outer, in_channel, *taps, column_tap, *row_taps, *rows, column)
    sch.compute_at(padded, group, preserve_unit_loops=True)
    sch.reverse_compute_at(out, column_tile, preserve_unit_loops=True)
    if not isinstance(sch.get(column_tile).extent, tirx.IntImm):
        sch.annotate(column_tile, LAST_COLUMNS, tile.columns)
    parallelize(sch, [batch, group])
    for loop in (*row_taps, *rows):
        if int(sch.get(loop).extent) <= _MAX_UNROLLED:
            sch.unroll(loop)
    vectorize_in_powers_of_two(sch, column)
    *_, row, column = sch.get_loops(sch.decompose_reduction(sums, in_channel))
    if rows:
        sch.unroll(row)
    vectorize_in_powers_of_two(sch, column)
    return sch.mod["main"]
