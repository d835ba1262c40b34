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

import os

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
    shape = {"NCHW": (1, cin, extent, extent), "NHWC": (1, extent, extent, cin)}[layout]
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

    os.environ[switches.ENVIRONMENT_VARIABLE] = "conv2d-transpose-legalize"
    stock = build(layer, "NCHW", weight)
    os.environ[switches.ENVIRONMENT_VARIABLE] = ""
    nchw, nhwc = build(layer, "NCHW", weight), build(layer, "NHWC", weight)
    args = tvm.runtime.tensor(data), tvm.runtime.tensor(data.transpose(0, 2, 3, 1).copy())
    expected = in_torch().numpy()
    for name, result in {
        "TVM": stock["main"](args[0]).numpy(),
        "NCHW": nchw["main"](args[0]).numpy(),
        "NHWC": nhwc["main"](args[1]).numpy().transpose(0, 3, 1, 2),
    }.items():
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3, err_msg=name)
    ways = {
        "PyTorch": in_torch,
        "TVM, NCHW": lambda: stock["main"](args[0]),
        "tvm-fixes, NCHW": lambda: nchw["main"](args[0]),
        "tvm-fixes, NHWC": lambda: nhwc["main"](args[1]),
    }
    title = f"{cin} -> {cout}, {kernel}x{kernel}, stride {stride}, {extent}x{extent}"
    return compare(title, ways, runs=5)
