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
"""Weights files: the tensors of an artifact outside its library, as safetensors.

The tensors are memory-mapped: the system can drop them from memory and read them again.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import numpy as np
import tvm

from ..errors import ArtifactError, summarize
from ..relax.constants.provenance import Weight
from ..support.files import open_regular
from ..support.memory import map_bytes, tensor_in
from ..support.tensors import ALIGNMENT, nbytes_of, raw_bytes
from .manifest import TensorRecord, WeightsRecord
from .typed import MALFORMED

# The names of TVM's dtypes in a safetensors file; other dtypes are stored as bytes.
_DTYPES = {
    "bool": "BOOL",
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "int64": "I64",
    "uint64": "U64",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}

_PADDING = "__padding__"
# Bytes per write, which limits the memory for data that comes from a mapped file.
_CHUNK = 1 << 24
# The limit of safetensors.
_MAX_HEADER = 100_000_000


def write_weights(path: Path, tensors: Mapping[str, Weight]) -> WeightsRecord:
    """Write a safetensors file with aligned tensors.

    Parameters
    ----------
    path : Path
        The file.
    tensors : mapping of str to Weight
        The tensors by name.

    Returns
    -------
    record : WeightsRecord
        The record for the manifest, with the tensors in the order of `tensors`.

    Raises
    ------
    OSError
        If the file cannot be written, for example because the disk is full.

    Notes
    -----
    The format is that of safetensors 0.8: the size of the header as 8 little-endian bytes, the
    header (a JSON object, padded with spaces), and the elements.  The format allows no gaps between
    tensors, so extra entries align them; their names begin with ``"__padding__"``.
    """
    entries: dict[str, Any] = {}
    end = 0
    for name, (tensor, *_) in tensors.items():
        if end % ALIGNMENT:
            begin, end = end, -(-end // ALIGNMENT) * ALIGNMENT
            entries[f"{_PADDING}{len(entries)}"] = _entry("U8", [end - begin], begin, end)
        data, dtype = raw_bytes(tensor), _DTYPES.get(str(tensor.dtype))
        shape = [data.size] if dtype is None else list(map(int, tensor.shape))
        entries[name] = _entry(dtype or "U8", shape, end, end + data.size)
        end += data.size
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    header = len(header).to_bytes(8, "little") + header
    whole = hashlib.sha256(header)
    with open(path, "wb") as file:
        file.write(header)
        for name, entry in entries.items():
            begin, end = entry["data_offsets"]
            padding = name not in tensors
            data = np.zeros(end - begin, "uint8") if padding else raw_bytes(tensors[name][0])
            _write(file, data)
            whole.update(data.data)
    return WeightsRecord(
        size=path.stat().st_size,
        sha256=whole.hexdigest(),
        header_sha256=hashlib.sha256(header).hexdigest(),
        tensors=tuple(
            TensorRecord(name, str(t.dtype), tuple(map(int, t.shape)), parameters, made_by)
            for name, (t, parameters, made_by) in tensors.items()
        ),
    )


def read_weights(path: Path, record: WeightsRecord, *, check: bool) -> list[tvm.runtime.Tensor]:
    """Map the tensors of a safetensors file, in the order of `record`.

    Parameters
    ----------
    path : Path
        The file.
    record : WeightsRecord
        The expected size and hashes.
    check : bool
        Check the SHA-256 of the whole file, not only that of the header.

    Raises
    ------
    ArtifactError
        If the file does not match `record`.
    """
    try:
        with open_regular(path) as file:
            offsets = _check(path, file, record, whole=check)
            return [_map(file.fileno(), offsets[tensor.name], tensor) for tensor in record.tensors]
    except (OSError, ValueError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read: {summarize(error)}") from error


def _map(file: int, offset: int, tensor: TensorRecord) -> tvm.runtime.Tensor:
    size = nbytes_of(tensor.shape, tensor.dtype)
    if not size:
        return tvm.runtime.empty(list(tensor.shape), tensor.dtype)
    return tensor_in(map_bytes(file, offset, size), tensor.shape, tensor.dtype)


def tensor_offsets(path: Path, record: WeightsRecord) -> dict[str, int]:
    """The offset of each tensor of `record` in the file `path`.

    Raises
    ------
    ArtifactError
        If the file does not match `record`.
    """
    try:
        with open_regular(path) as file:
            return _check(path, file, record, whole=False)
    except (OSError, ValueError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read: {summarize(error)}") from error


def _check(
    path: Path, file: BufferedReader, record: WeightsRecord, *, whole: bool
) -> dict[str, int]:
    size = os.fstat(file.fileno()).st_size
    if size != record.size:
        raise ArtifactError(f"{path}: expected {record.size} bytes, got {size}")
    length = int.from_bytes(file.read(8), "little")
    if not 8 + length <= min(size, _MAX_HEADER):
        raise ArtifactError(f"{path}: the header of {length} bytes exceeds the file or the limit")
    file.seek(0)
    header = file.read(8 + length)
    _compare(path, "the header", record.header_sha256, hashlib.sha256(header).hexdigest())
    if whole:
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        _compare(path, "the file", record.sha256, digest)
    try:
        entries = json.loads(header[8:])
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: the header is not JSON: {summarize(error)}") from error
    return dict(_offsets(path, entries, record, len(header)))


def _offsets(
    path: Path, entries: Mapping[str, Any], record: WeightsRecord, begin: int
) -> Iterator[tuple[str, int]]:
    for tensor in record.tensors:
        try:
            first, last = map(int, entries[tensor.name]["data_offsets"])
            size = nbytes_of(tensor.shape, tensor.dtype)
        except MALFORMED as error:
            raise ArtifactError(f"{path}: no tensor {tensor.name!r}: {error!r}") from error
        if not 0 <= first <= first + size == last <= record.size - begin:
            raise ArtifactError(
                f"{path}: tensor {tensor.name!r}: expected {size} bytes within the file, got "
                f"{first} to {last}"
            )
        yield tensor.name, begin + first


def _compare(path: Path, what: str, expected: str, got: str) -> None:
    if got != expected:
        raise ArtifactError(f"{path}: {what}: expected SHA-256 {expected}, got {got}")


def _entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _write(file: IO[bytes], data: np.ndarray) -> None:
    for begin in range(0, data.size, _CHUNK):
        file.write(data[begin : begin + _CHUNK].data)
