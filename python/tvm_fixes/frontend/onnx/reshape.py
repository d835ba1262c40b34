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
"""Reshape, Flatten, Squeeze and Unsqueeze.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A target shape or axes that are computed, or known at run time alone; a symbolic dim to be
    squeezed; Squeeze without axes of data with symbolic dims; a -1 beside dims that may be 0.
Symptom
    ``Reshape requires … Shape``; ``symbolic extent that cannot be proven to be 1``; an error of
    the build; results whose shape is unknown, where other operators refuse them.
Mechanism
    The converters take constants and ShapeExprs alone, and leave all inference to the operator.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its tests
    and the fix id ``onnx-reshape``.
"""

from collections.abc import Sequence

from tvm import relax, tirx
from tvm.relax import op

from ...fixes.onnx_importer import RESHAPE
from ...support import switches
from .extents import equal, greatest, is_static, product
from .node import Converter, Extent, Node
from .parameters import (
    axes_of,
    integers,
    length_of,
    require,
    require_all,
    shaped,
    symbols,
    to_shape_tensor,
    vector,
)

__all__ = [
    "convert_flatten",
    "convert_reshape",
    "convert_shape",
    "convert_squeeze",
    "convert_unsqueeze",
]


def convert_reshape(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Reshape.

    A target that is not known until run time is resolved then, and its elements are bound to
    symbols.  That the number of elements stays the same is proved, or checked at run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data or of the target is unknown, the target has more than one -1,
        another negative element, a 0 for no dim of the data or beside -1 if it means zero, or
        another number of elements than the data.
    """
    data, extents = shaped(node, 0, "data")
    zero_is_zero = bool(node.attributes.get("allowzero", 0))
    if node.opset < 5:
        target = list(node.attributes["shape"])
    elif (value := node.value(1)) is not None:
        target = value.extents()
    else:
        switches.note(RESHAPE)
        return _reshape(data, _resolve_at_run_time(node, extents, zero_is_zero))
    given = list(target)
    if zero_is_zero and 0 in target and -1 in target:
        raise node.invalid("operand shape", given, "expected no -1 beside 0 with allowzero")
    if not zero_is_zero:
        if any(extent == 0 for extent in _static(target[len(extents) :])):
            reason = f"expected 0 for one of {len(extents)} dims of the data alone"
            raise node.invalid("operand shape", given, reason)
        target = [
            extents[axis] if isinstance(extent, int) and extent == 0 else extent
            for axis, extent in enumerate(target)
        ]
    unknown = [axis for axis, extent in enumerate(target) if _is(extent, -1)]
    if len(unknown) > 1:
        raise node.invalid("operand shape", given, "expected one -1 at most")
    for axis in unknown:
        rest, others, _ = _cancelled(node, extents, target[:axis] + target[axis + 1 :])
        target[axis] = node.known.simplify(rest // greatest(node.known, others, 1))
    for extent in target:
        require(node, extent >= 0, "operand shape", given, "expected -1 and no other negative")
    held, wanted, common = _cancelled(node, extents, target)
    same = equal(node.known, held, wanted)
    if isinstance(same, tirx.Expr):
        # Nothing has to fit where there are no elements.
        same = tirx.any(same, *(extent == 0 for extent in common if isinstance(extent, tirx.Expr)))
    reason = f"expected as many elements as in {extents}"
    require(node, same, "operand shape", given, reason)
    if node.opset >= 5 and is_static(*extents, *given) and 0 not in target:
        return convert(node)
    switches.note(RESHAPE)
    return _reshape(data, target)


def _reshape(data: relax.Expr, extents: Sequence[Extent]) -> relax.Expr:
    if any(_is(extent, 0) for extent in extents):
        # TVM's reshape takes 0 for a dim of the data, and there is nothing to move.
        return op.zeros(relax.ShapeExpr(extents), data.ty.dtype.dtype)
    return op.reshape(data, relax.ShapeExpr(extents))


def _is(extent: Extent, number: int) -> bool:
    return isinstance(extent, int) and extent == number


def _static(extents: Sequence[Extent]) -> list[int]:
    return [extent for extent in extents if isinstance(extent, int)]


def _cancelled(
    node: Node, dividends: Sequence[Extent], divisors: Sequence[Extent]
) -> tuple[Extent, Extent, list[Extent]]:
    """Two products without the factors that are in both and not the number 0; those factors."""
    left, kept, common = list(dividends), [], []
    for divisor in divisors:
        index = next((i for i, e in enumerate(left) if node.known.equal(e, divisor)), None)
        if index is None or _is(divisor, 0):
            kept.append(divisor)
        else:
            common.append(left.pop(index))
    return product(node.known, left), product(node.known, kept), common


def _resolve_at_run_time(node: Node, extents: list[Extent], zero_is_zero: bool) -> list[Extent]:
    target = vector(node, 1, "shape")
    rank = length_of(target)
    if rank == 0:
        require(
            node,
            equal(node.known, product(node.known, extents), 1),
            "operand shape",
            [],
            "expected more",
        )
        return []
    zero, one, minus_one = (relax.const(number, "int64") for number in (0, 1, -1))
    total = to_shape_tensor(node, [product(node.known, extents)])
    if not zero_is_zero:
        # Where there is no dim to copy, a 0 becomes a number that is refused.
        dims = to_shape_tensor(node, (list(extents) + [-2] * rank)[:rank])
        target = node.emit(op.where(op.equal(target, zero), dims, target))
    is_inferred = node.emit(op.equal(target, minus_one))
    others = op.prod(op.where(is_inferred, one, target), axis=[0], keepdims=True)
    inferred = op.floor_divide(total, op.maximum(others, one))
    target = node.emit(op.where(is_inferred, inferred, target))
    require_all(node, op.greater_equal(target, zero))
    count = op.prod(target, axis=[0], keepdims=True)
    require_all(node, op.equal(count, total))
    return symbols(node, target, "shape")


def convert_shape(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Shape that the importer does not evaluate, since the shape of its data was lost.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown, as that of an If whose branches have different ones.
    """
    data, extents = shaped(node, 0, "data")
    if data.same_as(node.operands[0]):
        return convert(node)
    switches.note(RESHAPE)
    kept = extents[node.attributes.get("start", 0) : node.attributes.get("end")]
    return op.shape_to_tensor(relax.ShapeExpr(kept))


def convert_flatten(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Flatten.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown or the axis is out of range.
    """
    data, extents = shaped(node, 0, "input")
    rank, axis = len(extents), node.attributes.get("axis", 1)
    if not -rank <= axis <= rank:
        raise node.invalid("attribute axis", axis, f"expected from {-rank} to {rank}")
    split = axis + rank if axis < 0 else axis
    if extents and is_static(*extents) and 0 not in extents:
        return convert(node)
    switches.note(RESHAPE)
    target = [product(node.known, extents[:split]), product(node.known, extents[split:])]
    return _reshape(data, target)


def convert_squeeze(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Squeeze; that symbolic dims are 1 is checked at run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data or the number of axes is unknown, an axis is out of range, given
        twice or of another extent than 1, or no axes are given and it is unknown which dims are 1.
    """
    data, extents = shaped(node, 0, "data")
    axes = _axes(node)
    if isinstance(axes, relax.Expr):
        switches.note(RESHAPE)
        return _squeeze_at_run_time(node, data, extents, axes)
    if axes is None:
        ones = [node.known.equal(extent, 1) for extent in extents]
        if None in ones:
            raise node.invalid(
                "shape of data", extents, "expected the operand axes or extents that may not be 1"
            )
        found = [axis for axis, is_one in enumerate(ones) if is_one]
    else:
        found = axes_of(node, axes, len(extents))
    for axis in found:
        reason = f"expected 1 for axis {axis}, which is squeezed"
        require(node, equal(node.known, extents[axis], 1), "shape of data", extents, reason)
    if is_static(*extents):
        return convert(node)
    switches.note(RESHAPE)
    kept = [extent for axis, extent in enumerate(extents) if axis not in found]
    if any(not _is(extents[axis], 1) for axis in found):
        return _reshape(data, kept)
    return op.squeeze(data, found) if found else data


def convert_unsqueeze(node: Node, convert: Converter) -> relax.Expr:
    """Convert an Unsqueeze.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data or the number of axes is unknown, or an axis is out of range or
        given twice.
    """
    data, extents = shaped(node, 0, "data")
    axes = _axes(node)
    if axes is None:
        raise node.invalid("axes", None, "expected axes")
    if isinstance(axes, relax.Expr):
        switches.note(RESHAPE)
        return _unsqueeze_at_run_time(node, data, extents, axes)
    axes_of(node, axes, len(extents) + len(axes))
    return convert(node)


def _axes(node: Node) -> list[int] | relax.Expr | None:
    """The axes that are given, a tensor if they are not known, None if there are none."""
    if node.opset < 13:
        axes = node.attributes.get("axes")
        return None if axes is None else list(axes)
    if node.operand(1) is None:
        return None
    if node.constant(1) is None:
        return vector(node, 1, "axes")
    return integers(node, 1, "axes")


def _squeeze_at_run_time(
    node: Node, data: relax.Expr, extents: list[Extent], axes: relax.Expr
) -> relax.Expr:
    kept, dims = _other_axes(node, axes, len(extents)), to_shape_tensor(node, extents)
    # With every axis that is kept once, and as many elements as before, the others are 1.
    target = symbols(node, node.emit(op.take(dims, kept, axis=0)), "shape")
    equality = equal(node.known, product(node.known, extents), product(node.known, target))
    require(node, equality, "shape of data", extents, "expected 1 where it is squeezed")
    return _reshape(data, target)


def _unsqueeze_at_run_time(
    node: Node, data: relax.Expr, extents: list[Extent], axes: relax.Expr
) -> relax.Expr:
    count = length_of(axes)
    rank = len(extents) + count
    others = _other_axes(node, axes, rank)
    ones = relax.const([1] * rank, "int64")
    target = node.emit(op.scatter_elements(ones, others, to_shape_tensor(node, extents)))
    return op.reshape(data, relax.ShapeExpr(symbols(node, target, "shape")))


def _other_axes(node: Node, axes: relax.Expr, rank: int) -> relax.Expr:
    """The dimensions of `rank` that are none of `axes`; all of which are different."""
    count = length_of(axes)
    axes = op.where(
        op.less(axes, relax.const(0, "int64")), op.add(axes, relax.const(rank, "int64")), axes
    )
    column = node.emit(op.reshape(axes, (count, 1)))
    given = op.equal(column, relax.const([list(range(rank))], "int64"))
    given = node.emit(op.max(op.astype(given, "int64"), axis=[0]))
    found = node.emit(op.nonzero(op.equal(given, relax.const(0, "int64"))))
    # That as many are left is what there is to check.
    found = node.builder.match_cast(found, relax.TensorType([1, rank - count], "int64"))
    return node.emit(op.reshape(found, (rank - count,)))
