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
"""The call of an ONNX operator, and the places of its converters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
import onnx
from tvm import relax

from ...errors import OpAttributeInvalid
from .. import convert
from ..convert import OPERATOR, Converters
from ..dtypes import dtype_of
from .values.known import Extent, KnownValues, Value, extents_of

__all__ = [
    "CONVERTERS",
    "PLACES",
    "Call",
    "Context",
    "Extent",
    "converts",
    "extents_of",
    "float_defaults",
    "invalid_value",
    "operator_of",
]

PLACES = {
    "old opsets": "First: all others expect operands that broadcast as from opset 7 on.",
    "broadcast": "Before any converter reads a shape: operands get the shape of the result.",
    "narrow": "Types of less than 8 bits are carried in 8 bits, which only a cast must know of.",
    "small floats": "After narrow: float8 types are the result of bit operations on uint8.",
    "check": "Before a converter changes operands, so that a message shows those of the model.",
    "operands": "Padding and batch dims become operands as the operator itself expects them.",
    OPERATOR: "The converter itself.",
    "accumulate": "Last of ours on operands: the dtype of the sum is that of the emitted operator.",
    "large constants": "TVM's converter would compute the result with NumPy, without a budget.",
    "shape operands": "TVM's converter takes a shape with symbols only as a shape.",
}
"""The places in a chain of converters, outermost first, and why each stands there."""


@dataclass(frozen=True)
class Context:
    """State that the calls of one import share.

    Attributes
    ----------
    builder : BlockBuilder
        The builder of the function under construction.
    known : KnownValues
        The known elements and extents of tensors, and arithmetic on symbols.
    stock : callable
        Converts a call with TVM's converter.
    """

    builder: relax.BlockBuilder
    known: KnownValues
    stock: Callable[["Call"], Any]

    def convert(self, call: "Call") -> Any:
        """Convert a call with the whole chain of its operator."""
        return CONVERTERS.convert(call, self.stock)


@dataclass(frozen=True)
class Call(convert.Call):
    """A node of an ONNX graph whose operands are already converted.

    ``attributes`` are in the form that TVM's converters get: ints, floats, bytes, tuples of these,
    or protobuf messages.  ``version`` is that of the default operator set.

    Attributes
    ----------
    outputs : int
        The number of outputs that the node names.
    rank : int, optional
        The rank of the first output, if the model declares it.
    narrow : tuple
        For each operand, its dtype if that has fewer than 8 bits, else None; see
        :mod:`tvm_fixes.frontend.onnx.ops.narrow`.
    """

    outputs: int = 1
    rank: int | None = None
    narrow: tuple[str | None, ...] = ()

    @property
    def known(self) -> KnownValues:
        """The known elements and extents of tensors."""
        known: KnownValues = self.context.known
        return known

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
        """This call without the attributes `removed`, and with those in `changed` set."""
        kept = {k: v for k, v in self.attributes.items() if k not in removed}
        return replace(self, attributes=kept | changed)

    def invalid(self, subject: str, value: object, reason: str) -> OpAttributeInvalid:
        """The error for an invalid `value` of `subject`, e.g. ``"attribute pads"``."""
        return invalid_value(self.operator, self.source.name, subject, value, reason)


CONVERTERS: Converters[Call] = Converters("tvm_fixes.frontend.onnx.ops", PLACES)
"""The converters that correct or extend TVM's."""

converts = CONVERTERS.converts


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


def operator_of(node: onnx.NodeProto) -> str:
    """The operator of a node, with its domain if the operator of that domain has a converter.

    Others are converted by operator type, as in TVM.
    """
    name = f"{node.domain}.{node.op_type}"
    return name if node.domain and CONVERTERS.has(name) else node.op_type
