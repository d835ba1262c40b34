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

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
import tvm.testing
from onnx import helper
from tvm import relax

from helpers.grids import few
from helpers.relax_modules import call, cpu, merge
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.ops.indices import FIX_ID
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((4, 4, 3)).astype("float32")


def model(operator, opset, indices, updates=None, **attributes):
    """A model that reads or writes `X` at indices given as an input."""
    arrays = {"x": X, "i": indices, **({} if updates is None else {"u": updates})}
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in arrays.items()
    ]
    node = helper.make_node(operator, list(arrays), ["y"], **attributes)
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [output])
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), arrays


def integers(*shape, extent=4, dtype="int64"):
    return GENERATOR.integers(-extent, extent, shape).astype(dtype)


def numbers(*shape):
    return GENERATOR.standard_normal(shape).astype("float32")


CASES = {
    "gather": model("Gather", 13, integers(2, 5), axis=1),
    "gather_int32": model("Gather", 13, integers(dtype="int32"), axis=-3),
    "gather_elements": model("GatherElements", 13, integers(2, 4, 3), axis=0),
    "gather_nd": model("GatherND", 13, integers(4, 5, 1), batch_dims=1),
    "scatter": model("Scatter", 9, np.array([[[-1], [0]]]), numbers(1, 2, 1), axis=1),
    "fewer": model("ScatterElements", 13, np.array([[[1, -1]]]), numbers(1, 1, 2), axis=2),
    **{
        f"{reduction}_{opset}": model(
            "ScatterElements",
            opset,
            integers(6, 3, 2),
            numbers(6, 3, 2),
            axis=0,
            reduction=reduction,
        )
        for reduction in ("add", "mul", "min", "max")
        for opset in (16, 18)
    },
    "scatter_nd": model("ScatterND", 16, integers(5, 2), numbers(5, 3), reduction="add"),
}


@pytest.fixture(scope="module")
def machine():
    with switches.collect() as used:
        mods = {name: from_onnx(case[0]) for name, case in CASES.items()}
    assert FIX_ID in used
    executable = relax.build(merge(mods), cpu(), relax_pipeline=pipeline())
    return relax.VirtualMachine(executable, tvm.cpu())


@few(6)
@pytest.mark.parametrize("name", CASES)
def test_indices_from_either_end(machine, name):
    given, arrays = CASES[name]
    session = onnxruntime.InferenceSession(given.SerializeToString())
    (expected,) = session.run(None, arrays)
    np.testing.assert_allclose(call(machine, name, *arrays.values()), expected, rtol=1e-5)


def test_an_index_before_the_first_element_is_an_error(machine):
    _, arrays = CASES["gather"]
    with pytest.raises(AssertionError, match="index -5 is out of range for axis 1 of 4 elements"):
        call(machine, "gather", X, np.full_like(arrays["i"], -5))


@pytest.mark.parametrize(
    ("operator", "indices", "found"),
    [
        ("Gather", [0, 2], "0 to 2"),
        ("GatherElements", [[-3, 1]], "-3 to 1"),
        ("GatherND", [[0, 1], [1, 2]], "1 to 2"),
        ("ScatterND", [[1], [2]], "1 to 2"),
    ],
)
def test_constant_index_out_of_range_is_named(operator, indices, found):
    """The extent of the square matrix follows from a product; the verifier would name no node."""
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["k", "k"])]
    array = np.array(indices, "int64")
    tensors = {"w": np.ones((2, 3), "float32"), "i": array}
    read = ["x", "i"]
    if operator == "ScatterND":
        tensors["u"], read = np.ones((2, 2), "float32"), ["x", "i", "u"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node(operator, read, ["y"], name="reader"),
    ]
    outputs = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("product", "y")
    ]
    initial = [onnx.numpy_helper.from_array(value, name) for name, value in tensors.items()]
    graph = helper.make_graph(nodes, "g", given, outputs, initial)
    opsets = [helper.make_opsetid("", 16)]
    expected = f"{operator} 'reader': indices are {found}; expected -2 to 1"
    with pytest.raises(tvm.error.OpAttributeInvalid, match=expected):
        from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=8))


if __name__ == "__main__":
    tvm.testing.main()
