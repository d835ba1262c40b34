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
"""PyTorch's advanced indexing, scatters and assignments to slices.

Trigger
    ``x[..., i, :, j]``, ``x[i] = rows``, ``x[..., i, i] = v``, ``x[mask] = v``, ``x[:, :n] = y`` of
    a dynamic dim, ``torch.take``, ``scatter`` of a source that is larger than its indices,
    ``scatter_add``, ``scatter_reduce``; embeddings with indices >= 2**31.
Mechanism
    The axes between indices become an ``arange`` whose shape broadcasts with the indices, or each
    index is applied separately; indices are cast to 32 bits; ``index_put`` assumes an index for
    each axis; ``slice_scatter`` assumes integers as bounds.
"""

from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx
from tvm.sym import Analyzer

from ....errors import OpNotImplemented
from ....fixes.torch_importer import INDEXING
from ....relax.legalize.indices import broadcast, from_start
from ...dtypes import dtype_of
from ...extents import static_extent
from ..call import Call, converts
from ..values.operands import operand_of

_END = 2**63 - 1
"""PyTorch's end of a slice without an end."""


_FROM_START = {
    *("embedding.default", "gather.default", "index_select.default"),
    *("index_add.default", "index_copy.default"),
}
"""The operators whose negative indices PyTorch rejects."""


def _shape_of(value: relax.Expr) -> list[tirx.Expr]:
    return list(value.ty.shape.values)


def _inverse(axes: Sequence[int]) -> list[int]:
    """Return the inverse of a permutation of axes."""
    return [axes.index(axis) for axis in range(len(axes))]


