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
"""Activations, poolings and grid sampling of PyTorch, by both importers."""

import math

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from torch import nn
from tvm import relax

from helpers.grids import few, is_full
from helpers.relax_modules import cpu
from helpers.torch_programs import (
    Call,
    check_function,
    import_exported,
    import_fx,
    run,
    run_all,
)
from tvm_fixes.frontend.torch import from_exported_program

FUNCTIONS = {
    "elu": lambda x: F.elu(x, 1.3),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7),
    "softplus": lambda x: F.softplus(x, 2.0, 5.0),
    "softplus1": F.softplus,
    "logsigmoid": F.logsigmoid,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "softshrink": lambda x: F.softshrink(x, 0.25),
    "hardshrink": lambda x: F.hardshrink(x, 0.25),
    "threshold": lambda x: F.threshold(x, 0.125, 20.0),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
}
ONLY_DECOMPOSED = ("logsigmoid", "hardshrink", "threshold")
# With cancellation, the error is relative to the operands.
ABSOLUTE = {"logaddexp": 4.0}


def special_values(dtype: torch.dtype) -> torch.Tensor:
    sizes = torch.logspace(-30, 30, 121, dtype=torch.float64)
    others = [math.nan, math.inf, -math.inf, 0.0, -0.0, 88.5, 89.0, -104.0, 0.25, -0.25, 1.0, -1.0]
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(300, generator=generator, dtype=torch.float64) * 3
    return torch.cat([sizes, -sizes, torch.tensor(others).double(), normal]).to(dtype)


def run_with_fixes(mod: tvm.IRModule, *inputs: torch.Tensor) -> list[torch.Tensor]:
    executable = relax.build(mod, cpu(), relax_pipeline="tvm_fixes")
    given = [tvm.runtime.from_dlpack(x) for x in inputs]
    return [
        torch.from_dlpack(x) for x in relax.VirtualMachine(executable, tvm.cpu())["main"](*given)
    ]


def check_near(got: torch.Tensor, x: torch.Tensor, name: str) -> None:
    """Compare a function with its float64 result, within a few ulp."""
    truth = FUNCTIONS[name](x.double())
    expected = truth.to(x.dtype)
    assert got.dtype == x.dtype, name
    error = (got.double() - truth).abs()
    tiny = torch.finfo(x.dtype).tiny
    allowed = 4 * torch.finfo(x.dtype).eps * (truth.abs() + tiny + ABSOLUTE.get(name, 0))
    same = (got == expected) | (got.isnan() & expected.isnan())
    wrong = ~(same | (error <= allowed))
    assert not wrong.any(), f"{name} of {x[wrong][:4]}: {got[wrong][:4]}, not {expected[wrong][:4]}"
    zeros = expected == 0
    if name in ("elu", "selu", "celu", "expm1", "log1p"):
        assert (got.signbit() == expected.signbit())[zeros].all(), f"{name}: signs of zero"


@few(1)
@pytest.mark.parametrize(
    ("dtype", "decompose"),
    (
        (torch.float32, True),
        (torch.float32, False),
        (torch.float64, True),
        # Both are computed in float32.
        *([(torch.float16, True)] if is_full() else []),
        (torch.bfloat16, True),
    ),
)
def test_activations_of_an_exported_program(dtype: torch.dtype, decompose: bool) -> None:
    x = special_values(dtype)
    names = [
        n for n in FUNCTIONS if decompose or n not in ("logsigmoid", "hardshrink", "threshold")
    ]
    module = Call(lambda x: tuple(FUNCTIONS[name](x) for name in names))
    program = torch.export.export(module, (x,))
    mod = from_exported_program(program, run_ep_decomposition=decompose)
    for name, got in zip(names, run_with_fixes(mod, x), strict=True):
        check_near(got, x, name)


# Indices of the outputs that TVM itself lowers.
GELUS = (5, 6, 13)


