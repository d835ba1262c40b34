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
"""Slice and Split by bounds that are constants, computed from dims, or inputs."""

import itertools

import numpy as np
import pytest
import tvm
import tvm.testing
from onnx import helper

from helpers.grids import few, sample
from helpers.onnx_graphs import (
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
    program,
)
from helpers.relax_modules import calls
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

pytestmark = pytest.mark.filterwarnings("ignore:.*")

LEAST, MOST = -(2**63), 2**63 - 1
LIMITS = (LEAST, LEAST + 1, -(2**62), -(2**31), -1, 0, 2, 2**31 - 1, 2**31, 2**62, MOST)
STARTS = (-100, -5, -1, 0, 2, 5, MOST, LEAST)
ENDS = (-100, -6, -1, 0, 2, 9, MOST, LEAST)
STEPS = (1, 2, -1, -3)


def vector(*elements: int) -> np.ndarray:
    return np.array(elements, "int64")


@pytest.mark.parametrize("extent", ("n", 5))
def test_slice_by_constants(extent: str | int) -> None:
    cuts = sample(list(itertools.product(STARTS, ENDS, STEPS)), 24)
    numbers = {f"c{n}": vector(n) for n in {*STARTS, *ENDS, *STEPS}}
    names = {number.item(): name for name, number in numbers.items()}
    nodes = {
        f"y{index}": ("Slice", ["x", names[start], names[end], "c0", names[step]])
        for index, (start, end, step) in enumerate(cuts)
    }
    model = program(nodes, {"x": ("float32", (extent, 2))}, numbers, list(nodes))
    runs = [[normal(n, 2)] for n in ((5,) if extent == 5 else (5, 3, 1, 0))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


@pytest.mark.parametrize("start", (1, 3))
def test_a_start_after_a_short_axis(start: int) -> None:
    nodes = {"rest": ("Slice", ["x", "start", "most"]), "one": ("Slice", ["x", "start", "next"])}
    numbers = {"start": vector(start), "most": vector(MOST), "next": vector(start + 1)}
    model = program(nodes, {"x": ("float32", ("n", 2))}, numbers, list(nodes))
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 2)] for n in (5, 2, 1, 0)))


