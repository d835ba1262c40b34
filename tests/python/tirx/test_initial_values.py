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
"""tvm_fixes.tirx.initial_values."""

import tvm
import tvm.testing
from tvm.script import tirx as T

from tvm_fixes.tirx.initial_values import set_initial_values, without_unit_reductions


def test_an_initial_value_is_set_before_the_loops():
    @T.prim_func(private=True, s_tir=True)
    def before(x: T.Buffer((4, 8, 3), "float32"), out: T.Buffer((4, 3), "float32")):
        for i in T.thread_binding(4, thread="threadIdx.x"):
            for k in range(8):
                for j in range(3):
                    with T.sblock("sum"):
                        vi, vk, vj = T.axis.remap("SRS", [i, k, j])
                        T.reads(x[vi, vk, vj])
                        T.writes(out[vi, vj])
                        with T.init():
                            out[vi, vj] = T.float32(0)
                        out[vi, vj] = out[vi, vj] + x[vi, vk, vj]

    @T.prim_func(private=True, s_tir=True)
    def expected(x: T.Buffer((4, 8, 3), "float32"), out: T.Buffer((4, 3), "float32")):
        for i in T.thread_binding(4, thread="threadIdx.x"):
            for j in range(3):
                with T.sblock("sum_init"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads()
                    T.writes(out[vi, vj])
                    out[vi, vj] = T.float32(0)
            for k in range(8):
                for j in range(3):
                    with T.sblock("sum"):
                        vi, vk, vj = T.axis.remap("SRS", [i, k, j])
                        T.reads(x[vi, vk, vj])
                        T.writes(out[vi, vj])
                        out[vi, vj] = out[vi, vj] + x[vi, vk, vj]

    tvm.ir.assert_structural_equal(set_initial_values(before), expected)
    tvm.ir.assert_structural_equal(set_initial_values(expected), expected)


def test_a_reduction_among_threads_is_kept():
    @T.prim_func(private=True, s_tir=True)
    def before(x: T.Buffer((4, 8), "float32"), out: T.Buffer((4,), "float32")):
        for i in range(4):
            for k in T.thread_binding(8, thread="threadIdx.x"):
                with T.sblock("sum"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        out[vi] = T.float32(0)
                    out[vi] = out[vi] + x[vi, vk]

    tvm.ir.assert_structural_equal(set_initial_values(before), before)


def test_a_reduction_of_one_element_is_an_assignment():
    @T.prim_func(private=True, s_tir=True)
    def before(x: T.Buffer((4, 1), "float32"), out: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 1):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(x[vi, vk])
                T.writes(out[vi])
                with T.init():
                    out[vi] = T.float32(2)
                out[vi] = out[vi] + x[vi, vk]

    @T.prim_func(private=True, s_tir=True)
    def expected(x: T.Buffer((4, 1), "float32"), out: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 1):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SS", [i, k])
                T.reads(x[vi, vk])
                T.writes(out[vi])
                out[vi] = T.float32(2) + x[vi, vk]

    tvm.ir.assert_structural_equal(without_unit_reductions(before), expected)
    tvm.ir.assert_structural_equal(without_unit_reductions(expected), expected)


if __name__ == "__main__":
    tvm.testing.main()
