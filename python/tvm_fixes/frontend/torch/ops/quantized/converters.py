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
"""Quantized programs: the operators of PT2E (``quantized_decomposed``) and of torchao.

Mechanism
    TVM has no converters for these operators.  ``relax.quantize`` divides by the scale, but
    PyTorch multiplies by its inverse, which rounds other numbers up near ties.
How to remove
    When TVM's importer passes ``test_frontend_torch_quantized``, use it; delete this folder,
    the test and the fix id ``torch-quantized``.
"""

import math

import torch
import tvm
from tvm import relax

from .....errors import OpNotImplemented
from .....fixes.torch_importer import QUANTIZED as FIX_ID
from .....support import switches
from ....dtypes import accumulation_dtype, dtype_of
from ....extents import static_extent
from ...call import Call, converts
from ..linear import transposed
from .operands import (
    Operands,
    Value,
    cast,
    dtype_of_value,
    expression_of,
    inverse_of,
    is_zero,
    promote,
    reshaped,
    shape_of,
    type_of,
)
from .parameters import limits_of

__all__ = ["KEPT"]

KEPT = ("torchao.quantize_affine.default", "torchao.dequantize_affine.default")
"""The operators with converters here that PyTorch would decompose."""

_HALF = (torch.float16, torch.bfloat16)
_BYTES, _SHORTS = ("int8", "uint8"), ("int16", "uint16")
# A difference of integers of these dtypes may wrap.
_NARROW = (torch.int8, torch.uint8, torch.int16, torch.uint16)
_PER_TENSOR = ("default", "tensor", "tensor2")
_FAKE = (
    *("fake_quantize_per_tensor_affine.default", "fake_quantize_per_tensor_affine.tensor_qparams"),
    *("fake_quantize_per_tensor_affine_cachemask.default", "fake_quant_per_channel.default"),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    "fake_quantize_per_channel_affine.default",
    "fake_quantize_per_channel_affine_cachemask.default",
)


def _emit_quantized(
    call: Call,
    x: relax.Expr,
    inverse: Value,
    zero_point: Value | None,
    limits: tuple[int, int],
    *,
    rounds_last: bool = False,
) -> relax.Expr:
    """Quantize `x` with a chain of operators that passes recognize.

    The chain is ``multiply(x, inverse)``, ``round`` (half to even), ``add(., zero_point)``,
    ``clip(., *limits)`` and ``astype`` to the integers of the result.  `inverse` is 1 / scale.  If
    `rounds_last`, the chain adds before it rounds.  The integer of a NaN is unspecified, as in
    PyTorch.
    """
    emit = call.emit
    zero_point = torch.tensor(0) if zero_point is None else zero_point
    dtype = promote(type_of(x), type_of(inverse), type_of(zero_point))
    inverse, zero_point = (
        expression_of(call, cast(call, value, dtype)) for value in (inverse, zero_point)
    )
    out = emit(relax.op.multiply(cast(call, x, dtype), inverse))
    if rounds_last:
        out = emit(relax.op.round(emit(relax.op.add(out, zero_point))))
    else:
        out = emit(relax.op.add(emit(relax.op.round(out)), zero_point))
    out = emit(relax.op.clip(out, *limits))
    return call.astype(out, call.dtype)


def _quantized_dtype(operands: Operands) -> torch.dtype:
    """Return the dtype of quantized numbers, which may have fewer than 8 bits.

    Raises
    ------
    tvm.error.OpNotImplemented
        If the result is a tensor with a quantizer, or its dtype is not an integer dtype.
    """
    switches.note(FIX_ID)
    call = operands.call
    dtype = operands.get("output_dtype") or operands["dtype"]
    if call.node.target.namespace == "aten" or not str(dtype).startswith(
        ("torch.int", "torch.uint")
    ):
        raise OpNotImplemented(
            f"{call.where}: quantizes to {dtype}; "
            "expected an integer dtype, as PT2E and torchao write"
        )
    return dtype


