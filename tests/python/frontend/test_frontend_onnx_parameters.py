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
"""Selecting and generating operators with constant, computed and input operands."""

import numpy as np
import pytest
import tvm.testing

from helpers.grids import few
from helpers.onnx_graphs import (
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    integers,
    node_model,
    normal,
    program,
)
from helpers.relax_modules import count, cpu
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

pytestmark = pytest.mark.filterwarnings("ignore:.*")

DIM = {"m": ("Shape", ["z"]), "scalar_m": ("Squeeze", ["m"])}


def vector(*elements: int) -> np.ndarray:
    return np.array(elements, "int64")


# TopK


@few(2)
@pytest.mark.parametrize("opset", (9, 10, 11, 17))
def test_top_k(opset: int) -> None:
    """Data with ties, where the first elements come first."""
    attributes = {"axis": 1} | ({"k": 3} if opset < 10 else {})
    last = {"axis": -1, "largest": 0, "sorted": 1} if opset > 10 else attributes
    operands = ["x"] if opset < 10 else ["x", "k"]
    model = program(
        {"v,i": ("TopK", operands, attributes), "w,j": ("TopK", operands, last)},
        {"x": ("float32", ("n", 5))},
        {} if opset < 10 else {"k": vector(3)},
        {"v": "float32", "i": "int64", "w": "float32", "j": "int64"},
        opset,
    )
    assert_follows_onnx_runtime(from_onnx, model, *([integers(n, 5, most=2)] for n in (4, 1)))


def test_top_k_of_a_computed_number() -> None:
    """k from a dim, from an input, 0, and more than the data may have, which is rejected."""
    model = program(
        {
            **DIM,
            "v,i": ("TopK", ["x", "m"], {"axis": 0}),
            "w,j": ("TopK", ["x", "k"], {"axis": 1, "largest": 0}),
            "u,h": ("TopK", ["x", "0"]),
            "t,g": ("TopK", ["x", "2"], {"axis": 0}),
        },
        {"x": ("float32", ("n", 5)), "z": ("float32", ("m",)), "k": ("int64", (1,))},
        {"0": vector(0), "2": vector(2)},
        dict(zip("viwjuhtg", ["float32", "int64"] * 4, strict=True)),
    )
    sizes = ((4, 3, 2), (3, 3, 5), (2, 0, 0), (3, 4, 1), (3, 3, 6), (1, 1, 1), (2, 2, -1))
    runs = [[integers(n, 5, most=2), normal(m), vector(k)] for n, m, k in sizes]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_top_k_that_need_not_be_sorted() -> None:
    model = program(
        {"v,i": ("TopK", ["x", "k"], {"sorted": 0})},
        {"x": ("float32", (2, 5))},
        {"k": vector(5)},
        {"v": "float32", "i": "int64"},
    )
    x = normal(2, 5)
    sorted_model = program(
        {"v,i": ("TopK", ["x", "k"])},
        {"x": ("float32", (2, 5))},
        {"k": vector(5)},
        {"v": "float32", "i": "int64"},
    )
    assert_follows_onnx_runtime(from_onnx, sorted_model, [x])
    with switches.collect() as acted:
        unsorted = from_onnx(model)
    assert "onnx-parameters" in acted
    tvm.ir.assert_structural_equal(unsorted, from_onnx(sorted_model))


def test_invalid_top_k() -> None:
    for k, message in (
        ([6], "operand K is 6; expected at most 5, the extent of axis 1"),
        ([1, 2], "operand K is [1, 2]; expected one element"),
        ([-1], "operand K is [-1]; expected no negative element"),
    ):
        model = program(
            {"y,i": ("TopK", ["x", "k"])},
            {"x": ("float32", ("n", 5))},
            {"k": vector(*k)},
            {"y": "float32", "i": "int64"},
        )
        assert_rejected(from_onnx, model, f"TopK 'y,i': {message}")


# OneHot


