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
"""Converters of sorting and searching, sparse tensors and Fourier transforms."""

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ....extents import NO_FACTS, product
from ...call import Call, converts
from ...values.extents import positive_axis, reshaped, shaped
from ...values.values import from_relax


@converts("sort")
def sort(call: Call) -> relax.Expr:
    """Sort along an axis."""
    data, extents = shaped(call)
    axis = positive_axis(call.attributes["axis"], len(extents))
    return call.emit(relax.op.sort(data, axis, descending=not call.attributes["is_ascend"]))


@converts("argsort")
def argsort(call: Call) -> relax.Expr:
    """Return the positions of the sorted elements."""
    data, extents = shaped(call)
    axis = positive_axis(call.attributes["axis"], len(extents))
    dtype = str(call.type.dtype)
    return call.emit(relax.op.argsort(data, axis, not call.attributes["is_ascend"], dtype))


@converts("topk")
def topk(call: Call) -> Any:
    """Return the largest or smallest elements of an axis, their positions, or both."""
    return largest(call, int(call.attributes["k"]))


def largest(call: Call, k: int) -> Any:
    """Return the k largest or smallest elements of an axis; all if k is below 1."""
    data, extents = shaped(call)
    axis = positive_axis(call.attributes["axis"], len(extents))
    if k < 1:
        if not isinstance(extents[axis], int):
            raise call.fail("all elements of an axis whose extent is not known")
        k = int(extents[axis])
    dtype = str(call.attributes["dtype"] or "int32")
    kind = str(call.attributes["ret_type"])
    results = call.emit(relax.op.topk(data, k, axis, kind, not call.attributes["is_ascend"], dtype))
    return from_relax(call.builder, results, call.type) if kind == "both" else results


@converts("searchsorted")
def searchsorted(call: Call) -> relax.Expr:
    """Return the positions at which to insert values into sorted sequences."""
    sequence, values = shaped(call)[0], shaped(call, 1)[0]
    dtype = str(call.type.dtype)
    return call.emit_te(topi.searchsorted, sequence, values, bool(call.attributes["right"]), dtype)


@converts("unique")
def unique(call: Call) -> tuple[relax.Expr, ...]:
    """Return the distinct elements, padded to the length of the input, and their positions.

    The results are the elements, their first positions, the index of the element for each input,
    the number of elements, and their counts.
    """
    data, [length] = shaped(call)
    if length == 0:
        raise call.fail("a tensor without elements")
    emit, op = call.emit, relax.op
    order = emit(op.argsort(data, 0, dtype="int32"))
    ordered = emit(op.take(data, order, 0, mode="clip"))
    groups = emit(op.cumsum(call.emit_te(te_starts_group, ordered), 0, "int32"))
    last = emit(op.strided_slice(groups, [0], [-1], [2**63 - 1]))

    def filled(value: Any, dtype: str) -> relax.Expr:
        return call.emit_te(lambda: te.compute((length,), lambda _: te_cast(value, dtype)))

    def write(initial: relax.Expr, updates: relax.Expr, reduction: str) -> relax.Expr:
        return emit(op.scatter_elements(initial, groups, updates, 0, reduction))

    values = write(filled(0, str(data.ty.dtype)), ordered, "update")
    first = write(filled(length, "int32"), order, "min")
    counts = write(filled(0, "int32"), filled(1, "int32"), "add")
    inverse = emit(op.scatter_elements(filled(0, "int32"), order, groups, 0, "update"))
    if not call.attributes["sorted"]:
        by_position = emit(op.argsort(first, 0, dtype="int32"))
        values, first, counts = (
            emit(op.take(part, by_position, 0, mode="clip")) for part in (values, first, counts)
        )
        place = emit(op.argsort(by_position, 0, dtype="int32"))
        inverse = emit(op.take(place, inverse, 0, mode="clip"))
    number_of = emit(op.add(last, relax.const(1, "int32")))
    results = (values, first, inverse, number_of, counts)
    return results if call.attributes["return_counts"] else results[:4]


def te_starts_group(ordered: te.Tensor) -> te.Tensor:
    """1 where an element differs from the one before it."""

    def element(i: Any) -> Any:
        differs = ordered[i] != ordered[tirx.max(i - 1, 0)]
        return tirx.Cast("int32", tirx.all(i > 0, differs))

    return te.compute(ordered.shape, element, name="starts_group")


def te_cast(value: Any, dtype: str) -> Any:
    """Return a number or extent in a dtype."""
    return tirx.const(value, dtype) if isinstance(value, int) else tirx.Cast(dtype, value)


@converts("sparse_reshape")
def sparse_reshape(call: Call) -> tuple[relax.Expr, ...]:
    """Reshape a sparse tensor: new positions of the elements, and the new shape."""
    (indices, _), (shape, [rank]), (new_shape, [new_rank]) = (shaped(call, i) for i in range(3))
    if not (isinstance(rank, int) and isinstance(new_rank, int) and new_rank > 0):
        raise call.fail("expected shapes with a known number of dimensions")
    target = call.emit_te(te_inferred_shape, shape, new_shape)
    results = call.emit_te(te_sparse_reshape, indices, shape, target)
    return (results, target)


