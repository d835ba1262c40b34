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
"""Packed matrices: the second operand of a product, tile by tile."""

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, te, tirx

from ....tirx.accumulation import MultiplyAccumulate, copied
from ....tirx.util import divides
from ...constants.make import filled, rearranged


@dataclass(frozen=True)
class Packing:
    """How a matrix is packed for products.

    Attributes
    ----------
    columns : int
        The columns of a tile.
    at_once : int
        The number of products that an instruction adds to a sum; their factors are adjacent.
    streams : int
        The number of tiles is a multiple of this; tiles of zeros are appended.
    """

    columns: int
    at_once: int = 1
    streams: int = 1


def pack(
    matrix: tvm.ir.GenericConst, packing: Packing, made_by: str, *, transposed: bool = False
) -> relax.Expr:
    """Pack a constant of shape (K, N), or (N, K) if it is `transposed`, for :func:`multiply`.

    `made_by` names the operator and its location.

    Returns
    -------
    GenericConst
        A constant of shape (ceil(N / columns), K, columns), or with ``at_once`` > 1, of shape
        (ceil(N / columns), ceil(K / at_once), columns, at_once); it is padded with zeros.  The
        number of tiles is rounded up to a multiple of ``streams``.
    """
    columns = packing.columns
    depth, extent = map(int, matrix.ty.shape.values)
    if transposed:
        depth, extent = extent, depth
    whole, rest = divmod(extent, columns)

    def fill(tiles: np.ndarray, array: np.ndarray) -> None:
        of_depth = array.T if transposed else array
        within = of_depth[:, : whole * columns].reshape(depth, whole, columns)
        tiles[:whole] = within.transpose(1, 0, 2)
        tiles[whole:] = 0
        if rest:
            tiles[whole, :, :rest] = of_depth[:, whole * columns :]

    if packing.at_once > 1:
        return _pack_steps(matrix, packing, made_by, transposed=transposed)
    count = -(-extent // (columns * packing.streams)) * packing.streams
    return filled(matrix, (count, depth, columns), fill, made_by)


def _pack_steps(
    matrix: tvm.ir.GenericConst, packing: Packing, made_by: str, *, transposed: bool
) -> relax.Expr:
    """Do what :func:`pack` does for ``at_once`` > 1."""
    at_once, columns = packing.at_once, packing.columns
    multiples = at_once, columns * packing.streams

    def arrange(array: np.ndarray) -> np.ndarray:
        of_depth = array.T if transposed else array
        widths = [-extent % whole for extent, whole in zip(of_depth.shape, multiples, strict=True)]
        padded = np.pad(of_depth, [(0, width) for width in widths])
        tiles = padded.reshape(-1, at_once, padded.shape[1] // columns, columns)
        return tiles.transpose(2, 0, 3, 1)

    return rearranged(matrix, arrange, made_by)


def pack_at_run_time(
    matrices: te.Tensor,
    columns: int,
    multiply_accumulate: MultiplyAccumulate,
    *,
    transposed: bool = False,
) -> te.Tensor:
    """Do at run time what :func:`pack` does, for any batch."""
    *batch_extents, depth, column_count = matrices.shape
    if transposed:
        depth, column_count = column_count, depth
    is_whole = divides(columns, column_count)
    at_once, dot_product = multiply_accumulate.depth, multiply_accumulate.dot_product
    dtype = matrices.dtype if dot_product is None else dot_product.weight

    def element(*position: tirx.Var) -> tirx.Expr:
        *batch, tile, row, column = position[: len(batch_extents) + 3]
        if at_once > 1:
            row = row * at_once + position[-1]
        at = tile * columns + column
        value = copied(matrices(*batch, *((at, row) if transposed else (row, at))), dtype)
        if is_whole:
            return value
        return tirx.if_then_else(at < column_count, value, tirx.const(0, dtype))

    tiles = tirx.ceildiv(column_count, columns)
    within = [tirx.const(at_once, "int64")] if at_once > 1 else []
    shape = (*batch_extents, tiles, depth // at_once, tirx.const(columns, "int64"), *within)
    return te.compute(shape, element, name="in_tiles")
