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
"""Panels of operands, copied by vectors."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import s_tir, te, tirx

from tvm_fixes.attributes import PANEL
from tvm_fixes.tirx.panels import vectorize_panels
from tvm_fixes.tirx.vectorize import int64

DEPTH, COLUMNS = 12, 8


def kernel(transposed: bool, columns: int) -> tirx.PrimFunc:
    """Sums of the columns of a matrix with `columns` columns, which are copied in panels of 8."""
    shape = [int64(e) for e in ((columns, DEPTH) if transposed else (DEPTH, columns))]
    matrix = te.placeholder(shape, name="matrix")
    tiles, extent = int64(-(-columns // COLUMNS)), int64(COLUMNS)

    def element(tile: tirx.Var, row: tirx.Var, column: tirx.Var) -> tirx.Expr:
        at = tile * COLUMNS + column
        value = matrix(at, row) if transposed else matrix(row, at)
        return value if columns % COLUMNS == 0 else tirx.if_then_else(at < columns, value, 0.0)

    panel = te.compute((tiles, int64(DEPTH), extent), element, name="panel")
    k = te.reduce_axis((int64(0), int64(DEPTH)), "k")
    sums = te.compute((tiles, extent), lambda t, c: te.sum(panel(t, k, c), axis=k), name="sums")
    sch = s_tir.Schedule(te.create_prim_func([matrix, sums]))
    tile, *_ = sch.get_loops(sch.get_sblock("sums"))
    block = sch.get_sblock("panel")
    sch.compute_at(block, tile, preserve_unit_loops=True)
    sch.annotate(block, PANEL, 1)
    return sch.mod["main"]


def vectorized(function: tirx.PrimFunc, size: int = 32) -> tirx.PrimFunc:
    root = function.body.block
    body = vectorize_panels(root.body, size)
    if body.same_as(root.body):
        return function
    block = s_tir.SBlock(
        [], root.reads, root.writes, "root", body, alloc_buffers=root.alloc_buffers
    )
    return function.with_body(s_tir.SBlockRealize([], True, block))


@pytest.mark.parametrize("columns", [24, 22])
@pytest.mark.parametrize("transposed", [False, True])
def test_values(transposed: bool, columns: int) -> None:
    function = vectorized(kernel(transposed, columns))
    script = function.script()
    assert ("T.Shuffle" in script) == transposed
    assert "T.vectorized" in script
    assert ("else:" in script) == (columns % COLUMNS > 0)
    shape = (columns, DEPTH) if transposed else (DEPTH, columns)
    matrix = np.random.default_rng(0).standard_normal(shape).astype("float32")
    tiles = -(-columns // COLUMNS)
    out = tvm.runtime.tensor(np.zeros((tiles, COLUMNS), "float32"))
    tvm.compile(function, "llvm")(tvm.runtime.tensor(matrix), out)
    sums = matrix.sum(1 if transposed else 0)
    np.testing.assert_allclose(out.numpy().reshape(-1)[:columns], sums, rtol=1e-5, atol=1e-6)
    assert (out.numpy().reshape(-1)[columns:] == 0).all()


def test_a_panel_without_vectors_is_unrolled() -> None:
    """Rows of 3 elements apart are neither adjacent nor a square."""
    shape = [int64(DEPTH), int64(COLUMNS)]
    matrix = te.placeholder([int64(DEPTH), int64(3 * COLUMNS)], name="matrix")
    panel = te.compute(shape, lambda k, c: matrix(k, c * 3), name="panel")
    out = te.compute(shape, lambda k, c: panel(k, c) + 1.0, name="out")
    sch = s_tir.Schedule(te.create_prim_func([matrix, out]))
    sch.annotate(sch.get_sblock("panel"), PANEL, 1)
    function = vectorized(sch.mod["main"])
    assert "T.unroll" in function.script() and "T.vectorized" not in function.script()


def test_other_blocks_do_not_change() -> None:
    function = kernel(True, 24)
    sch = s_tir.Schedule(function)
    sch.unannotate(sch.get_sblock("panel"), PANEL)
    plain = sch.mod["main"]
    assert vectorized(plain).same_as(plain)


if __name__ == "__main__":
    tvm.testing.main()
