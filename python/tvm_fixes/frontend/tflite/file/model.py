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
"""The model in a TFLite file: subgraphs, tensors, operators, signatures."""

import math
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from ....errors import TfliteError, UsageError, summarize
from .reader import Reader
from .schema import BUILTINS, FIRST_RESERVED

__all__ = [
    "Model",
    "Operator",
    "Quantization",
    "Signature",
    "Sparsity",
    "SubGraph",
    "Tensor",
    "read_model",
]

_BITS = {"int4": 4, "uint4": 4, "int2": 2}
_SMALL_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_NOT_NUMBERS = ("string", "resource", "variant")

# Offsets of buffers that mean "none".
_NO_OFFSET = (0, 1)


@dataclass(frozen=True, eq=False)
class Quantization:
    """The parameters of an affine quantization.

    Attributes
    ----------
    scale : numpy.ndarray
        One float32 number, or one for each index of `axis`.
    zero_point : numpy.ndarray
        As many int64 numbers.
    axis : int
    details : str
        The name of another scheme, such as ``BlockwiseQuantization``; empty if there is none.
    """

    scale: np.ndarray[Any, Any]
    zero_point: np.ndarray[Any, Any]
    axis: int
    details: str = ""

    @property
    def is_per_tensor(self) -> bool:
        """Whether all elements have the same parameters."""
        return self.scale.size == 1

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Quantization)
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
            and (self.is_per_tensor or self.axis == other.axis)
            and self.details == other.details
        )


@dataclass(frozen=True)
class Sparsity:
    """How the elements of a sparse constant are stored.

    Attributes
    ----------
    traversal_order, block_map : tuple of int
    dims : list of mapping
        The format, the dense size, and the segments and indices of each dim.
    """

    traversal_order: tuple[int, ...]
    block_map: tuple[int, ...]
    dims: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a subgraph.

    Attributes
    ----------
    name : str
    shape : tuple of int
        The declared shape.
    signature : tuple of int
        The same with -1 for a dim of any size.
    dtype : str
        Such as ``"int8"``; ``"string"``, ``"resource"`` and ``"variant"`` are no numbers.
    data : memoryview, optional
        The bytes of a constant.
    quantization : Quantization, optional
    is_variable : bool
        Whether it keeps its value between runs.
    sparsity : Sparsity, optional
    """

    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    dtype: str
    data: memoryview | None
    quantization: Quantization | None
    is_variable: bool
    sparsity: Sparsity | None

    def __str__(self) -> str:
        return f"tensor {self.name!r}"

    @cached_property
    def array(self) -> np.ndarray[Any, Any] | None:
        """The elements of a dense constant; 2-bit and 4-bit integers have a byte each.

        Raises
        ------
        TfliteError
            If the bytes do not fit the shape, or it is sparse.
        """
        if self.data is None:
            return None
        if self.sparsity is not None:
            raise TfliteError(f"{self}: sparse constants are not supported")
        if self.dtype in _NOT_NUMBERS:
            raise TfliteError(f"{self}: constants of dtype {self.dtype} are not supported")
        bits = _BITS.get(self.dtype) or 8 * _numpy_dtype(self.dtype).itemsize
        count = math.prod(self.shape)
        size = -(-count * bits // 8)
        if len(self.data) != size:
            raise TfliteError(
                f"{self}: expected {size} bytes for shape {list(self.shape)} of {self.dtype}, "
                f"got {len(self.data)}"
            )
        if self.dtype in _BITS:
            return _unpacked(self.data, count, self.dtype).reshape(self.shape)
        return np.frombuffer(self.data, _numpy_dtype(self.dtype)).reshape(self.shape)


@dataclass(frozen=True)
class Operator:
    """An operator of a subgraph.

    Attributes
    ----------
    name : str
        Such as ``"CONV_2D"``; a custom operator has its own name.
    is_custom : bool
    version : int
    inputs, outputs, intermediates : tuple of int
        The indices of tensors; -1 stands for an input that is omitted.
    options_name : str
        The name of the table of options; empty if there is none.
    options : mapping
        The options by name, enums by the names of their members.
    custom_options : bytes
    """

    name: str
    is_custom: bool
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options_name: str
    options: Mapping[str, Any]
    custom_options: bytes


@dataclass(frozen=True)
class SubGraph:
    """A function of the model; the inputs and outputs are indices of tensors."""

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True)
class Signature:
    """A named entry: the tensors of a subgraph by the names of inputs and outputs."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True)
