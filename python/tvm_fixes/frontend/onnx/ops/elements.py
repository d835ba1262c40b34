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
"""BitCast, Det, TensorScatter and AffineGrid with a computed size."""

from typing import Any

import tvm_ffi
from onnx import helper
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as T

from ....fixes.onnx_importer import OPERATORS
from ....support import switches
from ....tirx.loop_kernels import computed, local, when
from ...dtypes import accumulation_dtype, dtype_of
from ...extents import equal, expression, product
from ..call import Call, converts
from .shape_operands import (
    axes_of,
    extents_or_symbols,
    require,
    require_all,
    shaped,
    to_shape_tensor,
)


@converts("BitCast", fix=OPERATORS)
def convert_bit_cast(call: Call) -> relax.Expr:
    """Convert a BitCast; a bool is a byte that is 0 or 1.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the dtypes differ in width, or have fewer than 8 bits.
    """
    switches.note(OPERATORS)
    data = call.operands[0]
    source, target = call.dtype(0), str(helper.tensor_dtype_to_np_dtype(call.attributes["to"]))
    widths = [8 if d == "bool" else tvm_ffi.dtype(d).bits for d in (source, target)]
    if widths[0] != widths[1] or widths[0] < 8:
        reason = f"expected a dtype of {widths[0]} bits, and 8 or more, like {source}"
        raise call.invalid("attribute to", target, reason)
    if source == target:
        return data
    if source == "bool":
        data, source = call.emit(op.astype(data, "uint8")), "uint8"
    if target == "bool":
        zero = relax.const(0, "uint8")
        bits = data if source == "uint8" else call.emit(_reinterpreted(call, data, "uint8"))
        return op.not_equal(bits, zero)
    return data if source == target else _reinterpreted(call, data, target)


def _reinterpreted(call: Call, data: relax.Expr, dtype: str) -> relax.Expr:
    def reinterpreted(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *at: tirx.reinterpret(dtype, data(*at)))

    return call.builder.emit_te(reinterpreted, data)


@converts("Det", fix=OPERATORS)
def convert_det(call: Call) -> relax.Expr:
    """Convert a Det: Gaussian elimination with partial pivoting, in float64.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the last two extents are not equal.
    """
    switches.note(OPERATORS)
    data, extents = shaped(call, 0, "X")
    if len(extents) < 2:
        raise call.invalid("shape of X", extents, "expected rank 2 or more")
    size = extents[-1]
    is_square = equal(call.known, extents[-2], size)
    require(call, is_square, "shape of X", extents, "expected square matrices")
    batch = extents[:-2]
    matrices = [product(call.known, batch), size, size]
    wide = call.emit(op.reshape(data, relax.ShapeExpr(matrices)))
    if dtype_of(data) != "float64":
        wide = call.emit(op.astype(wide, "float64"))

    def determinants(x: te.Tensor) -> Any:
        results = [((x.shape[0],), "float64"), (x.shape, "float64")]
        return computed("determinants", [x], results, _eliminate)

    pair = call.builder.emit_te(determinants, wide)
    result = call.emit(relax.TupleGetItem(pair, 0))
    result = call.emit(op.reshape(result, relax.ShapeExpr(batch)))
    return result if dtype_of(data) == "float64" else op.astype(result, dtype_of(data))


def _eliminate(x: Any, result: Any, work: Any) -> None:
    """Emit the elimination of each matrix, and the product of its pivots."""
    count, size = x.shape[0], x.shape[1]
    with T.serial(0, count) as m:
        with T.serial(0, size) as i, T.serial(0, size) as j:
            work[m, i, j] = x[m, i, j]
        det = local("float64", 1.0)
        with T.serial(0, size) as k:
            pivot = local("int64", k)
            with T.serial(0, size) as i:
                is_larger = tirx.abs(work[m, i, k]) > tirx.abs(work[m, pivot[0], k])
                with when(i > k, is_larger):
                    pivot[0] = i.astype("int64")
            with when(pivot[0] != k):
                det[0] = tirx.const(0, "float64") - det[0]
                with T.serial(0, size) as j:
                    kept = local("float64", work[m, k, j])
                    work[m, k, j] = work[m, pivot[0], j]
                    work[m, pivot[0], j] = kept[0]
            det[0] = det[0] * work[m, k, k]
            with T.serial(0, size) as i:
                # All elements below a pivot of 0 are 0 too.
                with when(i > k, work[m, k, k] != tirx.const(0, "float64")):
                    factor = local("float64", work[m, i, k] / work[m, k, k])
                    with T.serial(0, size) as j:
                        with when(j > k):
                            work[m, i, j] = work[m, i, j] - factor[0] * work[m, k, j]
        result[m] = det[0]


