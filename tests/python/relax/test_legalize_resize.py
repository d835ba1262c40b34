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
"""Resizing to the nearest element as its repetition."""

from itertools import product

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import pytest
import torch
import tvm
import tvm.testing
from hypothesis import given
from tvm import relax, tirx
from tvm_ffi import structural_walk

from helpers.grids import batched, few, is_full
from helpers.relax_modules import build, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.legalize.resize import FIX_ID

ASYMMETRIC = ("asymmetric", "floor")


def resize(shape, size, modes=ASYMMETRIC, *, layout=None, dtype="float32"):
    rank = len(size)
    operator = getattr(relax.op.image, f"resize{rank}d")
    coordinates, rounding = modes
    return build(
        {"x": tensor(*shape, dtype=dtype)},
        lambda _, x: operator(
            x,
            size,
            layout=layout or "NC" + "DHW"[-rank:],
            method="nearest_neighbor",
            coordinate_transformation_mode=coordinates,
            rounding_method=rounding,
        ),
    )


def divisions(mod):
    """The number of integer divisions in the indices of the lowered kernels."""
    with tvm.target.Target("llvm"):
        lowered = relax.transform.LegalizeOps()(mod)
    divisions = []
    for _, function in lowered.functions_items():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(function.body, (tirx.FloorDiv, divisions.append))
    return len(divisions)


NEAREST = [
    ASYMMETRIC,
    ("tf_half_pixel_for_nn", "floor"),
    *(
        (coordinates, rounding)
        for coordinates in ("half_pixel", "pytorch_half_pixel")
        for rounding in ("round", "round_prefer_floor", "round_prefer_ceil")
    ),
]
BY_FACTOR = list(product(NEAREST, [2, 3, 5, 8]))


@few(3)
@pytest.mark.parametrize(("modes", "factor"), BY_FACTOR if is_full() else BY_FACTOR[::6])
def test_nearest_resize_by_an_integer_factor(modes, factor, monkeypatch):
    """TVM's lowering, exact for a few float32 elements, selects the same elements."""
    mod = resize((1, 2, 4, 3), (4 * factor, 3 * factor), modes)
    assert divisions(mod) > 0
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 3)).astype("float32")
    got = run(mod, x, pipeline=pipeline())
    np.testing.assert_array_equal(got, x.repeat(factor, 2).repeat(factor, 3))
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    np.testing.assert_array_equal(got, run(mod, x, pipeline=pipeline()))


@pytest.mark.parametrize(
    ("size", "modes"),
    [
        ((8, 7), ASYMMETRIC),
        ((2, 3), ASYMMETRIC),
        ((8, 6), ("asymmetric", "ceil")),
        ((8, 6), ("asymmetric", "round")),
        ((8, 6), ("half_pixel", "floor")),
        ((8, 6), ("align_corners", "round")),
    ],
)
def test_others_are_lowered_as_before(size, modes, monkeypatch):
    mod = resize((1, 2, 4, 3), size, modes)
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 3)).astype("float32")
    got = run(mod, x, pipeline=pipeline())
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    np.testing.assert_array_equal(got, run(mod, x, pipeline=pipeline()))


@few(3)
@pytest.mark.parametrize("dtype", ["float64", "int32", "float16", "bfloat16", "uint8", "bool"])
def test_elements_are_unchanged(dtype):
    element = {"float64": 1 + 2**-50, "int32": 2**30 + 1}.get(dtype, 1)
    x = np.where(np.arange(24).reshape(1, 2, 3, 4) % 3 == 0, element, 0)
    x = x.astype(getattr(ml_dtypes, dtype, dtype))
    got = run(resize((1, 2, 3, 4), (6, 8), dtype=dtype), x, pipeline=pipeline())
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))
    assert got.dtype == x.dtype


@batched(1 if is_full() else 6)
@given(st.data())
def test_layouts_ranks_and_symbols(data):
    rank = data.draw(st.integers(2, 3), "rank")
    spatial = "DHW"[-rank:]
    layout = data.draw(st.sampled_from([f"NC{spatial}", f"N{spatial}C"]), "layout")
    extents = {letter: data.draw(st.integers(1, 20), letter) for letter in layout}
    factors = {letter: data.draw(st.integers(1, 4), f"factor {letter}") for letter in spatial}
    symbolic = data.draw(st.sets(st.sampled_from(layout)), "symbolic")
    shape = [
        tirx.Var(letter.lower(), "int64") if letter in symbolic else extents[letter]
        for letter in layout
    ]
    size = [shape[layout.index(letter)] * factors[letter] for letter in spatial]
    x = np.random.default_rng(0).standard_normal([extents[a] for a in layout]).astype("float32")
    want = x
    for letter in spatial:
        want = want.repeat(factors[letter], layout.index(letter))
    got = run(resize(shape, size, layout=layout), x, pipeline=pipeline())
    np.testing.assert_array_equal(got, want)