@converts(*(f"quantize_per_tensor.{name}" for name in _PER_TENSOR), fix=FIX_ID)
def convert_quantize_per_tensor(call: Call) -> relax.Expr:
    """Convert a quantization by one scale."""
    operands = Operands(call)
    dtype = _quantized_dtype(operands)
    scale, zero_point = operands.scalars(dtype)
    if dtype_of_value(scale) in _HALF:
        scale = cast(call, scale, torch.float32)
    # PyTorch divides in float64; in float32, the quotient of float32 numbers is the same.
    inverse = cast(call, inverse_of(call, scale), torch.float32)
    limits = operands.limits(dtype)
    zero_point = cast(call, zero_point, torch.float32)
    return _emit_quantized(call, operands.accumulated(), inverse, zero_point, limits)


@converts("quantize_per_channel.default", fix=FIX_ID)
def convert_quantize_per_channel(call: Call) -> relax.Expr:
    """Convert a quantization by a scale per channel."""
    operands = Operands(call)
    dtype = _quantized_dtype(operands)
    _, scale, zero_point = operands.channel_parameters(dtype)
    limits = operands.limits(dtype)
    return _emit_quantized(
        call, operands.accumulated(), inverse_of(call, scale), zero_point, limits
    )


@converts("quantize_per_token.default", fix=FIX_ID)
def convert_quantize_per_token(call: Call) -> relax.Expr:
    """Convert a quantization by a scale per row, which adds before it rounds."""
    operands = Operands(call)
    dtype = _quantized_dtype(operands)
    scale, zero_point = operands.parameters(dtype)
    limits, x = operands.limits(dtype), operands.data
    return _emit_quantized(call, x, inverse_of(call, scale), zero_point, limits, rounds_last=True)


@converts("quantize_per_channel_group.default", fix=FIX_ID)
def convert_quantize_per_group(call: Call) -> relax.Expr:
    """Convert a quantization by a scale per group of elements of a row."""
    operands = Operands(call)
    dtype = _quantized_dtype(operands)
    limits = operands.limits(dtype)
    x, (scale, zero_point) = operands.in_groups(*operands.parameters(dtype))
    out = _emit_quantized(call, x, inverse_of(call, scale), zero_point, limits, rounds_last=True)
    return reshaped(call, out, operands.data.ty.shape)


@converts("quantize_affine.default", fix=FIX_ID)
def convert_quantize_blocks(call: Call) -> relax.Expr:
    """Convert a quantization by a scale per block."""
    operands = Operands(call)
    dtype = _quantized_dtype(operands)
    limits = operands.limits(dtype)
    x, (scale, zero_point) = operands.in_blocks(*operands.parameters(dtype))
    out = _emit_quantized(call, x, inverse_of(call, scale), zero_point, limits)
    return reshaped(call, out, operands.data.ty.shape)


def _emit_dequantized(
    call: Call,
    data: relax.Expr,
    scale: Value,
    zero_point: Value | None,
    difference: torch.dtype,
) -> relax.Expr:
    """Dequantize integers with ``relax.dequantize`` if its results equal PyTorch's.

    PyTorch computes ``(data - zero_point) * scale`` with a difference of that dtype.  The
    operands broadcast.
    """
    switches.note(FIX_ID)
    out = call.recorded.dtype
    scale = _narrowed(call, data, scale, out)
    product = promote((difference, len(data.ty.shape)), type_of(scale))
    if _is_exact(data, scale, zero_point, difference, product):
        result = _emit_operator(call, data, scale, zero_point)
        if result is not None:
            result = cast(call, result, product)
            return cast(call, result, out)
    emit = call.emit
    result = cast(call, data, difference)
    if zero_point is not None:
        zero_point = expression_of(call, cast(call, zero_point, difference))
        result = emit(relax.op.subtract(result, zero_point))
    factor = expression_of(call, cast(call, scale, product))
    return cast(call, emit(relax.op.multiply(cast(call, result, product), factor)), out)


def _narrowed(call: Call, data: relax.Expr, scale: Value, out: torch.dtype) -> Value:
    """Return scales in float32 if they are float64 and exact in float32.

    A float64 product with 8 or 16 bits is exact, so its rounding to float32 is that of the
    float32 product.
    """
    if dtype_of_value(scale) != torch.float64 or out != torch.float32:
        return scale
    if dtype_of(data) not in (*_BYTES, *_SHORTS):
        return scale
    if isinstance(scale, torch.Tensor):
        return scale.float() if torch.equal(scale.float().double(), scale) else scale
    while isinstance(scale, relax.Var):
        bound = call.builder.lookup_binding(scale)
        if isinstance(bound, relax.Call) and bound.op == tvm.ir.Op.get("relax.astype"):
            operand = bound.args[0]
            return operand if dtype_of(operand) == "float32" else scale
        if not isinstance(bound, relax.Var):
            break
        scale = bound
    return scale