@pytest.mark.parametrize("extent", ("n", 5))
def test_bounds_in_attributes(extent: str | int) -> None:
    """Up to opset 9, the bounds of a Slice are attributes."""
    cuts = {
        "both": {"starts": [1, -3], "ends": [1000, 2**31 - 1]},
        "last": {"starts": [-2], "ends": [-1], "axes": [1]},
        "none": {"starts": [4], "ends": [2], "axes": [0]},
    }
    nodes = [helper.make_node("Slice", ["x"], [name], **cut) for name, cut in cuts.items()]
    data = [helper.make_tensor_value_info("x", 1, (extent, 4))]
    results = [helper.make_tensor_value_info(name, 1, [None, None]) for name in cuts]
    graph = helper.make_graph(nodes, "slices", data, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    runs = [[normal(n, 4)] for n in ((5,) if extent == 5 else (5, 3, 1))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_an_end_after_the_last_index_stays_within_the_data() -> None:
    """The last of the indices 0 and 3 of 5; none of 4 and more of 5, 3 apart."""
    nodes = {
        "empty": ("Slice", ["x", "three", "zero", "zero", "one"]),
        "y": ("Slice", ["empty", "zero", "most", "one", "three"]),
        "z": ("Slice", ["x", "four", "most", "one", "three"]),
    }
    numbers = {"zero": 0, "one": 1, "three": 3, "four": 4, "most": MOST}
    constants = {name: vector(number) for name, number in numbers.items()}
    for extent in (5, "n"):
        model = program(nodes, {"x": ("float32", (2, extent))}, constants, ["y", "z"])
        assert_follows_onnx_runtime(from_onnx, model, [normal(2, 5)])


def test_a_reversed_slice_without_elements() -> None:
    """From the first index down to the last one: nothing, for any extent."""
    nodes = {
        "none": ("Slice", ["x", "zero", "last", "axis", "last"]),
        "y": ("MatMul", ["none", "w"]),
    }
    constants = {"zero": vector(0), "last": vector(-1), "axis": vector(-2), "w": normal(3, 1)}
    model = program(nodes, {"x": ("float32", ("n", "m", 3))}, constants)
    assert from_onnx(model)["main"].ret_ty.shape.values[1] == 0
    assert_follows_onnx_runtime(from_onnx, model, *([normal(2, m, 3)] for m in (4, 1, 0)))


def test_slice_by_inputs() -> None:
    cut = {name: ("int64", (1,)) for name in ("starts", "ends", "steps")}
    model = program(
        {"y": ("Slice", ["x", "starts", "ends", "axes", "steps"])},
        {"x": ("float32", ("n", 2)), **cut},
        {"axes": vector(-2)},
    )
    bounds = sample(list(itertools.product(STARTS, ENDS, (*STEPS, 0, MOST, LEAST))), 40)
    runs = [
        [normal(n, 2), *(vector(number) for number in numbers)]
        for n in (5, 1, 0)
        for numbers in bounds
    ]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


@pytest.mark.parametrize("extent", ("n", 5))
def test_bounds_and_steps_near_the_limits(extent: str | int) -> None:
    """Each bound is a constant, an input, or a sum of an extent and a constant."""
    numbers = {str(n): vector(n) for n in LIMITS}
    nodes: dict[str, tuple] = {"shape": ("Shape", ["x"])}
    nodes |= {f"n+{n}": ("Add", ["shape", n]) for n in numbers if abs(int(n)) <= 2**62}
    bounds = [*numbers, *(name for name in nodes if name != "shape"), "start", "end"]
    steps = [*(n for n in numbers if n != "0"), "1", "step"]
    cuts = sample(list(itertools.product(bounds, bounds, steps)), 16)
    nodes |= {
        f"y{index}": ("Slice", ["x", start, end, "0", step])
        for index, (start, end, step) in enumerate(cuts)
    }
    inputs = {name: ("int64", (1,)) for name in ("start", "end", "step")}
    results = [f"y{index}" for index in range(len(cuts))]
    constants = numbers | {"1": vector(1)}
    model = program(nodes, {"x": ("float32", (extent,)), **inputs}, constants, results)
    runs = [
        [normal(n), vector(start), vector(end), vector(step)]
        for n in ((5,) if extent == 5 else (5, 1, 0))
        for start, end, step in ((LEAST, MOST, 2**62), (MOST, LEAST, LEAST), (-3, 2**31, 1))
    ]
    assert_follows_onnx_runtime(from_onnx, model, *runs, pipeline="tvm_fixes")


def test_a_start_of_the_least_integer_with_an_end_at_run_time() -> None:
    """The sum of the start and the extent is before the axis; the slice read there."""
    model = program(
        {"y": ("Slice", ["x", "least", "end", "zero", "one"])},
        {"x": ("float32", ("n", 2)), "end": ("int64", (1,))},
        {"least": vector(LEAST), "zero": vector(0), "one": vector(1)},
    )
    runs = [[normal(n, 2), vector(end)] for n in (5, 1, 0) for end in (-1, 2**31, MOST)]
    assert_follows_onnx_runtime(from_onnx, model, *runs, pipeline="tvm_fixes")


def test_huge_steps_of_a_static_axis() -> None:
    """TVM computes a negative extent."""
    nodes = {
        f"y{step}": ("Slice", ["x", "first", "end", "zero", str(step)])
        for step in (MOST, 2**62, 2**40, LEAST)
    }
    numbers = {"zero": vector(0), "first": vector(1), "end": vector(2**32)}
    numbers |= {str(step): vector(step) for step in (MOST, 2**62, 2**40, LEAST)}
    model = program(nodes, {"x": ("float32", (3, 2))}, numbers, list(nodes))
    assert_follows_onnx_runtime(from_onnx, model, [normal(3, 2)])


def test_slice_of_axes_that_are_inputs() -> None:
    model = program(
        {"y": ("Slice", ["x", "starts", "ends", "axes"])},
        {"x": ("float32", ("n", 4, "w")), "axes": ("int32", (2,))},
        {"starts": np.array([-2, 1], "int32"), "ends": np.array([2**31 - 1, 3], "int32")},
    )
    runs = [
        [normal(*shape), np.array(axes, "int32")]
        for shape in ((5, 4, 6), (1, 4, 2))
        for axes in ((0, -1), (1, 0), (-1, -2))
    ]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_slice_of_axes_from_dims() -> None:
    """The axes are n - 3 and n - 1: valid and distinct only for some n, which the model checks."""
    nodes = {
        "shape": ("Shape", ["x"]),
        "n": ("Gather", ["shape", "first"]),
        "axes": ("Sub", ["n", "less"]),
        "y": ("Slice", ["x", "starts", "ends", "axes"]),
    }
    constants = {"first": vector(0), "less": vector(3, 1)}
    constants |= {"starts": vector(1, -2), "ends": vector(9, 3)}
    model = program(nodes, {"x": ("float32", ("n", 4, 5))}, constants)
    assert_follows_onnx_runtime(from_onnx, model, [normal(3, 4, 5)], [normal(2, 4, 5)])


def of_dims(node: tuple) -> dict[str, tuple]:
    """`node`, with ``m`` and ``n`` in [1] for the dims of z (m,) and of x (n, w)."""
    return {
        "m": ("Shape", ["z"]),
        "shape": ("Shape", ["x"]),
        "n": ("Gather", ["shape", "0"]),
        "n-2": ("Sub", ["n", "2"]),
        "n/2": ("Div", ["n", "2"]),
        "-m": ("Neg", ["m"]),
        **node,
    }


NUMBERS = {str(n): vector(n) for n in (-1, 0, 1, 2, MOST)}
DIMS = {"x": ("float32", ("n", "w")), "z": ("float32", ("m",))}
SIZES = ((5, 3), (3, 5), (1, 1), (4, 0), (0, 2), (2, 7))


def test_slice_by_dims() -> None:
    """The end of one tensor in another of any extent, before, at and after its end."""
    cuts = {
        "to_m": ("0", "m"),
        "from_m": ("m", str(MOST)),
        "last_m": ("-m", str(MOST)),
        "to_last_m": ("0", "-m"),
        "middle": ("n-2", "n"),
        "half": ("n/2", str(MOST)),
        "pairs": ("0", "m", "2"),
        "back": ("m", "0", "-1"),
        "all_back": ("-1", str(-MOST), "-1"),
    }
    nodes = of_dims(
        {
            name: ("Slice", ["x", start, end, "0", *step])
            for name, (start, end, *step) in cuts.items()
        }
    )
    constants = NUMBERS | {str(-MOST): vector(-MOST)}
    model = program(nodes, DIMS, constants, list(cuts))
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 2), normal(m)] for n, m in SIZES))


