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
"""The converters of Fourier transforms; see :mod:`..fourier`."""

import math
from typing import Any

from torch import fx
from tvm import relax

from ...errors import OpNotImplemented
from ...tirx.util import count_of
from ..dtypes import dtype_of
from ..fourier import Transform, full_spectrum
from .complex_numbers import ComplexNumbers, Pair
from .corrections import Converters, static_extent

__all__ = ["Fourier"]


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
        last, half = axes[-1] % x.meta["val"].ndim, count // 2 + 1
        pair = self._mapped(pair, lambda part: self._fitted(part, last, half))
        pair = self._along(pair, last, lambda rows: self._real_inverse(rows, count))
        return self._normalized(Pair(pair.real, None), extents, normalization).real

    def _real_inverse(self, half: relax.Expr, count: int) -> relax.Expr:
        emit = self.block_builder.emit
        return Transform(emit, 1)(full_spectrum(emit, half, count))

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
            extent = pair.real.ty.shape.values[axis]
            if static_extent(extent) is None:
                raise OpNotImplemented(
                    f"{node.target} {node.name!r}: the extent of axis {axis} is {extent}; "
                    "expected an extent known at import"
                )
            transform = Transform(self.block_builder.emit, 1 if inverse else -1)
            pair = self._along(pair, axis % pair.real.ty.ndim, transform)
        return pair

    def _along(self, pair: Pair, axis: int, transform: Any) -> Pair:
        """Apply a transform of tensors (rows, parts, extent) to an axis."""
        emit, rank = self.block_builder.emit, pair.real.ty.ndim
        order = [*(i for i in range(rank) if i != axis), axis]
        parts = [part for part in (pair.real, pair.imaginary) if part is not None]
        moved = [emit(relax.op.permute_dims(part, order)) for part in parts]
        *others, extent = moved[0].ty.shape.values
        rows = [emit(relax.op.reshape(part, (count_of(others), 1, extent))) for part in moved]
        both = rows[0] if len(rows) == 1 else emit(relax.op.concat(rows, 1))
        result = transform(both)
        back = [order.index(i) for i in range(rank)]
        found = []
        for part in range(2):
            own = emit(relax.op.strided_slice(result, [1], [part], [part + 1]))
            own = emit(relax.op.reshape(own, [*others, result.ty.shape.values[2]]))
            found.append(emit(relax.op.permute_dims(own, back)))
        return Pair(*found)
