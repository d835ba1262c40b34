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
"""Python expressions for arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..support.tensors import numpy_dtype

MAX_LITERAL = 64
"""The number of elements up to which an array is written out."""


def literal(array: np.ndarray) -> str:
    """A Python expression for `array`, in terms of ``np`` and ``ml_dtypes``."""
    if array.dtype.kind == "c":
        # The text of a complex number loses the sign of a zero.
        parts = np.ascontiguousarray(array).reshape(-1).view(array.real.dtype)
        return f"{literal(parts)}.view({_dtype(array.dtype)}).reshape({array.shape})"
    is_float = array.dtype.kind not in "biuc"  # NumPy does not know ml_dtypes' floats as such
    plain = array.astype("float64") if is_float else array
    text = repr(plain.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    shape = "" if array.size else f".reshape({array.shape})"
    return f"np.array({text}, {_dtype(array.dtype)}){shape}"


def _dtype(dtype: np.dtype) -> str:
    return repr(dtype.name) if _is_numpys(dtype) else f"ml_dtypes.{dtype.name}"


def _is_numpys(dtype: np.dtype) -> bool:
    # Not `isbuiltin`, which is 0 for a dtype from another process.
    return dtype.type.__module__ == "numpy"


@dataclass(frozen=True)
class Drawn:
    """A random array that takes the place of another whose values do not matter.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
    seed : int
    low, high : int
        The range of integers.
    """

    shape: tuple[int, ...]
    dtype: str
    seed: int
    low: int = 0
    high: int = 1

    @classmethod
    def like(cls, array: np.ndarray, seed: int) -> "Drawn":
        """An array with the shape, dtype and range of integers of another."""
        low, high = 0, 1
        if array.dtype.kind in "iu" and array.size:
            low, high = int(array.min()), int(array.max())
        return cls(array.shape, array.dtype.name, seed, low, high)

    def array(self) -> np.ndarray:
        """The array."""
        rng, dtype = np.random.default_rng(self.seed), numpy_dtype(self.dtype)
        if dtype.kind in "iu":
            return np.asarray(rng.integers(self.low, self.high, self.shape, dtype, endpoint=True))
        if dtype.kind == "b":
            return np.asarray(rng.integers(0, 2, self.shape).astype(dtype))
        return np.asarray(rng.standard_normal(self.shape)).astype(dtype)

    def expression(self) -> str:
        """A Python expression for the array."""
        rng, dtype = f"np.random.default_rng({self.seed})", numpy_dtype(self.dtype)
        if dtype.kind in "iu":
            ends = f"{self.low}, {self.high}"
            return f"{rng}.integers({ends}, {self.shape}, {self.dtype!r}, endpoint=True)"
        if dtype.kind == "b":
            return f"{rng}.integers(0, 2, {self.shape}).astype('bool')"
        numbers = f"{rng}.standard_normal({self.shape})"
        # For rank 0, NumPy returns a number.
        return f"{numbers if self.shape else f'np.asarray({numbers})'}.astype({_dtype(dtype)})"


def expressions(
    arrays: Mapping[str, np.ndarray], drawn: Mapping[str, Drawn], file: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """Python expressions for arrays by name, and those that must be stored in `file`, an .npz in
    the folder of the script, which has imported ``Path``."""
    texts: dict[str, str] = {}
    stored: dict[str, Any] = {}
    for name, array in arrays.items():
        if name in drawn:
            texts[name] = drawn[name].expression()
        elif array.size <= MAX_LITERAL:
            texts[name] = literal(array)
        else:
            # NumPy stores only its own dtypes.
            bits = array if _is_numpys(array.dtype) else array.view(f"uint{8 * array.itemsize}")
            view = "" if bits is array else f".view({_dtype(array.dtype)})"
            key = f"array{len(stored)}"
            stored[key] = bits
            texts[name] = f"np.load(Path(__file__).with_name({file!r}))[{key!r}]{view}"
    return texts, stored
