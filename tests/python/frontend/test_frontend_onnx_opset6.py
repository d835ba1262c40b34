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
"""Operators of opset 6 and older, which ONNX Runtime does not run: compared with NumPy."""

import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import helper

from helpers.grids import few
from helpers.onnx_graphs import assert_rejected, imported_and_run, normal
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")

X = normal(2, 3, 4, 5)


def model(operator: str, *operands: np.ndarray, **attributes: object) -> onnx.ModelProto:
    names = ["x", "b"][: 1 + len(operands)]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], name="node", **attributes)],
        "g",
        [helper.make_tensor_value_info("x", 1, X.shape)],
        [helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(b, "b") for b in operands],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3)


@few(2)
@pytest.mark.parametrize(
    "axis, shape", ((1, (3,)), (1, (3, 4)), (-2, (4,)), (2, (4, 5)), (0, (2,)))
)
def test_operands_broadcast_from_an_axis(axis: int, shape: tuple[int, ...]) -> None:
    b = normal(*shape, seed=1)
    [got] = imported_and_run(from_onnx, model("Sub", b, axis=axis, broadcast=1), X)
    first = axis % 4
    np.testing.assert_array_equal(got, X - b.reshape(*shape, *[1] * (4 - first - len(shape))))


def test_operands_broadcast_from_the_last_axis() -> None:
    b = normal(5, seed=1)
    [got] = imported_and_run(from_onnx, model("Mul", b, broadcast=1), X)
    np.testing.assert_array_equal(got, X * b)
    assert_rejected(from_onnx, model("Mul", b, broadcast=1, axis=4), "attribute axis is 4")


def test_slopes_of_channels() -> None:
    slope = normal(3, seed=1)
    [got] = imported_and_run(from_onnx, model("PRelu", slope), X)
    np.testing.assert_array_equal(got, np.where(X < 0, X * slope.reshape(3, 1, 1), X))


def test_scales_in_attributes() -> None:
    attributes = {"height_scale": 2.0, "width_scale": 3.0, "mode": "nearest"}
    [got] = imported_and_run(from_onnx, model("Upsample", **attributes), X)
    np.testing.assert_array_equal(got, X.repeat(2, 2).repeat(3, 3))


if __name__ == "__main__":
    tvm.testing.main()
