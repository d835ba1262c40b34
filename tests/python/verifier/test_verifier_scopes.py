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
"""The scopes of definitions: variables, dataflow blocks, symbols, and the form of expressions."""

import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.relax_modules import tensor
from helpers.verifying import (
    Cases,
    assert_found,
    call,
    function,
    module,
    only,
    typed,
    var,
)

pytestmark = pytest.mark.native
case = Cases()


def relu(x: relax.Expr) -> relax.Call:
    return call("nn.relu", x, ty=tensor(4))


def branch(*bindings: relax.Binding, result: relax.Var) -> relax.SeqExpr:
    blocks = [relax.BindingBlock(bindings)] if bindings else []
    return typed(relax.SeqExpr(blocks, result), result.ty)


@case(
    ("scope.undefined", "main.body.blocks[0].bindings[0].value.args[0]", "`z` is not defined here")
)
def a_variable_that_is_nowhere_defined():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, relu(var("z", 4)))], y)


@case(
    ("scope.undefined", "main.body.blocks[0].bindings[0].value.args[0]", "`z` is not defined here")
)
def a_variable_that_is_defined_later():
    x, y, z = var("x", 4), var("y", 4), var("z", 4)
    return module([x], [(y, relu(z)), (z, relu(x))], y)


@case(("scope.undefined", "other.body.body", "`x` is not defined here"))
def a_variable_of_another_function():
    x, y = var("x", 4), var("y", 4)
    main = function([x], [], x).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": main, "other": function([y], [], x)})


@case(("scope.shared", "g.params[0]", "`x` is used by two functions, `f` and this one"))
def a_parameter_of_two_functions():
    x = var("x", 4)
    return tvm.IRModule({"f": function([x], [], x), "g": function([x], [], x)})


@case(("scope.shared", "g.params[0]", "`n` is used by two functions, `f` and this one"))
def a_symbol_of_two_functions():
    n = tirx.Var("n", "int64")
    x, y = var("x", n), var("y", n)
    return tvm.IRModule({"f": function([x], [], x), "g": function([y], [], y)})


@case(("scope.redefined", "main.body.blocks[0].bindings[1].var", "`y` is defined more than once"))
def a_variable_that_is_bound_twice():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, relu(x)), (y, relu(x))], y)


@case(("scope.redefined", "main.body.blocks[0].bindings[0].var", "`x` is defined more than once"))
def a_parameter_that_is_bound():
    x = var("x", 4)
    return module([x], [(x, relu(x))], x)


@case(
    (
        "scope.dataflow",
        "main.body.body",
        "`y` is a dataflow variable used outside of its block",
    )
)
def a_dataflow_variable_outside_of_its_block():
    x, y = var("x", 4), relax.DataflowVar("y", tensor(4))
    block = relax.DataflowBlock([relax.VarBinding(y, relu(x))])
    return module([x], [block], y)


@case(
    ("scope.undefined", "main.body.blocks[1].bindings[0].value.args[0]", "`y` is not defined here")
)
def a_dataflow_variable_in_the_next_block():
    x, y, z = var("x", 4), relax.DataflowVar("y", tensor(4)), var("z", 4)
    first = relax.DataflowBlock([relax.VarBinding(y, relu(x))])
    second = relax.DataflowBlock([relax.VarBinding(z, relu(y))])
    return module([x], [first, second], z)


@case(
    (
        "scope.dataflow",
        "main.body.blocks[0].bindings[0].var",
        "`y` is a dataflow variable bound outside of a dataflow block",
    )
)
def a_dataflow_variable_of_a_binding_block():
    x, y = var("x", 4), relax.DataflowVar("y", tensor(4))
    return module([x], [(y, relu(x))], x)


@case(("scope.dataflow", "main.params[0]", "the parameter `x` is a dataflow variable"))
def a_parameter_that_is_a_dataflow_variable():
    x = relax.DataflowVar("x", tensor(4))
    block = relax.DataflowBlock([relax.VarBinding(y := var("y", 4), relu(x))])
    return module([x], [block], y)


@case(("scope.undefined", "main.body.body", "`y` is not defined here"))
def a_variable_of_a_branch():
    c, x, y, z = var("c", dtype="bool"), var("x", 4), var("y", 4), var("z", 4)
    true = branch(relax.VarBinding(y, relu(x)), result=y)
    value = typed(relax.If(c, true, branch(result=x)), x.ty)
    return module([c, x], [(z, value)], y)


