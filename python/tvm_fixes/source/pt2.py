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
"""Files of ``torch.export.save``, read without running code from them.

``torch.export.load`` unpickles example inputs and weights, passes expressions to SymPy's parser
(which evaluates them as Python), writes names and guards into Python code, and loads libraries of
AOTInductor.  This module checks the members of the archive before PyTorch reads them.  It reads
weights as bytes, and example inputs with PyTorch's restricted unpickler.
"""

import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ..errors import CompileError, UntrustedError, summarize
from ..support import logs
from .pt2_rules import CodeError, check_program, check_tensor_meta

if TYPE_CHECKING:
    import torch

__all__ = ["load", "load_checked"]

_MODEL = "models/model.json"
_INPUTS = "data/sample_inputs/model.pt"
_WEIGHTS, _CONSTANTS = "data/weights/", "data/constants/"
_CONFIGS = {
    _WEIGHTS: f"{_WEIGHTS}model_weights_config.json",
    _CONSTANTS: f"{_CONSTANTS}model_constants_config.json",
}
_PREFIXES = {_WEIGHTS: "weight_", _CONSTANTS: "tensor_"}

_UNKNOWN_OPERATOR = re.compile(r"failed to resolve (torch\.ops\.[\w.]*\w)")
# The type of a container in a structure, which is JSON in a string of JSON.
_TYPE = re.compile(r'\\"type\\":\s*\\"([\w.]+)\\"')

_MAX_REPEATED = 1 << 30
_MAX_EXAMPLES = 10_000
_VERSION = "0"


def load(path: Path, *, trust: bool) -> "torch.export.ExportedProgram":
    """Read the program in a file of ``torch.export.save``.

    Raises
    ------
    UntrustedError
        If the file may run code, and `trust` is not set.
    CompileError
        If PyTorch cannot read it.
    """
    import torch

    # torch.export.load logs the problem, and raises an error that refers to the log.
    with logs.captured("torch") as log:
        try:
            return torch.export.load(path) if trust else load_checked(path)
        except UntrustedError:
            raise
        except Exception as error:
            logged = log.getvalue().strip().splitlines()
            reason = _reason(path, logged[-1] if logged else summarize(error))
            raise CompileError(f"{path}: {reason}") from error


def _reason(path: Path, logged: str) -> str:
    """Why PyTorch cannot read a file, and what to do."""
    import torch

    found = _unregistered(path)
    if found.types:
        return str(found)
    operator = _UNKNOWN_OPERATOR.search(logged)
    if operator is not None:
        return (
            f"{operator[1]} is not registered in PyTorch: add --import with the module that "
            "registers it (in Python: import it)"
        )
    return (
        f"PyTorch {torch.__version__} cannot load it as a .pt2 file (truncated, another version, "
        f"or not from torch.export.save): {logged.partition('. This is an internal')[0]}"
    )


def load_checked(path: Path) -> "torch.export.ExportedProgram":
    """Read the program in a file of ``torch.export.save``.

    Returns
    -------
    torch.export.ExportedProgram
        The program, with the example inputs in the file.

    Raises
    ------
    UntrustedError
        If the file may run code.
    Exception
        Any exception of PyTorch for a file that is broken or has another version.
    """
    try:
        return _load(path)
    except CodeError as error:
        found = _unregistered(path)
        options = "".join(f" --import {module}" for module in found.modules)
        imports = f" after import {', '.join(found.modules)}" if found.modules else ""
        raise UntrustedError(
            f"{path}: rejected: it may run code ({error}). If you trust its source, pass --trust"
            f"{options} (trust=True{imports})"
        ) from error


class _Unregistered(NamedTuple):
    """The types in the structures of a program that PyTorch does not know, and their modules."""

    types: list[str]
    modules: list[str]

    def __str__(self) -> str:
        if self.modules:
            advice = (
                f"add {' '.join(f'--import {module}' for module in self.modules)} (in Python: "
                f"import {', '.join(self.modules)})"
            )
        else:
            advice = "add --import with a module that calls register_pytree_node for it"
        return (
            f"its inputs or outputs have the type {', '.join(self.types)}, which is not registered "
            f"in PyTorch: {advice}"
        )


def _unregistered(path: Path) -> _Unregistered:
    """The types of inputs and outputs that no imported module has registered as containers.

    The modules are those that may register them; none of them is imported.
    """
    from torch.utils._pytree import SERIALIZED_TYPE_TO_PYTHON_TYPE as KNOWN

    try:
        with path.open("rb") as file:
            text = _open(file).get_record(_MODEL).decode()
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile):
        return _Unregistered([], [])
    types = sorted(name for name in set(_TYPE.findall(text)) if name not in KNOWN)
    # The classes begin with the first capital letter.
    names = (re.split(r"\.(?=_*[A-Z])", name)[0] for name in types if "." in name)
    return _Unregistered(types, sorted({name for name in names if name not in sys.modules}))


def _load(path: Path) -> "torch.export.ExportedProgram":
    # Open only once: the path may later name another file.
    with path.open("rb") as file:
        return _read(file)


def _read(file: BinaryIO) -> "torch.export.ExportedProgram":
    from torch._export.serde import schema, serialize

    archive = _open(file)
    version = archive.get_record("archive_version").decode()
    if version != _VERSION:
        raise ValueError(
            f"Saved archive version {version} does not match the archive version {_VERSION}"
        )
    program = _parse(archive, _MODEL, schema.ExportedProgram)
    check_program(program)
    examples = _example_inputs(archive)
    tensors = {folder: _tensors(archive, folder) for folder in _CONFIGS}
    reader = serialize.ExportedProgramDeserializer({})
    return reader.deserialize(program, tensors[_WEIGHTS], tensors[_CONSTANTS], examples)


