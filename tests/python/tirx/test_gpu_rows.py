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

import itertools

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.gpu_kernels import GPU, functions
from helpers.grids import few, is_full
from helpers.lowering import lowered_before
from helpers.relax_modules import build, tensor
from helpers.simt import assert_equals_reference
from tvm_fixes.lowering import stages
from tvm_fixes.support import ambient
from tvm_fixes.target.gpu import with_limits
from tvm_fixes.tirx.gpu_kernel import why_not_runnable
from tvm_fixes.tirx.gpu_rows import BlockPerRow, OneResult, WarpPerRow
from tvm_fixes.tirx.transform import ApplyGpuSchedule
from tvm_fixes.tirx.transform.apply_gpu_schedule import ScheduledKernel

op = relax.op


def softmax(_, x):
    return op.nn.softmax(x)


def log_softmax(_, x):
    return op.nn.log_softmax(x)


def layer_norm(_, x):
    ones = relax.const(np.ones(int(x.ty.shape[-1]), str(x.ty.dtype)))
    return op.nn.layer_norm(x, ones, ones, axes=[-1])


def narrowed(builder, x):
    """The norm and the casts around it are one kernel."""
    wide = builder.emit(op.astype(x, "float32"))
    return op.astype(builder.emit(op.nn.softmax(wide)), "float16")


def kernel_of(emit, *shape, dtype="float32") -> tirx.PrimFunc:
    mod = build({"x": tensor(*shape, dtype=dtype)}, emit)
    lowering = stages("gpu")
    with GPU:
        kernels = functions(lowered_before(mod, lowering, "Lower"))
    [kernel] = [each for name, each in kernels.items() if name != "cast"]
    return kernel


SHORT_ROWS = [
    (softmax, (16, 12, 17, 37), "float32"),
    (layer_norm, (2052, 64), "float32"),
    (narrowed, (8, 300, 45), "float16"),
    (softmax, (2053, 32), "float32"),
    (log_softmax, (2100, 197), "float32"),
    (narrowed, (2050, 256), "float16"),
]


@few(1)
@pytest.mark.parametrize("emit, shape, dtype", SHORT_ROWS if is_full() else SHORT_ROWS[:3])
def test_values_of_short_rows(emit, shape, dtype):
    check(WarpPerRow(), emit, shape, dtype)


LONG_ROWS = [
    (softmax, (1030, 768), "float16"),
    (log_softmax, (3, 1536), "float32"),
    (layer_norm, (9, 768), "float32"),
    (narrowed, (2, 3, 640), "float16"),
    (softmax, (3, 4096), "float32"),
    (softmax, (3, 5, 2048), "float16"),
    (layer_norm, (2, 3, 1024), "float16"),
]


@few(2)
@pytest.mark.parametrize("emit, shape, dtype", LONG_ROWS if is_full() else LONG_ROWS[:4])
def test_values_of_long_rows(emit, shape, dtype):
    check(BlockPerRow(), emit, shape, dtype)


REDUCTIONS = [
    (op.sum, "float32"),
    (op.sum, "int32"),
    (op.prod, "float32"),
    (op.mean, "float32"),
    (op.variance, "float32"),
    (lambda x: op.nn.relu(op.std(x)), "float32"),
    (lambda x: op.sum(op.abs(x), keepdims=True), "float32"),
    (lambda x: op.max(x), "int32"),
]
WHOLE = list(itertools.product(REDUCTIONS, [(5, 7, 300), (3,)]))


@few(2)
@pytest.mark.parametrize("reduction, shape", WHOLE if is_full() else WHOLE[::3])
def test_values_of_one_result(reduction, shape):
    reduce, dtype = reduction
    check(OneResult(), lambda _, x: reduce(x), shape, dtype)


def check(rule, emit, shape, dtype):
    """The interpreter also finds races, and accesses out of bounds."""
    kernel = kernel_of(emit, *shape, dtype=dtype)
    schedule = rule.apply(kernel, with_limits(GPU), False)
    assert schedule is not None
    assert why_not_runnable(schedule.mod["main"], with_limits(GPU)) is None
    assert_equals_reference(kernel, schedule.mod["main"], np.random.default_rng(0))


n = tirx.Var("n", "int64")


@pytest.mark.parametrize(
    "emit, shape",
    [
        (softmax, (2047, 64)),
        (softmax, (4096, 31)),
        (softmax, (4096, 513)),
        (softmax, (n, 64)),
        (lambda _, x: op.add(x, x), (4096, 64)),
        (lambda _, x: op.sum(x, [-1]), (4096, 64)),
        (lambda _, x: op.nn.softmax(x, axis=0), (64, 4096)),
    ],
)
def test_kernels_without_many_short_rows(emit, shape):
    assert WarpPerRow().apply(kernel_of(emit, *shape), with_limits(GPU), False) is None


@pytest.mark.parametrize(
    "emit, shape",
    [
        (softmax, (4096, 512)),
        (softmax, (16, 1021)),
        (softmax, (16, 1 << 15)),
        (softmax, (n, 1024)),
        (lambda _, x: op.sum(x, [-1]), (64, 1024)),
    ],
)
def test_kernels_without_long_rows_of_vectors(emit, shape):
    assert BlockPerRow().apply(kernel_of(emit, *shape), with_limits(GPU), False) is None


@pytest.mark.parametrize("shape, rule", [((4096, 64), "WarpPerRow"), ((64, 1024), "BlockPerRow")])
def test_the_rules_are_used(shape, rule):
    kernel = kernel_of(softmax, *shape)
    with GPU, ambient.collect() as facts:
        ApplyGpuSchedule()(tvm.IRModule({"main": kernel}))
    assert [(each.rule, each.failures) for each in facts.of(ScheduledKernel)] == [(rule, ())]


if __name__ == "__main__":
    tvm.testing.main()
