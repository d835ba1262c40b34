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
"""ApplyGpuSchedule."""

import re

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax.backend.cuda import pipeline as stock
from tvm.s_tir import Schedule
from tvm.s_tir.dlight import ScheduleRule
from tvm_ffi import structural_walk

from helpers.gpu_kernels import GPU, functions, kernels, one_after_another, run, thread_extents
from helpers.lowering import lowered_before
from helpers.relax_modules import build, integers, tensor
from tvm_fixes.errors import CompileError, UsageError
from tvm_fixes.lowering import stages
from tvm_fixes.support import ambient
from tvm_fixes.support.declined import NotDone
from tvm_fixes.support.switches import Applied
from tvm_fixes.target import cuda
from tvm_fixes.tirx.gpu_rules import gpu_rules
from tvm_fixes.tirx.gpu_threads import ElementPerThread
from tvm_fixes.tirx.transform import ApplyGpuSchedule, DecomposeReduction
from tvm_fixes.tirx.transform.apply_gpu_schedule import ScheduledKernel

[STOCK] = [step for step in stock.legalize_passes(GPU) if step.info.name == "ApplyDefaultSchedule"]
KERNEL = integers(6, 2, 3, 3, seed=1)


def argmax(builder, x):
    return relax.op.argmax(x, axis=1)


def grouped(builder, x):
    return relax.op.nn.relu(relax.op.nn.conv2d(x, relax.const(KERNEL), groups=2))


def one_channel(builder, x):
    return relax.op.nn.conv2d(x, relax.const(KERNEL[:1, :1, :1, :2]))


def means(builder, x):
    return relax.op.mean(relax.op.mean(relax.op.sigmoid(x), axis=-1), axis=-1)


FAILING = {
    "argmax": (argmax, (5, 9)),
    "grouped": (grouped, (1, 4, 6, 6)),
    "one channel": (one_channel, (1, 1, 3, 10)),
    "means": (means, (6, 6)),
}
"""Operators that do not build with TVM's pass."""


def scheduled(mod: tvm.IRModule, *rules: ScheduleRule) -> dict[str, tirx.PrimFunc]:
    with GPU:
        return functions(ApplyGpuSchedule(rules or None)(mod))


def lower(function: tirx.PrimFunc) -> None:
    tvm.tirx.build(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), GPU)


@pytest.mark.parametrize("name", FAILING)
def test_what_does_not_build_with_tvms_pass(name):
    for function in scheduled(kernels(*FAILING[name])).values():
        assert "threadIdx.x" in thread_extents(function)
        assert function.attrs["tirx.is_scheduled"]
        lower(function)


@pytest.mark.parametrize("name", FAILING)
def test_tvms_pass_fails(name):
    with pytest.raises(Exception, match=r"reduction|global memory|'value'|block_realize"), GPU:
        for function in functions(STOCK(kernels(*FAILING[name]))).values():
            lower(function)


def test_argmax_is_right():
    [function] = scheduled(kernels(*FAILING["argmax"])).values()
    x = np.random.default_rng(0).standard_normal((5, 9)).astype("float32")
    x[0], x[1, 4] = -np.inf, np.nan
    out = np.full(5, 7)
    run(function, x, out)
    np.testing.assert_array_equal(out, x.argmax(axis=1))


def test_a_result_after_a_reduction_is_right():
    """The sum is in a register of the thread that uses it."""
    [function] = scheduled(kernels(*FAILING["grouped"]), ElementPerThread()).values()
    assert 'scope="local"' in function.script()
    x = integers(1, 4, 6, 6, seed=2)
    out = np.full((1, 6, 4, 4), 7, "float32")
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    halves = zip(np.split(windows, 2), np.split(KERNEL, 2), strict=True)
    expected = np.concatenate([np.einsum("chwyx,ocyx->ohw", data, k) for data, k in halves])
    arguments = [x, KERNEL, out] if len(function.params) == 3 else [x, out]
    run(function, *arguments)
    np.testing.assert_array_equal(out[0], np.maximum(expected, 0))


def test_good_schedules_of_tvm_are_kept():
    mod = kernels(lambda builder, x: relax.op.sum(x, axis=1), (5, 9))
    with GPU:
        tvm.ir.assert_structural_equal(ApplyGpuSchedule()(mod.clone()), STOCK(mod.clone()))


