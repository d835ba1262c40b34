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
"""The manifest of an artifact: its tensors, target, versions and hashes."""

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import tvm
from tvm import relax

from ..errors import ArtifactError, UnsupportedOperatorError, summarize
from ..relax.constants.provenance import ConstantRecord
from ..relax.ir import dim_text
from ..relax.kernel_calls import KernelCall, KernelCalls
from ..relax.source_nodes import SourceNode
from ..relax.updates import updates_of
from ..support.files import open_regular, read_text
from ..support.tensors import ALIGNMENT
from .call_arguments import Argument, check_arguments, read_argument
from .report import Report
from .typed import MALFORMED, check_types

FORMAT = "tvm-fixes/1"
LIBRARY = "model.so"
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"

Dim = int | str
T = TypeVar("T")


@dataclass(frozen=True)
class TensorSpec:
    """The name, shape and dtype of an input or an output.

    Attributes
    ----------
    name : str
        The model's own name for it.
    shape : tuple of (int or str), or None
        Its dims; a string is the name of a symbolic dim or an expression of symbolic dims.  None
        if the rank is unknown.
    dtype : str
        Such as ``"float32"``.
    """

    name: str
    shape: tuple[Dim, ...] | None
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} {describe_shape(self.shape)}"


class Signature(NamedTuple):
    """The inputs and outputs of a model's function.

    Attributes
    ----------
    inputs, outputs : tuple of TensorSpec
        In the order of the function's parameters and results.
    bounds : dict of str to (int, int or None)
        The smallest and largest size of a symbolic dim; None for no limit.
    updates : dict of str to int
        For each input that a run overwrites, the index of the result that is its new value.
        Results after `outputs` are only new values of inputs.
    sizes : dict of str to (int or str)
        For each input that is an integer, the dim that it equals.
    arguments : tuple of Argument
        The arguments of the original, if they differ from `inputs`; otherwise empty.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    bounds: dict[str, tuple[int, int | None]]
    updates: dict[str, int]
    sizes: dict[str, Dim]
    arguments: tuple[Argument, ...] = ()


@dataclass(frozen=True)
class TensorRecord:
    """A tensor outside the library, which is an argument of the function after the inputs.

    Attributes
    ----------
    name : str
        Its name in the safetensors file.
    dtype : str
        TVM's name of its dtype.
    shape : tuple of int
        Its extents.
    parameters : tuple of str
        The parameters of the model that it equals or is computed from.
    made_by : str
        The operator, variable and function that computed it; empty for an unchanged parameter.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    parameters: tuple[str, ...]
    made_by: str


@dataclass(frozen=True)
class WeightsRecord:
    """The file ``weights.safetensors`` of an artifact.

    Attributes
    ----------
    size : int
        The size of the file in bytes.
    sha256 : str
        The hash of the file.
    header_sha256 : str
        The hash of the bytes before the first tensor.
    tensors : tuple of TensorRecord
        The tensors, in the order of the function's arguments.
    """

    size: int
    sha256: str
    header_sha256: str
    tensors: tuple[TensorRecord, ...]


def _check_target(target: Mapping[str, Any]) -> None:
    if not isinstance(target.get("kind"), str):
        raise ValueError(f"target: expected a kind, got {target!r}")
    arch = str(target.get("arch"))
    if target["kind"] == "cuda" and not re.fullmatch(r"sm_\d{2,3}[a-z]?", arch):
        raise ValueError(f"target: expected an architecture such as sm_90, got {arch!r}")


def _check_updates(manifest: "Manifest") -> None:
    names = {spec.name for spec in manifest.inputs}
    unknown = [name for name in manifest.updates if name not in names]
    if unknown:
        raise ValueError(f"updates: expected names of inputs, got {unknown[0]!r}")
    indices = sorted(manifest.updates.values())
    number = len(manifest.outputs)
    hidden = [index for index in indices if index >= number]
    is_whole = hidden == list(range(number, number + len(hidden)))
    if not is_whole or len(set(indices)) < len(indices) or min(indices, default=0) < 0:
        raise ValueError(f"updates: expected indices of results, got {manifest.updates}")


