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
"""Modules that are no modules: null fields, nodes of wrong classes, extents and depths without end.

Whatever is wrong, the answer is a list of findings: never an exception, never a crash. The changes
run in forked children, so that a crash is an answer too.
"""

import random
from functools import cache

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.grids import sample
from helpers.relax_modules import tensor
from helpers.verifying import (
    Cases,
    call,
    copied,
    erase,
    fields,
    found,
    function,
    module,
    put,
    reachable,
    typed,
    var,
)
from tvm_fixes.support.isolate import OutcomeKind, run_forked
from tvm_fixes.verifier import verify

pytestmark = pytest.mark.native
case = Cases()


@case(
    (
        "op.attrs",
        "main.body.blocks[0].bindings[0].value.attrs",
        "`relax.concat`: expected relax.attrs.ConcatAttrs, got null",
    )
)
def attributes_that_are_missing():
    x, y = var("x", 4), var("y", 8)
    return module([x], [(y, call("concat", relax.Tuple([x, x]), ty=y.ty))], y)


@case(
    (
        "op.attrs",
        "main.body.blocks[0].bindings[0].value.attrs",
        "`relax.nn.conv2d`: expected relax.attrs.Conv2DAttrs, got relax.attrs.SoftmaxAttrs",
    )
)
def attributes_of_another_operator():
    x, w, y = var("x", 1, 8, 4, 4), var("w", 8, 8, 1, 1), var("y", 1, 8, 4, 4)
    attrs = relax.op.nn.softmax(x).attrs
    return module([x, w], [(y, call("nn.conv2d", x, w, ty=y.ty, attrs=attrs))], y)


@case(
    (
        "op.attrs",
        "main.body.blocks[0].bindings[0].value.attrs.strides",
        "`relax.nn.conv2d`: the attribute strides is null",
    )
)
def attributes_with_a_null_field():
    x, w, y = var("x", 1, 8, 4, 4), var("w", 8, 8, 1, 1), var("y", 1, 8, 4, 4)
    value = relax.op.nn.conv2d(x, w)
    erase(value.attrs, "strides")
    return module([x, w], [(y, typed(value, y.ty))], y)


@case(("ir.malformed", "main.body.blocks[0].bindings[0].value", "the arguments are null"))
def arguments_that_are_null():
    x, y = var("x", 4), var("y", 4)
    value = call("nn.relu", x, ty=y.ty)
    erase(value, "args")
    return module([x], [(y, value)], y)


@case(
    (
        "ir.malformed",
        "main.body.blocks[0].bindings[0].value.values[1]",
        "expected an integer expression as an extent, got ir.FloatImm",
    )
)
def a_shape_with_an_extent_that_is_no_integer():
    x, shape = var("x", 4), relax.ShapeExpr([4, 4])
    put(shape, "values", [shape.values[0], tvm.tirx.FloatImm("float32", 4)])
    typed(shape, relax.ShapeType(ndim=2))
    return module([x], [(relax.Var("s", shape.ty), shape)], x)


@case(("type.missing", "main", "the function has no result type"))
def a_result_whose_type_is_the_base_class():
    x = var("x", 4)
    mod = module([x], [], x)
    put(mod["main"], "ret_ty", relax.Var("missing").ty)
    return mod


@case(
    ("op.arity", "main.body.blocks[0].bindings[0].value", "`relax.matmul`: 1 argument, expected 2")
)
def too_few_arguments():
    x, y = var("x", 4), var("y", 4)
    value = call("matmul", x, x, ty=y.ty, attrs=relax.op.matmul(x, x).attrs)
    put(value, "args", [x])
    return module([x], [(y, value)], y)


@case(
    (
        "ir.malformed",
        "main.body.blocks[0].bindings[0].value.args[0]",
        "expected an expression, got null",
    )
)
def an_argument_that_is_null():
    x, y = var("x", 4), var("y", 4)
    value = call("nn.relu", x, ty=y.ty)
    put(value, "args", [None])
    return module([x], [(y, value)], y)


@case(
    (
        "call.callee",
        "main.body.blocks[0].bindings[0].value.op",
        "expected an operator or a function, got null",
    )
)
def an_operator_that_is_null():
    x, y = var("x", 4), var("y", 4)
    value = call("nn.relu", x, ty=y.ty)
    put(value, "op", None)
    return module([x], [(y, value)], y)


@case(("ir.malformed", "main.body.blocks[0].bindings[0].value", "expected an expression, got null"))
def a_value_that_is_null():
    x, y = var("x", 4), var("y", 4)
    binding = relax.VarBinding(y, x)
    put(binding, "value", None)
    return module([x], [binding], y)


