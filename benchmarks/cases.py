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
"""The benchmark cases: PyTorch modules with random weights, and their inputs.

Each process that needs a case builds it from the same seed. Each module returns one tensor.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from examples._random import seeded

from . import decoding, layers, models
from .protocol import MAX_ERROR

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]

GROUPS = {
    "layers": "single layers and blocks",
    "models": "whole models",
    "gemm": "large matrix products: fraction of the FMA peak",
    "memory": "operators on large data: fraction of the memory bandwidth",
    "int8": "layers and models quantized to 8 bits",
    "weight-only": "linear layers whose weights have 4 or 8 bits, in blocks of 32",
    "decode": "one token of language models with a cache and such weights",
    "bf16": "layers and models in bfloat16 and float16",
    "dynamic": "convolutions of images of any size",
    "avx2": "single layers, with instructions of AVX2 only",
}


@dataclass(frozen=True)
class Case:
    """A model to measure.

    Attributes
    ----------
    name : str
        The name of the case.
    group : str
        One of :data:`GROUPS`.
    factory : callable
        Makes the module and its inputs with PyTorch's global random number generator.
    quantization : str
        How it is quantized: ``static`` or ``dynamic``, to 8 bits, or the weights only, in blocks,
        to ``4`` or ``8`` bits.
    max_error : float
        The accepted error relative to the largest output, unless the output has larger steps.
    is_dynamic : bool
        Whether height and width of the image are symbolic.
    """

    name: str
    group: str
    factory: Callable[[], Made]
    quantization: str = ""
    max_error: float = MAX_ERROR
    is_dynamic: bool = False

    def make(self) -> Made:
        """Return the module, in eval mode and without gradients, and its inputs."""
        with seeded(0):
            module, inputs = self.factory()
        return module.eval().requires_grad_(False), inputs


Factories = dict[str, Callable[[], Made]]


def _linears(shapes: Sequence[tuple[int, int]], batches: Sequence[int]) -> Factories:
    return {
        f"linear {depth}->{columns}, batch {rows}": partial(layers.linear, rows, depth, columns)
        for depth, columns in shapes
        for rows in batches
    }


def _convs(*sizes: tuple[int, int, int, int, int]) -> Factories:
    """Return padded convolutions, each from the channels, the kernel, the stride and the extent."""
    return {
        f"conv {cin}->{cout}, {kernel}x{kernel} s{stride}, {extent}x{extent}": partial(
            layers.conv, cin, cout, kernel, stride, kernel // 2, extent
        )
        for cin, cout, kernel, stride, extent in sizes
    }


def _layers() -> Factories:
    shapes = ((128, 512), (768, 3072), (3072, 768))
    factories = _linears(shapes[:1], (1, 32, 197)) | _linears(shapes[1:], (1, 64, 197))
    for lhs, rhs in (((12, 197, 64), (12, 64, 197)), ((12, 197, 197), (12, 197, 64))):
        factories[f"matmul {layers.by(lhs)} {layers.by(rhs)}"] = partial(layers.matmul, lhs, rhs)
    factories["layernorm 197x768"] = partial(layers.layer_norm, 197, 768)
    factories["softmax 12x197x197"] = partial(layers.softmax, 12, 197, 197)
    factories["gelu 197x3072"] = partial(layers.gelu, 197, 3072)
    factories |= _convs(
        (3, 64, 7, 2, 224), (64, 64, 3, 1, 56), (256, 64, 1, 1, 56), (512, 512, 3, 1, 7)
    )
    factories["depthwise 512, 7x7, 14x14"] = partial(layers.conv, 512, 512, 7, 1, 3, 14, groups=512)
    for cin, cout, kernel, padding, extent in (
        (512, 256, 4, 1, 8),
        (128, 64, 4, 1, 32),
        (64, 3, 4, 1, 64),
        (256, 128, 2, 0, 64),
    ):
        name = f"conv_transpose {cin}->{cout}, {kernel}x{kernel} s2, {extent}x{extent}"
        factories[name] = partial(layers.conv_transpose, cin, cout, kernel, 2, padding, extent)
    factories["conv_transpose1d 64->32, 16 s8, 1024"] = partial(
        layers.conv_transpose1d, 64, 32, 16, 8, 1024
    )
    factories["ConvNeXt block 512"] = layers.convnext_block
    factories["ViT-B block"] = layers.vit_block
    factories["DCGAN generator"] = models.dcgan
    return factories


_BY_GROUP: dict[str, Factories] = {
    "layers": _layers(),
    "models": {
        "ResNet-50": models.resnet50,
        "MobileNetV2": models.mobilenet_v2,
        "ConvNeXt-base": models.convnext_base,
        "ViT-B/16": models.vit_base,
        "BERT-base, 128 tokens": models.bert_base,
        "GPT-2 small, 128 tokens": models.gpt2_small,
        "U-Net": models.unet,
        "VAE decoder": models.vae_decoder,
        "SpeechT5HifiGan": models.hifigan,
    },
    "gemm": {
        "linear 1024->1024, batch 1024": partial(layers.linear, 1024, 1024, 1024),
        "linear 2048->2048, batch 2048": partial(layers.linear, 2048, 2048, 2048),
        "linear 4096->4096, batch 512": partial(layers.linear, 512, 4096, 4096),
        "matmul 2048x2048 2048x2048": partial(layers.matmul, (2048, 2048), (2048, 2048)),
    },
    "memory": {
        "add 64 MiB": partial(layers.add, 4096, 4096),
        "double 64 MiB": partial(layers.double, 4096, 4096),
        "gelu 64 MiB": partial(layers.gelu, 4096, 4096),
        "softmax 64 MiB": partial(layers.softmax, 4096, 4096),
        "layernorm 64 MiB": partial(layers.layer_norm, 4096, 4096),
        "transpose 64 MiB": partial(layers.transpose, 4096, 4096),
    },
}


_MAX_MODEL_ERROR = 0.1
"""The accepted error of a quantized model.

