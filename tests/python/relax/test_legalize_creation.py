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
from tvm import relax

from helpers.relax_modules import build, call, cpu, merge, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.legalize.creation import FIX_ID
from tvm_fixes.support import switches

VALUES = {"least": -np.inf, "most": np.inf, "nan": np.nan}
DTYPES = ["float16", "bfloat16", "float32", "float64"]


def full(value, dtype="float32", rows=2):
    fill = relax.const(value, dtype)
    return build({}, lambda *_: relax.op.full((rows, 3), fill, dtype))


@pytest.fixture(scope="module")
def built():
    mods = {
        f"{name}_{dtype}": full(value, dtype) for name, value in VALUES.items() for dtype in DTYPES
    }
    return relax.VirtualMachine(relax.build(merge(mods), cpu()), tvm.cpu())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VALUES)
def test_no_finite_number(built, name, dtype):
    got = call(built, f"{name}_{dtype}")
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype("float64"), np.full((2, 3), VALUES[name]))


def test_full_like_of_an_unknown_extent():
    x = tensor(tvm.tirx.Var("n", "int64"), 2)
    fill = relax.const(-np.inf, "float32")
    mod = build({"x": x}, lambda _, x: relax.op.full_like(x, fill))
    got = run(mod, np.zeros((3, 2), "float32"))
    np.testing.assert_array_equal(got, np.full((3, 2), -np.inf))


def extents_as_a_tensor():
    """Broadcast to one of the extents, so that both are fused."""
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")

    def emit(builder, x):
        extents = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([n, n * m + 1, 3])))
        return relax.op.broadcast_to(extents, relax.ShapeExpr([m, 3]))

    return build({"x": tensor(n, m)}, emit)


def test_extents_that_are_broadcast():
    got = run(extents_as_a_tensor(), np.zeros((2, 4), "float32"), pipeline=pipeline())
    np.testing.assert_array_equal(got, [[2, 9, 3]] * 4)


def test_extents_that_are_known():
    shape = relax.ShapeExpr([2, 5])
    got = run(build({}, lambda *_: relax.op.shape_to_tensor(shape)))
    np.testing.assert_array_equal(got, [2, 5])


def test_finite_numbers_use_stock(monkeypatch):
    mod = full(0.5)
    ours = relax.transform.LegalizeOps()(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(ours, relax.transform.LegalizeOps()(mod))


def test_switch_restores_stock(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    with pytest.raises(TypeError, match="not iterable"):
        run(full(np.inf))
    # Our FuseOps keeps TVM's FuseTIR from failing.
    steps = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    steps += [relax.transform.FuseOps(), relax.transform.FuseTIR()]
    with pytest.raises(Exception, match="VarRemapGet"):
        tvm.transform.Sequential(steps)(extents_as_a_tensor())


if __name__ == "__main__":
    tvm.testing.main()
