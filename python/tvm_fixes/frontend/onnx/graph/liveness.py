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
"""The nodes of a graph that its outputs need."""

from collections.abc import Iterable

import onnx

from ....errors import OpNotImplemented
from .node_errors import name_of

__all__ = ["live_nodes", "names_read", "without_strings"]


def live_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes that the outputs of a graph need, in their order.

    ONNX Runtime does not compute the others either; exporters leave nodes of unsupported operators,
    and tensors of strings, that nothing reads. Optional outputs after the last one that is read are
    dropped, such as the mask of a Dropout.

    Parameters
    ----------
    graph : onnx.GraphProto
        Its nodes may be in any order.
    """
    producers = {name: place for place, node in enumerate(graph.node) for name in node.output}
    read: set[str] = set()
    live: set[int] = set()
    pending = {output.name for output in graph.output}
    while pending:
        read |= pending
        found = {producers[name] for name in pending if name in producers} - live
        live |= found
        pending = set[str]().union(*(names_read(graph.node[place]) for place in found)) - read
    return [_without_unread_outputs(graph.node[place], read) for place in sorted(live)]


def names_read(node: onnx.NodeProto) -> set[str]:
    """The names that a node and its subgraphs read, with those that the subgraphs define."""
    names = set(filter(None, node.input))
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            names |= {output.name for output in graph.output}
            names = names.union(*map(names_read, graph.node))
    return names


def without_strings(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """The initializers of a graph without those of strings, which no live node may read.

    Raises
    ------
    tvm.error.OpNotImplemented
        If a live node reads or defines a tensor of strings.
    """
    texts = {t.name for t in graph.initializer if t.data_type == onnx.TensorProto.STRING}
    for node in live_nodes(graph):
        read = texts.intersection(names_read(node))
        is_text = any(
            attribute.name in ("value_string", "value_strings")
            or attribute.t.data_type == onnx.TensorProto.STRING
            for attribute in node.attribute
            if node.op_type == "Constant"
        )
        if read or is_text:
            what = f"initializer {min(read)!r}" if read else "its value"
            raise OpNotImplemented(
                f"{node.op_type} {name_of(node)!r}: element type of {what} is STRING, but tensors "
                "hold no strings; encode them as numbers, and remove the operators that do so from "
                "the model"
            )
    return [tensor for tensor in graph.initializer if tensor.name not in texts]


def _without_unread_outputs(node: onnx.NodeProto, read: Iterable[str]) -> onnx.NodeProto:
    last = max(index for index, name in enumerate(node.output) if name in read)
    count = len(node.output)
    while count > last + 1 and _is_optional(node, count - 1):
        count -= 1
    if count == len(node.output):
        return node
    kept = onnx.NodeProto()
    kept.CopyFrom(node)
    del kept.output[count:]
    return kept


def _is_optional(node: onnx.NodeProto, place: int) -> bool:
    """Whether a node may leave out an output: not if their number has a meaning, as in a Split."""
    if not onnx.defs.has(node.op_type, node.domain):
        return False
    outputs = onnx.defs.get_schema(node.op_type, node.domain).outputs
    if any(
        output.option == onnx.defs.OpSchema.FormalParameterOption.Variadic for output in outputs
    ):
        return False
    # Older versions of BatchNormalization have more outputs, which are optional.
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return place >= len(outputs) or outputs[place].option == optional
