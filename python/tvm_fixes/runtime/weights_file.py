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
"""Prepared weights in a safetensors file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy
import tvm

from ..errors import ArtifactError, summarize
from .lifted_manifest import PreparedSpec
from .tensors import nbytes_of, raw_bytes

_PLAIN = frozenset(
    {
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        *("float16", "bfloat16", "float32", "float64", "bool"),
    }
)
"""The dtypes that readers of the format know; tensors of others are stored as their bytes."""


def specs_of(values: Sequence[Any]) -> tuple[PreparedSpec, ...]:
    """What the virtual machine's prepared weights are."""
    specs = []
    for value in values:
        if isinstance(value, tvm.runtime.ShapeTuple):
            specs.append(PreparedSpec("shape", (), (tuple(map(int, value)),)))
            continue
        tensors = _tensors_of(value)
        specs.append(
            PreparedSpec(
                "tensor" if isinstance(value, tvm.runtime.Tensor) else "tuple",
                tuple(str(tensor.dtype) for tensor in tensors),
                tuple(tuple(map(int, tensor.shape)) for tensor in tensors),
            )
        )
    return tuple(specs)


def write_weights(path: Path, values: Sequence[Any], signature: str) -> None:
    """Write prepared weights, with the signature of their manifest."""
    arrays = {}
    for index, value in enumerate(values):
        if isinstance(value, tvm.runtime.ShapeTuple):
            continue
        for number, tensor in enumerate(_tensors_of(value)):
            is_plain = str(tensor.dtype) in _PLAIN
            arrays[f"{index}.{number}"] = tensor.numpy() if is_plain else raw_bytes(tensor).copy()
    safetensors.numpy.save_file(arrays, str(path), metadata={"signature": signature})


def read_weights(path: Path, specs: Sequence[PreparedSpec], signature: str) -> list[Any]:
    """Read what :func:`write_weights` wrote.

    Raises
    ------
    ArtifactError
        If the file is not whole, of another signature, or a tensor is not what `specs` says.
    """
    try:
        with safetensors.safe_open(str(path), framework="np") as file:
            found = (file.metadata() or {}).get("signature")
            if found != signature:
                raise ArtifactError(f"{path}: signature: expected {signature}, got {found}")
            values: list[Any] = []
            for index, spec in enumerate(specs):
                if spec.kind == "shape":
                    values.append(tvm.runtime.ShapeTuple(spec.shapes[0]))
                    continue
                tensors = [
                    _to_tensor(path, f"{index}.{number}", file, shape, dtype)
                    for number, (shape, dtype) in enumerate(
                        zip(spec.shapes, spec.dtypes, strict=True)
                    )
                ]
                values.append(tensors[0] if spec.kind == "tensor" else tensors)
            return values
    except (OSError, safetensors.SafetensorError) as error:
        raise ArtifactError(f"{path}: {summarize(error)}") from error


def _tensors_of(value: Any) -> list[tvm.runtime.Tensor]:
    return [value] if isinstance(value, tvm.runtime.Tensor) else list(value)


def _to_tensor(
    path: Path, name: str, file: Any, shape: tuple[int, ...], dtype: str
) -> tvm.runtime.Tensor:
    array = file.get_tensor(name)
    if dtype in _PLAIN:
        if array.shape != shape or array.dtype.name != dtype:
            raise ArtifactError(
                f"{path}: {name}: expected {dtype} {shape}, got {array.dtype.name} {array.shape}"
            )
        return tvm.runtime.tensor(array)
    if array.shape != (nbytes_of(shape, dtype),) or array.dtype != np.uint8:
        raise ArtifactError(f"{path}: {name}: expected {nbytes_of(shape, dtype)} bytes")
    tensor = tvm.runtime.empty(shape, dtype)
    raw_bytes(tensor)[...] = array
    return tensor


assert ml_dtypes  # NumPy knows bfloat16 by it, which safetensors asks for.
