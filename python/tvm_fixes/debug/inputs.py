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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CompileError, UsageError, summarize
from ..runtime.manifest import Dim, Manifest, TensorSpec, describe_shape
from ..source import Shapes, Source
from ..source.base import draw, existing
from ..support.tensors import numpy_dtype


def load_inputs(
    source: Source, given: str | os.PathLike[str] | Mapping[str, np.ndarray] | None, seed: int
) -> list[np.ndarray]:
    """The inputs of a model, in order: the given ones, or random ones.

    Raises
    ------
    UsageError
        If an input is missing or unknown, or has another dtype, rank or static extent.
    """
    if given is None:
        return source.example_inputs(np.random.default_rng(seed))
    specs = [replace(spec, shape=source.chosen_shape(spec)) for spec in source.inputs]
    return _fitting(specs, given)


def inputs_of_artifact(
    manifest: Manifest,
    shapes: Shapes | None,
    given: str | os.PathLike[str] | Mapping[str, np.ndarray] | None,
    seed: int,
) -> list[np.ndarray]:
    """The inputs of an artifact, in order: the given ones, or random ones.

    Parameters
    ----------
    manifest : Manifest
    shapes : mapping of str to sequence of int and str, optional
        The shapes of inputs with symbolic dims.
    given, seed
        As for :func:`load_inputs`.

    Raises
    ------
    UsageError
        As for :func:`load_inputs`, or if the size of a symbolic dim is unknown.
    """
    if given is not None:
        return _fitting(manifest.inputs, given)
    sizes: dict[Dim, Dim] = {}
    for spec in manifest.inputs:
        sizes.update(zip(spec.shape or (), (shapes or {}).get(spec.name, ()), strict=False))
    rng = np.random.default_rng(seed)
    arrays = []
    for spec in manifest.inputs:
        dims = [dim if isinstance(dim, int) else sizes.get(dim) for dim in spec.shape or ()]
        if spec.shape is None or not all(isinstance(dim, int) for dim in dims):
            raise UsageError(f"input {spec}: give its shape (--shape) or the inputs (--inputs)")
        arrays.append(draw(rng, spec, tuple(int(dim) for dim in dims if dim is not None), 0, 1))
    return arrays


def _fitting(
    specs: Sequence[TensorSpec], given: str | os.PathLike[str] | Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """The given inputs in order, if they have the dtypes and shapes of `specs`."""
    arrays = given if isinstance(given, Mapping) else read_arrays(given)
    names = [spec.name for spec in specs]
    if set(arrays) != set(names):
        raise UsageError(f"expected the inputs {', '.join(names)}, got {', '.join(arrays)}")
    arrays = {spec.name: with_dtype(arrays[spec.name], numpy_dtype(spec.dtype)) for spec in specs}
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
    return [np.ascontiguousarray(arrays[name]) for name in names]


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


def with_dtype(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
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
