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
"""Reductions, compared with ONNX Runtime."""

from functools import partial

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm.relax.frontend import onnx as tvm_onnx

from onnx_helpers import (
    assert_as_onnx_runtime,
    assert_refused,
    imported_and_run,
    node_model,
    normal,
)
from tvm_fixes import switches
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.reductions import REDUCED

FIX_ID = "onnx-reductions"


def reduction(operator: str, x: np.ndarray, axes=(1,), **attributes: int):
    constants = {"axes": np.array(axes, "int64")}
    return node_model(operator, {"x": x}, attributes, constants=constants), {"x": x}


@pytest.mark.parametrize("keepdims", (0, 1))
def test_of_no_elements(keepdims: int) -> None:
    x = np.ones((2, 0, 3), "float32")
    for operator, expected in REDUCED.items():
        model, _ = reduction(operator, x, keepdims=keepdims)
        if not keepdims:
            del model.graph.output[0].type.tensor_type.shape.dim[0]
        [got] = imported_and_run(partial(from_onnx, shape_dict={"x": [2, 0, 3]}), model, x)
        shape = (2, 1, 3) if keepdims else (2, 3)
        np.testing.assert_array_equal(got, np.full(shape, expected, "float32"), operator)


def test_of_no_integers() -> None:
    x = np.ones((2, 0), "int32")
    limits = np.iinfo("int32")
    for operator, expected in (("ReduceMax", limits.min), ("ReduceMin", limits.max)):
        static = partial(from_onnx, shape_dict={"x": [2, 0]})
        [got] = imported_and_run(static, reduction(operator, x)[0], x)
        np.testing.assert_array_equal(got, np.full((2, 1), expected, "int32"))


def test_booleans() -> None:
    x = np.array([[True, False], [True, True], [False, False]])
    for operator, expected in (("ReduceMax", x.any(1)), ("ReduceMin", x.all(1))):
        model, _ = reduction(operator, x)
        model.opset_import[0].version = 20
        [got] = imported_and_run(from_onnx, model, x)
        np.testing.assert_array_equal(got, expected[:, None])


def test_axes() -> None:
    x = normal(2, 3, 4)
    cases = {
        f"{operator} {axes}": reduction(operator, x, axes)
        for operator in REDUCED
        if operator != "ReduceLogSum"
        for axes in ((0,), (-1, 0), (1, 2))
    }
    assert_as_onnx_runtime(from_onnx, cases, 1e-6)


def test_computed_axes_are_refused() -> None:
    inputs = {"x": normal(2, 3), "axes": np.array([1])}
    message = "ReduceSum 'node': operand axes is axes; expected a constant"
    assert_refused(from_onnx, node_model("ReduceSum", inputs), message)


def test_axes_that_are_none_are_refused() -> None:
    message = "ReduceSum 'node': axes is [2]; expected axes of X, of rank 2"
    assert_refused(from_onnx, reduction("ReduceSum", normal(2, 3), (2,))[0], message)


def test_switched_off_is_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = reduction("ReduceMax", np.ones((2, 3), bool))
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert acted == {FIX_ID}
    with pytest.raises(ValueError):
        tvm.ir.assert_structural_equal(ours, tvm_onnx.from_onnx(model))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


if __name__ == "__main__":
    tvm.testing.main()
