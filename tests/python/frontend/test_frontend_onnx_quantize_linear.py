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
"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import TensorProto, helper

from helpers.grids import few
from helpers.onnx_graphs import (
    Arrays,
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
    onnx_runtime,
    whole,
)
from helpers.relax_modules import count
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")

EIGHT_BITS = ("int8", "uint8")
WIDTHS = (*EIGHT_BITS, "int16", "uint16")

# Ties, limits, infinities and numbers that exceed every integer.
EDGES = np.array(
    [
        *(np.inf, -np.inf, 1e30, -1e30, 0, 1e-40, 0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 128.5, 254.5),
        *(255.5, 256, 32766.5, 32767.5, 65534.5, 65535.5, -128.5, -129.5, -32768.5, -32769.5),
    ],
    "float32",
)


def quantize_model(
    x: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None = None,
    attributes: Mapping[str, object] | None = None,
    *,
    operator: str = "QuantizeLinear",
    output: str | None = None,
    opset: int = 21,
    domain: str = "",
) -> tuple[onnx.ModelProto, Arrays]:
    constants = {"scale": scale} | ({} if zero is None else {"zero": zero})
    if output is None:
        is_quantize = operator == "QuantizeLinear"
        output = ("uint8" if zero is None else str(zero.dtype)) if is_quantize else str(scale.dtype)
    model = node_model(
        operator,
        {"x": x},
        attributes,
        constants=constants,
        outputs={"y": (output, x.ndim)},
        opset=opset,
        domain=domain,
    )
    return model, {"x": x}


def dequantize_model(*arguments, **options) -> tuple[onnx.ModelProto, Arrays]:
    return quantize_model(*arguments, operator="DequantizeLinear", **options)


def scales(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.01, 2, shape).astype("float32")


def test_quantize() -> None:
    """Per tensor, with a scalar or one element, and along each axis, in every dtype."""
    x = 100 * normal(3, 4, 5)
    cases = {}
    for dtype in WIDTHS:
        one = np.array(7, dtype)
        cases |= {
            f"{dtype} edges": quantize_model(EDGES, np.array(1, "float32"), one),
            f"{dtype} scalar": quantize_model(x, np.array(0.37, "float32"), one),
            f"{dtype} one": quantize_model(x, scales(1), one.reshape(1)),
            f"{dtype} mixed": quantize_model(x, scales(1), one),
        }
        for axis, size in ((0, 3), (-1, 5)):
            zeros = whole(size, dtype=dtype) // 4
            cases[f"{dtype} {axis}"] = quantize_model(x, scales(size), zeros, {"axis": axis})
    cases["default axis"] = quantize_model(x, scales(4))
    cases["vector"] = quantize_model(x[0, 0], scales(5), attributes={"axis": -1})
    cases["scalar data"] = quantize_model(np.array(3.7, "float32"), np.array(0.5, "float32"))
    for dtype in (TensorProto.INT8, TensorProto.UINT16):
        name = str(helper.tensor_dtype_to_np_dtype(dtype))
        attributes = {"output_dtype": dtype}
        cases[f"to {name}"] = quantize_model(x, scales(4), attributes=attributes, output=name)
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_quantize_divides_float16_in_float32() -> None:
    x = (30 * normal(2000)).astype("float16")
    scale = np.array(0.37, "float16")
    cases = {dtype: quantize_model(x, scale, np.array(3, dtype)) for dtype in WIDTHS}
    cases["per axis"] = quantize_model(x.reshape(500, 4), scales(4).astype("float16"))
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


