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
"""The call of a TFLite operator, and the converters of operators.

The value of a tensor is a Relax expression, or a NumPy array if it is known: a constant, or
integers that are computed from shapes.  Elements of the latter may be extents, in an array of
objects.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import tvm
from tvm import relax, tirx

from ...errors import UnsupportedOperatorError
from .. import convert
from ..convert import OPERATOR, Converters
from ..dtypes import dtype_of
from ..extents import Extent, expression, extents_of, is_static
from .file.model import Quantization, Tensor

__all__ = [
    "CONVERTERS",
    "MAX_KNOWN",
    "Array",
    "Call",
    "Context",
    "Value",
    "carrier_of",
    "converts",
    "is_quantized",
    "is_small_integer",
]

Array: TypeAlias = np.ndarray[Any, Any]

Value: TypeAlias = relax.Expr | Array
"""The value of a tensor."""

MAX_KNOWN = 64
"""The number of elements that are computed at import; no shape has more."""

_CARRIERS = {"int4": "int8", "int2": "int8", "uint4": "uint8"}
# No axis and no constant that the importer makes is longer.
_MAX_MADE = 1 << 20

_QUANTIZED = ("int8", "uint8", "int16", *_CARRIERS)


def carrier_of(dtype: str) -> str:
    """The dtype in which a compiled model stores elements of another."""
    return _CARRIERS.get(dtype, dtype)


def is_quantized(tensor: Tensor) -> bool:
    """Whether the elements of a tensor stand for real numbers; an int32 has parameters, too."""
    return tensor.quantization is not None and tensor.dtype in _QUANTIZED


def is_small_integer(value: Value | None) -> TypeGuard[Array]:
    """Whether a value may be part of the computation of a shape."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "iuO" and value.size <= MAX_KNOWN


@dataclass(frozen=True)
class Context:
    """State that the calls of one import share.

    Attributes
    ----------
    builder : relax.BlockBuilder
    keep : callable
        Stores the elements of a constant, perhaps in a file.
    """

    builder: relax.BlockBuilder
    keep: Callable[[tvm.runtime.Tensor], tvm.runtime.Tensor]
    _expressions: dict[int, tuple[Array, relax.Expr]] = field(default_factory=dict)

    def convert(self, call: "Call") -> Any:
        """Convert a call; the result is a value, or a list for an operator with several results.

        Raises
        ------
        UnsupportedOperatorError
            If the operator has no converter.
        """
        return CONVERTERS.convert(call, _reject)

    def expression(self, value: Value, dtype: str) -> relax.Expr:
        """A value as an expression; known elements get a dtype."""
        if not isinstance(value, np.ndarray):
            return value
        number = id(value)
        if number not in self._expressions:
            # The array is kept, so that no other one gets its number.
            self._expressions[number] = value, self._constant(value, dtype)
        _, expression = self._expressions[number]
        return expression

    def _constant(self, value: Array, dtype: str) -> relax.Expr:
        if value.dtype == object and not is_static(*value.flat):
            shape = relax.ShapeExpr([expression(extent) for extent in value.flat])
            vector = self.builder.emit(relax.op.shape_to_tensor(shape))
            if dtype != "int64":
                vector = self.builder.emit(relax.op.astype(vector, dtype))
            if value.ndim == 1:
                return vector
            return self.builder.emit(relax.op.reshape(vector, list(value.shape)))
        array = np.ascontiguousarray(value.astype(dtype)).reshape(value.shape)
        return relax.const(self.keep(tvm.runtime.tensor(array)))


