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
"""Normalizations, compared with ONNX Runtime."""

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from onnx import numpy_helper
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.grids import few
from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
    onnx_runtime,
    text_model,
)
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

FIX_ID = "onnx-norms"
_MVN = "MeanVarianceNormalization <axes = [3]>"


def layer_norm(axis: int):
    x = normal(2, 3, 4) * 3 + 5
    shape = x.shape[axis:]
    constants = {"scale": normal(*shape, seed=1), "bias": normal(*shape, seed=2)}
    outputs = {name: ("float32", 3) for name in ("y", "mean", "deviation")}
    attributes = {"axis": axis, "epsilon": 1e-3}
    return node_model(
        "LayerNormalization", {"x": x}, attributes, constants=constants, outputs=outputs
    ), {"x": x}


def test_mean_and_deviation_of_layer_norm() -> None:
    assert_as_onnx_runtime(from_onnx, {str(a): layer_norm(a) for a in (-1, 1, 2)}, 1e-5)


def test_batch_norm_in_training() -> None:
    """By the ONNX specification: ONNX Runtime has no kernel for it."""
    x = normal(5, 2, 3)
    constants = {
        name: normal(2, seed=seed) for seed, name in enumerate(("scale", "bias", "mean"), 1)
    }
    constants["var"] = np.array([0.5, 2], "float32")
    attributes = {"training_mode": 1, "momentum": 0.75}
    outputs = {"y": ("float32", 3), "mean_out": ("float32", 1), "var_out": ("float32", 1)}
    model = node_model(
        "BatchNormalization", {"x": x}, attributes, constants=constants, outputs=outputs
    )
    y, mean, var = imported_and_run(from_onnx, model, x)
    wide = x.astype("float64")
    now = wide.mean((0, 2)), wide.var((0, 2))
    np.testing.assert_allclose(mean, 0.75 * constants["mean"] + 0.25 * now[0], rtol=1e-5)
    np.testing.assert_allclose(var, 0.75 * constants["var"] + 0.25 * now[1], rtol=1e-5)
    scale = constants["scale"] / np.sqrt(now[1] + 1e-5)
    expected = (wide - now[0][:, None]) * scale[:, None] + constants["bias"][:, None]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def lp_norm(p: int, axis: int):
    x = normal(2, 3, 4)
    x[0, :, 1] = 0
    return node_model("LpNormalization", {"x": x}, {"p": p, "axis": axis}), {"x": x}


def test_lp_norm() -> None:
    cases = {f"{p} {axis}": lp_norm(p, axis) for p in (1, 2) for axis in (-1, 0, 1)}
    assert_as_onnx_runtime(from_onnx, cases, 1e-6)


def test_other_lp_norms_are_rejected() -> None:
    message = "LpNormalization 'node': attribute p is 3; expected 1 or 2"
    assert_rejected(from_onnx, lp_norm(3, 0)[0], message)


_NORMS = {
    18: """
    y0 = MeanVarianceNormalization (x)
    y1 = GroupNormalization <num_groups = 3> (x, scale, bias)
    y2 = LRN <size = 3, alpha = 0.5> (x)
    """,
    21: "y0 = GroupNormalization <num_groups = 3> (x, wide_scale, wide_bias)",
}


def norms_in_float64(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, groups: int) -> list:
    """MeanVarianceNormalization, GroupNormalization and LRN by the ONNX specification."""
    mean, deviation = x.mean((0, 2, 3), keepdims=True), x.std((0, 2, 3), keepdims=True)
    parts = x.reshape(len(x), groups, -1)
    moments = parts.mean(2, keepdims=True), parts.var(2, keepdims=True)
    normal = ((parts - moments[0]) / np.sqrt(moments[1] + float(np.float32(1e-5)))).reshape(x.shape)
    squares = np.pad(x * x, [(0, 0), (1, 1), (0, 0), (0, 0)])
    near = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    by_channel = (1, -1, 1, 1)
    return [
        (x - mean) / (deviation + 1e-9),
        normal * scale.reshape(by_channel) + bias.reshape(by_channel),
        x / (1 + 0.5 / 3 * near) ** 0.75,
    ]


