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
"""Sequences of static length and optionals."""

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from helpers.models import onnx_model
from helpers.onnx_graphs import imported_and_run, normal
from tvm_fixes.frontend.onnx import from_onnx

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
INPUTS = [("a", FLOAT, [2, 3]), ("b", FLOAT, [2, 3]), ("sizes", INT64, [2])]


def doubled() -> onnx.GraphProto:
    """The body of a SequenceMap: twice the element, plus a tensor."""
    tensors = [helper.make_tensor_value_info(name, FLOAT, [2, 3]) for name in ("e", "t", "r")]
    nodes = [
        helper.make_node("Add", ["e", "e"], ["d"]),
        helper.make_node("Add", ["d", "t"], ["r"]),
    ]
    return helper.make_graph(nodes, "body", tensors[:2], tensors[2:])


def test_sequences() -> None:
    """Made, changed, mapped, read, split and joined; positions count from both ends."""
    make = helper.make_node
    nodes = [
        make("SequenceConstruct", ["a", "b"], ["pair"]),
        make("SequenceInsert", ["pair", "b", "minus"], ["three"]),
        make("SequenceErase", ["three", "zero"], ["erased"]),
        make("SequenceMap", ["erased", "a"], ["mapped"], body=doubled()),
        make("SequenceAt", ["mapped", "zero"], ["at"]),
        make("SequenceLength", ["three"], ["count"]),
        make("ConcatFromSequence", ["erased"], ["joined"], axis=-1),
        make("ConcatFromSequence", ["three"], ["stacked"], axis=1, new_axis=1),
        make("SplitToSequence", ["a", "sizes"], ["parts"], axis=1),
        make("SequenceAt", ["parts", "minus"], ["part"]),
        make("SplitToSequence", ["a"], ["rows"], keepdims=0),
        make("SequenceAt", ["rows", "zero"], ["row"]),
        make("SplitToSequence", ["a", "two"], ["halves"], axis=1),
        make("SequenceAt", ["halves", "one"], ["rest"]),
        make("SequenceEmpty", [], ["empty"]),
        make("SequenceInsert", ["empty", "a"], ["single"]),
        make("SequenceAt", ["single", "zero"], ["only"]),
        make("OptionalHasElement", ["a"], ["has"]),
        make("OptionalGetElement", ["b"], ["element"]),
    ]
    outputs = {
        "at": FLOAT,
        "count": INT64,
        "joined": FLOAT,
        "stacked": FLOAT,
        "part": FLOAT,
        "row": FLOAT,
        "rest": FLOAT,
        "only": FLOAT,
        "has": TensorProto.BOOL,
        "element": FLOAT,
    }
    numbers = {"zero": 0, "one": 1, "two": 2, "minus": -2}
    model = onnx_model(
        nodes,
        INPUTS,
        [(name, dtype, None) for name, dtype in outputs.items()],
        {name: np.array(value) for name, value in numbers.items()},
        opset=18,
    )
    inputs = {"a": normal(2, 3), "b": normal(2, 3, seed=1), "sizes": np.array([1, 2])}
    got = imported_and_run(from_onnx, model, *inputs.values())
    expected = ReferenceEvaluator(model).run(None, inputs)
    for name, value, wanted in zip(outputs, got, expected, strict=True):
        np.testing.assert_array_equal(value, wanted, err_msg=name)


@pytest.mark.parametrize(
    ("position", "message"),
    (
        ("sizes", "operand position is sizes; expected a constant"),
        ("two", "SequenceAt 'node': operand position is 2; expected -2 to 1"),
    ),
)
def test_wrong_position(position: str, message: str) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b"], ["pair"]),
        helper.make_node("SequenceAt", ["pair", position], ["y"], name="node"),
    ]
    two = {"two": np.array(2)}
    model = onnx_model(nodes, INPUTS, [("y", FLOAT, None)], two, opset=18)
    with pytest.raises(tvm.error.OpAttributeInvalid) as error:
        from_onnx(model)
    assert message in str(error.value)


def test_wrong_new_axis() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b"], ["pair"]),
        helper.make_node("ConcatFromSequence", ["pair"], ["y"], name="node", axis=0, new_axis=2),
    ]
    model = onnx_model(nodes, INPUTS, [("y", FLOAT, None)], opset=18)
    with pytest.raises(ValueError, match="'node': attribute new_axis is 2; expected 0 or 1"):
        from_onnx(model)


@pytest.mark.parametrize("opset", (15, 18))
def test_optional_without_an_operand(opset: int) -> None:
    """From opset 18 on, an OptionalHasElement without an operand is False."""
    nodes = [helper.make_node("OptionalHasElement", [], ["y"], name="node")]
    model = onnx_model(nodes, [], [("y", TensorProto.BOOL, [])], opset=opset)
    if opset < 18:
        with pytest.raises(ValueError, match="'node': 0 operands; expected 1"):
            from_onnx(model)
    else:
        [got] = imported_and_run(from_onnx, model)
        assert not got


def test_empty_optional() -> None:
    """ONNX Runtime's values; onnx's reference evaluator says that an element is there."""
    kind = helper.make_tensor_type_proto(FLOAT, [2])
    nodes = [
        helper.make_node("Optional", [], ["nothing"], type=kind),
        helper.make_node("OptionalHasElement", ["nothing"], ["y"]),
    ]
    model = onnx_model(nodes, [], [("y", TensorProto.BOOL, [])], opset=18)
    [got] = imported_and_run(from_onnx, model)
    assert not got
    nodes[1] = helper.make_node("OptionalGetElement", ["nothing"], ["y"], name="node")
    model = onnx_model(nodes, [], [("y", FLOAT, [2])], opset=18)
    with pytest.raises(ValueError, match="'node': operand is an empty optional; expected an"):
        from_onnx(model)


def test_input() -> None:
    """A sequence as an input has an unknown length."""
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["x"], ["y"])],
        "g",
        [helper.make_value_info("x", sequence)],
        [helper.make_tensor_value_info("y", INT64, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(tvm.error.OpNotImplemented, match="input 'x': expected a tensor, got a seq"):
        from_onnx(model)


if __name__ == "__main__":
    tvm.testing.main()
