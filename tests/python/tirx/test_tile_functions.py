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
"""Elementary functions of tiles."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from helpers.grids import few
from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve
from tvm_fixes.tirx.tile_functions import vectorize_functions


@T.prim_func(private=True, s_tir=True)
def before(x: T.Buffer((30, 8), "float32"), y: T.Buffer((8, 30), "float32")):
    tile = T.sblock_alloc_buffer((32, 8))
    for part in range(3):
        for column, channel in T.grid(14, 8):
            with T.sblock("tile"):
                v_column = T.axis.spatial(32, part * 14 + column)
                v_channel = T.axis.spatial(8, channel)
                T.where(part * 14 + column < 30)
                tile[v_column, v_channel] = x[v_column, v_channel]
        for channel, column in T.grid(8, 14):
            with T.sblock("y"):
                v_channel = T.axis.spatial(8, channel)
                v_column = T.axis.spatial(30, part * 14 + column)
                T.where(part * 14 + column < 30)
                y[v_channel, v_column] = T.erf(tile[v_column, v_channel])


def vectorized(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    schedule = Schedule(function, enable_check=False)
    vectorize_functions(schedule, schedule.get_sblock("y"))
    return schedule.mod["main"]


def normal(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """The function with its root block."""
    return Schedule(function, enable_check=False).mod["main"]


def test_adjacent_elements_of_a_tile_are_a_vector():
    @T.prim_func(private=True, s_tir=True)
    def expected(x: T.Buffer((30, 8), "float32"), y: T.Buffer((8, 30), "float32")):
        tile = T.sblock_alloc_buffer((32, 8))
        for part in range(3):
            for column, channel in T.grid(14, 8):
                with T.sblock("tile"):
                    v_column = T.axis.spatial(32, part * 14 + column)
                    v_channel = T.axis.spatial(8, channel)
                    T.where(part * 14 + column < 30)
                    tile[v_column, v_channel] = x[v_column, v_channel]
            for column in range(14):
                for channel in T.vectorized(8):
                    with T.sblock("y"):
                        v_channel = T.axis.spatial(8, channel)
                        v_column = T.axis.spatial(30, part * 14 + column)
                        T.where(part * 14 + column < 30)
                        y[v_channel, v_column] = T.erf(tile[v_column, v_channel])

    tvm.ir.assert_structural_equal(vectorized(before), normal(expected))


@pytest.mark.parametrize("new", ["tile[v_column, v_channel]", "T.erf(tile[v_column, 0])"])
def test_copies_and_other_elements_are_kept(new: str):
    script = before.script().replace("T.erf(tile[v_column, v_channel])", new)
    function = tvm.script.from_source(script, s_tir=True)
    tvm.ir.assert_structural_equal(vectorized(function), normal(function))


def test_a_vector_of_columns_is_kept():
    schedule = Schedule(before, enable_check=False)
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("y"))[-1])
    function = schedule.mod["main"]
    tvm.ir.assert_structural_equal(vectorized(function), function)


@few(2)
@pytest.mark.parametrize("length", [45, 46, 258])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_gelu_after_a_convolution(length: int, batch: int):
    """The columns fill no whole number of tiles; channels of 256 columns share cache sets."""
    kernel = np.random.default_rng(0).standard_normal((32, 16, 3)).astype("float32")
    data = np.random.default_rng(1).standard_normal((batch, 16, length)).astype("float32")

    def emit(builder, x):
        out = builder.emit(relax.op.nn.conv1d(x, relax.const(kernel)))
        return builder.emit(relax.op.nn.gelu(out))

    mod = build({"x": tensor(tvm.tirx.Var("n", "int64"), 16, length)}, emit)
    with resolve({"kind": "llvm", "mcpu": "skylake-avx512"}):
        script = pipeline()(mod).script()
    assert "vectorized" in script
    assert ("_global" in script) == (length == 258)
    got = run(mod, data, pipeline=pipeline(), target=resolve("native"))
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    out = functional.gelu(functional.conv1d(torch.tensor(data), torch.tensor(kernel)))
    tvm.testing.assert_allclose(got, out.numpy(), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