@few(3)
@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float32", "float64"))
@pytest.mark.parametrize("opset", _NORMS)
def test_norms_of_each_dtype(dtype: str, opset: int) -> None:
    """ONNX Runtime has no kernels of most of these dtypes."""
    x = (normal(2, 6, 3, 5) + (0 if opset == 21 else 3)).astype(np.dtype(dtype))
    scale, bias = (normal(6 if opset == 21 else 3, seed=s).astype(np.dtype(dtype)) for s in (1, 2))
    names = ["wide_scale", "wide_bias"] if opset == 21 else ["scale", "bias"]
    element = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    outputs = ["y0"] if opset == 21 else ["y0", "y1", "y2"]
    results = ", ".join(f"{element}[2, 6, h, 5] {name}" for name in outputs)
    model = text_model(f"({element}[2, 6, h, 5] x) => ({results}) {{ {_NORMS[opset]} }}", opset)
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name)
        for array, name in zip((scale, bias), names, strict=True)
    )
    got = imported_and_run(from_onnx, model, x)
    repeats = 1 if opset == 21 else 2
    wide = [v.astype("float64") for v in (x, scale.repeat(repeats), bias.repeat(repeats))]
    expected = norms_in_float64(*wide, 3)
    unit = float(ml_dtypes.finfo(x.dtype).eps)
    sum_unit = float(np.finfo("float64" if dtype == "float64" else "float32").eps)
    for result, truth in zip(got, expected if opset == 18 else expected[1:2], strict=True):
        assert result.dtype == x.dtype
        error = np.abs(result.astype("float64") - truth)
        assert (error <= unit * np.abs(truth) + 16 * sum_unit).all()


def test_rms_norm_of_float64() -> None:
    x, scale = (normal(*shape).astype("float64") for shape in ((3, 4), (4,)))
    model = text_model(
        "(double[3, 4] x, double[4] s) => (double[3, 4] y) { y = RMSNormalization (x, s) }", 23
    )
    [y] = imported_and_run(from_onnx, model, x, scale)
    square = (x * x).mean(1, keepdims=True) + float(np.float32(1e-5))
    np.testing.assert_allclose(y, x / np.sqrt(square) * scale, rtol=1e-14)


def test_equal_elements_have_no_deviation() -> None:
    """MeanVarianceNormalization where rounding makes mean(x)**2 exceed mean(x**2)."""
    x = np.full((1, 2, 1, 6), 0.1, "float32")
    model = text_model(f"(float[1, 2, 1, 6] x) => (float[1, 2, 1, 6] y) {{ y = {_MVN} (x) }}")
    [y] = imported_and_run(from_onnx, model, x)
    np.testing.assert_allclose(y, 0, atol=0.01)


def test_channels_that_no_groups_divide_are_rejected() -> None:
    x, pair = normal(2, 5, 3), {"scale": normal(2), "bias": normal(2)}
    model = node_model("GroupNormalization", {"x": x}, {"num_groups": 2}, constants=pair)
    message = "GroupNormalization 'node': attribute num_groups is 2; expected a divisor of the 5"
    assert_rejected(from_onnx, model, message)


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = layer_norm(1)
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert acted == {FIX_ID}
    with pytest.raises(ValueError):
        tvm.ir.assert_structural_equal(ours, tvm_onnx.from_onnx(model))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


_SYMBOLIC = {
    17: """(float[n,k,4] x) => (float[?,?,?] y0, float[?,?,?] y1, float[?,?,?] y2) {
    y0 = LayerNormalization <axis = 1> (x, matrix, matrix)
    y1 = BatchNormalization (x, vector, vector, vector, positive)
    y2 = InstanceNormalization (x, vector, vector) }""",
    21: """(float[n,k,4] x) => (float[?,?,?] y0, float[?,?,?] y1) {
    y0 = GroupNormalization <num_groups = 2> (x, vector, vector)
    y1 = LayerNormalization <axis = 1> (x, row, row) }""",
}


