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
"""Small models with random weights, on which the verdict on outputs is measured."""

import io
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from examples._random import seeded

from .zoo.judging import perturbed


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


class _Squeezed(nn.Module):
    """An inverted residual with squeeze and excitation, as in MobileNetV3."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = 3 * channels
        self.enter = nn.Sequential(nn.Conv2d(channels, wide, 1), nn.BatchNorm2d(wide))
        self.depthwise = nn.Conv2d(wide, wide, 5, 1, 2, groups=wide)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 8, 1), nn.ReLU(), nn.Conv2d(8, wide, 1)
        )
        self.leave = nn.Conv2d(wide, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.hardswish(self.depthwise(nn.functional.relu6(self.enter(x))))
        return x + self.leave(y * nn.functional.hardsigmoid(self.gate(y)))


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, 1, 1)
        self.bottom = nn.Sequential(
            nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 16, 3, 1, 1), nn.InstanceNorm2d(16, affine=True)
        )
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.out = nn.Conv2d(24, 2, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = nn.functional.leaky_relu(self.down(x))
        deep = nn.functional.elu(self.bottom(first))
        resized = nn.functional.interpolate(deep[:, :8], scale_factor=2, mode="bilinear")
        return torch.sigmoid(self.out(torch.cat([first, self.up(deep), resized], 1)))


class _Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(16, 24, 2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(48, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.out(self.layers(x)[0]), -1)


class _Pyramid(nn.Module):
    """Pools of several sizes, and a head of a detector."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, 2, 1)
        self.pools = nn.ModuleList(nn.AvgPool2d(2 * n + 1, 1, n) for n in (1, 2))
        self.head = nn.Conv2d(36, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.silu(self.stem(x))
        y = self.head(torch.cat([x, *(pool(x) for pool in self.pools)], 1)).flatten(2)
        boxes, scores = y[:, :4], y[:, 4:]
        first, last = boxes[:, :2] - boxes[:, 2:].exp(), boxes[:, :2] + boxes[:, 2:].exp()
        return torch.cat([first, last, scores.sigmoid()], 1)


def _exported(module: nn.Module, shape: tuple[int, ...]) -> onnx.ModelProto:
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            perturbed(module).eval(), (torch.randn(shape),), file, dynamo=False, opset_version=17
        )
    return onnx.load_from_string(file.getvalue())


def _quantized() -> onnx.ModelProto:
    """Convolutions and a matrix product of 8-bit integers, between QuantizeLinear and its like."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}

    def node(operator: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def through(name: str, scale: float, zero: int) -> str:
        weights[f"{name}_s"], weights[f"{name}_z"] = np.float32(scale), np.uint8(zero)
        operands = [f"{name}_s", f"{name}_z"]
        node("QuantizeLinear", [name, *operands], f"{name}_q")
        return node("DequantizeLinear", [f"{name}_q", *operands], f"{name}_d")

    def weight(name: str, *shape: int) -> str:
        weights[f"{name}_q"] = rng.integers(-127, 128, shape, "int8")
        weights[f"{name}_s"] = rng.uniform(0.002, 0.004, shape[0]).astype("float32")
        weights[f"{name}_z"] = np.zeros(shape[0], "int8")
        operands = [f"{name}_q", f"{name}_s", f"{name}_z"]
        return node("DequantizeLinear", operands, f"{name}_d", axis=0)

    x = through("x", 0.03, 120)
    for layer in range(3):
        channels = 3 if layer == 0 else 16
        weights[f"bias{layer}"] = rng.standard_normal(16).astype("float32")
        operands = [x, weight(f"w{layer}", 16, channels, 3, 3), f"bias{layer}"]
        node("Conv", operands, f"c{layer}", pads=[1, 1, 1, 1], strides=[1 + layer % 2] * 2)
        node("Relu", [f"c{layer}"], f"r{layer}")
        x = through(f"r{layer}", 0.02, 0)
    node("GlobalAveragePool", [x], "pooled")
    node("Flatten", [through("pooled", 0.005, 0)], "flat")
    y = node("Gemm", ["flat", weight("head", 10, 16)], "y", transB=1)
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 16, 16])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [2, 10])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


def _convolutional(block: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, 2, 1),
        *(block(12) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 10),
    )


_MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual blocks": (lambda: _convolutional(_Residual), (2, 3, 24, 24)),
    "depthwise convolutions": (lambda: _convolutional(_Squeezed), (2, 3, 24, 24)),
    "U-Net": (_UNet, (1, 3, 24, 24)),
    "transformer": (lambda: nn.Sequential(*(_Block(32) for _ in range(3))), (2, 10, 32)),
    "BiLSTM": (_Recurrent, (2, 12, 16)),
    "detector": (_Pyramid, (1, 3, 20, 20)),
}

NAMES = (*_MODULES, "quantized")


def make(name: str) -> onnx.ModelProto:
    """Make a model, always the same."""
    if name == "quantized":
        return _quantized()
    make_module, shape = _MODULES[name]
    with seeded(0):
        return _exported(make_module(), shape)