@case(
    (
        "form.nested",
        "main.body.blocks[0].bindings[0].value",
        "expected a value, got a PrimFunc",
    ),
    (
        "type.binding",
        "main.body.blocks[0].bindings[0].var",
        '`y` cannot hold its value: expected R.Tensor((4,), "float32"), got '
        'R.Callable((R.Tensor((4,), "float32")), R.Tuple())',
    ),
)
def a_value_that_is_a_prim_func():
    @T.prim_func(private=True)
    def fill(A: T.Buffer((4,), "float32")):
        A[0] = T.float32(0)

    x, y = var("x", 4), var("y", 4)
    binding = relax.VarBinding(y, x)
    put(binding, "value", fill)
    return module([x], [binding], y)


@case(
    ("ir.malformed", "main.params[0]", "expected a variable, got null"),
    ("scope.undefined", "main.body.body", "`x` is not defined here"),
)
def a_parameter_that_is_null():
    mod = module([x := var("x", 4)], [], x)
    put(mod["main"], "params", [None])
    return mod


@case(
    ("ir.malformed", "main.params", "the parameters are null"),
    ("scope.undefined", "main.body.body", "`x` is not defined here"),
)
def parameters_that_are_null():
    mod = module([x := var("x", 4)], [], x)
    erase(mod["main"], "params")
    return mod


@case(("ir.malformed", "main.body", "the result: expected a SeqExpr, got null"))
def a_body_that_is_null():
    mod = module([x := var("x", 4)], [], x)
    erase(mod["main"], "body")
    return mod


@case(("ir.malformed", "main.body", "the blocks are null"))
def blocks_that_are_null():
    mod = module([x := var("x", 4)], [], x)
    erase(mod["main"].body, "blocks")
    return mod


@case(
    (
        "ir.malformed",
        "main.body.blocks[0]",
        "expected a block of bindings, got relax.expr.BindingBlock",
    )
)
def bindings_that_are_null():
    x, y = var("x", 4), var("y", 4)
    mod = module([x], [(y, x)], x)
    erase(mod["main"].body.blocks[0], "bindings")
    return mod


@case(("type.missing", "main", "the function has no result type"))
def a_result_type_that_is_null():
    mod = module([x := var("x", 4)], [], x)
    erase(mod["main"], "ret_ty")
    return mod


@case(("ir.malformed", "", "the functions are null"))
def functions_that_are_null():
    mod = tvm.IRModule({})
    erase(mod, "functions")
    return mod


@case(("ir.malformed", "main.params[0]", "the fields of a type are null"))
def a_type_whose_fields_are_null():
    mod = module([x := relax.Var("x", relax.TupleType([tensor(4)]))], [], x)
    erase(x.ty, "fields")
    return mod


@case(("ir.malformed", "main.body.blocks[0].bindings[0].value", "the fields of the tuple are null"))
def a_field_of_a_tuple_that_is_null():
    x, y = var("x", 4), relax.Var("y", relax.TupleType([tensor(4)]))
    value = typed(relax.Tuple([x]), y.ty)
    mod = module([x], [(y, value)], x)
    erase(value, "fields")
    return mod


@case(
    (
        "ir.malformed",
        "main.params[0]",
        "dim 0 of a tensor: expected an integer expression, got ir.IntImm",
    )
)
def an_extent_without_a_type():
    mod = module([x := var("x", 4)], [], x)
    erase(x.ty.shape.values[0], "ty")
    return mod


@case(
    (
        "ir.malformed",
        "main.params[0]",
        "dim 0 of a tensor: expected an integer expression, got ir.FloatImm",
    )
)
def an_extent_that_is_a_float():
    mod = module([x := var("x", 4)], [], x)
    put(x.ty.shape, "values", [tirx.FloatImm("float32", 4.0)])
    return mod


@case(("ir.malformed", "main.params[0]", "a tensor of rank 2 has a shape with 1 extent"))
def a_rank_that_is_not_that_of_the_shape():
    mod = module([x := var("x", 4)], [], x)
    put(x.ty, "ndim", 2)
    return mod


@case(("ir.malformed", "main.params[0]", "a tensor has rank -2"))
def a_rank_below_unknown():
    mod = module([x := relax.Var("x", relax.TensorType(dtype="float32"))], [], x)
    put(x.ty, "ndim", -2)
    return mod


@case()
def extents_beyond_64_bits():
    """The number of elements is none that an integer holds; no sum of the extents is made."""
    x = var("x", 2**62, 2**62, 2**62)
    y = var("y", 2**62, 2**62, 2**62)
    return module([x], [(y, call("nn.relu", x, ty=y.ty))], y)


@case(("ir.malformed", "main.params[0]", "the type is nested more than 200 deep"))
def types_that_are_deeply_nested():
    ty = tensor(4)
    for _ in range(300):
        ty = relax.TupleType([ty])
    x = relax.Var("x", ty)
    return module([x], [], x)


@case()
def an_extent_that_is_deeply_nested():
    n = tirx.Var("n", "int64")
    extent = n
    for _ in range(1000):
        extent = tirx.floordiv(extent + n, 3)
    x = var("x", extent)
    return module([x, var("y", n)], [], x)


