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
"""Probes of the ONNX importer."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tvm

from ..fixes.onnx_importer import (
    ACTIVATIONS,
    BOXES,
    CONV_AUTO_PAD,
    CONV_TRANSPOSE_OUTPUT_SHAPE,
    DTYPE,
    ELEMENTWISE,
    EXPAND,
    FUNCTIONS,
    IF,
    LOOPS,
    MICROSOFT,
    ML,
    NORMS,
    OPERATORS,
    PAD,
    PARAMETERS,
    POOLING,
    PRELU,
    QUANTIZED,
    RECURRENT,
    REDUCTIONS,
    RESHAPE,
    RESIZE,
    SHAPE_VALUES,
    SLICE,
    UNNAMED_DIMS,
)
from ._run import run
from .probe import Probe, register

_FromOnnx: TypeAlias = Callable[..., tvm.IRModule]
_Node: TypeAlias = tuple[str, list[str], str, dict[str, Any]]
"""Operator, operands, results (separated by spaces) and attributes."""


def _register(fix_id: str, program: Callable[[_FromOnnx], None], symptom: str) -> None:
    """Register a probe that runs `program` with TVM's importer and with ours."""

    def stock() -> None:
        from tvm.relax.frontend.onnx import from_onnx

        program(from_onnx)

    def fixed() -> None:
        from ..frontend.onnx import from_onnx

        program(from_onnx)

    pattern = re.compile(symptom, re.DOTALL)
    register(fix_id, Probe(stock, fixed, pattern, modules=("onnx",)))


def _import_and_run(
    from_onnx: _FromOnnx,
    nodes: Sequence[_Node],
    x: np.ndarray,
    shape: Sequence[int | str | None] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
) -> np.ndarray:
    """Import a model of `nodes`, run it on `x`, and return its output ``y``.

    `shape` is the declared shape of `x`.
    """
    from onnx import helper, numpy_helper

    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [
            helper.make_node(operator, operands, results.split(), **attributes)
            for operator, operands, results, attributes in nodes
        ],
        "probe",
        [helper.make_tensor_value_info("x", element, x.shape if shape is None else shape)],
        [helper.make_tensor_value_info("y", element, [None] * x.ndim)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return run(from_onnx(model, keep_params_in_input=False), x)


def _conv_transpose_with_output_shape(from_onnx: _FromOnnx) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 2, 2, 2), "float32")
    weight = rng.standard_normal((2, 3, 2, 2), "float32")
    node: _Node = ("ConvTranspose", ["x", "w"], "y", {"strides": [2, 2], "output_shape": [3, 3]})
    got = _import_and_run(from_onnx, [node], x, constants={"w": weight})
    # The kernel is as large as the stride, so the windows do not overlap.  output_shape omits the
    # first row and column (ONNX specification, auto_pad NOTSET).
    whole = np.einsum("nihw,ioab->nohawb", x, weight).reshape(1, 3, 4, 4)
    expected = whole[:, :, 1:, 1:]
    assert got.shape == expected.shape, f"expected shape {expected.shape}, got {got.shape}"
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def _conv_with_auto_pad_of_any_width(from_onnx: _FromOnnx) -> None:
    x = np.arange(1, 5, dtype="float32").reshape(1, 1, 4)
    node: _Node = ("Conv", ["x", "w"], "y", {"auto_pad": "SAME_UPPER", "strides": [2]})
    weight = np.ones((1, 1, 3), "float32")
    got = _import_and_run(from_onnx, [node], x, (1, 1, "width"), {"w": weight})
    np.testing.assert_array_equal(got, [[[1 + 2 + 3, 3 + 4]]])


