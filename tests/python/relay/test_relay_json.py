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
"""Saved Relay programs of several versions of TVM, and malformed texts."""

import json
import time

import numpy as np
import pytest
import tvm.testing
import tvm_ffi

from helpers.relay_json import SavedGraph
from tvm_fixes import relay
from tvm_fixes.errors import RelayError

VERSIONS = ["0.6.0", "0.7.0", "0.8.dev0", "0.9.0", "0.12.0", "0.19.0"]


def small_program(version: str) -> str:
    """``nn.relu(add(%x, constant))``, whose parts are written as this version does."""
    graph = SavedGraph(version)
    x = graph.var("x", graph.tensor_type([graph.any_dim(), graph.integer(2)]))
    total = graph.call("add", [x, graph.constant(np.array([1, 2], "float32"))])
    return graph.text(graph.module({"main": graph.function([x], graph.call("nn.relu", [total]))}))


@pytest.mark.parametrize("version", VERSIONS)
def test_program_of_each_version(version):
    mod = relay.load_json(small_program(version))
    x = relay.Var("x", relay.TensorType([relay.Any(), 2], "float32"))
    total = relay.Call("add", [x, relay.Constant(np.array([1, 2], "float32"))])
    expected = relay.IRModule({"main": relay.Function([x], relay.Call("nn.relu", [total]))})
    assert tvm_ffi.structural_equal(mod, expected)
    assert mod["main"].params[0].name == "x"


@pytest.mark.parametrize("version", ["0.6.0", "0.19.0"])
def test_attributes_are_numbers_texts_or_nodes(version):
    graph = SavedGraph(version)
    fields = {
        "axis": 1,  # the number, though node 1 exists
        "epsilon": "1.0000000000000001e-05",
        "center": 1,
        "scale": 0,
    }
    x = graph.var("x")
    call = graph.call("nn.batch_norm", [x] * 5, graph.node("relay.attrs.BatchNormAttrs", **fields))
    attrs = relay.load_json(graph.text(graph.function([x], call)))["main"].body.attrs
    if "nn.batch_norm" in relay.operators():
        assert dict(attrs) == {"axis": 1, "epsilon": 1e-5, "center": True, "scale": False}


def test_attribute_that_became_a_node():
    for version, k in (("0.6.0", lambda graph: 3), ("0.7.0", lambda graph: graph.integer(3))):
        graph = SavedGraph(version)
        x = graph.var("x")
        attrs = graph.node("relay.attrs.TopkAttrs", k=k(graph))
        text = graph.text(graph.function([x], graph.call("topk", [x], attrs)))
        assert relay.load_json(text)["main"].body.attrs["k"] == 3


def test_name_that_is_a_number():
    for version in ("0.6.0", "0.19.0"):
        graph = SavedGraph(version)
        x = graph.var("2")
        assert relay.load_json(graph.text(graph.function([x], x)))["main"].params[0].name == "2"


def test_name_in_base64():
    graph = SavedGraph()
    x = graph.var("größe\n")
    assert relay.load_json(graph.text(graph.function([x], x)))["main"].params[0].name == "größe\n"


def test_text_that_is_not_unicode():
    graph = SavedGraph("0.6.0")
    x = graph.var("\ud800")
    text = graph.text(graph.function([x], x))
    assert relay.load_json(text)["main"].params[0].name == "\ufffd"
    with pytest.raises(RelayError, match="Unicode"):
        relay.load_json(text.replace("\\ud800", "\ud800"))


def test_shared_nodes_stay_shared():
    graph = SavedGraph()
    x = graph.var("x")
    once = graph.call("nn.relu", [x])
    both = graph.expr("Tuple", fields=graph.array([once, once]))
    body = relay.load_json(graph.text(graph.function([x], both)))["main"].body
    assert body.fields[0].same_as(body.fields[1])


def test_expression_becomes_main():
    graph = SavedGraph()
    main = relay.load_json(graph.text(graph.call("nn.relu", [graph.var("free")])))["main"]
    assert [param.name for param in main.params] == ["free"]


def test_control_flow_references_and_tuples():
    graph = SavedGraph()
    x, y, c = graph.var("x"), graph.var("y"), graph.var("c")
    cell = graph.expr("RefCreate", value=x)
    write = graph.expr("RefWrite", ref=cell, value=y)
    pair = graph.expr("Tuple", fields=graph.array([write, graph.expr("RefRead", ref=cell)]))
    item = graph.expr("TupleGetItem", tuple_value=pair, index=1)
    choice = graph.expr("If", cond=c, true_branch=item, false_branch=x)
    let = graph.expr("Let", var=graph.var("v"), value=choice, body=y)
    let_node = relay.load_json(graph.text(graph.function([x, y, c], let)))["main"].body
    assert isinstance(let_node, relay.Let)
    assert let_node.value.true_branch.index == 1
    assert isinstance(let_node.value.true_branch.tuple.fields[0], relay.RefWrite)


