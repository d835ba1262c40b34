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
"""Sparse tensors of ONNX models, made dense."""

import math

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .check import describe_node

__all__ = ["with_dense_tensors"]

_MAX_DENSE_BYTES = 1 << 30
"""The maximum size of a tensor that is stored in sparse form."""


def with_dense_tensors(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with dense tensors instead of sparse ones; `model` itself if it has none.

    Raises
    ------
    ValueError
        If a sparse tensor is invalid, or too large to be stored in dense form.
    """
    if not any(map(_has_sparse_tensors, (model.graph, *model.functions))):
        return model
    dense = onnx.ModelProto()
    dense.CopyFrom(model)
    for graph in (dense.graph, *dense.functions):
        _make_dense(graph)
    return dense


def _sparse_attribute(node: onnx.NodeProto) -> onnx.AttributeProto | None:
    """The attribute of a Constant with a sparse tensor."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    return next((a for a in node.attribute if a.name == "sparse_value"), None)


def _has_sparse_tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> bool:
    if isinstance(graph, onnx.GraphProto) and graph.sparse_initializer:
        return True
    for node in graph.node:
        if _sparse_attribute(node) is not None or any(map(_has_sparse_tensors, _bodies(node))):
            return True
    return False


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [
        body
        for attribute in node.attribute
        for body in ([attribute.g] if attribute.HasField("g") else attribute.graphs)
    ]


def _make_dense(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Replace the sparse tensors of a graph or function."""
    if isinstance(graph, onnx.GraphProto):
        for tensor in graph.sparse_initializer:
            what = f"sparse initializer {tensor.values.name!r}"
            graph.initializer.append(_dense(tensor, tensor.values.name, what))
        del graph.sparse_initializer[:]
    for node in graph.node:
        for body in _bodies(node):
            _make_dense(body)
        attribute = _sparse_attribute(node)
        if attribute is not None:
            what = f"{describe_node(node)}: attribute 'sparse_value'"
            tensor = _dense(attribute.sparse_tensor, "", what)
            attribute.CopyFrom(helper.make_attribute("value", tensor))


def _dense(tensor: onnx.SparseTensorProto, name: str, what: str) -> onnx.TensorProto:
    """A sparse tensor in dense form; `what` describes it in messages."""
    shape = list(tensor.dims)
    values = numpy_helper.to_array(tensor.values)
    places = numpy_helper.to_array(tensor.indices)
    size = math.prod(shape)
    if any(extent <= 0 for extent in shape):
        raise ValueError(f"{what}: shape {shape}; expected positive extents")
    if size * values.dtype.itemsize > _MAX_DENSE_BYTES:
        raise ValueError(
            f"{what}: shape {shape} takes {size * values.dtype.itemsize} bytes in dense form; "
            f"expected at most {_MAX_DENSE_BYTES}"
        )
    if places.ndim == 2 and places.shape[1] == len(shape):
        if np.any((places < 0) | (places >= np.array(shape))):
            raise ValueError(f"{what}: indices are not within the shape {shape}")
        places = np.ravel_multi_index(tuple(places.T), shape)
    if values.ndim != 1 or places.shape != values.shape:
        raise ValueError(
            f"{what}: indices of shape {places.shape} for values of shape {values.shape}; "
            "expected one index per value"
        )
    if np.any((places < 0) | (places >= size)):
        raise ValueError(f"{what}: indices are not within the {size} elements")
    flat = np.zeros(size, values.dtype)
    flat[places] = values
    return numpy_helper.from_array(flat.reshape(shape), name)
