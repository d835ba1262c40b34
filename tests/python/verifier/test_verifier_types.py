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
"""The types of values, found from the bottom up: what is stated of them is true."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.relax_modules import tensor
from helpers.verifying import (
    Cases,
    assert_found,
    call,
    module,
    only,
    put,
    typed,
    var,
)

pytestmark = pytest.mark.native
case = Cases()


def constant(value: np.ndarray, ty: relax.TensorType) -> relax.Expr:
    return tvm.ir.GenericConst(tvm.runtime.tensor(value), ty)


def branches(cond: relax.Var, true: relax.Var, false: relax.Var, ty: tvm.ir.Type) -> relax.If:
    bodies = [typed(relax.SeqExpr([], value), value.ty) for value in (true, false)]
    return typed(relax.If(cond, *bodies), ty)


def item(value: relax.Expr, index: int, ty: tvm.ir.Type) -> relax.TupleGetItem:
    pair = relax.Var("pair", relax.TupleType([ty, ty]))
    one = typed(relax.TupleGetItem(pair, 0), ty)
    put(one, "tuple_value", value)
    put(one, "index", index)
    return one


def pair_of(*types: tvm.ir.Type) -> relax.Var:
    return relax.Var("pair", relax.TupleType(types))


def unknown(name: str, **known: object) -> relax.Var:
    return relax.Var(name, relax.TensorType(**known))


@case(
    (
        "type.tuple",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tuple(R.Tensor((8,), "float32")) does not match '
        "the inferred type "
        'R.Tuple(R.Tensor((4,), "float32")): field 0, dim 0: 4 != 8',
    )
)
def a_tuple_of_other_extents():
    x, t = var("x", 4), relax.Var("t", relax.TupleType([tensor(8)]))
    return module([x], [(t, typed(relax.Tuple([x]), t.ty))], x)


@case(
    (
        "type.tuple",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tuple(R.Tensor((4,), "float32")) does not match '
        "the inferred type "
        'R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")): a tuple of 2 fields, '
        "expected 1",
    )
)
def a_tuple_of_fewer_fields():
    x, t = var("x", 4), relax.Var("t", relax.TupleType([tensor(4)]))
    return module([x], [(t, typed(relax.Tuple([x, x]), t.ty))], x)


@case(
    (
        "type.tuple",
        "main.body.blocks[0].bindings[0].value.args[0]",
        'the stated type R.Tuple(R.Tensor((4,), "float32"), R.Tensor((2,), "float32")) does not '
        "match the inferred type "
        'R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")): field 1, '
        "dim 0: 4 != 2",
    )
)
def a_tuple_in_an_argument():
    x, y = var("x", 4), var("y", 8)
    pair = typed(relax.Tuple([x, x]), relax.TupleType([tensor(4), tensor(2)]))
    attrs = relax.op.concat([x, x]).attrs
    return module([x], [(y, call("concat", pair, ty=y.ty, attrs=attrs))], y)


@case(
    (
        "type.get_item",
        "main.body.blocks[0].bindings[0].value",
        'cannot take field 2 of R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))',
    )
)
def a_field_that_is_absent():
    y, pair = var("y", 4), pair_of(tensor(4), tensor(4))
    return module([pair], [(y, item(pair, 2, y.ty))], y)


@case(
    (
        "type.get_item",
        "main.body.blocks[0].bindings[0].value",
        'cannot take field -1 of R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))',
    )
)
def a_field_of_a_negative_index():
    y, pair = var("y", 4), pair_of(tensor(4), tensor(4))
    return module([pair], [(y, item(pair, -1, y.ty))], y)


@case(
    (
        "type.value",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tensor((8,), "float32") does not match '
        "the inferred type R.Tensor((4,), "
        '"float32"): dim 0: 4 != 8',
    )
)
def a_field_of_other_extents():
    y, pair = var("y", 8), pair_of(tensor(4), tensor(8))
    return module([pair], [(y, item(pair, 0, y.ty))], y)


@case(
    (
        "type.get_item",
        "main.body.blocks[0].bindings[0].value",
        'cannot take field 0 of R.Tensor((4,), "float32")',
    )
)
def a_field_of_a_tensor():
    x, y = var("x", 4), var("y", 4)
    return module([x], [(y, item(x, 0, y.ty))], y)


@case(
    (
        "type.if",
        "main.body.blocks[0].bindings[0].value.false_branch.body",
        "the false branch: dim 0: 8 != 4",
    )
)
def a_branch_of_other_extents():
    c, x, y, z = var("c", dtype="bool"), var("x", 4), var("y", 8), var("z", 4)
    return module([c, x, y], [(z, branches(c, x, y, z.ty))], z)


@case()
def branches_of_less_than_both_say():
    """The type of an If may be less precise than those of its branches."""
    c, x, y = var("c", dtype="bool"), var("x", 4), var("y", 8)
    z = unknown("z", dtype="float32", ndim=1)
    return module([c, x, y], [(z, branches(c, x, y, z.ty))], z)


@case(
    (
        "if.condition",
        "main.body.blocks[0].bindings[0].value.cond",
        'the condition is R.Tensor((), "float32"), expected a boolean of rank 0',
    )
)
def a_condition_that_is_no_boolean():
    c, x, z = var("c"), var("x", 4), var("z", 4)
    return module([c, x], [(z, branches(c, x, x, z.ty))], z)


@case(
    (
        "if.condition",
        "main.body.blocks[0].bindings[0].value.cond",
        'the condition is R.Tensor((2,), "bool"), expected a boolean of rank 0',
    )
)
def a_condition_of_several_elements():
    c, x, z = var("c", 2, dtype="bool"), var("x", 4), var("z", 4)
    return module([c, x], [(z, branches(c, x, x, z.ty))], z)


@case(
    warnings=[
        (
            "if.condition",
            "main.body.blocks[0].bindings[0].value.cond",
            'the condition is R.Tensor(dtype="bool"), expected a boolean of rank 0',
        )
    ]
)
def a_condition_of_unknown_rank():
    c, x, z = unknown("c", dtype="bool"), var("x", 4), var("z", 4)
    return module([c, x], [(z, branches(c, x, x, z.ty))], z)


@case(
    (
        "type.seq",
        "main.body",
        'the stated type R.Tensor((5,), "float32") does not match '
        "the inferred type R.Tensor((4,), "
        '"float32"): dim 0: 4 != 5',
    )
)
def a_sequence_of_other_extents():
    mod = module([x := var("x", 4)], [], x)
    put(mod["main"].body, "ty", tensor(5))
    return mod


@case(("type.return", "main.body.body", "the result: dim 0: 4 != 2"))
def a_result_of_other_extents():
    return module([x := var("x", 4)], [], x, ret=tensor(2))


@case(("type.return", "main.body.body", "the result: rank: 1 != 2"))
def a_result_of_another_rank():
    return module([x := var("x", 4)], [], x, ret=tensor(4, 1))


@case(("type.return", "main.body.body", "the result: dtype: float32 != int32"))
def a_result_of_another_dtype():
    return module([x := var("x", 4)], [], x, ret=tensor(4, dtype="int32"))


@case()
def a_result_of_which_less_is_stated():
    return module([x := var("x", 4)], [], x, ret=relax.TensorType(dtype="float32", ndim=1))


@case(warnings=[("type.return", "main.body.body", "the result: dim 0: ? != 4")])
def a_result_of_which_more_is_stated():
    x = unknown("x", dtype="float32", ndim=1)
    return module([x], [], x, ret=tensor(4))


@case(
    (
        "type.constant",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tensor((3,), "float32") does not match '
        "the inferred type R.Tensor((2,), "
        '"float32"): dim 0: 2 != 3',
    )
)
def a_constant_of_other_extents():
    y = var("y", 3)
    return module([], [(y, constant(np.zeros(2, "float32"), y.ty))], y)


@case(
    (
        "type.constant",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tensor((2,), "int32") does not match '
        'the inferred type R.Tensor((2,), "float32"): '
        "dtype: float32 != int32",
    )
)
def a_constant_of_another_dtype():
    y = var("y", 2, dtype="int32")
    return module([], [(y, constant(np.zeros(2, "float32"), y.ty))], y)


@case(
    (
        "type.constant",
        "main.body.blocks[0].bindings[0].value",
        'the constant of type R.Tensor((2,), "float32") has no data',
    )
)
def a_constant_without_data():
    y = var("y", 2)
    value = constant(np.zeros(2, "float32"), y.ty)
    put(value, "value", None)
    return module([], [(y, value)], y)


@case(
    (
        "type.shape",
        "main.body.blocks[0].bindings[0].value",
        "the stated type R.Shape([4, 6]) does not match "
        "the inferred type R.Shape([4, 5]): dim 1: 5 != 6",
    )
)
def a_shape_of_another_type():
    y = relax.Var("y", relax.ShapeType([4, 6]))
    return module([], [(y, typed(relax.ShapeExpr([4, 5]), y.ty))], y)


@case(
    (
        "type.match_cast",
        "main.body.blocks[0].bindings[0].value",
        "the cast can never succeed: dim 0: 4 != 5",
    )
)
def a_cast_to_other_extents():
    x, y = var("x", 4), var("y", 5)
    return module([x], [relax.MatchCast(y, x, y.ty)], y)


@case(
    (
        "type.match_cast",
        "main.body.blocks[0].bindings[0].value",
        "the cast can never succeed: dtype: float32 != int32",
    )
)
def a_cast_to_another_dtype():
    x, y = var("x", 4), var("y", 4, dtype="int32")
    return module([x], [relax.MatchCast(y, x, y.ty)], y)


@case(
    (
        "type.match_cast",
        "main.body.blocks[0].bindings[0].value",
        "dim 0: `2 * n` is cast to `n`, which it depends on: TVM would substitute `n` endlessly",
    )
)
def a_cast_to_what_it_is_computed_of():
    n = tirx.Var("n", "int64")
    x, p, y = var("x", n * 2), var("p", n), var("y", n)
    return module([x, p], [relax.MatchCast(y, x, y.ty)], y)


@case(
    (
        "type.match_cast",
        "main.body.blocks[0].bindings[0].value",
        "the cast can never succeed: rank: 1 != 2",
    )
)
def a_cast_to_another_rank():
    x, y = var("x", 4), var("y", 4, 1)
    return module([x], [relax.MatchCast(y, x, y.ty)], y)


@case(
    (
        "type.match_cast",
        "main.body.blocks[0].bindings[0].value",
        "the cast can never succeed: dim 1: 5 != 4 (n)",
    )
)
def a_cast_of_one_symbol_to_two_extents():
    n = tirx.Var("n", "int64")
    x, y = var("x", 4, 5), var("y", n, n)
    return module([x], [relax.MatchCast(y, x, y.ty)], y)


@case(
    (
        "type.match_cast",
        "main.body.blocks[0].bindings[0].value",
        "the cast can never succeed: dim 0: n != n + 1",
    )
)
def a_cast_of_n_to_n_and_one():
    n = tirx.Var("n", "int64")
    x, y = var("x", n), var("y", n + 1)
    return module([x], [relax.MatchCast(y, x, y.ty)], y)


@case()
def a_cast_that_defines_a_symbol():
    n = tirx.Var("n", "int64")
    x, y = unknown("x", dtype="float32", ndim=1), var("y", n)
    return module([x], [relax.MatchCast(y, x, y.ty)], y)


@case(
    (
        "type.binding",
        "main.body.blocks[0].bindings[0].var",
        "`y` cannot hold the result of the cast: dim 0: 4 != 5",
    )
)
def a_cast_of_another_variable_type():
    x, y = unknown("x", dtype="float32", ndim=1), var("y", 5)
    return module([x], [relax.MatchCast(y, x, tensor(4))], y)


@case(
    (
        "type.value",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tensor((4,), "float32") does not match '
        "the inferred type R.Tensor((3,)): dim 0: 3 "
        "!= 4",
    )
)
def an_unknown_dtype_hides_no_extent():
    x, y = unknown("x", shape=(3,), dtype=None), var("y", 4)
    return module([x], [(y, call("nn.relu", x, ty=y.ty))], y)


@case(
    (
        "type.binding",
        "main.body.blocks[0].bindings[0].var",
        "`y` cannot hold its value: different vdevice; dim 0: 3 != 4",
    )
)
def a_vdevice_hides_no_extent():
    first, second = (relax.VDevice("llvm", i) for i in range(2))
    x = relax.Var("x", relax.TensorType((3,), "float32", first))
    y = relax.Var("y", relax.TensorType((4,), "float32", second))
    return module([x], [(y, x)], y)


@case(
    (
        "type.binding",
        "main.body.blocks[0].bindings[0].var",
        "`y` cannot hold its value: different vdevice",
    )
)
def another_vdevice():
    first, second = (relax.VDevice("llvm", i) for i in range(2))
    x = relax.Var("x", relax.TensorType((3,), "float32", first))
    y = relax.Var("y", relax.TensorType((3,), "float32", second))
    return module([x], [(y, x)], y)


@case(
    (
        "type.binding",
        "main.body.blocks[0].bindings[0].var",
        "`y` cannot hold its value: dim 0: 4 != 5",
    )
)
def a_variable_of_other_extents():
    x, y = var("x", 4), var("y", 5)
    return module([x], [(y, x)], y)


@case()
def a_variable_of_less():
    x, y = var("x", 4), unknown("y", dtype="float32")
    return module([x], [(y, x)], y)


@case(
    (
        "type.binding",
        "main.body.blocks[0].bindings[0].var",
        "`y` cannot hold its value: dim 0: ? != 5",
    )
)
def a_variable_of_more():
    """Only a cast may state what a value does not say."""
    x, y = unknown("x", dtype="float32", ndim=1), var("y", 5)
    return module([x], [(y, x)], y)


@case(
    (
        "type.value",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tensor((5,), "float32") does not match '
        "the inferred type R.Tensor((4,), "
        '"float32"): dim 0: 4 != 5',
    )
)
def a_value_of_other_extents():
    x, y = var("x", 4), var("y", 5)
    return module([x], [(y, call("nn.relu", x, ty=y.ty))], y)


@case()
def a_value_of_less():
    x, y = var("x", 4), unknown("y", dtype="float32")
    return module([x], [(y, call("nn.relu", x, ty=y.ty))], y)


@case(
    (
        "type.value",
        "main.body.blocks[0].bindings[0].value",
        'the stated type R.Tensor((5,), "float32") does not match '
        "the inferred type R.Tensor((4,), "
        '"float32"): dim 0: 4 != 5',
    )
)
def one_wrong_binding_is_one_error():
    x, y = var("x", 4), var("y", 5)
    values = [(y, call("nn.relu", x, ty=y.ty))]
    for i in range(3):
        values.append((var(f"z{i}", 5), call("nn.relu", values[-1][0], ty=y.ty)))
    return module([x], values, values[-1][0])


@case(("shape.negative", "main.params[0]", "dim 0 of a tensor is -4"))
def a_negative_extent():
    return module([x := var("x", -4)], [], x)


@case(("shape.negative", "main.params[1]", "dim 0 of a tensor is -n - 1"))
def an_extent_that_is_negative_for_every_symbol():
    n = tirx.Var("n", "int64")
    return module([var("x", n), y := var("y", -1 - n)], [], y)


@case(("type.missing", "main.body.blocks[0].bindings[0].var", "`y` has no type"))
def a_variable_without_a_type():
    x = var("x", 4)
    return module([x], [(relax.Var("y"), x)], x)


def test_where_a_wrong_value_comes_from_is_noted():
    c, x, z = var("c", 2, dtype="bool"), var("x", 4), var("z", 4)
    one = only(module([c, x], [(z, branches(c, x, x, z.ty))], z))
    assert [note.message for note in one.notes] == ["`c` is a parameter"]


def test_a_variable_of_more_is_told_of_the_cast():
    assert only(a_variable_of_more()).hint == (
        "use R.match_cast to state what the value's type leaves open; it checks at run time"
    )


@pytest.mark.parametrize(*case.arguments)
def test_findings(make, errors, warnings):
    assert_found(make(), *errors, warnings=warnings)


if __name__ == "__main__":
    tvm.testing.main()
