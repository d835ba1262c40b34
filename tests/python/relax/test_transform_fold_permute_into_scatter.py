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
# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.grids import few
from helpers.relax_modules import build, count, integers, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.transform import FoldPermuteIntoScatter
from tvm_fixes.relax.transform.fold_permute_into_scatter import FIX_ID
from tvm_fixes.support import switches

op = relax.op


@I.ir_module
class Before:
    @R.function
    def main(
        cache: R.Tensor((2, 3, 5, 4), "float32"),
        at: R.Tensor((2, 1), "int64"),
        rows: R.Tensor((2, 2, 3, 4), "float32"),
    ) -> R.Tensor((2, 3, 5, 4), "float32"):
        with R.dataflow():
            moved = R.permute_dims(cache, axes=[2, 0, 1, 3])
            new = R.scatter_nd(moved, at, rows, reduction="update")
            out = R.permute_dims(new, axes=[1, 2, 0, 3])
            R.output(out)
        return out


@I.ir_module
class Expected:
    @R.function
    def main(
        cache: R.Tensor((2, 3, 5, 4), "float32"),
        at: R.Tensor((2, 1), "int64"),
        rows: R.Tensor((2, 2, 3, 4), "float32"),
    ) -> R.Tensor((2, 3, 5, 4), "float32"):
        with R.dataflow():
            column = R.reshape(at, R.shape([1, 1, 2, 1]))
            index = R.broadcast_to(column, R.shape([2, 3, 2, 4]))
            values = R.permute_dims(rows, axes=[1, 2, 0, 3])
            out = R.scatter_elements(cache, index, values, axis=2, reduction="update")
            R.output(out)
        return out


def test_permutes_are_folded(monkeypatch):
    tvm.ir.assert_structural_equal(FoldPermuteIntoScatter()(Before), Expected)
    assert FoldPermuteIntoScatter()(Expected).same_as(Expected)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert FoldPermuteIntoScatter()(Before).same_as(Before)


@few(3)
@pytest.mark.parametrize("reduction", ["update", "add"])
@pytest.mark.parametrize("axes", [None, [1, 0, 2], [2, 0, 1], [0, 2, 1]])
def test_values(axes, reduction):
    extents = [4, 3, 5]
    order = axes or [2, 1, 0]
    n = tirx.Var("n", "int64")
    moved = [extents[axis] for axis in order]
    types = {
        "cache": tensor(*extents),
        "at": tensor(n, 1, dtype="int64"),
        "rows": tensor(n, *moved[1:]),
    }

    def emit(b, cache, at, rows):
        there = b.emit(op.permute_dims(cache, axes))
        new = b.emit(op.scatter_nd(there, at, rows, reduction))
        back = axes and [order.index(axis) for axis in range(3)]
        return op.permute_dims(new, back)

    mod = build(types, emit)
    assert count(FoldPermuteIntoScatter()(mod), "relax.scatter_nd") == 0
    # An index of -1 counts from the end; equal indices add up, or the last one wins.
    at = np.array([[-1], [0], [2], [0]])
    cache, rows = integers(*extents), integers(4, *moved[1:], seed=1)
    expected = cache.copy().transpose(order)
    for place, row in zip(at[:, 0], rows, strict=True):
        expected[place] = row + (expected[place] if reduction == "add" else 0)
    inverse = [order.index(axis) for axis in range(3)]
    got = run(mod, cache, at, rows, pipeline=pipeline())
    np.testing.assert_array_equal(got, expected.transpose(inverse))


def other_order(b, moved, new):
    return b.emit(op.permute_dims(new, [2, 1, 0]))


def read_between(b, moved, new):
    out = b.emit(op.permute_dims(new, [1, 2, 0]))
    return b.emit(relax.Tuple([out, new]))


@pytest.mark.parametrize("finish", [other_order, read_between])
def test_other_programs_do_not_change(finish):
    def emit(b, cache, at, rows):
        moved = b.emit(op.permute_dims(cache, [2, 0, 1]))
        return finish(b, moved, b.emit(op.scatter_nd(moved, at, rows)))

    types = {
        "cache": tensor(4, 4, 4),
        "at": tensor(2, 1, dtype="int64"),
        "rows": tensor(2, 4, 4),
    }
    mod = build(types, emit)
    assert FoldPermuteIntoScatter()(mod).same_as(mod)


def test_rows_of_several_indices_do_not_change():
    def emit(b, cache, at, rows):
        moved = b.emit(op.permute_dims(cache, [2, 0, 1]))
        new = b.emit(op.scatter_nd(moved, at, rows))
        return op.permute_dims(new, [1, 2, 0])

    mod = build(
        {"cache": tensor(4, 4, 4), "at": tensor(2, 2, dtype="int64"), "rows": tensor(2, 4)}, emit
    )
    assert FoldPermuteIntoScatter()(mod).same_as(mod)


def test_a_permuted_tensor_with_another_reader():
    def emit(b, cache, at, rows):
        moved = b.emit(op.permute_dims(cache, [1, 0]))
        new = b.emit(op.permute_dims(b.emit(op.scatter_nd(moved, at, rows)), [1, 0]))
        return relax.Tuple([new, b.emit(op.negative(moved))])

    mod = build(
        {"cache": tensor(4, 4), "at": tensor(1, 1, dtype="int64"), "rows": tensor(1, 4)}, emit
    )
    assert count(FoldPermuteIntoScatter()(mod), "relax.scatter_nd") == 0
    cache, rows = integers(4, 4), integers(1, 4, seed=1)
    new, negative = run(mod, cache, np.array([[2]]), rows, pipeline=pipeline())
    expected = cache.copy()
    expected[:, 2] = rows[0]
    np.testing.assert_array_equal(new, expected)
    np.testing.assert_array_equal(negative, -cache.T)


if __name__ == "__main__":
    tvm.testing.main()
