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
"""The kernels of a partition, compiled or from the cache."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tvm
from torch import fx
from tvm import relax

from ..compiler.cache import Store, key_of, opened, surroundings
from ..compiler.cache.installed import is_unchanged
from ..compiler.linking import link
from ..errors import CompileError, summarize
from ..runtime import after_fork
from ..runtime.manifest import LIBRARY, Signature
from .graph_text import graph_text
from .options import Options

__all__ = ["CachedKernels", "Kernels", "Memory", "in_memory", "opened_for", "stored_kernels"]

_log = logging.getLogger(__name__)

_NO_SIGNATURE = Signature((), (), {}, {}, {})


class Memory(NamedTuple):
    """The assumptions of kernels about memory, and their rights to it.

    Attributes
    ----------
    owned : tuple of int
        The results that share no memory with anything else.
    alignment : int
        The alignment of the arguments in bytes.
    updates : dict of int to int
        The results that are inputs, updated in place.
    """

    owned: tuple[int, ...]
    alignment: int
    updates: dict[int, int]


class Kernels(NamedTuple):
    """The compiled function of a partition.

    Attributes
    ----------
    function : callable
    memory : Memory
    """

    function: Any
    memory: Memory


@dataclass
class CachedKernels:
    """The entry of the cache for a partition.

    Attributes
    ----------
    store : Store
    parts : dict
        What its key contains.
    module : torch.fx.GraphModule
        The graph.
    is_stored : bool
        Whether the kernels are known to be stored.
    """

    store: Store
    parts: dict[str, Any]
    module: fx.GraphModule
    is_stored: bool = False

    @classmethod
    def of(
        cls, module: fx.GraphModule, updates: Mapping[int, int], options: Options
    ) -> "CachedKernels | None":
        """The entry for a graph whose inputs `updates` may be updated in place.

        It is None if the cache is off, or if the graph has no text.
        """
        opening = opened_for(options)
        if opening is None:
            return None
        store, around = opening
        try:
            text = graph_text(module)
        except Exception as error:  # PyTorch's values have many kinds
            _log.info("a partition is not cached: %s", error)
            return None
        parts = {"kind": "graph", "graph": text, "layout": options.layout}
        parts["updates"] = sorted(map(list, updates.items()))
        return cls(store, {**around, **parts}, module)

    @cached_property
    def key(self) -> str:
        """The key of the entry."""
        return key_of(self.parts)

    def find(self) -> Kernels | None:
        """The kernels, if they are stored."""
        kernels = stored_kernels(self.store, self.key)
        self.is_stored = kernels is not None
        return kernels

    def keep(
        self, executable: relax.VMExecutable, target: tvm.target.Target, memory: Memory
    ) -> Any:
        """Store kernels, and return their function; None if they cannot be linked.

        The library takes the place of code that is compiled in memory.
        """
        try:
            linked = link(executable, target, _NO_SIGNATURE, ())
        except CompileError as error:
            _log.warning("a partition is not cached: %s", summarize(error))
            return None
        # An import that decides something about symbols adds guards, which a hit would lack.
        if is_unchanged() and graph_text(self.module) == self.parts["graph"]:
            operators = sum(node.op == "call_function" for node in self.module.graph.nodes)
            made = {
                "source": f"{operators} operators",
                "by": "torch.compile",
                "kind": "graph",
                "target": str(target.attrs.get("mcpu", "")),
            }
            values = memory._asdict() | {"updates": [*map(list, memory.updates.items())]}
            data = {"memory": values}
            files = {LIBRARY: linked.directory / LIBRARY}
            self.is_stored = self.store.put(self.key, made, data, files)
        return _load(linked.directory)


def opened_for(options: Options) -> tuple[Store, dict[str, Any]] | None:
    """The cache, and the parts of all keys for these options; None if nothing may be cached."""
    store = opened() if options.cache else None
    around = None if store is None else surroundings(store, options.resolved_target())
    return None if store is None or around is None else (store, around)


def stored_kernels(store: Store, key: str) -> Kernels | None:
    """The kernels in the entry for `key`, if there is one."""
    entry = store.find(key)
    if entry is None:
        return None
    try:
        values = entry.data["memory"]
        updates = {output: index for output, index in values["updates"]}
        memory = Memory(tuple(values["owned"]), values["alignment"], updates)
        return Kernels(_load(entry.directory), memory)
    except Exception as error:
        _log.warning("an entry of the cache is not used: %s", summarize(error))
        return None


def in_memory(executable: relax.VMExecutable) -> Any:
    """The function of an executable, compiled in memory."""
    return after_fork.guarded(relax.VirtualMachine(executable, tvm.cpu())["main"])


def _load(directory: Path) -> Any:
    """The function of a library."""
    module = tvm.runtime.load_module(str(directory / LIBRARY))
    return after_fork.guarded(relax.VirtualMachine(module, tvm.cpu())["main"])
