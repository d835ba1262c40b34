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
"""Removal of the blocks of a PrimFunc that nothing reads."""

import numpy as np
import tvm
import tvm.testing
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.tirx.dead_blocks import without_dead_blocks


@I.ir_module
class Before:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        a = T.sblock_alloc_buffer((8,))
        b = T.sblock_alloc_buffer((8,))
        c = T.sblock_alloc_buffer((8,))
        for i in range(8):
            with T.sblock("a"):
                v = T.axis.spatial(8, i)
                a[v] = x[v] + T.float32(1)
        for i in range(8):
            with T.sblock("b"):
                v = T.axis.spatial(8, i)
                b[v] = a[v] * T.float32(2)
        for i in range(8):
            with T.sblock("c"):
                v = T.axis.spatial(8, i)
                c[v] = x[v] - T.float32(1)
        for i in range(8):
            with T.sblock("y"):
                v = T.axis.spatial(8, i)
                y[v] = c[v]


@I.ir_module
class Expected:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        c = T.sblock_alloc_buffer((8,))
        for i in range(8):
            with T.sblock("c"):
                v = T.axis.spatial(8, i)
                c[v] = x[v] - T.float32(1)
        for i in range(8):
            with T.sblock("y"):
                v = T.axis.spatial(8, i)
                y[v] = c[v]


def test_steps_that_nothing_reads_are_removed():
    tvm.ir.assert_structural_equal(without_dead_blocks(Before["main"]), Expected["main"])


def test_nothing_changes_without_one():
    assert without_dead_blocks(Expected["main"]).same_as(Expected["main"])


def test_checks_are_kept():
    @T.prim_func(private=True, s_tir=True)
    def checked(x: T.Buffer((8,), "int32"), y: T.Buffer((8,), "int32")):
        a = T.sblock_alloc_buffer((8,), "int32")
        for i in range(8):
            with T.sblock("a"):
                v = T.axis.spatial(8, i)
                assert x[v] > 0, "positive"
                a[v] = x[v]
        for i in range(8):
            with T.sblock("y"):
                v = T.axis.spatial(8, i)
                y[v] = 0

    assert without_dead_blocks(checked).same_as(checked)


def test_a_step_that_does_not_depend_on_a_reduction():
    def emit(builder, x):
        mean = builder.emit(op.astype(op.mean(x, 1), "int8"))
        return builder.emit(op.multiply(mean, relax.const(0, "int8")))

    mod = build({"x": tensor(5, 36)}, emit)
    got = run(mod, np.ones((5, 36), "float32"), pipeline=pipeline(), target="llvm")
    np.testing.assert_array_equal(got, np.zeros(5, "int8"))


if __name__ == "__main__":
    tvm.testing.main()
