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
"""The node that an evaluator computes at import time, and helpers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from tvm import relax

from .known import Element, Extent, KnownValues, Value, is_small

__all__ = ["Evaluator", "Operation", "UnknownError", "filled", "positions"]


class UnknownError(Exception):
    """An element of a result is unknown, so the operator must run in the model."""


@dataclass(frozen=True)
class Operation:
    """A node whose operands are known values or tensors.

    An operand that is omitted is None.
    """

    operands: Sequence[Value | relax.Expr | None]
    attributes: dict[str, Any]
    opset: int
    known: KnownValues
    outputs: int = 1

    def has(self, index: int) -> bool:
        """Whether an operand is given."""
        return index < len(self.operands) and self.operands[index] is not None

    def value(self, index: int) -> Value:
        """The value of an operand that is not omitted."""
        operand = self.operands[index]
        value = operand if isinstance(operand, Value) else self.known.of(operand)
        if value is None:
            raise UnknownError
        return value

    def numbers(self, index: int) -> list[int]:
        """The elements of an integer operand, which must be static."""
        elements = self.value(index).extents()
        if not all(isinstance(element, int) for element in elements):
            raise UnknownError
        return elements

    def values(self) -> list[Value]:
        """The values of all operands."""
        return [self.value(index) for index in range(len(self.operands))]

    def extents(self) -> list[Extent]:
        """The shape of the first operand."""
        [tensor] = self.operands
        if isinstance(tensor, Value):
            return list(tensor.shape)
        extents = None if tensor is None else self.known.extents(tensor)
        if extents is None:
            raise UnknownError
        return extents

    def result(self, elements: Iterable[Element], shape: Sequence[int], dtype: str) -> Value:
        value = self.known.value(elements, shape, dtype)
        if value is None:
            raise UnknownError
        return value

    def moved(self, elements: np.ndarray | Element) -> Value:
        """A value with `elements` taken from the first operand, and with its dtype."""
        if not isinstance(elements, np.ndarray):  # NumPy returns a single element without an array
            elements = filled([elements], ())
        if not is_small(elements):
            raise UnknownError
        return Value(elements, self.value(0).dtype)

    def axis(self, default: int = 0) -> int:
        """The attribute axis as a nonnegative axis of the first operand."""
        [axis] = positions([self.attributes.get("axis", default)], self.value(0).elements.ndim)
        return axis


Evaluator: TypeAlias = Callable[[Operation], Value | list[Value]]
"""Returns the values of the outputs, or raises an error if one is unknown."""


def positions(axes: Iterable[int], rank: int) -> list[int]:
    """Axes as nonnegative numbers; negative axes count from the end.

    Raises
    ------
    ValueError
        If an axis is out of range for `rank`.
    """
    axes = list(axes)
    if not all(-rank <= axis < rank for axis in axes):
        raise ValueError(f"axes are {axes}; expected {-rank} to {rank - 1}")
    return [axis % rank for axis in axes]


def filled(elements: Iterable[Element], shape: Sequence[int]) -> np.ndarray:
    """An object array of `elements`, filled one by one: NumPy would iterate over an expression."""
    array = np.empty(shape, object)
    for index, element in enumerate(elements):
        array.flat[index] = element
    return array
