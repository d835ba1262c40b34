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
``grad.take_backward``.

See :mod:`.indices`.  If several indices name the same element, the last update wins, or all updates
are combined, depending on the reduction: the elements of a line, and rows, are written in order.
On a GPU, a thread goes through all updates of a line in order, and applies those at some places; of
thousands of updates without a reduction, any one of the same element wins, as in PyTorch.
"""

import contextlib
from collections.abc import Callable, Sequence

import tvm
from tvm import relax, te, tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_map

from ...attributes import COPIES_FIRST
from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import switches
from ...target.gpu import is_gpu
from ...tirx.util import broadcast_position, count_of, extern, unravel
from .extents import fit_extents
from .gather import broadcast_indices, fields_of
from .indices import broadcast, is_within, takes_effect, wrap_negative
from .override import Legalize, legalizes
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

_ATTRIBUTES: dict[str, int] = {COPIES_FIRST: 1}
"""The attribute of kernels made by :func:`_updated_copy`."""

_MIN_PARALLEL = 1 << 14
"""The minimum number of iterations of a parallel loop."""

_THREADS = 256
"""The threads of a block of a GPU."""
_MIN_THREADS = 1 << 16
"""The number of threads among which a GPU divides updates, if there are fewer lines."""
_MAX_PARTS = 1 << 10
"""The maximum number of threads per line."""
_MAX_IN_ORDER = 1 << 13
"""The maximum number of updates of a line that a GPU applies in order if they are not combined."""
_PARTS = 64
"""The number of threads per line if the number of lines is unknown."""

Position = Sequence[tirx.Expr]
Update = tuple[tirx.Expr, tirx.Stmt]
"""The place along a line that an update changes, and the statement that does it."""


def _loop(
    shape: Position, body: Callable[[list[tirx.Expr]], tirx.Stmt], parallel: bool = False
) -> tirx.Stmt:
    """Loop over all positions of `shape`; `parallel` says that their order does not matter."""
    count = count_of(shape)
    is_small = isinstance(count, tirx.IntImm) and count.value < _MIN_PARALLEL
    kind = tirx.ForKind.PARALLEL if parallel and not is_small else tirx.ForKind.SERIAL
    index = tirx.Var("i", "int64")
    return tirx.For(index, tirx.const(0, "int64"), count, kind, body(unravel(index, shape)))


def _launch(shape: Position, body: Callable[[list[tirx.Expr]], tirx.Stmt]) -> tirx.Stmt:
    """Run `body` for all positions of `shape` in threads of a GPU."""
    count = count_of(shape)
    block, thread = (tirx.Var(name, "int64") for name in ("block", "thread"))
    index = block * _THREADS + thread
    guarded = tirx.IfThenElse(index < count, body(unravel(index, shape)), None)
    return _bind(
        block,
        tirx.ceildiv(count, tirx.const(_THREADS, "int64")),
        "blockIdx.x",
        _bind(thread, tirx.const(_THREADS, "int64"), "threadIdx.x", guarded),
    )


def _bind(var: tirx.Var, extent: tirx.Expr, tag: str, body: tirx.Stmt) -> tirx.For:
    """A loop whose iterations run in the threads or blocks `tag` of a GPU."""
    axis = tirx.IterVar(None, tirx.Var(tag, "int64"), tirx.IterVar.ThreadIndex, tag)
    return tirx.For(var, tirx.const(0, "int64"), extent, tirx.ForKind.THREAD_BINDING, body, axis)


def _on_gpu() -> bool:
    """Whether the kernel that is being made is for a GPU."""
    return is_gpu(tvm.target.Target.current(allow_none=True))


def _for_each(shape: Position, body: Callable[[list[tirx.Expr]], tirx.Stmt]) -> tirx.Stmt:
    """Run `body` for all positions of `shape`, in any order."""
    return _launch(shape, body) if _on_gpu() else _loop(shape, body, parallel=True)


def _update_lines(
    lines: Position,
    steps: Position,
    reduction: str,
    update: Callable[[list[tirx.Expr], list[tirx.Expr]], Update],
) -> tirx.Stmt:
    """Run `update` for all positions of a line in order, for all lines in any order.

    The threads of a GPU that share a line divide the places along it among each other; each of
    thousands of updates without a reduction has its own thread.
    """
    if not _on_gpu():
        return _for_each(lines, lambda line: _loop(steps, lambda step: update(line, step)[1]))
    count, length = count_of(lines), count_of(steps)
    if reduction == "update" and isinstance(length, tirx.IntImm) and int(length) > _MAX_IN_ORDER:
        rank = len(steps)
        return _launch([*steps, *lines], lambda at: update(at[rank:], at[:rank])[1])
    is_known = isinstance(count, tirx.IntImm)
    parts = max(1, _MIN_THREADS // max(int(count), 1)) if is_known else _PARTS
    parts = min(parts, _MAX_PARTS)

    def in_thread(position: list[tirx.Expr]) -> tirx.Stmt:
        part, *line = position

        def step(at: list[tirx.Expr]) -> tirx.Stmt:
            place, stmt = update(line, at)
            return tirx.IfThenElse(tirx.floormod(place, parts).equal(part), stmt, None)

        return _loop(steps, step if parts > 1 else lambda at: update(line, at)[1])

    return _launch([tirx.const(parts, "int64"), *lines], in_thread)


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

        return tirx.SeqStmt([_for_each(data.shape, copy), update(outs[0], *ins[1:])])

    return extern(name, operands, data.shape, str(data.dtype), body)


def copies_first(function: tirx.PrimFunc) -> bool:
    """Whether a kernel copies its first operand, and then changes elements of the copy."""
    return function.attrs is not None and COPIES_FIRST in function.attrs


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
    return changed.without_attr(COPIES_FIRST)


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


def _lower(
    bb: relax.BlockBuilder,
    call: relax.Call,
    kernel: Callable[..., te.Tensor],
    *args: object,
    attributes: dict[str, int] = _ATTRIBUTES,
) -> relax.Expr:
    """Call the kernel with the name of an operator, made for the target of its call."""
    name = call.op.name.rpartition(".")[2]
    with target_of(call) or contextlib.nullcontext():
        return bb.call_te(kernel, *args, primfunc_name_hint=name, primfunc_attrs=attributes)


def _scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str
) -> te.Tensor:
    others = [other for other in range(len(data.shape)) if other != axis]

    def change(target: tirx.Buffer, index: tirx.Buffer, update: tirx.Buffer) -> tirx.Stmt:
        def element(line: list[tirx.Expr], along: list[tirx.Expr]) -> Update:
            at = [*line[:axis], *along, *line[axis:]]
            place = wrap_negative(tirx.BufferLoad(index, at), data.shape[axis])
            places = [*line[:axis], place, *line[axis:]]
            bounds = [(places[a], data.shape[a]) for a in range(len(places))]
            store = _store(target, places, tirx.BufferLoad(update, at), reduction)
            return place, _guarded(bounds, store)

        lines = [indices.shape[other] for other in others]
        return _update_lines(lines, [indices.shape[axis]], reduction, element)

    return _updated_copy("scatter_elements", [data, indices, updates], change)


@legalizes("relax.scatter_elements")
def _legalize_scatter_elements(
    bb: relax.BlockBuilder, call: relax.Call, stock: Legalize
) -> relax.Expr:
    data, indices, updates = call.args
    reduction = str(call.attrs.reduction)
    if not takes_effect(*call.args) or reduction not in _COMBINE:
        return stock(bb, call)
    switches.note(FIX_ID)
    axis = int(call.attrs.axis) % data.ty.ndim
    updates = fit_extents(bb, call, "updates", updates, indices.ty.shape.values)
    return _lower(
        bb,
        call,
        _scatter_elements,
        data,
        indices,
        updates,
        axis,
        reduction,
    )


def _put_rows(
    target: tirx.Buffer,
    outer: Position,
    rank: int,
    places_of: Callable[[list[tirx.Expr]], list[tirx.Expr]],
    value_of: Callable[[list[tirx.Expr], list[tirx.Expr]], tirx.Expr],
    reduction: str,
) -> tirx.Stmt:
    """Write a row of `target` for each position of `outer`, in order.

    `places_of` returns the `rank` leading indices of the row, and `value_of` each of its values.
    """

    def bounded(places: Position, body: tirx.Stmt) -> tirx.Stmt:
        return _guarded(list(zip(places, target.shape, strict=False)), body)

    def row(position: list[tirx.Expr]) -> tirx.Stmt:
        places = places_of(position)

        def element(inner: list[tirx.Expr]) -> tirx.Stmt:
            return _store(target, [*places, *inner], value_of(position, inner), reduction)

        return bounded(places, _loop(target.shape[len(places) :], element))

    def element_of_row(inner: list[tirx.Expr], position: list[tirx.Expr]) -> Update:
        places = places_of(position)
        store = _store(target, [*places, *inner], value_of(position, inner), reduction)
        number = tirx.const(0, "int64")
        for place, extent in zip(places, target.shape, strict=False):
            number = number * extent + place
        return number, bounded(places, store)

    if not _on_gpu():
        return _loop(outer, row)
    return _update_lines(target.shape[rank:], outer, reduction, element_of_row)


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

        return _put_rows(target, outer, int(count), places, value, reduction)

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


@legalizes("relax.scatter_nd")
def _legalize_scatter_nd(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, indices, updates = call.args
    reduction = str(call.attrs.reduction)
    if not takes_effect(*call.args) or reduction not in _COMBINE:
        return stock(bb, call)
    if not isinstance(indices.ty.shape.values[-1], tirx.IntImm):
        return stock(bb, call)
    switches.note(FIX_ID)
    updates = fit_extents(bb, call, "updates", updates, _updates_shape(data, indices))
    return _lower(
        bb,
        call,
        _scatter_nd,
        data,
        indices,
        updates,
        reduction,
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

        return _put_rows(target, outer, len(index), places, put, reduction)

    return _updated_copy("index_put", [data, *indices, values], change)


@legalizes("relax.index_put")
def _legalize_index_put(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    data, indices, values = call.args
    fields = fields_of(bb, indices)
    is_known = takes_effect(data, *fields, values) and len(fields) <= data.ty.ndim
    if not is_known or any("int" not in str(field.ty.dtype) for field in fields):
        return stock(bb, call)
    switches.note(FIX_ID)
    reduction = "add" if call.attrs.accumulate else "update"
    fields = broadcast_indices(bb, call, fields)
    values = _broadcast_values(bb, call, data, fields, values)
    return _lower(
        bb,
        call,
        _index_put,
        data,
        fields,
        values,
        reduction,
    )


def _take_backward(
    gradient: te.Tensor, data: te.Tensor, indices: te.Tensor, axis: int
) -> te.Tensor:
    others = [extent for place, extent in enumerate(data.shape) if place != axis]

    def body(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        own, _, index = ins

        def clear(position: list[tirx.Expr]) -> tirx.Stmt:
            return tirx.BufferStore(outs[0], tirx.const(0, str(data.dtype)), position)

        def element(line: list[tirx.Expr], along: list[tirx.Expr]) -> Update:
            place = wrap_negative(tirx.BufferLoad(index, along), data.shape[axis])
            places = [*line[:axis], place, *line[axis:]]
            value = tirx.BufferLoad(own, [*line[:axis], *along, *line[axis:]])
            store = _store(outs[0], places, value, "add")
            return place, _guarded([(place, data.shape[axis])], store)

        cleared = _for_each(data.shape, clear)
        return tirx.SeqStmt([cleared, _update_lines(others, indices.shape, "add", element)])

    operands = [gradient, data, indices]
    return extern("take_backward", operands, data.shape, str(data.dtype), body)


@legalizes("relax.grad.take_backward")
def _legalize_take_backward(
    bb: relax.BlockBuilder, call: relax.Call, stock: Legalize
) -> relax.Expr:
    gradient, data, indices = call.args
    axis = call.attrs.axis
    is_known = indices.ty.ndim == 1 and (axis is not None or data.ty.ndim == 1)
    if not is_known or not takes_effect(*call.args):
        return stock(bb, call)
    switches.note(FIX_ID)
    return _lower(
        bb,
        call,
        _take_backward,
        gradient,
        data,
        indices,
        0 if axis is None else int(axis) % data.ty.ndim,
        attributes={},
    )
