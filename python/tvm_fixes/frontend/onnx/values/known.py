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
"""Values of small tensors that are known at import time.

Trigger
    Shapes, axes, pads, sizes or conditions that are computed from Shape and constants.
Mechanism
    TVM knows the value of an operand only if its Relax expression is a constant, a ShapeExpr or a
    scalar, and most operators return none of these; Equal compares an IntImm with a Python int.
Relation to the native shape values
    ``src/relax/analysis/shape_values.h`` follows values through the Relax calls of a finished
    function, for passes.  The importer cannot use it: it needs the value before there is a call,
    since TVM's converters reject the operands that ONNX's shape arithmetic is made of.  ONNX also
    has operators without a Relax counterpart, semantics that depend on the opset, and dtypes that
    the native values do not keep: they store integers as int64.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file,
    ``evaluate*.py``, ``operation.py``, their tests and the fix id ``onnx-shape-values``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import ml_dtypes  # noqa: F401  (makes "bfloat16" the name of a dtype)
import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.sym import Analyzer, ConstIntBound
from tvm_ffi import structural_equal, structural_walk

from ...extents import Extent, extents_of
from .assumptions import Replacements, has_symbol

__all__ = [
    "MAX_ELEMENTS",
    "MAX_LITERAL",
    "Element",
    "Extent",
    "KnownValues",
    "Params",
    "Value",
    "extents_of",
    "is_small",
]

MAX_ELEMENTS = 4096
"""The maximum number of elements of a tensor that is evaluated at import time."""

_MAX_SYMBOLIC_ELEMENTS = 64
"""The maximum if an element is an expression: building a shape in TVM takes superlinear time."""

MAX_LITERAL = 2**56
"""The maximum of a literal in a symbolic element, as in ``src/relax/analysis/scalars.h``.

