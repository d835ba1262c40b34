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
"""Selection of elements by indices, and tensors made of indices."""

import numpy as np
from tvm import relax

from ..call import Call, Value, converts, is_quantized, is_small_integer
from .shape import shape_of


@converts("GATHER")
def gather(call: Call) -> Value:
    """Parts of the tensor along an axis, by indices; leading axes may be batches."""
    call.require_same_quantization()
    rank, index_rank = call.rank(0), call.rank(1)
    axis = call.axis(call.option_or("axis", 0), rank)
    batches = call.option_or("batch_dims", 0)
    batches = batches + index_rank if batches < 0 else batches
    if not 0 <= batches <= min(axis, index_rank):
        raise call.fail(f"batch_dims is {batches}, with axis {axis}")
    value, places = call.known(0), call.known(1)
    if is_small_integer(value) and places is not None and places.dtype != object and not batches:
        _check_range(call, places, value.shape[axis])
        return np.take(value, places, axis)
    if not batches:
        return relax.op.take(call.operand(0), call.operand(1), axis)
    # The axis stands behind the batches, and its place is restored afterwards.
    order = [*range(batches), axis, *(other for other in range(batches, rank) if other != axis)]
    data = call.emit(relax.op.permute_dims(call.operand(0), order))
    indices = call.emit(relax.op.expand_dims(_wide(call, 1), index_rank))
    gathered = call.emit(relax.op.gather_nd(data, indices, batches))
    outer = axis - batches
    added = index_rank - batches
    restored = [
        *range(batches),
        *range(batches + added, batches + added + outer),
        *range(batches, batches + added),
        *range(batches + added + outer, rank - 1 + added),
    ]
    return relax.op.permute_dims(gathered, restored)


def _wide(call: Call, index: int) -> relax.Expr:
    """Indices as int64."""
    value = call.operand(index)
    is_wide = call.input(index).dtype == "int64"
    return value if is_wide else call.emit(relax.op.astype(value, "int64"))


def _check_range(call: Call, indices: np.ndarray, extent: int) -> None:
    if indices.size and not (0 <= indices.min() and indices.max() < extent):
        raise call.fail(f"indices {indices.min()} to {indices.max()}, of an axis of {extent}")


@converts("EMBEDDING_LOOKUP")
def embedding_lookup(call: Call) -> relax.Expr:
    """Rows of a table, by indices."""
    table = call.input(1)
    rows = call.emit(relax.op.take(call.operand(1), call.operand(0), 0))
    if is_quantized(table) and not is_quantized(call.outputs[0]):
        return call.dequantized(rows, call.quantization(table), table.dtype)
    call.require_same_quantization(table, call.outputs[0])
    return rows


@converts("GATHER_ND")
def gather_nd(call: Call) -> relax.Expr:
    """Elements or parts of the tensor, by vectors of indices."""
    call.require_same_quantization()
    return relax.op.gather_nd(call.operand(0), _wide(call, 1), 0)


@converts("SCATTER_ND")
def scatter_nd(call: Call) -> relax.Expr:
    """Zeros, to which parts are added at vectors of indices."""
    call.reject_quantized(call.outputs[0])
    target = call.extents(2, "the shape")
    zeros = call.emit(relax.op.zeros(shape_of(target), call.outputs[0].dtype))
    return relax.op.scatter_nd(zeros, call.operand(0), call.operand(1), "add")


@converts("ONE_HOT")
def one_hot(call: Call) -> relax.Expr:
    """One value at the indices along a new axis, and another one elsewhere."""
    call.reject_quantized(call.outputs[0])
    [depth] = call.ints(1, "the depth")
    depth, rank = call.limited(depth, "the depth"), call.rank(0)
    axis = call.option_or("axis", -1)
    axis = call.axis(axis, rank + 1)
    indices = call.emit(relax.op.expand_dims(call.operand(0), axis))
    shape = [1] * (rank + 1)
    shape[axis] = depth
    places = relax.const(np.arange(depth, dtype=call.input(0).dtype).reshape(shape))
    is_there = call.emit(relax.op.equal(indices, places))
    on, off = (call.emit(relax.op.reshape(call.operand(index), [])) for index in (2, 3))
    return relax.op.where(is_there, on, off)


@converts("MATRIX_DIAG")
def matrix_diag(call: Call) -> relax.Expr:
    """Matrices with the last axis on their diagonals, and zeros."""
    call.reject_quantized(call.outputs[0])
    extent = call.shape(0)[-1]
    if not isinstance(extent, int):
        raise call.fail("the last extent must be static")
    call.limited(extent * extent, "the size of a matrix")
    diagonal = relax.const(np.eye(extent, dtype="bool"))
    rows = call.emit(relax.op.expand_dims(call.operand(0), call.rank(0)))
    zero = relax.const(0, call.outputs[0].dtype)
    return relax.op.where(diagonal, rows, zero)
