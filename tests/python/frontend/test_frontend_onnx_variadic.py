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

from helpers.onnx_graphs import assert_as_onnx_runtime, imported_and_run, node_model, normal
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


if __name__ == "__main__":
    tvm.testing.main()
