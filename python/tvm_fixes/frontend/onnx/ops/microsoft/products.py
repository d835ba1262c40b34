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
"""Matrix products and convolutions of the domain com.microsoft."""

from collections.abc import Sequence

import numpy as np
from tvm import relax

from .....fixes.onnx_importer import MICROSOFT
from ....dtypes import dtype_of
from ...call import Call, converts
from ..quantized.steps import check_dtype, named_operands
from .operands import as_onnx, check_rank, named_shape, round_to, widen

_CONVOLUTION_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")

_CONVOLUTION_ACTIVATIONS: dict[str, Sequence[str]] = {
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}
"""The activations of a FusedConv, with the names of their parameters."""

_GEMM_ACTIVATIONS: dict[str, Sequence[str]] = {
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}


# Matrix products


@converts("com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul", fix=MICROSOFT, noted=True)
def convert_fused_matmul(call: Call) -> relax.Expr:
    """Convert a FusedMatMul or TransposeMatMul: a scaled product of transposed operands.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of an operand is 0 or unknown.
    """
    inputs = named_operands(call, "A B", ("A", "B"))
    dtype = dtype_of(inputs["A"])
    operands = [_transposed(call, name, inputs[name]) for name in ("A", "B")]
    out = as_onnx(call, "MatMul", *operands)
    factor = float(np.float32(call.attributes.get("alpha", 1.0)))
    if factor == 1:
        return round_to(call, out, dtype)
    scaled = relax.op.multiply(out, relax.const(factor, dtype_of(out)))
    return round_to(call, scaled, dtype)


def _transposed(call: Call, name: str, operand: relax.Expr) -> relax.Expr:
    """An operand in the accumulation dtype, transposed as the attributes say."""
    rank = len(named_shape(call, name, operand))
    if rank == 0:
        raise call.invalid(f"rank of {name}", 0, "expected at least 1")
    order = list(range(rank))
    # A vector is not transposed.
    if call.attributes.get(f"transBatch{name}", 0) and rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if call.attributes.get(f"trans{name}", 0) and rank > 1:
        order = [*order[:-2], order[-1], order[-2]]
    widened = widen(call, operand)
    return widened if order == sorted(order) else call.emit(relax.op.permute_dims(widened, order))


@converts("com.microsoft.FusedGemm", fix=MICROSOFT, noted=True)
def convert_fused_gemm(call: Call) -> relax.Expr:
    """Convert a FusedGemm: a Gemm and an activation.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the activation is not supported.
    """
    inputs = named_operands(call, "A B C", ("A", "B"))
    names = ("alpha", "beta", "transA", "transB")
    operands = [widen(call, inputs[name]) for name in ("A", "B")]
    if inputs["C"] is not None:
        operands.append(widen(call, inputs["C"]))
    attributes = {name: call.attributes[name] for name in names if name in call.attributes}
    out = as_onnx(call, "Gemm", *operands, **attributes)
    activation = call.text("activation", "")
    prefix = "activation_"
    parameters = {
        name: call.attributes[prefix + name]
        for name in _GEMM_ACTIVATIONS.get(activation, ())
        if prefix + name in call.attributes
    }
    if activation:
        _check_activation(call, activation, _GEMM_ACTIVATIONS)
        out = as_onnx(call, activation, out, **parameters)
    return round_to(call, out, dtype_of(inputs["A"]))


@converts("com.microsoft.GemmFastGelu", fix=MICROSOFT, noted=True)
def convert_gemm_fast_gelu(call: Call) -> relax.Expr:
    """Convert a GemmFastGelu: a product, an optional bias, and the tanh form of Gelu."""
    inputs = named_operands(call, "X W bias", ("X", "W"))
    out = as_onnx(call, "MatMul", *(widen(call, inputs[name]) for name in ("X", "W")))
    if inputs["bias"] is not None:
        out = call.emit(relax.op.add(out, widen(call, inputs["bias"])))
    return round_to(call, relax.op.nn.gelu_tanh(out), dtype_of(inputs["X"]))


