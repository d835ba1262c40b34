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
"""Reshape, Flatten, Squeeze and Unsqueeze with constant, computed and input operands."""

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.grids import few
from helpers.onnx_graphs import (
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
    onnx_runtime,
    program,
    text_model,
)
from helpers.relax_modules import calls, count, run
from tvm_fixes import verify
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

pytestmark = pytest.mark.filterwarnings("ignore:.*")


def vector(*elements: int) -> np.ndarray:
    return np.array(elements, "int64")


# Reshape


def test_reshape_to_dims() -> None:
    """Targets that copy, infer and move dims, with provably equal element counts."""
    constants = {
        "copy": vector(0, 0, -1),
        "flat": vector(-1),
        "heads": vector(0, 0, 2, 2),
        "-1": vector(-1),
        "4": vector(4),
        "2": vector(2),
    }
    targets = {
        "w_n_rest": ("Concat", ["w", "n", "-1"], {"axis": 0}),
        "n*w_2_2": ("Concat", ["n*w", "2", "2"], {"axis": 0}),
        "n_rest_4": ("Concat", ["n", "-1", "4"], {"axis": 0}),
    }
    nodes = {
        "n": ("Shape", ["x"], {"end": 1}),
        "w": ("Shape", ["x"], {"start": 1, "end": 2}),
        "n*w": ("Mul", ["n", "w"]),
        **targets,
        **{
            f"to_{target}": ("Reshape", ["x", target])
            for target in ("copy", "flat", "heads", *targets)
        },
    }
    outputs = [name for name in nodes if name.startswith("to_")]
    model = program(nodes, {"x": ("float32", ("n", "w", 4))}, constants, outputs)
    assert_follows_onnx_runtime(
        from_onnx, model, *([normal(n, w, 4)] for n, w in ((2, 3), (5, 1), (1, 1)))
    )
    mod = from_onnx(model)
    assert count(mod, "relax.tensor_to_shape") == 0
    n, w, _ = mod["main"].params[0].ty.shape.values
    found = [list(field.shape.values) for field in mod["main"].ret_ty.fields]
    assert found[outputs.index("to_w_n_rest")] == [w, n, 4]


@few(2)
@pytest.mark.parametrize(
    "shape, target, sizes",
    (
        (("n", 4), (2, -1, 4), (2, 6, 3)),
        (("n", 4), (4, 3), (3, 2)),
        (("n", 1), (), (1, 2)),
        (("n", 4), (8, -1), (2, 4, 3)),
    ),
)
def test_reshape_that_may_not_fit(
    shape: tuple[str, int], target: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    """The number of elements is checked at run time."""
    model = program(
        {"y": ("Reshape", ["x", "shape"])},
        {"x": ("float32", shape)},
        {"shape": vector(*target)},
    )
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, shape[1])] for n in sizes))


def test_reshape_that_fits_empty_data() -> None:
    """[n, m] to [n], which fits for m = 1 and for n = 0."""
    model = program(
        {"y": ("Reshape", ["x", "shape"])}, {"x": ("float32", ("n", "m"))}, {"shape": vector(0)}
    )
    runs = [[normal(n, m)] for n, m in ((3, 1), (3, 2), (0, 2), (0, 1))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


@pytest.mark.parametrize("zero_is_zero", (False, True))
def test_reshape_to_inputs(zero_is_zero: bool) -> None:
    model = program(
        {"y": ("Reshape", ["x", "shape"], {"allowzero": int(zero_is_zero)})},
        {"x": ("float32", ("n", 4)), "shape": ("int64", (3,))},
    )
    targets = (
        (2, (0, -1, 2)),
        (3, (-1, 2, 1)),
        (3, (6, 2, 1)),
        (3, (5, 2, 1)),  # different number of elements
        (3, (0, -1, 0)),  # a 0 for no dim
        (3, (-1, -1, 4)),
        (3, (-3, -4, 1)),
        (3, (0, 3, 4)),
        (0, (0, 4, 1)),
        (0, (0, 3, 1)),
    )
    runs = [[normal(n, 4), vector(*target)] for n, target in targets]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_reshape_of_no_elements() -> None:
    """A literal 0, which TVM's operator would replace by a dim of the data."""
    for shape, sizes in (((0, 4), (0,)), (("n", 4), (0, 1))):
        model = program(
            {"y": ("Reshape", ["x", "shape"], {"allowzero": 1})},
            {"x": ("float32", shape)},
            {"shape": vector(2, 0)},
        )
        assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 4)] for n in sizes))


