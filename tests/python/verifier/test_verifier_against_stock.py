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
"""Everything that TVM's well-formed check rejects is also an error of the verifier.

One module for each error of ``relax.analysis.well_formed`` in TVM 0.27, in the order of its
visitor; then mutants of valid modules, none of which only TVM may reject.
"""

import zlib
from functools import cache, partial

import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.grids import sample
from helpers.relax_modules import tensor
from helpers.verifier_mutants import SUBJECTS, mutants, mutated
from helpers.verifying import call, found, function, module, put, typed, var
from tvm_fixes.support.isolate import OutcomeKind, run_forked

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

REJECTED = []


def rejected(rule):
    """A decorator that registers a module with the rule that finds its error."""

    def register(make):
        REJECTED.append(pytest.param(make, rule, id=make.__name__))
        return make

    return register


def relu(x):
    return typed(relax.op.nn.relu(x), x.ty)


@rejected("global.symbol")
def symbol_that_is_not_the_name():
    x = var("x", 4)
    return tvm.IRModule({"main": function([x], [], x).with_attr("global_symbol", "other")})


@rejected("type.missing")
def expression_without_a_type():
    x = var("x", 4)
    y = relax.Var("y")
    return module([x], [(y, relax.Call(tvm.ir.Op.get("relax.nn.relu"), [x]))], x)


@rejected("global.undefined")
def function_of_another_module():
    x, y = var("x", 4), var("y", 4)
    other = tvm.ir.GlobalVar("other")
    typed(other, relax.FuncType([x.ty], x.ty))
    return module([x], [(y, typed(relax.Call(other, [x]), y.ty))], y)


@rejected("call.callee")
def callee_that_is_not_a_function():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, typed(relax.Call(x, [x]), y.ty))], y)


@rejected("form.nested")
def call_in_a_tuple():
    x = var("x", 4)
    pair = typed(relax.Tuple([x, relu(x)]), relax.TupleType([x.ty, x.ty]))
    return module([x], [(relax.Var("y", pair.ty), pair)], x)


@rejected("form.nested")
def call_in_a_field_access():
    x, y = var("x", 4, 4), var("y", 2, 4)
    halves = relax.op.split(x, 2, axis=0)
    typed(halves, relax.TupleType([y.ty, y.ty]))
    return module([x], [(y, typed(relax.TupleGetItem(halves, 0), y.ty))], y)


@rejected("form.nested")
def call_in_a_call():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, relu(relu(x)))], y)


@rejected("call.callee")
def call_that_is_called():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, typed(relax.Call(relu(x), [x]), y.ty))], y)


@rejected("form.nested")
def call_that_is_returned():
    x = var("x", 4)
    return module([x], [], relu(x))


@rejected("form.nested")
def call_that_is_a_condition():
    c, x, y = var("c", dtype="bool"), var("x", 4), var("y", 4)
    value = typed(relax.If(call("logical_not", c, ty=c.ty), branch(x), branch(x)), x.ty)
    return module([c, x], [(y, value)], y)


def branch(result):
    return typed(relax.SeqExpr([], result), result.ty)


@rejected("form.nested")
def sequence_that_is_bound():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, branch(x))], y)


@rejected("form.nested")
def prim_func_that_is_bound():
    x, y = var("x", 4), var("y", 4)
    prim_func = relax.transform.LegalizeOps()(module([x], [(y, relu(x))], y))["relu"]
    bound = relax.Var("f", prim_func.ty)
    return module([x], [(bound, prim_func)], x)


@rejected("scope.undefined")
def variable_that_is_not_defined():
    x, y = var("x", 4), var("y", 4)
    return module([x], [], y)


@rejected("scope.undefined")
def variable_of_a_branch():
    c, x = var("c", dtype="bool"), var("x", 4)
    inner, y = var("inner", 4), var("y", 4)
    block = relax.BindingBlock([relax.VarBinding(inner, relu(x))])
    first = typed(relax.SeqExpr([block], inner), inner.ty)
    value = typed(relax.If(c, first, branch(x)), x.ty)
    return module([c, x], [(y, value)], inner)


