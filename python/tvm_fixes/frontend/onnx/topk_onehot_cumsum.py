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

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A TopK of opset 10, or whose K is 0, computed, or possibly greater than the extent; a OneHot
    whose depth is not an integer scalar, or whose values are not constants; a CumSum with
    ``reverse`` or a computed axis; a CumProd; a ReverseSequence.
Symptom
    Only the largest element, all elements, or elements read out of bounds, silently;
    ``TypeError`` and ``AssertionError``; ``Inconsistent buffers``; an unsupported operator.
Mechanism
    The converter of TopK reads an attribute that opset 10 does not have. The converter of OneHot
    converts operands to Python numbers of a different type. The converter of CumSum emits kernels
    that fusion cannot handle. CumProd and ReverseSequence have no converter.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and, with ``range_eye_like.py``, the fix id ``onnx-parameters``.
"""

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from ...fixes.onnx_importer import OPERATORS, PARAMETERS
from ...support import switches
from ..dtypes import dtype_of
from .computed_axes import axis_parts
from .extents import expression
from .node import Converter, Extent, Node
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

__all__ = ["convert_cumulative", "convert_one_hot", "convert_reverse_sequence", "convert_top_k"]


def convert_top_k(node: Node, convert: Converter) -> relax.Expr:
    """Convert a TopK; the result is sorted even if ``sorted`` is 0.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown, the axis is out of range, or K is not a single number
        from 0 to the extent of the axis.
    """
    data, extents = shaped(node, 0, "X")
    if dtype_of(data) == "uint64":
        return _top_k_of_unsigned(node, data, convert)
    (axis,) = axes_of(node, [node.attributes.get("axis", -1)], len(extents))
    k = node.attributes.get("k", 1) if node.opset < 10 else _single(node, 1, "K")
    reason = f"expected at most {extents[axis]}, the extent of axis {axis}"
    require(node, extents[axis] - k >= 0, "operand K", k, reason)
    if isinstance(k, int) and k > 0:
        if node.opset == 10 or not node.attributes.get("sorted", 1):
            switches.note(PARAMETERS)
        return convert(node.with_attributes(k=k, sorted=1))
    switches.note(PARAMETERS)
    largest = bool(node.attributes.get("largest", 1))
    all_sorted = node.emit(op.topk(data, -1, axis, ret_type="both", largest=largest, dtype="int64"))
    found = [node.emit(relax.TupleGetItem(all_sorted, index)) for index in range(2)]
    return relax.Tuple(
        [node.emit(take_ranges(node, part, [axis], [(0, k)], [1])) for part in found]
    )


def _top_k_of_unsigned(node: Node, data: relax.Expr, convert: Converter) -> relax.Expr:
    """The TopK of uint64, which TVM cannot sort: that of int64 in the same order."""
    switches.note(PARAMETERS)
    bit = tirx.const(1 << 63, "uint64")

    def to_signed(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.reinterpret("int64", x(*at) ^ bit))

    def to_unsigned(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.reinterpret("uint64", x(*at)) ^ bit)

    signed = node.builder.emit_te(to_signed, data)
    found = node.emit(convert_top_k(node.with_operands(signed, *node.operands[1:]), convert))
    values, indices = (node.emit(relax.TupleGetItem(found, index)) for index in range(2))
    return relax.Tuple([node.builder.emit_te(to_unsigned, values), indices])


def _single(node: Node, index: int, name: str) -> Extent:
    found = extents_or_symbols(node, index, name)
    if len(found) != 1:
        raise node.invalid(f"operand {name}", found, "expected one element")
    return found[0]


def convert_one_hot(node: Node, convert: Converter) -> relax.Expr:
    """Convert a OneHot; an index out of range sets no element.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the indices is unknown, the axis is out of range, or depth is not a single
        nonnegative number.
    """
    indices, extents = shaped(node, 0, "indices")
    (axis,) = axes_of(node, [node.attributes.get("axis", -1)], len(extents) + 1)
    depth = _single(node, 1, "depth")
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

    return node.builder.emit_te(one_hot, indices, node.operands[2], *shape)


def convert_cumulative(node: Node, convert: Converter) -> relax.Expr:
    """Convert a CumSum or CumProd.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the axis is not a single number, or is out of range.  The model checks an axis that is
        known only at run time.
    """
    data, extents = shaped(node, 0, "x")
    axis = node.constant(1)
    if axis is not None and axis.size != 1:
        raise node.invalid("operand axis", axis, "expected one element")
    if axis is None and len(extents) == 1:
        axis = np.array(0)
        switches.note(PARAMETERS)
    if axis is not None:
        (found,) = axes_of(node, [axis.item()], len(extents))
        return _accumulated(node, data, found, convert)
    switches.note(PARAMETERS)
    computed = vector(node, 1, "axis")
    if length_of(computed) != 1 or not extents:
        raise node.invalid("type of axis", computed.ty, "expected one element, and x of rank 1")
    parts = axis_parts(node, extents, computed)
    moved = node.emit(op.reshape(data, relax.ShapeExpr(parts)))
    result = node.emit(_accumulated(node, moved, 1, convert))
    return op.reshape(result, relax.ShapeExpr(extents))


def _accumulated(node: Node, data: relax.Expr, axis: int, convert: Converter) -> relax.Expr:
    """The sums or products along a known axis."""
    if node.attributes.get("reverse", 0):
        switches.note(PARAMETERS)
        flipped = node.emit(op.flip(data, axis))
        forward = node.with_attributes(reverse=0)
        return op.flip(node.emit(_accumulated(forward, flipped, axis, convert)), axis)
    if node.operator == "CumSum":
        return convert(node.with_operands(data, relax.const(axis, "int64")))
    switches.note(OPERATORS)
    exclusive = bool(node.attributes.get("exclusive", 0))
    return op.cumprod(data, axis, dtype_of(data), exclusive)


def convert_reverse_sequence(node: Node, convert: Converter) -> relax.Expr:
    """Convert a ReverseSequence of data with a time axis and a batch axis.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown or less than 2, the axes are not 0 and 1, or a length is
        known to be negative or greater than the extent of the time axis.  The model checks unknown
        lengths at run time.
    """
    data, extents = shaped(node, 0, "input")
    axes = {name: node.attributes.get(name, 1 - (name == "time_axis")) for name in _SEQUENCE_AXES}
    if sorted(axes.values()) != [0, 1] or len(extents) < 2:
        reason = f"expected 0 and 1 for data of rank 2 or more, got rank {len(extents)}"
        raise node.invalid("attributes", axes, reason)
    switches.note(PARAMETERS)
    lengths, extent, known = node.operands[1], extents[axes["time_axis"]], node.constant(1)
    if known is None or not isinstance(extent, int):
        lengths = node.emit(op.astype(lengths, "int64"))
        limit = node.emit(to_shape_tensor(node, [extent]))
        is_nonnegative = node.emit(op.greater_equal(lengths, relax.const(0, "int64")))
        fits = node.emit(op.less_equal(lengths, limit))
        require_all(node, op.logical_and(is_nonnegative, fits))
    elif ((known < 0) | (known > extent)).any():
        raise node.invalid("operand sequence_lens", known, f"expected 0 to {extent}")
    lengths = node.emit(op.astype(lengths, "int64"))
    return op.reverse_sequence(data, lengths, axes["time_axis"], axes["batch_axis"])


_SEQUENCE_AXES = ("time_axis", "batch_axis")
