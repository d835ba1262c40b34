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
"""Products of rows, and tensors that do not change, in Loops."""

import numpy as np
import onnx
import pytest
import tvm.testing
from tvm import relax

from helpers.grids import few
from helpers.onnx_graphs import assert_follows_onnx_runtime, normal
from helpers.relax_modules import calls
from tvm_fixes.frontend.onnx import from_onnx

BODY_INPUTS = "int64 i, bool cond, int64 t, float[2,3] before, float[4,3] w, float[2,3] bias"


def recurrent(
    *,
    index: str = "t",
    step: str = "one",
    weight_after: str = "Identity (w)",
    weight: str = "w0",
    rows: str = "x",
    condition: str = "Identity (cond)",
    trips: str = "count",
) -> onnx.ModelProto:
    """A recurrence over the rows of `x`, as TensorFlow writes it: the weights are carried."""
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
        net (float[n,2,4] x, float[2,3] h0, float[2,3] bias0, int64[n] order, float[4,3] w1)
        => (float[2,3] h, float[4,3] w_last, float[2,3] bias_last, float[n,2,3] hs)
        <int64 zero = {{0}}, bool true = {{1}}, int64[1] axis = {{0}},
         float[4,3] w0 = {{0.5, -1, 2, 0.1, 0.2, -0.3, 1, 1, -1, 0, 0.25, 3}},
         float[3,2,4] table = {{{", ".join(str(n % 7 - 3) for n in range(24))}}}> {{
            shape = Shape <end = 1> (x)
            count = Squeeze (shape, axis)
            t_last, h, w_last, bias_last, hs = Loop ({trips}, true, zero, h0, {weight}, bias0)
            <body = one_step ({BODY_INPUTS})
                => (bool again, int64 next, float[2,3] after, float[4,3] w_after,
                    float[2,3] bias_after, float[2,3] h_out)
                <int64 one = {{1}}, int64 two = {{2}}> {{
                    again = {condition}
                    next = Add (t, {step})
                    place = Gather <axis = 0> (order, t)
                    wrapped = Mod (t, two)
                    row = Gather <axis = 0> ({rows}, {index})
                    part = MatMul (row, w)
                    sum = Add (part, before)
                    shifted = Add (sum, bias)
                    after = Tanh (shifted)
                    w_after = {weight_after}
                    bias_copy = Identity (bias)
                    bias_after = Identity (bias_copy)
                    h_out = Identity (after)
                }}>
        }}""")


def feeds(*counts: int) -> list[list[np.ndarray]]:
    return [
        [
            *(normal(n, 2, 4), normal(2, 3), normal(2, 3)),
            *(np.random.default_rng(n).permutation(n), normal(4, 3)),
        ]
        for n in counts
    ]


def products_of_rows(model: onnx.ModelProto) -> int:
    """The number of products in the iterations, which multiply one row."""
    ranks = [int(one.args[0].ty.ndim) for one in calls(from_onnx(model), "relax.matmul")]
    return ranks.count(2)


@few(2)
@pytest.mark.parametrize("index", ["t", "i"], ids=["counter", "iteration"])
@pytest.mark.parametrize("weight", ["w0", "w1"], ids=["constant", "input"])
def test_all_rows_are_multiplied_at_once(index: str, weight: str) -> None:
    model = recurrent(index=index, weight=weight)
    assert products_of_rows(model) == 0
    assert_follows_onnx_runtime(from_onnx, model, *feeds(1, 2, 9, 70), rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"index": "place"},
        {"index": "wrapped"},
        {"index": "t", "step": "two", "trips": "zero"},
        {"weight_after": "Add (w, w)"},
        {"rows": "table", "trips": "zero"},
    ],
    ids=["computed index", "index that wraps", "other step", "weight that changes", "table"],
)
def test_other_products_stay_in_the_iteration(changes: dict[str, str]) -> None:
    model = recurrent(**changes)
    if "trips" not in changes:
        assert products_of_rows(model) == 1
        assert_follows_onnx_runtime(from_onnx, model, *feeds(1, 2, 9), rtol=1e-5)
        return
    # As many iterations as `n`, or else no index is in range.
    model.graph.node[2].input[0] = "count"
    assert products_of_rows(model) == 1


def test_tensors_that_do_not_change_are_not_carried() -> None:
    """Each is the last output, and a function has no parameter for a constant one."""
    model = recurrent()
    mod = from_onnx(model)
    shapes = [
        [*param.ty.shape.values]
        for variable, function in mod.functions_items()
        if isinstance(function, relax.Function) and str(variable.name_hint).startswith("loop")
        for param in function.params
        if isinstance(param.ty, relax.TensorType)
    ]
    assert shapes and [4, 3] not in [[int(d) for d in s if not hasattr(d, "name")] for s in shapes]
    assert_follows_onnx_runtime(from_onnx, model, *feeds(3), rtol=1e-5)


def test_tensors_that_change_places_are_carried() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        net (float[n] x, float[2] a0, float[2] b0) => (float[2] a, float[2] b)
        <bool true = {1}, int64[1] axis = {0}> {
            shape = Shape (x)
            count = Squeeze (shape, axis)
            a, b = Loop (count, true, a0, b0) <body = swap (
                int64 i, bool cond, float[2] a_in, float[2] b_in)
                => (bool again, float[2] a_out, float[2] b_out) {
                    again = Identity (cond)
                    a_out = Identity (b_in)
                    b_out = Identity (a_in)
                }>
        }""")
    cases = [[normal(n), normal(2), normal(2)] for n in (1, 2, 9, 70)]
    assert_follows_onnx_runtime(from_onnx, model, *cases)


if __name__ == "__main__":
    tvm.testing.main()