def test_switched_off_it_is_tvms_pass(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", "gpu-schedule")
    mod = kernels(lambda builder, x: relax.op.exp(x), (5, 9))
    with GPU:
        tvm.ir.assert_structural_equal(ApplyGpuSchedule()(mod.clone()), STOCK(mod.clone()))


@pytest.mark.parametrize("size", [0, 3])
def test_a_sum_over_nothing_is_zero(size):
    columns = tirx.Var("k", "int64")
    mod = build({"x": tensor(3, columns)}, lambda builder, x: relax.op.sum(x, axis=1))
    with GPU:
        mod = DecomposeReduction()(relax.transform.LegalizeOps()(mod))
    [function] = scheduled(mod, ElementPerThread()).values()
    assert "threadIdx.x" in thread_extents(function)
    lower(function)
    x, out = integers(3, size), np.full(3, 7, "float32")
    run(function, x, out)
    np.testing.assert_array_equal(out, x.sum(axis=1))


def test_reductions_among_threads_of_a_symbolic_axis_are_kept():
    """TVM sets their initial values: a symbolic axis needs no slower schedule."""
    columns = tirx.Var("k", "int64")
    mod = kernels(lambda builder, x: relax.op.nn.softmax(x), (3, columns))
    with ambient.collect() as facts:
        [function] = scheduled(mod).values()
    [kernel] = facts.of(ScheduledKernel)
    assert (kernel.rule, kernel.failures) == ("GeneralReduction", ())
    lower(function)


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("is_static", [False, True])
def test_a_kernel_without_elements_is_not_launched(rows, is_static):
    """TVM launches a block for an empty grid, and no thread checks its index here."""
    extent = rows if is_static else tirx.Var("n", "int64")
    mod = kernels(lambda builder, x: relax.op.exp(x), (extent, 256))
    [function] = scheduled(mod).values()
    assert "if " not in function.script()
    lower(function)
    built = tvm.tirx.build(tvm.IRModule({"kernel": one_after_another(function)}), "llvm")
    x, whole = tvm.runtime.empty((rows, 256)), tvm.runtime.tensor(np.full((4, 256), 7, "float32"))
    x.copyfrom(np.zeros((rows, 256), "float32"))
    built["kernel"](x, whole._create_view((rows, 256)))
    np.testing.assert_array_equal(whole.numpy()[:rows], 1)
    np.testing.assert_array_equal(whole.numpy()[rows:], 7)


def test_the_host_skips_a_launch_without_elements():
    mod = kernels(lambda builder, x: relax.op.nn.softmax(x), (tirx.Var("n", "int64"), 200))
    [function] = scheduled(mod).values()
    function = function.with_attr("global_symbol", "main")
    bound = tirx.transform.BindTarget(GPU)(tvm.IRModule({"main": function}))
    lowered = tirx.get_default_tir_pipeline(GPU)[0](bound)
    loops = []
    for _, each in lowered.functions_items():
        structural_walk(each.body, (tirx.For, loops.append))
    assert any("call_ffi_kernel" in loop.script() for loop in loops)


@pytest.mark.parametrize("shape", [(1, 1, 3, 5), (2, 1, 1, 1)])
def test_the_epilogue_of_a_reduction_of_one_element_applies_once(shape):
    """TVM's schedules add the bias to the initial value of the sum, too."""
    bias = np.full((1, 1, 1, 1), 3, "float32")

    def biased(builder, x):
        sums = relax.op.nn.conv2d(x, relax.const(np.full((1, 1, 1, 1), 2, "float32")))
        return relax.op.nn.relu(relax.op.add(sums, relax.const(bias)))

    mod = kernels(biased, shape)
    [function] = scheduled(mod).values()
    x, out = integers(*shape), np.zeros(shape, "float32")
    weight = np.full((1, 1, 1, 1), 2, "float32")
    run(function, x, weight, bias, out)
    np.testing.assert_array_equal(out, np.maximum(2 * x + 3, 0))


class Raises(ScheduleRule):
    def apply(self, func, target, tunable):
        raise ValueError("axis\nof a block")


class Huge(ScheduleRule):
    """More threads in a block than any GPU has."""

    def apply(self, func, target, tunable):
        schedule = Schedule(func)
        [loop, *_] = schedule.get_loops(schedule.get_child_blocks(schedule.get_sblock("root"))[0])
        schedule.bind(loop, "threadIdx.x")
        return [schedule]


class Nothing(ScheduleRule):
    def apply(self, func, target, tunable):
        return None


class Unbound(ScheduleRule):
    def apply(self, func, target, tunable):
        return Schedule(func)


def test_each_failure_of_a_rule_is_recorded():
    mod = kernels(lambda builder, x: relax.op.exp(x), (2000,))
    rules = [Raises(), Nothing(), Huge(), Unbound(), ElementPerThread()]
    with ambient.collect() as facts:
        [function] = scheduled(mod, *rules).values()
    assert thread_extents(function) == {"blockIdx.x": 8, "threadIdx.x": 256}
    assert Applied(facts) == {"gpu-schedule"}
    [kernel] = facts.of(ScheduledKernel)
    assert kernel.rule == "ElementPerThread"
    raised, huge, unbound = kernel.failures
    assert raised == "Raises (axis of a block)"
    assert huge == "Huge (the extent of threadIdx.x is 2000, but at most 1024 are allowed)"
    assert unbound == "Unbound (it accesses memory outside its threads)"
    assert str(kernel).startswith(f"{kernel.name}: ElementPerThread instead of Raises (")
    assert "\n" not in str(kernel)
    [slower] = facts.of(NotDone)
    assert (slower.what, f"{slower.where}: {slower.reason}") == ("schedule", str(kernel))


def test_only_a_rule_that_failed_is_recorded():
    mod = kernels(lambda builder, x: relax.op.exp(x), (20,))
    with ambient.collect() as facts:
        scheduled(mod, Nothing(), ElementPerThread())
    assert [kernel.failures for kernel in facts.of(ScheduledKernel)] == [()]


def test_no_schedule_is_an_error_that_names_the_kernel():
    mod = kernels(lambda builder, x: relax.op.exp(x), (2000,))
    [name] = functions(mod)
    with pytest.raises(CompileError, match=rf"no schedule of kernel '{name}' runs on .*: Huge \("):
        scheduled(mod, Nothing(), Huge())


def test_the_order_of_the_rules():
    names = [type(rule).__name__ for rule in gpu_rules(GPU)]
    assert names[:5] == ["Transpose", "Elementwise", "TensorCores", "Matmul", "GEMV"]
    assert names[5:8] == ["ManyElements", "WarpPerRow", "BlockPerRow"]
    assert names[8:11] == ["OneResult", "Reduction", "GeneralReduction"]
    assert names[-1] == "OneThread"


MANY = {
    "transposed": (
        lambda bb, x: relax.op.nn.conv2d_transpose(
            x, relax.const(integers(8, 3, 2, 2)), strides=2, groups=2
        ),
        (1, 8, 28, 28),
    ),
    "depthwise": (
        lambda bb, x: relax.op.nn.conv2d(x, relax.const(integers(16, 1, 3, 3)), groups=16),
        (1, 16, 34, 34),
    ),
    "pooling": (lambda bb, x: relax.op.nn.max_pool2d(x, (3, 3), (2, 2)), (1, 16, 66, 66)),
    "sum of rows": (lambda bb, x: relax.op.sum(x, axis=0), (5, 16384)),
}
"""Reductions with many results, whose neighbors read neighbors."""


@pytest.mark.parametrize("name", MANY)
def test_many_elements(name):
    emit, shape = MANY[name]
    mod = kernels(emit, shape)
    with ambient.collect() as facts:
        [kernel] = scheduled(mod).values()
    assert [each.rule for each in facts.of(ScheduledKernel)] == ["ManyElements"]
    [function] = functions(mod).values()
    shapes = [tuple(map(int, param.shape)) for param in function.params]
    *operands, out = (integers(*shape, seed=i) for i, shape in enumerate(shapes))
    expected = out.copy()
    run(function, *operands, expected)
    run(kernel, *operands, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "emit, shape",
    [
        (lambda bb, x: relax.op.sum(x, axis=1), (16384, 256)),
        (lambda bb, x: relax.op.sum(x, axis=0), (256, 64)),
    ],
)
def test_reductions_that_are_divided_among_threads(emit, shape):
    with ambient.collect() as facts:
        scheduled(kernels(emit, shape))
    assert [each.rule for each in facts.of(ScheduledKernel)] == ["Reduction"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_no_vector_of_bool_is_accessed(dtype):
    """TVM's code for CUDA accesses two bytes per bool of a vector."""

    def emit(builder, x):
        mask = builder.emit(relax.op.greater(x, relax.const(0.0, dtype)))
        other = builder.emit(relax.op.negative(x))
        y = builder.emit(relax.op.matmul(x, other, out_dtype="float32"))
        return relax.Tuple([mask, builder.emit(relax.op.where(mask, y, relax.const(1.0)))])

    mod = build({"x": tensor(1024, 1024, dtype=dtype)}, emit)
    lowering = stages("gpu")
    with GPU:
        mod = lowered_before(mod, lowering, "Lower")
    found = scheduled(mod)
    assert any("matmul" in name and "where" in name for name in found)
    sources = [source_of(function) for function in found.values()]
    assert sum("bool* __restrict__" in source for source in sources) == 2
    for source in sources:
        assert not re.search(r"\((ushort|uchar|short|char)[248]\*\)", source)


def source_of(function: tirx.PrimFunc) -> str:
    """The CUDA source of a kernel."""
    kernel = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    with cuda.placeholders():
        [module] = tvm.tirx.build(kernel, GPU).imports
    source = module.inspect_source()
    return source[source.rindex('extern "C" __global__') :]


def test_kernels_for_cpus_are_kept():
    mod = relax.transform.LegalizeOps()(build({"x": tensor(4, 4)}, argmax))
    with tvm.target.Target("llvm"):
        tvm.ir.assert_structural_equal(ApplyGpuSchedule()(mod), mod)
    with pytest.raises(UsageError, match="ApplyGpuSchedule needs a target"):
        ApplyGpuSchedule()(mod)


if __name__ == "__main__":
    tvm.testing.main()