@few(2)
@pytest.mark.parametrize(
    "start, end, expected",
    (("0", "m", "min"), ("0", "n", "n"), ("-1", str(MOST), "last"), ("0", "1000000000", "n")),
)
def test_extents_of_slices(start: str, end: str, expected: str) -> None:
    """They are expressions of the dims, and those of the whole axis are its own."""
    numbers = NUMBERS | {"1000000000": vector(10**9)}
    model = program(of_dims({"y": ("Slice", ["x", start, end, "0"])}), DIMS, numbers)
    function = from_onnx(model)["main"]
    (n, w), (m,) = (parameter.ty.shape.values for parameter in function.params)
    extents = {"min": tvm.tirx.min(m, n), "n": n, "last": tvm.tirx.min(n, 1)}
    got, last = function.ret_ty.shape.values
    assert last.same_as(w)
    analyzer = tvm.sym.Analyzer()
    analyzer.update(n, tvm.sym.ConstIntBound(0, tvm.sym.ConstIntBound.POS_INF))
    assert analyzer.can_prove_equal(got, extents[expected]), got


def test_an_end_that_means_the_end_of_the_axis() -> None:
    """Kernels do not compute with the minimum of the extent and the end."""
    numbers = {"zero": vector(0), "end": vector(10**9)}
    model = program(
        {"cut": ("Slice", ["x", "zero", "end", "zero"]), "y": ("Relu", ["cut"])},
        {"x": ("float32", ("n", 2))},
        numbers,
    )
    function = from_onnx(model)["main"]
    assert function.ret_ty.shape.values[0].same_as(function.params[0].ty.shape.values[0])
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 2)] for n in (5, 1, 0)))


@pytest.mark.parametrize("start", (-1, 0, 10**9))
def test_a_reversed_slice_to_a_large_end(start: int) -> None:
    """Only INT32_MAX and INT64_MAX mean the beginning of the axis; others mean its end."""
    numbers = {"start": vector(start), "end": vector(10**9), "axis": vector(0), "step": vector(-1)}
    nodes = {"y": ("Slice", ["x", *numbers])}
    model = program(nodes, {"x": ("float32", ("n", 2))}, numbers)
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 2)] for n in (4, 1, 0)))


def test_bounds_that_are_scalars() -> None:
    """An unrolled loop computes them from its iteration number."""
    x = np.arange(12.0, dtype="float32").reshape(4, 3)
    bounds = {"starts": np.array(1), "ends": np.array(3), "axes": np.array([0])}
    model = node_model("Slice", {"x": x}, constants=bounds)
    [got] = imported_and_run(from_onnx, model, x)
    np.testing.assert_array_equal(got, x[1:3])


def test_slice_of_an_old_opset() -> None:
    node = {"y": ("Slice", ["x"], {"starts": [1, -2], "ends": [2**31 - 1, -1], "axes": [1, 0]})}
    model = program(node, {"x": ("float32", ("n", 4))}, opset=9)
    assert_follows_onnx_runtime(from_onnx, model, [normal(3, 4)], [normal(1, 4)])


