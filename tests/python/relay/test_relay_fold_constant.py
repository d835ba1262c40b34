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
"""FoldConstant and SimplifyIf: values against NumPy."""

import numpy as np
import pytest
import tvm.testing
import tvm_ffi

from tvm_fixes import relay
from tvm_fixes.relay import transform


def constant(value, dtype=None):
    return relay.Constant(np.asarray(value, dtype))


def call(op, *args, **attrs):
    return relay.Call(op, list(args), attrs)


def fold(body, params=()):
    mod = relay.IRModule({"main": relay.Function(list(params), body)})
    mod = transform.InferType()(mod)
    return transform.FoldConstant()(mod)["main"].body


def check(body, expected):
    result = fold(body)
    assert isinstance(result, relay.Constant), result
    value = result.numpy()
    assert value.dtype == expected.dtype
    np.testing.assert_array_equal(value, expected)


INTS = np.array([[-7, 3, 5], [8, -1, 2]])
OTHERS = np.array([3, -2, 4])
FUNCTIONS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("op", sorted(FUNCTIONS))
def test_binary(op, dtype):
    a, b = INTS.astype(dtype), OTHERS.astype(dtype)
    check(call(op, constant(a), constant(b)), FUNCTIONS[op](a, b))


def test_integer_division_truncates_and_wraps():
    a, b = np.array([-7, 7, -8], "int32"), np.array([2, -2, 3], "int32")
    check(call("divide", constant(a), constant(b)), np.array([-3, -3, -2], "int32"))
    check(
        call("multiply", constant(100, "int8"), constant(3, "int8")),
        np.asarray(300).astype("int8"),
    )


@pytest.mark.parametrize("value", [0, 1 << 63])
def test_undefined_results_are_not_folded(value):
    dtype = "uint64"
    body = call("divide", constant(7, dtype), constant(np.uint64(value)))
    assert isinstance(fold(body), relay.Call)
    body = call("cast", constant(1e30, "float32"), dtype="int32")
    assert isinstance(fold(body), relay.Call)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint8", "float16", "float32"])
def test_cast(dtype):
    data = np.array([0, 1, 100, 3], "int64")
    check(call("cast", constant(data), dtype=dtype), data.astype(dtype))


