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
"""Discrete Fourier transforms as products with matrices of cosines and sines.

A long axis is split into two factors: a transform over each, and a rotation between them.
"""

import math
from typing import Any

import numpy as np
import tvm
from torch import fx
from tvm import relax

from ..dtypes import dtype_of
from .complex_numbers import ComplexNumbers, Pair
from .corrections import Converters, static_extent

__all__ = ["Fourier"]

_MAX_MATRIX = 64
"""The largest extent that is not split."""

_MAX_PRIME = 4096
"""The largest supported prime extent; its matrix has this many rows and columns."""


class Fourier(ComplexNumbers):
    """The converters of Fourier transforms."""

    def fourier_calls(self) -> Converters:
        """Return converters of ATen's operators, by the name of the overload."""
        return {
            "_fft_c2c.default": self._complex_to_complex,
            "_fft_c2r.default": self._complex_to_real,
            "_fft_r2c.default": self._real_to_complex,
        }

    def _complex_to_complex(self, node: fx.Node) -> Pair:
        x, axes, normalization, forward = node.args
        pair = self._transformed(node, self._pair(x), axes, inverse=not forward)
        return self._normalized(pair, self._extents(node, axes), normalization)

    def _real_to_complex(self, node: fx.Node) -> Pair:
        x, axes, normalization, onesided = node.args
        extents = [static_extent(self.env[x].ty.shape.values[axis]) for axis in axes]
        pair = self._transformed(node, self._pair(x), axes[-1:], inverse=False)
        if onesided:
            last = axes[-1] % x.meta["val"].ndim
            end = self._extents(node, [last])[0]
            pair = self._mapped(pair, lambda part: relax.op.strided_slice(part, [last], [0], [end]))
        pair = self._transformed(node, pair, axes[:-1], inverse=False)
        return self._normalized(pair, extents, normalization)

    def _complex_to_real(self, node: fx.Node) -> relax.Expr:
        x, axes, normalization, count = node.args
        extents = self._extents(node, axes)
        pair = self._transformed(node, self._pair(x), axes[:-1], inverse=True)
        last, emit = axes[-1] % x.meta["val"].ndim, self.block_builder.emit
        half = count // 2 + 1
        # Each number but the first and the middle one stands for its conjugate too.
        weights = np.full(half, 2.0)
        weights[0] = 1
        if count % 2 == 0:
            weights[-1] = 1
        angles = 2 * np.pi * (np.outer(np.arange(half), np.arange(count)) % count) / count
        cosines = weights[:, None] * np.cos(angles)
        sines = -weights[:, None] * np.sin(angles)
        parts = [
            self._applied(self._fitted(part, last, half), matrix, last)
            for part, matrix in zip((pair.real, pair.imaginary), (cosines, sines), strict=True)
        ]
        result = Pair(emit(relax.op.add(*parts)), None)
        return self._normalized(result, extents, normalization).real

    def _fitted(self, x: relax.Expr, axis: int, extent: int) -> relax.Expr:
        if static_extent(x.ty.shape.values[axis]) == extent:
            return x
        return self.block_builder.emit(relax.op.strided_slice(x, [axis], [0], [extent]))

    def _extents(self, node: fx.Node, axes: Any) -> list[int | None]:
        shape = self._symbols.shape(node.meta["val"].shape)
        return [static_extent(shape[axis]) for axis in axes]

    def _mapped(self, pair: Pair, function: Any) -> Pair:
        emit = self.block_builder.emit
        return Pair(
            *(None if x is None else emit(function(x)) for x in (pair.real, pair.imaginary))
        )

    def _normalized(self, pair: Pair, extents: list[int | None], mode: int) -> Pair:
        """Scale by 1, by the root of the number of elements, or by this number."""
        if mode == 0:
            return pair
        count = math.prod(extent for extent in extents if extent is not None)
        factor = 1 / (math.sqrt(count) if mode == 1 else count)
        return self._mapped(pair, lambda x: relax.op.multiply(x, relax.const(factor, dtype_of(x))))

    def _transformed(self, node: fx.Node, pair: Pair, axes: Any, *, inverse: bool) -> Pair:
        for axis in axes:
            rank = pair.real.ty.ndim
            extent = static_extent(pair.real.ty.shape.values[axis])
            if extent is None:
                raise tvm.error.OpNotImplemented(
                    f"{node.target} {node.name!r}: the extent of axis {axis} is "
                    f"{pair.real.ty.shape.values[axis]}; expected an extent known at import"
                )
            others = [i for i in range(rank) if i != axis % rank]
            order = [*others, axis % rank]
            back = [order.index(i) for i in range(rank)]
            pair = self._mapped(pair, lambda x, order=order: relax.op.permute_dims(x, order))
            pair = self._along_last(node, pair, extent, -1 if not inverse else 1)
            pair = self._mapped(pair, lambda x, back=back: relax.op.permute_dims(x, back))
        return pair

    def _along_last(self, node: fx.Node, pair: Pair, extent: int, sign: int) -> Pair:
        inner = _factor(extent)
        if extent <= _MAX_MATRIX or inner == 1:
            if extent > _MAX_PRIME:
                raise tvm.error.OpNotImplemented(
                    f"{node.target} {node.name!r}: the extent {extent} is a prime; "
                    f"expected at most {_MAX_PRIME}, or a number with factors"
                )
            return self._multiplied(pair, _rotations(extent, extent, extent, sign, pair), self._dot)
        outer = extent // inner
        batch = list(pair.real.ty.shape.values)[:-1]
        rank = len(batch)
        swapped = [*range(rank), rank + 1, rank]
        emit = self.block_builder.emit

        def rearranged(pair: Pair, shape: list[Any]) -> Pair:
            pair = self._mapped(pair, lambda x: relax.op.reshape(x, [*batch, *shape]))
            return self._mapped(pair, lambda x: relax.op.permute_dims(x, swapped))

        pair = rearranged(pair, [outer, inner])
        pair = self._along_last(node, pair, outer, sign)
        rotation = _rotations(inner, outer, extent, sign, pair)
        pair = self._multiplied(pair, rotation, lambda x, y: emit(relax.op.multiply(x, y)))
        pair = rearranged(pair, [inner, outer])
        pair = self._along_last(node, pair, inner, sign)
        pair = rearranged(pair, [outer, inner])
        return self._mapped(pair, lambda x: relax.op.reshape(x, [*batch, extent]))

    def _dot(self, x: relax.Expr, matrix: relax.Expr) -> relax.Expr:
        return self.block_builder.emit(relax.op.matmul(x, matrix))

    def _applied(self, x: relax.Expr, matrix: np.ndarray, axis: int) -> relax.Expr:
        """Multiply an axis by a matrix."""
        rank, emit = x.ty.ndim, self.block_builder.emit
        order = [*(i for i in range(rank) if i != axis), axis]
        moved = emit(relax.op.permute_dims(x, order))
        product = self._dot(moved, relax.const(matrix, dtype_of(x)))
        return emit(relax.op.permute_dims(product, [order.index(i) for i in range(rank)]))


def _factor(extent: int) -> int:
    """Return the largest factor that is at most the root, or 1 for a prime."""
    return next(k for k in range(math.isqrt(extent), 0, -1) if extent % k == 0)


def _rotations(rows: int, columns: int, count: int, sign: int, like: Pair) -> Pair:
    """Return the powers of a root of 1: the product of row and column is the exponent."""
    exponents = np.outer(np.arange(rows), np.arange(columns)) % count
    angles = sign * 2 * np.pi * exponents / count
    dtype = dtype_of(like.real)
    return Pair(relax.const(np.cos(angles), dtype), relax.const(np.sin(angles), dtype))
