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
"""Lowering of relax.nn.rms_norm."""

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import few
from helpers.relax_modules import build, call, cpu, merge, run, tensor
from tvm_fixes import pipeline

SHAPE = (2, 4, 3, 5)
AXES = [[-1], [1], [0], [2, 3], [3, 2], [1, 3], [3, 1], [1, 2, 3], [3, 1, 2], [0, 1, 2, 3]]
UNIT = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}


def rms_norm(axes, shape=SHAPE, dtype="float32", epsilon=1e-5):
    weight = tensor(*(shape[axis] for axis in axes), dtype=dtype)
    return build(
        {"x": tensor(*shape, dtype=dtype), "weight": weight},
        lambda _, x, weight: relax.op.nn.rms_norm(x, weight, axes, epsilon),
    )


def draw(axes, dtype="float32", scale=1.0):
    rng = np.random.default_rng(len(axes))
    x = scale * rng.standard_normal(SHAPE)
    weight = rng.uniform(0.5, 2, [SHAPE[axis] for axis in axes])
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return x.astype(kind), weight.astype(kind)


def reference(x, weight, axes, epsilon=1e-5):
    """In float64; axis k of the weight is that of ``axes[k]``."""
    x, weight = x.astype("float64"), weight.astype("float64")
    axes = [axis % x.ndim for axis in axes]
    expanded = np.moveaxis(
        weight.reshape(weight.shape + (1,) * (x.ndim - weight.ndim)), range(len(axes)), axes
    )
    mean_square = (x**2).mean(tuple(axes), keepdims=True)
    return x / np.sqrt(mean_square + epsilon) * expanded


def assert_close(got, expected, dtype):
    # Sums and quotients in float32 or wider, and one rounding to the dtype.
    units = UNIT[dtype] + 16 * min(UNIT["float32"], UNIT[dtype])
    np.testing.assert_allclose(got.astype("float64"), expected, rtol=units, atol=0)


@pytest.fixture(scope="module")
def built():
    mods = {
        f"f{index}_{dtype}": rms_norm(axes, dtype=dtype)
        for index, axes in enumerate(AXES)
        for dtype in UNIT
    }
    return relax.VirtualMachine(relax.build(merge(mods), cpu()), tvm.cpu())


@few(12)
@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("index", range(len(AXES)), ids=[str(axes) for axes in AXES])
def test_any_axes_in_any_order(built, index, dtype):
    x, weight = draw(AXES[index], dtype)
    got = call(built, f"f{index}_{dtype}", x, weight)
    assert got.dtype == x.dtype
    assert_close(got, reference(x, weight, AXES[index]), dtype)


def test_squares_that_float16_cannot_hold(built):
    x, weight = draw([1], "float16", scale=3e3)
    assert np.abs(x).max() > 256  # the square is more than float16 can hold
    got = call(built, "f1_float16", x, weight)
    assert_close(got, reference(x, weight, [1]), "float16")


def test_extents_known_at_run_time():
    n, h = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("h", "int64")
    x, weight = draw([2, 1])
    got = run(rms_norm([2, 1], (n, 4, h, 5)), x, weight)
    assert_close(got, reference(x, weight, [2, 1]), "float32")


@pytest.mark.parametrize("shape", ((2, 3, 0), (0, 3, 2), (2, 0, 3)))
def test_no_elements(shape):
    x, weight = np.zeros(shape, "float32"), np.zeros(shape[2:], "float32")
    assert run(rms_norm([2], shape), x, weight, pipeline=pipeline()).shape == shape


def test_epsilon_is_that_of_the_call():
    x, weight = draw([1])
    got = run(rms_norm([1], epsilon=0.5), x, weight)
    assert_close(got, reference(x, weight, [1], 0.5), "float32")


if __name__ == "__main__":
    tvm.testing.main()
