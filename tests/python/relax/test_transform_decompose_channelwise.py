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
"""The pass DecomposeChannelwise."""

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch.nn import functional
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.grids import few
from helpers.relax_modules import build, call, calls, count, cpu, merge, tensor
from tvm_fixes.relax.transform import DecomposeChannelwise
from tvm_fixes.support import switches

pytestmark = pytest.mark.native

SHAPE = (2, 8, 3, 5)


def emit_batch_norm(builder, x, gamma, beta, mean, variance):
    return builder.emit(op.nn.batch_norm(x, gamma, beta, mean, variance, 1, training=False)[0])


def emit_instance_norm(_builder, x, gamma, beta, *_):
    return op.nn.instance_norm(x, gamma, beta, 1, [2, 3], epsilon=1e-3)


def emit_group_norm(_builder, x, gamma, beta, *_):
    return op.nn.group_norm(x, gamma, beta, 2, 1, [2, 3], epsilon=1e-3)


def emit_prelu(_builder, x, gamma, *_):
    return op.nn.prelu(x, gamma, 1)


# Each operator with its PyTorch reference.
OPERATORS = {
    "batch_norm": (emit_batch_norm, lambda x, g, b, m, v: functional.batch_norm(x, m, v, g, b)),
    "instance_norm": (
        emit_instance_norm,
        lambda x, g, b, *_: functional.instance_norm(x, weight=g, bias=b, eps=1e-3),
    ),
    "group_norm": (
        emit_group_norm,
        lambda x, g, b, *_: functional.group_norm(x, 2, g, b, eps=1e-3),
    ),
    "prelu": (emit_prelu, lambda x, g, *_: functional.prelu(x, g)),
}
UNIT = {"float16": 2**-11, "float32": 2**-24, "float64": 2**-53}


def module(name, shape=SHAPE, dtype="float32"):
    vectors = {f"v{i}": tensor(8, dtype=dtype) for i in range(4)}
    return build({"x": tensor(*shape, dtype=dtype)} | vectors, OPERATORS[name][0])


def dynamic_shape():
    batch, height, width = (tvm.tirx.Var(name, "int64") for name in "nhw")
    return batch, 8, height, width


def draw(dtype="float32", offset=0.0):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(SHAPE) + offset
    return [x.astype(dtype)] + [rng.uniform(0.5, 1.5, 8).astype(dtype) for _ in range(4)]


def expected(name, arguments):
    return OPERATORS[name][1](*(torch.from_numpy(a.astype("float64")) for a in arguments)).numpy()


@pytest.fixture(scope="module")
def built():
    mods = {f"{name}_{dtype}": module(name, dtype=dtype) for name in OPERATORS for dtype in UNIT}
    mods |= {f"{name}_dynamic": module(name, dynamic_shape()) for name in OPERATORS}
    decomposed = DecomposeChannelwise()(merge(mods))
    assert relax.analysis.check_well_formed(decomposed)
    assert not any(found.op.name.startswith("relax.nn.") for found in calls(decomposed))
    return relax.VirtualMachine(relax.build(decomposed, cpu()), tvm.cpu())


@few(5)
@pytest.mark.parametrize("variant", [*UNIT, "dynamic"])
@pytest.mark.parametrize("name", OPERATORS)
def test_numbers_equal_pytorch(built, name, variant):
    dtype = "float32" if variant == "dynamic" else variant
    arguments = draw(dtype)
    got = call(built, f"{name}_{variant}", *arguments)
    assert got.dtype == dtype
    # Values up to 8; arithmetic in float32 or wider, and one rounding to the dtype.
    bound = 8 * (UNIT[dtype] + 8 * min(UNIT["float32"], UNIT[dtype]))
    np.testing.assert_allclose(got, expected(name, arguments), rtol=0, atol=bound)


@pytest.mark.parametrize("name", ["instance_norm", "group_norm"])
def test_a_large_mean_costs_no_digits_of_the_variance(built, name):
    """As a difference of two means near a million, the variance of 1 would cancel."""
    arguments = draw(offset=1000.0)
    got = call(built, f"{name}_float32", *arguments)
    # The mean itself is accurate to 1000 ulp.
    np.testing.assert_allclose(got, expected(name, arguments), rtol=0, atol=4000 * UNIT["float32"])


def test_prelu_propagates_nan(built):
    arguments = draw()
    arguments[0][0, 0, 0, :3] = np.nan, np.inf, -np.inf
    got = call(built, "prelu_float32", *arguments)
    np.testing.assert_array_equal(got[0, 0, 0, :3], [np.nan, np.inf, -np.inf])


