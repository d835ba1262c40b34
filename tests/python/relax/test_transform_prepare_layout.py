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
"""tvm_fixes.transform.PrepareLayout."""

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.grids import batched
from helpers.relax_modules import build, call, count, cpu, integers, merge, run, tensor
from tvm_fixes import pipeline, transform

pytestmark = pytest.mark.native

F32 = "float32"


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = transform.PrepareLayout()(before)
    assert relax.analysis.check_well_formed(after)
    tvm.ir.assert_structural_equal(after, expected)


BIAS = np.arange(8, dtype=F32)


@pytest.mark.parametrize(
    "reshape, shape",
    [
        (lambda c: relax.op.reshape(c, (1, 8, 1, 1)), (1, 8, 1, 1)),
        (lambda c: relax.op.expand_dims(c, [1, 2]), (8, 1, 1)),
        (lambda c: relax.op.reshape(c, (4, 2)), (4, 2)),
        (lambda c: relax.op.squeeze(relax.op.expand_dims(c, 0), 0), (8,)),
    ],
)
def test_reshape_of_a_constant_is_folded(reshape, shape):
    x = {"x": tensor(*shape)}
    before = build(x, lambda b, x: b.emit(relax.op.add(x, reshape(relax.const(BIAS)))))
    folded = relax.const(BIAS.reshape(shape))
    check(before, build(x, lambda b, x: b.emit(relax.op.add(x, folded))))


def test_folded_constant_shares_its_memory():
    constant = relax.const(BIAS)
    before = build(
        {"x": tensor(4, 2)}, lambda b, x: relax.op.add(x, relax.op.reshape(constant, (4, 2)))
    )
    after = transform.PrepareLayout()(before)
    folded = after["main"].body.blocks[0].bindings[0].value.args[1]
    assert folded.value.__dlpack_device__() == constant.value.__dlpack_device__()
    assert np.from_dlpack(folded.value).ctypes.data == np.from_dlpack(constant.value).ctypes.data


def test_reshape_and_permute_of_a_value_are_kept():
    n = tvm.tirx.Var("n", "int64")
    before = build(
        {"x": tensor(n, 8), "y": tensor(8), "z": tensor(8, n)},
        lambda b, x, y, z: relax.op.add(
            relax.op.add(x, relax.op.reshape(y, (1, 8))), relax.op.permute_dims(z)
        ),
    )
    after = transform.PrepareLayout()(before)
    assert after["main"].same_as(before["main"])


def test_constant_that_is_put_out_keeps_its_binding():
    before = build({"x": tensor(2)}, lambda b, x: relax.op.reshape(relax.const(BIAS), (2, 4)))
    check(before, build({"x": tensor(2)}, lambda b, x: relax.const(BIAS.reshape(2, 4))))


@pytest.mark.parametrize("op", [relax.op.add, relax.op.subtract, relax.op.maximum])
@pytest.mark.parametrize("constant_first", [False, True])
def test_constant_operand_gets_the_rank_of_the_result(op, constant_first):
    def emit(constant):
        return lambda b, x: op(constant, x) if constant_first else op(x, constant)

    n = tvm.tirx.Var("n", "int64")
    x = {"x": tensor(n, 8, 2, 2)}
    before = build(x, emit(relax.const(BIAS.reshape(8, 1, 1))))
    check(before, build(x, emit(relax.const(BIAS.reshape(1, 8, 1, 1)))))


def test_scalar_constant_is_kept():
    before = build({"x": tensor(2, 3)}, lambda b, x: relax.op.add(x, relax.const(1.0, F32)))
    after = transform.PrepareLayout()(before)
    assert after["main"].same_as(before["main"])


@pytest.mark.parametrize(
    "shape, axes, expected",
    [
        ((2, 5, 1, 3), [0, 2, 1, 3], (2, 1, 5, 3)),
        ((1, 5, 3), [1, 0, 2], (5, 1, 3)),
        ((1, 1, 7), None, (7, 1, 1)),
        (("n", 1, 3), [0, -1, 1], ("n", 3, 1)),
    ],
)
def test_permute_of_unit_axes_is_a_reshape(shape, axes, expected):
    n = tvm.tirx.Var("n", "int64")
    x = {"x": tensor(*[n if dim == "n" else dim for dim in shape])}
    new_shape = [n if dim == "n" else dim for dim in expected]
    before = build(x, lambda b, x: relax.op.permute_dims(x, axes))
    check(before, build(x, lambda b, x: relax.op.reshape(x, new_shape)))


