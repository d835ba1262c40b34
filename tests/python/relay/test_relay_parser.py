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
"""The parser of Relay text."""

import json
import textwrap
import time

import numpy as np
import pytest
import tvm.testing
import tvm_ffi

from tvm_fixes import relay
from tvm_fixes.errors import RelayError

pytestmark = pytest.mark.native

LIST = "type List[A] { Cons(A, List[A]), Nil, }\n"


def body(text):
    return relay.parse(f"def @main(%x: int32, %p: (int32, (int32, float32))) {{ {text} }}")[
        "main"
    ].body


def as_tuples(expr):
    """The expression as nested tuples."""
    if isinstance(expr, relay.Call):
        return (as_tuples(expr.op), *map(as_tuples, expr.args))
    if isinstance(expr, relay.Constant):
        return expr.numpy().item()
    if isinstance(expr, relay.TupleGetItem):
        return (as_tuples(expr.tuple), expr.index)
    if isinstance(expr, relay.Tuple):
        return tuple(map(as_tuples, expr.fields))
    return expr.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", ("add", 1, ("multiply", 2, 3))),
        ("1 - 2 - 3", ("subtract", ("subtract", 1, 2), 3)),
        ("1 / 2 * 3", ("multiply", ("divide", 1, 2), 3)),
        ("1 + 2 < 3 * 4", ("less", ("add", 1, 2), ("multiply", 3, 4))),
        ("1 < 2 == 3 >= 4", ("equal", ("less", 1, 2), ("greater_equal", 3, 4))),
        ("1 <= 2 != 3 > 4", ("not_equal", ("less_equal", 1, 2), ("greater", 3, 4))),
        ("(1 + 2) * 3", ("multiply", ("add", 1, 2), 3)),
        ("%x - 1", ("subtract", "x", 1)),
        ("%x -1", ("subtract", "x", 1)),
        ("%x-1", ("subtract", "x", 1)),
        ("%x/2", ("divide", "x", 2)),
        ("-1 + --2", ("add", -1, 2)),
        ("-%x", ("negative", "x")),
        ("%p.1.0", (("p", 1), 0)),
        ("%p.0 + 1", ("add", ("p", 0), 1)),
        ("foo(%x, %p).1(%x)", ((("foo", "x", "p"), 1), "x")),
        ("nn.relu(%x)", ("nn.relu", "x")),
        ("()", ()),
        ("(%x,)", ("x",)),
        ("(%x)", "x"),
        ("(%x, 1, )", ("x", 1)),
        ("(%x, foo)", ("x", "foo")),
        ("{ %x }", "x"),
        ("%0 = %x + 1; %1 = (%0, %0).1; %1", ((("add", "x", 1), ("add", "x", 1)), 1)),
        ("%0 = 1; %0 = %0 + 1; %0", ("add", 1, 1)),
    ],
)
def test_expressions(text, expected):
    assert as_tuples(body(text)) == expected


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("3", 3, "int32"),
        ("3000000000", 3000000000, "int64"),
        ("-9223372036854775808", -(2**63), "int64"),
        ("3i64", 3, "int64"),
        ("-3i16", -3, "int16"),
        ("200u8", 200, "uint8"),
        ("5f", 5.0, "float32"),
        ("1.5", 1.5, "float32"),
        ("1e-05f", np.float32(1e-5), "float32"),
        ("1.0f32", 1.0, "float32"),
        ("2.5E+3f64", 2500.0, "float64"),
        ("0.1f16", np.float16(0.1), "float16"),
        ("65504f16", 65504.0, "float16"),
        ("6e-08f16", np.float16(6e-8), "float16"),
        ("inff", np.inf, "float32"),
        ("-inff64", -np.inf, "float64"),
        ("1e-400f64", 0.0, "float64"),
        ("True", True, "bool"),
        ("False", False, "bool"),
    ],
)
def test_numbers(text, value, dtype):
    constant = body(text)
    assert str(constant.data.dtype) == dtype
    assert constant.numpy() == np.array(value, dtype)
    assert constant.numpy().shape == ()