@case(
    (
        "scope.undefined",
        "main.body.blocks[0].bindings[0].value.false_branch.body",
        "`y` is not defined here",
    )
)
def a_variable_of_the_other_branch():
    c, x, y, z = var("c", dtype="bool"), var("x", 4), var("y", 4), var("z", 4)
    true = branch(relax.VarBinding(y, relu(x)), result=y)
    value = typed(relax.If(c, true, branch(result=y)), x.ty)
    return module([c, x], [(z, value)], z)


@case(
    ("form.if", "main.body.blocks[0].bindings[0].value", "an If is not allowed in a dataflow block")
)
def an_if_in_a_dataflow_block():
    c, x, z = var("c", dtype="bool"), var("x", 4), var("z", 4)
    value = typed(relax.If(c, branch(result=x), branch(result=x)), x.ty)
    return module([c, x], [relax.DataflowBlock([relax.VarBinding(z, value)])], z)


@case(
    (
        "scope.symbol",
        "main.body.blocks[0].bindings[0].value.args[0]",
        "`n` of R.Shape([n]) is not defined here",
    )
)
def a_symbol_that_is_nowhere_defined():
    n = tirx.Var("n", "int64")
    x, y = var("x", 4), var("y", n)
    return module([x], [(y, call("full", relax.ShapeExpr([n]), relax.const(0.0), ty=y.ty))], x)


@case(
    ("scope.symbol", "main.params[0]", '`n` of R.Tensor((2 * n,), "float32") is not defined here')
)
def a_symbol_of_a_product_alone():
    """The size is not found in an input of the extent 2 n."""
    n = tirx.Var("n", "int64")
    return module([x := var("x", 2 * n)], [], x)


@case()
def a_symbol_that_a_later_parameter_defines():
    n = tirx.Var("n", "int64")
    return module([x := var("x", 2 * n), var("y", n)], [], x)


@case(
    ("scope.symbol", "main.ret_ty", '`n` of R.Tensor((n,), "float32") is not defined here'),
    warnings=[("type.return", "main.body.body", "the result: dim 0: 4 != n")],
)
def a_symbol_of_a_result_type():
    n = tirx.Var("n", "int64")
    return module([x := var("x", 4)], [], x, ret=tensor(n))


@case(
    (
        "form.nested",
        "main.body.blocks[0].bindings[0].value.args[0]",
        "expected a variable or a constant, got ir.Call",
    )
)
def a_call_in_a_call():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, relu(relu(x)))], y)


@case(
    (
        "form.nested",
        "main.body.blocks[0].bindings[0].value.fields[0]",
        "expected a variable or a constant, got ir.Call",
    )
)
def a_call_in_a_tuple():
    x, y = var("x", 4), relax.Var("y", relax.TupleType([tensor(4)]))
    return module([x], [(y, typed(relax.Tuple([relu(x)]), y.ty))], x)


@case(("form.nested", "main.body.body", "expected a variable or a constant, got ir.Call"))
def a_call_that_is_returned():
    x = var("x", 4)
    return module([x], [], relu(x))


@case(
    (
        "form.nested",
        "main.body.blocks[0].bindings[0].value.cond",
        "expected a variable or a constant, got ir.Call",
    )
)
def a_call_as_a_condition():
    c, x, z = var("c", dtype="bool"), var("x", 4), var("z", 4)
    cond = call("logical_not", c, ty=c.ty)
    value = typed(relax.If(cond, branch(result=x), branch(result=x)), x.ty)
    return module([c, x], [(z, value)], z)


@case(
    (
        "form.nested",
        "main.body.blocks[0].bindings[0].value",
        "expected a variable or a constant, got relax.expr.SeqExpr",
    )
)
def a_sequence_as_a_value():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, branch(result=x))], y)


def test_an_undefined_variable_is_told_once():
    x, y, z, w = var("x", 4), var("y", 4), var("z", 4), var("w", 4)
    one = only(module([x], [(y, relu(w)), (z, relu(w))], z))
    assert one.rule == "scope.undefined"


@pytest.mark.parametrize(*case.arguments)
def test_findings(make, errors, warnings):
    assert_found(make(), *errors, warnings=warnings)


if __name__ == "__main__":
    tvm.testing.main()