def test_identities_are_dropped():
    n = tvm.tirx.Var("n", "int64")

    def emit(builder, x):
        y = builder.emit(relax.op.nn.relu(x))
        y = builder.emit(relax.op.permute_dims(y, [0, 1]))
        y = builder.emit(relax.op.broadcast_to(y, (n, 3)))
        y = builder.emit(relax.op.reshape(y, (n, 3)))
        return builder.emit(relax.op.exp(y))

    x = {"x": tensor(n, 3)}
    check(build(x, emit), build(x, lambda b, x: b.emit(relax.op.exp(b.emit(relax.op.nn.relu(x))))))


def test_constant_of_one_element_becomes_a_scalar():
    x = {"x": tensor(2, 3)}
    before = build(x, lambda b, x: relax.op.multiply(x, relax.const(np.array([2], F32))))
    check(before, build(x, lambda b, x: relax.op.multiply(x, relax.const(2, F32))))


@pytest.mark.parametrize("view", [lambda c: relax.op.squeeze(c), lambda c: relax.op.reshape(c, ())])
def test_constant_reshaped_to_a_scalar(view):
    constant = relax.const(np.array([[2]], F32))
    before = build({"x": tensor(2, 3)}, lambda b, x: relax.op.add(x, b.emit(view(constant))))
    after = transform.PrepareLayout()(before)
    assert count(after, "relax.squeeze") + count(after, "relax.reshape") == 0
    np.testing.assert_array_equal(run(after, integers(2, 3)), integers(2, 3) + 2)


def test_constant_that_does_not_reach_the_channels_can_be_packed():
    def emit(builder, x):
        y = builder.emit(relax.op.nn.conv2d(x, relax.const(integers(4, 4, 1, 1))))
        return builder.emit(relax.op.add(y, relax.const(BIAS)))

    before = build({"x": tensor(1, 4, 8, 8)}, emit)
    packed = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]})
    assert relax.analysis.check_well_formed(packed(transform.PrepareLayout()(before)))


def bind(*blocks, result, params) -> tvm.IRModule:
    """A module of the given blocks, each a class and (variable, value) pairs."""
    builder = relax.BlockBuilder()
    made = [
        block([relax.VarBinding(var, builder.normalize(value)) for var, value in bindings])
        for block, bindings in blocks
    ]
    body = builder.normalize(relax.SeqExpr(made, result))
    function = relax.Function(params, body, result.ty).with_attr("global_symbol", "main")
    mod = tvm.IRModule({"main": function})
    assert relax.analysis.check_well_formed(mod)
    return mod


def test_scalar_that_a_shape_names_is_kept():
    x, n = relax.Var("x", tensor(2, 3)), relax.Var("n", tvm.ir.PrimType("int64"))
    pair, k = relax.Var("pair", tvm.ir.TupleType([n.ty, n.ty])), relax.Var("k", n.ty)
    out = relax.Var("out", relax.TensorType(dtype=F32, ndim=1))
    mod = bind(
        (
            relax.DataflowBlock,
            [
                (n, tvm.tirx.IntImm("int64", 6)),
                (pair, relax.Tuple([n, n])),
                (k, relax.TupleGetItem(pair, 0)),
                (out, relax.op.reshape(x, relax.ShapeExpr([k]))),
            ],
        ),
        result=out,
        params=[x],
    )
    after = transform.PrepareLayout()(mod)
    assert relax.analysis.check_well_formed(after)
    np.testing.assert_array_equal(run(after, integers(2, 3)), integers(2, 3).ravel())


def test_dataflow_var_in_a_nested_tuple_does_not_leave_its_block():
    x, lv = relax.Var("x", tensor(2, 3)), relax.DataflowVar("lv", tensor(2, 3))
    inner = tvm.ir.TupleType([x.ty, x.ty])
    gv = relax.Var("gv", tvm.ir.TupleType([inner, x.ty]))
    item, out = relax.Var("item", inner), relax.Var("out", x.ty)
    mod = bind(
        (
            relax.DataflowBlock,
            [(lv, relax.op.nn.relu(x)), (gv, relax.Tuple([relax.Tuple([lv, x]), x]))],
        ),
        (
            relax.BindingBlock,
            [(item, relax.TupleGetItem(gv, 0)), (out, relax.TupleGetItem(item, 0))],
        ),
        result=out,
        params=[x],
    )
    after = transform.PrepareLayout()(mod)
    assert relax.analysis.check_well_formed(after)
    np.testing.assert_array_equal(run(after, integers(2, 3)), np.maximum(integers(2, 3), 0))


def test_the_type_of_a_match_cast_is_kept():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor("float32", ndim=2)) -> R.Tensor((2, 3), "float32"):
            pair = (x, x)
            cast = R.match_cast(
                pair, R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2, 3), "float32"))
            )
            item = cast[0]
            out = R.exp(item)
            return out

    after = transform.PrepareLayout()(Module)
    assert relax.analysis.check_well_formed(after)
    np.testing.assert_allclose(run(after, integers(2, 3)), np.exp(integers(2, 3)), rtol=1e-5)


