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
"""Products of matrices."""

from typing import Any

from tvm import relax

from ...call import Call, converts
from ..broadcasting import common_extent, expanded
from .layouts import convert_layout, extents


def _matmul(call: Call, a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> relax.Expr:
    dtype = str(call.type.dtype)
    if str(a.ty.dtype) != str(b.ty.dtype):
        a, b = (call.emit(relax.op.astype(operand, dtype)) for operand in (a, b))
    if call.operator == "nn.batch_matmul":
        a, b = _same_batch(call, a, b)
    if transpose_a:
        a = _transpose(call, a)
    if transpose_b:
        b = _transpose(call, b)
    return call.emit(relax.op.matmul(a, b, dtype if dtype != str(a.ty.dtype) else None))


def _same_batch(call: Call, a: relax.Expr, b: relax.Expr) -> list[relax.Expr]:
    """Broadcast two operands to their common batch, if that is known only at run time."""
    shapes = [extents(call, operand) for operand in (a, b)]
    batch = common_extent(call, shapes[0][0], shapes[1][0])
    return [
        expanded(call, operand, shape, [batch, *shape[1:]])
        for operand, shape in zip((a, b), shapes, strict=True)
    ]


def _transpose(call: Call, expr: relax.Expr) -> relax.Expr:
    """Swap the last two axes."""
    ndim = expr.ty.ndim
    return call.emit(relax.op.permute_dims(expr, [*range(ndim - 2), ndim - 1, ndim - 2]))


@converts("nn.dense")
def dense(call: Call) -> relax.Expr:
    """Multiply by a transposed matrix."""
    data, weight = call.operands
    return _matmul(call, data, weight, transpose_a=False, transpose_b=True)


@converts("nn.matmul", "nn.batch_matmul")
def matmul(call: Call) -> relax.Expr:
    """Multiply matrices, or batches of them."""
    a, b = call.operands
    transpose_a, transpose_b = (
        bool(call.attributes["transpose_a"]),
        bool(call.attributes["transpose_b"]),
    )
    return _matmul(call, a, b, transpose_a, transpose_b)


@converts("nn.contrib_dense_pack")
def dense_pack(call: Call) -> relax.Expr:
    """Multiply by a transposed matrix whose rows are packed."""
    data, weight = call.operands
    weight = convert_layout(call, weight, str(call.attributes["weight_layout"]), "NC")
    return _matmul(call, data, weight, transpose_a=False, transpose_b=True)
