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
"""The node under conversion to Relax, and the types of its converters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self, TypeAlias

import numpy as np
import onnx
from tvm import relax

from ...errors import OpAttributeInvalid
from ..dtypes import dtype_of
from .values import Extent, KnownValues, Value, extents_of

__all__ = [
    "Converter",
    "Correction",
    "Extent",
    "Node",
    "extents_of",
    "float_defaults",
    "invalid_value",
]


@dataclass(frozen=True)
class Node:
    """A node of an ONNX graph whose operands are already converted.

    Attributes
    ----------
    operator : str
        The operator, e.g. ``"Conv"``.
    operands : tuple
        Relax expressions, and None for an optional operand that is omitted.
    attributes : dict
        The attributes by name, in the form that TVM's converters get: ints, floats, bytes, tuples
        of these, or protobuf messages.
    opset : int
        The version of the default operator set.
    builder : BlockBuilder
        The builder of the function under construction.
    known : KnownValues
        The known elements and extents of tensors, and arithmetic on symbols.
    narrow : tuple
        For each operand, its dtype if that has fewer than 8 bits, else None; see
        :mod:`tvm_fixes.frontend.onnx.narrow`.
    """

    operator: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any]
    opset: int
    builder: relax.BlockBuilder
    known: KnownValues
    narrow: tuple[str | None, ...] = ()

    def operand(self, index: int) -> Any:
        """The operand at `index`, or None if it is omitted."""
        return self.operands[index] if index < len(self.operands) else None

    def dtype(self, index: int) -> str:
        """The dtype of the operand at `index` in the model, even if another dtype carries it."""
        narrow = self.narrow[index] if index < len(self.narrow) else None
        return narrow or dtype_of(self.operands[index])

    def value(self, index: int) -> Value | None:
        """The elements of the operand at `index`, or None if it is omitted or unknown."""
        return self.known.of(self.operand(index))

    def constant(self, index: int) -> np.ndarray | None:
        """The operand at `index` as an array, or None if it is omitted or not constant."""
        operand = self.operand(index)
        if operand is None:
            return None
        array = self.known.array(operand)
        if array is not None:
            return array
        value = self.known.of(operand)
        return None if value is None else value.array()

    def text(self, attribute: str, default: str) -> str:
        """The value of a string attribute."""
        value = self.attributes.get(attribute, default)
        return value.decode("utf-8") if isinstance(value, bytes) else value

    def with_attributes(self, removed: Sequence[str] = (), **changed: Any) -> Self:
        """This node without the attributes `removed`, and with those in `changed` set."""
        kept = {k: v for k, v in self.attributes.items() if k not in removed}
        return replace(self, attributes=kept | changed)

    def with_operands(self, *operands: Any) -> Self:
        """This node with other operands."""
        return replace(self, operands=operands)

    def emit(self, value: relax.Expr) -> relax.Expr:
        """Bind `value` to a variable."""
        return self.builder.emit(value)

    def invalid(self, subject: str, value: object, reason: str) -> OpAttributeInvalid:
        """The error for an invalid `value` of `subject`, e.g. ``"attribute pads"``."""
        name = self.attributes["tvm_custom"]["name"]
        return invalid_value(self.operator, name, subject, value, reason)


Converter: TypeAlias = Callable[[Node], relax.Expr]
"""Converts a node to a Relax expression."""

Correction: TypeAlias = Callable[[Node, Converter], relax.Expr]
"""A converter that passes nodes that TVM converts correctly to the next converter."""


def invalid_value(
    operator: str, name: str, subject: str, value: object, reason: str
) -> OpAttributeInvalid:
    """The error for an invalid `value` of `subject` at the node `name`."""
    verb = "are" if subject.split()[0].endswith("s") else "is"
    return OpAttributeInvalid(f"{operator} {name!r}: {subject} {verb} {value}; {reason}")


@cache
def float_defaults(operator: str, opset: int) -> dict[str, float]:
    """The attribute defaults of an operator that float32 cannot represent exactly.

    Attributes are float32: a slope of 0.01 is 0.00999999978, even if the operands are float64.
    """
    try:
        declared = onnx.defs.get_schema(operator, opset).attributes
    except onnx.defs.SchemaError:
        return {}
    defaults = {
        name: attribute.default_value.f
        for name, attribute in declared.items()
        if attribute.default_value.type == onnx.AttributeProto.FLOAT
    }
    return {
        name: value for name, value in defaults.items() if float(str(np.float32(value))) != value
    }
