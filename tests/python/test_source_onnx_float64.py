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
"""Runs of ONNX models in float64, compared with ONNX Runtime."""

import numpy as np
import pytest
import tvm.testing

from helpers.onnx_graphs import node_model, normal, onnx_runtime, program
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.source.onnx import OnnxSource

IMAGE = normal(2, 3, 4, 5)


def parameters(*shape):
    values = {name: normal(*shape, seed=seed) for seed, name in enumerate(("s", "b", "mean"), 1)}
    return values | {"var": np.abs(normal(*shape, seed=4)) + np.float32(0.1)}


CASES = {
    # onnx's own takes the statistics of the data if a node has a momentum.
    "batch norm 9": ("BatchNormalization", 9, {"momentum": 0.9}, parameters(3)),
    "batch norm 11": ("BatchNormalization", 11, {"momentum": 0.9}, parameters(3)),
    "batch norm 15": ("BatchNormalization", 15, {"momentum": 0.9}, parameters(3)),
    "batch norm of elements": ("BatchNormalization", 8, {"spatial": 0}, parameters(3, 4, 5)),
    "softmax 11": ("Softmax", 11, {"axis": 1}, {}),
    "softmax 11 without an axis": ("Softmax", 11, {}, {}),
    "softmax 13": ("Softmax", 13, {"axis": 1}, {}),
    "log softmax 12": ("LogSoftmax", 12, {"axis": -2}, {}),
    "log softmax 17": ("LogSoftmax", 17, {}, {}),
    "LRN": ("LRN", 13, {"size": 3, "alpha": 0.5}, {}),
    "wide LRN": ("LRN", 11, {"size": 5, "bias": 2.0}, {}),
    "norm 1": ("LpNormalization", 12, {"axis": 1, "p": 1}, {}),
    "norm 2": ("LpNormalization", 12, {}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(name):
    operator, opset, attributes, constants = CASES[name]
    model = node_model(operator, {"x": IMAGE}, attributes, constants=constants, opset=opset)
    [exact] = OnnxSource(model, "m").float64_outputs([IMAGE])
    [theirs] = onnx_runtime(model, IMAGE)
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    ("lengths", "attributes"),
    [(None, {}), (None, {"clip": 0.1}), (None, {"direction": "reverse"}), ([3, 1], {})],
)
def test_recurrent_layers(operator, lengths, attributes):
    """That of onnx ignores the lengths of sequences, and a clip."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    x = normal(3, 2, 5)
    constants = {"w": normal(1, gates * 4, 5, seed=1), "r": normal(1, gates * 4, 4, seed=2)}
    operands = ["x", "w", "r"]
    if lengths:
        constants |= {"b": normal(1, gates * 8, seed=3), "n": np.array(lengths, "int32")}
        operands += ["b", "n"]
    model = node_model(
        operator, {"x": x}, {"hidden_size": 4} | attributes, constants=constants, operands=operands,
        outputs={"y": ("float32", 4)}, opset=14,
    )  # fmt: skip
    found = OnnxSource(model, "m").float64_outputs([x])
    if lengths or "clip" in attributes:
        assert found is None
    else:
        [theirs] = onnx_runtime(model, x)
        np.testing.assert_allclose(found[0], theirs, rtol=1e-4, atol=1e-6)


def test_a_long_softmax_after_a_batch_norm_is_equal():
    """The sum of ONNX Runtime is off, and the run in float64 shows it."""
    x = normal(2, 4, 18710)
    x[..., 0] += 12
    model = program(
        {
            "n": ("BatchNormalization", ["x", "s", "b", "mean", "var"], {"momentum": 0.9}),
            "y": ("Softmax", ["n"], {"axis": 2}),
        },
        {"x": ("float32", x.shape)},
        parameters(4),
        opset=11,
    )
    [output] = compile_model(model, inputs={"x": x}).report.outputs
    assert output.equal


if __name__ == "__main__":
    tvm.testing.main()
