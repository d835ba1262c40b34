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
"""Random PyTorch programs under ``torch.compile(backend="tvm_fixes")``, compared with PyTorch.

A case calls a program several times: with other sizes, dtypes and parameters.  Results, inputs and
parameters must be equal after each call, and share memory with each other as in PyTorch.  A part of
the operators is switched off, or fails when it is imported, built or run, at random.  Where
PyTorch's backend ``aot_eager``, which runs the same graphs without a compiler, has the same
difference, the case is not judged.
"""

import copy
import gc
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch._dynamo
from torch import fx, nn

from tvm_fixes.errors import summarize
from tvm_fixes.frontend.torch.call import Context
from tvm_fixes.frontend.torch.graph.decompositions import name_of
from tvm_fixes.torch.backend import Backend
from tvm_fixes.torch.capability import Capability
from tvm_fixes.torch.explanation import Graph
from tvm_fixes.torch.options import Options
from tvm_fixes.torch.partition import Partition

from .targets import target_for
from .tolerance import difference
from .torch_arrays import array_of
from .torch_compile_programs import Call, CompiledProgram, make_calls, make_program, snapshot
from .torch_programs import kernels_agree, load, moved, precision_of, reduced, widened
from .torch_source import Program

_OFF = "switched off"

# What PyTorch runs for a reason that the documentation lists.
_EXPECTED = (
    _OFF,
    "no converter",
    "PyTorch draws the random numbers",
    "a number that is not an integer",
    "operands of several dtypes",
    "sizes that depend on data",
    "a number",
    "its reader needs PyTorch's strides",
    "a result with gaps in memory",
    "a check of elements",
)


@dataclass(frozen=True)
class Failures:
    """The shares of operators that are refused, fail to be imported, to be built and to run."""

    seed: int
    refused: float = 0.0
    imported: float = 0.0
    built: float = 0.0
    run: float = 0.0

    @staticmethod
    def of(rng: random.Random, seed: int) -> "Failures":
        """The failures of a case."""

        def share(chance: float) -> float:
            return rng.choice((0.1, 0.3, 0.6)) if rng.random() < chance else 0.0

        return Failures(seed, share(0.5), share(0.15), share(0.15), share(0.2))

    def strike(self, share: float, *place: object) -> bool:
        """Whether there is a failure at a place."""
        return share > 0 and random.Random(f"{self.seed} {place}").random() < share


@contextmanager
def switched_off(failures: Failures) -> Iterator[None]:
    """Let parts of the backend fail."""
    of_operator, convert = Capability._of_operator, Context.convert_node
    build, results = Partition.build, Partition._results
    runs = iter(range(1 << 30))

    def refuse(self: Capability, node: fx.Node) -> str | None:
        name = name_of(node.target)
        if failures.strike(failures.refused, name):
            return f"{name}: {_OFF}"
        return of_operator(self, node)

    def reject(self: Context, node: fx.Node) -> Any:
        if failures.strike(failures.imported, name_of(node.target)):
            raise ValueError(_OFF)
        return convert(self, node)

    def fail_to_build(self: Partition, *arguments: Any) -> None:
        if failures.strike(failures.built, self.operators):
            raise ValueError(_OFF)
        build(self, *arguments)

    def fail(self: Partition, *arguments: Any) -> list[torch.Tensor]:
        if failures.strike(failures.run, next(runs)):
            raise ValueError(_OFF)
        return results(self, *arguments)

    with ExitStack() as patches:
        for owner, name, function in (
            (Capability, "_of_operator", refuse),
            (Context, "convert_node", reject),
            (Partition, "build", fail_to_build),
            (Partition, "_results", fail),
        ):
            patches.enter_context(mock.patch.object(owner, name, function))
        yield


