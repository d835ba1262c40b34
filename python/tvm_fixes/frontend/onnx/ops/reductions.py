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

Trigger
    ReduceLogSumExp of infinities; ReduceL1, L2, SumSquare and LogSum with noop_with_empty_axes and
    no axes; ReduceL2, ReduceLogSum and ReduceLogSumExp of integers and 16-bit floats; axes that are
    computed, or out of range; an ArgMax or ArgMin of a scalar, or over an axis without elements.
Mechanism
    The converter subtracts the maximum even if it is infinite, rounds the sum to 16 bits, and
    asserts that axes are constants.
"""

from tvm import relax

from ....fixes.onnx_importer import REDUCTIONS
from ....support import switches
from ...dtypes import dtype_of
from ..call import Call, converts, extents_of
from .computed_axes import axes_count, kept_extents, split_axes
from .shape_operands import axes_of, shaped

__all__ = ["REDUCED"]

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


@converts(*REDUCED, fix=REDUCTIONS)
def convert_reduction(call: Call) -> relax.Expr:
    """Convert one of :data:`REDUCED`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If axes are out of range or their number is unknown, or for a ReduceMean of integers over
        no elements.  The model checks at run time that computed axes are distinct and in range.
    """
    data = call.operands[0]
    axes = call.attributes.get("axes")
    if call.operand(1) is not None:
        constant = call.constant(1)
        count = axes_count(call, 1)
        if constant is None and not (isinstance(count, int) and count == 0):
            return _reduce_computed_axes(call)
        axes = [] if constant is None else constant.ravel().tolist()
    extents, dtype = extents_of(data), dtype_of(data)
    if call.operator in _COMPUTED_IN_FLOATS and dtype not in ("float32", "float64"):
        # Results of integers are truncated, as in ONNX Runtime; those of 16-bit floats round once.
        switches.note(REDUCTIONS)
        wide = call.emit(relax.op.astype(data, "float64" if "int" in dtype else "float32"))
        result = convert_reduction(call.with_operands(wide, *call.operands[1:]))
        return relax.op.astype(call.emit(result), dtype)
    if not axes and call.attributes.get("noop_with_empty_axes", 0):
        switches.note(REDUCTIONS)
        return _reduce_without_axes(call.operator, data)
    if extents is not None:
        rank = len(extents)
        axes = list(axes or range(rank))
        if not all(-rank <= axis < rank for axis in axes):
            raise call.invalid("axes", axes, f"expected axes of X, which has rank {rank}")
        is_empty = any(extents[axis] == 0 for axis in axes if isinstance(extents[axis], int))
        if is_empty and call.operator == "ReduceMean" and "float" not in dtype:
            raise call.invalid(
                "dtype of X", dtype, "expected a float dtype: the mean of no elements is NaN"
            )
    if call.operator == "ReduceLogSumExp" and "float" in dtype:
        switches.note(REDUCTIONS)
        return _log_sum_exp(call, data, axes or None, bool(call.attributes.get("keepdims", 1)))
    return call.proceed()


def _reduce_computed_axes(call: Call) -> relax.Expr:
    """Reduce axes that are known only at run time."""
    switches.note(REDUCTIONS)
    data, extents = shaped(call, 0, "data")
    keepdims = bool(call.attributes.get("keepdims", 1))
    reduces_all = not call.attributes.get("noop_with_empty_axes", 0)
    rank, count = len(extents), axes_count(call, 1)
    if isinstance(count, int) and count > rank:
        reason = f"expected at most {rank}, the rank of data"
        raise call.invalid("number of axes", count, reason)
    if not keepdims and not isinstance(count, int):
        raise call.invalid("shape of axes", [count], "expected a static extent, or keepdims 1")
    pairs, is_listed = split_axes(call, data, extents, 1, reduces_all)
    listed = relax.const([2 * axis + 1 for axis in range(rank)], "int64")
    inner = call.with_operands(pairs, listed)
    inner = inner.with_attributes(keepdims=0, noop_with_empty_axes=0)
    reduced = convert_reduction(inner)
    if keepdims or not isinstance(count, int):
        return reduced
    kept = kept_extents(call, extents, is_listed, rank - count)
    return relax.op.reshape(call.emit(reduced), relax.ShapeExpr(kept))


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
    call: Call, data: relax.Expr, axes: list[int] | None, keepdims: bool
) -> relax.Expr:
    """``log(sum(exp(data)))``, shifted by the maximum if that is finite."""
    op = relax.op
    largest = call.emit(op.max(data, axes, keepdims=True))
    zero = relax.const(0, dtype_of(data))
    shift = call.emit(op.where(op.isfinite(largest), largest, zero))
    total = op.sum(op.exp(op.subtract(data, shift)), axes, keepdims=True)
    result = op.add(op.log(total), shift)
    return result if keepdims else op.squeeze(call.emit(result), axes)


@converts("ArgMax", "ArgMin", fix=REDUCTIONS)
def convert_arg_reduction(call: Call) -> relax.Expr:
    """Convert an ArgMax or ArgMin; the model checks at run time that a symbolic axis is not empty.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the axis is out of range or has no elements.
    """
    data, extents = shaped(call, 0, "data")
    axis = call.attributes.get("axis", 0)
    if not extents and axis in (-1, 0):
        switches.note(REDUCTIONS)
        return relax.op.zeros([], "int64")
    [position] = axes_of(call, [axis], len(extents))
    if isinstance(extents[position], int) and extents[position] == 0:
        raise call.invalid(
            "shape of data", extents, f"expected at least one element on axis {position}"
        )
    return call.with_operands(data).with_attributes(axis=position).proceed()
