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
"""Converters of the operators that give the same elements another shape."""

from collections.abc import Sequence

from tvm import relax

from ....extents import NO_FACTS, Extent, product
from ...call import Call, converts
from ...values.extents import positive_axis, quotient, reshaped, shaped, static_shape


@converts("reshape", "contrib_reverse_reshape")
def reshape(call: Call) -> relax.Expr:
    """Reshape with the special values 0 to -4."""
    data, extents = shaped(call)
    target: Sequence[Extent] | None = static_shape(call.type)
    if target is None:
        newshape = call.ints("newshape")
        zeros = bool(call.attributes["allowzero"])
        if call.attributes["reverse"]:
            target = new_extents(extents[::-1], newshape[::-1], zeros)[::-1]
        else:
            target = new_extents(extents, newshape, zeros)
    return reshaped(call, data, target)


def new_extents(source: Sequence[Extent], newshape: Sequence[int], zeros: bool) -> list[Extent]:
    """Replace the special values of `newshape`, which the type relation has checked."""
    rest = list(source)
    unused: list[Extent] = []
    copied: list[bool] = []
    target: list[Extent] = []
    inferred = None
    values = iter(enumerate(newshape))
    for position, value in values:
        if value == -4:
            whole, left, right = rest.pop(0), next(values)[1], next(values)[1]
            parts = [
                quotient(whole, right) if left == -1 else left,
                quotient(whole, left) if right == -1 else right,
            ]
        elif value == -3:
            parts = [product(NO_FACTS, [rest.pop(0), rest.pop(0)])]
        elif value == -2:
            parts, rest = rest, []
        elif value == 0 and not zeros:
            parts = [rest.pop(0)]
        else:
            unused += rest[:1]
            del rest[:1]
            inferred = position if value == -1 else inferred
            target.append(1 if value == -1 else value)
            copied.append(False)
            continue
        target += parts
        copied += [True] * len(parts)
    if inferred is not None:
        others = [dim for dim, is_copy in zip(target, copied, strict=True) if not is_copy]
        target[inferred] = quotient(product(NO_FACTS, [*unused, *rest]), product(NO_FACTS, others))
    return target


@converts("reshape_like")
def reshape_like(call: Call) -> relax.Expr:
    """Replace a range of axes by a range of another tensor's axes."""
    data, extents = shaped(call)
    _, like = shaped(call, 1)

    def bound(name: str, rank: int) -> int:
        value = call.attributes[name]
        return rank if value is None else positive_axis(int(value), rank)

    left, right = len(extents), len(like)
    target = [
        *extents[: bound("lhs_begin", left)],
        *like[bound("rhs_begin", right) : bound("rhs_end", right)],
        *extents[bound("lhs_end", left) :],
    ]
    return reshaped(call, data, target)


@converts("squeeze")
def squeeze(call: Call) -> relax.Expr:
    """Drop axes with extent 1: those given, or all."""
    data, extents = shaped(call)
    if call.attributes["axis"] is None:
        axes = {axis for axis, extent in enumerate(extents) if extent == 1}
    else:
        axes = {positive_axis(axis, len(extents)) for axis in call.ints("axis")}
    return drop_axes(call, data, extents, axes)


def drop_axes(
    call: Call, data: relax.Expr, extents: Sequence[Extent], axes: set[int]
) -> relax.Expr:
    """Drop axes; it is checked at run time that extents that are not known are 1."""
    if any(not isinstance(extents[axis], int) for axis in axes):
        shape = [1 if axis in axes else extent for axis, extent in enumerate(extents)]
        data = call.builder.match_cast(data, relax.TensorType(shape, data.ty.dtype))
    if not axes:
        return data
    return call.emit(relax.op.squeeze(data, sorted(axes)))


@converts("expand_dims")
def expand_dims(call: Call) -> relax.Expr:
    """Insert axes with extent 1."""
    data, extents = shaped(call)
    position = positive_axis(call.attributes["axis"], len(extents) + 1)
    count = call.attributes["num_newaxis"]
    if count == 0:
        return data
    return call.emit(relax.op.expand_dims(data, list(range(position, position + count))))


@converts("transpose")
def transpose(call: Call) -> relax.Expr:
    """Permute the axes."""
    data, extents = shaped(call)
    if len(extents) < 2:
        return data
    if call.attributes["axes"] is None:
        axes = list(range(len(extents)))[::-1]
    else:
        axes = [positive_axis(axis, len(extents)) for axis in call.ints("axes")]
    return call.emit(relax.op.permute_dims(data, axes))