def _gemm_of_float16(from_onnx: _FromOnnx) -> None:
    count = 2049
    x = np.ones((1, count), "float16")
    constants = {"w": np.ones((count, 1), "float16"), "c": np.ones((1, 1), "float16")}
    got = _import_and_run(from_onnx, [("Gemm", ["x", "w", "c"], "y", {})], x, constants=constants)
    # In float16, 2048 + 1 is 2048: the addend must be rounded together with the products.
    assert got.item() == count + 1, f"expected {count + 1}, got {got.item()}"


def _pad_with_cut_and_wrap(from_onnx: _FromOnnx) -> None:
    x = np.arange(1, 7, dtype="float32")
    node: _Node = ("Pad", ["x", "pads"], "y", {"mode": "wrap"})
    got = _import_and_run(from_onnx, [node], x, constants={"pads": np.array([-1, 2])}, opset=19)
    # Negative pads apply first, as in ONNX Runtime.
    np.testing.assert_array_equal(got, [2, 3, 4, 5, 6, 2, 3])


def _prelu_of_any_width(from_onnx: _FromOnnx) -> None:
    x = np.array([[[-2, 2, -4]]], "float32")
    constants = {"slope": np.array([0.5], "float32")}
    node: _Node = ("PRelu", ["x", "slope"], "y", {})
    got = _import_and_run(from_onnx, [node], x, (1, 1, "width"), constants)
    np.testing.assert_array_equal(got, [[[-1, 2, -2]]])


def _run_an_lstm(from_onnx: _FromOnnx) -> None:
    x = np.ones((3, 1, 1), "float32")
    node: _Node = ("LSTM", ["x", "w", "r"], "y", {"hidden_size": 1})
    # The gates i, o and f are sigmoid(0) = 1/2, the new cell is tanh(x).
    constants = {
        "w": np.array([[[0], [0], [0], [1]]], "float32"),
        "r": np.zeros((1, 4, 1), "float32"),
    }
    got = _import_and_run(from_onnx, [node], x, constants=constants)
    cells = np.tanh(1) * np.array([0.5, 0.75, 0.875])
    np.testing.assert_allclose(got.ravel(), np.tanh(cells) / 2, rtol=1e-5)


def _scan_a_sum(from_onnx: _FromOnnx) -> None:
    from onnx import TensorProto, helper

    scalars = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ()) for name in "abc"]
    copy = helper.make_tensor_value_info("d", TensorProto.FLOAT, ())
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Identity", ["c"], ["d"])],
        "turn",
        scalars[:2],
        [scalars[2], copy],
    )
    nodes: list[_Node] = [
        ("ReduceMin", ["x"], "zero", {"keepdims": 0}),
        ("Scan", ["zero", "x"], "last y", {"num_scan_inputs": 1, "body": body}),
    ]
    got = _import_and_run(from_onnx, nodes, np.arange(4, dtype="float32"))
    np.testing.assert_array_equal(got, [0, 1, 3, 6])


def _resize_by_one_and_a_half(from_onnx: _FromOnnx) -> None:
    x = np.arange(5, dtype="float32").reshape(1, 1, 5)
    attributes = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    node: _Node = ("Resize", ["x", "", "scales"], "y", attributes)
    constants = {"scales": np.array([1, 1, 1.5], "float32")}
    got = _import_and_run(from_onnx, [node], x, constants=constants)
    # x / scale (ONNX specification, asymmetric); each element equals its index.
    np.testing.assert_allclose(got[0, 0], np.arange(7) / 1.5, rtol=1e-6)


def _slice_of_nothing(from_onnx: _FromOnnx) -> None:
    constants = {name: np.array([bound]) for name, bound in (("start", 3), ("end", 1))}
    node: _Node = ("Slice", ["x", "start", "end"], "y", {})
    got = _import_and_run(from_onnx, [node], np.zeros(4, "float32"), constants=constants)
    assert got.shape == (0,), f"expected shape (0,), got {got.shape}"


