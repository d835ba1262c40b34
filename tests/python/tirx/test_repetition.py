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
"""Loops that read each element several times in succession."""

import hypothesis.strategies as st
import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from tvm import relax, te, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.tirx.transform import ScheduleElementwise

TARGET = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"})


def test_the_innermost_loop_is_split():
    @I.ir_module
    class Before:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((3, 5), "float32"), y: T.Buffer((6, 10), "float32")):
            for i, j in T.grid(6, 10):
                with T.sblock("y"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    y[v_i, v_j] = x[v_i // 2, v_j // 2] + T.float32(1)

    @I.ir_module
    class Expected:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((3, 5), "float32"), y: T.Buffer((6, 10), "float32")):
            for i, j, repetition in T.grid(6, 5, 2):
                with T.sblock("y"):
                    v_i = T.axis.spatial(6, i)
                    v_j = T.axis.spatial(10, j * 2 + repetition)
                    y[v_i, v_j] = x[v_i // 2, v_j // 2] + T.float32(1)

    with TARGET:
        tvm.ir.assert_structural_equal(ScheduleElementwise()(Before), Expected)


@pytest.mark.parametrize(
    "index",
    [
        lambda _, j: tirx.floormod(j, 2),
        lambda _, j: tirx.floordiv(j, 3),
        lambda _, j: tirx.floordiv(j + 1, 2),
        lambda i, _: tirx.floordiv(i, 2),
    ],
    ids=["j % 2", "j // 3", "(j + 1) // 2", "i // 2"],
)
def test_others_are_not(index):
    """Elements that are not read in succession, or not equally often."""
    x = te.placeholder((8,), "float32", name="x")
    y = te.compute((6, 7), lambda i, j: x[index(i, j)] + tirx.const(1, "float32"), name="y")
    function = te.create_prim_func([x, y])
    with TARGET:
        after = ScheduleElementwise()(tvm.IRModule({"main": function}))["main"]
    assert "repetition" not in str(after)


@given(st.data())
def test_random_repetitions(data):
    """Random repetitions of adjacent and other elements, with an operand that is not repeated."""
    shape = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3), "shape")
    axis = data.draw(st.integers(0, len(shape) - 1), "axis")
    times = data.draw(st.sampled_from([1, 2, 3, 7, 16, 33]), "times")
    dtype = data.draw(st.sampled_from(["float32", "float16", "int64"]), "dtype")
    is_symbolic = data.draw(st.booleans(), "is_symbolic")
    grown = [extent * times if i == axis else extent for i, extent in enumerate(shape)]
    known = list(shape)
    if is_symbolic:
        known[axis] = tirx.Var("n", "int64")
        grown_type = [known[axis] * times if i == axis else n for i, n in enumerate(shape)]
    else:
        grown_type = grown

    def emit(builder, x, y):
        return relax.op.add(builder.emit(relax.op.repeat(x, times, axis)), y)

    inputs = {"x": tensor(*known, dtype=dtype), "y": tensor(*grown_type, dtype=dtype)}
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-100, 100, extents).astype(dtype) for extents in (shape, grown))
    got = run(build(inputs, emit), x, y, pipeline=pipeline())
    np.testing.assert_array_equal(got, x.repeat(times, axis) + y)


if __name__ == "__main__":
    tvm.testing.main()
