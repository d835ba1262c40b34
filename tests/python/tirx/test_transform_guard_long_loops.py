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
"""Tests of GuardLongLoops."""

import numpy as np
import pytest
import tvm
import tvm.testing
import tvm_ffi
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from helpers.relax_modules import build, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.support import switches
from tvm_fixes.tirx.transform import GuardLongLoops
from tvm_fixes.tirx.transform.guard_long_loops import FIX_ID

op = relax.op
TARGET = tvm.target.Target("llvm")


@I.ir_module
class Long:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((1048576,), "float32"), y: T.Buffer((2,), "float32")):
        for i in range(T.int64(2)):
            for k in range(T.int64(1048576)):
                y[i] = y[i] + x[k]
        for k in range(1048575):
            y[0] = y[0] + x[k]
        for k in T.parallel(1048576):
            y[0] = x[k]


@I.ir_module
class Guarded:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((1048576,), "float32"), y: T.Buffer((2,), "float32")):
        for i in range(T.int64(2)):
            for k in range(T.reinterpret("int64", T.uint64(1048576))):
                y[i] = y[i] + x[k]
        for k in range(1048575):
            y[0] = y[0] + x[k]
        for k in T.parallel(1048576):
            y[0] = x[k]


def test_only_long_serial_loops():
    with TARGET:
        after = GuardLongLoops()(Long)
        tvm.ir.assert_structural_equal(after, Guarded)
        assert GuardLongLoops()(Guarded).same_as(Guarded)


def kinds(mod):
    """The loop kinds, depending on whether TVM unrolls the loops."""
    found = []
    with TARGET, tvm.transform.PassContext(config={"tirx.UnrollLoop": {"explicit_unroll": False}}):
        unrolled = tirx.transform.UnrollLoop()(mod)
    structural_walk(unrolled["main"].body, (tirx.For, lambda loop: found.append(loop.kind)))
    return set(found)


@pytest.mark.parametrize("extent", (2**31 - 1, 2**30, 3 * 2**29))
def test_guarded_loops_are_not_unrolled(extent):
    @I.ir_module
    class Twice:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((extent,), "float32"), y: T.Buffer((1,), "float32")):
            for k in range(extent):
                y[0] = x[k]
                y[0] = y[0] + T.float32(1)

    assert kinds(Twice) == {tirx.ForKind.UNROLLED}
    with TARGET:
        assert kinds(GuardLongLoops()(Twice)) == {tirx.ForKind.SERIAL}


def test_a_model_with_an_axis_of_the_largest_extent_builds():
    mod = build(
        {"x": tensor(2**31 - 1, 4)},
        lambda bb, x: op.sum(bb.emit(op.multiply(x, x)), axis=[0]),
    )
    with switches.collect() as used:
        relax.build(mod, "llvm", relax_pipeline=pipeline())
    assert FIX_ID in used


@pytest.mark.parametrize("dtype", ("int32", "int64", "uint32", "uint64"))
def test_steps(dtype):
    @I.ir_module
    class Apart:
        @T.prim_func(s_tir=True)
        def main(y: T.Buffer((4194304,), "int8")):
            for k in T.serial(0, T.Cast(dtype, 4194304), step=4):
                y[k] = T.int8(1)

    y = np.zeros(4194304, "int8")
    with TARGET:
        guarded = GuardLongLoops()(Apart)
    assert tvm_ffi.structural_equal(guarded, Apart) == dtype.startswith("u")
    data = tvm.runtime.tensor(y)
    tvm.compile(guarded, TARGET)["main"](data)
    y[::4] = 1
    np.testing.assert_array_equal(data.numpy(), y)


def test_right():
    x = np.random.default_rng(0).integers(-4, 5, (2, 1 << 20)).astype("int32")
    mod = build({"x": tensor(2, 1 << 20, dtype="int32")}, lambda bb, x: op.sum(x, axis=[1]))
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), x.sum(1))


def test_the_switch(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    with TARGET:
        assert GuardLongLoops()(Long).same_as(Long)


if __name__ == "__main__":
    tvm.testing.main()