def _check_memory(manifest: "Manifest") -> None:
    if manifest.alignment not in (1 << power for power in range(ALIGNMENT.bit_length())):
        raise ValueError(f"alignment: expected a power of two, got {manifest.alignment}")
    owned, number = manifest.owned_outputs, len(manifest.outputs)
    if len(set(owned)) < len(owned) or any(not 0 <= index < number for index in owned):
        raise ValueError(f"owned_outputs: expected indices of outputs, got {owned}")


def describe_shape(shape: Sequence[Dim] | None) -> str:
    """Format `shape` as ``(n, 3, 64, 64)``."""
    return "(any rank)" if shape is None else f"({', '.join(map(str, shape))})"


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json`` in an artifact.

    Attributes
    ----------
    inputs, outputs, bounds, updates, sizes, arguments
        As for :class:`Signature`.
    target : dict
        The TVM target's configuration.
    triple : str
        The LLVM triple of the library.
    cpu_features : list of str
        The instruction sets, by LLVM's names, that the library may use.
    versions : dict of str to str
        The versions of the packages that made it.
    sha256, size : str, int
        The hash and the size of the library ``model.so``.
    function : str
        The name of the model's function in the library.
    constants : tuple of ConstantRecord
        The provenance of the constants, if known.
    weights : WeightsRecord or None
        The weights outside the library; None if they are inside.
    kernels : KernelCalls
        The kernels that the library calls, with the nodes of the model that each call computes.
    alignment : int
        The alignment that the kernels assume of the inputs, in bytes.
    owned_outputs : tuple of int
        The outputs that share no memory with inputs, constants or each other, as indices.
    report : Report or None
        The report of the compilation, including the fixes applied.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    bounds: dict[str, tuple[int, int | None]]
    target: dict[str, Any]
    triple: str
    cpu_features: list[str]
    versions: dict[str, str]
    sha256: str
    size: int
    function: str = "main"
    constants: tuple[ConstantRecord, ...] = ()
    weights: WeightsRecord | None = None
    updates: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, Dim] = field(default_factory=dict)
    arguments: tuple[Argument, ...] = ()
    kernels: KernelCalls = field(default_factory=KernelCalls)
    alignment: int = ALIGNMENT
    owned_outputs: tuple[int, ...] = ()
    report: Report | None = None

    @property
    def nbytes(self) -> int:
        """The size of the library and of the weights outside it."""
        return self.size + (0 if self.weights is None else self.weights.size)

    def hidden_updates(self) -> list[int]:
        """The positions of the inputs whose new values follow the outputs in the results."""
        places = {spec.name: place for place, spec in enumerate(self.inputs)}
        number = len(self.outputs)
        hidden = ((index, places[name]) for name, index in self.updates.items() if index >= number)
        return [place for _, place in sorted(hidden)]

    def to_json(self) -> str:
        """The manifest as one JSON object, indented."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Parse the output of :meth:`to_json`.

        Raises
        ------
        ArtifactError
            If `text` is not a manifest, or has a format that this version does not read.
        """
        try:
            values = json.loads(text)
            if not isinstance(values, dict) or "format" not in values:
                raise ArtifactError("not a manifest of tvm-fixes")
            if values["format"] != FORMAT:
                raise ArtifactError(f"format {values['format']!r}; expected {FORMAT!r}")
            known = {entry.name for entry in fields(cls)}
            values = {key: value for key, value in values.items() if key in known}
            for key in ("inputs", "outputs"):
                values[key] = tuple(map(read_spec, values[key]))
            values["constants"] = tuple(
                ConstantRecord(entry["sha256"], tuple(entry["parameters"]), entry["made_by"])
                for entry in values.get("constants", ())
            )
            if values.get("weights") is not None:
                values["weights"] = read_weights_record(values["weights"])
            if "kernels" in values:
                values["kernels"] = _read_kernels(values["kernels"])
            values["arguments"] = tuple(map(read_argument, values.get("arguments", ())))
            values["owned_outputs"] = tuple(values.get("owned_outputs", ()))
            values["bounds"] = {k: (low, high) for k, (low, high) in values["bounds"].items()}
            if values.get("report") is not None:
                values["report"] = Report.from_dict(values["report"])
            manifest = cls(**values)
            check_types(manifest)
            _check_updates(manifest)
            _check_memory(manifest)
            check_arguments(manifest.arguments, manifest.sizes, manifest.inputs)
            _check_target(manifest.target)
            return manifest
        except ArtifactError:
            raise
        except MALFORMED as error:
            raise ArtifactError(f"malformed manifest: {error!r}") from error


