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
"""Sum, Mean, Max, Min and Concat of any number of operands, compared with ONNX Runtime."""

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from onnx import TensorProto, helper
from tvm import relax
from tvm_ffi import structural_walk

from helpers.growth import assert_grows_linearly
from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
    program,
)
from tvm_fixes.frontend.onnx import from_onnx

OPERATORS = ("Max", "Mean", "Min", "Sum")


def repeated(operator: str, count: int, **attributes: int) -> onnx.ModelProto:
    """An operator that has one tensor `count` times."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    node = helper.make_node(operator, ["x"] * count, ["y"], **attributes)
    graph = helper.make_graph([node], "graph", [x], [y])
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def calls(model: onnx.ModelProto) -> list[relax.Call]:
    found: list[relax.Call] = []
    structural_walk(from_onnx(model)["main"], (relax.Call, found.append))
    return [call for call in found if isinstance(call.op, tvm.ir.Op)]


@pytest.mark.parametrize("operator", OPERATORS)
def test_few_operands(operator: str) -> None:
    shapes = {"one": [(2, 3)], "two": [(2, 3)] * 2, "seven": [(2, 3), (3,), (1, 1)] * 2 + [(2, 1)]}
    shapes |= {"empty": [(0, 3), (1, 3), (3,)]}
    cases = {}
    for name, given in shapes.items():
        inputs = {f"x{i}": normal(*shape, seed=i) for i, shape in enumerate(given)}
        cases[name] = node_model(operator, inputs), inputs
    assert_as_onnx_runtime(from_onnx, cases, 1e-6)


@pytest.mark.parametrize("operator", ("Max", "Min"))
def test_nan_is_the_result(operator: str) -> None:
    inputs = {f"x{i}": normal(4, seed=i) for i in range(3)}
    for i, x in enumerate(inputs.values()):
        x[i] = np.nan
    model = node_model(operator, inputs)
    [got] = imported_and_run(from_onnx, model, *inputs.values())
    assert np.isnan(got).tolist() == [True, True, True, False]


def test_sums_of_16_bits_are_rounded_once() -> None:
    inputs = {f"x{i}": normal(64, seed=i, dtype="float16") for i in range(50)}
    exact = np.sum([x.astype("float64") for x in inputs.values()], 0)
    model = node_model("Sum", inputs, outputs={"y": ("float16", 1)})
    [got] = imported_and_run(from_onnx, model, *inputs.values())
    np.testing.assert_array_equal(got, exact.astype("float16"))


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_of_thousands_of_operands_are_trees(operator: str) -> None:
    found = calls(repeated(operator, 2000))
    assert len(found) <= 2000  # 1999 of two operands, and the quotient of a mean
    assert all(len(call.args) == 2 for call in found)


def test_concatenation_of_many_operands() -> None:
    """Each of a few operands: a kernel is as deep as it has operands."""
    x = normal(2, 3)
    [got] = imported_and_run(from_onnx, repeated("Concat", 70, axis=1), x)
    np.testing.assert_array_equal(got, np.concatenate([x] * 70, 1))
    found = calls(repeated("Concat", 4000, axis=0))
    assert len(found) < 300
    assert max(len(call.args[0].fields) for call in found) == 16


def rows(count: int, columns: int = 3) -> np.ndarray:
    return normal(count, columns, seed=count)


def test_concatenation_of_symbols_with_different_names() -> None:
    """The symbols of inputs become one, so that the check names the input."""
    model = program(
        {"y": ("Concat", ["a", "b"], {"axis": 1}), "z": ("Add", ["a", "y"])},
        {"a": ("float32", ("n", 1)), "b": ("float32", ("m", "k"))},
        outputs=("y", "z"),
    )
    runs = [[rows(2, 1), rows(2, 5)], [rows(2, 1), rows(3, 5)], [rows(1, 1), rows(2)]]
    assert_follows_onnx_runtime(from_onnx, model, *runs)
    a, b = from_onnx(model)["main"].params
    assert a.ty.shape[0].same_as(b.ty.shape[0])
    model = program(
        {"y": ("Concat", ["a", "b"], {"axis": 1})},
        {"a": ("float32", ("n", 1)), "b": ("float32", (2, "k"))},
    )
    assert_follows_onnx_runtime(from_onnx, model, *runs)
    assert from_onnx(model)["main"].params[0].ty.shape[0] == 2


def test_concatenation_of_different_expressions() -> None:
    """As after an upsampled skip connection: 2 * (n // 2) rows and n rows."""
    model = program(
        {
            "half": ("MaxPool", ["x"], {"kernel_shape": [2], "strides": [2]}),
            "up": ("Resize", ["half", "", "scales"], {"mode": "nearest"}),
            "joined": ("Concat", ["up", "x"], {"axis": 1}),
            "y": ("Add", ["joined", "x"]),
            "again": ("Concat", ["x", "joined", "up"], {"axis": 1}),
        },
        {"x": ("float32", (1, 1, "n"))},
        {"scales": np.array([1, 1, 2], "float32")},
        outputs=("y", "again"),
    )
    runs = [[normal(1, 1, n)] for n in (4, 6, 5, 2)]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_concatenation_of_extents_that_depend_on_data() -> None:
    model = program(
        {
            "few": ("Compress", ["x", "keep"], {"axis": 0}),
            "y": ("Concat", ["few", "b", "few"], {"axis": 1}),
            "z": ("Concat", ["few", "b"], {"axis": 0}),
        },
        {"x": ("float32", ("n", "k")), "keep": ("bool", ("n",)), "b": ("float32", ("m", "k"))},
        outputs=("y", "z"),
    )
    keep = np.array([True, False, True])
    runs = [[rows(3), keep, rows(2)], [rows(3), keep, rows(3)], [rows(3), ~keep, rows(1)]]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_concatenation_in_a_branch_does_not_change_the_inputs() -> None:
    branch = program(
        {"joined": ("Concat", ["a", "b"], {"axis": 1}), "y": ("ReduceSum", ["joined"])},
        {"a": ("float32", ("n", 2)), "b": ("float32", ("m", 3))},
    ).graph
    del branch.input[:]
    other = program({"y": ("ReduceSum", ["a"])}, {"a": ("float32", ("n", 2))}).graph
    del other.input[:]
    model = program(
        {"y": ("If", ["condition"], {"then_branch": branch, "else_branch": other})},
        {"condition": ("bool", ()), "a": ("float32", ("n", 2)), "b": ("float32", ("m", 3))},
    )
    true, false = np.array(True), np.array(False)
    runs = [
        [true, rows(4, 2), rows(4)],
        [false, rows(4, 2), rows(5)],
        [true, rows(4, 2), rows(5)],
    ]
    assert_follows_onnx_runtime(from_onnx, model, *runs, rtol=1e-6)


def test_concatenation_of_extents_that_differ() -> None:
    model = program(
        {"y": ("Concat", ["a", "b"], {"axis": 1})},
        {"a": ("float32", (2, "n")), "b": ("float32", (3, "n"))},
    )
    message = "Concat 'y': shapes of the operands are [[2, n], [3, n]]; expected equal extents"
    assert_rejected(from_onnx, model, message)


def test_checks_grow_linearly() -> None:
    """Joined skip connections of a symbolic extent, as in a U-Net."""

    def model(count: int) -> tvm.IRModule:
        nodes: dict[str, tuple] = {}
        name = "x"
        for index in range(count):
            pooled, up, joined = f"p{index}", f"u{index}", f"j{index}"
            nodes[pooled] = ("MaxPool", [name], {"kernel_shape": [2], "strides": [2]})
            nodes[up] = ("Resize", [pooled, "", "scales"], {"mode": "nearest"})
            nodes[joined] = ("Concat", [up, name], {"axis": 1})
            name = joined
        scales = {"scales": np.array([1, 1, 2], "float32")}
        return from_onnx(program(nodes, {"x": ("float32", (1, 1, "n"))}, scales, [name]))

    assert_grows_linearly(model)


if __name__ == "__main__":
    tvm.testing.main()
