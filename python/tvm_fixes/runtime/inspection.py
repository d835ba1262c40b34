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

"""Sizes of the parts of an artifact: sections and modules of its library, and constants."""

import hashlib
import json
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tvm_ffi

from .. import _ffi
from ..errors import ArtifactError, UsageError, summarize
from ..support.files import open_regular
from ..support.tensors import nbytes_of
from .lifted_manifest import LiftedManifest, is_lifted
from .manifest import (
    LIBRARY,
    WEIGHTS,
    Manifest,
    WeightsRecord,
    describe_shape,
    read_manifest,
)
from .weights import tensor_offsets

# Sections of machine code, and prefixes of those that stripping removes.
_CODE = frozenset({".text", ".plt", ".plt.got", ".plt.sec", ".init", ".fini"})
_DEBUG = (".debug", ".symtab", ".strtab")


@dataclass(frozen=True)
class Section:
    """A section of the library.

    Attributes
    ----------
    name : str
        Such as ``".text"``.
    offset, nbytes : int
        Its position and size in the file.
    """

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class PackedModule:
    """A TVM module that the library holds.

    Attributes
    ----------
    kind : str
        Such as ``"relax.VMExecutable"``; ``"_lib"`` is the library's own code, with size 0.
    offset, nbytes : int
        Its position and size in the file.
    """

    kind: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Constant:
    """A constant of the model.

    Attributes
    ----------
    index : int
        Its index in the list of constants.
    kind : str
        ``"tensor"``, ``"shape"``, ``"string"``, ``"int"``, ``"float"`` or ``"dtype"``.
    dtype : str
        The dtype of a tensor; otherwise empty.
    shape : tuple of int
        The shape of a tensor, or the extents of a shape.
    file : str
        The name of its file.
    offset, nbytes : int
        Its offset in the file, and the size of its elements.
    parameters : tuple of str
        The parameters of the model that it equals or is computed from, if the manifest names them.
    made_by : str
        The operator, variable and function that computed it; empty for an unchanged parameter.
    duplicate_of : int or None
        The index of the first tensor with the same bytes.
    """

    index: int
    kind: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    nbytes: int
    parameters: tuple[str, ...] = ()
    made_by: str = ""
    duplicate_of: int | None = None

    def __str__(self) -> str:
        return f"{self.dtype} {describe_shape(self.shape)}" if self.dtype else self.kind


@dataclass(frozen=True)
class Inspection:
    """The result of :func:`inspect`.

    Attributes
    ----------
    path : str
        The path of the artifact.
    files : dict of str to int
        The sizes of its files, by name.
    sections : tuple of Section
        The sections of the library.
    modules : tuple of PackedModule
        The TVM modules in the library.
    constants : tuple of Constant
        The constants of the model.
    parameter_bytes : int or None
        The size of the model's parameters; None if no manifest records it.
    """

    path: str
    files: dict[str, int]
    sections: tuple[Section, ...]
    modules: tuple[PackedModule, ...]
    constants: tuple[Constant, ...]
    parameter_bytes: int | None

    @property
    def nbytes(self) -> int:
        """The size of all files."""
        return sum(self.files.values())

    @property
    def constant_bytes(self) -> int:
        """The size of the tensors among the constants."""
        return sum(constant.nbytes for constant in self.constants if constant.kind == "tensor")

    @property
    def code_bytes(self) -> int:
        """The size of the library's machine code for the CPU."""
        return sum(section.nbytes for section in self.sections if section.name in _CODE)

    @property
    def debug_bytes(self) -> int:
        """The size of what no program needs: debug information, and names of local symbols."""
        return sum(section.nbytes for section in self.sections if section.name.startswith(_DEBUG))

    @property
    def duplicate_bytes(self) -> int:
        """The size of the duplicates among them."""
        return sum(c.nbytes for c in self.constants if c.duplicate_of is not None)

    @property
    def size_ratio(self) -> float | None:
        """The size of all files divided by the parameters'; None if that is unknown or zero."""
        return self.nbytes / self.parameter_bytes if self.parameter_bytes else None

    @property
    def constant_ratio(self) -> float | None:
        """The size of the constants divided by the parameters'; None if that is unknown or zero."""
        return self.constant_bytes / self.parameter_bytes if self.parameter_bytes else None

    def to_dict(self) -> dict[str, Any]:
        """The inspection as plain values, including the computed ones."""
        computed = (
            *("nbytes", "constant_bytes", "code_bytes", "debug_bytes", "duplicate_bytes"),
            *("size_ratio", "constant_ratio"),
        )
        return asdict(self) | {name: getattr(self, name) for name in computed}

    def to_json(self) -> str:
        """The inspection as one JSON object, indented."""
        return json.dumps(self.to_dict(), indent=2)


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """Determine the sizes of the parts of an artifact.

    Parameters
    ----------
    path : path
        A directory of :meth:`CompiledModel.save` or :meth:`LiftedModule.save`, or a library of
        TVM's ``export_library``.  Its files are mapped, not loaded; none of their code runs.

    Returns
    -------
    found : Inspection

    Raises
    ------
    UsageError
        If there is no such file or directory.
    ArtifactError
        If it is neither, is incomplete, or has a format that this version does not read.
    """
    location = Path(path)
    if not os.path.lexists(location):
        raise UsageError(f"{path}: no such file or directory")
    manifest, weights, parameter_bytes = _read_manifest(location)
    library = location / LIBRARY if os.path.isdir(location) else location
    try:
        extension = _ffi.artifact_extension()
    except ImportError as error:
        raise ArtifactError(str(error)) from error
    try:
        size, sections, modules, constants = extension.read_library(os.fsencode(library))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ArtifactError(f"{library}: {reason}") from error
    if manifest is not None and size != manifest.size:
        raise ArtifactError(
            f"{library}: not the library of its manifest: expected {manifest.size} bytes, "
            f"got {size}"
        )
    entries = list(_constants(library, constants))
    files = {library.name: size}
    if weights is not None:
        files[WEIGHTS] = weights.size
        entries += _weights(location / WEIGHTS, weights, len(entries))
    return Inspection(
        str(path),
        files,
        tuple(Section(_text(name), offset, nbytes) for name, offset, nbytes in sections),
        tuple(PackedModule(_text(kind), offset, nbytes) for kind, offset, nbytes in modules),
        tuple(_identify(entries, library.parent, manifest)),
        parameter_bytes,
    )


