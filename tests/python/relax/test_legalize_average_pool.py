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
"""Average pooling of 16-bit floats."""

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.gpu_modules import run_on_gpu
from helpers.grids import few
from helpers.relax_modules import build, cpu, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.legalize.average_pool import FIX_ID
from tvm_fixes.support import ambient, switches
from tvm_fixes.tirx.transform.apply_gpu_schedule import ScheduledKernel

N = tirx.Var("n", "int64")
DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def average(shape, dtype, **options):
    rank = len(shape) - 2
    name = "adaptive_avg_pool" if "output_size" in options else "avg_pool"
    return build(
        {"x": tensor(*shape, dtype=dtype)},
        lambda _, x: getattr(relax.op.nn, f"{name}{rank}d")(x, **options),
    )


@few(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", ({"output_size": [1]}, {"pool_size": [70000]}))
def test_more_elements_than_the_dtype_counts(dtype, options):
    x = np.full((1, 2, 70000), 3, DTYPES[dtype])
    got = run(average(x.shape, dtype, **options), x, pipeline=pipeline())
    np.testing.assert_array_equal(got.astype("float32"), np.full((1, 2, 1), 3))


@pytest.mark.parametrize("options", ({"output_size": [2]}, {"pool_size": [4], "strides": [4]}))
def test_sums_beyond_the_dtype(options):
    x = np.full((1, 1, 8), 60000, "float16")
    got = run(average(x.shape, "float16", **options), x, pipeline=pipeline())
    np.testing.assert_array_equal(got, np.full((1, 1, 2), 60000))


@pytest.mark.parametrize("dtype", DTYPES)
def test_symbolic_extents(dtype):
    mod = average((1, 1, 1, N, 1), dtype, output_size=[3, 1, 2])
    for extent in (1, 5):
        x = np.arange(extent).reshape(1, 1, 1, extent, 1).astype(DTYPES[dtype])
        got = run(mod, x, pipeline=pipeline()).astype("float32")
        np.testing.assert_array_equal(got, np.full((1, 1, 3, 1, 2), (extent - 1) / 2))


@few(3)
@pytest.mark.parametrize(
    "extents, counts", (((7, 5, 3), (3, 5, 2)), ((2, 9), (5, 4)), ((1, 6), (3, 1)), ((11,), (4,)))
)
@pytest.mark.parametrize("is_symbolic", (False, True))
def test_windows_of_different_extents(extents, counts, is_symbolic):
    """The result is read twice, as by a Swish."""
    rank = len(extents)
    names = [tirx.Var(name, "int64") for name in "dhw"[:rank]] if is_symbolic else extents
    pool = getattr(relax.op.nn, f"adaptive_avg_pool{rank}d")
    mod = build(
        {"x": tensor(2, 3, *names)},
        lambda bb, x: relax.op.nn.silu(bb.emit(pool(x, list(counts)))),
    )
    x = np.random.default_rng(0).standard_normal((2, 3, *extents), "float32")
    expected = getattr(torch.nn.functional, f"adaptive_avg_pool{rank}d")(
        torch.from_numpy(x), counts
    )
    got = run(mod, x, pipeline=pipeline())
    np.testing.assert_allclose(
        got, torch.nn.functional.silu(expected).numpy(), rtol=1e-5, atol=1e-6
    )


def test_windows_in_another_layout():
    mod = average((2, 5, 7, 3), "float32", output_size=[2, 4], layout="NHWC")
    x = np.random.default_rng(0).standard_normal((2, 5, 7, 3), "float32")
    data = torch.from_numpy(x).permute(0, 3, 1, 2)
    expected = torch.nn.functional.adaptive_avg_pool2d(data, (2, 4)).permute(0, 2, 3, 1)
    got = run(mod, x, pipeline=pipeline())
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


@few(2)
@pytest.mark.parametrize("is_symbolic", [False, True])
@pytest.mark.parametrize("size", [(1, 5), (3, 2), (4, 7)])
def test_windows_of_different_extents_on_a_gpu(size, is_symbolic):
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 8), "float32")
    shape = (2, 3, 4, N) if is_symbolic else x.shape
    mod = average(shape, "float32", output_size=list(size))
    expected = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(x), size)
    with ambient.collect() as facts:
        got = run_on_gpu(mod, x)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)
    if not is_symbolic:
        assert "OneThread" not in {kernel.rule for kernel in facts.of(ScheduledKernel)}


def test_float32_uses_stock():
    mod = average((1, 2, 8), "float32", pool_size=[2])
    with switches.collect() as used:
        relax.build(mod, cpu(), relax_pipeline=pipeline())
    assert FIX_ID not in used


if __name__ == "__main__":
    tvm.testing.main()
