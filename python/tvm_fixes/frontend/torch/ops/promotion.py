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
"""Type promotion: PyTorch operators that compute in a dtype other than their operands' dtypes.

Trigger
    An operation on integers with a Python float or another dtype, on a tensor of rank 0, or on a
    size of the program; ``add`` and ``sub`` with ``alpha``; a division of integers; a unary
    function of integers; ``cumsum``, ``cumprod`` and ``prod`` of booleans or small integers;
    ``any`` of numbers, or of no elements; ``clamp`` of integers; ``ones_like`` and similar calls
    with another dtype; a power of 0.5.
Mechanism
    The converters cast a Python scalar to the dtype of the tensor, promote two tensors regardless
    of their ranks, and pass integers to Relax operators that do not promote them.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import fx
from tvm import relax

from ....fixes.torch_importer import PROMOTION
from ....support import switches
from ...dtypes import accumulation_dtype, dtype_of
from ..call import Call, converts
from ..stock import STOCK
from ..values.operands import Kind, has_dtype, operand_of, operands_of, result_dtype

_BINARY: dict[str, tuple[Callable[..., relax.Expr], Callable[..., relax.Expr] | None]] = {
    "add": (relax.op.add, relax.op.logical_or),
    "add_": (relax.op.add, relax.op.logical_or),
    "sub": (relax.op.subtract, None),
    "mul": (relax.op.multiply, relax.op.logical_and),
    "mul_": (relax.op.multiply, relax.op.logical_and),
    "div": (relax.op.divide, None),
    "remainder": (relax.op.floor_mod, None),
    "fmod": (relax.op.mod, None),
    "max": (relax.op.maximum, relax.op.logical_or),
    "min": (relax.op.minimum, relax.op.logical_and),
    "maximum": (relax.op.maximum, relax.op.logical_or),
    "minimum": (relax.op.minimum, relax.op.logical_and),
    "atan2": (relax.op.atan2, None),
    "logaddexp": (relax.op.log_add_exp, None),
    "bitwise_and": (relax.op.bitwise_and, relax.op.logical_and),
    "bitwise_or": (relax.op.bitwise_or, relax.op.logical_or),
    "bitwise_or_": (relax.op.bitwise_or, relax.op.logical_or),
    "bitwise_xor": (relax.op.bitwise_xor, relax.op.logical_xor),
    "__and__": (relax.op.bitwise_and, relax.op.logical_and),
    "__or__": (relax.op.bitwise_or, relax.op.logical_or),
    "__xor__": (relax.op.bitwise_xor, relax.op.logical_xor),
    "eq": (relax.op.equal, None),
    "ne": (relax.op.not_equal, None),
    "ge": (relax.op.greater_equal, None),
    "gt": (relax.op.greater, None),
    "le": (relax.op.less_equal, None),
    "lt": (relax.op.less, None),
}
"""For each operator, those of Relax for numbers and for booleans, if there is one."""
# Integers become floating-point numbers.
_FLOATING = ("div", "atan2")
# PyTorch computes these powers as roots, so that of -inf is NaN, except in float16.
_ROOTS = {0.5: relax.op.sqrt, -0.5: relax.op.rsqrt}
# For an overload without a converter in TVM, one whose converter reads the same arguments.
_STOCK_OVERLOADS = {"Scalar_Tensor": "Tensor", "dim_int": "default"}
_BINARY_OVERLOADS = ("Tensor", "Scalar", "Scalar_Tensor", "default", "other")

_FLOATING_UNARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "expm1"),
    *("log", "log2", "log10", "log1p", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt"),
    *("tan", "tanh"),
)
_SUMS = ("cumprod.default", "cumsum.default", "prod.default", "sum.default", "sum.dim_IntList")
_FILLS = {"empty_like": 0, "zeros_like": 0, "new_zeros": 0, "ones_like": 1, "new_ones": 1}


def _binary_overloads(*, in_stock: bool) -> list[str]:
    """The overloads for which TVM has a converter, or only for that of tensors."""
    keys = (f"{name}.{overload}" for name in _BINARY for overload in _BINARY_OVERLOADS)
    return [
        key
        for key in keys
        if key not in ("max.default", "min.default")
        and (key in STOCK) == in_stock
        and key.replace("Scalar_Tensor", "Tensor") in STOCK
    ]


@converts(*_binary_overloads(in_stock=True), place="promotion", fix=PROMOTION)
@converts(*_binary_overloads(in_stock=False), fix=PROMOTION)
def convert_binary(call: Call) -> relax.Expr:
    """Convert an operator of two operands in the dtype that PyTorch promotes them to."""
    name = call.operator.partition(".")[0]
    operands = call.operands[:2]
    alpha = call.attributes.get("alpha", 1)
    kind = Kind.INT_TO_FLOAT if name in _FLOATING else Kind.DEFAULT
    dtype = result_dtype(call, kind, *call.node.args[:2])
    is_plain = alpha == 1 and dtype != "bool"
    if is_plain and all(has_dtype(operand, dtype) for operand in operands):
        return _with_stock_overload(call).proceed()
    switches.note(PROMOTION)
    op, boolean_op = _BINARY[name]
    if dtype == "bool" and boolean_op is not None:
        op = boolean_op
    elif dtype == "bool":
        # A comparison: TVM's code generator does not compare booleans.
        dtype = "int8"
    # With a factor, PyTorch rounds the result to 16 bits, and not the product.
    inner = dtype if alpha == 1 else accumulation_dtype(dtype)
    lhs, rhs = (operand_of(call, operand, inner) for operand in operands)
    if alpha != 1:
        factor = operand_of(call, alpha, inner)
        rhs = call.emit(relax.op.multiply(rhs, factor))
    result = call.emit(op(lhs, rhs))
    # The result of a comparison is a boolean in any case.
    return result if inner == dtype else call.astype(result, dtype)


def _with_stock_overload(call: Call) -> Call:
    """The call, of an overload that TVM has a converter for."""
    if call.operator in STOCK:
        return call
    name, _, overload = call.operator.partition(".")
    return replace(call, operator=f"{name}.{_STOCK_OVERLOADS[overload]}")


@converts(
    *(f"{name}.default" for name in _FLOATING_UNARY), *_SUMS, place="promotion", fix=PROMOTION
)
@converts("prod.dim_int", fix=PROMOTION)
def convert_in_dtype(call: Call) -> relax.Expr:
    """Cast the operand of a function or a sum to the dtype of the result."""
    x, *options = call.operands
    if dtype_of(x) != call.dtype:
        switches.note(PROMOTION)
        x = call.astype(x, call.dtype)
    return _with_stock_overload(call.with_operands(x, *options)).proceed()


@converts("bitwise_not.default", place="promotion", fix=PROMOTION)
def convert_bitwise_not(call: Call) -> relax.Expr:
    """Convert ``bitwise_not``; of booleans, it is the logical one."""
    [x] = call.operands
    if dtype_of(x) != "bool":
        return call.proceed()
    switches.note(PROMOTION)
    return call.emit(relax.op.logical_not(x))


@converts("pow.Scalar", "pow.Tensor_Scalar", "pow.Tensor_Tensor", place="promotion", fix=PROMOTION)
def convert_power(call: Call) -> relax.Expr:
    """Convert a power: of integers as products, and as a root if the exponent is 0.5 or -0.5."""
    dtype = result_dtype(call, Kind.BOOL_TO_LONG, *call.node.args)
    base, exponent = call.operands
    number = exponent if isinstance(exponent, int | float) else None
    if "int" in dtype and number is not None and number >= 0:
        switches.note(PROMOTION)
        return _integer_power(call, operand_of(call, base, dtype), int(number))
    if number in _ROOTS and dtype != "float16":
        switches.note(PROMOTION)
        return call.emit(_ROOTS[number](operand_of(call, base, dtype)))
    if all(has_dtype(operand, dtype) for operand in call.operands):
        return call.proceed()
    switches.note(PROMOTION)
    return call.emit(relax.op.power(*operands_of(call, dtype)))


def _integer_power(call: Call, base: relax.Expr, exponent: int) -> relax.Expr:
    """Emit a power of integers as products; TVM's ``power`` has no lowering for integers."""
    emit, result = call.emit, None
    while exponent:
        if exponent % 2:
            result = base if result is None else emit(relax.op.multiply(result, base))
        exponent //= 2
        if exponent:
            base = emit(relax.op.multiply(base, base))
    if result is None:
        return emit(relax.op.ones_like(base))
    return result


