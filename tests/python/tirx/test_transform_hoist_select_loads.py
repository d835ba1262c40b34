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
"""HoistSelectLoads."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.relax_modules import build, call, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches
from tvm_fixes.target import resolve
from tvm_fixes.tirx.transform import HoistSelectLoads
from tvm_fixes.tirx.transform.hoist_select_loads import FIX_ID


@I.ir_module
class Before:
    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((4, 14), "float32"),
        w: T.Buffer((4,), "float32"),
        y: T.Buffer((4, 14), "float32"),
    ):
        for i, j in T.grid(4, 14):
            with T.sblock("y"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                y[v_i, v_j] = T.Select(
                    x[v_i, v_j] > T.float32(0), x[v_i, v_j], x[v_i, v_j] * w[v_i]
                )


@I.ir_module
class Expected:
    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((4, 14), "float32"),
        w: T.Buffer((4,), "float32"),
        y: T.Buffer((4, 14), "float32"),
    ):
        for i, j in T.grid(4, 14):
            with T.sblock("y"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                loaded: T.let[T.float32] = x[v_i, v_j]
                loaded_1: T.let[T.float32] = w[v_i]
                y[v_i, v_j] = T.Select(
                    T.call_llvm_pure_intrin("bool", "llvm.ctpop", loaded > T.float32(0)),
                    loaded,
                    loaded * loaded_1,
                )


@I.ir_module
class Symbolic:
    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle):
        n = T.int64()
        x = T.match_buffer(a, (n, 3))
        y = T.match_buffer(b, (n, 3))
        for i, j in T.grid(n, T.int64(3)):
            with T.sblock("y"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                y[v_i, v_j] = T.Select(v_j > T.int64(1), x[v_i, v_j], T.float32(0))


def hoisted(mod: tvm.IRModule) -> tvm.IRModule:
    with resolve("native"):
        return HoistSelectLoads()(mod)


@I.ir_module
class Kept:
    """Loads that the condition may guard, and what TVM vectorizes, unrolls or cannot bind."""

    @T.prim_func
    def no_load_in_a_branch(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = T.Select(x[i] > T.float32(0), T.float32(0), T.float32(1))

    @T.prim_func
    def before_the_buffer(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = T.Select(i > 0, x[i - 1], T.float32(0))

    @T.prim_func
    def behind_the_buffer(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = T.Select(i < 15, x[i + 1], T.float32(0))

    @T.prim_func
    def loaded_index(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = T.Select(i < 15, x[T.Cast("int32", x[i])], T.float32(0))

    @T.prim_func
    def guarded(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = T.Select(i < 3, T.if_then_else(i > 0, x[i - 1], T.float32(0)), T.float32(0))

    @T.prim_func
    def guarded_choice(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = T.if_then_else(
                i > 0, T.Select(x[i - 1] > T.float32(0), x[i], T.float32(0)), T.float32(0)
            )

    @T.prim_func
    def remainder(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = T.Select(x[i] > T.float32(0), x[i], T.truncmod(x[i], T.float32(3)))

    @T.prim_func
    def one_of_two(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = T.Select(i < 15, x[i + 1], x[i])

    @T.prim_func
    def vectorized(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in T.vectorized(16):
            y[i] = T.Select(x[i] > T.float32(0), x[i], T.float32(0))

    @T.prim_func
    def unrolled(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in T.unroll(16):
            y[i] = T.Select(x[i] > T.float32(0), x[i], T.float32(0))

    @T.prim_func
    def bfloat16(x: T.Buffer((16,), "bfloat16"), y: T.Buffer((16,), "bfloat16")):
        for i in range(16):
            y[i] = T.Select(x[i] > T.bfloat16(0), x[i], T.bfloat16(0))


def test_loads_come_first():
    tvm.ir.assert_structural_equal(hoisted(Before), Expected)


def test_symbolic_extents():
    assert "loaded" in hoisted(Symbolic).script()


def test_unsafe_loads_are_kept():
    assert hoisted(Kept).same_as(Kept)


def test_switched_off(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    assert hoisted(Before).same_as(Before)


def test_not_for_a_gpu():
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        assert HoistSelectLoads()(Before).same_as(Before)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_in_nested_choices(name):
    """TVM would derive the second comparison of a maximum from the first one."""
    kernel = relax.const(np.ones((2, 1, 1, 1), "float32"))

    def emit(_, x, y):
        return getattr(relax.op, name)(relax.op.nn.conv2d(x, kernel, groups=2), y)

    mod = build({"x": tensor(1, 2, 3, 4), "y": tensor(1, 2, 3, 4)}, emit)
    executable = relax.build(mod, resolve("native"), relax_pipeline=pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    rng = np.random.default_rng(0)
    x, y = rng.choice([np.nan, -1, 0, 2], (2, 1, 2, 3, 4)).astype("float32")
    np.testing.assert_array_equal(call(vm, "main", x, y), getattr(np, name)(x, y))


def test_choices_after_a_depthwise_convolution():
    rng = np.random.default_rng(0)
    kernel = relax.const(rng.standard_normal((6, 1, 3, 3)).astype("float32"))
    slope = relax.const(rng.standard_normal(6).astype("float32"))

    def emit(_, x, mask):
        y = relax.op.nn.conv2d(x, kernel, padding=1, groups=6)
        return relax.op.where(mask, relax.op.nn.prelu(y, slope, axis=1), y + relax.const(1.0))

    mod = build({"x": tensor(1, 6, 7, 9), "mask": tensor(1, 6, 7, 9, dtype="bool")}, emit)
    x = rng.standard_normal((1, 6, 7, 9)).astype("float32")
    mask = rng.random((1, 6, 7, 9)) > 0.5
    x[0, 0, 0, 0] = np.nan
    results = []
    for off in ((), (FIX_ID,)):
        with switches.collect() as used, switches.without(off):
            executable = relax.build(mod, resolve("native"), relax_pipeline=pipeline())
        assert (FIX_ID in used) == (not off)
        results.append(call(relax.VirtualMachine(executable, tvm.cpu()), "main", x, mask))
    np.testing.assert_array_equal(*results)


if __name__ == "__main__":
    tvm.testing.main()