@rejected("scope.dataflow")
def dataflow_variable_outside_of_a_block():
    x, y = var("x", 4), relax.DataflowVar("y", tensor(4))
    return module([x], [relax.DataflowBlock([relax.VarBinding(y, relu(x))])], y)


@rejected("scope.undefined")
def dataflow_variable_that_is_not_defined():
    x, y, z = var("x", 4), relax.DataflowVar("y", tensor(4)), var("z", 4)
    return module([x], [relax.DataflowBlock([relax.VarBinding(z, relu(y))])], z)


@rejected("scope.dataflow")
def dataflow_variable_of_a_binding_block():
    x, y = var("x", 4), relax.DataflowVar("y", tensor(4))
    return module([x], [(y, relu(x))], x)


@rejected("scope.dataflow")
def parameter_that_is_a_dataflow_variable():
    x, y = relax.DataflowVar("x", tensor(4)), var("y", 4)
    return module([x, y], [], y)


@rejected("scope.redefined")
def dataflow_variable_that_is_bound_twice():
    x, y = var("x", 4), relax.DataflowVar("y", tensor(4))
    bindings = [relax.VarBinding(y, relu(x)), relax.VarBinding(y, relu(x))]
    return module([x], [relax.DataflowBlock(bindings)], x)


@rejected("scope.redefined")
def variable_that_is_bound_twice():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, relu(x)), (y, relu(x))], y)


@rejected("scope.redefined")
def duplicate_parameter():
    x = var("x", 4)
    return module([x, x], [], x)


@rejected("scope.shared")
def parameter_of_two_functions():
    x = var("x", 4)
    return tvm.IRModule({"f": function([x], [], x), "g": function([x], [], x)})


@rejected("scope.shared")
def symbol_of_two_functions():
    n = tirx.Var("n", "int64")
    x, y = var("x", n), var("y", n)
    return tvm.IRModule({"f": function([x], [], x), "g": function([y], [], y)})


@rejected("scope.symbol")
def symbol_of_a_result():
    x = var("x", 4)
    return module([x], [], x, ret=tensor(tirx.Var("n", "int64")))


@rejected("scope.symbol")
def symbol_of_a_shape():
    x = var("x", 4)
    shape = relax.ShapeExpr([tirx.Var("n", "int64")])
    return module([x], [(relax.Var("s", shape.ty), shape)], x)


@rejected("ir.malformed")
def extent_that_is_not_an_integer():
    x = var("x", 4)
    shape = relax.ShapeExpr([4])
    put(shape, "values", [tirx.FloatImm("float32", 4)])
    return module([x], [(relax.Var("s", relax.ShapeType(ndim=1)), shape)], x)


@rejected("type.missing")
def function_without_the_type_of_its_result():
    x = var("x", 4)
    mod = module([x], [], x)
    put(mod["main"], "ret_ty", relax.Call(tvm.ir.Op.get("relax.nn.relu"), [x]).ty)
    return mod


@rejected("purity")
def forced_purity_of_an_impure_function():
    x = var("x", 4)
    impure = function([x], [], x, is_pure=False).with_attr("relax.force_pure", True)
    return tvm.IRModule({"main": impure.with_attr("global_symbol", "main")})


@rejected("purity")
def effect_in_a_pure_function():
    x = var("x", 4)
    printed = relax.op.print(x, format="{}")
    typed(printed, relax.TupleType([]))
    return module([x], [(relax.Var("y", printed.ty), printed)], x)


@rejected("purity")
def effect_in_a_dataflow_block():
    x = var("x", 4)
    printed = relax.op.print(x, format="{}")
    typed(printed, relax.TupleType([]))
    binding = relax.VarBinding(relax.DataflowVar("y", printed.ty), printed)
    return module([x], [relax.DataflowBlock([binding])], x, is_pure=False)


