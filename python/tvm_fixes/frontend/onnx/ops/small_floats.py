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
"""Casts from and to 8-bit and 4-bit floats.

TVM's kernels misinterpret the bits of these dtypes. So a cast from 8 bits looks up the value, and a
cast to 8 or 4 bits rounds the bits of a float32. A float32 carries a 4-bit float; see
:mod:`tvm_fixes.frontend.onnx.ops.narrow`.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from onnx import helper
from tvm import relax, te, tirx

from ....fixes.onnx_importer import OPERATORS
from ....support import switches
from ...dtypes import dtype_of
from ..call import Call, converts

__all__ = ["FLOAT4", "from_small", "is_small_float", "to_small"]

FLOAT4 = "float4_e2m1fn"
"""The 4-bit dtype, which has no infinities and no NaN."""

_SCALE = "float8_e8m0fnu"
"""The dtype whose numbers are the powers of two."""

_EXPONENT = 0x7F80_0000
"""The exponent bits of a float32: the bits of infinity."""


@dataclass(frozen=True)
class _Format:
    """How a dtype encodes magnitudes.

    Attributes
    ----------
    digits : int
        The number of bits of the fraction.
    least : int
        The exponent of the smallest normal number.
    largest, infinity, nan : int
        The codes of the largest number, of an overflow and of NaN.
    has_negative_zero : bool
        Whether zero has a sign; if not, NaN has none.
    sign : int
        The sign bit.
    """

    digits: int
    least: int
    largest: int
    infinity: int
    nan: int
    has_negative_zero: bool
    sign: int = 0x80


_FORMATS = {
    "float8_e4m3fn": _Format(3, -6, 0x7E, 0x7F, 0x7F, True),
    "float8_e4m3fnuz": _Format(3, -7, 0x7F, 0x80, 0x80, False),
    "float8_e5m2": _Format(2, -14, 0x7B, 0x7C, 0x7E, True),
    "float8_e5m2fnuz": _Format(2, -15, 0x7F, 0x80, 0x80, False),
    FLOAT4: _Format(1, 0, 7, 7, 0, True, sign=8),
}


def is_small_float(dtype: str) -> bool:
    """Whether `dtype` is an 8-bit or 4-bit float."""
    return dtype in _FORMATS or dtype == _SCALE


def from_small(builder: relax.BlockBuilder, data: relax.Expr) -> relax.Expr:
    """The values of a tensor of small floats as a float32 tensor."""
    if dtype_of(data) == "float32":  # the carrier of a 4-bit float
        return data
    values = _values(dtype_of(data))

    def decoded(data: te.Tensor, values: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            return values(tirx.reinterpret("uint8", data(*at)).astype("int32"))

        return te.compute(data.shape, element, name="decoded")

    return builder.emit_te(decoded, data, relax.const(values, "float32"))


def _values(dtype: str) -> np.ndarray:
    """The value of each code, in float32."""
    codes = np.arange(16 if dtype == FLOAT4 else 256, dtype="uint8")
    return codes.view(getattr(ml_dtypes, dtype)).astype("float32")


def _bits(number: int) -> tirx.Expr:
    return tirx.const(number, "int32")


def _encoded(value: tirx.Expr, form: _Format, saturate: bool) -> tirx.Expr:
    """The code of a float32, rounded to the nearest number, ties to even."""
    bits = tirx.reinterpret("int32", value)
    magnitude, is_negative = bits & _bits(0x7FFF_FFFF), bits < _bits(0)
    exponent = (magnitude >> _bits(23)) - _bits(127)
    significand = (magnitude & _bits(0x7F_FFFF)) | _bits(0x80_0000)
    below = tirx.max(_bits(form.least) - exponent, _bits(0))
    # A shift by 25 bits or more rounds every significand to 0.
    shift = tirx.min(_bits(23 - form.digits) + below, _bits(25))
    half, odd = _bits(1) << (shift - _bits(1)), (significand >> shift) & _bits(1)
    rounded = (significand + half - _bits(1) + odd) >> shift
    steps = tirx.max(exponent, _bits(form.least)) - _bits(form.least)
    # The leading bit of a normal number, or a carry of the rounding, increases the exponent.
    code = (steps << _bits(form.digits)) + rounded
    limit = form.largest if saturate else form.infinity
    code = tirx.Select(code > _bits(form.largest), _bits(limit), code)
    code = tirx.Select(magnitude > _bits(_EXPONENT), _bits(form.nan), code)
    signed = tirx.all(is_negative, tirx.const(form.has_negative_zero, "bool") | (code > _bits(0)))
    return tirx.Select(signed, code | _bits(form.sign), code)


def _encoded_scale(value: tirx.Expr, saturate: bool, rounding: str) -> tirx.Expr:
    """The code of the power of two near the magnitude of a float32: its rounded exponent."""
    bits = tirx.reinterpret("int32", value) & _bits(0x7FFF_FFFF)
    exponent, fraction = bits >> _bits(23), bits & _bits(0x7F_FFFF)
    if rounding == "down":
        goes_up = tirx.const(False, "bool")
    elif rounding == "up":
        goes_up = fraction > _bits(0)
    else:
        # A tie rounds up, except below the smallest normal number.
        half = _bits(0x40_0000)
        goes_up = tirx.any(fraction > half, tirx.all(fraction == half, exponent > _bits(0)))
    last = _bits(254 if saturate else 255)
    code = tirx.Select(goes_up, tirx.min(exponent + _bits(1), last), exponent)
    return tirx.Select(exponent == _bits(255), exponent, code)


def to_small(
    builder: relax.BlockBuilder,
    data: relax.Expr,
    dtype: str,
    saturate: bool,
    rounding: str = "up",
) -> relax.Expr:
    """Convert a tensor to 8-bit floats, or to 4-bit floats in float32.

    Parameters
    ----------
    saturate : bool
        Whether numbers that are too large become the largest number, instead of infinity or NaN.
    rounding : str
        ``"up"``, ``"down"`` or ``"nearest"``; only for ``float8_e8m0fnu``: others round to nearest.
    """
    if dtype_of(data) != "float32":
        data = builder.emit(relax.op.astype(data, "float32"))

    def encoded(data: te.Tensor, *values: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            if dtype == _SCALE:
                code = _encoded_scale(data(*at), saturate, rounding)
            else:
                code = _encoded(data(*at), _FORMATS[dtype], saturate)
            return values[0](code) if values else tirx.reinterpret(dtype, code.astype("uint8"))

        return te.compute(data.shape, element, name="encoded")

    values = [relax.const(_values(dtype), "float32")] if dtype == FLOAT4 else []
    return builder.emit_te(encoded, data, *values)


@converts("Cast", "CastLike", place="small floats", fix=OPERATORS)
def convert_small_cast(call: Call) -> relax.Expr:
    """Convert a Cast or CastLike from or to 8-bit floats.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attribute round_mode is unknown.
    """
    if call.operator == "Cast":
        target = str(helper.tensor_dtype_to_np_dtype(call.attributes["to"]))
    else:
        target = dtype_of(call.operands[1])
    data = call.operands[0]
    if not (is_small_float(target) or is_small_float(dtype_of(data))):
        return call.proceed()
    switches.note(OPERATORS)
    rounding = call.text("round_mode", "up")
    if rounding not in ("up", "down", "nearest"):
        raise call.invalid("attribute round_mode", rounding, "expected up, down or nearest")
    if dtype_of(data) == target:
        return data
    if is_small_float(dtype_of(data)):
        data = from_small(call.builder, data)
    if is_small_float(target):
        return to_small(
            call.builder, data, target, bool(call.attributes.get("saturate", 1)), rounding
        )
    return data if target == "float32" else relax.op.astype(data, target)
