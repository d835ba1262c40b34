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
"""DynamicToStatic: every dyn.* operator, computed shapes, and a grid of squeezes."""

import itertools

import numpy as np
import pytest
import tvm.testing
import tvm_ffi

from tvm_fixes import relay
from tvm_fixes.errors import RelayError
from tvm_fixes.relay import transform

pytestmark = pytest.mark.native


def call(op, *args, **attrs):
    return relay.Call(op, list(args), attrs)


def ints(*values, dtype="int64"):
    return relay.Constant(np.array(values, dtype))


def scalar(value, dtype):
    return relay.Constant(np.array(value, dtype))


def tensor(name, *shape, dtype="float32"):
    return relay.Var(name, relay.TensorType(list(shape), dtype))


def static(body, *params):
    """The body and its type after the pass."""
    mod = transform.DynamicToStatic()(relay.IRModule({"main": relay.Function(list(params), body)}))
    result = mod["main"].body
    return result, str(result.checked_type)


def operators(expr):
    mod = relay.IRModule({"main": relay.Function([], expr)})
    return {name for name, _ in relay.operator_uses(mod)}


ANY = relay.Any()


def squeeze_cases():
    for ndim in range(1, 6):
        for count in range(min(ndim, 3) + 1):
            for axes in itertools.combinations(range(ndim), count):
                yield ndim, axes


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("unknown", ["none", "squeezed", "others"])
def test_squeeze_removes_exactly_the_named_axes(unknown, negative):
    for ndim, axes in squeeze_cases():
        shape = [1 if i in axes else i + 2 for i in range(ndim)]
        if ndim > 2 and 0 not in axes:
            shape[0] = 1  # An extent of 1 that is not named is kept.
        if unknown != "none":
            shape = [
                ANY if (i in axes) == (unknown == "squeezed") else dim
                for i, dim in enumerate(shape)
            ]
        named = [axis - ndim if negative else axis for axis in axes]
        x = tensor("x", *shape)
        body, type_text = static(call("dyn.squeeze", x, ints(*named[::-1])), x)
        expected = [dim for i, dim in enumerate(shape) if i not in axes]
        assert type_text == str(relay.TensorType(expected, "float32")), (shape, axes)
        if axes:
            assert body.op.name == "squeeze" and list(body.attrs["axis"]) == list(axes)
        else:
            assert isinstance(body, relay.Var)


def test_squeeze_whose_axis_the_program_computes_from_the_rank():
    x = tensor("x", ANY, 1, ANY, 4)
    shape = call("shape_of", x, dtype="int64")
    rank = call("shape_of", shape, dtype="int64")
    axis = call("where", call("less", ints(-3), ints(0)), call("add", ints(-3), rank), ints(-3))
    body, type_text = static(call("dyn.squeeze", x, axis), x)
    assert body.op.name == "squeeze" and list(body.attrs["axis"]) == [1]
    assert type_text == "Tensor[(?, ?, 4), float32]"


def test_squeeze_without_axes_of_a_shape_that_becomes_static():
    x = tensor("x", 1, 3, 1)
    reshaped = call("dyn.reshape", x, call("shape_of", x, dtype="int64"))
    body, type_text = static(call("squeeze", reshaped), x)
    assert operators(body) == {"squeeze", "reshape"} and type_text == "Tensor[(3,), float32]"
    y = tensor("y", 1, ANY)
    with pytest.raises(RelayError, match="axis"):
        static(call("squeeze", y), y)


@pytest.mark.parametrize("known", [True, False])
def test_squeeze_inside_if(known):
    x = tensor("x", 1, 3, 1)
    flag = tensor("c", dtype="bool")
    cond = call("less", scalar(1, "int32"), scalar(2, "int32")) if known else flag
    branch = relay.If(cond, call("dyn.squeeze", x, ints(0)), call("dyn.squeeze", x, ints(-1)))
    body, type_text = static(branch, x, flag)
    if known:
        assert body.op.name == "squeeze" and type_text == "Tensor[(3, 1), float32]"
    else:
        # The branches have no common static shape: they stay dynamic.
        assert operators(body) == {"dyn.squeeze"} and type_text == "Tensor[(?, ?), float32]"


def test_branches_with_one_shape_become_static():
    x = tensor("x", 1, 3, 1)
    flag = tensor("c", dtype="bool")
    first = call("dyn.squeeze", x, ints(0, 2))
    second = call("nn.relu", call("dyn.squeeze", x, ints(-1, -3)))
    body, type_text = static(relay.If(flag, first, second), x, flag)
    assert operators(body) == {"squeeze", "nn.relu"}
    assert type_text == "Tensor[(3,), float32]"


@pytest.mark.parametrize(
    "shape, axes, message",
    [
        ((2, 1), (0,), "extent 1"),
        ((1, 1), (0, -2), "twice"),
        ((1, 1), (2,), "axis 2 of a tensor with 2 dimensions"),
    ],
)
def test_wrong_axes_are_errors(shape, axes, message):
    x = tensor("x", *shape)
    with pytest.raises(RelayError, match=message):
        static(call("dyn.squeeze", x, ints(*axes)), x)


