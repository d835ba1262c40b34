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
"""Elementwise operators, and SpaceToDepth.

Trigger
    IsInf with detect_negative or detect_positive 0; Pow of integers, or of two dtypes; Mod of
    floating-point infinities and signed zeros; BitShift by the width of the dtype or more; Mish and
    Softplus of negative numbers; casts from and to 8-bit floats, and of infinities and NaN to
    integers; the mask of Dropout, and Dropout in training; SpaceToDepth in mode CRD.
Mechanism
    The converters ignore the attributes, use ``relax.power`` and ``floor_mod``, whose semantics
    differ from ONNX's, compute ``log(1 + exp(x))``, cast numbers that are not finite as 0, and
    convert every Dropout to the identity.
"""

import re

import numpy as np
import tvm
from onnx import helper
from tvm import relax

from ....fixes.onnx_importer import ELEMENTWISE
from ....support import switches
from ....tirx.transform.guard_float_casts import rounded_dtype, wrapped
from ...dtypes import accumulation_dtype, dtype_of
from ..call import Call, converts, extents_of

_NARROW = re.compile(r"float[468]_|u?int[24]$")
_INTEGER = re.compile(r"u?int(8|16|32|64)$")


def _is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


@converts("IsInf", fix=ELEMENTWISE)
def convert_is_inf(call: Call) -> relax.Expr:
    """Convert an IsInf that detects only the infinities of the requested signs."""
    negative, positive = (
        call.attributes.get(f"detect_{sign}", 1) for sign in ("negative", "positive")
    )
    if negative and positive:
        return call.proceed()
    switches.note(ELEMENTWISE)
    data = call.operands[0]
    zero = relax.const(0, dtype_of(data))
    if negative:
        has_sign = relax.op.less(data, zero)
    elif positive:
        has_sign = relax.op.greater(data, zero)
    else:
        has_sign = relax.op.less(data, data)
    return relax.op.logical_and(relax.op.isinf(data), call.emit(has_sign))


@converts("Mish", fix=ELEMENTWISE)
def convert_mish(call: Call) -> relax.Expr:
    r"""Convert a Mish, :math:`x \tanh(\ln(1 + e^x))`.

    With :math:`e = e^x` and :math:`n = e (e + 2)` this equals :math:`x n / (n + 2)`, which is free
    of cancellation.  For `x` above 20 the result is `x` in float32 and narrower dtypes; clamping
    the argument of the exponential there avoids an overflow.
    """
    data = call.operands[0]
    dtype = dtype_of(data)
    if dtype not in ("float16", "bfloat16", "float32"):
        return call.proceed()
    switches.note(ELEMENTWISE)
    wide = call.emit(relax.op.astype(data, "float32"))
    two = relax.const(2, "float32")
    e = call.emit(relax.op.exp(relax.op.minimum(wide, relax.const(20, "float32"))))
    n = call.emit(relax.op.multiply(e, relax.op.add(e, two)))
    out = relax.op.multiply(wide, relax.op.divide(n, relax.op.add(n, two)))
    return relax.op.astype(out, dtype)


@converts("Mod", fix=ELEMENTWISE)
def convert_mod(call: Call) -> relax.Expr:
    """Convert a Mod of floating-point numbers with the sign of the divisor.

    The remainder with the sign of the dividend is exact.  If its sign differs from the divisor's,
    the divisor is added.  A zero gets the sign of the divisor, as in NumPy's ``mod``.
    """
    lhs, rhs = call.operands
    dtype = dtype_of(lhs)
    if call.attributes.get("fmod", 0) or not _is_floating(dtype):
        return call.proceed()
    switches.note(ELEMENTWISE)
    zero = relax.const(0, dtype)
    remainder = call.emit(relax.op.mod(lhs, rhs))
    negative = call.emit(relax.op.less(rhs, zero))
    # Use xor: TVM's LLVM codegen does not support ``!=`` of booleans.
    unlike = relax.op.logical_xor(relax.op.less(remainder, zero), negative)
    moved = relax.op.where(unlike, relax.op.add(remainder, rhs), remainder)
    signed_zero = relax.op.where(negative, relax.const(-0.0, dtype), zero)
    return relax.op.where(relax.op.equal(remainder, zero), signed_zero, moved)


@converts("Pow", fix=ELEMENTWISE)
def convert_pow(call: Call) -> relax.Expr:
    """Convert a Pow; the result has the dtype of the base.

    Integer powers, and powers whose base and exponent have different dtypes, are computed in
    float64, as in ONNX Runtime.
    """
    base, exponent = call.operands
    dtype = dtype_of(base)
    if _is_floating(dtype) and dtype == dtype_of(exponent):
        return call.proceed()
    switches.note(ELEMENTWISE)
    operands = (call.emit(relax.op.astype(value, "float64")) for value in (base, exponent))
    return relax.op.astype(relax.op.power(*operands), dtype)


@converts("BitShift", fix=ELEMENTWISE)
def convert_bit_shift(call: Call) -> relax.Expr:
    """Convert a BitShift; a shift by the width of the dtype or more shifts out all bits."""
    data, count = call.operands
    dtype = dtype_of(data)
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    switches.note(ELEMENTWISE)
    signed = not dtype.startswith("u")
    zero = relax.const(0, dtype)
    left = call.text("direction", "") == "LEFT"
    shift = relax.op.left_shift if left else relax.op.right_shift
    in_range = relax.op.less(count, relax.const(bits, dtype))
    if signed:
        not_negative = relax.op.greater_equal(count, zero)
        in_range = relax.op.logical_and(in_range, not_negative)
    in_range = call.emit(in_range)
    shifted = shift(data, relax.op.where(in_range, count, zero))
    rest = zero
    if signed and not left:
        rest = relax.op.where(relax.op.less(data, zero), relax.const(-1, dtype), zero)
    return relax.op.where(in_range, shifted, rest)