def _read_manifest(
    path: Path,
) -> tuple[Manifest | None, WeightsRecord | None, int | None]:
    """The manifest, the record of the weights file, and the size of the parameters, if known."""
    if not os.path.isdir(path):
        return None, None, None
    if is_lifted(path):
        lifted = LiftedManifest.read(path)
        return lifted.model, lifted.file, lifted.weights_bytes or None
    manifest = read_manifest(path)
    report = manifest.report
    return manifest, manifest.weights, None if report is None else report.parameter_bytes


def _constants(library: Path, rows: Sequence[tuple[Any, ...]]) -> Iterator[Constant]:
    for index, (kind, dtype, shape, offset, nbytes) in enumerate(rows):
        try:
            name = str(tvm_ffi.dtype.from_dlpack_data_type(dtype)) if kind == "tensor" else ""
        except ValueError as error:
            raise ArtifactError(f"{library}: constant {index}: {summarize(error)}") from error
        yield Constant(index, kind, name, shape, library.name, offset, nbytes)


def _weights(path: Path, record: WeightsRecord, first: int) -> Iterator[Constant]:
    offsets = tensor_offsets(path, record)
    for index, tensor in enumerate(record.tensors, first):
        yield Constant(
            index,
            "tensor",
            tensor.dtype,
            tensor.shape,
            path.name,
            offsets[tensor.name],
            nbytes_of(tensor.shape, tensor.dtype),
            tensor.parameters,
            tensor.made_by,
        )


def _identify(
    constants: list[Constant], directory: Path, manifest: Manifest | None
) -> Iterator[Constant]:
    """Add the provenance of the constants, and mark duplicates."""
    records = {} if manifest is None else {r.sha256: r for r in manifest.constants}
    sizes = Counter(constant.nbytes for constant in constants if constant.kind == "tensor")
    first: dict[bytes, int] = {}
    with ExitStack() as stack:
        maps: dict[str, mmap.mmap] = {}
        for constant in constants:
            # Skip the hash of a constant of unique size: it has no duplicate.
            unnamed = bool(records) and not constant.parameters
            unique = not unnamed and sizes[constant.nbytes] == 1
            if constant.kind != "tensor" or not constant.nbytes or unique:
                yield constant
                continue
            if constant.file not in maps:
                file = stack.enter_context(open_regular(directory / constant.file))
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                maps[constant.file] = stack.enter_context(mapped)
            digest = _digest(maps[constant.file], constant)
            record = records.get(digest.hex()) if unnamed else None
            if record is not None:
                constant = replace(constant, parameters=record.parameters, made_by=record.made_by)
            before = first.setdefault(digest, constant.index)
            yield constant if before == constant.index else replace(constant, duplicate_of=before)


def _digest(data: mmap.mmap, constant: Constant) -> bytes:
    """The SHA-256 of a constant's bytes in the mapped file `data`."""
    with memoryview(data) as whole:
        with whole[constant.offset : constant.offset + constant.nbytes] as part:
            return hashlib.sha256(part).digest()


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
