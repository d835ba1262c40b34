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
"""Expand, Tile and ConstantOfShape by operands that are constants, computed, or inputs."""

import numpy as np
import pytest
import tvm.testing
from onnx import numpy_helper

from helpers.onnx_graphs import (
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    integers,
    node_model,
    normal,
    onnx_runtime,
    program,
    text_model,
)
from helpers.relax_modules import calls
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

pytestmark = pytest.mark.filterwarnings("ignore:.*")


def vector(*elements: int) -> np.ndarray:
    return np.array(elements, "int64")


# Operators that broadcast


SHAPES = (((3, 4), (3, 4)), ((1, 4), (3, 4)), ((3, 1), (1, 4)), ((0, 4), (1, 4)), ((3, 4), (2, 4)))
"""Shapes of two operands; the last pair does not broadcast."""


def test_operands_of_two_symbols() -> None:
    """Dims that differ, and of which neither is 1, are rejected."""
    nodes = {
        "sum": ("Add", ["x", "z"]),
        "most": ("Max", ["x", "z", "one"]),
        "less": ("Less", ["x", "z"]),
        "y": ("Where", ["less", "x", "z"]),
        "row": ("Sub", ["x", "v"]),
    }
    model = program(
        nodes,
        {"x": ("float32", ("n", "p")), "z": ("float32", ("m", "q")), "v": ("float32", ("k",))},
        {"one": np.ones(1, "float32")},
        ["sum", "most", "y", "row"],
    )
    runs = [[normal(*x), normal(*z), normal(z[1])] for x, z in SHAPES]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_batches_of_a_product() -> None:
    """Batches of symbols, and of a symbol and a number; incompatible ones are rejected."""
    model = program(
        {"y": ("MatMul", ["x", "z"]), "w": ("MatMul", ["x", "four"])},
        {"x": ("float32", ("n", 1, 2, "k")), "z": ("float32", ("m", 3, "k", 2))},
        {"four": integers(4, 1, 3, 2)},
        ["y", "w"],
    )
    runs = [
        [integers(n, 1, 2, 3), integers(m, 3, 3, 2)] for n, m in ((4, 4), (1, 4), (4, 1), (4, 2))
    ]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_operands_that_never_broadcast_are_rejected() -> None:
    inputs = {"x": normal(2, 3), "z": normal(2, 4)}
    shapes = {"x": ("n", 3), "z": ("m", 4)}
    message = "Add 'node': shapes of the operands are [[n, 3], [m, 4]]; expected extents that are"
    assert_rejected(from_onnx, node_model("Add", inputs, shapes=shapes), message)


# Expand


def test_expand_between_symbols() -> None:
    """Expand in both directions and to 0 elements; incompatible dims are rejected."""
    model = program(
        {"shape": ("Shape", ["z"]), "y": ("Expand", ["x", "shape"])},
        {"x": ("float32", ("n", "p")), "z": ("float32", ("m", "q"))},
    )
    pairs = (
        ((3, 4), (3, 4)),
        ((1, 4), (3, 4)),
        ((3, 1), (1, 4)),
        ((1, 1), (1, 1)),
        ((3, 4), (1, 1)),
        ((3, 4), (2, 4)),
        ((0, 4), (1, 4)),
        ((1, 4), (0, 4)),
        ((3, 4), (0, 4)),
    )
    assert_follows_onnx_runtime(from_onnx, model, *([normal(*x), normal(*z)] for x, z in pairs))


def test_expand_to_constants() -> None:
    """Also to fewer dims than the data has, and to -1, which ONNX Runtime rejects."""
    constants = {"fewer": vector(4), "more": vector(2, 1, 5, 4), "middle": vector(3, 5, 4)}
    nodes = {name + "_y": ("Expand", ["x", name]) for name in constants}
    model = program(nodes, {"x": ("float32", ("n", 1, "w"))}, constants, list(nodes))
    runs = [[normal(*shape)] for shape in ((1, 1, 4), (3, 1, 4), (3, 1, 1), (2, 1, 4), (3, 1, 2))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)
    constants = {"shape": vector(-1, 5)}
    mod = from_onnx(
        program({"y": ("Expand", ["x", "shape"])}, {"x": ("float32", ("n", 1))}, constants)
    )
    n, _ = mod["main"].params[0].ty.shape
    assert list(mod["main"].ret_ty.shape) == [n, 5]


