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
"""Relay operators that reshape, slice, index, sort, and dyn.*: types."""

import re

import pytest
import tvm.testing

from helpers.relay_checks import infer, type_error

X = "%x: Tensor[(4, 6, ?), float32]"
S = "%x: Tensor[(4, 6), float32], %y: Tensor[(?, 3), float32], %i: Tensor[(2, 5), int32]"
V = "%x: Tensor[(4, ?), float32], %v: Tensor[(3), int64], %k: int64, %f: float32"


@pytest.mark.parametrize(
    "newshape, expected",
    [
        ("[-1]", "(?,)"),
        ("[0, -3]", "(4, ?)"),
        ("[-3, 0]", "(24, ?)"),
        ("[-2]", "(4, 6, ?)"),
        ("[-4, 2, -1, -2]", "(2, 2, 6, ?)"),
        ("[0, -4, -1, 3, 0]", "(4, 2, 3, ?)"),
        ("[24, 5]", "(24, 5)"),
    ],
)
def test_reshape(newshape, expected):
    assert infer(f"reshape(%x, newshape={newshape})", X) == f"Tensor[{expected}, float32]"


def test_reshape_counts_the_position_of_minus_one_in_newshape():
    # TVM 0.19 puts the inferred extent there too, one position after the -1 that follows a -4.
    body = "reshape(%x, newshape=[-4, 2, 2, -1, 1])"
    assert infer(body, S) == "Tensor[(2, 2, 1, 6), float32]"


@pytest.mark.parametrize(
    "body, message",
    [
        ("reshape(%x, newshape=[5, 5])", r"\(4, 6\) cannot be reshaped to \(5, 5\)"),
        ("reshape(%x, newshape=[-1, -1])", "at most one -1"),
        ("reshape(%x, newshape=[-5])", "special values"),
        ("reshape(%x, newshape=[-4, -1, -1, 6])", "two extents after -4"),
        ("reshape(%x, newshape=[0, 0, 0])", "fit the dimensions"),
        ("squeeze(%x, axis=[0])", "axes with extent 1"),
        ("squeeze(%y)", "the shape is not static"),
        ("expand_dims(%x, axis=3)", r"axis in \[-3, 3\), found 3"),
        ("transpose(%x, axes=[0, 0])", "each axis once"),
        ("concatenate((%x, %y), axis=0)", "axis 1 has one extent"),
        ("concatenate((%x, %i), axis=0)", "one dtype"),
        ("split(%x, indices_or_sections=3, axis=0)", "a divisor of 4"),
        ("split(%x, indices_or_sections=[2, 1], axis=0)", "ascending"),
        ("tile(%x, reps=[0])", "positive"),
        ("strided_slice(%x, begin=[3], end=[1], strides=[1])", "ends before it begins"),
        ("strided_slice(%x, begin=[3], end=[1], strides=[0])", "other than 0"),
        ("slice_like(%i, %x)", "at most extent 2 on axis 0"),
        ("broadcast_to(%x, shape=[4, 7])", "cannot be broadcast"),
        ("take(%x, %y)", "input 1 .*expected integers"),
        ('take(%x, %i, mode="nan")', '"clip", "wrap" or "fast", found "nan"'),
        ("take(%x, %i, axis=0, batch_dims=1)", "batch_dims"),
        ("gather(%x, %i, axis=0)", "extents of"),
        ("gather_nd(%x, %x)", "expected integers"),
        ("scatter_elements(%x, %i, %y)", "the shape"),
        ('one_hot(%i, 1f, 0f, depth=0, dtype="int8")', "a positive number"),
        ("topk(%x, k=7)", "at most 6"),
        ("unique(%x, sorted=1)", "1 dimensions"),
        ("matrix_set_diag(%x, %y, k1=1, k2=0)", "at least k1"),
    ],
)
def test_error_messages(body, message):
    text = type_error(body, S)
    assert re.search(message, text), text


