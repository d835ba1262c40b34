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
"""Quantized operators.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    ConvInteger, QLinearConv, QLinearMatMul.
Symptom
    ``OpNotImplemented``.
Mechanism
    TVM has no converter for them.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-quantized``.
"""

from dataclasses import replace

import numpy as np
from tvm import relax

from ...fixes.onnx_importer import QUANTIZED
from ...support import switches
from ..dtypes import dtype_of
from .convolution import pad_conv
from .node import Converter, Node

__all__ = ["convert_conv_integer", "convert_qlinear_conv", "convert_qlinear_matmul"]


def convert_conv_integer(node: Node, convert: Converter) -> relax.Expr:
    """Convert a ConvInteger; accumulate in int32."""
    switches.note(QUANTIZED)
    data = _subtract_zero_point(node, node.operands[0], node.operand(2))
    weight = _subtract_zero_point(node, node.operands[1], node.operand(3), axis=0)
    return _convolution(node, convert, data, weight)


def convert_qlinear_conv(node: Node, convert: Converter) -> relax.Expr:
    """Convert a QLinearConv: accumulate and add the bias in int32, then scale and round once."""
    switches.note(QUANTIZED)
    data, data_scale, data_zero, weight, weight_scale, weight_zero, scale, zero = node.operands[:8]
    bias = node.operand(8)
    rank = data.ty.ndim
    total = _convolution(
        node,
        convert,
        _subtract_zero_point(node, data, data_zero),
        _subtract_zero_point(node, weight, weight_zero, axis=0),
    )
    if bias is not None:
        bias = relax.op.reshape(bias, [1, -1] + [1] * (rank - 2))
        total = node.emit(relax.op.add(total, node.emit(bias)))
    if weight_scale.ty.ndim == 1:  # one scale per output channel, or a single one
        weight_scale = node.emit(relax.op.reshape(weight_scale, [1, -1] + [1] * (rank - 2)))
    return _requantize(node, total, (data_scale, weight_scale, scale), zero)


def convert_qlinear_matmul(node: Node, convert: Converter) -> relax.Expr:
    """Convert a QLinearMatMul: accumulate in int32, then scale and round once."""
    switches.note(QUANTIZED)
    lhs, lhs_scale, lhs_zero, rhs, rhs_scale, rhs_zero, scale, zero = node.operands
    # A 1-D scale or zero point of the left operand has one element per row.
    lhs_scale, lhs_zero = (
        node.emit(relax.op.expand_dims(value, -1)) if value.ty.ndim == 1 else value
        for value in (lhs_scale, lhs_zero)
    )
    operands = (
        _subtract_zero_point(node, lhs, lhs_zero),
        _subtract_zero_point(node, rhs, rhs_zero),
    )
    total = node.emit(relax.op.matmul(*operands, out_dtype="int32"))
    return _requantize(node, total, (lhs_scale, rhs_scale, scale), zero)


def _subtract_zero_point(
    node: Node, value: relax.Expr, zero: relax.Expr | None, axis: int | None = None
) -> relax.Expr:
    """`value - zero` in int32; a 1-D `zero` applies along `axis`."""
    value = node.emit(relax.op.astype(value, "int32"))
    if zero is None:
        return value
    zero = node.emit(relax.op.astype(zero, "int32"))
    if axis is not None and zero.ty.ndim == 1:
        shape = [1] * value.ty.ndim
        shape[axis] = -1
        zero = node.emit(relax.op.reshape(zero, shape))
    return node.emit(relax.op.subtract(value, zero))


def _convolution(
    node: Node, convert: Converter, data: relax.Expr, weight: relax.Expr
) -> relax.Expr:
    convolution = replace(node, operator="Conv", operands=(data, weight))
    return node.emit(node.builder.normalize(pad_conv(convolution, convert)))


def _requantize(
    node: Node, total: relax.Expr, scales: tuple[relax.Expr, ...], zero: relax.Expr
) -> relax.Expr:
    """Requantize `total`: scale it, round half to even, add `zero` and clip to its dtype."""
    first, second, result = (node.emit(relax.op.astype(scale, "float32")) for scale in scales)
    factor = node.emit(relax.op.divide(relax.op.multiply(first, second), result))
    scaled = node.emit(relax.op.multiply(relax.op.astype(total, "float32"), factor))
    dtype = dtype_of(zero)
    limits = np.iinfo(dtype)
    moved = relax.op.add(relax.op.round(scaled), relax.op.astype(zero, "float32"))
    return relax.op.astype(relax.op.clip(moved, limits.min, limits.max), dtype)