@rejected("form.if")
def choice_in_a_dataflow_block():
    c, x, y = var("c", dtype="bool"), var("x", 4), relax.DataflowVar("y", tensor(4))
    value = typed(relax.If(c, branch(x), branch(x)), x.ty)
    return module([c, x], [relax.DataflowBlock([relax.VarBinding(y, value)])], x)


def with_call_tir(change):
    """A module with a changed call of a PrimFunc."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.add(x, x)
            return y

    mod = tvm.ir.load_json(tvm.ir.save_json(relax.transform.LegalizeOps()(Module)))
    change(mod, mod["main"].body.blocks[0].bindings[0].value)
    return mod


@rejected("call_tir.args")
def arguments_that_are_not_a_tuple():
    """The normalization of call_tir turns them into a literal tuple."""

    def change(mod, value):
        put(value, "args", [value.args[0], value.args[1].fields[0]])

    return with_call_tir(change)


@rejected("call_tir.arity")
def extra_argument():
    def change(mod, value):
        fields = [*value.args[1].fields, value.args[1].fields[0]]
        args = typed(relax.Tuple(fields), relax.TupleType([field.ty for field in fields]))
        put(value, "args", [value.args[0], args])

    return with_call_tir(change)


@rejected("call_tir.arg")
def argument_of_another_shape():
    def change(mod, value):
        x = mod["main"].params[0]
        put(x, "ty", tensor(5))
        put(value.args[1], "ty", relax.TupleType([x.ty, x.ty]))

    return with_call_tir(change)


@rejected("op.broadcast")
def type_that_cannot_be_inferred():
    x, w, y = var("x", 4, 4), var("w", 3, 4), var("y", 4, 4)
    value = relax.Call(tvm.ir.Op.get("relax.add"), [x, w])
    return module([x, w], [(y, typed(value, y.ty))], y)


@rejected("type.value")
def type_of_a_call_that_is_another():
    x, y = var("x", 4), var("y", 8)
    return module([x], [(y, typed(relax.op.nn.relu(x), y.ty))], y)


@rejected("type.binding")
def variable_that_cannot_hold_its_value():
    x, y = var("x", 4), var("y", 8)
    return module([x], [(y, relu(x))], y)


@rejected("scope.symbol")
def symbol_that_is_a_dataflow_variable():
    n = relax.DataflowVar("n", tvm.ir.PrimType("int64"))
    x, y = var("x", 4), var("y", 4)
    put(y, "ty", relax.TensorType(relax.ShapeExpr([n]), "float32"))
    return module([x], [(y, relu(x))], x)


def accepted_by_tvm(mod):
    """The result of TVM's check, in a child process, because some modules crash it."""
    run = run_forked(partial(relax.analysis.check_well_formed, mod), timeout=60)
    return run.kind is OutcomeKind.VALUE and run.value


@pytest.mark.parametrize("make, rule", REJECTED)
def test_modules_that_tvm_rejects_are_rejected(make, rule):
    mod = make()
    assert not accepted_by_tvm(mod)
    assert rule in {finding[0] for finding in found(mod)}


@cache
def subject(name):
    return SUBJECTS[name]()


def only_tvm_rejects(name, index):
    """The error if only TVM rejects a mutant, else an empty string.

    TVM rejects a variable of 2 n rows for a value of n rows, and accepts m rows, without a proof of
    either. Here both are warnings, since n may be 0 and m may equal n.
    """
    mutant, mod = mutated(subject(name), index)
    if found(mod) or found(mod, "warning"):
        return ""
    run = run_forked(partial(relax.analysis.well_formed, mod), timeout=60)
    return "" if run.kind is OutcomeKind.VALUE else f"{mutant.kind}, {mutant.where}: {run}"


@pytest.mark.parametrize("name", SUBJECTS)
def test_what_tvm_rejects_of_mutants_is_found(name: str):
    numbers = sample(range(len(mutants(subject(name)))), 20, seed=zlib.crc32(name.encode()))
    missed = [text for index in numbers if (text := only_tvm_rejects(name, index))]
    assert not missed


if __name__ == "__main__":
    tvm.testing.main()
