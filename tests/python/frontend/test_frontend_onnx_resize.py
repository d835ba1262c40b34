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
"""Resize and Upsample of ``tvm_fixes.frontend.onnx`` against ONNX Runtime."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.grids import batched, few, is_full, sample
from helpers.onnx_graphs import (
    Arrays,
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    integers,
    node_model,
    normal,
    onnx_runtime,
    program,
    side_by_side,
    text_model,
)
from helpers.relax_modules import call, count, cpu, run
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches

COORDINATES = (
    "asymmetric",
    "half_pixel",
    "pytorch_half_pixel",
    "align_corners",
    "half_pixel_symmetric",
)
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
Case = tuple[onnx.ModelProto, Arrays]


def resize_model(
    x: np.ndarray,
    attributes: Mapping[str, object] | None = None,
    *,
    scales: Sequence[float] = (),
    sizes: Sequence[int] = (),
    opset: int = 18,
    shape: Sequence[int | str | None] | None = None,
) -> onnx.ModelProto:
    constants = {}
    if scales:
        constants["scales"] = np.array(scales, "float32")
    if sizes:
        constants["sizes"] = np.array(sizes)
    operands = ["x", "", "scales" if scales else "", *["sizes"] * bool(sizes)]
    return node_model(
        "Resize",
        {"x": x},
        attributes,
        constants=constants,
        operands=operands,
        shapes=None if shape is None else {"x": shape},
        opset=opset,
    )


def image(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (20 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)


def grid() -> dict[str, Case]:
    """All valid combinations of rank, mode, coordinates, rounding and sizes or scales.

    ONNX Runtime supports cubic only for two spatial axes.
    """
    cases: dict[str, Case] = {}
    for rank, mode, coordinates in itertools.product(
        (1, 2, 3), ("nearest", "linear", "cubic"), COORDINATES
    ):
        if (mode == "cubic" and rank != 2) or (mode, coordinates) == ("nearest", COORDINATES[-1]):
            continue
        x = image(1, 2, *(5, 4, 3)[:rank])
        for rounding, (way, values) in itertools.product(
            ROUNDINGS if mode == "nearest" else ROUNDINGS[:1],
            enumerate(
                (
                    ("scales", (2.0, 2.0, 2.0)),
                    ("scales", (1.5, 2.5, 1.7)),
                    ("scales", (0.5, 0.7, 0.6)),
                    ("scales", (0.2, 0.25, 1 / 3)),
                    ("sizes", (10, 8, 6)),
                    ("sizes", (7, 9, 4)),
                    ("sizes", (3, 2, 2)),
                    ("sizes", (1, 1, 1)),
                    ("sizes", (5, 7, 3)),
                )
            ),
        ):
            attributes = {
                "mode": mode,
                "coordinate_transformation_mode": coordinates,
                "nearest_mode": rounding,
            }
            ends = (1.0, 1.0) if values[0] == "scales" else (1, 2)
            model = resize_model(x, attributes, **{values[0]: [*ends, *values[1][:rank]]})
            cases[f"{rank}_{mode}_{coordinates}_{rounding}_{way}"] = (model, {"x": x})
    return cases


CASES = grid()
CASES_PER_BUILD = 32


def chunks(names: list[str]) -> list[list[str]]:
    return [
        names[start : start + CASES_PER_BUILD] for start in range(0, len(names), CASES_PER_BUILD)
    ]


def assert_resized(cases: Mapping[str, Case]) -> None:
    """Assert equality with ONNX Runtime: exact for nearest, within float32 rounding otherwise."""
    for mode, rtol in (("nearest", 0.0), ("linear", 1e-6), ("cubic", 1e-6)):
        chosen = {name: case for name, case in cases.items() if mode in name}
        if chosen:
            assert_as_onnx_runtime(from_onnx, chosen, rtol)


@pytest.mark.parametrize("names", chunks(sample(list(CASES), 24)), ids=lambda names: names[0])
def test_resize(names: list[str]) -> None:
    assert_resized({name: CASES[name] for name in names})


def test_coordinates_next_to_a_tie() -> None:
    """1 / (4 / 14) is 3.4999998 in float32, which ONNX Runtime rounds as 3.5."""
    cases = {}
    for (extent, to), rounding, axis in itertools.product(
        ((14, 4), (7, 16), (18, 40), (23, 28)), ROUNDINGS, (1, 2)
    ):
        shape, sizes = [1, 1, 1], [1, 1, 1]
        shape[axis], sizes[axis] = extent, to
        attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        attributes["nearest_mode"] = rounding
        x = image(*shape)
        model = resize_model(x, attributes, sizes=sizes)
        cases[f"{extent}_to_{to}_{rounding}_{axis}"] = (model, {"x": x})
    assert_resized(cases)


@pytest.mark.parametrize("dtype", ["float32", "int32"] if is_full() else ["float32"])
def test_repetition(dtype: str) -> None:
    """Nearest with integer scales repeats every element equally often."""
    cases: dict[str, Case] = {}
    repeats = 0
    x = image(1, 2, 7, 50, dtype=dtype)
    for coordinates, rounding, factor in itertools.product(COORDINATES[:4], ROUNDINGS, (2, 3, 7)):
        attributes = {
            "mode": "nearest",
            "coordinate_transformation_mode": coordinates,
            "nearest_mode": rounding,
        }
        for way, last in (("scales", 1.0 * factor), ("sizes", 50 * factor)):
            ends = (1.0, 1.0, 1.0) if way == "scales" else (1, 2, 7)
            model = resize_model(x, attributes, **{way: [*ends, last]})
            cases[f"nearest_{coordinates}_{rounding}_{factor}_{way}"] = (model, {"x": x})
            repeats += count(from_onnx(model), "relax.repeat")
    assert repeats > 0
    assert_resized(cases)


@pytest.mark.filterwarnings("ignore:.*unknown dimension")
def test_symbolic_dims() -> None:
    """One program for all extents, even for scales with non-integer results."""
    models = {}
    x = image(1, 3, 4, 4)
    for scale, mode, coordinates in itertools.product(
        (2.0, 1.5, 0.7), ("nearest", "linear"), ("asymmetric", "align_corners")
    ):
        attributes = {
            "mode": mode,
            "coordinate_transformation_mode": coordinates,
            "nearest_mode": "floor",
        }
        models[f"{mode}_{scale}_{coordinates}"] = resize_model(
            x, attributes, scales=[1, 1, scale, scale], shape=(None, 3, None, None)
        )
    model = side_by_side(models)
    vm = relax.VirtualMachine(relax.build(from_onnx(model), cpu()), tvm.cpu())
    for height in (4, 5, 7):
        inputs = [image(2, 3, height, 6)] * len(models)
        for name, got, expected in zip(
            models, call(vm, "main", *inputs), onnx_runtime(model, *inputs), strict=True
        ):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=name)


def test_a_symbolic_batch_that_is_resized() -> None:
    """Vectors read an intermediate tensor at symbolic offsets."""
    x = image(3, 1, 7, 4)
    for mode in ("linear", "cubic"):
        model = resize_model(x, {"mode": mode}, sizes=[5, 1, 5, 4], shape=("n", 1, "k", 4))
        executable = relax.build(from_onnx(model), cpu(), relax_pipeline=pipeline())
        vm = relax.VirtualMachine(executable, tvm.cpu())
        # ONNX Runtime cannot resize the batch.
        [expected] = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(call(vm, "main", x), expected, rtol=1e-4, atol=1e-4)


def test_one_symbolic_axis_grows() -> None:
    """TVM's kernel divides the extent by a multiple of itself."""
    model = text_model(
        """(float[m,1,m] x) => (float[?,?,?] y) <float[3] scales = {1, 1, 4}> {
        z = Concat <axis = 1> (x, x, x, x)
        y = Resize <mode = "linear", coordinate_transformation_mode = "asymmetric">
            (z, "", scales) }""",
        19,
    )
    cases = ([np.round(image(m, 1, m) * 8)] for m in (1, 2, 5))
    assert_follows_onnx_runtime(from_onnx, model, *cases, pipeline=pipeline())


