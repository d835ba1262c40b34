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
"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.

Trigger
    Scales per block; 4-bit integers; scales and results of 16-bit floats; scales along an axis
    of symbolic extent; a DynamicQuantizeLinear of zeros.
Mechanism
    The converters pass all dtypes on to ``relax.quantize`` and ``relax.dequantize``, which compute
    in the dtype of their operands; the scale of zeros is 0.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from onnx import helper
from tvm import relax, tirx

from .....fixes.onnx_importer import QUANTIZED
from .....support import switches
from ....dtypes import dtype_of
from ....extents import equal
from ...call import Call, Extent, converts
from ..narrow import carrier_of, limits_of
from ..shape_operands import require
from ..small_floats import from_small, is_small_float, to_small
from .steps import (
    as_float32,
    check_dtype,
    dequantize,
    dynamic_parameters,
    is_scalar,
    named_operands,
    quantize,
    round_and_clip,
    subtract_zero_point,
)

__all__ = ["per_block"]

_INTEGER = re.compile(r"u?int(2|4|8|16|32)$")

_FLOATS = ("float32", "float16", "bfloat16")


@converts("QuantizeLinear", "com.microsoft.QuantizeLinear", fix=QUANTIZED)
def convert_quantize_linear(call: Call) -> relax.Expr:
    """Convert a QuantizeLinear.

    The division is in float32, as in ONNX Runtime, which ignores the attribute ``precision``.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the result has neither integers of up to 16 bits nor 8-bit floats, or the operands do not
        agree.
    """
    switches.note(QUANTIZED)
    inputs = named_operands(call, "x y_scale y_zero_point", ("x", "y_scale"))
    data, scale, zero = inputs.values()
    check_dtype(call, "x", data, *_FLOATS, "int32")
    check_dtype(call, "y_scale", scale, *_FLOATS)
    dtype = _quantized_dtype(call, zero)
    grid = _Grid.of(call, "y")
    carrier = carrier_of(dtype)
    data, scale, zero = grid.aligned(call, data, scale, zero)
    if is_small_float(dtype):
        return _quantize_to_floats(call, grid, data, scale, zero, dtype)
    if grid.block:
        spread = partial(grid.spread, call)
        scaled = call.emit(relax.op.divide(as_float32(call, data), spread(as_float32(call, scale))))
        out = round_and_clip(call, scaled, None if zero is None else spread(zero), carrier)
    else:
        out = quantize(call, data, scale, zero, carrier, grid.axis)
    return out if carrier == dtype else relax.op.clip(call.emit(out), *limits_of(dtype))


def _quantize_to_floats(
    call: Call,
    grid: "_Grid",
    data: relax.Expr,
    scale: relax.Expr,
    zero: relax.Expr | None,
    dtype: str,
) -> relax.Expr:
    """The quotient of data and scale, plus the zero point, as 8-bit floats."""
    op = relax.op
    scaled = call.emit(
        op.divide(as_float32(call, data), grid.spread(call, as_float32(call, scale)))
    )
    if zero is not None:
        scaled = call.emit(op.add(scaled, grid.spread(call, from_small(call.builder, zero))))
    return to_small(call.builder, scaled, dtype, bool(call.attributes.get("saturate", 1)))


def _quantized_dtype(call: Call, zero: relax.Expr | None) -> str:
    """The dtype of the result: that of the zero point, ``output_dtype``, or uint8."""
    number = call.attributes.get("output_dtype", 0)
    wanted = str(helper.tensor_dtype_to_np_dtype(number)) if number else None
    dtype = wanted or "uint8" if zero is None else call.dtype(2)
    if not (_INTEGER.match(dtype) or is_small_float(dtype)) or dtype.endswith("32"):
        reason = "expected integers of 2 to 16 bits, or floats of 8"
        raise call.invalid("dtype of y", dtype, reason)
    if wanted not in (None, dtype):
        reason = f"expected {dtype}, the dtype of y_zero_point"
        raise call.invalid("attribute output_dtype", wanted, reason)
    return dtype


