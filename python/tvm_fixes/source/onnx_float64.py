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
"""Evaluation of ONNX models in float64, with bounded memory.

onnx's reference implementation keeps every value to the end, unfolds the data of a convolution
for all taps at once, and has no implementation of some operators for some opsets.  This module
frees each value after its last use, widens each weight when a node reads it, and has its own
implementations of the operators in :mod:`.onnx_float64_operators`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.inliner import inline_local_functions
from onnx.reference import ReferenceEvaluator

from ..frontend.onnx.graph.liveness import names_read
from .onnx_float64_operators import OPERATORS

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


class _Evaluator(ReferenceEvaluator):
    """An evaluator that takes the implementation of a later opset if there is none."""

    def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Any:
        if node.domain in ("", "ai.onnx") and node.op_type in OPERATORS:
            return OPERATORS[node.op_type]
        version = self.opsets[node.domain]
        try:
            for later in range(version, onnx.defs.onnx_opset_version() + 1):
                self.opsets[node.domain] = later
                try:
                    return super()._load_impl(node, input_types)
                except RuntimeError as error:
                    if "No implementation" not in str(error) or node.domain:
                        raise
            raise NotImplementedError(node.op_type)
        finally:
            self.opsets[node.domain] = version


def run_in_float64(
    model: onnx.ModelProto,
    inputs: Mapping[str, np.ndarray],
    names: Sequence[str],
    read: Callable[[onnx.TensorProto], np.ndarray],
    round_result: Callable[[str, np.ndarray], np.ndarray] = lambda name, result: result,
) -> list[np.ndarray]:
    """The outputs `names` of a model, computed in float64.

    Parameters
    ----------
    model : onnx.ModelProto
    inputs : mapping of str to numpy.ndarray
    names : sequence of str
    read : callable
        The value of an initializer.
    round_result : callable
        What later nodes read of a value of the main graph, given its name and its elements.
    """
    light = _without_weights(model)
    if light.functions:
        light = inline_local_functions(light)
    _widen_graph(light.graph)
    evaluator = _Evaluator(light)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    values: dict[str, Any] = {"": None, **evaluator.rt_inits_}
    values |= {name: widened(array) for name, array in inputs.items()}
    reads = [names_read(node) for node in light.graph.node]
    left = Counter(name for each in reads for name in each)
    left.update(names)
    with np.errstate(all="ignore"):
        for node, instance, used in zip(light.graph.node, evaluator.rt_nodes_, reads, strict=True):
            known = {name: values[name] for name in used if name in values}
            for name in used & weights.keys() - known.keys():
                known[name] = widened(read(weights[name]))
            operands = [known.get(name) for name in node.input]
            context = {"context": known} if instance.need_context() else {}
            results = instance.run(*operands, **context)
            del known, operands, context
            values |= {
                name: round_result(name, result)
                for name, result in zip(node.output, results, strict=False)
                if left[name]
            }
            for name in used:
                left[name] -= 1
                if not left[name]:
                    values.pop(name, None)
    for name in names:
        if name not in values:
            values[name] = widened(read(weights[name]))
    return [np.asarray(values[name]) for name in names]


def widened(array: np.ndarray) -> np.ndarray:
    """The array in float64 if it has floats."""
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype("float64") if is_float else array


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model without the data of its initializers, which are not even inputs."""
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph, own = light.graph, model.graph
    graph.name = own.name
    graph.node.extend(own.node)
    graph.output.extend(own.output)
    graph.value_info.extend(own.value_info)
    graph.sparse_initializer.extend(own.sparse_initializer)
    weights = {tensor.name for tensor in own.initializer}
    graph.input.extend(value for value in own.input if value.name not in weights)
    return light


def _widen_graph(graph: onnx.GraphProto) -> None:
    """Change the floating-point constants, casts and declared types of a graph to float64."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in FLOATS:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in FLOATS:
                attribute.i = onnx.TensorProto.DOUBLE
        if node.op_type == "Constant" and node.attribute[0].name in ("value_float", "value_floats"):
            _widen_scalars(node)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in FLOATS:
        array = onnx.numpy_helper.to_array(tensor).astype("float64")
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _widen_scalars(node: onnx.NodeProto) -> None:
    """Turn a Constant of floats, which would be float32, to one of a tensor."""
    [attribute] = node.attribute
    is_scalar = attribute.name == "value_float"
    array = np.array(attribute.f if is_scalar else list(attribute.floats), "float64")
    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(array)))
