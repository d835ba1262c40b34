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
"""Lowering of ``relax.scatter_elements``, ``scatter_nd``, ``index_put`` and
``grad.take_backward`` for a CPU.

See :mod:`.indices`.  If several indices name the same element, the last update wins, or all updates
are combined, depending on the reduction: the elements of a line, and rows, are written in order.
"""

import functools
from collections.abc import Callable, Sequence

from tvm import relax, te, tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_map

from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import switches
from ...target.gpu import is_gpu
from ...tirx.util import broadcast_position, count_of, extern, unravel
from .extents import fit_extents
from .gather import broadcast_indices, fields_of
from .indices import broadcast, is_within, takes_effect, wrap_and_clamp, wrap_negative
from .override import Legalize, override
from .targets import target_of


def _greater(old: tirx.Expr, new: tirx.Expr) -> tirx.Expr:
    return _extremum(old > new, new >= old, old, new)


def _lesser(old: tirx.Expr, new: tirx.Expr) -> tirx.Expr:
    return _extremum(old < new, new <= old, old, new)


def _extremum(is_old: tirx.Expr, is_new: tirx.Expr, old: tirx.Expr, new: tirx.Expr) -> tirx.Expr:
    # With a NaN neither comparison is true, and the sum is NaN.
    neither = old + new if "float" in str(old.ty.dtype) else new
    return tirx.Select(is_old, old, tirx.Select(is_new, new, neither))


_COMBINE: dict[str, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]] = {
    "update": lambda _, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": _lesser,
    "max": _greater,
}
"""For each reduction, the new value of an element."""

_COMBINE_BOOLEANS = {"add": tirx.Or, "max": tirx.Or, "mul": tirx.And, "min": tirx.And}

_COPIES_FIRST = "copies_first_operand"
_ATTRIBUTES = {_COPIES_FIRST: 1}
"""The attribute of kernels made by :func:`_updated_copy`."""

_MIN_PARALLEL = 1 << 14
"""The minimum number of iterations of a parallel loop."""

Position = Sequence[tirx.Expr]


def _loop(
    shape: Position, body: Callable[[list[tirx.Expr]], tirx.Stmt], parallel: bool = False
) -> tirx.Stmt:
    """Loop over all positions of `shape`; `parallel` says that their order does not matter."""
    count = count_of(shape)
    is_small = isinstance(count, tirx.IntImm) and count.value < _MIN_PARALLEL
    kind = tirx.ForKind.PARALLEL if parallel and not is_small else tirx.ForKind.SERIAL
    index = tirx.Var("i", "int64")
    return tirx.For(index, tirx.const(0, "int64"), count, kind, body(unravel(index, shape)))