def _is_exact(
    data: relax.Expr,
    scale: Value,
    zero_point: Value | None,
    difference: torch.dtype,
    product: torch.dtype,
) -> bool:
    """Whether PyTorch's result is that of a difference in int32 and a product in float32."""
    if difference in _NARROW and not is_zero(zero_point):
        return False
    if torch.float64 in (product, dtype_of_value(scale)) or not product.is_floating_point:
        return False
    integers = dtype_of(data)
    if integers in _BYTES:
        return True
    if product in _HALF or difference in _HALF:
        return False
    return integers in _SHORTS or (integers == "int32" and is_zero(zero_point))


def _emit_operator(
    call: Call, data: relax.Expr, scale: Value, zero_point: Value | None
) -> relax.Expr | None:
    """Emit ``relax.dequantize``, or return None if the parameters vary along other axes."""
    shape, rank = list(data.ty.shape), data.ty.ndim
    zero_point = torch.tensor(0) if zero_point is None else zero_point
    extents = [[1] * (rank - len(e)) + e for e in map(shape_of, (scale, zero_point))]
    varies = [any(static_extent(e[axis]) != 1 for e in extents) for axis in range(rank)]
    axis = varies.index(True) if True in varies else 0
    if varies.count(True) > 1:
        # The operator has one axis of scales, so the leading axes become one.
        end = rank - varies[::-1].index(True)
        for own in extents:
            is_scalar = all(static_extent(extent) == 1 for extent in own)
            if not is_scalar and not all(map(call.symbols.equal, own[:end], shape[:end])):
                return None
        axis, shape = 0, [math.prod(shape[:end]), *shape[end:]]
    operands = []
    for value, own in zip((scale, zero_point), extents, strict=True):
        is_scalar = all(static_extent(extent) == 1 for extent in own)
        operands.append(reshaped(call, value, [] if is_scalar else [shape[axis]]))
    scale = expression_of(call, cast(call, operands[0], torch.float32))
    zero_point = expression_of(call, _fit_zero_point(call, operands[1], dtype_of(data)))
    data, result_shape = reshaped(call, data, shape), data.ty.shape
    out = relax.op.dequantize(data, scale, zero_point, axis, "float32")
    return reshaped(call, call.emit(out), result_shape)


def _fit_zero_point(call: Call, zero_point: Value, dtype: str) -> Value:
    """Return a zero point in a dtype that ``relax.dequantize`` accepts."""
    if isinstance(zero_point, torch.Tensor):
        low, high = limits_of(getattr(torch, dtype))
        fits = bool(((zero_point >= low) & (zero_point <= high)).all())
        return zero_point.to(getattr(torch, dtype) if fits else torch.int32)
    if dtype_of(zero_point) in (*_BYTES, *_SHORTS):
        return zero_point
    return cast(call, zero_point, torch.int32)


@converts(*(f"dequantize_per_tensor.{name}" for name in _PER_TENSOR), fix=FIX_ID)
def convert_dequantize_per_tensor(call: Call) -> relax.Expr:
    """Convert a dequantization by one scale."""
    operands = Operands(call)
    scale, zero_point = operands.scalars(operands["dtype"])
    out = call.recorded.dtype
    scale = cast(call, scale, torch.float32 if out in _HALF else out)
    return _emit_dequantized(call, operands.data, scale, zero_point, out)


@converts("dequantize_per_channel.default", fix=FIX_ID)
def convert_dequantize_per_channel(call: Call) -> relax.Expr:
    """Convert a dequantization by a scale per channel."""
    operands = Operands(call)
    return _emit_promoted(call, *operands.channel_parameters(operands["dtype"]))


@converts("dequantize_per_token.default", fix=FIX_ID)
def convert_dequantize_per_token(call: Call) -> relax.Expr:
    """Convert a dequantization by a scale per row."""
    operands = Operands(call)
    parameters = operands.parameters(operands["dtype"])
    return _emit_promoted(call, operands.data, *parameters)


