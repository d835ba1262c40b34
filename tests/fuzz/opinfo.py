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
"""PyTorch's operators on the sample inputs of PyTorch's own tests (OpInfo).

A case is an operator, a dtype and a sample input.  It is exported or traced, with static extents or
with symbolic ones where PyTorch allows it, imported, built for ``llvm`` and run; values, dtypes and
shapes must match PyTorch.
"""

import functools
import itertools
import re
import sys
import types
import unittest
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from unittest import mock

import numpy as np
import torch
import tvm
from torch import fx, nn
from torch.utils import _pytree as pytree

from .targets import compiled, only_target
from .torch_arrays import array_of, tensor_of
from .torch_ways import Way, imported, traced

DTYPES = (torch.float32, torch.int64, torch.bool, torch.float16, torch.bfloat16)

SAMPLES = 12
"""The number of sample inputs per operator."""

# Operators without a unique result: random numbers, uninitialized memory, and factorizations, whose
# bases are arbitrary.
_UNDEFINED = re.compile(
    r"bernoulli|cauchy|dropout|empty|exponential|geometric|log_normal|multinomial|^normal|rand"
    r"|rrelu|uniform|gumbel|eigh?$|eigv|svd|lobpcg|pca_lowrank|new_empty"
    r"|fractional_max_pool|^resize_|to_sparse|sparse"
)
# PyTorch may return the index of any of several equal elements.
UNDEFINED_PLACES = ("topk", "kthvalue", "mode", "median", "nanmedian")
# PyTorch sorts equal elements in any order, unless it is asked for a stable order, which is ours.
_UNSTABLE = ("argsort", "sort")
# Operators whose sums or casts of infinities and NaN PyTorch does not define.
_FINITE = re.compile(
    r"attention|bilinear|byte|bool|cdist|char|conv|corr|cov|double|einsum|embedding|int$|interpolate"
    r"|linalg|linear|long|loss|matmul|mm|mv|norm|short|to$|type|upsample|fft|inner|outer|vdot|^dot"
    r"|(var|std)_mean"
)
_SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-7, -1e-7, 100.0, -100.0)

# The maximum error in epsilons of the dtype at the largest value (elementwise it is smaller).
_TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (2e-5, 1e-5),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
}


def operators() -> dict[str, Any]:
    """PyTorch's descriptions of its operators that have a unique result, by name."""
    every = every_operator().items()
    return {name: info for name, info in every if not _UNDEFINED.search(info.name)}


@functools.cache
def every_operator() -> dict[str, Any]:
    """PyTorch's descriptions of all of its operators, by name."""
    if "expecttest" not in sys.modules:
        # A package for PyTorch's own tests; these descriptions need only one of its classes.
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    infos = {}
    for info in op_db:
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        infos[name] = info
    return infos