@pytest.mark.parametrize(
    ("target", "attributes", "expected"),
    [
        ((-1,), {}, (0,)),
        ((0,), {"allowzero": 1}, (0,)),
        ((-1, 3), {}, (0, 3)),
        ((3, -1), {}, (3, 0)),
    ],
)
def test_reshape_of_known_extents_to_no_elements(
    target: tuple[int, ...], attributes: dict[str, int], expected: tuple[int, ...]
) -> None:
    x = np.zeros((0, 3), "float32")
    constants = {"shape": vector(*target)}
    outputs = {"y": ("float32", len(expected))}
    model = node_model("Reshape", {"x": x}, attributes, constants=constants, outputs=outputs)
    [wanted] = onnx_runtime(model, x)
    got = run(from_onnx(model, shape_dict={"x": [0, 3]}), x)
    assert got.shape == wanted.shape == expected


def test_reshape_of_an_old_opset() -> None:
    model = program(
        {"y": ("Reshape", ["x"], {"shape": [-1, 2]})}, {"x": ("float32", ("n", 4))}, opset=4
    )
    assert_follows_onnx_runtime(from_onnx, model, [normal(1, 4)], [normal(3, 4)])


def test_reshape_behind_data_of_unknown_extents() -> None:
    """The result of NonZero has symbolic extents, which Reshape accepts."""
    model = program(
        {
            "places": ("NonZero", ["x"]),
            "columns": ("Transpose", ["places"]),
            "y": ("Reshape", ["columns", "shape"]),
        },
        {"x": ("float32", ("n", 4))},
        {"shape": vector(2, -1)},
        {"y": "int64"},
    )
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 4)] for n in (3, 1, 0)))


@pytest.mark.parametrize(
    "target, attributes, message",
    (
        ((5, -1), {}, "operand shape is [5, -1]; expected the number of elements of [3, 4]"),
        ((-1, -1), {}, "operand shape is [-1, -1]; expected at most one -1"),
        ((-2, -6), {}, "operand shape is [-2, -6]; expected no negative element except"),
        ((3, 4, 0), {}, "operand shape is [3, 4, 0]; expected 0 only for the 2 dims of"),
        ((-1, 0), {"allowzero": 1}, "operand shape is [-1, 0]; expected not both -1 and 0"),
    ),
)
def test_invalid_reshape(target: tuple[int, ...], attributes: dict[str, int], message: str) -> None:
    constants = {"shape": vector(*target)}
    model = node_model("Reshape", {"x": normal(3, 4)}, attributes, constants=constants)
    assert_rejected(from_onnx, model, f"Reshape 'node': {message}")


# Shape


def of_branches(x: str, w: str, shape: str = "Shape") -> onnx.ModelProto:
    """The shape of one of two inputs, selected by a condition input."""
    return text_model(
        f"""(bool c, float[{x}] x, float[{w}] w) => (int64[k] y) {{
            either = If (c) <
                then_branch = a () => (float[] p) {{ p = Neg(x) }},
                else_branch = b () => (float[] q) {{ q = Neg(w) }}
            >
            y = {shape}(either)
        }}"""
    )


@pytest.mark.parametrize("shape", ["Shape", "Shape<start=1>", "Shape<start=-1, end=2>"])
def test_shape_that_was_lost(shape: str) -> None:
    x, w = normal(2, 3), normal(4, 5)
    runs = [[np.array(is_first), x, w] for is_first in (True, False)]
    assert_follows_onnx_runtime(from_onnx, of_branches("n, 3", "4, m", shape), *runs)


