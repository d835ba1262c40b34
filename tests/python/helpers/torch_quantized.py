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
"""Helpers that compare quantized PyTorch programs with PyTorch."""

from collections.abc import Callable

import torch
import tvm
from torch import nn
from tvm import relax

from helpers.relax_modules import cpu
from helpers.torch_programs import _call
from tvm_fixes.frontend import torch as importers


class Fixed(nn.Module):
    """A function as a module whose buffers are its last arguments."""

    def __init__(self, function: Callable, *buffers: torch.Tensor) -> None:
        super().__init__()
        self.function, self.names = function, [f"buffer{i}" for i in range(len(buffers))]
        for name, buffer in zip(self.names, buffers, strict=True):
            self.register_buffer(name, buffer)

    def forward(self, *inputs: torch.Tensor):
        return self.function(*inputs, *(getattr(self, name) for name in self.names))


def run_program(
    program: torch.export.ExportedProgram, *inputs: torch.Tensor, **options: object
) -> tuple[tvm.IRModule, list[torch.Tensor], list[torch.Tensor]]:
    """Import and run a program; return the module, its outputs and PyTorch's."""
    mod = importers.from_exported_program(program, **options)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    expected = program.module()(*inputs)
    got = _call(vm, "main", inputs)
    return mod, got, [expected] if isinstance(expected, torch.Tensor) else list(expected)


def same(function: Callable | nn.Module, *inputs: torch.Tensor, **options: object) -> tvm.IRModule:
    """Import and run a function that returns a tuple; its outputs must equal PyTorch's."""
    module = function if isinstance(function, nn.Module) else Fixed(function)
    program = torch.export.export(module, inputs, **options)
    mod, got, expected = run_program(program, *inputs)
    assert len(got) == len(expected)
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), f"output {index}"
        wrong = (one != other) & ~(one.isnan() & other.isnan())
        assert not wrong.any(), f"output {index}: {one[wrong][:5]}; PyTorch: {other[wrong][:5]}"
    return mod


def numbers(*shape: int, scale: float = 0.1, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers with ties of `scale`, zeros, huge numbers and infinities among them."""
    generator = torch.Generator().manual_seed(len(shape))
    flat = torch.randn(shape, generator=generator).view(-1) * 20 * scale
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1e30, -1e30, 1e-40])
    extremes = torch.cat([special, (torch.arange(-200, 300) + 0.5) * scale])[: len(flat) // 2]
    flat[: len(extremes)] = extremes
    return flat[torch.randperm(len(flat), generator=generator)].view(shape).to(dtype)


def integers(*shape: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    """Random integers with the limits of their dtype among them."""
    info = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randint(info.min, info.max, shape, generator=generator, dtype=dtype)
    x.view(-1)[:2] = torch.tensor([info.min, info.max])
    return x
