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
"""Products of quantized tensors.

Mechanism
    TVM has no converter for most of them. That of MatMulInteger adds an axis to each 1-D zero
    point.
"""

from collections.abc import Sequence
from dataclasses import replace

from tvm import relax

from .....fixes.onnx_importer import QUANTIZED
from .....support import switches
from ....dtypes import dtype_of
from ...call import Call, converts
from ..convolution import pad_conv
from .steps import (
    add_bias,
    as_matrices,
    check_dtype,
    check_per_channel,
    check_scalars,
    dynamic_parameters,
    integer_product,
    is_scalar,
    named_operands,
    quantize,
    round_and_clip,
    scale_product,
    subtract_zero_point,
)

# Convolutions


@converts("ConvInteger", fix=QUANTIZED)
def convert_conv_integer(call: Call) -> relax.Expr:
    """Convert a ConvInteger; accumulate in int32."""
    switches.note(QUANTIZED)
    inputs = named_operands(call, "x w x_zero_point w_zero_point", ("x", "w"))
    check_scalars(call, inputs, "x_zero_point")
    _check_zero_points(call, inputs, x="x_zero_point", w="w_zero_point")
    check_per_channel(call, inputs, inputs["w"], 0, "w_zero_point")
    data = subtract_zero_point(call, inputs["x"], inputs["x_zero_point"])
    weight = subtract_zero_point(call, inputs["w"], inputs["w_zero_point"], axis=0)
    return _convolution(call, data, weight)


@converts("QLinearConv", "com.microsoft.QLinearConv", fix=QUANTIZED)
def convert_qlinear_conv(call: Call) -> relax.Expr:
    """Convert a QLinearConv: accumulate and add the bias in int32, then scale and round once.

    In the domain com.microsoft, its channels may be last.
    """
    switches.note(QUANTIZED)
    names = "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B"
    inputs = named_operands(call, names, names.split()[:8])
    check_scalars(call, inputs, "x_scale", "x_zero_point", "y_scale", "y_zero_point")
    _check_zero_points(call, inputs, x="x_zero_point", w="w_zero_point")
    check_dtype(call, "y_zero_point", inputs["y_zero_point"], "int8", "uint8")
    check_per_channel(call, inputs, inputs["w"], 0, "w_scale", "w_zero_point", "B")
    data, rank = inputs["x"], inputs["x"].ty.ndim
    spatial = list(range(2, rank))
    channels_last = call.attributes.get("channels_last", 0)
    if channels_last:
        data = call.emit(relax.op.permute_dims(data, [0, rank - 1, *range(1, rank - 1)]))
    total = _convolution(
        call.with_attributes(removed=("channels_last",)),
        subtract_zero_point(call, data, inputs["x_zero_point"]),
        subtract_zero_point(call, inputs["w"], inputs["w_zero_point"], axis=0),
    )
    bias, weight_scale = inputs["B"], inputs["w_scale"]
    if bias is not None:
        total = add_bias(call, total, call.emit(relax.op.reshape(bias, [1, -1] + [1] * (rank - 2))))
    if weight_scale.ty.ndim == 1:  # one scale per output channel, or a single one
        weight_scale = call.emit(relax.op.reshape(weight_scale, [1, -1] + [1] * (rank - 2)))
    out = _requantize(call, total, (inputs["x_scale"], weight_scale), inputs)
    return relax.op.permute_dims(call.emit(out), [0, *spatial, 1]) if channels_last else out


def _convolution(call: Call, data: relax.Expr, weight: relax.Expr) -> relax.Expr:
    convolution = replace(call, operator="Conv", operands=(data, weight))
    return call.emit(call.builder.normalize(pad_conv(convolution)))


# Matrix products