def test_an_axis_grows_beside_a_symbolic_one() -> None:
    """TVM computes both extents in floats, and cannot bound the tiles of a softmax by them."""
    model = text_model(
        """(float[m,4,m,n] x) => (float[?,?,?,?] y) <float[4] scales = {1, 1, 1, 4}> {
        grown = Resize <mode = "linear", coordinate_transformation_mode = "asymmetric">
            (x, "", scales)
        opposite = Neg (grown)
        y = Softmax <axis = -2> (opposite) }""",
        20,
    )
    vm = relax.VirtualMachine(
        relax.build(from_onnx(model), cpu(), relax_pipeline=pipeline()), tvm.cpu()
    )
    for m, n in ((2, 5), (1, 1), (5, 3)):
        x = image(m, 4, m, n)
        [expected] = onnx_runtime(model, x)
        np.testing.assert_allclose(call(vm, "main", x), expected, rtol=1e-5, atol=1e-6)


def test_a_resize_after_another_one() -> None:
    """The first resize reads at an index cast from a float, which TVM cannot bound."""
    model = text_model(
        """(float[m,1,n] x) => (float[?,?,?] y)
        <float[3] scales = {1, 1, 0.5}, int64[3] sizes = {3, 1, 2}> {
        half = Resize <mode = "nearest", nearest_mode = "floor",
            coordinate_transformation_mode = "asymmetric"> (x, "", scales)
        y = Resize <mode = "linear"> (half, "", "", sizes) }""",
        19,
    )
    for x in (image(3, 1, 8), image(2, 1, 6)):
        vm = relax.VirtualMachine(
            relax.build(from_onnx(model), cpu(), relax_pipeline=pipeline()), tvm.cpu()
        )
        [expected] = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(call(vm, "main", x), expected, rtol=1e-4, atol=1e-4)


