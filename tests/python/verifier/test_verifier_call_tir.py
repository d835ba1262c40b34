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
"""Calls of PrimFuncs: the callee, its buffers, symbols, and overwritten memory."""

import pytest
import tvm
import tvm.te
import tvm.testing
import tvm.topi
from tvm import relax, tirx
from tvm.script import tirx as T

from helpers.relax_modules import tensor
from helpers.verifying import (
    Cases,
    assert_found,
    call,
    found,
    function,
    put,
    typed,
    var,
)
from tvm_fixes.verifier import verify

pytestmark = pytest.mark.native
case = Cases()


def relu(batch: int) -> tirx.PrimFunc:
    data = tvm.te.placeholder((batch, 64, 56, 56), "float32", name="A")
    return tvm.te.create_prim_func([data, tvm.topi.nn.relu(data)]).without_attr("global_symbol")


def origin(batch: int, replaced: int | None = None) -> tvm.IRModule:
    """A convolution of one image, and a relu for `batch` images, optionally replaced."""
    builder = relax.BlockBuilder()
    x, w = var("x", 1, 64, 56, 56), var("w", 64, 64, 1, 1)
    with builder.function("main", [x, w]):
        y = builder.emit(relax.op.nn.conv2d(x, w))
        name = builder.add_func(relu(1), "relu")
        builder.emit_func_output(builder.emit(relax.call_tir(name, (y,), y.ty)))
    mod = builder.get()
    mod[name] = relu(batch if replaced is None else replaced)
    if replaced is None:
        put(name, "ty", mod[name].ty)
    return mod


@T.prim_func(private=True)
def two_buffers(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        B[i] = A[i]


@T.prim_func(private=True)
def three_buffers(a: T.handle, b: T.handle, c: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (m,), "float32")
    C = T.match_buffer(c, (n + m,), "float32")
    for i in range(n + m):
        C[i] = T.if_then_else(i < n, A[i], B[i - n])


@T.prim_func(private=True)
def scaled(a: T.handle, n: T.int64, b: T.handle):
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (2 * n,), "float32")
    for i in range(n):
        B[i] = A[i]


@T.prim_func(private=True)
def overwriting(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i] = A[i] + B[i]


def calling(
    callee: relax.Function | tirx.PrimFunc,
    *args: relax.Expr,
    out: tvm.ir.Type,
    params: list[relax.Var] | None = None,
) -> tvm.IRModule:
    """A module whose ``main`` returns a call_tir of `callee`."""
    mod = tvm.IRModule({"f": callee})
    value = call("call_tir", mod.get_global_var("f"), relax.Tuple(args), ty=out)
    put(value, "ty_args", [out])
    y = relax.Var("y", out)
    params = params or [arg for arg in args if isinstance(arg, relax.Var)]
    mod["main"] = function(params, [(y, value)], y)
    return mod


def overwriting_call(name: tvm.ir.GlobalVar, *args: relax.Expr, index: int = 0) -> relax.Call:
    value = relax.op.call_tir_inplace(name, relax.Tuple(args), [0], tensor(4))
    attrs = tvm.ir.make_node("relax.attrs.CallTIRInplaceAttrs", inplace_indices=[index])
    put(value, "attrs", attrs)
    return typed(value, tensor(4))


def in_place(*rest: str, first: str = "x", second: str = "x", index: int = 0) -> tvm.IRModule:
    """``a = x + x; b = in place(first, second); …`` followed by additions of `rest` to b."""
    mod = tvm.IRModule({"f": overwriting})
    names = {"x": var("x", 4), "a": var("a", 4), "c": var("c", 4)}
    bindings = [
        (names["a"], call("add", names["x"], names["x"], ty=tensor(4))),
        (names["c"], names["a"]),
    ]
    last = var("b", 4)
    value = overwriting_call(mod.get_global_var("f"), names[first], names[second], index=index)
    bindings.append((last, value))
    for other in rest:
        z = var("z", 4)
        bindings.append((z, call("add", last, names[other], ty=tensor(4))))
        last = z
    mod["main"] = function([names["x"]], bindings, last)
    return mod


@case(
    (
        "call_tir.arg",
        "main.body.blocks[0].bindings[1].value.args[1].fields[0]",
        "argument 0 of `relu`: dim 0: 1 != 64",
    ),
    (
        "call_tir.out",
        "main.body.blocks[0].bindings[1].value.ty_args[0]",
        "result 0 of `relu`: dim 0: 1 != 64",
    ),
)
def the_relu_of_another_batch():
    return origin(64)


@case(
    (
        "call_tir.arg",
        "main.body.blocks[0].bindings[1].value.args[1].fields[0]",
        "argument 0 of `relu`: dim 0: 1 != 64",
    ),
    (
        "call_tir.out",
        "main.body.blocks[0].bindings[1].value.ty_args[0]",
        "result 0 of `relu`: dim 0: 1 != 64",
    ),
)
def the_relu_is_replaced():
    """The GlobalVar still has the type of the original relu."""
    return origin(1, replaced=64)