A rounding error of the data becomes a step of an activation, and random weights amplify it: ONNX
Runtime's exact results with and without its optimizer differ by as much as 0.07.
"""


def _int8() -> Iterator[Case]:
    """Yield the cases to quantize; the linear layers and BERT also dynamically."""
    linears = _linears(((768, 3072), (3072, 768)), (1, 32, 128))
    factories: Factories = linears | _convs(
        (256, 64, 1, 1, 56), (64, 64, 3, 1, 56), (256, 256, 3, 1, 14), (3, 64, 7, 2, 224)
    )
    for stride in (1, 2):
        factories[f"depthwise 256, 3x3 s{stride}, 56x56"] = partial(
            layers.conv, 256, 256, 3, stride, 1, 56, groups=256
        )
    factories["residual block 64, 56x56"] = partial(layers.residual_block, 64, 56)
    pools = {"max": nn.MaxPool2d(3, 2, 1), "average": nn.AvgPool2d(3, 2, 1)}
    for kind, pool in pools.items():
        name = f"conv 64->64, 1x1, and {kind} pooling, 56x56"
        factories[name] = partial(layers.pooled, pool, 64, 56)
    whole = _BY_GROUP["models"]
    bert, others = "BERT-base, 128 tokens", ("ResNet-50", "MobileNetV2", "ViT-B/16", "U-Net")
    factories |= {name: whole[name] for name in (bert, *others)}
    for name, factory in factories.items():
        error = _MAX_MODEL_ERROR if name in whole else MAX_ERROR
        yield Case(f"{name}, int8", "int8", factory, "static", error)
        if name in linears or name == bert:
            yield Case(f"{name}, dynamic int8", "int8", factory, "dynamic", error)


def _weight_only() -> Iterator[Case]:
    for bits in ("4", "8"):
        for name, factory in _linears(((4096, 4096), (768, 3072)), (1, 4, 128)).items():
            # With a batch, the layer becomes a MatMul, which the quantizer recognizes.
            batched = partial(factory, 1)
            yield Case(f"{name}, int{bits} weights", "weight-only", batched, bits)
        for name, factory in (("GPT-2 small", decoding.gpt2_small), ("Llama", decoding.llama)):
            token = f"{name}, a token after {decoding.PAST}, int{bits} weights"
            yield Case(token, "decode", factory, bits)


# The rounding error of bfloat16, times the square root of a small number of layers.
_MAX_16_BIT_ERROR = 0.02


def _in_16_bits() -> Iterator[Case]:
    """Yield cases in bfloat16; the memory-bound ones in float16 too."""
    whole = _BY_GROUP["models"]
    names = ("ResNet-50", "ViT-B/16", "BERT-base, 128 tokens")
    linears = _linears(((768, 3072),), (1, 128))
    convs = _convs((64, 64, 3, 1, 56), (256, 64, 1, 1, 56))
    small: Factories = {
        name: _BY_GROUP["layers"][name]
        for name in ("gelu 197x3072", "layernorm 197x768", "softmax 12x197x197", "ViT-B block")
    }
    for name, factory in (linears | convs | small | {name: whole[name] for name in names}).items():
        error = _MAX_MODEL_ERROR if name in whole else _MAX_16_BIT_ERROR
        halved = partial(layers.in_16_bits, factory, torch.bfloat16)
        yield Case(f"{name}, bfloat16", "bf16", halved, max_error=error)
        if name in small:
            halved = partial(layers.in_16_bits, factory, torch.float16)
            yield Case(f"{name}, float16", "bf16", halved, max_error=error)


def _dynamic() -> Iterator[Case]:
    factories = _convs((64, 64, 3, 1, 56), (256, 64, 1, 1, 56), (3, 64, 7, 2, 224))
    whole = _BY_GROUP["models"]
    factories |= {name: whole[name] for name in ("ResNet-50", "VAE decoder")}
    for name, factory in factories.items():
        yield Case(f"{name}, any size", "dynamic", factory, is_dynamic=True)


def _avx2() -> Iterator[Case]:
    for name, factory in _BY_GROUP["layers"].items():
        yield Case(f"{name}, AVX2", "avx2", factory)


_OTHERS = (_int8, _weight_only, _in_16_bits, _dynamic, _avx2)

CASES = {
    name: Case(name, group, factory)
    for group, factories in _BY_GROUP.items()
    for name, factory in factories.items()
} | {case.name: case for cases in _OTHERS for case in cases()}
"""All cases by name."""
