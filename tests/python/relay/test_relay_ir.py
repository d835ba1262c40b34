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
"""The classes of the Relay IR: construction, structural equality, depth, attributes."""

import numpy as np
import pytest
import tvm.testing
import tvm_ffi

from helpers.grids import few, is_full
from tvm_fixes import _ffi, relay
from tvm_fixes.errors import RelayError

pytestmark = pytest.mark.native

TENSOR = relay.TensorType([2, relay.Any()], "int8")


def equal(a, b):
    same = tvm_ffi.structural_equal(a, b)
    if same:
        assert tvm_ffi.structural_hash(a) == tvm_ffi.structural_hash(b)
    return same


def relu(x):
    return relay.Call("nn.relu", [x])


def identity(name="x", ty=TENSOR):
    x = relay.Var(name, ty)
    return relay.Function([x], relu(x))


def test_fields():
    x = relay.Var("x", TENSOR)
    call = relay.Call("nn.softmax", [x], {"axis": 1}, [TENSOR])
    assert (x.name, call.op.name, call.attrs["axis"], len(call.type_args)) == (
        "x",
        "nn.softmax",
        1,
        1,
    )
    assert call.args[0].same_as(x)
    assert call.op.same_as(relay.Op.get("nn.softmax"))
    assert call.checked_type is None
    assert TENSOR.shape[0] == 2
    assert isinstance(TENSOR.shape[1], relay.Any)
    assert str(TENSOR.dtype) == "int8"
    assert not TENSOR.is_static
    assert isinstance(relay.Var("y").type_annotation, relay.IncompleteType)
    function = relay.Function([x], call, attrs={"Inline": 1})
    mod = relay.IRModule.from_expr(function)
    assert mod["main"].same_as(function)
    assert relay.IRModule.from_expr(relay.Constant(1))["main"].body.numpy() == 1


def test_spans():
    x = relay.Var("x")
    assert str(x.span) == "unknown place"
    assert str(x.with_span(relay.Span(3, 4)).span) == "3:4"


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int64", "bool"]
)
def test_constants(dtype):
    value = np.array([[0, 1, 1]]).astype(dtype)
    constant = relay.Constant(value)
    value[:] = 0
    np.testing.assert_array_equal(constant.numpy(), np.array([[0, 1, 1]]).astype(dtype))
    assert str(constant.data.dtype) == dtype
    assert equal(constant, relay.Constant(constant.numpy()))
    assert not equal(constant, relay.Constant(value))
    transposed = relay.Constant(np.array([[1, 2], [3, 4]]).T)
    np.testing.assert_array_equal(transposed.numpy(), [[1, 3], [2, 4]])


def test_names_do_not_count():
    assert equal(identity("x"), identity("y"))
    a, b = (relay.Var(name) for name in "ab")
    assert equal(relay.Let(a, relay.Constant(1), a), relay.Let(b, relay.Constant(1), b))
    assert (
        equal(
            relay.FuncType([relay.TypeVar("A")], TENSOR),
            relay.FuncType([relay.TypeVar("B")], TENSOR),
        )
        is False
    ), "type variables that are not bound differ"


@pytest.mark.parametrize(
    "make",
    [
        lambda: relay.Tuple([None]),
        lambda: relay.TupleGetItem(None, 0),
        lambda: relay.Call("add", [None]),
        lambda: relay.Call(None, []),
        lambda: relay.Let(relay.Var("x"), None, relay.Constant(1)),
        lambda: relay.If(None, relay.Constant(1), relay.Constant(1)),
        lambda: relay.Function([], None),
        lambda: relay.Function([None], relay.Constant(1)),
        lambda: relay.RefRead(None),
        lambda: relay.Match(relay.Constant(1), [None]),
        lambda: relay.Clause(None, relay.Constant(1)),
        lambda: relay.PatternVar(None),
        lambda: relay.TupleType([None]),
        lambda: relay.FuncType([], None),
        lambda: relay.IRModule({"main": None}),
    ],
)
def test_parts_are_required(make):
    with pytest.raises(RelayError, match="a part of a node is None"):
        make()