def test_nan():
    assert np.isnan(body("nanf").numpy())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("99999999999999999999", "it exceeds the range of int64"),
        ("300u8", "it exceeds the range of uint8"),
        ("-1u8", "it exceeds the range of uint8"),
        ("70000f16", "it exceeds the range of float16"),
        ("1e39f", "it exceeds the range of float32"),
        ("1e400f64", "it exceeds the range of float64"),
        ("1i7", "an integer has 8, 16, 32 or 64 bits"),
        ("1f8", "a float has 16, 32 or 64 bits"),
        ("1.5i32", "an integer has no fraction"),
    ],
)
def test_numbers_out_of_range(text, problem):
    with pytest.raises(RelayError, match=f"invalid number '{text.lstrip('-')}': {problem}"):
        body(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1, b=-2", {"a": 1, "b": -2}),
        ("a=1i64, b=1.5f, c=1e-05f", {"a": 1, "b": 1.5, "c": 1e-5}),
        ('a="x y", b="", c="q\\"\\\\n"', {"a": "x y", "b": "", "c": 'q"\\n'}),
        ('a="C:\\new"', {"a": "C:\\new"}),
        ("a=[1, 2], b=(3, 4), c=[]", {"a": [1, 2], "b": [3, 4], "c": []}),
        ("d=(5), e=(6,)", {"d": 5, "e": [6]}),
        ("a=[[0, 0], [1, 1]], b=None, c=nullptr", {"a": [[0, 0], [1, 1]], "b": None, "c": None}),
        ("a=True, b=False", {"a": True, "b": False}),
        ("a.b=1", {"a.b": 1}),
        ('a={"k"=1, n=[2]}', {"a": {"k": 1, "n": [2]}}),
        ("a=inff", {"a": float("inf")}),
    ],
)  # fmt: skip
def test_attributes(text, expected):
    def plain(value):
        if isinstance(value, tvm_ffi.Array):
            return [plain(element) for element in value]
        if isinstance(value, tvm_ffi.Map):
            return {str(key): plain(element) for key, element in value.items()}
        return value

    call = body(f"foo(%x, {text})")
    assert len(call.args) == 1
    assert plain(call.attrs) == expected
    assert plain(body(f"foo({text})").attrs) == expected
    assert plain(body(f"fn ({text}) {{ 1 }}").attrs) == expected


def test_special_attribute_values():
    attrs = body("foo(a=[?, 3], b=@main, c=-0.5f)").attrs
    assert isinstance(attrs["a"][0], relay.Any)
    assert attrs["b"].name == "main"
    assert attrs["c"] == -0.5


@pytest.mark.parametrize(
    "text",
    [
        "int32",
        "bool",
        "bfloat16",
        "Tensor[(1,), float32]",
        "Tensor[(1, ?, 3), int8]",
        "()",
        "(int32,)",
        "(int32, (bool, Tensor[(2, 2), uint8]))",
        "fn (int32) -> (int32, int32)",
        "fn [A, n: Shape](A, Tensor[(n, 2), float32]) -> A",
        "ref(int32)",
        "List[List[int32]]",
        "fn () -> List[int32]",
    ],
)
def test_types(text):
    mod = relay.parse(LIST + f"def @main(%x: {text}) -> {text} {{ %x }}")
    assert str(mod["main"].params[0].type_annotation) == text
    assert str(mod["main"].ret_type) == text


def test_legacy_type_syntax():
    mod = relay.parse("def @main(%x: Tensor[(3), uint1], %y: Tensor[3, float32], %z: _, %w) { %x }")
    assert [str(param.type_annotation) for param in mod["main"].params] == [
        "Tensor[(3,), bool]",
        "Tensor[(3,), float32]",
        "_",
        "_",
    ]


def test_let():
    let = body("let %a = 1; let %b: int32 = %a + 1; %b")
    assert isinstance(let, relay.Let)
    assert as_tuples(let.body.value) == ("add", "a", 1)
    assert let.body.value.args[0].same_as(let.var)
    assert str(let.body.var.type_annotation) == "int32"
    assert let.body.body.same_as(let.body.var)


def test_inner_binding_shadows_outer():
    pair = body("(let %x = %x + 1; %x, %x)")
    let, outer = pair.fields
    assert not let.body.same_as(outer)
    assert let.value.args[0].same_as(outer)


