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
"""Activations in every float dtype, on special values, and with symbolic dims."""

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.grids import few
from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    imported_and_run,
    node_model,
    normal,
    side_by_side,
)
from helpers.relax_modules import run
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.lowering import pipeline

FINITE = [-100, -20, -3, -1, -0.5, -1e-4, -1e-7, -0.0, 0, 1e-7, 0.3, 0.5, 1, 1.5, 3, 100]
SPECIAL = [*FINITE, np.inf, -np.inf, np.nan]


def celu(x, alpha=1.0):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def selu(x, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


EXPECTED = {
    "Elu": ({"alpha": 2.5}, lambda x: np.where(x > 0, x, 2.5 * np.expm1(np.minimum(x, 0)))),
    "Celu": ({"alpha": 0.5}, lambda x: celu(x, 0.5)),
    "Selu": ({}, selu),
    "ThresholdedRelu": ({"alpha": 0.5}, lambda x: np.where(x > 0.5, x, 0)),
    "Shrink": (
        {"lambd": 1.25, "bias": 0.5},
        lambda x: np.where(x < -1.25, x + 0.5, np.where(x > 1.25, x - 0.5, 0)),
    ),
    "Sign": ({}, np.sign),
}


@few(2)
@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float32", "float64"))
def test_in_every_dtype(dtype: str) -> None:
    with np.errstate(over="ignore"):
        x = np.array(SPECIAL).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    models = {
        name: node_model(name, {"x": x}, attributes, outputs={"y": (x.dtype, 1)})
        for name, (attributes, _) in EXPECTED.items()
    }
    results = run(from_onnx(side_by_side(models)), *[x] * len(models), pipeline=pipeline())
    epsilon = float(ml_dtypes.finfo(x.dtype).eps)
    tiny = float(ml_dtypes.finfo(x.dtype).smallest_subnormal)
    for got, (name, (_, expected)) in zip(results, EXPECTED.items(), strict=True):
        assert (got.shape, got.dtype) == (x.shape, x.dtype), name
        with np.errstate(all="ignore"):
            exact = expected(x.astype("float64"))
        np.testing.assert_allclose(
            got.astype("float64"), exact, rtol=5 * epsilon, atol=tiny, err_msg=name
        )


@pytest.mark.parametrize("operator", ("Celu", "Elu", "Selu"))
def test_of_rank_zero(operator: str) -> None:
    x = np.array(-0.5, "float32")
    [got] = imported_and_run(from_onnx, node_model(operator, {"x": x}), x)
    assert got.shape == ()


def test_shrink_and_sign_of_integers() -> None:
    x = np.array([0, 1, 2, 3, 100], "uint8")
    cases = {
        operator: (node_model(operator, {"x": x}, attributes), {"x": x})
        for operator, attributes in (("Shrink", {"lambd": 1.5, "bias": 1.5}), ("Sign", {}))
    }
    assert_as_onnx_runtime(from_onnx, cases)
    y = np.array([-100, -3, -2, -1, 0, 2, 3], "int8")
    model = node_model("Shrink", {"x": y}, {"lambd": 1.5, "bias": 1.5})
    assert_as_onnx_runtime(from_onnx, {"int8": (model, {"x": y})})


@pytest.mark.parametrize("dtype", ("float16", "float32", "float64"))
def test_clip(dtype: str) -> None:
    """NaN propagates from data but not from bounds; the upper bound takes precedence."""
    x = np.array(SPECIAL, dtype)
    bounds = [(-1, 2), (2, -1), (np.nan, 2), (-1, np.nan), (np.nan, np.nan)]
    cases = {}
    for i, pair in enumerate(bounds):
        constants = {name: np.array(bound, dtype) for name, bound in zip("ab", pair, strict=True)}
        cases[f"{i}"] = (node_model("Clip", {"x": x}, constants=constants), {"x": x})
        inputs = {"x": x, **constants}
        cases[f"{i} computed"] = (node_model("Clip", inputs), inputs)
    assert_as_onnx_runtime(from_onnx, cases)


@pytest.mark.parametrize("dtype", ("int8", "uint8", "int32", "uint32", "int64", "uint64"))
def test_clip_of_integers(dtype: str) -> None:
    x = np.array([0, 1, 2, 3, 100, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    low, high = np.array([1], dtype), np.array(3, dtype)
    cases = {}
    for operands in (["x"], ["x", "low"], ["x", "", "high"], ["x", "low", "high"]):
        bounds = {name: value for name, value in (("low", low), ("high", high)) if name in operands}
        model = node_model("Clip", {"x": x}, constants=bounds, operands=operands, opset=18)
        cases[" ".join(operands)] = (model, {"x": x})
    assert_as_onnx_runtime(from_onnx, cases)


def test_clip_of_integers_with_computed_extents() -> None:
    """The extents of the concatenation have another form in the types of its readers."""
    graph = """<ir_version: 9, opset_import: ["" : 18]>
    g (uint32[n, 2] x) => (uint32[m, 2] y) <int64[2] counts = {2, 1}, uint32 one = {1}> {
        tiled = Tile (x, counts)
        joined = Concat <axis: int = 0> (tiled, tiled, tiled, tiled)
        y = Clip (joined, one, one)
    }"""
    mod = from_onnx(onnx.parser.parse_model(graph))
    got = run(mod, np.zeros((3, 2), "uint32"), pipeline=pipeline())
    np.testing.assert_array_equal(got, np.ones((24, 2), "uint32"))


@pytest.mark.parametrize("dtype", ("float16", "float32", "float64"))
def test_clip_without_a_bound(dtype: str) -> None:
    x, one = np.array([*SPECIAL, np.inf, -np.inf], dtype), np.array(1, dtype)
    cases = {
        "".join(operands): (
            node_model(
                "Clip", {"x": x}, constants={"one": one}, operands=["x", *operands], opset=18
            ),
            {"x": x},
        )
        for operands in ([], ["one"], ["", "one"])
    }
    assert_as_onnx_runtime(from_onnx, cases)


def test_clip_by_attributes() -> None:
    x = np.array([*SPECIAL, np.inf, -np.inf], "float32")
    cases = {
        str(i): (node_model("Clip", {"x": x}, attributes, opset=6), {"x": x})
        for i, attributes in enumerate(({"min": -1.0, "max": 2.0}, {"max": 2.0}, {}))
    }
    assert_as_onnx_runtime(from_onnx, cases)


def test_clip_by_attributes_outside_the_range_of_float16() -> None:
    x = np.array([*SPECIAL, np.inf], "float16")
    for attributes in ({"min": 0.0, "max": 3.4028234663852886e38}, {"min": 0.0, "max": np.nan}):
        model = node_model("Clip", {"x": x}, attributes, opset=6)
        [y] = imported_and_run(from_onnx, model, x)
        np.testing.assert_array_equal(y, np.maximum(x, np.float16(0)))


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_all_axes_from_one_on(operator: str) -> None:
    """Up to opset 12; of symbolic dims, and of a reversed slice, whose type is not inferred."""
    x, cases = normal(2, 3, 4), {}
    bounds = {"starts": [3, -1], "ends": [-9, -9], "axes": [2, 1], "steps": [-2, -1]}
    for axis in (None, 0, -1):
        attributes = {} if axis is None else {"axis": axis}
        dims = {"x": ["a", "b", "c"]}
        model = node_model(operator, {"x": x}, attributes, shapes=dims, opset=11)
        cases[f"symbolic {axis}"] = model, {"x": x}
        model = node_model(operator, {"x": x}, attributes, opset=11)
        model.graph.node[0].input[0] = "sliced"
        model.graph.node.insert(0, onnx.helper.make_node("Slice", ["x", *bounds], ["sliced"]))
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(np.array(values), name) for name, values in bounds.items()
        )
        dims = [onnx.TensorShapeProto.Dimension() for _ in x.shape]
        model.graph.output[0].type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
        cases[f"sliced {axis}"] = model, {"x": x}
    assert_as_onnx_runtime(from_onnx, cases, rtol=1e-6)


def test_hardmax_with_symbolic_dims() -> None:
    for axis, opset in ((1, 13), (-1, 13), (2, 11), (0, 11)):
        x = normal(2, 3, 4)
        model = node_model(
            "Hardmax", {"x": x}, {"axis": axis}, shapes={"x": ["a", "b", "c"]}, opset=opset
        )
        empty = np.delete(x, slice(None), axis)
        others = [np.zeros((1, 5, 2), "float32")], [empty]
        assert_follows_onnx_runtime(from_onnx, model, [x], *others)


@pytest.mark.parametrize("operator", ["LeakyRelu", "HardSigmoid", "Selu"])
def test_defaults_are_float32(operator: str) -> None:
    x = normal(3, 5, dtype="float64")
    if operator == "HardSigmoid":  # ONNX Runtime has only float32
        model = node_model(operator, {"x": x})
        [y] = imported_and_run(from_onnx, model, x)
        np.testing.assert_allclose(y, np.clip(np.float32(0.2) * x + 0.5, 0, 1), rtol=1e-14)
    else:
        assert_as_onnx_runtime(
            from_onnx, {operator: (node_model(operator, {"x": x}), {"x": x})}, 1e-14
        )


if __name__ == "__main__":
    tvm.testing.main()
