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
"""Lowering of ``relax.take``, ``gather_elements``, ``gather_nd`` and ``index_tensor``.

See :mod:`.indices`.
"""

from collections.abc import Sequence

from tvm import relax, te, tirx

from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import broadcast_position
from .extents import check_extents, fit_extents, unproven_axes
from .indices import (
    broadcast,
    clamp_index,
    is_at_most,
    is_within,
    read,
    takes_effect,
    wrap_and_clamp,
)
from .override import Legalize, legalizes


def _take(data: te.Tensor, indices: te.Tensor | tirx.Expr, axis: int, mode: str) -> te.Tensor:
    is_tensor = isinstance(indices, te.Tensor)
    extent, rank = data.shape[axis], len(indices.shape) if is_tensor else 0

    def element(*position: tirx.Var) -> tirx.Expr:
        index = indices(*position[axis : axis + rank]) if is_tensor else indices
        place = index.astype("int64")
        if mode == "fast":
            place = wrap_and_clamp(index, extent)
        elif mode == "wrap":
            # An extent of 0 has no elements; the divisor must not be 0.
            place = tirx.floormod(place, tirx.max(extent, 1))
        else:
            place = tirx.max(tirx.min(place, extent - 1), 0)
        value = read(data, [*position[:axis], place, *position[axis + rank :]], [axis])
        if mode != "nan":
            return value
        nan = tirx.const(float("nan"), str(data.dtype))
        return tirx.if_then_else(is_within(index.astype("int64"), extent), value, nan)

    own = indices.shape if is_tensor else ()
    shape = (*data.shape[:axis], *own, *data.shape[axis + 1 :])
    return te.compute(shape, element, name="take")


@legalizes("relax.take")
def _legalize_take(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, indices = call.args
    tensors = [arg for arg in (data, indices) if isinstance(arg.ty, relax.TensorType)]
    axis, mode = call.attrs.axis, str(call.attrs.mode)
    is_known = mode in ("fast", "clip", "wrap") or (mode == "nan" and "float" in str(data.ty.dtype))
    if not takes_effect(*tensors) or not is_known or (axis is None and data.ty.ndim != 1):
        return stock(bb, call)
    switches.note(FIX_ID)
    axis = 0 if axis is None else int(axis) % data.ty.ndim
    return bb.call_te(_take, data, indices, axis, mode, primfunc_name_hint="take")


def _gather_elements(data: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    # TVM does not check that the indices' extents are within the data's on the other axes.
    longer = [
        other
        for other in range(len(data.shape))
        if other != axis and not is_at_most(indices.shape[other], data.shape[other])
    ]

    def element(*position: tirx.Var) -> tirx.Expr:
        places: list[tirx.Expr] = list(position)
        for other in longer:
            places[other] = clamp_index(position[other], data.shape[other])
        places[axis] = wrap_and_clamp(indices(*position), data.shape[axis])
        return read(data, places, [axis, *longer])

    return te.compute(indices.shape, element, name="gather_elements")


@legalizes("relax.gather_elements")
def _legalize_gather_elements(
    bb: relax.BlockBuilder, call: relax.Call, stock: Legalize
) -> relax.Expr:
    data, indices = call.args
    if not takes_effect(data, indices) or data.ty.ndim != indices.ty.ndim:
        return stock(bb, call)
    switches.note(FIX_ID)
    axis = int(call.attrs.axis) % data.ty.ndim
    return bb.call_te(_gather_elements, data, indices, axis, primfunc_name_hint="gather_elements")


def _gather_nd(
    data: te.Tensor, indices: te.Tensor, batch: int, unknown: Sequence[int]
) -> te.Tensor:
    # Along the `unknown` batch axes, the indices may have larger extents than the data.
    *outer, count = indices.shape
    axes = range(batch, batch + int(count))

    def element(*position: tirx.Var) -> tirx.Expr:
        row = position[: len(outer)]
        places = [wrap_and_clamp(indices(*row, axis - batch), data.shape[axis]) for axis in axes]
        first: list[tirx.Expr] = list(position[:batch])
        for axis in unknown:
            first[axis] = clamp_index(position[axis], data.shape[axis])
        return read(data, [*first, *places, *position[len(outer) :]], [*axes, *unknown])

    return te.compute((*outer, *data.shape[axes.stop :]), element, name="gather_nd")


@legalizes("relax.gather_nd")
def _legalize_gather_nd(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, indices = call.args
    if not takes_effect(data, indices) or not isinstance(indices.ty.shape.values[-1], tirx.IntImm):
        return stock(bb, call)
    switches.note(FIX_ID)
    batch = int(call.attrs.batch_dims)
    own, expected = (list(operand.ty.shape.values)[:batch] for operand in (indices, data))
    unknown = unproven_axes("gather_nd", "indices", own, expected, repeats=False)
    indices = check_extents(bb, call, "indices", indices, expected, unknown)
    return bb.call_te(_gather_nd, data, indices, batch, unknown, primfunc_name_hint="gather_nd")


def _index_tensor(data: te.Tensor, indices: Sequence[te.Tensor]) -> te.Tensor:
    outer, axes = broadcast([index.shape for index in indices]), range(len(indices))

    def element(*position: tirx.Var) -> tirx.Expr:
        row = position[: len(outer)]
        places = [
            wrap_and_clamp(index(*broadcast_position(row, index.shape)), data.shape[axis])
            for axis, index in enumerate(indices)
        ]
        return read(data, [*places, *position[len(outer) :]], axes)

    return te.compute((*outer, *data.shape[len(indices) :]), element, name="index_tensor")


@legalizes("relax.index_tensor")
def _legalize_index_tensor(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, indices = call.args
    fields = fields_of(bb, indices)
    if not takes_effect(data, *fields) or any("int" not in str(f.ty.dtype) for f in fields):
        return stock(bb, call)
    switches.note(FIX_ID)
    fields = broadcast_indices(bb, call, fields)
    return bb.call_te(_index_tensor, data, fields, primfunc_name_hint="index_tensor")


def broadcast_indices(
    bb: relax.BlockBuilder, call: relax.Call, fields: list[relax.Expr]
) -> list[relax.Expr]:
    """Check that the index tensors broadcast to each other, and return them."""
    outer = broadcast([field.ty.shape.values for field in fields])
    return [
        fit_extents(bb, call, "indices", field, outer[len(outer) - field.ty.ndim :], repeats=True)
        for field in fields
    ]


def fields_of(bb: relax.BlockBuilder, indices: relax.Expr) -> list[relax.Expr]:
    """The tensors of a tuple of indices."""
    if isinstance(indices, relax.Tuple):
        return list(indices.fields)
    if isinstance(indices.ty, relax.TensorType):
        return [indices]
    count = len(indices.ty.fields)
    return [bb.emit(relax.TupleGetItem(indices, field)) for field in range(count)]
