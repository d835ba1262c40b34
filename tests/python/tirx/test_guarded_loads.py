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
"""tvm_fixes.tirx.guarded_loads."""

import numpy as np
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import tirx as T

from helpers.gpu_modules import run_on_gpu
from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import ambient
from tvm_fixes.tirx.guarded_loads import clamp_guarded_loads
from tvm_fixes.tirx.transform.apply_gpu_schedule import ScheduledKernel


def test_indices_that_may_leave_their_tensor_are_clamped() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 10), "float32")):
        for i, j, k in T.grid(4, 10, 3):
            with T.sblock("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(x[vi, vj - vk])
                T.writes(y[vi, vj])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + T.if_then_else(
                    0 <= vj - vk and vj - vk < 8, x[vi, vj - vk], T.float32(0)
                )

    @T.prim_func(private=True, s_tir=True)
    def after(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 10), "float32")):
        for i, j, k in T.grid(4, 10, 3):
            with T.sblock("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(x[vi, T.max(T.min(vj - vk, 7), 0)])
                T.writes(y[vi, vj])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + T.if_then_else(
                    0 <= vj - vk and vj - vk < 8,
                    x[vi, T.max(T.min(vj - vk, 7), 0)],
                    T.float32(0),
                )

    tvm.ir.assert_structural_equal(clamp_guarded_loads(before), after)


def test_other_loads_are_kept() -> None:
    @T.prim_func(private=True, s_tir=True)
    def function(x: T.Buffer((8,), "float32"), y: T.Buffer((10,), "float32"), z: T.Buffer((8,))):
        for i in range(10):
            with T.sblock("pad"):
                vi = T.axis.spatial(10, i)
                T.reads(x[vi - 1])
                T.writes(y[vi])
                y[vi] = T.if_then_else(1 <= vi and vi < 9, x[vi - 1], T.float32(0))
        for i, k in T.grid(8, 3):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(y[vi + vk])
                T.writes(z[vi])
                with T.init():
                    z[vi] = T.float32(0)
                z[vi] = z[vi] + T.if_then_else(0 < vk, y[vi + vk], T.float32(0))

    tvm.ir.assert_structural_equal(clamp_guarded_loads(function), function)


def test_a_transposed_convolution_reads_no_foreign_elements() -> None:
    """The interpreter of GPU kernels rejects a read beyond a tensor, even an unused one."""
    n = tirx.Var("n", "int64")
    types = {"x": tensor(n, 4, 8), "w": tensor(4, 2, 2)}
    mod = build(types, lambda _, x, w: relax.op.nn.conv1d_transpose(x, w))
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, 4, 8)).astype("float32")
    w = rng.integers(-3, 4, (4, 2, 2)).astype("float32")
    with ambient.collect() as facts:
        got = run_on_gpu(mod, x, w)
    assert any(kernel.rule == "Matmul" for kernel in facts.of(ScheduledKernel))
    np.testing.assert_array_equal(got, run(mod, x, w, pipeline=pipeline()))


if __name__ == "__main__":
    tvm.testing.main()