def test_a_function_may_call_itself():
    let = body("let %f = fn (%n) { %f(%n) }; %f")
    assert let.value.body.op.same_as(let.var)


def test_expression_statements_are_unused_bindings():
    let = body("foo(%x); bar(%x);; %x")
    assert as_tuples(let.value) == ("foo", "x")
    assert as_tuples(let.body.value) == ("bar", "x")
    assert let.body.body.name == "x"


def test_block_values_of_let():
    let = body(
        "let %a = { let %b = 1; %b }; let %c = let %d = 2; %d; "
        "let %e = if (True) { 1 } else { 2 }; %e"
    )
    assert isinstance(let.value, relay.Let)
    assert isinstance(let.body.value, relay.Let)
    assert isinstance(let.body.body.value, relay.If)


def test_nodes_are_shared():
    call = body("%0 = %x + 1; foo(%0, { bar(%0) })")
    assert call.args[0].same_as(call.args[1].args[0])


def test_graph_variable_is_visible_outside_its_block():
    call = body("foo({ %0 = %x + 1; %0 }, %0)")
    assert call.args[0].same_as(call.args[1])


def test_match():
    mod = relay.parse(
        LIST
        + """
        def @f(%l: List[int32]) {
          match (%l) {
            Cons(%h: int32, Cons(_, Nil)) => %h,
            Cons(%h, %t) => { %h },
            Nil => 0,
          }
        }
        def @g(%l: List[int32], %p: (int32, int32)) {
          (match? (%p) { (%a, _) => %a }, match? %l { _ => Cons(1, Nil) })
        }
        """
    )
    match = mod["f"].body
    assert match.complete
    assert [clause.lhs.constructor.name for clause in match.clauses] == ["Cons", "Cons", "Nil"]
    inner = match.clauses[0].lhs.patterns[1]
    assert isinstance(inner.patterns[0], relay.PatternWildcard)
    assert inner.patterns[1].constructor.name == "Nil"
    assert match.clauses[1].rhs.same_as(match.clauses[1].lhs.patterns[0].var)
    first, second = mod["g"].body.fields
    assert not first.complete
    assert isinstance(first.clauses[0].lhs, relay.PatternTuple)
    call = second.clauses[0].rhs
    assert isinstance(call.args[1], relay.Call), "a constructor without fields is called"
    assert [str(ctor.name) for ctor in mod.type_definitions["List"].constructors] == ["Cons", "Nil"]


def test_type_definitions():
    mod = relay.parse("type Empty\ntype A { }\nextern type B[T]\ntype C { D(A, B[C]) }")
    assert list(mod.type_definitions) == ["Empty", "A", "B", "C"]
    assert mod.type_definitions["B"].is_extern
    inputs = mod.type_definitions["C"].constructors[0].inputs
    assert [str(ty) for ty in inputs] == ["A[]", "B[C[]]"]


def test_references():
    let = body("let %r = ref(%x); ref_write(%r, 1); ref_read(%r)")
    assert isinstance(let.value, relay.RefCreate)
    assert isinstance(let.body.value, relay.RefWrite)
    assert isinstance(let.body.body, relay.RefRead)


def test_functions():
    mod = relay.parse("def @f[A](%x: A, Inline=1) -> A { %x }\ndef @main() { @f(fn () { @f }) }")
    function = mod["f"]
    assert function.attrs["Inline"] == 1
    assert function.type_params[0].same_as(function.ret_type)
    assert mod["main"].body.op.name == "f"


@pytest.mark.parametrize(
    "version",
    ["", '#[version = "0.0.5"]\n', '#[version = "0.0.4"]\n', "v0.0.4\n", "\n v0.0.4\r\n"],
)
def test_versions(version):
    assert list(relay.parse(version + "def @main() { 1 }").functions) == ["main"]
    assert relay.parse(version + "fn (%x: int32) { %x }")["main"].params[0].name == "x"


def test_an_expression_becomes_main():
    main = relay.parse("free_var %x: Tensor[(1,), float32];\nfree_var %y;\n%0 = %x + %y;\n%0")[
        "main"
    ]
    assert [param.name for param in main.params] == ["x", "y"]
    assert main.body.args[1].same_as(main.params[1])