class Model:
    """A TFLite model; the first subgraph is the entry.

    Attributes
    ----------
    version : int
    description : str
    subgraphs : tuple of SubGraph
    signatures : tuple of Signature
    metadata : mapping of str to bytes
    """

    version: int
    description: str
    subgraphs: tuple[SubGraph, ...]
    signatures: tuple[Signature, ...]
    metadata: Mapping[str, memoryview | None]

    @property
    def main(self) -> SubGraph:
        """The entry."""
        return self.subgraphs[0]


def read_model(source: bytes | bytearray | memoryview | str | os.PathLike[str]) -> Model:
    """Read a model from the bytes of a file, or from a file, whose weights are memory-mapped.

    Raises
    ------
    TfliteError
        If it is malformed, truncated or no TFLite file.
    UsageError
        If the file cannot be opened.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _Builder(memoryview(source).cast("B")).model()
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            is_empty = os.fstat(file.fileno()).st_size == 0
            data = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {summarize(error)}") from error
    return _Builder(memoryview(data)).model()


class _Builder:
    """Makes a model of the tables of a file, and checks all indices."""

    def __init__(self, data: memoryview) -> None:
        self._reader = Reader(data)
        self._root = self._reader.root()
        self._buffers = [
            self._buffer(index, fields) for index, fields in enumerate(self._list("buffers"))
        ]

    def _list(self, name: str) -> list[dict[str, Any]]:
        return self._root[name] or []

    def _buffer(self, index: int, fields: Mapping[str, Any]) -> memoryview | None:
        """The bytes of a buffer, which may lie behind the flatbuffer; None if it is empty."""
        offset, size = fields["offset"], fields["size"]
        if offset not in _NO_OFFSET:
            return self._reader.bytes_at(offset, size, f"buffer {index}") if size else None
        data = fields["data"]
        return None if data is None or data.size == 0 else memoryview(data)

    def model(self) -> Model:
        """The whole model."""
        graphs = [
            self._subgraph(index, fields) for index, fields in enumerate(self._list("subgraphs"))
        ]
        if not graphs:
            raise TfliteError("malformed file: the model has no subgraph")
        entries = self._list("metadata")
        names = [entry["name"] or "" for entry in entries]
        data = [self._data_of(entry["buffer"], "metadata") for entry in entries]
        return Model(
            self._root["version"],
            self._root["description"] or "",
            tuple(graphs),
            tuple(self._signature(entry, graphs) for entry in self._list("signature_defs")),
            dict(zip(names, data, strict=True)),
        )

    def _data_of(self, index: int, where: str) -> memoryview | None:
        return self._buffers[_checked(index, self._buffers, f"{where}: buffer")]

    def _subgraph(self, index: int, fields: Mapping[str, Any]) -> SubGraph:
        where = f"subgraph {index}"
        tensors = tuple(
            self._tensor(tensor, f"{where}, tensor {number}")
            for number, tensor in enumerate(fields["tensors"] or ())
        )

        def indices(value: Any, what: str, least: int = 0) -> tuple[int, ...]:
            return tuple(
                _checked(index, tensors, f"{where}, {what}: tensor", least)
                for index in _ints(value)
            )

        operators = []
        for number, operator in enumerate(fields["operators"] or ()):
            at = f"operator {number}"
            codes = self._list("operator_codes")
            code = codes[_checked(operator["opcode_index"], codes, f"{where}, {at}: operator code")]
            options_name, options = operator["builtin_options"] or ("", {})
            operators.append(
                Operator(
                    **_named(code),
                    inputs=indices(operator["inputs"], at, -1),
                    outputs=indices(operator["outputs"], at),
                    intermediates=indices(operator["intermediates"], at, -1),
                    options_name=options_name,
                    options=options,
                    custom_options=self._custom_options(operator),
                )
            )
        return SubGraph(
            fields["name"] or "",
            tensors,
            indices(fields["inputs"], "inputs"),
            indices(fields["outputs"], "outputs"),
            tuple(operators),
        )

    def _custom_options(self, fields: Mapping[str, Any]) -> bytes:
        offset, size = fields["large_custom_options_offset"], fields["large_custom_options_size"]
        if offset in _NO_OFFSET:
            return b"" if fields["custom_options"] is None else fields["custom_options"].tobytes()
        return bytes(self._reader.bytes_at(offset, size, "a list of custom options"))

    def _tensor(self, fields: Mapping[str, Any], where: str) -> Tensor:
        if fields["external_buffer"]:
            raise TfliteError(f"{where}: weights in another file are not supported")
        shape, signature = _ints(fields["shape"]), _ints(fields["shape_signature"])
        if any(dim < 0 for dim in shape):
            raise TfliteError(f"malformed file: {where} has the shape {list(shape)}")
        if signature and len(signature) != len(shape):
            raise TfliteError(
                f"malformed file: {where} has the shape {list(shape)}, and the signature "
                f"{list(signature)}"
            )
        return Tensor(
            fields["name"] or "",
            shape,
            signature or shape,
            fields["type"],
            self._data_of(fields["buffer"], where) if fields["buffer"] else None,
            _quantization(fields["quantization"], shape, where),
            fields["is_variable"],
            _sparsity(fields["sparsity"]),
        )

    def _signature(self, fields: Mapping[str, Any], graphs: Sequence[SubGraph]) -> Signature:
        key = fields["signature_key"] or ""
        where = f"signature {key!r}"
        index = _checked(fields["subgraph_index"], graphs, f"{where}: subgraph")
        tensors = graphs[index].tensors

        def tensors_by_name(maps: Any) -> dict[str, int]:
            return {
                entry["name"] or "": _checked(entry["tensor_index"], tensors, f"{where}: tensor")
                for entry in maps or ()
            }

        named = tensors_by_name(fields["inputs"]), tensors_by_name(fields["outputs"])
        return Signature(key, index, *named)


def _checked(index: int, items: Sequence[Any], what: str, least: int = 0) -> int:
    if not least <= index < len(items):
        raise TfliteError(f"malformed file: {what} {index} does not exist; there are {len(items)}")
    return index


def _named(code: Mapping[str, Any]) -> dict[str, Any]:
    """The name and the version of an operator code."""
    number = max(code["deprecated_builtin_code"], code["builtin_code"])
    if code["deprecated_builtin_code"] >= FIRST_RESERVED:
        number = code["builtin_code"]
    name = BUILTINS[number] if 0 <= number < len(BUILTINS) else f"BUILTIN_{number}"
    is_custom = name == "CUSTOM"
    if is_custom:
        name = code["custom_code"] or "CUSTOM"
    return {"name": name, "is_custom": is_custom, "version": code["version"]}


def _ints(values: Any) -> tuple[int, ...]:
    return () if values is None else tuple(map(int, values))


def _quantization(
    fields: Mapping[str, Any] | None, shape: Sequence[int], where: str
) -> Quantization | None:
    """The parameters of a tensor; None if it has no scales."""
    if fields is None:
        return None
    details = (fields["details"] or ("", {}))[0]
    if details == "CustomQuantization":
        details = ""
    scale, zero, axis = fields["scale"], fields["zero_point"], fields["quantized_dimension"]
    if scale is None or scale.size == 0:
        return None if not details else Quantization(np.ones(1, "float32"), np.zeros(1), 0, details)
    if zero is None or zero.size == 0:
        zero = np.zeros(scale.size, "int64")
    if zero.size == 1 and scale.size > 1:
        zero = np.repeat(zero, scale.size)
    fits = scale.size == 1 or (0 <= axis < len(shape) and shape[axis] == scale.size)
    if zero.size != scale.size or not fits:
        raise TfliteError(
            f"malformed file: {where} of shape {list(shape)} has {scale.size} scales and "
            f"{zero.size} zero points along axis {axis}"
        )
    return Quantization(np.array(scale, "float32"), np.array(zero, "int64"), axis, details)


def _sparsity(fields: Mapping[str, Any] | None) -> Sparsity | None:
    if fields is None:
        return None
    order, blocks = _ints(fields["traversal_order"]), _ints(fields["block_map"])
    return Sparsity(order, blocks, fields["dim_metadata"] or ())


def _numpy_dtype(dtype: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, dtype) if dtype in _SMALL_FLOATS else dtype)


def _unpacked(data: memoryview, count: int, dtype: str) -> np.ndarray[Any, Any]:
    """Integers of a few bits, which lie in bytes from the lowest bits on."""
    bits = _BITS[dtype]
    packed = np.frombuffer(data, "uint8")
    parts = np.stack([packed >> shift for shift in range(0, 8, bits)], -1).reshape(-1)[:count]
    parts = parts & ((1 << bits) - 1)
    if dtype.startswith("u"):
        return parts
    sign = 1 << (bits - 1)
    return (parts.astype("int8") ^ sign) - np.int8(sign)