@few(2)
@pytest.mark.parametrize("opset", (10, 13, 19, 25))
def test_opsets(opset: int) -> None:
    x = 10 * normal(2, 3)
    zero = np.array(7, "int8")
    data = whole(2, 3, dtype="int8")
    cases = {
        "quantize": quantize_model(x, np.array(0.1, "float32"), zero, opset=opset),
        "dequantize": dequantize_model(data, np.array(0.1, "float32"), zero, opset=opset),
    }
    if opset > 10:
        zeros = np.array([1, -2, 3], "int8")
        cases["quantize axis"] = quantize_model(x, scales(3), zeros, opset=opset)
        cases["dequantize axis"] = dequantize_model(data, scales(3), zeros, opset=opset)
    if opset > 21:
        half = {"output_dtype": TensorProto.FLOAT16}
        cases["to float16"] = dequantize_model(
            data, scales(3), attributes=half, output="float16", opset=opset
        )
        precise = {"precision": TensorProto.FLOAT}
        cases["precision"] = quantize_model(x, scales(3), attributes=precise, opset=opset)
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_dequantize() -> None:
    """Per tensor and along each axis, in every dtype; int32, the dtype of a bias."""
    cases = {}
    for dtype in (*WIDTHS, "int32"):
        x = whole(3, 4, 5, dtype=dtype)
        limits = np.iinfo(dtype)
        x.flat[:4] = limits.min, limits.max, 0, 1
        zero = np.array(0 if dtype == "int32" else 7, dtype)
        cases |= {
            f"{dtype} scalar": dequantize_model(x, np.array(0.37, "float32"), zero),
            f"{dtype} one": dequantize_model(x, scales(1), zero),
            f"{dtype} half": dequantize_model(x, np.array(0.37, "float16"), zero),
        }
        for axis, size in ((0, 3), (-1, 5)):
            zeros = np.full(size, zero)
            cases[f"{dtype} {axis}"] = dequantize_model(x, scales(size), zeros, {"axis": axis})
        cases[f"{dtype} default axis"] = dequantize_model(x, scales(4))
    with np.errstate(over="ignore"):
        assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_bfloat16() -> None:
    """ONNX Runtime has no kernel for it: one rounding of the result in float32."""
    scale = np.array(0.3125, ml_dtypes.bfloat16)
    data = whole(50, dtype="int8")
    zero = np.array(3, "int8")
    model, _ = dequantize_model(data, scale, zero, opset=23, output="bfloat16")
    [got] = imported_and_run(from_onnx, model, data, optimize=False)
    wide = (data.astype("float32") - 3) * np.float32(0.3125)
    np.testing.assert_array_equal(got.astype("float32"), wide.astype(got.dtype).astype("float32"))
    x = (10 * normal(50)).astype(ml_dtypes.bfloat16)
    [got] = imported_and_run(from_onnx, quantize_model(x, scale, zero, opset=23)[0], x)
    rounded = np.rint(x.astype("float32") / np.float32(0.3125)) + 3
    np.testing.assert_array_equal(got, np.clip(rounded, -128, 127).astype("int8"))


def test_scales_of_zero_and_nan() -> None:
    """ONNX Runtime accepts them; NaN has no defined integer."""
    x = np.array([3, -3, np.inf, -np.inf], "float32")
    data = np.array([0, 3, 255], "uint8")
    cases = {
        "zero": quantize_model(x, np.array(0, "float32"), np.array(1, "uint8")),
        "negative": quantize_model(x, np.array(-1, "float32"), np.array(1, "uint8")),
        "dequantize": dequantize_model(data, np.array(0, "float32")),
        "nan": dequantize_model(data, np.array(np.nan, "float32")),
    }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_contributed_domain() -> None:
    x = 100 * normal(3, 4)
    microsoft = {"domain": "com.microsoft"}
    cases = {}
    for dtype in WIDTHS:
        zero, data = np.array(5, dtype), whole(3, 4, dtype=dtype)
        cases |= {
            f"quantize {dtype}": quantize_model(x, np.array(0.3, "float32"), zero, **microsoft),
            f"dequantize {dtype}": dequantize_model(
                data, scales(3), np.full(3, zero), {"axis": 0}, **microsoft
            ),
        }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_emits_one_operator() -> None:
    """Scales per tensor and per axis become ``relax.quantize`` and ``relax.dequantize``."""
    x, data = normal(3, 4), whole(3, 4, dtype="int8")
    for scale in (np.array(0.3, "float32"), scales(4)):
        assert count(from_onnx(quantize_model(x, scale)[0]), "relax.quantize") == 1
        assert count(from_onnx(dequantize_model(data, scale)[0]), "relax.dequantize") == 1


# Blocks


