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
"""Type inference."""

import hypothesis.strategies as st
import pytest
import tvm.testing
from hypothesis import given

from helpers.relay_programs import TENSOR, RandomProgram
from tvm_fixes import _ffi, relay
from tvm_fixes.errors import RelayError

pytestmark = pytest.mark.native

LIST = "type List[A] { Cons(A, List[A]), Nil }\n"

LENGTH = """
def @length[A](%l: List[A]) -> int32 {
  match (%l) { Cons(_, %t) => 1 + @length(%t), Nil => 0 }
}
"""


def infer(text):
    return relay.transform.InferType()(relay.parse(text))


def result(text):
    return str(infer(text)["main"].checked_type.ret_type)


def errors(text):
    with pytest.raises(RelayError) as error:
        infer(text)
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(1, 2f, True)", "(int32, float32, bool)"),
        ("(1, (2f, ())).1", "(float32, ())"),
        ("%a", "Tensor[(1, ?), float32]"),
        ("add(nn.relu(%a), %b)", "Tensor[(1, 4), float32]"),
        ("if (True) { %b } else { %c }", "Tensor[(?,), float32]"),
        ("if (True) { (%b, 1) } else { (%c, 2) }", "(Tensor[(?,), float32], int32)"),
        ("let %x = %b; nn.relu(%x)", "Tensor[(4,), float32]"),
        ("let %x: Tensor[(?,), float32] = %b; %x", "Tensor[(?,), float32]"),
        ("ref(%b)", "ref(Tensor[(4,), float32])"),
        ("let %r = ref(%b); ref_write(%r, nn.relu(%b)); ref_read(%r)", "Tensor[(4,), float32]"),
        ("ref_write(ref(1), 2)", "()"),
        ("fn (%x: int32) { (%x, 1f) }", "fn (int32) -> (int32, float32)"),
        ("let %f = fn (%x) { add(%x, 1) }; (%f, %f(2))", "(fn (int32) -> int32, int32)"),
        ("let %f = fn (%g) { %g(1, 2f) }; %f(fn (%x, %y) { %y })", "float32"),
        ("let %f = fn (%n) { if (True) { %f(add(%n, 1)) } else { %n } }; %f(1)", "int32"),
        ("let %f = fn (%p) { %p.1 }; %f((1, 2f))", "float32"),
        ("let %f = fn [A](%x: A) -> A { %x }; (%f(1), %f(2f))", "(int32, float32)"),
        ("(fn (%x) { %x })(1)", "int32"),
        ("fn (%f: fn (int32) -> float32) { %f(1) }", "fn (fn (int32) -> float32) -> float32"),
        ("match ((1, 2f)) { (%x, %y) => %y }", "float32"),
        ("match (1) { %x => (%x, %x) }", "(int32, int32)"),
    ],
)  # fmt: skip
def test_expressions(text, expected):
    params = "%a: Tensor[(1, ?), float32], %b: Tensor[(4,), float32], %c: Tensor[(?,), float32]"
    assert result(f"def @main({params}) {{ {text} }}") == expected


def test_global_functions():
    text = """
    def @first(%p) { %p.0 }
    def @main(%x: Tensor[(2, 3), float32]) { (@first((%x, 1)), @later(%x)) }
    def @later(%y) { nn.relu(%y) }
    """
    assert result(text) == "(Tensor[(2, 3), float32], Tensor[(2, 3), float32])"
    mod = infer(text)
    assert str(mod["later"].params[0].checked_type) == "Tensor[(2, 3), float32]"
    first = mod["main"].body.fields[0].op
    assert str(first.checked_type) == f"fn (({T}, int32)) -> {T}"


def test_functions_that_call_each_other():
    text = """
    def @even(%n: int32) { if (True) { True } else { @odd(subtract(%n, 1)) } }
    def @odd(%n: int32) { if (True) { False } else { @even(subtract(%n, 1)) } }
    def @main() { @even(3) }
    """
    assert result(text) == "bool"


def test_polymorphic_functions():
    text = """
    def @id[A](%x: A) -> A { %x }
    def @main() { (@id(1), @id(2f), @id(@id)(3), @id[int32](4)) }
    """
    assert result(text) == "(int32, float32, int32, int32)"