class Activations(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.activations = nn.ModuleList(
            [
                *(nn.ELU(0.7), nn.CELU(0.7), nn.SELU(), nn.Softplus(2.0, 5.0), nn.Softshrink(0.25)),
                *(nn.GELU("tanh"), nn.GELU(), nn.Hardtanh(-2.0, 3.0)),
            ]
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *(activation(x) for activation in self.activations),
            *(F.elu(x, 0.7), F.celu(x, 0.7), F.selu(x), F.softplus(x, 2.0, 5.0)),
            *(F.hardtanh(x, -2.0, 3.0), F.gelu(x, approximate="tanh"), torch.log1p(x)),
        )


def test_activations_of_a_traced_module() -> None:
    x = torch.cat([torch.linspace(-5, 5, 41), torch.tensor([math.nan, 1e-9, -1e-9, 80.0])])
    outputs = run_with_fixes(import_fx(Activations(), (x,)), x)
    for number, (got, expected) in enumerate(zip(outputs, Activations()(x), strict=True)):
        torch.testing.assert_close(
            got, expected, rtol=3e-6, atol=1e-6 if number in GELUS else 1e-9, equal_nan=True
        )


OPTIONS = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
POOLINGS = [
    (rank, dict(zip(OPTIONS, values, strict=True)))
    for rank in (2, 3)
    for values in (
        (2, None, 0, False, True),
        (3, 2, 1, True, False),
        ((3, 2, 4)[:rank], (1, 3, 3)[:rank], (1, 0, 2)[:rank], True, True),
        (4, 4, 2, True, True),
    )
]


@pytest.mark.parametrize("importer", (import_exported, import_fx))
def test_average_pooling_with_a_divisor(importer) -> None:
    x, plain = torch.randn(2, 3, 5, 6, 7), torch.randn(3, 6, 7)

    def pool(x: torch.Tensor, plain: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(
            F.avg_pool3d(x, **options, divisor_override=3)
            if rank == 3
            else F.avg_pool2d(plain, **options, divisor_override=3)
            for rank, options in POOLINGS
        )

    outputs = run_all(importer(Call(pool), (x, plain)), x, plain)
    for got, expected in zip(outputs, pool(x, plain), strict=True):
        torch.testing.assert_close(got, expected)


def test_average_pooling_with_a_divisor_of_symbolic_extents() -> None:
    def pool(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=4)

    x = torch.randn(2, 3, 7, 8)
    dims = {2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    program = torch.export.export(Call(pool), (x,), dynamic_shapes=((dims,),))
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    for sizes in ((7, 8), (9, 6)):
        x = torch.randn(2, 3, *sizes)
        torch.testing.assert_close(run(mod, x), pool(x))


def test_average_pooling_modules_with_a_divisor() -> None:
    module = nn.Sequential(nn.AvgPool2d(2, 1, divisor_override=5), nn.AvgPool2d(2))
    x = torch.randn(1, 2, 6, 6, dtype=torch.float16)
    for importer in (import_exported, import_fx):
        torch.testing.assert_close(run(importer(module, (x,)), x), module(x), rtol=2e-3, atol=1e-3)


def test_average_pooling_of_data_without_a_batch() -> None:
    x = torch.randn(3, 7)
    check_function(lambda x: (F.avg_pool1d(x, 2), F.adaptive_avg_pool1d(x, 3)), x)


def test_grid_sample() -> None:
    """With coordinates inside and outside; the grid is not square."""
    data = {2: torch.randn(2, 3, 5, 7), 3: torch.randn(2, 3, 3, 4, 5)}
    # Two rows, so that an importer that misreads the grid as [N, 2, H, W] accepts it.
    grids = {2: torch.rand(2, 2, 6, 2) * 3 - 1.5, 3: torch.rand(2, 3, 4, 5, 3) * 3 - 1.5}
    options = [
        (2, "bilinear", "zeros", 1),
        (2, "nearest", "border", 0),
        # Reflections of sixteen samples compile for half a minute.
        (2, "bicubic", "reflection" if is_full() else "border", 0),
        (2, "nearest", "reflection", 0),
        (3, "bilinear", "border", 0),
        (3, "nearest", "zeros", 1),
    ]

    def sample(
        x2: torch.Tensor, g2: torch.Tensor, x3: torch.Tensor, g3: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        given = {2: (x2, g2), 3: (x3, g3)}
        return tuple(
            F.grid_sample(
                *given[rank], mode=mode, padding_mode=padding, align_corners=bool(corners)
            )
            for rank, mode, padding, corners in options
        )

    check_function(sample, data[2], grids[2], data[3], grids[3], tolerance=2e-4)


def test_grid_sample_in_half_precision() -> None:
    """Computed in float32; PyTorch rounds the coordinates."""
    module = Call(lambda x, grid: F.grid_sample(x, grid, align_corners=False))
    x, grid = torch.randn(1, 2, 9, 9).half(), (torch.rand(1, 4, 5, 2) * 2 - 1).half()
    got = run(import_exported(module, (x, grid)), x, grid)
    torch.testing.assert_close(got, module(x.float(), grid.float()).half(), rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    tvm.testing.main()