@dataclass(frozen=True, kw_only=True)
class Call(convert.Call):
    """One call of an operator, as its converter sees it.

    ``operands`` are values; None stands for an input that is omitted.

    Attributes
    ----------
    inputs : tuple of Tensor or None
        The tensors of the operands.
    outputs : tuple of Tensor
        The tensors of the results.
    place : str
        The operator and its subgraph, for messages.
    """

    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    place: str

    # Operands

    def has(self, index: int) -> bool:
        """Whether an operand is given."""
        return index < len(self.operands) and self.operands[index] is not None

    def input(self, index: int) -> Tensor:
        """The tensor of an operand, which must be given."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise self.fail(f"operand {index} is missing")
        return tensor

    def operand(self, index: int) -> relax.Expr:
        """An operand as an expression, with the dtype of the file."""
        dtype = carrier_of(self.input(index).dtype)
        return self.context.expression(self.operands[index], dtype)

    def known(self, index: int) -> Array | None:
        """The elements of an operand that is known."""
        self.input(index)
        value = self.operands[index]
        return value if isinstance(value, np.ndarray) else None

    def elements(self, index: int, what: str) -> Array:
        """The elements of an operand, which must be known at import."""
        value = self.known(index)
        if value is None:
            raise self.fail(f"{what} must be constant")
        return value

    def extents(self, index: int, what: str) -> list[Extent]:
        """The elements of an operand, which are extents."""
        elements = self.elements(index, what).flat
        return [extent if isinstance(extent, tirx.Expr) else int(extent) for extent in elements]

    def ints(self, index: int, what: str) -> list[int]:
        """The elements of an operand, which must be constant integers."""
        extents = self.extents(index, what)
        if not is_static(*extents):
            raise self.fail(f"{what} must be constant, not {extents}")
        return [int(extent) for extent in extents]

    def known_integers(self) -> list[Array] | None:
        """All operands, if they are few integers that are known and stand for themselves."""
        given = [tensor for tensor in self.inputs if tensor is not None]
        if any(map(is_quantized, given)):
            return None
        values = [value for value in self.operands if is_small_integer(value)]
        return values if len(values) == len(self.operands) else None

    def shape(self, index: int) -> list[Extent]:
        """The shape of an operand."""
        value = self.known(index)
        if value is not None:
            return list(value.shape)
        extents = extents_of(self.operand(index))
        if extents is None:
            raise self.fail(f"the shape of operand {index} is unknown")
        return extents

    def rank(self, index: int) -> int:
        """The rank of an operand."""
        return len(self.shape(index))

    def limited(self, count: int, what: str) -> int:
        """A number of elements that the import makes, which a hostile file must not choose."""
        if not 0 <= count <= _MAX_MADE:
            raise self.fail(f"{what} is {count}; expected 0 to {_MAX_MADE}")
        return count

    def axis(self, axis: int, rank: int) -> int:
        """An axis, which may count from the last one."""
        if not -rank <= axis < rank:
            raise self.fail(f"the axis is {axis}, of a tensor of rank {rank}")
        return axis % rank

    # Options

    def option(self, name: str) -> Any:
        """An option of the operator."""
        if name not in self.attributes:
            raise self.fail(f"the option {name} is missing")
        return self.attributes[name]

    def option_or(self, name: str, default: Any) -> Any:
        """An option of the operator, or another value if it has no options."""
        return self.attributes.get(name, default)

    # Real numbers

    def quantization(self, tensor: Tensor, *, per_axis: bool = False) -> Quantization:
        """The parameters of a quantized tensor, one for the whole of it unless `per_axis`."""
        parameters = tensor.quantization
        if parameters is None:
            raise self.fail(f"{tensor} of {tensor.dtype} has no quantization")
        if parameters.details:
            raise self.fail(f"{tensor}: {parameters.details} is not supported")
        scale, zero = parameters.scale, parameters.zero_point
        if not per_axis and not parameters.is_per_tensor:
            raise self.fail(f"{tensor} has {scale.size} scales; expected one")
        limits = np.iinfo(carrier_of(tensor.dtype))
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise self.fail(f"{tensor}: expected positive scales, got {scale.min()}")
        if (zero < limits.min).any() or (zero > limits.max).any():
            raise self.fail(f"{tensor}: the zero point is outside of {tensor.dtype}")
        return parameters

    def real(self, index: int, *, per_axis: bool = False) -> relax.Expr:
        """An operand; a quantized one is dequantized to float32."""
        tensor = self.input(index)
        if not is_quantized(tensor):
            return self.operand(index)
        parameters = self.quantization(tensor, per_axis=per_axis)
        return self.dequantized(self.operand(index), parameters, carrier_of(tensor.dtype))

    def dequantized(self, value: relax.Expr, parameters: Quantization, dtype: str) -> relax.Expr:
        """Integers as real numbers."""
        shape = () if parameters.is_per_tensor else (-1,)
        scale = relax.const(parameters.scale.reshape(shape))
        zero = relax.const(parameters.zero_point.reshape(shape).astype(dtype))
        axis = 0 if parameters.is_per_tensor else parameters.axis
        return self.emit(relax.op.dequantize(value, scale, zero, axis, "float32"))

    def as_output(self, value: relax.Expr, index: int = 0) -> relax.Expr:
        """A real result in the dtype of the output: quantized, halves away from zero."""
        tensor = self.outputs[index]
        if not is_quantized(tensor):
            return value
        scale = self.number(self.quantization(tensor).scale.item())
        return self.saturated(self.rounded_away(self.emit(relax.op.divide(value, scale))), index)

    def rounded_away(self, value: relax.Expr) -> relax.Expr:
        """Round floats to integers, halves away from zero."""
        half = relax.op.add(self.emit(relax.op.abs(value)), self.number(0.5))
        whole = relax.op.floor(self.emit(half))
        return self.emit(relax.op.multiply(relax.op.sign(value), self.emit(whole)))

    def saturated(self, value: relax.Expr, index: int = 0) -> relax.Expr:
        """Whole numbers in steps of the output, plus its zero point, clipped to its dtype."""
        tensor = self.outputs[index]
        zero = int(self.quantization(tensor).zero_point[0])
        if zero:
            value = self.emit(relax.op.add(value, relax.const(zero, dtype_of(value))))
        return self.clipped(value, tensor.dtype)

    def clipped(self, value: relax.Expr, dtype: str) -> relax.Expr:
        """Whole numbers, clipped to an integer dtype."""
        limits = np.iinfo(dtype)
        inside = self.emit(relax.op.clip(value, limits.min, limits.max))
        return self.emit(relax.op.astype(inside, dtype))

    def quantized_product(self, value: relax.Expr) -> relax.Expr:
        """The result of a product in the dtype of the output, as FuseQuantized recognizes it."""
        tensor = self.outputs[0]
        if not is_quantized(tensor):
            return value
        parameters = self.quantization(tensor)
        scale = relax.const(parameters.scale.reshape(()))
        zero = relax.const(parameters.zero_point.reshape(()).astype(tensor.dtype))
        return self.emit(relax.op.quantize(value, scale, zero, 0, tensor.dtype))

    def number(self, value: float, dtype: str = "float32") -> relax.Expr:
        """A scalar constant."""
        return relax.const(value, dtype)

    def has_same_quantization(self, *tensors: Tensor) -> bool:
        """Whether integers of the tensors stand for the same real numbers."""
        first, *others = tensors
        return all(
            first.dtype == other.dtype and first.quantization == other.quantization
            for other in others
        )

    def require_same_quantization(self, *tensors: Tensor) -> None:
        """Reject quantized tensors of several parameters: by default, first operand and result.

        LiteRT moves the integers, and ignores the parameters or rejects the model.
        """
        first, *others = tensors or (self.input(0), self.outputs[0])
        for other in others if is_quantized(first) else ():
            if not self.has_same_quantization(first, other):
                raise self.fail(f"the quantization of {first} and {other} differs")

    def reject_quantized(self, tensor: Tensor) -> None:
        """Reject a quantized tensor."""
        if is_quantized(tensor):
            raise self.fail(f"{tensor} is quantized, which is not supported")

    def require_dtype(self, index: int, *dtypes: str) -> None:
        """Reject an operand of another dtype."""
        dtype = self.input(index).dtype
        if dtype not in dtypes:
            raise self.fail(f"operand {index} is {dtype}; expected {' or '.join(dtypes)}")

    # Results

    def emit_te(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> relax.Expr:
        """Compute the result by a TE function."""
        return self.builder.emit_te(function, *args, **kwargs)

    def activated(self, value: relax.Expr) -> relax.Expr:
        """Apply the fused activation function."""
        name = self.option_or("fused_activation_function", "NONE")
        if name == "NONE":
            return value
        op = relax.op
        dtype = dtype_of(value)
        if name == "RELU":
            zero = relax.const(0, dtype)
            return self.emit(op.nn.relu(value) if dtype == "float32" else op.maximum(value, zero))
        if name in ("RELU6", "RELU_N1_TO_1"):
            return self.emit(op.clip(value, *((0, 6) if name == "RELU6" else (-1, 1))))
        # LiteRT ignores the others, outside of recurrent layers.
        raise self.fail(f"the activation function {name} is not supported")

    def fail(self, message: str) -> UnsupportedOperatorError:
        """Return an error that names the operator and its place."""
        return UnsupportedOperatorError(f"{self.operator} at {self.place}: {message}")

    def check_operands(self, *counts: int) -> None:
        """Reject a call with another number of operands."""
        if len(self.inputs) not in counts:
            expected = " or ".join(map(str, counts))
            raise self.fail(f"{len(self.inputs)} operands; expected {expected}")


def _reject(call: Call) -> Any:
    raise call.fail("no converter")


CONVERTERS: Converters[Call] = Converters(
    "tvm_fixes.frontend.tflite.ops", {OPERATOR: "The converter itself: none of TVM's is called."}
)
"""The converters of TFLite's operators."""

converts = CONVERTERS.converts