@dataclass(frozen=True)
class Plan:
    """How a program is compiled and called."""

    options: Options
    failures: Failures
    calls: list[Call]
    dynamic: bool | None = None
    marks: bool = False
    inference: bool = False
    autocast: bool = False

    @staticmethod
    def of(p: CompiledProgram, seed: int) -> "Plan":
        """The plan of a case."""
        rng = random.Random(seed)
        target = target_for(seed)
        layout = "NHWC" if target == "layout" else None
        name: Any = {"kind": "llvm", "mcpu": "haswell"} if target == "haswell" else target
        return Plan(
            Options("llvm" if layout else name, layout, cache=False),
            Failures.of(rng, seed),
            make_calls(p, seed),
            rng.choice((None, None, True)) if p.dynamic else rng.choice((None, False, True)),
            marks=bool(p.dynamic) and rng.random() < 0.4,
            inference=rng.random() < 0.5,
            autocast=rng.random() < 0.1,
        )

    @contextmanager
    def mode(self) -> Iterator[None]:
        """The mode that the program runs in."""
        with torch.inference_mode() if self.inference else torch.no_grad():
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                yield


@dataclass
class State:
    """The tensors and numbers that a caller sees after a call."""

    results: list[Any]
    outside: list[torch.Tensor]

    def tensors(self) -> list[torch.Tensor]:
        """All tensors: results, inputs and parameters."""
        return [torch.as_tensor(value) for value in (*self.results, *self.outside)]

    def arrays(self) -> list[np.ndarray]:
        """Their elements."""
        return [array_of(tensor) for tensor in self.tensors()]


def prepare() -> None:
    """Compile a small function, which loads what PyTorch and TVM load at first use."""
    with torch.no_grad():
        torch.compile(lambda x: (x + 1).sum(0), backend="tvm_fixes")(torch.ones(2, 2))
    torch._dynamo.reset()
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of all objects


def run_case(seed: int) -> str | None:
    """Compile and compare the program of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    p, results = make_program(seed)
    if not results:
        return None
    return check(p, results, Plan.of(p, seed))


def check(p: CompiledProgram, results: Sequence[str], plan: Plan) -> str | None:
    """Compile and call the program; compare it with PyTorch.

    Returns
    -------
    str or None
        What PyTorch ran although nothing was to fail.

    Raises
    ------
    AssertionError
        If a call differs.
    """
    torch.set_num_threads(1)
    graphs: list[Graph] = []
    records = _Records()
    with switched_off(plan.failures), records:
        problem = _problem(p, results, plan, Backend(plan.options, graphs.append))
    if problem:
        torch._dynamo.reset()
        if _problem(p, results, plan, "aot_eager"):
            return None
        raise AssertionError(problem)
    reasons = [reason for graph in graphs for reason in (graph.skipped, *graph.eager.values())]
    reasons += records.messages
    unexpected = [reason for reason in reasons if reason and not reason.endswith(_EXPECTED)]
    return unexpected[0] if unexpected else None


class _Records(logging.Handler):
    """The warnings of the backend."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def __enter__(self) -> None:
        logging.getLogger("tvm_fixes.torch").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("tvm_fixes.torch").removeHandler(self)


def _problem(p: CompiledProgram, results: Sequence[str], plan: Plan, backend: Any) -> str:
    """The first difference between a compiled program and PyTorch; empty if there is none."""
    reference, module = load(p, results), load(p, results)
    compiled = torch.compile(module, backend=backend, dynamic=plan.dynamic)
    for number, call in enumerate(plan.calls):
        if call.change is not None:
            with torch.no_grad():
                call.change(reference)
                call.change(module)
        before = copy.deepcopy(reference)
        place = f"call {number} of {[tuple(v.shape) for v in call.values.values()]}"
        wanted = _called(p, plan, reference, reference, call)
        got = _called(p, plan, module, compiled, call)
        if isinstance(wanted, Exception) or isinstance(got, Exception):
            if isinstance(wanted, Exception) and isinstance(got, Exception):
                return ""
            only = "PyTorch" if isinstance(wanted, Exception) else "the backend"
            error = wanted if isinstance(wanted, Exception) else got
            return f"{place}: only {only} raises {summarize(error)}"
        problem = _difference(p, results, plan, before, call, got, wanted)
        if problem:
            return f"{problem}, {place}"
        with torch.no_grad():
            for ours, theirs in zip(_state(module), _state(reference), strict=True):
                ours.data.copy_(theirs)
    return ""


