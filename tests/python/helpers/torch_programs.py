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
"""Helpers that import PyTorch modules, run them and compare them with PyTorch.

Tolerances. Every result must be within half an ulp of the float64 result, for the final rounding,
plus the error of a sum in the accumulation dtype. It must be within two ulps, at the magnitude of
the output, of PyTorch's own result, since PyTorch's 16-bit kernels may round more than once, plus
the error of two sums.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
import tvm
from torch import fx, nn
from tvm import relax, tirx

from helpers.relax_modules import cpu, merge
from tvm_fixes.frontend import torch as importers

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# In epsilons of the accumulation dtype, relative to the largest output (at least 1); sums have up
# to 600 terms of unit variance.
SUM_ERROR = 128


class Call(nn.Module):
    """A function as a module, so that it can be exported."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def random(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float32, generator=generator).to(dtype)


def randomize(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """`module` in `dtype` with parameters of unit variance and biases as large as its sums."""
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters(), start=1):
            scale = 10.0 if parameter.ndim == 1 else 1.0
            parameter.copy_(scale * random(*parameter.shape, dtype=torch.float32, seed=seed))
    return module.to(dtype).eval()


def export(
    module: nn.Module, inputs: Sequence[torch.Tensor], dynamic: Sequence[int] = ()
) -> torch.export.ExportedProgram:
    """Export `module` with symbolic axes `dynamic` of its first input."""
    shapes = None
    if dynamic:
        axes = {axis: torch.export.Dim(f"extent{axis}", min=2, max=99) for axis in dynamic}
        shapes = (axes, *[None] * (len(inputs) - 1))
    return torch.export.export(module, tuple(inputs), dynamic_shapes=shapes)


def import_exported(
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    dynamic: Sequence[int] = (),
    *,
    of: ModuleType = importers,
    decompose: bool = True,
) -> tvm.IRModule:
    """Import with ``from_exported_program`` of TVM or of this project."""
    program = export(module, inputs, dynamic)
    return of.from_exported_program(
        program, run_ep_decomposition=decompose, unwrap_unit_return_tuple=True
    )


def trace(module: nn.Module) -> fx.GraphModule:
    """Trace `module`; a leaf module is wrapped in a Sequential first."""
    if isinstance(module, Call):
        return fx.symbolic_trace(module.function)
    is_leaf = type(module).__module__.startswith("torch.nn.modules")
    is_leaf = is_leaf and not isinstance(module, nn.Sequential)
    return fx.symbolic_trace(nn.Sequential(module) if is_leaf else module)


def import_fx(
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    dynamic: Sequence[int] = (),
    *,
    of: ModuleType = importers,
    **options: object,
) -> tvm.IRModule:
    """Import with ``from_fx`` of TVM or of this project."""
    shapes = [list(x.shape) for x in inputs]
    for axis in dynamic:
        shapes[0][axis] = tirx.Var(f"extent{axis}", "int64")
    info = [(shape, name_of(x.dtype)) for shape, x in zip(shapes, inputs, strict=True)]
    return of.from_fx(trace(module), info, **options)


IMPORTERS: dict[str, Callable[..., tvm.IRModule]] = {
    "from_exported_program": import_exported,
    "from_fx": import_fx,
}


def run_functions(
    mods: Mapping[str, tvm.IRModule], inputs: Mapping[str, Sequence[torch.Tensor]]
) -> dict[str, torch.Tensor | Exception]:
    """Run each module on its inputs, in one build; if that fails, bisect."""
    try:
        executable = relax.build(merge(dict(mods)), cpu())
    except Exception as error:
        if len(mods) == 1:
            return dict.fromkeys(mods, error)
        names = list(mods)
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        results: dict[str, torch.Tensor | Exception] = {}
        for half in halves:
            results |= run_functions({name: mods[name] for name in half}, inputs)
        return results
    vm = relax.VirtualMachine(executable, tvm.cpu())
    results = {}
    for name in mods:
        try:
            results[name] = _call(vm, name, inputs[name])[0]
        except Exception as error:
            results[name] = error
    return results