def test_instance_norm():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 8, 3, 5), "float32"),
            gamma: R.Tensor((8,), "float32"),
            beta: R.Tensor((8,), "float32"),
        ) -> R.Tensor((2, 8, 3, 5), "float32"):
            with R.dataflow():
                gv = R.nn.instance_norm(x, gamma, beta, 1, [2, -1], 0.5)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 8, 3, 5), "float32"),
            gamma: R.Tensor((8,), "float32"),
            beta: R.Tensor((8,), "float32"),
        ) -> R.Tensor((2, 8, 3, 5), "float32"):
            with R.dataflow():
                mean = R.mean(x, axis=[2, -1], keepdims=True)
                centered = R.subtract(x, mean)
                squares = R.multiply(centered, centered)
                variance = R.mean(squares, axis=[2, -1], keepdims=True)
                shifted = R.add(variance, R.const(0.5, "float32"))
                deviation = R.rsqrt(shifted)
                factors = R.reshape(gamma, R.shape([1, 8, 1, 1]))
                scale = R.multiply(deviation, factors)
                scaled = R.multiply(centered, scale)
                offsets = R.reshape(beta, R.shape([1, 8, 1, 1]))
                gv = R.add(scaled, offsets)
                R.output(gv)
            return gv

    tvm.ir.assert_structural_equal(DecomposeChannelwise()(Before), Expected)


def test_one_slope_for_all_channels_is_a_scalar():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 8), "float16"), alpha: R.Tensor((1,), "float16")) -> R.Tensor(
            (2, 8), "float16"
        ):
            with R.dataflow():
                gv = R.nn.prelu(x, alpha, axis=-1)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 8), "float16"), alpha: R.Tensor((1,), "float16")) -> R.Tensor(
            (2, 8), "float16"
        ):
            with R.dataflow():
                slope = R.reshape(alpha, R.shape([]))
                zero = R.astype(R.const(0, "float32"), "float16")
                positive = R.greater(x, zero)
                scaled = R.multiply(x, slope)
                gv = R.where(positive, x, scaled)
                R.output(gv)
            return gv

    tvm.ir.assert_structural_equal(DecomposeChannelwise()(Before), Expected)


def test_batch_norm_keeps_all_its_results():
    vectors = {f"v{i}": tensor(8) for i in range(4)}
    before = build(
        {"x": tensor(*SHAPE)} | vectors,
        lambda _, x, *v: op.nn.batch_norm(x, *v, axis=1, training=False),
    )
    after = DecomposeChannelwise()(before)
    arguments = draw()
    vm = relax.VirtualMachine(relax.build(after, cpu()), tvm.cpu())
    normalized, mean, variance = call(vm, "main", *arguments)
    np.testing.assert_allclose(normalized, expected("batch_norm", arguments), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(mean, arguments[3])
    np.testing.assert_array_equal(variance, arguments[4])


def test_calls_in_branches():
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((2, 8), "float32"),
            alpha: R.Tensor((8,), "float32"),
            condition: R.Tensor((), "bool"),
        ) -> R.Tensor((2, 8), "float32"):
            if condition:
                y = R.nn.prelu(x, alpha, axis=1)
            else:
                y = R.nn.relu(x)
            return y

    after = DecomposeChannelwise()(Module)
    assert relax.analysis.check_well_formed(after)
    assert count(after, "relax.nn.prelu") == 0


@pytest.mark.parametrize(
    "shape, emit",
    [
        (SHAPE, lambda b, x, *v: b.emit(op.nn.batch_norm(x, *v, axis=1, training=True)[0])),
        (
            SHAPE,
            lambda b, x, *v: b.emit(op.nn.batch_norm(x, *v, 1, scale=False, training=False)[0]),
        ),
        (SHAPE, lambda _, x, g, b, *__: op.nn.instance_norm(x, g, b, 1, [2, 3], center=False)),
        (
            (2, tvm.tirx.Var("c", "int64"), 3, 5),
            lambda _, x, g, b, *__: op.nn.group_norm(x, g, b, 2, 1, [2, 3]),
        ),
        (None, lambda _, x, g, *__: op.nn.prelu(x, g, 1)),
    ],
    ids=["training", "without scale", "without offset", "symbolic groups", "unknown shape"],
)
def test_unsafe_loads_are_kept(shape, emit):
    data = relax.TensorType(None, "float32", ndim=4) if shape is None else tensor(*shape)
    before = build({"x": data} | {f"v{i}": tensor(8) for i in range(4)}, emit)
    assert DecomposeChannelwise()(before)["main"].same_as(before["main"])


def test_switched_off(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "decompose-channelwise")
    before = module("group_norm")
    assert DecomposeChannelwise()(before)["main"].same_as(before["main"])


if __name__ == "__main__":
    tvm.testing.main()