def _squeeze_of_a_symbolic_dim(from_onnx: _FromOnnx) -> None:
    x = np.array([[1, 2, 3]], "float32")
    node: _Node = ("Squeeze", ["x", "axis"], "y", {})
    got = _import_and_run(from_onnx, [node], x, ("n", 3), {"axis": np.array([0])})
    np.testing.assert_array_equal(got, x[0])


def _expand_between_symbols(from_onnx: _FromOnnx) -> None:
    x = np.array([[1, 2, 3]], "float32")
    nodes: list[_Node] = [
        ("Transpose", ["x"], "column", {}),
        ("Shape", ["column"], "shape", {}),
        ("Expand", ["x", "shape"], "y", {}),
    ]
    got = _import_and_run(from_onnx, nodes, x, ("n", "m"))
    assert got.shape == (3, 3), f"expected shape (3, 3), got {got.shape}"
    np.testing.assert_array_equal(got, np.broadcast_to(x, (3, 3)))


def _one_hot_by_a_depth_of_one_element(from_onnx: _FromOnnx) -> None:
    x = np.array([1, 0, -1], "float32")
    node: _Node = ("OneHot", ["x", "depth", "values"], "y", {})
    constants = {"depth": np.array([3]), "values": np.array([0, 1], "float32")}
    got = _import_and_run(from_onnx, [node], x, constants=constants)
    np.testing.assert_array_equal(got, [[0, 1, 0], [1, 0, 0], [0, 0, 1]])


def _two_unnamed_dims(from_onnx: _FromOnnx) -> None:
    x = np.array([[-1, 2, -3], [4, -5, 6]], "float32")
    got = _import_and_run(from_onnx, [("Relu", ["x"], "y", {})], x, (None, None))
    np.testing.assert_array_equal(got, np.maximum(x, 0))


def _equal_shapes(from_onnx: _FromOnnx) -> None:
    x = np.arange(1, 4, dtype="float32")
    nodes: list[_Node] = [
        ("Shape", ["x"], "shape", {}),
        ("Equal", ["shape", "three"], "is_three", {}),
        ("Where", ["is_three", "x", "zero"], "y", {}),
    ]
    constants = {"three": np.array([3]), "zero": np.zeros(1, "float32")}
    got = _import_and_run(from_onnx, nodes, x, constants=constants)
    np.testing.assert_array_equal(got, x)


def _branch_that_is_not_taken(from_onnx: _FromOnnx) -> None:
    from onnx import TensorProto, helper

    def branch(operator: str, operands: list[str]) -> Any:
        output = helper.make_tensor_value_info("result", TensorProto.FLOAT, None)
        node = helper.make_node(operator, operands, ["result"])
        return helper.make_graph([node], operator, [], [output])

    x = np.arange(1, 4, dtype="float32")
    attributes = {
        "then_branch": branch("Identity", ["x"]),
        "else_branch": branch("Squeeze", ["x", "axes"]),
    }
    constants = {"condition": np.array(True), "axes": np.array([0])}
    node: _Node = ("If", ["condition"], "y", attributes)
    got = _import_and_run(from_onnx, [node], x, constants=constants)
    np.testing.assert_array_equal(got, x)