@pytest.mark.parametrize(
    "body, expected",
    [
        ("squeeze(%y, axis=[0])", "Tensor[(3,), float32]"),
        ("expand_dims(%y, axis=-1)", "Tensor[(?, 3, 1), float32]"),
        ("concatenate((%y, %y), axis=0)", "Tensor[(?, 3), float32]"),
        ("stack((%y, %y), axis=2)", "Tensor[(?, 3, 2), float32]"),
        ("repeat(%y, repeats=2, axis=1)", "Tensor[(?, 6), float32]"),
        ("tile(%y, reps=[2, 1, 2])", "Tensor[(2, ?, 6), float32]"),
        ("strided_slice(%y, begin=[0, -2], end=[9, 9], strides=[1, 1])", "Tensor[(?, 2), float32]"),
        ("slice_like(%x, %y)", "Tensor[(?, 3), float32]"),
        ("take(%x, %i, axis=1)", "Tensor[(4, 2, 5), float32]"),
        ("take(%x, 1, axis=1)", "Tensor[(4,), float32]"),
        ("gather_nd(%x, %i)", "Tensor[(5,), float32]"),
        ("argwhere(%x)", "Tensor[(?, 2), int32]"),
        ("argsort(%y)", "Tensor[(?, 3), int32]"),
        ("topk(%y, k=2)", "(Tensor[(?, 2), float32], Tensor[(?, 2), int32])"),
        ("collapse_sum_like(%y, 1f)", "float32"),
    ],
)
def test_types_with_unknown_extents(body, expected):
    assert infer(body, S) == expected


@pytest.mark.parametrize(
    "body, expected",
    [
        ("dyn.reshape(%x, %v)", "Tensor[(?, ?, ?), float32]"),
        ("dyn.tile(%x, %v)", "Tensor[(?, ?, ?), float32]"),
        ("dyn.broadcast_to(%x, %v)", "Tensor[(?, ?, ?), float32]"),
        ('dyn.zeros(%v, dtype="int8")', "Tensor[(?, ?, ?), int8]"),
        ('dyn.ones(%v, dtype="int8")', "Tensor[(?, ?, ?), int8]"),
        ("dyn.full(%f, %v)", "Tensor[(?, ?, ?), float32]"),
        ('dyn.one_hot(%v, %f, %f, %k, axis=0, dtype="int8")', "Tensor[(?, 3), int8]"),
        ("dyn.sparse_to_dense(%v, %f, %f, %v)", "Tensor[(?, ?, ?), float32]"),
        ("dyn.expand_dims(%x, %k)", "Tensor[(?, ?, ?), float32]"),
        ('dyn.topk(%x, %k, axis=0, ret_type="values")', "Tensor[(?, ?), float32]"),
    ],
)
def test_dyn(body, expected):
    assert infer(body, V) == expected


def test_dyn_of_images():
    params = "%x: Tensor[(1, 4, 5, 3), float32], %n: Tensor[(2), int64], %r: Tensor[(4), float32]"
    params += ", %s: float32, %w: Tensor[(4, 2), int64], %a: Tensor[(1), int64]"
    resized = "Tensor[(1, ?, ?, 3), float32]"
    assert infer('dyn.image.resize2d(%x, %n, %r, layout="NHWC")', params) == resized
    assert infer('dyn.nn.upsampling(%x, %s, %s, layout="NHWC")', params) == resized
    assert infer("dyn.nn.pad(%x, %w, %s)", params) == "Tensor[(?, ?, ?, ?), float32]"
    assert infer("dyn.squeeze(%x, %a)", params) == "Tensor[(?, ?, ?), float32]"
    assert infer("dyn.strided_slice(%x, %n, %n, %n)", params) == "Tensor[(?, ?, 5, 3), float32]"
    cube = "%x: Tensor[(1, 2, 3, 4, 5), float32], %s: float32"
    expected = "Tensor[(1, 2, ?, ?, ?), float32]"
    assert infer("dyn.nn.upsampling3d(%x, %s, %s, %s)", cube) == expected


if __name__ == "__main__":
    tvm.testing.main()