def _as_real(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def _tensors_like(example: Any, result: Any) -> Iterator[Any]:
    """The tensors of `result`, which has the structure of `example` and may be a proxy."""
    if isinstance(example, torch.Tensor):
        yield torch.view_as_real(result.resolve_conj()) if example.is_complex() else result
    elif isinstance(example, list | tuple):
        for index, each in enumerate(example):
            yield from _tensors_like(each, result[index])
    elif isinstance(example, dict):
        for key, each in example.items():
            yield from _tensors_like(each, result[key])


class _Operator(nn.Module):
    """An operator with the arguments of a sample; its tensors are the inputs."""

    def __init__(self, function: Any, sample: Any, reference: Any = None) -> None:
        super().__init__()
        arguments = (sample.input, sample.args, sample.kwargs)
        leaves, self.tree = pytree.tree_flatten(arguments)
        self.function = function
        self.reference = reference or function
        self.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        inputs = [leaves[i] for i in self.places]
        # The inputs and outputs of an imported program are real.
        self.are_complex = [x.is_complex() for x in inputs]
        self.inputs = tuple(map(_as_real, inputs))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.call(self.function, *inputs)

    def call(self, function: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors that `function` returns for the sample's arguments."""
        leaves = pytree.tree_leaves(self.result(function, *inputs))
        return tuple(_as_real(x) for x in leaves if isinstance(x, torch.Tensor))

    def result(self, function: Any, *inputs: torch.Tensor) -> Any:
        """The results of `function` for the sample's arguments."""
        leaves = list(self.leaves)
        for place, value, is_complex in zip(self.places, inputs, self.are_complex, strict=True):
            leaves[place] = torch.view_as_complex(value) if is_complex else value
        first, args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return function(first, *args, **kwargs)

    def traced(self) -> fx.GraphModule:
        """The operator as a traced module; proxies have no types, so an eager run gives them."""
        with torch.no_grad():
            example = self.result(self.function, *(x.clone() for x in self.inputs))

        def forward(*inputs: torch.Tensor) -> list[torch.Tensor]:
            return list(_tensors_like(example, self.result(self.function, *inputs)))

        return traced(forward, len(self.inputs))


@dataclass
class Case:
    """An operator on inputs, imported by a `way`; with symbolic extents if it `is_dynamic`."""

    name: str
    module: _Operator
    inputs: tuple[torch.Tensor, ...]
    is_dynamic: bool = False
    way: Way = Way.EXPORTED

    @staticmethod
    def of(
        name: str,
        dtype: torch.dtype,
        index: int,
        special: int | None = None,
        *,
        random: bool = False,
    ) -> "Case | None":
        """Sample `index` of an operator, optionally with special values drawn from a seed.

        None if the operator has no such sample, is not defined for `dtype`, or draws random
        numbers for it, as attention with a dropout does, unless it may be `random`.
        """
        info = every_operator()[name]
        if dtype not in info.dtypes:
            return None
        torch.manual_seed(0)
        np.random.seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = info.sample_inputs("cpu", dtype, requires_grad=False)
            sample = next(itertools.islice(samples, index, None), None)
            if isinstance(samples, types.GeneratorType):
                # Close it now, not while PyTorch traces another function.
                samples.close()
        if sample is None:
            return None
        reference = functools.partial(info.op, stable=True) if name in _UNSTABLE else None
        module = _Operator(info.op, sample, reference)
        inputs = tuple(x.detach().clone().contiguous() for x in module.inputs)
        if _FINITE.search(name):
            special = None
        if special is not None:
            inputs = tuple(_with_special_values(x, special + i) for i, x in enumerate(inputs))
        if not random and _is_random(module):
            return None
        label = f"{name} of {str(dtype).removeprefix('torch.')}, sample {index}"
        return Case(label + (f", special {special}" if special is not None else ""), module, inputs)

    def __str__(self) -> str:
        shapes = ", ".join(f"{str(x.dtype)[6:]}{list(x.shape)}" for x in self.inputs)
        rest = [x for i, x in enumerate(self.module.leaves) if i not in self.module.places]
        return f"{self.name} ({shapes}; {rest} {self.module.tree.child(2).context})"

    def expected(self) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return self.module.call(self.module.reference, *(x.clone() for x in self.inputs))

    def truth(self) -> tuple[torch.Tensor, ...] | None:
        """The results in float64, or None if PyTorch has none."""
        inputs = [x.double() if x.is_floating_point() else x.clone() for x in self.inputs]
        try:
            with torch.no_grad():
                return self.module(*inputs)
        except Exception:
            return None

    def exported(self) -> torch.export.ExportedProgram:
        inputs, automatic = tuple(x.clone() for x in self.inputs), torch.export.Dim.AUTO
        dims = tuple(dict.fromkeys(range(x.ndim), automatic) for x in inputs)
        shapes = (dims,) if self.is_dynamic else None
        return torch.export.export(self.module, inputs, dynamic_shapes=shapes)

    def got(self) -> list[torch.Tensor]:
        """The results of the imported and compiled module."""
        trace = self.module.traced() if self.way is Way.TRACED else None
        mod = imported(self.way, self.exported(), trace)
        run = compiled(mod, only_target() or "llvm")
        return [tensor_of(array) for array in run([array_of(x) for x in self.inputs])]


def _is_random(module: _Operator) -> bool:
    """Whether an operator draws random numbers; PyTorch's description may set the seed itself."""
    seed = torch.manual_seed
    results = []
    for number in range(2):

        def set_seed(_: int, number: int = number) -> torch.Generator:
            return seed(number)

        set_seed(0)
        try:
            with torch.no_grad(), mock.patch("torch.manual_seed", set_seed):
                results.append(module(*(x.clone() for x in module.inputs)))
        except Exception:
            return False
    return not all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*results, strict=True)
    )


def _with_special_values(x: torch.Tensor, seed: int) -> torch.Tensor:
    if not x.is_floating_point() or x.numel() == 0:
        return x
    rng = np.random.default_rng(seed)
    flat = x.flatten().clone()
    for value in _SPECIAL:
        if rng.random() < 0.6:
            flat[int(rng.integers(flat.numel()))] = value
    return flat.reshape(x.shape)


