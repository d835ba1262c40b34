# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Convolutions, linear layers and matrix products keep the dtype of their operands."""

import pytest

pytest.importorskip("torch")

import torch

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program, from_fx


class Function(torch.nn.Module):
    """A module that calls a function with its parameter."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return self.function(x, self.weight)


CONV_TRANSPOSE1D = torch.nn.functional.conv_transpose1d
CONV_TRANSPOSE2D = torch.nn.functional.conv_transpose2d
LAYERS = {
    "conv1d": (lambda: torch.nn.Conv1d(3, 4, 2), (1, 3, 5)),
    "conv2d": (lambda: torch.nn.Conv2d(3, 4, 2), (1, 3, 5, 5)),
    "conv3d": (lambda: torch.nn.Conv3d(3, 4, 2, bias=False), (1, 3, 3, 3, 3)),
    "conv_transpose1d": (lambda: Function(CONV_TRANSPOSE1D, 3, 4, 2), (1, 3, 5)),
    "conv_transpose2d": (lambda: Function(CONV_TRANSPOSE2D, 3, 4, 2, 2), (1, 3, 5, 5)),
    "linear": (lambda: torch.nn.Linear(4, 3), (2, 4)),
    "matmul": (lambda: Function(torch.matmul, 4, 3), (2, 4)),
    "bmm": (lambda: Function(torch.bmm, 2, 3, 3), (2, 3, 3)),
}


def make(name, dtype):
    torch.manual_seed(0)
    make_layer, shape = LAYERS[name]
    return make_layer().to(dtype).eval(), torch.randn(shape).to(dtype)


@pytest.mark.parametrize("name", LAYERS)
def test_from_fx(name):
    layer, x = make(name, torch.float16)
    with torch.no_grad():
        mod = from_fx(torch.fx.symbolic_trace(layer), [(tuple(x.shape), "float16")])
    assert str(mod["main"].ret_ty.dtype) == "float16"


@pytest.mark.parametrize("name", ["linear", "bmm"])
def test_from_exported_program(name):
    layer, x = make(name, torch.float64)
    with torch.no_grad():
        mod = from_exported_program(torch.export.export(layer, (x,)))
    assert str(mod["main"].ret_ty.fields[0].dtype) == "float64"


def test_run():
    layer, x = make("conv2d", torch.float64)
    with torch.no_grad():
        expected = layer(x).numpy()
        mod = from_exported_program(torch.export.export(layer, (x,)))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(x.numpy()))[0].numpy()
    assert got.dtype == expected.dtype
    # A tolerance that float32 cannot meet.
    tvm.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


if __name__ == "__main__":
    tvm.testing.main()
