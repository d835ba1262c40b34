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
"""Elementary functions that Relax lacks, composed of Relax operators.

Each is accurate everywhere, even near its zero, and propagates NaN, infinities and signed zeros.
"""

from collections.abc import Callable

from tvm import relax

from .dtypes import accumulation_dtype, dtype_of

__all__ = ["Elementary"]


class Elementary:
    """Functions of floating-point tensors; 16-bit tensors are computed in float32.

    Parameters
    ----------
    emit : callable
        Binds an expression to a variable, as ``BlockBuilder.emit`` does.
    """

    def __init__(self, emit: Callable[[relax.Expr], relax.Expr]) -> None:
        self.emit = emit

    def __call__(self, operator: str, *operands: relax.Expr | float) -> relax.Expr:
        """Emit ``relax.op.<operator>``; numbers become constants of the tensors' dtype."""
        dtype = next(dtype_of(o) for o in reversed(operands) if isinstance(o, relax.Expr))
        tensors = [o if isinstance(o, relax.Expr) else relax.const(o, dtype) for o in operands]
        return self.emit(getattr(relax.op, operator)(*tensors))

    def _in_wide(self, function: Callable[[relax.Expr], relax.Expr], x: relax.Expr) -> relax.Expr:
        """``function(x)``, computed in the accumulation dtype and rounded once."""
        dtype = dtype_of(x)
        inner = accumulation_dtype(dtype)
        if inner == dtype:
            return function(x)
        widened = self.emit(relax.op.astype(x, inner))
        return self.emit(relax.op.astype(function(widened), dtype))

    def expm1(self, x: relax.Expr) -> relax.Expr:
        """``exp(x) - 1``."""
        return self._in_wide(self._expm1, x)

    def _expm1(self, x: relax.Expr) -> relax.Expr:
        exponential = self("exp", x)
        # The logarithm contains the rounding error of the exponential too, so the error cancels.
        less = self("subtract", exponential, 1.0)
        quotient = self("divide", self("multiply", less, x), self("log", exponential))
        is_far = self("greater", self("abs", x), 1.0)
        exact = self("where", is_far, less, quotient)
        return self("where", self("equal", less, 0.0), x, exact)

    def log1p(self, x: relax.Expr) -> relax.Expr:
        """``log(1 + x)``."""
        return self._in_wide(self._log1p, x)

    def _log1p(self, x: relax.Expr) -> relax.Expr:
        total = self("add", x, 1.0)
        # At least 1/2: without the bound, TVM would simplify the difference to x.
        bounded = self("maximum", total, 0.5)
        # Rounding changes `total - 1` and `log(total)` by the same factor; this undoes it.
        correction = self("divide", x, self("subtract", bounded, 1.0))
        logarithm = self("log", total)
        is_near = self("less", self("abs", x), 0.5)
        exact = self("where", is_near, self("multiply", logarithm, correction), logarithm)
        return self("where", self("equal", bounded, 1.0), x, exact)

    def elu(self, x: relax.Expr, alpha: float, scale: float, input_scale: float) -> relax.Expr:
        """``scale x`` where `x` is positive, else ``scale alpha expm1(input_scale x)``."""

        def function(x: relax.Expr) -> relax.Expr:
            # For a positive x the exponential may be infinite, and 0 times infinity is NaN.
            is_positive = self("greater", x, 0.0)
            clamped = self("where", is_positive, 0.0, x)
            negative = self._expm1(self("multiply", clamped, input_scale))
            negative = self("multiply", negative, alpha * scale)
            positive = self("multiply", x, scale) if scale != 1 else x
            return self("where", is_positive, positive, negative)

        return self._in_wide(function, x)