def te_inferred_shape(shape: te.Tensor, new_shape: te.Tensor) -> te.Tensor:
    """Replace -1 by the extent that keeps the number of elements."""
    old = product_of([shape[i] for i in range(int(shape.shape[0]))])
    new = product_of(
        [te.if_then_else(new_shape[i] < 0, 1, new_shape[i]) for i in range(int(new_shape.shape[0]))]
    )

    def element(axis: Any) -> Any:
        rest = te.floordiv(old.astype("int64"), new.astype("int64")).astype(new_shape.dtype)
        return te.if_then_else(new_shape[axis] < 0, rest, new_shape[axis])

    return te.compute(new_shape.shape, element, name="inferred_shape")


def product_of(values: list[Any]) -> Any:
    """Multiply values as int64."""
    result = values[0].astype("int64")
    for value in values[1:]:
        result = result * value.astype("int64")
    return result


def te_sparse_reshape(indices: te.Tensor, shape: te.Tensor, target: te.Tensor) -> te.Tensor:
    """Flatten each position and unravel it in the new shape."""
    rank, new_rank = int(shape.shape[0]), int(target.shape[0])

    def element(row: Any, axis: Any) -> Any:
        flat = indices[row, 0].astype("int64")
        for i in range(1, rank):
            flat = flat * shape[i].astype("int64") + indices[row, i].astype("int64")
        result = flat
        for i in reversed(range(new_rank)):
            extent = target[i].astype("int64")
            result = te.if_then_else(axis == i, te.floormod(flat, extent), result)
            flat = te.floordiv(flat, extent)
        return result.astype(indices.dtype)

    return te.compute((indices.shape[0], new_rank), element, name="sparse_reshape")


@converts("dft")
def dft(call: Call) -> tuple[relax.Expr, ...]:
    """Transform the last axis."""
    real, extents = shaped(call)
    imaginary, _ = shaped(call, 1)
    length = extents[-1]
    dtype = str(real.ty.dtype)
    if not isinstance(length, int) or not dtype.startswith("float"):
        raise call.fail("expected floats and a last axis whose extent is known")
    inverse = bool(call.attributes["inverse"])
    cosine, sine = transform_matrices(length, length, dtype, 1 if inverse else -1)
    scale = length if inverse else 1
    rows = [product(NO_FACTS, extents[:-1]), length]
    parts = [reshaped(call, part, rows) for part in (real, imaginary)]
    waves = [relax.const(wave / scale, dtype) for wave in (cosine, sine)]
    [rc, rs], [ic, isin] = (
        [call.emit(relax.op.matmul(part, wave)) for wave in waves] for part in parts
    )
    results = (relax.op.subtract(rc, isin), relax.op.add(rs, ic))
    return tuple(reshaped(call, call.emit(result), extents) for result in results)


def transform_matrices(
    length: int, count: int, dtype: str, sign: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return cosine and sine of the angles 2 pi n k / length, with n < length and k < count."""
    turns = np.outer(np.arange(length), np.arange(count)) % max(length, 1)
    angles = sign * 2 * math.pi * turns / max(length, 1)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


@converts("stft")
def stft(call: Call) -> relax.Expr:
    """Transform overlapping frames: (batch, frequencies, frames, real and imaginary part)."""
    data, extents = shaped(call)
    window, _ = shaped(call, 1)
    dtype = str(data.ty.dtype)
    if not isinstance(extents[-1], int) or not dtype.startswith("float"):
        raise call.fail("expected floats and a number of samples that is known")
    n_fft, hop, length = (int(call.attributes[n]) for n in ("n_fft", "hop_length", "win_length"))
    frequencies = n_fft // 2 + 1 if call.attributes["onesided"] else n_fft
    # As in TVM, the period of the slowest wave is the window's length, not n_fft.
    cosine, sine = transform_matrices(length, frequencies, dtype, -1)
    scale = math.sqrt(n_fft) if call.attributes["normalized"] else 1
    waves = relax.const(np.stack([cosine, sine], -1).astype("float64") / scale, dtype)
    if len(extents) == 1:
        data = reshaped(call, data, [1, *extents])
    frames = (int(extents[-1]) - n_fft) // hop + 1
    result = call.emit_te(te_stft, data, window, waves, frames, hop)
    return reshaped(call, result, [*extents[:-1], frequencies, frames, 2])


def te_stft(
    data: te.Tensor, window: te.Tensor, waves: te.Tensor, frames: int, hop: int
) -> te.Tensor:
    """Multiply each windowed frame by the waves."""
    samples, frequencies, _ = waves.shape
    n = te.reduce_axis((0, samples), "sample")

    def element(batch: Any, frequency: Any, frame: Any, part: Any) -> Any:
        weight = window[n].astype(data.dtype)
        return te.sum(data[batch, frame * hop + n] * weight * waves[n, frequency, part], axis=n)

    return te.compute((data.shape[0], frequencies, frames, 2), element, name="stft")
