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
"""Inputs of a model from and to ``.npz`` files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CompileError, UsageError, summarize
from ..runtime.arguments import contradiction
from ..runtime.manifest import TensorSpec, describe_shape
from ..support.tensors import numpy_dtype
from .base import existing

BOTH_GIVEN = "expected inputs or a magnitude of random ones, got both"

GivenInputs = str | os.PathLike[str] | Mapping[str, np.ndarray]


def fitting(specs: Sequence[TensorSpec], given: GivenInputs) -> list[np.ndarray]:
    """The given inputs in order.

    Parameters
    ----------
    specs : sequence of TensorSpec
        Names, dtypes and shapes of the inputs.
    given : path or mapping of str to numpy.ndarray
        Arrays by name, or an ``.npz`` file of them.

    Raises
    ------
    UsageError
        If an input is missing or unknown, or has another dtype, rank or static extent, or if two
        extents of one name differ.
    """
    arrays = given if isinstance(given, Mapping) else read_arrays(given)
    names = [spec.name for spec in specs]
    if set(arrays) != set(names):
        absent = [("missing", set(names) - set(arrays)), ("unknown", set(arrays) - set(names))]
        problem = ", ".join(f"{word} {', '.join(sorted(some))}" for word, some in absent if some)
        listing = ", ".join(names) or "none"
        raise UsageError(
            f"expected the inputs {listing}, got {', '.join(arrays) or 'none'}: {problem}"
        )
    sizes: dict[str, tuple[int, str]] = {}
    arrays = {spec.name: _with_dtype(arrays[spec.name], numpy_dtype(spec.dtype)) for spec in specs}
    for spec in specs:
        array, shape = arrays[spec.name], spec.shape
        fits = shape is None or (
            len(shape) == array.ndim
            and all(isinstance(d, str) or d == n for d, n in zip(shape, array.shape, strict=True))
        )
        if array.dtype != numpy_dtype(spec.dtype) or not fits:
            raise UsageError(
                f"input {spec.name!r}: expected {spec.dtype} "
                f"{describe_shape(shape)}, got {array.dtype.name} {describe_shape(array.shape)}"
            )
        for axis, (dim, size) in enumerate(zip(shape or (), array.shape, strict=False)):
            here = (size, f"axis {axis} of input {spec.name!r}")
            if isinstance(dim, str) and sizes.setdefault(dim, here)[0] != size:
                problem = contradiction(dim, sizes[dim], here)
                raise UsageError(f"input {spec.name!r}: {problem}")
    return [np.asarray(arrays[name], order="C") for name in names]


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an ``.npz`` file of exactly this name.

    Raises
    ------
    CompileError
        If it cannot be written.
    """
    try:
        with open(path, "wb") as file:
            np.savez(file, **dict[str, Any](arrays))
    except OSError as error:
        raise CompileError(f"{os.fspath(path)}: {error.strerror}") from error


def _with_dtype(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """An array of an ``.npz`` file: NumPy writes elements of dtypes such as bfloat16 as bytes."""
    return array.view(dtype) if array.dtype.kind == "V" else array


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file by name.

    Raises
    ------
    UsageError
        If it is missing or not such a file.
    """
    try:
        with np.load(existing(Path(path)), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path}: not a readable .npz file: {summarize(error)}") from error
