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

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax.backend.cuda import pipeline as stock
from tvm_ffi import structural_map, structural_walk

from helpers.lowering import lowered_before
from helpers.relax_modules import build, integers, tensor
from tvm_fixes.pipeline import stages
from tvm_fixes.tirx.transform import ApplyGpuSchedule, DecomposeReduction

GPU = tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host={"kind": "llvm"})
[STOCK] = [step for step in stock.legalize_passes(GPU) if step.info.name == "ApplyDefaultSchedule"]


def argmax(builder, x):
    return relax.op.argmax(x, axis=1)


def grouped(builder, x):
    return relax.op.nn.relu(relax.op.nn.conv2d(x, relax.const(KERNEL), groups=2))


KERNEL = integers(6, 2, 3, 3, seed=1)
CASES = {"argmax": (argmax, (5, 9)), "grouped": (grouped, (1, 4, 6, 6))}


def kernels(emit, shape) -> tvm.IRModule:
    """An operator lowered by the stages before scheduling."""
    mod = build({"x": tensor(*shape)}, emit)
    lowering = stages("gpu")
    with GPU:
        return lowered_before(mod, lowering, lowering.lower)


def functions(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    found = mod.functions_items()
    return {var.name_hint: func for var, func in found if isinstance(func, tirx.PrimFunc)}


def thread_extents(function: tirx.PrimFunc) -> dict[str, int]:
    found = {}

    def look(loop):
        if loop.thread_binding is not None:
            found[str(loop.thread_binding.thread_tag)] = int(loop.extent)

    structural_walk(function.body, (tirx.For, look))
    return found


def one_after_another(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with serialized threads, for a CPU; valid without synchronization."""

    def serialize(loop):
        if loop.thread_binding is None:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    serial = structural_map(function, (tirx.For, serialize))
    return serial.with_attr("global_symbol", "kernel")


def run(function: tirx.PrimFunc, *arrays: np.ndarray) -> None:
    built = tvm.tirx.build(tvm.IRModule({"kernel": one_after_another(function)}), "llvm")
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    built["kernel"](*tensors)
    arrays[-1][...] = tensors[-1].numpy()


@pytest.mark.parametrize("name", CASES)
def test_where_tvms_schedule_cannot_be_lowered(name):
    mod = kernels(*CASES[name])
    with GPU:
        scheduled = functions(ApplyGpuSchedule(STOCK)(mod))
    [function] = scheduled.values()
    assert thread_extents(function) == {"blockIdx.x": 1, "threadIdx.x": 1024}
    assert function.attrs["tirx.is_scheduled"]
    tvm.tirx.build(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), GPU)


@pytest.mark.parametrize("name", CASES)
def test_tvms_schedule_cannot_be_lowered(name):
    mod = kernels(*CASES[name])
    with GPU:
        [function] = functions(STOCK(mod)).values()
    with pytest.raises(Exception, match=r"ross-thread reduction|Cannot allocate global memory"):
        tvm.tirx.build(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), GPU)


def test_argmax_is_right():
    mod = kernels(*CASES["argmax"])
    with GPU:
        [function] = functions(ApplyGpuSchedule(STOCK)(mod)).values()
    x = np.random.default_rng(0).standard_normal((5, 9)).astype("float32")
    x[0], x[1, 4] = -np.inf, np.nan
    out = np.full(5, 7)
    run(function, x, out)
    np.testing.assert_array_equal(out, x.argmax(axis=1))


def test_a_result_after_a_reduction_is_right():
    """The sum is in a register of the thread that uses it."""
    mod = kernels(*CASES["grouped"])
    with GPU:
        [function] = functions(ApplyGpuSchedule(STOCK)(mod)).values()
    assert 'scope="local"' in function.script()
    x = integers(1, 4, 6, 6, seed=2)
    out = np.full((1, 6, 4, 4), 7, "float32")
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    halves = zip(np.split(windows, 2), np.split(KERNEL, 2), strict=True)
    expected = np.concatenate([np.einsum("chwyx,ocyx->ohw", data, k) for data, k in halves])
    arguments = [x, KERNEL, out] if len(function.params) == 3 else [x, out]
    run(function, *arguments)
    np.testing.assert_array_equal(out[0], np.maximum(expected, 0))


def test_good_schedules_of_tvm_stay():
    mod = kernels(lambda builder, x: relax.op.sum(x, axis=1), (5, 9))
    with GPU:
        tvm.ir.assert_structural_equal(ApplyGpuSchedule(STOCK)(mod.clone()), STOCK(mod.clone()))


@pytest.mark.parametrize("size", [0, 3])
def test_a_sum_over_nothing_is_zero(size):
    columns = tirx.Var("k", "int64")
    mod = build({"x": tensor(3, columns)}, lambda builder, x: relax.op.sum(x, axis=1))
    with GPU:
        mod = DecomposeReduction()(relax.transform.LegalizeOps()(mod))
        [function] = functions(ApplyGpuSchedule(STOCK)(mod)).values()
    assert "threadIdx.x" in thread_extents(function)
    tvm.tirx.build(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), GPU)
    x, out = integers(3, size), np.full(3, 7, "float32")
    run(function, x, out)
    np.testing.assert_array_equal(out, x.sum(axis=1))


if __name__ == "__main__":
    tvm.testing.main()
