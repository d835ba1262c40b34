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
"""The interpreter of Relax and the reducer that the fuzzer of passes uses."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tvm.testing
from tvm import relax

import tvm_fixes
from helpers.relax_modules import build, tensor
from tvm_fixes.relax.analysis import operator_calls

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.reduce_relax import Case, reduce
from tests.fuzz.relax_oracle import expected
from tests.fuzz.relax_programs import make_program

op = relax.op
pytestmark = pytest.mark.native


def test_results_within_rounding_are_right():
    def emit(builder, x):
        return op.nn.softmax(builder.emit(op.multiply(x, x)), -1)

    mod = build({"x": tensor(3, 5)}, emit)
    x = np.random.default_rng(0).standard_normal((3, 5)).astype("float32")
    exact = np.exp(x.astype("float64") ** 2)
    exact = exact / exact.sum(-1, keepdims=True)
    want = expected(mod, [x], 0)
    assert want.difference([exact.astype("float32")]) is None
    assert "elements are wrong" in want.difference([(exact * (1 + 1e-5)).astype("float32")])
    assert "is float64" in want.difference([exact])


@pytest.mark.parametrize(
    ("operator", "want"),
    [
        (op.nn.relu, [np.nan, 0, 2]),
        (op.sign, [0, -1, 1]),
        (lambda x: op.sort(x, 0, descending=True), [np.nan, 2, -np.inf]),
        (lambda x: op.floor_divide(x, relax.const(3.0)), [np.nan, np.nan, 0]),
    ],
)
def test_nan_is_as_in_pytorch(operator, want):
    mod = build({"x": tensor(3)}, lambda _, x: operator(x))
    x = np.array([np.nan, -np.inf, 2], "float32")
    assert expected(mod, [x], 0).difference([np.array(want, "float32")]) is None


def test_a_cancelled_sum_may_be_zero_or_not():
    mod = build({"x": tensor(3)}, lambda b, x: op.astype(b.emit(op.sum(x, [0])), "bool"))
    want = expected(mod, [np.array([0.1, 0.2, -0.3], "float32")], 0)
    assert want.difference([np.array(False)]) is want.difference([np.array(True)]) is None


def test_no_extent_is_negative():
    """By TVM's type rule, a slice that ends before its begin has a negative extent."""
    for seed in range(60):
        mod = make_program(np.random.default_rng(seed), steps=6, only=["movement", "pool"]).mod
        assert {one.rule for one in tvm_fixes.verify(mod) if one.severity == "error"} == set()


def test_a_module_is_reduced_to_what_fails():
    def fails(case):
        return any(one.value.op.name == "relax.nn.conv2d" for _, one in operator_calls(case.mod))

    program = make_program(np.random.default_rng(0))
    inputs = program.inputs(np.random.default_rng(0), program.symbols)
    small = reduce(Case(program.mod, inputs), fails)
    assert len(list(operator_calls(small.mod))) == 1
    assert len(small.inputs) == 2


if __name__ == "__main__":
    tvm.testing.main()