def _updated_copy(
    name: str,
    operands: Sequence[te.Tensor],
    update: Callable[..., tirx.Stmt],
) -> te.Tensor:
    """Copy the first operand, then run `update` with the buffers of the copy and the others."""
    data = operands[0]

    # without_copy relies on these two statements.
    def body(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        def copy(position: list[tirx.Expr]) -> tirx.Stmt:
            return tirx.BufferStore(outs[0], tirx.BufferLoad(ins[0], position), position)

        return tirx.SeqStmt([_loop(data.shape, copy, parallel=True), update(outs[0], *ins[1:])])

    return extern(name, operands, data.shape, str(data.dtype), body)


def copies_first(function: tirx.PrimFunc) -> bool:
    """Whether a kernel copies its first operand, and then changes elements of the copy."""
    return function.attrs is not None and _COPIES_FIRST in function.attrs


def without_copy(function: tirx.PrimFunc, operands: int) -> tirx.PrimFunc:
    """The kernel that changes the elements of its first operand instead of those of a copy.

    Parameters
    ----------
    function : tirx.PrimFunc
        One that :func:`copies_first`.
    operands : int
        The number of its parameters before the result.
    """
    first, result = function.params[0], function.params[operands]
    _, update = function.body.block.body.seq
    changed = structural_map(update, (tirx.Var, lambda var: first if var.same_as(result) else var))
    block = SBlock([], [], [], function.body.block.name_hint, changed)
    params = [param for param in function.params if not param.same_as(result)]
    body = SBlockRealize([], True, block)
    changed = tirx.PrimFunc(params, body, function.ret_type, function.attrs, function.span)
    return changed.without_attr(_COPIES_FIRST)


def _store(
    target: tirx.Buffer, places: Position, value: tirx.Expr, reduction: str
) -> tirx.BufferStore:
    old = tirx.BufferLoad(target, places)
    of_booleans = _COMBINE_BOOLEANS if str(target.dtype) == "bool" else {}
    combine = of_booleans.get(reduction, _COMBINE[reduction])
    return tirx.BufferStore(target, combine(old, value), places)


def _guarded(places: Sequence[tuple[tirx.Expr, tirx.Expr]], body: tirx.Stmt) -> tirx.Stmt:
    """Run `body` if each of `places`, pairs of index and extent, is in bounds."""
    return tirx.IfThenElse(tirx.all(*(is_within(*place) for place in places)), body, None)


def _scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str
) -> te.Tensor:
    others = [other for other in range(len(data.shape)) if other != axis]

    def change(target: tirx.Buffer, index: tirx.Buffer, update: tirx.Buffer) -> tirx.Stmt:
        def line(position: list[tirx.Expr]) -> tirx.Stmt:
            def element(along: list[tirx.Expr]) -> tirx.Stmt:
                at = [*position[:axis], *along, *position[axis:]]
                place = wrap_negative(tirx.BufferLoad(index, at), data.shape[axis])
                places = [*position[:axis], place, *position[axis:]]
                bounds = [(places[a], data.shape[a]) for a in range(len(places))]
                store = _store(target, places, tirx.BufferLoad(update, at), reduction)
                return _guarded(bounds, store)

            return _loop([indices.shape[axis]], element)

        return _loop([indices.shape[other] for other in others], line, parallel=True)

    return _updated_copy("scatter_elements", [data, indices, updates], change)


def _legalize_scatter_elements(
    bb: relax.BlockBuilder, call: relax.Call, stock: Legalize
) -> relax.Expr:
    data, indices, updates = call.args
    reduction = str(call.attrs.reduction)
    if not _takes_effect(call, indices, updates) or reduction not in _COMBINE:
        return _use_stock(bb, call, stock)
    switches.note(FIX_ID)
    axis = int(call.attrs.axis) % data.ty.ndim
    updates = fit_extents(bb, call, "updates", updates, indices.ty.shape.values)
    return bb.call_te(
        _scatter_elements,
        data,
        indices,
        updates,
        axis,
        reduction,
        primfunc_name_hint="scatter_elements",
        primfunc_attrs=_ATTRIBUTES,
    )


def _put_rows(
    target: tirx.Buffer,
    outer: Position,
    places_of: Callable[[list[tirx.Expr]], list[tirx.Expr]],
    value_of: Callable[[list[tirx.Expr], list[tirx.Expr]], tirx.Expr],
    reduction: str,
) -> tirx.Stmt:
    """Write a row of `target` for each position of `outer`, in order.

    `places_of` returns the leading indices of the row, and `value_of` each of its values.
    """

    def row(position: list[tirx.Expr]) -> tirx.Stmt:
        places = places_of(position)

        def element(inner: list[tirx.Expr]) -> tirx.Stmt:
            return _store(target, [*places, *inner], value_of(position, inner), reduction)

        bounds = [(place, target.shape[axis]) for axis, place in enumerate(places)]
        return _guarded(bounds, _loop(target.shape[len(places) :], element))

    return _loop(outer, row)


def _scatter_nd(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str
) -> te.Tensor:
    *outer, count = indices.shape

    def change(target: tirx.Buffer, index: tirx.Buffer, update: tirx.Buffer) -> tirx.Stmt:
        def places(position: list[tirx.Expr]) -> list[tirx.Expr]:
            return [
                wrap_negative(tirx.BufferLoad(index, [*position, axis]), data.shape[axis])
                for axis in range(int(count))
            ]

        def value(position: list[tirx.Expr], inner: list[tirx.Expr]) -> tirx.Expr:
            return tirx.BufferLoad(update, [*position, *inner])

        return _put_rows(target, outer, places, value, reduction)

    return _updated_copy("scatter_nd", [data, indices, updates], change)


