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
"""Initializers stored in external files next to the model."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import onnx
import tvm
from onnx import external_data_helper, helper

__all__ = [
    "Place",
    "Read",
    "check_inside",
    "files_of",
    "load_small",
    "place_of",
    "with_external",
    "with_initializers",
    "without_external",
]

# Initializers with more elements stay in their files, unless their elements share bytes.
_MAX_LOADED_ELEMENTS = 1 << 14
_SUB_BYTE = frozenset(
    number
    for name, number in onnx.TensorProto.DataType.items()
    if name in ("INT2", "UINT2", "INT4", "UINT4", "FLOAT4E2M1")
)

Place = tuple[Path, int]
"""A file, and the byte offset of the elements."""

Read = Callable[[onnx.TensorProto], tvm.runtime.Tensor]
"""Returns the tensor of an initializer, whose elements may be stored in a file."""


def check_inside(model: onnx.ModelProto) -> None:
    """Check that a model without a folder stores no tensor in an external file.

    Raises
    ------
    ValueError
        If it does.
    """
    for tensor in itertools.chain(model.graph.initializer, _tensors(model.graph)):
        if external_data_helper.uses_external_data(tensor):
            location = external_data_helper.ExternalDataInfo(tensor).location
            raise ValueError(
                f"initializer {tensor.name!r}: its elements are in the file {location!r}, but a "
                "ModelProto has no folder; pass the path of the model, or load its external data"
            )


def files_of(model: onnx.ModelProto) -> tuple[str, ...]:
    """The files with tensors of a model, relative to its folder."""
    tensors = itertools.chain(model.graph.initializer, _tensors(model.graph))
    stored = filter(external_data_helper.uses_external_data, tensors)
    return tuple(
        sorted({external_data_helper.ExternalDataInfo(tensor).location for tensor in stored})
    )


def load_small(model: onnx.ModelProto, directory: Path) -> None:
    """Load the tensors in external files, except the large initializers of the main graph.

    Raises
    ------
    OSError, ValueError
        If a file is missing, not in `directory`, or too short.
    """
    for tensor in _tensors(model.graph):
        if external_data_helper.uses_external_data(tensor):
            _file_of(tensor, directory)
            external_data_helper.load_external_data_for_tensor(tensor, str(directory))


def place_of(tensor: onnx.TensorProto, nbytes: int, directory: Path) -> Place:
    """The file and offset of the `nbytes` bytes of an initializer's elements.

    Raises
    ------
    ValueError
        If they are not within a file in `directory`.
    """
    info = external_data_helper.ExternalDataInfo(tensor)
    path = _file_of(tensor, directory)
    begin, size = info.offset or 0, path.stat().st_size
    if info.length not in (None, nbytes) or begin + nbytes > size:
        raise ValueError(
            f"initializer {tensor.name!r}: expected {nbytes} bytes at offset {begin} of {path}; "
            f"the file has {size} bytes, and the model gives a length of {info.length}"
        )
    return path, begin


def _file_of(tensor: onnx.TensorProto, directory: Path) -> Path:
    """The file with the elements of a tensor, which must be in the model's folder."""
    location = external_data_helper.ExternalDataInfo(tensor).location
    path = (directory / location).resolve()
    if not path.is_relative_to(directory.resolve()):
        raise ValueError(
            f"initializer {tensor.name!r}: its file {location!r} is not in the model's folder "
            f"{directory}"
        )
    if not path.is_file():
        raise ValueError(
            f"initializer {tensor.name!r}: its file {location!r} is missing in {directory}"
        )
    return path


def with_external(model: onnx.ModelProto, read: Read) -> onnx.ModelProto:
    """A copy of `model` that contains the elements stored in files, as `read` returns them."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for initializer in whole.graph.initializer:
        if external_data_helper.uses_external_data(initializer):
            array = read(initializer).numpy()
            initializer.CopyFrom(onnx.numpy_helper.from_array(array, initializer.name))
    return whole


def with_initializers(
    model: onnx.ModelProto, initializers: Iterable[onnx.TensorProto]
) -> onnx.ModelProto:
    """`model` with these initializers instead of its own; does not copy its own."""
    graph = model.graph
    return onnx.ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        functions=model.functions,
        graph=onnx.GraphProto(
            name=graph.name,
            node=graph.node,
            input=graph.input,
            output=graph.output,
            value_info=graph.value_info,
            initializer=initializers,
        ),
    )


def without_external(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with inputs instead of the initializers stored in files."""
    graph = model.graph
    external = [i for i in graph.initializer if external_data_helper.uses_external_data(i)]
    if not external:
        return model
    inside = [i for i in graph.initializer if not external_data_helper.uses_external_data(i)]
    light = with_initializers(model, inside)
    inputs = {value.name for value in graph.input}
    light.graph.input.extend(
        helper.make_tensor_value_info(i.name, i.data_type, i.dims)
        for i in external
        if i.name not in inputs
    )
    return light


def _tensors(graph: onnx.GraphProto, *, inner: bool = False) -> Iterator[onnx.TensorProto]:
    """Yield the tensors to load: attributes, small initializers, all initializers of branches."""
    for tensor in graph.initializer:
        if inner or math.prod(tensor.dims) <= _MAX_LOADED_ELEMENTS or tensor.data_type in _SUB_BYTE:
            yield tensor
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for body in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _tensors(body, inner=True)
