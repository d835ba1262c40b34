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
"""Lowering of relax.nn.batch_norm."""

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import few
from helpers.lowering import lowered_before
from helpers.relax_modules import build, calls, integers, run, tensor
from tvm_fixes.lowering import stages
from tvm_fixes.support import switches

UNIT = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}


def batch_norm(dtype: str) -> tvm.IRModule:
    def emit(builder, x, *params):
        return builder.emit(relax.op.nn.batch_norm(x, *params, axis=1, training=False)[0])

    names = ("gamma", "beta", "mean", "variance")
    vectors = {name: tensor(3, dtype=dtype) for name in names}
    return build({"x": tensor(2, 3, 4, dtype=dtype)} | vectors, emit)


def arrays(dtype: str) -> list[np.ndarray]:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    vectors = [integers(3, seed=seed) for seed in (1, 2, 3)]
    variance = np.array([1, 2, 4], "float32")
    return [array.astype(kind) for array in (integers(2, 3, 4), *vectors, variance)]


@pytest.mark.parametrize("dtype", UNIT)
def test_result_has_the_dtype_of_its_type(dtype):
    args = arrays(dtype)
    got = run(batch_norm(dtype), *args)
    assert got.dtype == args[0].dtype
    x, gamma, beta, mean, variance = (array.astype("float64") for array in args)
    scale, shift, mean = (v[:, None] for v in (gamma / np.sqrt(variance + 1e-5), beta, mean))
    expected = (x - mean) * scale + shift
    # One rounding of a result of magnitude up to 36, plus the rounding of the arithmetic.
    bound = 36 * (UNIT[dtype] + 8 * min(UNIT["float32"], UNIT[dtype]))
    np.testing.assert_allclose(got.astype("float64"), expected, rtol=0, atol=bound)


@few(2)
@pytest.mark.parametrize("dtype", UNIT)
def test_statistics_of_the_batch(dtype):
    """Sums that float16 cannot hold: 4096 elements of mean 100."""

    def emit(builder, x, *params):
        call = relax.op.nn.batch_norm(x, *params, axis=1, momentum=0.25, training=True)
        return builder.emit(call)

    names = ("gamma", "beta", "mean", "variance")
    vectors = {name: tensor(2, dtype=dtype) for name in names}
    mod = build({"x": tensor(1, 2, 64, 64, dtype=dtype)} | vectors, emit)
    rng = np.random.default_rng(0)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    parameters = [rng.uniform(0.5, 2, 2) for _ in names]
    args = [a.astype(kind) for a in (rng.normal(100, 1, (1, 2, 64, 64)), *parameters)]
    got = run(mod, *args)
    assert [result.dtype for result in got] == [args[0].dtype] * 3

    x, gamma, beta, mean, variance = (array.astype("float64") for array in args)
    batch_mean, batch_variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    scale, shift, center = (
        v[:, None, None] for v in (gamma / np.sqrt(batch_variance + 1e-5), beta, batch_mean)
    )
    expected = (
        (x - center) * scale + shift,
        0.75 * mean + 0.25 * batch_mean,
        0.75 * variance + 0.25 * batch_variance,
    )
    # A plain float32 sum of 4096 such elements is off by at most 4096 ulp, usually far less.
    atol = 1e-3 if dtype != "float64" else 1e-12
    for result, reference in zip(got, expected, strict=True):
        np.testing.assert_allclose(result.astype("float64"), reference, rtol=UNIT[dtype], atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_in_more_bits_is_left_to_tvm(monkeypatch, dtype):
    def emit(builder, x, *params):
        return builder.emit(relax.op.nn.batch_norm(x, *params, axis=1, training=True)[0])

    vectors = {name: tensor(3, dtype=dtype) for name in ("gamma", "beta", "mean", "variance")}
    mod = build({"x": tensor(2, 3, 4, dtype=dtype)} | vectors, emit)
    legalize = relax.transform.LegalizeOps()
    ours = legalize(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "batch-norm-legalize")
    tvm.ir.assert_structural_equal(ours, legalize(mod))


@few(3)
@pytest.mark.parametrize("axis", [1, -1, 0])
@pytest.mark.parametrize(("center", "scale"), [(True, False), (False, True), (False, False)])
def test_statistics_without_center_and_scale(axis, center, scale):
    shape = (3, 3, 3)
    names = ("gamma", "beta", "mean", "variance")

    def emit(builder, x, *params):
        call = relax.op.nn.batch_norm(
            x, *params, axis=axis, epsilon=0.5, center=center, scale=scale, training=False
        )
        return builder.emit(call)

    mod = build({"x": tensor(*shape)} | {name: tensor(3) for name in names}, emit)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype("float32")
    vectors = rng.uniform(0.5, 2, (4, 3)).astype("float32")
    got = run(mod, x, *vectors)
    along = [-1 if i == axis % 3 else 1 for i in range(3)]
    gamma, beta, mean, variance = (v.astype("float64").reshape(along) for v in vectors)
    expected = (x - mean) / np.sqrt(variance + 0.5) * (gamma if scale else 1)
    np.testing.assert_allclose(got[0], expected + (beta if center else 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got[1], vectors[2])
    np.testing.assert_array_equal(got[2], vectors[3])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_is_fused_with_a_convolution(dtype):
    """The fused norm is a multiply-add with compile-time constants."""
    rng = np.random.default_rng(0)
    constants = [relax.const(v.astype(dtype)) for v in rng.uniform(0.5, 2, (4, 16))]
    kernel = relax.const(rng.standard_normal((16, 8, 3, 3)).astype(dtype))

    def emit(builder, x):
        conv = builder.emit(relax.op.nn.conv2d(x, kernel))
        norm = builder.emit(relax.op.nn.batch_norm(conv, *constants, axis=1, training=False))
        return builder.emit(relax.op.nn.relu(builder.emit(relax.TupleGetItem(norm, 0))))

    lowering = stages()
    with tvm.target.Target("llvm"):
        mod = build({"x": tensor(1, 8, 6, 6, dtype=dtype)}, emit)
        mod = lowering["InlineElementwise"](lowered_before(mod, lowering, "InlineElementwise"))
    assert len([call for call in calls(mod) if call.op.name == "relax.call_tir"]) == 1


if __name__ == "__main__":
    tvm.testing.main()
