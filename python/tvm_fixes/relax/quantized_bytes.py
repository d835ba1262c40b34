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
"""Products of 8-bit data that is not widened, on CPUs with an instruction for them.

The zero point of the data is applied to the sums: ``sum((x - z) * w)`` is
``sum(x * w) - z * sum(w)``.
"""

from dataclasses import replace

import numpy as np
from tvm import relax

from ..tirx.accumulation import bytes_instruction
from .constants.make import rearranged
from .ir import nn_call, permuted_axes
from .layouts import Layout
from .legalize.targets import cpu_of
from .quantized import Integers, along, constant
from .quantized_products import channel_axis, with_operands


def product_of_bytes(
    bb: relax.BlockBuilder, call: relax.Call, data: Integers, weight: relax.Expr
) -> relax.Expr | None:
    """The int32 sums of products of ``data - zero`` and a weight.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Receives the product of bytes.
    call : relax.Call
        A matrix product or convolution.
    data : Integers
        Its data has 8 bits.
    weight : relax.Expr
        The other operand, without its zero point.

    Returns
    -------
    relax.Expr or None
        None if the CPU has no such instruction, or does not multiply these operands with it.
    """
    instruction = bytes_instruction(cpu_of(call))
    is_narrow = str(weight.ty.dtype) == "int8" and weight.ty.ndim > 1 and call.args[0].ty.ndim > 1
    if instruction is None or not is_narrow:
        return None
    data = _in_dtype(bb, data, instruction.data)
    zero = constant(data.zero)
    if zero is not None and not np.any(zero):
        return with_operands(call, data.data, weight)
    if data.zero is None or data.zero.ty.ndim:
        return None
    product = _padded_product(bb, call, data.data, weight, zero)
    if product is None:
        return None
    total = bb.emit(product)
    of_zero = _sums_times_zero(bb, call, weight, data.zero)
    if of_zero.ty.ndim == 1:
        of_zero = along(bb, of_zero, channel_axis(call), call.ty.ndim)
    return relax.op.subtract(total, of_zero)


def _in_dtype(bb: relax.BlockBuilder, value: Integers, dtype: str) -> Integers:
    """The same tensor with data of the other 8-bit dtype: data and zero point change by 128."""
    zero = value.zero
    if zero is None:
        zero = relax.const(np.zeros((), str(value.data.ty.dtype)))
    if str(value.data.ty.dtype) == dtype:
        return replace(value, zero=zero)
    by = relax.const(np.int16(128 if dtype == "uint8" else -128))

    def move(expr: relax.Expr) -> relax.Expr:
        array = constant(expr)
        if array is not None and array.ndim == 0:
            return relax.const((array.astype("int16") + constant(by)).astype(dtype))
        moved = relax.op.add(bb.emit(relax.op.astype(expr, "int16")), by)
        return bb.emit(relax.op.astype(bb.emit(moved), dtype))

    return replace(value, data=move(value.data), zero=move(zero))


def _padded_product(
    bb: relax.BlockBuilder,
    call: relax.Call,
    data: relax.Expr,
    weight: relax.Expr,
    zero: np.ndarray | None,
) -> relax.Call | None:
    """The product of the weight and the data, which is padded with its zero point.

    None if an output would still sum only some elements of the weight, as in a transposed
    convolution, or if the zero point is unknown.
    """
    name = str(call.op.name)
    if name.endswith("_transpose"):
        return None
    padding = [] if name == "relax.matmul" else [int(width) for width in call.attrs.padding]
    if not any(padding):
        return with_operands(call, data, weight)
    layout = Layout(str(call.attrs.data_layout))
    if zero is None or layout.blocks:
        return None
    widths = [0] * (2 * data.ty.ndim)
    spatial = [letter for letter in layout.letters if letter not in "NC"]
    for number, letter in enumerate(spatial):
        axis = layout.letters.index(letter)
        widths[2 * axis : 2 * axis + 2] = padding[number :: len(spatial)]
    data = bb.emit(relax.op.nn.pad(data, widths, pad_value=float(zero)))
    return nn_call(call, data, weight, out_dtype="int32", padding=[0] * len(padding))


def _sums_times_zero(
    bb: relax.BlockBuilder, call: relax.Call, weight: relax.Expr, zero: relax.Expr
) -> relax.Expr:
    """The sum of the weight for each output channel, times the zero point of the data."""
    if str(call.op.name) == "relax.matmul":
        # With a batch, the sums keep its rank.
        axes, keeps_axes = [weight.ty.ndim - 2], weight.ty.ndim > 2
    else:
        letters = Layout(str(call.attrs.kernel_layout)).letters
        axes, keeps_axes = [axis for axis, letter in enumerate(letters) if letter != "O"], False
    matrix, order = _permuted(bb, weight)
    if constant(matrix) is not None:

        def sums(array: np.ndarray) -> np.ndarray:
            return array.transpose(order).sum(tuple(axes), "int32", keepdims=keeps_axes)

        of_weight = rearranged(matrix, sums, "sum")
    else:
        in_int32 = bb.emit(relax.op.astype(weight, "int32"))
        of_weight = bb.emit(relax.op.sum(in_int32, axes, keepdims=keeps_axes))
    return bb.emit(relax.op.multiply(of_weight, bb.emit(relax.op.astype(zero, "int32"))))


def _permuted(bb: relax.BlockBuilder, weight: relax.Expr) -> tuple[relax.Expr, list[int]]:
    """The tensor that `weight` permutes, and the order of its axes.

    A permuted weight that only its product reads is packed at compile time.
    """
    binding = bb.lookup_binding(weight) if isinstance(weight, relax.Var) else None
    if not isinstance(binding, relax.Call) or binding.op.name != "relax.permute_dims":
        return weight, list(range(weight.ty.ndim))
    return binding.args[0], permuted_axes(binding)