def test_expand_to_dims_is_a_broadcast() -> None:
    """An attention mask: dims that are 1 or equal need no check."""
    model = program(
        {"shape": ("Shape", ["z"]), "y": ("Expand", ["x", "shape"])},
        {"x": ("float32", ("b", 1, 1, "s")), "z": ("float32", ("b", 2, "t", "s"))},
    )
    mod = from_onnx(model)
    assert [found.op.name for found in calls(mod)] == ["relax.broadcast_to"]
    runs = [[normal(b, 1, 1, s), normal(b, 2, t, s)] for b, s, t in ((2, 3, 5), (1, 1, 1))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_expand_to_inputs() -> None:
    model = program(
        {"y": ("Expand", ["x", "shape"])},
        {"x": ("float32", ("n", 1, 4)), "shape": ("int64", (4,))},
    )
    targets = (
        (2, (1, 1, 5, 1)),
        (2, (3, 2, 5, 4)),
        (1, (1, 2, 1, 1)),
        (2, (2, 2, 0, 4)),
        (2, (1, 3, 1, 4)),
        (2, (1, 2, 1, 2)),
        (2, (1, 2, -1, 4)),
    )
    runs = [[normal(n, 1, 4), vector(*target)] for n, target in targets]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_invalid_expand() -> None:
    model = node_model("Expand", {"x": normal(3, 4)}, constants={"shape": vector(2, 4)})
    reason = "expected a shape that [3, 4] broadcasts to (axis 0"
    message = f"Expand 'node': operand shape is [2, 4]; {reason}"
    assert_rejected(from_onnx, model, message)


# Tile


def test_tile() -> None:
    nodes = {
        "dims": ("Shape", ["z"]),
        "by_dims": ("Tile", ["x", "dims"]),
        "by_constants": ("Tile", ["x", "2,3"]),
        "to_nothing": ("Tile", ["x", "2,0"]),
        "as_it_is": ("Tile", ["x", "1,1"]),
    }
    constants = {"2,3": vector(2, 3), "2,0": vector(2, 0), "1,1": vector(1, 1)}
    inputs = {"x": ("float32", ("n", 4)), "z": ("float32", ("m", "q"))}
    model = program(nodes, inputs, constants, list(nodes)[1:])
    runs = [[normal(n, 4), normal(*z)] for n, z in ((2, (2, 3)), (3, (1, 1)), (0, (1, 0)))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_tile_by_inputs() -> None:
    inputs = {"x": ("int32", ("n", 4)), "repeats": ("int64", (2,))}
    model = program({"y": ("Tile", ["x", "repeats"])}, inputs, outputs={"y": "int32"})
    cases = ((2, (2, 3)), (3, (1, 0)), (0, (2, 1)), (3, (1, -1)))
    runs = [[np.arange(n * 4, dtype="int32").reshape(n, 4), vector(*r)] for n, r in cases]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_invalid_tile() -> None:
    for repeats, message in (
        ((2,), "operand repeats is [2]; expected 2 elements"),
        ((2, -1), "operand repeats is [2, -1]; expected no negative element"),
    ):
        model = node_model("Tile", {"x": normal(3, 4)}, constants={"repeats": vector(*repeats)})
        assert_rejected(from_onnx, model, f"Tile 'node': {message}")


# ConstantOfShape


def test_constant_of_shape() -> None:
    of = lambda array: {"value": numpy_helper.from_array(np.array([array]))}  # noqa: E731
    nodes = {
        "dims": ("Shape", ["z"]),
        "half": ("Div", ["dims", "2"]),
        "zeros": ("ConstantOfShape", ["dims"]),
        "halves": ("ConstantOfShape", ["half"], of(np.float16(0.5))),
        "true": ("ConstantOfShape", ["dims"], of(np.bool_(True))),
        "given": ("ConstantOfShape", ["shape"], of(np.int64(2**40 + 1))),
        "scalar": ("ConstantOfShape", ["no_dims"], of(np.int32(3))),
    }
    outputs = {
        "zeros": "float32",
        "halves": "float16",
        "true": "bool",
        "given": "int64",
        "scalar": "int32",
    }
    inputs = {"z": ("float32", ("m", "q")), "shape": ("int64", (3,))}
    constants = {"2": vector(2), "no_dims": vector()}
    model = program(nodes, inputs, constants, outputs)
    runs = [
        [normal(*z), vector(*shape)]
        for z, shape in (((2, 5), (1, 2, 3)), ((0, 3), (2, 0, 1)), ((1, 1), (1, -1, 1)))
    ]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_static_expansions_use_stock() -> None:
    model = program(
        {
            "a": ("Expand", ["x", "2,3,4"]),
            "y": ("Tile", ["a", "2,1,1"]),
            "z": ("ConstantOfShape", ["64,65,2"]),
        },
        {"x": ("float32", (3, 1))},
        {"2,3,4": vector(2, 3, 4), "2,1,1": vector(2, 1, 1), "64,65,2": vector(64, 65, 2)},
        ["y", "z"],
    )
    with switches.collect() as acted:
        from_onnx(model)
    assert "onnx-expand" not in acted


@pytest.mark.parametrize("operator", ["Max", "Mean", "Min", "Sum"])
def test_empty_and_symbolic_operands_of_any_number(operator: str) -> None:
    """An extent of 1 also broadcasts to 0."""
    text = f"""(float[2,0] a, float[n,1] b, float[1] c) => (float[?,?] y0, float[?,?] y1) {{
    y0 = {operator} (a, c, c)
    y1 = {operator} (b, c, c) }}"""
    for extent in (0, 1, 3):
        inputs = np.zeros((2, 0), "float32"), normal(extent, 1), normal(1, seed=1)
        expected = onnx_runtime(text_model(text), *inputs)
        got = imported_and_run(from_onnx, text_model(text), *inputs)
        for ours, theirs in zip(got, expected, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_tile_of_no_elements() -> None:
    text = """(float[2,3] x) => (float[?,?] y) <int64[1] one = {1}, int64[2] repeats = {3,2}> {
    nothing = Slice (x, one, one, one)
    y = Tile (nothing, repeats) }"""
    [y] = imported_and_run(from_onnx, text_model(text), normal(2, 3))
    assert y.shape == (6, 0)


if __name__ == "__main__":
    tvm.testing.main()