def test_shape_of_one_of_two_ranks() -> None:
    runs = [[np.array(is_first), normal(2, 3), normal(4)] for is_first in (True, False)]
    assert_follows_onnx_runtime(from_onnx, of_branches("n, 3", "m"), *runs)


@pytest.mark.parametrize("attributes", ["", "<start=1>", "<end=-1>", "<start=-2, end=9>"])
def test_shape_of_any_rank(attributes: str) -> None:
    model = text_model(f"(float x) => (int64[k] y) {{ y = Shape{attributes}(x) }}")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    mod = from_onnx(model)
    verify(mod).raise_if_errors()
    for extents in ((2, 3, 4), (5,), (0, 3)):
        x = normal(*extents)
        np.testing.assert_array_equal(run(mod, x), *onnx_runtime(model, x), strict=True)
    with pytest.raises(RuntimeError, match="match_cast error"):
        run(mod, normal())


# Flatten


def test_flatten() -> None:
    nodes = {f"y{axis + 3}": ("Flatten", ["x"], {"axis": axis}) for axis in range(-3, 4)}
    nodes["z"] = ("Flatten", ["scalar"], {"axis": 0})
    inputs = {"x": ("float32", ("n", 4, "w")), "scalar": ("float32", ())}
    model = program(nodes, inputs, outputs=list(nodes))
    runs = [[normal(n, 4, w), normal()] for n, w in ((2, 3), (5, 1), (0, 2), (1, 0))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)
    node = node_model("Flatten", {"x": normal(3, 4)}, {"axis": 3})
    assert_rejected(from_onnx, node, "Flatten 'node': attribute axis is 3; expected from -2 to 2")


# Squeeze and Unsqueeze