@pytest.mark.parametrize("opset", _SYMBOLIC)
def test_parameters_determine_symbolic_extents(opset: int) -> None:
    """Result shapes are known, and mismatched channels are an error at run time."""
    model = text_model(_SYMBOLIC[opset], opset)
    constants = {
        "matrix": normal(6, 4, seed=1),
        "vector": normal(6, seed=2),
        "positive": np.abs(normal(6, seed=3)) + 1,
        "row": normal(4, seed=4),
    }
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in constants.items() if name in used
    )
    x = normal(2, 6, 4)
    expected = onnx_runtime(model, x)
    got = imported_and_run(from_onnx, model, x)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="match_cast"):
        imported_and_run(from_onnx, model, normal(2, 4, 4))


@pytest.mark.parametrize(
    "operator", ["InstanceNormalization (x, vector, vector)", "PRelu (x, slopes)"]
)
def test_a_name_of_two_sizes_is_rejected(operator: str) -> None:
    """The parameters say that m is 6, and the product that it is 4."""
    model = text_model(
        f"""(float[n,m,5] x, float[n,m] w) => (float[?,?,?] y0, float[?,?] y1) {{
        y0 = {operator}
        y1 = MatMul (w, matrix) }}""",
        17,
    )
    constants = {"vector": normal(6), "slopes": normal(6, 1), "matrix": normal(4, 3)}
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in constants.items() if name in used
    )
    assert_rejected(from_onnx, model, "extents of the inner axes are [6, 4]")


def test_channels_that_are_never_those_of_the_scale() -> None:
    model = text_model(
        """(float[m,8] x) => (float[?,?] y) <float[2] scale = {1.0, 2.0}> {
        flat = Flatten <axis = 0> (x)
        y = GroupNormalization <num_groups = 1> (flat, scale, scale) }""",
        21,
    )
    assert_rejected(from_onnx, model, "; expected [1, 2]")


def test_scale_of_fewer_axes() -> None:
    """The scale's axes are the last axes of the data, not those starting at the attribute."""
    x = normal(4, 4, 4)
    constants = {"scale": normal(4, seed=1), "bias": normal(1, 4, seed=2)}
    model = node_model("LayerNormalization", {"x": x}, {"axis": 1}, constants=constants)
    [y] = imported_and_run(from_onnx, model, x)
    wide = x.astype("float64")
    mean, variance = wide.mean((1, 2), keepdims=True), wide.var((1, 2), keepdims=True)
    expected = (wide - mean) / np.sqrt(variance + 1e-5) * constants["scale"] + constants["bias"]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_a_layer_norm_of_symbolic_extents_without_a_bias() -> None:
    model = text_model(
        """(float[n,k] x, float[m] scale) => (float[?,?] y) {
        y = LayerNormalization (x, scale) }""",
        17,
    )
    for x in (normal(3, 4), normal(2, 7)):
        scale = normal(x.shape[1], seed=1)
        [y] = imported_and_run(from_onnx, model, x, scale)
        [expected] = onnx_runtime(model, x, scale)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_batch_norm_of_each_element() -> None:
    """Up to opset 8, with ``spatial`` 0."""
    x = normal(2, 3, 4)
    parameters = {name: normal(3, 4, seed=i + 1) for i, name in enumerate("sbm")}
    parameters["v"] = np.abs(normal(3, 4, seed=9)) + 0.5
    attributes = {"spatial": 0, "epsilon": 0.01}
    model = node_model("BatchNormalization", {"x": x}, attributes, constants=parameters, opset=8)
    assert_as_onnx_runtime(from_onnx, {"y": (model, {"x": x})}, rtol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
