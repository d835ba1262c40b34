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
"""The graph of a partition, arranged for the importer.

Inputs are tensors, then symbolic numbers: those that are symbols stand before expressions of them.
A symbol that no tensor has as a size becomes an input.  An output whose elements PyTorch orders
otherwise in memory, such as a transpose, is returned in that order::

    before: view(x)                          # a fake tensor of shape (2, 3), strides (1, 2)
    after:  permute(view(x), [1, 0])         # the caller permutes it back, which moves no element
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..errors import OpNotImplemented
from ..frontend.torch.values.memory_order import has_gaps, memory_order

__all__ = ["Arranged", "arrange"]


@dataclass(frozen=True)
class Arranged:
    """A partition that can be imported.

    Attributes
    ----------
    module : torch.fx.GraphModule
        The graph.
    arguments : tuple of fx.Node
        The nodes of the whole graph that are the inputs.
    tensors, symbols : int
        The number of tensors among them, and of the symbols after these; the others are numbers
        that follow from both.
    orders : tuple of tuple of int, or of None
        For each output, the permutation that gives its axes back; None if there is none.
    """

    module: fx.GraphModule
    arguments: tuple[fx.Node, ...]
    tensors: int
    symbols: int
    orders: tuple[tuple[int, ...] | None, ...]


def arrange(
    part: fx.GraphModule, arguments: Sequence[fx.Node], symbols: Mapping[Any, fx.Node]
) -> Arranged:
    """Arrange a partition.

    Parameters
    ----------
    part : torch.fx.GraphModule
        The graph of the partition, which returns a tuple.
    arguments : sequence of fx.Node
        The nodes of the whole graph for its inputs.
    symbols : mapping of sympy.Symbol to fx.Node
        The inputs of the whole graph that are symbols.

    Raises
    ------
    OpNotImplemented
        If an input is neither a tensor nor an integer, or if no input determines a symbol.
    """
    placeholders = part.graph.find_nodes(op="placeholder")
    pairs = list(zip(placeholders, arguments, strict=True))
    tensors = [pair for pair in pairs if isinstance(pair[0].meta["val"], torch.Tensor)]
    numbers = [pair for pair in pairs if pair not in tensors]
    for node, _ in numbers:
        if not isinstance(node.meta["val"], torch.SymInt):
            raise OpNotImplemented(f"input {node.name!r}: a {type(node.meta['val']).__name__}")
    plain = [pair for pair in numbers if _expression(pair[0]).is_Symbol]
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    order = [*tensors, *plain]
    for node, _ in order:
        values[node] = graph.node_copy(node)
    extra = _undetermined(part.graph, [node for node, _ in order])
    unknown = [str(symbol) for symbol in extra if symbol not in symbols]
    if unknown:
        raise OpNotImplemented(f"no input determines {', '.join(unknown)}")
    for symbol in extra:
        graph.placeholder(f"symbol_{symbol}").meta["val"] = symbols[symbol].meta["val"]
    expressions = [pair for pair in numbers if pair not in plain]
    for node, _ in expressions:
        values[node] = graph.node_copy(node)
    for node in part.graph.nodes:
        if node.op not in ("placeholder", "output"):
            values[node] = graph.node_copy(node, values.__getitem__)
    results = [values[node] for node in part.graph.output_node().args[0]]
    orders = [_order_of(node.meta["val"]) for node in results]
    graph.output(tuple(map(_permuted, results, orders)))
    used = [
        *(argument for _, argument in order),
        *(symbols[symbol] for symbol in extra),
        *(argument for _, argument in expressions),
    ]
    back = (None if order is None else _inverse(order) for order in orders)
    number = len(plain) + len(extra)
    return Arranged(fx.GraphModule(part, graph), tuple(used), len(tensors), number, tuple(back))


def _expression(node: fx.Node) -> Any:
    return node.meta["val"].node.expr


def _undetermined(graph: fx.Graph, inputs: Sequence[fx.Node]) -> list[Any]:
    """The symbols of a graph that are neither inputs nor sizes of inputs, by name."""
    bound = {size for node in inputs for size in _sizes(node.meta["val"]) if size.is_Symbol}
    free = {
        symbol
        for node in graph.nodes
        if "val" in node.meta
        for size in _sizes(node.meta["val"])
        for symbol in size.free_symbols
    }
    return sorted(free - bound, key=str)


def _sizes(value: Any) -> Iterable[Any]:
    """The symbolic sizes of a value, or the value itself."""
    if isinstance(value, tuple | list):
        return [size for part in value for size in _sizes(part)]
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    return [size.node.expr for size in sizes if isinstance(size, torch.SymInt)]


def _order_of(value: torch.Tensor) -> tuple[int, ...] | None:
    """The axes of a tensor from the outermost in memory; None if they are in order or have gaps."""
    order = memory_order(value)
    return None if order == tuple(range(value.ndim)) or has_gaps(value) else order


def _permuted(node: fx.Node, order: tuple[int, ...] | None) -> fx.Node:
    if order is None:
        return node
    permute = torch.ops.aten.permute.default
    with node.graph.inserting_after(node):
        permuted = node.graph.call_function(permute, (node, list(order)))
    value = node.meta["val"]
    with value.fake_mode:
        permuted.meta["val"] = value.permute(order)
    return permuted


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))
