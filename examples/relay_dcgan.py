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
"""The generator of ``dcgan`` as old TVM saved it: Relay text and named parameters."""

import numpy as np
from torch import nn

from examples.dcgan import Generator


def to_relay(module: Generator) -> tuple[str, dict[str, np.ndarray]]:
    """Write the program that TVM's old PyTorch importer made of the generator.

    Parameters
    ----------
    module : Generator
        In eval mode.

    Returns
    -------
    text : str
        The program, for a file that ends in ``.relay``.
    params : dict of str to numpy.ndarray
        The weights, for :func:`tvm_fixes.relay.save_params`.
    """
    params = {
        name: value.detach().numpy()
        for name, value in module.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    operators = {nn.ConvTranspose2d: _conv, nn.BatchNorm2d: _norm, nn.ReLU: _relu, nn.Tanh: _tanh}
    lines, value = [], "%noise"
    for name, layer in module.layers.named_children():
        expression, suffix = operators[type(layer)](f"%layers.{name}", layer, value)
        lines.append(f"  %{len(lines)} = {expression};")
        value = f"%{len(lines) - 1}{suffix}"
    inputs = ["%noise: Tensor[(1, 100, 1, 1), float32]"]
    inputs += [f"%{name}: Tensor[({_shape(array)}), float32]" for name, array in params.items()]
    body = "\n".join([*lines, f"  {value}"])
    return f'#[version = "0.0.5"]\ndef @main({", ".join(inputs)}) {{\n{body}\n}}\n', params


def _shape(array: np.ndarray) -> str:
    return "".join(f"{extent}, " for extent in array.shape).strip()


def _conv(name: str, layer: nn.ConvTranspose2d, value: str) -> tuple[str, str]:
    attrs = (
        f"channels={layer.out_channels}, kernel_size={list(layer.kernel_size)}, "
        f"strides={list(layer.stride)}, padding={[*layer.padding, *layer.padding]}"
    )
    return f"nn.conv2d_transpose({value}, {name}.weight, {attrs})", ""


def _norm(name: str, layer: nn.BatchNorm2d, value: str) -> tuple[str, str]:
    weights = ", ".join(
        f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var")
    )
    return f"nn.batch_norm({value}, {weights}, epsilon={layer.eps}f)", ".0"


def _relu(name: str, layer: nn.ReLU, value: str) -> tuple[str, str]:
    return f"nn.relu({value})", ""


def _tanh(name: str, layer: nn.Tanh, value: str) -> tuple[str, str]:
    return f"tanh({value})", ""
