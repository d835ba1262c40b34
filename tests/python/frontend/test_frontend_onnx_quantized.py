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
"""Quantized operators, compared with ONNX Runtime."""

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing

from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
    whole,
)
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

FIX_ID = "onnx-quantized"

MICROSOFT = "com.microsoft"

PAIRS = (("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))
"""Dtypes of activations and weights for which ONNX Runtime has kernels."""


def scale(*values: float) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], "float32")


def conv_integer(dtype: str, attributes: dict, **zeros: np.ndarray):
    inputs = {"x": whole(2, 4, 7, 6, dtype=dtype)}
    constants = {"w": whole(6, 2, 3, 3, dtype=dtype, seed=1), **zeros}
    model = node_model(
        "ConvInteger",
        inputs,
        {"group": 2} | attributes,
        constants=constants,
        outputs={"y": ("int32", 4)},
    )
    return model, inputs


def test_conv_integer() -> None:
    zero = np.array(131, "uint8")
    cases = {
        "plain": conv_integer("uint8", {}),
        "padded": conv_integer("uint8", {"pads": [1, 0, 2, 1], "strides": [2, 1]}, x_zero=zero),
        "both": conv_integer("uint8", {"auto_pad": "SAME_UPPER"}, x_zero=zero, w_zero=zero),
    }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def qlinear_conv(dtype: str, weight_dtype: str, *, per_channel: bool, bias: bool):
    inputs = {"x": whole(2, 4, 7, 6, dtype=dtype)}
    scales = scale(*(0.01, 0.02, 0.03, 0.005, 0.02, 0.01)) if per_channel else scale(0.02)
    constants = {
        "x_scale": scale(0.03),
        "x_zero": np.array(3, dtype),
        # ONNX Runtime adds pairs of products in 16 bits, so keep the weights small.
        "w": whole(6, 2, 3, 3, dtype=weight_dtype, seed=1) // 2,
        "w_scale": scales,
        "w_zero": np.zeros(scales.shape, weight_dtype),
        "y_scale": scale(0.7),
        "y_zero": np.array(5, dtype),
    }
    if bias:
        constants["bias"] = np.arange(-3000, 3000, 1000, "int32")
    attributes = {"group": 2, "pads": [1, 1, 1, 1]}
    return node_model("QLinearConv", inputs, attributes, constants=constants), inputs