def _function_of_the_model(from_onnx: _FromOnnx) -> None:
    from onnx import parser

    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18, "local": 1]>
        graph (float[3] x) => (float[3] y) { y = local.negative (x) }
        <domain: "local", opset_import: ["": 18]> negative (x) => (y) { y = Neg (x) }
    """)
    x = np.array([1, -2, 3], "float32")
    np.testing.assert_array_equal(run(from_onnx(model), x), -x)


def _negative_infinity(from_onnx: _FromOnnx) -> None:
    x = np.array([-np.inf, 0, np.inf], "float32")
    nodes: list[_Node] = [
        ("IsInf", ["x"], "is_negative", {"detect_positive": 0}),
        ("Where", ["is_negative", "zero", "x"], "y", {}),
    ]
    got = _import_and_run(from_onnx, nodes, x, constants={"zero": np.zeros(1, "float32")})
    np.testing.assert_array_equal(got, [0, 0, np.inf])


def _clip_nan(from_onnx: _FromOnnx) -> None:
    nodes: list[_Node] = [("Clip", ["x", "bound"], "y", {})]
    constants = {"bound": np.array(-1, "float32")}
    x = np.array([np.nan, -2], "float32")
    np.testing.assert_array_equal(
        _import_and_run(from_onnx, nodes, x, constants=constants), [np.nan, -1]
    )


def _log_sum_exp_of_infinity(from_onnx: _FromOnnx) -> None:
    x = np.array([[np.inf, 1]], "float32")
    nodes: list[_Node] = [("ReduceLogSumExp", ["x"], "y", {"axes": [1]})]
    np.testing.assert_array_equal(_import_and_run(from_onnx, nodes, x), [[np.inf]])


def _determinant(from_onnx: _FromOnnx) -> None:
    x = np.array([[0, 2], [3, 4]], "float32")
    np.testing.assert_allclose(_import_and_run(from_onnx, [("Det", ["x"], "y", {})], x), -6)


def _running_mean(from_onnx: _FromOnnx) -> None:
    from onnx import parser

    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["": 15]>
        graph (float[2, 1] x) => (float[1] mean)
        <float[1] zero = {0.0}, float[1] one = {1.0}> {
            y, mean, variance = BatchNormalization <training_mode = 1, momentum = 0.75>
                (x, one, zero, zero, one)
        }
    """)
    got = run(from_onnx(model), np.array([[3], [5]], "float32"))
    # momentum is the weight of the old mean: 0.75 * 0 + 0.25 * 4.
    np.testing.assert_allclose(got, [1], rtol=1e-6)


def _pool_to_a_part_of_a_window(from_onnx: _FromOnnx) -> None:
    x = np.arange(1, 4, dtype="float32").reshape(1, 1, 3)
    attributes = {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_LOWER"}
    got = _import_and_run(from_onnx, [("MaxPool", ["x"], "y", attributes)], x)
    np.testing.assert_array_equal(got, [[[1, 3]]])


def _regions_of_scaled_half_pixels(from_onnx: _FromOnnx) -> None:
    x = np.broadcast_to(np.arange(8, dtype="float32"), (1, 1, 8, 8)).copy()
    constants = {"rois": np.array([[4, 4, 20, 20]], "float32"), "batch": np.array([0])}
    attributes = {"output_height": 1, "output_width": 2, "spatial_scale": 0.25}
    attributes["sampling_ratio"] = 1
    node: _Node = (
        "RoiAlign",
        ["x", "rois", "batch"],
        "y",
        attributes | {"coordinate_transformation_mode": "half_pixel"},
    )
    got = _import_and_run(from_onnx, [node], x, constants=constants)
    # From 0.5 to 4.5 in two bins with centers 1.5 and 3.5; each pixel equals its column.
    np.testing.assert_allclose(got, [[[[1.5, 3.5]]]], rtol=1e-6)


def _product_of_integers(from_onnx: _FromOnnx) -> None:
    from onnx import parser

    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["": 15]>
        graph (int8[1, 2] x) => (int8[1, 1] y)
        <float scale = {0.5}, int8 zero = {1}, int8[2, 1] w = {3, 5}> {
            y = QLinearMatMul (x, scale, zero, w, scale, zero, scale, zero)
        }
    """)
    got = run(from_onnx(model), np.array([[3, 7]], "int8"))
    # (2 * 2 + 6 * 4) * 0.5 * 0.5 / 0.5 + 1
    np.testing.assert_array_equal(got, [[15]])


def _tree_of_one_split(from_onnx: _FromOnnx) -> None:
    attributes = {
        "domain": "ai.onnx.ml",
        "n_targets": 1,
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_values": [2.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [10.0, 20.0],
    }
    x = np.array([[9, 2], [9, 3]], "float32")
    got = _import_and_run(from_onnx, [("TreeEnsembleRegressor", ["x"], "y", attributes)], x)
    np.testing.assert_array_equal(got, [[10], [20]])


def _product_of_a_transposed_matrix(from_onnx: _FromOnnx) -> None:
    from onnx import parser

    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        graph (float[2, 3] x) => (float[2, 2] y) {
            y = com.microsoft.FusedMatMul <transB = 1, alpha = 0.5> (x, x)
        }
    """)
    x = np.array([[1, 2, 3], [4, 0, 2]], "float32")
    np.testing.assert_array_equal(run(from_onnx(model), x), [[7, 5], [5, 10]])


