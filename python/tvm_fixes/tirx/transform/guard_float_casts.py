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
"""Casts of floats that do not fit the integer that they are cast to.

Mechanism
    The cast becomes LLVM's ``fptoui`` or ``fptosi``, which are undefined out of range: an
    instruction for a vector saturates where that for a scalar wraps around.
How to remove
    When TVM passes the tests of this file, delete it, its tests, its line in
    :mod:`tvm_fixes.pipeline` and the sentence on casts of the fix id ``float-arithmetic``.
"""

import math
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import tirx
from tvm_ffi import structural_equal, structural_map, structural_walk

from ...fixes.elements import FLOAT_ARITHMETIC as FIX_ID
from ..util import prim_func_pass

_EXACT_BITS = 16
"""The bits of an integer that is exact in float32."""

_ROUNDINGS = ("tirx.floor", "tirx.ceil", "tirx.round", "tirx.trunc", "tirx.nearbyint")


@dataclass(frozen=True)
class _Range:
    """The bounds of a float, and whether it may be NaN instead."""

    low: float = -math.inf
    high: float = math.inf
    may_be_nan: bool = True

    def fits(self, kind: str, bits: int) -> bool:
        """Whether each number is in the range of an integer dtype."""
        low = -(2.0 ** (bits - 1)) if kind == "int" else 0.0
        high = 2.0 ** (bits - 1) if kind == "int" else 2.0**bits
        return low - 1 < self.low and self.high < high


_UNKNOWN = _Range()


def GuardFloatCasts() -> tvm.transform.Pass:
    """Give a cast of a float to an integer the same value for every element and target.

    Before::

        y[i] = T.Cast("uint8", x[i])

    and after::

        y[i] = T.Cast("uint8", T.Select(T.fabs(x[i]) < 2**31, T.Cast("int32", x[i]), -(2**31)))

    This is the value of PyTorch's and ONNX Runtime's kernels on x86-64, element by element.  The
    number is rounded toward zero, to int64 if the result is int64, uint32 or uint64, or if float64
    becomes uint8, else to int32.  A NaN, an infinity or a number out of that range becomes its
    smallest integer.  The bits of that integer that the result has no place for are dropped.
    From 2**63 to 2**64, uint64 has the number itself, and 0 above.

    A cast of a number whose bounds are known from ``T.min`` and ``T.max`` is unchanged, as the last
    step of a quantization.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs.  Run it before ``LowerElementaryFunctions``, whose casts
        are in range.
    """
    return prim_func_pass("GuardFloatCasts", FIX_ID, _guard, any_target=True)


def _guard(function: tirx.PrimFunc, _target: tvm.target.Target) -> tirx.PrimFunc:
    return structural_map(function, (tirx.Cast, _guarded))


def _guarded(cast: tirx.Cast) -> tirx.Expr:
    source, (kind, bits, lanes) = str(cast.value.ty), _parts(str(cast.ty))
    if "float" not in source or "float8" in source or kind not in ("int", "uint") or bits < 8:
        return cast
    if isinstance(cast.value, tirx.FloatImm):
        return tirx.const(int(wrapped(float(cast.value.value), f"{kind}{bits}")), str(cast.ty))
    known = _range_of(cast.value)
    if known.fits(kind, bits):
        return _unless_nan(cast, known) if known.may_be_nan else cast
    value, is_float64 = cast.value, source.startswith("float64")
    if not is_float64 and not source.startswith("float32"):
        value = tirx.Cast(_typed("float32", lanes), value)
    if _needs_variable(value):
        variable = tirx.Var("value", value.ty)
        return tirx.Let(variable, value, _wrapped(variable, kind, bits, lanes))
    return _wrapped(value, kind, bits, lanes)


def _unless_nan(cast: tirx.Cast, known: _Range) -> tirx.Expr:
    """A cast of a number that is in range, or NaN."""
    value, dtype = cast.value, str(cast.ty)
    kind, bits, _ = _parts(dtype)
    of_nan = int(wrapped(math.nan, f"{kind}{bits}"))
    operands = _extremum_of(value) if isinstance(value, tirx.Select) else None
    if operands is not None and not operands[2] and known.low == of_nan:
        # A maximum with the value of NaN, such as a clip to uint8, can have it for NaN.
        return tirx.Cast(dtype, tirx.Max(operands[1], operands[0]))
    lowest = tirx.const(known.low, str(value.ty))
    return tirx.Select(value >= lowest, cast, tirx.const(of_nan, dtype))


def rounded_dtype(source: str, target: str) -> str:
    """The integer dtype to which a cast from `source` to the integer `target` rounds a number."""
    kind, bits, _ = _parts(target)
    return f"int{_intermediate(kind, bits, is_double=source.startswith('float64'))}"


def wrapped(numbers: np.ndarray | float, dtype: str) -> np.ndarray:
    """The casts of numbers, which are floats of any width, to an integer dtype."""
    kind, bits, _ = _parts(dtype)
    float64 = np.asarray(numbers, "float64")
    limit = 2.0 ** (_intermediate(kind, bits, is_double=True) - 1)
    in_range = np.where(np.abs(float64) < limit, float64, -limit)
    in_range_casts = in_range.astype("int64").astype(dtype)
    if (kind, bits) != ("uint", 64):
        return in_range_casts
    above = np.where(float64 < 2 * limit, float64, limit) - limit
    upper = np.maximum(above, 0).astype("int64").astype(dtype) + np.uint64(limit)
    return np.where(
        float64 >= limit, np.where(float64 < 2 * limit, upper, np.uint64(0)), in_range_casts
    )