@case()
def the_relu_of_the_batch():
    return origin(1)


@case(
    (
        "call_tir.out",
        "main.body.blocks[0].bindings[1].value.ty_args[0]",
        "result 0 of `relu`: dim 0: 64 != 1",
    )
)
def an_annotation_of_another_batch():
    mod = origin(1)
    (_, last) = mod["main"].body.blocks[0].bindings
    put(last.value, "ty_args", [tensor(64, 64, 56, 56)])
    return mod


@case(
    (
        "call_tir.callee",
        "main.body.blocks[0].bindings[0].value.args[0]",
        "`f` is relax.expr.Function, expected a PrimFunc",
    )
)
def a_relax_function_as_a_callee():
    f = function([x := var("x", 4), var("y", 4)], [], x)
    return calling(f, var("a", 4), out=tensor(4))


@case(
    (
        "global.undefined",
        "main.body.blocks[0].bindings[0].value.args[0]",
        "`f` is not a function of this module",
    )
)
def a_callee_that_is_absent():
    mod = calling(two_buffers, var("a", 4), out=tensor(4))
    del mod["f"]
    return mod


@case(
    (
        "call_tir.out",
        "main.body.blocks[0].bindings[0].value.ty_args[0]",
        "result 0 of `f`: dim 0: 5 != 4 (n)",
    )
)
def a_symbol_of_an_argument_and_a_result():
    return calling(two_buffers, var("a", 4), out=tensor(5))


@case()
def symbols_of_two_arguments():
    return calling(three_buffers, var("a", 4), var("b", 5), out=tensor(9))


@case(
    (
        "call_tir.out",
        "main.body.blocks[0].bindings[0].value.ty_args[0]",
        "result 0 of `f`: dim 0: 8 != 9 (n + m)",
    )
)
def a_sum_of_symbols():
    return calling(three_buffers, var("a", 4), var("b", 5), out=tensor(8))


@case()
def a_sum_of_symbols_of_the_caller():
    n = tirx.Var("n", "int64")
    return calling(three_buffers, var("a", n), var("b", n), out=tensor(2 * n))


@case(
    (
        "call_tir.out",
        "main.body.blocks[0].bindings[0].value.ty_args[0]",
        "result 0 of `f`: dim 0: 2 * n + 1 != 2 * n (n + m)",
    )
)
def a_sum_that_is_never_right():
    n = tirx.Var("n", "int64")
    return calling(three_buffers, var("a", n), var("b", n), out=tensor(2 * n + 1))


@case(
    warnings=[
        (
            "call_tir.out",
            "main.body.blocks[0].bindings[0].value.ty_args[0]",
            "result 0 of `f`: dim 0: n * m != n + m (n + m)",
        )
    ]
)
def a_sum_that_may_be_right():
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    return calling(three_buffers, var("a", n), var("b", m), out=tensor(n * m))


@case()
def a_scalar_that_is_an_extent():
    return calling(scaled, var("a", 4), tirx.IntImm("int64", 4), out=tensor(8))


@case(
    (
        "call_tir.arg",
        "main.body.blocks[0].bindings[0].value.args[1].fields[0]",
        "argument 0 of `f`: dim 0: 4 != 5 (n)",
    ),
    (
        "call_tir.out",
        "main.body.blocks[0].bindings[0].value.ty_args[0]",
        "result 0 of `f`: dim 0: 8 != 10 (2 * n)",
    ),
)
def a_scalar_that_is_not_an_extent():
    return calling(scaled, var("a", 4), tirx.IntImm("int64", 5), out=tensor(8))


@case(
    (
        "call_tir.arg",
        "main.body.blocks[0].bindings[0].value.args[1].fields[1]",
        "argument 1 of `f`: dtype: int32 != int64",
    )
)
def a_scalar_of_another_dtype():
    return calling(scaled, var("a", 4), tirx.IntImm("int32", 4), out=tensor(8))


@case(
    (
        "call_tir.arg",
        "main.body.blocks[0].bindings[0].value.args[1].fields[1]",
        'argument 1 of `f`: expected R.Prim("int64"), got R.Tensor((), "int64")',
    )
)
def a_tensor_in_place_of_a_scalar():
    return calling(scaled, var("a", 4), var("n", dtype="int64"), out=tensor(8))