def _permuted(call: Call, value: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    if list(axes) == list(range(len(axes))):
        return value
    return call.emit(relax.op.permute_dims(value, list(axes)))


def _marked(call: Call, index: relax.Expr) -> relax.Expr:
    """An index; negative ones are out of range for most operators."""
    return call.emit(from_start(index)) if call.operator in _FROM_START else index


@converts("embedding.default", fix=INDEXING, noted=True)
def convert_embedding(call: Call) -> relax.Expr:
    """Convert a lookup of rows."""
    weight, indices = call.operands[:2]
    return call.emit(relax.op.take(weight, _marked(call, indices), axis=0))


@converts("index_select.default", fix=INDEXING)
def convert_index_select(call: Call) -> relax.Expr:
    """Convert a selection along an axis, from the start only."""
    x, axis, index = call.arguments(input=None, dim=None, index=None)
    return call.emit(relax.op.take(x, _marked(call, index), axis))


@converts("gather.default", fix=INDEXING)
def convert_gather(call: Call) -> relax.Expr:
    """Convert a selection of one element along an axis for each result, from the start only."""
    x, axis, index = call.arguments(input=None, dim=None, index=None)
    return call.emit(relax.op.gather_elements(x, _marked(call, index), axis))


@converts("take.default", fix=INDEXING, noted=True)
def convert_take(call: Call) -> relax.Expr:
    """Convert the elements at indices of the flat tensor."""
    x, indices = call.operands
    flat = call.emit(relax.op.reshape(x, (-1,)))
    return call.emit(relax.op.take(flat, indices, axis=0))


@converts("index.Tensor", fix=INDEXING, noted=True)
def convert_index(call: Call) -> relax.Expr:
    """Convert an index by tensors of integers on some axes."""
    x, indices = call.operands
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if len(axes) == 1:
        return call.emit(relax.op.take(x, given[0], axis=axes[0]))
    others = [axis for axis in range(x.ty.ndim) if axis not in axes]
    x = _permuted(call, x, axes + others)
    elements = call.emit(relax.op.index_tensor(x, given))
    index_rank = max(index.ty.ndim for index in given)
    order = _result_order(axes, others, index_rank)
    return _permuted(call, elements, _inverse(order))


@converts("index_put.default", fix=INDEXING, noted=True)
def convert_index_put(call: Call) -> relax.Expr:
    """Convert an assignment to indices or to a mask."""
    x, indices, values, accumulate = call.arguments(
        input=None, indices=None, values=None, accumulate=False
    )
    values = call.astype(values, dtype_of(x))
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    masks = [index for index in given if dtype_of(index) in ("bool", "uint8")]
    if not masks:
        return _put(call, x, axes, given, values, accumulate)
    if len(given) > 1:
        raise OpNotImplemented(
            f"{call.where}: the dtypes of the indices are "
            f"{[None if i is None else dtype_of(i) for i in indices]}; "
            "expected integers, or only one tensor of booleans"
        )
    mask = call.astype(masks[0], "bool")
    return _put_where(call, x, axes[0], mask, values, accumulate)


def _put(
    call: Call,
    x: relax.Expr,
    axes: list[int],
    indices: list[relax.Expr],
    values: relax.Expr,
    accumulate: bool,
) -> relax.Expr:
    """Assign `values` to the elements at the integer `indices` along `axes`, or add them."""
    emit, shape = call.emit, _shape_of(x)
    others = [axis for axis in range(len(shape)) if axis not in axes]
    outer = broadcast([_shape_of(index) for index in indices])
    rest = [shape[axis] for axis in others]
    order = _result_order(axes, others, len(outer))
    target = [(*outer, *rest)[axis] for axis in _inverse(order)]
    ends = target[len(target) - values.ty.ndim :]
    pairs = zip(_shape_of(values), ends, strict=True)
    fitting = [own if static_extent(own) == 1 else end for own, end in pairs]
    values = emit(relax.op.broadcast_to(_of_shape(call, values, fitting), target))
    reduction = "add" if accumulate else "update"
    if len(axes) == len(outer) == 1 and axes[0] > 0:
        return _put_along(call, x, axes[0], indices[0], values, reduction)
    values = _permuted(call, values, order)
    columns = [emit(relax.op.broadcast_to(call.astype(index, "int64"), outer)) for index in indices]
    rows = _marked(call, emit(relax.op.stack(columns, axis=-1)))
    if not outer:
        rows = emit(relax.op.expand_dims(rows, 0))
        values = emit(relax.op.expand_dims(values, 0))
    moved = _permuted(call, x, axes + others)
    updated = emit(relax.op.scatter_nd(moved, rows, values, reduction))
    return _permuted(call, updated, _inverse(axes + others))


def _of_shape(call: Call, value: relax.Expr, shape: list[tirx.Expr]) -> relax.Expr:
    """A value, which has a shape that PyTorch does not guard; otherwise, that is an error."""
    if all(map(call.symbols.analyzer.can_prove_equal, _shape_of(value), shape)):
        return value
    return call.builder.match_cast(value, relax.TensorType(shape, dtype_of(value)))


def _put_along(
    call: Call, x: relax.Expr, axis: int, index: relax.Expr, values: relax.Expr, reduction: str
) -> relax.Expr:
    """Write `values` at a row of indices along `axis`, without a permute of `x`."""
    emit, shape = call.emit, _shape_of(values)
    column = [1] * len(shape)
    column[axis] = -1
    index = emit(relax.op.reshape(call.astype(index, "int64"), column))
    index = _marked(call, emit(relax.op.broadcast_to(index, shape)))
    return emit(relax.op.scatter_elements(x, index, values, axis, reduction))


def _put_where(
    call: Call,
    x: relax.Expr,
    axis: int,
    mask: relax.Expr,
    values: relax.Expr,
    accumulate: bool,
) -> relax.Expr:
    """Assign `values` to the elements that a mask selects from `axis` on, or add them."""
    emit, mask_rank = call.emit, mask.ty.ndim
    rest = x.ty.ndim - axis - mask_rank
    masked = _shape_of(x)[axis : axis + mask_rank]
    if not all(map(Analyzer().can_prove_equal, _shape_of(mask), masked)):
        mask = call.builder.match_cast(mask, relax.TensorType(masked, "bool"))
    values_axis = values.ty.ndim - 1 - rest
    if values_axis >= 0 and static_extent(_shape_of(values)[values_axis]) == 1:
        shape = _shape_of(values)
        shape[values_axis : values_axis + 1] = [tirx.const(1, "int64")] * mask_rank
        values = emit(relax.op.reshape(values, shape))
    elif values_axis >= 0:
        # There is one value for each selected element, in the order of these elements.
        flat = emit(relax.op.reshape(call.astype(mask, "int64"), (-1,)))
        count = emit(relax.op.sum(flat, axis=0, keepdims=True))
        count = emit(relax.op.tensor_to_shape(count))
        call.builder.match_cast(count, relax.ShapeType([_shape_of(values)[values_axis]]))
        number = emit(relax.op.cumsum(flat, axis=0))
        number = emit(relax.op.subtract(number, relax.const(1, "int64")))
        number = emit(relax.op.reshape(number, _shape_of(mask)))
        values = emit(relax.op.take(values, number, axis=values_axis, mode="clip"))
    if rest:
        mask = emit(relax.op.reshape(mask, (*_shape_of(mask), *[1] * rest)))
    if accumulate:
        values = emit(relax.op.add(x, values))
    return emit(relax.op.where(mask, values, x))


@converts("index_add.default", "index_copy.default", fix=INDEXING)
def convert_index_add(call: Call) -> relax.Expr:
    """Convert an assignment or an addition to slices, whose indices are from the start only."""
    x, axis, index, source, alpha = call.arguments(
        input=None, dim=None, index=None, source=None, alpha=1
    )
    source = operand_of(call, source, dtype_of(x))
    if alpha != 1:
        source = call.emit(relax.op.multiply(source, operand_of(call, alpha, dtype_of(x))))
    index = call.emit(relax.op.reshape(index, (-1,)))
    rows = list(x.ty.shape.values) or [1]
    own = call.emit(relax.op.reshape(x, rows)) if not x.ty.ndim else x
    rows[axis % len(rows)] = index.ty.shape.values[0]
    source = call.emit(relax.op.reshape(source, rows)) if source.ty.ndim < len(rows) else source
    source = _of_shape(call, source, rows)
    is_added = call.operator == "index_add.default"
    updated = _put(call, own, [axis % len(rows)], [index], source, is_added)
    return updated if x.ty.ndim else call.emit(relax.op.reshape(updated, ()))


@converts("slice_scatter.default", fix=INDEXING, noted=True)
def convert_slice_scatter(call: Call) -> relax.Expr:
    """Convert an assignment to a slice."""
    x, source, axis, start, end, step = call.arguments(
        input=None, src=None, dim=0, start=None, end=None, step=1
    )
    axis %= x.ty.ndim
    extent = _shape_of(x)[axis]
    analyzer = call.symbols.analyzer
    begin = _bound(0 if start is None else start, extent, analyzer)
    stop = _bound(_END if end is None else end, extent, analyzer)
    if analyzer.can_prove(begin >= stop):
        return x
    bounds = (analyzer.simplify(begin), analyzer.simplify(stop), step)
    dims = [*_shape_of(x)]
    dims[axis] = tirx.floordiv(tirx.max(stop - begin, 0) + step - 1, step)
    if not all(map(analyzer.can_prove_equal, _shape_of(source), dims)):
        dims = [analyzer.simplify(dim) for dim in dims]
        source = call.builder.match_cast(source, relax.TensorType(dims, dtype_of(source)))
    is_whole = analyzer.can_prove_equal(begin, 0) and analyzer.can_prove_equal(stop, extent)
    if is_whole and static_extent(step) == 1:
        return call.emit(relax.op.broadcast_to(source, _shape_of(x)))
    start, end, step = (relax.prim_value(bound) for bound in bounds)
    return call.emit(relax.op.slice_scatter(x, source, start, end, step, axis=axis))


@converts("select_scatter.default", fix=INDEXING, noted=True)
def convert_select_scatter(call: Call) -> relax.Expr:
    """Convert an assignment to one index of an axis."""
    x, source, axis, index = call.operands
    axis %= x.ty.ndim
    begin = _bound(index, _shape_of(x)[axis], call.symbols.analyzer)
    source = call.emit(relax.op.expand_dims(call.astype(source, dtype_of(x)), [axis]))
    bounds = [relax.prim_value(bound) for bound in (begin, begin + 1, 1)]
    return call.emit(relax.op.slice_scatter(x, source, *bounds, axis=axis))


def _result_order(axes: list[int], others: list[int], index_rank: int) -> list[int]:
    """Return the result axes of the indices, then those of the `others`.

    If the indexed `axes` are adjacent, the axes of the indices replace them; otherwise they come
    first.
    """
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    first = axes[0] if adjacent else 0
    indexed = list(range(first, first + index_rank))
    rank = index_rank + len(others)
    return indexed + [axis for axis in range(rank) if axis not in indexed]


def _bound(bound: Any, extent: tirx.Expr, analyzer: Analyzer) -> tirx.Expr:
    """Count a slice bound from the front, and clamp it to the extent."""
    number = static_extent(bound)
    if number is None:
        zero = tirx.const(0, "int64")
        in_front = tirx.min(bound, extent)
        if analyzer.can_prove(bound >= 0):
            return in_front
        return tirx.Select(bound < 0, tirx.max(bound + extent, zero), in_front)
    if number == 0:
        return tirx.const(0, "int64")
    if number >= _END:
        return extent
    if number < 0:
        return tirx.max(extent + number, tirx.const(0, "int64"))
    return tirx.min(tirx.const(number, "int64"), extent)
