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
from collections.abc import Sequence
from typing import Any

import torch
import tvm
from torch import fx, nn
from tvm import relax

from ..errors import summarize
from ..frontend.torch.functional_graph import from_functional_graph
from ..lowering import pipeline
from ..relax.owned_results import owned_results
from ..runtime import after_fork
from ..support.serial import in_turn
from ..support.tensors import ALIGNMENT, to_tvm
from ..tirx.transform.lower_alignment import alignment_of
from .arranged import Arranged
from .options import Options

__all__ = ["Partition"]

_log = logging.getLogger(__name__)


class Partition(nn.Module):
    """A compiled partition; PyTorch runs it after an error.

    Parameters
    ----------
    arranged : Arranged
        The graph.

    Attributes
    ----------
    eager : torch.fx.GraphModule
        What PyTorch runs after an error.
    operators : int
        The number of operators.
    """

    def __init__(self, arranged: Arranged) -> None:
        super().__init__()
        self.eager: fx.GraphModule = arranged.module
        self.operators = sum(node.op == "call_function" for node in arranged.module.graph.nodes)
        self._tensors = arranged.tensors
        self._determining = arranged.tensors + arranged.symbols
        self._orders = arranged.orders
        self._mod = from_functional_graph(arranged.module)
        self._function: Any = None
        self._owned: tuple[int, ...] = ()
        self._alignment = ALIGNMENT
        self._renew()
        after_fork.renew(self)

    def _renew(self) -> None:
        # Another thread may hold the lock while this process forks.
        self._lock = threading.Lock()

    def build(self, options: Options) -> None:
        """Compile the partition for the options' target."""
        self._function = self._built(options)
        del self._mod

    @in_turn
    def _built(self, options: Options) -> Any:
        target = options.resolved_target()
        with target:
            mod = pipeline(layout=options.layout)(self._mod)
        self._owned = owned_results(mod, "main")
        self._alignment = alignment_of(mod)
        executable = relax.build(mod, target, relax_pipeline=None)
        return after_fork.guarded(relax.VirtualMachine(executable, tvm.cpu())["main"])

    def forward(self, *arguments: Any) -> tuple[torch.Tensor, ...]:
        """Run the partition on tensors and numbers; the results share no memory with them."""
        if self._function is None:
            return self._in_axes_of_pytorch(self.eager(*arguments))
        try:
            results = self._results(arguments)
        except Exception as error:
            results = self.eager(*arguments)
            # PyTorch would have raised, too, for wrong arguments.
            self._function = None
            _log.warning(
                "a compiled partition failed, and PyTorch runs it from now on: %s",
                summarize(error),
            )
        return self._in_axes_of_pytorch(results)

    def _results(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        tensors = [_ready(value, self._alignment) for value in arguments[: self._tensors]]
        symbols = arguments[self._tensors : self._determining]
        numbers = [tvm.runtime.ShapeTuple([value]) for value in symbols]
        with self._lock:
            found = self._function(*tensors, *numbers)
        results = []
        for index, value in enumerate(found):
            result = value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)
            if not result.numel():
                # TVM's strides of an empty tensor differ from PyTorch's.
                results.append(result.new_empty(result.shape))
                continue
            results.append(result if index in self._owned else result.clone())
        return results

    def _in_axes_of_pytorch(self, results: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        pairs = zip(results, self._orders, strict=True)
        return tuple(r if order is None else r.permute(order) for r, order in pairs)


def _ready(value: torch.Tensor, alignment: int) -> Any:
    """A tensor that kernels can read: contiguous and aligned."""
    if value.is_contiguous() and not value.data_ptr() % alignment and not value.is_neg():
        if value.numel():
            return value
    return to_tvm(value, alignment)