def test_bound_type_variables():
    def function(name):
        var = relay.TypeVar(name)
        x = relay.Var("x", var)
        return relay.Function([x], x, var, [var])

    assert equal(function("A"), function("B"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (identity(), identity(ty=relay.TensorType([2, 3], "int8"))),
        (identity(), identity(ty=None)),
        (relay.Constant(1), relay.Constant(np.array(1, "int32"))),
        (relay.Call("add", []), relay.Call("subtract", [])),
        (relay.Call("add", [], {"a": 1}), relay.Call("add", [], {"a": 2})),
        (relay.Call("add", [], {"a": 1}), relay.Call("add", [], {"a": True})),
        (relay.Call("add", [], {"a": 1}), relay.Call("add", [], {"b": 1})),
        (relay.Call("add", [], {}, [TENSOR]), relay.Call("add", [])),
        (relay.Tuple([relay.Constant(1)]), relay.Tuple([])),
        (relay.TupleGetItem(relay.Tuple([]), 0), relay.TupleGetItem(relay.Tuple([]), 1)),
        (relay.GlobalVar("f"), relay.GlobalVar("g")),
        (relay.Var("x"), relay.Var("x")),
        (relay.RefType(TENSOR), relay.TupleType([TENSOR])),
        (relay.Function([], relay.Tuple([]), attrs={"a": 1}), relay.Function([], relay.Tuple([]))),
        (relay.If(relay.Constant(True), relay.Constant(1), relay.Constant(2)),
         relay.If(relay.Constant(True), relay.Constant(2), relay.Constant(1))),
    ],
)  # fmt: skip
def test_unequal_programs(a, b):
    assert not equal(a, b)
    assert equal(a, a)


def test_order_of_variables():
    x, y = relay.Var("x", TENSOR), relay.Var("y", TENSOR)
    function = relay.Function([x, y], relay.Tuple([x, y]))
    assert not equal(function, relay.Function([y, x], relay.Tuple([x, y])))
    assert equal(function, relay.Function([y, x], relay.Tuple([y, x])))


def list_type(item="A", fields=2):
    head = relay.GlobalTypeVar("List")
    var = relay.TypeVar(item)
    inputs = [var, relay.TypeCall(head, [var])][:fields]
    cons = relay.Constructor("Cons", inputs, head)
    return relay.TypeData(head, [var], [cons, relay.Constructor("Nil", [], head)])


def test_type_definitions():
    def module(data):
        return relay.IRModule({}, {"List": data})

    assert equal(module(list_type("A")), module(list_type("B")))
    assert not equal(module(list_type()), module(list_type(fields=1)))
    extern = relay.TypeData(relay.GlobalTypeVar("List"), [], [], True)
    assert not equal(module(extern), module(relay.TypeData(relay.GlobalTypeVar("List"), [], [])))


def test_matches():
    data = list_type()
    cons = data.constructors[0]

    def match(name, complete=True, use_tail=False):
        head, tail = relay.Var(name), relay.Var("t")
        pattern = relay.PatternConstructor(cons, [relay.PatternVar(head), relay.PatternVar(tail)])
        clauses = [relay.Clause(pattern, tail if use_tail else head)]
        wildcard = relay.PatternTuple([relay.PatternWildcard()])
        clauses.append(relay.Clause(wildcard, relay.Constant(1)))
        return relay.Function([], relay.Match(relay.Constant(0), clauses, complete))

    assert equal(match("a"), match("b"))
    assert not equal(match("a"), match("a", complete=False))
    assert not equal(match("a"), match("a", use_tail=True))


def chain(depth):
    x = relay.Var("x", TENSOR)
    expr = x
    for _ in range(depth):
        expr = relay.Call("add", [expr, expr])
    return relay.Function([x], expr)


def lets(depth):
    x = relay.Var("x", TENSOR)
    names = [x, *(relay.Var("y") for _ in range(depth))]
    expr = names[-1]
    for i in reversed(range(depth)):
        expr = relay.Let(names[i + 1], relu(names[i]), expr)
    return relay.Function([x], expr)


def nested(make, depth):
    expr = relay.Constant(True)
    for _ in range(depth):
        expr = make(expr)
    return relay.Function([], expr)


