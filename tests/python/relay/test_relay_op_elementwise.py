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
"""The types of elementwise operators, of reductions, and of operators that create tensors."""

import pytest
import tvm.testing

from helpers.relay_checks import infer, type_error
from tvm_fixes import relay

X = "%x: Tensor[(2, 3, 4), float32]"
ANY = "%x: Tensor[(2, ?, 4), float32]"
PAIR = "%x: Tensor[(5, ?, 1, ?), int32], %y: Tensor[(3, 7, ?), int32]"


@pytest.mark.parametrize("operator", ("exp", "copy", "zeros_like", "bitwise_not"))
def test_unary(operator: str) -> None:
    assert infer(f"{operator}(%x)", ANY) == "Tensor[(2, ?, 4), float32]"


@pytest.mark.parametrize(
    "body, params, expected",
    (
        ("isnan(%x)", ANY, "Tensor[(2, ?, 4), bool]"),
        ("clip(%x, a_min=0f, a_max=6f)", ANY, "Tensor[(2, ?, 4), float32]"),
        ("floor_mod(%x, %y)", PAIR, "Tensor[(5, 3, 7, ?), int32]"),
        ("less_equal(%x, %y)", PAIR, "Tensor[(5, 3, 7, ?), bool]"),
        ("where(%x, %y, %y)", PAIR, "Tensor[(5, 3, 7, ?), int32]"),
        ('cast(%x, dtype="int8")', ANY, "Tensor[(2, ?, 4), int8]"),
        ('reinterpret(%x, dtype="int32")', ANY, "Tensor[(2, ?, 4), int32]"),
        ('cast_like(%x, cast(%x, dtype="bool"))', ANY, "Tensor[(2, ?, 4), bool]"),
        ('zeros(shape=[2, 0], dtype="int8")', "", "Tensor[(2, 0), int8]"),
        ('ones(shape=[], dtype="int8")', "", "int8"),
        ("full(1f, shape=[4])", "", "Tensor[(4), float32]"),
        ('full(1f, shape=[4], dtype="int8")', "", "Tensor[(4), int8]"),
        ("full_like(%x, 1)", ANY, "Tensor[(2, ?, 4), float32]"),
        ('arange(0, 10, 3, dtype="int32")', "", "Tensor[(4), int32]"),
        ('arange(1f, -1f, -0.5f, dtype="float32")', "", "Tensor[(4), float32]"),
        ('arange(0, %n, 3, dtype="int32")', "%n: int32", "Tensor[(?), int32]"),
        ('shape_of(%x, dtype="int64")', ANY, "Tensor[(3), int64]"),
        ('ndarray_size(%x, dtype="int32")', ANY, "int32"),
        ('contrib.ndarray_size(%x, dtype="int32")', ANY, "int32"),
        ("sum(%x)", ANY, "float32"),
        ("sum(%x, axis=[])", ANY, "float32"),
        ("sum(%x, axis=[-1])", ANY, "Tensor[(2, ?), float32]"),
        ("max(%x, axis=0, keepdims=True)", ANY, "Tensor[(1, ?, 4), float32]"),
        ("min(%x, axis=[0, 2], exclude=True)", ANY, "Tensor[(2, 4), float32]"),
        ("mean(%x, axis=[0, 1, 2], exclude=True)", ANY, "Tensor[(2, ?, 4), float32]"),
        ("prod(2f)", "", "float32"),
        ("argmax(%x, axis=[1])", ANY, "Tensor[(2, 4), int32]"),
        ("argmin(%x, keepdims=True, select_last_index=True)", X, "Tensor[(1, 1, 1), int32]"),
        ("variance(%x, %x, axis=[1], unbiased=True)", X, "Tensor[(2, 4), float32]"),
        ("cumsum(%x, axis=-1, exclusive=1)", ANY, "Tensor[(2, ?, 4), float32]"),
        ("cumsum(%x)", ANY, "Tensor[(?), float32]"),
        ('cumprod(%x, dtype="int64")', X, "Tensor[(24), int64]"),
        ('einsum((%x, %x), equation="ijk, ilk -> jl")', ANY, "Tensor[(?, ?), float32]"),
        ('einsum((%x,), equation="b...a")', X, "Tensor[(3, 4, 2), float32]"),
        ('einsum((%x, %x), equation="aij,bij")', X, "Tensor[(2, 2), float32]"),
        ('einsum((%x,), equation="i...->...")', ANY, "Tensor[(?, 4), float32]"),
        ("on_device((%x, 1), virtual_device=None).1", X, "int32"),
        ("annotation.stop_fusion(%x)", ANY, "Tensor[(2, ?, 4), float32]"),
    ),
)
def test_types(body: str, params: str, expected: str) -> None:
    assert infer(body, params).replace(",)", ")") == expected


