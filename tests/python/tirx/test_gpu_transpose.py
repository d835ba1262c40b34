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
"""Transpose copies tiles of a tensor to shared memory."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import tirx as T

from helpers.gpu_kernels import GPU, functions
from helpers.grids import few
from helpers.lowering import lowered_before
from helpers.relax_modules import build, tensor
from helpers.simt import assert_equals_reference
from tvm_fixes.lowering import stages
from tvm_fixes.support import ambient
from tvm_fixes.target.gpu import with_limits
from tvm_fixes.tirx.gpu_kernel import why_not_runnable
from tvm_fixes.tirx.gpu_transpose import Transpose
from tvm_fixes.tirx.transform import ApplyGpuSchedule
from tvm_fixes.tirx.transform.apply_gpu_schedule import ScheduledKernel

op = relax.op


def permuted(*axes):
    return lambda _, x: op.permute_dims(x, axes)


def with_bias_and_residual(builder, x, bias, residual):
    last = builder.emit(op.permute_dims(x, [0, 2, 3, 1]))
    return op.nn.relu(builder.emit(op.add(builder.emit(op.add(last, bias)), residual)))


def sum_of_two(builder, x, y):
    first, second = (builder.emit(op.permute_dims(z, [0, 2, 1])) for z in (x, y))
    return op.add(first, second)


def kernel_of(emit, *shapes, dtype="float32") -> tirx.PrimFunc:
    types = {f"x{i}": tensor(*shape, dtype=dtype) for i, shape in enumerate(shapes)}
    lowering = stages("gpu")
    with GPU:
        kernels = functions(lowered_before(build(types, emit), lowering, "Lower"))
    [kernel] = kernels.values()
    return kernel


def scheduled(kernel):
    return Transpose().apply(kernel, with_limits(GPU), False)


@few(4)
@pytest.mark.parametrize(
    "emit, shapes, dtype",
    [
        (permuted(1, 0), [(512, 256)], "float32"),
        (permuted(1, 0), [(512, 384)], "float16"),
        (permuted(1, 0), [(512, 512)], "int8"),
        (permuted(1, 0), [(399, 621)], "float32"),
        (permuted(0, 2, 3, 1), [(4, 128, 14, 14)], "float16"),
        (permuted(0, 2, 3, 1), [(64, 48, 7, 7)], "float32"),
        (permuted(0, 3, 1, 2), [(2, 28, 28, 64)], "float16"),
        (permuted(3, 2, 1, 0), [(64, 4, 3, 128)], "float32"),
        (permuted(2, 1, 0), [(32, 64, 197)], "float16"),
        (with_bias_and_residual, [(2, 64, 28, 28), (64,), (2, 28, 28, 64)], "float16"),
        (sum_of_two, [(8, 64, 196)] * 2, "float32"),
    ],
)
def test_values(emit, shapes, dtype):
    """The interpreter also finds races, and accesses out of bounds."""
    kernel = kernel_of(emit, *shapes, dtype=dtype)
    schedule = scheduled(kernel)
    assert schedule is not None
    assert why_not_runnable(schedule.mod["main"], with_limits(GPU)) is None
    assert_equals_reference(kernel, schedule.mod["main"], np.random.default_rng(0))


n = tirx.Var("n", "int64")


@pytest.mark.parametrize(
    "emit, shape",
    [
        pytest.param(permuted(0, 2, 1, 3), (8, 64, 12, 64), id="the last axis stays"),
        pytest.param(permuted(1, 0), (64, 64), id="few elements"),
        pytest.param(permuted(1, 0), (n, 512), id="a symbolic extent"),
        pytest.param(permuted(1, 0), (1021, 1019), id="long axes without divisors"),
        pytest.param(lambda _, x: op.add(x, x), (512, 512), id="no transpose"),
        pytest.param(lambda _, x: op.sum(x, [0]), (512, 512), id="a reduction"),
    ],
)
def test_kernels_that_other_rules_take(emit, shape):
    assert scheduled(kernel_of(emit, shape)) is None


def test_booleans_and_diagonals_are_left_to_other_rules():
    assert scheduled(kernel_of(permuted(1, 0), (512, 256), dtype="bool")) is None

    @T.prim_func(private=True, s_tir=True)
    def diagonal(x: T.Buffer((512, 512), "float32"), y: T.Buffer((512, 512), "float32")) -> None:
        for i, j in T.grid(512, 512):
            with T.sblock("diagonal"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = x[b, b]

    assert scheduled(diagonal) is None


def test_the_rule_is_used():
    kernel = kernel_of(permuted(0, 2, 3, 1), (2, 64, 28, 28))
    with GPU, ambient.collect() as facts:
        ApplyGpuSchedule()(tvm.IRModule({"main": kernel}))
    assert [(each.rule, each.failures) for each in facts.of(ScheduledKernel)] == [("Transpose", ())]


if __name__ == "__main__":
    tvm.testing.main()
