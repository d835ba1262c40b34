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

import numpy as np
import tvm
import tvm.testing
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.gpu_kernels import GPU, functions
from helpers.lowering import lowered_before
from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import stages
from tvm_fixes.relax.transform import LiftWorkspaces
from tvm_fixes.support.switches import ENVIRONMENT_VARIABLE
from tvm_fixes.tirx.transform import ApplyGpuSchedule


@I.ir_module(s_tir=True)
class Before:
    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        with T.sblock("root"):
            partial = T.sblock_alloc_buffer((8,), "float32")
            for i in range(8):
                with T.sblock("first"):
                    vi = T.axis.spatial(8, i)
                    partial[vi] = x[vi] * T.float32(2)
            for i in range(8):
                with T.sblock("second"):
                    vi = T.axis.spatial(8, i)
                    y[vi] = partial[7 - vi]

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        cls = Before
        with R.dataflow():
            y = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((8,), "float32"))
            z = R.call_tir(cls.kernel, (y,), out_ty=R.Tensor((8,), "float32"))
            R.output(z)
        return z


@I.ir_module(s_tir=True)
class Expected:
    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((8,), "float32"),
        y: T.Buffer((8,), "float32"),
        partial: T.Buffer((8,), "float32"),
    ):
        with T.sblock("root"):
            for i in range(8):
                with T.sblock("first"):
                    vi = T.axis.spatial(8, i)
                    partial[vi] = x[vi] * T.float32(2)
            for i in range(8):
                with T.sblock("second"):
                    vi = T.axis.spatial(8, i)
                    y[vi] = partial[7 - vi]

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        cls = Expected
        with R.dataflow():
            y1 = R.call_tir(
                cls.kernel,
                (x,),
                out_ty=[R.Tensor((8,), "float32"), R.Tensor((8,), "float32")],
            )
            y = y1[0]
            z1 = R.call_tir(
                cls.kernel,
                (y,),
                out_ty=[R.Tensor((8,), "float32"), R.Tensor((8,), "float32")],
            )
            z = z1[0]
            R.output(z)
        return z


def test_expected():
    tvm.ir.assert_structural_equal(LiftWorkspaces()(Before), Expected)


def test_values():
    x = np.arange(8, dtype="float32")
    np.testing.assert_array_equal(run(LiftWorkspaces()(Before), x), x * 4)


def test_a_kernel_with_several_results():
    """Its results are still a tuple."""

    @I.ir_module(s_tir=True)
    class Mod:
        @T.prim_func(private=True, s_tir=True)
        def kernel(
            x: T.Buffer((4,), "float32"),
            y: T.Buffer((4,), "float32"),
            z: T.Buffer((4,), "int32"),
        ):
            with T.sblock("root"):
                partial = T.sblock_alloc_buffer((4,), "float16")
                for i in range(4):
                    with T.sblock("first"):
                        vi = T.axis.spatial(4, i)
                        partial[vi] = T.Cast("float16", x[vi])
                for i in range(4):
                    with T.sblock("second"):
                        vi = T.axis.spatial(4, i)
                        y[vi] = T.Cast("float32", partial[3 - vi])
                        z[vi] = T.Cast("int32", partial[vi])

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Mod
            both = R.call_tir(
                cls.kernel, (x,), out_ty=[R.Tensor((4,), "float32"), R.Tensor((4,), "int32")]
            )
            return both

    after = LiftWorkspaces()(Mod)
    assert len(after["kernel"].params) == 4
    x = np.arange(4, dtype="float32")
    y, z = run(after, x)
    np.testing.assert_array_equal(y, x[::-1])
    np.testing.assert_array_equal(z, x.astype("int32"))


def test_kernels_that_are_kept():
    """One of symbolic shape, and one that somebody may call."""

    @I.ir_module(s_tir=True)
    class Mod:
        @T.prim_func(private=True, s_tir=True)
        def symbolic(x_handle: T.handle, y_handle: T.handle):
            n = T.int64()
            x = T.match_buffer(x_handle, (n,), "float32")
            y = T.match_buffer(y_handle, (n,), "float32")
            with T.sblock("root"):
                partial = T.sblock_alloc_buffer((n,), "float32")
                for i in range(n):
                    with T.sblock("first"):
                        vi = T.axis.spatial(n, i)
                        partial[vi] = x[vi]
                for i in range(n):
                    with T.sblock("second"):
                        vi = T.axis.spatial(n, i)
                        y[vi] = partial[vi]

        @T.prim_func(s_tir=True)
        def public(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
            with T.sblock("root"):
                partial = T.sblock_alloc_buffer((8,), "float32")
                for i in range(8):
                    with T.sblock("first"):
                        vi = T.axis.spatial(8, i)
                        partial[vi] = x[vi]
                for i in range(8):
                    with T.sblock("second"):
                        vi = T.axis.spatial(8, i)
                        y[vi] = partial[vi]

        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((8,), "float32")):
            n = T.int64()
            cls = Mod
            a = R.call_tir(cls.symbolic, (x,), out_ty=R.Tensor((n,), "float32"))
            b = R.call_tir(cls.public, (y,), out_ty=R.Tensor((8,), "float32"))
            return a, b

    tvm.ir.assert_structural_equal(LiftWorkspaces()(Mod), Mod)


def test_without_the_fix(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "gpu-schedule")
    tvm.ir.assert_structural_equal(LiftWorkspaces()(Before), Before)


def test_no_kernel_of_a_model_allocates_for_several_launches():
    shapes = {"x": tensor(48, 1024, dtype="float16"), "w": tensor(1024, 96, dtype="float16")}
    mod = build(shapes, lambda bb, x, w: bb.emit(tvm.relax.op.matmul(x, w, out_dtype="float32")))
    lowering = stages("gpu")
    with GPU:
        after = LiftWorkspaces()(ApplyGpuSchedule()(lowered_before(mod, lowering, "Lower")))
    [kernel] = functions(after).values()
    assert len(kernel.params) == 4
    assert not [b for b in kernel.body.block.alloc_buffers if b.scope() == "global"]


if __name__ == "__main__":
    tvm.testing.main()
