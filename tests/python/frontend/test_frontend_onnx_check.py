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
"""Invalid ONNX models are rejected with a message that names the node or value."""

import re

import onnx
import pytest
import tvm
import tvm.testing
from onnx import TensorProto, helper

from tvm_fixes.frontend.onnx import from_onnx

FLOAT = TensorProto.FLOAT
node = helper.make_node


def value(name, kind=FLOAT, shape=(4,)):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs=None, outputs=None, weights=(), opset=18, functions=(), others=()):
    graph = helper.make_graph(
        nodes, "graph", inputs or [value("x")], outputs or [value("y")], list(weights)
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in others)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def tensor(kind=FLOAT, dims=(4,), size=16):
    return onnx.TensorProto(name="w", data_type=kind, dims=dims, raw_data=bytes(size))


def function(name, calls):
    """A function of domain d that calls another function twice."""
    domain = "" if calls == "Relu" else "d"
    nodes = [node(calls, ["a"], ["b"], domain=domain), node(calls, ["b"], ["c"], domain=domain)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
    return helper.make_function("d", name, ["a"], ["c"], nodes, opsets)


RELU, SUM = node("Relu", ["x"], ["y"]), node("Add", ["x", "w"], ["y"])
HUGE = helper.make_tensor("w", TensorProto.INT64, [1], [1 << 60])
DOUBLING = [function("f0", "Relu"), *(function(f"f{i}", f"f{i - 1}") for i in range(1, 30))]
F29 = node("f29", ["x"], ["y"], domain="d")

INVALID = {
    "a domain nobody knows": (
        model([node("Relu", ["x"], ["y"], domain="evil.com")], others=["evil.com"]),
        "unsupported operator evil.com.Relu at the node with output 'y'",
    ),
    "two nodes with one output": (
        model([RELU, node("Neg", ["x"], ["y"], name="n")]),
        "Neg at node 'n': output 'y' is also the name of another value",
    ),
    "an output that is an input": (model([node("Relu", ["x"], ["x"])]), "output 'x' is also"),
    "an input twice": (model([RELU], [value("x"), value("x")]), "'x' appears twice"),
    "an initializer twice": (model([SUM], weights=[tensor(), tensor()]), "'w' appears twice"),
    "a new opset": (model([RELU], opset=99), "opset 99 is unknown; expected 1 to"),
    "opset 0": (model([RELU], opset=0), "opset 0 is unknown"),
    "no element type": (model([RELU], [value("x", 0)]), "input 'x': element type 0 is unknown"),
    "an element type": (model([RELU], [value("x", 99)]), "input 'x': element type 99 is unknown"),
    "complex numbers": (model([RELU], [value("x", 14)]), "input 'x': element type is COMPLEX64"),
    "complex": (model([RELU], [value("x", 14)]), "input 'x': element type is COMPLEX64; expected"),
    "a huge input": (
        model([RELU], [value("x", shape=(1 << 31, 1 << 31))]),
        "input 'x': extents .2147483648, 2147483648.; expected a tensor of less than 2..63 bytes",
    ),
    "a huge output": (
        model([node("Tile", ["x", "w"], ["y"], name="n")], weights=[HUGE]),
        "Tile 'n': extents .*; expected a tensor of less than 2..63 bytes",
    ),
    "one of a weight": (model([SUM], weights=[tensor(99)]), "initializer 'w': element type 99"),
    "a short weight": (model([SUM], weights=[tensor(size=6)]), "'w': shape .4. needs 16 bytes"),
    "a huge weight": (model([SUM], weights=[tensor(dims=[1 << 60])]), "'w': shape .* needs"),
    "a negative weight": (model([SUM], weights=[tensor(dims=[-4])]), "'w': .* negative extent"),
    "an output of no node": (model([node("Relu", ["x"], ["z"])]), "output 'y' of the graph"),
    "no operand": (model([node("Relu", [], ["y"])]), "with output 'y': 0 operands; expected 1$"),
    "nothing to add": (model([node("Sum", [], ["y"])]), r"0 operands; expected at least 1$"),
    "no attribute": (model([node("Cast", ["x"], ["y"])]), "attribute 'to' is missing"),
    "another attribute": (
        model([node("Transpose", ["x"], ["y"], perm="abc")]),
        "attribute 'perm' is of kind STRING; expected INTS",
    ),
    "many outputs": (
        model([node("Split", ["x"], [f"o{i}" for i in range(20_000)])], outputs=[value("o0")]),
        "20000 outputs; expected at most",
    ),
    "functions that double": (
        model([F29], functions=DOUBLING, others=["d"]),
        "expands to more than 200000 nodes",
    ),
    "recursive functions": (
        model([F29], functions=[function("f29", "f29")], others=["d"]),
        "functions call each other recursively: d.f29 → d.f29",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name):
    refused, message = INVALID[name]
    with pytest.raises((ValueError, tvm.error.OpError), match=message):
        from_onnx(refused)


@pytest.mark.parametrize("old, where", (("Relu", "graph.node[0].op_type"), ("n1", "graph.name")))
def test_text_that_is_not_utf8(old, where):
    """Protobuf reads such text as bytes."""
    valid = model([node("Relu", ["x"], ["y"])])
    valid.graph.name = "n1"
    data = valid.SerializeToString().replace(old.encode(), b"\xff" * len(old))
    with pytest.raises(
        ValueError, match=re.escape(f"{where}: expected text in UTF-8, got b'\\xff")
    ):
        from_onnx(onnx.ModelProto.FromString(data))


@pytest.mark.filterwarnings("ignore")
def test_unusual_but_valid_models_are_imported():
    """An initializer that is also an input, and the long name of the default domain."""
    weight = tensor()
    longer = model([node("Add", ["x", "w"], ["y"], domain="ai.onnx")], [value("x"), value("w")])
    longer.graph.initializer.append(weight)
    assert len(from_onnx(longer)["main"].params) == 1
    assert from_onnx(model([F29], functions=[function("f29", "Relu")], others=["d"]))


if __name__ == "__main__":
    tvm.testing.main()
