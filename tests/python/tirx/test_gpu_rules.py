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
"""tvm_fixes.tirx.gpu_rules: each rule computes what the kernel without a schedule does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax import op
from tvm.s_tir.dlight import gpu
from tvm.script import tirx as T
from tvm_ffi import structural_equal

from helpers.gpu_kernels import GPU, functions, kernels, thread_extents
from helpers.grids import few, is_full, sample
from helpers.simt import Fault, assert_equals_reference, execute
from tvm_fixes.tirx.gpu_kernel import why_not_runnable
from tvm_fixes.tirx.gpu_rules import LaunchPerBlock, OneThread, gpu_rules
from tvm_fixes.tirx.gpu_threads import ElementPerThread
from tvm_fixes.tirx.transform import ApplyGpuSchedule

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")


def ones(*shape: int) -> relax.Expr:
    return relax.const(np.ones(shape, "float32"))


def convolution(groups: int, *shape: int) -> Callable[..., relax.Expr]:
    def emit(_: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        sums = op.nn.conv2d(x, ones(*shape), groups=groups)
        return op.nn.relu(op.add(sums, relax.const(np.full((1, 1, 1, 1), 3, "float32"))))

    return emit


def batch_norm(_: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    scale, bias = ones(2), relax.const(np.zeros(2, "float32"))
    return op.nn.batch_norm(x, scale, bias, bias, scale, axis=1, training=True)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rank 0": (lambda _, x: op.exp(x), ()),
    "empty": (lambda _, x: op.exp(x), (0, 256)),
    "symbolic": (lambda _, x: op.exp(x), (N, 256)),
    "several outputs": (lambda _, x: op.split(x, 3, axis=1), (5, 9)),
    "other positions": (lambda _, x: op.nn.softmax(x), (N, M)),
    "sum of all": (lambda _, x: op.sum(x), (N, M)),
    "sum between": (lambda _, x: op.sum(x, axis=1), (N, M, N)),
    "argmax": (lambda _, x: op.argmax(x, axis=1), (5, 9)),
    "deviation": (lambda _, x: op.std(x, axis=1), (6, N)),
    "norm": (lambda _, x: op.nn.layer_norm(x, ones(9), ones(9), axes=[1]), (5, 9)),
    "norm of one": (batch_norm, (1, 2, 1)),
    "product": (lambda _, x: op.matmul(x, op.permute_dims(x)), (N, M)),
    "few rows": (lambda _, x: op.sum(op.multiply(x, ones(2)), axis=1), (2, 2)),
    "pool": (lambda _, x: op.nn.max_pool2d(x, (2, 2), (2, 2)), (1, 3, N, M)),
    "one channel": (convolution(1, 1, 1, 1, 1), (1, 1, 3, 5)),
    "short kernel": (convolution(1, 1, 1, 1, 2), (1, 1, 3, 10)),
    "groups": (convolution(2, 6, 2, 3, 3), (1, 4, 6, 6) if is_full() else (1, 4, 4, 4)),
    "divided otherwise": (
        lambda _, x: op.nn.relu(op.nn.conv2d(x, ones(4, 8, 2, 1), strides=2, groups=2)),
        (1, 16, 2, 3),
    ),
}
RULES = [*gpu_rules(GPU)]
# Not every rule applies to a kernel; these do.
ALWAYS = (LaunchPerBlock, OneThread)


SYMBOLIC = [name for name, (_, shape) in CASES.items() if {N, M} & set(shape)]
SIZES = ({"n": 7, "m": 10}, {"n": 1, "m": 1}, {"n": 0, "m": 3})


@few(2)
@pytest.mark.parametrize(
    "name, sizes",
    [
        *((name, SIZES[0]) for name in (CASES if is_full() else list(CASES)[::2])),
        *sample([(name, sizes) for name in SYMBOLIC for sizes in SIZES[1:]], 3),
    ],
)
def test_every_rule_computes_the_same(name, sizes):
    emit, shape = CASES[name]
    mod = kernels(emit, shape)
    before, used = functions(mod), set()
    checked = {kernel: [] for kernel in before}
    for rule in RULES:
        with GPU:
            after = functions(ApplyGpuSchedule([rule, OneThread()])(mod))
        for kernel, function in after.items():
            # Where a rule does not apply, the kernel is that of the last one.
            if any(structural_equal(function, other) for other in checked[kernel]):
                continue
            checked[kernel].append(function)
            assert_equals_reference(before[kernel], function, np.random.default_rng(0), sizes)
        used.add(type(rule))
    assert used.issuperset(ALWAYS)


@pytest.mark.parametrize("rule", [LaunchPerBlock(), OneThread()])
@pytest.mark.parametrize("name", CASES)
def test_the_last_rules_take_every_kernel(name, rule):
    with GPU:
        for function in functions(ApplyGpuSchedule([rule])(kernels(*CASES[name]))).values():
            assert why_not_runnable(function, GPU) is None


def test_threads_of_a_block():
    """A small output is spread over the GPU, and neighbors in a row are in one block."""
    for shape, blocks, threads in [((3, 5), 1, 32), ((30, 50), 6, 256), ((), 1, 32)]:
        [function] = functions(kernels(lambda _, x: op.exp(x), shape)).values()
        with GPU:
            schedule = ElementPerThread().apply(function, GPU, False)
        assert thread_extents(schedule.mod["main"]) == {
            "blockIdx.x": blocks,
            "threadIdx.x": threads,
        }


def test_no_thread_repeats_the_work_of_others():
    """Each element of a softmax needs the sum of its row."""
    [function] = functions(kernels(lambda _, x: op.nn.softmax(x), (30, 50))).values()
    with GPU:
        assert ElementPerThread().apply(function, GPU, False) is None


def test_a_large_result_of_one_launch_is_in_global_memory():
    """TVM would allocate it in the kernel, which no GPU can."""
    [function] = functions(kernels(lambda _, x: op.argmax(x, axis=1), (5000, 2))).values()
    with GPU:
        schedule = OneThread().apply(function, GPU, False)
    assert "alloc_buffer((T.int64(5000),)" in schedule.mod["main"].script()
    assert why_not_runnable(schedule.mod["main"], GPU) is None


def test_a_thread_has_no_registers_of_others():
    """TVM's rule divides the sums and what follows them differently among threads."""
    [function] = functions(kernels(*CASES["divided otherwise"])).values()
    with GPU:
        scheduled = gpu.Reduction().apply(function, GPU, False).mod["main"]
    reason = "a thread reads the registers of another one"
    assert why_not_runnable(scheduled, GPU) == reason


def test_the_interpreter_finds_what_tvm_writes_beyond_the_result():
    """Without a conjunction, TVM loses the predicate that the rule has set."""
    [function] = functions(kernels(*CASES["few rows"])).values()
    with GPU:
        stock = gpu.GEMV().apply(function, GPU, False).mod["main"]
    x, ones_, out = np.ones((2, 2), "float32"), np.ones(2, "float32"), np.zeros(2, "float32")
    with pytest.raises(Fault, match="has 2 elements, index 15"):
        execute(stock, [x, ones_, out])


def test_the_interpreter_finds_a_race():
    """Each thread adds to its row, but so do others."""

    @T.prim_func(s_tir=True)
    def racing(x: T.Buffer((64,), "float32"), out: T.Buffer((1,), "float32")):
        for i in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("sum"):
                v = T.axis.spatial(64, i)
                T.reads(x[v], out[0])
                T.writes(out[0])
                out[0] = out[0] + x[v]

    with pytest.raises(Fault, match=r"two threads access an element|different values"):
        execute(racing, [np.arange(64, dtype="float32"), np.zeros(1, "float32")])


if __name__ == "__main__":
    tvm.testing.main()