_register(
    CONV_TRANSPOSE_OUTPUT_SHAPE,
    _conv_transpose_with_output_shape,
    r"AssertionError: expected shape \(1, 3, 3, 3\), got \(1, 3, 4, 4\)",
)

_register(
    CONV_AUTO_PAD,
    _conv_with_auto_pad_of_any_width,
    r"ValueError: .*Cannot use and / or / not"
    r"|OpAttributeInvalid: .*Cannot use and / or / not",
)

_register(DTYPE, _gemm_of_float16, r"AssertionError: expected 2050, got 2048")

_register(PAD, _pad_with_cut_and_wrap, r"AssertionError: .*Arrays are not equal")

_register(PRELU, _prelu_of_any_width, r"ValueError: Expect value to be constant int")

_register(RECURRENT, _run_an_lstm, r"OpNotImplemented: .*LSTM")

_register(RESIZE, _resize_by_one_and_a_half, r"AssertionError: .*Not equal to tolerance")

_register(SLICE, _slice_of_nothing, r"InternalError: .*is invalid for axis=0")

_register(
    RESHAPE,
    _squeeze_of_a_symbolic_dim,
    r"ValueError: .*cannot be proven to be 1"
    r"|OpAttributeInvalid: .*cannot be proven to be 1",
)

_register(EXPAND, _expand_between_symbols, r"AssertionError: expected shape \(3, 3\), got \(3, 1\)")

_register(
    PARAMETERS, _one_hot_by_a_depth_of_one_element, r"TypeError: Mismatched type on argument #3"
)

_register(UNNAMED_DIMS, _two_unnamed_dims, r"match_cast error")

_register(SHAPE_VALUES, _equal_shapes, r"AssertionError: .*Arrays are not equal")

_register(
    IF,
    _branch_that_is_not_taken,
    r"Squeeze axis 0 has size 3, but only axes of size 1|Squeeze '': shape of data is \[3\]",
)

_register(LOOPS, _scan_a_sum, r"OpNotImplemented: .*Scan")

_register(FUNCTIONS, _function_of_the_model, r"OpNotImplemented: .*negative")

_register(ELEMENTWISE, _negative_infinity, r"AssertionError: .*Arrays are not equal")

_register(ACTIVATIONS, _clip_nan, r"AssertionError: .*Arrays are not equal")

_register(REDUCTIONS, _log_sum_exp_of_infinity, r"AssertionError: .*Arrays are not equal")

_register(NORMS, _running_mean, r"AssertionError: .*Not equal to tolerance")

_register(POOLING, _pool_to_a_part_of_a_window, r"AssertionError: .*Arrays are not equal")

_register(BOXES, _regions_of_scaled_half_pixels, r"AssertionError: .*Not equal to tolerance")

_register(QUANTIZED, _product_of_integers, r"OpNotImplemented: .*QLinearMatMul")

_register(ML, _tree_of_one_split, r"OpNotImplemented: .*TreeEnsembleRegressor")
_register(MICROSOFT, _product_of_a_transposed_matrix, r"OpNotImplemented: .*FusedMatMul")
_register(OPERATORS, _determinant, r"OpNotImplemented: .*Det")
