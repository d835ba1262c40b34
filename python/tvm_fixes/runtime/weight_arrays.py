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
"""The caller's weights: their arrays, copies for the transform, and fingerprints."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from ..errors import InputError
from ..support.tensors import dtype_of, is_torch, raw_bytes, to_tvm
from .lifted_manifest import WeightSpec
from .manifest import TensorSpec


class WeightArrays:
    """The arrays of weights in order; tuples are flattened.

    Parameters
    ----------
    specs : sequence of WeightSpec
    weights : mapping of str to array, or to a list of arrays for a tuple
    """

    def __init__(self, specs: Sequence[WeightSpec], weights: Mapping[str, Any]):
        self._specs = specs
        self._weights = weights

    def __iter__(self) -> Iterator[tuple[TensorSpec, Any]]:
        for weight in self._specs:
            value = self._weights[weight.name]
            if not weight.is_tuple:
                yield weight.tensors[0], _as_array(value)
                continue
            if not isinstance(value, list | tuple) or len(value) != len(weight.tensors):
                raise InputError(
                    f"weight {weight.name!r}: expected a list of {len(weight.tensors)} arrays"
                )
            yield from zip(weight.tensors, map(_as_array, value), strict=True)

    def fingerprint(self) -> str:
        """The SHA-256 of dtypes, shapes and contents."""
        return _joined(self.digest(index) for index in range(self.number))

    def digest(self, index: int) -> bytes:
        """The contribution of one argument to the fingerprint."""
        return _digest(self._at(index))

    def argument(self, index: int) -> Any:
        """A copy of an argument of the transform."""
        value = self._at(index)
        return list(map(_copied, value)) if isinstance(value, list) else _copied(value)

    @property
    def number(self) -> int:
        """The number of the transform's arguments."""
        return len(self._specs[0].tensors) if self._is_one_tuple else len(self._specs)

    def _at(self, index: int) -> Any:
        """An array, or a list of arrays."""
        if self._is_one_tuple:
            return _as_array(self._weights[self._specs[0].name][index])
        value = self._weights[self._specs[index].name]
        return list(map(_as_array, value)) if self._specs[index].is_tuple else _as_array(value)

    @property
    def _is_one_tuple(self) -> bool:
        return len(self._specs) == 1 and self._specs[0].is_tuple


class FingerprintOfCopies:
    """Copies weights for the transform, and computes the fingerprint of the copies.

    Not of the weights themselves: another thread may write to them in the meantime.
    """

    def __init__(self, weights: WeightArrays):
        self._weights = weights
        self._digests: dict[int, bytes] = {}

    def argument(self, index: int) -> Any:
        """Copy a weight."""
        copy = self._weights.argument(index)
        digest = _digest(copy)
        # A weight that changed between two copies: the result fits no set of weights.
        self._digests[index] = digest if self._digests.get(index, digest) == digest else b""
        return copy

    def text(self) -> str:
        """The fingerprint; weights that the transform did not get are hashed without a copy."""
        return _joined(
            self._digests[index] if index in self._digests else self._weights.digest(index)
            for index in range(self._weights.number)
        )


def _joined(digests: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _digest(value: Any) -> bytes:
    """The SHA-256 of an array or of a list of arrays."""
    digest = hashlib.sha256()
    for array in value if isinstance(value, list) else [value]:
        is_tvms = isinstance(array, tvm.runtime.Tensor)
        dtype = str(array.dtype) if is_tvms else dtype_of(array)
        digest.update(repr((dtype, tuple(map(int, array.shape)))).encode())
        digest.update(_bytes_of(array))
    return digest.digest()


def _as_array(value: Any) -> Any:
    return value.numpy() if isinstance(value, tvm.runtime.Tensor) else value


def _copied(value: Any) -> tvm.runtime.Tensor:
    """Copy a weight: the transform may pass it on, and the caller may change it later."""
    return to_tvm(value.clone() if is_torch(value) else value)


def _bytes_of(value: Any) -> memoryview:
    if isinstance(value, tvm.runtime.Tensor):
        return raw_bytes(value).data
    if is_torch(value):
        import torch

        flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().data
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
