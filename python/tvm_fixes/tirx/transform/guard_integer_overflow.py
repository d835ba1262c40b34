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
"""GuardIntegerOverflow: integers that overflow wrap around, even in comparisons.

Mechanism
    TVM's simplifier takes integers as unbounded, and its code generator for LLVM marks sums of 32
    and 64 bits as not overflowing, even unsigned ones.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import structural_equal, structural_map, structural_walk

from ...fixes.elements import INTEGER_OVERFLOW as FIX_ID
from ..elementary.expressions import opaque
from ..loop_nest import uses
from ..loop_partition import branches_of, with_branches
from ..util import prim_func_pass

# The number of bits from which LLVM may assume that arithmetic does not overflow.
_MARKED_BITS = 32

_SUMS = (tirx.Add, tirx.Sub, tirx.Mul)
_WRAPPING = (*_SUMS, tirx.LShift)
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_BITS = (tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift)
# The results of these may need more bits than their operands have.
_PROMOTED = (*_SUMS, tirx.Div, tirx.FloorDiv, tirx.LShift, tirx.BitwiseNot)
_READERS = (
    *(*_COMPARISONS, *_DIVISIONS, *_SUMS, *_BITS, tirx.BitwiseNot, tirx.Min, tirx.Max),
    *(tirx.Cast, tirx.Select, tvm.ir.Call, tirx.Bind, tirx.Let),
)


def GuardIntegerOverflow() -> tvm.transform.Pass:
    """Let integer arithmetic on data overflow where its result is compared or divided.

    Before::

        y[i] = x[i] + 1 > x[i]

    and after::

        sum = T.Cast("int32", T.Cast("int128", x[i]) + T.int128(1))
        y[i] = T.bitwise_or(sum, 0) > x[i]

    LLVM computes that in 32 bits.  Other code generators compute 32 bits in 64, and 64 bits without
    sign, so that they wrap around; C's arithmetic on fewer bits has 32, so its results are cast.
    Arithmetic on loop variables, and inside the indices of loads, is unchanged.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs.  Run it after all schedules.
    """
    return prim_func_pass("GuardIntegerOverflow", FIX_ID, guard, any_target=True)


def guard(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Guard the integers of a kernel; see :func:`GuardIntegerOverflow`."""
    loads = _Loads(target)
    # Variables stand for loads, so that their indices are not visited.
    hidden = structural_map(function, (tvm.ir.TensorLoad, loads.hide))
    structural_walk(hidden, ((tirx.Let, tirx.Bind), loads.follow))
    guarded = structural_map(hidden, (_READERS, loads.guard))
    if not guarded.same_as(hidden):
        function = loads.restore(guarded)
    if target.kind.name == "llvm":
        return function
    extrema = (tirx.Min, tirx.Max)
    return function.with_body(structural_map(function.body, (extrema, _of_one_type)))


def _of_one_type(extremum: tirx.Min | tirx.Max) -> tirx.Expr:
    """A minimum or maximum whose operands have the same type in C, as its functions demand."""
    operands = (structural_map(part, (tirx.IntImm, _in_c)) for part in (extremum.a, extremum.b))
    return type(extremum)(*operands)


def _in_c(number: tirx.IntImm) -> tirx.Expr:
    """An int32 that is one in C, too: ``-2147483648`` negates a number of 64 bits."""
    most = (1 << 31) - 1
    is_least = str(number.ty) == "int32" and number.value == -most - 1
    return tirx.BitwiseNot(tirx.const(most, "int32")) if is_least else number


