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
"""Quantized operators of the domain com.microsoft, computed in float32.

Each operator dequantizes its operands, computes, and quantizes the result.  ONNX Runtime combines
the scales of QLinearAdd first, so that sums halfway between two integers may differ by one step.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from tvm import relax

from .....fixes.onnx_importer import QUANTIZED
from .....support import switches
from ....dtypes import dtype_of
from ...call import Call, converts
from ..activations import of_last_axes
from ..broadcast import convert_broadcasting
from ..pooling import convert_pool
from ..variadic import convert_concat
from .steps import check_dtype, check_scalars, dequantize, named_operands, quantize

Compute: TypeAlias = Callable[[Call], relax.Expr]
"""Converts a node with float32 operands."""


def _to_channels_first(call: Call) -> tuple[Call, int]:
    """The node with its data in channels-first order if its channels are last; the data's rank."""
    data = call.operands[0]
    rank = data.ty.ndim
    if call.attributes.get("channels_last", 0):
        data = call.emit(relax.op.permute_dims(data, [0, rank - 1, *range(1, rank - 1)]))
    return call.with_operands(data), rank


def _average_pool(call: Call) -> relax.Expr:
    moved, rank = _to_channels_first(call)
    pool = replace(moved, operator="AveragePool").with_attributes(removed=("channels_last",))
    out = convert_pool(pool)
    if call.attributes.get("channels_last", 0):
        out = relax.op.permute_dims(call.emit(out), [0, *range(2, rank), 1])
    return out


def _global_average_pool(call: Call) -> relax.Expr:
    rank = call.operands[0].ty.ndim
    first = 1 if call.attributes.get("channels_last", 0) else 2
    return relax.op.mean(call.operands[0], list(range(first, first + rank - 2)), keepdims=True)


def _leaky_relu(call: Call) -> relax.Expr:
    return relax.op.nn.leakyrelu(call.operands[0], call.attributes.get("alpha", 0.01))


def _reduce_mean(call: Call) -> relax.Expr:
    axes = list(call.attributes.get("axes", ())) or None
    return relax.op.mean(call.operands[0], axes, keepdims=bool(call.attributes.get("keepdims", 1)))


def _sigmoid(call: Call) -> relax.Expr:
    return relax.op.sigmoid(call.operands[0])


def _softmax(call: Call) -> relax.Expr:
    """A Softmax of the opset that the attribute names; its axis has the default of that opset."""
    opset = call.attributes.get("opset", 13)
    axis = call.attributes.get("axis", -1 if opset >= 13 else 1)
    data = call.operands[0]
    rank = data.ty.ndim
    if not -rank <= axis < rank:
        raise call.invalid("attribute axis", axis, f"expected {-rank} to {rank - 1}")
    if opset >= 13:
        return relax.op.nn.softmax(data, axis)
    extents = call.known.extents(data)
    if extents is None:
        raise call.invalid("shape of X", data.ty, "expected a known shape")
    # Before opset 13, a Softmax normalizes over all axes from `axis` on.
    return of_last_axes(call, data, axis % rank, relax.op.nn.softmax)


def _broadcasting(operator: str) -> Compute:
    return lambda call: convert_broadcasting(replace(call, operator=operator))


_ONE = ("X", "X_scale", "X_zero_point", "Y_scale", "Y_zero_point")
_TWO = ("A", "A_scale", "A_zero_point", "B", "B_scale", "B_zero_point", "C_scale", "C_zero_point")
_CHOICE = ("condition", "X", "X_scale", "X_zero_point", "Y", "Y_scale", "Y_zero_point")