@converts("TensorScatter", fix=OPERATORS)
def convert_tensor_scatter(call: Call) -> relax.Expr:
    """Convert a TensorScatter.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the mode is unknown, the axis is 0 or out of range, or the shapes do not agree.  The
        model checks at run time that the update fits.
    """
    switches.note(OPERATORS)
    cache, extents = shaped(call, 0, "past_cache")
    update, counts = shaped(call, 1, "update")
    mode = call.text("mode", "linear")
    if mode not in ("linear", "circular"):
        raise call.invalid("attribute mode", mode, "expected linear or circular")
    (axis,) = axes_of(call, [call.attributes.get("axis", -2)], len(extents))
    if axis == 0 or len(counts) != len(extents):
        shapes = (axis, counts, extents)
        raise call.invalid("axis and shapes", shapes, "expected equal ranks and an axis above 0")
    for other, pair in enumerate(zip(counts, extents, strict=True)):
        reason = f"expected {extents}, or less on axis {axis}"
        fits = pair[0] <= pair[1] if other == axis else equal(call.known, *pair)
        require(call, fits, "shape of update", counts, reason)
    starts = call.operand(2)
    if starts is None:
        starts = call.emit(op.zeros(relax.ShapeExpr([extents[0]]), "int64"))
    else:
        starts, batch = shaped(call, 2, "write_indices")
        same = equal(call.known, batch[0], extents[0]) if len(batch) == 1 else False
        require(call, same, "shape of write_indices", batch, f"expected {extents[:1]}")
        limit = extents[axis] - (counts[axis] if mode == "linear" else 1)
        is_nonnegative = call.emit(op.greater_equal(starts, relax.const(0, "int64")))
        fits = op.less_equal(starts, to_shape_tensor(call, [limit]))
        require_all(call, fits if mode == "linear" else is_nonnegative)
        if mode == "linear":
            require_all(call, is_nonnegative)

    extent = extents[axis]

    def places(starts: te.Tensor) -> te.Tensor:
        def place(*at: tirx.Var) -> tirx.Expr:
            position = starts(at[0]).astype("int64") + at[axis]
            return tirx.floormod(position, extent) if mode == "circular" else position

        return te.compute(counts, place, name="places")

    indices = call.builder.emit_te(places, starts)
    return call.emit(op.scatter_elements(cache, indices, update, axis))


@converts("AffineGrid", fix=OPERATORS)
def convert_affine_grid(call: Call) -> relax.Expr:
    """Convert an AffineGrid; TVM's converter needs a constant size.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If theta or size does not have a shape for two or three dimensions, or the batches differ.
    """
    if call.constant(1) is not None:
        return call.proceed()
    switches.note(OPERATORS)
    theta, extents = shaped(call, 0, "theta")
    size = extents_or_symbols(call, 1, "size")
    rank = len(size) - 2
    if rank not in (2, 3) or len(extents) != 3 or list(extents[1:]) != [rank, rank + 1]:
        reason = "expected (N, 2, 3) and 4 sizes, or (N, 3, 4) and 5"
        raise call.invalid("shape of theta", (extents, len(size)), reason)
    same = equal(call.known, size[0], extents[0])
    require(call, same, "operand size", size, f"expected {extents[0]}, the batch of theta, first")
    aligns_corners = bool(call.attributes.get("align_corners", 0))
    dtype = dtype_of(theta)
    wide = accumulation_dtype(dtype)

    def coordinate(i: tirx.Var, extent: tirx.Expr) -> tirx.Expr:
        steps, one = i.astype(wide), tirx.const(1, wide)
        if aligns_corners:
            return steps * 2 / tirx.max(extent - 1, 1).astype(wide) - one
        return (steps * 2 + one) / extent.astype(wide) - one

    def grid(theta: te.Tensor, *size: tirx.Expr) -> te.Tensor:
        def element(n: tirx.Var, *at: tirx.Var) -> tirx.Expr:
            # The coordinates are x, y, z: the last axis comes first.
            total = theta(n, at[-1], rank)
            for axis in range(rank):
                place = coordinate(at[rank - 1 - axis], size[rank - 1 - axis])
                total = total + theta(n, at[-1], axis) * place
            return total

        return te.compute((theta.shape[0], *size, rank), element)

    if wide != dtype:
        theta = call.emit(op.astype(theta, wide))
    result = call.builder.emit_te(grid, theta, *map(expression, size[2:]))
    return result if wide == dtype else op.astype(call.emit(result), dtype)