@case(
    (
        "call_tir.arg",
        "main.body.blocks[0].bindings[1].value.args[1].fields[0]",
        "argument 0 of `f`: dim 0: 4 != 3 (n)",
    ),
    (
        "call_tir.out",
        "main.body.blocks[0].bindings[1].value.ty_args[0]",
        "result 0 of `f`: dim 0: 8 != 6 (2 * n)",
    ),
)
def two_scalars_of_one_type():
    """A valid call does not vouch for another call with other scalars."""
    mod = calling(scaled, var("a", 4), tirx.IntImm("int64", 4), out=tensor(8))
    (binding,) = mod["main"].body.blocks[0].bindings
    wrong = typed(
        relax.Tuple([mod["main"].params[0], tirx.IntImm("int64", 3)]), binding.value.args[1].ty
    )
    second = call("call_tir", binding.value.args[0], wrong, ty=tensor(8))
    put(second, "ty_args", [tensor(8)])
    z = var("z", 8)
    mod["main"] = function(mod["main"].params, [binding, (z, second)], z)
    return mod


@case(
    (
        "call_tir.arg",
        "main.body.blocks[0].bindings[0].value.args[1].fields[0]",
        "argument 0 of `f`: dtype: float16 != float32",
    )
)
def an_argument_of_another_dtype():
    return calling(two_buffers, var("a", 4, dtype="float16"), out=tensor(4))


@case(
    (
        "call_tir.arg",
        "main.body.blocks[0].bindings[0].value.args[1].fields[0]",
        "argument 0 of `f`: rank: 2 != 1",
    )
)
def an_argument_of_another_rank():
    return calling(two_buffers, var("a", 4, 1), out=tensor(4))


@case(
    (
        "call_tir.out",
        "main.body.blocks[0].bindings[0].value.ty_args[0]",
        "result 0 of `f`: dtype: int32 != float32",
    )
)
def a_result_of_another_dtype():
    return calling(two_buffers, var("a", 4), out=tensor(4, dtype="int32"))


@case(
    (
        "call_tir.arity",
        "main.body.blocks[0].bindings[0].value",
        "`f` takes 2 parameters, got 2 arguments and 1 result",
    )
)
def too_many_arguments():
    return calling(two_buffers, var("a", 4), var("b", 4), out=tensor(4))


@case(
    (
        "call_tir.arity",
        "main.body.blocks[0].bindings[0].value",
        "`f` takes 2 parameters, got 1 argument and 2 results",
    )
)
def too_many_results():
    out = relax.TupleType([tensor(4), tensor(4)])
    return calling(two_buffers, var("a", 4), out=out)


@case(
    (
        "call_tir.args",
        "main.body.blocks[0].bindings[0].value.args[1]",
        "expected a literal tuple, got ir.Var",
    )
)
def arguments_that_are_not_a_tuple():
    mod = calling(two_buffers, var("a", 4), out=tensor(4))
    value = mod["main"].body.blocks[0].bindings[0].value
    put(value, "args", [value.args[0], mod["main"].params[0]])
    return mod


@case()
def overwritten_and_not_used():
    return in_place(first="a")


@case(
    (
        "call_tir_inplace.use",
        "main.body.blocks[0].bindings[3].value.args[1]",
        "`a` is used after its memory was overwritten",
    )
)
def overwritten_and_used():
    return in_place("a", first="a")


@case(
    (
        "call_tir_inplace.use",
        "main.body.blocks[0].bindings[3].value.args[1]",
        "`c` is used after its memory was overwritten",
    )
)
def overwritten_and_used_by_another_name():
    return in_place("c", first="a")


@case(
    warnings=[
        (
            "call_tir_inplace.alias",
            "main.body.blocks[0].bindings[2].value.args[1].fields[1]",
            "argument 1 shares the memory of argument 0, which is overwritten",
        )
    ]
)
def overwritten_and_an_argument_too():
    return in_place(first="a", second="c")