def test_comments():
    text = """
    // a line
    def /* a /* nested */ comment */ @main(%x: int32 /* ty=int32 */) {
      add(%x, 1 /* ty=int32 */) /* ty=int32 span=from_string:3:5 */ // the end
    } // no newline"""
    assert as_tuples(relay.parse(text)["main"].body) == ("add", "x", 1)


def test_names_with_separators():
    params = "%a: int32, %a.0: int32, %b.c-d/e:1: int32, %f:int32"
    main = relay.parse(f"def @main({params}) {{ (%a, %a.0, %b.c-d/e:1, %f, %a-1) }}")["main"]
    assert [param.name for param in main.params] == ["a", "a.0", "b.c-d/e:1", "f"]
    assert as_tuples(main.body) == ("a", "a.0", "b.c-d/e:1", "f", ("subtract", "a", 1))


def test_names_in_quotes():
    mod = relay.parse('def @"f 1"(%"a;b": int32) { %"a;b" }\ndef @main() { @"f 1"(1) }')
    assert list(mod.functions) == ["f 1", "main"]
    assert mod["f 1"].body.same_as(mod["f 1"].params[0])
    assert mod["f 1"].body.name == "a;b"


def test_unsupported_metadata_attributes_are_none():
    nodes = [
        {"type_key": ""},
        {"type_key": "Map", "keys": ["Target"], "data": [2]},
        {"type_key": "Array", "data": [3]},
        {"type_key": "Target", "attrs": {"host": "0"}},
    ]
    section = json.dumps({"root": 1, "nodes": nodes, "b64ndarrays": []})
    main = relay.parse(f"def @main(target=meta[Target][0]) {{ 1 }}\n#[metadata]{section}")["main"]
    assert dict(main.attrs) == {"target": None}
    for text in ("meta[Target][0]", "fn (%x: meta[Target][0]) { 1 }"):
        with pytest.raises(RelayError, match=r"found 'meta\[Target\]\[0\]'"):
            relay.parse(f"def @main() {{ {text} }}\n#[metadata]{section}")


def test_devices_are_dropped():
    device = "virtual_device_=meta[VirtualDevice][0]"
    main = relay.parse(
        f"def @main(%x {{{device}}}: int32, {device}) {{ let %y {{{device}}} = %x; %y }}"
    )["main"]
    assert not main.attrs
    assert main.body.var.name == "y"
    assert str(main.params[0].type_annotation) == "int32"


def test_spans():
    main = relay.parse(
        "def @main(%x: int32) {\n  %0 = nn.relu(%x);\n  %1 = %0 +\n   foo(1);\n %1\n}"
    )
    assert str(main["main"].span) == "1:5"
    assert str(main["main"].params[0].span) == "1:11"
    uses = [(name, str(span)) for name, span in relay.operator_uses(main)]
    assert uses == [("nn.relu", "2:8"), ("foo", "4:4"), ("add", "3:11")]


METADATA = """
{
  "root": 1,
  "nodes": [
    {"type_key": ""},
    {"type_key": "Map", "keys": ["relay.Constant", "tir.Any", "tir.Var"], "data": [2, 5, 7]},
    {"type_key": "Array", "data": [3, 4]},
    {"type_key": "relay.Constant", "attrs": {"_checked_type_": "0", "data": "1", "span": "0"}},
    {"type_key": "relay.Constant", "attrs": {"_checked_type_": "0", "data": "0", "span": "0"}},
    {"type_key": "Array", "data": [6]},
    {"type_key": "tir.Any", "attrs": {"dtype": "int32", "span": "0"}},
    {"type_key": "Array", "data": [8]},
    {"type_key": "tir.Var", "attrs": {"dtype": "int32", "name": "n", "span": "0"}}
  ],
  "b64ndarrays": [
    "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAQAAAAIgAQACAAAAAAAAAAgAAAAAAAAAAACAPwAAAEA=",
    "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAAAAAAEBAQABAAAAAAAAAAE="
  ],
  "attrs": {"tvm_version": "0.8.0"}
}
"""


