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
"""The order of the nodes of a graph.

ONNX demands that a node comes after the nodes whose results it reads.  ONNX Runtime sorts the
nodes, so tools write models in any order: onnxconverter_common's float16 converter appends casts.
"""

from collections.abc import Iterator, Sequence

import onnx

from .check import describe_node

__all__ = ["in_order", "outer_names"]

_MAX_NAMED = 5
"""The maximum number of nodes that the message about a cycle lists."""


def in_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with nodes after those whose results they read; `model` itself if they are.

    A node moves to before the first node that needs it.  Nested graphs and functions are ordered
    too.

    Raises
    ------
    ValueError
        If nodes form a cycle.
    """
    if all(_order_of(nodes) == list(range(len(nodes))) for nodes in _node_lists(model)):
        return model
    ordered = onnx.ModelProto()
    ordered.CopyFrom(model)
    for graph in (ordered.graph, *ordered.functions):
        _sort(graph)
    return ordered


def outer_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a graph reads and does not define."""
    own = {value.name for value in (*graph.input, *graph.initializer)}
    own.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        yield from (name for name in _names_of_operands(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def _names_of_operands(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, and those that its graphs read from outside."""
    yield from filter(None, node.input)
    for body in _bodies(node):
        yield from outer_names(body)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _node_lists(model: onnx.ModelProto) -> Iterator[Sequence[onnx.NodeProto]]:
    pending = [model.graph.node, *(function.node for function in model.functions)]
    while pending:
        nodes = pending.pop()
        yield nodes
        pending.extend(body.node for node in nodes for body in _bodies(node))


def _sort(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    for node in graph.node:
        for body in _bodies(node):
            _sort(body)
    order = _order_of(graph.node)
    if order != list(range(len(order))):
        nodes = [graph.node[place] for place in order]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _order_of(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """The places of `nodes` in an order in which each comes after those that it depends on."""
    producers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    order: list[int] = []
    is_done = [False] * len(nodes)
    for first in range(len(nodes)):
        path: list[tuple[int, Iterator[int]]] = []
        _enter(first, path, nodes, producers)
        open_places = {first}
        while path:
            place, operands = path[-1]
            following = next((other for other in operands if not is_done[other]), None)
            if is_done[place] or following is None:
                path.pop()
                open_places.discard(place)
                if not is_done[place]:
                    is_done[place] = True
                    order.append(place)
            elif following in open_places:
                cycle = [other for other, _ in path]
                raise _cycle([nodes[other] for other in cycle[cycle.index(following) :]])
            else:
                _enter(following, path, nodes, producers)
                open_places.add(following)
    return order


def _enter(
    place: int,
    path: list[tuple[int, Iterator[int]]],
    nodes: Sequence[onnx.NodeProto],
    producers: dict[str, int],
) -> None:
    """Append a node to `path`, with the nodes that it depends on."""
    names = _names_of_operands(nodes[place])
    path.append((place, iter([producers[name] for name in names if name in producers])))


def _cycle(nodes: Sequence[onnx.NodeProto]) -> ValueError:
    listed = [describe_node(node) for node in nodes[-_MAX_NAMED:]]
    more = f" and {len(nodes) - _MAX_NAMED} more nodes" if len(nodes) > _MAX_NAMED else ""
    return ValueError(f"{listed[-1]} depends on its own result, through {', '.join(listed)}{more}")
