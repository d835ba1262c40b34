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
"""Campaign of recurrent layers and loops of PyTorch, with static and symbolic extents.

Every third case is a stack of LSTM, GRU or RNN layers with random options; the others are loops
with random bodies.  Nothing that PyTorch exports may be rejected.
"""

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

import tvm_fixes
from tvm_fixes.frontend.torch import from_exported_program, recurrent_shapes

from .targets import compiled, target_for
from .torch_arrays import array_of
from .torch_loops import cond, map_rows, scan, while_loop

_TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 0.1}

_MOVED_RUNS = 16

Tensors = tuple[torch.Tensor, ...]
Step = Callable[..., torch.Tensor]


class Choices:
    """Random choices of one case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([11, seed])
        self.generator = torch.Generator().manual_seed(seed)

    def one_of(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def random(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(dtype)


class Case:
    """A module, the inputs of several runs, and the axes that are symbolic.

    Attributes
    ----------
    module : nn.Module
    runs : list of tuples of torch.Tensor
        The first one is the example of the export.
    axes : tuple, optional
        ``dynamic_shapes``; None if all extents are static.
    tolerance : float
    """

    def __init__(
        self, module: nn.Module, runs: list[Tensors], axes: Any, tolerance: float = 1e-4
    ) -> None:
        # PyTorch does not export the gradients of scans of several states, nor of counters.
        self.module, self.runs, self.axes = module.eval().requires_grad_(False), runs, axes
        self.tolerance = tolerance


class _Layers(nn.Module):
    """A recurrent layer between two others, as in a tagger."""

    def __init__(self, layer: nn.Module, features: int, head: nn.Module | None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features) if head is not None else nn.Identity()
        self.layer, self.head = layer, head if head is not None else nn.Identity()

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
        initial = states if len(states) == 2 else (states[0] if states else None)
        output, last = self.layer(self.norm(x), initial)
        return self.head(output), last


def recurrent_case(choices: Choices) -> Case:
    """A random stack of recurrent layers."""
    cell = choices.one_of(nn.LSTM, nn.LSTM, nn.GRU, nn.RNN)
    dtype = choices.one_of(*(torch.float32,) * 5, *_TOLERANCES)
    features, hidden = choices.one_of(1, 3, 4, 8, 17), choices.one_of(1, 2, 5, 8, 16, 20, 33)
    options: dict[str, Any] = {
        "num_layers": choices.one_of(1, 1, 2, 3),
        "bidirectional": choices.chance(0.4),
        "batch_first": choices.chance(0.5),
        "bias": choices.chance(0.8),
        "dropout": choices.one_of(0.0, 0.3),
    }
    width = hidden
    if cell is nn.LSTM and hidden > 2 and choices.chance(0.2):
        width = options["proj_size"] = choices.one_of(1, 2)
    if cell is nn.RNN:
        options["nonlinearity"] = choices.one_of("tanh", "tanh", "relu")
    directions = 1 + options["bidirectional"]
    torch.manual_seed(int(choices.rng.integers(1 << 30)))
    head = nn.Linear(directions * width, 3) if choices.chance(0.3) else None
    module = _Layers(cell(features, hidden, **options), features, head).to(dtype)
    has_batch = choices.chance(0.85)
    has_states = choices.chance(0.4)
    depth = options["num_layers"] * directions

    def inputs(steps: int, batch: int) -> Tensors:
        shape = [batch, steps] if options["batch_first"] else [steps, batch]
        x = choices.random(*(shape if has_batch else [steps]), features, dtype=dtype)
        sizes = [width, hidden] if cell is nn.LSTM else [width]
        group = [batch] if has_batch else []
        states = [choices.random(depth, *group, size, dtype=dtype) for size in sizes]
        return (x, *states) if has_states else (x,)

    steps, batch = choices.one_of(1, 2, 5, 9, 12, 40), choices.one_of(1, 2, 3, 8, 13)
    step_axis = 1 if options["batch_first"] and has_batch else 0
    is_dynamic = choices.chance(0.5)
    if not is_dynamic:
        runs = [inputs(steps, batch), inputs(steps, batch)]
        return Case(module, runs, None, _TOLERANCES[dtype])
    axes: dict[int, Any] = {}
    if choices.chance(0.8):
        axes[step_axis] = torch.export.Dim("steps")
        steps = max(steps, 2)
    if has_batch and (choices.chance(0.6) or not axes):
        axes[1 - step_axis] = torch.export.Dim("batch")
        batch = max(batch, 2)
    others = (steps + 3 if step_axis in axes else steps, 1 if 1 - step_axis in axes else batch)
    of_states = {1: axes[1 - step_axis]} if 1 - step_axis in axes else {}
    runs = [inputs(steps, batch), inputs(*others)]
    states = tuple(of_states for _ in runs[0][1:])
    dynamic = (axes, states) if states else (axes,)
    return Case(module, runs, dynamic, _TOLERANCES[dtype])


class _Loop(nn.Module):
    """A program of one function, with weights that the bodies of loops read."""

    def __init__(self, choices: Choices, features: int, run: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(choices.random(features))
        self.run = run

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.run(self, *inputs)


def _steps_of(choices: Choices, depth: int) -> Step:
    """A function of the module, a state of shape (batch, features) and a row of the same shape."""

    def branch(_m: Any, s: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        return cond(r.sum() > 0, lambda s, r: s * 0.5 + r, lambda s, r: s - r * r.shape[0], (s, r))

    def loop(_m: Any, s: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, torch.sin(s + i)), (start, s))[1]

    def inner(m: Any, s: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        def add(total: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = torch.tanh(total + row * m.scale.sum())
            return total, total * 2

        total, rows = scan(add, s.sum(0), r, dim=0, reverse=False)
        return s + total + rows.mean(0)

    parts: list[Step] = [
        lambda m, s, r: m.linear(s) + r,
        lambda m, s, r: s * m.scale + r.sum(-1, keepdim=True),
        lambda m, s, r: torch.where(r > 0, s, r),
        lambda m, s, r: torch.cat([s[:, 1:], r[:, :1]], 1),
        lambda m, s, r: torch.softmax(s, -1) + r / r.shape[0],
        lambda m, s, r: s + (r @ m.linear.weight).relu(),
        lambda m, s, r: (s.half() + r.half()).float(),
        lambda m, s, r: s + r.argmax(-1, keepdim=True) * 0.1,
        lambda m, s, r: s.flip(1) - r.cumsum(1) * 0.1,
        lambda m, s, r: s - r.max(0).values,
        lambda m, s, r: torch.nn.functional.layer_norm(s, s.shape[-1:]) * r,
    ]
    if depth:
        parts += [branch, branch, loop, inner]
    taken = [choices.one_of(*parts) for _ in range(choices.one_of(1, 2, 3))]

    def step(m: Any, s: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        for part in taken:
            s = torch.tanh(part(m, s, r))
        return s

    return step


def loop_case(choices: Choices) -> Case:
    """A random loop over the rows of a tensor, or with a computed number of iterations."""
    kind = choices.one_of("scan", "scan", "while", "map", "associative")
    step = _steps_of(choices, 1)
    axis = choices.one_of(0, 0, 1, 2, -1)
    is_reversed = choices.chance(0.3)
    is_mixed = choices.chance(0.3)
    count = choices.one_of(0, 1, 3, 20)

    def scanned(m: nn.Module, x: torch.Tensor, s: torch.Tensor) -> Any:
        rows = x.movedim(0, axis)

        def combine(carried: Any, row: torch.Tensor) -> Any:
            number, state, flags = carried
            state = step(m, state, row)
            # Of an input: the sign of a state near zero depends on the rounding.
            flags = flags ^ (row > 0)
            results = [state * 2, number.clone()] + ([flags.clone()] if is_mixed else [])
            return (number + 2, state, flags), tuple(results)

        initial = (torch.ones((), dtype=torch.int32), s, s > 10)
        return scan(combine, initial, rows, dim=axis % 3, reverse=is_reversed)

    def repeated(m: nn.Module, x: torch.Tensor, s: torch.Tensor) -> Any:
        row = x.mean(0)
        start: Any = 0 if is_mixed else torch.zeros((), dtype=torch.int64)

        def more(i: Any, state: torch.Tensor, _total: torch.Tensor) -> Any:
            return i < count if is_mixed else (i < count) & (state.sum() < 50)

        def body(i: Any, state: torch.Tensor, total: torch.Tensor) -> Any:
            state = step(m, state, row)
            return i + 1, state, total + state.sum() + i

        _, state, total = while_loop(more, body, (start, s, torch.zeros(())))
        return state, total

    def mapped(m: nn.Module, x: torch.Tensor, s: torch.Tensor) -> Any:
        return map_rows(lambda row, s: (step(m, s, row), row.sum(0) + s.shape[0]), x, s)

    def running(_m: nn.Module, x: torch.Tensor, s: torch.Tensor) -> Any:
        def combine(a: Any, b: Any, c: Any, d: Any) -> Any:
            return [a * c, torch.maximum(b * c, d)] if is_mixed else [a * c, b * c + d]

        y = x * s
        if torch.compiler.is_exporting():
            return torch.ops.higher_order.associative_scan(combine, [x, y], ())
        results = [(x[0], y[0])]
        for index in range(1, x.shape[0]):
            results.append(tuple(combine(*results[-1], x[index], y[index])))
        return tuple(torch.stack(list(part)) for part in zip(*results, strict=True))

    run = {"scan": scanned, "while": repeated, "map": mapped, "associative": running}[kind]
    features = choices.one_of(2, 3, 8, 17)
    torch.manual_seed(int(choices.rng.integers(1 << 30)))
    module = _Loop(choices, features, run)

    def inputs(steps: int, batch: int) -> Tensors:
        return choices.random(steps, batch, features), choices.random(batch, features)

    steps, batch = choices.one_of(2, 5, 9, 12, 30), choices.one_of(2, 3, 6)
    if choices.chance(0.4):
        return Case(module, [inputs(steps, batch), inputs(steps, batch)], None)
    dim = torch.export.Dim
    axes = {0: dim("steps", min=2)} if choices.chance(0.8) else {}
    of_state = {}
    if choices.chance(0.6) or not axes:
        axes[1] = of_state[0] = dim("batch", min=2)
    other = (steps + 7 if 0 in axes else steps, batch + 4 if 1 in axes else batch)
    return Case(module, [inputs(steps, batch), inputs(*other)], ((axes, of_state),))


def make_case(seed: int) -> Case:
    """The case of `seed`."""
    choices = Choices(seed)
    return recurrent_case(choices) if seed % 3 == 0 else loop_case(choices)


def run_case(seed: int) -> str | None:
    """Build and compare the case of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    torch.set_num_threads(1)
    case = make_case(seed)
    try:
        with recurrent_shapes():
            program = torch.export.export(case.module, case.runs[0], dynamic_shapes=case.axes)
    except Exception as error:  # limitations of torch.export
        return f"not exported: {' '.join(str(error).split())[:200]}"
    try:
        mod = from_exported_program(program)
        tvm_fixes.verify(mod).raise_if_errors()
        run = compiled(mod, target_for(seed))
    except Exception as error:
        text = " ".join(str(error).split())
        raise AssertionError(f"rejected: {type(error).__name__}: {text[:600]}") from None
    for inputs in case.runs:
        _compare(case, run, inputs)
    return None


