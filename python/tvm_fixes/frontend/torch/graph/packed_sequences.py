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
"""Packed sequences: the rows of all sequences, step by step, without padding.

The sequences are sorted by length, so that those that still run at a step are the first ones.
"""

from tvm import relax, tirx

from ...extents import Extent

__all__ = ["pack", "padded"]


def padded(
    builder: relax.BlockBuilder, data: relax.Expr, sizes: relax.Expr, batch: Extent
) -> tuple[relax.Expr, relax.Expr]:
    """Emit the sequences with padding at their ends, and their lengths.

    Parameters
    ----------
    builder : relax.BlockBuilder
        The builder that the values are emitted into.
    data : relax.Expr
        The rows, of shape (rows, features).
    sizes : relax.Expr
        The number of sequences that run at each step, of shape (steps,).
    batch : int or tirx.Expr
        The number of sequences.

    Returns
    -------
    tuple of relax.Expr
        A tensor of shape (steps, batch, features), and one of shape (batch,).
    """
    emit = builder.emit
    sequences = _numbers(builder, batch)
    columns = emit(relax.op.expand_dims(sizes, 1))
    runs = emit(relax.op.astype(emit(relax.op.less(sequences, columns)), "int64"))
    lengths = emit(relax.op.sum(runs, 0))
    starts = emit(relax.op.expand_dims(_starts(builder, sizes), 1))
    # Where a sequence has ended, any row will do.
    rows = emit(relax.op.add(starts, sequences))
    x = emit(relax.op.take(data, rows, axis=0, mode="clip"))
    return x, lengths


def pack(
    builder: relax.BlockBuilder, output: relax.Expr, sizes: relax.Expr, data: relax.Expr
) -> relax.Expr:
    """Emit the rows of `output`, of shape (steps, batch, features), in the order of `data`."""
    emit = builder.emit
    steps, batch, features = output.ty.shape.values
    rows = _numbers(builder, data.ty.shape.values[0])
    ends = emit(relax.op.cumsum(sizes, 0, "int64"))
    step = emit(relax.op.bucketize(rows, ends, right=True))
    start = emit(relax.op.take(_starts(builder, sizes), step, axis=0, mode="clip"))
    sequence = emit(relax.op.subtract(rows, start))
    width = emit(relax.op.shape_to_tensor(relax.ShapeExpr([batch])))
    places = emit(relax.op.add(emit(relax.op.multiply(step, width)), sequence))
    flat = emit(relax.op.reshape(output, [steps * batch, features]))
    return emit(relax.op.take(flat, places, axis=0, mode="clip"))


def _starts(builder: relax.BlockBuilder, sizes: relax.Expr) -> relax.Expr:
    """The number of the first row of each step."""
    ends = builder.emit(relax.op.cumsum(sizes, 0, "int64"))
    return builder.emit(relax.op.subtract(ends, sizes))


def _numbers(builder: relax.BlockBuilder, count: Extent) -> relax.Expr:
    """The numbers from 0 to `count` - 1."""
    end = tirx.const(count, "int64") if isinstance(count, int) else count
    return builder.emit(relax.op.arange(0, end, 1, "int64"))
