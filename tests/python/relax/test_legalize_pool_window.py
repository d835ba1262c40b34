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
"""Poolings whose window is larger than the data."""

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from hypothesis import given
from tvm import relax, tirx
from tvm.s_tir import SBlock
from tvm_ffi import structural_walk

from helpers.relax_modules import build, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.legalize.pool_window import FIX_ID


def pool(kind, shape, size, *, stride=None, padding=0, include=True, layout=None):
    rank = len(shape) - 2
    options = {"layout": layout} if layout else {}
    return build(
        {"x": tensor(*shape)},
        lambda _, x: getattr(relax.op.nn, f"{kind}_pool{rank}d")(
            x,
            pool_size=[size] * rank,
            strides=[stride or size] * rank,
            padding=[padding] * (2 * rank),
            ceil_mode=True,
            count_include_pad=include,
            **options,
        ),
    )


def largest_buffer(mod):
    with tvm.target.Target("llvm"):
        lowered = relax.transform.LegalizeOps()(mod)
    sizes = [0]

    def look(block):
        sizes.extend(math.prod(map(int, buffer.shape)) for buffer in block.alloc_buffers)

    for _, function in lowered.functions_items():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(function.body, (SBlock, look))
    return max(sizes)


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_the_data_stays_as_large_as_it_is(kind, monkeypatch):
    mod = pool(kind, (1, 2, 7, 7), 90)
    assert largest_buffer(mod) <= 2 * 14 * 14
    if kind == "avg":
        monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
        assert largest_buffer(mod) >= 2 * 90 * 90


@given(st.data())
def test_all_ranks(data):
    """Windows smaller than, equal to and larger than the data, with and without padding."""
    kind = data.draw(st.sampled_from(["avg", "max"]), "kind")
    rank = data.draw(st.integers(1, 3), "rank")
    shape = (2, 3, *(data.draw(st.integers(1, 6)) for _ in range(rank)))
    size = data.draw(st.integers(1, 9), "size")
    padding = data.draw(st.integers(0, size // 2), "padding")
    include = data.draw(st.booleans(), "include")
    functional = getattr(torch.nn.functional, f"{kind}_pool{rank}d")
    more = {"count_include_pad": include} if kind == "avg" else {}
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    try:
        expected = functional(torch.from_numpy(x), size, size, padding, ceil_mode=True, **more)
    except RuntimeError:
        # It rejects 3-D averages.
        hypothesis.reject()
    mod = pool(kind, shape, size, padding=padding, include=include)
    # PyTorch omits windows that contain only padding.
    hypothesis.assume([int(n) for n in mod["main"].ret_ty.shape.values] == list(expected.shape))
    got = run(mod, x, pipeline=pipeline())
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_channels_last():
    x = np.random.default_rng(0).standard_normal((1, 5, 4, 3)).astype("float32")
    got = run(pool("avg", x.shape, 50, layout="NHWC"), x, pipeline=pipeline())
    np.testing.assert_allclose(got, x.mean((1, 2), keepdims=True), rtol=1e-5, atol=1e-6)


def test_symbolic_extents_are_left():
    n = tirx.Var("n", "int64")
    mod = pool("max", (n, 2, 5, 5), 9)
    x = np.random.default_rng(0).standard_normal((3, 2, 5, 5)).astype("float32")
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), x.max((2, 3), keepdims=True))


if __name__ == "__main__":
    tvm.testing.main()
