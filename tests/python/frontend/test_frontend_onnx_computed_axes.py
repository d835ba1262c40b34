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
"""Reductions, CumSum and CumProd along axes that are inputs."""

import numpy as np
import pytest
import tvm.testing

from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_as_reference,
    assert_follows_onnx_runtime,
    imported_and_run,
    node_model,
    normal,
)
from tvm_fixes.frontend.onnx import from_onnx


def test_reductions() -> None:
    """Any number of axes, negative ones, with and without keepdims, and symbolic extents."""
    x = normal(2, 3, 4)
    cases = {}
    for name, operator, axes, keepdims, dims in (
        ("kept", "ReduceSum", [-1], 1, None),
        ("dropped", "ReduceMax", [1], 0, None),
        ("two", "ReduceMean", [2, 0], 0, (None, 3, None)),
        ("all", "ReduceL2", [1, 0, 2], 0, None),
        ("exponential", "ReduceLogSumExp", [0, -1], 1, None),
    ):
        inputs = {"x": x, "axes": np.array(axes, "int64")}
        rank = 3 if keepdims else 3 - len(axes)
        model = node_model(
            operator,
            inputs,
            {"keepdims": keepdims},
            shapes={"x": dims} if dims else None,
            outputs={"y": ("float32", rank)},
        )
        cases[name] = model, inputs
    assert_as_onnx_runtime(from_onnx, cases, rtol=1e-6)


@pytest.mark.parametrize("noop", (0, 1))
def test_symbolic_number_of_axes(noop: int) -> None:
    """The number of axes is symbolic; an empty list means all axes or, with noop, no axis."""
    inputs = {"x": normal(2, 3, 4), "axes": np.array([], "int64")}
    attributes = {"noop_with_empty_axes": noop}
    model = node_model("ReduceSum", inputs, attributes, shapes={"axes": ("n",)})
    runs = ([inputs["x"], np.array(axes, "int64")] for axes in ([], [1], [2, 0]))
    assert_follows_onnx_runtime(from_onnx, model, *runs, pipeline="tvm_fixes", rtol=1e-6)


def test_pad() -> None:
    cases = {}
    for mode, axes in (("constant", [-1, 0]), ("reflect", [1])):
        pads = np.array([1, 0, 2, 1] if len(axes) == 2 else [1, 2])
        inputs = {"x": normal(2, 3, 4), "pads": pads, "axes": np.array(axes)}
        model = node_model("Pad", inputs, {"mode": mode}, operands=["x", "pads", "", "axes"])
        cases[mode] = model, inputs
    assert_as_onnx_runtime(from_onnx, cases)


@pytest.mark.parametrize("axes", ([2], [-3], [0, -2]))
def test_invalid_axes(axes: list[int]) -> None:
    inputs = {"x": normal(2, 3), "axes": np.array(axes)}
    model = node_model("ReduceSum", inputs)
    with pytest.raises(RuntimeError, match="match_cast error"):
        imported_and_run(from_onnx, model, *inputs.values())


def test_cumulative() -> None:
    cases = {}
    for operator in ("CumSum", "CumProd"):
        for axis, reverse, exclusive, dims in (
            (0, 0, 0, None),
            (-1, 1, 1, (None, None, 4)),
            (1, 0, 1, None),
        ):
            inputs = {"x": normal(2, 3, 4), "axis": np.array(axis)}
            attributes = {"reverse": reverse, "exclusive": exclusive}
            shapes = {"x": dims} if dims else None
            model = node_model(operator, inputs, attributes, shapes=shapes, opset=26)
            cases[f"{operator}_{axis % 3}"] = model, inputs
    assert_as_reference(from_onnx, cases, rtol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
