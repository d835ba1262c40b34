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

import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import tvm
from torch import fx, nn
from tvm import relax

from ..compiler.cache import Store
from ..errors import summarize
from ..frontend.torch.functional_graph import from_functional_graph
from ..lowering import pipeline
from ..relax.owned_results import owned_results, results_in_parameters
from ..relax.updates import with_updates
from ..runtime import after_fork
from ..support.serial import in_turn
from ..tirx.transform.lower_alignment import alignment_of
from .arranged import Arranged
from .inputs import Inputs, has_fixed_shape
from .kernels import CachedKernels, Kernels, Memory, in_memory, stored_kernels
from .options import Options
from .stored_graph import graph_of, values_of_graph

__all__ = ["Partition"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Interface:
    """How a partition is called.

    Attributes
    ----------
    count : int
        The number of arguments that are those of the graph.
    tensors, determining : int
        The number of these that are tensors, and that are tensors or symbols.
    orders : tuple of tuple of int, or of None
        For each output, the permutation that gives its axes back; None if there is none.
    """

    count: int
    tensors: int
    determining: int
    orders: tuple[tuple[int, ...] | None, ...]

    @classmethod
    def of(cls, arranged: Arranged) -> Self:
        """The interface of a graph."""
        determining = arranged.tensors + arranged.symbols
        return cls(len(arranged.arguments), arranged.tensors, determining, arranged.orders)


class Partition(nn.Module):
    """A compiled partition; PyTorch runs it after an error.

    Parameters
    ----------
    interface : Interface
    inputs : Inputs
    operators : int
        The number of operators.
    graph : callable
        Returns the graph.
    """

    lock: threading.RLock
    _options: Options

    def __init__(
        self,
        interface: Interface,
        inputs: Inputs,
        operators: int,
        graph: Callable[[], fx.GraphModule],
    ) -> None:
        super().__init__()
        self.operators = operators
        self._interface = interface
        self._inputs = inputs
        self._graph = graph
        self._updates: dict[int, int] = {}
        self._key: str | None = None
        self._kernels: Kernels | None = None
        self._cached: CachedKernels | None = None
        self._mod: tvm.IRModule | None = None
        after_fork.give_lock(self)

    @classmethod
    def of(
        cls,
        arranged: Arranged,
        updates: Mapping[int, int],
        others: Sequence[fx.Node],
        options: Options,
    ) -> Self:
        """Import a graph, unless its kernels are stored.

        Parameters
        ----------
        arranged : Arranged
            The graph.
        updates : mapping of int to int
            The inputs that compiled code may update in place, each with the output of its new
            value.
        others : sequence of fx.Node
            Other tensors that a call gets: inputs that are updated must not share memory with
            them.
        options : Options
        """
        module = arranged.module
        inputs = Inputs(
            _are_fixed(arranged.arguments[: arranged.tensors]), list(updates), _are_fixed(others)
        )
        operators = sum(node.op == "call_function" for node in module.graph.nodes)
        made = cls(Interface.of(arranged), inputs, operators, lambda: module)
        made._updates = {output: index for index, output in updates.items()}
        made._options = options
        made._cached = CachedKernels.of(module, updates, options)
        made._kernels = None if made._cached is None else made._cached.find()
        if made._kernels is None:
            mod = from_functional_graph(module)
            names = [str(param.name) for param in mod["main"].params]
            made._mod = with_updates(mod, {names[index]: updates[index] for index in updates})
        return made

    @classmethod
    def stored(cls, values: Mapping[str, Any], store: Store) -> Self | None:
        """The partition that `values`, from :meth:`values`, stand for; None without its kernels."""
        kernels = stored_kernels(store, values["kernels"])
        if kernels is None:
            return None
        count, tensors, determining, orders = values["interface"]
        back = tuple(order and tuple(order) for order in orders)
        interface = Interface(count, tensors, determining, back)
        graph = functools.partial(graph_of, values["graph"], {})
        made = cls(interface, Inputs(values["fixed"]), values["operators"], graph)
        made._key = values["kernels"]
        made._kernels = kernels
        made._inputs.alignment = kernels.memory.alignment
        return made

    def values(self) -> dict[str, Any]:
        """The partition as values of JSON, with the key of its kernels.

        Raises
        ------
        TypeError
            If it cannot be written, or if its kernels are not stored.
        """
        if self._key is None or self._updates:
            raise TypeError("a partition whose kernels are not stored, or that updates inputs")
        found = self._interface
        return {
            "kernels": self._key,
            "interface": [found.count, found.tensors, found.determining, found.orders],
            "fixed": self._inputs.are_fixed,
            "operators": self.operators,
            "graph": values_of_graph(self.eager),
        }

    @functools.cached_property
    def eager(self) -> fx.GraphModule:
        """The graph, which PyTorch runs after an error."""
        return self._graph()

    def build(self) -> None:
        """Compile the partition, unless its kernels come from the cache."""
        if self._kernels is None and self._mod is not None:
            self._kernels = self._built(self._mod)
        if self._kernels is not None:
            self._inputs.alignment = self._kernels.memory.alignment
        if self._cached is not None and self._cached.is_stored:
            self._key = self._cached.key
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
        own = arguments[: self._interface.count]
        if self._kernels is None:
            return self._in_axes_of_pytorch(self.eager(*own))
        try:
            results = self._results(self._kernels, own, arguments[self._interface.count :])
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
        tensors = list(arguments[: self._interface.tensors])
        symbols = arguments[self._interface.tensors : self._interface.determining]
        numbers = [tvm.runtime.ShapeTuple([value]) for value in symbols]
        with self.lock:
            values = self._inputs.ready(tensors, others)
            found = function(*values, *numbers)
        results = []
        for index in range(len(self._interface.orders)):
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
        pairs = zip(results, self._interface.orders, strict=True)
        return tuple(r if order is None else r.permute(order) for r, order in pairs)


def _are_fixed(nodes: Sequence[fx.Node]) -> list[bool]:
    return [has_fixed_shape(node.meta["val"]) for node in nodes]
