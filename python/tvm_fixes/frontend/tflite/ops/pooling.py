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
"""Pooling of windows."""

from tvm import relax

from ..call import Call, converts, is_quantized
from .convolution import paddings


def _pooled(call: Call, kind: str, value: relax.Expr) -> relax.Expr:
    """The largest element or the average of each window; padding does not count."""
    shape = call.shape(0)
    if len(shape) != 4:
        raise call.fail(f"data of rank {len(shape)}; expected 4")
    strides = [call.option("stride_h"), call.option("stride_w")]
    size = [call.option("filter_height"), call.option("filter_width")]
    return call.emit(
        getattr(relax.op.nn, f"{kind}_pool2d")(
            value,
            pool_size=size,
            strides=strides,
            padding=paddings(call, shape[1:3], size, strides),
            layout="NHWC",
        )
    )


def _limited(call: Call, value: relax.Expr) -> relax.Expr:
    """The fused activation function of integers, whose parameters the result keeps."""
    name = call.option_or("fused_activation_function", "NONE")
    if name == "NONE":
        return value
    data = call.input(0)
    parameters = call.quantization(data)
    if name == "RELU":
        zero = relax.const(int(parameters.zero_point[0]), data.dtype)
        return call.emit(relax.op.maximum(value, zero))
    return call.as_output(call.activated(call.dequantized(value, parameters, data.dtype)))


@converts("MAX_POOL_2D")
def max_pool_2d(call: Call) -> relax.Expr:
    """The largest element of each window."""
    call.require_same_quantization()
    value = _pooled(call, "max", call.operand(0))
    return _limited(call, value) if is_quantized(call.input(0)) else call.activated(value)


@converts("AVERAGE_POOL_2D")
def average_pool_2d(call: Call) -> relax.Expr:
    """The average of each window; of integers, rounded half away from zero."""
    data = call.input(0)
    if not is_quantized(data):
        return call.activated(_pooled(call, "avg", call.operand(0)))
    call.require_same_quantization()
    integers = call.emit(relax.op.astype(call.operand(0), "float32"))
    means = call.rounded_away(_pooled(call, "avg", integers))
    return _limited(call, call.clipped(means, data.dtype))


@converts("L2_POOL_2D")
def l2_pool_2d(call: Call) -> relax.Expr:
    """The root of the average square of each window."""
    call.require_dtype(0, "float32")
    value = call.operand(0)
    squares = _pooled(call, "avg", call.emit(relax.op.multiply(value, value)))
    return call.activated(call.emit(relax.op.sqrt(squares)))
