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

from torch import fx
from tvm import relax, tirx
from tvm.sym import Analyzer

from ...errors import OpAttributeInvalid
from ..dtypes import dtype_of
from .corrections import Converters, Corrections

__all__ = ["Scattering"]

_REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amin": "min",
    "amax": "max",
}
"""The reductions of ``scatter_elements``, by PyTorch's names."""


class Scattering(Corrections):
    """The converters of scatters."""

    def scattering_calls(self) -> Converters:
        """Return converters of ATen's operators, by the name of the overload."""
        return {
            "scatter.src": self._scatter_call,
            "scatter.value": self._scatter_call,
            "scatter.reduce": self._scatter_call,
            "scatter.value_reduce": self._scatter_call,
            "scatter_add.default": self._scatter_add_call,
            "scatter_reduce.two": self._scatter_reduce_call,
        }

    def _scatter_call(self, node: fx.Node) -> relax.Expr:
        names = {"input": None, "dim": None, "index": None, "src": None, "reduce": None}
        x, axis, index, source, reduction = self._arguments(node, **names)
        if source is None:
            source = self._retrieve_args(node.kwargs["value"])
        return self._scattered(x, axis, index, source, _REDUCTIONS.get(reduction, "update"))

    def _scatter_add_call(self, node: fx.Node) -> relax.Expr:
        x, axis, index, source = self._arguments(node, input=None, dim=None, index=None, src=None)
        return self._scattered(x, axis, index, source, "add")

    def _scattered(
        self, x: relax.Expr, axis: int, index: relax.Expr, source: Any, reduction: str
    ) -> relax.Expr:
        emit, shape = self.block_builder.emit, list(index.ty.shape.values)
        if not isinstance(source, relax.Expr) or not isinstance(source.ty, relax.TensorType):
            source = relax.const(source, dtype_of(x))
        if source.ty.ndim == 0 and shape:
            source = emit(relax.op.broadcast_to(source, shape))
        source = self._cropped(self._astype(source, dtype_of(x)), shape)
        if not x.ty.ndim:
            x, index, source = (emit(relax.op.reshape(e, (1,))) for e in (x, index, source))
            updated = emit(relax.op.scatter_elements(x, index, source, 0, reduction))
            return emit(relax.op.reshape(updated, ()))
        return emit(relax.op.scatter_elements(x, index, source, axis, reduction))

    def _cropped(self, source: relax.Expr, shape: list[tirx.Expr]) -> relax.Expr:
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
        return self.block_builder.emit(cropped)

    def _scatter_reduce_call(self, node: fx.Node) -> relax.Expr:
        x, axis, index, source, reduction, include_self = self._arguments(
            node, input=None, dim=None, index=None, src=None, reduce=None, include_self=True
        )
        emit, dtype = self.block_builder.emit, dtype_of(x)
        if reduction not in (*_REDUCTIONS, "mean"):
            raise OpAttributeInvalid(
                f"{node.target} {node.name!r}: attribute reduce is {reduction!r}; "
                f"expected one of {', '.join((*_REDUCTIONS, 'mean'))}"
            )
        kind = _REDUCTIONS.get(reduction, "add")
        start = x
        if not include_self:
            start = self._scattered(x, axis, index, _identity(kind, dtype), "update")
        result = self._scattered(start, axis, index, source, kind)
        if reduction != "mean":
            return result
        first = relax.const(1 if include_self else 0, dtype)
        count = emit(relax.op.broadcast_to(first, list(x.ty.shape.values)))
        count = self._scattered(count, axis, index, 1, "add")
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
