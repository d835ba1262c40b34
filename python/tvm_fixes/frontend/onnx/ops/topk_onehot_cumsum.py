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
"""TopK, OneHot, CumSum and ReverseSequence.

Trigger
    A TopK of opset 10, or whose K is 0, computed, or possibly greater than the extent; a OneHot
    whose depth is not an integer scalar, or whose values are not constants; a CumSum with
    ``reverse`` or a computed axis; a CumProd; a ReverseSequence.
Mechanism
    The converter of TopK reads an attribute that opset 10 does not have. The converter of OneHot
    converts operands to Python numbers of a different type. The converter of CumSum emits kernels
    that fusion cannot handle. CumProd and ReverseSequence have no converter.
"""

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from ....fixes.onnx_importer import OPERATORS, PARAMETERS
from ....support import switches
from ...dtypes import dtype_of
from ...extents import expression
from ..call import Call, Extent, converts
from .computed_axes import axis_parts
from .shape_operands import (
    axes_of,
    extents_or_symbols,
    length_of,
    require,
    require_all,
    shaped,
    to_shape_tensor,
    vector,
)
from .slice import take_ranges


@converts("TopK", fix=PARAMETERS)
def convert_top_k(call: Call) -> relax.Expr:
    """Convert a TopK; the result is sorted even if ``sorted`` is 0.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown, the axis is out of range, or K is not a single number
        from 0 to the extent of the axis.
    """
    data, extents = shaped(call, 0, "X")
    if dtype_of(data) == "uint64":
        return _top_k_of_unsigned(call, data)
    (axis,) = axes_of(call, [call.attributes.get("axis", -1)], len(extents))
    k = call.attributes.get("k", 1) if call.version < 10 else _single(call, 1, "K")
    reason = f"expected at most {extents[axis]}, the extent of axis {axis}"
    require(call, extents[axis] - k >= 0, "operand K", k, reason)
    if isinstance(k, int) and k > 0:
        if call.version == 10 or not call.attributes.get("sorted", 1):
            switches.note(PARAMETERS)
        return call.with_attributes(k=k, sorted=1).proceed()
    switches.note(PARAMETERS)
    largest = bool(call.attributes.get("largest", 1))
    all_sorted = call.emit(op.topk(data, -1, axis, ret_type="both", largest=largest, dtype="int64"))
    found = [call.emit(relax.TupleGetItem(all_sorted, index)) for index in range(2)]
    return relax.Tuple(
        [call.emit(take_ranges(call, part, [axis], [(0, k)], [1])) for part in found]
    )


def _top_k_of_unsigned(call: Call, data: relax.Expr) -> relax.Expr:
    """The TopK of uint64, which TVM cannot sort: that of int64 in the same order."""
    switches.note(PARAMETERS)
    bit = tirx.const(1 << 63, "uint64")

    def to_signed(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.reinterpret("int64", x(*at) ^ bit))

    def to_unsigned(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.reinterpret("uint64", x(*at)) ^ bit)

    signed = call.builder.emit_te(to_signed, data)
    found = call.emit(convert_top_k(call.with_operands(signed, *call.operands[1:])))
    values, indices = (call.emit(relax.TupleGetItem(found, index)) for index in range(2))
    return relax.Tuple([call.builder.emit_te(to_unsigned, values), indices])


def _single(call: Call, index: int, name: str) -> Extent:
    found = extents_or_symbols(call, index, name)
    if len(found) != 1:
        raise call.invalid(f"operand {name}", found, "expected one element")
    return found[0]


