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
"""What is known, while a model is imported, of the elements of its small tensors.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    Shapes, axes, pads, sizes or conditions that are computed from Shape and constants.
Symptom
    Equal of two equal shapes is False, silently; ``cannot handle ShapeExpr inputs``, ``requires
    Shape``, ``Dynamic pads are not supported yet`` for what PyTorch's exporters write.
Mechanism
    Whether an operand is known depends on the form of its Relax expression, a constant, a
    ShapeExpr or a scalar, and most operators keep none of them; Equal compares an IntImm with a
    Python int.
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

__all__ = [
    "MAX_ELEMENTS",
    "Element",
    "Extent",
    "KnownValues",
    "Params",
    "Value",
    "extents_of",
    "is_small",
]

MAX_ELEMENTS = 4096
"""How many elements a tensor may have to be evaluated while it is imported."""

_MAX_SYMBOLIC_ELEMENTS = 64
"""The same if elements are expressions: TVM builds a shape in a time that is more than linear."""

Extent: TypeAlias = int | tirx.Expr
"""A dimension: an int if it is static, otherwise an expression."""

Element: TypeAlias = int | bool | float | tirx.Expr
"""An element of a tensor: an expression of dtype int64 if it depends on symbols."""

Params: TypeAlias = Mapping[str, tuple[relax.Var, tvm.runtime.Tensor]]
"""The variables and values of the initializers that are inputs of the function, by name."""


@dataclass(frozen=True)
class Value:
    """The elements of a tensor that are known while it is imported.

    Attributes
    ----------
    elements : np.ndarray
        Of dtype object and of the shape of the tensor; see :data:`Element`.
    dtype : str
        That of the tensor.  Symbolic elements are of int64 or int32.
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

    def array(self) -> np.ndarray | None:
        """The elements as an array of numbers, or None if one depends on a symbol."""
        return self.elements.astype(self.dtype) if self.is_static else None

    def extents(self) -> list[Extent]:
        """The elements, which are integers, one after the other."""
        return [e if isinstance(e, tirx.Expr) else int(e) for e in self.elements.flat]

    def tensor(self, builder: relax.BlockBuilder) -> relax.Expr:
        """The tensor: a constant, or a variable that is bound here if an element is symbolic."""
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
    """An int64 tensor of one dimension whose elements are `elements`."""
    # No dim of a shape is negative.
    below = [min(element, 0) if isinstance(element, int) else 0 for element in elements]
    signs = [-1 if _is_negative(element) else 1 for element in elements]
    dims = [(e - low) * sign for e, low, sign in zip(elements, below, signs, strict=True)]
    tensor = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr(dims)))
    if min(signs, default=1) < 0:
        tensor = builder.emit(relax.op.multiply(tensor, relax.const(signs, "int64")))
    return builder.emit(relax.op.add(tensor, relax.const(below, "int64"))) if any(below) else tensor


