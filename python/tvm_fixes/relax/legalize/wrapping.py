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
"""Wrapping sums, differences and products of unsigned integers.

TVM marks unsigned arithmetic of 32 and 64 bits as not wrapping (``nuw``), so LLVM folds 0 - x to 0.
Here, 32-bit arithmetic is computed in 64 bits, and 64-bit arithmetic in two halves.
"""

from collections.abc import Callable

from tvm import te, tirx, topi

_HALF = tirx.const(32, "uint64")
_MASK = tirx.const(0xFFFF_FFFF, "uint64")
_CARRY = tirx.const(1 << 32, "uint64")

_Elementwise = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


def add(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """``a + b`` of uint32 or uint64, broadcast."""
    return _wrapped(a, b, lambda x, y: x + y, _sum)


def subtract(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """``a - b`` of uint32 or uint64, broadcast."""
    return _wrapped(a, b, lambda x, y: x + (_CARRY - y), _difference)


def multiply(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """``a * b`` of uint32 or uint64, broadcast."""
    return _wrapped(a, b, lambda x, y: x * y, _product)


def negative(x: te.Tensor) -> te.Tensor:
    """``0 - x`` of any unsigned dtype."""
    if x.dtype in ("uint8", "uint16"):
        return topi.subtract(tirx.const(0, x.dtype), x)
    return subtract(topi.full_like(x, 0), x)


def _wrapped(a: te.Tensor, b: te.Tensor, narrow: _Elementwise, wide: _Elementwise) -> te.Tensor:
    """Broadcast, and compute uint32 with `narrow` in uint64 modulo 2^32, and uint64 with `wide`."""
    shape = topi.maximum(a, b).shape
    a, b = (topi.broadcast_to(operand, shape) for operand in (a, b))
    if a.dtype == "uint64":
        return te.compute(shape, lambda *at: wide(a(*at), b(*at)), name="wrapped")

    def element(*at: tirx.Var) -> tirx.Expr:
        value = narrow(a(*at).astype("uint64"), b(*at).astype("uint64"))
        return (value & _MASK).astype(a.dtype)

    return te.compute(shape, element, name="wrapped")


def _sum(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    low = (a & _MASK) + (b & _MASK)
    high = (a >> _HALF) + (b >> _HALF) + (low >> _HALF)
    return (high << _HALF) | (low & _MASK)


def _difference(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    low = (a & _MASK) + (_CARRY - (b & _MASK))
    high = (a >> _HALF) + (_MASK - (b >> _HALF)) + (low >> _HALF)
    return (high << _HALF) | (low & _MASK)


def _product(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    low = (a & _MASK) * (b & _MASK)
    crossed = ((a & _MASK) * (b >> _HALF) & _MASK) + ((a >> _HALF) * (b & _MASK) & _MASK)
    return ((crossed + (low >> _HALF)) << _HALF) | (low & _MASK)
