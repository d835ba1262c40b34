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
"""A compiled part of a graph."""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import tvm
from torch import fx, nn
from tvm import relax

from ..errors import summarize
from ..frontend.torch.functional_graph import from_functional_graph
from ..lowering import pipeline
from ..relax.owned_results import owned_results, results_in_parameters
from ..relax.updates import with_updates
from ..runtime import after_fork
from ..support.serial import in_turn
from ..tirx.transform.lower_alignment import alignment_of
from .arranged import Arranged
from .inputs import Inputs
from .kernels import CachedKernels, Kernels, Memory, in_memory
from .options import Options

__all__ = ["Partition"]

_log = logging.getLogger(__name__)


class Partition(nn.Module):
    """A compiled partition; PyTorch runs it after an error.

    Parameters
    ----------
    arranged : Arranged
        The graph.
    updates : mapping of int to int
        The inputs that compiled code may update in place, each with the output of its new value.
    others : sequence of fx.Node
        Other tensors that a call gets: inputs that are updated must not share memory with them.
    options : Options

    Attributes
    ----------
    eager : torch.fx.GraphModule
        What PyTorch runs after an error.
    operators : int
        The number of operators.
    """

    lock: threading.RLock

    def __init__(
        self,
        arranged: Arranged,
        updates: Mapping[int, int],
        others: Sequence[fx.Node],
        options: Options,
    ) -> None:
        super().__init__()
        self.eager: fx.GraphModule = arranged.module
        self.operators = sum(node.op == "call_function" for node in arranged.module.graph.nodes)
        self._tensors = arranged.tensors
        self._determining = arranged.tensors + arranged.symbols
        self._count = len(arranged.arguments)
        self._orders = arranged.orders
        self._options = options
        self._cached = CachedKernels.of(arranged.module, updates, options)
        self._mod: tvm.IRModule | None = None
        self._kernels = None if self._cached is None else self._cached.find()
        if self._kernels is None:
            mod = from_functional_graph(arranged.module)
            names = [str(param.name) for param in mod["main"].params]
            self._mod = with_updates(mod, {names[index]: updates[index] for index in updates})
        values = _values(arranged.arguments[: arranged.tensors])
        self._inputs = Inputs(values, list(updates), _values(others))
        self._updates = {output: index for index, output in updates.items()}
        after_fork.give_lock(self)

    def build(self) -> None:
        """Compile the partition, unless its kernels come from the cache."""
        if self._kernels is None and self._mod is not None:
            self._kernels = self._built(self._mod)
        if self._kernels is not None:
            self._inputs.alignment = self._kernels.memory.alignment
        self._mod = self._cached = None

    @in_turn
    def _built(self, mod: tvm.IRModule) -> Kernels:
        after_fork.check()
        target = self._options.resolved_target()
        with target:
            mod = pipeline(layout=self._options.layout)(mod)
        places = results_in_parameters(mod, "main")
        # Other new values are results with memory of their own.
        updates = {o: i for o, i in self._updates.items() if places.get(o) == i}
        memory = Memory(owned_results(mod, "main"), alignment_of(mod), updates)
        executable = relax.build(mod, target, relax_pipeline=None)
        function = self._cached and self._cached.keep(executable, target, memory)
        return Kernels(function or in_memory(executable), memory)

    def forward(self, *arguments: Any) -> tuple[torch.Tensor, ...]:
        """Run the partition.

        Parameters
        ----------
        *arguments
            Those of the graph, and the other tensors.

        Returns
        -------
        results : tuple of torch.Tensor
            They share no memory with the arguments, except those that are updated in place.
        """
        own = arguments[: self._count]
        if self._kernels is None:
            return self._in_axes_of_pytorch(self.eager(*own))
        try:
            results = self._results(self._kernels, own, arguments[self._count :])
        except Exception as error:
            results = self.eager(*own)
            # PyTorch would have raised, too, for wrong arguments.
            self._kernels = None
            _log.warning(
                "a compiled partition failed, and PyTorch runs it from now on: %s",
                summarize(error),
            )
        return self._in_axes_of_pytorch(results)

    def _results(
        self, kernels: Kernels, arguments: Sequence[Any], others: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        function, (owned, _, updates) = kernels
        tensors = list(arguments[: self._tensors])
        symbols = arguments[self._tensors : self._determining]
        numbers = [tvm.runtime.ShapeTuple([value]) for value in symbols]
        with self.lock:
            values = self._inputs.ready(tensors, others)
            found = function(*values, *numbers)
        results = []
        for index in range(len(self._orders)):
            if index in updates:
                results.append(tensors[updates[index]])
            else:
                results.append(self._result(found[index], index in owned))
        return results

    def _result(self, value: Any, is_owned: bool) -> torch.Tensor:
        result = value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)
        if not result.numel():
            # TVM's strides of an empty tensor differ from PyTorch's.
            return result.new_empty(result.shape)
        return result if is_owned else result.clone()

    def _in_axes_of_pytorch(self, results: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        pairs = zip(results, self._orders, strict=True)
        return tuple(r if order is None else r.permute(order) for r, order in pairs)


def _values(nodes: Sequence[fx.Node]) -> list[torch.Tensor]:
    return [node.meta["val"] for node in nodes]
