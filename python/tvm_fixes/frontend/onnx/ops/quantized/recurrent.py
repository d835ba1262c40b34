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
"""DynamicQuantizeLSTM, the quantized LSTM of the domain com.microsoft.

The inputs of all steps are quantized at once, and the state at each step.  ONNX Runtime splits a
batch among its threads, and each thread quantizes the states of its sequences.
"""

from dataclasses import replace

from tvm import relax, tirx

from .....fixes.onnx_importer import QUANTIZED
from .....support import switches
from .....tirx.util import count_of
from ....dtypes import dtype_of
from ....recurrent import steps_of_layer
from ...call import Call, converts
from ..recurrent import QUANTIZATION, Direction, convert_with
from .steps import (
    check_dtype,
    dynamic_parameters,
    integer_product,
    named_operands,
    quantize,
    scale_product,
    subtract_zero_point,
)

_NAMES = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P", *QUANTIZATION)


def _layer(call: Call, direction: Direction) -> tuple[relax.Expr, ...]:
    """Emit a direction, whose products are computed in integers."""
    operands = direction.operands
    *around, features = operands["X"].ty.shape.values
    x = call.emit(relax.op.reshape(operands["X"], [count_of(around), features]))
    scale, zero = dynamic_parameters(call, x)
    integers = quantize(call, x, scale, zero, "uint8")
    total = integer_product(
        call,
        subtract_zero_point(call, integers, zero),
        subtract_zero_point(call, operands["W"], operands["W_zero_point"]),
    )
    rows = [tirx.const(4 * direction.hidden, "int64")]
    parameters = [
        call.emit(relax.op.broadcast_to(value, rows))
        for value in (
            operands["R_scale"],
            call.emit(relax.op.astype(operands["R_zero_point"], "int32")),
        )
    ]
    return steps_of_layer(
        call.builder,
        replace(direction.cell, is_quantized=True),
        scale_product(call, total, (scale, operands["W_scale"])),
        around,
        [call.emit(relax.op.permute_dims(operands["R"])), *parameters],
        direction.bias,
        direction.initial(call),
        peepholes=operands.get("P"),
        lengths=operands.get("sequence_lens"),
    )


@converts("com.microsoft.DynamicQuantizeLSTM", fix=QUANTIZED)
def convert_dynamic_quantize_lstm(call: Call) -> relax.Expr:
    """Convert a DynamicQuantizeLSTM.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand is missing, or an attribute or a shape violates the specification of LSTM.
    """
    switches.note(QUANTIZED)
    inputs = named_operands(call, " ".join(_NAMES), ("X", "W", "R", *QUANTIZATION))
    for name in ("W", "R"):
        check_dtype(call, name, inputs[name], "int8", "uint8")
        check_dtype(
            call, f"{name}_zero_point", inputs[f"{name}_zero_point"], dtype_of(inputs[name])
        )
        if inputs[name].ty.ndim != 3:
            raise call.invalid(f"rank of {name}", inputs[name].ty.ndim, "expected 3")
    lstm = replace(call, operator="LSTM", operands=tuple(inputs.values()))
    return convert_with(lstm, _layer)