@few(2)
@pytest.mark.parametrize("opset", (10, 11, 13, 18))
def test_operands_of_each_opset(opset: int) -> None:
    x = image(1, 3, 4, 5)
    cases: dict[str, Case] = {}
    for mode, scale in itertools.product(("nearest", "linear"), (2.0, 0.5)):
        scales = {"scales": np.array([1, 1, scale, scale], "float32")}
        operands = ["x", "scales"] if opset == 10 else ["x", "roi", "scales"]
        if opset > 10:
            scales["roi"] = np.array([], "float32")
        model = node_model(
            "Resize", {"x": x}, {"mode": mode}, constants=scales, operands=operands, opset=opset
        )
        cases[f"{mode}_{scale}"] = (model, {"x": x})
    if opset == 11:
        empty = np.array([], "float32")
        constants = {"roi": empty, "scales": empty, "sizes": np.array([1, 3, 9, 9])}
        model = node_model("Resize", {"x": x}, {"mode": "linear"}, constants=constants, opset=11)
        cases["linear_sizes"] = (model, {"x": x})
    assert_resized(cases)


@pytest.mark.parametrize("opset", (7, 9))
def test_upsample(opset: int) -> None:
    x = image(1, 3, 4, 5)
    cases: dict[str, Case] = {}
    for mode, scales in itertools.product(
        ("nearest", "linear"), ([1, 1, 2.0, 2.0], [1, 1, 1.5, 3.0])
    ):
        attributes: dict[str, object] = {"mode": mode}
        constants = {}
        if opset == 7:
            attributes["scales"] = [float(scale) for scale in scales]
        else:
            constants["scales"] = np.array(scales, "float32")
        model = node_model("Upsample", {"x": x}, attributes, constants=constants, opset=opset)
        cases[f"{mode}_{scales[2]}"] = (model, {"x": x})
    assert_resized(cases)


def test_any_axis() -> None:
    x = image(2, 3, 4, 5)
    nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    cases = {
        "nearest_channels": resize_model(x, nearest, scales=[1, 2, 2, 1]),
        "nearest_batch": resize_model(x, nearest, sizes=[4, 3, 4, 7]),
        "nearest_axes": resize_model(x, nearest | {"axes": [2, 3]}, scales=[2, 2]),
        "nearest_axes_sizes": resize_model(x, nearest | {"axes": [3, 1]}, sizes=[9, 6]),
        "linear_axes": resize_model(x, {"mode": "linear", "axes": [-1, -2]}, scales=[1.5, 2.5]),
        "linear_same": resize_model(x, {"mode": "linear"}, scales=[1, 1, 1.1, 1.1]),
        "nearest_two_axes": resize_model(image(4, 5), nearest, scales=[2, 1.5]),
    }
    for policy, sizes in itertools.product(("not_larger", "not_smaller"), ([8, 8], [3, 9])):
        attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": "linear"}
        cases[f"linear_{policy}_{sizes[0]}"] = resize_model(x, attributes, sizes=sizes)
    arrays = {"nearest_two_axes": image(4, 5)}
    assert_resized({name: (m, {"x": arrays.get(name, x)}) for name, m in cases.items()})