@converts("Softplus", fix=ELEMENTWISE)
def convert_softplus(call: Call) -> relax.Expr:
    r"""Convert a Softplus, :math:`\ln(1 + e^x) = \max(x, 0) + \ln(1 + e^{-|x|})`.

    With :math:`e = e^{-|x|}` and :math:`u = 1 + e`, the logarithm is computed as
    :math:`e \ln(u) / (u - 1)`, in which the rounding error of `u` cancels, and as `e` if `u` rounds
    to 1 (W. Kahan).
    """
    data = call.operands[0]
    dtype = dtype_of(data)
    switches.note(ELEMENTWISE)
    wide_dtype = accumulation_dtype(dtype)
    wide = call.emit(relax.op.astype(data, wide_dtype))
    one, zero = relax.const(1, wide_dtype), relax.const(0, wide_dtype)
    e = call.emit(relax.op.exp(relax.op.negative(relax.op.abs(wide))))
    u = call.emit(relax.op.add(one, e))
    is_one = relax.op.equal(u, one)
    less = relax.op.where(is_one, one, relax.op.subtract(u, one))
    log = relax.op.where(is_one, e, relax.op.divide(relax.op.multiply(e, relax.op.log(u)), less))
    return relax.op.astype(relax.op.add(relax.op.maximum(wide, zero), log), dtype)


@converts("Cast", "CastLike", fix=ELEMENTWISE)
def convert_cast(call: Call) -> relax.Expr:
    """Convert a Cast or CastLike.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If it is from or to floats of 8 bits or fewer, or integers of fewer than 8 bits; TVM
        misinterprets their bits as those of other dtypes.

    Notes
    -----
    ONNX leaves the integers of infinities, NaN and numbers out of range undefined.  They are those
    of ONNX Runtime on x86-64 for a single element (``GuardFloatCasts``), for every pair of dtypes.
    """
    source = dtype_of(call.operands[0])
    if call.operator == "Cast":
        target = str(helper.tensor_dtype_to_np_dtype(call.attributes["to"]))
    else:
        target = dtype_of(call.operands[1])
    narrow = [dtype for dtype in (source, target) if _NARROW.match(dtype)]
    if narrow and source != "float8_e8m0fnu":
        reason = "expected numbers of 8 bits or more, and floats of 16 or more"
        raise call.invalid("cast", f"{source} to {target}", reason)
    data = call.operands[0]
    if not _is_floating(source) or not _INTEGER.match(target) or tvm.ir.is_prim_expr(data):
        return call.proceed()
    switches.note(ELEMENTWISE)
    # PyTorch rounds a float64 to int64 for uint8, ONNX Runtime to int32.
    middle = "int32" if target == "uint8" else rounded_dtype(source, target)
    if isinstance(data, tvm.ir.GenericConst):
        numbers = wrapped(data.value.numpy(), target if target == "uint64" else middle)
        return relax.const(numbers.astype(target), target)
    # This order is defined for negative numbers in TVM's pipeline, too.
    if target not in (middle, "uint64"):
        data = call.emit(relax.op.astype(data, middle))
    return relax.op.astype(data, target)


@converts("SpaceToDepth", fix=ELEMENTWISE)
def convert_space_to_depth(call: Call) -> relax.Expr:
    """Convert a SpaceToDepth; in mode CRD the channels come before the positions in a block.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the mode is unknown; in mode CRD, also if the shape of X is unknown.
    """
    mode = call.text("mode", "DCR")
    if mode == "DCR":
        return call.proceed()
    data = call.operands[0]
    extents = extents_of(data)
    if mode != "CRD" or extents is None:
        raise call.invalid("attribute mode", mode, "expected DCR, or CRD and X of known shape")
    switches.note(ELEMENTWISE)
    block = call.attributes["blocksize"]
    n, c, h, w = extents
    blocks = relax.op.reshape(data, (n, c, h // block, block, w // block, block))
    moved = relax.op.permute_dims(call.emit(blocks), [0, 1, 3, 5, 2, 4])
    return relax.op.reshape(call.emit(moved), (n, c * block * block, h // block, w // block))


@converts("Dropout", fix=ELEMENTWISE)
def convert_dropout(call: Call) -> relax.Expr:
    """Convert a Dropout that drops nothing.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If it drops elements in training mode, or training_mode is not a constant.
    """
    data, mode = call.operands[0], call.operand(2)
    if mode is not None:
        training = call.constant(2)
        ratio = call.constant(1) if call.operand(1) is not None else np.array(0.5)
        drops_nothing = ratio is not None and ratio.item() == 0
        if training is None or (training.item() and not drops_nothing):
            value = mode if training is None else training.item()
            raise call.invalid("operand training_mode", value, "expected a constant false")
    if call.outputs < 2:
        return call.proceed()
    switches.note(ELEMENTWISE)
    extents = extents_of(data)
    if extents is None:
        raise call.invalid("type of data", data.ty, "expected a known shape for the mask")
    mask_dtype = "bool" if call.version >= 10 else dtype_of(data)
    mask = relax.op.full(extents, relax.const(1, mask_dtype), mask_dtype)
    return relax.Tuple([data, call.emit(mask)])
