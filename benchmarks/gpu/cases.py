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
"""The cases for a GPU: those of :mod:`benchmarks.cases` in three dtypes, and small ones to check.

Weights and inputs repeat a short random sequence, so that the library of a large model compresses
well: it may have to be copied to the machine with the GPU.
"""

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from examples._random import seeded

from .. import layers, models
from ..cases import CASES
from . import small_models

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

TOLERANCES = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}
"""The accepted error by dtype, relative to the largest output.

It is about four times the rounding error of a value, because a model rounds tens of times.
"""

GROUPS = {
    "check": "products and convolutions of many kinds, only checked",
    "small": "the examples, and small models, only checked",
    "gemm": "large matrix products",
    "memory": "operators bound by memory: fraction of the bandwidth",
    "layers": "single layers and blocks",
    "models": "whole models",
}

VARIANTS = {
    "ours": "tvm-fixes",
    "libraries": "tvm-fixes with cuBLAS and cuDNN",
    "stock": "TVM",
}
"""The compilers of a case, with their descriptions."""

SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
"""The tools of NVIDIA's compute-sanitizer."""

_PERIOD = 4093  # a prime, so that the rows of a matrix differ


@dataclass(frozen=True)
class GpuCase:
    """A model to check or measure on a GPU.

    Attributes
    ----------
    name : str
        The name of the case, with its dtype.
    group : str
        One of :data:`GROUPS`.
    dtype : str
        One of :data:`DTYPES`.
    factory : callable
        Makes the module and its inputs in float32.
    """

    name: str
    group: str
    dtype: str
    factory: Callable[[], Made]

    @property
    def file(self) -> str:
        """A name for files of the case."""
        kept = "".join(c if c.isalnum() else "_" for c in self.name)
        return f"{kept[:60]}_{zlib.crc32(self.name.encode()):08x}"

    def library(self, variant: str) -> str:
        """The file name of the library that one of :data:`VARIANTS` builds."""
        return f"{self.file}.{variant}.so"

    def make(self) -> Made:
        """The module in eval mode and its inputs, in the dtype of the case, on the CPU."""
        with seeded(0), torch.no_grad():
            module, inputs = self.factory()
            module = module.eval().requires_grad_(False)
            _repeat_a_sequence(module)
        dtype = DTYPES[self.dtype]
        narrow = tuple(
            _repeated(x, seed).to(dtype) if x.is_floating_point() else x
            for seed, x in enumerate(inputs)
        )
        return module.to(dtype), narrow


def _repeated(like: torch.Tensor, seed: int) -> torch.Tensor:
    """A tensor of the same shape that repeats a random sequence.

    Its standard deviation is that of `like`, rounded to a power of two: initial weights differ a
    little between versions of PyTorch, and so may the versions on the two machines.
    """
    values = np.random.RandomState(seed % 2**31).standard_normal(_PERIOD).astype("float32")
    flat = np.resize(values, like.numel()).reshape(like.shape)
    spread = float(like.std()) if like.numel() > 1 else 1.0
    return torch.from_numpy(flat) * 2.0 ** round(math.log2(max(spread, 1e-6)))


def _repeat_a_sequence(module: nn.Module) -> None:
    for number, (_, parameter) in enumerate(module.named_parameters()):
        if parameter.ndim > 1:
            parameter.copy_(_repeated(parameter, number))
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            # The statistics belong to the weights that were replaced.
            layer.weight.fill_(1.1)
            layer.bias.fill_(0.05)
            layer.running_mean.fill_(0.02)
            layer.running_var.fill_(max(float(layer.running_var.mean()), 1e-3))


def _conv(rank: int, cin: int, cout: int, extent: int, **options: object) -> Made:
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    return kind(cin, cout, **options), (torch.randn(2, cin, *[extent] * rank),)


def _conv_transpose(rank: int, cin: int, cout: int, extent: int, **options: object) -> Made:
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
    return kind(cin, cout, **options), (torch.randn(2, cin, *[extent] * rank),)


def _product(lhs: tuple[int, ...], rhs: tuple[int, ...], flips: str) -> Made:
    """A product whose operands are transposed as `flips` says: ``"nt"`` transposes the second."""

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a = a.transpose(-1, -2) if flips[0] == "t" else a
        return a @ (b.transpose(-1, -2) if flips[1] == "t" else b)

    return layers.Function(multiply), (torch.randn(lhs), torch.randn(rhs))


def _with_relu(factory: Callable[[], Made]) -> Made:
    module, inputs = factory()
    return nn.Sequential(module, nn.ReLU()), inputs


def _attention(length: int, causal: bool) -> Made:
    shapes = [(2, 4, length, 32)] * 3
    attend = partial(functional.scaled_dot_product_attention, is_causal=causal)
    return layers.Function(attend), tuple(map(torch.randn, shapes))