METHODS = [("linear", mode) for mode in ("half_pixel", "asymmetric", "align_corners")]
METHODS += [("cubic", "half_pixel"), ("nearest_neighbor", "asymmetric")]


def resized(shape, size, method, mode, *, dtype="float64", **attrs):
    operator = getattr(relax.op.image, f"resize{len(size)}d")
    attrs.setdefault("layout", "NC" + "DHW"[-len(size) :])
    return build(
        {"x": tensor(*shape, dtype=dtype)},
        lambda _, x: operator(
            x,
            relax.ShapeExpr(size),
            method=method,
            coordinate_transformation_mode=mode,
            rounding_method="floor" if method == "nearest_neighbor" else "",
            **attrs,
        ),
    )


@few(2)
@pytest.mark.parametrize(("method", "mode"), METHODS)
def test_float64_is_not_rounded(method, mode):
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 4))
    got = run(resized(x.shape, (7, 3), method, mode), x, pipeline=pipeline())
    modes = {"linear": "bilinear", "cubic": "bicubic", "nearest_neighbor": "nearest"}
    if (method, mode) == ("linear", "asymmetric"):
        rows, columns = (places(old, new) for old, new in ((5, 7), (4, 3)))
        want = np.einsum("ij,kl,ncjl->ncik", rows, columns, x)
    else:
        aligned = None if method == "nearest_neighbor" else mode == "align_corners"
        want = torch.nn.functional.interpolate(
            torch.from_numpy(x), (7, 3), mode=modes[method], align_corners=aligned
        ).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def places(old, new):
    """The interpolation weights along an axis with positions at multiples of old / new."""
    factors = np.zeros((new, old + 1))
    for i in range(new):
        low, part = divmod(i * old / new, 1)
        factors[i, int(low)] += 1 - part
        factors[i, int(low) + 1] += part
    factors[:, old - 1] += factors[:, old]
    return factors[:, :old]


SYMBOLIC = list(product(METHODS, ["float32", "float16", "bfloat16"]))


@few(2)
@pytest.mark.parametrize(("interpolation", "dtype"), SYMBOLIC if is_full() else SYMBOLIC[::4])
def test_symbolic_extents_are_resized_as_static_ones(interpolation, dtype):
    method, mode = interpolation
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 4))
    x = x.astype(getattr(ml_dtypes, dtype, dtype))
    n = tirx.Var("n", "int64")
    want = run(resized(x.shape, (10, 3), method, mode, dtype=dtype), x, pipeline=pipeline())
    mod = resized((1, 2, n, 4), (n * 2, 3), method, mode, dtype=dtype)
    got = run(mod, x, pipeline=pipeline())
    assert got.dtype == want.dtype
    tolerance = 1e-6 if dtype == "float32" else 1e-2
    np.testing.assert_allclose(
        got.astype("float32"), want.astype("float32"), rtol=tolerance, atol=tolerance
    )
    nothing = np.zeros((1, 2, 0, 4), x.dtype)
    assert run(mod, nothing, pipeline=pipeline()).shape == (1, 2, 0, 3)


def test_one_element_with_aligned_corners_is_the_first():
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 4)).astype("float32")
    mod = resized(x.shape, (1, 1), "linear", "align_corners", dtype="float32")
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), x[:, :, :1, :1])


IN_3D = [
    ("linear", "tf_crop_and_resize", {"extrapolation_value": 7.0}),
    ("cubic", "half_pixel", {"cubic_exclude": 1}),
]


@pytest.mark.parametrize(("method", "mode", "attrs"), IN_3D if is_full() else IN_3D[:1])
def test_each_axis_of_three_has_its_own_places(method, mode, attrs):
    x = np.random.default_rng(0).standard_normal((1, 1, 3, 4, 5)).astype("float32")
    # onnx's reference has the scales in float32: 2, 1/2 and 3 are exact.
    size, region = [6, 2, 15], np.array([0.1, -0.2, 0.3, 0.9, 0.95, 0.8], "float32")
    node = onnx.helper.make_node(
        "Resize",
        ["x", "region", "", "size"],
        ["y"],
        axes=[2, 3, 4],
        mode=method,
        coordinate_transformation_mode=mode,
        **{name.replace("cubic_exclude", "exclude_outside"): attrs[name] for name in attrs},
        cubic_coeff_a=-0.75,
    )
    feeds = {"x": x, "region": region, "size": np.array(size)}
    [want] = onnx.reference.ReferenceEvaluator(node).run(None, feeds)
    mod = resized(
        x.shape,
        size,
        method,
        mode,
        dtype="float32",
        roi=region.tolist(),
        cubic_alpha=-0.75,
        **attrs,
    )
    np.testing.assert_allclose(run(mod, x, pipeline=pipeline()), want, rtol=1e-6, atol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
