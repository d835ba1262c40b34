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
"""ConvTranspose with the attribute output_shape, against ONNX Runtime."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime
from onnx import TensorProto, helper

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


def conv_transpose(x_shape, w_shape, **attributes):
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "conv_transpose",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, x_shape),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, w_shape),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(x_shape, w_shape, **attributes):
    model = conv_transpose(x_shape, w_shape, **attributes)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(x_shape, "float32")
    w = rng.standard_normal(w_shape, "float32")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": x, "w": w})
    vm = relax.VirtualMachine(relax.build(from_onnx(model), "llvm"), tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
    assert got.shape == expected.shape
    tvm.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_auto_pad(auto_pad):
    # 9 rows and columns without pads: 1 row and 2 columns are cut off; 1 has unequal halves.
    check(
        (1, 2, 4, 4),
        (2, 3, 3, 3),
        strides=[2, 2],
        output_shape=[8, 7],
        auto_pad=auto_pad,
    )


def test_1d_with_dilation_and_group():
    check((1, 4, 5), (4, 2, 3), strides=[2], dilations=[2], group=2, output_shape=[10])


def test_larger_than_without_pads():
    check((1, 1, 3, 3), (1, 2, 3, 3), strides=[3, 2], output_shape=[10, 8])


def test_symbolic_dimension():
    model = conv_transpose((1, 2, "n"), (2, 3, 3), strides=[2], output_shape=[8])
    with pytest.raises(Exception, match="output_shape"):
        from_onnx(model)


if __name__ == "__main__":
    tvm.testing.main()