@converts("DequantizeLinear", "com.microsoft.DequantizeLinear", fix=QUANTIZED)
def convert_dequantize_linear(call: Call) -> relax.Expr:
    """Convert a DequantizeLinear; compute in float32, then round once.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the data are neither integers nor 8-bit floats, or the operands do not agree.
    """
    switches.note(QUANTIZED)
    inputs = named_operands(call, "x x_scale x_zero_point", ("x", "x_scale"))
    data, scale, zero = inputs.values()
    if not (_INTEGER.match(call.dtype(0)) or is_small_float(call.dtype(0))):
        reason = "expected integers of 2 to 32 bits, or floats of 8"
        raise call.invalid("dtype of x", call.dtype(0), reason)
    check_dtype(call, "x_scale", scale, *_FLOATS)
    if zero is not None and call.dtype(2) != call.dtype(0):
        reason = f"expected {call.dtype(0)}, the dtype of x"
        raise call.invalid("dtype of x_zero_point", call.dtype(2), reason)
    number = call.attributes.get("output_dtype", 0)
    dtype = str(helper.tensor_dtype_to_np_dtype(number)) if number else dtype_of(scale)
    if dtype not in _FLOATS:
        raise call.invalid("attribute output_dtype", dtype, f"expected one of {_FLOATS}")
    grid = _Grid.of(call, "x")
    data, scale, zero = grid.aligned(call, data, scale, zero)
    if is_small_float(call.dtype(0)):
        moved = from_small(call.builder, data)
        if zero is not None:
            origin = grid.spread(call, from_small(call.builder, zero))
            moved = call.emit(relax.op.subtract(moved, origin))
        spread_scale = grid.spread(call, as_float32(call, scale))
        out = call.emit(relax.op.multiply(moved, spread_scale))
    elif grid.block:
        scale = grid.spread(call, as_float32(call, scale))
        zero = None if zero is None else grid.spread(call, zero)
        moved = as_float32(call, subtract_zero_point(call, data, zero))
        out = call.emit(relax.op.multiply(moved, scale))
    else:
        out = dequantize(call, data, scale, zero, grid.axis)
    return out if dtype == "float32" else relax.op.astype(out, dtype)


@converts("DynamicQuantizeLinear", fix=QUANTIZED)
def convert_dynamic_quantize_linear(call: Call) -> relax.Expr:
    """Convert a DynamicQuantizeLinear; the scale of zeros is 1."""
    switches.note(QUANTIZED)
    inputs = named_operands(call, "x", ("x",))
    check_dtype(call, "x", inputs["x"], "float32")
    scale, zero = dynamic_parameters(call, inputs["x"])
    return relax.Tuple([quantize(call, inputs["x"], scale, zero, "uint8"), scale, zero])


