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

Trigger
    A target shape or axes that are computed, or known only at run time; a Squeeze of a symbolic
    dim; a Squeeze without axes of data with symbolic dims; a -1 in a target with dims that may be
    0.
Mechanism
    The converters accept only constants and ShapeExprs, and leave all inference to the operator.
"""

from collections.abc import Sequence

from tvm import relax, tirx
from tvm.relax import op

from ....fixes.onnx_importer import RESHAPE
from ....support import switches
from ...extents import END, equal, expression, is_static, maximum, product, slice_range
from ..call import Call, Extent, converts
from .shape_operands import (
    axes_of,
    integers,
    length_of,
    require,
    require_all,
    require_equal,
    shaped,
    symbols,
    to_shape_tensor,
    vector,
)
from .slice import take_ranges


@converts("Reshape", fix=RESHAPE)
def convert_reshape(call: Call) -> relax.Expr:
    """Convert a Reshape.

    A target that is known only at run time is resolved then, and its elements are bound to symbols.
    If the importer cannot prove that the number of elements stays the same, the model checks it at
    run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data or of the target is unknown; if the target has more than one -1, a
        different negative element, a 0 with no corresponding dim of the data, or both 0 and -1 with
        allowzero; or if the number of elements differs from that of the data.
    """
    data, extents = shaped(call, 0, "data")
    zero_is_zero = bool(call.attributes.get("allowzero", 0))
    if call.version < 5:
        target = list(call.attributes["shape"])
    elif (value := call.value(1)) is not None:
        target = value.extents()
    else:
        switches.note(RESHAPE)
        return _reshape(data, _resolve_at_run_time(call, extents, zero_is_zero))
    given = list(target)
    if zero_is_zero and 0 in target and -1 in target:
        raise call.invalid("operand shape", given, "expected not both -1 and 0 with allowzero")
    if not zero_is_zero:
        if any(extent == 0 for extent in _static(target[len(extents) :])):
            reason = f"expected 0 only for the {len(extents)} dims of the data"
            raise call.invalid("operand shape", given, reason)
        target = [
            extents[axis] if isinstance(extent, int) and extent == 0 else extent
            for axis, extent in enumerate(target)
        ]
    unknown = [axis for axis, extent in enumerate(target) if _is_number(extent, -1)]
    if len(unknown) > 1:
        raise call.invalid("operand shape", given, "expected at most one -1")
    for axis in unknown:
        rest, others, _ = _without_common_factors(call, extents, target[:axis] + target[axis + 1 :])
        target[axis] = call.known.simplify(rest // maximum(call.known, others, 1))
    for extent in target:
        require(call, extent >= 0, "operand shape", given, "expected no negative element except -1")
    data_count, target_count, common = _without_common_factors(call, extents, target)
    is_same_count = equal(call.known, data_count, target_count)
    if isinstance(is_same_count, tirx.Expr):
        # If a common factor is 0, both counts are 0, and the rest need not be equal.
        is_same_count = tirx.any(
            is_same_count, *(extent == 0 for extent in common if isinstance(extent, tirx.Expr))
        )
    reason = f"expected the number of elements of {extents}"
    require(call, is_same_count, "operand shape", given, reason)
    if call.version >= 5 and is_static(*extents, *given) and 0 not in target:
        return call.proceed()
    switches.note(RESHAPE)
    return _reshape(data, target)


def _reshape(data: relax.Expr, extents: Sequence[Extent]) -> relax.Expr:
    if any(_is_number(extent, 0) for extent in extents):
        # TVM's reshape reads 0 as "copy this dim of the data"; the result has no elements anyway.
        return op.zeros(relax.ShapeExpr(extents), data.ty.dtype.dtype)
    return op.reshape(data, relax.ShapeExpr(extents))


def _is_number(extent: Extent, number: int) -> bool:
    return isinstance(extent, int) and extent == number


def _static(extents: Sequence[Extent]) -> list[int]:
    return [extent for extent in extents if isinstance(extent, int)]


def _without_common_factors(
    call: Call, dividends: Sequence[Extent], divisors: Sequence[Extent]
) -> tuple[Extent, Extent, list[Extent]]:
    """The products of both lists without common factors other than 0, and the common factors."""
    left, kept, common = list(dividends), [], []
    for divisor in divisors:
        index = next((i for i, e in enumerate(left) if call.known.equal(e, divisor)), None)
        if index is None or _is_number(divisor, 0):
            kept.append(divisor)
        else:
            common.append(left.pop(index))
    return product(call.known, left), product(call.known, kept), common


def _resolve_at_run_time(call: Call, extents: list[Extent], zero_is_zero: bool) -> list[Extent]:
    target = vector(call, 1, "shape")
    rank = length_of(target)
    if rank == 0:
        require(
            call,
            equal(call.known, product(call.known, extents), 1),
            "operand shape",
            [],
            "expected more",
        )
        return []
    zero, one, minus_one = (relax.const(number, "int64") for number in (0, 1, -1))
    total = to_shape_tensor(call, [product(call.known, extents)])
    if not zero_is_zero:
        # A 0 without a corresponding dim of the data becomes -2, which the check below rejects.
        dims = to_shape_tensor(call, (list(extents) + [-2] * rank)[:rank])
        target = call.emit(op.where(op.equal(target, zero), dims, target))
    is_inferred = call.emit(op.equal(target, minus_one))
    others = op.prod(op.where(is_inferred, one, target), axis=[0], keepdims=True)
    inferred = op.floor_divide(total, op.maximum(others, one))
    target = call.emit(op.where(is_inferred, inferred, target))
    require_all(call, op.greater_equal(target, zero))
    count = op.prod(target, axis=[0], keepdims=True)
    require_all(call, op.equal(count, total))
    return symbols(call, target, "shape")


@converts("Shape", fix=RESHAPE)
def convert_shape(call: Call) -> relax.Expr:
    """Convert a Shape of data of unknown shape, which the importer cannot evaluate."""
    data = call.operands[0]
    start, end = call.attributes.get("start", 0), call.attributes.get("end")
    if data.ty.ndim < 0:
        switches.note(RESHAPE)
        return _shape_of_any_rank(call, data, start, END if end is None else end)
    data, extents = shaped(call, 0, "data")
    if data.same_as(call.operands[0]):
        return call.proceed()
    switches.note(RESHAPE)
    return op.shape_to_tensor(relax.ShapeExpr(extents[start:end]))


def _shape_of_any_rank(call: Call, data: relax.Expr, start: int, end: int) -> relax.Expr:
    """The elements from `start` to `end` of the shape of a tensor whose rank varies."""
    # The type of `shape_to_tensor` would have the extent -1.
    vector = relax.TensorType(ndim=1, dtype="int64")
    shape = call.emit(op.shape_of(data))
    extents = call.emit(op.call_pure_packed("relax.run.shape_to_tensor", shape, ty_args=vector))
    rank = tirx.Var("rank", "int64")
    extents = call.builder.match_cast(extents, relax.TensorType([rank], "int64"))
    call.known.extents(extents)  # records that the rank is not negative
    # TVM's function makes a tensor of float64 of the shape of a scalar.
    require(call, rank >= 1, "rank of data", rank, "expected 1 or more")
    part = slice_range(call.known, rank, start, end, 1)
    return extents if (start, end) == (0, END) else take_ranges(call, extents, [0], [part], [1])


@converts("Flatten", fix=RESHAPE)
def convert_flatten(call: Call) -> relax.Expr:
    """Convert a Flatten.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown or the axis is out of range.
    """
    data, extents = shaped(call, 0, "input")
    rank, axis = len(extents), call.attributes.get("axis", 1)
    if not -rank <= axis <= rank:
        raise call.invalid("attribute axis", axis, f"expected from {-rank} to {rank}")
    split = axis + rank if axis < 0 else axis
    if extents and is_static(*extents) and 0 not in extents:
        return call.proceed()
    switches.note(RESHAPE)
    target = [product(call.known, extents[:split]), product(call.known, extents[split:])]
    return _reshape(data, target)


@converts("Squeeze", fix=RESHAPE)
def convert_squeeze(call: Call) -> relax.Expr:
    """Convert a Squeeze; the model checks at run time that squeezed symbolic dims are 1.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data or the number of axes is unknown; if an axis is out of range, given
        twice, or has an extent other than 1; or if no axes are given and it is unknown which dims
        are 1.
    """
    data, extents = shaped(call, 0, "data")
    axes = _axes(call)
    if isinstance(axes, relax.Expr):
        switches.note(RESHAPE)
        return _squeeze_at_run_time(call, data, extents, axes)
    if axes is None:
        found = _found_ones(call, extents)
    else:
        found = axes_of(call, axes, len(extents))
    for axis in found:
        reason = f"expected 1 on the squeezed axis {axis}"
        require(call, equal(call.known, extents[axis], 1), "shape of data", extents, reason)
    if is_static(*extents):
        return call.proceed()
    switches.note(RESHAPE)
    kept = [extent for axis, extent in enumerate(extents) if axis not in found]
    if any(not _is_number(extents[axis], 1) for axis in found):
        return _reshape(data, kept)
    return op.squeeze(data, found) if found else data


def _found_ones(call: Call, extents: list[Extent]) -> list[int]:
    """The axes of extent 1; if some are unknown, the declared rank decides, and is checked."""
    ones = [call.known.equal(extent, 1) for extent in extents]
    found = [axis for axis, is_one in enumerate(ones) if is_one]
    unknown = [axis for axis, is_one in enumerate(ones) if is_one is None]
    if not unknown:
        return found
    rank = call.rank
    if rank == ones.count(False):
        for axis in unknown:
            reason = f"expected 1 on axis {axis}: the result has the rank {rank}"
            require_equal(call, extents[axis], 1, "shape of data", extents, reason)
        return sorted(found + unknown)
    if rank == len(extents) - len(found):
        for axis in unknown:
            reason = f"expected other than 1 on axis {axis}: the result has the rank {rank}"
            is_other = tirx.NE(expression(extents[axis]), expression(1))
            require(call, is_other, "shape of data", extents, reason)
        return found
    raise call.invalid(
        "shape of data",
        extents,
        "expected the operand axes, a result of declared rank, or extents that are known to be 1 "
        "or not",
    )


@converts("Unsqueeze", fix=RESHAPE)
def convert_unsqueeze(call: Call) -> relax.Expr:
    """Convert an Unsqueeze.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data or the number of axes is unknown, or an axis is out of range or
        given twice.
    """
    data, extents = shaped(call, 0, "data")
    axes = _axes(call)
    if axes is None:
        raise call.invalid("operand axes", None, "expected axes")
    if isinstance(axes, relax.Expr):
        switches.note(RESHAPE)
        return _unsqueeze_at_run_time(call, data, extents, axes)
    axes_of(call, axes, len(extents) + len(axes))
    return call.proceed()


def _axes(call: Call) -> list[int] | relax.Expr | None:
    """The given axes: a list, a tensor if they are unknown, or None if they are omitted."""
    if call.version < 13:
        axes = call.attributes.get("axes")
        return None if axes is None else list(axes)
    if call.operand(1) is None:
        return None
    if call.constant(1) is None:
        return vector(call, 1, "axes")
    return integers(call, 1, "axes")


def _squeeze_at_run_time(
    call: Call, data: relax.Expr, extents: list[Extent], axes: relax.Expr
) -> relax.Expr:
    kept, dims = _other_axes(call, axes, len(extents)), to_shape_tensor(call, extents)
    # Each kept axis occurs once; if the number of elements is the same, all others are 1.
    target = symbols(call, call.emit(op.take(dims, kept, axis=0)), "shape")
    equality = equal(call.known, product(call.known, extents), product(call.known, target))
    require(call, equality, "shape of data", extents, "expected 1 on the squeezed axes")
    return _reshape(data, target)


def _unsqueeze_at_run_time(
    call: Call, data: relax.Expr, extents: list[Extent], axes: relax.Expr
) -> relax.Expr:
    count = length_of(axes)
    rank = len(extents) + count
    others = _other_axes(call, axes, rank)
    ones = relax.const([1] * rank, "int64")
    target = call.emit(op.scatter_elements(ones, others, to_shape_tensor(call, extents)))
    return op.reshape(data, relax.ShapeExpr(symbols(call, target, "shape")))


def _other_axes(call: Call, axes: relax.Expr, rank: int) -> relax.Expr:
    """The axes of a tensor of `rank` that are not in `axes`, which must be distinct."""
    count = length_of(axes)
    axes = op.where(
        op.less(axes, relax.const(0, "int64")), op.add(axes, relax.const(rank, "int64")), axes
    )
    column = call.emit(op.reshape(axes, (count, 1)))
    given = op.equal(column, relax.const([list(range(rank))], "int64"))
    given = call.emit(op.max(op.astype(given, "int64"), axis=[0]))
    found = call.emit(op.nonzero(op.equal(given, relax.const(0, "int64"))))
    # The match_cast fails if an axis is out of range or given twice.
    found = call.builder.match_cast(found, relax.TensorType([1, rank - count], "int64"))
    return call.emit(op.reshape(found, (rank - count,)))
