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
"""Pad of ``tvm_fixes.frontend.onnx`` against ONNX Runtime."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from helpers.grids import batched, few, sample
from helpers.models import onnx_model
from helpers.onnx_graphs import (
    Arrays,
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    integers,
    node_model,
    normal,
    onnx_runtime,
    program,
    rejected_by_onnx_runtime,
)
from helpers.relax_modules import call, calls, cpu
from tvm_fixes.frontend.onnx import from_onnx

Case = tuple[onnx.ModelProto, Arrays]


def pad_model(
    x: np.ndarray, pads: Sequence[int], mode: str, opset: int = 19, **options
) -> onnx.ModelProto:
    constants = {"pads": np.array(pads, "int64")}
    return node_model("Pad", {"x": x}, {"mode": mode}, constants=constants, opset=opset, **options)


@pytest.mark.parametrize("opset", (13, 18, 19))
@pytest.mark.filterwarnings("ignore:.*unknown dimension")
def test_pad(opset: int) -> None:
    cases: dict[str, Case] = {}
    modes = ("constant", "reflect", "edge", *["wrap"] * (opset >= 19))
    for mode, dtype in itertools.product(modes, ("float32", "float16", "int64", "uint8", "bool")):
        x = integers(2, 3, 4, 5, dtype=dtype)
        for name, pads in {
            "both": [0, 0, 1, 2, 0, 0, 2, 1],
            "none": [0] * 8,
            "cut": [0, -1, -1, -2, 0, 0, -1, 0],
            "mixed": [0, 0, -1, 1, 0, 0, 2, -3],
        }.items():
            case = f"{mode}_{dtype}_{name}"
            cases[case] = (pad_model(x, pads, mode, opset), {"x": x})
        shapes = {"x": (None, 3, None, None)}
        model = pad_model(x, [0, 0, 1, 2, 0, 0, 2, 1], mode, opset, shapes=shapes)
        cases[f"{mode}_{dtype}_symbolic"] = (model, {"x": x})
    names = sample(list(cases), 24)
    assert_as_onnx_runtime(from_onnx, {name: cases[name] for name in names})


def test_pad_operands() -> None:
    x = normal(2, 3, 4)
    fill, axes = np.array(2.5, "float32"), np.array([-1, 1])
    operands = {
        "fill": {"pads": np.array([0, 1, 2, 0, 0, 1]), "fill": fill},
        "axes": {"pads": np.array([1, 0, 2, 1]), "fill": fill, "axes": axes},
        "minus-infinity": {"pads": np.array([0, 1, 2, 0, 0, 1]), "fill": np.float32("-inf")},
    }
    cases = {
        name: (node_model("Pad", {"x": x}, constants=constants), {"x": x})
        for name, constants in operands.items()
    }
    model = node_model(
        "Pad",
        {"x": x},
        {"mode": "edge"},
        constants={"pads": np.array([1, 0, 2, 1]), "axes": axes},
        operands=["x", "pads", "", "axes"],
    )
    cases["axes-without-fill"] = (model, {"x": x})
    # Not to be rounded to float64.
    y = np.array([2**53 + 1, -(2**62) - 1])
    long = {"pads": np.array([1, 1]), "fill": np.array(2**53 + 1)}
    cases["int64"] = (node_model("Pad", {"x": y}, constants=long), {"x": y})
    assert_as_onnx_runtime(from_onnx, cases)

    attributes = {"mode": "constant", "pads": [0, 1, 2, 0, 0, 1], "value": 1.5}
    old = {"x": (node_model("Pad", {"x": x}, attributes, opset=9), {"x": x})}
    assert_as_onnx_runtime(from_onnx, old)


@batched(32)
@given(
    st.lists(st.tuples(*[st.integers(1, 4), *[st.integers(-4, 6)] * 2]), min_size=32, max_size=32)
)
def test_random_pads(pads: list[tuple[int, int, int]]) -> None:
    """Equal to ONNX Runtime, which also decides what is rejected, except for empty results."""
    cases: dict[str, Case] = {}
    for (index, (extent, before, after)), mode in zip(
        enumerate(pads), itertools.cycle(("constant", "reflect", "edge", "wrap"))
    ):
        x = np.arange(1, extent + 1, dtype="float32")
        model = pad_model(x, [before, after], mode)
        if not rejected_by_onnx_runtime(model, x):
            cases[str(index)] = (model, {"x": x})
        elif extent + before + after != 0:
            assert_rejected(from_onnx, model, "Pad 'node': pads (before, after) of each axis are")
    if cases:
        assert_as_onnx_runtime(from_onnx, cases)


def torchscript_pad(dtype: type, branch: bool = False) -> onnx.ModelProto:
    """``F.pad(x, (2, 1, 1, 0), mode="reflect")`` as PyTorch's TorchScript exporter writes it."""
    zero = numpy_helper.from_array(np.zeros(1, "int64"))
    first = [
        helper.make_node("ConstantOfShape", ["missing"], ["zeros"], value=zero),
        helper.make_node("Concat", ["widths", "zeros"], ["all"], axis=0),
        helper.make_node("Reshape", ["all", "pairs"], ["rows"]),
    ]
    second = [
        helper.make_node("Slice", ["rows", "last", "first", "axes", "steps"], ["reversed"]),
        helper.make_node("Transpose", ["reversed"], ["columns"], perm=[1, 0]),
        helper.make_node("Reshape", ["columns", "flat"], ["line"]),
        helper.make_node("Cast", ["line"], ["pads"], to=TensorProto.INT64),
        helper.make_node("Pad", ["x", "pads"], ["y"], name="node", mode="reflect"),
    ]
    constants = {
        "widths": np.array([2, 1, 1, 0]),
        "missing": np.array([4]),
        "pairs": np.array([-1, 2]),
        "last": np.array([-1]),
        "first": np.array([np.iinfo("int64").min]),
        "axes": np.array([0]),
        "steps": np.array([-1]),
        "flat": np.array([-1]),
    }
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [("x", element, (1, 2, 3, 4))]
    outputs = [("y", element, (1, 2, 4, 7))]
    if not branch:
        return onnx_model([*first, *second], inputs, outputs, constants)
    own = {name: constants.pop(name) for name in ("first", "flat")}
    taken = helper.make_graph(
        second,
        "then",
        [],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(array, name) for name, array in own.items()],
    )
    other = helper.make_graph(
        [
            helper.make_node("Constant", [], ["pads"], value_ints=[0, 0, 1, 2, 0, 0, 0, 1]),
            helper.make_node("Pad", ["x", "pads"], ["y"], mode="edge"),
        ],
        "else",
        [],
        [helper.make_tensor_value_info("y", element, None)],
    )
    choice = helper.make_node("If", ["choice"], ["y"], then_branch=taken, else_branch=other)
    inputs.append(("choice", TensorProto.BOOL, ()))
    return onnx_model([*first, choice], inputs, outputs, constants)


