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
"""Equal on the shape of a tensor, against ONNX Runtime."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


def check(x, other, dims=None):
    """Compare Equal(Shape(x), other) with ONNX Runtime; `dims` is the declared shape of x."""
    shape = x.shape if dims is None else dims
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Equal", ["shape", "other"], ["equal"]),
            helper.make_node("Where", ["equal", "yes", "no"], ["y"]),
        ],
        "equal",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array(other, "int64"), "other"),
            numpy_helper.from_array(np.ones(1, "float32"), "yes"),
            numpy_helper.from_array(np.zeros(1, "float32"), "no"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": x})
    mod = relax.transform.DecomposeOpsForInference()(from_onnx(model))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("other", [[2, 3], [2, 4]], ids=str)
def test_static(other):
    check(np.ones((2, 3), "float32"), other)


@pytest.mark.parametrize("other", [[3], 3, [[2, 3], [4, 3]]], ids=str)
def test_broadcast(other):
    check(np.ones((2, 3), "float32"), other)


@pytest.mark.parametrize("length", [2, 3])
def test_symbolic(length):
    check(np.ones((length, 4), "float32"), [3, 4], ["n", 4])


if __name__ == "__main__":
    tvm.testing.main()