def test_qlinear_conv() -> None:
    cases = {
        f"{dtype} {weight} {per_channel} {bias}": qlinear_conv(
            dtype, weight, per_channel=per_channel, bias=bias
        )
        for dtype, weight in (("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))
        for per_channel in (False, True)
        for bias in (False, True)
    }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def qlinear_matmul(dtype: str, shape: tuple[int, ...]):
    inputs = {"a": whole(*shape, dtype=dtype)}
    constants = {
        "a_scale": scale(0.03),
        "a_zero": np.array(3, dtype),
        "b": whole(*shape[:-2], shape[-1], 4, dtype=dtype, seed=1),
        "b_scale": scale(0.02),
        "b_zero": np.array(7, dtype),
        "y_scale": scale(0.4),
        "y_zero": np.array(5, dtype),
    }
    return node_model("QLinearMatMul", inputs, constants=constants), inputs


def test_qlinear_matmul() -> None:
    cases = {
        f"{dtype} {shape}": qlinear_matmul(dtype, shape)
        for dtype in ("int8", "uint8")
        for shape in ((3, 5), (2, 3, 5))
    }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def small(*shape: int, dtype: str, seed: int = 1) -> np.ndarray:
    """Weights so small that the 16-bit sums of two products in ONNX Runtime do not saturate."""
    return whole(*shape, dtype=dtype, seed=seed) // (1 if dtype == "uint8" else 2)


def test_qlinear_conv_with_channels_last() -> None:
    inputs = {"x": whole(2, 7, 6, 4, dtype="uint8")}
    parameters = {"s": scale(0.03), "z": np.array(3, "uint8")}
    constants = {
        **parameters,
        "w": small(6, 2, 3, 3, dtype="int8"),
        "w_scale": scale(*(0.01, 0.02, 0.03, 0.005, 0.02, 0.01)),
        "w_zero": np.zeros(6, "int8"),
        "y_scale": scale(0.7),
        "y_zero": np.array(5, "uint8"),
        "bias": np.arange(-3000, 3000, 1000, "int32"),
    }
    attributes = {"group": 2, "pads": [1, 1, 1, 1], "channels_last": 1, "strides": [2, 1]}
    model = node_model("QLinearConv", inputs, attributes, constants=constants, domain=MICROSOFT)
    assert_as_onnx_runtime(from_onnx, {"last": (model, inputs)}, optimize=False)


def matmul_integer(
    a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None = None, b_zero=None
) -> tuple:
    operands = {"a": a, "b": b, "a_zero": a_zero, "b_zero": b_zero}
    given = {name: array for name, array in operands.items() if array is not None}
    names = [name if array is not None else "" for name, array in operands.items()]
    rank = (a.astype("int32") @ b.astype("int32")).ndim
    inputs = {"a": given.pop("a")}
    model = node_model(
        "MatMulInteger", inputs, constants=given, operands=names, outputs={"y": ("int32", rank)}
    )
    return model, inputs


def test_matmul_integer() -> None:
    """Zero points per tensor and per column, ranks above 2, vectors."""
    three, seven = np.array(3, "uint8"), np.array([7], "uint8")
    columns = np.arange(4, dtype="uint8")
    a, b = whole(3, 5, dtype="uint8"), whole(5, 4, dtype="uint8", seed=1)
    batch, deep = whole(2, 3, 5, dtype="uint8"), whole(2, 5, 4, dtype="uint8", seed=1)
    cases = {
        "plain": matmul_integer(a, b),
        "scalars": matmul_integer(a, b, three, seven),
        "columns": matmul_integer(a, b, seven, columns),
        "only b": matmul_integer(a, b, None, three),
        "batch": matmul_integer(batch, b, three, columns),
        "batches": matmul_integer(batch, deep, three, three),
        "columns of batches": matmul_integer(
            batch, deep, three, np.stack([columns, columns + 1])[:, None]
        ),
        "row": matmul_integer(a[0], b, seven, columns),
        "column": matmul_integer(a, b[:, 0], three, seven),
        "vectors": matmul_integer(a[0], b[:, 0], seven, three),
        "signed": matmul_integer(a, small(5, 4, dtype="int8"), three, np.array(-3, "int8")),
    }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_rows_with_zero_points() -> None:
    """ONNX Runtime rejects a zero point per row, which ONNX allows."""
    a, b = whole(3, 5, dtype="uint8"), whole(5, 4, dtype="int8", seed=1)
    rows = np.array([1, 2, 250], "uint8")
    model, _ = matmul_integer(a, b, rows)
    [got] = imported_and_run(from_onnx, model, a, optimize=False)
    expected = (a.astype("int32") - rows[:, None].astype("int32")) @ b.astype("int32")
    np.testing.assert_array_equal(got, expected)


def test_long_sums_of_extremes() -> None:
    """Every product is as large as possible: 16-bit sums of two of them would overflow."""
    a = np.full((2, 3000), 255, "uint8")
    b = np.full((3000, 2), -128, "int8")
    b[:, 1] = 127
    [got] = imported_and_run(from_onnx, matmul_integer(a, b)[0], a)
    np.testing.assert_array_equal(got, [[-255 * 128 * 3000, 255 * 127 * 3000]] * 2)


def gemm(dtype: str, weight: str, attributes: dict, *, columns: bool, bias: bool, quantize: bool):
    a, b = whole(5, 300, dtype=dtype), small(300, 7, dtype=weight)
    scales = scale(*np.linspace(0.01, 0.03, 7)) if columns else scale(0.02)
    if attributes.get("transA"):
        a = np.ascontiguousarray(a.T)
    if attributes.get("transB"):
        b = np.ascontiguousarray(b.T)
    constants = {
        "a_scale": scale(0.03),
        "a_zero": np.array(3, dtype),
        "b": b,
        "b_scale": scales,
        "b_zero": np.full(scales.shape, 5 if weight == "uint8" else 0, weight),
    }
    bias_operand = {"c": np.arange(-30000, 33000, 9000, "int32")} if bias else {}
    result = {"y_scale": scale(3.0), "y_zero": np.array(5, dtype)} if quantize else {}
    names = ["a", *constants, *(bias_operand or [""]), *result]
    model = node_model(
        "QGemm",
        {"a": a},
        attributes,
        constants=constants | bias_operand | result,
        operands=names if bias or quantize else names[:-1],
        outputs={"y": (dtype if quantize else "float32", 2)},
        domain=MICROSOFT,
    )
    return model, {"a": a}


def test_gemm() -> None:
    cases = {}
    for dtype, weight in PAIRS:
        for quantize in (False, True):
            name = f"{dtype} {weight} {quantize}"
            cases |= {
                name: gemm(dtype, weight, {}, columns=True, bias=True, quantize=quantize),
                f"{name} alpha": gemm(
                    dtype, weight, {"alpha": 0.7}, columns=False, bias=True, quantize=quantize
                ),
                f"{name} transposed": gemm(
                    dtype,
                    weight,
                    {"transA": 1, "transB": 1},
                    columns=True,
                    bias=False,
                    quantize=quantize,
                ),
            }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def float_product(operator: str, dtype: str, weight: str, *, columns: bool, bias: bool):
    dynamic = operator == "DynamicQuantizeMatMul"
    a = normal(2, 3, 200) if dynamic else whole(2, 3, 200, dtype=dtype)
    b = small(200, 6, dtype=weight)
    scales = scale(*np.linspace(0.01, 0.03, 6)) if columns else scale(0.02)
    zeros = np.full(scales.shape, 5 if weight == "uint8" else 0, weight)
    constants = {"b": b}
    if dynamic:
        constants |= {"b_scale": scales, "b_zero": zeros}
    else:
        constants |= {"a_scale": scale(0.03), "b_scale": scales, "a_zero": np.array(3, dtype)}
        constants |= {"b_zero": zeros}
    constants |= {"bias": normal(6, seed=3)} if bias else {}
    model = node_model(
        operator, {"a": a}, constants=constants, outputs={"y": ("float32", 3)}, domain=MICROSOFT
    )
    return model, {"a": a}


@pytest.mark.parametrize("operator", ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"))
def test_products_in_float(operator: str) -> None:
    pairs = PAIRS if operator == "MatMulIntegerToFloat" else PAIRS[:2]
    cases = {
        f"{dtype} {weight} {several}": float_product(
            operator, dtype, weight, columns=several, bias=several
        )
        for dtype, weight in pairs
        for several in (False, True)
    }
    assert_as_onnx_runtime(from_onnx, cases, rtol=1e-6, optimize=False)


def test_rejects_bad_operands() -> None:
    model, _ = gemm("uint8", "int8", {}, columns=True, bias=False, quantize=False)
    node = model.graph.node[0]
    named = "com.microsoft.QGemm 'node': "
    del node.input[5:]
    expected = "expected A, a_scale, a_zero_point, B, b_scale, b_zero_point"
    assert_rejected(from_onnx, model, f"{named}operand b_zero_point is missing; {expected}")
    model, _ = gemm("uint8", "int8", {}, columns=True, bias=False, quantize=False)
    model.graph.node[0].input[2] = "b_zero"
    assert_rejected(from_onnx, model, f"{named}shape of a_zero_point is [7]; expected a scalar")
    model, _ = gemm("uint8", "int8", {}, columns=False, bias=False, quantize=False)
    model.graph.node[0].input[2] = "b_zero"
    assert_rejected(from_onnx, model, f"{named}dtype of a_zero_point is int8; expected uint8")
    model, _ = gemm("uint8", "int8", {"transB": 1}, columns=False, bias=False, quantize=False)
    del model.graph.node[0].attribute[:]
    assert_rejected(from_onnx, model, "extents of the inner axes are [300, 7]; expected equal")
    model, _ = gemm("uint8", "int8", {}, columns=True, bias=False, quantize=False)
    model.graph.initializer[3].CopyFrom(
        onnx.numpy_helper.from_array(np.ones(5, "float32"), "b_scale")
    )
    assert_rejected(from_onnx, model, f"{named}shape of b_scale is [5]; expected one element, or 7")
    model, _ = matmul_integer(whole(3, 5, dtype="uint8"), normal(5, 4))
    assert_rejected(
        from_onnx, model, "MatMulInteger 'node': dtype of B is float32; expected int8 or uint8"
    )


def test_domains_are_separate() -> None:
    """QGemm is an operator of com.microsoft only."""
    model, _ = gemm("uint8", "int8", {}, columns=False, bias=False, quantize=False)
    model.graph.node[0].domain = ""
    with pytest.raises(tvm.error.OpNotImplemented, match="unsupported operator QGemm"):
        from_onnx(model)


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = qlinear_matmul("int8", (3, 5))
    with switches.collect() as acted:
        from_onnx(model)
    assert acted == {FIX_ID}
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    with pytest.raises(tvm.error.OpNotImplemented, match="QLinearMatMul"):
        from_onnx(model)


if __name__ == "__main__":
    tvm.testing.main()
