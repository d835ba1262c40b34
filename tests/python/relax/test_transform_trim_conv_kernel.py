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
"""Kernels of convolutions that are larger than the data."""

import itertools

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.grids import sample
from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import TrimConvKernel
from tvm_fixes.target import resolve

FUNCTIONS = {
    1: torch.nn.functional.conv1d,
    2: torch.nn.functional.conv2d,
    3: torch.nn.functional.conv3d,
}


def convolution(shape, weight, **attributes):
    operator = getattr(relax.op.nn, f"conv{len(shape) - 2}d")
    constant = relax.const(weight)
    return build({"x": tensor(*shape)}, lambda _, x: operator(x, constant, **attributes))


def last_call(mod):
    """The convolution of a module."""
    return mod["main"].body.blocks[0].bindings[0].value


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def test_only_the_center_is_left():
    n, w = tirx.Var("n", "int64"), normal(8, 4, 3, 3)
    shape = (n, 4, 14, 14)
    before = convolution(shape, w, padding=[24, 24, 24, 24], dilation=[24, 24])
    center = np.ascontiguousarray(w[:, :, 1:2, 1:2])
    expected = convolution(shape, center, padding=[0, 0, 0, 0], dilation=[24, 24])
    tvm.ir.assert_structural_equal(TrimConvKernel()(before), expected, map_free_vars=True)


@pytest.mark.parametrize(
    ("extent", "dilation", "padding"),
    [(14, [12, 12], [12] * 4), (14, [13, 14], [13, 14, 13, 14]), ("h", [24, 24], [24] * 4),
     (14, [1, 1], [1] * 4)],
)  # fmt: skip
def test_other_kernels(extent, dilation, padding):
    """The first kernel meets the data; the second one does on one of two axes."""
    extent = tirx.Var(extent, "int64") if isinstance(extent, str) else extent
    mod = convolution(
        (1, 2, extent, extent), normal(2, 2, 3, 3), padding=padding, dilation=dilation
    )
    after = TrimConvKernel()(mod)
    weight = last_call(after).args[1]
    wanted = [2, 2, 3, 1] if 14 in dilation else [2, 2, 3, 3]
    assert list(map(int, weight.ty.shape.values)) == wanted
    assert after.same_as(mod) == (14 not in dilation)


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", "trim-conv-kernel")
    mod = convolution((1, 2, 9, 9), normal(2, 2, 3, 3), padding=[9] * 4, dilation=[9, 9])
    assert TrimConvKernel()(mod).same_as(mod)


GRID = [
    (extent, size, stride, dilation, before, after)
    for extent, size, stride, dilation, before, after in itertools.product(
        (1, 2, 5), (1, 2, 3, 4), (1, 2, 3), (1, 2, 5, 7), (0, 1, 6, 13), (0, 3, 7, 20)
    )
    if extent + before + after > dilation * (size - 1)
]


def test_results_are_those_of_the_whole_kernel():
    """All combinations by the formula of a convolution, in 1-D."""
    trimmed = 0
    chosen = sample(GRID, 300)
    for extent, size, stride, dilation, before, after in chosen:
        mod = convolution(
            (1, 1, extent),
            normal(1, 1, size),
            strides=[stride],
            dilation=[dilation],
            padding=[before, after],
        )
        call = last_call(TrimConvKernel()(mod))
        weight = call.args[1]
        x = torch.arange(1.0, extent + 1).reshape(1, 1, -1)
        w = torch.arange(1.0, size + 1).reshape(1, 1, -1)
        widths = tuple(map(int, call.attrs.padding))
        whole = FUNCTIONS[1](
            torch.nn.functional.pad(x, (before, after)), w, stride=stride, dilation=dilation
        )
        kept = int(weight.ty.shape.values[2])
        first = (before - widths[0]) // dilation
        part = FUNCTIONS[1](
            torch.nn.functional.pad(x, widths),
            w[:, :, first : first + kept],
            stride=stride,
            dilation=dilation,
        )
        assert min(widths) >= 0
        np.testing.assert_array_equal(part, whole)
        trimmed += kept < size
    assert trimmed > len(chosen) / 3


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_against_pytorch(rank):
    x, w = normal(2, 4, *[6, 5, 7][:rank]), normal(6, 2, *[3] * rank)
    widths = [9, 5, 8][:rank]
    mod = convolution(x.shape, w, padding=[*widths, *widths], dilation=widths, groups=2)
    assert not TrimConvKernel()(mod).same_as(mod)
    got = run(mod, x, pipeline=pipeline())
    function = FUNCTIONS[rank]
    expected = function(torch.tensor(x), torch.tensor(w), padding=widths, dilation=widths, groups=2)
    tvm.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_data_is_not_padded():
    mod = convolution((1, 16, 14, 14), normal(16, 16, 3, 3), padding=[24] * 4, dilation=[24, 24])
    with resolve("native"):
        lowered = pipeline()(mod)
    assert "62" not in lowered.script()


if __name__ == "__main__":
    tvm.testing.main()
