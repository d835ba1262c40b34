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
"""Import of ONNX models whose initializers become inputs of the function."""

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from onnx import TensorProto, helper
from tvm import relax

from helpers.models import onnx_model
from helpers.onnx_graphs import normal, onnx_runtime
from helpers.relax_modules import run
from tvm_fixes import verify
from tvm_fixes.frontend.onnx import from_onnx

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def kept(model: onnx.ModelProto) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """The module with parameters as inputs, and their values."""
    mod, params = relax.frontend.detach_params(from_onnx(model, keep_params_in_input=True))
    verify(mod).raise_if_errors()
    return mod, [tensor.numpy() for tensor in params["main"]]


def check(model: onnx.ModelProto, *inputs: np.ndarray) -> list[str]:
    """Compare with ONNX Runtime; return the names of the function's parameters."""
    mod, params = kept(model)
    [expected] = onnx_runtime(model, *inputs)
    got = run(mod, *inputs, *params)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
    return [variable.name for variable in mod["main"].params]


def test_initializers_that_are_inputs_too() -> None:
    """Files of IR version 3 list every initializer as an input, here before the real one."""
    model = onnx_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [("w", FLOAT, [4, 5]), ("x", FLOAT, ["n", 4])],
        [("y", FLOAT, ["n", 5])],
        {"w": normal(4, 5)},
        opset=8,
    )
    model.ir_version = 3
    mod, [w] = kept(model)
    assert [variable.name for variable in mod["main"].params] == ["x", "w"]
    x = normal(2, 4, seed=1)
    np.testing.assert_allclose(run(mod, x, w), x @ w, rtol=1e-6)


def test_names_of_parameters() -> None:
    """All differ, also from those of inputs: TVM's converters look parameters up by name."""
    names = ["onnx::w", "w", "a_b", "onnx::v"]
    adds = ["x", *names, "a.b"]
    nodes = [
        helper.make_node("Add", [f"sum{index}" if index else "x", name], [f"sum{index + 1}"])
        for index, name in enumerate(adds[1:])
    ]
    nodes[-1].output[0] = "y"
    weights = {name: normal(3, seed=seed) for seed, name in enumerate(names)}
    shape = ["n", 3]
    model = onnx_model(
        nodes, [("x", FLOAT, shape), ("a.b", FLOAT, shape)], [("y", FLOAT, shape)], weights
    )
    params = check(model, normal(2, 3), normal(2, 3, seed=9))
    assert params == ["x", "a_b_1", "onnx::w", "w", "a_b", "v"]


@pytest.mark.parametrize("target", [[1, 1, 1, 1], [2, 1, 1], [3, 1, 2, 1, 1], [1]])
def test_expand_to_an_initializer(target: list[int]) -> None:
    model = onnx_model(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        [("x", FLOAT, [4, 1, 2, 5])],
        [("y", FLOAT, None)],
        {"shape": np.array(target)},
    )
    check(model, normal(4, 1, 2, 5))


@pytest.mark.parametrize(
    ("nodes", "weights", "shape"),
    [
        ([("Tile", ["x", "w"])], {"w": np.array([2, 1])}, (2, 3)),
        ([("Reshape", ["x", "w"])], {"w": np.array([3, -1])}, (2, 3)),
        ([("Unsqueeze", ["x", "w"])], {"w": np.array([1])}, (2, 3)),
        ([("Squeeze", ["x", "w"])], {"w": np.array([0])}, (1, 3)),
        ([("ReduceMax", ["x", "w"])], {"w": np.array([1])}, (2, 3)),
        ([("CumSum", ["x", "w"])], {"w": np.array(1)}, (2, 3)),
        ([("Trilu", ["x", "w"])], {"w": np.array(1)}, (2, 3)),
        ([("Resize", ["x", "", "w"])], {"w": np.float32([1, 1, 2])}, (1, 2, 3)),
        (
            [("Pad", ["x", "w", "v"])],
            {"w": np.array([0, 1, 0, 1]), "v": np.array(7, "float32")},
            (2, 3),
        ),
        ([("Slice", ["x", "w", "v"])], {"w": np.array([1]), "v": np.array([9])}, (2, 3)),
        ([("Max", ["w", "v"]), ("Expand", ["x", "0"])], {"w": [2, 1], "v": [1, 3]}, (1, 3)),
        ([("Mul", ["w", "v"]), ("Reshape", ["x", "0"])], {"w": [3, 1], "v": [1, 2]}, (2, 3)),
    ],
    ids=lambda value: value[-1][0] if isinstance(value, list) else "",
)
def test_operands_that_must_be_constants(
    nodes: list[tuple[str, list[str]]], weights: dict[str, np.ndarray], shape: tuple[int, ...]
) -> None:
    made = [
        helper.make_node(op, names, [f"{index}" if index + 1 < len(nodes) else "y"])
        for index, (op, names) in enumerate(nodes)
    ]
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    model = onnx_model(made, [("x", FLOAT, shape)], [("y", FLOAT, None)], arrays, opset=18)
    check(model, normal(*shape))


def test_other_parameters_than_those_of_the_file() -> None:
    """Sums of initializers, and conversions of them, are computed from the arguments."""
    model = onnx_model(
        [
            helper.make_node("Mul", ["v", "w"], ["scale"]),
            helper.make_node("Unsqueeze", ["scale", "axis"], ["column"]),
            helper.make_node("Mul", ["x", "column"], ["scaled"]),
            helper.make_node("Cast", ["count"], ["number"], to=FLOAT),
            helper.make_node("Add", ["scaled", "number"], ["y"]),
        ],
        [("x", FLOAT, [2, 3])],
        [("y", FLOAT, [2, 3])],
        {
            "v": np.float32([1, 2]),
            "w": np.float32([3, 4]),
            "axis": np.array([1]),
            "count": np.array(5),
        },
    )
    mod, params = kept(model)
    names = [variable.name for variable in mod["main"].params]
    assert names == ["x", "v", "w", "axis", "count"]
    x, v, w = normal(2, 3), np.float32([5, 6]), np.float32([7, 8])
    got = run(mod, x, v, w, params[2], np.array(9))
    np.testing.assert_allclose(got, x * (v * w)[:, None] + 9, rtol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
