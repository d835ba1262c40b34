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
"""The convolutions, matrix products and pooling of the QNN dialect.

The zero points are subtracted first, and the products are summed in int32, or in int64 where the
result has this dtype. Relay expands the product of differences into four terms; the sums are the
same, as integers wrap around.

They are subtracted right before the product, in the dtype of the sums: in this form, FuseQuantized
recognizes 8-bit operands, and multiplies 8-bit integers.
"""

from collections.abc import Sequence

import numpy as np
from tvm import relax, te, tirx

from ...call import Call, converts
from ...values.values import constant_value
from ..nn.conv import conv_weight
from ..nn.layouts import convert_layout, extents
from .arithmetic import (
    Quantization,
    cast,
    requantize_if_different,
    saturate,
    subtract_zero,
)


def _permute(call: Call, value: relax.Expr, source: str, target: str) -> relax.Expr:
    """Permute the axes from one layout to another; permute a constant at import."""
    if source == target:
        return value
    order = [source.index(axis) for axis in target]
    constant = constant_value(value)
    if constant is not None:
        return relax.const(np.ascontiguousarray(constant.transpose(order)))
    return call.emit(relax.op.permute_dims(value, order))


def _pads(call: Call) -> list[int]:
    """Return the padding as top, left, bottom, right."""
    padding = call.ints("padding")
    if len(padding) == 1:
        return padding * 4
    return padding * 2 if len(padding) == 2 else padding


def _sum_dtype(call: Call) -> str:
    return "int64" if call.attributes["out_dtype"] == "int64" else "int32"


def _reject_rewritten(call: Call) -> None:
    """Raise an error if a tuner has changed the layout of the weight."""
    for attr in ("auto_scheduler_rewritten_layout", "meta_schedule_original_shape"):
        if call.attributes[attr]:
            raise call.fail(f"{attr} is not supported: the weight was rewritten for a schedule")


@converts("qnn.conv2d")
def conv2d(call: Call) -> relax.Expr:
    """Convolution; the padding has the value of the input's zero point, a real 0."""
    _reject_rewritten(call)
    data, weight, data_zero, weight_zero = call.operands[:4]
    layout, dtype = call.attributes["data_layout"], _sum_dtype(call)
    inputs = extents(call, data)[layout.index("C")]
    weight, kernel_layout = conv_weight(
        call, weight, call.attributes["kernel_layout"], inputs, "HW"
    )
    result = call.emit(
        relax.op.nn.conv2d(
            subtract_zero(call, data, data_zero, -1, dtype),
            subtract_zero(call, weight, weight_zero, kernel_layout.index("O"), dtype),
            strides=call.ints("strides", 2),
            padding=_pads(call),
            dilation=call.ints("dilation", 2),
            groups=call.attributes["groups"],
            data_layout=layout,
            kernel_layout=kernel_layout,
            out_dtype=dtype,
        )
    )
    result = convert_layout(call, result, layout, call.attributes["out_layout"] or layout)
    return cast(call, result, call.attributes["out_dtype"])


@converts("qnn.conv2d_transpose")
def conv2d_transpose(call: Call) -> relax.Expr:
    """Transposed convolution; the zero points are subtracted in int16, as in Relay."""
    data, weight, data_zero, weight_zero = call.operands[:4]
    layout, weight_layout = call.attributes["data_layout"], call.attributes["kernel_layout"]
    dtype = _sum_dtype(call)
    result = call.emit(
        relax.op.nn.conv2d_transpose(
            _int16_difference(call, data, data_zero, layout, "NCHW"),
            _int16_difference(call, weight, weight_zero, weight_layout, "IOHW"),
            strides=call.ints("strides", 2),
            padding=_pads(call),
            output_padding=call.ints("output_padding", 2),
            dilation=call.ints("dilation", 2),
            groups=call.attributes["groups"],
            out_dtype=dtype,
        )
    )
    result = _permute(call, result, "NCHW", call.attributes["out_layout"] or layout)
    return cast(call, result, call.attributes["out_dtype"])


