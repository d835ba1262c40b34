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

from tvm import relax

from ....errors import OpNotImplemented
from ....tirx.util import count_of
from ...dtypes import dtype_of
from ...extents import static_extent
from ...fourier import Transform, full_spectrum
from ..call import Call
from .complex_numbers import Pair, converts_complex, pair_of


@converts_complex("_fft_c2c.default")
def convert_c2c(call: Call) -> Pair:
    """Convert a transform of complex numbers."""
    x, axes, normalization, forward = call.node.args
    pair = _transformed(call, pair_of(call, x), axes, inverse=not forward)
    return _normalized(call, pair, _extents(call, axes), normalization)


@converts_complex("_fft_r2c.default")
def convert_r2c(call: Call) -> Pair:
    """Convert a transform of real numbers."""
    x, axes, normalization, onesided = call.node.args
    extents = [static_extent(call.context.env[x].ty.shape.values[axis]) for axis in axes]
    pair = _transformed(call, pair_of(call, x), axes[-1:], inverse=False)
    if onesided:
        last = axes[-1] % x.meta["val"].ndim
        end = _extents(call, [last])[0]
        pair = _mapped(call, pair, lambda part: relax.op.strided_slice(part, [last], [0], [end]))
    pair = _transformed(call, pair, axes[:-1], inverse=False)
    return _normalized(call, pair, extents, normalization)


@converts_complex("_fft_c2r.default")
def convert_c2r(call: Call) -> relax.Expr:
    """Convert an inverse transform to real numbers."""
    x, axes, normalization, count = call.node.args
    extents = _extents(call, axes)
    pair = _transformed(call, pair_of(call, x), axes[:-1], inverse=True)
    last, half = axes[-1] % x.meta["val"].ndim, count // 2 + 1
    pair = _mapped(call, pair, lambda part: _fitted(call, part, last, half))
    pair = _along(call, pair, last, lambda rows: _real_inverse(call, rows, count))
    return _normalized(call, Pair(pair.real, None), extents, normalization).real


def _real_inverse(call: Call, half: relax.Expr, count: int) -> relax.Expr:
    emit = call.emit
    return Transform(emit, 1)(full_spectrum(emit, half, count))


def _fitted(call: Call, x: relax.Expr, axis: int, extent: int) -> relax.Expr:
    if static_extent(x.ty.shape.values[axis]) == extent:
        return x
    return call.emit(relax.op.strided_slice(x, [axis], [0], [extent]))


def _extents(call: Call, axes: Any) -> list[int | None]:
    shape = call.shape
    return [static_extent(shape[axis]) for axis in axes]


def _mapped(call: Call, pair: Pair, function: Any) -> Pair:
    emit = call.emit
    return Pair(*(None if x is None else emit(function(x)) for x in (pair.real, pair.imaginary)))


def _normalized(call: Call, pair: Pair, extents: list[int | None], mode: int) -> Pair:
    """Scale by 1, by the root of the number of elements, or by this number."""
    if mode == 0:
        return pair
    count = math.prod(extent for extent in extents if extent is not None)
    factor = 1 / (math.sqrt(count) if mode == 1 else count)
    return _mapped(call, pair, lambda x: relax.op.multiply(x, relax.const(factor, dtype_of(x))))


def _transformed(call: Call, pair: Pair, axes: Any, *, inverse: bool) -> Pair:
    for axis in axes:
        extent = pair.real.ty.shape.values[axis]
        if static_extent(extent) is None:
            raise OpNotImplemented(
                f"{call.where}: the extent of axis {axis} is {extent}; "
                "expected an extent known at import"
            )
        transform = Transform(call.emit, 1 if inverse else -1)
        pair = _along(call, pair, axis % pair.real.ty.ndim, transform)
    return pair


def _along(call: Call, pair: Pair, axis: int, transform: Any) -> Pair:
    """Apply a transform of tensors (rows, parts, extent) to an axis."""
    emit, rank = call.emit, pair.real.ty.ndim
    order = [*(i for i in range(rank) if i != axis), axis]
    parts = [part for part in (pair.real, pair.imaginary) if part is not None]
    moved = [emit(relax.op.permute_dims(part, order)) for part in parts]
    *others, extent = moved[0].ty.shape.values
    rows = [emit(relax.op.reshape(part, (count_of(others), 1, extent))) for part in moved]
    both = rows[0] if len(rows) == 1 else emit(relax.op.concat(rows, 1))
    result = transform(both)
    back = [order.index(i) for i in range(rank)]
    components = []
    for part in range(2):
        own = emit(relax.op.strided_slice(result, [1], [part], [part + 1]))
        own = emit(relax.op.reshape(own, [*others, result.ty.shape.values[2]]))
        components.append(emit(relax.op.permute_dims(own, back)))
    return Pair(*components)
