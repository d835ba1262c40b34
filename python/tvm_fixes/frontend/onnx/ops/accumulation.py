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
"""Float32 accumulation for Conv, ConvTranspose, MatMul and Gemm of 16-bit floats.

Mechanism
    The converters do not set ``out_dtype``, so that the operators sum in the dtype of their
    operands. ONNX Runtime sums in float32, including the bias, and rounds once.
"""

from tvm import relax

from ....fixes.onnx_importer import DTYPE
from ....support import switches
from ...dtypes import accumulation_dtype, dtype_of
from ..call import Call, converts

_CONVOLUTION_ATTRIBUTES = (
    "strides",
    "padding",
    "output_padding",
    "dilation",
    "groups",
    "data_layout",
    "kernel_layout",
    "out_layout",
)


def _sums_in_own_dtype(call: Call) -> bool:
    dtype = dtype_of(call.operands[0])
    if accumulation_dtype(dtype) == dtype:
        return True
    switches.note(DTYPE)
    return False


@converts("Conv", "ConvTranspose", place="accumulate", fix=DTYPE)
def sum_convolution(call: Call) -> relax.Expr:
    """Convert a Conv or ConvTranspose; sum products and bias in float32, then round once."""
    if _sums_in_own_dtype(call):
        return call.proceed()
    dtype = dtype_of(call.operands[0])
    sum_dtype = accumulation_dtype(dtype)
    data, weight = call.operands[:2]
    bias = call.operand(2)
    convolution = call.with_operands(data, weight).proceed()
    attributes = {
        name: getattr(convolution.attrs, name)
        for name in _CONVOLUTION_ATTRIBUTES
        if hasattr(convolution.attrs, name)
    }
    operator = getattr(relax.op.nn, convolution.op.name.removeprefix("relax.nn."))
    out = call.emit(operator(*convolution.args, **attributes, out_dtype=sum_dtype))
    if bias is not None:
        bias = relax.op.reshape(bias, [1, -1] + [1] * (data.ty.ndim - 2))
        out = call.emit(relax.op.add(out, call.emit(relax.op.astype(bias, sum_dtype))))
    return relax.op.astype(out, dtype)


@converts("MatMul", place="accumulate", fix=DTYPE)
def sum_matmul(call: Call) -> relax.Expr:
    """Convert a MatMul; sum products in float32, then round once."""
    if _sums_in_own_dtype(call):
        return call.proceed()
    lhs, rhs = call.operands
    dtype = dtype_of(lhs)
    return relax.op.astype(relax.op.matmul(lhs, rhs, accumulation_dtype(dtype)), dtype)


@converts("Gemm", place="accumulate", fix=DTYPE)
def sum_gemm(call: Call) -> relax.Expr:
    """Convert a Gemm, ``alpha * A @ B + beta * C``; compute in float32, then round once."""
    if _sums_in_own_dtype(call):
        return call.proceed()
    lhs, rhs = call.operands[:2]
    addend = call.operand(2)
    dtype = dtype_of(lhs)
    sum_dtype = accumulation_dtype(dtype)

    def scale(value: relax.Expr, factor: float) -> relax.Expr:
        return value if factor == 1 else relax.op.multiply(value, relax.const(factor, sum_dtype))

    if call.attributes.get("transA", 0):
        lhs = call.emit(relax.op.permute_dims(lhs, [1, 0]))
    if call.attributes.get("transB", 0):
        rhs = call.emit(relax.op.permute_dims(rhs, [1, 0]))
    out = call.emit(relax.op.matmul(lhs, rhs, sum_dtype))
    out = scale(out, call.attributes.get("alpha", 1.0))
    if addend is not None:
        addend = relax.op.astype(addend, sum_dtype)
        out = relax.op.add(out, scale(addend, call.attributes.get("beta", 1.0)))
    return relax.op.astype(out, dtype)
