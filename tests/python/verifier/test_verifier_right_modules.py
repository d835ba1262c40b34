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
"""Unusual modules that are right, and extents and forms that are too large to be followed."""

import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.verifying import found, typed, var
from tvm_fixes import verify
from tvm_fixes.relax.transform import InsertRuntimeChecks

pytestmark = pytest.mark.native


def symbol(name):
    return tvm.tirx.Var(name, "int64")


def one_binding(params, value, result):
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(result)
    mod = builder.get()
    bound = relax.Var("bound", value.ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(bound, value)])], result)
    main = relax.Function(params, typed(body, result.ty), result.ty)
    mod[mod.get_global_var("main")] = main.with_attr("global_symbol", "main")
    return mod


def test_both_branches_overwrite_one_value():
    @I.ir_module(s_tir=True)
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def add(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.sblock("add"):
                    v = T.axis.spatial(8, i)
                    A[v] = A[v] + B[v]

        @R.function
        def main(x: R.Tensor((8,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (8,), "float32"
        ):
            cls = Module
            z = R.exp(x)
            if c:
                r = R.call_tir_inplace(cls.add, (z, x), [0], out_ty=R.Tensor((8,), "float32"))
            else:
                r = R.call_tir_inplace(cls.add, (z, x), [0], out_ty=R.Tensor((8,), "float32"))
            return r

    relax.analysis.well_formed(Module)
    assert not verify(Module)


def test_vectors_that_run_over_rows():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def copy(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
            B[0, T.Ramp(0, 1, 16)] = A[0, T.Ramp(0, 1, 16)]

    assert not verify(Module)


def test_a_tensor_for_a_pointer():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def copy(a: T.handle, b: T.handle, workspace: T.handle):
            A = T.match_buffer(a, (4,), "float32")
            B = T.match_buffer(b, (4,), "float32")
            for i in range(4):
                B[i] = A[i]

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            y = R.builtin.alloc_tensor(
                R.shape([4]), R.dtype("float32"), R.prim_value(0), R.str("global")
            )
            _ = cls.copy(x, y, x)
            return y

    relax.analysis.well_formed(Module)
    assert not verify(Module).errors


def test_tensors_on_several_devices():
    @I.ir_module
    class Module:
        I.module_attrs({"device_num": 10})
        I.module_global_infos({"mesh": [R.dist.device_mesh((2, 2), I.Range(0, 4))]})

        @R.function
        def main(
            x: R.dist.DTensor(("n", 128), "float32", "mesh[0]", "S[0], R"),
        ) -> R.dist.DTensor(("n", 128), "float32", "mesh[0]", "S[0], R"):
            y = R.nn.relu(x)
            return y

    relax.analysis.well_formed(Module)
    assert not verify(Module)


def test_an_extent_before_the_symbols_that_it_is_made_of():
    n, m = symbol("n"), symbol("m")
    x = var("x", n * m)
    builder = relax.BlockBuilder()
    sizes = relax.Var("sizes", relax.ShapeType([n, m]))
    with builder.function("main", [sizes, x]):
        builder.emit_func_output(builder.emit(relax.op.reshape(x, relax.ShapeExpr([n, m]))))
    assert not verify(relax.transform.LegalizeOps()(builder.get()))


def test_a_scalar_may_be_negative():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def f(A: T.Buffer((4,), "float32"), m: T.int64):
            A[T.min(m, T.int64(0)) + T.int64(5)] = T.float32(0)

    assert not verify(Module)


def nested_branches(depth):
    x, c = var("x", 4), relax.Var("c", relax.TensorType((), "bool"))
    body = typed(relax.SeqExpr([], x), x.ty)
    for _ in range(depth):
        bound, other = var("v", 4), typed(relax.SeqExpr([], x), x.ty)
        binding = relax.VarBinding(bound, typed(relax.If(c, body, other), x.ty))
        body = typed(relax.SeqExpr([relax.BindingBlock([binding])], bound), x.ty)
    return tvm.IRModule({"main": relax.Function([x, c], body, x.ty)})


def test_branches_nest_to_a_depth():
    assert not verify(nested_branches(400))
    messages = {message for rule, _, message in found(nested_branches(3000))}
    assert "the true branch is nested more than 500 deep" in messages


def squares(e):
    return tvm.tirx.Mul(e, e)


def shared(e):
    three, five = (tvm.tirx.IntImm("int64", value) for value in (3, 5))
    return tvm.tirx.Max(tvm.tirx.FloorDiv(e, three), tvm.tirx.FloorMod(e, five))


def quotients(e):
    three = tvm.tirx.IntImm("int64", 3)
    return tvm.tirx.FloorDiv(tvm.tirx.Add(e, three), three)


@pytest.mark.parametrize("grow, steps", [(squares, 40), (shared, 40), (quotients, 300)])
def test_extents_that_grow_without_end(grow, steps):
    """An extent that is too large to decide is unknown, and takes no more time."""
    k = symbol("k")
    extent = k
    for _ in range(steps):
        extent = grow(extent)
    x = var("x", k)
    relu = typed(
        relax.Call(tvm.ir.Op.get("relax.nn.relu"), [x]), relax.TensorType((extent,), "float32")
    )
    mod = one_binding([x], relu, x)
    assert [diagnostic.severity for diagnostic in verify(mod)] == ["warning"]


def test_checks_at_run_time_leave_malformed_calls_alone():
    x, i = var("x", 4), var("i", 2, dtype="int64")
    take = typed(
        relax.Call(tvm.ir.Op.get("relax.take"), [x, i], None), relax.TensorType((2,), "float32")
    )
    mod = one_binding([x, i], take, x)
    assert [rule for rule, _, _ in found(mod)] == ["op.attrs"]
    assert InsertRuntimeChecks()(mod).same_as(mod)


def test_checks_at_run_time_leave_kernels_alone():
    x, i = var("x", 4), var("i", 2, dtype="int64")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, i], attrs={"Primitive": True}):
        with builder.dataflow():
            out = builder.emit_output(relax.op.take(x, i, axis=0))
        builder.emit_func_output(out)
    mod = builder.get()
    assert InsertRuntimeChecks()(mod).same_as(mod)


if __name__ == "__main__":
    tvm.testing.main()