def choice(*, first, other, target, result):
    """An If of `first` and `other`, then an increment in place of `target`, then `result`."""

    @T.prim_func(private=True)
    def increment(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = A[i] + T.float32(1)

    c = var("c", dtype="bool")
    known = {name: var(name, 4) for name in ("x", "a", "b", "y", "z", "out")}
    callee = tvm.ir.GlobalVar("increment")
    typed(callee, relax.FuncType([increment.params[0].ty], relax.TupleType([])))

    def branch(name):
        return typed(relax.SeqExpr([], known[name]), tensor(4))

    x, out = known["x"], known["out"]
    chosen = typed(relax.If(c, branch(first), branch(other)), tensor(4))
    value = relax.op.call_tir_inplace(callee, [known[target]], [0], tensor(4))
    main = function(
        [c, x],
        [
            (known["a"], typed(relax.op.nn.relu(x), tensor(4))),
            (known["b"], typed(relax.op.exp(x), tensor(4))),
            (known["y"], chosen),
            (known["z"], typed(value, tensor(4))),
            (out, typed(relax.op.add(known["z"], known[result]), tensor(4))),
        ],
        out,
    )
    return tvm.IRModule({"main": main.with_attr("global_symbol", "main"), callee: increment})


MAY_BE = "is used after its memory may have been overwritten"


@pytest.mark.parametrize(
    "options, severity, message",
    [
        # The result of the If is overwritten, and one of its candidates is used.
        ({"first": "a", "other": "b", "target": "y", "result": "a"}, "warning", f"`a` {MAY_BE}"),
        ({"first": "a", "other": "b", "target": "y", "result": "b"}, "warning", f"`b` {MAY_BE}"),
        # A candidate is overwritten, and the result of the If is used.
        ({"first": "a", "other": "b", "target": "a", "result": "y"}, "warning", f"`y` {MAY_BE}"),
        (
            {"first": "a", "other": "b", "target": "y", "result": "y"},
            "error",
            "`y` is used after its memory was overwritten",
        ),
        ({"first": "b", "other": "b", "target": "a", "result": "y"}, None, ""),
    ],
)
def test_memory_through_a_choice(options, severity, message):
    mod = choice(**options)
    expected = [("call_tir_inplace.use", "main.body.blocks[0].bindings[4].value.args[1]", message)]
    assert found(mod) == (expected if severity == "error" else [])
    assert found(mod, "warning") == (expected if severity == "warning" else [])


@case(
    (
        "call_tir_inplace.alias",
        "main.body.blocks[0].bindings[1].value.args[1].fields[1]",
        "argument 1 shares the memory of argument 0, and both are overwritten",
    )
)
def two_results_in_one_memory():
    @T.prim_func(private=True)
    def increments(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = A[i] + T.float32(1)
            B[i] = B[i] + T.float32(2)

    x, a = var("x", 4), var("a", 4)
    callee = tvm.ir.GlobalVar("increments")
    types = relax.TupleType([tensor(4), tensor(4)])
    typed(
        callee,
        relax.FuncType([parameter.ty for parameter in increments.params], relax.TupleType([])),
    )
    value = relax.op.call_tir_inplace(callee, [a, a], [0, 1], [tensor(4), tensor(4)])
    pair = relax.Var("pair", types)
    bindings = [(a, typed(relax.op.nn.relu(x), tensor(4))), (pair, typed(value, types))]
    main = function([x], bindings, pair).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": main, callee: increments})


@case(
    (
        "op.arity",
        "main.body.blocks[0].bindings[1].value",
        "`relax.call_tir`: 3 arguments, expected 2",
    )
)
def a_third_argument():
    mod = origin(1)
    value = mod["main"].body.blocks[0].bindings[1].value
    put(value, "args", [*value.args, value.args[1]])
    return mod


@case(
    warnings=[
        (
            "call_tir_inplace.param",
            "main.body.blocks[0].bindings[2].value.args[1].fields[0]",
            "the memory of a parameter is overwritten: the caller sees it",
        )
    ]
)
def an_overwritten_parameter():
    return in_place(first="x", second="a")


def test_a_parameter_that_the_function_updates():
    mod = in_place(first="x", second="a")
    plain = mod["main"]
    for updates, count in (({"x": 0}, 0), ({"y": 0}, 1), (0, 1)):
        mod["main"] = plain.with_attr("updates", updates)
        assert len(found(mod, "warning")) == count
        assert found(mod) == []


@case(
    (
        "call_tir_inplace.index",
        "main.body.blocks[0].bindings[2].value.attrs.inplace_indices",
        "index 2 is out of range or repeated, with 2 arguments",
    )
)
def an_overwritten_argument_that_is_absent():
    return in_place(first="a", index=2)


@case(
    (
        "call_tir_inplace.target",
        "main.body.blocks[0].bindings[0].value.args[1].fields[0]",
        "argument 0 is overwritten: expected a variable, got ir.GenericConst",
    )
)
def an_overwritten_constant():
    mod = tvm.IRModule({"f": overwriting})
    x, y = var("x", 4), var("y", 4)
    value = overwriting_call(mod.get_global_var("f"), relax.const([1.0] * 4), x)
    mod["main"] = function([x], [(y, value)], y)
    return mod


def test_both_sides_and_the_origin_are_noted():
    first = next(
        diagnostic for diagnostic in verify(origin(64)) if diagnostic.rule == "call_tir.arg"
    )
    assert [note.message for note in first.notes] == [
        '`relu` takes `A`: R.Tensor((64, 64, 56, 56), "float32"), '
        'got R.Tensor((1, 64, 56, 56), "float32")',
        "`gv` is the result of relax.nn.conv2d",
    ]
    assert first.hint == "regenerate `relu` for these shapes, or fix the caller"


@pytest.mark.parametrize(*case.arguments)
def test_findings(make, errors, warnings):
    assert_found(make(), *errors, warnings=warnings)


if __name__ == "__main__":
    tvm.testing.main()