def _int16_difference(
    call: Call, value: relax.Expr, zero: relax.Expr, source: str, target: str
) -> relax.Expr:
    """Subtract a zero point with wraparound in int16, and permute the axes to another layout."""
    dtype, number = _sum_dtype(call), constant_value(zero)
    bits = np.iinfo(str(value.ty.dtype)).bits
    if bits == 8 and number is not None and number.size == 1 and abs(number.item()) < 2**14:
        # It does not wrap around, so FuseQuantized may narrow it to 8 bits.
        return subtract_zero(call, _permute(call, value, source, target), zero, -1, dtype)
    # A vector runs along the second axis, whatever the layout.
    difference = cast(call, subtract_zero(call, value, zero, 1, "int16"), dtype)
    return _permute(call, difference, source, target)


@converts("qnn.dense")
def dense(call: Call) -> relax.Expr:
    """Product with the transposed weight."""
    _reject_rewritten(call)
    data, weight, data_zero, weight_zero = call.operands[:4]
    dtype = _sum_dtype(call)
    data = subtract_zero(call, data, data_zero, -1, dtype)
    weight = subtract_zero(call, _permute(call, weight, "OI", "IO"), weight_zero, -1, dtype)
    return call.emit(relax.op.matmul(data, weight, out_dtype=dtype))


@converts("qnn.batch_matmul")
def batch_matmul(call: Call) -> relax.Expr:
    """Products of matrices, the second of which are transposed."""
    _reject_rewritten(call)
    x, y, x_zero, y_zero = call.operands[:4]
    x = subtract_zero(call, x, x_zero, -1)
    y = subtract_zero(call, _permute(call, y, "BOI", "BIO"), y_zero, -1)
    return call.emit(relax.op.matmul(x, y, out_dtype="int32"))


@converts("qnn.avg_pool2d")
def avg_pool2d(call: Call) -> relax.Expr:
    """Requantize to int32, then take means, rounded towards zero; the padding is 0."""
    data, scale, zero, output_scale, output_zero = call.operands
    source, target = Quantization(scale, zero), Quantization(output_scale, output_zero)
    values = requantize_if_different(call, data, source, target)
    layout = call.attributes["layout"]
    values = _permute(call, values, layout, "NCHW")
    means = call.emit_te(
        _integer_means,
        values,
        call.ints("pool_size", 2),
        call.ints("strides", 2),
        call.ints("dilation", 2),
        _pads(call),
        bool(call.attributes["ceil_mode"]),
        bool(call.attributes["count_include_pad"]),
    )
    means = _permute(call, means, "NCHW", layout)
    return saturate(call, means, str(call.type.dtype))


def _integer_means(
    data: te.Tensor,
    size: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[int],
    ceil_mode: bool,
    count_pads: bool,
) -> te.Tensor:
    """Means over windows of NCHW, rounded towards zero."""
    extents = data.shape[2:]
    axes = [te.reduce_axis((0, int(extent)), name="r") for extent in size]
    shape = list(data.shape[:2])
    for i in range(2):
        room = extents[i] + pads[i] + pads[i + 2] - (size[i] - 1) * dilation[i] - 1
        room = room + strides[i] - 1 if ceil_mode else room
        shape.append(tirx.floordiv(room, strides[i]) + 1)

    def element(n: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
        at = [place[i] * strides[i] + axes[i] * dilation[i] - pads[i] for i in range(2)]
        inside = tirx.all(*(tirx.all(at[i] >= 0, at[i] < extents[i]) for i in range(2)))
        value = tirx.if_then_else(inside, data(n, c, *at), tirx.const(0, "int32"))
        return te.sum(value, axis=axes)

    sums = te.compute(shape, element, name="window_sum")

    def count(i: int, place: tirx.Var) -> tirx.Expr:
        """The number of taps of the window that count along an axis."""
        start = place * strides[i] - pads[i]
        end = start + (size[i] - 1) * dilation[i]
        if count_pads:
            end = tirx.min(end, extents[i] + pads[i + 2] - 1)
            return tirx.floordiv(end - start, dilation[i]) + 1
        skipped = tirx.max(tirx.floordiv(dilation[i] - 1 - start, dilation[i]), 0)
        end = tirx.min(end, extents[i] - 1)
        return tirx.floordiv(end - (start + dilation[i] * skipped), dilation[i]) + 1

    def mean(n: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
        taps = count(0, place[0]) * count(1, place[1])
        divisor = tirx.max(taps, 1).astype("int32")
        return tirx.truncdiv(sums(n, c, *place), divisor)

    return te.compute(shape, mean, name="window_mean")
