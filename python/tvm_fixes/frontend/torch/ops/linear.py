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
"""Linear layers and matrix products.

Mechanism
    The converters pass ``out_dtype="float32"`` for operands of any dtype.  The decomposition of a
    linear layer expands both operands for a bmm.
"""

from typing import Any

from tvm import relax

from ....fixes.torch_importer import DTYPE, LINEAR
from ....support import switches
from ..call import Call, converts
from ..values.operands import dtypes

__all__ = ["transposed"]


@converts("linear.default", fix=DTYPE)
def convert_linear(call: Call) -> relax.Expr:
    """Convert a linear layer; layers that share a weight share its transpose."""
    x, weight, bias = call.arguments(input=None, weight=None, bias=None)
    dtype, sum_dtype = dtypes(x)
    if bias is not None:
        bias = call.astype(bias, sum_dtype)
    out = call.emit(relax.op.matmul(x, transposed(call, weight), sum_dtype))
    if bias is not None:
        out = call.emit(relax.op.add(out, bias))
    return call.astype(out, dtype)


def transposed(call: Call, weight: relax.Expr) -> relax.Expr:
    """Reverse the axes of a weight; layers that share the weight share the result."""
    if call.context.is_in_branch:
        return call.emit(relax.op.permute_dims(weight))
    known = call.context.transposed_weights
    if weight not in known:
        known[weight] = call.emit(relax.op.permute_dims(weight))
    return known[weight]


@converts("bilinear.default", fix=LINEAR, noted=True)
def convert_bilinear(call: Call) -> relax.Expr:
    """Convert ``sum(x[..., i] * weight[:, i, j] * y[..., j]) + bias``.

    To avoid an outer product, the weight is reshaped to one matrix whose rows are the pairs
    (output, element of `x`).
    """
    x, y, weight, bias = call.arguments(input1=None, input2=None, weight=None, bias=None)
    emit = call.emit
    dtype, sum_dtype = dtypes(x)
    outputs, rows, columns = weight.ty.shape
    *batch, _ = x.ty.shape
    matrix = emit(relax.op.reshape(weight, (outputs * rows, columns)))
    products = emit(relax.op.linear(y, matrix, None, sum_dtype))
    products = emit(relax.op.reshape(products, (*batch, outputs, rows)))
    x = emit(relax.op.expand_dims(call.astype(x, sum_dtype), -1))
    out = emit(relax.op.squeeze(emit(relax.op.matmul(products, x, sum_dtype)), [-1]))
    if bias is not None:
        out = emit(relax.op.add(out, call.astype(bias, sum_dtype)))
    return call.astype(out, dtype)


@converts("matmul.default", "mm.default", "bmm.default", "_sparse_mm.default", fix=DTYPE)
def convert_matmul(call: Call) -> relax.Expr:
    """Convert a matrix product of any dtype."""
    lhs, rhs = call.operands
    dtype, sum_dtype = dtypes(lhs)
    out = call.emit(relax.op.matmul(lhs, rhs, sum_dtype))
    return call.astype(out, dtype)


@converts("addmm.default", "_sparse_addmm.default", "baddbmm.default", fix=DTYPE)
def convert_addmm(call: Call) -> relax.Expr:
    """Convert ``beta * addend + alpha * (lhs @ rhs)``; omit a term whose factor is 0.

    PyTorch documents that with ``beta=0``, NaN and infinity in `addend` do not propagate.
    """
    addend, lhs, rhs = call.operands
    alpha: Any = call.attributes.get("alpha", 1)
    beta: Any = call.attributes.get("beta", 1)
    dtype, sum_dtype = dtypes(lhs)
    if dtype == "float32" and alpha != 0:
        return call.proceed()

    switches.note(DTYPE)
    emit = call.emit
    product = call.builder.normalize(relax.op.matmul(lhs, rhs, sum_dtype))
    if beta == 0:
        addend = relax.const(0, sum_dtype)
    else:
        addend = call.scale(call.astype(addend, sum_dtype), beta)
    if alpha == 0:
        out = emit(relax.op.broadcast_to(addend, product.ty.shape))
    else:
        out = call.scale(emit(product), alpha)
        if beta != 0:
            out = emit(relax.op.add(addend, out))
    return call.astype(out, dtype)
