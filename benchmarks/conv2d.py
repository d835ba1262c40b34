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
"""Convolutions, forward and transposed: PyTorch, TVM's lowering and ours, on one thread."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import tvm
from torch.nn import functional
from tvm import relax

from tvm_fixes import pipeline
from tvm_fixes.support import switches
from tvm_fixes.target import resolve

from .measure import Comparison, compare


@dataclass(frozen=True)
class Layer:
    """A convolution with the same kernel, stride, padding and extent in both spatial axes."""

    transposed: bool
    cin: int
    cout: int
    kernel: int
    stride: int
    padding: int
    extent: int

    @property
    def operator(self) -> Callable[..., relax.Expr]:
        """The operator in Relax."""
        return relax.op.nn.conv2d_transpose if self.transposed else relax.op.nn.conv2d

    @property
    def fix_id(self) -> str:
        """The fix that lowers the operator."""
        return "conv-transpose-legalize" if self.transposed else "conv-legalize"


LAYERS = [
    # ResNet.
    Layer(False, 3, 64, 7, 2, 3, 224),
    Layer(False, 64, 64, 3, 1, 1, 56),
    Layer(False, 256, 64, 1, 1, 0, 56),
    Layer(False, 512, 512, 3, 1, 1, 7),
    # Generators, and a U-Net.
    Layer(True, 512, 256, 4, 2, 1, 8),
    Layer(True, 128, 64, 4, 2, 1, 32),
    Layer(True, 64, 3, 4, 2, 1, 64),
    Layer(True, 64, 32, 2, 2, 0, 64),
]


def build(layer: Layer, layout: str, weight: np.ndarray) -> relax.VirtualMachine:
    """Build a layer whose kernel is a constant with the pipeline of this project."""
    shape = _shape(layer.cin, layer.extent, layout)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(
                layer.operator(
                    x,
                    relax.const(weight),
                    strides=layer.stride,
                    padding=layer.padding,
                    data_layout=layout,
                )
            )
        builder.emit_func_output(out)
    executable = relax.build(builder.get(), resolve("native"), relax_pipeline=pipeline())
    return relax.VirtualMachine(executable, tvm.cpu())


def _shape(channels: int, extent: int, layout: str) -> tuple[int, ...]:
    return {
        "NCHW": (1, channels, extent, extent),
        "NHWC": (1, extent, extent, channels),
        "NCHW16c": (1, channels // 16, extent, extent, 16),
    }[layout]


def comparisons() -> list[Comparison]:
    """Return one table per layer: our lowering in each layout that fits, and TVM's in NCHW."""
    torch.set_num_threads(1)
    os.environ["TVM_NUM_THREADS"] = "1"
    return [_compare(layer) for layer in LAYERS]


def _compare(layer: Layer) -> Comparison:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((1, layer.cin, layer.extent, layer.extent), "float32")
    channels = (layer.cin, layer.cout) if layer.transposed else (layer.cout, layer.cin)
    weight = rng.standard_normal((*channels, layer.kernel, layer.kernel), "float32")
    torch_data, torch_weight = torch.from_numpy(data), torch.from_numpy(weight)
    in_pytorch = functional.conv_transpose2d if layer.transposed else functional.conv2d

    def in_torch() -> torch.Tensor:
        return in_pytorch(torch_data, torch_weight, stride=layer.stride, padding=layer.padding)

    def in_layout(array: np.ndarray, layout: str) -> np.ndarray:
        """Convert an array from NCHW to another layout."""
        if layout == "NCHW":
            return array
        if layout == "NHWC":
            return array.transpose(0, 2, 3, 1).copy()
        blocks = array.reshape(1, -1, 16, *array.shape[2:])
        return blocks.transpose(0, 1, 3, 4, 2).copy()

    os.environ[switches.ENVIRONMENT_VARIABLE] = layer.fix_id
    built = {"TVM, NCHW": (build(layer, "NCHW", weight), "NCHW")}
    os.environ[switches.ENVIRONMENT_VARIABLE] = ""
    for layout in ("NCHW", "NHWC", "NCHW16c"):
        if layout != "NCHW16c" or layer.cin % 16 == layer.cout % 16 == 0:
            built[f"tvm-fixes, {layout}"] = build(layer, layout, weight), layout
    implementations: dict[str, Callable[[], object]] = {"PyTorch": in_torch}
    expected = in_torch().numpy()
    for name, (vm, layout) in built.items():
        argument = tvm.runtime.tensor(in_layout(data, layout))
        np.testing.assert_allclose(
            vm["main"](argument).numpy(),
            in_layout(expected, layout),
            rtol=1e-3,
            atol=1e-3,
            err_msg=name,
        )
        implementations[name] = functools.partial(vm["main"], argument)
    kind = "conv_transpose2d" if layer.transposed else "conv2d"
    title = (
        f"{kind} {layer.cin} -> {layer.cout}, {layer.kernel}x{layer.kernel}, "
        f"stride {layer.stride}, {layer.extent}x{layer.extent}"
    )
    return compare(title, implementations, runs=5)
