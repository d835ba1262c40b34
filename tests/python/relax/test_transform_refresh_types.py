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
"""The pass RefreshTypes."""

import numpy as np
import pytest
import tvm
import tvm.testing
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.relax_modules import run
from tvm_fixes import verify
from tvm_fixes.relax.transform import RefreshTypes

pytestmark = pytest.mark.native


@I.ir_module
class Expected:
    I.module_attrs({"kept": 1})

    @T.prim_func(private=True)
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] * T.float32(2)

    @T.prim_func(private=True)
    def twice(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for _i in range(2):
            Expected.double(A.data, B.data)

    @R.function(private=True)
    def inner(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
        cls = Expected
        if c:
            y = R.call_tir(cls.double, (x,), out_ty=R.Tensor((4,), "float32"))
        else:
            y = cls.inner(x)
        return y


def renamed(mod, *names):
    """The module with a new GlobalVar for each name, typed as a function without parameters."""
    stale = {}
    for name in names:
        var = tvm.ir.GlobalVar(name)
        ty = relax.FuncType([], relax.TensorType((8,), "float32"))
        tvm_ffi.get_global_func("relax.UpdateType")(var, ty)
        stale[mod.get_global_var(name)] = var

    def replace(var):
        return stale.get(var, var)

    functions = {
        replace(var): tvm_ffi.structural_map(function, (tvm.ir.GlobalVar, replace))
        for var, function in mod.functions_items()
    }
    return tvm.IRModule(functions, dict(mod.attrs))


def uses(function, name):
    """The GlobalVars of that name in a function of Relax or TIR."""
    variables = []

    def visit(var):
        if var.name_hint == name:
            variables.append(var)
        return var

    tvm_ffi.structural_map(function, (tvm.ir.GlobalVar, visit))
    return variables


@pytest.mark.parametrize("names", [["double"], ["inner"], ["main", "twice"], ["double", "inner"]])
def test_types(names):
    refreshed = RefreshTypes()(renamed(Expected, *names))
    tvm.ir.assert_structural_equal(refreshed, Expected)
    for name in ("double", "twice", "inner", "main"):
        var = refreshed.get_global_var(name)
        tvm.ir.assert_structural_equal(var.ty, Expected.get_global_var(name).ty)
        for function in refreshed.functions.values():
            assert all(use.same_as(var) for use in uses(function, name))
    assert uses(refreshed["twice"], "double") and uses(refreshed["main"], "inner")
    assert refreshed.attrs["kept"] == 1


def test_a_replaced_function():
    @T.prim_func(private=True)
    def double(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = A[i] * T.float32(2)

    before = Expected.clone()
    shared = before.get_global_var("double")
    before[shared] = double
    type_before = shared.ty
    refreshed = RefreshTypes()(before)
    tvm.ir.assert_structural_equal(refreshed.get_global_var("double").ty, double.ty)
    assert refreshed["double"].same_as(double)
    assert refreshed["inner"].same_as(Expected["inner"])
    # Expected has it too.
    assert shared.ty.same_as(type_before)
    assert Expected.get_global_var("double").same_as(shared)
    assert before.get_global_var("double").same_as(shared)


def test_idempotent():
    refreshed = RefreshTypes()(renamed(Expected, "double", "inner"))
    assert RefreshTypes()(refreshed).same_as(refreshed)
    assert RefreshTypes()(Expected).same_as(Expected)


def test_symbols_are_compared_by_position():
    @I.ir_module
    class Symbolic:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
            return x

    @I.ir_module
    class Other:
        @R.function
        def main(x: R.Tensor(("k", "l"), "float32")) -> R.Tensor(("k", "l"), "float32"):
            return x

    mod = Symbolic.clone()
    mod[mod.get_global_var("main")] = Other["main"]
    assert RefreshTypes()(mod).same_as(mod)


def test_a_recursive_function_without_a_type():
    @I.ir_module
    class Recursive:
        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (4,), "float32"
        ):
            cls = Recursive
            if c:
                y = cls.main(x, c)
            else:
                y = R.add(x, x)
            return y

    untyped = tvm.ir.GlobalVar("main")
    recursive = tvm_ffi.structural_map(Recursive["main"], (tvm.ir.GlobalVar, lambda _: untyped))
    refreshed = RefreshTypes()(tvm.IRModule({untyped: recursive}))
    tvm.ir.assert_structural_equal(refreshed, Recursive)
    var = refreshed.get_global_var("main")
    tvm.ir.assert_structural_equal(var.ty, Recursive.get_global_var("main").ty)
    assert [use.same_as(var) for use in uses(refreshed["main"], "main")] == [True]


def test_modules_without_anything_to_refresh():
    empty = tvm.IRModule()
    assert RefreshTypes()(empty).same_as(empty)
    refreshed = RefreshTypes()(tvm.IRModule({"f": relax.ExternFunc("f")}))
    assert [var.name_hint for var in refreshed.get_global_vars()] == ["f"]
    assert RefreshTypes()(refreshed).same_as(refreshed)


def test_the_verifier_finds_no_stale_type_afterwards():
    def stale(mod):
        return [found for found in verify(mod).errors if found.rule == "global.stale-type"]

    before = renamed(Expected, "inner")
    assert [found.hint for found in stale(before)] == [
        "tvm_fixes.transform.RefreshTypes updates it"
    ]
    assert verify(RefreshTypes()(before)) == []


def test_runs():
    kernels = Expected.clone()
    del kernels["twice"]
    refreshed = RefreshTypes()(renamed(kernels, "double", "inner"))
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(run(refreshed, x, np.array(True)), 2 * x)
    np.testing.assert_array_equal(run(refreshed, x, np.array(False)), x)


if __name__ == "__main__":
    tvm.testing.main()