def describe_function(
    function: relax.Function, input_names: Sequence[str] = (), output_names: Sequence[str] = ()
) -> Signature:
    """Describe the inputs, the outputs and the bounds of symbolic dims of a Relax function.

    If it updates inputs (:mod:`tvm_fixes.relax.updates`), results after those with the
    `output_names` are only their new values.

    Parameters
    ----------
    function : relax.Function
        The function, before it is lowered.
    input_names, output_names : sequence of str
        The model's names; by default, those of the parameters, and ``output``, ``output1``.

    A parameter that is a shape of one extent is an integer.

    Returns
    -------
    signature : Signature

    Raises
    ------
    UnsupportedOperatorError
        If an input or an output is not a tensor.
    """
    dim_names: dict[Any, str] = {}
    names = list(input_names) or [str(param.name) for param in function.params]
    inputs = tuple(
        _spec_of(name, param.ty, dim_names, "input")
        for name, param in zip(names, function.params, strict=True)
    )
    sizes = {
        spec.name: _dim_of(param.ty.values[0], dim_names)
        for spec, param in zip(inputs, function.params, strict=True)
        if _is_size(param.ty)
    }
    types = function.ret_ty
    flat = list(types.fields) if isinstance(types, relax.TupleType) else [types]
    declared = updates_of(function)
    updates = {
        spec.name: declared[str(param.name)]
        for spec, param in zip(inputs, function.params, strict=True)
        if str(param.name) in declared
    }
    names = list(output_names)
    if updates and len(names) < len(flat):
        flat = flat[: len(names)] or flat
    if len(names) != len(flat):
        names = [f"output{index or ''}" for index in range(len(flat))]
    outputs = tuple(
        _spec_of(name, ty, dim_names, "output") for name, ty in zip(names, flat, strict=True)
    )
    attrs: Mapping[str, Any] = function.attrs or {}
    lower, upper = (dict(attrs.get(f"tir_var_{end}_bound", {})) for end in ("lower", "upper"))
    bounds = {
        name: (int(lower.get(name, 0)), int(upper[name]) if name in upper else None)
        for name in dim_names.values()
        if name in lower or name in upper
    }
    return Signature(inputs, outputs, bounds, updates, sizes)


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of an artifact.

    Raises
    ------
    ArtifactError
        If `directory` has no manifest, or one that this version does not read.
    """
    try:
        text = read_text(directory / MANIFEST)
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{directory}: not an artifact: {summarize(error)}") from error
    try:
        return Manifest.from_json(text)
    except ArtifactError as error:
        raise ArtifactError(f"{directory / MANIFEST}: {error.message}") from error


def load_whole(directory: Path, load: Callable[[], T]) -> T:
    """Call `load`, and again if another process replaces the artifact in the meantime.

    Otherwise, the loaded files could belong to two artifacts.
    """
    while True:
        before = _text_of(directory)
        try:
            loaded = load()
        except ArtifactError:
            if _text_of(directory) == before:
                raise
        else:
            if _text_of(directory) == before:
                return loaded


def _text_of(directory: Path) -> str | None:
    try:
        return read_text(directory / MANIFEST)
    except (OSError, UnicodeDecodeError):
        return None


def package_versions() -> dict[str, str]:
    """The versions of the packages that compile a model, if installed."""
    versions = {"apache-tvm": str(tvm.__version__)}
    for package in ("apache-tvm-ffi", "tvm-fixes"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def hash_file(path: Path) -> str:
    """The SHA-256 of the file `path`, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _spec_of(name: str, ty: Any, dim_names: dict[Any, str], role: str) -> TensorSpec:
    if role == "input" and _is_size(ty):
        return TensorSpec(name, (), "int64")
    if role == "output" and isinstance(ty, relax.ShapeType):
        # The virtual machine returns a shape as a tuple of dims.
        return TensorSpec(name, (ty.ndim,) if ty.ndim >= 0 else None, "int64")
    if not isinstance(ty, relax.TensorType):
        raise UnsupportedOperatorError(f"{role} {name!r}: expected a tensor, got {ty}")
    dtype = str(ty.dtype) if ty.dtype is not None else "unknown"
    if isinstance(ty.shape, relax.ShapeExpr):
        dims = tuple(_dim_of(dim, dim_names) for dim in ty.shape.values)
        return TensorSpec(name, dims, dtype)
    return TensorSpec(name, ("?",) * ty.ndim if ty.ndim >= 0 else None, dtype)