@few(5)
@pytest.mark.parametrize(
    "make",
    [
        lambda n: chain(n),
        lambda n: lets(n),
        lambda n: nested(lambda e: relay.Tuple([e]), n),
        lambda n: nested(lambda e: relay.TupleGetItem(e, 0), n),
        lambda n: nested(lambda e: relay.If(e, e, e), n),
        lambda n: nested(lambda e: relay.If(relay.Constant(True), relay.Constant(1), e), n),
        lambda n: nested(lambda e: relay.Function([], e), n),
        lambda n: nested(lambda e: relay.Call(e, []), n),
        lambda n: nested(lambda e: relay.RefCreate(e), n),
        lambda n: nested(lambda e: relay.RefWrite(relay.Constant(1), e), n),
        lambda n: nested(
            lambda e: relay.Match(e, [relay.Clause(relay.PatternWildcard(), relay.Constant(1))]), n
        ),
        lambda n: nested(
            lambda e: relay.Match(relay.Constant(1), [relay.Clause(relay.PatternWildcard(), e)]), n
        ),
        lambda n: nested(lambda e: relay.Let(relay.Var("x"), e, relay.Constant(1)), n),
    ],
)
def test_deep_programs(make):
    """Making, comparing, hashing, walking and freeing need no stack."""
    count = 30_000 if is_full() else 15_000
    a, b = make(count), make(count)
    assert equal(a, b)
    assert not equal(a, make(count - 1))
    assert len(_ffi.get("tvm_fixes.relay.PostOrder")(a)) > count
    assert not _ffi.get("tvm_fixes.relay.FreeVars")(a)


def test_deep_types():
    ty = TENSOR
    for _ in range(100_000):
        ty = relay.TupleType([ty])
    assert str(ty).startswith("((((")
    assert "..." in str(ty)


def test_free_vars():
    x, y, z, f = (relay.Var(name) for name in "xyzf")
    body = relay.Let(y, relay.Tuple([x, y]), relay.Call(f, [y, z]))
    expr = relay.Tuple([body, relay.Function([z], z), z])
    free = _ffi.get("tvm_fixes.relay.FreeVars")(relay.Tuple([body, relay.Function([f], f)]))
    assert [var.name for var in free] == ["x", "z"]
    assert [var.name for var in _ffi.get("tvm_fixes.relay.FreeVars")(expr)] == ["x", "f"]


def test_post_order_visits_operands_first():
    x = relay.Var("x")
    y = relu(x)
    expr = relay.Tuple([y, relay.Call("add", [y, x])])
    nodes = _ffi.get("tvm_fixes.relay.PostOrder")(expr)
    names = [
        node.op.name if isinstance(node, relay.Call) else type(node).__name__ for node in nodes
    ]
    assert names == ["Op", "Var", "nn.relu", "Op", "add", "Tuple"]


def test_operators():
    table = relay.operators()
    softmax = table["nn.softmax"]
    assert softmax.input_names == ("data",)
    assert (softmax.min_inputs, softmax.max_inputs) == (1, 1)
    assert softmax.attrs_key == "relay.attrs.SoftmaxAttrs"
    assert softmax.effect == "computes"
    assert softmax.has_relation
    assert softmax.attrs[0] == {"name": "axis", "kind": "int", "required": False, "default": -1}
    for info in table.values():
        assert info.max_inputs == -1 or info.min_inputs <= info.max_inputs
        assert info.effect in ("computes", "annotation", "rejected")
        assert bool(info.rejection) == (info.effect == "rejected")
        names = [field["name"] for field in info.attrs]
        assert len(names) == len(set(names)), info.name


def test_attributes_are_completed():
    assert dict(relay.complete_attrs(relay.Call("nn.softmax", []))) == {"axis": -1}
    assert dict(relay.complete_attrs(relay.Call("nn.softmax", [], {"axis": 1}))) == {"axis": 1}
    assert dict(relay.complete_attrs(relay.Call("unknown.op", [], {"a": "b"}))) == {"a": "b"}


@pytest.mark.parametrize(
    ("attrs", "problem"),
    [
        ({"axis": "1"}, "nn.softmax at 3:4: attribute 'axis': expected int, found \"1\""),
        ({"axis": 1.5}, "attribute 'axis': expected int, found 1.5"),
        ({"axis": [1, 2]}, r"attribute 'axis': expected int, found \[1, 2\]"),
        ({"axes": 1}, "nn.softmax at 3:4: unknown attribute 'axes'"),
    ],
)
def test_attributes_are_checked(attrs, problem):
    call = relay.Call("nn.softmax", [], attrs).with_span(relay.Span(3, 4))
    with pytest.raises(RelayError, match=problem):
        relay.complete_attrs(call)


if __name__ == "__main__":
    tvm.testing.main()
