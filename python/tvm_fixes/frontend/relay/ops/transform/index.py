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
"""Converters of the operators that read or write elements at given positions."""

from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ....extents import NO_FACTS, product
from ...call import Call, converts
from ...values.extents import positive_axis, reshaped, shaped, with_extents


@converts("take")
def take(call: Call) -> relax.Expr:
    """Take slices along an axis, or elements if there is no axis."""
    data, extents = shaped(call)
    indices, _ = shaped(call, 1)
    # "fast" promises indices within the axis, for which all modes agree.
    mode = "wrap" if call.attributes["mode"] == "wrap" else "clip"
    axis = call.attributes["axis"]
    if axis is None:
        flat = reshaped(call, data, [product(NO_FACTS, extents)])
        return call.emit(relax.op.take(flat, indices, 0, mode=mode))
    axis = positive_axis(axis, len(extents))
    batch_dims = int(call.attributes["batch_dims"])
    if batch_dims == 0:
        return call.emit(relax.op.take(data, indices, axis, mode=mode))
    return call.emit_te(te_batch_take, data, indices, batch_dims, axis, mode)


def te_batch_take(
    data: te.Tensor, indices: te.Tensor, batch_dims: int, axis: int, mode: str
) -> te.Tensor:
    """Take slices; the first `batch_dims` axes of both tensors are the same."""
    rank = len(indices.shape) - batch_dims
    shape = [*data.shape[:axis], *indices.shape[batch_dims:], *data.shape[axis + 1 :]]

    def element(*position: tirx.Var) -> Any:
        inner = position[axis : axis + rank]
        index = tirx.Cast("int64", indices(*position[:batch_dims], *inner))
        extent = tirx.Cast("int64", data.shape[axis])
        if mode == "wrap":
            index = tirx.floormod(index, extent)
        else:
            index = tirx.max(tirx.min(index, extent - 1), 0)
        return data(*position[:axis], index, *position[axis + rank :])

    return te.compute(shape, element, name="take")


@converts("gather")
def gather(call: Call) -> relax.Expr:
    """Take elements along an axis."""
    data, extents = shaped(call)
    axis = positive_axis(call.attributes["axis"], len(extents))
    return call.emit(relax.op.gather_elements(data, shaped(call, 1)[0], axis))


@converts("gather_nd")
def gather_nd(call: Call) -> relax.Expr:
    """Take slices at the positions in the columns of the indices."""
    data, indices = shaped(call)[0], shaped(call, 1)[0]
    rank = len(shaped(call, 1)[1])
    if rank > 1:
        indices = call.emit(relax.op.permute_dims(indices, [*range(1, rank), 0]))
    indices = call.emit(relax.op.astype(indices, "int64"))
    return call.emit(relax.op.gather_nd(data, indices, int(call.attributes["batch_dims"])))


@converts("scatter_elements", "scatter", "scatter_add")
def scatter_elements(call: Call) -> relax.Expr:
    """Write single elements along an axis."""
    old = {"scatter": "update", "scatter_add": "add"}
    reduction = old.get(call.operator) or str(call.attributes["reduction"])
    data, extents = shaped(call)
    indices, updates = shaped(call, 1)[0], shaped(call, 2)[0]
    axis = positive_axis(call.attributes["axis"], len(extents))
    return call.emit(relax.op.scatter_elements(data, indices, updates, axis, reduction))


@converts("scatter_nd")
def scatter_nd(call: Call) -> relax.Expr:
    """Write slices at the positions in the columns of the indices."""
    data, indices, updates = (shaped(call, i)[0] for i in range(3))
    rank = len(shaped(call, 1)[1])
    if rank > 1:
        indices = call.emit(relax.op.permute_dims(indices, [*range(1, rank), 0]))
    return call.emit(relax.op.scatter_nd(data, indices, updates, str(call.attributes["mode"])))


