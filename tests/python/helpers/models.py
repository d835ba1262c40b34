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
"""Small ONNX and PyTorch models for the compiler tests."""

import signal

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def onnx_model(nodes, inputs, outputs, weights=None, *, opset: int = 17) -> onnx.ModelProto:
    """An ONNX model; `inputs` and `outputs` are (name, element type, shape)."""
    initializers = [numpy_helper.from_array(w, name) for name, w in (weights or {}).items()]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    return model


def onnx_conv(shape=("batch", 3, 8, 8), element_type: int = FLOAT) -> onnx.ModelProto:
    """Convolution and ReLU, 3 to 4 channels, with names that are not identifiers."""
    dtype = helper.tensor_dtype_to_np_dtype(element_type)
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(dtype)
    return onnx_model(
        [
            helper.make_node("Conv", ["image.0", "w"], ["y"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["y"], ["out.0"], name="relu"),
        ],
        [("image.0", element_type, shape)],
        [("out.0", element_type, [shape[0], 4, *shape[2:]])],
        {"w": weight},
    )


def onnx_sum_and_product() -> onnx.ModelProto:
    """Two inputs and two outputs, all (n, 4)."""
    shape = ["n", 4]
    return onnx_model(
        [
            helper.make_node("Add", ["a", "b"], ["sum"]),
            helper.make_node("Mul", ["a", "b"], ["mul"]),
        ],
        [("a", FLOAT, shape), ("b", FLOAT, shape)],
        [("sum", FLOAT, shape), ("mul", FLOAT, shape)],
    )


class ConvNet(nn.Module):
    """Convolution, BatchNorm, ReLU, transposed convolution."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 4, 4, 2, 1),
        )

    def forward(self, x):
        return self.layers(x)


def conv_net():
    """The factory of :class:`ConvNet`; its input is (1, 3, 8, 8)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ConvNet().eval(), (torch.randn(1, 3, 8, 8),)


class Lookup(nn.Module):
    """Integers, booleans and floats in; a dict of a tensor, a scalar and an input out."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)

    def forward(self, ids, keep, x):
        found = self.table(ids) * keep.unsqueeze(-1) + x
        return {"found": found, "more": (found.sum(), found.argmax(-1)), "same": x}


def lookup():
    """The factory of :class:`Lookup`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ids, x = torch.randint(20, 50, (2, 5)), torch.randn(2, 5, 8)
        return Lookup().eval(), (ids, torch.ones(2, 5, dtype=torch.bool), x)


class SpecialFunctions(nn.Module):
    """Two operators that the importer does not know."""

    def forward(self, x):
        return torch.special.airy_ai(torch.igamma(x, x))


def special_functions():
    """The factory of :class:`SpecialFunctions`."""
    return SpecialFunctions().eval(), (torch.ones(8),)


def failing():
    """A factory that fails."""
    raise LookupError("no weights here")


def not_a_module():
    """A factory that returns the wrong thing."""
    return nn.ReLU()


def in_training():
    """A factory that forgets eval()."""
    return ConvNet(), (torch.randn(1, 3, 8, 8),)


def chatty():
    """A factory that prints."""
    print("hello from the factory")
    return nn.ReLU().eval(), (torch.ones(4),)


def waiting():
    """A factory that ends with a signal."""
    print("waiting", flush=True)
    signal.pause()


not_callable = 3
