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
"""Relay programs written as TVM 0.19's JSON, and read again."""

import json
import math
import random
import threading
import time

import numpy as np
import pytest
import tvm.testing
import tvm_ffi

from helpers.relay_json import SavedGraph
from helpers.relay_programs import RandomProgram
from tvm_fixes import relay
from tvm_fixes.errors import RelayError

pytestmark = pytest.mark.native

TENSOR = relay.TensorType([2, 3], "float32")
X = relay.Var("x", TENSOR)
INT64 = (-(2**63), 2**63 - 1)
STRING = 'q"\\\n\t é'

# Operators that TVM 0.19 lacks.
REMOVED = {
    "contrib.ethosu.binary_elementwise",
    "contrib.ethosu.conv2d",
    "contrib.ethosu.depthwise_conv2d",
    "contrib.ethosu.identity",
    "contrib.ethosu.pooling",
    "contrib.ethosu.unary_elementwise",
    "memory.invoke_tvm_op",
    "memory.shape_func",
    "nn.contrib_conv2d_NCHWc_int8",
    "nn.contrib_conv2d_winograd_nnpack_without_weight_transform",
    "scatter",
    "scatter_add",
    "vm.shape_func",
}
# Attributes that the classes of TVM 0.19 lack.
REMOVED_ATTRS = {
    "auto_scheduler_rewritten_layout",
    "meta_schedule_original_shape",
    "device_type",
    "dst_dev_type",
    "is_fixed",
    "src_dev_type",
}


def module(body, params=(X,), **attrs):
    return relay.IRModule({"main": relay.Function(list(params), body, attrs=attrs)})


def check_round_trip(mod):
    text = relay.save_json(mod)
    json.loads(text, strict=False)
    again = relay.load_json(text)
    mismatch = tvm_ffi.get_first_structural_mismatch(mod, again)
    assert mismatch is None, f"{mismatch}\n{text}"
    assert relay.save_json(again) == text
    return again


def nodes_of(mod, type_key):
    nodes = json.loads(relay.save_json(mod))["nodes"]
    return [node for node in nodes if node["type_key"] == type_key]


def attrs_after(op, attrs):
    call = relay.Call(op, [X], attrs)
    return check_round_trip(module(call))["main"].body.attrs


def small_document():
    """The JSON of a small module, and a function that returns the node of an index."""
    x = relay.Var("x", relay.TensorType([2, relay.Any()], "float32"))
    total = relay.Call("add", [x, relay.Constant(np.array([1.0], "float32"))])
    mod = module(relay.Call("nn.softmax", [total], {"axis": 1}), [x], Primitive=1)
    document = json.loads(relay.save_json(mod))
    return document, lambda index: document["nodes"][int(index)]


EXPR = {"virtual_device_": "0", "span": "0", "_checked_type_": "0"}


def test_the_form_of_a_module():
    document, node = small_document()
    graph = SavedGraph()
    graph.constant(np.array([1.0], "float32"))
    assert document["root"] == 1
    assert document["attrs"] == {"tvm_version": "0.19.0"}
    assert document["b64ndarrays"] == graph.tensors
    assert node(0) == {"type_key": ""}
    assert node(1)["type_key"] == "IRModule"
    root = node(1)["attrs"]
    assert set(root) == {
        "attrs",
        "functions",
        "global_infos",
        "global_type_var_map_",
        "global_var_map_",
        "source_map",
        "type_definitions",
    }
    name, function = node(root["functions"])["data"]
    assert node(function)["type_key"] == "relay.Function"
    assert node(root["global_var_map_"]) == {"type_key": "Map", "keys": ["main"], "data": [name]}
    assert node(root["type_definitions"]) == node(root["global_infos"]) == {"type_key": "Map"}
    assert node(root["source_map"])["type_key"] == "SourceMap"
    text = node(name)["attrs"].pop("name_hint")
    assert node(name) == {"type_key": "GlobalVar", "attrs": {"struct_info_": "0"} | EXPR}
    assert node(text) == {"type_key": "runtime.String", "repr_str": "main"}


