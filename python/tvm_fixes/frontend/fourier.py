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
"""Discrete Fourier transforms as products with small matrices of cosines and sines.

An extent with factors is split in two: a transform over each factor, and a rotation between them.
A large prime extent becomes a cyclic convolution, whose extent is a power of two (Bluestein).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from .dtypes import dtype_of

__all__ = ["Transform", "full_spectrum"]

_MAX_MATRIX = 80
"""The largest extent with factors that is not split."""

_MAX_PRIME = 256
"""The largest prime extent whose transform is one product with a matrix."""

Emit = Callable[[relax.Expr], relax.Var]


class Transform:
    """A transform of the last axis of tensors (rows, parts, extent).

    The part 0 is real and the part 1, if there is one, imaginary.  The result has both.

    Parameters
    ----------
    emit : callable
        Binds an expression to a variable.
    sign : int
        The sign of the exponent: -1, or 1 for an inverse, which is not divided by the extent.
    """

    def __init__(self, emit: Emit, sign: int) -> None:
        self._emit, self._sign = emit, sign

    def __call__(self, x: relax.Expr) -> relax.Expr:
        """Return the transform, of shape (rows, 2, extent); the extent must be an integer."""
        extent = int(x.ty.shape.values[2])
        inner = _factor(extent)
        if inner == 1 and extent > _MAX_PRIME:
            return self._of_prime(x, extent)
        if inner == 1 or extent <= _MAX_MATRIX:
            return self._product(x, extent)
        return self._split(x, extent // inner, inner)

    def _product(self, x: relax.Expr, extent: int) -> relax.Expr:
        rows, parts, _ = x.ty.shape.values
        real, imaginary = _root_powers(
            np.outer(np.arange(extent), np.arange(extent)), extent, self._sign
        )
        both = np.concatenate([real, imaginary], 1)
        if int(parts) == 2:
            both = np.concatenate([both, np.concatenate([-imaginary, real], 1)], 0)
        flat = self._reshaped(x, [rows, int(parts) * extent])
        product = self._emit(op.matmul(flat, relax.const(both, dtype_of(x))))
        return self._reshaped(product, [rows, 2, extent])

    def _split(self, x: relax.Expr, outer: int, inner: int) -> relax.Expr:
        """Transform an extent of two factors: element i * inner + j is in row i and column j."""
        rows, parts, extent = x.ty.shape.values
        columns = self._moved(self._reshaped(x, [rows, parts, outer, inner]), [0, 3, 1, 2])
        y = self(self._reshaped(columns, [rows * inner, parts, outer]))
        y = self._reshaped(y, [rows, inner, 2, outer])
        powers = np.outer(np.arange(inner), np.arange(outer))
        y = self._rotated(y, *_root_powers(powers, int(extent), self._sign))
        y = self._reshaped(self._moved(y, [0, 3, 2, 1]), [rows * outer, 2, inner])
        y = self._reshaped(self(y), [rows, outer, 2, inner])
        return self._reshaped(self._moved(y, [0, 2, 3, 1]), [rows, 2, extent])

    def _of_prime(self, x: relax.Expr, extent: int) -> relax.Expr:
        """Transform by a convolution: i * k is (i**2 + k**2 - (k - i)**2) / 2."""
        parts = x.ty.shape.values[1]
        size = 1 << (2 * extent - 2).bit_length()
        squares = np.arange(extent) ** 2
        real, imaginary = _root_powers(squares, 2 * extent, self._sign)
        kernel = np.zeros(size, complex)
        kernel[:extent] = real - 1j * imaginary
        kernel[size - extent + 1 :] = kernel[1:extent][::-1]
        spectrum = np.fft.fft(kernel) / size
        if int(parts) == 1:
            x = self._emit(op.concat([x, self._emit(op.zeros_like(x))], 1))
        x = self._padded(self._rotated(x, real, imaginary), size)
        y = self._rotated(Transform(self._emit, -1)(x), spectrum.real, spectrum.imag)
        y = Transform(self._emit, 1)(y)
        y = self._emit(op.strided_slice(y, [2], [0], [extent]))
        return self._rotated(y, real, imaginary)

    def _rotated(self, x: relax.Expr, real: np.ndarray, imaginary: np.ndarray) -> relax.Expr:
        """The product with complex numbers; the parts are on the last axis but one."""
        axis, dtype = x.ty.ndim - 2, dtype_of(x)
        of_same = relax.const(np.expand_dims(real, -2), dtype)
        of_other = relax.const(np.stack([-imaginary, imaginary], -2), dtype)
        same = self._emit(op.multiply(x, of_same))
        other = self._emit(op.multiply(self._emit(op.flip(x, axis)), of_other))
        return self._emit(op.add(same, other))

    def _padded(self, x: relax.Expr, size: int) -> relax.Expr:
        return self._emit(op.nn.pad(x, [0, 0, 0, 0, 0, size - int(x.ty.shape.values[2])]))

    def _moved(self, x: relax.Expr, order: list[int]) -> relax.Expr:
        return self._emit(op.permute_dims(x, order))

    def _reshaped(self, x: relax.Expr, shape: list[Any]) -> relax.Expr:
        return self._emit(op.reshape(x, shape))


def full_spectrum(emit: Emit, half: relax.Expr, extent: int) -> relax.Expr:
    """All frequencies of a real signal, from the nonnegative ones: (rows, 2, extent // 2 + 1)."""
    dtype = dtype_of(half)
    # Without the frequency 0 and, for an even extent, the last one.
    others = emit(op.strided_slice(half, [2], [1], [(extent + 1) // 2]))
    signs = relax.const(np.array([[1.0], [-1.0]]), dtype)
    negative = emit(op.multiply(emit(op.flip(others, 2)), signs))
    return emit(op.concat([half, negative], 2))


def _factor(extent: int) -> int:
    """The largest factor that is at most the root; 1 for a prime."""
    return next(k for k in range(math.isqrt(extent), 0, -1) if extent % k == 0)


def _root_powers(exponents: np.ndarray, count: int, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """The real and imaginary parts of powers of a root of 1 of order `count`."""
    angles = sign * 2 * np.pi * (exponents % count) / count
    return np.cos(angles), np.sin(angles)
