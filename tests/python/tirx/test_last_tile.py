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
import pytest
import tvm
import tvm.testing
from tvm import tirx
from tvm.script import tirx as T

from tvm_fixes.attributes import LAST_COLUMNS
from tvm_fixes.tirx.last_tile import split_last_tiles


def before(columns: int, more: int = 0, shift: int = 0) -> tirx.PrimFunc:
    """Doubles a vector of unknown length, 4 elements at a time; `columns` is the annotation.

    The tiles also store `more` elements, and read the one at `shift` columns of the tile.
    """

    @T.prim_func(s_tir=True)
    def main(x_handle: T.handle, y_handle: T.handle):
        n = T.int64()
        x = T.match_buffer(x_handle, (n,), "float32")
        y = T.match_buffer(y_handle, (n,), "float32")
        for tile in T.serial((n + 3) // 4, annotations={LAST_COLUMNS: columns}):
            sums = T.alloc_buffer((4,))
            for column in T.unroll(4):
                sums[column] = x[T.min(tile * 4 + column + column * shift, n - 1)] * T.float32(2)
            for column in range(4):
                if tile * 4 + column < n + more:
                    y[tile * 4 + column] = sums[column]

    return main


@T.prim_func(s_tir=True)
def expected(x_handle: T.handle, y_handle: T.handle):
    n = T.int64()
    x = T.match_buffer(x_handle, (n,), "float32")
    y = T.match_buffer(y_handle, (n,), "float32")
    limit: T.let[T.int64] = T.min((n + 3) // 4 * 4, n)
    whole: T.let[T.int64] = T.max(limit // 4, 0)
    for tile in range(whole):
        sums = T.alloc_buffer((4,))
        for column in T.unroll(4):
            sums[column] = x[tile * 4 + column] * T.float32(2)
        for column in T.vectorized(4):
            y[tile * 4 + column] = sums[column]
    if limit - whole * 4 > 0:
        if limit - whole * 4 > 2:
            sums_1 = T.alloc_buffer((4,))
            for column in T.unroll(4):
                sums_1[column] = x[T.min(whole * 4 + column, n - 1)] * T.float32(2)
            for column in range(4):
                if whole * 4 + column < n:
                    y[whole * 4 + column] = sums_1[column]
        else:
            sums_2 = T.alloc_buffer((2,))
            for column in T.unroll(2):
                sums_2[column] = x[T.min(whole * 4 + column, n - 1)] * T.float32(2)
            for column in range(2):
                if whole * 4 + column < n:
                    y[whole * 4 + column] = sums_2[column]


def simplified(function: tirx.PrimFunc) -> tvm.IRModule:
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tvm.s_tir.transform.StmtSimplify()(mod)


def test_the_last_tile_is_computed_apart() -> None:
    after = simplified(split_last_tiles(before(2)))
    tvm.ir.assert_structural_equal(after, simplified(expected), map_free_vars=True)


@pytest.mark.parametrize("columns", [2, 4])
def test_every_length_is_right(columns: int) -> None:
    executable = tvm.compile(split_last_tiles(before(columns)), "llvm")
    for n in range(14):
        x = np.arange(n, dtype="float32")
        y = tvm.runtime.tensor(np.full(n, -1, "float32"))
        executable["main"](tvm.runtime.tensor(x), y)
        np.testing.assert_array_equal(y.numpy(), 2 * x)


def test_a_condition_that_stores_less_is_kept() -> None:
    executable = tvm.compile(split_last_tiles(before(2, more=-3)), "llvm")
    for n in range(1, 14):
        x = np.arange(n, dtype="float32")
        y = tvm.runtime.tensor(np.full(n, -1, "float32"))
        executable["main"](tvm.runtime.tensor(x), y)
        stored = max(n - 3, 0)
        np.testing.assert_array_equal(y.numpy(), [*2 * x[:stored], *[-1] * (n - stored)])


def test_other_loops_are_unchanged() -> None:
    skipping = before(2, shift=1)
    assert split_last_tiles(skipping).same_as(skipping)

    @T.prim_func(s_tir=True)
    def unguarded(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for tile in T.serial(2, annotations={LAST_COLUMNS: 2}):
            sums = T.alloc_buffer((4,))
            for column in T.unroll(4):
                sums[column] = x[tile * 4 + column]
            for column in range(4):
                y[tile * 4 + column] = sums[column]

    @T.prim_func(s_tir=True)
    def counting(x_handle: T.handle, y: T.Buffer((1,), "float32")):
        n = T.int64()
        x = T.match_buffer(x_handle, (n,), "float32")
        for tile in T.serial((n + 3) // 4, annotations={LAST_COLUMNS: 2}):
            sums = T.alloc_buffer((4,))
            for column in T.unroll(4):
                sums[column] = T.Cast("float32", column)
            for column in range(4):
                if tile * 4 + column < n:
                    y[0] = y[0] + x[tile * 4 + column] + sums[column]

    @T.prim_func(s_tir=True)
    def summing(x_handle: T.handle, y: T.Buffer((1,), "float32")):
        n = T.int64()
        x = T.match_buffer(x_handle, (n,), "float32")
        for tile in T.serial((n + 3) // 4, annotations={LAST_COLUMNS: 2}):
            sums = T.alloc_buffer((4,))
            for column in T.unroll(4):
                sums[column] = x[T.min(tile * 4 + column, n - 1)]
            for column in range(4):
                if tile * 4 + column < n:
                    y[0] = y[0] + sums[column]

    @T.prim_func(s_tir=True)
    def scanning(x_handle: T.handle, y_handle: T.handle):
        n = T.int64()
        x = T.match_buffer(x_handle, (n,), "float32")
        y = T.match_buffer(y_handle, (n + 1,), "float32")
        for tile in T.serial((n + 3) // 4, annotations={LAST_COLUMNS: 2}):
            sums = T.alloc_buffer((4,))
            for column in T.unroll(4):
                sums[column] = x[T.min(tile * 4 + column, n - 1)]
            for column in range(4):
                if tile * 4 + column < n:
                    y[tile * 4 + column + 1] = y[tile * 4 + column] + sums[column]

    for function in (unguarded, counting, summing, scanning):
        assert split_last_tiles(function).same_as(function)


if __name__ == "__main__":
    tvm.testing.main()