def test_the_form_of_a_function():
    document, node = small_document()
    function = next(n for n in document["nodes"] if n["type_key"] == "relay.Function")["attrs"]
    assert function["ret_type"] == "0"
    assert node(function["type_params"]) == {"type_key": "Array"}
    assert node(function["attrs"])["type_key"] == "DictAttrs"
    given = node(node(function["attrs"])["attrs"]["__dict__"])
    assert given["keys"] == ["Primitive"]
    integer = {"dtype": "int32", "value": "1", "span": "0"}
    assert node(given["data"][0]) == {"type_key": "IntImm", "attrs": integer}

    softmax = node(function["body"])
    assert softmax["type_key"] == "relay.Call"
    assert softmax["attrs"].items() >= EXPR.items()
    assert node(softmax["attrs"]["op"]) == {"type_key": "Op", "repr_str": "nn.softmax"}
    attrs = {"type_key": "relay.attrs.SoftmaxAttrs", "attrs": {"axis": "1"}}
    assert node(softmax["attrs"]["attrs"]) == attrs
    add = node(node(softmax["attrs"]["args"])["data"][0])["attrs"]
    assert add["attrs"] == "0"
    var, constant = node(add["args"])["data"]
    assert node(constant) == {"type_key": "relay.Constant", "attrs": {"data": "0"} | EXPR}
    assert node(function["params"])["data"] == [var]
    assert node(node(var)["attrs"]["vid"])["type_key"] == "relay.Id"
    shape = node(node(node(var)["attrs"]["type_annotation"])["attrs"]["shape"])["data"]
    assert node(shape[0])["attrs"]["value"] == "2"
    assert node(shape[1]) == {"type_key": "tir.Any", "attrs": {"dtype": "int32", "span": "0"}}


# What the classes of TVM 0.19 store: a field as text, or the node that it refers to.
FORMS = [
    ("nn.conv2d", {"channels": 8}, "groups", "1"),
    ("nn.conv2d", {"channels": 8}, "channels", {"dtype": "int32", "value": "8", "span": "0"}),
    ("nn.conv2d", {}, "channels", None),
    ("nn.conv2d", {}, "data_layout", "NCHW"),
    ("nn.conv2d", {}, "out_dtype", ""),
    ("nn.conv2d_transpose", {}, "data_layout", "NCHW"),
    ("nn.batch_norm", {"epsilon": 1e-3}, "epsilon", "0.001"),
    ("nn.batch_norm", {}, "center", "1"),
    ("cumsum", {"exclusive": True}, "exclusive", {"dtype": "bool", "value": "1", "span": "0"}),
    ("cast", {"dtype": "bool"}, "dtype", "bool"),
    ("concatenate", {"axis": 2**40}, "axis", str(2**40)),
    ("take", {"axis": 2**40}, "axis", {"dtype": "int64", "value": str(2**40), "span": "0"}),
    ("split", {"indices_or_sections": 3}, "indices_or_sections", "3"),
]


@pytest.mark.parametrize("op, attrs, field, expected", FORMS)
def test_the_form_of_attributes(op, attrs, field, expected):
    document = json.loads(relay.save_json(module(relay.Call(op, [X], attrs))))
    key = relay.operators()[op].attrs_key
    (stored,) = [node for node in document["nodes"] if node["type_key"] == key]
    value = stored["attrs"][field]
    if expected is None or isinstance(expected, dict):
        node = document["nodes"][int(value)]
        assert node.get("attrs") == expected
    elif field == "indices_or_sections":
        node = document["nodes"][int(value)]
        assert node == {"type_key": "runtime.BoxInt", "repr_str": expected}
    elif op == "nn.conv2d" and field == "data_layout":
        node = document["nodes"][int(value)]
        assert node == {"type_key": "runtime.String", "repr_str": expected}
    else:
        assert value == expected


def values_of(op, attr):
    """Values of an attribute other than its default."""
    if op == "split":
        return [[1, 2], 5] if attr["name"] == "indices_or_sections" else [3]
    if op == "arange" and attr["kind"] == "any value":
        return [X, relay.Constant(2)]
    return {
        "int": [7, *INT64],
        "float": [0.1, -0.0, 1e300, math.inf, -math.inf],
        "bool": [attr["default"] is not True],
        "string": [STRING, "12", ""],
        "dtype": ["int8", "bool", "bfloat16"],
        "array of ints": [[3, *INT64], [], [relay.Any(), 1]],
        "array of floats": [[0.1, -0.0, math.inf]],
        "array of arrays of ints": [[[1, 2], [3, -(2**63)]], 4],
        "array of strings": [["a", STRING]],
        "any value": [7, "f", [1.5, {"k": True}], X],
    }[attr["kind"]]


