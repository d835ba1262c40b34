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
"""Reductions.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    ReduceLogSumExp of infinities; ReduceL1, L2, SumSquare and LogSum with noop_with_empty_axes and
    no axes; ReduceL2, ReduceLogSum and ReduceLogSumExp of integers and 16-bit floats; axes that are
    computed, or out of range; an ArgMax or ArgMin of a scalar, or over an axis without elements.
Symptom
    NaN, or the unchanged data, silently; a rejected node; an AssertionError without a node name;
    ReduceL2 of large 16-bit floats is infinite.
Mechanism
    The converter subtracts the maximum even if it is infinite, rounds the sum to 16 bits, and
    asserts that axes are constants.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-reductions``.
"""

from tvm import relax

from ...fixes.onnx_importer import REDUCTIONS
from ...support import switches
from ..dtypes import dtype_of
from .computed_axes import axes_count, kept_extents, split_axes
from .node import Converter, Node, extents_of
from .shape_operands import axes_of, shaped

__all__ = ["REDUCED", "convert_arg_reduction", "convert_reduction"]

REDUCED = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)

# The operators that compute integers in floating point.
_COMPUTED_IN_FLOATS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def convert_reduction(node: Node, convert: Converter) -> relax.Expr:
    """Convert one of :data:`REDUCED`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If axes are out of range or their number is unknown, or for a ReduceMean of integers over
        no elements.  The model checks at run time that computed axes are distinct and in range.
    """
    data = node.operands[0]
    axes = node.attributes.get("axes")
    if node.operand(1) is not None:
        constant = node.constant(1)
        count = axes_count(node, 1)
        if constant is None and not (isinstance(count, int) and count == 0):
            return _reduce_computed_axes(node, convert)
        axes = [] if constant is None else constant.ravel().tolist()
    extents, dtype = extents_of(data), dtype_of(data)
    if node.operator in _COMPUTED_IN_FLOATS and dtype not in ("float32", "float64"):
        # Results of integers are truncated, as in ONNX Runtime; those of 16-bit floats round once.
        switches.note(REDUCTIONS)
        wide = node.emit(relax.op.astype(data, "float64" if "int" in dtype else "float32"))
        result = convert_reduction(node.with_operands(wide, *node.operands[1:]), convert)
        return relax.op.astype(node.emit(result), dtype)
    if not axes and node.attributes.get("noop_with_empty_axes", 0):
        switches.note(REDUCTIONS)
        return _reduce_without_axes(node.operator, data)
    if extents is not None:
        rank = len(extents)
        axes = list(axes or range(rank))
        if not all(-rank <= axis < rank for axis in axes):
            raise node.invalid("axes", axes, f"expected axes of X, which has rank {rank}")
        is_empty = any(extents[axis] == 0 for axis in axes if isinstance(extents[axis], int))
        if is_empty and node.operator == "ReduceMean" and "float" not in dtype:
            raise node.invalid(
                "dtype of X", dtype, "expected a float dtype: the mean of no elements is NaN"
            )
    if node.operator == "ReduceLogSumExp" and "float" in dtype:
        switches.note(REDUCTIONS)
        return _log_sum_exp(node, data, axes or None, bool(node.attributes.get("keepdims", 1)))
    return convert(node)


def _reduce_computed_axes(node: Node, convert: Converter) -> relax.Expr:
    """Reduce axes that are known only at run time."""
    switches.note(REDUCTIONS)
    data, extents = shaped(node, 0, "data")
    keepdims = bool(node.attributes.get("keepdims", 1))
    reduces_all = not node.attributes.get("noop_with_empty_axes", 0)
    rank, count = len(extents), axes_count(node, 1)
    if isinstance(count, int) and count > rank:
        reason = f"expected at most {rank}, the rank of data"
        raise node.invalid("number of axes", count, reason)
    if not keepdims and not isinstance(count, int):
        raise node.invalid("shape of axes", [count], "expected a static extent, or keepdims 1")
    pairs, is_listed = split_axes(node, data, extents, 1, reduces_all)
    listed = relax.const([2 * axis + 1 for axis in range(rank)], "int64")
    inner = node.with_operands(pairs, listed)
    inner = inner.with_attributes(keepdims=0, noop_with_empty_axes=0)
    reduced = convert_reduction(inner, convert)
    if keepdims or not isinstance(count, int):
        return reduced
    kept = kept_extents(node, extents, is_listed, rank - count)
    return relax.op.reshape(node.emit(reduced), relax.ShapeExpr(kept))


def _reduce_without_axes(operator: str, data: relax.Expr) -> relax.Expr:
    """Reduce without axes: apply the reduction to each element."""
    op = relax.op
    if operator in ("ReduceL1", "ReduceL2"):
        # An unsigned integer is its own absolute value.
        return data if dtype_of(data).startswith("uint") else op.abs(data)
    if operator == "ReduceSumSquare":
        return op.multiply(data, data)
    if operator == "ReduceLogSum":
        return op.log(data)
    return data


def _log_sum_exp(
    node: Node, data: relax.Expr, axes: list[int] | None, keepdims: bool
) -> relax.Expr:
    """``log(sum(exp(data)))``, shifted by the maximum if that is finite."""
    op = relax.op
    largest = node.emit(op.max(data, axes, keepdims=True))
    zero = relax.const(0, dtype_of(data))
    shift = node.emit(op.where(op.isfinite(largest), largest, zero))
    total = op.sum(op.exp(op.subtract(data, shift)), axes, keepdims=True)
    result = op.add(op.log(total), shift)
    return result if keepdims else op.squeeze(node.emit(result), axes)


def convert_arg_reduction(node: Node, convert: Converter) -> relax.Expr:
    """Convert an ArgMax or ArgMin; the model checks at run time that a symbolic axis is not empty.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the axis is out of range or has no elements.
    """
    data, extents = shaped(node, 0, "data")
    axis = node.attributes.get("axis", 0)
    if not extents and axis in (-1, 0):
        switches.note(REDUCTIONS)
        return relax.op.zeros([], "int64")
    [position] = axes_of(node, [axis], len(extents))
    if isinstance(extents[position], int) and extents[position] == 0:
        raise node.invalid(
            "shape of data", extents, f"expected at least one element on axis {position}"
        )
    return convert(node.with_operands(data).with_attributes(axis=position))
