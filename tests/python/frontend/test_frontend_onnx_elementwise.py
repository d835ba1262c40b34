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
"""Elementwise operators, compared with ONNX Runtime, or with NumPy where it lacks a kernel."""

import numpy as np
import onnxruntime
import pytest
import tvm
import tvm.testing
from onnx import helper, numpy_helper
from tvm.relax.frontend import onnx as tvm_onnx

import tvm_fixes
from helpers.grids import few
from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
)
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

FIX_ID = "onnx-elementwise"

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
EDGES = np.array([-np.inf, -2.5, -1.0, -0.0, 0.0, 1.0, 3.5, np.inf, np.nan], "float32")


def binary(operator, x, y, attributes=None, opset=18):
    inputs = {"x": x, "other": y}
    return node_model(operator, inputs, attributes, opset=opset), inputs


def is_inf(negative: int, positive: int):
    attributes = {"detect_negative": negative, "detect_positive": positive}
    outputs = {"y": ("bool", 1)}
    return node_model("IsInf", {"x": EDGES}, attributes, outputs=outputs), {"x": EDGES}


def test_is_inf() -> None:
    cases = {f"{n}{p}": is_inf(n, p) for n in (0, 1) for p in (0, 1)}
    assert_as_onnx_runtime(from_onnx, cases)


def test_mod() -> None:
    """ONNX Runtime lacks a floating-point Mod with the divisor's sign, so compare with NumPy."""
    x, y = (array.ravel() for array in np.meshgrid(EDGES, EDGES))
    [got] = imported_and_run(from_onnx, binary("Mod", x, y)[0], x, y)
    with np.errstate(invalid="ignore"):
        expected = np.mod(x, y)
    np.testing.assert_array_equal(got, expected)
    zeros = expected == 0
    assert zeros.any()
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros]))


@few(2)
@pytest.mark.parametrize("dtype", ("int32", "int64", "float32", "float64"))
def test_pow(dtype: str) -> None:
    bases = np.array([-3, -1, 0, 1, 2, 7]).astype(dtype)
    cases = {
        other: binary("Pow", bases, np.array([3, 5, 2, 0, 4, 1]).astype(other), opset=15)
        for other in ("int32", "int64", "float32", "float64")
    }
    assert_as_onnx_runtime(from_onnx, cases, 1e-6)


def test_mish() -> None:
    x = np.concatenate([np.linspace(-80, 80, 641), EDGES[1:-2]]).astype("float32")
    [got] = imported_and_run(from_onnx, node_model("Mish", {"x": x}), x)
    wide = x.astype("float64")
    np.testing.assert_allclose(got, wide * np.tanh(np.log1p(np.exp(wide))), rtol=1e-5, atol=1e-37)


def test_softplus() -> None:
    x = np.concatenate([np.linspace(-100, 100, 801), EDGES]).astype("float32")
    [got] = imported_and_run(from_onnx, node_model("Softplus", {"x": x}), x)
    expected = np.logaddexp(x.astype("float64"), 0)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-37)


def test_casts() -> None:
    dtypes = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64", "bool")
    x = np.array([0, 1, 3, 100])
    cases = {}
    for source in dtypes:
        for target in dtypes:
            inputs = {"x": x.astype(source)}
            attributes = {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))}
            model = node_model("Cast", inputs, attributes, outputs={"y": (target, 1)})
            cases[f"{source} to {target}"] = model, inputs
    assert_as_onnx_runtime(from_onnx, cases)


@few(3)
@pytest.mark.parametrize("constant", (False, True))
@pytest.mark.parametrize("source", ("float16", "float32", "float64"))
def test_casts_that_are_out_of_range(source: str, *, constant: bool) -> None:
    """ONNX Runtime's lanes of uint32 differ, so it casts one element at a time."""
    numbers = [np.nan, np.inf, -np.inf, 300.5, -1.5, 2.0**31, -3e9, 2.0**40 + 5e8 + 77, 2.0**63]
    numbers += [-(2.0**63), 1.5 * 2.0**63, 2.0**64, -(2.0**64), 1e300]
    with np.errstate(over="ignore"):
        x = np.resize(np.array(numbers), 67).astype(source)
    model = casts_of(source)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    singles = [session.run(None, {"x": element.reshape(1)}) for element in x]
    expected = [np.concatenate(results) for results in zip(*singles, strict=True)]
    if constant:
        model.graph.ClearField("input")
        model.graph.initializer.append(numpy_helper.from_array(x, "x"))
    found = tvm_fixes.compile(model, compare=False).run(*([] if constant else [x]))
    for target, got, wanted in zip(INTEGERS, found, expected, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=target)


