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
import torch
import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
)
from helpers.relax_modules import call, cpu, merge, run
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.ops.reductions import REDUCED
from tvm_fixes.support import switches

FIX_ID = "onnx-reductions"


def reduction(operator: str, x: np.ndarray, axes=(1,), **attributes: int):
    constants = {"axes": np.array(axes, "int64")}
    return node_model(operator, {"x": x}, attributes, constants=constants), {"x": x}


EMPTY_RESULTS = {
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
    "ReduceMax": -np.inf,
    "ReduceMean": np.nan,
    "ReduceMin": np.inf,
    "ReduceProd": 1,
    "ReduceSum": 0,
    "ReduceSumSquare": 0,
}
"""ONNX's results for 0 elements; infinity stands for the limit of an integer's range."""


@pytest.mark.parametrize("is_known", [False, True])
def test_of_no_elements(is_known: bool) -> None:
    x = np.ones((2, 0, 3), "float32")
    models = {operator: reduction(operator, x, keepdims=0)[0] for operator in EMPTY_RESULTS}
    for model in models.values():
        del model.graph.output[0].type.tensor_type.shape.dim[0]
    static = partial(from_onnx, shape_dict={"x": [2, 0, 3]} if is_known else None)
    built = merge({operator: static(model) for operator, model in models.items()})
    vm = relax.VirtualMachine(relax.build(built, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for operator, expected in EMPTY_RESULTS.items():
        np.testing.assert_array_equal(
            call(vm, operator, x), np.full((2, 3), expected, "float32"), operator
        )


def test_of_no_integers() -> None:
    x = np.ones((2, 0), "int32")
    limits = np.iinfo("int32")
    for operator, expected in (("ReduceMax", limits.min), ("ReduceMin", limits.max)):
        mod = from_onnx(reduction(operator, x)[0], shape_dict={"x": [2, 0]})
        got = run(mod, x, pipeline="tvm_fixes")
        np.testing.assert_array_equal(got, np.full((2, 1), expected, "int32"))
    message = "ReduceMean 'node': dtype of X is int32; expected a float dtype: the mean"
    static = partial(from_onnx, shape_dict={"x": [2, 0]})
    assert_rejected(static, reduction("ReduceMean", x)[0], message)


@pytest.mark.parametrize("keepdims", (0, 1))
def test_log_sum_exp_of_infinities(keepdims: int) -> None:
    inf = np.inf
    x = np.array([[-inf, -inf], [inf, 1], [inf, -inf], [np.nan, 1], [90, 90], [-inf, 2]], "float32")
    model, _ = reduction("ReduceLogSumExp", x, keepdims=keepdims)
    [got] = imported_and_run(from_onnx, model, x)
    expected = torch.logsumexp(torch.tensor(x), 1, keepdim=bool(keepdims))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


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


def test_too_many_computed_axes() -> None:
    inputs = {"x": normal(2, 3), "axes": np.array([0, 1, 1])}
    message = "ReduceSum 'node': number of axes is 3; expected at most 2, the rank of data"
    assert_rejected(from_onnx, node_model("ReduceSum", inputs), message)


def test_axes_that_are_none_are_rejected() -> None:
    message = "ReduceSum 'node': axes are [2]; expected axes of X, which has rank 2"
    assert_rejected(from_onnx, reduction("ReduceSum", normal(2, 3), (2,))[0], message)


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = reduction("ReduceLogSumExp", normal(2, 3))
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert acted == {FIX_ID}
    with pytest.raises(ValueError):
        tvm.ir.assert_structural_equal(ours, tvm_onnx.from_onnx(model))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


@pytest.mark.parametrize("dtype", ("float32", "int32"))
def test_without_axes_each_element_is_reduced(dtype: str) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], dtype) - (dtype == "float32")
    cases = {}
    for operator in REDUCED:
        if operator != "ReduceSum":  # of an older opset
            attributes = {"noop_with_empty_axes": 1}
            cases[operator] = reduction(operator, x.astype(dtype), (), **attributes)
    assert_as_onnx_runtime(from_onnx, cases, 1e-6)


@pytest.mark.parametrize("dtype", ("int32", "int64"))
def test_of_integers(dtype: str) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], dtype)
    operators = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
    operators += ("ReduceMean",) if dtype == "int32" else ()
    assert_as_onnx_runtime(from_onnx, {name: reduction(name, x) for name in operators})


def test_sums_of_16_bits_are_not_rounded() -> None:
    """The sum of squares is beyond float16, and the other one rounds to 1."""
    large, near_one = np.full((1, 4), 300, "float16"), np.array([[1, 2**-12]], "float16")
    models = {
        "norm": (reduction("ReduceL2", large), 600),
        "log": (reduction("ReduceLogSum", near_one), np.log1p(2.0**-12)),
    }
    for (model, inputs), expected in models.values():
        [got] = imported_and_run(from_onnx, model, *inputs.values())
        np.testing.assert_allclose(got.ravel(), np.float16(expected), rtol=1e-3)


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_arg_reduction_of_a_scalar_and_of_nothing(operator: str) -> None:
    scalar = np.array(3, "float32")
    [y] = imported_and_run(from_onnx, node_model(operator, {"x": scalar}), scalar)
    assert y.shape == () and y == 0
    nothing = {"c": np.zeros((2, 0, 3), "float32")}
    model = node_model(operator, {"x": scalar}, {"axis": 1}, constants=nothing, operands=["c"])
    message = (
        f"{operator} 'node': shape of data is [2, 0, 3]; expected at least one element on axis 1"
    )
    assert_rejected(from_onnx, model, message)


if __name__ == "__main__":
    tvm.testing.main()