def test_one_hot() -> None:
    """Negative, out-of-range and float indices, with depths of any form."""
    constants = {
        "depth": np.array([4]),
        "scalar": np.array(4, "float32"),
        "floats": np.array([0.5, 2], "float32"),
        "longs": np.array([1, 2**40 + 1]),
    }
    nodes = {
        **DIM,
        "whole": ("Cast", ["x"], {"to": 7}),
        "a": ("OneHot", ["whole", "depth", "floats"]),
        "b": ("OneHot", ["whole", "depth", "longs"], {"axis": 0}),
        "c": ("OneHot", ["x", "scalar", "floats"], {"axis": -2}),
        "d": ("OneHot", ["whole", "m", "values"], {"axis": 1}),
    }
    model = program(
        nodes,
        {"x": ("float32", ("n", 2)), "z": ("float32", ("m",)), "values": ("float32", (2,))},
        constants,
        {"a": "float32", "b": "int64", "c": "float32", "d": "float32"},
    )
    x = np.array([0, 3, 4, -1, -4, -5, 1.7, -1.5], "float32").reshape(4, 2)
    values = np.array([-1, 1], "float32")
    assert_follows_onnx_runtime(
        from_onnx, model, [x, normal(6), values], [x[:1], normal(2), values]
    )


@pytest.mark.parametrize("dtype", ("int32", "float64", "bool", "float16"))
def test_one_hot_of_dtypes_without_a_kernel_in_onnx_runtime(dtype: str) -> None:
    values = np.array([0, 1], dtype)
    model = program(
        {"y": ("OneHot", ["x", "depth", "values"])},
        {"x": ("int64", (3,))},
        {"depth": vector(3), "values": values},
        {"y": dtype},
    )
    vm = tvm.relax.VirtualMachine(tvm.relax.build(from_onnx(model), cpu()), tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(vector(2, -3, 5))).numpy()
    expected = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0]], dtype)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


# Range, EyeLike, CumSum


def test_range_over_dims() -> None:
    """Adding to a range over a dim needs no runtime check."""
    numbers = {str(n): np.array(n) for n in (0, 1, 2, 3, -2)}
    model = program(
        {
            **DIM,
            "positions": ("Range", ["0", "scalar_m", "1"]),
            "as_floats": ("Cast", ["positions"], {"to": 1}),
            "y": ("Add", ["z", "as_floats"]),
            "every_second": ("Range", ["3", "scalar_m", "2"]),
            "down": ("Range", ["scalar_m", "0", "-2"]),
        },
        {"z": ("float32", ("m",))},
        numbers,
        {"y": "float32", "every_second": "int64", "down": "int64"},
    )
    assert_follows_onnx_runtime(from_onnx, model, *([normal(m)] for m in (8, 5, 1, 0)))
    assert count(from_onnx(model), "relax.tensor_to_shape") == 0


def test_range_of_inputs() -> None:
    scalars = {name: ("int64", ()) for name in ("start", "limit", "delta")}
    model = program({"y": ("Range", list(scalars))}, scalars, outputs={"y": "int64"})
    cases = ((1, 8, 3), (1, -8, -3), (1, -8, 3), (0, 0, 1))
    runs = [[np.array(number) for number in case] for case in cases]
    assert_follows_onnx_runtime(from_onnx, model, *runs)
    constants = {"delta": np.array(0)}
    del scalars["delta"]
    model = program(
        {"y": ("Range", ["start", "limit", "delta"])}, scalars, constants, {"y": "int64"}
    )
    assert_rejected(from_onnx, model, "Range 'y': operand delta is 0; expected a nonzero step")


def test_eye_like() -> None:
    model = program(
        {
            "same": ("EyeLike", ["x"], {"k": -1}),
            "long": ("EyeLike", ["x"], {"k": 1, "dtype": 7}),
        },
        {"x": ("float32", ("n", "m"))},
        outputs={"same": "float32", "long": "int64"},
    )
    assert_follows_onnx_runtime(from_onnx, model, [normal(3, 4)], [normal(4, 2)])


def test_cum_sum() -> None:
    model = program(
        {
            "back": ("CumSum", ["x", "-2"], {"reverse": 1, "exclusive": 1}),
            "only": ("CumSum", ["z", "axis"]),
        },
        {"x": ("float32", ("n", 3)), "z": ("float32", ("m",)), "axis": ("int32", ())},
        {"-2": np.array(-2)},
        ["back", "only"],
    )
    runs = [[integers(n, 3), integers(m), np.array(0, "int32")] for n, m in ((4, 5), (1, 1))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)
    model = program(
        {"y": ("CumSum", ["x", "axis"])},
        {"x": ("float32", ("n", 3)), "axis": ("int32", (2,))},
    )
    assert_rejected(from_onnx, model, "CumSum 'y': type of axis is ")