@converts("MatMulInteger", fix=QUANTIZED)
def convert_matmul_integer(call: Call) -> relax.Expr:
    """Convert a MatMulInteger; accumulate in int32.

    A 1-D zero point of the left operand has one element per row.
    """
    switches.note(QUANTIZED)
    inputs = named_operands(call, "A B a_zero_point b_zero_point", ("A", "B"))
    _check_zero_points(call, inputs, A="a_zero_point", B="b_zero_point")
    lhs, rhs, excess = as_matrices(call, inputs["A"], inputs["B"])
    check_per_channel(call, inputs, lhs, -2, "a_zero_point")
    check_per_channel(call, inputs, rhs, -1, "b_zero_point")
    return _without(
        excess,
        integer_product(
            call,
            subtract_zero_point(call, lhs, _per_row(call, inputs["a_zero_point"])),
            subtract_zero_point(call, rhs, inputs["b_zero_point"]),
        ),
    )


@converts("QLinearMatMul", fix=QUANTIZED)
def convert_qlinear_matmul(call: Call) -> relax.Expr:
    """Convert a QLinearMatMul: accumulate in int32, then scale and round once.

    1-D parameters of the left operand and of the result have one element per row.
    """
    switches.note(QUANTIZED)
    names = "a a_scale a_zero_point b b_scale b_zero_point y_scale y_zero_point"
    inputs = named_operands(call, names, names.split())
    _check_zero_points(call, inputs, a="a_zero_point", b="b_zero_point")
    check_dtype(call, "y_zero_point", inputs["y_zero_point"], "int8", "uint8")
    lhs, rhs, excess = as_matrices(call, inputs["a"], inputs["b"])
    check_per_channel(call, inputs, lhs, -2, "a_scale", "a_zero_point", "y_scale", "y_zero_point")
    check_per_channel(call, inputs, rhs, -1, "b_scale", "b_zero_point")
    for name in ("a_scale", "a_zero_point", "y_scale", "y_zero_point"):
        inputs[name] = _per_row(call, inputs[name])
    total = integer_product(
        call,
        subtract_zero_point(call, lhs, inputs["a_zero_point"]),
        subtract_zero_point(call, rhs, inputs["b_zero_point"]),
    )
    return _without(
        excess, call.emit(_requantize(call, total, (inputs["a_scale"], inputs["b_scale"]), inputs))
    )


@converts("com.microsoft.QGemm", fix=QUANTIZED)
def convert_qgemm(call: Call) -> relax.Expr:
    """Convert a QGemm: accumulate and add C in int32, then scale.

    The result is float32 if there is no ``y_scale``, and quantized otherwise.
    """
    switches.note(QUANTIZED)
    names = "A a_scale a_zero_point B b_scale b_zero_point C y_scale y_zero_point"
    inputs = named_operands(call, names, names.split()[:6])
    check_scalars(call, inputs, "a_scale", "a_zero_point", "y_scale", "y_zero_point")
    _check_zero_points(call, inputs, A="a_zero_point", B="b_zero_point")
    check_dtype(call, "C", inputs["C"], "int32")
    check_dtype(call, "y_zero_point", inputs["y_zero_point"], "int8", "uint8")
    sides = []
    for name, transposed in (("A", "transA"), ("B", "transB")):
        side = inputs[name]
        if side.ty.ndim != 2:
            raise call.invalid(f"rank of {name}", side.ty.ndim, "expected 2")
        if call.attributes.get(transposed, 0):
            side = call.emit(relax.op.permute_dims(side, [1, 0]))
        sides.append(side)
    check_per_channel(call, inputs, sides[1], -1, "b_scale", "b_zero_point")
    total = integer_product(
        call,
        subtract_zero_point(call, sides[0], inputs["a_zero_point"]),
        subtract_zero_point(call, sides[1], inputs["b_zero_point"]),
    )
    total = add_bias(call, total, inputs["C"])
    factors = [inputs["a_scale"], inputs["b_scale"]]
    alpha = call.attributes.get("alpha", 1.0)
    if alpha != 1:
        factors.insert(0, relax.const(alpha, "float32"))
    if inputs["y_scale"] is None:
        return scale_product(call, total, factors)
    if inputs["y_zero_point"] is None:
        inputs["y_zero_point"] = relax.const(0, dtype_of(inputs["A"]))
    return _requantize(call, total, factors, inputs)