def _wrapped(value: tirx.Expr, kind: str, bits: int, lanes: int) -> tirx.Expr:
    dtype = str(value.ty)
    whole = _intermediate(kind, bits, is_double=dtype.startswith("float64"))
    limit = tirx.const(2.0 ** (whole - 1), dtype)
    signed = _typed(f"int{whole}", lanes)
    # Vectors of zeros are faster to select; the lower bits of the smallest integer are zeros.
    smallest = tirx.const(0 if bits < whole else -(2 ** (whole - 1)), signed)
    in_range = tirx.abs(value) < limit
    rounded = tirx.Select(in_range, tirx.Cast(signed, value), smallest)
    result = _typed(f"{kind}{bits}", lanes)
    if (kind, bits) != ("uint", 64):
        return rounded if result == signed else tirx.Cast(result, rounded)
    # The upper half of uint64 has the bits of the negative int64; the difference is exact.
    above = value - limit
    upper = tirx.Cast(result, tirx.Cast(signed, above) + smallest)
    zero = tirx.const(0, result)
    large = tirx.Select(above < limit, upper, zero)
    return tirx.Select(value >= limit, large, tirx.Cast(result, rounded))


def _intermediate(kind: str, bits: int, *, is_double: bool) -> int:
    """The bits of the signed integer that a number is rounded to.

    A float32 beyond int32 is a multiple of 256, so an 8-bit integer is 0 either way.
    """
    if bits == 64 or (kind == "uint" and bits == 32):
        return 64
    return 64 if kind == "uint" and bits == 8 and is_double else 32


def _parts(dtype: str) -> tuple[str, int, int]:
    """The kind, the bits and the lanes of a dtype."""
    element, _, lanes = dtype.partition("x")
    kind = element.rstrip("0123456789")
    return kind, int(element[len(kind) :] or 0), int(lanes or 1)


def _typed(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"{element}x{lanes}"


def _needs_variable(value: tirx.Expr) -> bool:
    """Whether an expression has guarded casts itself: two reads of each would double the code.

    TVM's legalization of bfloat16 does not support a variable within an expression.
    """
    casts: list[tirx.Cast] = []
    structural_walk(value, (tirx.Cast, casts.append))
    if any("bfloat16" in str(cast.value.ty) for cast in casts):
        return False
    return any("float" in str(c.value.ty) and "float" not in str(c.ty) for c in casts)


def _range_of(value: tirx.Expr) -> _Range:
    """The range of a float."""
    if isinstance(value, tirx.Broadcast):
        return _range_of(value.value)
    if isinstance(value, tirx.FloatImm):
        number = float(value.value)
        return _UNKNOWN if math.isnan(number) else _Range(number, number, may_be_nan=False)
    if isinstance(value, tirx.Cast):
        return _range_of_cast(value)
    # Of a NaN as first operand, TVM's minimum and maximum are the second one.
    if isinstance(value, tirx.Min | tirx.Max):
        return _range_of_extremum(value.a, value.b, is_minimum=isinstance(value, tirx.Min))
    if isinstance(value, tirx.Select):
        return _range_of_select(value)
    if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
        known = _range_of(value.args[0]) if value.op.name in _ROUNDINGS else _UNKNOWN
        if math.isfinite(known.low) and math.isfinite(known.high):
            return _Range(math.floor(known.low), math.ceil(known.high), known.may_be_nan)
    return _UNKNOWN


def _range_of_cast(cast: tirx.Cast) -> _Range:
    kind, bits, _ = _parts(str(cast.value.ty))
    if "float" in kind:
        return _range_of(cast.value) if "float16" not in str(cast.ty) else _UNKNOWN
    if str(cast.ty).startswith(("float32", "float64")) and kind in ("int", "uint", "bool"):
        low = -(2.0 ** (bits - 1)) if kind == "int" else 0.0
        high = 2.0 ** (bits - 1) if kind == "int" else 2.0 ** max(bits, 1)
        # Rounding may reach the power of two.
        high -= bits <= _EXACT_BITS
        return _Range(low, high, may_be_nan=False)
    return _UNKNOWN


def _range_of_extremum(first: tirx.Expr, second: tirx.Expr, *, is_minimum: bool) -> _Range:
    """The range of a minimum or maximum that is the second operand if one is NaN."""
    extremum = min if is_minimum else max
    a, b = _range_of(first), _range_of(second)
    return _Range(extremum(a.low, b.low), extremum(a.high, b.high), b.may_be_nan)


def _range_of_select(select: tirx.Select) -> _Range:
    operands = _extremum_of(select)
    if operands is not None:
        return _range_of_extremum(*operands[:2], is_minimum=operands[2])
    a, b = _range_of(select.true_value), _range_of(select.false_value)
    return _Range(min(a.low, b.low), max(a.high, b.high), a.may_be_nan or b.may_be_nan)


def _extremum_of(select: tirx.Select) -> tuple[tirx.Expr, tirx.Expr, bool] | None:
    """The chosen and the other operand of ``a if a < b else b``, and whether it is the minimum."""
    condition, chosen, other = select.condition, select.true_value, select.false_value
    if not isinstance(condition, tirx.LT | tirx.LE | tirx.GT | tirx.GE):
        return None
    is_less = isinstance(condition, tirx.LT | tirx.LE)
    for a, b, is_minimum in (
        (condition.a, condition.b, is_less),
        (condition.b, condition.a, not is_less),
    ):
        if _same(a, chosen) and _same(b, other):
            return chosen, other, is_minimum
    return None


def _same(a: tirx.Expr, b: tirx.Expr) -> bool:
    return a.same_as(b) or structural_equal(a, b)