def _is_negative(element: Extent) -> bool:
    """Whether a size computed of symbols, each 0 or more, is proved to be negative."""
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
        self._extents: set[tirx.Var] = set()
        self._analyzer = Analyzer()
        self._assumed = ExitStack()
        self._assumes = False
        self._refined: dict[relax.Expr, relax.Var] = {}
        self._joins: list[tuple[tirx.Var, list[Extent]]] = []

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is assumed within, say in a branch that may not run, is forgotten behind it."""
        outer = self._assumed, self._assumes, dict(self._refined), list(self._joins)
        try:
            with ExitStack() as self._assumed:
                yield
        finally:
            self._assumed, self._assumes, self._refined, self._joins = outer

    def remember(self, variable: relax.Var, value: Value) -> None:
        """Say that `value` is what `variable` holds."""
        self._values[variable] = value

    def of(self, tensor: relax.Expr | None) -> Value | None:
        """The value of an expression, or None if it is unknown, of strings or not small.

        Known are constants, initializers that are inputs, shapes, scalar expressions of dtype
        int64, and variables that were remembered.
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

    def array(self, tensor: relax.Expr, most: int | None = None) -> np.ndarray | None:
        """The numbers of a constant, or of an initializer that is an input, or None.

        Parameters
        ----------
        most : int, optional
            Of how many elements at most.
        """
        if isinstance(tensor, tvm.ir.GenericConst):
            array = tensor.value
        elif isinstance(tensor, relax.Var) and tensor.name in self._params:
            variable, array = self._params[tensor.name]
            if not variable.same_as(tensor):
                return None
        else:
            return None
        count = int(np.prod(array.shape, dtype="int64"))
        return None if most is not None and count > most else array.numpy()

    def value(self, elements: Iterable[Element], shape: Sequence[int], dtype: str) -> Value | None:
        """The value with `elements`, one after the other, simplified and rounded to `dtype`.

        Returns
        -------
        Value or None
            None if there are too many, or if `dtype` does not hold them.
        """
        count = int(np.prod(shape, dtype="int64"))
        if count > MAX_ELEMENTS:
            return None
        value = Value(np.empty(count, object), dtype)
        for index, element in enumerate(elements):
            if isinstance(element, float):
                element = np.float64(element).astype(dtype).item()
            value.elements[index] = self.simplify(element)
        if not is_small(value.elements) or not _is_held(value):
            return None
        return Value(value.elements.reshape(shape), dtype)

    def extents(self, tensor: relax.Expr) -> list[Extent] | None:
        """The dimensions of a tensor, or None if they are unknown; those that are symbols are
        not negative from then on."""
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
        """The simplest form of an element, a number where it is one."""
        if not isinstance(element, tirx.Expr):
            return element
        element = self._analyzer.simplify(element)
        return int(element) if isinstance(element, tirx.IntImm) else element

    def equal(self, a: Element, b: Element) -> bool | None:
        """Whether two elements are equal for all extents; None if that is unknown."""
        if not isinstance(a, tirx.Expr) and not isinstance(b, tirx.Expr):
            return a == b
        difference = self.simplify(a - b)
        if not isinstance(difference, tirx.Expr):
            return difference == 0
        if self._analyzer.can_prove_equal(difference, 0):
            return True
        zero = tirx.const(0, "int64")
        return False if self._analyzer.can_prove(tirx.NE(difference, zero)) else None

    def less(self, a: Element, b: Element) -> bool | None:
        """Whether one element is less than another for all extents; None if that is unknown."""
        if not isinstance(a, tirx.Expr) and not isinstance(b, tirx.Expr):
            return a < b
        if self._analyzer.can_prove(tirx.const(0, "int64") + a < b):
            return True
        return False if self._analyzer.can_prove(tirx.const(0, "int64") + a >= b) else None

    def follows(self, condition: tirx.Expr, a: Extent, b: Extent) -> bool:
        """Whether two extents are equal wherever `condition` holds."""
        with self._analyzer.constraint_scope(condition):
            return self.equal(a, b) is True

    def assume_equal(self, a: Extent, b: Extent) -> None:
        """Know that two extents are equal: what runs from here on runs behind a check of it."""
        for extreme, other in ((a, b), (b, a)):
            if not isinstance(extreme, tirx.Min | tirx.Max):
                continue
            for chosen, bound in ((extreme.a, extreme.b), (extreme.b, extreme.a)):
                if self.equal(chosen, other):
                    order = tirx.LE if isinstance(extreme, tirx.Min) else tirx.GE
                    scope = self._analyzer.constraint_scope(order(chosen, bound))
                    self._assumed.enter_context(scope)
                    self._assumes = True
                    return

    def refined(self, builder: relax.BlockBuilder, tensor: relax.Expr) -> relax.Expr:
        """A tensor whose type says what was assumed of its extents."""
        if not self._assumes or isinstance(tensor, tvm.ir.GenericConst):
            return tensor
        if tensor not in self._refined:
            extents, stated = self.extents(tensor), extents_of(tensor)
            if extents is None or all(
                structural_equal(a, b) for a, b in zip(extents, stated or [], strict=True)
            ):
                return tensor
            shape = [tirx.const(e, "int64") if isinstance(e, int) else e for e in extents]

            def refined(operand: te.Tensor) -> te.Tensor:
                return te.compute(shape, lambda *indices: operand(*indices))

            # No match_cast: for TVM that of `min(512, n)` to `n` defines n by itself, without end.
            self._refined[tensor] = builder.emit_te(refined, tensor)
        return self._refined[tensor]

    def covers(self, a: Extent, b: Extent) -> bool:
        """Whether `b` is known to broadcast to `a`, which the two broadcast to."""
        covering = self._joined(a)
        return all(any(self.equal(x, y) for y in covering) for x in self._joined(b))

    def join_of(self, a: Extent, b: Extent) -> tirx.Var | None:
        """The symbol of what two extents broadcast to, if there is one."""
        of = [*self._joined(a), *self._joined(b)]
        for symbol, joined in self._joins:
            if all(any(self.equal(x, y) for y in joined) for x in of) and all(
                any(self.equal(x, y) for y in of) for x in joined
            ):
                return symbol
        return None

    def remember_join(self, symbol: tirx.Var, a: Extent, b: Extent) -> None:
        """Say that `symbol` is what two extents broadcast to."""
        self._joins.append((symbol, [*self._joined(a), *self._joined(b)]))

    def _joined(self, extent: Extent) -> list[Extent]:
        """The extents that broadcast to one, which is itself if it is no such symbol."""
        for symbol, joined in self._joins:
            if symbol.same_as(extent):
                return joined
        return [extent]


def extents_of(tensor: relax.Expr) -> list[Extent] | None:
    """The dimensions of a tensor, those that are static as int, or None if they are unknown."""
    shape = getattr(tensor.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in shape.values]


def is_small(elements: np.ndarray) -> bool:
    """Whether there are no more elements than a value may have."""
    if elements.size <= _MAX_SYMBOLIC_ELEMENTS:
        return True
    return elements.size <= MAX_ELEMENTS and not any(
        isinstance(element, tirx.Expr) for element in elements.flat
    )


def _is_number(dtype: np.dtype) -> bool:
    return dtype.kind in "biuf" or str(dtype) == "bfloat16"


def _is_held(value: Value) -> bool:
    """Whether the dtype of a value has all its elements."""
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
