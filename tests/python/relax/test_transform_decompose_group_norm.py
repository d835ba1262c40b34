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
"""DecomposeGroupNorm."""

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch.nn import functional
from tvm import relax, tirx

from helpers.gpu_kernels import GPU
from helpers.grids import is_full
from helpers.lowering import lowered_before
from helpers.relax_modules import build, count, run, tensor
from tvm_fixes.lowering import stages
from tvm_fixes.relax.transform import DecomposeGroupNorm

NORM = "relax.nn.group_norm"


def norm(*shape, groups=4, dtype="float32", axis=1, **options):
    channels = shape[axis]
    types = {
        "x": tensor(*shape, dtype=dtype),
        "gamma": tensor(channels, dtype=dtype),
        "beta": tensor(channels, dtype=dtype),
    }
    axes = [each for each in range(1, len(shape)) if each != axis % len(shape)]
    return build(
        types,
        lambda bb, x, gamma, beta: relax.op.nn.group_norm(
            x, gamma, beta, groups, channel_axis=axis, axes=axes, **options
        ),
    )


def arguments(*shape, dtype="float32", axis=1):
    rng = np.random.default_rng(0)
    # The mean is large compared with the deviation.
    x = rng.standard_normal(shape) + 30
    channels = shape[axis]
    return [
        a.astype(dtype) for a in (x, rng.uniform(0.5, 1.5, channels), rng.normal(size=channels))
    ]


def check(mod, dtype, axis, *shape):
    after = DecomposeGroupNorm()(mod)
    assert count(after, NORM) == 0
    x, gamma, beta = arguments(*shape, dtype=dtype, axis=axis)
    data, *parameters = (torch.from_numpy(a.astype("float64")) for a in (x, gamma, beta))
    expected = functional.group_norm(data.movedim(axis, 1), 4, *parameters).movedim(1, axis)
    got = run(after, x, gamma, beta)
    assert got.dtype == dtype
    tolerance = {"float32": 1e-4, "float16": 1e-2}[dtype]
    np.testing.assert_allclose(got, expected.numpy(), rtol=tolerance, atol=tolerance)
    return after


SECOND = [
    (shape, sums, dtype)
    for dtype in ("float32", "float16")
    for shape, sums in [
        ((1, 8, 64, 64), 4),
        ((2, 16, 32, 33), 4),
        ((1, 4, 8192), 4),
        ((1, 8, 8, 32, 32), 4),
        ((3, 8, 5, 7), 2),
        ((70, 8, 16, 16), 2),
    ]
]
LAST = [
    (shape, dtype)
    for dtype in ("float32", "float16")
    for shape in ((1, 64, 64, 8), (2, 32, 33, 16), (1, 8, 32, 32, 8), (3, 5, 7, 8), (2, 8))
]


@pytest.mark.parametrize("shape, sums, dtype", SECOND if is_full() else SECOND[:6:2] + SECOND[7::2])
def test_channels_second(shape, sums, dtype):
    after = check(norm(*shape, dtype=dtype), dtype, 1, *shape)
    assert count(after, "relax.sum") == sums


@pytest.mark.parametrize("shape, dtype", LAST if is_full() else LAST[::2])
def test_channels_last(shape, dtype):
    check(norm(*shape, dtype=dtype, axis=-1), dtype, -1, *shape)


@pytest.mark.parametrize("axis", [1, -1])
def test_symbolic_extents(axis):
    n, h = tirx.Var("n", "int64"), tirx.Var("h", "int64")
    shape = (n, 8, h, 6) if axis == 1 else (n, h, 6, 8)
    for batch, height in ((3, 7), (1, 1)):
        extents = (batch, 8, height, 6) if axis == 1 else (batch, height, 6, 8)
        check(norm(*shape, axis=axis), "float32", axis, *extents)


def test_expected():
    mod = norm(1, 8, 64, 64)

    def decomposed(bb, x, gamma, beta):
        def mean(y):
            for axis in (3, 2):
                y = bb.emit(relax.op.sum(y, [axis], keepdims=True))
            return bb.emit(relax.op.multiply(y, relax.const(1 / 8192, "float32")))

        grouped = bb.emit(relax.op.reshape(x, [1, 4, 8, 1024]))
        average = mean(grouped)
        centered = bb.emit(relax.op.subtract(grouped, average))
        variance = mean(bb.emit(relax.op.multiply(centered, centered)))
        scale = bb.emit(relax.op.add(variance, relax.const(1e-5, "float32")))
        scale = bb.emit(relax.op.rsqrt(scale))
        again = bb.emit(relax.op.subtract(grouped, average))
        y = bb.emit(relax.op.reshape(bb.emit(relax.op.multiply(again, scale)), [1, 8, 64, 64]))
        y = bb.emit(relax.op.multiply(y, bb.emit(relax.op.reshape(gamma, [1, 8, 1, 1]))))
        return bb.emit(relax.op.add(y, bb.emit(relax.op.reshape(beta, [1, 8, 1, 1]))))

    types = {"x": tensor(1, 8, 64, 64), "gamma": tensor(8), "beta": tensor(8)}
    tvm.ir.assert_structural_equal(DecomposeGroupNorm()(mod), build(types, decomposed))


@pytest.mark.parametrize("center, scale", [(False, True), (True, False)])
def test_without_center_or_scale(center, scale):
    mod = norm(1, 8, 64, 64, center=center, scale=scale)
    operands = arguments(1, 8, 64, 64)
    np.testing.assert_allclose(
        run(DecomposeGroupNorm()(mod), *operands), run(mod, *operands), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    "shape, options",
    [
        ((1, 8, 16, 16), {"dtype": "float64"}),
        ((1, 16, 8, 16), {"axis": 2}),
        ((0, 8, 4, 4), {}),
        ((1, 8, 0, 4), {}),
    ],
)
def test_norms_that_are_kept(shape, options):
    mod = norm(*shape, **options)
    tvm.ir.assert_structural_equal(DecomposeGroupNorm()(mod), mod)


def test_only_for_a_gpu():
    lowering, mod = stages(), norm(1, 8, 64, 64)
    with tvm.target.Target("llvm"):
        cpu = lowered_before(mod, lowering, "Lower")
    lowering = stages("gpu")
    with GPU:
        gpu = lowered_before(mod, lowering, "Lower")
    names = [[var.name_hint for var in each.get_global_vars()] for each in (cpu, gpu)]
    assert any("group_norm" in name for name in names[0])
    assert not any("group_norm" in name for name in names[1])


if __name__ == "__main__":
    tvm.testing.main()
