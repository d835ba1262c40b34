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
"""Functions and calls of them: the callee, its parameters, effects and names."""

import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import tirx as T

from helpers.relax_modules import tensor
from helpers.verifying import (
    Cases,
    assert_found,
    function,
    module,
    put,
    typed,
    var,
)
from tvm_fixes.verifier import verify

pytestmark = pytest.mark.native
case = Cases()


def calling(
    callee: relax.Function | tirx.PrimFunc,
    *args: relax.Var,
    ty: tvm.ir.Type,
    is_pure: bool = True,
    fresh: bool = True,
) -> tvm.IRModule:
    """A module whose ``main`` returns the call of another function."""
    mod = tvm.IRModule({"f": callee})
    name = mod.get_global_var("f")
    if fresh and isinstance(callee, relax.Function):
        types = [param.ty for param in callee.params]
        put(name, "ty", relax.FuncType(types, callee.ret_ty, callee.is_pure))
    y = relax.Var("y", ty)
    value = typed(relax.Call(name, args), ty)
    mod["main"] = function(args, [(y, value)], y, is_pure=is_pure)
    return mod


def identity(*shape: object, is_pure: bool = True) -> relax.Function:
    return function([x := var("x", *shape)], [], x, is_pure=is_pure)


def prim_func(symbol: str | None = None) -> tirx.PrimFunc:
    @T.prim_func(private=True)
    def fill(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.float32(0)

    return fill.with_attr("global_symbol", symbol) if symbol else fill


@case()
def a_call_that_is_right():
    return calling(identity(4), var("a", 4), ty=tensor(4))


@case()
def a_symbol_that_is_solved():
    n = tirx.Var("n", "int64")
    return calling(identity(n, 4), var("a", 3, 4), ty=tensor(3, 4))


@case(
    (
        "type.value",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tensor((2, 4), "float32") does not match the inferred type '
        "R.Tensor((3, 4), "
        '"float32"): dim 0: 3 != 2',
    )
)
def a_result_of_a_solved_symbol():
    n = tirx.Var("n", "int64")
    return calling(identity(n, 4), var("a", 3, 4), ty=tensor(2, 4))


@case(
    (
        "call.arg",
        "main.body.blocks[0].bindings[0].value.args[1]",
        "argument 1 of `f`: dim 0: 4 != 3 (n)",
    )
)
def a_symbol_of_two_values():
    n = tirx.Var("n", "int64")
    callee = function([x := var("x", n), var("w", n)], [], x)
    return calling(callee, var("a", 3), var("b", 4), ty=tensor(3))


@case(
    (
        "call.arg",
        "main.body.blocks[0].bindings[0].value.args[0]",
        "argument 0 of `f`: dim 0: 5 != 4",
    )
)
def an_argument_of_other_extents():
    return calling(identity(4), var("a", 5), ty=tensor(4))


@case(
    (
        "call.arg",
        "main.body.blocks[0].bindings[0].value.args[0]",
        "argument 0 of `f`: dtype: int32 != float32",
    )
)
def an_argument_of_another_dtype():
    return calling(identity(4), var("a", 4, dtype="int32"), ty=tensor(4))


@case(("call.arity", "main.body.blocks[0].bindings[0].value", "`f`: 1 argument, expected 2"))
def too_few_arguments():
    callee = function([x := var("x", 4), var("w", 4)], [], x)
    return calling(callee, var("a", 4), ty=tensor(4))


@case(
    (
        "global.stale-type",
        "main.body.blocks[0].bindings[0].value.op",
        "the type of `f` is out of date: parameter 0, dim 0: 4 != 8; result, dim 0: 8 != 4",
    ),
    (
        "call.arg",
        "main.body.blocks[0].bindings[0].value.args[0]",
        "argument 0 of `f`: dim 0: 4 != 8",
    ),
    (
        "type.value",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tensor((4,), "float32") does not match the inferred type '
        "R.Tensor((8,), "
        '"float32"): dim 0: 8 != 4',
    ),
)
def a_stale_callee():
    """The function was replaced by one of another signature, but its GlobalVar kept its type."""
    mod = calling(identity(4), var("a", 4), ty=tensor(4))
    mod[mod.get_global_var("f")] = identity(8)
    return mod


@case()
def a_stale_function_that_nobody_calls():
    mod = tvm.IRModule({"f": identity(4)})
    put(mod.get_global_var("f"), "ty", relax.FuncType([tensor(8)], tensor(8)))
    return mod


@case(
    (
        "call.callee",
        "main.body.blocks[0].bindings[0].value.op",
        "`f` is a PrimFunc with 1 parameter, but is called as a Relax function with 2",
    )
)
def a_prim_func_as_a_relax_function():
    mod = calling(prim_func(), var("a", 4), var("b", 4), ty=tensor(4))
    return mod


@case(
    (
        "call.callee",
        "main.body.blocks[0].bindings[0].value.op",
        '`x` is R.Tensor((4,), "float32"), expected a function',
    )
)
def a_tensor_as_a_callee():
    x, y = var("x", 4), var("y", 4)
    value = relax.Call(relax.Var("f", relax.FuncType([x.ty], x.ty)), [x])
    put(value, "op", x)
    return module([x], [(y, typed(value, y.ty))], y)


@case(
    (
        "call.callee",
        "main.body.blocks[0].bindings[0].value.op",
        "expected an operator or a function, got ir.GenericConst",
    )
)
def a_constant_as_a_callee():
    x, y = var("x", 4), var("y", 4)
    value = relax.Call(relax.ExternFunc("f"), [x])
    put(value, "op", relax.const(1.0))
    return module([x], [(y, typed(value, y.ty))], y)


@case(
    (
        "global.undefined",
        "main.body.blocks[0].bindings[0].value.op",
        "`f` is not a function of this module",
    )
)
def a_name_of_another_module():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, typed(relax.Call(tvm.ir.GlobalVar("f"), [x]), y.ty))], y)


