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
"""The cost of a decoding step, by the number of earlier tokens and by the capacity of the cache.

The model is a small Llama: 4 layers of width 512 with 8 heads, and a vocabulary of 8000 tokens.
Times are CPU times; use one thread: ``TVM_NUM_THREADS=1 OMP_NUM_THREADS=1 python -m benchmarks
decoding_cost``. The plot is written to ``build/bench/decoding_cost.png``.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.cache_utils import DynamicCache

import tvm_fixes
from examples._random import seeded
from examples.generate import Step, empty_cache
from tvm_fixes.fixes.memory import UPDATE_IN_PLACE
from tvm_fixes.support import switches

from .measure import Comparison, compare

__all__ = ["check", "comparisons"]

PAST = (0, 128, 256, 512, 768, 1023)
"""Numbers of earlier tokens."""

CAPACITIES = (128, 512, 1024, 2048, 4096)

MAX_RATIO = 0.7
"""The limit of the time of a write in place, relative to that of a write to a copy of the cache."""

_RUNS = 15
_PLOT = Path("build/bench/decoding_cost.png")
_COPY = "compiled, cache copied"
_WRITES = "100 writes of a row"

Tensors = Sequence[torch.Tensor]


class Growing(nn.Module):
    """A step that returns keys and values of all tokens so far."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, past: Tensors) -> tuple[torch.Tensor, ...]:
        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        logits = self.model(input_ids=ids, past_key_values=cache).logits[:, -1]
        return logits, *(t for layer in cache.layers for t in (layer.keys, layer.values))


class Writing(nn.Module):
    """Only the write of a step: one row of a cache."""

    def forward(self, row: torch.Tensor, position: torch.Tensor, cache: torch.Tensor) -> Any:
        cache.index_copy_(2, position, row)
        return row * 2


def model() -> Any:
    """The model, with random weights."""
    config = transformers.LlamaConfig(
        vocab_size=8000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        max_position_embeddings=max(CAPACITIES),
    )
    with seeded(0):
        return transformers.LlamaForCausalLM(config).eval()


def compiled(module: nn.Module, arguments: Any, dynamic: Any = None) -> tvm_fixes.CompiledModel:
    """Compile a module for the CPU of this machine."""
    program = torch.export.export(module, arguments, dynamic_shapes=dynamic)
    return tvm_fixes.compile(program, compare=False)


@contextmanager
def _copying() -> Iterator[None]:
    """Switch off in-place updates."""
    before = os.environ.get(switches.ENVIRONMENT_VARIABLE, "")
    os.environ[switches.ENVIRONMENT_VARIABLE] = UPDATE_IN_PLACE
    try:
        yield
    finally:
        os.environ[switches.ENVIRONMENT_VARIABLE] = before


def _measured(title: str, runs: dict[str, Callable[[], object]]) -> Comparison:
    return compare(title, runs, runs=_RUNS, clock=time.process_time)


def by_past(llama: Any) -> Iterator[Comparison]:
    """Steps after different numbers of tokens, with a static cache for 1024 and a growing one."""
    ids, step, growing = torch.zeros(1, 1, dtype=torch.int64), Step(llama), Growing(llama)
    static = tuple(empty_cache(llama, 1, PAST[-1] + 1))
    in_place = compiled(step, (ids, torch.tensor(0), static, ()))
    past = [tensor[:, :, :5].clone() for tensor in static]
    length = torch.export.Dim("length", min=0, max=PAST[-1])
    grown = compiled(growing, (ids, past), (None, [{2: length}] * len(past)))
    for count in PAST:
        position = torch.tensor(count)
        past = [tensor[:, :, :count].clone() for tensor in static]
        yield _measured(
            f"a step after {count} tokens",
            {
                "PyTorch, static cache": partial(step, ids, position, static, ()),
                "PyTorch, growing cache": partial(growing, ids, past),
                "compiled, static cache": partial(in_place.run, ids, position, *static),
                "compiled, growing cache": partial(grown.run, ids, *past),
            },
        )


def by_capacity(llama: Any) -> Iterator[Comparison]:
    """Steps with caches of different capacity."""
    ids, position, step = torch.zeros(1, 1, dtype=torch.int64), torch.tensor(5), Step(llama)
    for capacity in CAPACITIES:
        cache = tuple(empty_cache(llama, 1, capacity))
        arguments = (ids, position, cache, ())
        in_place = compiled(step, arguments)
        with _copying():
            copying = compiled(step, arguments)
        yield _measured(
            f"a step with a capacity of {capacity}",
            {
                "PyTorch": partial(step, *arguments),
                "compiled": partial(in_place.run, ids, position, *cache),
                _COPY: partial(copying.run, ids, position, *cache),
            },
        )


def writes() -> Iterator[Comparison]:
    """Only the write of a row, to caches of different capacity."""
    row, position = torch.zeros(1, 8, 1, 64), torch.tensor([5])
    for capacity in (1024, 16384):
        arguments = (row, position, torch.zeros(1, 8, capacity, 64))
        in_place = compiled(Writing(), arguments)
        with _copying():
            copying = compiled(Writing(), arguments)
        runs = {"PyTorch": Writing(), "compiled": in_place.run, _COPY: copying.run}
        yield _measured(
            f"{_WRITES} to a cache of {capacity}",
            {name: partial(_repeat, run, arguments) for name, run in runs.items()},
        )


def _repeat(run: Callable[..., object], arguments: Tensors) -> None:
    for _ in range(100):
        run(*arguments)


def check(comparison: Comparison) -> None:
    """Check that a write in place does not copy the cache.

    Raises
    ------
    RuntimeError
        If only writes are compared, and it takes more than :data:`MAX_RATIO` of the time with a
        copy.
    """
    medians = {impl.name: impl.median for impl in comparison.implementations}
    if not comparison.title.startswith(_WRITES):
        return
    ratio = medians["compiled"] / medians[_COPY]
    if ratio > MAX_RATIO:
        raise RuntimeError(
            f"{comparison.title}: in place, they take {ratio:.3g} of the time with a copy, more "
            f"than {MAX_RATIO}"
        )


def draw(parts: Sequence[tuple[str, Sequence[int], Sequence[Comparison]]], path: Path) -> None:
    """Write a plot of the medians, one part per list of comparisons, as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, len(parts), squeeze=False)[0]
    for axis, (label, places, comparisons) in zip(axes, parts, strict=True):
        for index, impl in enumerate(comparisons[0].implementations):
            medians = [comparison.implementations[index].median * 1e3 for comparison in comparisons]
            style = "--" if impl.name.startswith("PyTorch") else "-"
            axis.plot(places, medians, style, marker="o", markersize=4, label=impl.name)
        axis.set_xlabel(label)
        axis.set_ylabel("CPU time of a step in ms")
        axis.set_ylim(bottom=0)
        axis.grid(True, linewidth=0.3)
        axis.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path)


@torch.no_grad()
def comparisons() -> list[Comparison]:
    """Measure all steps, and write the plot."""
    llama = model()
    past, capacity, rows = list(by_past(llama)), list(by_capacity(llama)), list(writes())
    parts = [("earlier tokens", PAST, past), ("capacity of the cache", CAPACITIES, capacity)]
    draw(parts, _PLOT)
    return [*past, *capacity, *rows]