@case()
def functions_that_call_each_other():
    mod = tvm.IRModule({})
    names = [tvm.ir.GlobalVar(name) for name in ("f", "g")]
    for name in names:
        put(name, "ty", relax.FuncType([tensor(4)], tensor(4)))
    for name, other in zip(names, reversed(names), strict=True):
        x, y = var("x", 4), var("y", 4)
        mod[name] = function([x], [(y, typed(relax.Call(other, [x]), y.ty))], y)
    return mod


@case(
    ("ir.malformed", "main.body.blocks[0].bindings[0]", "expected a variable to bind, got null"),
    ("scope.undefined", "main.body.body", "`y` is not defined here"),
)
def a_variable_that_is_null():
    x, y = var("x", 4), var("y", 4)
    mod = module([x], [(y, x)], y)
    put(mod["main"].body.blocks[0].bindings[0], "var", None)
    return mod


@pytest.mark.parametrize(*case.arguments)
def test_findings(make, errors, warnings):
    run = run_forked(lambda: (found(make()), found(make(), "warning")), timeout=60)
    assert run.kind is OutcomeKind.VALUE, str(run)
    assert run.value == (list(errors), list(warnings))


@I.ir_module
class Everything:
    """Each class of nodes once."""

    @T.prim_func(private=True)
    def add(a: T.handle, B: T.Buffer((4,), "float32"), c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        C = T.match_buffer(c, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            C[i, j] = A[i, j] + B[j]

    @R.function(private=True)
    def callee(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        y = R.nn.relu(x)
        return y

    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        s: R.Shape(["n"]),
        c: R.Tensor((), "bool"),
        t: R.Tuple(R.Tensor((4,), "float32"), R.Shape),
    ) -> R.Tensor(dtype="float32"):
        n, m = T.int64(), T.int64()
        cls = Everything
        with R.dataflow():
            a = R.concat((x, x), axis=0)
            b = R.reshape(a, R.shape([n * 2, 4]))
            w = t[0]
            d = R.call_tir(cls.add, (x, w), out_ty=R.Tensor((n, 4), "float32"))
            k = R.add(d, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
            R.output(b, k)
        v = R.match_cast(b, R.Tensor((m, 4), "float32"))
        e = cls.callee(v)
        if c:
            u = R.add(k, k)
        else:
            u = R.nn.relu(k)
        z = R.call_pure_packed("f", u, ty_args=R.Tensor((n, 4), "float32"))
        q = R.strided_slice(z, axes=[0], begin=[0], end=[1])
        return q


STAGES = {
    "as it is": lambda: Everything,
    "legalized": lambda: relax.transform.LegalizeOps()(Everything),
}


@cache
def stage(name):
    return STAGES[name]()


def strangers():
    """Values that stand in no place by right."""
    x = var("stranger", 4)
    return [
        None,
        x,
        relax.DataflowVar("local", tensor(3)),
        x.ty,
        [],
        [x],
        [None],
        [x.ty],
        [None] * 4,
        2**62,
        -(2**63),
        2**31 - 1,
        -1,
        0,
        True,
        "",
        relax.const(1.0),
        tirx.IntImm("int64", 2**62),
        tirx.Var("n", "int64"),
        tirx.Var("f", "float32"),
        relax.ShapeExpr([2**62] * 3),
        relax.TupleType([]),
        tvm.ir.PrimType("int64"),
        relax.AnyType(),
        tvm.ir.Op.get("relax.add"),
        relax.op.nn.softmax(x).attrs,
        tvm.ir.GlobalVar("g"),
        relax.ExternFunc("f"),
        relax.Tuple([]),
        {},
        tvm.runtime.tensor(np.zeros(1, "float32")),
    ]


def places(name):
    """The number of each node of a stage, with each of its fields, and whether it can be null."""
    for i, node in enumerate(reachable(stage(name))):
        for field in fields(node):
            yield name, i, field.name, field.size == 8 and field.field_static_type_index >= 64


PLACES = [place for name in STAGES for place in places(name)]


def change(name, index, field, nullable):
    """Put each of some strangers, and null, in one place; what verify does is the answer."""
    tried = 0
    for number in [None, *random.Random(index).sample(range(len(strangers())), 6)]:
        mod = copied(stage(name))
        node = reachable(mod)[index]
        if number is None:
            if not nullable:
                continue
            erase(node, field)
        else:
            try:
                put(node, field, strangers()[number])
            except TypeError:
                continue
        verify(mod)
        tried += 1
    return tried


@pytest.mark.parametrize("batch", range(2))
def test_corrupted_modules_do_not_crash(batch):
    chosen = sample(PLACES[batch::2], 10, seed=batch)
    run = run_forked(lambda: sum(change(*place) for place in chosen), timeout=None)
    assert run.kind is OutcomeKind.VALUE, str(run)
    assert run.value > len(chosen) // 2


if __name__ == "__main__":
    tvm.testing.main()