def _checks() -> Iterator[tuple[str, Callable[[], Made]]]:
    for lhs, rhs, flips in (
        ((37, 65), (65, 51), "nn"),
        ((37, 65), (51, 65), "nt"),
        ((65, 37), (65, 51), "tn"),
        ((65, 37), (51, 65), "tt"),
        ((1, 64), (64, 128), "nn"),
        ((3, 5, 37, 65), (3, 5, 65, 51), "nn"),
        ((3, 5, 37, 65), (3, 5, 51, 65), "nt"),
        ((3, 5, 37, 65), (65, 51), "nn"),
        ((3, 5, 65, 37), (65, 51), "tn"),
        ((37, 65), (5, 65, 51), "nn"),
        ((1, 5, 37, 65), (5, 65, 51), "nn"),
        ((3, 1, 37, 65), (1, 5, 65, 51), "nn"),
    ):
        name = f"product {layers.by(lhs)} {layers.by(rhs)} {flips}"
        yield name, partial(_product, lhs, rhs, flips)
    for rows, depth, columns in ((1, 64, 48), (17, 63, 129), (128, 256, 512)):
        linear = partial(layers.linear, rows, depth, columns)
        yield f"linear {rows}x{depth}x{columns}", linear
        yield f"linear {rows}x{depth}x{columns} relu", partial(_with_relu, linear)
    for rank in (1, 2, 3):
        for label, options in {
            "same": {"kernel_size": 3, "padding": 1},
            "s2": {"kernel_size": 3, "stride": 2, "padding": 1},
            "d2": {"kernel_size": 3, "dilation": 2, "bias": False},
            "g4": {"kernel_size": 3, "groups": 4, "padding": 1},
            "1x1": {"kernel_size": 1},
        }.items():
            yield f"conv{rank}d {label}", partial(_conv, rank, 8, 12, 13, **options)
        for label, options in {
            "s2": {"kernel_size": 4, "stride": 2, "padding": 1},
            "out": {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
            "g2": {"kernel_size": 3, "stride": 2, "groups": 2},
            "d2": {"kernel_size": 3, "dilation": 2},
        }.items():
            name = f"conv_transpose{rank}d {label}"
            yield name, partial(_conv_transpose, rank, 8, 12, 9, **options)
    yield "depthwise", partial(_conv, 2, 16, 16, 13, kernel_size=3, padding=1, groups=16)
    yield (
        "asymmetric",
        lambda: (
            nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(8, 12, 3)),
            (torch.randn(2, 8, 13, 13),),
        ),
    )
    for causal in (False, True):
        yield f"attention causal={causal}", partial(_attention, 33, causal)
    for name in _FUNCTIONS:
        for shape in ((7, 130), (3, 197, 64), (2, 12, 197, 197)):
            yield f"{name} {layers.by(shape)}", partial(_function, name, shape)
    yield "masked attention", _masked_attention
    yield "patches", partial(_patches, 768, 16)
    yield "patches 32", partial(_patches, 32, 4)


_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "softmax of axis 0": lambda x: x.softmax(0),
    "layernorm": lambda x: functional.layer_norm(x, x.shape[-1:], eps=1e-12),
    "gelu": functional.gelu,
    "tanh gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "sum": lambda x: x.sum(-1),
    "sum of axis 0": lambda x: x.sum(0),
    "mean of all": lambda x: x.mean(),
    "amax": lambda x: x.amax(-1),
    "variance": lambda x: x.var(1),
    "any": lambda x: (x > 3).any(-1).to(x.dtype),
    "all": lambda x: (x > -3).all(-1).to(x.dtype),
    "least int8": lambda x: (x * 20).to(torch.int8).amin(-1).to(x.dtype),
    "sum of int32": lambda x: (x * 20).to(torch.int32).sum(-1).float(),
    "argmax": lambda x: x.argmax(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(-1)[0],
    "topk": lambda x: x.topk(5)[0],
    "gather": lambda x: x[:, torch.tensor([5, 0, 6, -1], device=x.device)],
    "permute": lambda x: x.transpose(0, -1).contiguous() + 1,
    "concat": lambda x: torch.cat([x, -x, x[..., :3]], -1),
    "pad": lambda x: functional.pad(x, (1, 2)).roll(1, 0),
    "where": lambda x: torch.where(x > 0, x, x.exp()),
}


def _function(name: str, shape: tuple[int, ...]) -> Made:
    return layers.Function(_FUNCTIONS[name]), (torch.randn(shape),)


def _masked_attention() -> Made:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(q.shape[-2], device=q.device)
        mask = (rows[:, None] % 7 != 3) & (rows[None] >= rows[:, None] // 2)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return layers.Function(attend), tuple(torch.randn(1, 12, 197, 64) for _ in range(3))


def _patches(width: int, patch: int) -> Made:
    """The patches of an image, as a vision transformer embeds them."""
    module = nn.Conv2d(3, width, patch, patch)
    tokens = layers.Function(lambda x: module(x).flatten(2).transpose(1, 2).contiguous())
    tokens.module = module
    return tokens, (torch.randn(1, 3, 14 * patch, 14 * patch),)


def _batched(factory: Callable[[], Made], batch: int) -> Made:
    """The model, with its inputs repeated to a batch."""
    module, inputs = factory()
    return module, tuple(x.repeat(batch, *[1] * (x.ndim - 1)) for x in inputs)


def _all() -> Iterator[GpuCase]:
    for group, factories in (("check", dict(_checks())), ("small", small_models.MODELS)):
        for name, factory in factories.items():
            for dtype in DTYPES:
                yield GpuCase(f"{name}, {dtype}", group, dtype, factory)
    for case in CASES.values():
        if case.group in ("gemm", "memory", "layers", "models"):
            for dtype in DTYPES:
                yield GpuCase(f"{case.name}, {dtype}", case.group, dtype, case.factory)
    for name, factory in {
        "ResNet-50": models.resnet50,
        "ViT-B/16": models.vit_base,
        "BERT-base, 128 tokens": models.bert_base,
    }.items():
        for dtype in ("float16", "bfloat16"):
            batched = partial(_batched, factory, 16)
            yield GpuCase(f"{name}, batch 16, {dtype}", "models", dtype, batched)


GPU_CASES = {case.name: case for case in _all()}
"""All cases by name."""