@pytest.mark.parametrize("name", sorted(relay.operators()))
def test_each_operator_with_each_attribute(name):
    info = relay.operators()[name]
    if name in REMOVED:
        with pytest.raises(RelayError, match=f"'{name}': TVM 0.19 has no such operator"):
            relay.save_json(module(relay.Call(name, [X])))
        return
    removed = REMOVED_ATTRS | ({"pad_value"} if name == "nn.pad" else set())
    removed |= {"reverse"} if "reshape" in name else set()
    if name == "vision.non_max_suppression":
        removed |= {"max_output_size", "iou_threshold"}
    kept = [attr for attr in info.attrs if attr["name"] not in removed]
    rows = {attr["name"]: values_of(name, attr) for attr in kept}
    for index in range(max(map(len, rows.values()), default=1)):
        given = {field: values[index % len(values)] for field, values in rows.items()}
        read = attrs_after(name, given)
        assert set(read) == set(given)
    needed = {attr["name"]: rows[attr["name"]][0] for attr in kept if attr["required"]}
    assert set(attrs_after(name, needed)) == set(needed)
    for attr in info.attrs:
        if attr["name"] in removed:
            value = values_of(name, attr)[0]
            with pytest.raises(RelayError, match=f"{name}: attribute '{attr['name']}'"):
                relay.save_json(module(relay.Call(name, [X], needed | {attr["name"]: value})))


def test_unusual_numbers():
    attrs = {"a_min": math.nan, "a_max": 5e-324}
    text = relay.save_json(module(relay.Call("clip", [X], attrs), value=[math.nan, -0.0, *INT64]))
    function = relay.load_json(text)["main"]
    assert math.isnan(function.body.attrs["a_min"])
    assert function.body.attrs["a_max"] == 5e-324
    nan, zero, *integers = function.attrs["value"]
    assert math.isnan(nan) and math.copysign(1, zero) == -1 and tuple(integers) == INT64
    assert relay.save_json(relay.load_json(text)) == text


def test_left_out_attributes_stay_left_out():
    assert dict(attrs_after("nn.conv2d", {"channels": 3})) == {"channels": 3}
    assert dict(attrs_after("dyn.nn.upsampling", {})) == {}
    assert dict(attrs_after("on_device", {})) == {}
    # A removed attribute may be there if it is the default.
    layout = {"auto_scheduler_rewritten_layout": ""}
    assert dict(attrs_after("nn.dense", layout)) == layout
    mod = module(relay.Call("nn.softmax", [X], {"axis": None}))
    assert dict(relay.load_json(relay.save_json(mod))["main"].body.attrs) == {}


def test_operators_that_changed_their_meaning():
    attrs_after("nn.batch_matmul", {"transpose_b": False})
    assert attrs_after("nn.conv2d_transpose", {"kernel_layout": "OIHW"})["kernel_layout"] == "OIHW"
    graph = SavedGraph("0.6.0")
    x = graph.var("x", graph.static_type([1, 2, 3]))
    old = relay.load_json(graph.text(graph.function([x], graph.call("nn.batch_matmul", [x, x]))))
    assert check_round_trip(old)["main"].body.attrs["transpose_b"]


def every_class():
    """A module with all classes of types, patterns and expressions."""
    head, item = relay.GlobalTypeVar("List"), relay.TypeVar("A")
    items = relay.TypeCall(head, [item])
    cons, nil = relay.Constructor("Cons", [item, items], head), relay.Constructor("Nil", [], head)
    types = {
        "List": relay.TypeData(head, [item], [cons, nil]),
        "Handle": relay.TypeData(relay.GlobalTypeVar("Handle"), [], [], True),
    }
    n, generic = relay.ShapeVar("n"), relay.TypeVar("T")
    a = relay.Var("a", relay.TensorType([n, 2, relay.Any()], "int8"))
    b = relay.Var("b", relay.TupleType([relay.RefType(generic), relay.IncompleteType()]))
    callback = relay.FuncType([a.type_annotation], relay.TensorType([], "bool"), [n, generic])
    f = relay.Var("", callback)
    h, t, pair = relay.Var("h"), relay.Var("h"), relay.Var("weights.0/é\n")
    matched = relay.PatternConstructor(cons, [relay.PatternVar(h), relay.PatternWildcard()])
    data = relay.Call(cons, [a, relay.Call(nil, [], {}, [generic])], {}, [a.type_annotation])
    clauses = [
        relay.Clause(matched, h),
        relay.Clause(relay.PatternTuple([relay.PatternVar(t), relay.PatternWildcard()]), t),
        relay.Clause(relay.PatternWildcard(), relay.Call(relay.GlobalVar("other"), [a])),
    ]
    match = relay.Match(data, clauses, False)
    ref = relay.Var("ref")
    reading = relay.Let(relay.Var("_"), relay.RefWrite(ref, match), relay.RefRead(ref))
    refs = relay.Let(ref, relay.RefCreate(a), reading)
    branch = relay.If(relay.Constant(np.array(True)), refs, relay.Call("nn.relu", [X]).op)
    inner = relay.Function([pair], relay.TupleGetItem(relay.Tuple([pair, branch]), 1))
    call = relay.Call(inner, [relay.Tuple([])])
    main = relay.Function(
        [a, b, f], call, a.type_annotation, [n, generic], attrs={"Compiler": "dnnl", "k": [1, None]}
    )
    z = relay.Var("z")
    return relay.IRModule({"main": main, "other": relay.Function([z], z)}, types, {"runtime": 1.5})


