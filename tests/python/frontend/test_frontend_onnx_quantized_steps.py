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
"""Quantized operators of com.microsoft that are computed in float32."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.onnx_graphs import (
    Arrays,
    assert_as_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    whole,
)
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")

DTYPES = ("uint8", "int8")


def step(
    operator: str,
    dtype: str,
    data: np.ndarray,
    attributes: Mapping[str, object] | None = None,
    *,
    other: np.ndarray | None = None,
    rank: int | None = None,
    y_scale: float = 0.05,
) -> tuple[onnx.ModelProto, Arrays]:
    """A model of `operator` with one or two quantized operands."""
    parameters = lambda name, scale, zero: {  # noqa: E731
        f"{name}_scale": np.array(scale, "float32"),
        f"{name}_zero": np.array(zero, dtype),
    }
    constants = parameters("x", 0.031, 3)
    if other is not None:
        constants |= {"b": other, **parameters("b", 0.017, 7)}
    constants |= parameters("y", y_scale, 11)
    model = node_model(
        operator,
        {"x": data},
        attributes,
        constants=constants,
        outputs={"y": (dtype, data.ndim if rank is None else rank)},
        domain="com.microsoft",
    )
    return model, {"x": data}


def test_one_operand() -> None:
    cases = {}
    for dtype in DTYPES:
        x = whole(4, 300, dtype=dtype)
        x[0, :256] = np.arange(256).astype(dtype)
        sharp = {"y_scale": 1 / 256}
        cases |= {
            f"leaky {dtype}": step("QLinearLeakyRelu", dtype, x, {"alpha": 0.1}),
            f"leaky default {dtype}": step("QLinearLeakyRelu", dtype, x),
            f"sigmoid {dtype}": step("QLinearSigmoid", dtype, x, **sharp),
        }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_softmax() -> None:
    """ONNX Runtime adds exponentials as integers, so that it may be off by one step."""
    cases = {}
    for dtype in DTYPES:
        x = whole(4, 3, 10, dtype=dtype)
        for opset, axis in ((13, -1), (13, 1), (12, 2), (11, -2)):
            attributes = {"opset": opset, "axis": axis}
            name = f"{dtype} {opset} {axis}"
            cases[name] = step("QLinearSoftmax", dtype, x, attributes, y_scale=1 / 256)
    assert_as_onnx_runtime(from_onnx, cases, steps=1, optimize=False)


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_arithmetic(operator: str) -> None:
    """ONNX Runtime combines the scales of a sum first: one halfway between integers may differ."""
    cases = {}
    for dtype in DTYPES:
        x = whole(64, 300, dtype=dtype)
        cases |= {
            dtype: step(operator, dtype, x, other=whole(64, 300, dtype=dtype, seed=1)),
            f"{dtype} row": step(operator, dtype, x, other=whole(300, dtype=dtype, seed=1)),
        }
    assert_as_onnx_runtime(from_onnx, cases, steps=1, optimize=False)


def test_pooling() -> None:
    """The last channels too; the order of a sum may change a mean that is halfway."""
    window = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    cases = {}
    for dtype in DTYPES:
        x = whole(2, 3, 8, 9, dtype=dtype)
        cases |= {
            f"average {dtype}": step("QLinearAveragePool", dtype, x, window),
            f"counted {dtype}": step(
                "QLinearAveragePool", dtype, x, window | {"count_include_pad": 1}
            ),
            f"rounded up {dtype}": step("QLinearAveragePool", dtype, x, window | {"ceil_mode": 1}),
            f"average last {dtype}": step(
                "QLinearAveragePool", dtype, x, window | {"channels_last": 1}
            ),
            f"global {dtype}": step("QLinearGlobalAveragePool", dtype, x),
            f"global last {dtype}": step(
                "QLinearGlobalAveragePool", dtype, x, {"channels_last": 1}
            ),
        }
    assert_as_onnx_runtime(from_onnx, cases, steps=1, optimize=False)


def test_mean() -> None:
    """ONNX Runtime has no kernel for it."""
    for dtype in DTYPES:
        x = whole(2, 3, 8, 9, dtype=dtype)
        for axes, keepdims, rank in (([2, 3], 1, 4), ([-1], 0, 3)):
            attributes = {"axes": axes, "keepdims": keepdims}
            model, _ = step("QLinearReduceMean", dtype, x, attributes, rank=rank)
            [got] = imported_and_run(from_onnx, model, x, optimize=False)
            wide = (x.astype("float64") - 3) * np.float32(0.031)
            mean = wide.mean(tuple(axes), keepdims=bool(keepdims)) / np.float32(0.05) + 11
            expected = np.clip(np.rint(mean), np.iinfo(dtype).min, np.iinfo(dtype).max)
            assert got.dtype == dtype
            assert np.abs(got.astype("int32") - expected).max() <= 1


def test_concat() -> None:
    """One, few and many tensors with parameters of their own."""
    cases = {}
    for dtype in DTYPES:
        for count in (2, 20) if dtype == "int8" else (1, 3):
            x = whole(2, 3, dtype=dtype)
            constants = {"y_scale": np.array(0.05, "float32"), "y_zero": np.array(7, dtype)}
            operands = list(constants)
            for index in range(count):
                constants |= {
                    f"x{index}": whole(2, index + 1, dtype=dtype, seed=index),
                    f"s{index}": np.array(0.01 * (index + 1), "float32"),
                    f"z{index}": np.array(index, dtype),
                }
                operands += ["x" if index == 0 else f"x{index}", f"s{index}", f"z{index}"]
            model = node_model(
                "QLinearConcat",
                {"x": x},
                {"axis": 1},
                constants=constants,
                operands=operands,
                outputs={"y": (dtype, 2)},
                domain="com.microsoft",
            )
            cases[f"{dtype} {count}"] = model, {"x": x}
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_where() -> None:
    cases = {}
    for dtype in DTYPES:
        condition = np.random.default_rng(0).integers(0, 2, (4, 1)).astype(bool)
        constants = {}
        for name, scale in (("x", 0.031), ("b", 0.017)):
            constants[name] = whole(4, 30, dtype=dtype, seed=len(constants))
            constants[f"{name}_scale"] = np.array(scale, "float32")
            constants[f"{name}_zero"] = np.array(3, dtype)
        constants["y_scale"] = np.array(0.05, "float32")
        constants["y_zero"] = np.array(7, dtype)
        inputs = {"c": condition}
        model = node_model(
            "QLinearWhere",
            inputs,
            constants=constants,
            outputs={"y": (dtype, 2)},
            domain="com.microsoft",
        )
        cases[dtype] = model, inputs
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_rejects_bad_operands() -> None:
    x = whole(2, 3, dtype="uint8")
    model, _ = step("QLinearSigmoid", "uint8", x)
    named = "com.microsoft.QLinearSigmoid 'node': "
    del model.graph.node[0].input[3:]
    expected = "expected X, X_scale, Y_scale"
    assert_rejected(from_onnx, model, f"{named}operand Y_scale is missing; {expected}")
    model, _ = step("QLinearSigmoid", "int8", x)
    assert_rejected(from_onnx, model, f"{named}dtype of X_zero_point is int8; expected uint8")
    model, _ = step("QLinearSoftmax", "uint8", x, {"opset": 13, "axis": 2})
    assert_rejected(from_onnx, model, "attribute axis is 2; expected -2 to 1")
    model, _ = step("QLinearAdd", "uint8", x, other=whole(2, 4, dtype="uint8"))
    assert_rejected(from_onnx, model, "[[2, 3], [2, 4]]; expected extents that are equal or 1")


if __name__ == "__main__":
    tvm.testing.main()