def test_lists():
    assert result(LIST + LENGTH + "def @main() { @length(Cons(1f, Cons(2f, Nil))) }") == "int32"
    assert result(LIST + "def @main() { Cons(1f, Nil) }") == "List[float32]"
    assert result(LIST + "def @main() { Nil[int8] }") == "List[int8]"
    text = "def @main(%x: Tensor[(3,), int8], %y: Tensor[(?,), int8]) { Cons(%x, Cons(%y, Nil)) }"
    assert result(LIST + text) == "List[Tensor[(?,), int8]]"
    text = "def @main(%l: List[(int32, bool)]) { match (%l) { Cons((%a, _), _) => %a, _ => 0 } }"
    assert result(LIST + text) == "int32"
    text = (
        "def @main() { let %f = fn (%l) { match (%l) { Cons(%x, _) => %x } }; %f(Cons(1f, Nil)) }"
    )
    assert result(LIST + text) == "float32"


def test_extern_types():
    text = "extern type Handle\ndef @main(%h: Handle) -> Handle { let %x = %h; %x }"
    assert result(text) == "Handle[]"


def test_named_dimensions():
    params = "%x: Tensor[(n, 2), float32], %y: Tensor[(n, 1), float32]"
    text = f"def @main[n: Shape]({params}) {{ add(%x, %y) }}"
    assert result(text) == "Tensor[(n, 2), float32]"


def test_all_nodes_have_types():
    mod = infer(LIST + LENGTH + "def @main(%x: int32) { let %f = fn (%y) { (%y, 1) }; %f(%x).0 }")
    for function in mod.functions.values():
        for node in _ffi.get("tvm_fixes.relay.PostOrder")(function):
            assert isinstance(node, relay.Op) or node.checked_type is not None, node


def test_the_module_is_the_same():
    mod = relay.parse("def @main() { 1 }")
    assert relay.transform.InferType()(mod).same_as(mod)


@given(st.randoms(use_true_random=False))
def test_random_programs(rng):
    mod = relay.transform.InferType()(RandomProgram(rng).module())
    for function in mod.functions.values():
        assert str(function.body.checked_type) == str(TENSOR)
    before = mod.astext()
    assert relay.transform.InferType()(relay.parse(before)).astext() == before


T = "Tensor[(2, 3), float32]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("foo(%x)", "2:1: unknown operator foo"),
        ("nn.relu(%x, %x)", "nn.relu at 2:1: expected 1 inputs, found 2"),
        ("nn.relu(%x, axis=2)", "nn.relu at 2:1: unknown attribute 'axis'"),
        ("nn.relu((%x, 1))", "nn.relu at 2:1: input 0 (data): expected a tensor, found ("),
        ("nn.softmax(%x, axis=2)", "nn.softmax at 2:1: attribute 'axis': expected axis in [-2, 2)"),
        ("nn.softmax(%x, axis=[1])", "nn.softmax at 2:1: attribute 'axis': expected int"),
        ("add(%x, 1)", "add at 2:1: input 1 (rhs): expected dtype float32, found int32"),
        ("add(%x, %y)", "add at 2:1: shapes (2, 3) and (4,) cannot be broadcast together"),
        ("%x.0", f"2:1: field 0: expected a tuple, found {T}"),
        ("(%x, %x).2", "2:1: field 2 of a tuple with 2 fields"),
        ("%x(1)", f"2:1: expected a function to call, found {T}"),
        ("@f(1)", "2:1: argument 0: expected bool, found int32"),
        ("@f()", "@f at 2:1: expected 1 arguments, found 0"),
        ("if (1) { %x } else { %x }", "2:5: the condition of If: expected bool, found int32"),
        ("if (True) { %x } else { 1 }", "2:1: the branches of If differ in type: expected "),
        ("let %a: int32 = %x; 1", f"1:75: the value of %a: expected int32, found {T}"),
        ("let %a: int32 = 2f; 1", "2:17: the value of %a: expected int32, found float32"),
        ("fn (%a: int32) -> bool { %a }", "2:5: the result of the function: expected bool"),
        ("ref_read(%x)", f"2:1: the operand of ref_read: expected ref(_), found {T}"),
        ("ref_write(ref(1), 2f)", "2:1: the operand of ref_write: expected ref(float32)"),
        ("match (%x) { (%a, %b) => %a }", f"2:1: a pattern: expected (_, _), found {T}"),
        ("match (1) { Cons(_, _) => 1 }", "2:1: a pattern of Cons: expected List[_], found int32"),
        ("fn (%a) { %a }", "2:5: the type of %a cannot be inferred"),
        ("Nil", "the type of call at 2:1 cannot be inferred"),
        ("let %f = fn (%g) { %g(%g) }; %f", "2:20: the called function: expected _"),
        ("Cons(1, Cons(2f, Nil))", "2:1: argument 1: expected List[int32], found List[float32]"),
    ],
)  # fmt: skip
def test_errors(text, expected):
    definitions = LIST.strip() + " def @f(%b: bool) { %b } "
    params = f"%x: {T}, %y: Tensor[(4,), float32]"
    [found] = errors(f"{definitions} def @main({params}) {{\n{text} }}")
    assert found.startswith(expected)


