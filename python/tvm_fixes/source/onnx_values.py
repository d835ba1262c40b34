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
"""The intermediate values of ONNX graphs, and graphs that return some of them."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, shape_inference
from onnx.inliner import inline_local_functions

from ..frontend.onnx.graph.liveness import names_read
from ..relax.source_nodes import SourceNode
from .base import ModelValue

_UNNUMERIC = frozenset({TensorProto.STRING, TensorProto.UNDEFINED})

_SHAPELESS = frozenset({"Constant", "Identity"})
"""Operators whose results are not worth a comparison: they compute nothing."""


def onnx_values(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]
) -> Iterator[ModelValue]:
    """The tensors that the nodes of the main graph compute, in their order.

    Parameters
    ----------
    model : onnx.ModelProto
    shapes : mapping of str to sequence of int
        The shapes of the inputs.

    Yields
    ------
    ModelValue
        Its size is unknown if shape inference fails.  Strings, sequences and optional values are
        left out.
    """
    types = _inferred(model, shapes)
    for node in model.graph.node:
        if node.op_type in _SHAPELESS:
            continue
        for name in filter(None, node.output):
            ty = types.get(name)
            if ty is None or ty.HasField("tensor_type"):
                element = TensorProto.FLOAT if ty is None else ty.tensor_type.elem_type
                if element not in _UNNUMERIC:
                    origin = SourceNode(node.name or node.output[0], _operator(node))
                    yield ModelValue(name, origin, None if ty is None else _nbytes(ty.tensor_type))


def with_onnx_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A model with the same inputs that returns the values `names`, without unused nodes."""
    needed, kept = set(names), []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(names_read(node))
    types = {value.name: value.type for value in _inferred_values(model)}
    cut = onnx.ModelProto()
    for field in ("ir_version", "producer_name", "domain", "model_version"):
        setattr(cut, field, getattr(model, field))
    cut.opset_import.extend(model.opset_import)
    cut.functions.extend(model.functions)
    cut.graph.name = model.graph.name
    cut.graph.node.extend(reversed(kept))
    initializers = {tensor.name for tensor in model.graph.initializer}
    cut.graph.initializer.extend(t for t in model.graph.initializer if t.name in needed)
    cut.graph.input.extend(
        value
        for value in model.graph.input
        if value.name in needed or value.name not in initializers
    )
    for name in names:
        value = cut.graph.output.add(name=name)
        element = types[name].tensor_type.elem_type if name in types else 0
        if element:
            # The dtype only: the shape may be another one for other inputs.
            value.type.tensor_type.elem_type = element
    return cut


def classes_of_maps(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    """For each value that is a sequence of maps from classes to scores, the classes in order."""
    return {
        node.output[0]: [
            label.decode() if isinstance(label, bytes) else label
            for attribute in node.attribute
            for label in attribute.ints or attribute.strings
        ]
        for node in model.graph.node
        if node.op_type == "ZipMap"
    }


def narrow_floats(model: onnx.ModelProto) -> dict[str, np.dtype]:
    """The dtypes of the values of the main graph that are 16-bit floats."""
    if model.functions:
        model = inline_local_functions(_without_data(model))
    found = {}
    for value in _inferred_values(model):
        element = value.type.tensor_type.elem_type
        if element in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
            found[value.name] = helper.tensor_dtype_to_np_dtype(element)
    return found


def _inferred(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]
) -> dict[str, onnx.TypeProto]:
    """The types of values, for inputs of the given shapes."""
    sized = onnx.ModelProto()
    sized.CopyFrom(_without_data(model))
    for value in sized.graph.input:
        if value.name in shapes:
            element = value.type.tensor_type.elem_type
            value.type.CopyFrom(helper.make_tensor_type_proto(element, shapes[value.name]))
    # Its extents may differ from those that follow from the inputs.
    del sized.graph.value_info[:]
    return {value.name: value.type for value in _inferred_values(sized)}


def _inferred_values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    try:
        graph = shape_inference.infer_shapes(_without_data(model), data_prop=True).graph
    except Exception:  # a model that the checker rejects may run
        graph = model.graph
    return [*graph.value_info, *graph.output]


def _without_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the elements of large initializers, which inference does not need."""
    light = onnx.ModelProto()
    light.CopyFrom(model)
    for tensor in light.graph.initializer:
        if math.prod(tensor.dims) > 1024:
            dims, element, name = list(tensor.dims), tensor.data_type, tensor.name
            tensor.Clear()
            tensor.dims.extend(dims)
            tensor.data_type, tensor.name = element, name
    return light


# Operators whose result has the elements of their first operand.
_ELEMENTS_KEPT = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose")


def index_ranges(graph: onnx.GraphProto) -> dict[str, int]:
    """For each input whose elements select rows of weights, the smallest number of these rows."""
    weights = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    origins = {value.name: value.name for value in graph.input}
    limits: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _ELEMENTS_KEPT and node.input[0] in origins:
            origins[node.output[0]] = origins[node.input[0]]
        if node.op_type != "Gather" or len(node.input) != 2:
            continue
        data, indices = node.input
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        if indices in origins and -len(weights.get(data, ())) <= axis < len(weights.get(data, ())):
            name = origins[indices]
            limits[name] = min(limits.get(name, weights[data][axis]), weights[data][axis])
    return limits


def _operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def _nbytes(tensor: onnx.TypeProto.Tensor) -> int | None:
    dims = tensor.shape.dim if tensor.HasField("shape") else None
    if dims is None or not all(dim.HasField("dim_value") for dim in dims):
        return None
    itemsize = helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize
    return math.prod(dim.dim_value for dim in dims) * int(itemsize)
