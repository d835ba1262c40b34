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
"""Operands that a converter must know, computed from constants while the graph is still ONNX."""

from collections.abc import Callable, Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

__all__ = ["fold_operands"]

_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


def fold_operands(
    graph: onnx.GraphProto,
    operators: Collection[str],
    opset: int,
    value_of: Callable[[str], np.ndarray | None],
) -> onnx.GraphProto:
    """Compute what the operands, after the first, of nodes of some operators depend on.

    Parameters
    ----------
    graph : onnx.GraphProto
        Is not changed.
    operators : collection of str
        Types of nodes.
    opset : int
        The version of the default operator set.
    value_of : callable
        Gives the value of a name from outside, say of an initializer, or None.

    Returns
    -------
    onnx.GraphProto
        `graph` itself if there is nothing to fold. Otherwise its outputs and its nodes, of which
        those that compute such operands from constants are Constants.
    """
    needed = _needed(graph, operators)
    # TVM reads a Constant that is given as a tensor, not one that is given as integers.
    if not any(
        not needed.isdisjoint(node.output)
        and not any(attribute.name == "value" for attribute in node.attribute)
        for node in graph.node
    ):
        return graph

    known = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name in needed}
    nodes = []
    for node in graph.node:
        values = None
        if not needed.isdisjoint(node.output):
            operands = {
                name: known[name] if name in known else value_of(name)
                for name in node.input
                if name
            }
            values = _evaluate(node, operands, opset)
        if values is None:
            nodes.append(node)
            continue
        for name, value in values.items():
            known[name] = value
            tensor = numpy_helper.from_array(value)
            nodes.append(helper.make_node("Constant", [], [name], name=node.name, value=tensor))
    return onnx.GraphProto(name=graph.name, node=nodes, output=graph.output)


def _needed(graph: onnx.GraphProto, operators: Collection[str]) -> set[str]:
    """The names of all that such operands depend on, also of nodes in branches."""
    needed: set[str] = set()
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(node.input)
        if node.op_type in operators:
            needed.update(node.input[1:])
        for attribute in node.attribute:
            if attribute.HasField("g"):
                needed |= _needed(attribute.g, operators)
    return needed


def _evaluate(
    node: onnx.NodeProto, operands: dict[str, np.ndarray | None], opset: int
) -> dict[str, np.ndarray] | None:
    """The outputs of a node by name, or None if they are no constants or cannot be computed."""
    if node.op_type in _RANDOM or any(value is None for value in operands.values()):
        return None
    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "constant",
        [helper.make_value_info(name, onnx.TypeProto()) for name in operands],
        [helper.make_value_info(name, onnx.TypeProto()) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        results = ReferenceEvaluator(model).run(None, operands)
    except Exception:  # the node stays, and the converter says which operand it needs
        return None
    if not all(isinstance(result, np.ndarray) for result in results):
        return None
    return dict(zip(outputs, results, strict=True))