def test_all_errors_are_listed_once():
    body = "%0 = foo(%x);\n%1 = nn.relu(%0);\n(%1, bar(%1), %x.1, add(%0, %1), baz(1))"
    assert errors(f"def @main(%x: int32) {{\n{body} }}") == [
        "2:6: unknown operator foo",
        "4:6: unknown operator bar",
        "4:15: field 1: expected a tuple, found int32",
        "4:34: unknown operator baz",
    ]
    many = ", ".join(["foo(%x)"] * 100)
    found = errors(f"def @main(%x: int32) {{ ({many}) }}")
    assert len(found) == 21
    assert found[-1] == "and 80 further errors"


def test_no_type_is_set_after_an_error():
    mod = relay.parse("def @main(%x: int32) { (add(%x, 1), foo(%x)) }")
    with pytest.raises(RelayError):
        relay.transform.InferType()(mod)
    for node in _ffi.get("tvm_fixes.relay.PostOrder")(mod["main"]):
        assert node.checked_type is None


def test_a_variable_without_binding():
    x = relay.Var("x", relay.TensorType([1]))
    with pytest.raises(RelayError, match="the variable %x is not bound"):
        relay.transform.InferType()(relay.IRModule.from_expr(relay.Tuple([x])))


def test_constructors_without_definition():
    head = relay.GlobalTypeVar("T")
    call = relay.Call(relay.Constructor("C", [], head), [])
    with pytest.raises(RelayError, match="the type T of the constructor C is not defined"):
        relay.transform.InferType()(relay.IRModule.from_expr(call))


def test_long_programs():
    n = 50_000
    chain = "".join(f"%{i} = nn.softmax(%{i - 1}, axis=0);\n" for i in range(1, n))
    head = "def @main(%x: Tensor[(3,), float32]) {\n%0 = nn.relu(%x);\n"
    assert result(f"{head}{chain}%{n - 1} }}") == "Tensor[(3,), float32]"
    lets = "".join(f"let %v{i} = nn.relu(%v{i - 1});\n" for i in range(1, n))
    assert result(f"{head}let %v0 = %0;\n{lets}%v{n - 1} }}") == "Tensor[(3,), float32]"


def test_inference_through_a_long_chain():
    n = 2_000
    chain = "".join(f"%{i} = nn.relu(%{i - 1});\n" for i in range(1, n))
    text = f"def @main() {{ let %f = fn (%x) {{ %0 = %x; {chain} %{n - 1} }}; %f(1f) }}"
    assert result(text) == "float32"


def test_types_that_grow():
    doubled = "".join(f"%{i} = (%{i - 1}, %{i - 1});\n" for i in range(1, 100))
    infer(f"def @main(%x: int32) {{ %0 = (%x, %x);\n{doubled} 1 }}")
    nested = "".join(f"%{i} = (%{i - 1},);\n" for i in range(1, 10_000))
    text = f"def @main(%x: int32) {{ %0 = (%x,);\n{nested} %9999 }}"
    assert errors(text)[0].endswith("a type nests deeper than 500 levels")


@pytest.mark.parametrize("body", ["nn.relu", "(%x, nn.relu)", "add(%x, exp)", "let %f = exp; %x"])
def test_operators_that_are_not_called(body):
    mod = relay.parse(f"def @main(%x: float32) {{ {body} }}")
    with pytest.raises(RelayError, match=r"1:\d+: the operator .* is a value here"):
        relay.transform.InferType()(mod)


if __name__ == "__main__":
    tvm.testing.main()