@pytest.mark.parametrize("keep_params_in_input", (False, True))
def test_pads_computed_from_constants(keep_params_in_input: bool) -> None:
    model = torchscript_pad(np.float32)
    whole = model.SerializeToString()
    mod = from_onnx(model, keep_params_in_input=keep_params_in_input)
    assert model.SerializeToString() == whole
    assert [found.op.name for found in calls(mod)] == ["relax.nn.pad"]
    if not keep_params_in_input:
        x = normal(1, 2, 3, 4)
        [got] = imported_and_run(from_onnx, model, x)
        np.testing.assert_array_equal(got, onnx_runtime(model, x)[0])


def test_pads_computed_in_a_branch() -> None:
    model = torchscript_pad(np.float32, branch=True)
    mod = relax.transform.RemoveUnusedParameters()(from_onnx(model))
    widths = [
        ([int(width) for width in found.attrs.pad_width], found.attrs.pad_mode)
        for found in calls(mod, "relax.nn.pad")
    ]
    assert widths == [
        ([0, 0, 0, 0, 1, 0, 2, 1], "reflect"),
        ([0, 0, 0, 0, 1, 0, 2, 1], "replicate"),
    ]


@pytest.mark.parametrize("mode", ("constant", "reflect", "edge", "wrap"))
@pytest.mark.filterwarnings("ignore:.*")
def test_pads_that_are_inputs(mode: str) -> None:
    model = program(
        {"y": ("Pad", ["x", "pads"], {"mode": mode})},
        {"x": ("float32", ("n", 5)), "pads": ("int64", (4,))},
        opset=19,
    )
    cases = (
        (3, (1, 2, 0, 1)),
        (4, (0, 0, 0, 0)),
        (3, (-1, 1, 1, -2)),
        (4, (-1, -2, -1, -1)),
        (3, (3, 0, 0, 0)),
        (2, (1, 4, 1, 4)),
        (3, (-2, 0, -2, 0)),
        (0, (1, 0, 0, 0)),
    )
    runs = [[normal(n, 5), np.array(pads)] for n, pads in cases]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


