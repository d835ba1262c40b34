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
"""Fusion of kernels in functions with branches."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.grids import few
from helpers.relax_modules import run
from tvm_fixes import pipeline
from tvm_fixes.relax.analysis import bindings
from tvm_fixes.relax.lifted_runs import lift_runs, lower_runs
from tvm_fixes.relax.transform.fuse_ops import FuseOps


@I.ir_module
class Branches:
    """Three steps before a branch, three in each branch, one of which has another branch."""

    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), flag: R.Tensor((), "bool"), other: R.Tensor((), "bool")
    ) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        a = R.exp(x)
        b = R.add(a, x)
        c = R.multiply(b, R.const(0.5, "float32"))
        if flag:
            d = R.exp(c)
            e = R.subtract(d, b)
            f = R.negative(e)
            if other:
                g = R.add(f, c)
                h = R.abs(g)
                y = R.sqrt(h)
            else:
                y = R.negative(f)
            z = y
        else:
            i = R.add(c, x)
            j = R.sin(i)
            z = R.negative(j)
        return z


def expected(x, flag, other):
    b = np.exp(x) + x
    c = b * np.float32(0.5)
    if not flag:
        return -np.sin(c + x)
    f = b - np.exp(c)
    return np.sqrt(np.abs(f + c)) if other else -f


def legalized(mod):
    passes = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    return tvm.transform.Sequential(passes)(mod)


def called(mod):
    """The number of calls of kernels, and of fused ones."""
    values = [binding.value for binding in bindings(mod["main"])]
    calls = [value for value in values if isinstance(value, relax.Call)]
    fused = [call for call in calls if isinstance(call.op, tvm.ir.GlobalVar)]
    return len(calls) - len(fused), len(fused)


def test_each_run_is_fused():
    """TVM fuses nothing in this function."""
    mod = legalized(Branches)
    assert called(relax.transform.FuseOps()(mod)) == (13, 0)
    fused = FuseOps()(mod)
    assert called(fused) == (2, 4)
    assert relax.analysis.check_well_formed(fused)
    assert not any("run" in str(var.name_hint) for var, _ in fused.functions_items())


def test_lifting_and_lowering_restore_a_module():
    mod = legalized(Branches)
    lifted = lift_runs(mod)
    assert len(lifted.functions) == len(mod.functions) + 4
    tvm.ir.assert_structural_equal(lower_runs(lifted), mod)


def test_a_run_of_one_kernel_is_kept():
    @I.ir_module
    class Single:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            return y

    mod = legalized(Single)
    assert lift_runs(mod).same_as(mod)


def test_dataflow_blocks_are_kept():
    @I.ir_module
    class Straight:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                y = R.exp(x)
                z = R.negative(y)
                R.output(z)
            return z

    mod = legalized(Straight)
    assert lift_runs(mod).same_as(mod)
    assert lower_runs(mod).same_as(mod)


@few(2)
@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("other", [False, True])
def test_results(flag, other):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    got = run(Branches, x, np.array(flag), np.array(other), pipeline=pipeline())
    np.testing.assert_allclose(got, expected(x, flag, other), rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
