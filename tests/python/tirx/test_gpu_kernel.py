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
"""tvm_fixes.tirx.gpu_kernel."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import tirx as T

from helpers.gpu_kernels import GPU, functions, kernels
from helpers.gpu_modules import run_on_gpu, scheduled
from helpers.relax_modules import build, tensor
from helpers.simt import Fault, execute
from tvm_fixes.support import ambient
from tvm_fixes.tirx.gpu_kernel import (
    keep_predicates,
    read_results_first,
    reason_of,
    why_not_runnable,
)
from tvm_fixes.tirx.transform import ApplyGpuSchedule
from tvm_fixes.tirx.transform.apply_gpu_schedule import ScheduledKernel


def copy(*extents: int, tags: tuple[str, ...]) -> tirx.PrimFunc:
    """A kernel that copies an element in each thread."""
    count = 1
    for extent in extents:
        count *= extent

    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((count,), "float32"), out: T.Buffer((count,), "float32")):
        for i in T.thread_binding(extents[0], thread=tags[0]):
            for j in T.thread_binding(extents[1], thread=tags[1]):
                with T.sblock("copy"):
                    v = T.axis.spatial(count, i * extents[1] + j)
                    T.reads(x[v])
                    T.writes(out[v])
                    out[v] = x[v]

    return kernel


def through(scope: str, count: int) -> tirx.PrimFunc:
    """A kernel that copies `count` elements through memory of a scope."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((count,), "float32"), out: T.Buffer((count,), "float32")):
        with T.sblock("root"):
            held = T.sblock_alloc_buffer((count,), scope=scope)
            for _ in T.thread_binding(1, thread="blockIdx.x"):
                for _ in T.thread_binding(1, thread="threadIdx.x"):
                    for i in range(count):
                        with T.sblock("load"):
                            v = T.axis.spatial(count, i)
                            held[v] = x[v]
                    for i in range(count):
                        with T.sblock("store"):
                            v = T.axis.spatial(count, i)
                            out[v] = held[count - 1 - v]

    return kernel


@pytest.mark.parametrize(
    "kernel, reason",
    [
        (copy(8, 32, tags=("blockIdx.x", "threadIdx.x")), None),
        (copy(65535, 32, tags=("blockIdx.y", "threadIdx.x")), None),
        (
            copy(65536, 32, tags=("blockIdx.y", "threadIdx.x")),
            "the extent of blockIdx.y is 65536, but at most 65535 are allowed",
        ),
        (
            copy(8, 1025, tags=("blockIdx.x", "threadIdx.x")),
            "the extent of threadIdx.x is 1025, but at most 1024 are allowed",
        ),
        (
            copy(64, 32, tags=("threadIdx.y", "threadIdx.x")),
            "a block has 2048 threads, but at most 1024 are allowed",
        ),
        (through("shared", 12 << 10), None),
        (
            through("shared", 13 << 10),
            "it allocates 53248 bytes of shared memory, but at most 49152 are allowed",
        ),
        (through("shared.dyn", 13 << 10), None),
        (
            through("shared.dyn", 64 << 10),
            "it allocates 262144 bytes of dynamic shared memory, but at most 232448 are allowed",
        ),
        (through("local", 1 << 10), None),
        (
            through("local", 2 << 10),
            "it allocates 8192 bytes of local memory, but at most 4096 are allowed",
        ),
    ],
)
def test_limits(kernel, reason):
    assert why_not_runnable(kernel, GPU) == reason


def through_both(static: int, dynamic: int) -> tirx.PrimFunc:
    """A kernel that copies data through both kinds of shared memory, of the given sizes."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((static,), "float32"), out: T.Buffer((static,), "float32")):
        with T.sblock("root"):
            first = T.sblock_alloc_buffer((static,), scope="shared")
            second = T.sblock_alloc_buffer((dynamic,), scope="shared.dyn")
            for _ in T.thread_binding(1, thread="blockIdx.x"):
                for _ in T.thread_binding(1, thread="threadIdx.x"):
                    for i in range(static):
                        with T.sblock("load"):
                            v = T.axis.spatial(static, i)
                            first[v] = x[v]
                    for i in range(dynamic):
                        with T.sblock("pass"):
                            v = T.axis.spatial(dynamic, i)
                            second[v] = first[v % static]
                    for i in range(static):
                        with T.sblock("store"):
                            v = T.axis.spatial(static, i)
                            out[v] = second[dynamic - 1 - v]

    return kernel


@pytest.mark.parametrize(
    "static, dynamic, reason",
    [
        (4 << 10, 8 << 10, None),
        (
            4 << 10,
            9 << 10,
            "it allocates 53248 bytes of dynamic shared memory, but at most 49152 are allowed",
        ),
        (4 << 10, 12 << 10, None),
    ],
)
def test_both_kinds_of_shared_memory(static, dynamic, reason):
    """TVM's runtime raises the limit only if the dynamic memory exceeds it by itself."""
    assert why_not_runnable(through_both(static, dynamic), GPU) == reason


def test_global_memory_within_a_kernel():
    reason = why_not_runnable(through("global", 8), GPU)
    assert "global memory" in reason


def test_a_grid_that_is_too_large_for_tvms_rule():
    """Its rule for products has a block along y for each matrix."""

    def product(_, x):
        return relax.op.matmul(x, relax.op.permute_dims(x, (0, 2, 1)))

    with GPU, ambient.collect() as facts:
        functions(ApplyGpuSchedule()(kernels(product, (70000, 33, 33))))
    [failures] = [each.failures for each in facts.of(ScheduledKernel) if each.failures]
    assert failures[0] == (
        "Matmul (the extent of blockIdx.y is 70000, but at most 65535 are allowed)"
    )