class _Loads:
    """The loads in a function, by the variables that stand for them.

    Attributes
    ----------
    values : dict of tirx.Var to tirx.Expr
    data : set of tirx.Var
        These variables, and those of Lets and Binds whose values use them.
    """

    def __init__(self, target: tvm.target.Target) -> None:
        self.target = target
        self.values: dict[tirx.Var, tirx.Expr] = {}
        self.data: set[tirx.Var] = set()

    def hide(self, load: tvm.ir.TensorLoad) -> tirx.Expr:
        var = tirx.Var("load", load.ty)
        self.values[var] = load
        self.data.add(var)
        return var

    def follow(self, definition: tirx.Let | tirx.Bind) -> None:
        """Add the variable of a definition to the data if its value uses data."""
        if uses(definition.value, self.data):
            self.data.add(definition.var)

    def restore(self, node: tvm.Object) -> tvm.Object:
        return structural_map(node, (tirx.Var, self._load_of))

    def _load_of(self, var: tirx.Var) -> tirx.Expr:
        load = self.values.get(var)
        return var if load is None else structural_map(load, (tirx.Var, self._load_of))

    def guard(self, reader: tvm.Object) -> tvm.Object:
        """Hide the arithmetic among the operands of a node."""
        if isinstance(reader, tirx.Bind):
            return self._with(reader, tirx.Bind, reader.var, reader.value)
        if isinstance(reader, tirx.Let):
            return self._with(reader, tirx.Let, reader.var, reader.value, reader.body)
        if isinstance(reader, tirx.Cast):
            return self._with(reader, tirx.Cast, reader.ty, reader.value)
        if isinstance(reader, tirx.BitwiseNot):
            return self._with(reader, tirx.BitwiseNot, reader.a)
        parts = branches_of(reader)
        if parts is not None:
            return self._with(reader, lambda *new: with_branches(reader, new), *parts)
        if isinstance(reader, tvm.ir.Call):
            return self._with(reader, partial(_call_like, reader), *reader.args)
        if isinstance(reader, _SUMS):
            return self._sum(reader)
        if isinstance(reader, _DIVISIONS) and _divides_beyond(reader):
            return type(reader)(opaque(reader.a), reader.b)
        return self._with(reader, type(reader), reader.a, reader.b)

    def _sum(self, reader: tirx.Add | tirx.Sub | tirx.Mul) -> tirx.Expr:
        """Hide the operands of a sum or product whose constants TVM would combine beyond its dtype.

        Adding the smallest number, or subtracting it, changes only the sign. A minimum or maximum
        is hidden too: TVM moves a sum into it, ``y - min(y, x)`` becomes ``max(0, y - x)``.
        """
        if not _is_integer(reader.ty) or not uses(reader, self.data):
            return reader
        least, most = _range(reader.ty)
        if isinstance(reader, tirx.Add | tirx.Sub) and least < 0:
            sign = tirx.const(least, str(reader.ty))
            if structural_equal(reader.b, sign):
                return tirx.bitwise_xor(self._hidden(reader.a), sign)
            if isinstance(reader, tirx.Add) and structural_equal(reader.a, sign):
                return tirx.bitwise_xor(self._hidden(reader.b), sign)
        if any(isinstance(part, tirx.Min | tirx.Max) for part in (reader.a, reader.b)):
            return type(reader)(_without_extremum(reader.a), _without_extremum(reader.b))
        constants = [abs(constant) for constant in _constants(reader)]
        if max(sum(constants), math.prod(max(constant, 1) for constant in constants)) <= most:
            return reader
        return self._with(reader, type(reader), reader.a, reader.b)

    def _with(self, reader: tvm.Object, make: Callable[..., tvm.Object], *parts: Any) -> tvm.Object:
        new = [self._hidden(part) for part in parts]
        is_same = all(a is b for a, b in zip(new, parts, strict=True))
        return reader if is_same else make(*new)

    def _hidden(self, value: Any) -> Any:
        """Integer arithmetic on data, in a form that may overflow; other values unchanged."""
        is_promoted = _is_promoted(value, self.target)
        if not (is_promoted or _may_overflow(value)) or not uses(value, self.data):
            return value
        return opaque(_wrapped(value, self.target))


def _without_extremum(value: tirx.Expr) -> tirx.Expr:
    return opaque(value) if isinstance(value, tirx.Min | tirx.Max) else value


def _call_like(call: tvm.ir.Call, *args: tirx.Expr) -> tvm.ir.Call:
    return tvm.ir.Call(call.op, args, call.attrs, span=call.span, ret_ty=call.ty)


def _constants(value: tirx.Expr) -> Iterator[int]:
    """The constants among the operands of nested sums and products."""
    if isinstance(value, tirx.IntImm):
        yield value.value
    elif isinstance(value, _SUMS):
        yield from _constants(value.a)
        yield from _constants(value.b)