def check_values(
    got: torch.Tensor, expected: torch.Tensor, truth: torch.Tensor | None, what: str
) -> None:
    """Compare a result with PyTorch's; where they differ, use the float64 result as the reference.

    Raises
    ------
    AssertionError
        If they differ.
    """
    assert got.dtype == expected.dtype, f"{what}: {got.dtype} instead of {expected.dtype}"
    assert got.shape == expected.shape, f"{what}: {got.shape} instead of {expected.shape}"
    if not got.is_floating_point():
        differ = (got != expected).sum().item()
        assert differ == 0, f"{what}: {differ} of {got.numel()} elements differ"
        return
    relative, absolute = _TOLERANCE[got.dtype]
    ours, its = got.double(), expected.double()
    near = torch.isclose(ours, its, rtol=relative, atol=absolute, equal_nan=True)
    if near.all():
        return
    if truth is not None and truth.shape == got.shape:
        # Our result may be more accurate, and both may round sums.
        true = truth.double()
        error = (its - true).abs().nan_to_num(0, posinf=0, neginf=0)
        room = 2 * error + relative * true.abs() + absolute
        near |= (ours - true).abs() <= room
        near |= torch.isclose(ours, true.to(got.dtype).double(), equal_nan=True)
        if near.all():
            return
    place = tuple((~near).nonzero()[0].tolist())
    raise AssertionError(
        f"{what}: {(~near).sum().item()} of {got.numel()} elements differ; at {place} "
        f"{ours[place].item()} instead of {its[place].item()}"
    )


class Verdict(StrEnum):
    """The result of a case."""

    RIGHT = "right"
    REJECTED = "rejected"
    """The importer or the compiler rejected it; the message says why."""
    NOT_EXPORTED = "not exported"
    """PyTorch cannot export or trace it, or it returns no tensors."""


def judge(case: Case) -> tuple[Verdict, str]:
    """Compare an operator with PyTorch.

    Returns
    -------
    tuple of Verdict and str
        The verdict, and a message in one line if the operator was rejected.

    Raises
    ------
    AssertionError
        If values, dtypes or shapes differ.
    """
    try:
        expected = case.expected()
        case.exported()
        if case.way is Way.TRACED:
            case.module.traced()
    except Exception as error:
        return Verdict.NOT_EXPORTED, _first_line(error)
    if not expected:
        return Verdict.NOT_EXPORTED, "no result is a tensor"
    try:
        got = case.got()
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        first = next((line for line in lines if "Error" in line), lines[0] if lines else "")
        message = lines[-1] if isinstance(error, tvm.error.InternalError) and lines else first
        return Verdict.REJECTED, f"{type(error).__name__}: {message}"[:300]
    assert len(got) == len(expected), f"{case}: {len(got)} outputs instead of {len(expected)}"
    truth = case.truth()
    truths: Sequence[torch.Tensor | None] = truth if truth is not None else [None] * len(expected)
    for index, (one, other, true) in enumerate(zip(got, expected, truths, strict=True)):
        if index == 1 and case.name.startswith(UNDEFINED_PLACES):
            continue
        check_values(one, other, true, f"{case}: output {index}")
    return Verdict.RIGHT, ""


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))


def check(case: Case) -> str | None:
    """Compare an operator with PyTorch; see :func:`judge`.

    Returns
    -------
    str or None
        The message, in one line, if the importer or the compiler rejected it.
    """
    verdict, message = judge(case)
    return f"{case.name}: {message}" if verdict is Verdict.REJECTED else None


def run_case(seed: int) -> str | None:
    """Check the operator, dtype and sample that `seed` draws; see :func:`check`."""
    rng = np.random.default_rng(seed)
    names = list(operators())
    while True:
        name = names[int(rng.integers(len(names)))]
        dtype = DTYPES[int(rng.integers(len(DTYPES)))]
        special = int(rng.integers(1 << 30)) if rng.random() < 0.3 else None
        case = Case.of(name, dtype, int(rng.integers(SAMPLES)), special)
        if case is not None:
            is_dynamic = rng.random() < 0.3
            way = Way.of(seed)
            label = f"{case.name}{', symbolic' if is_dynamic else ''}, {way}"
            return check(replace(case, name=label, is_dynamic=is_dynamic, way=way))
