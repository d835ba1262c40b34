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
"""Reductions of PyTorch programs.

Trigger
    ``x.max(dim)`` with NaN; ``x.min(dim)``, ``amax``, ``amin``, ``aminmax``; a reduction, a scan, a
    softmax or a sort of a tensor of rank 0 along axis 0 or -1; a softmax with a `dtype`, not
    decomposed; a norm of order 0, or of 16-bit floats.
Mechanism
    The largest element comes from a top-k, whose comparisons ignore NaN; the others have no
    converters.  A tensor of rank 0 has an axis 0 in PyTorch, but not in Relax.  A norm is computed
    in the dtype of its operand, with the reciprocal of its order.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

from tvm import relax

from ....fixes.torch_importer import REDUCTIONS as FIX_ID
from ....support import switches
from ....tirx.util import is_one
from ...dtypes import accumulation_dtype, dtype_of
from ..call import Call, converts

# The positions of the tensor arguments of operators with more than one.
_TENSORS = {"gather.default": (0, 2)}


@converts("max.dim", "min.dim", fix=FIX_ID, noted=True)
def convert_extremum_and_index(call: Call) -> relax.Expr:
    """Convert an extremum along an axis with its index."""
    x, axis, keepdims = call.arguments(input=None, dim=None, keepdim=False)
    is_max = call.operator == "max.dim"
    op, index_op = (relax.op.max, relax.op.argmax) if is_max else (relax.op.min, relax.op.argmin)
    values = _reduced(call, op, x, axis, keepdims)
    searched = call.astype(x, "int8") if dtype_of(x) == "bool" else x
    indices = call.emit(index_op(searched, axis, keepdims))
    return relax.Tuple([values, call.astype(indices, "int64")])


@converts("amax.default", "amin.default", fix=FIX_ID, noted=True)
def convert_extremum(call: Call) -> relax.Expr:
    """Convert an extremum along axes, or of all elements."""
    x, axes, keepdims = call.arguments(input=None, dim=(), keepdim=False)
    axes = [axes] if isinstance(axes, int) else list(axes or ())
    op = relax.op.max if call.operator == "amax.default" else relax.op.min
    return _reduced(call, op, x, axes or None, keepdims)


def _reduced(call: Call, op: Callable[..., relax.Expr], x: relax.Expr, *options: Any) -> relax.Expr:
    """Emit a maximum or minimum, of any dtype including booleans."""
    dtype = dtype_of(x)
    values = call.astype(x, "int8") if dtype == "bool" else x
    return call.astype(call.emit(op(values, *options)), dtype)


@converts("softmax.int", "log_softmax.int", fix=FIX_ID)
def convert_softmax(call: Call) -> relax.Expr:
    """Convert a softmax; like PyTorch, cast its operand first."""
    x, axis, _ = call.arguments(input=None, dim=-1, dtype=None)
    op = relax.op.nn.softmax if call.operator == "softmax.int" else relax.op.nn.log_softmax
    if call.dtype != dtype_of(x):
        switches.note(FIX_ID)
    return call.emit(op(call.astype(x, call.dtype), axis))


@converts("linalg_vector_norm.default", fix=FIX_ID, noted=True)
def convert_vector_norm(call: Call) -> relax.Expr:
    """Convert a norm; like PyTorch, sum in the accumulation dtype, so that squares fit."""
    x, order, axes, keepdims, _ = call.arguments(
        input=None, ord=2, dim=None, keepdim=False, dtype=None
    )
    dtype = call.dtype
    inner = accumulation_dtype(dtype)
    emit = call.emit
    values = emit(relax.op.abs(call.astype(x, inner)))
    axes = [axes] if isinstance(axes, int) else list(axes or ()) or None
    extents = x.ty.shape.values if x.ty.shape is not None else ()
    reduced = [extents[axis] for axis in axes or range(len(extents))] if extents else []
    if order != 0 and reduced and all(map(is_one, reduced)):
        # The norm of one element is its magnitude, even if its square is 0 or infinite.
        order = 1
    if math.isinf(order):
        extremum = relax.op.max if order > 0 else relax.op.min
        return call.astype(emit(extremum(values, axes, keepdims)), dtype)
    if order == 0:
        values = call.astype(emit(relax.op.not_equal(values, relax.const(0, inner))), inner)
    elif order == 2:
        values = emit(relax.op.multiply(values, values))
    elif order != 1:
        values = emit(relax.op.power(values, relax.const(order, inner)))
    total = emit(relax.op.sum(values, axes, keepdims))
    if order == 2:
        total = emit(relax.op.sqrt(total))
    elif order not in (0, 1):
        total = emit(relax.op.power(total, relax.const(1 / order, inner)))
    return call.astype(total, dtype)


@converts("cumprod.default", "cumsum.default", place="rank 0", fix=FIX_ID)
def convert_scan(call: Call) -> relax.Expr:
    """Convert a scan of 16-bit elements, which sums in float32 and rounds once, or of a scalar."""
    x, axis = call.arguments(input=None, dim=None)
    inner = accumulation_dtype(call.dtype)
    if x.ty.ndim != 0 and inner == call.dtype:
        return call.proceed()
    switches.note(FIX_ID)
    if x.ty.ndim == 0:
        return call.astype(x, call.dtype)
    op = relax.op.cumsum if call.operator == "cumsum.default" else relax.op.cumprod
    return call.astype(call.emit(op(call.astype(x, inner), axis)), call.dtype)


@converts(
    *("amax.default", "amin.default", "any.dim", "any.dims", "argmax.default", "argmin.default"),
    *("argsort.default", "flip.default", "gather.default", "index_select.default"),
    *("linalg_vector_norm.default", "log_softmax.int", "max.dim"),
    *("mean.dim", "median.dim", "min.dim", "prod.dim_int", "softmax.int", "sort.default"),
    *("std.correction", "sum.dim_IntList", "topk.default", "var.correction"),
    *("_log_softmax.default", "_softmax.default"),
    place="rank 0",
    fix=FIX_ID,
)
def convert_along_an_axis(call: Call) -> relax.Expr:
    """Reshape tensors of rank 0 to one element; PyTorch accepts an axis for them, too."""
    operands = list(call.operands)
    for index in _TENSORS.get(call.operator, (0,)):
        ty = getattr(call.operand(index), "ty", None)
        if isinstance(ty, relax.TensorType) and ty.ndim == 0:
            operands[index] = call.emit(relax.op.reshape(operands[index], [1]))
    if all(map(operator.is_, operands, call.operands)):
        return call.proceed()
    switches.note(FIX_ID)
    result = call.with_operands(*operands).proceed()
    if not isinstance(call.recorded, tuple | list):
        return _without_axes(call, result, call.recorded.ndim)
    result = call.emit(result)
    fields = [call.emit(relax.TupleGetItem(result, i)) for i in range(len(call.recorded))]
    shaped = [_without_axes(call, f, v.ndim) for f, v in zip(fields, call.recorded, strict=True)]
    return relax.Tuple(shaped)


def _without_axes(call: Call, value: relax.Expr, rank: int) -> relax.Expr:
    if rank != 0:
        return value
    value = call.emit(value) if isinstance(value, relax.Call) else value
    return value if value.ty.ndim == 0 else call.emit(relax.op.reshape(value, []))
