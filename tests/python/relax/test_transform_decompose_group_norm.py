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
from helpers.lowering import lowered_before
from helpers.relax_modules import build, count, run, tensor
from tvm_fixes.pipeline import stages
from tvm_fixes.relax.transform import DecomposeGroupNorm

NORM = "relax.nn.group_norm"


def norm(*shape, groups=4, dtype="float32", **options):
    channels = shape[1]
    types = {
        "x": tensor(*shape, dtype=dtype),
        "gamma": tensor(channels, dtype=dtype),
        "beta": tensor(channels, dtype=dtype),
    }
    axes = list(range(2, len(shape)))
    return build(
        types,
        lambda bb, x, gamma, beta: relax.op.nn.group_norm(
            x, gamma, beta, groups, channel_axis=1, axes=axes, **options
        ),
    )


def arguments(*shape, dtype="float32"):
    rng = np.random.default_rng(0)
    # The mean is large compared with the deviation.
    x = rng.standard_normal(shape) + 30
    return [
        a.astype(dtype) for a in (x, rng.uniform(0.5, 1.5, shape[1]), rng.normal(size=shape[1]))
    ]


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-4), ("float16", 1e-2)])
@pytest.mark.parametrize(
    "shape", [(1, 8, 64, 64), (2, 16, 32, 33), (1, 4, 8192), (1, 8, 8, 32, 32)]
)
def test_values(shape, dtype, tolerance):
    mod = norm(*shape, dtype=dtype)
    after = DecomposeGroupNorm()(mod)
    assert count(after, NORM) == 0 and count(after, "relax.sum") == 4
    x, gamma, beta = arguments(*shape, dtype=dtype)
    wide = (torch.from_numpy(a.astype("float64")) for a in (gamma, beta))
    expected = functional.group_norm(torch.from_numpy(x.astype("float64")), 4, *wide).numpy()
    got = run(after, x, gamma, beta)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("center, scale", [(False, True), (True, False)])
def test_without_center_or_scale(center, scale):
    mod = norm(1, 8, 64, 64, center=center, scale=scale)
    operands = arguments(1, 8, 64, 64)
    np.testing.assert_allclose(
        run(DecomposeGroupNorm()(mod), *operands), run(mod, *operands), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    "shape, groups",
    [((1, 8, 16, 16), 4), ((64, 8, 64, 64), 4), ((tirx.Var("n", "int64"), 8, 64, 64), 4)],
)
def test_norms_that_stay(shape, groups):
    mod = norm(*shape, groups=groups)
    tvm.ir.assert_structural_equal(DecomposeGroupNorm()(mod), mod)


def test_only_for_a_gpu():
    lowering, mod = stages(), norm(1, 8, 64, 64)
    with tvm.target.Target("llvm"):
        cpu = lowered_before(mod, lowering, lowering.lower)
    lowering = stages("gpu")
    with GPU:
        gpu = lowered_before(mod, lowering, lowering.lower)
    names = [[var.name_hint for var in each.get_global_vars()] for each in (cpu, gpu)]
    assert any("group_norm" in name for name in names[0])
    assert not any("group_norm" in name for name in names[1])


if __name__ == "__main__":
    tvm.testing.main()