def test_null_nodes_do_not_crash():
    x, y = relax.Var("x", tensor(2, 3)), relax.DataflowVar("y", tensor(2, 3))
    add = tvm.ir.Op.get("relax.add")
    for value in (
        tvm.ir.Call(add, [x, None], ret_ty=x.ty),
        tvm.ir.Call(tvm.ir.Op.get("relax.broadcast_to"), [], ret_ty=x.ty),
    ):
        body = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(y, value)])], y)
        mod = tvm.IRModule({"main": relax.Function([x], body, tensor(2, 3))})
        assert transform.PrepareLayout()(mod)["main"].params[0].same_as(x)


def test_dead_code_and_tuple_fields():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                lv0 = R.nn.relu(x)
                lv1 = R.zeros_like(lv0)
                lv2 = (lv0, lv1)
                lv3 = lv2[0]
                dead = R.exp(lv3)
                gv = R.tanh(lv3)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                lv0 = R.nn.relu(x)
                gv = R.tanh(lv0)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_dataflow_var_does_not_leave_its_block():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                lv0 = R.nn.relu(x)
                gv = (lv0, x)
                R.output(gv)
            item = gv[0]
            return item

    after = transform.PrepareLayout()(Before)
    assert relax.analysis.check_well_formed(after)
    tvm.ir.assert_structural_equal(after, Before)
    assert after["main"].same_as(Before["main"])


def test_field_that_is_not_a_dataflow_var_leaves_its_block():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                gv = (x, R.exp(x))
                R.output(gv)
            item = gv[0]
            return item

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return x

    check(Before, Expected)


def test_match_cast_and_impure_calls_are_kept():
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor("float32", ndim=2)) -> R.Tensor("float32", ndim=2):
            m, n = T.int64(), T.int64()
            unread = R.print(x, format="{}")
            with R.dataflow():
                lv = R.match_cast(x, R.Tensor((m, n), "float32"))
                gv = R.nn.relu(x)
                R.output(gv)
            return gv

    after = transform.PrepareLayout()(Module)
    assert after["main"].same_as(Module["main"])


def test_a_call_that_is_cast_gets_a_variable():
    """ConvertLayout tracks the layouts of variables, and raises at a cast of anything else."""

    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 8, 4, 4), "float32"),
            w: R.Tensor((8, 8, 3, 3), "float32"),
            kept: R.Tensor((8,), "bool"),
        ) -> R.Tensor("float32", ndim=4):
            n = T.int64()
            with R.dataflow():
                found = R.match_cast(R.nonzero(kept), R.Tensor((1, n), "int64"))
                indices = R.reshape(found, R.shape([n]))
                y = R.nn.conv2d(x, w)
                z = R.take(y, indices, axis=1)
                R.output(z)
            return z

    def is_cast(binding):
        return isinstance(binding, relax.MatchCast)

    after = transform.PrepareLayout()(Before)
    [cast] = filter(is_cast, after["main"].body.blocks[0].bindings)
    assert isinstance(cast.value, relax.Var)
    assert transform.PrepareLayout()(after)["main"].same_as(after["main"])
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, dtype=F32) for shape in ((1, 8, 4, 4), (8, 8, 3, 3)))
    kept = np.array([True, False, False, True, True, False, False, False])
    layout = pipeline("cpu", layout="NHWC")
    np.testing.assert_allclose(
        run(Before, x, w, kept, pipeline=layout), run(Before, x, w, kept), rtol=1e-4, atol=1e-5
    )


def test_branches_are_rewritten_and_unchanged_functions_are_kept():
    constant = relax.const(BIAS)
    builder = relax.BlockBuilder()
    cond = relax.Var("cond", relax.TensorType((), "bool"))
    x = relax.Var("x", tensor(2, 4))

    def branch(op):
        # A branch is a SeqExpr with its own block.
        lv = relax.DataflowVar("lv", tensor(2, 4))
        out = relax.Var("out", tensor(2, 4))
        block = relax.DataflowBlock(
            [
                relax.VarBinding(lv, builder.normalize(relax.op.reshape(constant, (2, 4)))),
                relax.VarBinding(out, builder.normalize(op(x, lv))),
            ]
        )
        return relax.SeqExpr([block], out)

    with builder.function("main", [cond, x]):
        result = builder.emit(relax.If(cond, branch(relax.op.add), branch(relax.op.multiply)))
        builder.emit_func_output(result)
    y = relax.Var("y", tensor(2))
    with builder.function("other", [y]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(y)))
    before = builder.get()

    after = transform.PrepareLayout()(before)
    assert relax.analysis.check_well_formed(after)
    assert count(before, "relax.reshape") == 2
    assert count(after, "relax.reshape") == 0
    assert after["other"].same_as(before["other"])
    data = np.random.default_rng(0).standard_normal((2, 4), dtype=F32)
    for choice in (True, False):
        args = np.array(choice), data
        expected = run(before, *args, pipeline="tvm_fixes")
        np.testing.assert_array_equal(run(after, *args, pipeline="tvm_fixes"), expected)


