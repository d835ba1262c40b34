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

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax
from tvm.s_tir import SBlock
from tvm_ffi import structural_walk

from helpers.grids import few
from helpers.relax_modules import build, call, cpu, merge, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.errors import UnsupportedOperatorError
from tvm_fixes.relax.legalize.reductions import FIX_ID
from tvm_fixes.support import switches

INF, NAN = np.inf, np.nan
ROWS = [
    [-INF, -INF, -INF],
    [INF, INF, INF],
    [1, NAN, 2],
    [NAN, 1, NAN],
    [-INF, 2, 2],
    [3, -INF, INF],
    [0, -1, -1],
]
EXTREMA = {"max": torch.amax, "min": torch.amin, "argmax": torch.argmax, "argmin": torch.argmin}
FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "uint8", "int32", "int64"]


def reduction(name, shape, dtype="float32", axis=1, keepdims=False):
    operator = getattr(relax.op, name)
    return build({"x": tensor(*shape, dtype=dtype)}, lambda _, x: operator(x, axis, keepdims))


@pytest.fixture(scope="module")
def built():
    mods = {
        f"{name}_{dtype}": reduction(name, (rows, 3), dtype)
        for name in EXTREMA
        for dtypes, rows in ((FLOATS, len(ROWS)), (INTEGERS, 4))
        for dtype in dtypes
    }
    for name in EXTREMA:
        for axis in (None, 0, 1, 2):
            mods[f"{name}_{axis}"] = reduction(name, (2, 3, 4), axis=axis, keepdims=True)
        mods[f"{name}_bool"] = reduction(name, (3, 2), "bool")
    return relax.VirtualMachine(relax.build(merge(mods), cpu()), tvm.cpu())


@few(5)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EXTREMA)
def test_infinities_and_nan_are_as_in_pytorch(built, name, dtype):
    x = np.array(ROWS)
    expected = EXTREMA[name](torch.tensor(x), dim=1).numpy()
    got = call(built, f"{name}_{dtype}", x.astype(ml_dtypes.bfloat16 if "b" in dtype else dtype))
    np.testing.assert_array_equal(got.astype("float64"), expected)


@few(5)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", EXTREMA)
def test_limits_of_integers(built, name, dtype):
    limits = np.iinfo(dtype)
    rows = [[limits.min] * 3, [limits.max] * 3, [limits.max, limits.min, limits.max], [1, 2, 2]]
    x = np.array(rows, dtype)
    expected = EXTREMA[name](torch.tensor(x), dim=1).numpy()
    np.testing.assert_array_equal(call(built, f"{name}_{dtype}", x), expected)


@few(2)
@pytest.mark.parametrize("name", EXTREMA)
def test_booleans(built, name):
    x = np.array([[False, False], [True, True], [False, True]])
    expected = EXTREMA[name](torch.tensor(x.astype("uint8")), dim=1).numpy()
    np.testing.assert_array_equal(call(built, f"{name}_bool", x), expected)


@few(5)
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("name", EXTREMA)
def test_every_axis(built, name, axis):
    x = np.random.default_rng(0).integers(0, 9, (2, 3, 4)).astype("float32")
    expected = getattr(np, name)(x, axis, keepdims=True)
    np.testing.assert_array_equal(call(built, f"{name}_{axis}", x), expected)


@pytest.mark.parametrize(("name", "result"), [("max", -INF), ("min", INF), ("mean", NAN)])
def test_no_elements(name, result):
    n = tvm.tirx.Var("n", "int64")
    for extent in (0, n):
        got = run(reduction(name, (2, extent)), np.zeros((2, 0), "float32"), pipeline=pipeline())
        np.testing.assert_array_equal(got, np.full(2, result, "float32"))


@pytest.mark.parametrize("name", ["variance", "std"])
def test_no_elements_are_known(name):
    got = run(reduction(name, (2, 0), "float16"), np.zeros((2, 0), "float16"), pipeline=pipeline())
    np.testing.assert_array_equal(got, np.full(2, NAN, "float16"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bits_are_wide(dtype):
    """With TVM's pipeline, which sums sequentially."""
    threes = np.full((2, 40000), 3, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for name, values, expected in (
        ("mean", threes, 3),
        ("variance", threes, 0),
        ("sum", threes[:, :4096], 3 * 4096),
        ("prod", np.ones_like(threes), 1),
    ):
        got = run(reduction(name, values.shape, dtype), values)
        np.testing.assert_array_equal(got.astype("float32"), np.full(2, expected, "float32"))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_cpu_searches_the_extremum_before_its_index(dtype):
    """LLVM vectorizes no reduction of pairs."""
    mod = build({"x": tensor(4, 40, dtype=dtype)}, lambda _, x: relax.op.argmax(x, 1))
    for target, results in ((cpu(), [1, 1]), (tvm.target.Target("cuda"), [2])):
        with target:
            function = relax.transform.LegalizeOps()(mod)["argmax"]
        blocks: list[SBlock] = []
        structural_walk(function.body, (SBlock, blocks.append))
        assert [len(block.writes) for block in blocks if block.init is not None] == results


def test_argmax_of_no_elements_is_rejected():
    n = tvm.tirx.Var("n", "int64")
    with pytest.raises(UnsupportedOperatorError, match="axis 1 has no elements"):
        run(reduction("argmax", (2, 0)), np.zeros((2, 0), "float32"), pipeline=pipeline())
    mod = reduction("argmax", (2, n))
    np.testing.assert_array_equal(run(mod, np.eye(2, dtype="float32")), [0, 1])
    with pytest.raises(RuntimeError, match=r"T.max\(n, 1\)"):
        run(mod, np.zeros((2, 0), "float32"))


def test_integers_and_statistics_use_stock(monkeypatch):
    mods = [
        reduction("max", (2, 3), "int32"),
        reduction("mean", (2, 3)),
        reduction("mean", (2, 3), "int64"),
    ]
    ours = [relax.transform.LegalizeOps()(mod) for mod in mods]
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    for mod, lowered in zip(mods, ours, strict=True):
        tvm.ir.assert_structural_equal(lowered, relax.transform.LegalizeOps()(mod))


if __name__ == "__main__":
    tvm.testing.main()
