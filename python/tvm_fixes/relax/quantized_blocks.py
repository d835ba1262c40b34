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
"""Constant matrices that are quantized in blocks, found by their elements."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from .quantized import fits

_WIDTHS = (2, 4, 8)

WORD_BITS = 32
"""A block has a whole number of words of this many bits."""

# With fewer rows in a block, the scales take more memory than they save.
_MIN_BLOCK = 16


@dataclass(frozen=True)
class BlockMatrix:
    """A matrix of shape (K, N) whose elements are ``(data - zero) * scale``.

    Attributes
    ----------
    data : np.ndarray
        Integers of shape (K, N), in int8; K is a multiple of `block`.
    scale : np.ndarray
        The scales of shape (K / `block`, N), in float32: one for each column of each block of rows.
    zero : np.ndarray, optional
        The zero points, of the shape of `scale`; integers in int8, int16 or float32.  None for 0.
    bits : int
        The width of the elements of `data`: they are at least ``-(2 ** (bits - 1))`` and less than
        ``2 ** (bits - 1)``.
    block : int
        The number of rows that share scales: at least 16, and a whole number of words.
    """

    data: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None
    bits: int
    block: int

    @classmethod
    def of(cls, factors: np.ndarray, scale: np.ndarray) -> Self | None:
        """Find blocks in the product of two matrices of shape (K, N).

        The zero points need not be known: any offset that makes a block's integers fit is valid.
        The last block is padded with undefined rows.

        Returns
        -------
        BlockMatrix or None
            None if the factors are not integers of at most 8 bits after such an offset, the
            scales are not finite, or the blocks are too small.
        """
        if not (np.all(np.isfinite(scale)) and np.array_equal(factors, np.rint(factors))):
            return None
        # Zero points may change where adjacent scales happen to be equal.
        period = _period(scale)
        smaller = (n for n in (128, 64, 32, 16) if n < period and period % n == 0)
        blocks = [n for n in (period, *smaller) if n >= _MIN_BLOCK]
        choices = ((bits, block) for bits in _WIDTHS for block in blocks)
        candidates = (cls._in_blocks(factors, scale, *choice) for choice in choices)
        return next((matrix for matrix in candidates if matrix is not None), None)

    @classmethod
    def _in_blocks(
        cls, factors: np.ndarray, scale: np.ndarray, bits: int, block: int
    ) -> Self | None:
        depth, columns = factors.shape
        whole = np.pad(factors, [(0, -depth % block), (0, 0)], mode="edge")
        blocks = whole.reshape(-1, block, columns)
        low, high = blocks.min(1), blocks.max(1)
        if block * bits % WORD_BITS or np.any(high - low >= 2**bits):
            return None
        least = -(2 ** (bits - 1))
        needs_zero = low.min() < least or high.max() >= -least
        zero = _narrowed(least - low) if needs_zero else None
        data = blocks if zero is None else blocks + (least - low)[:, np.newaxis]
        return cls(
            data.astype("int8").reshape(whole.shape),
            np.ascontiguousarray(scale[::block], "float32"),
            zero,
            bits,
            block,
        )


def _narrowed(integers: np.ndarray) -> np.ndarray:
    dtypes = (dtype for dtype in ("int8", "int16") if fits(integers, dtype))
    return integers.astype(next(dtypes, "float32"))


def _period(scale: np.ndarray) -> int:
    """The largest number of rows such that the scales change only at its multiples."""
    changes = np.flatnonzero(np.any(scale[1:] != scale[:-1], axis=1)) + 1
    return math.gcd(*changes.tolist()) if changes.size else -(-len(scale) // 32) * 32