@pytest.mark.parametrize("marker", ["#[metadata]", "METADATA:"])
def test_metadata(marker):
    text = (
        "def @main(%x: Tensor[(meta[tir.Any][0], meta[tir.Var][0], meta[tir.Var][0]), float32]) {\n"
        "  (meta[relay.Constant][1] /* ty=Tensor[(2), float32] */, meta[relay.Constant][0])\n}\n"
    )
    main = relay.parse(text + marker + METADATA)["main"]
    first, second = main.body.fields
    np.testing.assert_array_equal(first.numpy(), np.array([1, 2], "float32"))
    assert second.numpy() == np.array(True)
    assert second.numpy().dtype == bool
    shape = main.params[0].type_annotation.shape
    assert isinstance(shape[0], relay.Any)
    assert shape[1].same_as(shape[2])


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"root": 1', '"root": 99', "'root': expected the index of one of 9 nodes"),
        ('"data": [2, 5, 7]', '"data": [2]', "expected as many values as keys"),
        ('"data": "1"', '"data": "7"', "expected the index of one of 2 tensors, found '7'"),
        ('"data": "1"', '"data": "x"', "expected the index of one of 2 tensors, found 'x'"),
        ("AAAACAPwAAAEA=", "AAAACAPwAAA*A=", "not valid base64"),
        ("AACAPwAAAEA=", "AACAPwAA", "expected 8 bytes, found 6"),
        ("AAAgAAAAAAAAAAACAPwAAAEA=", "AAA/////////fwCAPwAAAEA=", "a saved tensor"),
        ('"nodes": [', '"nodes": [}', "JSON, line 4, column 13: expected a value, found '}'"),
        ('"attrs": {"tvm_version": "0.8.0"}\n}', "", "JSON, line 20, column 1"),
    ],
)  # fmt: skip
def test_malformed_metadata(old, new, problem):
    assert old in METADATA
    text = "def @main() { (meta[relay.Constant][0], meta[relay.Constant][1]) }\n#[metadata]"
    with pytest.raises(RelayError) as error:
        relay.parse(text + METADATA.replace(old, new, 1))
    assert problem in str(error.value)
    assert str(error.value).startswith("in the metadata section, which begins in line 2: ")


def test_attributes_in_the_metadata_section():
    nodes = [
        {"type_key": ""},
        {"type_key": "Map", "keys": ["relay.attrs.SoftmaxAttrs"], "data": [2]},
        {"type_key": "Array", "data": [3]},
        {"type_key": "relay.attrs.SoftmaxAttrs", "attrs": {"axis": "1"}},
    ]
    section = json.dumps({"root": 1, "nodes": nodes, "b64ndarrays": []})
    text = "def @main(%x: int32) { nn.softmax(%x, meta[relay.attrs.SoftmaxAttrs][0]) }"
    call = relay.parse(f"{text}\n#[metadata]\n{section}")["main"].body
    assert dict(call.attrs) == {"axis": 1}
    assert len(call.args) == 1


