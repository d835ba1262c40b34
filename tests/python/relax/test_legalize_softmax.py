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
"""Softmax, compared with PyTorch in float64."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from hypothesis import given
from tvm import relax, tirx
from tvm_ffi import structural_walk

from helpers.grids import few
from helpers.relax_modules import build, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.legalize.softmax import FIX_ID

TOLERANCES = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-13}


def module(shape, axis=-1, dtype="float32"):
    return build({"x": tensor(*shape, dtype=dtype)}, lambda _, x: relax.op.nn.softmax(x, axis))


def check(mod, x, axis, tolerance):
    expected = torch.from_numpy(x.astype("float64")).softmax(axis).numpy()
    got = run(mod, x, pipeline=pipeline()).astype("float64")
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * expected.max())


@given(st.data())
def test_all_axes(data):
    shape = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3), "shape")
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), "axis")
    dtype = data.draw(st.sampled_from(["float16", "float32", "float64"]), "dtype")
    scale = data.draw(st.sampled_from([0.0, 1.0, 30.0]), "scale")
    x = (np.random.default_rng(0).standard_normal(shape) * scale).astype(dtype)
    check(module(shape, axis, dtype), x, axis, TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_long_rows_of_16_bits_sum_up_to_1(dtype):
    import ml_dtypes  # noqa: F401

    x = np.zeros((2, 4096), np.dtype(dtype))
    check(module(x.shape, dtype=dtype), x, -1, TOLERANCES[dtype])


def test_nan_and_infinity():
    """As in PyTorch, the whole row becomes NaN, but other rows do not."""
    x = np.random.default_rng(0).standard_normal((5, 33)).astype("float32")
    x[0, 3], x[1, 4], x[2] = np.nan, np.inf, -np.inf
    x[3, ::2] = -np.inf
    expected = torch.from_numpy(x).softmax(-1).numpy()
    got = run(module(x.shape), x, pipeline=pipeline())
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert np.isnan(got[:3]).all() and not np.isnan(got[3:]).any()


def test_large_and_small_numbers():
    x = np.array([[1e30, -1e30, 0], [88, 89, 90], [-1000, -1001, -1e4]], "float32")
    check(module(x.shape), x, -1, 1e-6)


@few(2)
@pytest.mark.parametrize("extents", [(1, 1), (3, 5), (9, 197), (0, 4)])
def test_symbolic_extents(extents):
    shape = [tirx.Var(name, "int64") for name in "nm"]
    x = np.random.default_rng(0).standard_normal(extents).astype("float32")
    if x.size:
        check(module(shape), x, -1, 1e-6)
    else:
        assert run(module(shape), x, pipeline=pipeline()).shape == extents


def test_one_division_a_row(monkeypatch):
    """TVM's lowering divides each element."""
    mod = module((4, 64))

    def divided():
        with tvm.target.Target("llvm"):
            lowered = relax.transform.LegalizeOps()(mod)
        blocks: list[tvm.s_tir.SBlock] = []
        structural_walk(lowered["softmax"].body, (tvm.s_tir.SBlock, blocks.append))
        return [
            len(block.iter_vars)
            for block in blocks
            if isinstance(block.body, tirx.BufferStore) and isinstance(block.body.value, tirx.Div)
        ]

    assert divided() == [1]
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    assert divided() == [2]


if __name__ == "__main__":
    tvm.testing.main()
