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
"""Products of groups of rows with one matrix per group, as in a mixture of experts."""

from tvm import relax, tirx

from ....errors import OpNotImplemented
from ....fixes.torch_importer import DECOMPOSITIONS
from ..call import Call, converts
from ..values.operands import dtypes


@converts("_grouped_mm.default", "grouped_mm_fallback.default", fix=DECOMPOSITIONS, noted=True)
def convert_grouped_mm(call: Call) -> relax.Expr:
    """Convert a grouped product; one of the operators is of transformers."""
    x, weights, ends, bias, _ = call.arguments(
        input=None, weight=None, offs=None, bias=None, out_dtype=None
    )
    if ends is None:
        out = call.emit(relax.op.matmul(x, weights, dtypes(x)[1]))
    elif (x.ty.ndim, weights.ty.ndim) == (2, 3):
        out = _products_of_groups(call, x, weights, ends)
    else:
        raise OpNotImplemented(
            f"{call.where}: operands of rank {x.ty.ndim} and {weights.ty.ndim} "
            "with offsets; expected 2 and 3"
        )
    if bias is not None:
        out = call.emit(relax.op.add(out, call.astype(bias, dtypes(x)[1])))
    return call.astype(out, call.dtype)


def _products_of_groups(
    call: Call, x: relax.Expr, weights: relax.Expr, ends: relax.Expr
) -> relax.Expr:
    """Emit the products; group g has the rows from the end of the group before to ``ends[g]``.

    The rows after the last group are zeros.
    """
    emit, sum_dtype = call.emit, dtypes(x)[1]
    rows, common = x.ty.shape
    groups, _, columns = weights.ty.shape
    bounds = _bounds_of_groups(call, ends, rows)
    parts = []
    for group in range(int(groups)):
        part = relax.op.strided_slice(
            x, [0], [bounds[group]], [bounds[group + 1]], assume_inbound=True
        )
        # One symbol instead of a difference, so that all groups share a kernel.
        extents = (tirx.Var(f"rows_{group}", "int64"), common)
        part = call.builder.match_cast(emit(part), relax.TensorType(extents, x.ty.dtype))
        weight = emit(relax.op.strided_slice(weights, [0], [group], [group + 1]))
        weight = emit(relax.op.squeeze(weight, [0]))
        parts.append(emit(relax.op.matmul(part, weight, sum_dtype)))
    rest = relax.ShapeExpr([bounds[-1] - bounds[-2], columns])
    parts.append(emit(relax.op.zeros(rest, sum_dtype)))
    out = emit(relax.op.concat(parts, axis=0))
    return call.builder.match_cast(out, relax.TensorType((rows, columns), sum_dtype))


def _bounds_of_groups(call: Call, ends: relax.Expr, rows: tirx.Expr) -> list[tirx.Var]:
    """Emit a check that the groups are in order; return where each begins, and two ends."""
    emit = call.emit
    count = emit(relax.op.shape_to_tensor(relax.ShapeExpr([rows])))
    first, ends = relax.const([0], "int64"), call.astype(ends, "int64")
    ends = emit(relax.op.concat([ends, count]))
    bounds = emit(relax.op.concat([first, ends]))
    number = int(bounds.ty.shape[0])
    starts = emit(relax.op.strided_slice(bounds, [0], [0], [number - 1]))
    is_wrong = call.astype(emit(relax.op.less(ends, starts)), "int64")
    wrong = emit(relax.op.tensor_to_shape(emit(relax.op.sum(is_wrong, keepdims=True))))
    call.builder.match_cast(wrong, relax.ShapeType([0]))
    symbols = [tirx.Var(f"bound_{index}", "int64") for index in range(number)]
    shape = emit(relax.op.tensor_to_shape(bounds))
    call.builder.match_cast(shape, relax.ShapeType(symbols))
    return symbols
