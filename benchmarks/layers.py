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
"""Single operators and blocks of models, each with its float32 inputs."""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]):
        super().__init__()
        self._function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self._function(*args)


class In16Bits(nn.Module):
    """A module that computes in 16 bits; its inputs and its output are float32."""

    def __init__(self, module: nn.Module, dtype: torch.dtype):
        super().__init__()
        self.module, self.dtype = module.to(dtype), dtype

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        narrow = (x.to(self.dtype) if x.is_floating_point() else x for x in inputs)
        return self.module(*narrow).float()


def in_16_bits(factory: Callable[[], Made], dtype: torch.dtype) -> Made:
    """A case with 16-bit weights and activations."""
    module, inputs = factory()
    return In16Bits(module, dtype), inputs


def by(shape: Sequence[int]) -> str:
    """Format a shape as ``12x197x64``."""
    return "x".join(map(str, shape))


def linear(rows: int, depth: int, columns: int, *batch: int) -> Made:
    """A linear layer with bias, on data of shape (*batch, rows, depth)."""
    return nn.Linear(depth, columns), (torch.randn(*batch, rows, depth),)


def matmul(lhs: Sequence[int], rhs: Sequence[int]) -> Made:
    """A product of two activations."""
    return Function(torch.matmul), (torch.randn(*lhs), torch.randn(*rhs))


def layer_norm(rows: int, width: int) -> Made:
    """A layer norm of the last axis, with weight and bias."""
    module = nn.LayerNorm(width)
    nn.init.uniform_(module.weight, 0.5, 1.5)
    nn.init.normal_(module.bias, std=0.2)
    return module, (torch.randn(rows, width),)


def softmax(*shape: int) -> Made:
    """A softmax of the last axis."""
    return nn.Softmax(-1), (torch.randn(shape),)


def gelu(*shape: int) -> Made:
    """The exact GELU, which uses the error function."""
    return nn.GELU(), (torch.randn(shape),)


def add(*shape: int) -> Made:
    """A sum of two activations."""
    return Function(torch.add), (torch.randn(shape), torch.randn(shape))


def double(*shape: int) -> Made:
    """An activation times 2: a kernel that is bound by memory bandwidth."""
    return Function(lambda x: x * 2), (torch.randn(shape),)


def transpose(rows: int, columns: int) -> Made:
    """A transpose that copies the matrix."""
    return Function(lambda x: x.t().contiguous()), (torch.randn(rows, columns),)


def conv(
    cin: int, cout: int, kernel: int, stride: int, padding: int, extent: int, groups: int = 1
) -> Made:
    """A convolution with bias, on one square image."""
    module = nn.Conv2d(cin, cout, kernel, stride, padding, groups=groups)
    return module, (torch.randn(1, cin, extent, extent),)


def conv_transpose(
    cin: int, cout: int, kernel: int, stride: int, padding: int, extent: int
) -> Made:
    """A transposed convolution without bias, on one square image."""
    module = nn.ConvTranspose2d(cin, cout, kernel, stride, padding, bias=False)
    return module, (torch.randn(1, cin, extent, extent),)


def conv_transpose1d(cin: int, cout: int, kernel: int, stride: int, extent: int) -> Made:
    """A transposed convolution with bias, on one signal; the output is `stride` times as long."""
    module = nn.ConvTranspose1d(cin, cout, kernel, stride, (kernel - stride) // 2)
    return module, (torch.randn(1, cin, extent),)


def pooled(pool: nn.Module, channels: int, extent: int) -> Made:
    """A 1x1 convolution and pooling, on one square image."""
    module = nn.Sequential(nn.Conv2d(channels, channels, 1), pool)
    return module, (torch.randn(1, channels, extent, extent),)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, each with a ReLU, and a residual."""

    def __init__(self, channels: int):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def residual_block(channels: int, extent: int) -> Made:
    """A residual block, on one square image."""
    return ResidualBlock(channels), (torch.randn(1, channels, extent, extent),)


class ConvNextBlock(nn.Module):
    """Depthwise convolution, norm over the channels, two linear layers, scale and residual."""

    def __init__(self, width: int):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(functional.gelu(self.widen(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


def convnext_block() -> Made:
    """The block of ConvNeXt-base's third stage."""
    return ConvNextBlock(512), (torch.randn(1, 512, 14, 14),)


class VitBlock(nn.Module):
    """Norm and attention, norm and two linear layers, each with a residual."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(query, key, value)
        return self.project(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norms[0](x))
        return x + self.narrow(functional.gelu(self.widen(self.norms[1](x))))


def vit_block() -> Made:
    """A block of ViT-B/16, on one 224x224 image."""
    return VitBlock(768, 12), (torch.randn(1, 197, 768),)