@pytest.mark.filterwarnings("ignore:.*")
def test_pads_of_dims() -> None:
    """Pads to a multiple of four, and by an input; the extent is an expression."""
    model = program(
        {
            "n": ("Shape", ["x"], {"end": 1}),
            "more": ("Mod", ["n", "4"]),
            "less": ("Sub", ["4", "more"]),
            "missing": ("Mod", ["less", "4"]),
            "pads": ("Concat", ["0", "missing"], {"axis": 0}),
            "y": ("Pad", ["x", "pads", "fill", "0"]),
        },
        {"x": ("float32", ("n", 3)), "fill": ("float32", ())},
        {"0": np.array([0]), "4": np.array([4])},
        opset=18,
    )
    runs = [[normal(n, 3), np.array(n, "float32")] for n in (5, 8, 1)]
    assert_follows_onnx_runtime(from_onnx, model, *runs)
    function = from_onnx(model)["main"]
    n = function.params[0].ty.shape[0]
    assert tvm.sym.Analyzer().can_prove_equal(
        function.ret_ty.shape[0], n + tvm.tirx.floormod(4 - tvm.tirx.floormod(n, 4), 4)
    )


@few(2)
@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize(
    "mode, pads, least",
    (("reflect", (2, 1), 3), ("edge", (2, 0), 1), ("wrap", (1, 3), 1), ("constant", (-2, -1), 3)),
)
def test_pads_are_checked_against_a_symbolic_extent(
    mode: str, pads: tuple[int, int], least: int
) -> None:
    """Without the check, shorter data would be read out of bounds."""
    before, after = pads
    model = program(
        {"y": ("Pad", ["x", "pads"], {"mode": mode})},
        {"x": ("float32", ("n", 2))},
        {"pads": np.array([before, 0, after, 0])},
        opset=19,
    )
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 2)] for n in (least, 7)))
    vm = relax.VirtualMachine(relax.build(from_onnx(model), cpu()), tvm.cpu())
    with pytest.raises(RuntimeError, match="match_cast error"):
        call(vm, "main", normal(least - 1, 2))


@pytest.mark.filterwarnings("ignore:.*")
def test_pads_of_an_operator_that_is_rejected() -> None:
    x, pads = normal(2, 3), np.array([0, 1, 1, 0])
    random = helper.make_node("RegexFullMatch", ["x"], ["r"])
    cast = helper.make_node("Cast", ["r"], ["pads"], to=TensorProto.INT64)
    model = node_model("Pad", {"x": x}, constants={"pads": pads})
    del model.graph.initializer[:]
    model.graph.node.insert(0, random)
    model.graph.node.insert(1, cast)
    with pytest.raises(tvm.error.OpNotImplemented, match="RegexFullMatch"):
        from_onnx(model)


@pytest.mark.parametrize(
    "attributes, constants, message",
    (
        ({"mode": "wrap"}, {"pads": [0, 1, 1, 0]}, "attribute mode is wrap; expected one of const"),
        ({}, {"pads": [0, 1, 1]}, "number of pads is 3; expected two per axis for 2 axes"),
        ({}, {"pads": [0, 1], "a": [2]}, "axes are [2]; expected distinct axes of a tensor of"),
        ({}, {"pads": [0] * 4, "a": [1, -1]}, "axes are [1, -1]; expected distinct axes"),
        (
            {"mode": "reflect"},
            {"pads": [0, 3, 0, 0]},
            "pads (before, after) of each axis are [(0, 0), (3, 0)]; expected less in mode reflect "
            "for axis 1, which has 3 elements",
        ),
    ),
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*")
def test_invalid_pad(attributes: Mapping, constants: Mapping, message: str) -> None:
    arrays = {name: np.array(values) for name, values in constants.items()}
    operands = ["x", "pads", "", "a"] if "a" in arrays else None
    x = normal(2, 3)
    model = node_model("Pad", {"x": x}, attributes, constants=arrays, operands=operands)
    assert_rejected(from_onnx, model, f"Pad 'node': {message}")


if __name__ == "__main__":
    tvm.testing.main()