def _divides_beyond(division: tirx.Expr) -> bool:
    """Whether TVM would multiply the constant divisors of two divisions beyond their dtype."""
    inner = division.a
    return (
        isinstance(inner, _DIVISIONS)
        and isinstance(inner.b, tirx.IntImm)
        and isinstance(division.b, tirx.IntImm)
        and abs(inner.b.value * division.b.value) > _range(division.ty)[1]
    )


def _may_overflow(value: Any) -> bool:
    """Whether a value is a sum, difference, product, shift or narrowing cast of integers."""
    if isinstance(value, tirx.Cast):
        return _is_integer(value.ty) and _is_integer(value.value.ty) and _is_narrowing(value)
    return isinstance(value, _WRAPPING) and _is_integer(value.ty)


def _is_promoted(value: Any, target: tvm.target.Target) -> bool:
    """Whether C computes an integer with more bits than its dtype has, and they may differ."""
    if target.kind.name == "llvm" or not isinstance(value, tirx.Expr) or not _is_integer(value.ty):
        return False
    return isinstance(value, _PROMOTED) and _bits(value.ty) < _MARKED_BITS


def _is_narrowing(cast: tirx.Cast) -> bool:
    """Whether the new dtype lacks some values of the old one."""
    (least, most), (old_least, old_most) = map(_range, (cast.ty, cast.value.ty))
    return old_least < least or most < old_most


def _range(ty: tvm.ir.Type) -> tuple[int, int]:
    """The least and largest number of an integer dtype of any width."""
    count = 1 << _bits(ty)
    return (0, count - 1) if str(ty).startswith("u") else (-count // 2, count // 2 - 1)


def _bits(ty: tvm.ir.Type) -> int:
    return int(tvm.DataType(str(ty)).bits)


def _is_integer(ty: tvm.ir.Type) -> bool:
    return str(ty).startswith(("int", "uint"))


def _wrapped(value: tirx.Expr, target: tvm.target.Target) -> tirx.Expr:
    """Integer arithmetic in types in which it does not overflow, or in which it may."""
    operator, dtype = type(value), str(value.ty)
    if _is_promoted(value, target):
        parts = [value.a] if isinstance(value, tirx.BitwiseNot) else [value.a, value.b]
        # In C, only unsigned integers may overflow.
        inner_dtype = "uint32" if dtype.startswith("u") else "int32"
        return operator(*(_in_dtype(_wrapped(part, target), inner_dtype) for part in parts)).astype(
            dtype
        )
    if not isinstance(value, _WRAPPING):
        return value
    a, b = (_wrapped(operand, target) for operand in (value.a, value.b))
    bits, is_shift = _bits(value.ty), isinstance(value, tirx.LShift)
    if target.kind.name != "llvm" and (is_shift or bits == 64):
        unsigned = f"u{dtype.removeprefix('u')}"
        return operator(*(_in_dtype(operand, unsigned) for operand in (a, b))).astype(dtype)
    if is_shift or bits < _MARKED_BITS:
        return operator(a, b)
    # LLVM computes this in the narrow type. TVM takes casts to int64 for indices, which it
    # simplifies in a time that grows exponentially with their depth.
    is_large = dtype.startswith("u") and operator is tirx.Mul
    width = "128" if target.kind.name == "llvm" else "64"
    inner_dtype = ("u" if is_large else "") + dtype.removeprefix("u").replace(str(bits), width, 1)
    return tirx.Cast(dtype, operator(a.astype(inner_dtype), b.astype(inner_dtype)))


def _in_dtype(value: tirx.Expr, dtype: str) -> tirx.Expr:
    """A value in another integer dtype."""
    if not isinstance(value, tirx.IntImm):
        return value.astype(dtype)
    least, most = _range(tirx.const(0, dtype).ty)
    number = (int(value) - least) % (most - least + 1) + least
    # A constant of TVM is below 2^63.
    return (
        tirx.const(number, dtype)
        if number < 1 << 63
        else tirx.BitwiseNot(tirx.const(most - number, dtype))
    )