@converts("any.default", fix=PROMOTION, noted=True)
@converts("any.dim", "any.dims", place="promotion", fix=PROMOTION, noted=True)
def convert_any(call: Call) -> relax.Expr:
    """Convert ``any`` to a maximum of uint8; that of no elements is 0, which is False."""
    x, axis, keepdims = call.arguments(input=None, dim=None, keepdim=False)
    ones = call.astype(call.astype(x, "bool"), "uint8")
    largest = call.emit(relax.op.max(ones, axis, keepdims=keepdims))
    return call.astype(largest, "bool")


@converts(*(f"{name}.default" for name in _FILLS), place="promotion", fix=PROMOTION)
def convert_like(call: Call) -> relax.Expr:
    """Convert a tensor of zeros or ones in the shape of another, of any dtype."""
    dtype = call.dtype
    like, *sizes = call.operands
    if dtype_of(like) == dtype:
        return call.proceed()
    switches.note(PROMOTION)
    number = _FILLS[call.operator.removesuffix(".default")]
    shape = sizes[0] if sizes else like.ty.shape
    if not isinstance(shape, relax.Expr):
        shape = relax.ShapeExpr(shape)
    return call.emit(relax.op.full(shape, relax.const(number, dtype), dtype))


@converts("copy.default", place="promotion", fix=PROMOTION, noted=True)
def convert_copy(call: Call) -> relax.Expr:
    """Convert ``copy``: broadcast a number or a tensor to the shape and dtype of another."""
    like, value, *_ = call.operands
    source = operand_of(call, value, dtype_of(like))
    return call.emit(relax.op.broadcast_to(source, like.ty.shape))