def _state(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _called(
    p: CompiledProgram, plan: Plan, module: nn.Module, function: Callable[..., Any], call: Call
) -> State | Exception:
    """The state after a call of `function`, which computes `module`."""
    inputs = p.arguments(call.values)
    if plan.marks:
        for value, axes in zip(inputs, (p.dynamic.get(name, ()) for name in p.inputs), strict=True):
            for axis in axes:
                torch._dynamo.maybe_mark_dynamic(value, axis)
    torch.manual_seed(0)
    try:
        with plan.mode():
            results = function(*inputs)
    except Exception as error:
        return error
    return State(list(results), [*inputs, *_state(module)])


def _difference(
    p: CompiledProgram,
    results: Sequence[str],
    plan: Plan,
    before: nn.Module,
    call: Call,
    got: State,
    wanted: State,
) -> str:
    if len(got.results) != len(wanted.results):
        return f"expected {len(wanted.results)} results, got {len(got.results)}"
    for index, (ours, theirs) in enumerate(zip(got.results, wanted.results, strict=True)):
        if type(ours) is not type(theirs):
            return f"result {index}: expected a {type(theirs).__name__}, got {type(ours).__name__}"
    for index, (one, other) in enumerate(zip(got.tensors(), wanted.tensors(), strict=True)):
        if _steps(one) != _steps(other):
            return f"output {index}: expected strides {other.stride()}, got {one.stride()}"
    if _shared(got) != _shared(wanted):
        return f"memory: expected {_shared(wanted)}, got {_shared(got)}"

    def again() -> list[np.ndarray]:
        module = copy.deepcopy(before)
        state = _called(p, plan, module, module, Call(call.values))
        return state.arrays() if isinstance(state, State) else []

    if not kernels_agree(p, again, wanted.arrays()):
        return ""
    precision = "bfloat16" if plan.autocast else precision_of(p)

    def truths() -> list[list[np.ndarray]]:
        rng = np.random.default_rng(0)
        runs = []
        for is_moved in (False, True, True, True):
            module = load(p, results, wide=True)
            values = {name: widened(x) for name, x in call.values.items()}
            for wide, value in zip(_state(module), _state(before), strict=True):
                wide.copy_(moved(widened(value), precision, rng) if is_moved else value)
            if is_moved:
                values = {name: moved(x, precision, rng) for name, x in values.items()}
            again = _called(p, plan, module, module, Call(values))
            if isinstance(again, Exception):
                raise AssertionError(f"no run in float64: {again}") from again
            runs.append(again.arrays())
        return runs

    return difference(got.arrays(), wanted.arrays(), truths, precision)


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter."""
    if not tensor.numel():
        return []
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _shared(state: State) -> list[tuple[int, int, int]]:
    """For each tensor, the first with the same memory, and the distance in bytes, if any."""
    found: dict[int, tuple[int, int]] = {}
    pairs = []
    for index, tensor in enumerate((*state.results, *state.outside)):
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            memory, place = tensor.untyped_storage().data_ptr(), tensor.data_ptr()
            first, start = found.setdefault(memory, (index, place))
            if first != index:
                pairs.append((index, first, place - start))
    return pairs


def reproduce(seed: int) -> str:
    """Return a small program with the fault of the case `seed`, as the source of a test."""
    p, results = make_program(seed)
    plan = Plan.of(p, seed)

    def run(candidate: Program, names: Sequence[str]) -> str | None:
        assert isinstance(candidate, CompiledProgram)
        return check(candidate, names, plan)

    inputs = p.arguments(plan.calls[0].values)
    text = reduced(p, results, run, snapshot(inputs))
    number = len(plan.calls)
    how = f"{replace(plan, calls=[])}, {number} calls, {p.layouts}, {p.views}"
    return f"# {how}\n{text}"