def test_dtypes_and_attributes() -> None:
    cases: dict[str, Case] = {}
    for dtype, mode in itertools.product(("int32", "uint8", "int8"), ("nearest", "linear")):
        if mode == "linear" and dtype != "int32":
            continue  # ONNX Runtime interpolates 8 bits with weights of 10
        x = image(1, 2, 4, 5, dtype=dtype)
        attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
        for scale in (2.0, 1.5):
            model = resize_model(x, attributes, scales=[1, 1, scale, scale])
            cases[f"nearest_{mode}_{dtype}_{scale}"] = (model, {"x": x})
    long = np.array([[[2**24 + 1, -(2**24) - 3]]], "int32")
    cases["nearest_long"] = (resize_model(long, scales=[1, 1, 2]), {"x": long})
    x = image(1, 2, 6, 5)
    for exclude, a, scale in itertools.product((0, 1), (-0.5, -0.75), (2.0, 1.5, 0.7)):
        attributes = {"mode": "cubic", "exclude_outside": exclude, "cubic_coeff_a": a}
        model = resize_model(x, attributes, scales=[1, 1, scale, scale])
        cases[f"cubic_{exclude}_{a}_{scale}"] = (model, {"x": x})
    cases["linear_antialias"] = (
        resize_model(x, {"mode": "linear", "antialias": 1}, scales=[1, 1, 2.0, 1.5]),
        {"x": x},
    )
    assert_resized(cases)


@batched(16)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.one_of(st.integers(1, 20), st.floats(0.25, 4.0, width=32)),
            st.sampled_from(("nearest", "linear")),
            st.sampled_from(COORDINATES[:4]),
            st.sampled_from(ROUNDINGS),
        ),
        min_size=16,
        max_size=16,
    )
)
def test_random_axes(drawn: list[tuple[int, int | float, str, str, str]]) -> None:
    cases: dict[str, Case] = {}
    for index, (extent, to, mode, coordinates, rounding) in enumerate(drawn):
        if isinstance(to, float) and np.floor(np.float32(to) * np.float32(extent)) < 1:
            continue
        x = np.arange(extent, dtype="float32").reshape(1, 1, extent)
        attributes = {
            "mode": mode,
            "coordinate_transformation_mode": coordinates,
            "nearest_mode": rounding,
        }
        way = "sizes" if isinstance(to, int) else "scales"
        model = resize_model(x, attributes, **{way: [1, 1, to]})
        cases[f"{index}_{mode}"] = (model, {"x": x})
    assert_resized(cases)


def test_layouts_pass() -> None:
    """Cases that TVM's operator handles correctly stay a single operator."""
    x = image(1, 3, 4, 5)
    for mode, coordinates in itertools.product(("nearest", "linear"), ("asymmetric",)):
        attributes = {
            "mode": mode,
            "coordinate_transformation_mode": coordinates,
            "nearest_mode": "floor",
        }
        for way in ({"scales": [1, 1, 2, 2]}, {"sizes": [1, 3, 7, 11]}):
            model = resize_model(x, attributes, **way)
            with switches.collect() as acted:
                mod = from_onnx(model)
            assert count(mod, "relax.image.resize2d") == 1
            assert acted == set()
            tvm.ir.assert_structural_equal(mod, tvm_onnx.from_onnx(model))