DATA = np.arange(24, dtype="int64").reshape(2, 3, 4)
MOVES = [
    (call("reshape", constant(DATA), newshape=[4, -1]), DATA.reshape(4, 6)),
    (call("squeeze", constant(DATA[:1]), axis=[0]), DATA[0]),
    (call("expand_dims", constant(DATA), axis=1), DATA[:, None]),
    (call("transpose", constant(DATA), axes=[2, 0, 1]), DATA.transpose(2, 0, 1)),
    (call("transpose", constant(DATA)), DATA.T),
    (call("take", constant(DATA), constant([2, 0]), axis=1), DATA[:, [2, 0]]),
    (call("take", constant(DATA), constant(1), axis=-1), DATA[:, :, 1]),
    (call("take", constant(DATA), constant([-5, 99])), DATA.ravel()[[0, 23]]),
    (call("take", constant(DATA), constant([-1]), axis=0, mode="wrap"), DATA[[-1]]),
    (
        call("strided_slice", constant(DATA), begin=[0, -2], end=[1, 9], strides=[1, 1]),
        DATA[0:1, -2:9],
    ),
    (
        call("strided_slice", constant(DATA), begin=[-1], end=[-5], strides=[-2], axes=[2]),
        DATA[:, :, -1:-5:-2],
    ),
    (
        call(
            "strided_slice",
            constant(DATA),
            begin=[0, 1],
            end=[1, -1],
            strides=[1, 1],
            slice_mode="size",
        ),
        DATA[0:1, 1:],
    ),
    (
        call("concatenate", relay.Tuple([constant(DATA), constant(DATA[:, :1])]), axis=1),
        np.concatenate([DATA, DATA[:, :1]], 1),
    ),
    (
        call("stack", relay.Tuple([constant(DATA), constant(DATA)]), axis=-1),
        np.stack([DATA, DATA], -1),
    ),
    (
        call("where", constant(DATA % 2 == 0), constant(DATA), constant(-1)),
        np.where(DATA % 2 == 0, DATA, -1),
    ),
    (
        call("gather", constant(DATA), constant(DATA[:, :, :2] % 4), axis=2),
        np.take_along_axis(DATA, DATA[:, :, :2] % 4, 2),
    ),
    (call("prod", constant(DATA + 1), axis=[-1]), (DATA + 1).prod(-1)),
    (call("sum", constant(DATA), axis=[1], keepdims=True), DATA.sum(1, keepdims=True)),
    (call("sum", constant(DATA), axis=[1], exclude=True), DATA.sum((0, 2))),
    (call("max", constant(DATA)), DATA.max()),
    (call("full", constant(7, "int32"), shape=[2, 2], dtype="int32"), np.full((2, 2), 7, "int32")),
    (call("zeros", shape=[3], dtype="float32"), np.zeros(3, "float32")),
    (call("ones", shape=[3], dtype="int64"), np.ones(3, "int64")),
    (
        call(
            "arange",
            constant(2, "int32"),
            constant(11, "int32"),
            constant(3, "int32"),
            start=2,
            stop=11,
            step=3,
            dtype="int32",
        ),
        np.arange(2, 11, 3, "int32"),
    ),
    (call("broadcast_to", constant(DATA[0]), shape=[2, 3, 4]), np.broadcast_to(DATA[0], (2, 3, 4))),
    (call("tile", constant(DATA), reps=[2, 1, 2]), np.tile(DATA, (2, 1, 2))),
    (call("reverse", constant(DATA), axis=1), DATA[:, ::-1]),
    (call("logical_not", constant([True, False])), np.array([False, True])),
    (call("negative", constant(DATA)), -DATA),
    (call("clip", constant(DATA), a_min=3.0, a_max=9.0), DATA.clip(3, 9)),
]


@pytest.mark.parametrize(
    "body, expected", MOVES, ids=lambda v: getattr(v, "op", v).__class__.__name__
)
def test_movement(body, expected):
    check(body, np.asarray(expected))


def test_shape_of_a_static_tensor_and_of_a_dynamic_one():
    x = relay.Var("x", relay.TensorType([2, 3, 4], "float32"))
    shape = call("shape_of", x, dtype="int64")
    product = call("prod", call("take", shape, constant([0, 2]), axis=0))
    assert fold(product, [x]).numpy() == 8
    y = relay.Var("y", relay.TensorType([2, relay.Any()], "float32"))
    assert isinstance(fold(call("shape_of", y, dtype="int64"), [y]), relay.Call)
    rank = call("shape_of", call("shape_of", y, dtype="int64"), dtype="int32")
    np.testing.assert_array_equal(fold(rank, [y]).numpy(), np.array([2], "int32"))


def test_lets_tuples_and_conditions():
    text = """
def @main(%x: Tensor[(2, 3), float32]) {
  let %n = add(1, 2);
  let %t = (%x, %n);
  if (equal(%t.1, 3)) { nn.relu(%t.0) } else { %x }
}
"""
    expected = "def @main(%x: Tensor[(2, 3), float32]) { let %t = (%x, 3); nn.relu(%x) }"
    mod = transform.FoldConstant()(transform.InferType()(relay.parse(text)))
    assert tvm_ffi.structural_equal(mod, relay.parse(expected))


def test_large_tensors_are_unchanged():
    body = call("zeros", shape=[4097], dtype="int8")
    assert isinstance(fold(body), relay.Call)


def test_simplify_if():
    text = "def @main(%x: int32, %c: bool) { if (%s) { %x } else { if (%c) { 1 } else { 2 } } }"
    for flag, expected in (("True", "%x"), ("False", "if (%c) { 1 } else { 2 }")):
        mod = transform.SimplifyIf()(relay.parse(text.replace("%s", flag)))
        wanted = relay.parse("def @main(%x: int32, %c: bool) { " + expected + " }")
        assert tvm_ffi.structural_equal(mod, wanted)


if __name__ == "__main__":
    tvm.testing.main()
