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
"""Sizes of an exported program, and the types that PyTorch recorded for its values.

Trigger
    A program with dynamic dims that computes with sizes (``x.shape[1] // 2``, ``max``), slices,
    splits, pads or reshapes by them; an element from the end of a dynamic axis; negative padding;
    ``cat`` with an empty tensor or of several dtypes; squeezes and ``topk`` of symbolic sizes;
    ``topk`` in any order; ``nonzero``.  An input whose size is a multiple of a symbol that is not
    the size of any input.  A converter that returns a type other than PyTorch's.
Mechanism
    The importer recomputes sizes with converters for only four operators; a static size becomes an
    int32 tensor.  An input size other than a sum or product becomes a new symbol.  Nothing compares
    the type of a value with the one that ``torch.export`` recorded.
"""

import torch
from tvm import relax, tirx

from ....fixes.torch_importer import DYNAMIC_SHAPES
from ....support import switches
from ...dtypes import dtype_of
from ...extents import static_extent
from ..call import Call, converts
from ..values.operands import value_of


def _is_empty_list(value: torch.Tensor) -> bool:
    """Whether a tensor has rank 1 and the static extent 0."""
    return value.ndim == 1 and isinstance(value.shape[0], int) and value.shape[0] == 0


@converts("var.correction", place="sizes", fix=DYNAMIC_SHAPES)
def convert_variance(call: Call) -> relax.Expr:
    """Convert a variance along axes of symbolic extents."""
    x, axes, correction, keepdims = call.arguments(
        input=None, dim=None, correction=None, keepdim=False
    )
    axes = list(range(x.ty.ndim)) if not axes else [axis % x.ty.ndim for axis in axes]
    extents = [x.ty.shape[axis] for axis in axes]
    if correction == 0 or None not in map(static_extent, extents):
        return call.proceed()
    switches.note(DYNAMIC_SHAPES)
    count = tirx.const(1, "int64")
    for extent in extents:
        count = count * extent
    emit, dtype = call.emit, dtype_of(x)
    number = call.context.scalar_tensor(count, dtype)
    # PyTorch limits the divisor, count - correction, to 0 and above.
    lost = relax.const(1 if correction is None else correction, dtype)
    divisor = emit(relax.op.maximum(emit(relax.op.subtract(number, lost)), relax.const(0, dtype)))
    variance = emit(relax.op.variance(x, axes, keepdims=keepdims))
    return emit(relax.op.multiply(variance, emit(relax.op.divide(number, divisor))))


@converts("cat.default", place="sizes", fix=DYNAMIC_SHAPES)
def convert_cat(call: Call) -> relax.Expr:
    """Convert a concatenation, with empty tensors or several dtypes."""
    tensors, axis = call.arguments(tensors=None, dim=0)
    rank = call.recorded.ndim
    values = map(value_of, call.node.args[0])
    # PyTorch ignores empty tensors of rank 1, whatever the rank of the others is.
    pairs = zip(tensors, values, strict=True)
    kept = [x for x, value in pairs if rank == 1 or not _is_empty_list(value)]
    dtype = call.dtype
    if len(kept) == len(tensors) and all(dtype_of(x) == dtype for x in kept):
        return call.proceed()
    switches.note(DYNAMIC_SHAPES)
    tensors = [call.astype(x, dtype) for x in kept]
    if len(tensors) == 1:
        return tensors[0]
    return call.emit(relax.op.concat(tensors, axis))


@converts("reshape.default", "view.default", place="sizes", fix=DYNAMIC_SHAPES)
def convert_reshape(call: Call) -> relax.Expr:
    """Convert a reshape to symbolic extents."""
    x, sizes = call.arguments(input=None, size=None)
    extents = list(x.ty.shape) if isinstance(x.ty.shape, relax.ShapeExpr) else []
    if all(static_extent(size) is not None for size in [*extents, *sizes]):
        return call.proceed()
    # TVM uses ==, which returns an expression instead of a bool for a sum or a product.
    switches.note(DYNAMIC_SHAPES)
    if len(extents) == len(sizes) and all(map(call.symbols.equal, extents, sizes)):
        return x
    return call.context.importer._emit_torch_reshape(x, sizes)


@converts("squeeze.default", "squeeze.dim", "squeeze.dims", place="sizes", fix=DYNAMIC_SHAPES)
def convert_squeeze(call: Call) -> relax.Expr:
    """Convert a squeeze of a shape with symbols."""
    x, axes = call.arguments(input=None, dim=None)
    extents = [static_extent(extent) for extent in x.ty.shape]
    if None not in extents:
        return call.proceed()
    switches.note(DYNAMIC_SHAPES)
    axes = range(len(extents)) if axes is None else axes
    axes = [axes] if isinstance(axes, int) else axes
    # An extent that PyTorch exports as symbolic is not 1.
    ones = [axis for axis in axes if extents[axis] == 1]
    return call.emit(relax.op.squeeze(x, ones)) if ones else x
