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

import itertools

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from relax_helpers import build, call, merge, run, tensor
from tvm_fixes import switches
from tvm_fixes.relax.legalize.comparison import FIX_ID

OPERATORS = [
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "maximum",
    "minimum",
]


def comparison(name, dtype="bool"):
    operator = getattr(relax.op, name)
    inputs = {"a": tensor(4, 1, dtype=dtype), "b": tensor(4, dtype=dtype)}
    return build(inputs, lambda _, a, b: operator(a, b))


@pytest.fixture(scope="module")
def built():
    mods = {name: comparison(name) for name in OPERATORS}
    return relax.VirtualMachine(relax.build(merge(mods), "llvm"), tvm.cpu())


@pytest.mark.parametrize("name", OPERATORS)
def test_booleans_are_compared_as_numpy_does(built, name):
    pairs = np.array(list(itertools.product([False, True], repeat=2)))
    a, b = pairs[:, :1], pairs[:, 1]
    got = call(built, name, a, b)
    assert got.dtype == "bool"
    np.testing.assert_array_equal(got, getattr(np, name)(a, b))


def test_numbers_are_tvms(monkeypatch):
    mod = comparison("equal", "int32")
    ours = relax.transform.LegalizeOps()(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(ours, relax.transform.LegalizeOps()(mod))


def test_switch_restores_stock(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    with pytest.raises(Exception, match="fcmp oeq i1"):
        run(comparison("equal"), np.ones((4, 1), bool), np.ones(4, bool))


if __name__ == "__main__":
    tvm.testing.main()