_STEPS: dict[str, tuple[tuple[str, ...], Compute]] = {
    "QLinearAdd": (_TWO, _broadcasting("Add")),
    "QLinearAveragePool": (_ONE, _average_pool),
    "QLinearGlobalAveragePool": (_ONE, _global_average_pool),
    "QLinearLeakyRelu": (_ONE, _leaky_relu),
    "QLinearMul": (_TWO, _broadcasting("Mul")),
    "QLinearReduceMean": (_ONE, _reduce_mean),
    "QLinearSigmoid": (_ONE, _sigmoid),
    "QLinearSoftmax": (_ONE, _softmax),
    "QLinearWhere": ((*_CHOICE, "Z_scale", "Z_zero_point"), _broadcasting("Where")),
}
"""For each operator, the names of its operands, and its computation."""

QUANTIZED_STEPS = tuple(f"com.microsoft.{operator}" for operator in _STEPS)
"""The operators that :func:`convert_quantized_step` converts."""


@converts(*QUANTIZED_STEPS, fix=QUANTIZED)
def convert_quantized_step(call: Call) -> relax.Expr:
    """Convert one of :data:`QUANTIZED_STEPS`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand is missing, differs in dtype from its zero point, or is quantized per axis.
    """
    switches.note(QUANTIZED)
    names, compute = _STEPS[call.operator.rpartition(".")[2]]
    required = [name for name in names if not name.endswith("_zero_point")]
    inputs = named_operands(call, " ".join(names), required)
    quantized = [name for name in required if f"{name}_scale" in names]
    check_dtype(call, quantized[0], inputs[quantized[0]], "int8", "uint8")
    dtype = dtype_of(inputs[quantized[0]])
    operands = [] if quantized[0] == names[0] else [inputs[names[0]]]
    operands += [_dequantized(call, inputs, name, dtype) for name in quantized]
    out = call.emit(call.builder.normalize(compute(call.with_operands(*operands))))
    result = names[-1].removesuffix("_zero_point")
    return _quantized(call, inputs, out, result, dtype)


@converts("com.microsoft.QLinearConcat", fix=QUANTIZED)
def convert_qlinear_concat(call: Call) -> relax.Expr:
    """Convert a QLinearConcat, whose operands follow the parameters of its result.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand is missing, differs in dtype from its zero point, or is quantized per axis.
    """
    switches.note(QUANTIZED)
    count = (len(call.operands) - 2) // 3
    if count < 1 or len(call.operands) != 3 * count + 2:
        reason = "expected 2, and 3 for each tensor"
        raise call.invalid("number of operands", len(call.operands), reason)
    names = ["Y_scale", "Y_zero_point"]
    for index in range(count):
        names += [f"input_{index}", f"input_{index}_scale", f"input_{index}_zero_point"]
    inputs = named_operands(call, " ".join(names), names)
    check_dtype(call, "input_0", inputs["input_0"], "int8", "uint8")
    dtype = dtype_of(inputs["input_0"])
    operands = [_dequantized(call, inputs, f"input_{index}", dtype) for index in range(count)]
    concat = replace(call, operator="Concat", operands=tuple(operands))
    out = call.emit(call.builder.normalize(convert_concat(concat)))
    return _quantized(call, inputs, out, "Y", dtype)


def _dequantized(call: Call, inputs: dict[str, Any], name: str, dtype: str) -> relax.Expr:
    """The operand `name` in float32."""
    value, scale, zero = (inputs[name + suffix] for suffix in ("", "_scale", "_zero_point"))
    check_scalars(call, inputs, f"{name}_scale", f"{name}_zero_point")
    check_dtype(call, name, value, dtype)
    check_dtype(call, f"{name}_zero_point", zero, dtype)
    return dequantize(call, value, scale, zero)


def _quantized(
    call: Call, inputs: dict[str, Any], value: relax.Expr, name: str, dtype: str
) -> relax.Expr:
    """`value` with the parameters of the result `name`."""
    check_scalars(call, inputs, f"{name}_scale", f"{name}_zero_point")
    check_dtype(call, f"{name}_zero_point", inputs[f"{name}_zero_point"], dtype)
    return quantize(call, value, inputs[f"{name}_scale"], inputs[f"{name}_zero_point"], dtype)
