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
"""The printer: the parser reads what it writes to an equal module."""

import hypothesis.strategies as st
import numpy as np
import pytest
import tvm.testing
import tvm_ffi
from hypothesis import given

from helpers.relay_programs import RandomProgram
from tvm_fixes import relay
from tvm_fixes.errors import RelayError

pytestmark = pytest.mark.native


def check_round_trip(mod):
    text = mod.astext()
    again = relay.parse(text)
    mismatch = tvm_ffi.get_first_structural_mismatch(mod, again)
    assert mismatch is None, f"{mismatch}\n{text}"
    assert again.astext(show_types=False) == relay.parse(again.astext()).astext(show_types=False)


@given(st.randoms(use_true_random=False))
def test_well_typed_programs(rng):
    mod = RandomProgram(rng).module()
    check_round_trip(mod)
    check_round_trip(relay.transform.InferType()(mod))


@given(st.randoms(use_true_random=False))
def test_programs_with_all_kinds_of_attributes_and_types(rng):
    check_round_trip(RandomProgram(rng, typed=False).module())


def test_the_text_of_a_module():
    x = relay.Var("x", relay.TensorType([2, relay.Any()]))
    y = relay.Call("nn.relu", [x])
    pair = relay.Tuple([y, relay.Constant(2)])
    mod = relay.IRModule.from_expr(
        relay.Function([x], relay.Call("nn.softmax", [relay.TupleGetItem(pair, 0)], {"axis": 0}))
    )
    assert mod.astext() == (
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(2, ?), float32]) {\n"
        "  %0 = nn.relu(%x);\n"
        "  nn.softmax((%0, 2i64).0, axis=0)\n"
        "}\n"
    )
    assert relay.transform.InferType()(mod)["main"].body.astext() == (
        '#[version = "0.0.5"]\n'
        "free_var %x: Tensor[(2, ?), float32];\n"
        "%0 = nn.relu(%x) /* ty=Tensor[(2, ?), float32] */;\n"
        "nn.softmax((%0, 2i64).0, axis=0) /* ty=Tensor[(2, ?), float32] */\n"
    )


def test_a_name_that_could_be_a_field_of_a_tuple():
    pair = relay.Var("a", relay.TupleType([relay.TensorType([1]), relay.TensorType([2])]))
    other = relay.Var("a.0", relay.TensorType([3]))
    check_round_trip(
        relay.IRModule.from_expr(
            relay.Function([pair, other], relay.Tuple([relay.TupleGetItem(pair, 0), other]))
        )
    )


def test_names_of_parameters_are_kept():
    names = ["x", "conv1.weight", "a/b-c:0", "_1", "1x", "a;b c", "é", ".", "a.", "x\\"]
    params = [relay.Var(name, relay.TensorType([1])) for name in names]
    mod = relay.IRModule.from_expr(relay.Function(params, relay.Tuple(params)))
    again = relay.parse(mod.astext())
    assert [param.name for param in again["main"].params] == names
    check_round_trip(relay.IRModule({"f-1": mod["main"]}))


def test_attributes_of_a_module():
    function = relay.Function([], relay.Constant(1))
    check_round_trip(relay.IRModule({"f": function}, attrs={"a.b": [1, "x"], "c": {}}))


def test_shared_expressions_are_printed_once():
    x = relay.Var("x", relay.TensorType([1]))
    y = relay.Call("nn.relu", [x])
    shared = relay.IRModule.from_expr(relay.Function([x], relay.Call("add", [y, y])))
    z = relay.Call("nn.relu", [x])
    copied = relay.IRModule.from_expr(relay.Function([x], relay.Call("add", [y, z])))
    assert not tvm_ffi.structural_equal(shared, copied)
    for mod in (shared, copied):
        check_round_trip(mod)


def test_constants_are_written_once():
    value = relay.Constant(np.arange(4, dtype="int8"))
    mod = relay.IRModule.from_expr(relay.Tuple([value, value, relay.Constant(1)]))
    text = mod.astext()
    assert text.count("meta[relay.Constant][0]") == 2
    assert text.count("relay.Constant") == 4
    again = relay.parse(text)["main"].body
    np.testing.assert_array_equal(again.fields[1].numpy(), np.arange(4))
    assert "metadata]" not in mod.astext(show_meta_data=False)
    with pytest.raises(RelayError, match=r"no metadata section for 'meta\[relay.Constant\]\[0\]'"):
        relay.parse(mod.astext(show_meta_data=False))


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int64", "bool"]
)
def test_tensors_of_all_dtypes(dtype):
    value = np.array([[0, 1], [1, 0]]).astype(dtype)
    mod = relay.IRModule.from_expr(
        relay.Tuple([relay.Constant(value), relay.Constant(value[0, 1])])
    )
    check_round_trip(mod)
    again = relay.parse(mod.astext())["main"].body.fields
    np.testing.assert_array_equal(again[0].numpy(), value)
    assert again[1].numpy() == value[0, 1]
    assert str(again[1].data.dtype) == dtype


def test_a_long_chain():
    x = relay.Var("x", relay.TensorType([1]))
    expr = x
    for _ in range(100_000):
        expr = relay.Call("nn.relu", [expr])
    mod = relay.IRModule.from_expr(relay.Function([x], expr))
    text = mod.astext()
    assert text.count("\n") == 100_003
    assert tvm_ffi.structural_equal(mod, relay.parse(text))


def test_many_nested_lets():
    x = relay.Var("x", relay.TensorType([1]))
    expr = x
    for _ in range(10_000):
        expr = relay.Let(relay.Var("y"), relay.Call("nn.relu", [x]), expr)
    check_round_trip(relay.IRModule.from_expr(relay.Function([x], expr)))


def test_programs_that_cannot_be_printed():
    expr = relay.Constant(1)
    for _ in range(1000):
        expr = relay.If(relay.Constant(True), expr, expr)
    with pytest.raises(RelayError, match="blocks nest deeper than 190 levels"):
        expr.astext()
    bad = relay.Call("op", [], {"a": tvm.ir.Range(0, 1)})
    with pytest.raises(RelayError, match=r"an attribute of class ir\.Range has no text"):
        bad.astext()
    for bad in (relay.GlobalVar('a"b'), relay.GlobalVar(""), relay.Op.get("a b")):
        with pytest.raises(RelayError, match="has no text"):
            bad.astext()


if __name__ == "__main__":
    tvm.testing.main()
