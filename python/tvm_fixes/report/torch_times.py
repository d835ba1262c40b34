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
"""The times of the nodes of an exported program in PyTorch."""

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree

from ..frontend.torch.graph.signature import call_arguments
from ..frontend.torch.graph.source_nodes import source_node
from ..source.torch import TorchSource
from ..support.tensors import to_torch
from ..support.threads import thread_count
from .node_times import NodeTime

_MIN_RUNS = 3

_MAX_RUNS = 10_000


def torch_node_times(
    source: TorchSource, inputs: Sequence[np.ndarray], seconds: float, _: float
) -> list[NodeTime]:
    """Measure the nodes of the program in eager mode for `seconds`."""
    torch.set_num_threads(thread_count())
    program = source.program
    machine = _Timing(program.module())
    args, kwargs = call_arguments(program, list(map(to_torch, inputs)))
    leaves = pytree.tree_leaves((args, kwargs))
    end = time.perf_counter() + seconds
    runs = 0
    with torch.no_grad():
        while runs <= _MIN_RUNS or (time.perf_counter() < end and runs < _MAX_RUNS):
            machine.run(*leaves)
            runs += 1
    nodes = {node.name: source_node(node) for node in program.graph.nodes}
    return [
        # The first run is a warm-up.
        NodeTime((nodes[node.name],), _name_of(node), statistics.median(taken[1:]))
        for node, taken in machine.taken.items()
        if node.name in nodes
    ]


def _name_of(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target)).partition(".")[0]


class _Timing(fx.Interpreter):
    """Runs a graph, and measures each node.

    Attributes
    ----------
    taken : dict of fx.Node to list of float
        The seconds of each run.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.taken: dict[fx.Node, list[float]] = defaultdict(list)

    def run_node(self, node: fx.Node) -> Any:
        if node.op != "call_function":
            return super().run_node(node)
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        start = time.perf_counter()
        result = self.call_function(node.target, args, kwargs)
        self.taken[node].append(time.perf_counter() - start)
        return result
