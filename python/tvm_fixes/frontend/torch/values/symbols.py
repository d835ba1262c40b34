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
"""Conversion of sizes in an exported PyTorch program to TVM expressions."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import sympy
import torch
import tvm
from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv, ToFloat
from torch.utils._sympy.interp import sympy_interp
from tvm import tirx
from tvm.sym import Analyzer

from ....errors import OpNotImplemented
from ...extents import MAX_EXTENT
from .rounding import rounded_to_int, with_integer_quotients

__all__ = ["Size", "Symbols"]

Size: TypeAlias = int | tirx.Expr


def _float(value: Any) -> tirx.Expr:
    return (
        tirx.const(float(value), "float64") if isinstance(value, int) else value.astype("float64")
    )


def _quotient(lhs: Any, rhs: Any) -> Any:
    return _float(lhs) / _float(rhs)


def _integers(*values: Any) -> list[tirx.Expr]:
    return [tirx.const(v, "int64") if isinstance(v, int) else v for v in values]


def _comparison(relation: Callable[..., tirx.Expr]) -> Callable[[Any, Any], tirx.Expr]:
    return lambda lhs, rhs: relation(*_integers(lhs, rhs))


class _Arithmetic:
    """The operations on TVM expressions that PyTorch's interpreter of SymPy expressions calls.

    ``//`` and ``%`` round toward negative infinity in both.
    """

    add = staticmethod(operator.add)
    mul = staticmethod(operator.mul)
    floordiv = staticmethod(operator.floordiv)
    mod = python_mod = staticmethod(operator.mod)
    minimum = staticmethod(tirx.min)
    maximum = staticmethod(tirx.max)
    truediv = int_truediv = staticmethod(_quotient)
    floor_to_int = staticmethod(rounded_to_int(tirx.GT, -1))
    ceil_to_int = staticmethod(rounded_to_int(tirx.LT, 1))
    trunc_to_int = staticmethod(rounded_to_int(None, 0))
    eq = staticmethod(_comparison(tirx.EQ))
    ne = staticmethod(_comparison(tirx.NE))
    lt = staticmethod(_comparison(tirx.LT))
    le = staticmethod(_comparison(tirx.LE))
    gt = staticmethod(_comparison(tirx.GT))
    ge = staticmethod(_comparison(tirx.GE))
    and_ = staticmethod(tirx.And)
    or_ = staticmethod(tirx.Or)
    not_ = staticmethod(tirx.Not)

    @staticmethod
    def constant(value: Any, dtype: torch.dtype) -> Any:
        if dtype == torch.bool:
            return bool(value)
        if dtype == torch.int64:
            return int(value)
        return tirx.const(float(value), "float64")

    @staticmethod
    def modular_indexing(base: Any, divisor: Any, modulus: Any) -> Any:
        return base // divisor % modulus

    @staticmethod
    def pow_by_natural(base: Any, exponent: int) -> Any:
        result = 1
        for _ in range(exponent):
            result = result * base
        return result

    @staticmethod
    def pow(base: Any, exponent: Any) -> Any:
        return tirx.pow(_float(base), _float(exponent))

    @staticmethod
    def where(condition: Any, lhs: Any, rhs: Any) -> Any:
        return tirx.Select(condition, *_integers(lhs, rhs))

    @staticmethod
    def to_dtype(value: Any, dtype: torch.dtype) -> Any:
        return _float(value)


class Symbols:
    """The map from an exported program's symbols to variables of a Relax function."""

    def __init__(self) -> None:
        self._variables: dict[sympy.Symbol, Size] = {}
        self._equal: dict[sympy.Expr, sympy.Expr] = {}
        self.analyzer = Analyzer()

    def bind(self, size: Any, extent: Size) -> None:
        """Map `size` to `extent` if `size` is a symbol that is not mapped yet."""
        expression = self._expression(size)
        if isinstance(expression, sympy.Symbol):
            self._variables.setdefault(expression, extent)

    def assume_equal(self, lhs: sympy.Expr, rhs: sympy.Expr) -> None:
        """Use the simpler one of two equal expressions for both.

        For example, the guard ``n == 2*(n // 2)`` is true for all calls with an even `n`.
        """
        simple, other = sorted(map(self._expression, (lhs, rhs)), key=sympy.count_ops)
        if not other.is_Atom and simple.free_symbols <= other.free_symbols:
            self._equal[other] = simple

    def bind_multiple(
        self, symbol: sympy.Symbol, variable: tirx.Var, factor: int, rest: int
    ) -> None:
        """Map `symbol` so that ``factor * symbol + rest`` is `variable`."""
        self.bind(symbol, self.analyzer.simplify((variable - rest) // factor))

    def restrict(self, symbol: sympy.Symbol, lower: Any, upper: Any) -> None:
        """Tell the analyzer the range that ``torch.export`` recorded for `symbol`."""
        variable = self._variables.get(symbol)
        if not isinstance(variable, tirx.Var):
            return
        # SymPy takes PyTorch's infinity for a finite integer.
        if lower <= -MAX_EXTENT:
            return  # not a size
        # TVM's ranges are finite.
        maximum = int(upper) if upper < MAX_EXTENT else MAX_EXTENT
        self.analyzer.bind(variable, tvm.ir.Range(int(lower), maximum + 1))

    def knows(self, size: Any) -> bool:
        """Whether all symbols of `size` are mapped."""
        expression = self._expression(size)
        return not isinstance(expression, sympy.Basic) or all(
            symbol in self._variables for symbol in expression.free_symbols
        )

    def is_integral(self, size: Any) -> bool:
        """Whether `size` is computed only from integers, which TVM's checks of sizes require."""
        expression = self._expression(size)
        return not (
            isinstance(expression, sympy.Basic)
            and expression.has(sympy.Float, FloatTrueDiv, IntTrueDiv, ToFloat)
        )

    def convert(self, size: Any) -> Any:
        """Convert PyTorch's int, bool or float, which may be symbolic, to a number or TIR.

        An unmapped symbol gets a new variable of the same name.

        Raises
        ------
        tvm.error.OpNotImplemented
            If TVM cannot express `size`.
        """
        expression = self._expression(size)
        if not isinstance(expression, sympy.Basic):
            return expression
        for symbol in expression.free_symbols:
            if symbol not in self._variables:
                self._variables[symbol] = tirx.Var(str(symbol), "int64")
        try:
            result = sympy_interp(_Arithmetic, self._variables, expression)
        except (AttributeError, KeyError, TypeError) as error:
            raise OpNotImplemented(
                f"the size {expression} of the PyTorch program has no equivalent in TVM"
            ) from error
        if isinstance(result, tirx.Expr):
            result = self.analyzer.simplify(result)
            if isinstance(result, tirx.IntImm) and result.ty.dtype != "bool":
                return int(result)
        return result

    def shape(self, sizes: Sequence[Any]) -> list[Size]:
        """Convert each of `sizes` with :meth:`convert`."""
        return [self.convert(size) for size in sizes]

    def same(self, lhs: Any, rhs: Any) -> bool:
        """Whether PyTorch computes two sizes by the same expression."""
        return bool(self._expression(lhs) == self._expression(rhs))

    def equal(self, lhs: Size, rhs: Size) -> bool:
        """Whether two sizes are provably equal."""
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs == rhs
        return bool(self.analyzer.can_prove_equal(*_integers(lhs, rhs)))

    def at_least(self, size: Size, bound: Size) -> bool:
        """Whether ``size >= bound`` is provable."""
        if isinstance(size, int) and isinstance(bound, int):
            return size >= bound
        return bool(self.analyzer.can_prove(tirx.GE(*_integers(size, bound))))

    def _expression(self, size: Any) -> Any:
        """A plain number itself, or the SymPy expression of a symbolic number."""
        if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool):
            size = size.node.expr
        if not isinstance(size, sympy.Basic):
            return size
        return with_integer_quotients(size).xreplace(self._equal)