def test_blocks() -> None:
    """Blocks that divide the axis, that do not, and one larger than the axis."""
    x, data = 100 * normal(3, 7, 4), whole(3, 7, 4, dtype="int8")
    cases = {}
    for axis, size in ((0, 3), (1, 7), (-1, 4)):
        for block in (1, 3) if axis == 0 else (2, 7, 9):
            shape = list(x.shape)
            shape[axis] = -(-size // block)
            zeros = whole(*shape, dtype="int8")
            attributes = {"axis": axis, "block_size": block}
            scale = scales(*shape)
            cases[f"q {axis} {block}"] = quantize_model(x, scale, zeros, attributes)
            cases[f"d {axis} {block}"] = dequantize_model(data, scale, zeros, attributes)
    whole_blocks = {"axis": 0, "block_size": 3}
    cases["no zero"] = quantize_model(x, scales(1, 7, 4), None, whole_blocks)
    cases["half"] = dequantize_model(
        data, scales(1, 7, 4).astype("float16"), None, whole_blocks, output="float16"
    )
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_symbolic_extents() -> None:
    """A scale per axis or per block whose number of elements must suit the data."""
    for operator, x in (("QuantizeLinear", normal(2, 6)), ("DequantizeLinear", None)):
        for scale, attributes in ((scales(6), {}), (scales(2, 2), {"axis": 1, "block_size": 4})):
            data = whole(2, 6, dtype="int8") if x is None else x
            constants = {"scale": scale}
            model = node_model(
                operator,
                {"x": data},
                attributes,
                constants=constants,
                shapes={"x": ("n", "m")},
                outputs={"y": ("uint8" if x is not None else "float32", 2)},
                opset=21,
            )
            narrow = np.concatenate([data, data], 1)
            assert_follows_onnx_runtime(from_onnx, model, [data], [narrow])


# DynamicQuantizeLinear


def test_dynamic_quantize() -> None:
    """Random data, data on one side of 0, and zeros, whose scale is 1."""
    arrays = {
        "random": normal(5, 20),
        "positive": np.abs(normal(50)) + 3,
        "negative": -np.abs(normal(50)) - 3,
        "zeros": np.zeros((2, 3), "float32"),
        "one": np.array([7.5], "float32"),
        "tiny": np.array([0, 1e-38, 3e-38], "float32"),
    }
    outputs = lambda x: {"y": ("uint8", x.ndim), "s": ("float32", 0), "z": ("uint8", 0)}  # noqa: E731
    cases = {
        name: (node_model("DynamicQuantizeLinear", {"x": x}, outputs=outputs(x)), {"x": x})
        for name, x in arrays.items()
    }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


# Errors


def test_rejects_bad_operands() -> None:
    x, data = normal(2, 6), whole(2, 6, dtype="int8")
    one = np.array(0.5, "float32")
    cases = [
        (quantize_model(x, scales(2, 6)), "shape of y_scale is [2, 6]; expected [6]"),
        (quantize_model(x, scales(5)), "shape of y_scale is [5]; expected [6]"),
        (
            quantize_model(x, scales(6), np.zeros(1, "int8")),
            "shape of y_zero_point is [1]; expected [6]",
        ),
        (
            quantize_model(x, one, np.zeros(6, "int8")),
            "shape of y_zero_point is [6]; expected one element",
        ),
        (
            quantize_model(x, scales(6), attributes={"axis": 2}),
            "attribute axis is 2; expected -2 to 1, or a scale of one element",
        ),
        (
            quantize_model(x, scales(2, 2), attributes={"axis": 1, "block_size": -3}),
            "attribute block_size is -3; expected 0 or more",
        ),
        (
            quantize_model(x, scales(2, 3), attributes={"axis": 1, "block_size": 4}),
            "shape of y_scale is [2, 3]; expected [2, 2]",
        ),
        (
            quantize_model(x, scales(3), attributes={"axis": 1, "block_size": 2}),
            "shape of y_scale is [3]; expected [2, 3]",
        ),
        (
            quantize_model(x, one, attributes={"axis": 1, "block_size": 2}),
            "shape of y_scale is []; expected [2, 3]",
        ),
        (
            quantize_model(x, one, np.array(1, "int8"), {"output_dtype": TensorProto.UINT8}),
            "attribute output_dtype is uint8; expected int8, the dtype of y_zero_point",
        ),
        (
            quantize_model(x, one, attributes={"output_dtype": TensorProto.INT32}),
            "dtype of y is int32; expected integers of 2 to 16 bits, or floats of 8",
        ),
        (
            quantize_model(x, one.astype("float64")),
            "dtype of y_scale is float64; expected float32 or float16 or bfloat16",
        ),
        (
            dequantize_model(data, one, np.array(1, "uint8")),
            "dtype of x_zero_point is uint8; expected int8, the dtype of x",
        ),
        (
            dequantize_model(data.astype("int64"), one),
            "dtype of x is int64; expected integers of 2 to 32 bits",
        ),
        (
            dequantize_model(data, one, attributes={"output_dtype": TensorProto.INT8}, opset=23),
            "attribute output_dtype is int8; expected one of",
        ),
    ]
    for (model, _), message in cases:
        operator = model.graph.node[0].op_type
        assert_rejected(from_onnx, model, f"{operator} 'node': {message}")


def test_zero_times_infinity_is_not_an_integer() -> None:
    """NaN becomes some integer of the dtype; ONNX and ONNX Runtime define none."""
    x = np.array([np.nan, 1], "float32")
    model, _ = quantize_model(x, np.array(1, "float32"))
    [got], [expected] = (
        imported_and_run(from_onnx, model, x, optimize=False),
        onnx_runtime(model, x),
    )
    assert got[1] == expected[1]


if __name__ == "__main__":
    tvm.testing.main()