@pytest.mark.parametrize(
    "body, params, message",
    (
        ("less(%x, 1)", X, "less at 1:45: input 1 (rhs): expected dtype float32, found int32"),
        ("add(%x, %y)", "%x: Tensor[(2, 3), int8], %y: Tensor[(2), int8]", "cannot be broadcast"),
        ("sum(%x, axis=[3])", X, "attribute 'axis': expected axis in [-3, 3), found [3]"),
        ("sum(%x, axis=[1, -2])", X, "attribute 'axis': expected no axis twice, found [1, -2]"),
        ("sum(%x, exclude=True)", X, "attribute 'axis': expected array of ints"),
        ("argmax(1f)", "", "expected a tensor of rank at least 1"),
        ("variance(%x, 1f)", X, "input 1 (mean): expected a tensor with 3 dimensions"),
        ("clip(%x, a_min=0f)", X, "attribute 'a_max' is missing: expected float"),
        ("shape_of(%x)", X, "attribute 'dtype': expected dtype, found None"),
        ('cast(%x, dtype="int33z")', X, "attribute 'dtype': expected dtype"),
        ("full(%x, shape=[2])", X, "expected a tensor with 0 dimensions"),
        ('zeros(shape=[-1], dtype="int8")', "", "attribute 'shape': expected non-negative ints"),
        ("where(%x, 1, 2f)", X, "expected dtype int32"),
        ('arange(0, 10, 0, dtype="int32")', "", "has no valid number of elements"),
        ('arange(0, 10, -1, dtype="int32")', "", "has no valid number of elements"),
        ('arange(0, 9f, 1, dtype="int32")', "", "input 1 (end): expected a scalar of dtype int32"),
        ('einsum((%x,), equation="ij")', X, "a term for an operand of shape (2, 3, 4)"),
        ('einsum((%x,), equation="ii...")', X, "label 'i' has the extents 2 and 3"),
        ('einsum((%x,), equation="ijk->q")', X, "labels occur in the operands"),
        ('einsum((%x,), equation="ijk->ii")', X, "labels occur in the operands"),
        ('einsum((%x,), equation="ij0")', X, "an equation such as"),
        ('einsum((%x, %x), equation="ijk")', X, "expected 2 terms before the arrow"),
        ("cumsum(%x, axis=3)", X, "expected axis in [-3, 3)"),
    ),
)
def test_errors(body: str, params: str, message: str) -> None:
    assert message in type_error(body, params)


def test_table() -> None:
    table = relay.operators()
    assert table["argmax"].attrs_key == "relay.attrs.ArgReduceAttrs"
    names = [field["name"] for field in table["argmax"].attrs]
    assert names == ["axis", "keepdims", "select_last_index", "exclude"]
    assert table["device_copy"].effect == "annotation"
    assert table["memory.alloc_tensor"].effect == "rejected"
    assert "lowered" in table["vm.invoke_tvm_op"].rejection


if __name__ == "__main__":
    tvm.testing.main()