@pytest.mark.parametrize("opset", (11, 13))
def test_squeeze_of_symbolic_dims(opset: int) -> None:
    """A runtime check proves the dims are 1, so later operators know the shape."""
    axes = ("Squeeze", ["x"], {"axes": [0, -1]}) if opset < 13 else ("Squeeze", ["x", "axes"])
    constants = {} if opset < 13 else {"axes": vector(0, -1)}
    inputs = {"x": ("float32", ("n", 4, "w"))}
    model = program({"y": axes}, inputs, constants, opset=opset)
    assert [int(extent) for extent in from_onnx(model)["main"].ret_ty.shape] == [4]
    runs = [[normal(n, 4, w)] for n, w in ((1, 1), (2, 1), (1, 3))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_squeeze_of_a_slice() -> None:
    """The last row of symbolic data, which may be empty."""
    model = program(
        {"last": ("Slice", ["x", "-1", "end", "1"]), "y": ("Squeeze", ["last", "1"])},
        {"x": ("float32", (2, "n", 3))},
        {"-1": vector(-1), "end": vector(2**63 - 1), "1": vector(1)},
    )
    assert_follows_onnx_runtime(from_onnx, model, *([normal(2, n, 3)] for n in (4, 1, 0)))


def test_squeeze_by_computed_axes() -> None:
    """Axes computed as the rank minus 1, as exporters write it."""
    model = program(
        {
            "shape": ("Shape", ["x"]),
            "rank": ("Size", ["shape"]),
            "last": ("Sub", ["rank", "1"]),
            "y": ("Squeeze", ["x", "last"]),
            "z": ("Unsqueeze", ["x", "last"]),
        },
        {"x": ("float32", ("n", 4, 1))},
        {"1": vector(1)},
        ["y", "z"],
    )
    assert_follows_onnx_runtime(from_onnx, model, [normal(2, 4, 1)], [normal(5, 4, 1)])


def test_squeeze_by_inputs() -> None:
    inputs = {"x": ("float32", ("n", 4, "w")), "axes": ("int64", (2,))}
    model = program({"y": ("Squeeze", ["x", "axes"])}, inputs)
    cases = (((1, 1), (0, -1)), ((1, 1), (2, 0)), ((2, 1), (0, 2)), ((1, 1), (0, 1)))
    runs = [[normal(n, 4, w), vector(*axes)] for (n, w), axes in cases]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


@pytest.mark.parametrize("follows", (("Sigmoid", "Slice"), ("Mul", "Identity")), ids=str)
def test_squeeze_of_a_batch_of_one(follows: tuple[str, str]) -> None:
    """PyTorch's squeeze() of a batch that was 1 in the example: the output has no batch."""
    first, last = follows
    constants = {"half": np.float32(0.5), "0": vector(0), "2": vector(2)}
    nodes = {
        "s": ("Squeeze", ["x"]),
        "a": (first, ["s", "half"] if first == "Mul" else ["s"]),
        "y": (last, ["a", "0", "2"] if last == "Slice" else ["a"]),
    }
    model = program(nodes, {"x": ("float32", ("n", 1, 4))}, constants)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.shape.dim.add().dim_param = "m"
    assert from_onnx(model)["main"].params[0].ty.shape.values[0] == 1
    assert_follows_onnx_runtime(from_onnx, model, [normal(1, 1, 4)])


def test_squeeze_to_a_scalar() -> None:
    nodes = {"s": ("Squeeze", ["x"]), "y": ("Add", ["s", "half"])}
    model = program(nodes, {"x": ("float32", ("n", 1))}, {"half": np.float32(0.5)})
    model.graph.output[0].type.tensor_type.shape.SetInParent()
    assert_follows_onnx_runtime(from_onnx, model, [normal(1, 1)])


def test_squeeze_of_a_larger_batch() -> None:
    """The output has a batch: without one, its rank would be another."""
    model = program({"y": ("Squeeze", ["x"])}, {"x": ("float32", ("n", 1, 4))})
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    for _ in range(2):
        model.graph.output[0].type.tensor_type.shape.dim.add()
    assert_follows_onnx_runtime(from_onnx, model, [normal(3, 1, 4)])
    with pytest.raises(Exception, match="match_cast"):
        imported_and_run(from_onnx, model, normal(1, 1, 4))


def test_unsqueeze_by_inputs() -> None:
    inputs = {"x": ("float32", ("n", 4)), "axes": ("int64", (2,))}
    model = program({"y": ("Unsqueeze", ["x", "axes"])}, inputs)
    cases = ((2, (0, -1)), (1, (2, 1)), (3, (3, 0)), (3, (0, 0)), (3, (0, 4)))
    runs = [[normal(n, 4), vector(*axes)] for n, axes in cases]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_invalid_squeeze() -> None:
    for operands, shape, message in (
        (["x"], ("n", 1), "shape of data is [n, 1]; expected the operand axes"),
        (["x", "0"], (2, 1), "shape of data is [2, 1]; expected 1 on the squeezed axis 0"),
        (["x", "2"], (1, 1), "axes are [2]; expected distinct axes of a tensor of rank 2"),
    ):
        constants = {"0": vector(0), "2": vector(2)}
        model = program({"y": ("Squeeze", operands)}, {"x": ("float32", shape)}, constants)
        assert_rejected(from_onnx, model, f"Squeeze 'y': {message}")


def test_static_shapes_use_stock() -> None:
    model = program(
        {
            "a": ("Reshape", ["x", "shape"]),
            "b": ("Squeeze", ["a", "0"]),
            "c": ("Unsqueeze", ["b", "0"]),
            "y": ("Flatten", ["c"]),
        },
        {"x": ("float32", (3, 4))},
        {"shape": vector(1, 2, 6), "0": vector(0)},
    )
    with switches.collect() as acted:
        mod = from_onnx(model)
    assert "onnx-reshape" not in acted
    names = [found.op.name.removeprefix("relax.") for found in calls(mod)]
    assert names == ["reshape", "squeeze", "expand_dims", "reshape"]


if __name__ == "__main__":
    tvm.testing.main()