def _call(
    vm: relax.VirtualMachine, name: str, inputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    result = vm[name](*(tvm.runtime.from_dlpack(x.detach().contiguous()) for x in inputs))
    fields = [result] if isinstance(result, tvm.runtime.Tensor) else result
    return [torch.from_dlpack(field) for field in fields]


def run_all(mod: tvm.IRModule, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The outputs of ``main``."""
    return _call(relax.VirtualMachine(relax.build(mod, cpu()), tvm.cpu()), "main", inputs)


def run(mod: tvm.IRModule, *inputs: torch.Tensor) -> torch.Tensor:
    [output] = run_all(mod, *inputs)
    return output


@dataclass(frozen=True)
class Reference:
    """PyTorch's results in the dtype of the inputs and in float64."""

    expected: torch.Tensor
    truth: torch.Tensor

    @staticmethod
    def of(module: nn.Module, inputs: Sequence[torch.Tensor]) -> "Reference":
        """Compute the reference; converts the module to float64."""
        with torch.no_grad():
            expected = module(*inputs)
            return Reference(expected, module.double()(*(x.double() for x in inputs)))

    def check(self, got: torch.Tensor) -> None:
        """Compare `got` with the float64 result and with PyTorch's own."""
        assert (got.dtype, got.shape) == (self.expected.dtype, self.expected.shape)
        dtype = self.expected.dtype
        sum_dtype = torch.float64 if dtype == torch.float64 else torch.float32
        epsilon = torch.finfo(dtype).eps
        scale = self.truth.abs().max().clamp(min=1)
        sum_error = SUM_ERROR * torch.finfo(sum_dtype).eps * scale
        allowed = epsilon / 2 * self.truth.abs() + sum_error
        excess = ((got.double() - self.truth).abs() - allowed).max()
        assert excess <= 0, f"beyond the float64 truth's tolerance by {excess}"
        # PyTorch rounds sums of 16-bit numbers more than once, on some CPUs.
        its_own = (self.expected.double() - self.truth).abs().max()
        assert its_own <= 4 * epsilon * scale + 2 * sum_error, (
            f"PyTorch is {its_own} from its float64 result"
        )


class Batch(nn.Module):
    """Modules side by side; each takes its share of the inputs and returns one output."""

    def __init__(self, modules: Sequence[nn.Module], counts: Sequence[int]) -> None:
        super().__init__()
        self.modules_of_batch = nn.ModuleList(modules)
        self.counts = counts

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(inputs)
        return tuple(
            module(*itertools.islice(left, count))
            for module, count in zip(self.modules_of_batch, self.counts, strict=True)
        )


def check_all(
    cases: Mapping[str, tuple[nn.Module, tuple[torch.Tensor, ...]]],
    importer: Callable[..., tvm.IRModule],
    **options: object,
) -> tvm.IRModule:
    """As :func:`check`, for many named modules with their inputs, in one build.

    The modules are also exported together, since exporting takes longest.

    Returns
    -------
    tvm.IRModule
        The built module.
    """
    if importer is import_exported:
        batch = Batch([module for module, _ in cases.values()], [len(x) for _, x in cases.values()])
        batch.train(any(module.training for module, _ in cases.values()))
        flat = tuple(itertools.chain(*(x for _, x in cases.values())))
        mod = importer(batch, flat, **options)
        outputs: Sequence[torch.Tensor] = run_all(mod, *flat)
    else:
        numbered = {f"case{number}": case for number, case in enumerate(cases.values())}
        mod = merge({name: importer(*case, **options) for name, case in numbered.items()})
        vm = relax.VirtualMachine(relax.build(mod, cpu()), tvm.cpu())
        outputs = [_call(vm, name, inputs)[0] for name, (_, inputs) in numbered.items()]
    for (name, (module, inputs)), output in zip(cases.items(), outputs, strict=True):
        try:
            Reference.of(module, inputs).check(output)
        except AssertionError as fault:
            raise AssertionError(f"{name}: {fault}") from fault
    return mod


def check(
    module: nn.Module,
    *inputs: torch.Tensor,
    importer: Callable[..., tvm.IRModule] = import_exported,
    **options: object,
) -> None:
    """Import, build and run `module`; compare with PyTorch in its dtype and in float64."""
    got = run(importer(module, inputs, **options), *inputs)
    Reference.of(module, inputs).check(got)


def check_function(
    function: Callable[..., tuple[torch.Tensor, ...]],
    *inputs: torch.Tensor,
    dynamic: Sequence[int] = (),
    others: Sequence[tuple[torch.Tensor, ...]] = (),
    tolerance: float = 1e-5,
) -> None:
    """Import and build a function of tensors; compare each output with PyTorch's.

    Parameters
    ----------
    function : callable
        Returns a tuple.
    dynamic : sequence of int
        The symbolic axes of the first input, of 4 to 40 elements.
    others : sequence of tuple
        More inputs to run with, which differ from `inputs` only in the symbolic axes.
    """
    shapes = None
    if dynamic:
        axes = {axis: torch.export.Dim(f"extent{axis}", min=4, max=40) for axis in dynamic}
        shapes = ((axes, *[None] * (len(inputs) - 1)),)
    program = torch.export.export(Call(function), inputs, dynamic_shapes=shapes)
    mod = importers.from_exported_program(program)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for values in (inputs, *others):
        expected = function(*values)
        got = _call(vm, "main", values)
        assert len(got) == len(expected)
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), f"output {index}"
            torch.testing.assert_close(
                one, other, rtol=tolerance, atol=tolerance, equal_nan=True, msg=f"output {index}"
            )