def _is_size(ty: Any) -> bool:
    return isinstance(ty, relax.ShapeType) and ty.values is not None and len(ty.values) == 1


def _dim_of(dim: Any, dim_names: dict[Any, str]) -> Dim:
    if isinstance(dim, tvm.tirx.IntImm):
        return int(dim)
    if not tvm.ir.is_prim_var(dim):
        return dim_text(dim)
    if dim not in dim_names:
        # Different dims may have the same name, such as "?".
        name = str(dim.name)
        taken = set(dim_names.values())
        if name in ("", "?") or name in taken:
            name = next(f"dim{n}" for n in range(len(taken) + 1) if f"dim{n}" not in taken)
        dim_names[dim] = name
    return dim_names[dim]


def read_weights_record(value: Mapping[str, Any]) -> WeightsRecord:
    """Convert the JSON value of a record."""
    tensors = tuple(
        TensorRecord(
            entry["name"],
            entry["dtype"],
            tuple(map(int, entry["shape"])),
            tuple(entry["parameters"]),
            entry["made_by"],
        )
        for entry in value["tensors"]
    )
    return WeightsRecord(value["size"], value["sha256"], value["header_sha256"], tensors)


def _read_kernels(value: Mapping[str, Any]) -> KernelCalls:
    nodes = tuple(SourceNode(**node) for node in value["nodes"])
    calls = tuple(map(_read_call, value["calls"]))
    if any(not 0 <= place < len(nodes) for call in calls for place in call.nodes):
        raise ValueError("kernels: expected places of nodes")
    if any(not 0 <= place < len(calls) for call in calls for place in call.reads or ()):
        raise ValueError("kernels: expected places of calls")
    return KernelCalls(nodes, calls, value["flops"])


def _read_call(value: Mapping[str, Any]) -> KernelCall:
    """Convert the JSON value of a call; fields vary with the version that wrote it."""
    known: dict[str, Any] = {}
    for name in (entry.name for entry in fields(KernelCall) if entry.name in value):
        known[name] = tuple(value[name]) if isinstance(value[name], list) else value[name]
    return KernelCall(**known)


def read_spec(value: Mapping[str, Any]) -> TensorSpec:
    """Convert the JSON value of a tensor's specification."""
    shape = value["shape"]
    return TensorSpec(value["name"], None if shape is None else tuple(shape), value["dtype"])