@dataclass(frozen=True)
class _Grid:
    """Which elements share a scale and a zero point.

    Attributes
    ----------
    axis : int
        The axis along which the parameters differ; 0 if there is one scale.
    extent : int or Expr, optional
        The extent of this axis; None if there is one scale.
    block : int
        The number of adjacent elements along the axis that share parameters; 0 without blocks.
    """

    axis: int
    extent: Extent | None
    block: int

    @classmethod
    def of(cls, call: Call, prefix: str) -> Self:
        """Read the attributes of a node with data, scale and zero point.

        Parameters
        ----------
        prefix : str
            The first letter of the names of the parameters, for messages.

        Raises
        ------
        tvm.error.OpAttributeInvalid
            If an attribute is out of range, or the shapes do not agree; the model checks symbolic
            extents at run time.
        """
        data, scale, zero = (call.operand(index) for index in range(3))
        rank = data.ty.ndim
        axis = call.attributes.get("axis", 1)
        block = call.attributes.get("block_size", 0)
        if block < 0:
            raise call.invalid("attribute block_size", block, "expected 0 or more")
        if not block and is_scalar(scale):
            if zero is not None and not is_scalar(zero):
                shape = call.known.extents(zero)
                raise call.invalid(f"shape of {prefix}_zero_point", shape, "expected one element")
            return cls(0, None, 0)
        if rank == 1 and axis == 1:  # the default, which TVM accepts for vectors
            axis = 0
        if not -rank <= axis < rank:
            reason = f"expected {-rank} to {rank - 1}, or a scale of one element"
            raise call.invalid("attribute axis", axis, reason)
        axis %= rank
        extents = call.known.extents(data)
        if extents is None:
            raise call.invalid(f"shape of {prefix}", data.ty, "expected a known shape")
        expected: list[Extent] = [extents[axis]]
        if block:
            count = (extents[axis] + block - 1) // block
            expected = [count if index == axis else e for index, e in enumerate(extents)]
        _check_parameters(call, prefix, expected)
        return cls(axis, extents[axis], block)

    def aligned(
        self, call: Call, data: relax.Expr, scale: relax.Expr, zero: relax.Expr | None
    ) -> tuple[relax.Expr, relax.Expr, relax.Expr | None]:
        """The operands with matching extents where they must agree, which TVM cannot infer."""
        extents, shape = call.known.extents(data), call.known.extents(scale)
        if self.extent is None or extents is None or shape is None:
            return data, scale, zero
        pairs = [(self.axis, 0)]
        if self.block:
            pairs = [(axis, axis) for axis in range(len(extents)) if axis != self.axis]
        for axis, index in pairs:
            if isinstance(shape[index], int):
                extents[axis] = shape[index]
            else:
                shape[index] = extents[axis]
        return (
            _with_extents(call, data, extents),
            _with_extents(call, scale, shape),
            None if zero is None else _with_extents(call, zero, shape),
        )

    def spread(self, call: Call, parameter: relax.Expr) -> relax.Expr:
        """A parameter in a shape that broadcasts to that of the data.

        A parameter per block is repeated for each element of the block.
        """
        if self.extent is None:
            return parameter
        if not self.block:
            others = [axis for axis in range(call.operands[0].ty.ndim) if axis != self.axis]
            return call.emit(relax.op.expand_dims(parameter, others))
        return per_block(call, parameter, self.axis, self.block, self.extent)


def _check_parameters(call: Call, prefix: str, expected: list[Extent]) -> None:
    """Check that scale and zero point have the `expected` shape."""
    for index, name in ((1, f"{prefix}_scale"), (2, f"{prefix}_zero_point")):
        if call.operand(index) is None:
            continue
        shape = call.known.extents(call.operands[index])
        reason = f"expected {expected}"
        if shape is None or len(shape) != len(expected):
            raise call.invalid(f"shape of {name}", shape, reason)
        for extent, other in zip(shape, expected, strict=True):
            require(call, equal(call.known, extent, other), f"shape of {name}", shape, reason)


def _with_extents(call: Call, value: relax.Expr, extents: Sequence[Extent]) -> relax.Expr:
    """`value` with other `extents`; the model checks at run time that they are equal."""
    current = call.known.extents(value)
    if current is None or all(map(call.known.equal, current, extents)):
        return value
    shape = [tirx.const(e, "int64") if isinstance(e, int) else e for e in extents]
    variable = value if isinstance(value, relax.Var) else call.emit(value)
    return call.builder.match_cast(variable, relax.TensorType(shape, dtype_of(value)))


def per_block(
    call: Call, parameter: relax.Expr, axis: int, block: int, extent: Extent
) -> relax.Expr:
    """`parameter`, each element repeated `block` times along `axis`, cut to `extent` elements."""
    if not isinstance(extent, int):
        # A slice would have a minimum as its extent, which TVM cannot compare with `extent`.
        elements = call.emit(relax.op.arange(0, extent, 1, "int64"))
        indices = call.emit(relax.op.floor_divide(elements, relax.const(block, "int64")))
        return call.emit(relax.op.take(parameter, indices, axis))
    repeated = call.emit(relax.op.repeat(parameter, min(block, extent), axis))
    extents = call.known.extents(repeated)
    if extents is not None and extents[axis] == extent:
        return repeated
    return call.emit(relax.op.strided_slice(repeated, [axis], [0], [extent]))