@case(
    (
        "purity",
        "main.body.blocks[0].bindings[0].value",
        "`f` is impure, but is called in a pure function",
    )
)
def an_effect_in_a_pure_function():
    return calling(identity(4, is_pure=False), var("a", 4), ty=tensor(4))


@case()
def an_effect_in_a_function_that_says_so():
    return calling(identity(4, is_pure=False), var("a", 4), ty=tensor(4), is_pure=False)


@case(
    (
        "purity",
        "main.body.blocks[0].bindings[0].value",
        "`relax.print` is impure, but is called in a pure function",
    )
)
def an_operator_with_effects():
    x, y = var("x", 4), relax.Var("y", relax.TupleType([]))
    value = typed(relax.op.print(x, format="{}"), y.ty)
    return module([x], [(y, value)], x)


@case(
    (
        "purity",
        "main.body.blocks[0].bindings[0].value",
        "`relax.print` is impure, but is called in a dataflow block",
    )
)
def an_operator_with_effects_in_a_dataflow_block():
    x, y = var("x", 4), relax.Var("y", relax.TupleType([]))
    value = typed(relax.op.print(x, format="{}"), y.ty)
    block = relax.DataflowBlock([relax.VarBinding(y, value)])
    return module([x], [block], x, is_pure=False)


@case(
    (
        "purity",
        "main.body.blocks[0].bindings[0].value",
        "`f` is impure, but is called in a pure function",
    )
)
def a_packed_function_in_a_pure_function():
    x, y = var("x", 4), var("y", 4)
    value = typed(relax.Call(relax.ExternFunc("f"), [x], None, [y.ty]), y.ty)
    return module([x], [(y, value)], y)


@case()
def forced_purity():
    x, y = var("x", 4), var("y", 4)
    value = typed(relax.Call(relax.ExternFunc("f"), [x], None, [y.ty]), y.ty)
    main = function([x], [(y, value)], y).with_attr("relax.force_pure", True)
    return tvm.IRModule({"main": main})


@case(("purity", "main.is_pure", "the attribute relax.force_pure is set, but is_pure is not"))
def forced_purity_without_is_pure():
    main = function([x := var("x", 4)], [], x, is_pure=False)
    return tvm.IRModule({"main": main.with_attr("relax.force_pure", True)})


@case(("global.symbol", "main.attrs", "global_symbol is `other`, the function is `main`"))
def a_symbol_that_is_not_the_name():
    return tvm.IRModule({"main": identity(4).with_attr("global_symbol", "other")})


@case(("global.symbol", "g.attrs", "global_symbol `same` is also used by `f`"))
def a_symbol_of_two_prim_funcs():
    return tvm.IRModule({"f": prim_func("same"), "g": prim_func("same")})


@case(("global.symbol", "main.attrs", "global_symbol `main` is also used by `g`"))
def a_symbol_of_a_prim_func_and_a_function():
    main = identity(4).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": main, "g": prim_func("main")})


@case()
def a_function_that_calls_itself():
    mod = calling(identity(4), x := var("a", 4), ty=tensor(4))
    name = mod.get_global_var("f")
    y = var("y", 4)
    z = var("z", 4)
    mod[name] = function([z], [(y, typed(relax.Call(name, [z]), y.ty))], y)
    assert x.ty.ndim == 1
    return mod


def test_a_stale_callee_gets_a_hint():
    (one,) = (found for found in verify(a_stale_callee()) if found.rule == "global.stale-type")
    assert one.hint == "tvm_fixes.transform.RefreshTypes updates it"


@pytest.mark.parametrize(*case.arguments)
def test_findings(make, errors, warnings):
    assert_found(make(), *errors, warnings=warnings)


if __name__ == "__main__":
    tvm.testing.main()
