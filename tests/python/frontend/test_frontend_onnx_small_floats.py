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
"""Casts from and to 8-bit and 4-bit floats, compared with onnx's evaluator."""

import numpy as np
import onnx
import tvm.testing
from onnx import TensorProto, helper
from onnx.reference.ops.op_cast import cast_to

from helpers.models import onnx_model
from helpers.onnx_graphs import imported_and_run
from tvm_fixes.frontend.onnx import from_onnx

FLOAT = TensorProto.FLOAT
FORMATS = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")


def numbers() -> np.ndarray:
    """Random bits, numbers of ordinary size, and those at the limits of each format."""
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2**32, 20_000, dtype="uint64").astype("uint32").view("float32")
    usual = generator.standard_normal(5000) * 10.0 ** generator.integers(-6, 6, 5000)
    limits = [0, -0.0, np.inf, -np.inf, np.nan, 5, -5, 7, 240, 248, 249, 448, 464, 465, 480]
    powers = [f * 2.0**e for e in (-128, -127, -17, -16, -10, -9, 15, 127) for f in (1, 1.25, 1.5)]
    return np.concatenate([bits, usual, limits, powers, [57344, 61440, 61441]]).astype("float32")


def assert_same(got: np.ndarray, expected: np.ndarray, name: str) -> None:
    """Assert equality, including the signs of zeros."""
    got, expected = got.astype("float32"), expected.astype("float32")
    np.testing.assert_array_equal(got, expected, err_msg=name)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(expected)[there], name)


def test_casts() -> None:
    """Each format, saturated or not, each way to round powers of two, and back to float32."""
    targets = {
        f"{name}_{saturate}": (name, saturate, "up") for name in FORMATS for saturate in (0, 1)
    }
    for mode in ("up", "down", "nearest"):
        targets |= {f"{mode}_{saturate}": ("FLOAT8E8M0", saturate, mode) for saturate in (0, 1)}
    targets["four"] = ("FLOAT4E2M1", 1, "up")
    nodes, outputs = [], []
    for name, (dtype, saturate, mode) in targets.items():
        number = getattr(TensorProto, dtype)
        attributes = {"saturate": saturate, "round_mode": mode}
        nodes.append(helper.make_node("Cast", ["x"], [name], to=number, **attributes))
        nodes.append(helper.make_node("Cast", [name], [f"{name}_back"], to=FLOAT))
        outputs += [(name, number, None), (f"{name}_back", FLOAT, None)]
    x = numbers()
    model = onnx_model(nodes, [("x", FLOAT, [None])], outputs, {}, opset=25)
    results = iter(imported_and_run(from_onnx, model, x))
    with np.errstate(all="ignore"):
        for name, (dtype, saturate, mode) in targets.items():
            finite = ~np.isnan(x) if name == "four" else np.full(len(x), True)
            expected = cast_to(x, getattr(TensorProto, dtype), bool(saturate), mode)
            wanted_dtype = "float32" if name == "four" else expected.dtype
            got, back = next(results), next(results)
            assert got.dtype == wanted_dtype
            assert_same(got[finite], expected[finite], name)
            assert_same(back[finite], expected[finite], name)


def test_every_code() -> None:
    """An 8-bit float as an input, cast to float16 and integers, and moved."""
    nodes, outputs, inputs, arrays = [], [], [], []
    for name in (*FORMATS, "FLOAT8E8M0"):
        number = getattr(TensorProto, name)
        inputs.append((name, number, [256]))
        dtype = helper.tensor_dtype_to_np_dtype(number)
        arrays.append(np.arange(256, dtype="uint8").view(dtype))
        nodes.append(helper.make_node("Cast", [name], [f"{name}_y"], to=TensorProto.FLOAT16))
        nodes.append(helper.make_node("Reshape", [name, "shape"], [f"{name}_z"]))
        outputs += [(f"{name}_y", TensorProto.FLOAT16, None), (f"{name}_z", number, None)]
    model = onnx_model(nodes, inputs, outputs, {"shape": np.array([4, 64])}, opset=25)
    results = iter(imported_and_run(from_onnx, model, *arrays))
    for array in arrays:
        with np.errstate(over="ignore"):
            assert_same(next(results), array.astype("float32").astype("float16"), str(array.dtype))
        np.testing.assert_array_equal(next(results).view("uint8").ravel(), array.view("uint8"))


def test_quantize() -> None:
    """To and from 8-bit floats, with one scale, per axis and in blocks."""
    make = helper.make_node
    nodes, outputs = [], []
    number = TensorProto.FLOAT8E4M3FN
    for name, scale, attributes in (
        ("one", "scale", {}),
        ("axis", "scales", {"axis": 1}),
        ("blocks", "grid", {"axis": 1, "block_size": 2}),
    ):
        nodes += [
            make("QuantizeLinear", ["x", scale], [name], output_dtype=number, **attributes),
            make("DequantizeLinear", [name, scale], [f"{name}_y"], **attributes),
        ]
        outputs += [(name, number, None), (f"{name}_y", FLOAT, None)]
    x = (30 * np.random.default_rng(0).standard_normal((3, 4))).astype("float32")
    grid = np.array([[0.5, 2], [1, 0.25], [4, 1]], "float32")
    scales = {
        "scale": np.array(0.75, "float32"),
        "scales": np.array([0.5, 2, 1, 4], "float32"),
        "grid": grid,
    }
    model = onnx_model(nodes, [("x", FLOAT, [3, 4])], outputs, scales, opset=23)
    results = iter(imported_and_run(from_onnx, model, x))
    spread = {"scale": 0.75, "scales": scales["scales"], "grid": grid.repeat(2, axis=1)}
    for name, scale in spread.items():
        codes = cast_to(x / scale, number, True)
        assert_same(next(results), codes, name)
        assert_same(next(results), codes.astype("float32") * scale, name)


def test_omitted_operand_of_a_function() -> None:
    """An omitted operand in the middle, which the inliner asks for its type."""
    heads = [("q", FLOAT, [1, 1, 2, 4]), ("k", FLOAT, [1, 1, 2, 4]), ("v", FLOAT, [1, 1, 2, 4])]
    past = [("pk", FLOAT, [1, 1, 3, 4]), ("pv", FLOAT, [1, 1, 3, 4])]
    node = helper.make_node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"])
    model = onnx_model(
        [node], heads + past, [(name, FLOAT, None) for name in ("y", "nk", "nv")], {}, opset=24
    )
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(s).astype("float32") for _, _, s in heads + past]
    names = [name for name, _, _ in heads + past]
    expected = onnx.reference.ReferenceEvaluator(model).run(
        None, dict(zip(names, arrays, strict=True))
    )
    got = imported_and_run(from_onnx, model, *arrays)
    for value, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
