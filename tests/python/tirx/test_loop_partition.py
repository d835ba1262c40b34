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
"""Loop partition at changes of a condition on an index."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import tirx as T

from helpers.grids import few
from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.tirx.loop_partition import partition_loops
from tvm_fixes.tirx.transform import ScheduleElementwise


def test_a_concatenation_becomes_two_copies():
    @T.prim_func(private=True, s_tir=True)
    def before(a: T.Buffer((4,), "int8"), b: T.Buffer((5,), "int8"), y: T.Buffer((9,), "int8")):
        for i in range(9):
            with T.sblock("y"):
                v_i = T.axis.remap("S", [i])
                y[v_i] = T.if_then_else(4 <= v_i, b[v_i - 4], a[v_i])

    @T.prim_func(private=True, s_tir=True)
    def expected(a: T.Buffer((4,), "int8"), b: T.Buffer((5,), "int8"), y: T.Buffer((9,), "int8")):
        for i in range(4):
            with T.sblock("y"):
                v_i = T.axis.spatial(9, i)
                y[v_i] = a[v_i]
        for i in range(5):
            with T.sblock("y"):
                v_i = T.axis.spatial(9, i + 4)
                y[v_i] = b[v_i - 4]

    got = partition_loops(before.body.block.body)
    for one, other in zip(got, expected.body.block.body, strict=True):
        tvm.ir.assert_structural_equal(one, other, map_free_vars=True)


def choosing(condition: str) -> tirx.For:
    source = f"""
@T.prim_func(private=True, s_tir=True)
def main(a: T.Buffer((9,), "float32"), b: T.Buffer((9,), "float32"), y: T.Buffer((9,), "float32")):
    for i in range(9):
        with T.sblock("y"):
            v = T.axis.remap("S", [i])
            y[v] = T.Select({condition}, a[v], b[v])
"""
    return tvm.script.from_source(source).body.block.body


@pytest.mark.parametrize(
    ("condition", "extents"),
    [
        ("v < 4", [4, 5]),
        ("v <= 4", [5, 4]),
        ("v > 4", [5, 4]),
        ("v >= 4", [4, 5]),
        ("T.int32(4) < v", [5, 4]),
        ("T.int32(4) >= v", [5, 4]),
        ("v < 0", [9]),
        ("v < 20", [9]),
        ("v == 4", [9]),
        ("a[v] < T.float32(4)", [9]),
        ("v < 4 and v > 2", [9]),
    ],
)
def test_split_points(condition, extents):
    """Only at comparisons of an index."""
    assert [int(loop.extent) for loop in partition_loops(choosing(condition))] == extents


@pytest.mark.parametrize("condition", ["v < 4", "v <= 4", "v > 4", "v >= 4"])
def test_each_side_has_its_values(condition):
    a, b = np.arange(9, dtype="float32"), -np.arange(9, dtype="float32")
    index = np.arange(9)
    expected = np.where(eval(condition, {"v": index}), a, b)
    source = f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(
        a: T.Buffer((9,), "float32"), b: T.Buffer((9,), "float32"), y: T.Buffer((9,), "float32")
    ):
        for i in range(9):
            with T.sblock("y"):
                v = T.axis.remap("S", [i])
                y[v] = T.Select({condition}, a[v], b[v])
"""
    mod = tvm.script.from_source(source)
    with tvm.target.Target("llvm"):
        mod = ScheduleElementwise()(mod)
    y = tvm.runtime.tensor(np.zeros(9, "float32"))
    tvm.compile(mod, "llvm")["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), y)
    np.testing.assert_array_equal(y.numpy(), expected)


@few(3)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("count", [2, 3, 20])
def test_concatenations_of_all_axes(axis, count):
    """With twenty operands, the loops are not partitioned."""
    rng = np.random.default_rng(0)
    extents = [1 + (i * 7) % 5 for i in range(count)]
    shapes = [[extent if axis == i else 6 for i in range(3)] for extent in extents]
    data = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    mod = build(
        {f"x{i}": tensor(*shape) for i, shape in enumerate(shapes)},
        lambda _, *xs: relax.op.concat(list(xs), axis),
    )
    np.testing.assert_array_equal(run(mod, *data, pipeline=pipeline()), np.concatenate(data, axis))


def test_a_concatenation_of_no_rows():
    """Neither side has an iteration."""
    mod = build({"x": tensor(0, 3)}, lambda _, x: relax.op.concat([x, x, x], 0))
    x = np.zeros((0, 3), "float32")
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), x)


@pytest.mark.parametrize("length", [0, 1, 7, 40])
def test_a_concatenation_of_an_unknown_number_of_rows(length):
    """As a cache of keys grows."""
    n = tirx.Var("n", "int64")
    mod = build(
        {"past": tensor(2, n, 8), "new": tensor(2, 3, 8)},
        lambda _, past, new: relax.op.concat([past, new], 1),
    )
    rng = np.random.default_rng(0)
    past, new = (rng.standard_normal((2, k, 8)).astype("float32") for k in (length, 3))
    np.testing.assert_array_equal(
        run(mod, past, new, pipeline=pipeline()), np.concatenate([past, new], 1)
    )


if __name__ == "__main__":
    tvm.testing.main()