def _open(file: BinaryIO) -> Any:
    """Open the archive with PyTorch's own reader: another one might see other members."""
    import torch

    _check_format(file)
    archive = torch._C.PyTorchFileReader(file)
    names = archive.get_all_records()
    if "archive_format" not in names or archive.get_record("archive_format") != b"pt2":
        raise ValueError("the zip file has no archive_format pt2")
    _check_sizes(archive, names, os.fstat(file.fileno()).st_size, "the file")
    for name in names:
        if name.startswith("data/aotinductor/") or name.endswith((".so", ".dll", ".cubin")):
            raise CodeError(f"it has compiled code: {name}")
    for folder, legacy in ((_WEIGHTS, "model.pt"), (_CONSTANTS, "model.pt")):
        if f"{folder}{legacy}" in names:
            raise CodeError(f"it has weights as a pickle: {folder}{legacy}")
    return archive


def _check_format(file: BinaryIO) -> None:
    with zipfile.ZipFile(file) as archive:
        if "version" in archive.namelist():
            raise CodeError("it has an old format, whose weights are pickles")
    file.seek(0)


def _check_sizes(archive: Any, names: list[str], size: int, what: str) -> None:
    """Check that the members do not exceed the file; PyTorch writes them uncompressed."""
    read = sum(archive.get_record_size(name) for name in names)
    if read > size:
        raise ValueError(f"the members of {what} have {read} bytes, more than its {size} bytes")


def _parse(archive: Any, name: str, kind: type) -> Any:
    return _parse_bytes(archive.get_record(name), name, kind)


def _parse_bytes(data: bytes, name: str, kind: type) -> Any:
    from torch._export.serde import serialize

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        items = dict(pairs)
        if len(items) != len(pairs):
            raise ValueError(f"{name}: duplicate key")
        return items

    document = json.loads(data.decode(), object_pairs_hook=unique)
    try:
        return serialize._dict_to_dataclass(kind, document)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{name} does not fit PyTorch's schema: {summarize(error)}") from error


def _tensors(archive: Any, folder: str) -> dict[str, "torch.Tensor"]:
    """The weights or the constants; each is a view of the bytes of a member."""
    from torch._export.serde import schema
    from torch.export.pt2_archive import _package

    checked = archive.get_record(_CONFIGS[folder])
    config = _parse_bytes(checked, _CONFIGS[folder], schema.PayloadConfig)
    for name, payload in config.config.items():
        if payload.use_pickle or not payload.path_name.startswith(_PREFIXES[folder]):
            raise CodeError(f"{name!r:.100} is a pickle or a custom object")
        _check_payload(archive, folder, name, payload)

    class Reader(_package.PT2ArchiveReader):
        """PyTorch's reader, restricted to the open archive and the checked configuration."""

        def __init__(self) -> None:
            self.archive_file = archive

        def read_bytes(self, name: str) -> bytes:
            data: bytes = checked if name == _CONFIGS[folder] else archive.get_record(name)
            return data

    read = _package._load_state_dict if folder == _WEIGHTS else _package._load_constants
    return read(Reader(), "model")


def _check_payload(archive: Any, folder: str, name: str, payload: Any) -> None:
    """Check that the shape of a tensor is static and fits its bytes."""
    meta = payload.tensor_meta
    if meta is None or not payload.path_name.removeprefix(_PREFIXES[folder]).isdecimal():
        raise ValueError(
            f"{name!r:.100} has no description or a wrong path {payload.path_name!r:.100}"
        )
    check_tensor_meta(meta)
    if any(dim.type != "as_int" for dim in (*meta.sizes, *meta.strides, meta.storage_offset)):
        raise ValueError(f"{name!r:.100} has a symbolic shape")
    stored = archive.get_record_size(f"{folder}{payload.path_name}")
    elements = 1
    for size in meta.sizes:
        elements *= size.as_int
    if elements < 0 or elements * 16 > max(_MAX_REPEATED, 16 * 16 * stored):
        raise ValueError(f"{name!r:.100} has {elements} elements in {stored} bytes")
    if elements and not stored:
        raise ValueError(f"the elements of {name!r:.100} are not in the file")


def _example_inputs(archive: Any) -> Any:
    import torch

    data = archive.get_record(_INPUTS)
    if not data:
        return None
    inner = torch._C.PyTorchFileReader(io.BytesIO(data))
    _check_sizes(inner, inner.get_all_records(), len(data), "the example inputs")
    try:
        examples = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:
        raise CodeError(
            f"its example inputs are not plain tensors: {summarize(error, 120)}"
        ) from error
    if not isinstance(examples, tuple) or len(examples) != 2:
        raise ValueError(f"expected example inputs (args, kwargs), got {type(examples).__name__}")
    for count, leaf in enumerate(_leaves(examples)):
        is_tensor = isinstance(leaf, torch.Tensor)
        if count > _MAX_EXAMPLES or (is_tensor and leaf.numel() * 16 > _MAX_REPEATED):
            raise ValueError("the example inputs are too many or too large")
    return examples


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """The leaves of nested containers; shared ones are visited repeatedly, as PyTorch does."""
    if depth > 64:
        raise ValueError("the example inputs are nested too deep")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        yield value
        for item in value:
            yield from _leaves(item, depth + 1)
    else:
        yield value