TVM's arithmetic overflows with larger ones: to it, ``n - 2**63`` is not negative.
"""

Element: TypeAlias = int | bool | float | tirx.Expr
"""An element of a tensor: an expression of dtype int64 if it depends on symbols."""

Params: TypeAlias = Mapping[str, tuple[relax.Var, tvm.runtime.Tensor]]
"""The variables and values of the initializers that are inputs of the function, by name."""


@dataclass(frozen=True)
class Value:
    """The elements of a tensor that is known at import time.

    Attributes
    ----------
    elements : np.ndarray
        An array of dtype object with the shape of the tensor; see :data:`Element`.
    dtype : str
        The dtype of the tensor: int64 or int32 if an element is symbolic.
    """

    elements: np.ndarray
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.elements.shape

    @property
    def is_static(self) -> bool:
        """Whether no element depends on a symbol."""
        return not any(isinstance(element, tirx.Expr) for element in self.elements.flat)

    @property
    def is_integer(self) -> bool:
        """Whether the elements are integers."""
        return np.dtype(self.dtype).kind in "iu"

    def array(self) -> np.ndarray | None:
        """The elements as an array of numbers, or None if one depends on a symbol."""
        return self.elements.astype(self.dtype) if self.is_static else None

    def extents(self) -> list[Extent]:
        """The elements, which are integers, as a flat list."""
        return [e if isinstance(e, tirx.Expr) else int(e) for e in self.elements.flat]

    def tensor(self, builder: relax.BlockBuilder) -> relax.Expr:
        """The tensor: a constant, or, if an element is symbolic, a variable bound by `builder`."""
        array = self.array()
        if array is not None:
            return relax.const(array, self.dtype)
        tensor = as_vector(builder, self.extents())
        if len(self.shape) != 1:
            tensor = builder.emit(relax.op.reshape(tensor, self.shape))
        if self.dtype != "int64":
            tensor = builder.emit(relax.op.astype(tensor, self.dtype))
        return tensor


def as_vector(builder: relax.BlockBuilder, elements: Sequence[Extent]) -> relax.Expr:
    """A 1-D int64 tensor of `elements`."""
    # The dims of a ShapeExpr must not be negative: shift or negate negative elements.
    below = [min(element, 0) if isinstance(element, int) else 0 for element in elements]
    signs = [-1 if _is_negative(element) else 1 for element in elements]
    dims = [(e - low) * sign for e, low, sign in zip(elements, below, signs, strict=True)]
    tensor = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr(dims)))
    if min(signs, default=1) < 0:
        tensor = builder.emit(relax.op.multiply(tensor, relax.const(signs, "int64")))
    return builder.emit(relax.op.add(tensor, relax.const(below, "int64"))) if any(below) else tensor


def _is_negative(element: Extent) -> bool:
    """Whether `element` is provably negative if all of its symbols are 0 or more."""
    if isinstance(element, int):
        return False
    analyzer = Analyzer()
    bound = ConstIntBound(0, ConstIntBound.POS_INF)
    structural_walk(element, (tirx.Var, lambda symbol: analyzer.update(symbol, bound, True)))
    return bool(analyzer.can_prove(element < 0))


class KnownValues:
    """The known values of the expressions of one function, and the arithmetic of its symbols.

    Parameters
    ----------
    params : mapping
        See :data:`Params`.
    """

    def __init__(self, params: Params) -> None:
        self._params = params
        self._values: dict[relax.Var, Value] = {}
        self._parameters: set[relax.Var] = set()
        self._extents: set[tirx.Var] = set()
        self._analyzer, self._bare = Analyzer(), Analyzer()
        self._assumed = ExitStack()
        self._assumes = False
        self._replaced = Replacements()
        self._zeros: list[tirx.Expr] = []
        self._nonzeros: list[tirx.Expr] = []
        self._refined: dict[relax.Expr, relax.Var] = {}
        self._joins: list[tuple[tirx.Var, list[Extent]]] = []
        self.depth = 0
        self._inputs: list[tirx.Var] = []
        self.unified = Replacements()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """On exit, drop assumptions made since entry, e.g. in a branch that may not run."""
        outer = self._assumed, self._assumes, dict(self._refined), list(self._joins)
        equalities = self._replaced, self._zeros, self._nonzeros
        try:
            self._replaced = Replacements(self._replaced)
            self._zeros, self._nonzeros = list(self._zeros), list(self._nonzeros)
            self.depth += 1
            with ExitStack() as self._assumed:
                yield
        finally:
            self._assumed, self._assumes, self._refined, self._joins = outer
            self._replaced, self._zeros, self._nonzeros = equalities
            self.depth -= 1

    def add_inputs(self, symbols: Iterable[tirx.Var]) -> None:
        """Record that `symbols` are extents of inputs of the model."""
        self._inputs += symbols

    def remember(self, variable: relax.Var, value: Value, *, is_parameter: bool = False) -> None:
        """Record that `variable` has the value `value`.

        Parameters
        ----------
        is_parameter : bool
            Whether it has this value only for the parameters that the file contains.
        """
        self._values[variable] = value
        if is_parameter:
            self._parameters.add(variable)

    def read_parameters(self, operands: Iterable[relax.Expr | Value | None]) -> bool:
        """Whether an operand is an initializer that is an input, or is computed from one."""
        return any(
            isinstance(operand, relax.Var)
            and (operand in self._parameters or self._parameter(operand) is not None)
            for operand in operands
        )

    def _parameter(self, tensor: relax.Var) -> tvm.runtime.Tensor | None:
        variable, array = self._params.get(tensor.name, (None, None))
        return array if tensor.same_as(variable) else None

    def of(self, tensor: relax.Expr | None) -> Value | None:
        """The value of an expression, or None if it is unknown, too large or not numeric.

        Known are constants, initializers that are inputs, shapes, scalar int64 expressions and
        remembered variables.
        """
        if tensor is None:
            return None
        if isinstance(tensor, relax.ShapeExpr):
            return self.value(tensor.values, (len(tensor.values),), "int64")
        if isinstance(tensor, relax.Var) and tensor in self._values:
            return self._values[tensor]
        if tvm.ir.is_prim_expr(tensor):
            return self.value([tensor], (), "int64") if str(tensor.ty) == "int64" else None
        array = self.array(tensor, MAX_ELEMENTS)
        if array is None or not _is_number(array.dtype):
            return None
        elements = array.tolist() if array.dtype.kind in "biu" else array.astype("float64").tolist()
        value = Value(np.empty(array.shape, object), str(array.dtype))
        value.elements[...] = elements
        return value

    def array(self, tensor: relax.Expr, max_elements: int | None = None) -> np.ndarray | None:
        """The array of a constant, or of an initializer that is an input; else None.

        Parameters
        ----------
        max_elements : int, optional
            Return None for an array with more elements.
        """
        if isinstance(tensor, tvm.ir.GenericConst):
            array = tensor.value
        elif isinstance(tensor, relax.Var):
            array = self._parameter(tensor)
        else:
            array = None
        if array is None:
            return None
        count = int(np.prod(array.shape, dtype="int64"))
        return None if max_elements is not None and count > max_elements else array.numpy()

    def value(self, elements: Iterable[Element], shape: Sequence[int], dtype: str) -> Value | None:
        """Make a value of a flat list of elements, simplified and rounded to `dtype`.

        Returns
        -------
        Value or None
            None if there are too many elements, `dtype` cannot represent one, or a symbolic one
            has a literal beyond :data:`MAX_LITERAL`.
        """
        count = int(np.prod(shape, dtype="int64"))
        if count > MAX_ELEMENTS:
            return None
        value = Value(np.empty(count, object), dtype)
        for index, element in enumerate(elements):
            if isinstance(element, float):
                element = np.float64(element).astype(dtype).item()
            value.elements[index] = self.simplify(element)
            if _has_huge_literal(value.elements[index]):
                return None
        if not is_small(value.elements) or not _is_representable(value):
            return None
        return Value(value.elements.reshape(shape), dtype)

    def extents(self, tensor: relax.Expr) -> list[Extent] | None:
        """The extents of a tensor, or None if they are unknown.

        Records that the extents that are symbols are not negative.
        """
        extents = extents_of(tensor)
        if extents is not None and self._assumes:
            extents = [self.simplify(extent) for extent in extents]
        for extent in extents or []:
            if isinstance(extent, tirx.Var) and extent not in self._extents:
                self._extents.add(extent)
                bound = ConstIntBound(0, ConstIntBound.POS_INF)
                self._analyzer.update(extent, bound)
        return extents

    def simplify(self, element: Element) -> Element:
        """Simplify an element; return a number if it is constant."""
        if not isinstance(element, tirx.Expr):
            return element
        element = self._analyzer.simplify(self._replaced.applied(element))
        return int(element) if isinstance(element, tirx.IntImm) else element

    def equal(self, a: Element, b: Element) -> bool | None:
        """Whether two elements are equal for all values of symbols; None if unknown."""
        if not isinstance(a, tirx.Expr) and not isinstance(b, tirx.Expr):
            return a == b
        difference = self.simplify(a - b)
        if not isinstance(difference, tirx.Expr):
            return difference == 0
        if self._analyzer.can_prove_equal(difference, 0) or self._is_in(self._zeros, difference):
            return True
        if self._is_in(self._nonzeros, difference):
            return False
        zero = tirx.const(0, "int64")
        return False if self._analyzer.can_prove(tirx.NE(difference, zero)) else None

    def less(self, a: Element, b: Element) -> bool | None:
        """Whether `a` is less than `b` for all values of symbols; None if unknown."""
        if not isinstance(a, tirx.Expr) and not isinstance(b, tirx.Expr):
            return a < b
        if self._analyzer.can_prove(tirx.const(0, "int64") + a < b):
            return True
        return False if self._analyzer.can_prove(tirx.const(0, "int64") + a >= b) else None

    def follows(self, condition: tirx.Expr, a: Extent, b: Extent) -> bool:
        """Whether `condition` implies that two extents are equal."""
        with self._analyzer.constraint_scope(condition):
            return self.equal(a, b) is True

    def unify(self, a: Extent, b: Extent) -> bool:
        """Make two extents equal by the types of the inputs, which are checked at run time.

        Returns
        -------
        bool
            False if one is not an extent of an input, or if the current node may not run.
        """
        if self.depth:
            return False
        a, b = self.simplify(a), self.simplify(b)
        order = [next((i for i, s in enumerate(self._inputs) if s.same_as(e)), -1) for e in (a, b)]
        if order[0] < order[1]:
            a, b, order = b, a, order[::-1]
        # The first input keeps its symbol.
        if order[0] < 0 or (order[1] < 0 and not isinstance(b, int)):
            return False
        self.unified.add(a, b)
        self._replaced.add(a, b)
        self._assumes = True
        return True

    def assume_equal(self, a: Extent, b: Extent) -> None:
        """Assume that two extents are equal; the caller has emitted a check of it."""
        a, b = self.simplify(a), self.simplify(b)
        self._assumes = True
        is_input = [any(symbol.same_as(e) for symbol in self._inputs) for e in (a, b)]
        pairs = ((b, a), (a, b)) if is_input[0] and not is_input[1] else ((a, b), (b, a))
        for symbol, other in pairs:
            if isinstance(symbol, tirx.Var) and not has_symbol(other, symbol):
                self._replaced.add(symbol, other)
                return
        for min_or_max, other in ((a, b), (b, a)):
            if not isinstance(min_or_max, tirx.Min | tirx.Max):
                continue
            for side, bound in ((min_or_max.a, min_or_max.b), (min_or_max.b, min_or_max.a)):
                if self.equal(side, other):
                    order = tirx.LE if isinstance(min_or_max, tirx.Min) else tirx.GE
                    scope = self._analyzer.constraint_scope(order(side, bound))
                    self._assumed.enter_context(scope)
                    return
        difference = self.simplify(a - b)
        if isinstance(difference, tirx.Expr):
            self._zeros.append(difference)

    def assume_unequal(self, a: Extent, b: Extent) -> None:
        """Assume that two extents differ."""
        difference = self.simplify(a - b)
        if isinstance(difference, tirx.Expr):
            self._nonzeros.append(difference)

    def _is_in(self, differences: list[tirx.Expr], difference: tirx.Expr) -> bool:
        """Whether `difference`, or its negative, is one of `differences`."""
        return any(
            self._analyzer.can_prove_equal(combined, 0)
            for other in differences
            for combined in (difference - other, difference + other)
        )

    def is_evident(self, a: Extent, b: Extent) -> bool:
        """Whether TVM's type inference finds that two extents are equal."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return bool(self._bare.can_prove_equal(a, b))

    def refined(self, builder: relax.BlockBuilder, tensor: relax.Expr) -> relax.Expr:
        """The tensor, with extents simplified under the assumptions."""
        if not self._assumes or isinstance(tensor, tvm.ir.GenericConst):
            return tensor
        if tensor not in self._refined:
            extents, declared = self.extents(tensor), extents_of(tensor)
            # Kernels whose extents are other forms of the same sum do not fuse.
            if extents is None or all(
                isinstance(a, int) == isinstance(b, int) and self.is_evident(a, b)
                for a, b in zip(extents, declared or [], strict=True)
            ):
                return tensor
            shape = [tirx.const(e, "int64") if isinstance(e, int) else e for e in extents]

            def refined(operand: te.Tensor) -> te.Tensor:
                return te.compute(shape, lambda *indices: operand(*indices))

            if all(
                structural_equal(a, self.unified.applied(b))
                for a, b in zip(shape, tensor.ty.shape, strict=True)
            ):
                # With the symbols of the inputs replaced, it is a match_cast to the same type.
                variable = builder.match_cast(tensor, relax.TensorType(shape, tensor.ty.dtype))
            else:
                # For TVM, a match_cast of `min(512, n)` to `n` defines n in terms of itself.
                is_constant = any(
                    isinstance(a, int) and not isinstance(b, int)
                    for a, b in zip(extents, declared or [], strict=True)
                )
                # A kernel keeps expressions of symbols that become known later, and TVM does not
                # fuse it; but a broadcast of n elements to one is an error.
                variable = (
                    builder.emit_te(refined, tensor)
                    if is_constant
                    else builder.emit(relax.op.broadcast_to(tensor, relax.ShapeExpr(shape)))
                )
            self._refined[tensor] = variable
        return self._refined[tensor]

    def covers(self, a: Extent, b: Extent) -> bool:
        """Whether `b` is known to broadcast to `a`, so that `a` is the result for both."""
        covering = self._joined(a)
        return all(any(self.equal(x, y) for y in covering) for x in self._joined(b))

    def join_of(self, a: Extent, b: Extent) -> tirx.Var | None:
        """The symbol for the extent that two extents broadcast to, or None."""
        of = [*self._joined(a), *self._joined(b)]
        for symbol, joined in self._joins:
            if all(any(self.equal(x, y) for y in joined) for x in of) and all(
                any(self.equal(x, y) for y in of) for x in joined
            ):
                return symbol
        return None

    def remember_join(self, symbol: tirx.Var, a: Extent, b: Extent) -> None:
        """Record that `symbol` is the extent that two extents broadcast to."""
        self._joins.append((symbol, [*self._joined(a), *self._joined(b)]))

    def _joined(self, extent: Extent) -> list[Extent]:
        """The extents that broadcast to `extent`; only itself unless it is such a symbol."""
        for symbol, joined in self._joins:
            if symbol.same_as(extent):
                return joined
        return [extent]


