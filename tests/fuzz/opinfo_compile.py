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
"""PyTorch's operators on its own sample inputs under ``torch.compile(backend="tvm_fixes")``.

A case is one of ``opinfo``, or an operator of random numbers or without a unique result: PyTorch
itself runs these, with the same seed.  Several cases are one program, which takes a fifth of the
time; if it differs, each runs by itself.
"""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch._dynamo
from torch import nn
from torch.utils import _pytree as pytree

from tvm_fixes.errors import summarize
from tvm_fixes.torch.backend import Backend
from tvm_fixes.torch.explanation import Graph
from tvm_fixes.torch.options import Options

from . import opinfo
from .opinfo import DTYPES, SAMPLES, UNDEFINED_PLACES, Case, check_values

TOGETHER = 8
"""The number of cases of a program."""

# Uninitialized memory, and tensors that are not dense.
_NOT_COMPARED = re.compile(r"empty|^resize_|sparse")


@dataclass
class Judged:
    """Cases under the backend.

    Attributes
    ----------
    right : int
        The number of cases that equal PyTorch.
    problems : list of str
        How the others differ.
    compiled : int
        The number of compiled operators of graphs.
    reasons : list of str
        Why PyTorch ran operators or whole graphs.
    """

    right: int = 0
    problems: list[str] = field(default_factory=list)
    compiled: int = 0
    reasons: list[str] = field(default_factory=list)


class _Program(nn.Module):
    """The operators of several cases."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.parts = nn.ModuleList([case.module for case in cases])
        self.counts = [len(case.inputs) for case in cases]

    def forward(
        self, *inputs: torch.Tensor, reference: bool = False
    ) -> list[tuple[torch.Tensor, ...]]:
        """The results of each operator, or of the function that it is compared with."""
        results = []
        for part, count in zip(self.parts, self.counts, strict=True):
            function = part.reference if reference else part.function
            results.append(part.call(function, *inputs[:count]))
            inputs = inputs[count:]
        return results


def names() -> list[str]:
    """The names of the operators that are compared."""
    return [name for name in opinfo.every_operator() if not _NOT_COMPARED.search(name)]


def judge(cases: Sequence[Case], *, dynamic: bool | None = None) -> Judged:
    """Compare cases under the backend with PyTorch; those that PyTorch rejects are left out.

    A difference that ``aot_eager`` has, too, which compiles nothing, is PyTorch's own.
    """
    torch.set_num_threads(1)
    judged = Judged()
    accepted = [case for case in cases if not isinstance(_called([case], case.module), Exception)]
    if len(accepted) > 1 and not _problem(accepted, _backend(judged), dynamic=dynamic):
        judged.right = len(accepted)
        return judged
    judged.compiled, judged.reasons = 0, []
    for case in accepted:
        problem = _problem([case], _backend(judged), dynamic=dynamic)
        if problem and not _problem([case], "aot_eager", dynamic=dynamic):
            judged.problems.append(problem)
        else:
            judged.right += 1
    return judged


def _backend(judged: Judged) -> Backend:
    def note(graph: Graph) -> None:
        judged.compiled += sum(graph.partitions)
        judged.reasons += graph.eager.values()
        if graph.skipped:
            judged.reasons.append(f"a whole graph: {graph.skipped}")

    return Backend(Options(target="llvm", cache=False), note)


def _called(cases: Sequence[Case], function: Callable[..., Any]) -> Any:
    """The results of a function of the cases' inputs, or its exception.

    For each result, also the first input or result that shares memory with it.
    """
    inputs = [x.clone() for case in cases for x in case.inputs]
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            results = function(*inputs)
    except Exception as error:
        return error
    places: dict[int, int] = {}
    shared = []
    for place, x in enumerate((*inputs, *pytree.tree_leaves(results))):
        first = place
        if isinstance(x, torch.Tensor) and x.layout is torch.strided and x.numel():
            first = places.setdefault(x.untyped_storage().data_ptr(), place)
        shared.append(first)
    return results, shared


def _problem(cases: Sequence[Case], backend: Any, *, dynamic: bool | None) -> str:
    """The first difference between compiled cases and PyTorch; empty if there is none."""
    program = _Program(cases)
    expected = _called(cases, functools.partial(program, reference=True))
    torch._dynamo.reset()
    got = _called(cases, torch.compile(program, backend=backend, dynamic=dynamic))
    for results in (expected, got):
        if isinstance(results, Exception):
            return f"{cases[0]}: {summarize(results)}"
    if got[1] != expected[1]:
        return f"{cases[0]}: memory shared as {got[1]} instead of {expected[1]}"
    for case, ours, theirs in zip(cases, got[0], expected[0], strict=True):
        problem = _difference(case, ours, theirs)
        if problem:
            return problem
    return ""


def _difference(case: Case, got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str:
    truth = case.truth()
    truths = truth if truth is not None else [None] * len(expected)
    for index, (one, other, true) in enumerate(zip(got, expected, truths, strict=True)):
        what = f"{case}: output {index}"
        if index == 1 and case.name.startswith(UNDEFINED_PLACES):
            continue
        try:
            check_values(one, other, true, what)
        except AssertionError as error:
            return str(error)
        if one.numel() and one.squeeze().stride() != other.squeeze().stride():
            return f"{what}: strides {one.stride()} instead of {other.stride()}"
    return ""


def run_case(seed: int) -> str | None:
    """Check the cases that `seed` draws."""
    rng = np.random.default_rng([33, seed])
    known, cases = names(), []
    while len(cases) < TOGETHER:
        name = known[int(rng.integers(len(known)))]
        dtype = DTYPES[int(rng.integers(len(DTYPES)))]
        special = int(rng.integers(1 << 30)) if rng.random() < 0.3 else None
        case = Case.of(name, dtype, int(rng.integers(SAMPLES)), special, random=True)
        if case is not None:
            cases.append(case)
    judged = judge(cases, dynamic=True if rng.random() < 0.3 else None)
    assert not judged.problems, judged.problems[0]
    return None