def _compare(case: Case, run: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        wanted = pytree.tree_leaves(case.module(*inputs))
    shapes = [tuple(x.shape) for x in inputs]
    try:
        got = run([array_of(x) for x in inputs])
    except Exception as error:
        raise AssertionError(f"fails at run time, {shapes}: {error}") from None
    assert len(got) == len(wanted), f"{len(got)} results, expected {len(wanted)}"
    for index, (result, expected) in enumerate(zip(got, wanted, strict=True)):
        value = array_of(expected)
        assert result.dtype == value.dtype, f"result {index}: {result.dtype}, not {value.dtype}"
        assert result.shape == value.shape, f"result {index}: {result.shape}, not {value.shape}"
        float64 = [array.astype("float64") for array in (result, value)]
        scale = max(1.0, float(np.abs(float64[1]).max(initial=0)))
        error = float(np.abs(float64[0] - float64[1]).max(initial=0)) / scale
        is_close = error <= case.tolerance or error <= 2 * _sensitivity(case, inputs, index) / scale
        assert is_close, f"result {index} is off by {error:.2g}, inputs {shapes}"


def _sensitivity(case: Case, inputs: Sequence[torch.Tensor], index: int) -> float:
    """How far a result moves if the inputs move by a few rounding errors, or in float64.

    An element next to a tie may be rounded to the next float16, and some loops amplify errors, for
    example by a norm of equal elements.
    """
    generator = torch.Generator().manual_seed(0)

    def moved(x: torch.Tensor) -> torch.Tensor:
        if x.dtype not in (torch.float32, torch.float64):
            return x
        errors = 4 * torch.finfo(x.dtype).eps * (torch.rand(x.shape, generator=generator) - 0.5)
        return x * (1 + errors.to(x.dtype))

    runs = []
    for run in range(_MOVED_RUNS + 1):
        with torch.no_grad():
            results = case.module(*map(moved, inputs)) if run else case.module(*inputs)
        runs.append(array_of(pytree.tree_leaves(results)[index]).astype("float64"))
    in_float64 = copy.deepcopy(case.module).double()
    with contextlib.suppress(RuntimeError), torch.no_grad():  # of operands of several dtypes
        results = in_float64(*(x.double() if x.is_floating_point() else x for x in inputs))
        runs.append(array_of(pytree.tree_leaves(results)[index]).astype("float64"))
    return max(float(np.abs(each - runs[0]).max(initial=0)) for each in runs)