@pytest.mark.parametrize("version", ["0.6.0", "0.19.0"])
def test_type_definition_and_match(version):
    graph = SavedGraph(version)

    def type_var(key: str, name: str, kind: int) -> int:
        if graph.is_old:
            return graph.node(f"relay.{key}", var=graph.dim_var(name), kind=kind, span=0)
        return graph.node(key, name_hint=graph.name(name), kind=kind, span=0)

    a, header = type_var("TypeVar", "A", 0), type_var("GlobalTypeVar", "Maybe", 5)
    some, none = (
        graph.expr(
            "Constructor",
            name_hint=graph.name(name),
            inputs=graph.array(inputs),
            belong_to=header,
            tag=0,
        )
        for name, inputs in (("Some", [a]), ("None", []))
    )
    definition = graph.node(
        "relay.TypeData",
        header=header,
        type_vars=graph.array([a]),
        constructors=graph.array([some, none]),
        span=0,
    )
    v, x = graph.var("v"), graph.var("x")
    pattern = graph.node(
        "relay.PatternConstructor",
        constructor=some,
        span=0,
        patterns=graph.array([graph.node("relay.PatternVar", var=v, span=0)]),
    )
    rest = graph.node("relay.PatternWildcard", span=0)
    clauses = [
        graph.node("relay.Clause", lhs=lhs, rhs=rhs) for lhs, rhs in ((pattern, v), (rest, x))
    ]
    match = graph.expr(
        "Match", data=graph.call(some, [x]), clauses=graph.array(clauses), complete=1
    )
    main = graph.function([x], match, type_params=graph.array([a]))
    mod = relay.load_json(graph.text(graph.module({"main": main}, {header: definition})))
    assert [c.name for c in mod.type_definitions["Maybe"].constructors] == ["Some", "None"]
    assert mod["main"].body.complete
    assert mod["main"].body.clauses[0].rhs.same_as(mod["main"].body.clauses[0].lhs.patterns[0].var)


def test_extents_and_function_attributes():
    graph = SavedGraph()
    n = graph.dim_var("n")
    computed = graph.node("tir.Add", dtype="int32", a=n, b=graph.integer(1), span=0)
    x = graph.var("x", graph.tensor_type([n, computed, graph.any_dim(), graph.integer(4)]))
    values = {
        "Primitive": graph.integer(1),
        "Compiler": graph.string("cutlass"),
        "flag": graph.integer(1, "bool"),
        "target": graph.node("Target", kind=0),
    }
    attrs = graph.node("DictAttrs", __dict__=graph.map(values))
    main = relay.load_json(graph.text(graph.function([x], x, attrs=attrs)))["main"]
    kinds = [type(dim).__name__ for dim in main.params[0].type_annotation.shape]
    assert kinds == ["ShapeVar", "Any", "Any", "int"]
    assert dict(main.attrs) == {"Primitive": 1, "Compiler": "cutlass", "flag": True}


def test_spans():
    graph = SavedGraph()
    span = graph.node("Span", source_name=0, line=7, column=3, end_line=7, end_column=9)
    x = graph.var("x")
    graph.nodes[x]["attrs"]["span"] = str(span)
    assert relay.load_json(graph.text(graph.function([x], x)))["main"].params[0].span == (7, 3)


