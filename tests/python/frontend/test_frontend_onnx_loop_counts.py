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
"""Loops whose condition compares a counter with a bound."""

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.grids import few
from helpers.onnx_graphs import assert_follows_onnx_runtime, assert_rejected, normal
from tvm_fixes.frontend.onnx import from_onnx


def counting(
    again: str, *, trips: str = "", start: int = 0, begin: str = "true", step: int = 1
) -> onnx.ModelProto:
    """A running sum of rows, while a condition on the counter `next` holds."""
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
        net (float[n,3] x, float[3] h0, int64[2] numbers, bool go)
        => (int64 last, float[3] h, float[?,3] rows)
        <int64 start = {{{start}}}, bool true = {{1}}, int64 zero = {{0}}, int64 one = {{1}},
         int64[1] axis = {{0}}, int64 seven = {{7}}> {{
            shape = Shape <end = 1> (x)
            n = Squeeze (shape, axis)
            last, ignored, h, rows = Loop ({trips}, {begin}, start, n, h0) <body = one_step (
                int64 i, bool cond, int64 t, int64 bound, float[3] before)
                => (bool again, int64 next, int64 bound_after, float[3] after, float[3] row)
                <int64 step = {{{step}}}, int64 sixty = {{60}}> {{
                    next = Add (t, step)
                    place = Mod (t, bound)
                    given = Gather <axis = 0> (x, place)
                    half = Mul (before, before)
                    after = Add (given, before)
                    row = Identity (half)
                    bound_after = Identity (bound)
                    {again}
                }}>
        }}""")


LESS = "again = Less (next, bound)"
CASTS = """a = Cast <to = 1> (next)
    b = Cast <to = 1> (bound)
    again = Greater (b, a)"""
BOTH = """first = Less (next, bound)
    second = Less (next, sixty)
    again = And (first, second)"""
OUTER = "again = Less (next, n)"


@few(4)
@pytest.mark.parametrize(
    "again", [LESS, CASTS, BOTH, OUTER], ids=["less", "casts", "both", "outer"]
)
@pytest.mark.parametrize("start", [0, 2])
def test_as_many_iterations_as_in_onnx_runtime(again: str, start: int) -> None:
    """The bound is the number of rows; the first iteration runs whatever the counter is."""
    model = counting(again, start=start)
    cases = [[normal(n, 3), normal(3), np.array([0, 0]), np.array(True)] for n in (5, 2, 1, 70)]
    assert_follows_onnx_runtime(from_onnx, model, *cases)


@pytest.mark.parametrize("trips", ["one", "seven"])
def test_the_trip_count_is_a_limit(trips: str) -> None:
    model = counting(LESS, trips=trips)
    cases = [[normal(n, 3), normal(3), np.array([0, 0]), np.array(True)] for n in (5, 1, 70)]
    assert_follows_onnx_runtime(from_onnx, model, *cases)


@pytest.mark.parametrize("go", [False, True])
def test_a_loop_that_may_not_begin(go: bool) -> None:
    model = counting(LESS, begin="go")
    cases = [[normal(n, 3), normal(3), np.array([0, 0]), np.array(go)] for n in (5, 1)]
    assert_follows_onnx_runtime(from_onnx, model, *cases)


@pytest.mark.parametrize(
    ("again", "step"),
    [
        (LESS, 2),
        ("again = LessOrEqual (next, bound)", 1),
        ("again = Less (place, bound)", 1),
        ("other = Add (t, i)\n again = Less (other, bound)", 1),
        ("a = Cast <to = 3> (next)\n b = Cast <to = 3> (bound)\n again = Less (a, b)", 1),
        ("sum = ReduceSum <keepdims = 0> (after)\n zero_f = Cast <to = 1> (zero)\n"
         "again = Less (sum, zero_f)", 1),
    ],
    ids=["step", "less-or-equal", "no-counter", "two-counters", "int8", "data"],
)  # fmt: skip
def test_other_conditions_have_no_scan_outputs(again: str, step: int) -> None:
    message = "expected none if the condition is computed and compares no counter"
    assert_rejected(from_onnx, counting(again, step=step), message)


if __name__ == "__main__":
    tvm.testing.main()