def test_constants_without_a_metadata_section():
    constant = "meta[relay.Constant][7]"
    call = f"foo(%x, {constant} /* ty=Tensor[(2, 3), int8] */, {constant})"
    text = f"def @main(%x: int32) {{\n  {call}\n}}"
    with pytest.raises(RelayError, match=r"line 2, column 11: the text has no metadata section"):
        relay.parse(text)
    main = relay.parse(text, constants_as_inputs=True)["main"]
    assert [param.name for param in main.params] == ["x", "constant_7"]
    assert str(main.params[1].type_annotation) == "Tensor[(2, 3), int8]"
    assert main.body.args[1].same_as(main.body.args[2])
    with pytest.raises(RelayError, match="only in @main, not in @f"):
        relay.parse("def @f() { meta[relay.Constant][0] }", constants_as_inputs=True)
    with pytest.raises(
        RelayError, match=r"the metadata section has no 'meta\[relay.Constant\]\[7\]'"
    ):
        relay.parse(text + "\n#[metadata]" + METADATA, constants_as_inputs=True)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("def @main(%x: int32) {\n  %y\n}", "2, column 3", "the variable '%y' is not defined"),
        ("def @main() {\n  %0\n}", "2, column 3", "'%0' is not defined"),
        ("def @main() { @f(1) }", "1, column 15", "the function @f is not defined"),
        ("def @main(%x: Foo) { 1 }", "1, column 15", "the type Foo is not defined"),
        ("def @main() { (1, 2 }", "1, column 21", "expected ',' or ')', found '}'"),
        ("def @main() { (1 2) }", "1, column 18", "expected ',' or ')', found '2'"),
        ("def @main() { foo(1", "1, column 20", "expected ',' or ')', found the end of the text"),
        ("def @main() { 1", "1, column 16", "expected ';' or '}', found the end of the text"),
        ("def @main() { }", "1, column 15", "expected an expression, found '}'"),
        ("def @main() { let %x = 1 }", "1, column 26", "expected ';', found '}'"),
        ("def @main() { let x = 1; x }", "1, column 19", "expected a variable, found 'x'"),
        ("def @main() { if (1) { 2 } }", "1, column 28", "expected 'else', found '}'"),
        ("def main() { 1 }", "1, column 5", "expected the name of a function, found 'main'"),
        ("def @main( { 1 }", "1, column 12", "expected a variable, found '{'"),
        ("def @main(%x: ) { 1 }", "1, column 15", "expected a type, found ')'"),
        ("def @main(%x: Tensor[(1,), foo]) { 1 }", "1, column 28", "expected a dtype, found 'foo'"),
        ("def @main(%x: Tensor[(1.5,), int8]) { 1 }", "1, column 23", "expected a dimension"),
        ("def @main() { 1x }", "1, column 15", "'1x' is not a number"),
        ('def @main() { foo(a="x) }', "1, column 21", "the string is not closed: expected '\"'"),
        ("def @main() { /* 1 }", "1, column 15", "the comment is not closed: expected '*/'"),
        ("def @main() { $ }", "1, column 15", "unexpected character '$'"),
        ("def @main() { \x00 }", "1, column 15", "unexpected character 'byte 0'"),
        ("def @main() { é }", "1, column 15", "unexpected character 'byte 195'"),
        ("def @main() { % }", "1, column 15", "expected the name or number of a variable"),
        ("def @main() { %0 = 1; %0. }", "1, column 26", "expected the index of a tuple's field"),
        ("def @main() { meta[x] }", "1, column 15", "expected meta[Type][index]"),
        ("def @main() { foo(a=1, a=2) }", "1, column 24", "the attribute 'a' is given twice"),
        ("def @main() { foo(a=1, 2 }", "1, column 26", "expected ',' or ')', found '}'"),
        ("def @f() { 1 }\ndef @f() { 2 }", "2, column 5", "the function @f is defined twice"),
        ("type A\ntype A", "2, column 6", "the type A is defined twice"),
        ("type A { X }\ntype B { X }", "2, column 10", "the constructor X is defined twice"),
        ("extern type A { X }", "1, column 15", "an extern type has no constructors"),
        (LIST + "match (1) { Foo => 1 }", "2, column 1", "expected 'def', 'type' or 'extern'"),
        (LIST + "def @f() { match (1) { Foo => 1 } }", "2, column 24", "'Foo' is not defined"),
        (LIST + "def @f() { match (1) { Cons => 1 } }", "2, column 24", "but the pattern has 0"),
        ("def @f = meta[ExternalFunc][0]", "1, column 8", "@f is not a Relay function"),
        ("def @f() { free_var %x; %x }", "1, column 21", "@f has the free variable %x"),
        ('#[version = "0.0.6"]\ndef @f() { 1 }', "1, column 1", "expected version 0.0.4 or 0.0.5"),
        ("def @f() { 1 } 2", "1, column 16", "expected 'def', 'type' or 'extern', found '2'"),
        ('{"root": 1}', "1, column 1", "expected Relay text, found JSON, which load_json reads"),
        ("@f = primfn() {}", "1, column 1", "'@f' is a TIR function, not a Relay function"),
        ("def @f() { 1 }\n@g = primfn()", "2, column 1", "'@g' is a TIR function"),
        ("#[foo]", "1, column 3", "expected 'version' or 'attrs', found 'foo'"),
        ('def @main(%"x) { 1 }', "1, column 11", "expected a name in quotes"),
        ('def @main(%"") { 1 }', "1, column 11", "expected a name in quotes"),
        ("1 2", "1, column 3", "expected the end of the text, found '2'"),
    ],
)  # fmt: skip
def test_errors(text, place, problem):
    with pytest.raises(RelayError) as error:
        relay.parse(text)
    assert str(error.value).startswith(f"line {place}: ")
    assert problem in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "{" * 100_000,
        "fn () { " * 100_000,
        "if (True) { " * 100_000,
        "foo(" * 100_000,
        "foo(a=" + "[" * 100_000,
        "foo(a=" + "{a=" * 100_000,
        "free_var %x: " + "(" * 100_000,
        "free_var %x: " + "fn () -> " * 100_000,
        "match (1) { " + "(" * 100_000,
        "let %x = " * 100_000,
        "/*" * 100_000,
        "1 + " * 100_000,
        "%0 = -" * 100_000,
        "ref(" * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_deep_nesting_is_an_error(text):
    with pytest.raises(RelayError, match=r"nest|expected|not closed|not defined"):
        relay.parse(text)