@converts("com.microsoft.MatMulIntegerToFloat", fix=QUANTIZED)
def convert_matmul_integer_to_float(call: Call) -> relax.Expr:
    """Convert a MatMulIntegerToFloat: accumulate in int32, scale, then add the bias."""
    switches.note(QUANTIZED)
    names = "A B a_scale b_scale a_zero_point b_zero_point bias"
    inputs = named_operands(call, names, names.split()[:4])
    check_scalars(call, inputs, "a_scale", "a_zero_point")
    _check_zero_points(call, inputs, A="a_zero_point", B="b_zero_point")
    return _float_product(call, inputs, inputs["A"], inputs["a_scale"], inputs["a_zero_point"])


@converts("com.microsoft.DynamicQuantizeMatMul", fix=QUANTIZED)
def convert_dynamic_quantize_matmul(call: Call) -> relax.Expr:
    """Convert a DynamicQuantizeMatMul, which quantizes its left operand to uint8."""
    switches.note(QUANTIZED)
    names = "A B b_scale b_zero_point bias"
    inputs = named_operands(call, names, names.split()[:3])
    check_dtype(call, "A", inputs["A"], "float32")
    _check_zero_points(call, inputs, B="b_zero_point")
    scale, zero = dynamic_parameters(call, inputs["A"])
    lhs = quantize(call, inputs["A"], scale, zero, "uint8")
    return _float_product(call, inputs, lhs, scale, zero)


def _float_product(
    call: Call, inputs: dict[str, relax.Expr], lhs: relax.Expr, scale: relax.Expr, zero: relax.Expr
) -> relax.Expr:
    """The scaled product of `lhs` and the operand B, plus the operand bias."""
    dtype = dtype_of(inputs["b_scale"])
    lhs, rhs, excess = as_matrices(call, lhs, inputs["B"])
    check_per_channel(call, inputs, rhs, -1, "b_scale", "b_zero_point", "bias")
    total = integer_product(
        call,
        subtract_zero_point(call, lhs, zero),
        subtract_zero_point(call, rhs, inputs["b_zero_point"]),
    )
    scaled = scale_product(call, total, (scale, inputs["b_scale"]))
    if dtype != "float32":
        scaled = call.emit(relax.op.astype(scaled, dtype))
    return _without(excess, add_bias(call, scaled, inputs["bias"]))


def _check_zero_points(call: Call, inputs: dict[str, relax.Expr | None], **zeros: str) -> None:
    """Check the dtypes of quantized operands, and that their zero points have the same dtype."""
    for name, zero in zeros.items():
        value = inputs[name]
        check_dtype(call, name, value, "int8", "uint8")
        if value is not None:
            check_dtype(call, zero, inputs[zero], dtype_of(value))


def _per_row(call: Call, parameter: relax.Expr | None) -> relax.Expr | None:
    """A 1-D parameter with one element per row, so that it broadcasts along the columns."""
    if parameter is None or parameter.ty.ndim != 1 or is_scalar(parameter):
        return parameter
    return call.emit(relax.op.expand_dims(parameter, -1))


def _without(axes: list[int], product: relax.Expr) -> relax.Expr:
    return relax.op.squeeze(product, axes) if axes else product


def _requantize(
    call: Call,
    total: relax.Expr,
    factors: Sequence[relax.Expr],
    inputs: dict[str, relax.Expr],
) -> relax.Expr:
    """Scale `total` by `factors`, and quantize it with the operands y_scale and y_zero_point."""
    zero = inputs["y_zero_point"]
    scaled = scale_product(call, total, factors, inputs["y_scale"])
    return round_and_clip(call, scaled, zero, dtype_of(zero))