@pytest.mark.parametrize("source", ("float16", "float32", "float64"))
def test_casts_that_wrap_around_in_tvms_pipeline(source: str) -> None:
    x = np.resize(np.array([-1.5, -200.25, 300.5, 65000, -65000]), 67).astype(source)
    found = imported_and_run(from_onnx, casts_of(source), x)
    for target, got in zip(INTEGERS[:-1], found, strict=False):
        np.testing.assert_array_equal(got, x.astype("int64").astype(target), err_msg=target)


def casts_of(source):
    """A graph that casts `source` to every integer dtype."""
    nodes, outputs = [], []
    for target in INTEGERS:
        to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        nodes.append(helper.make_node("Cast", ["x"], [target], to=to))
        outputs.append(helper.make_tensor_value_info(target, to, ["n"]))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(source))
    given = helper.make_tensor_value_info("x", kind, ["n"])
    graph = helper.make_graph(nodes, "casts", [given], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("direction", ("LEFT", "RIGHT"))
def test_bit_shift(direction: str) -> None:
    """Shifts of up to the width: in ONNX Runtime larger ones depend on the processor."""
    x, by = np.array([1, 255, 7, 128], "uint8"), np.array([7, 1, 0, 3], "uint8")
    case = binary("BitShift", x, by, {"direction": direction})
    assert_as_onnx_runtime(from_onnx, {"in range": case})
    by = np.array([8, 200, 9, 255], "uint8")
    [got] = imported_and_run(from_onnx, case[0], x, by)
    np.testing.assert_array_equal(got, np.zeros(4, "uint8"))


def test_bit_shift_of_negative_numbers() -> None:
    x, by = np.array([-8, -1, 8, -8], "int32"), np.array([1, 40, 32, -1], "int32")
    model, _ = binary("BitShift", x, by, {"direction": "RIGHT"}, opset=28)
    [got] = imported_and_run(from_onnx, model, x, by)
    np.testing.assert_array_equal(got[:3], [-4, -1, 0])


def test_space_to_depth_by_channels() -> None:
    """SpaceToDepth of opset 28, by the ONNX specification: ONNX Runtime lacks it."""
    x = normal(2, 3, 4, 6)
    attributes = {"blocksize": 2, "mode": "CRD"}
    [got] = imported_and_run(from_onnx, node_model("SpaceToDepth", {"x": x}, attributes), x)
    assert got.shape == (2, 12, 2, 3)
    places = [x[:, :, row::2, column::2] for row in (0, 1) for column in (0, 1)]
    np.testing.assert_array_equal(got.reshape(2, 3, 4, 2, 3), np.stack(places, axis=2))


def dropout(**constants: np.ndarray):
    x = normal(2, 3)
    outputs = {"y": ("float32", 2), "mask": ("bool", 2)}
    return node_model("Dropout", {"x": x}, constants=constants, outputs=outputs), {"x": x}


def test_dropout_of_ratio_zero() -> None:
    cases = {
        "inference": dropout(ratio=np.array(0.3, "float32")),
        "training": dropout(ratio=np.array(0, "float32"), mode=np.array(True)),
    }
    assert_as_onnx_runtime(from_onnx, cases)


def test_dropout_in_training_is_rejected() -> None:
    model, _ = dropout(ratio=np.array(0.3, "float32"), mode=np.array(True))
    message = "Dropout 'node': operand training_mode is True; expected a constant false"
    assert_rejected(from_onnx, model, message)


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = is_inf(0, 1)
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert acted == {FIX_ID}
    with pytest.raises(ValueError):
        tvm.ir.assert_structural_equal(ours, tvm_onnx.from_onnx(model))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


if __name__ == "__main__":
    tvm.testing.main()
