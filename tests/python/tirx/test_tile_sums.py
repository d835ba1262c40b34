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
"""Long sums of tiles."""

import itertools

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import tirx as T

from helpers.grids import few, is_full
from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve
from tvm_fixes.tirx.loop_nest import sources
from tvm_fixes.tirx.tile_sums import sum_in_parts

torch = pytest.importorskip("torch")


@T.prim_func(private=True, s_tir=True)
def before(x: T.Buffer((3, 1024), "float32"), out: T.Buffer((4,), "float32")):
    tile = T.alloc_buffer((4,))
    for i in T.unroll(4):
        tile[i] = T.float32(0)
    for h, k in T.grid(3, 1024):
        for i in T.unroll(4):
            tile[i] = tile[i] + x[h, k]
    for i in T.unroll(4):
        out[i] = tile[i]


@T.prim_func(private=True, s_tir=True)
def expected(x: T.Buffer((3, 1024), "float32"), out: T.Buffer((4,), "float32")):
    tile = T.alloc_buffer((4,))
    for i in T.unroll(4):
        tile[i] = T.float32(0)
    tile_part = T.alloc_buffer((4,))
    for h in range(3):
        for i in T.unroll(4):
            tile_part[i] = T.float32(0)
        for k in range(1024):
            for i in T.unroll(4):
                tile_part[i] = tile_part[i] + x[h, k]
        for i in T.unroll(4):
            tile[i] = tile[i] + tile_part[i]
    for i in T.unroll(4):
        out[i] = tile[i]


def tile_of(function: tirx.PrimFunc) -> tirx.Buffer:
    (tile,) = (buffer for buffer in sources(function.body) if buffer.name == "tile")
    return tile


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def test_a_long_sum_has_parts():
    after = before.with_body(sum_in_parts(before.body, tile_of(before)))
    assert after.script().count("tile_part") == expected.script().count("tile_part")
    assert [line.strip() for line in after.script().splitlines() if "range" in line] == [
        line.strip() for line in expected.script().splitlines() if "range" in line
    ]


@pytest.mark.parametrize(
    ("old", "new"), [("1024", "400"), ("tile[i] + x[h, k]", "T.max(tile[i], x[h, k])")]
)
def test_others_are_kept(old: str, new: str):
    function = tvm.script.from_source(before.script().replace(old, new), s_tir=True)
    assert sum_in_parts(function.body, tile_of(function)).same_as(function.body)


CONVOLUTIONS = list(itertools.product([False, True], [(512, 3, 9), (300, 3, 8), (96, 5, 9)]))


@few(1)
@pytest.mark.parametrize(
    ("is_symbolic", "extents"), CONVOLUTIONS if is_full() else CONVOLUTIONS[1:4]
)
def test_errors_of_convolutions_do_not_grow(is_symbolic, extents):
    """The error of a sum of 4,608 products one by one is twice the limit."""
    channels, size, extent = extents
    x, w = normal(1, channels, extent, extent), normal(32, channels, size, size)
    shape = (1, channels, *([tirx.Var(n, "int64") for n in "hw"] if is_symbolic else x.shape[2:]))
    weight = relax.const(w)
    mod = build(
        {"x": tensor(*shape)}, lambda _, data: relax.op.nn.conv2d(data, weight, padding=size // 2)
    )
    got = run(mod, x, pipeline=pipeline(), target=resolve("native"))
    wide = [torch.tensor(value).double() for value in (x, w)]
    exact = torch.nn.functional.conv2d(*wide, padding=size // 2).numpy()
    error = np.sqrt(np.square(got - exact).mean() / np.square(exact).mean())
    assert error < 6e-7, error


if __name__ == "__main__":
    tvm.testing.main()
