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
"""Operators that select elements by value: nonzero, masks and topk.

The docstring of ``shapes`` describes the faults of TVM's converters.
"""

import torch
from tvm import relax

from ....errors import OpNotImplemented
from ....fixes.torch_importer import DYNAMIC_SHAPES
from ....support import switches
from ...dtypes import dtype_of
from ..call import Call, converts
from ..values.operands import value_of
from .slices import slice_of

__all__ = ["nonzero_of"]


@converts("nonzero.default", fix=DYNAMIC_SHAPES, noted=True)
def convert_nonzero(call: Call) -> relax.Expr:
    """Convert the indices of the nonzero elements."""
    return nonzero_of(call, call.operands[0], call.recorded.shape[0])


@converts("masked_select.default", place="sizes", fix=DYNAMIC_SHAPES, noted=True)
def convert_masked_select(call: Call) -> relax.Expr:
    """Convert the elements that a mask selects."""
    sizes = torch.broadcast_shapes(*(value_of(argument).shape for argument in call.node.args))
    shape = relax.ShapeExpr(call.symbols.shape(sizes))
    if not sizes:
        shape = relax.ShapeExpr([1])
    emit = call.emit
    x, mask = (emit(relax.op.broadcast_to(value, shape)) for value in call.operands)
    return emit(relax.op.gather_nd(x, nonzero_of(call, mask, call.recorded.shape[0])))


def nonzero_of(call: Call, x: relax.Expr, count: torch.SymInt) -> relax.Expr:
    """Emit the indices of the `count` nonzero elements, one row per element."""
    if x.ty.ndim == 0:
        rows = nonzero_of(call, call.emit(relax.op.reshape(x, (1,))), count)
        return slice_of(call, rows, 1, 0, 0)
    shape = [x.ty.ndim, call.symbols.convert(count)]
    columns = call.builder.match_cast(
        call.emit(relax.op.nonzero(x)), relax.TensorType(shape, "int64")
    )
    return call.emit(relax.op.permute_dims(columns))


@converts("index.Tensor", place="sizes", fix=DYNAMIC_SHAPES)
def convert_index_by_mask(call: Call) -> relax.Expr:
    """Convert an index by one mask."""
    x, indices = call.operands
    masks = [i for i in indices if i is not None and dtype_of(i) == "bool"]
    if not masks:
        return call.proceed()
    if len(masks) < len(indices) or len(masks) > 1:
        raise OpNotImplemented(
            f"{call.where}: the dtypes of the indices are "
            f"{[None if i is None else dtype_of(i) for i in indices]}; "
            "expected integers, or only one tensor of booleans"
        )
    switches.note(DYNAMIC_SHAPES)
    positions = nonzero_of(call, masks[0], call.recorded.shape[0])
    return call.emit(relax.op.gather_nd(x, positions))


@converts("topk.default", place="sizes", fix=DYNAMIC_SHAPES)
def convert_topk(call: Call) -> relax.Expr:
    """Convert a top-k of a symbolic number of elements, or in any order."""
    x, k, axis, largest, is_sorted = call.arguments(
        input=None, k=None, dim=-1, largest=True, sorted=True
    )
    if isinstance(k, int) and is_sorted:
        return call.proceed()
    switches.note(DYNAMIC_SHAPES)
    emit = call.emit
    if isinstance(k, int):
        # Any order is correct.
        return emit(relax.op.topk(x, k, axis, "both", largest, "int64"))
    every = emit(relax.op.topk(x, -1, axis, "both", largest, "int64"))
    parts = [emit(relax.TupleGetItem(every, index)) for index in range(2)]
    axis %= x.ty.ndim
    return emit(relax.Tuple([slice_of(call, part, axis, 0, k) for part in parts]))