def test_long_programs():
    """Time and stack do not grow faster than the text."""
    n = 100_000
    chain = "".join(f"%{i} = add(%{i - 1}, 1);\n" for i in range(1, n))
    mod = relay.parse(f"def @main(%x: int32) {{\n%0 = %x;\n{chain}%{n - 1} }}")
    assert len(relay.operator_uses(mod)) == n - 1
    lets = "".join(f"let %v{i} = 1;\n" for i in range(n))
    assert isinstance(relay.parse(f"def @main() {{ {lets}%v0 }}")["main"].body, relay.Let)
    assert len(body("(" + "1, " * n + ")").fields) == n
    assert as_tuples(body(" + ".join(["%x"] * 3))) == ("add", ("add", "x", "x"), "x")
    body(" + ".join(["%x"] * n))


def test_speed_is_linear():
    def seconds(count):
        lines = "".join(
            f"  %{i} = nn.conv2d(%{i - 1}, %w, padding=[1, 1, 1, 1], channels=64);\n"
            for i in range(1, count)
        )
        text = f"def @main(%x: int32, %w: int32) {{\n%0 = %x;\n{lines}%1 }}"
        start = time.process_time()
        relay.parse(text)
        return time.process_time() - start

    small = min(seconds(5_000) for _ in range(3))
    assert min(seconds(40_000) for _ in range(3)) < 40 * small


def test_legacy_printer_output():
    text = textwrap.dedent(
        """\
        v0.0.4
        def @main(%data: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32])
            -> Tensor[(1, 4, 8, 8), float32] {
          %0 = nn.conv2d(%data, %w, padding=[1, 1], channels=4, kernel_size=[3, 3])
            /* ty=Tensor[(1, 4, 8, 8), float32] */;
          %1 = nn.relu(%0) /* ty=Tensor[(1, 4, 8, 8), float32] */;
          add(%1, 0.5f /* ty=float32 */) /* ty=Tensor[(1, 4, 8, 8), float32] */
        }
        // meta data omitted. you can use show_meta_data=True to include meta data
        """
    )
    main = relay.parse(text)["main"]
    assert as_tuples(main.body) == ("add", ("nn.relu", ("nn.conv2d", "data", "w")), 0.5)
    assert list(main.body.args[0].args[0].attrs["kernel_size"]) == [3, 3]


def test_unicode_names_and_byte_order_mark():
    mod = relay.parse("\ufeffdef @main(%vgröße/重み:0: int32) { %vgröße/重み:0 }")
    assert [param.name for param in mod["main"].params] == ["vgröße/重み:0"]
    assert tvm_ffi.structural_equal(relay.parse(mod.astext()), mod)
    with pytest.raises(RelayError, match="line 1, column 29: unexpected character 'byte 195'"):
        relay.parse("def @main(%x: int32) { %x + ä }")


def test_vector_dtype_is_an_error():
    with pytest.raises(RelayError, match="line 1, column 28: expected a dtype, found 'float32x4'"):
        relay.parse("def @main(%x: Tensor[(3,), float32x4]) { %x }")


if __name__ == "__main__":
    tvm.testing.main()