@converts("clamp.default", "clamp.Tensor", place="promotion", fix=PROMOTION)
def convert_clamp(call: Call) -> relax.Expr:
    """Convert a clamp between numbers or tensors."""
    x, *bounds = call.arguments(input=None, min=None, max=None)
    limits = (call.node.kwargs.get(name) for name in ("min", "max"))
    dtype = result_dtype(call, Kind.DEFAULT, *call.node.args, *limits)
    plain = all(bound is None or isinstance(bound, int | float) for bound in bounds)
    if plain and "float" in dtype and dtype_of(x) == dtype:
        return call.proceed()
    # For a missing bound, TVM's clip uses infinity, which is not an integer.
    switches.note(PROMOTION)
    out = operand_of(call, x, dtype)
    for bound, op in zip(bounds, (relax.op.maximum, relax.op.minimum), strict=True):
        if bound is not None:
            out = call.emit(op(out, operand_of(call, bound, dtype)))
    return out


@converts("where.self", place="promotion", fix=PROMOTION)
def convert_where(call: Call) -> relax.Expr:
    """Convert a selection between tensors or numbers of any dtypes."""
    condition, *branches = call.operands
    dtype = result_dtype(call, Kind.DEFAULT, *call.node.args[1:])
    if all(isinstance(v, relax.Expr) and dtype_of(v) == dtype for v in branches):
        return call.proceed()
    switches.note(PROMOTION)
    lhs, rhs = (operand_of(call, branch, dtype) for branch in branches)
    return call.emit(relax.op.where(condition, lhs, rhs))


@converts("div.Scalar_mode", fix=PROMOTION)
@converts("div.Tensor_mode", "floor_divide.default", place="promotion", fix=PROMOTION)
def convert_rounded_quotient(call: Call) -> relax.Expr:
    """Convert ``div``, with or without a rounding mode, and ``floor_divide``."""
    operands = call.operands[:2]
    is_floor = call.operator.startswith("floor_divide")
    mode = "floor" if is_floor else call.attributes.get("rounding_mode")
    kind = Kind.INT_TO_FLOAT if mode is None else Kind.DEFAULT
    dtype = result_dtype(call, kind, *call.node.args[:2])
    if not all(has_dtype(operand, dtype) for operand in operands):
        switches.note(PROMOTION)
    lhs, rhs = (operand_of(call, operand, dtype) for operand in operands)
    emit = call.emit
    if mode == "floor":
        # PyTorch does not round a Python number to 16 bits, which could change the floor.
        inner = accumulation_dtype(dtype)
        lhs, rhs = (operand_of(call, operand, inner) for operand in operands)
        return call.astype(emit(relax.op.floor_divide(lhs, rhs)), dtype)
    quotient = emit(relax.op.divide(lhs, rhs))
    # A quotient of integers is already truncated.
    return emit(relax.op.trunc(quotient)) if mode == "trunc" and "float" in dtype else quotient


@converts("rsub.Tensor", "rsub.Scalar", place="promotion", fix=PROMOTION)
def convert_reversed_difference(call: Call) -> relax.Expr:
    """Convert ``other - alpha * x``."""
    *operands, alpha = call.arguments(input=None, other=None, alpha=1)
    dtype = result_dtype(call, Kind.DEFAULT, *call.node.args[:2])
    inner = dtype if alpha == 1 else accumulation_dtype(dtype)
    lhs, rhs = (operand_of(call, operand, inner) for operand in operands)
    emit = call.emit
    if alpha != 1:
        switches.note(PROMOTION)
        lhs = emit(relax.op.multiply(lhs, relax.const(alpha, inner)))
    return call.astype(emit(relax.op.subtract(rhs, lhs)), dtype)


@converts("full_like.default", place="promotion", fix=PROMOTION)
def convert_full_like(call: Call) -> relax.Expr:
    """Convert a fill in the shape of another tensor."""
    like, value, *_ = call.operands
    if has_dtype(value, call.dtype):
        return call.proceed()
    switches.note(PROMOTION)
    number = operand_of(call, value, call.dtype)
    return call.emit(relax.op.full_like(like, number, call.dtype))


@converts("scalar_tensor.default", place="promotion", fix=PROMOTION)
def convert_scalar_tensor(call: Call) -> relax.Expr:
    """Convert a number or a size to a tensor of rank 0."""
    value = call.operands[0]
    if not isinstance(call.node.args[0], fx.Node) and has_dtype(value, call.dtype):
        return call.proceed()
    switches.note(PROMOTION)
    return operand_of(call, value, call.dtype)
