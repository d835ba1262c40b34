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
"""Nodes that the outputs do not need are not imported."""

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from onnx import helper, numpy_helper

from helpers.onnx_graphs import assert_follows_onnx_runtime, normal, program, text_model
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.graph.liveness import live_nodes
from tvm_fixes.frontend.onnx.graph.preflight import operators_of
from tvm_fixes.source import preflight

pytestmark = pytest.mark.filterwarnings("ignore:.*")

TEXTS = numpy_helper.from_array(np.array(["a", "b"], object), "texts")


def with_texts(*nodes: onnx.NodeProto, output: str = "y") -> onnx.ModelProto:
    """A model with an initializer of strings."""
    relu = helper.make_node("Relu", ["x"], ["y"])
    element = onnx.TensorProto.FLOAT if output == "y" else onnx.TensorProto.STRING
    graph = helper.make_graph(
        [relu, *nodes],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info(output, element, None)],
        [TEXTS],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "nodes",
    (
        (),
        (helper.make_node("Identity", ["texts"], ["z"]),),
        (
            helper.make_node("StringNormalizer", ["texts"], ["z"]),
            helper.make_node("Identity", ["z"], ["w"]),
        ),
    ),
)
def test_unused_strings(nodes: tuple[onnx.NodeProto, ...]) -> None:
    model = with_texts(*nodes)
    assert_follows_onnx_runtime(from_onnx, model, [normal(3)])
    assert [operator.name for operator in operators_of(model)] == ["Relu"]


def test_strings_that_an_output_needs() -> None:
    model = with_texts(helper.make_node("Identity", ["texts"], ["z"], name="same"), output="z")
    message = "element type of initializer 'texts' is STRING, but tensors hold no"
    with pytest.raises(tvm.error.OpNotImplemented, match=f"Identity 'same': {message}"):
        from_onnx(model)
    problem = preflight.check(model).problem
    assert f"cannot import Identity at node 'same': {message}" in problem
    constant = helper.make_node("Constant", [], ["z"], name="c", value=TEXTS)
    with pytest.raises(tvm.error.OpNotImplemented, match="Constant 'c': element type of its value"):
        from_onnx(with_texts(constant, output="z"))


def test_unused_outputs() -> None:
    """The indices of a MaxPool need static extents, and a mask is not computed."""
    nodes = {
        "p,places": ("MaxPool", ["x"], {"kernel_shape": [2]}),
        "y,mask": ("Dropout", ["p"]),
    }
    model = program(nodes, {"x": ("float32", (1, 2, "n"))}, opset=12)
    assert_follows_onnx_runtime(from_onnx, model, [normal(1, 2, 6)], [normal(1, 2, 3)])


def test_the_number_of_outputs_of_a_split() -> None:
    """A Split divides the data by the number of its outputs, also if nothing reads the last one."""
    nodes = "(float[n,4] x) => (float[a,4] y) { y, b, c = Split<axis=0> (x) }"
    assert_follows_onnx_runtime(from_onnx, text_model(nodes, 13), [normal(9, 4)], [normal(6, 4)])


def test_live_nodes_in_any_order() -> None:
    text = "(float[3] x) => (float[3] y) { {} }"
    lines = ["a = Relu (x)", "b = Neg (a)", "unread = Abs (b)", "y = Exp (b)"]
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)):
        body = " ".join(lines[place] for place in order)
        live = live_nodes(text_model(text.replace("{}", body)).graph)
        expected = [lines[place].split()[2] for place in order if place != 2]
        assert [node.op_type for node in live] == expected


if __name__ == "__main__":
    tvm.testing.main()
