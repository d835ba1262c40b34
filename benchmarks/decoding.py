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
"""One step of a language model: a token, with the keys and values of earlier ones."""

import torch
from torch import nn
from torch.nn import functional

from .layers import Made

PAST = 256
"""The number of earlier tokens."""


class _Attention(nn.Module):
    """Attention to earlier tokens and the new one; several heads may share keys and values."""

    def __init__(self, width: int, heads: int, shared_heads: int, *, is_rotary: bool):
        super().__init__()
        self.extent, self.is_rotary = width // heads, is_rotary
        self.query = nn.Linear(width, width, bias=not is_rotary)
        self.key, self.value = (
            nn.Linear(width, shared_heads * self.extent, bias=not is_rotary) for _ in range(2)
        )
        self.project = nn.Linear(width, width, bias=not is_rotary)
        angles = PAST / 10_000 ** (torch.arange(0, self.extent, 2) / self.extent)
        self.register_buffer("cosine", torch.cos(angles).repeat(2))
        self.register_buffer("sine", torch.sin(angles).repeat(2))

    def _in_heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(1, 1, -1, self.extent).transpose(1, 2)

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Rotary embeddings: rotate pairs of elements by angles that depend on the position."""
        if not self.is_rotary:
            return x
        first, second = x.chunk(2, -1)
        return x * self.cosine + torch.cat((-second, first), -1) * self.sine

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        query = self._rotated(self._in_heads(self.query(x)))
        key = self._rotated(self._in_heads(self.key(x)))
        keys = torch.cat((keys, key), 2)
        values = torch.cat((values, self._in_heads(self.value(x))), 2)
        # The heads that share keys are the rows of one product.
        query = query.reshape(1, keys.shape[1], -1, self.extent)
        weights = torch.softmax(query @ keys.transpose(2, 3) * self.extent**-0.5, -1)
        return self.project((weights @ values).reshape(1, 1, -1))


class _GptBlock(nn.Module):
    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = _Attention(width, heads, heads, is_rotary=False)
        self.widen, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), keys, values)
        return x + self.narrow(functional.gelu(self.widen(self.norms[1](x)), approximate="tanh"))


class _LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, shared_heads: int, inner: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.attention = _Attention(width, heads, shared_heads, is_rotary=True)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), keys, values)
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class _Step(nn.Module):
    """Maps a token to logits; the cache has keys and values of each block in turn."""

    def __init__(self, blocks: list[nn.Module], norm: nn.Module, tokens: int, width: int):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.blocks, self.norm = nn.ModuleList(blocks), norm
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, token: torch.Tensor, *cache: torch.Tensor) -> torch.Tensor:
        x = self.embedding(token)
        for index, block in enumerate(self.blocks):
            x = block(x, cache[2 * index], cache[2 * index + 1])
        return self.head(self.norm(x))


def _made(step: nn.Module, blocks: int, heads: int, extent: int) -> Made:
    cache = (torch.randn(1, heads, PAST, extent) for _ in range(2 * blocks))
    return step, (torch.randint(0, 1000, (1, 1)), *cache)


def gpt2_small() -> Made:
    """The sizes of GPT-2 small; the head has its own weights."""
    blocks: list[nn.Module] = [_GptBlock(768, 12, 3072) for _ in range(12)]
    return _made(_Step(blocks, nn.LayerNorm(768), 50257, 768), 12, 12, 64)


def llama() -> Made:
    """Four blocks with the sizes of TinyLlama."""
    blocks: list[nn.Module] = [_LlamaBlock(2048, 32, 4, 5632) for _ in range(4)]
    return _made(_Step(blocks, nn.RMSNorm(2048), 32000, 2048), 4, 4, 64)