X = tensor("x", 2, 3, 4)
IMAGE = tensor("image", 1, 3, 4, 4)
VOLUME = tensor("volume", 1, 2, 3, 4, 5)
CASES = [
    (call("dyn.reshape", X, ints(0, -1)), [X], "reshape", "Tensor[(2, 12), float32]"),
    (call("dyn.reshape", X, ints(-3, 4)), [X], "reshape", "Tensor[(6, 4), float32]"),
    (
        call("dyn.expand_dims", X, scalar(1, "int32"), num_newaxis=2),
        [X],
        "expand_dims",
        "Tensor[(2, 1, 1, 3, 4), float32]",
    ),
    (call("dyn.tile", X, ints(2, 1)), [X], "tile", "Tensor[(2, 6, 4), float32]"),
    (
        call("dyn.broadcast_to", tensor("y", 4), ints(5, 4)),
        None,
        "broadcast_to",
        "Tensor[(5, 4), float32]",
    ),
    (call("dyn.zeros", ints(5000, 3), dtype="int8"), [], "zeros", "Tensor[(5000, 3), int8]"),
    (call("dyn.ones", ints(5000), dtype="float32"), [], "ones", "Tensor[(5000,), float32]"),
    (
        call("dyn.full", scalar(2.5, "float32"), ints(5000, 1), dtype="float32"),
        [],
        "full",
        "Tensor[(5000, 1), float32]",
    ),
    (
        call(
            "dyn.one_hot",
            tensor("i", 3, dtype="int32"),
            scalar(1, "float32"),
            scalar(0, "float32"),
            scalar(7, "int32"),
            axis=-1,
            dtype="float32",
        ),
        None,
        "one_hot",
        "Tensor[(3, 7), float32]",
    ),
    (
        call("dyn.topk", X, scalar(2, "int32"), axis=-1, ret_type="values", dtype="int32"),
        [X],
        "topk",
        "Tensor[(2, 3, 2), float32]",
    ),
    (
        call(
            "dyn.sparse_to_dense",
            tensor("at", 3, 2, dtype="int32"),
            tensor("v", 3),
            scalar(0, "float32"),
            ints(4, 5),
        ),
        None,
        "sparse_to_dense",
        "Tensor[(4, 5), float32]",
    ),
    (
        call("dyn.strided_slice", X, ints(0, -2), ints(1, 3), ints(1, 1), slice_mode="end"),
        [X],
        "strided_slice",
        "Tensor[(1, 2, 4), float32]",
    ),
    (
        call(
            "dyn.nn.pad",
            X,
            relay.Constant(np.array([[0, 0], [1, 2], [3, 0]])),
            scalar(0, "float32"),
            pad_mode="constant",
        ),
        [X],
        "nn.pad",
        "Tensor[(2, 6, 7), float32]",
    ),
    (
        call(
            "dyn.image.resize2d",
            IMAGE,
            ints(8, 6),
            tensor("roi", 4),
            layout="NCHW",
            method="linear",
            coordinate_transformation_mode="half_pixel",
        ),
        None,
        "image.resize2d",
        "Tensor[(1, 3, 8, 6), float32]",
    ),
    (
        call(
            "dyn.nn.upsampling",
            IMAGE,
            scalar(2.0, "float64"),
            scalar(1.5, "float64"),
            layout="NCHW",
            method="nearest_neighbor",
        ),
        [IMAGE],
        "nn.upsampling",
        "Tensor[(1, 3, 8, 6), float32]",
    ),
    (
        call(
            "dyn.nn.upsampling3d",
            VOLUME,
            scalar(2.0, "float64"),
            scalar(1.0, "float64"),
            scalar(3.0, "float64"),
            layout="NCDHW",
            method="nearest_neighbor",
        ),
        [VOLUME],
        "nn.upsampling3d",
        "Tensor[(1, 2, 6, 4, 15), float32]",
    ),
]


@pytest.mark.parametrize("body, params, op, expected", CASES, ids=[c[0].op.name for c in CASES])
def test_each_operator(body, params, op, expected):
    declared = relay.operators()
    for name in (op, body.op.name):
        if name not in declared:
            pytest.skip(f"{name} is not declared")
    if params is None:
        params = [arg for arg in body.args if isinstance(arg, relay.Var)]
    result, type_text = static(body, *params)
    assert result.op.name == op
    assert type_text == expected


def test_every_dyn_operator_has_a_case():
    dynamic = {name for name in relay.operators() if name.startswith("dyn.")}
    assert dynamic <= {case[0].op.name for case in CASES} | {"dyn.squeeze"}


def test_operands_that_are_not_constant_are_kept():
    x, axes = tensor("x", 1, 3), tensor("axes", 1, dtype="int64")
    body, type_text = static(call("dyn.squeeze", x, axes), x, axes)
    assert body.op.name == "dyn.squeeze" and type_text == "Tensor[(?,), float32]"


def test_shapes_flow_through_lets_and_declared_types():
    text = """
def @main(%x: Tensor[(1, 3, 1, 4), float32]) -> (Tensor[(?, ?), float32],) {
  let %s = shape_of(%x, dtype="int64");
  let %y: Tensor[(?, ?), float32] = dyn.reshape(%x,
    concatenate((expand_dims(take(%s, 1i64), axis=0), expand_dims(-1i64, axis=0)), axis=0));
  let %r = shape_of(%y, dtype="int64");
  (dyn.tile(%y, %r),)
}
"""
    expected = """
def @main(%x: Tensor[(1, 3, 1, 4), float32]) {
  let %y = reshape(%x, newshape=[3, -1]);
  (tile(%y, reps=[3, 4]),)
}
"""
    mod = transform.DynamicToStatic()(relay.parse(text))
    assert tvm_ffi.structural_equal(mod, relay.parse(expected))
    assert str(mod["main"].body.checked_type) == "(Tensor[(9, 16), float32],)"


def test_the_input_is_not_changed():
    x = tensor("x", 1, 3)
    mod = relay.IRModule({"main": relay.Function([x], call("dyn.squeeze", x, ints(0)))})
    transform.DynamicToStatic()(mod)
    assert mod["main"].body.op.name == "dyn.squeeze"


if __name__ == "__main__":
    tvm.testing.main()
