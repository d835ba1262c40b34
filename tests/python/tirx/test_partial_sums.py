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
"""Sums of partial sums."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import tirx as T

from helpers.grids import few
from helpers.relax_modules import build, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.tirx.vectorize import vectorize

# Vectors of 16 bytes: 4 lanes of float32.
TARGET = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"})


def test_a_long_sum_has_parts():
    @T.prim_func(private=True, s_tir=True)
    def before(
        x: T.Buffer((T.int64(70), T.int64(4)), "float32"), out: T.Buffer((T.int64(4),), "float32")
    ):
        for i, k in T.grid(T.int64(4), T.int64(70)):
            with T.sblock("total"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    out[v_i] = T.float32(0.0)
                out[v_i] = out[v_i] + x[v_k, v_i]

    @T.prim_func(private=True, s_tir=True)
    def expected(
        x: T.Buffer((T.int64(70), T.int64(4)), "float32"), out: T.Buffer((T.int64(4),), "float32")
    ):
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.sblock("total"):
                T.reads(x[T.int64(0) : T.int64(70), T.int64(0) : T.int64(4)])
                T.writes(out[T.int64(0) : T.int64(4)])
                lanes = T.sblock_alloc_buffer((T.int64(4),))
                partial = T.sblock_alloc_buffer((T.int64(4),))
                for vector in range(T.int64(1)):
                    for lane in T.vectorized(T.int64(4)):
                        lanes[lane] = T.float32(0.0)
                    for part in range(T.int64(2)):
                        for lane in T.vectorized(T.int64(4)):
                            partial[lane] = T.float32(0.0)
                        for k in range(T.int64(32)):
                            for lane in T.vectorized(T.int64(4)):
                                partial[lane] = (
                                    partial[lane]
                                    + x[part * T.int64(32) + k, vector * T.int64(4) + lane]
                                )
                        for lane in T.vectorized(T.int64(4)):
                            lanes[lane] = lanes[lane] + partial[lane]
                    for lane in T.vectorized(T.int64(4)):
                        partial[lane] = T.float32(0.0)
                    for k in range(T.int64(6)):
                        for lane in T.vectorized(T.int64(4)):
                            partial[lane] = (
                                partial[lane] + x[T.int64(64) + k, vector * T.int64(4) + lane]
                            )
                    for lane in T.vectorized(T.int64(4)):
                        lanes[lane] = lanes[lane] + partial[lane]
                    for lane in T.vectorized(T.int64(4)):
                        out[vector * T.int64(4) + lane] = lanes[lane]

    after = vectorize(before, TARGET)
    tvm.ir.assert_structural_equal(after, expected)


@few(6)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((63, 16), [0]), ((64, 16), [0]), ((4099, 8), [0]), ((5, 7, 3, 40), [1, 2]),
     ((3, 90, 16), [0, 1]), ((2, 40, 5, 16), [1, 2])],
)  # fmt: skip
@pytest.mark.parametrize("operator", ["sum", "mean", "variance"])
def test_columns(shape, axes, operator):
    """Errors do not grow with the number of summands."""
    data = np.random.default_rng(0).random(shape, dtype="float32")
    reduce = {"sum": np.sum, "mean": np.mean, "variance": np.var}[operator]
    expected = reduce(data, axis=tuple(axes), dtype="float64")
    got = run(reduction(shape, axes, operator), data, pipeline=pipeline("cpu"))
    tvm.testing.assert_allclose(got, expected, rtol=2e-6)


@few(2)
@pytest.mark.parametrize("rows", [1, 31, 64, 65, 200])
def test_unknown_number_of_rows(rows):
    data = np.random.default_rng(0).random((rows, 24), dtype="float32")
    module = reduction((tvm.tirx.Var("n", "int64"), 24), [0], "sum")
    got = run(module, data, pipeline=pipeline("cpu"))
    tvm.testing.assert_allclose(got, data.sum(0, dtype="float64"), rtol=1e-6)


def test_integers_have_no_parts():
    @T.prim_func(private=True, s_tir=True)
    def before(
        x: T.Buffer((T.int64(70), T.int64(4)), "int32"), out: T.Buffer((T.int64(4),), "int32")
    ):
        for i, k in T.grid(T.int64(4), T.int64(70)):
            with T.sblock("total"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    out[v_i] = 0
                out[v_i] = out[v_i] + x[v_k, v_i]

    after = vectorize(before, TARGET)
    assert "lanes" in after.script()
    assert "part" not in after.script()


def reduction(shape, axes, operator):
    """A reduction of float32 data."""
    return build(
        {"x": tensor(*shape)},
        lambda builder, x: builder.emit(getattr(relax.op, operator)(x, axes)),
    )


if __name__ == "__main__":
    tvm.testing.main()
