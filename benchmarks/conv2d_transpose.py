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
"""Transposed convolutions: PyTorch, TVM's lowering and ours, on one thread."""

import functools
import os
from collections.abc import Callable

import numpy as np
import torch
import tvm
from tvm import relax

from tvm_fixes import pipeline, switches
from tvm_fixes.target import resolve

from .measure import Comparison, compare

# In and out channels, kernel, stride, padding, extent: from generators and from a U-Net.
LAYERS = [
    (512, 256, 4, 2, 1, 8),
    (128, 64, 4, 2, 1, 32),
    (64, 3, 4, 2, 1, 64),
    (64, 32, 2, 2, 0, 64),
]


def build(layer: tuple[int, ...], layout: str, weight: np.ndarray) -> relax.VirtualMachine:
    """A layer whose kernel is a constant, lowered by the pipeline of this project."""
    cin, _, _, stride, padding, extent = layer
    shape = _shape(cin, extent, layout)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(
                relax.op.nn.conv2d_transpose(
                    x, relax.const(weight), strides=stride, padding=padding, data_layout=layout
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
    """One table a layer. TVM's own lowering takes NCHW alone."""
    torch.set_num_threads(1)
    os.environ["TVM_NUM_THREADS"] = "1"
    return [_compare(layer) for layer in LAYERS]


def _compare(layer: tuple[int, ...]) -> Comparison:
    cin, cout, kernel, stride, padding, extent = layer
    rng = np.random.default_rng(0)
    data = rng.standard_normal((1, cin, extent, extent), "float32")
    weight = rng.standard_normal((cin, cout, kernel, kernel), "float32")
    torch_data, torch_weight = torch.from_numpy(data), torch.from_numpy(weight)

    def in_torch() -> torch.Tensor:
        return torch.nn.functional.conv_transpose2d(
            torch_data, torch_weight, stride=stride, padding=padding
        )

    def in_layout(array: np.ndarray, layout: str) -> np.ndarray:
        """An array in NCHW, in another layout."""
        if layout == "NCHW":
            return array
        if layout == "NHWC":
            return array.transpose(0, 2, 3, 1).copy()
        blocks = array.reshape(1, -1, 16, *array.shape[2:])
        return blocks.transpose(0, 1, 3, 4, 2).copy()

    os.environ[switches.ENVIRONMENT_VARIABLE] = "conv-transpose-legalize"
    built = {"TVM, NCHW": (build(layer, "NCHW", weight), "NCHW")}
    os.environ[switches.ENVIRONMENT_VARIABLE] = ""
    for layout in ("NCHW", "NHWC", "NCHW16c"):
        if layout != "NCHW16c" or cin % 16 == cout % 16 == 0:
            built[f"tvm-fixes, {layout}"] = build(layer, layout, weight), layout
    ways: dict[str, Callable[[], object]] = {"PyTorch": in_torch}
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
        ways[name] = functools.partial(vm["main"], argument)
    title = f"{cin} -> {cout}, {kernel}x{kernel}, stride {stride}, {extent}x{extent}"
    return compare(title, ways, runs=5)