@pytest.mark.parametrize(
    "attributes, way, message",
    (
        ({"mode": "area"}, {"scales": [1, 1, 2, 2]}, "attribute mode is area; expected one of"),
        (
            {"coordinate_transformation_mode": "half_pixel_symmetric"},
            {"scales": [1, 1, 2, 2]},
            "attribute coordinate_transformation_mode is half_pixel_symmetric; not supported "
            "with mode nearest",
        ),
        (
            {"mode": "linear", "antialias": 1},
            {"scales": [1, 1, 0.5, 2]},
            "attribute antialias is 1; expected 0 if an axis may become smaller",
        ),
        ({}, {}, "operands scales and sizes are ([], []); expected exactly one of them"),
        ({}, {"scales": [2, 2]}, "operand scales or sizes is [2.0, 2.0]; expected 4 elements"),
    ),
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*")
def test_invalid(attributes: Mapping, way: Mapping, message: str) -> None:
    with pytest.raises(tvm.error.OpAttributeInvalid) as error:
        from_onnx(resize_model(image(1, 3, 4, 5), attributes, **way))
    assert str(error.value).startswith(f"Resize 'node': {message}")


@pytest.mark.parametrize(
    "mode", ("nearest", "linear", "cubic") if is_full() else ("nearest", "cubic")
)
def test_computed_scales(mode: str) -> None:
    """One program upsamples, downsamples, and copies data that keeps its shape."""
    x = image(1, 2, 5, 4)
    names = {"x": x, "scales": np.array([1, 1, 2, 2], "float32")}
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    model = node_model("Resize", names, attributes, operands=["x", "", "scales"])
    runs = ([x, np.array([1, 1, *s], "float32")] for s in ((2, 3), (0.6, 1.1), (1.1, 1.1)))
    assert_follows_onnx_runtime(from_onnx, model, *runs, rtol=1e-5)


@pytest.mark.parametrize("scales", ((0.6, 1.1), (1.1, 1.1), (2, 1)))
def test_axis_that_keeps_its_extent(scales: tuple[float, float]) -> None:
    """It is interpolated if the scale is not 1 and the other axis changes."""
    attributes = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    model = resize_model(image(1, 1, 5, 4), attributes, scales=[1, 1, *scales])
    assert_follows_onnx_runtime(from_onnx, model, [image(1, 1, 5, 4)], rtol=1e-5)


def test_number_of_computed_scales() -> None:
    x, scales = image(1, 1, 4), np.array([1, 2], "float32")
    model = node_model("Resize", {"x": x, "scales": scales}, operands=["x", "", "scales"])
    with pytest.raises(tvm.error.OpAttributeInvalid) as error:
        from_onnx(model)
    assert "Resize 'node': shape of scales is [2]; expected 3 elements" in str(error.value)


@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
@pytest.mark.filterwarnings("ignore:.*")
def test_sizes_of_another_tensor(mode: str) -> None:
    """One program upsamples and downsamples features to the size of another tensor."""
    model = program(
        {
            "batch": ("Shape", ["x"], {"end": 2}),
            "shape": ("Shape", ["z"]),
            "sizes": ("Concat", ["batch", "shape"], {"axis": 0}),
            "y": ("Resize", ["x", "", "", "sizes"], {"mode": mode}),
        },
        {"x": ("float32", ("n", 3, "h", "w")), "z": ("float32", ("r", "s"))},
    )
    vm = relax.VirtualMachine(relax.build(from_onnx(model), cpu()), tvm.cpu())
    for extents, sizes in (((4, 5), (8, 7)), ((4, 5), (3, 2)), ((3, 3), (3, 3)), ((1, 2), (4, 1))):
        inputs = [normal(2, 3, *extents), normal(*sizes)]
        got, expected = call(vm, "main", *inputs), onnx_runtime(model, *inputs)[0]
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6, err_msg=f"{extents} {sizes}")


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("dtype", ("float", "float16"))
def test_a_fraction_of_a_symbol_is_fused(dtype: str) -> None:
    """The resize fuses with the following operators, through different passes per dtype."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18]>
        graph ({dtype}[1, 2, h, w] x, {dtype}[2, 2, 1, 1] k) => ({dtype}[1, 2, a, b] y)
        <float[4] scales = {{1.0, 1.0, 1.5, 0.7}}> {{
            larger = Resize <mode = "nearest"> (x, , scales)
            above = Relu (larger)
            y = Conv <kernel_shape = [1, 1]> (above, k)
        }}
    """)
    numpy_dtype = "float32" if dtype == "float" else dtype
    kernel = np.ones((2, 2, 1, 1), numpy_dtype)
    for extent in (7, 10):
        x = integers(1, 2, extent, extent, dtype=numpy_dtype)
        got = run(from_onnx(model), x, kernel, pipeline=pipeline())
        np.testing.assert_array_equal(got, onnx_runtime(model, x, kernel)[0])


def test_sizes_that_are_an_input() -> None:
    model = program(
        {"y": ("Resize", ["x", "", "", "sizes"], {"mode": "linear"})},
        {"x": ("float32", (1, 3, "h", 5)), "sizes": ("int64", (4,))},
    )
    vm = relax.VirtualMachine(relax.build(from_onnx(model), cpu()), tvm.cpu())
    for height, sizes in ((4, (1, 3, 8, 7)), (3, (1, 3, 2, 5))):
        inputs = [normal(1, 3, height, 5), np.array(sizes)]
        got, expected = call(vm, "main", *inputs), onnx_runtime(model, *inputs)[0]
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6, err_msg=f"{sizes}")


if __name__ == "__main__":
    tvm.testing.main()
