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
"""Vectorized loops."""

import pytest
import tvm
import tvm.testing
from tvm.script import tirx as T

from tvm_fixes.tirx.vectorize import vectorize

# Vectors of 16 bytes: 4 lanes of float32.
TARGET = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"})


def test_sum_of_adjacent_elements():
    """The last vector begins with two elements that are already in the sum."""

    @T.prim_func(private=True, s_tir=True)
    def before(
        x: T.Buffer((T.int64(2), T.int64(6)), "float32"), out: T.Buffer((T.int64(2),), "float32")
    ):
        for i, k in T.grid(T.int64(2), T.int64(6)):
            with T.sblock("total"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    out[v_i] = T.float32(0.0)
                out[v_i] = out[v_i] + x[v_i, v_k]

    @T.prim_func(private=True, s_tir=True)
    def expected(
        x: T.Buffer((T.int64(2), T.int64(6)), "float32"), out: T.Buffer((T.int64(2),), "float32")
    ):
        for i in range(T.int64(2)):
            with T.sblock("total"):
                T.reads(x[i, T.int64(0) : T.int64(6)])
                T.writes(out[i])
                lanes = T.sblock_alloc_buffer((T.int64(4),))
                for lane in T.vectorized(T.int64(4)):
                    lanes[lane] = T.float32(0.0)
                for vector in range(T.int64(1)):
                    for lane in T.vectorized(T.int64(4)):
                        lanes[lane] = lanes[lane] + x[i, vector * T.int64(4) + lane]
                for lane in T.vectorized(T.int64(4)):
                    lanes[lane] = T.Select(
                        lane >= T.int64(2), lanes[lane] + x[i, T.int64(2) + lane], lanes[lane]
                    )
                for lane in T.vectorized(T.int64(2)):
                    lanes[lane] = lanes[lane] + lanes[lane + T.int64(2)]
                lanes[T.int64(0)] = lanes[T.int64(0)] + lanes[T.int64(1)]
                out[i] = lanes[T.int64(0)]

    assert_becomes(before, expected)


def test_sum_of_elements_that_are_apart():
    @T.prim_func(private=True, s_tir=True)
    def before(
        x: T.Buffer((T.int64(3), T.int64(8)), "float32"), out: T.Buffer((T.int64(8),), "float32")
    ):
        for i, k in T.grid(T.int64(8), T.int64(3)):
            with T.sblock("total"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    out[v_i] = T.float32(0.0)
                out[v_i] = out[v_i] + x[v_k, v_i]

    @T.prim_func(private=True, s_tir=True)
    def expected(
        x: T.Buffer((T.int64(3), T.int64(8)), "float32"), out: T.Buffer((T.int64(8),), "float32")
    ):
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.sblock("total"):
                T.reads(x[T.int64(0) : T.int64(3), T.int64(0) : T.int64(8)])
                T.writes(out[T.int64(0) : T.int64(8)])
                lanes = T.sblock_alloc_buffer((T.int64(8),))
                for vector in range(T.int64(1)):
                    for lane in T.vectorized(T.int64(8)):
                        lanes[lane] = T.float32(0.0)
                    for k in range(T.int64(3)):
                        for lane in T.vectorized(T.int64(8)):
                            lanes[lane] = lanes[lane] + x[k, vector * T.int64(8) + lane]
                    for lane in T.vectorized(T.int64(8)):
                        out[vector * T.int64(8) + lane] = lanes[lane]

    assert_becomes(before, expected)


def test_loops_outside_of_whole_vectors_are_kept():
    """A position in memory of three fused loops, 6 * 6 elements each time, keeps divisions."""

    @T.prim_func(private=True, s_tir=True)
    def before(
        x: T.Buffer((T.int64(3), T.int64(6), T.int64(6)), "float32"),
        out: T.Buffer((T.int64(3), T.int64(6), T.int64(6)), "float32"),
    ):
        for i, j, k in T.grid(T.int64(3), T.int64(6), T.int64(6)):
            with T.sblock("twice"):
                v_i, v_j, v_k = T.axis.remap("SSS", [i, j, k])
                out[v_i, v_j, v_k] = x[v_i, v_j, v_k] * T.float32(2)

    @T.prim_func(private=True, s_tir=True)
    def expected(
        x: T.Buffer((T.int64(3), T.int64(6), T.int64(6)), "float32"),
        out: T.Buffer((T.int64(3), T.int64(6), T.int64(6)), "float32"),
    ):
        for i in range(T.int64(3)):
            with T.sblock("twice"):
                T.reads(x[i, T.int64(0) : T.int64(6), T.int64(0) : T.int64(6)])
                T.writes(out[i, T.int64(0) : T.int64(6), T.int64(0) : T.int64(6)])
                for vector in range(T.int64(9)):
                    for lane in T.vectorized(T.int64(4)):
                        out[
                            i,
                            (vector * T.int64(4) + lane) // T.int64(6),
                            (vector * T.int64(4) + lane) % T.int64(6),
                        ] = x[
                            i,
                            (vector * T.int64(4) + lane) // T.int64(6),
                            (vector * T.int64(4) + lane) % T.int64(6),
                        ] * T.float32(2)

    assert_becomes(before, expected)


def test_calls_of_one_row_are_made_once():
    """The overlap of the last vector with the previous one is not recomputed."""

    @T.prim_func(private=True, s_tir=True)
    def before(
        x: T.Buffer((T.int64(5),), "float32"),
        y: T.Buffer((T.int64(1),), "float32"),
        out: T.Buffer((T.int64(5),), "float32"),
    ):
        for i in range(T.int64(5)):
            with T.sblock("scaled"):
                v_i = T.axis.spatial(T.int64(5), i)
                out[v_i] = x[v_i] - T.log(y[T.int64(0)])

    @T.prim_func(private=True, s_tir=True)
    def expected(
        x: T.Buffer((T.int64(5),), "float32"),
        y: T.Buffer((T.int64(1),), "float32"),
        out: T.Buffer((T.int64(5),), "float32"),
    ):
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.sblock("scaled"):
                T.reads(y[T.int64(0)], x[T.int64(0) : T.int64(5)], out[T.int64(1) : T.int64(5)])
                T.writes(out[T.int64(0) : T.int64(5)])
                constant: T.let[T.float32] = T.log(y[T.int64(0)])
                for vector in range(T.int64(1)):
                    for lane in T.vectorized(T.int64(4)):
                        out[vector * T.int64(4) + lane] = x[vector * T.int64(4) + lane] - constant
                for lane in T.vectorized(T.int64(4)):
                    out[T.int64(1) + lane] = T.Select(
                        lane >= T.int64(3), x[T.int64(1) + lane] - constant, out[T.int64(1) + lane]
                    )

    assert_becomes(before, expected)


def test_calls_in_indices_are_kept():
    """TVM computes the extent of an intermediate buffer before the loops."""

    @T.prim_func(private=True, s_tir=True)
    def before(
        x: T.Buffer((T.int64(9), T.int64(4)), "float32"),
        y: T.Buffer((T.int64(1),), "float32"),
        out: T.Buffer((T.int64(4),), "float32"),
    ):
        for i in range(T.int64(4)):
            with T.sblock("row"):
                v_i = T.axis.spatial(T.int64(4), i)
                out[v_i] = x[T.Cast("int64", T.floor(y[T.int64(0)])), v_i]

    @T.prim_func(private=True, s_tir=True)
    def expected(
        x: T.Buffer((T.int64(9), T.int64(4)), "float32"),
        y: T.Buffer((T.int64(1),), "float32"),
        out: T.Buffer((T.int64(4),), "float32"),
    ):
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.sblock("row"):
                T.reads(x[0 : T.int64(9), T.int64(0) : T.int64(4)], y[T.int64(0)])
                T.writes(out[T.int64(0) : T.int64(4)])
                for vector in range(T.int64(1)):
                    for lane in T.vectorized(T.int64(4)):
                        out[vector * T.int64(4) + lane] = x[
                            T.Cast("int64", T.floor(y[T.int64(0)])), vector * T.int64(4) + lane
                        ]

    assert_becomes(before, expected)


def test_strided_loads_are_not_vectorized():
    @T.prim_func(private=True, s_tir=True)
    def every_other(
        x: T.Buffer((T.int64(16),), "float32"), out: T.Buffer((T.int64(8),), "float32")
    ):
        for i in range(T.int64(8)):
            with T.sblock("copy"):
                v_i = T.axis.spatial(T.int64(8), i)
                out[v_i] = x[v_i * T.int64(2)]

    @T.prim_func(private=True, s_tir=True)
    def gathered(
        x: T.Buffer((T.int64(16),), "float32"),
        at: T.Buffer((T.int64(8),), "int64"),
        out: T.Buffer((T.int64(8),), "float32"),
    ):
        for i in range(T.int64(8)):
            with T.sblock("copy"):
                v_i = T.axis.spatial(T.int64(8), i)
                out[v_i] = x[at[v_i]]

    @T.prim_func(private=True, s_tir=True)
    def padded(x: T.Buffer((T.int64(7),), "float32"), out: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("copy"):
                v_i = T.axis.spatial(T.int64(8), i)
                out[v_i] = T.if_then_else(v_i < T.int64(7), x[v_i], T.float32(0))

    for function in (every_other, gathered, padded):
        assert_becomes(function, function)


def test_a_reduction_that_does_not_begin_with_its_identity_is_kept():
    @T.prim_func(private=True, s_tir=True)
    def function(x: T.Buffer((T.int64(8),), "float32"), out: T.Buffer((), "float32")):
        for k in range(T.int64(8)):
            with T.sblock("total"):
                v_k = T.axis.reduce(T.int64(8), k)
                with T.init():
                    out[()] = T.float32(1.0)
                out[()] = out[()] + x[v_k]

    assert_becomes(function, function)


@pytest.mark.parametrize("kind", ["parallel", "vectorized", "unroll"])
def test_loops_of_other_kinds_are_kept(kind):
    @T.prim_func(private=True, s_tir=True)
    def function(x: T.Buffer((T.int64(8),), "float32"), out: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("copy"):
                v_i = T.axis.spatial(T.int64(8), i)
                out[v_i] = x[v_i]

    sch = tvm.s_tir.Schedule(function)
    (loop,) = sch.get_loops(sch.get_sblock("copy"))
    getattr(sch, {"vectorized": "vectorize"}.get(kind, kind))(loop)
    scheduled = sch.mod["main"]
    assert_becomes(scheduled, scheduled)


def assert_becomes(before: tvm.tirx.PrimFunc, expected: tvm.tirx.PrimFunc) -> None:
    got = vectorize(before, TARGET)
    assert tvm.s_tir.analysis.verify_well_formed(got)
    tvm.ir.assert_structural_equal(got.without_attr("global_symbol"), expected)


if __name__ == "__main__":
    tvm.testing.main()
