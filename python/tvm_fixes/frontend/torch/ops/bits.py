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
"""The bits of floating-point numbers: signs, adjacent numbers, exponents and reinterpretation."""

from typing import Any

import tvm
from tvm import relax, te, tirx

from ....errors import OpNotImplemented
from ....fixes.torch_importer import DECOMPOSITIONS
from ....support import switches
from ...dtypes import dtype_of
from ..call import Call, converts
from ..values.operands import operands_of

# The dtype of the bits, and the number of bits of the mantissa.
_FORMATS = {"float32": ("int32", 23), "float64": ("int64", 52)}


def _elementwise(call: Call, name: str, function: Any, *inputs: relax.Expr) -> relax.Expr:
    """Emit ``function`` of the elements of tensors, which broadcast."""
    switches.note(DECOMPOSITIONS)
    emit = call.emit
    if len(inputs) > 1:
        shape = call.builder.normalize(relax.op.add(*inputs)).ty.shape
        inputs = tuple(emit(relax.op.broadcast_to(x, shape)) for x in inputs)

    def compute(*tensors: te.Tensor) -> te.Tensor:
        return te.compute(
            tensors[0].shape, lambda *at: function(*(t(*at) for t in tensors)), name=name
        )

    return call.builder.emit_te(compute, *inputs, primfunc_name_hint=name)


def _sign_bit(call: Call, x: relax.Expr) -> relax.Expr:
    dtype = dtype_of(x)
    emit = call.emit
    if "float" not in dtype:
        x = call.astype(x, "int8") if dtype == "bool" else x
        return emit(relax.op.less(x, relax.const(0, dtype_of(x))))
    if dtype not in _FORMATS:
        x = call.astype(x, "float32")
    bits = _FORMATS[dtype_of(x)][0]
    return _elementwise(call, "signbit", lambda e: tirx.reinterpret(bits, e) < 0, x)


@converts("signbit.default", fix=DECOMPOSITIONS)
def convert_signbit(call: Call) -> relax.Expr:
    """Convert the sign of numbers, which 0 and NaN have, too."""
    return _sign_bit(call, *call.operands)


@converts("copysign.Tensor", "copysign.Scalar", fix=DECOMPOSITIONS)
def convert_copysign(call: Call) -> relax.Expr:
    """Convert the magnitude of one operand with the sign of the other."""
    emit, dtype = call.emit, call.dtype
    x, sign = operands_of(call, dtype)
    magnitude = emit(relax.op.abs(x))
    negative = emit(relax.op.negative(magnitude))
    return emit(relax.op.where(_sign_bit(call, sign), negative, magnitude))


@converts("view.dtype", fix=DECOMPOSITIONS)
def convert_view_as(call: Call) -> relax.Expr:
    """Convert a view of the bits as another dtype."""
    [x, _], dtype = call.operands, call.dtype
    source = dtype_of(x)
    if source == dtype:
        return x
    widths = [tvm.DataType(name).bits for name in (source, dtype)]
    if widths[0] != widths[1] or "bool" in (source, dtype):
        raise OpNotImplemented(
            f"{call.where}: a view of {source} as {dtype}; "
            f"expected dtypes of the same number of bits"
        )
    return _elementwise(call, "view", lambda e: tirx.reinterpret(dtype, e), x)


@converts("frexp.Tensor", fix=DECOMPOSITIONS)
def convert_frexp(call: Call) -> relax.Expr:
    """Convert ``frexp``: a fraction in [0.5, 1) and an exponent of 2."""
    [x] = call.operands
    dtype = dtype_of(x)
    # In float64 all numbers of the other dtypes are normal.
    if dtype == "float64":
        raise OpNotImplemented(f"{call.where}: the dtype is float64; expected a narrower dtype")
    widened = call.astype(x, "float64")

    def exponent(e: tirx.Expr) -> tirx.Expr:
        bits = tirx.reinterpret("int64", e)
        field = (bits >> 52) & tirx.const(2047, "int64")
        is_number = tirx.all(field != 0, field != 2047)
        return tirx.Select(is_number, (field - 1022).astype("int32"), tirx.const(0, "int32"))

    def fraction(e: tirx.Expr) -> tirx.Expr:
        bits = tirx.reinterpret("int64", e)
        field = (bits >> 52) & tirx.const(2047, "int64")
        is_number = tirx.all(field != 0, field != 2047)
        kept = bits & ~tirx.const(2047 << 52, "int64")
        scaled = tirx.reinterpret("float64", kept | tirx.const(1022 << 52, "int64"))
        return tirx.Select(is_number, scaled, e)

    fractions = call.astype(_elementwise(call, "fraction", fraction, widened), dtype)
    return relax.Tuple([fractions, _elementwise(call, "exponent", exponent, widened)])


@converts("nextafter.default", fix=DECOMPOSITIONS)
def convert_nextafter(call: Call) -> relax.Expr:
    """Convert the next number toward another."""
    dtype = call.dtype
    if dtype not in _FORMATS:
        raise OpNotImplemented(
            f"{call.where}: the dtype is {dtype}; expected one of {', '.join(_FORMATS)}"
        )
    bits = _FORMATS[dtype][0]
    x, y = operands_of(call, dtype)

    def neighbor(e: tirx.Expr, goal: tirx.Expr) -> tirx.Expr:
        number, one = tirx.reinterpret(bits, e), tirx.const(1, bits)
        # The bits of larger magnitudes are larger integers.
        away = tirx.any(tirx.all(goal > e, e > 0.0), tirx.all(goal < e, e < 0.0))
        next_number = tirx.Select(away, number + one, number - one)
        smallest = tirx.reinterpret(dtype, one)
        from_zero = tirx.Select(goal > e, smallest, -smallest)
        moved = tirx.Select(e == 0.0, from_zero, tirx.reinterpret(dtype, next_number))
        kept = tirx.Select(e == goal, goal, moved)
        # The sum of NaN and any number is NaN.
        return tirx.Select(tirx.any(tirx.isnan(e), tirx.isnan(goal)), e + goal, kept)

    return _elementwise(call, "nextafter", neighbor, x, y)