@converts("sequence_mask")
def sequence_mask(call: Call) -> relax.Expr:
    """Replace the elements beyond the length of each sequence."""
    data, lengths = shaped(call)[0], shaped(call, 1)[0]
    value, axis = float(call.attributes["mask_value"]), int(call.attributes["axis"])
    return call.emit_te(te_sequence_mask, data, lengths, value, axis)


def te_sequence_mask(data: te.Tensor, lengths: te.Tensor, value: float, axis: int) -> te.Tensor:
    """Compare the position on the axis with the length of the sequence."""
    mask = tirx.Cast(data.dtype, tirx.const(value, "float64"))

    def element(*position: tirx.Var) -> Any:
        index = tirx.Cast("int64", position[axis])
        is_valid = index < tirx.Cast("int64", lengths[position[1 - axis]])
        return tirx.Select(is_valid, data(*position), mask)

    return te.compute(data.shape, element, name="sequence_mask")


@converts("one_hot")
def one_hot(call: Call) -> relax.Expr:
    """Write one value at the positions of the indices, and another everywhere else."""
    indices, on_value, off_value = (shaped(call, i)[0] for i in range(3))
    axis = int(call.attributes["axis"])
    axis = len(shaped(call)[1]) if axis == -1 else axis
    depth, dtype = int(call.attributes["depth"]), str(call.attributes["dtype"])
    return call.emit_te(te_one_hot, indices, on_value, off_value, depth, axis, dtype)


def te_one_hot(
    indices: te.Tensor, on_value: te.Tensor, off_value: te.Tensor, depth: int, axis: int, dtype: str
) -> te.Tensor:
    """Compare the position on the new axis with the index."""
    shape = [*indices.shape[:axis], depth, *indices.shape[axis:]]

    def element(*position: tirx.Var) -> Any:
        index = indices(*position[:axis], *position[axis + 1 :])
        hot = tirx.Cast("int64", index).equal(tirx.Cast("int64", position[axis]))
        return tirx.Select(hot, tirx.Cast(dtype, on_value()), tirx.Cast(dtype, off_value()))

    return te.compute(shape, element, name="one_hot")


@converts("sparse_to_dense")
def sparse_to_dense(call: Call) -> relax.Expr:
    """Write values to a tensor of a default value; the last write to a position wins."""
    return dense_from_sparse(call, call.ints("output_shape"))


def dense_from_sparse(call: Call, shape: list[int]) -> relax.Expr:
    """Write the values of inputs 0 and 1 to a tensor with the default value of input 2."""
    indices, values, default = (shaped(call, i)[0] for i in range(3))
    rank = len(shaped(call)[1])
    if rank == 2:
        count, width = shaped(call)[1]
    else:
        count, width = (shaped(call)[1][0] if rank == 1 else 1), 1
        indices = reshaped(call, indices, [count, 1])
    if not isinstance(count, int) or width != len(shape):
        raise call.fail(f"expected indices of a known number of positions in {len(shape)} axes")
    if shaped(call, 1)[1] not in ([], [count]):
        raise call.fail(f"expected one value, or {count} values")
    values = call.emit(relax.op.broadcast_to(values, [count]))
    return call.emit_te(te_sparse_to_dense, indices, values, default, shape)


def te_sparse_to_dense(
    indices: te.Tensor, values: te.Tensor, default: te.Tensor, shape: list[int]
) -> te.Tensor:
    """For each position, find the last index that is equal to it."""
    count = int(indices.shape[0])
    last = te.reduce_axis((0, max(count, 1)), "last")
    none = tirx.const(-1, "int64")
    if count == 0:
        return te.compute(shape, lambda *_: default(), name="sparse_to_dense")

    def row(*position: tirx.Var) -> Any:
        equal = [
            tirx.Cast("int64", indices[last, axis]).equal(tirx.Cast("int64", index))
            for axis, index in enumerate(position)
        ]
        return te.max(tirx.Select(tirx.all(*equal), tirx.Cast("int64", last), none), axis=last)

    rows = te.compute(shape, row, name="last_row")

    def element(*position: tirx.Var) -> Any:
        places = rows(*position)
        return tirx.if_then_else(places >= 0, values[tirx.max(places, 0)], default())

    return te.compute(shape, element, name="sparse_to_dense")


