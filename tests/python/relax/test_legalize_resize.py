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

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from tvm import relax, tirx
from tvm_ffi import structural_walk

from relax_helpers import build, run, tensor
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
    """How many indices of the lowered kernels are integer divisions."""
    with tvm.target.Target("llvm"):
        lowered = relax.transform.LegalizeOps()(mod)
    found = []
    for _, function in lowered.functions_items():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(function.body, (tirx.FloorDiv, found.append))
    return len(found)


@pytest.mark.parametrize(
    "modes",
    [
        ASYMMETRIC,
        ("tf_half_pixel_for_nn", "floor"),
        *(
            (coordinates, rounding)
            for coordinates in ("half_pixel", "pytorch_half_pixel")
            for rounding in ("round", "round_prefer_floor", "round_prefer_ceil")
        ),
    ],
)
@pytest.mark.parametrize("factor", [2, 3, 5, 8])
def test_what_repeats_each_element(modes, factor, monkeypatch):
    """TVM's lowering, which is exact for few elements of float32, takes the same ones."""
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


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16", "bfloat16", "uint8", "bool"])
def test_elements_stay_as_they_are(dtype):
    element = {"float64": 1 + 2**-50, "int32": 2**30 + 1}.get(dtype, 1)
    x = np.where(np.arange(24).reshape(1, 2, 3, 4) % 3 == 0, element, 0)
    x = x.astype(getattr(ml_dtypes, dtype, dtype))
    got = run(resize((1, 2, 3, 4), (6, 8), dtype=dtype), x, pipeline=pipeline())
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))
    assert got.dtype == x.dtype


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


if __name__ == "__main__":
    tvm.testing.main()
