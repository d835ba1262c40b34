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
"""PyTorch's scatters; see :mod:`.indexing`."""

from typing import Any

from tvm import relax, tirx
from tvm.sym import Analyzer

from ....errors import OpAttributeInvalid
from ....fixes.torch_importer import INDEXING
from ....relax.legalize.indices import from_start
from ...dtypes import dtype_of
from ..call import Call, converts

_REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amin": "min",
    "amax": "max",
}
"""The reductions of ``scatter_elements``, by PyTorch's names."""


@converts("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", fix=INDEXING)
def convert_scatter(call: Call) -> relax.Expr:
    """Convert a scatter of a tensor or a number, which may combine with what is there."""
    names = {"input": None, "dim": None, "index": None, "src": None, "reduce": None}
    x, axis, index, source, reduction = call.arguments(**names)
    if source is None:
        source = call.attributes["value"]
    return _scattered(call, x, axis, index, source, _REDUCTIONS.get(reduction, "update"))


@converts("scatter_add.default", fix=INDEXING)
def convert_scatter_add(call: Call) -> relax.Expr:
    """Convert a scatter whose elements are added."""
    x, axis, index, source = call.arguments(input=None, dim=None, index=None, src=None)
    return _scattered(call, x, axis, index, source, "add")


def _scattered(
    call: Call, x: relax.Expr, axis: int, index: relax.Expr, source: Any, reduction: str
) -> relax.Expr:
    emit, shape = call.emit, list(index.ty.shape.values)
    if not isinstance(source, relax.Expr) or not isinstance(source.ty, relax.TensorType):
        source = relax.const(source, dtype_of(x))
    if source.ty.ndim == 0 and shape:
        source = emit(relax.op.broadcast_to(source, shape))
    source = _cropped(call, call.astype(source, dtype_of(x)), shape)
    index = emit(from_start(index))
    if not x.ty.ndim:
        x, index, source = (emit(relax.op.reshape(e, (1,))) for e in (x, index, source))
        updated = emit(relax.op.scatter_elements(x, index, source, 0, reduction))
        return emit(relax.op.reshape(updated, ()))
    return emit(relax.op.scatter_elements(x, index, source, axis, reduction))


def _cropped(call: Call, source: relax.Expr, shape: list[tirx.Expr]) -> relax.Expr:
    """Slice the first elements of a source along each axis, to the `shape` of the indices."""
    extents = list(source.ty.shape.values)
    longer = [
        axis
        for axis, (extent, target) in enumerate(zip(extents, shape, strict=True))
        if not Analyzer().can_prove_equal(extent, target)
    ]
    if not longer:
        return source
    begin, end = [0] * len(longer), [shape[axis] for axis in longer]
    cropped = relax.op.strided_slice(source, longer, begin, end, assume_inbound=True)
    return call.emit(cropped)


@converts("scatter_reduce.two", fix=INDEXING)
def convert_scatter_reduce(call: Call) -> relax.Expr:
    """Convert a scatter with a reduction; a mean is a sum and a count."""
    x, axis, index, source, reduction, include_self = call.arguments(
        input=None, dim=None, index=None, src=None, reduce=None, include_self=True
    )
    emit, dtype = call.emit, dtype_of(x)
    if reduction not in (*_REDUCTIONS, "mean"):
        raise OpAttributeInvalid(
            f"{call.where}: attribute reduce is {reduction!r}; "
            f"expected one of {', '.join((*_REDUCTIONS, 'mean'))}"
        )
    kind = _REDUCTIONS.get(reduction, "add")
    start = x
    if not include_self:
        start = _scattered(call, x, axis, index, _identity(kind, dtype), "update")
    result = _scattered(call, start, axis, index, source, kind)
    if reduction != "mean":
        return result
    first = relax.const(1 if include_self else 0, dtype)
    count = emit(relax.op.broadcast_to(first, list(x.ty.shape.values)))
    count = _scattered(call, count, axis, index, 1, "add")
    count = emit(relax.op.maximum(count, relax.const(1, dtype)))
    divide = relax.op.divide if "float" in dtype else relax.op.floor_divide
    return emit(divide(result, count))


def _identity(reduction: str, dtype: str) -> float:
    """Return the identity element of a reduction; booleans are added by or."""
    if reduction in ("add", "mul"):
        return int(reduction == "mul")
    if dtype == "bool":
        return int(reduction == "min")
    if "float" in dtype:
        return float("-inf" if reduction == "max" else "inf")
    limit = tirx.min_value if reduction == "max" else tirx.max_value
    return int(limit(dtype))