def malformed() -> dict[str, tuple[str, str]]:
    """Texts that are not programs, and what the message says."""
    good = json.loads(small_program("0.19.0"))

    def changed(change) -> str:
        document = json.loads(json.dumps(good))
        change(document)
        return json.dumps(document)

    def node_of(document: dict, key: str) -> dict:
        return next(node for node in document["nodes"] if node["type_key"] == key)

    def attr(key: str, name: str, value: object) -> str:
        return changed(lambda document: node_of(document, key)["attrs"].update({name: value}))

    call = next(i for i, n in enumerate(good["nodes"]) if n["type_key"] == "relay.Call")
    graph_executor = {"nodes": [], "arg_nodes": [], "heads": [], "node_row_ptr": []}
    return {
        "graph executor": (json.dumps(graph_executor), "graph executor"),
        "later TVM": (json.dumps({"root_index": 0, "nodes": []}), "0.20 or later"),
        "no JSON": ("{", "line 1, column 2"),
        "no nodes": ('{"root": 0}', "no array 'nodes'"),
        "no root": ('{"nodes": []}', "no 'root'"),
        "root": (changed(lambda document: document.update(root=10**6)), "'root': expected"),
        "version": (changed(lambda d: d["attrs"].update(tvm_version="2.0")), "'tvm_version'"),
        "index": (
            attr("relay.Call", "args", "99999"),
            r"\(relay.Call\): field 'args': expected the",
        ),
        "negative": (attr("relay.Call", "args", "-1"), "found '-1'"),
        "huge": (attr("relay.Call", "op", "9" * 40), "field 'op'"),
        "kind": (attr("relay.Call", "op", "0"), r"expected an expression, found node 0 \(null\)"),
        "cycle": (attr("relay.Call", "op", str(call)), "contains itself"),
        "dtype": (attr("relay.TensorType", "dtype", "float33x"), "'dtype': expected"),
        "tensor": (attr("relay.Constant", "data", "1"), "one of 1 tensors, found '1'"),
        "number": (attr("IntImm", "value", "1e3"), "integer of 64 bits, found '1e3'"),
        "extent": (attr("IntImm", "value", "-2"), "extent, .*value -2"),
        "base64": (changed(lambda d: d.update(b64ndarrays=["*"])), "tensor 0: .*base64"),
        "cut tensor": (
            changed(lambda d: d.update(b64ndarrays=[d["b64ndarrays"][0][:-8]])),
            "tensor 0: .*elements: expected 8 bytes",
        ),
        "lowered": (
            changed(lambda d: node_of(d, "relay.Function").update(type_key="tir.PrimFunc")),
            r"tir.PrimFunc.*not Relay's: 'main'",
        ),
    }


@pytest.mark.parametrize("name", malformed())
def test_malformed_text(name):
    text, message = malformed()[name]
    with pytest.raises(RelayError, match=message):
        relay.load_json(text)


def test_deep_and_shared_nodes_take_linear_time():
    def seconds(count):
        graph = SavedGraph()
        x = body = graph.var("x")
        relu, none = graph.op("nn.relu"), graph.array([])
        for _ in range(count):
            body = graph.call(relu, [body])
        lets = body
        for _ in range(count):
            lets = graph.expr("Let", var=graph.var("v"), value=x, body=lets)
        many = graph.array([x] * count)
        calls = [
            graph.expr("Call", op=relu, args=many, attrs=0, type_args=none) for _ in range(count)
        ]
        top = graph.expr("Tuple", fields=graph.array([lets, *calls]))
        text = graph.text(graph.function([x], top))
        start = time.process_time()
        mod = relay.load_json(text)
        del mod
        return time.process_time() - start

    small = min(seconds(1_250) for _ in range(3))
    # Quadratic time would be 64 times as much.
    assert min(seconds(10_000) for _ in range(2)) < 24 * small


def test_data_that_nest_too_deeply():
    graph = SavedGraph()
    inner = graph.static_type([1])
    for _ in range(5000):
        inner = graph.node("TupleType", fields=graph.array([inner]), span=0)
    x = graph.var("x", inner)
    with pytest.raises(RelayError, match="deeper than 100 levels"):
        relay.load_json(graph.text(graph.function([x], x)))


def test_messages_have_one_line():
    graph = SavedGraph()
    x = graph.var("x")
    odd = graph.add("a\nb\x1b[31m")
    with pytest.raises(RelayError) as raised:
        relay.load_json(graph.text(graph.function([x], graph.call("nn.relu", [odd]))))
    assert str(raised.value).isprintable()
    assert r"(a\x0ab\x1b[31m)" in str(raised.value)


def mutant(text: str, rng: np.random.Generator) -> str:
    """The text with a few characters changed, removed, repeated or replaced by numbers."""
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(text)))
        kind = rng.integers(5)
        if kind == 0:
            text = text[: max(at, 1)]
        elif kind == 1:
            text = text[:at] + chr(rng.integers(1, 128)) + text[at + 1 :]
        elif kind == 2:
            text = text[:at] + text[at + int(rng.integers(1, 20)) :]
        elif kind == 3:
            text = text[:at] + text[at : at + 20] + text[at:]
        else:
            digits = [i for i, c in enumerate(text) if c.isdigit()] or [0]
            at = int(rng.choice(digits))
            number = str(rng.choice([0, 1, 3, 17, 2**31, 2**63 - 1, -1]))
            text = text[:at] + number + text[at + 1 :]
    return text


@pytest.mark.parametrize("version", ["0.6.0", "0.19.0"])
def test_mutants_are_read_or_rejected(version):
    rng = np.random.default_rng(0)
    text, rejected = small_program(version), 0
    for _ in range(3000):
        try:
            relay.load_json(mutant(text, rng))
        except RelayError as error:
            assert str(error)
            rejected += 1
    assert 1000 < rejected < 3000


if __name__ == "__main__":
    tvm.testing.main()