def test_each_class():
    mod = every_class()
    again = check_round_trip(mod)
    assert again.astext() == mod.astext()
    text = relay.save_json(mod)
    main = again["main"]
    assert [param.name for param in main.params] == ["a", "b", ""]
    assert main.type_params[0].same_as(main.params[0].type_annotation.shape[0])
    assert main.body.op.params[0].name == "weights.0/é\n"
    assert again.type_definitions["Handle"].is_extern
    # TVM finds functions, types and constructors by identity.
    for key, count in [("GlobalVar", 2), ("GlobalTypeVar", 2), ("relay.Constructor", 2)]:
        assert text.count(f'"type_key": "{key}"') == count
    tags = [int(node["attrs"]["tag"]) & 0xFFFFFF for node in nodes_of(mod, "relay.Constructor")]
    assert sorted(tags) == [0, 1]


def test_equal_names_are_one_node():
    head = relay.GlobalTypeVar("L")
    data = relay.TypeData(head, [], [relay.Constructor("C", [], head)])
    calls = [
        relay.Call(relay.GlobalVar("f"), [relay.Call(relay.Constructor("C", [], head), [])])
        for _ in range(3)
    ]
    functions = {"f": relay.Function([X], X), "main": relay.Function([], relay.Tuple(calls))}
    mod = relay.IRModule(functions, {"L": data})
    check_round_trip(mod)
    assert len(nodes_of(mod, "relay.Constructor")) == 1
    assert len(nodes_of(mod, "GlobalVar")) == 2


def test_constants():
    arrays = [
        np.array(value).astype(dtype)
        for dtype in ("bool", "int8", "uint64", "float16", "float64")
        for value in (0, [], [[1, 2], [0, 1]])
    ]
    arrays.append(np.array([np.nan, -0.0, np.inf], "float32"))
    shared = relay.Constant(arrays[-1])
    same_data = relay.Constant(shared.data)
    body = relay.Tuple([*map(relay.Constant, arrays), shared, shared, same_data])
    text = relay.save_json(module(body))
    fields = relay.load_json(text)["main"].body.fields
    for array, constant in zip(arrays, fields, strict=False):
        assert constant.numpy().dtype == array.dtype
        assert constant.numpy().shape == array.shape
        assert constant.numpy().tobytes() == array.tobytes()
    assert fields[-3].same_as(fields[-2]) and not fields[-1].same_as(fields[-2])
    assert len(json.loads(text)["b64ndarrays"]) == len(arrays) + 1
    strided = relay.Constant(tvm_ffi.from_dlpack(np.arange(6).reshape(2, 3).T))
    with pytest.raises(RelayError, match="contiguous"):
        relay.save_json(module(strided))


@pytest.mark.parametrize("typed", [True, False])
def test_random_programs(typed):
    rejected = 0
    for seed in range(150):
        mod = RandomProgram(random.Random(seed), typed=typed).module()
        try:
            check_round_trip(mod)
        except RelayError as error:
            assert not typed and "custom.op: attribute 'a0'" in str(error)
            rejected += 1
            continue
        # Text and JSON hold the same.
        text = mod.astext(show_types=False)
        parsed = relay.parse(text)
        assert relay.load_json(relay.save_json(parsed)).astext(show_types=False) == text
        once = relay.save_json(parsed)
        again = relay.parse(relay.load_json(once).astext(show_types=False))
        assert relay.save_json(again) == once
    assert rejected < 100


def test_attributes_of_functions():
    rng = random.Random(0)
    program = RandomProgram(rng, typed=False)
    for _ in range(100):
        attrs = {f"a{i}": program.attribute(3) for i in range(4)}
        attrs = {name: value for name, value in attrs.items() if value is not None}
        text = relay.save_json(module(X, **attrs))
        assert set(relay.load_json(text)["main"].attrs) == set(attrs)
        assert relay.save_json(relay.load_json(text)) == text


