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
"""Steps that converters of quantized operators share, and checks of their operands.

Products of integers are computed in one form, which passes recognize: the operands minus their zero
points in int32, ``relax.matmul`` or a convolution with ``out_dtype`` int32, then a float32 factor.
Other operators dequantize their operands, compute in float32, and quantize the result.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from ....dtypes import dtype_of
from ...call import Call, extents_of
from ..broadcast import broadcast_batches
from ..contractions import check_matmul

__all__ = [
    "add_bias",
    "as_float32",
    "as_matrices",
    "check_dtype",
    "check_per_channel",
    "check_scalars",
    "check_shape",
    "dequantize",
    "dynamic_parameters",
    "integer_product",
    "named_operands",
    "quantize",
    "round_and_clip",
    "scale_product",
    "subtract_zero_point",
]


# Operands


def named_operands(call: Call, names: str, required: Sequence[str] = ()) -> dict[str, Any]:
    """The operands by name; None for one that is omitted.

    Parameters
    ----------
    names : str
        The names in order, separated by spaces.
    required : sequence of str
        The names of the operands that must be given.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand is missing, or there are too many.
    """
    expected = names.split()
    if len(call.operands) > len(expected):
        reason = f"expected at most {len(expected)}"
        raise call.invalid("number of operands", len(call.operands), reason)
    operands = {name: call.operand(index) for index, name in enumerate(expected)}
    for name in required:
        if operands[name] is None:
            raise call.invalid(f"operand {name}", "missing", f"expected {', '.join(required)}")
    return operands


def check_dtype(call: Call, name: str, value: relax.Expr | None, *dtypes: str) -> None:
    """Reject an operand whose dtype is not one of `dtypes`."""
    if value is not None and dtype_of(value) not in dtypes:
        raise call.invalid(f"dtype of {name}", dtype_of(value), f"expected {' or '.join(dtypes)}")


def check_scalars(call: Call, operands: dict[str, Any], *names: str) -> None:
    """Reject operands that have more than one element, or axes of unknown extent."""
    for name in names:
        value = operands[name]
        if value is not None and not is_scalar(value):
            shape = extents_of(value)
            raise call.invalid(f"shape of {name}", shape, "expected a scalar, or one element")


def check_shape(call: Call, name: str, value: relax.Expr, *shapes: Sequence[int]) -> None:
    """Reject an operand whose static shape is not one of `shapes`."""
    shape = extents_of(value)
    if shape is None or not any(shape == list(expected) for expected in shapes):
        reason = f"expected {' or '.join(str(list(expected)) for expected in shapes)}"
        raise call.invalid(f"shape of {name}", shape, reason)


def check_per_channel(
    call: Call, operands: dict[str, Any], value: relax.Expr, axis: int, *names: str
) -> None:
    """Reject 1-D parameters of `value` without one element, or one for each index of `axis`."""
    extents = call.known.extents(value)
    for name in names:
        parameter = operands[name]
        if parameter is None or parameter.ty.ndim != 1 or is_scalar(parameter) or extents is None:
            continue
        shape = call.known.extents(parameter)
        if shape is not None and call.known.equal(shape[0], extents[axis]) is False:
            reason = f"expected one element, or {extents[axis]}"
            raise call.invalid(f"shape of {name}", shape, reason)


def is_scalar(value: relax.Expr) -> bool:
    """Whether a tensor has rank 0, or is a vector of one element."""
    return value.ty.ndim == 0 or extents_of(value) == [1]


# Quantization


def as_float32(call: Call, value: relax.Expr) -> relax.Expr:
    """`value` cast to float32, unless it has this dtype."""
    if dtype_of(value) == "float32":
        return value
    return call.emit(relax.op.astype(value, "float32"))


def quantize(
    call: Call,
    value: relax.Expr,
    scale: relax.Expr,
    zero: relax.Expr | None,
    dtype: str,
    axis: int = 0,
) -> relax.Expr:
    """Quantize to `dtype`; 1-D parameters apply along `axis`.

    The division is in float32 for narrower floats too, as in ONNX Runtime.
    """
    zero = relax.const(0, dtype) if zero is None else zero
    value, scale = as_float32(call, value), as_float32(call, scale)
    array = call.known.array(scale, max_elements=1)
    if array is not None and array.ndim == 0 and array == 0:
        # TVM would evaluate the division by a scalar constant, and fail.
        scale = relax.const(array.reshape(1))
    return call.emit(relax.op.quantize(value, scale, zero, axis, dtype))


def dequantize(
    call: Call, value: relax.Expr, scale: relax.Expr, zero: relax.Expr | None, axis: int = 0
) -> relax.Expr:
    """Dequantize to float32; 1-D parameters apply along `axis`."""
    zero = relax.const(0, dtype_of(value)) if zero is None else zero
    return call.emit(relax.op.dequantize(value, as_float32(call, scale), zero, axis, "float32"))


def round_and_clip(
    call: Call, scaled: relax.Expr, zero: relax.Expr | None, dtype: str
) -> relax.Expr:
    """Round `scaled` half to even, add `zero` and clip to `dtype`."""
    rounded = call.emit(relax.op.round(scaled))
    if zero is not None:
        rounded = call.emit(relax.op.add(rounded, as_float32(call, zero)))
    limits = np.iinfo(dtype)
    return relax.op.astype(relax.op.clip(rounded, limits.min, limits.max), dtype)


def dynamic_parameters(call: Call, value: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """The scale and the zero point for which uint8 covers 0 and all elements of `value`.

    If all elements are 0, the scale is 1, as in ONNX Runtime.
    """
    emit, zero = call.emit, relax.const(0, "float32")
    greatest = emit(relax.op.maximum(relax.op.max(value), zero))
    least = emit(relax.op.minimum(relax.op.min(value), zero))
    width = emit(relax.op.subtract(greatest, least))
    scale = emit(relax.op.divide(width, relax.const(255, "float32")))
    scale = emit(relax.op.where(relax.op.equal(width, zero), relax.const(1, "float32"), scale))
    start = emit(relax.op.divide(relax.op.negative(least), scale))
    return scale, emit(round_and_clip(call, start, None, "uint8"))


# Products


def subtract_zero_point(
    call: Call, value: relax.Expr, zero: relax.Expr | None, axis: int | None = None
) -> relax.Expr:
    """`value - zero` in int32; a 1-D `zero` applies along `axis`."""
    value = call.emit(relax.op.astype(value, "int32"))
    if zero is None:
        return value
    zero = call.emit(relax.op.astype(zero, "int32"))
    if axis is not None and zero.ty.ndim == 1:
        shape = [1] * value.ty.ndim
        shape[axis] = -1
        zero = call.emit(relax.op.reshape(zero, shape))
    return call.emit(relax.op.subtract(value, zero))


def as_matrices(
    call: Call, lhs: relax.Expr, rhs: relax.Expr
) -> tuple[relax.Expr, relax.Expr, list[int]]:
    """The operands of a product as matrices, and the axes to remove from their product.

    1-D parameters then apply to the rows of the left operand and the columns of the right one.
    """
    excess = []
    if lhs.ty.ndim == 1:
        lhs = call.emit(relax.op.expand_dims(lhs, 0))
        excess.append(-2)
    if rhs.ty.ndim == 1:
        rhs = call.emit(relax.op.expand_dims(rhs, 1))
        excess.append(-1)
    return lhs, rhs, excess


def integer_product(call: Call, lhs: relax.Expr, rhs: relax.Expr) -> relax.Expr:
    """The matrix product of two int32 tensors in int32, after a check of their extents."""

    def multiply(product: Call) -> relax.Expr:
        return relax.op.matmul(*product.operands, out_dtype="int32")

    def broadcast(product: Call) -> relax.Expr:
        return broadcast_batches(replace(product, rest=multiply))

    # The message of a check names both operands.
    product = check_matmul(replace(call, operands=(lhs, rhs), rest=broadcast))
    return call.emit(call.builder.normalize(product))


def scale_product(
    call: Call, total: relax.Expr, factors: Sequence[relax.Expr], divisor: relax.Expr | None = None
) -> relax.Expr:
    """`total` times the product of `factors`, divided by `divisor`, in float32.

    As in ONNX Runtime, the factors are multiplied with each other first.
    """
    factor, *others = (as_float32(call, value) for value in factors)
    for other in others:
        factor = call.emit(relax.op.multiply(factor, other))
    if divisor is not None:
        factor = call.emit(relax.op.divide(factor, as_float32(call, divisor)))
    return call.emit(relax.op.multiply(as_float32(call, total), factor))


def add_bias(call: Call, value: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    """`value + bias`, or `value` if there is no bias."""
    return value if bias is None else call.emit(relax.op.add(value, bias))
