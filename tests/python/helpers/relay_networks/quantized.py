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
"""Networks of 8-bit integers, as from TFLite: channels last, with constant scales."""

from typing import Any

import numpy as np

from tvm_fixes import relay

from .builder import Expr, Network, call, scalar


class Quantized(Network):
    """A network whose activations carry a scale and a zero point."""

    def __init__(self, seed: int, dtype: str):
        super().__init__(seed)
        self.dtype = dtype
        self.weight_dtype = dtype
        self.zero = 0 if dtype == "int8" else 128
        self.scale = 0.05

    def constants(self, scale: float, zero: int) -> tuple[Expr, Expr]:
        """A scale and a zero point."""
        return scalar(scale), scalar(zero, "int32")

    def integers(self, name: str, *shape: int) -> relay.Var:
        """A weight."""
        low, high = (-100, 100) if self.weight_dtype == "int8" else (20, 236)
        return self.param(name, self.rng.integers(low, high, shape).astype(self.weight_dtype))

    def requantized(self, x: Expr, channels: int, fan_in: int, relu6: bool) -> Expr:
        """Bring sums back to 8 bits, with one scale for each channel of int8 weights."""
        if self.weight_dtype == "int8":
            weight_scale = self.rng.uniform(0.5, 1.5, channels) * 0.02
            scales = relay.Constant((self.scale * weight_scale).astype("float32"))
        else:
            scales = scalar(self.scale * 0.02)
        target = float(np.float32(self.scale * 0.7 * fan_in**0.5))
        args = [x, scales, scalar(0, "int32"), scalar(target), scalar(self.zero, "int32")]
        x = call("qnn.requantize", *args, axis=3, out_dtype=self.dtype)
        self.scale = target
        if relu6:
            top = min(self.zero + 6.0 / target, 127.0 if self.dtype == "int8" else 255.0)
            x = call("clip", x, a_min=float(self.zero), a_max=float(int(top)))
        return x

    def conv(  # type: ignore[override]
        self,
        x: Expr,
        name: str,
        inputs: int,
        outputs: int,
        size: int = 3,
        stride: int = 1,
        depthwise: bool = False,
        relu6: bool = True,
    ) -> Expr:
        """A convolution, or one for each channel."""
        shape = (size, size, inputs, 1 if depthwise else outputs)
        weight = self.integers(f"{name}.weight", *shape)
        attrs: dict[str, Any] = {
            "strides": [stride, stride],
            "padding": [size // 2] * 4,
            "groups": inputs if depthwise else 1,
            "channels": outputs,
            "kernel_size": [size, size],
            "data_layout": "NHWC",
            "kernel_layout": "HWOI" if depthwise else "HWIO",
            "out_dtype": "int32",
        }
        weight_zero = 0 if self.weight_dtype == "int8" else 127
        args = [x, weight, scalar(self.zero, "int32"), scalar(weight_zero, "int32")]
        x = call("qnn.conv2d", *args, scalar(self.scale), scalar(0.02), **attrs)
        bias = self.rng.integers(-300, 300, outputs).astype("int32")
        x = call("nn.bias_add", x, self.param(f"{name}.bias", bias), axis=3)
        fan_in = size * size * (1 if depthwise else inputs)
        return self.requantized(x, outputs, fan_in, relu6)

    def mean(self, x: Expr, extent: int) -> Expr:
        """The average of all pixels, in int32."""
        x = call("cast", x, dtype="int32")
        x = call("nn.avg_pool2d", x, pool_size=[extent, extent], layout="NHWC")
        return call("cast", x, dtype=self.dtype)

    def classify(self, x: Expr, inputs: int, classes: int) -> Expr:
        """A dense layer and a softmax on floating-point numbers."""
        x = call("reshape", x, newshape=[1, inputs])
        weight = self.integers("fc.weight", classes, inputs)
        weight_zero = 0 if self.weight_dtype == "int8" else 127
        args = [x, weight, scalar(self.zero, "int32"), scalar(weight_zero, "int32")]
        x = call(
            "qnn.dense", *args, scalar(self.scale), scalar(0.0005), units=classes, out_dtype="int32"
        )
        bias = self.rng.integers(-300, 300, classes).astype("int32")
        x = call("nn.bias_add", x, self.param("fc.bias", bias), axis=1)
        scale = self.scale * 0.0005
        target = float(np.float32(scale * 100))
        args = [x, scalar(scale), scalar(0, "int32"), scalar(target), scalar(self.zero, "int32")]
        x = call("qnn.requantize", *args, axis=1, out_dtype=self.dtype)
        x = call("qnn.dequantize", x, scalar(target), scalar(self.zero, "int32"))
        x = call("nn.softmax", x, axis=1)
        zero = scalar(self.zero - 128 if self.dtype == "int8" else 0, "int32")
        return call("qnn.quantize", x, scalar(1 / 256), zero, out_dtype=self.dtype)


def mobilenet_v2() -> tuple[Network, Expr]:
    """Inverted residual blocks of uint8, as from TFLite."""
    net = Quantized(21, "uint8")
    x = net.conv(net.input("input", (1, 16, 16, 3), "uint8"), "stem", 3, 8, stride=2)
    for index, stride in enumerate((1, 2)):
        name, before = f"block{index}", x
        skip_scale = net.scale
        x = net.conv(x, f"{name}.expand", 8, 24, 1)
        x = net.conv(x, f"{name}.depthwise", 24, 24, stride=stride, depthwise=True)
        x = net.conv(x, f"{name}.project", 24, 8, 1, relu6=False)
        if stride == 1:
            zero = scalar(net.zero, "int32")
            target = max(net.scale, skip_scale)
            scales = [scalar(net.scale), zero, scalar(skip_scale), zero, scalar(target), zero]
            x = call("qnn.add", x, before, *scales)
            net.scale = target
    return net, net.classify(net.mean(x, 4), 8, 10)


def keyword_spotting() -> tuple[Network, Expr]:
    """Depthwise and pointwise convolutions of int8 over a spectrogram, as from TFLite Micro."""
    net = Quantized(22, "int8")
    x = net.conv(net.input("spectrogram", (1, 12, 8, 1), "int8"), "conv", 1, 8, stride=2)
    for index in range(2):
        x = net.conv(x, f"depthwise{index}", 8, 8, depthwise=True)
        x = net.conv(x, f"pointwise{index}", 8, 8, 1)
    x = call("cast", x, dtype="int32")
    x = call("cast", call("nn.avg_pool2d", x, pool_size=[6, 4], layout="NHWC"), dtype="int8")
    return net, net.classify(x, 8, 12)