# Convolutions


@converts("com.microsoft.FusedConv", fix=MICROSOFT, noted=True)
def convert_fused_conv(call: Call) -> relax.Expr:
    """Convert a FusedConv: a convolution, an optional addend, and an activation.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the activation is not supported.
    """
    return _fused_conv(call, is_channels_last=False)


@converts("com.microsoft.NhwcConv", "com.microsoft.NhwcFusedConv", fix=MICROSOFT, noted=True)
def convert_nhwc_conv(call: Call) -> relax.Expr:
    """Convert an NhwcConv or NhwcFusedConv, whose data has its channels last.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the activation is not supported.
    """
    return _fused_conv(call, is_channels_last=True)


def _fused_conv(call: Call, *, is_channels_last: bool) -> relax.Expr:
    inputs = named_operands(call, "X W B Z", ("X", "W"))
    widened = {name: None if x is None else widen(call, x) for name, x in inputs.items()}
    data = _channels_first(call, widened["X"]) if is_channels_last else widened["X"]
    out = _convolution(call, data, widened["W"], widened["B"])
    if is_channels_last:
        out = _channels_last(call, out)
    return round_to(call, _activated(call, out, widened["Z"]), dtype_of(inputs["X"]))


@converts("com.microsoft.NhwcMaxPool", fix=MICROSOFT, noted=True)
def convert_nhwc_max_pool(call: Call) -> relax.Expr:
    """Convert an NhwcMaxPool of 8-bit integers."""
    inputs = named_operands(call, "x", ("x",))
    check_dtype(call, "x", inputs["x"], "int8", "uint8")
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    attributes = {name: call.attributes[name] for name in names if name in call.attributes}
    data = _channels_first(call, inputs["x"])
    return _channels_last(call, as_onnx(call, "MaxPool", data, opset=12, **attributes))


def _convolution(
    call: Call, data: relax.Expr, weight: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    attributes = {
        name: call.attributes[name] for name in _CONVOLUTION_ATTRIBUTES if name in call.attributes
    }
    return as_onnx(call, "Conv", data, weight, bias, **attributes)


def _activated(call: Call, value: relax.Expr, addend: relax.Expr | None) -> relax.Expr:
    """The activation of the sum of `value` and `addend`."""
    if addend is not None:
        shapes = [named_shape(call, *pair) for pair in (("Y", value), ("Z", addend))]
        if len(shapes[0]) != len(shapes[1]) or any(
            call.known.equal(*pair) is False for pair in zip(*shapes, strict=True)
        ):
            raise call.invalid("shape of Z", shapes[1], f"expected {shapes[0]}")
        value = call.emit(relax.op.add(value, addend))
    activation = call.text("activation", "")
    if not activation:
        return value
    names = _check_activation(call, activation, _CONVOLUTION_ACTIVATIONS)
    values = list(call.attributes.get("activation_params", ()))
    if len(values) != len(names):
        reason = f"expected {len(names)} of {activation}"
        raise call.invalid("attribute activation_params", values, reason)
    if activation == "Clip":
        # Before opset 11, the limits are attributes.
        limits = dict(zip(names, values, strict=True))
        return as_onnx(call, "Clip", value, opset=6, **limits)
    return as_onnx(call, activation, value, **dict(zip(names, values, strict=True)))


def _check_activation(
    call: Call, activation: str, known: dict[str, Sequence[str]]
) -> Sequence[str]:
    if activation not in known:
        reason = f"expected {', '.join(known)}"
        raise call.invalid("attribute activation", activation, reason)
    return known[activation]


def _channels_first(call: Call, data: relax.Expr) -> relax.Expr:
    rank = len(check_rank(call, "X", data, 3, 4, 5))
    return call.emit(relax.op.permute_dims(data, [0, rank - 1, *range(1, rank - 1)]))


def _channels_last(call: Call, data: relax.Expr) -> relax.Expr:
    rank = data.ty.ndim
    return call.emit(relax.op.permute_dims(data, [0, *range(2, rank), 1]))