@converts("matrix_set_diag")
def matrix_set_diag(call: Call) -> relax.Expr:
    """Replace diagonals of matrices."""
    data, diagonal = shaped(call)[0], shaped(call, 1)[0]
    sides = {True: "RIGHT", False: "LEFT"}
    align = "_".join(
        sides[bool(call.attributes[name])]
        for name in ("super_diag_right_align", "sub_diag_right_align")
    )
    diagonals = (int(call.attributes["k1"]), int(call.attributes["k2"]))
    return call.emit_te(topi.matrix_set_diag, data, diagonal, diagonals, align)


@converts("adv_index")
def adv_index(call: Call) -> relax.Expr:
    """Index with tensors that are broadcast together."""
    data, *indices = (with_extents(call, part)[0] for part in call.operands[0])
    return call.emit(relax.op.index_tensor(data, indices))


@converts("unravel_index")
def unravel_index(call: Call) -> relax.Expr:
    """Convert flat positions to one row for each axis."""
    indices, shape = shaped(call)[0], shaped(call, 1)[0]
    rank = shaped(call, 1)[1][0]
    if not isinstance(rank, int):
        raise call.fail("expected a shape with a known number of dimensions")
    return call.emit_te(te_unravel_index, indices, shape, rank)


def te_unravel_index(indices: te.Tensor, shape: te.Tensor, rank: int) -> te.Tensor:
    """Divide by the extents after an axis, and take the remainder by its own extent."""

    def element(axis: tirx.Var, *position: tirx.Var) -> Any:
        rest = tirx.Cast("int64", indices(*position))
        result = tirx.const(0, "int64")
        for i in reversed(range(rank)):
            extent = tirx.Cast("int64", shape[i])
            result = tirx.Select(axis.equal(i), tirx.floormod(rest, extent), result)
            rest = tirx.floordiv(rest, extent)
        return tirx.Cast(indices.dtype, result)

    return te.compute((rank, *indices.shape), element, name="unravel_index")


@converts("argwhere")
def argwhere(call: Call) -> relax.Expr:
    """Return the positions of the elements that are not zero, one in each row."""
    data, extents = shaped(call)
    if not extents:
        raise call.fail("a scalar condition is not supported")
    places = call.emit(relax.op.nonzero(data))
    count = tirx.Var("nonzeros", "int64")
    places = call.builder.match_cast(places, relax.TensorType([len(extents), count], "int64"))
    return call.emit(relax.op.astype(call.emit(relax.op.permute_dims(places)), "int32"))


@converts("trilu")
def trilu(call: Call) -> relax.Expr:
    """Keep the upper or the lower triangle."""
    data, diagonal = shaped(call)[0], shaped(call, 1)[0]
    return call.emit_te(te_trilu, data, diagonal, bool(call.attributes["upper"]))


def te_trilu(data: te.Tensor, diagonal: te.Tensor, upper: bool) -> te.Tensor:
    """Compare the diagonal of an element with the given one."""

    def element(*position: tirx.Var) -> Any:
        row, column = (tirx.Cast("int64", index) for index in position[-2:])
        offset = column - row
        limit = tirx.Cast("int64", diagonal())
        kept = offset >= limit if upper else offset <= limit
        return tirx.Select(kept, data(*position), tirx.const(0, data.dtype))

    return te.compute(data.shape, element, name="trilu")


@converts("invert_permutation")
def invert_permutation(call: Call) -> relax.Expr:
    """Return the position of each number in a permutation."""
    data, extents = shaped(call)
    dtype = str(data.ty.dtype)
    if isinstance(extents[0], int):
        places = relax.const(np.arange(extents[0], dtype=dtype), dtype)
        return call.emit(relax.op.scatter_elements(data, data, places, 0, "update"))
    return call.emit(relax.op.argsort(data, axis=0, dtype=dtype))
