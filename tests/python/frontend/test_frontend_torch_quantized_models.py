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
"""Models quantized with PT2E and torchao, compared with PyTorch's run of the exported program."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    PerAxis,
    PerGroup,
    PerTensor,
    quantize_,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)
from tvm import relax

from helpers.grids import is_full
from helpers.relax_modules import count, cpu
from helpers.torch_quantized import run_program
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.source.torch import TorchSource

pytestmark = pytest.mark.filterwarnings("ignore")


class Convolutions(nn.Module):
    """Convolution and batch norm, depthwise, residual, pooling and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.point, self.last = nn.Conv2d(16, 16, 1), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.point(torch.relu(self.depthwise(x))) + x)
        return self.last(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Block(nn.Module):
    """Attention and an MLP."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (2, -1)).transpose(1, 2)
            for part in self.project(self.norm(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(x)))


def made(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval().to(dtype)


def data(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def quantized_by_pt2e(
    module: nn.Module, x: torch.Tensor, *, dynamic: bool = False
) -> torch.export.ExportedProgram:
    config = get_default_x86_inductor_quantization_config(is_dynamic=dynamic)
    quantizer = X86InductorQuantizer().set_global(config)
    prepared = prepare_pt2e(torch.export.export(module, (x,)).module(), quantizer)
    for seed in range(3):
        prepared(x + seed / 10)
    return torch.export.export(convert_pt2e(prepared), (x,))


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert that most outputs are equal up to rounding, and all within one step of 8 bits."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    difference, largest = (got - expected).abs().float(), expected.abs().max().float()
    step = max(1 / 127, 2 * torch.finfo(got.dtype).eps) * largest
    assert difference.max() <= step
    rounding = 8 * torch.finfo(got.dtype).eps * largest
    assert (difference > rounding).float().mean() < 0.25


def check(program: torch.export.ExportedProgram, x: torch.Tensor) -> tvm.IRModule:
    mod, [got], [expected] = run_program(program, x)
    assert_close(got, expected)
    return mod


def test_convolutions_by_pt2e() -> None:
    x = data(2, 3, 8, 8)
    mod = check(quantized_by_pt2e(made(Convolutions), x), x)
    # The operands of four products, and the other operand of the sum.
    assert count(mod, "relax.dequantize") == 9
    assert count(mod, "relax.round") == 4


def test_block_by_pt2e() -> None:
    x = data(2, 7, 32)
    mod = check(quantized_by_pt2e(made(Block), x), x)
    assert count(mod, "relax.dequantize") >= 8


def test_dynamic_linears_by_pt2e() -> None:
    x = data(5, 32)
    module = made(lambda: nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 16)))
    mod = check(quantized_by_pt2e(module, x, dynamic=True), x)
    assert count(mod, "relax.dequantize") == 4


class Linears(nn.Module):
    """Linear layers side by side, each quantized by its configuration."""

    def __init__(self, number: int) -> None:
        super().__init__()
        for index in range(number):
            setattr(self, f"linear{index}", nn.Linear(32, 16, bias=index % 3 != 0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(linear(x) for linear in self.children())


CONFIGS = (
    Int8WeightOnlyConfig(),
    Int8WeightOnlyConfig(granularity=PerGroup(16)),
    Int8DynamicActivationInt8WeightConfig(),
    Int8DynamicActivationInt8WeightConfig(granularity=PerTensor()),
    Int8DynamicActivationInt8WeightConfig(act_mapping_type=MappingType.ASYMMETRIC),
    Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(16)),
    IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerAxis(0)),
    IntxWeightOnlyConfig(weight_dtype=torch.int3, granularity=PerGroup(16)),
)


@pytest.mark.parametrize(
    ("dtype", "configs"),
    [
        (torch.float32, CONFIGS if is_full() else CONFIGS[:5] + CONFIGS[6:7]),
        (torch.bfloat16, CONFIGS[2:6:3] if is_full() else CONFIGS[5::2]),
    ],
    ids=["float32", "bfloat16"],
)
def test_linears_by_torchao(dtype: torch.dtype, configs: tuple) -> None:
    module, x = made(lambda: Linears(len(configs)), dtype), data(2, 7, 32).to(dtype)
    for (name, _), config in zip(module.named_children(), configs, strict=True):
        quantize_(module, config, lambda _, path, name=name: path == name)
    _, got, expected = run_program(torch.export.export(module, (x,)), x)
    for one, other in zip(got, expected, strict=True):
        assert_close(one, other)


def test_dynamic_batch_by_torchao() -> None:
    module = made(lambda: nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8)))
    quantize_(module, Int8DynamicActivationInt8WeightConfig())
    batch, x = {0: torch.export.Dim("batch", min=2, max=64)}, data(3, 32)
    mod = check(torch.export.export(module, (x,), dynamic_shapes=(batch,)), x)
    assert count(mod, "relax.matmul") == 2
    assert len(mod["main"].params) == 1


def test_parameters_as_inputs() -> None:
    module, x = made(lambda: nn.Sequential(nn.Linear(32, 16))), data(3, 32)
    quantize_(module, Int8WeightOnlyConfig(granularity=PerGroup(16)))
    program = torch.export.export(module, (x,))
    mod = from_exported_program(program, keep_params_as_input=True, unwrap_unit_return_tuple=True)
    parameters = mod["main"].attrs["params"]
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    got = torch.from_dlpack(vm["main"](tvm.runtime.from_dlpack(x), *parameters))
    assert_close(got, program.module()(x))


def test_the_source_counts_the_parts_of_a_weight() -> None:
    module = made(lambda: nn.Sequential(nn.Linear(32, 16, bias=False)))
    quantize_(module, Int8WeightOnlyConfig())
    source = TorchSource.export(module, (data(3, 32),), "linear")
    sizes = {name: len(array) for name, array in source.parameters()}
    assert sizes == {"0.weight.qdata": 512, "0.weight.scale": 64, "0.weight.zero_point": 16}
    assert source.parameter_bytes == sum(sizes.values())


def test_the_operators_of_pt2e_are_registered_before_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = made(lambda: nn.Sequential(nn.Linear(4, 4)))
    path, imported = tmp_path / "program.pt2", []
    torch.export.save(quantized_by_pt2e(module, data(2, 4)), path)
    monkeypatch.setattr("tvm_fixes.source.torch.import_module", imported.append)
    assert [spec.name for spec in TorchSource.load(path).inputs] == ["input"]
    assert imported == ["torch.ao.quantization.fx._decomposed"]


@pytest.mark.skipif(not is_full(), reason="the page changes seldom")
def test_the_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs" / "quantized.md"
    _, section = page.read_text().split("\n## PyTorch\n")
    programs = re.findall(r"^```python\n(.*?)^```$", section.split("\n## ")[0], re.M | re.S)
    monkeypatch.chdir(tmp_path)
    for program in programs:
        exec(program, {})
    assert {path.name for path in tmp_path.iterdir()} == {"linears", "convolution"}
