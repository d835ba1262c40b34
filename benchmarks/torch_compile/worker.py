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

"""One model under one backend, in a process of its own: ``worker NAME BACKEND [--first]``.

Prints one JSON object.  Times are CPU times of this process and its children, with one thread.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ..measure import compare
from ..shipped.data import from_torch, to_torch
from ..shipped.judge import problem
from .models import SIZES, SUBJECTS, Subject

LIBRARIES = "TVM_FIXES_LIBRARIES"
"""The variable that names a folder of timm and torchvision."""
OURS = "tvm_fixes"
_SEED = 7
_TURNS, _MAX_SECONDS = 15, 6.0

Call = Callable[[Mapping[str, torch.Tensor]], list[np.ndarray]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=list(SUBJECTS))
    parser.add_argument("backend")
    parser.add_argument("--first", action="store_true", help="only the first call")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    subject = SUBJECTS[arguments.name]
    if subject.library in ("timm", "torchvision") and os.environ.get(LIBRARIES):
        sys.path.append(os.environ[LIBRARIES])
    measured = Measured(subject, arguments.backend)
    with torch.inference_mode():
        measured.first()
        if not arguments.first:
            measured.steady()
            measured.other_sizes()
    print(json.dumps(measured.row))


class Measured:
    """The measurements of a model under a backend, in :attr:`row`."""

    def __init__(self, subject: Subject, backend: str) -> None:
        torch.manual_seed(_SEED)
        self.row: dict[str, Any] = {"wrong": ""}
        self._positional = subject.library in ("timm", "torchvision")
        self._model = subject.build()
        self._inputs = [_tensors(subject, size) for size in range(SIZES)]
        self._backend_seconds = 0.0
        self._graphs: list[Any] = []
        self._compiled = torch.compile(self._model, backend=self._watched(backend))

    def first(self) -> None:
        """Compile for the first size."""
        before = _seconds()
        outputs = self._outputs(self._compiled, 0)
        self.row["cold"] = _seconds() - before
        self.row["in_backend"] = self._backend_seconds
        self._check(outputs, 0)
        self.row["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        self.row["compiled"] = sum(sum(graph.partitions) for graph in self._graphs)
        self.row["partitions"] = sum(len(graph.partitions) for graph in self._graphs)
        self.row["eager"] = [text for graph in self._graphs for text in graph.eager.values()]
        self.row["skipped"] = [graph.skipped for graph in self._graphs if graph.skipped]

    def steady(self) -> None:
        """Time calls of the first size, in turns with eager PyTorch."""
        start = time.process_time()
        self._call(self._compiled, 0)
        self._call(self._model, 0)
        pair = time.process_time() - start
        turns = max(3, min(_TURNS, int(_MAX_SECONDS / pair)))
        comparison = compare(
            "",
            {
                "eager": lambda: self._call(self._model, 0),
                "compiled": lambda: self._call(self._compiled, 0),
            },
            runs=turns,
            clock=time.process_time,
        )
        eager, compiled = comparison.implementations
        self.row["eager_ms"], self.row["ms"] = eager.median * 1e3, compiled.median * 1e3
        self.row["ratio"] = comparison.ratio(compiled)
        if self._graphs:
            self.row["share"] = self._share(turns)

    def other_sizes(self) -> None:
        """Call it with other sizes: the second makes them dynamic, the third compiles nothing."""
        before = _seconds()
        self._check(self._outputs(self._compiled, 1), 1)
        self.row["dynamic"] = _seconds() - before
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        self._check(self._outputs(self._compiled, 2), 2)
        now = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        self.row["recompiled"] = now - graphs
        self.row["dynamic_eager"] = [t for graph in self._graphs for t in graph.eager.values()]
        self.row["skipped"] = [graph.skipped for graph in self._graphs if graph.skipped]

    def _watched(self, backend: str) -> Any:
        if backend != OURS:
            return backend
        from tvm_fixes.torch.backend import Backend
        from tvm_fixes.torch.options import Options

        inner = Backend(Options.read(None, None), self._graphs.append)

        def watched(module: Any, inputs: Any) -> Any:
            before = _seconds()
            compiled = inner(module, inputs)
            self._backend_seconds += _seconds() - before
            return compiled

        return watched

    def _call(self, model: Any, size: int) -> Any:
        inputs = self._inputs[size]
        return model(*inputs.values()) if self._positional else model(**inputs)

    def _outputs(self, model: Any, size: int) -> list[torch.Tensor]:
        leaves = torch.utils._pytree.tree_leaves(self._call(model, size))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def _check(self, outputs: list[torch.Tensor], size: int) -> None:
        """Compare outputs with eager PyTorch's, and that with PyTorch in float64."""
        if self.row["wrong"]:
            return
        expected = self._outputs(self._model, size)
        ours, theirs = ([from_torch(value) for value in values] for values in (outputs, expected))
        names = [str(place) for place in range(len(theirs))]
        text = problem(ours, theirs, [], names)
        if text:
            text = problem(ours, theirs, [self._exact(size)], names)
        if text:
            self.row["wrong"] = f"size {size}: {text}"

    def _exact(self, size: int) -> list[np.ndarray]:
        inputs = self._inputs[size]
        self._inputs[size] = {
            k: v.double() if v.is_floating_point() else v for k, v in inputs.items()
        }
        outputs = self._outputs(self._model.double(), size)
        self._model.float()
        self._inputs[size] = inputs
        narrow = (v.float() if v.is_floating_point() else v for v in outputs)
        return [from_torch(value) for value in narrow]

    def _share(self, turns: int) -> float:
        """The share of the time of a call that compiled partitions take."""
        from tvm_fixes.torch.partition import Partition

        inside, forward = 0.0, Partition.forward

        def timed(partition: Any, *arguments: Any) -> Any:
            nonlocal inside
            start = time.process_time()
            result = forward(partition, *arguments)
            inside += time.process_time() - start
            return result

        Partition.forward = timed
        try:
            start = time.process_time()
            for _ in range(turns):
                self._call(self._compiled, 0)
            return inside / (time.process_time() - start)
        finally:
            Partition.forward = forward


def _tensors(subject: Subject, size: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(_SEED)
    return {name: to_torch(make(rng)) for name, make in subject.inputs(size).items()}


def _seconds() -> float:
    """The CPU time of this process and its children."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


if __name__ == "__main__":
    main()