def test_top_k_of_uint64() -> None:
    """Numbers above the largest int64 are larger, not negative."""
    x = np.array([[3, 2**63, 2**64 - 1], [2**63 - 1, 0, 2**63 + 5]], "uint64")
    for largest, order in ((1, [[2, 1], [2, 0]]), (0, [[0, 1], [1, 0]])):
        model = node_model(
            "TopK",
            {"x": x},
            {"largest": largest},
            constants={"k": np.array([2])},
            outputs={"y": ("uint64", 2), "i": ("int64", 2)},
        )
        values, indices = imported_and_run(from_onnx, model, x)
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, np.array(order), 1))


# Operators that TVM handles correctly for operands of any kind


def test_trilu_nonzero_and_gather() -> None:
    model = program(
        {
            **DIM,
            "upper": ("Trilu", ["x", "scalar_m"]),
            "lower": ("Trilu", ["x", "k"], {"upper": 0}),
            "places": ("NonZero", ["x"]),
            "columns": ("Transpose", ["places"]),
            "elements": ("GatherND", ["x", "columns"]),
            "y": ("ScatterND", ["x", "columns", "elements"], {"reduction": "add"}),
        },
        {"x": ("float32", ("n", 4)), "z": ("float32", ("m",)), "k": ("int64", ())},
        outputs={"upper": "float32", "lower": "float32", "elements": "float32", "y": "float32"},
    )
    sizes = ((3, 1, -1), (5, 0, 2), (1, 3, 0))
    runs = [[integers(n, 4, most=1), normal(m), np.array(k)] for n, m, k in sizes]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_cum_sum_backwards_between_functions() -> None:
    """The operator fuses with its neighbors."""
    nodes = {"n": ("Neg", ["x"]), "s": ("CumSum", ["n", "0"], {"reverse": 1}), "y": ("Abs", ["s"])}
    model = program(nodes, {"x": ("int32", (5,))}, {"0": vector(0)}, {"y": "int32"})
    x = integers(5, dtype="int32")
    assert_follows_onnx_runtime(from_onnx, model, [x], pipeline="tvm_fixes")


# ReverseSequence


def test_reverse_sequence() -> None:
    """Lengths from 0 to the maximum, with either axis order."""
    time_first = {"time_axis": 0, "batch_axis": 1}
    nodes = {
        "y": ("ReverseSequence", ["x", "lengths"], time_first),
        "z": ("ReverseSequence", ["x", "other"], {"time_axis": 1, "batch_axis": 0}),
    }
    model = program(
        nodes,
        {"x": ("float32", ("n", 3, 2)), "other": ("int64", ("n",))},
        {"lengths": vector(0, 4, 2)},
        ["y", "z"],
    )
    runs = [[normal(n, 3, 2), vector(*(i % 4 for i in range(n)))] for n in (4, 7)]
    assert_follows_onnx_runtime(from_onnx, model, *runs, pipeline="tvm_fixes")


def test_reverse_sequence_along_other_axes_is_rejected() -> None:
    model = program(
        {"y": ("ReverseSequence", ["x", "lengths"], {"time_axis": 2, "batch_axis": 1})},
        {"x": ("float32", (2, 3, 4))},
        {"lengths": vector(1, 2, 3)},
    )
    message = "ReverseSequence 'y': attributes are {'time_axis': 2, 'batch_axis': 1}; expected 0"
    assert_rejected(from_onnx, model, message)


def test_lengths_of_a_reverse_sequence() -> None:
    """As in ONNX Runtime, too large and negative lengths are rejected."""
    attributes = {"time_axis": 0, "batch_axis": 1}
    for extent in (4, "t"):
        model = program(
            {"y": ("ReverseSequence", ["x", "lengths"], attributes)},
            {"x": ("float32", (extent, "n")), "lengths": ("int64", ("n",))},
        )
        lengths = ([4, 0], [1, 3, 2], [], [5, 1], [2, 9], [-1, 2])
        runs = [[normal(4, len(n)), vector(*n)] for n in lengths]
        assert_follows_onnx_runtime(from_onnx, model, *runs)
    model = program(
        {"y": ("ReverseSequence", ["x", "lengths"], attributes)},
        {"x": ("float32", (4, 2))},
        {"lengths": np.array([2, 5])},
    )
    message = "ReverseSequence 'y': operand sequence_lens is [2 5]; expected 0 to 4"
    assert_rejected(from_onnx, model, message)


if __name__ == "__main__":
    tvm.testing.main()