def test_save_json_rejects_what_json_cannot_hold():
    def message(mod):
        with pytest.raises(RelayError) as error:
            relay.save_json(mod)
        return str(error.value)

    custom = relay.Call("custom.op", [X], {"a": 1})
    assert "custom.op: attribute 'a': the operator is unknown" in message(module(custom))
    check_round_trip(module(relay.Call("custom.op", [X])))
    tensor = relay.Constant(1).data
    assert "function: attribute 'a'" in message(module(X, a=[1, {"b": [tensor]}]))
    debug = relay.Call("debug", [X], {"debug_func": [tensor]})
    found = message(module(debug))
    assert "debug: attribute 'debug_func': cannot be saved in TVM's JSON format: " in found
    assert "function: attribute 'a'" in message(module(X, a={1: 2}))
    nested = relay.Call("split", [X], {"indices_or_sections": [[1]]})
    assert "split: attribute 'indices_or_sections'" in message(module(nested))
    missing = message(module(relay.Call("cast", [X])))
    assert "cast: attribute 'dtype' is missing" in missing
    empty = relay.TypeData(relay.GlobalTypeVar("E"), [], [], False)
    assert "type 'E'" in message(relay.IRModule({}, {"E": empty}))


def test_boxed_numbers():
    graph = SavedGraph("0.19.0")
    boxes = {
        "i": graph.add("runtime.BoxInt", repr_str="-5"),
        "t": graph.add("runtime.BoxBool", repr_str="true"),
        "f": graph.add("runtime.BoxFloat", repr_str="0.25"),
    }
    attrs = graph.node("DictAttrs", __dict__=graph.map(boxes))
    x = graph.var("x")
    mod = relay.load_json(graph.text(graph.function([x], x, attrs=attrs)))
    assert dict(mod["main"].attrs) == {"i": -5, "t": True, "f": 0.25}
    assert mod["main"].attrs["t"] is True
    graph.nodes[boxes["i"]]["repr_str"] = "1.5"
    with pytest.raises(RelayError, match="expected an integer of 64 bits"):
        relay.load_json(graph.text(graph.function([x], x, attrs=attrs)))


def test_shared_nodes_stay_shared():
    body = X
    for _ in range(200):
        body = relay.Call("add", [body, body])
    attrs = relay.Call("nn.softmax", [body], {"axis": 0}).attrs
    body = relay.Tuple([relay.Call("nn.softmax", [body], attrs) for _ in range(10)])
    mod = module(body)
    assert len(nodes_of(mod, "relay.Call")) == 210
    again = relay.load_json(relay.save_json(mod))
    assert relay.save_json(again) == relay.save_json(mod)
    first, second = again["main"].body.fields[:2]
    assert first.args[0].same_as(second.args[0])


def deep_program(length):
    """A chain of nodes of all classes that contain expressions."""
    body = X
    for i in range(length * 5 // 9):
        if i % 5 == 0:
            body = relay.Call("nn.relu", [body])
        elif i % 5 == 1:
            body = relay.Let(relay.Var("v"), X, body)
        elif i % 5 == 2:
            body = relay.TupleGetItem(relay.Tuple([body]), 0)
        elif i % 5 == 3:
            body = relay.Call(relay.Function([], body), [])
        else:
            body = relay.If(X, relay.RefRead(relay.RefCreate(body)), X)
    return module(body)


def test_deep_programs_need_no_deep_stack():
    mod = deep_program(100_000)
    texts = []
    size = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: texts.append(relay.save_json(mod)))
        thread.start()
    finally:
        threading.stack_size(size)
    thread.join()
    assert relay.save_json(relay.load_json(texts[0])) == texts[0]


def test_time_and_size_are_linear():
    def measure(count):
        body = X
        for i in range(count):
            body = relay.Call("nn.bias_add", [body, body], {"axis": i % 5})
        mod = module(relay.Tuple([body, relay.Call("reshape", [body], {"newshape": [1] * count})]))
        start = time.process_time()
        size = len(relay.save_json(mod))
        return time.process_time() - start, size

    small, small_size = min(measure(1_250) for _ in range(3))
    large, large_size = min(measure(10_000) for _ in range(2))
    assert large_size < 9 * small_size
    # Quadratic time would be 64 times as much.
    assert large < 24 * small


if __name__ == "__main__":
    tvm.testing.main()