def _updates_shape(data: relax.Expr, indices: relax.Expr) -> list[tirx.Expr]:
    """The shape of the updates of a ``scatter_nd``."""
    *outer, count = indices.ty.shape.values
    return [*outer, *list(data.ty.shape.values)[int(count) :]]


def _broadcast_values(
    bb: relax.BlockBuilder,
    call: relax.Call,
    data: relax.Expr,
    fields: list[relax.Expr],
    values: relax.Expr,
) -> relax.Expr:
    """Check that the values of an ``index_put`` broadcast to the indexed elements; return them."""
    outer = broadcast([field.ty.shape.values for field in fields])
    whole = [*outer, *list(data.ty.shape.values)[len(fields) :]]
    rank = values.ty.ndim
    if rank > len(whole):
        return values
    return fit_extents(bb, call, "values", values, whole[len(whole) - rank :], repeats=True)


def _legalize_scatter_nd(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, indices, updates = call.args
    reduction = str(call.attrs.reduction)
    if not _takes_effect(call, indices, updates) or reduction not in _COMBINE:
        return _use_stock(bb, call, stock)
    if not isinstance(indices.ty.shape.values[-1], tirx.IntImm):
        return _use_stock(bb, call, stock)
    switches.note(FIX_ID)
    updates = fit_extents(bb, call, "updates", updates, _updates_shape(data, indices))
    return bb.call_te(
        _scatter_nd,
        data,
        indices,
        updates,
        reduction,
        primfunc_name_hint="scatter_nd",
        primfunc_attrs=_ATTRIBUTES,
    )


def _index_put(
    data: te.Tensor, indices: Sequence[te.Tensor], values: te.Tensor, reduction: str
) -> te.Tensor:
    outer = broadcast([index.shape for index in indices])

    def change(target: tirx.Buffer, *operands: tirx.Buffer) -> tirx.Stmt:
        *index, value = operands

        def places(position: list[tirx.Expr]) -> list[tirx.Expr]:
            return [
                wrap_negative(tirx.BufferLoad(own, broadcast_position(position, own.shape)), extent)
                for own, extent in zip(index, data.shape, strict=False)
            ]

        def put(position: list[tirx.Expr], inner: list[tirx.Expr]) -> tirx.Expr:
            at = [*position, *inner]
            return tirx.BufferLoad(value, broadcast_position(at, value.shape))

        return _put_rows(target, outer, places, put, reduction)

    return _updated_copy("index_put", [data, *indices, values], change)


def _legalize_index_put(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, indices, values = call.args
    fields = fields_of(bb, indices)
    is_known = _takes_effect(call, *fields, values) and len(fields) <= data.ty.ndim
    if not is_known or any("int" not in str(field.ty.dtype) for field in fields):
        return _use_stock(bb, call, stock)
    switches.note(FIX_ID)
    reduction = "add" if call.attrs.accumulate else "update"
    fields = broadcast_indices(bb, call, fields)
    values = _broadcast_values(bb, call, data, fields, values)
    return bb.call_te(
        _index_put,
        data,
        fields,
        values,
        reduction,
        primfunc_name_hint="index_put",
        primfunc_attrs=_ATTRIBUTES,
    )


def _take_backward(
    gradient: te.Tensor, data: te.Tensor, indices: te.Tensor, axis: int
) -> te.Tensor:
    others = [extent for place, extent in enumerate(data.shape) if place != axis]

    def body(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        own, _, index = ins

        def clear(position: list[tirx.Expr]) -> tirx.Stmt:
            return tirx.BufferStore(outs[0], tirx.const(0, str(data.dtype)), position)

        def line(position: list[tirx.Expr]) -> tirx.Stmt:
            def element(along: list[tirx.Expr]) -> tirx.Stmt:
                place = wrap_negative(tirx.BufferLoad(index, along), data.shape[axis])
                places = [*position[:axis], place, *position[axis:]]
                value = tirx.BufferLoad(own, [*position[:axis], *along, *position[axis:]])
                store = _store(outs[0], places, value, "add")
                return _guarded([(place, data.shape[axis])], store)

            return _loop(indices.shape, element)

        return tirx.SeqStmt([_loop(data.shape, clear, True), _loop(others, line, True)])

    operands = [gradient, data, indices]
    return extern("take_backward", operands, data.shape, str(data.dtype), body)


def _legalize_take_backward(
    bb: relax.BlockBuilder, call: relax.Call, stock: Legalize
) -> relax.Expr:
    gradient, data, indices = call.args
    axis = call.attrs.axis
    is_known = indices.ty.ndim == 1 and (axis is not None or data.ty.ndim == 1)
    if not is_known or not _takes_effect(call, data, indices):
        return stock(bb, call)
    switches.note(FIX_ID)
    return bb.call_te(
        _take_backward,
        gradient,
        data,
        indices,
        0 if axis is None else int(axis) % data.ty.ndim,
        primfunc_name_hint="take_backward",
    )


def _takes_effect(call: relax.Call, *others: relax.Expr) -> bool:
    return takes_effect(call.args[0], *others) and not is_gpu(target_of(call))


def _nearest(indices: te.Tensor, *extents: tirx.Expr) -> te.Tensor:
    """Clamp indices to the extent of an axis; with several extents, clamp each column to its own.

    The result is int64: the last index of an axis may not fit into the dtype of the indices.
    """

    def element(*position: tirx.Var) -> tirx.Expr:
        extent = extents[0]
        for column, other in enumerate(extents[1:], 1):
            extent = tirx.Select(position[-1].equal(column), other, extent)
        return wrap_and_clamp(indices(*position), extent)

    return te.compute(indices.shape, element, name="nearest")


def _for_gpu(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    """Lower to TVM's GPU kernel with indices clamped to the data."""
    data, indices, updates = call.args
    name, extents = call.op.name, data.ty.shape.values

    def nearest(own: relax.Expr, *within: tirx.Expr) -> relax.Expr:
        return bb.emit(bb.call_te(_nearest, own, *within, primfunc_name_hint="nearest"))

    if name == "relax.index_put":
        fields = broadcast_indices(bb, call, fields_of(bb, indices))
        updates = _broadcast_values(bb, call, data, fields, updates)
        pairs = zip(fields, extents, strict=False)
        indices = relax.Tuple([nearest(field, extent) for field, extent in pairs])
    elif name == "relax.scatter_nd":
        updates = fit_extents(bb, call, "updates", updates, _updates_shape(data, indices))
        indices = nearest(indices, *extents[: int(indices.ty.shape.values[-1])])
    else:
        updates = fit_extents(bb, call, "updates", updates, indices.ty.shape.values)
        indices = nearest(indices, extents[int(call.attrs.axis) % data.ty.ndim])
    switches.note(FIX_ID)
    operands = [data, indices, updates]
    return stock(bb, bb.normalize(relax.Call(call.op, operands, call.attrs)))


def _use_stock(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    """Lower to TVM's kernel; for a GPU, with clamped indices."""
    data, indices, updates = call.args
    tensors = fields_of(bb, indices) if call.op.name == "relax.index_put" else [indices]
    if not is_gpu(target_of(call)) or not takes_effect(data, updates, *tensors):
        return stock(bb, call)
    is_known = all("int" in str(one.ty.dtype) for one in tensors)
    if call.op.name == "relax.scatter_nd":
        is_known = is_known and isinstance(indices.ty.shape.values[-1], tirx.IntImm)
    return _for_gpu(bb, call, stock) if is_known else stock(bb, call)


@functools.cache
def register() -> None:
    """Register the lowerings; a second call is a no-op."""
    override("relax.scatter_elements", _legalize_scatter_elements)
    override("relax.scatter_nd", _legalize_scatter_nd)
    override("relax.index_put", _legalize_index_put)
    override("relax.grad.take_backward", _legalize_take_backward)
