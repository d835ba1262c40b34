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

"""Compiled graphs in the cache, found by the graph that Dynamo traced.

A process that finds one needs neither AOTAutograd nor the split into partitions::

    Dynamo's graph -> AOTAutograd -> partitions and the rest   stored: the calls of both
    Dynamo's graph ------------------------------------------> read: the calls of both

Only what AOTAutograd leaves as it is, is stored: graphs that neither write to inputs nor return
views of them, with tensors of fixed shapes on a CPU.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext
from torch.utils import _pytree as pytree

from ..compiler.cache import Store, key_of
from ..errors import summarize
from .dynamo_text import dynamo_text
from .explanation import Graph
from .graph_text import value_text
from .graphs import Compiled
from .kernels import opened_for
from .options import Options
from .partition import Partition
from .stored_graph import graph_of, values_of_graph

__all__ = ["CachedGraph"]

_log = logging.getLogger(__name__)


@dataclass
class CachedGraph:
    """The entry of the cache for a graph that Dynamo traced.

    Attributes
    ----------
    store : Store
    key : str
    inputs, outputs : int
        The numbers of inputs and outputs of the graph.
    """

    store: Store
    key: str
    inputs: int
    outputs: int
    _guards: tuple[int, ...] = field(default_factory=lambda: _numbers_of_guards())

    @classmethod
    def of(
        cls, module: fx.GraphModule, inputs: Sequence[Any], options: Options
    ) -> "CachedGraph | None":
        """The entry for a graph; None if the cache is off, or if the graph has no text."""
        opening = opened_for(options)
        if opening is None:
            return None
        store, around = opening
        try:
            text = dynamo_text(module, inputs)
        except Exception as error:  # PyTorch's values have many kinds
            _log.info("a graph is not cached: %s", error)
            return None
        parts = {"kind": "traced graph", "graph": text, "layout": options.layout}
        outputs = pytree.tree_leaves(module.graph.output_node().args[0], is_leaf=_is_none)
        return cls(store, key_of({**around, **parts}), len(inputs), len(outputs))

    def find(self) -> tuple[Callable[..., Any], Graph] | None:
        """The function of the compiled graph with its description, if they are stored."""
        entry = self.store.find(self.key)
        if entry is None:
            return None
        try:
            partitions = {}
            for name, values in entry.data["partitions"].items():
                partition = Partition.stored(values, self.store)
                if partition is None:
                    return None
                partitions[name] = partition
            module = graph_of(entry.data["graph"], partitions)
            sizes, eager = entry.data["description"]
            return _function(module), Graph(tuple(sizes), eager)
        except Exception as error:
            _log.warning("an entry of the cache is not used: %s", summarize(error))
            return None

    def keep(self, functional: fx.GraphModule, compiled: Compiled) -> None:
        """Store a graph.

        Parameters
        ----------
        functional : torch.fx.GraphModule
            The graph of AOTAutograd.
        compiled : Compiled
        """
        module, graph = compiled.module, compiled.description
        obstacle = self._obstacle(functional, compiled)
        if obstacle:
            _log.info("a graph is not cached: %s", obstacle)
            return
        try:
            partitions = {
                name: partition.values()
                for name, partition in module.named_children()
                if isinstance(partition, Partition)
            }
            values = values_of_graph(module)
            for written in (values, *(each["graph"] for each in partitions.values())):
                if values_of_graph(graph_of(written, dict(module.named_children()))) != written:
                    raise TypeError("a graph that reads otherwise than it was written")
        except Exception as error:
            _log.info("a graph is not cached: %s", summarize(error))
            return
        description = [graph.partitions, graph.eager]
        data = {"graph": values, "partitions": partitions, "description": description}
        made = {
            "source": f"{len(functional.graph.nodes)} nodes",
            "by": "torch.compile",
            "kind": "traced graph",
            "target": "",
        }
        self.store.put(self.key, made, data, {})

    def _obstacle(self, functional: fx.GraphModule, compiled: Compiled) -> str:
        """Why a graph cannot be stored; empty if it can."""
        if compiled.description.skipped:
            return compiled.description.skipped
        if compiled.has_failures:
            return "what failed to compile is tried again"
        if _numbers_of_guards() != self._guards:
            return "AOTAutograd decided something about sizes or memory"
        context = TracingContext.try_get()
        if context is None or context.fw_metadata is None or context.fakify_first_call:
            return "AOTAutograd gives no metadata"
        placeholders = functional.graph.find_nodes(op="placeholder")
        results = functional.graph.output_node().args[0]
        if (len(placeholders), len(results)) != (self.inputs, self.outputs):
            return "other inputs or outputs than those of the program"
        values = [node.meta.get("val") for node in functional.graph.nodes]
        if not all(map(_is_plain, pytree.tree_leaves(values))):
            return "a value that is no tensor of a fixed shape on a CPU"
        return _obstacle_of_wrappers(context.fw_metadata)


def _is_none(value: Any) -> bool:
    return value is None


def _numbers_of_guards() -> tuple[int, ...]:
    """The numbers of the guards that AOTAutograd may add to."""
    context = TracingContext.try_get()
    shapes = None if context is None or context.fake_mode is None else context.fake_mode.shape_env
    if context is None or shapes is None:
        return ()
    own = len(context.guards_context.aotautograd_guards)
    asserts = sum(map(len, shapes.deferred_runtime_asserts.values()))
    return own, len(shapes.guards), asserts, len(shapes.replacements)


def _is_plain(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, torch.Tensor):
        return False
    try:
        text = value_text(value)
    except TypeError:
        return False
    sizes = [*value.shape, *value.stride(), value.storage_offset()]
    return bool(text) and all(type(size) is int for size in sizes) and value.device.type == "cpu"


def _obstacle_of_wrappers(metadata: Any) -> str:
    """The work of AOTAutograd around a graph; empty if there is none."""
    empty = (
        *("mutated_inp_runtime_indices", "mutated_graph_handled_indices", "tokens"),
        *("num_outputs_aliased", "num_intermediate_bases", "is_rng_op_functionalized"),
        *("act_input_indices", "num_graphsafe_rng_states", "dynamic_outputs"),
    )
    for name in empty:
        if getattr(metadata, name):
            return f"AOTAutograd has {name}"
    if metadata.grad_enabled_mutation is not None:
        return "it turns gradients on or off"
    return ""


def _function(module: fx.GraphModule) -> Callable[..., Any]:
    """The function that AOTAutograd makes of a graph that it leaves as it is."""
    forward = module.forward
    is_cast = torch._C._is_any_autocast_enabled()

    def run(*arguments: Any) -> Any:
        with ExitStack() as contexts:
            if torch.is_grad_enabled():
                contexts.enter_context(torch.no_grad())
            if is_cast:
                contexts.enter_context(torch._C._DisableAutocast())
            return forward(*arguments)

    disabled: Callable[..., Any] = torch._dynamo.disable(run)
    return disabled
