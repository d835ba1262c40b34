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
"""Compilation of a graph of ATen operators: partitions, and the rest for PyTorch."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from ..errors import summarize
from ..frontend.torch.call import known_operators
from ..frontend.torch.functional_graph import NodeError, copied, is_random
from ..frontend.torch.graph.decompositions import name_of
from .arranged import arrange
from .capability import Capability, is_compute
from .explanation import Graph
from .options import Options
from .partition import Partition
from .returned_views import separate_returned_views
from .updates import COPY, updated_inputs

__all__ = ["Compiled", "compile_graph"]

# AOTAutograd makes numbers that are computed from tensors, tensors, with operators of its own.
_SAME = {torch.ops.aten.true_divide.Tensor: torch.ops.aten.div.Tensor}

_MAX_ROUNDS = 8
"""The number of attempts to partition a graph, each without the nodes that failed before."""


@dataclass
class _Split:
    """A graph, some of whose nodes are calls of partitions."""

    module: fx.GraphModule
    partitions: dict[str, Partition] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class Compiled(NamedTuple):
    """The result of :func:`compile_graph`.

    Attributes
    ----------
    module : torch.fx.GraphModule
        The graph with calls of partitions; a graph of its own.
    description : Graph
        What is compiled.
    has_failures : bool
        Whether PyTorch runs nodes because an attempt to compile them failed.
    """

    module: fx.GraphModule
    description: Graph
    has_failures: bool = False


def compile_graph(module: fx.GraphModule, options: Options) -> Compiled:
    """Compile what can be compiled of a graph.

    Parameters
    ----------
    module : torch.fx.GraphModule
        A graph of calls of ATen operators, of which only ``copy_`` writes to a tensor.
    options : Options

    Returns
    -------
    compiled : Compiled
    """
    obstacle = _obstacle(module)
    if obstacle:
        return Compiled(module, Graph(skipped=obstacle))
    module = _renamed(module)
    excluded: dict[str, str] = {}
    known = known_operators()
    split = _Split(module)
    for _ in range(_MAX_ROUNDS):
        split = _split(module, known, excluded, options)
        for partition in split.partitions.values():
            if not split.failures:
                split.failures |= _build(partition)
        if not split.failures:
            break
        excluded |= split.failures
    else:
        split = _Split(module)
    if _random_nodes(split.module) != _random_nodes(module):
        return Compiled(
            module, Graph(skipped="partitions would change the order of random numbers")
        )
    described = _described(module, split, Capability(known, excluded))
    return Compiled(split.module, described, bool(excluded))


def _obstacle(module: fx.GraphModule) -> str:
    """Why no part of a graph can be compiled; empty if one can."""
    for node in _calls(module):
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable and node.target is not COPY:
            return f"{name_of(node.target)}: writes to a tensor"
    return ""


def _calls(module: fx.GraphModule) -> Iterator[fx.Node]:
    return (node for node in module.graph.nodes if node.op == "call_function")


def _random_nodes(module: fx.GraphModule) -> list[str]:
    return [node.name for node in _calls(module) if is_random(node)]


def _split(
    module: fx.GraphModule,
    known: Container[str],
    excluded: Mapping[str, str],
    options: Options,
) -> _Split:
    """Make partitions, and import them."""
    split = _Split(copied(module))
    fused = split.module
    groups = _groups(fused, known, excluded)
    fuse_by_partitions(fused, groups, prefix="partition_", always_return_tuple=True)
    symbols = {
        node.meta["val"].node.expr: node
        for node in fused.graph.find_nodes(op="placeholder")
        if isinstance(node.meta.get("val"), torch.SymInt)
    }
    for call in fused.graph.find_nodes(op="call_module"):
        part = getattr(fused, call.target)
        try:
            arranged = arrange(part, call.args, symbols)
            updates = updated_inputs(arranged, call)
            others = _other_tensors(fused, call) if updates else ()
            partition = Partition.of(arranged, updates, others, options)
        except NodeError as error:
            # The importer's graph has nodes of its own, too.
            failed = [node for node in _calls(part) if node.name == error.node]
            split.failures |= _failures(failed or _calls(part), error.__cause__ or error)
        except Exception as error:
            split.failures |= _failures(_calls(part), error)
        else:
            call.args = (*arranged.arguments, *others)
            setattr(fused, call.target, partition)
            split.partitions[call.target] = partition
    # What reads an input must run before it is written to.
    last = fused.graph.output_node()
    for node in fused.graph.find_nodes(op="call_function", target=COPY):
        last.prepend(node)
    fused.recompile()
    return split


def _other_tensors(module: fx.GraphModule, call: fx.Node) -> list[fx.Node]:
    """The inputs of a graph that are tensors, and are used, but not by the call."""
    nodes = module.graph.find_nodes(op="placeholder")
    used = [node for node in nodes if node.users and call not in node.users]
    return [node for node in used if isinstance(node.meta["val"], torch.Tensor)]


def _renamed(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph, in operators that have converters."""
    renamed = copied(module)
    for node in _calls(renamed):
        node.target = _SAME.get(node.target, node.target)
        if node.target is torch.ops.prims.convert_element_type.default:
            node.target = torch.ops.aten._to_copy.default
            node.args, node.kwargs = node.args[:1], {"dtype": node.args[1]}
    return renamed


def _groups(
    module: fx.GraphModule, known: Container[str], excluded: Mapping[str, str]
) -> list[dict[fx.Node, None]]:
    """The nodes of each partition."""
    views = separate_returned_views(module.graph)
    capability = Capability(known, {**excluded, **dict.fromkeys(views, "a view that is returned")})
    calls = [node for node in _calls(module) if node.target is not COPY and node.name not in views]
    if all(capability.is_node_supported(None, node) for node in calls):
        groups = [calls]
    else:
        partitioner = CapabilityBasedPartitioner(
            module, capability, allows_single_node_partition=True
        )
        groups = [list(partition.nodes) for partition in partitioner.propose_partitions()]
    return [dict.fromkeys(nodes) for nodes in groups if any(map(is_compute, nodes))]


def _build(partition: Partition) -> dict[str, str]:
    """Compile a partition; return the nodes that failed with the reason."""
    try:
        partition.build()
    except Exception as error:
        return _failures(_calls(partition.eager), error)
    return {}


def _failures(nodes: Iterable[fx.Node], error: BaseException) -> dict[str, str]:
    """The reason for each node that cannot be compiled."""
    message = summarize(error, 200)
    return {node.name: f"{name_of(node.target)}: {message}" for node in nodes}


def _described(module: fx.GraphModule, split: _Split, capability: Capability) -> Graph:
    sizes = tuple(partition.operators for partition in split.partitions.values())
    left = {node.name for node in _calls(split.module)}
    eager: dict[str, str] = {}
    for node in _calls(module):
        if node.name not in left or node.target is COPY or not is_compute(node):
            continue
        reason = capability.obstacle(node)
        if reason is not None and not _is_of_sizes(node):
            eager[node.name] = reason
    return Graph(sizes, eager)


def _is_of_sizes(node: fx.Node) -> bool:
    """Whether a node computes a number, only from sizes."""
    is_number = isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)
    is_size = node.target is torch.ops.aten.sym_size.int
    return is_number and (is_size or not isinstance(node.target, torch._ops.OpOverload))
