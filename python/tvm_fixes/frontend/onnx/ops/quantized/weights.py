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
"""Operators of the domain com.microsoft with weights quantized in blocks.

The weights stay packed in the module, which unpacks them at run time.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from tvm import relax

from .....fixes.onnx_importer import QUANTIZED
from .....support import switches
from ....dtypes import dtype_of
from ...call import Call, converts, extents_of
from ..contractions import check_matmul
from .quantize_linear import per_block
from .steps import add_bias, as_float32, check_dtype, check_shape, named_operands

_FLOATS = ("float32", "float16", "bfloat16")


@converts("com.microsoft.MatMulNBits", fix=QUANTIZED)
def convert_matmul_nbits(call: Call) -> relax.Expr:
    """Convert a MatMulNBits: dequantize the weight in float32, then multiply.

    The attribute ``accuracy_level`` has no effect: the left operand is not quantized.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the weight is not packed in 2, 4 or 8 bits, or shapes do not agree.
    """
    switches.note(QUANTIZED)
    inputs = named_operands(call, "A B scales zero_points g_idx bias", ("A", "B", "scales"))
    rows, columns = _integer(call, "N", 1), _integer(call, "K", 1)
    block, bits = _integer(call, "block_size", 1), _bits(call)
    if call.attributes.get("weight_prepacked", 0):
        raise call.invalid("attribute weight_prepacked", 1, "expected 0, weights in ONNX's order")
    if block * bits % 8:
        raise call.invalid("attribute block_size", block, f"expected a multiple of {8 // bits}")
    data, packed, dtype = inputs["A"], inputs["B"], dtype_of(inputs["A"])
    check_dtype(call, "A", data, *_FLOATS)
    check_dtype(call, "B", packed, "uint8")
    check_dtype(call, "scales", inputs["scales"], dtype)
    blocks = -(-columns // block)
    check_shape(call, "B", packed, (rows, blocks, block * bits // 8))
    check_shape(call, "scales", inputs["scales"], (rows * blocks,), (rows, blocks))
    scale = as_float32(call, call.emit(relax.op.reshape(inputs["scales"], (rows, blocks))))
    zero = _zero_points(call, inputs["zero_points"], rows, blocks, bits)
    weight = as_float32(call, unpacked(call, packed, bits))
    if inputs["g_idx"] is None:
        scale = call.emit(relax.op.expand_dims(scale, -1))
        zero = call.emit(relax.op.expand_dims(zero, -1)) if zero.ty.ndim else zero
        weight = _dequantized(call, weight, scale, zero)
        weight = call.emit(relax.op.reshape(weight, (rows, blocks * block)))
        weight = _cut(call, weight, columns)
    else:
        check_shape(call, "g_idx", inputs["g_idx"], (columns,), (blocks * block,))
        group = _cut(call, inputs["g_idx"], columns)
        weight = call.emit(relax.op.reshape(weight, (rows, blocks * block)))
        scale = call.emit(relax.op.take(scale, group, axis=1))
        zero = call.emit(relax.op.take(zero, group, axis=1)) if zero.ty.ndim else zero
        weight = _dequantized(call, _cut(call, weight, columns), scale, zero)
    return _product(call, data, weight, inputs["bias"], dtype)


def _product(
    call: Call, data: relax.Expr, weight: relax.Expr, bias: relax.Expr | None, dtype: str
) -> relax.Expr:
    """The product of `data` and the transposed weight, summed in float32, plus the bias."""
    if dtype != "float32":
        weight = call.emit(relax.op.astype(weight, dtype))
    matrix = call.emit(relax.op.permute_dims(weight, [1, 0]))

    def multiply(product: Call) -> relax.Expr:
        return relax.op.matmul(*product.operands, "float32")

    product = replace(call, operands=(data, matrix), rest=multiply)
    out = call.emit(check_matmul(product))
    out = add_bias(call, out, None if bias is None else as_float32(call, bias))
    return out if dtype == "float32" else relax.op.astype(out, dtype)


def _default_zero_point(bits: int) -> relax.Expr:
    return relax.const(2.0 ** (bits - 1), "float32")


def _integer(call: Call, attribute: str, at_least: int, default: int | None = None) -> int:
    value = call.attributes.get(attribute, default)
    if value is None or value < at_least:
        raise call.invalid(f"attribute {attribute}", value, f"expected at least {at_least}")
    return int(value)


def _bits(call: Call) -> int:
    bits = call.attributes.get("bits", 4)
    if bits not in (2, 4, 8):
        raise call.invalid("attribute bits", bits, "expected 2, 4 or 8")
    return int(bits)


def _zero_points(
    call: Call, zero: relax.Expr | None, rows: int, blocks: int, bits: int
) -> relax.Expr:
    """The zero points in float32, of shape (rows, blocks), or a scalar if all are the default."""
    if zero is None:
        return _default_zero_point(bits)
    if dtype_of(zero) != "uint8":
        check_dtype(call, "zero_points", zero, *_FLOATS)
        check_shape(call, "zero_points", zero, (rows * blocks,), (rows, blocks))
        return as_float32(call, call.emit(relax.op.reshape(zero, (rows, blocks))))
    packed = -(-blocks * bits // 8)
    check_shape(call, "zero_points", zero, (rows * packed,), (rows, packed))
    zero = unpacked(call, call.emit(relax.op.reshape(zero, (rows, packed))), bits)
    return as_float32(call, _cut(call, zero, blocks))


def unpacked(call: Call, packed: relax.Expr, bits: int) -> relax.Expr:
    """The integers in the bytes of `packed`, along its last axis, lowest bits first."""
    if bits == 8:
        return packed
    extents = extents_of(packed)
    assert extents is not None
    shifts = relax.const(np.arange(0, 8, bits).astype("uint8"))
    parts = relax.op.right_shift(call.emit(relax.op.expand_dims(packed, -1)), shifts)
    parts = call.emit(relax.op.bitwise_and(parts, relax.const(2**bits - 1, "uint8")))
    return call.emit(relax.op.reshape(parts, [*extents[:-1], extents[-1] * (8 // bits)]))


def _cut(call: Call, value: relax.Expr, count: int) -> relax.Expr:
    """The first `count` elements along the last axis."""
    extents = extents_of(value)
    if extents is not None and extents[-1] == count:
        return value
    return call.emit(relax.op.strided_slice(value, [value.ty.ndim - 1], [0], [count]))


def _dequantized(call: Call, value: relax.Expr, scale: relax.Expr, zero: relax.Expr) -> relax.Expr:
    return call.emit(relax.op.multiply(call.emit(relax.op.subtract(value, zero)), scale))


@dataclass(frozen=True)
class _Table:
    """The data of a GatherBlockQuantized.

    Attributes
    ----------
    extents : list of int
        The shape of the data without packing.
    bits : int
        The number of bits of an element in a byte.
    block : int
        The number of elements along `axis` that share a scale.
    axis, gather_axis : int
    """

    extents: list[int]
    bits: int
    block: int
    axis: int
    gather_axis: int

    @classmethod
    def of(cls, call: Call) -> Self:
        """Read the data and the attributes of `node`."""
        data, is_packed = call.operands[0], call.dtype(0) == "uint8"
        if call.dtype(0) not in ("uint8", "int4", "uint4"):
            raise call.invalid("dtype of data", call.dtype(0), "expected uint8, int4 or uint4")
        extents = extents_of(data)
        static = [extent for extent in extents or () if isinstance(extent, int)]
        if extents is None or len(static) < len(extents):
            raise call.invalid("shape of data", data.ty, "expected a static shape")
        axes = {}
        for name, default in (("gather_axis", 0), ("quantize_axis", 1)):
            axis = call.attributes.get(name, default)
            if not -len(static) <= axis < len(static):
                reason = f"expected {-len(static)} to {len(static) - 1}"
                raise call.invalid(f"attribute {name}", axis, reason)
            axes[name] = axis % len(static)
        gather_axis, axis = axes["gather_axis"], axes["quantize_axis"]
        if gather_axis == axis or (is_packed and gather_axis != 0):
            reason = f"expected 0 for uint8, and not quantize_axis, {axis}"
            raise call.invalid("attribute gather_axis", gather_axis, reason)
        bits = _bits(call) if is_packed else 8
        static[-1] *= 8 // bits
        return cls(static, bits, _integer(call, "block_size", 1, 128), axis, gather_axis)

    @property
    def grid(self) -> list[int]:
        """The shape of the scales."""
        return [-(-e // self.block) if i == self.axis else e for i, e in enumerate(self.extents)]


@converts("com.microsoft.GatherBlockQuantized", fix=QUANTIZED)
def convert_gather_block_quantized(call: Call) -> relax.Expr:
    """Convert a GatherBlockQuantized: gather packed rows, then dequantize them in float32.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the data are not integers of 2, 4 or 8 bits, the axes are equal, or shapes do not agree.
    """
    switches.note(QUANTIZED)
    names = "data indices scales zero_points"
    inputs = named_operands(call, names, names.split()[:3])
    table, indices = _Table.of(call), inputs["indices"]
    zero, grid, bits = inputs["zero_points"], table.grid, table.bits
    check_dtype(call, "scales", inputs["scales"], *_FLOATS)
    check_shape(call, "scales", inputs["scales"], grid)
    if zero is not None:
        if call.dtype(3) != call.dtype(0):
            raise call.invalid("dtype of zero_points", call.dtype(3), f"expected {call.dtype(0)}")
        check_shape(call, "zero_points", zero, [*grid[:-1], -(-grid[-1] * bits // 8)])

    def gathered(value: relax.Expr, count: int, bits: int) -> relax.Expr:
        rows = call.emit(relax.op.take(value, indices, table.gather_axis))
        return as_float32(call, _cut(call, unpacked(call, rows, bits), count))

    # The axes of the indices replace the gathered one.
    axis = table.axis + (indices.ty.ndim - 1 if table.axis > table.gather_axis else 0)

    def spread(value: relax.Expr, bits: int) -> relax.Expr:
        few = gathered(value, grid[-1], bits)
        return per_block(call, few, axis, table.block, table.extents[table.axis])

    elements = gathered(inputs["data"], table.extents[-1], bits)
    if zero is not None:
        elements = call.emit(relax.op.subtract(elements, spread(zero, bits)))
    elif call.dtype(0) == "uint8":
        elements = call.emit(relax.op.subtract(elements, _default_zero_point(bits)))
    out = call.emit(relax.op.multiply(elements, spread(inputs["scales"], 8)))
    dtype = dtype_of(inputs["scales"])
    return out if dtype == "float32" else relax.op.astype(out, dtype)
