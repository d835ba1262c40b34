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
"""Reduces an ONNX model with a fault to a small model with the same fault."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper, printer

from . import onnx_oracle
from .values import literal

Arrays = Mapping[str, np.ndarray]
Fails = Callable[[onnx.ModelProto, Arrays], bool]


def reduce(
    model: onnx.ModelProto, inputs: Arrays, fails: Fails
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A part of `model` that still fails, with its inputs.

    Parameters
    ----------
    model : onnx.ModelProto
    inputs : mapping of str to numpy.ndarray
    fails : callable
        Whether a model with its inputs has the fault.

    Notes
    -----
    First drops outputs, then nodes: the results of a node become inputs with the oracle's values.
    Keeps each step that preserves the fault.
    """
    inputs = dict(inputs)
    smaller = True
    while smaller:
        smaller = False
        for candidate, arrays in _candidates(model, inputs):
            if fails(candidate, arrays):
                model, inputs, smaller = candidate, arrays, True
                break
    return model, inputs


def _candidates(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray]
) -> Iterator[tuple[onnx.ModelProto, dict[str, np.ndarray]]]:
    if len(model.graph.output) > 1:
        for output in model.graph.output:
            yield _pruned(_copy(model, outputs=[output]), inputs)
    values = _intermediate_values(model, inputs)
    for index in reversed(range(len(model.graph.node))):
        names = [name for name in model.graph.node[index].output if name]
        ends = {output.name for output in model.graph.output}
        if not ends.isdisjoint(names) or not all(name in values for name in names):
            continue
        nodes = [node for i, node in enumerate(model.graph.node) if i != index]
        cut = {name: values[name] for name in names}
        yield _pruned(_copy(model, nodes=nodes, more_inputs=cut), inputs | cut)
    for node in model.graph.node:
        # Replace the result of the last node by its operand.
        if node.output[0] == model.graph.output[0].name and len(model.graph.node) > 1:
            for name in node.input:
                if name in values:
                    output = helper.make_tensor_value_info(name, _element(values[name]), None)
                    yield _pruned(_copy(model, outputs=[output]), inputs)


def _element(array: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _intermediate_values(model: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    names = [name for node in model.graph.node for name in node.output if name]
    whole = _copy(model, outputs=[onnx.ValueInfoProto(name=name) for name in names])
    results = onnx_oracle.outputs(whole, inputs)
    return {} if results is None else dict(zip(names, results, strict=True))


def _copy(
    model: onnx.ModelProto,
    *,
    nodes: list[onnx.NodeProto] | None = None,
    outputs: list[onnx.ValueInfoProto] | None = None,
    more_inputs: Arrays | None = None,
) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if nodes is not None:
        del copy.graph.node[:]
        copy.graph.node.extend(nodes)
    if outputs is not None:
        del copy.graph.output[:]
        copy.graph.output.extend(outputs)
    for name, array in (more_inputs or {}).items():
        info = helper.make_tensor_value_info(name, _element(array), array.shape)
        copy.graph.input.append(info)
    return copy


def _pruned(
    model: onnx.ModelProto, inputs: Arrays
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """`model` without nodes and inputs that its outputs do not need."""
    graph = model.graph
    needed = {output.name for output in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            kept.insert(0, node)
            needed |= onnx_oracle.names_read(node)
    del graph.node[:]
    graph.node.extend(kept)
    for field in (graph.input, graph.initializer):
        left = [item for item in field if item.name in needed]
        del field[:]
        field.extend(left)
    return model, {value.name: inputs[value.name] for value in graph.input}


def as_test(model: onnx.ModelProto, inputs: Arrays, message: str) -> str:
    """The source of a test that fails like `model`."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    constants = {t.name: numpy_helper.to_array(t) for t in bare.graph.initializer}
    # The text form of initializers cannot express special values; the test adds initializers.
    del bare.graph.initializer[:]
    lines = [f"# {line}" for line in message.splitlines()[:3]]
    lines += ["model = onnx.parser.parse_model(", f'    """{printer.to_text(bare)}"""', ")"]
    for name, array in constants.items():
        lines.append(f"add_initializer(model, {name!r}, {_short(array)})")
    pairs = ", ".join(f"{name!r}: {_short(array)}" for name, array in inputs.items())
    lines.append(f"assert check(model, [{{{pairs}}}], TARGET) is None")
    return "\n".join(lines)


def _short(array: np.ndarray, limit: int = 64) -> str:
    if array.size <= limit:
        return literal(array)
    return f"random({array.dtype.name!r}, {array.shape})  # such as {array.ravel()[:4]}"