def test_local_functions_are_rewritten():
    """Captured variables keep their names; the function's own blocks are rewritten."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")) -> R.Tensor(
            (2, 3), "float32"
        ):
            with R.dataflow():
                unread = R.tanh(x)
                captured = R.nn.relu(x)
                R.output(captured)

            @R.function
            def inner(z: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
                with R.dataflow():
                    same = R.reshape(z, R.shape([2, 3]))
                    unread_too = R.exp(captured)
                    pair = (same, captured)
                    total = R.add(pair[0], pair[1])
                    R.output(total)
                return total

            out = inner(y)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")) -> R.Tensor(
            (2, 3), "float32"
        ):
            with R.dataflow():
                captured = R.nn.relu(x)
                R.output(captured)

            @R.function
            def inner(z: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
                with R.dataflow():
                    total = R.add(z, captured)
                    R.output(total)
                return total

            out = inner(y)
            return out

    check(Before, Expected)
    x, y = integers(2, 3), integers(2, 3, seed=1)
    # The caller must lift closures.
    lifted = relax.transform.LambdaLift()(transform.PrepareLayout()(Before))
    np.testing.assert_array_equal(run(lifted, x, y), y + np.maximum(x, 0))


def test_a_long_chain_of_bindings():
    depth = 20_000
    x = relax.Var("x", tensor(2))
    relu = tvm.ir.Op.get("relax.nn.relu")
    bindings, value = [], x
    for i in range(depth):
        var = relax.DataflowVar(f"v{i}", tensor(2))
        bindings.append(relax.VarBinding(var, tvm.ir.Call(relu, [value], ret_ty=tensor(2))))
        value = var
    dead = relax.DataflowVar("dead", tensor(2))
    out = relax.Var("out", tensor(2))
    bindings += [relax.VarBinding(dead, tvm.ir.Call(relu, [value], ret_ty=tensor(2)))]
    bindings += [relax.VarBinding(out, value)]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], out)
    mod = tvm.IRModule({"main": relax.Function([x], body, tensor(2))})
    after = transform.PrepareLayout()(mod)
    assert len(after["main"].body.blocks[0].bindings) == depth + 1
    assert (
        after["main"]
        .body.blocks[0]
        .same_as(transform.PrepareLayout()(after)["main"].body.blocks[0])
    )


@st.composite
def random_module(draw):
    """A graph of tuples, reshaped constants and element-wise operators on (2, 4)."""

    def emit(builder, x):
        values = [x]
        for _ in range(draw(st.integers(1, 12))):
            kind = draw(st.sampled_from(["add", "tuple", "constant", "nested", "relu"]))
            left, right = (values[draw(st.integers(0, len(values) - 1))] for _ in range(2))
            if kind == "add":
                values.append(builder.emit(relax.op.add(left, right)))
            elif kind == "relu":
                values.append(builder.emit(relax.op.nn.relu(left)))
            elif kind == "constant":
                data = np.array(draw(st.lists(st.integers(-4, 4), min_size=8, max_size=8)), F32)
                values.append(builder.emit(relax.op.reshape(relax.const(data), (2, 4))))
            else:
                fields = [left, right]
                if kind == "nested":
                    fields = [relax.Tuple(fields), left]
                item = builder.emit(relax.Tuple(fields))
                item = builder.emit(relax.TupleGetItem(item, draw(st.integers(0, 1))))
                if isinstance(item.ty, tvm.ir.TupleType):
                    item = builder.emit(relax.TupleGetItem(item, draw(st.integers(0, 1))))
                values.append(item)
        picked = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        return relax.Tuple(picked)

    return build({"x": tensor(2, 4)}, emit)


@batched(5)
@given(st.lists(random_module(), min_size=5, max_size=5))
def test_random_graphs_keep_their_values(mods):
    versions = {}
    for i, before in enumerate(mods):
        after = transform.PrepareLayout()(before)
        assert relax.analysis.check_well_formed(after)
        assert count(after, "relax.reshape") == 0
        assert transform.PrepareLayout()(after)["main"].same_as(after["main"])
        versions |= {f"before{i}": before, f"after{i}": after}
    vm = relax.VirtualMachine(relax.build(merge(versions), cpu()), tvm.cpu())
    data = np.random.default_rng(1).standard_normal((2, 4), dtype=F32)
    for i, before in enumerate(mods):
        expected, got = call(vm, f"before{i}", data), call(vm, f"after{i}", data)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(before))


if __name__ == "__main__":
    tvm.testing.main()