@converts("OneHot", fix=PARAMETERS)
def convert_one_hot(call: Call) -> relax.Expr:
    """Convert a OneHot; an index out of range sets no element.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the indices is unknown, the axis is out of range, or depth is not a single
        nonnegative number.
    """
    indices, extents = shaped(call, 0, "indices")
    (axis,) = axes_of(call, [call.attributes.get("axis", -1)], len(extents) + 1)
    depth = _single(call, 1, "depth")
    shape = [expression(extent) for extent in (*extents[:axis], depth, *extents[axis:])]
    dtype = "float64" if "float" in dtype_of(indices) else "int64"
    switches.note(PARAMETERS)

    def one_hot(indices: te.Tensor, values: te.Tensor, *shape: tirx.Expr) -> te.Tensor:
        def element(*positions: tirx.Var) -> tirx.Expr:
            index = indices(*positions[:axis], *positions[axis + 1 :]).astype(dtype)
            place = positions[axis].astype(dtype)
            is_on = tirx.any(index == place, index + shape[axis].astype(dtype) == place)
            return tirx.if_then_else(is_on, values(1), values(0))

        return te.compute(shape, element)

    return call.builder.emit_te(one_hot, indices, call.operands[2], *shape)


@converts("CumProd", fix=OPERATORS)
@converts("CumSum", fix=PARAMETERS)
def convert_cumulative(call: Call) -> relax.Expr:
    """Convert a CumSum or CumProd.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the axis is not a single number, or is out of range.  The model checks an axis that is
        known only at run time.
    """
    data, extents = shaped(call, 0, "x")
    axis = call.constant(1)
    if axis is not None and axis.size != 1:
        raise call.invalid("operand axis", axis, "expected one element")
    if axis is None and len(extents) == 1:
        axis = np.array(0)
        switches.note(PARAMETERS)
    if axis is not None:
        (found,) = axes_of(call, [axis.item()], len(extents))
        return _accumulated(call, data, found)
    switches.note(PARAMETERS)
    computed = vector(call, 1, "axis")
    if length_of(computed) != 1 or not extents:
        raise call.invalid("type of axis", computed.ty, "expected one element, and x of rank 1")
    parts = axis_parts(call, extents, computed)
    moved = call.emit(op.reshape(data, relax.ShapeExpr(parts)))
    result = call.emit(_accumulated(call, moved, 1))
    return op.reshape(result, relax.ShapeExpr(extents))


def _accumulated(call: Call, data: relax.Expr, axis: int) -> relax.Expr:
    """The sums or products along a known axis."""
    if call.attributes.get("reverse", 0):
        switches.note(PARAMETERS)
        flipped = call.emit(op.flip(data, axis))
        forward = call.with_attributes(reverse=0)
        return op.flip(call.emit(_accumulated(forward, flipped, axis)), axis)
    if call.operator == "CumSum":
        return call.with_operands(data, relax.const(axis, "int64")).proceed()
    switches.note(OPERATORS)
    exclusive = bool(call.attributes.get("exclusive", 0))
    return op.cumprod(data, axis, dtype_of(data), exclusive)


@converts("ReverseSequence", fix=PARAMETERS)
def convert_reverse_sequence(call: Call) -> relax.Expr:
    """Convert a ReverseSequence of data with a time axis and a batch axis.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown or less than 2, the axes are not 0 and 1, or a length is
        known to be negative or greater than the extent of the time axis.  The model checks unknown
        lengths at run time.
    """
    data, extents = shaped(call, 0, "input")
    axes = {name: call.attributes.get(name, 1 - (name == "time_axis")) for name in _SEQUENCE_AXES}
    if sorted(axes.values()) != [0, 1] or len(extents) < 2:
        reason = f"expected 0 and 1 for data of rank 2 or more, got rank {len(extents)}"
        raise call.invalid("attributes", axes, reason)
    switches.note(PARAMETERS)
    lengths, extent, known = call.operands[1], extents[axes["time_axis"]], call.constant(1)
    if known is None or not isinstance(extent, int):
        lengths = call.emit(op.astype(lengths, "int64"))
        limit = call.emit(to_shape_tensor(call, [extent]))
        is_nonnegative = call.emit(op.greater_equal(lengths, relax.const(0, "int64")))
        fits = call.emit(op.less_equal(lengths, limit))
        require_all(call, op.logical_and(is_nonnegative, fits))
    elif ((known < 0) | (known > extent)).any():
        raise call.invalid("operand sequence_lens", known, f"expected 0 to {extent}")
    lengths = call.emit(op.astype(lengths, "int64"))
    return op.reverse_sequence(data, lengths, axes["time_axis"], axes["batch_axis"])


_SEQUENCE_AXES = ("time_axis", "batch_axis")