@pytest.mark.parametrize(
    "changed, message",
    (
        ({"steps": vector(0)}, "Slice 'node': operand steps is [0]; expected nonzero steps"),
        ({"axes": vector(2)}, "Slice 'node': axes are [2]; expected distinct axes of a tensor of"),
        ({"ends": vector(1, 2)}, "starts, ends, axes and steps are [1, 2, 1, 1]; expected equal"),
    ),
    ids=str,
)
def test_invalid_slice(changed: dict[str, np.ndarray], message: str) -> None:
    constants = {name: vector(1) for name in ("starts", "ends", "axes", "steps")} | changed
    assert_rejected(
        from_onnx, node_model("Slice", {"x": normal(3, 4)}, constants=constants), message
    )


# Split


def test_split() -> None:
    """By constants, dims, half of a dim, and opset 18's number of parts."""
    nodes = of_dims(
        {
            "n-m": ("Sub", ["n", "m"]),
            "sizes": ("Concat", ["m", "n-m"], {"axis": 0}),
            "a0,a1": ("Split", ["x", "sizes"], {"axis": 0}),
            "b0,b1,b2": ("Split", ["x"], {"axis": -2, "num_outputs": 3}),
            "c0,c1": ("Split", ["x", "1,3"], {"axis": 1}),
            "d0": ("Split", ["x", "4"], {"axis": 1}),
            "f0,f1": ("Split", ["x", "0,4"], {"axis": 1}),
        }
    )
    inputs = {"x": ("float32", ("n", 4)), "z": ("float32", ("m",))}
    constants = NUMBERS | {"1,3": vector(1, 3), "4": vector(4), "0,4": vector(0, 4)}
    outputs = [o for results in nodes if results[1:2].isdigit() for o in results.split(",")]
    model = program(nodes, inputs, constants, outputs, opset=18)
    runs = [[normal(n, 4), normal(m)] for n, m in ((5, 3), (6, 0), (3, 3), (5, 6))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_split_by_inputs() -> None:
    model = program(
        {"a,b,c": ("Split", ["x", "split"], {"axis": 1})},
        {"x": ("float32", (2, "n")), "split": ("int64", (3,))},
        outputs=["a", "b", "c"],
    )
    sizes = ((5, (1, 3, 1)), (5, (0, 5, 0)), (4, (1, 1, 1)), (4, (5, -1, 0)), (0, (0, 0, 0)))
    runs = [[normal(2, n), vector(*split)] for n, split in sizes]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_split_of_an_old_opset() -> None:
    """Equal parts are equal: an extent that does not divide is rejected at run time."""
    nodes = {
        "a,b": ("Split", ["x"], {"axis": 0}),
        "c,d": ("Split", ["x"], {"axis": 1, "split": [1, 3]}),
    }
    model = program(nodes, {"x": ("float32", ("n", 4))}, outputs=["a", "b", "c", "d"], opset=11)
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 4)] for n in (2, 4, 3)))


def test_invalid_split() -> None:
    for split, message in (
        ([1, 1], "Split 'a,b': split is [1, 1]; expected a sum of 4, the extent of axis 1"),
        ([1, 1, 2], "Split 'a,b': split is [1, 1, 2]; expected 2 elements, one per output"),
        ([5, -1], "Split 'a,b': operand split is [5, -1]; expected no negative element"),
    ):
        model = program(
            {"a,b": ("Split", ["x", "split"], {"axis": 1})},
            {"x": ("float32", ("n", 4))},
            {"split": vector(*split)},
            ["a", "b"],
        )
        assert_rejected(from_onnx, model, message)


def test_static_slices_use_stock() -> None:
    model = program(
        {
            "cut": ("Slice", ["x", "1", "2", "0"]),
            "y,rest": ("Split", ["cut", "1,3"], {"axis": 1}),
        },
        {"x": ("float32", (3, 4))},
        NUMBERS | {"1,3": vector(1, 3)},
    )
    with switches.collect() as acted:
        mod = from_onnx(model)
    assert "onnx-slice" not in acted
    assert [found.op.name for found in calls(mod)] == ["relax.strided_slice", "relax.split"]


def test_split_into_many_outputs():
    """A kernel of one output each: one of 2000 crashes LLVM."""
    names = [f"y{i}" for i in range(70)]
    model = program(
        {",".join(names): ("Split", ["x"], {"num_outputs": 70})},
        {"x": ("float32", [70])},
        outputs=names,
        opset=18,
    )
    assert not calls(from_onnx(model), "relax.split")
    assert_follows_onnx_runtime(from_onnx, model, [normal(70)])


if __name__ == "__main__":
    tvm.testing.main()
