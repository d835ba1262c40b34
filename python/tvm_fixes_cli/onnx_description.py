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
"""The description of an ONNX file, by the package onnx, which loads at once."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .description import Description, Dim, Value, malformed, most_first

if TYPE_CHECKING:
    import onnx

_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "com.microsoft")
_QUOTED = re.compile(r'[".]([A-Z]\w*)"')


def describe(path: str) -> Description:
    """Describe an ONNX file, whose external weights may be missing.

    Raises
    ------
    Failure
        If it is not one.
    """
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise malformed(path, error) from error
    if not model.ir_version or not model.opset_import or not model.graph.output:
        raise malformed(path, "no IR version, opset or outputs")
    graphs = list(_graphs(model.graph))
    nodes = [node for graph in graphs for node in graph.node]
    bodies = [node for function in model.functions for node in function.node]
    tensors = [t for graph in graphs for t in graph.initializer]
    tensors += [s.values for graph in graphs for s in graph.sparse_initializer]
    tensors += [t for node in nodes + bodies for a in node.attribute for t in (a.t, *a.tensors)]
    weights: Counter[str] = Counter()
    for tensor in tensors:
        if tensor.data_type:
            weights[_dtype(tensor.data_type)] += _size(tensor)
    given = {tensor.name for tensor in model.graph.initializer}
    external, missing = _files(tensors, Path(path).parent)
    opsets = (f"{one.domain or 'ai.onnx'} {one.version}" for one in model.opset_import)
    return Description(
        os.path.basename(path),
        f"ONNX, IR version {model.ir_version}, opset {', '.join(opsets)}",
        f"{model.producer_name} {model.producer_version}".strip(),
        [_value(value) for value in model.graph.input if value.name not in given],
        [_value(value) for value in model.graph.output],
        most_first(Counter(map(_full_name, nodes))),
        most_first(weights),
        external=external,
        missing=missing,
        unsupported=unsupported(model, nodes + bodies),
    )


def _graphs(graph: "onnx.GraphProto") -> Iterator["onnx.GraphProto"]:
    """A graph and those nested in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else []
            for part in (*inner, *attribute.graphs):
                yield from _graphs(part)


def _full_name(node: "onnx.NodeProto") -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _dtype(number: int) -> str:
    from onnx import TensorProto

    known = number in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(number) if known else f"dtype {number}"
    return {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower())


def _size(tensor: "onnx.TensorProto") -> int:
    """The bytes of the elements."""
    if tensor.string_data:
        return sum(map(len, tensor.string_data))
    digits = re.search(r"[1-9]\d*", _dtype(tensor.data_type))
    bits = int(digits[0]) if digits else 8
    return math.ceil(math.prod(tensor.dims) * bits / 8)


def _value(value: "onnx.ValueInfoProto") -> Value:
    kind, type_ = "", value.type
    while type_.WhichOneof("value") in ("sequence_type", "optional_type"):
        which = type_.WhichOneof("value")
        kind, type_ = f"{kind}{which.removesuffix('_type')} of ", getattr(type_, which).elem_type
    which = type_.WhichOneof("value")
    tensor: Any = getattr(type_, which) if which else None
    if tensor is None or not hasattr(tensor, "shape"):
        return Value(value.name, f"{kind}{(which or 'unknown').removesuffix('_type')}", None)
    shape = tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else None
    return Value(value.name, kind + _dtype(tensor.elem_type), shape)


def _dim(dim: Any) -> Dim:
    return int(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"


def _files(
    tensors: list["onnx.TensorProto"], folder: Path
) -> tuple[dict[str, int], dict[str, str]]:
    """The files with weights and their sizes; and what is wrong with the others."""
    ends: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for tensor in tensors:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location")
        if tensor.data_location and location is not None:
            counts[location] += 1
            offset = entries.get("offset", "0")
            end = (int(offset) if offset.isdecimal() else 0) + _size(tensor)
            ends[location] = max(ends.get(location, 0), end)
    found, missing = {}, {}
    for location, end in ends.items():
        path = folder / location
        if not path.resolve().is_relative_to(folder.resolve()):
            missing[location] = "not in the folder of the model"
        elif not path.is_file():
            missing[location] = f"no such file in {folder}; weights in it: {counts[location]}"
        elif path.stat().st_size < end:
            missing[location] = f"{path.stat().st_size} bytes, where the model needs {end}"
        else:
            found[location] = path.stat().st_size
    return found, missing


def unsupported(model: "onnx.ModelProto", nodes: list["onnx.NodeProto"]) -> list[str]:
    """The operators that neither an importer names nor ONNX defines by others."""
    from onnx import defs

    own = {(function.domain, function.name) for function in model.functions}
    versions = {one.domain: one.version for one in model.opset_import}
    named = _named_by_importers()

    def is_supported(domain: str, name: str) -> bool:
        if (domain, name) in own or (domain in _DOMAINS and name in named):
            return True
        domain = "" if domain == "ai.onnx" else domain
        try:
            schema = defs.get_schema(name, versions.get(domain, versions.get("ai.onnx", 1)), domain)
        except defs.SchemaError:
            return False
        return bool(schema.has_function or schema.has_context_dependent_function)

    used = {(node.domain, node.op_type): _full_name(node) for node in nodes}
    return sorted(name for key, name in used.items() if named and not is_supported(*key))


def _named_by_importers() -> set[str]:
    """The words in quotes in the text of this package's importer and of TVM's."""
    files: list[Path] = []
    for package, pattern in (
        ("tvm_fixes", "frontend/onnx/**/*.py"),
        ("tvm", "relax/frontend/onnx/onnx_frontend.py"),
    ):
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            return set()
        files += Path(spec.origin).parent.glob(pattern)
    return {word for file in files for word in _QUOTED.findall(file.read_text(errors="replace"))}