@converts("dequantize_per_channel_group.default", fix=FIX_ID)
def convert_dequantize_per_group(call: Call) -> relax.Expr:
    """Convert a dequantization by a scale per group of elements of a row."""
    operands = Operands(call)
    parameters = operands.parameters(operands["dtype"])
    data, (scale, zero_point) = operands.in_groups(*parameters)
    out = _emit_promoted(call, data, scale, zero_point)
    return reshaped(call, out, operands.data.ty.shape)


def _emit_promoted(
    call: Call, data: relax.Expr, scale: Value, zero_point: Value | None
) -> relax.Expr:
    """Dequantize with a difference in the dtype that the integers promote to."""
    difference = dtype_of_value(data)
    if zero_point is not None:
        difference = promote(type_of(data), type_of(zero_point))
    return _emit_dequantized(call, data, scale, zero_point, difference)


@converts("dequantize_affine.default", fix=FIX_ID)
def convert_dequantize_blocks(call: Call) -> relax.Expr:
    """Convert a dequantization by a scale per block."""
    operands = Operands(call)
    dtype = dtype_of_value(operands.data)
    data, (scale, zero_point) = operands.in_blocks(*operands.parameters(dtype))
    out = _emit_dequantized(call, data, scale, zero_point, call.recorded.dtype)
    return reshaped(call, out, operands.data.ty.shape)


@converts(*_FAKE, fix=FIX_ID, noted=True)
def convert_fake_quantize(call: Call) -> relax.Expr:
    """Convert a quantization with its dequantization, and return a mask of the range."""
    operands = Operands(call)
    if "axis" in operands:
        x, scale, zero_point = operands.channel_parameters(torch.int32)
    else:
        x = operands.data
        scale, zero_point = operands.scalars(torch.int32)
    # PyTorch adds a zero point that is a float before it rounds.
    rounds_last = dtype_of_value(zero_point).is_floating_point
    scale, zero_point = (cast(call, value, torch.float32) for value in (scale, zero_point))
    inverse = expression_of(call, inverse_of(call, scale))
    scale, zero_point = expression_of(call, scale), expression_of(call, zero_point)
    emit = call.emit
    integers = emit(relax.op.multiply(call.astype(x, "float32"), inverse))
    for op in (relax.op.add, relax.op.round) if rounds_last else (relax.op.round, relax.op.add):
        integers = emit(op(integers, zero_point) if op is relax.op.add else op(integers))
    clipped = emit(relax.op.clip(integers, *operands.limits(torch.int32)))
    out = emit(relax.op.multiply(emit(relax.op.subtract(clipped, zero_point)), scale))
    out, mask = call.astype(out, dtype_of(x)), emit(relax.op.equal(integers, clipped))
    if "fake_quant_enabled" in operands:
        enabled = call.astype(call.context.env[operands["fake_quant_enabled"]], "bool")
        out = emit(relax.op.where(enabled, out, x))
        mask = emit(relax.op.logical_or(mask, emit(relax.op.logical_not(enabled))))
    has_mask = isinstance(call.recorded, tuple | list)
    return emit(relax.Tuple([out, mask])) if has_mask else out


@converts("convert_element_type.no_fuse", fix=FIX_ID, noted=True)
def convert_element_type(call: Call) -> relax.Expr:
    """Convert a cast."""
    operands = Operands(call)
    return cast(call, operands.data, operands["dtype"])


@converts("_int_mm.default", fix=FIX_ID, noted=True)
def convert_integer_matmul(call: Call) -> relax.Expr:
    """Convert a product of 8-bit matrices, summed in int32."""
    lhs, rhs = (call.astype(operand, "int32") for operand in call.operands)
    return call.emit(relax.op.matmul(lhs, rhs, out_dtype="int32"))


@converts("_weight_int8pack_mm.default", fix=FIX_ID, noted=True)
def convert_int8_weight_matmul(call: Call) -> relax.Expr:
    """Convert a product with a transposed int8 weight, scaled by output channels."""
    x, weight, scale = call.operands
    emit, dtype = call.emit, dtype_of(x)
    sum_dtype = accumulation_dtype(dtype)
    weight = emit(relax.op.astype(transposed(call, weight), dtype))
    out = emit(relax.op.matmul(x, weight, sum_dtype))
    out = emit(relax.op.multiply(out, call.astype(scale, sum_dtype)))
    return call.astype(out, dtype)