def is_small(elements: np.ndarray) -> bool:
    """Whether `elements` has few enough elements for a :class:`Value`."""
    if elements.size <= _MAX_SYMBOLIC_ELEMENTS:
        return True
    return elements.size <= MAX_ELEMENTS and not any(
        isinstance(element, tirx.Expr) for element in elements.flat
    )


def _has_huge_literal(element: Element) -> bool:
    """Whether a symbolic element has a literal beyond :data:`MAX_LITERAL`."""
    literals: list[int] = []
    if isinstance(element, tirx.Expr):
        structural_walk(element, (tirx.IntImm, lambda literal: literals.append(int(literal.value))))
    return any(abs(literal) > MAX_LITERAL for literal in literals)


def _is_number(dtype: np.dtype) -> bool:
    return dtype.kind in "biuf" or str(dtype) == "bfloat16"


def _is_representable(value: Value) -> bool:
    """Whether the dtype of a value can represent all its elements."""
    if value.dtype == "bool":
        return all(isinstance(element, bool) for element in value.elements.flat)
    dtype = np.dtype(value.dtype)
    if dtype.kind not in "iu":
        return value.is_static
    limits = np.iinfo(dtype)
    return all(
        value.dtype in ("int64", "int32")
        if isinstance(element, tirx.Expr)
        else limits.min <= element <= limits.max
        for element in value.elements.flat
    )
