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
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from tvm_fixes.attributes import TILE
from tvm_fixes.tirx.transform import KeepTilesOnStack

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})


@I.ir_module
class Before:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8, 2, 14, 16), "float32")):
        tile = T.sblock_alloc_buffer((8, 2, 14, 16))
        for n in range(8):
            for i in T.unroll(2):
                for j in T.unroll(14):
                    for k in T.vectorized(16):
                        with T.sblock("tile"):
                            v_n, v_i, v_j, v_k = T.axis.remap("SSSS", [n, i, j, k])
                            T.sblock_attr({TILE: 448})
                            tile[v_n, v_i, v_j, v_k] = x[v_n, v_k] * T.float32(2)
            for i in T.unroll(2):
                for j in range(14):
                    for k in T.vectorized(16):
                        with T.sblock("out"):
                            v_n, v_i, v_j, v_k = T.axis.remap("SSSS", [n, i, j, k])
                            y[v_n, v_i, v_j, v_k] = tile[v_n, v_i, v_j, v_k]


@I.ir_module
class Expected:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8, 2, 14, 16), "float32")):
        for n in range(8):
            tile_0 = T.alloc_buffer((1, 14, 16))
            tile_1 = T.alloc_buffer((1, 14, 16))
            for j in T.unroll(14):
                for k in T.vectorized(16):
                    tile_0[0, j, k] = x[n, k] * T.float32(2)
            for j in T.unroll(14):
                for k in T.vectorized(16):
                    tile_1[0, j, k] = x[n, k] * T.float32(2)
            for j in range(14):
                for k in T.vectorized(16):
                    y[n, 0, j, k] = tile_0[0, j, k]
            for j in range(14):
                for k in T.vectorized(16):
                    y[n, 1, j, k] = tile_1[0, j, k]


def sizes(mod: tvm.IRModule) -> list[int]:
    """The elements of each buffer that is allocated."""
    found: list[int] = []
    structural_walk(
        mod["main"].body,
        (
            tirx.AllocBuffer,
            lambda alloc: found.append(int(np.prod([int(n) for n in alloc.buffer.shape]))),
        ),
    )
    return found


def test_a_tile_is_divided_along_an_unrolled_axis() -> None:
    with TARGET:
        tvm.ir.assert_structural_equal(KeepTilesOnStack()(Before), Expected)


def test_the_kernel_is_right_and_allocates_nothing() -> None:
    x = np.random.default_rng(0).standard_normal((8, 16), "float32")
    expected = np.broadcast_to(2 * x[:, None, None], (8, 2, 14, 16))
    target = tvm.target.Target("llvm")
    with target:
        divided = KeepTilesOnStack()(Before)
    for mod, allocates in ((Before, True), (divided, False)):
        executable = tvm.compile(mod, target)
        result = tvm.runtime.tensor(np.zeros(expected.shape, "float32"))
        executable["main"](tvm.runtime.tensor(x), result)
        np.testing.assert_array_equal(result.numpy(), expected)
        source = executable.mod.inspect_source("ll")
        assert ("TVMBackendAllocWorkspace" in source.replace("declare", "")) == allocates


def variant(elements: int = 448, loop: str = "unroll", columns: int = 14) -> tvm.IRModule:
    """`Before` with another annotation, kind of loop, or number of columns."""
    make_loop = {"unroll": T.unroll, "serial": T.serial}[loop]

    @I.ir_module
    class Variant:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8, 2, columns, 16), "float32")):
            tile = T.sblock_alloc_buffer((8, 2, columns, 16))
            for n in range(8):
                for i in T.unroll(2):
                    for j in T.unroll(columns):
                        for k in T.vectorized(16):
                            with T.sblock("tile"):
                                v_n, v_i, v_j, v_k = T.axis.remap("SSSS", [n, i, j, k])
                                T.sblock_attr({TILE: elements})
                                tile[v_n, v_i, v_j, v_k] = x[v_n, v_k] * T.float32(2)
                for i in make_loop(2):
                    for j in make_loop(columns):
                        for k in T.vectorized(16):
                            with T.sblock("out"):
                                v_n, v_i, v_j, v_k = T.axis.remap("SSSS", [n, i, j, k])
                                y[v_n, v_i, v_j, v_k] = tile[v_n, v_i, v_j, v_k]

    return Variant


def test_small_tiles_and_other_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = variant(elements=255), variant()
    with TARGET:
        assert KeepTilesOnStack()(small).same_as(small)
        assert sizes(KeepTilesOnStack()(large)) == [224, 224]
    with tvm.target.Target("cuda"):
        assert KeepTilesOnStack()(large).same_as(large)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "tiles-on-stack")
    with TARGET:
        assert KeepTilesOnStack()(large).same_as(large)


@pytest.mark.parametrize(
    ("mod", "expected"),
    [
        # A tile whose indices are not known is not divided.
        (variant(loop="serial"), [448]),
        # The parts along the first axis would be too large.
        (variant(columns=16), [32] * 16),
        # The whole would be too large for the stack.
        (variant(columns=33), [33 * 32]),
    ],
)
def test_the_axis(mod: tvm.IRModule, expected: list[int]) -> None:
    with TARGET:
        assert sizes(KeepTilesOnStack()(mod)) == expected


if __name__ == "__main__":
    tvm.testing.main()