def test_a_single_comparison_becomes_a_conjunction():
    @T.prim_func(private=True, s_tir=True)
    def before(x: T.Buffer((5, 32), "float32"), out: T.Buffer((5,), "float32")):
        for i in T.thread_binding(8, thread="threadIdx.y"):
            for k in T.thread_binding(32, thread="threadIdx.x"):
                with T.sblock("sum"):
                    v, w = T.axis.remap("SR", [i, k])
                    T.where(i < 5)
                    with T.init():
                        out[v] = T.float32(0)
                    out[v] = out[v] + x[v, w]

    @T.prim_func(private=True, s_tir=True)
    def expected(x: T.Buffer((5, 32), "float32"), out: T.Buffer((5,), "float32")):
        for i in T.thread_binding(8, thread="threadIdx.y"):
            for k in T.thread_binding(32, thread="threadIdx.x"):
                with T.sblock("sum"):
                    v, w = T.axis.remap("SR", [i, k])
                    T.where(i < 5 and i < 5)
                    with T.init():
                        out[v] = T.float32(0)
                    out[v] = out[v] + x[v, w]

    tvm.ir.assert_structural_equal(keep_predicates(before), expected)
    tvm.ir.assert_structural_equal(keep_predicates(expected), expected)
    x, out = np.ones((5, 32), "float32"), np.zeros(5, "float32")
    with pytest.raises(Fault, match="has 5 elements, index 7"):
        execute(before, [x, out])
    execute(expected, [x, out])
    np.testing.assert_array_equal(out, 32)


def test_a_reason_is_one_short_line():
    assert reason_of(ValueError("program\nError message: it\nfails")) == "it fails"
    assert len(reason_of(ValueError("long " * 100))) == 200


@pytest.mark.parametrize("updates", (0, 3))
def test_each_launch_of_a_scheduled_kernel_is_skipped_if_it_is_empty(updates: int) -> None:
    """A copy is made even if no updates follow it, and they do not write then."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(var_x: T.handle, var_update: T.handle, var_out: T.handle):
        T.func_attr({"tirx.is_scheduled": True})
        n, m = T.int64(), T.int64()
        x, out = T.match_buffer(var_x, (n,)), T.match_buffer(var_out, (n,))
        update = T.match_buffer(var_update, (m,))
        with T.sblock("scatter"):
            T.reads()
            T.writes()
            with T.launch_thread("blockIdx.x", n) as i:
                out[i] = x[i]
            with T.launch_thread("blockIdx.x", m) as j:
                out[j] = update[j]

    with GPU:
        after = ApplyGpuSchedule()(tvm.IRModule({"main": kernel}))["main"]
    x, update = np.arange(5, dtype="float32"), np.full(updates, 9, "float32")
    out = np.zeros(5, "float32")
    execute(after, [x, update, out])
    np.testing.assert_array_equal(out, [*update, *x[updates:]])


@pytest.mark.parametrize("window", [2, 3])
def test_an_accumulator_in_global_memory_is_read_first(window):
    """Of two loads in the branches of a choice, nvcc may make one from the read-only cache."""
    mod = build(
        {"x": tensor(1, 1, 4)}, lambda _, x: relax.op.nn.max_pool1d(x, [window], strides=[1])
    )
    text = scheduled(mod)["max_pool1d"].script()
    assert "old: T.let[T.float32] = max_pool" in text or "old = max_pool" in text
    combined = text[text.index("old") :]
    assert "Select(" in combined
    assert "> old" in combined
    x = np.array([[[4, 1, -3, -1]]], "float32")
    expected = [[[x[0, 0, i : i + window].max() for i in range(5 - window)]]]
    np.testing.assert_array_equal(run_on_gpu(mod, x), expected)


def test_the_two_results_of_a_reduction_are_read_first():
    """An index and a value: each is the old one or that of another element."""
    mod = build({"x": tensor(5, 333, dtype="int64")}, lambda _, x: relax.op.argmax(x, axis=1))
    steps = [f for f in scheduled(mod).functions.values() if isinstance(f, tirx.PrimFunc)]
    reductions = [text for text in (f.script() for f in steps) if "partial_v1" in text]
    assert len(reductions) == 2
    for text in reductions:
        combined = text[text.index("v_partial_v0: ") :]
        assert combined.count("partial_v0[") == combined.count("partial_v1[") == 1
    x = np.random.default_rng(0).integers(-2, 2, (5, 333))
    np.testing.assert_array_equal(run_on_gpu(mod, x), x.argmax(1))


def test_elements_that_are_replaced_twice_are_read_each_time():
    @T.prim_func(s_tir=True)
    def kernel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("y"):
                v = T.axis.spatial(4, i)
                y[v] = T.max(y[v], x[v])
                y[v] = y[v] * T.float32(2)

    @T.prim_func(s_tir=True)
    def expected(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("y"):
                v = T.axis.spatial(4, i)
                old: T.let[T.float32] = y[v]
                y[v] = T.max(old, x[v])
                old_1: T.let[T.float32] = y[v]
                y[v] = old_1 * T.float32(2)

    expected = expected.with_attr("global_symbol", "kernel")
    tvm.ir.assert_structural_equal(read_results_first(kernel), expected)


if __name__ == "__main__":
    tvm.testing.main()
