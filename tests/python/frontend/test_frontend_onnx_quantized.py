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
import pytest
import tvm
import tvm.testing

from helpers.onnx_graphs import assert_as_onnx_runtime, node_model
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

FIX_ID = "onnx-quantized"


def whole(*shape: int, dtype: str, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


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
    assert_as_onnx_runtime(from_onnx, cases)


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
    assert_as_onnx_runtime(from_onnx, cases)


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
    assert_as_onnx_runtime(from_onnx, cases)


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
