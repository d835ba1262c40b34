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
"""Quantization and dequantization."""

import numpy as np
from tvm import relax

from ...fixed_point import fixed_point
from ..call import Call, carrier_of, converts, is_quantized
from ..values.fixed_point import rescaled


@converts("QUANTIZE")
def quantize(call: Call) -> relax.Expr:
    """Real numbers as integers, or integers with other parameters."""
    data, out = call.input(0), call.outputs[0]
    if not is_quantized(out):
        raise call.fail(f"the result {out} of {out.dtype} has no quantization")
    if not is_quantized(data):
        call.require_dtype(0, "float32")
    elif call.has_same_quantization(data, out):
        return call.operand(0)
    else:
        # As LiteRT, in fixed point.
        source, target = call.quantization(data), call.quantization(out)
        wide = call.emit(relax.op.astype(call.operand(0), "int32"))
        if source.zero_point[0]:
            zero = relax.const(int(source.zero_point[0]), "int32")
            wide = call.emit(relax.op.subtract(wide, zero))
        factor = fixed_point(float(source.scale[0]) / float(target.scale[0]))
        return call.saturated(rescaled(call, wide, *factor))
    return call.as_output(call.real(0))


@converts("DEQUANTIZE")
def dequantize(call: Call) -> relax.Expr:
    """Integers or 16-bit floats as float32."""
    if call.input(0).dtype == "float16":
        return relax.op.astype(call.operand(0), "float32")
    if call.input(0).dtype == "float32":
        return call.operand(0)
    parameters = call.quantization(call.input(0), per_axis=True)
    return call.dequantized(call.operand(0), parameters, carrier_of(call.input(0).dtype))


@converts("FAKE_QUANT")
def fake_quant(call: Call) -> relax.Expr:
    """Real numbers, rounded to those that an integer of a few bits stands for."""
    call.require_dtype(0, "float32")
    low, high = np.float32(call.option("min")), np.float32(call.option("max"))
    least = 1 if call.option("narrow_range") else 0
    greatest = (1 << call.option("num_bits")) - 1
    if not low <= 0 <= high or low == high or greatest <= least:
        raise call.fail(f"the range is {low} to {high}, with {call.option('num_bits')} bits")
    scale = np.float32((high - low) / np.float32(greatest - least))
    zero = float(np.clip(np.floor(least - low / scale + np.float32(0.5)), least, greatest))
    start = (least - zero) * float(scale)
    end = (greatest - zero) * float(scale)
    op, emit, number = relax.op, call.emit, call.number
    clipped = emit(op.clip(call.operand(0), start, end))
    moved = emit(op.subtract(clipped, number(start)))
    inverse = np.float32(1) / scale
    steps = emit(op.add(emit(op.multiply(moved, number(float(inverse)))), number(0.5)))
    scaled = emit(op.multiply(emit(op.floor(steps)), number(float(scale))))
    return op.add(scaled, number(start))
