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

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    ``x.max(dim)`` with NaN; ``x.min(dim)``, ``amax``, ``amin``, ``aminmax``; a reduction, a scan, a
    softmax or a sort of a tensor of rank 0 along axis 0 or -1; a softmax with a `dtype`, not
    decomposed; a norm of order 0, or of 16-bit floats.
Symptom
    NaN is lost, and the norm of large float16 numbers is infinite, silently; the others are
    rejected.
Mechanism
    The largest element comes from a top-k, whose comparisons ignore NaN; the others have no
    converters.  A tensor of rank 0 has an axis 0 in PyTorch, but not in Relax.  A norm is computed
    in the dtype of its operand, with the reciprocal of its order.
How to remove
    See ``corrections``.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import fx
from tvm import relax

from ...fixes.torch_importer import REDUCTIONS as FIX_ID
from ...support import switches
from ...tirx.util import is_one
from ..dtypes import accumulation_dtype, dtype_of
from .corrections import Converters, Corrections

__all__ = ["Reductions"]

Convert = Callable[[fx.Node], relax.Expr]

# Operators with an axis argument; PyTorch also accepts it for tensors of rank 0.
_ALONG_AN_AXIS = (
    *("amax.default", "amin.default", "any.dim", "any.dims", "argmax.default", "argmin.default"),
    *("argsort.default", "flip.default", "gather.default", "index_select.default"),
    *("linalg_vector_norm.default", "log_softmax.int", "max.dim"),
    *("mean.dim", "median.dim", "min.dim", "prod.dim_int", "softmax.int", "sort.default"),
    *("std.correction", "sum.dim_IntList", "topk.default", "var.correction"),
    *("_log_softmax.default", "_softmax.default"),
)

# The positions of the tensor arguments, for operators with more than one.
_TENSOR_ARGUMENTS = {"gather.default": (0, 2)}


# A scan of a single element returns the element.
_SCANS = {"cumprod.default": relax.op.cumprod, "cumsum.default": relax.op.cumsum}


class Reductions(Corrections):
    """The converters of reductions."""

    def reducing_converters(self) -> Converters:
        """Return the converters of extrema and norms."""
        return {
            "max.dim": self._extremum_and_index(relax.op.max, relax.op.argmax),
            "min.dim": self._extremum_and_index(relax.op.min, relax.op.argmin),
            "amax.default": self._extremum(relax.op.max),
            "amin.default": self._extremum(relax.op.min),
            "linalg_vector_norm.default": self._vector_norm,
            "softmax.int": self._softmax_converter(relax.op.nn.softmax),
            "log_softmax.int": self._softmax_converter(relax.op.nn.log_softmax),
        }

    def ranked_converters(self, known: Converters) -> Converters:
        """Wrap `known` converters that have an axis to accept tensors of rank 0, too."""
        converters: dict[Any, Convert] = {
            name: self._of_any_rank(known[name], _TENSOR_ARGUMENTS.get(name, (0,)))
            for name in _ALONG_AN_AXIS
            if name in known
        }
        return converters | {
            name: self._scan_converter(op, known[name]) for name, op in _SCANS.items()
        }

    def _reduced(self, op: Callable[..., relax.Expr], x: relax.Expr, *options: Any) -> relax.Expr:
        """Emit a maximum or minimum, of any dtype including booleans."""
        dtype = dtype_of(x)
        values = self._astype(x, "int8") if dtype == "bool" else x
        return self._astype(self.block_builder.emit(op(values, *options)), dtype)

    def _extremum_and_index(
        self, op: Callable[..., relax.Expr], index_op: Callable[..., relax.Expr]
    ) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, axis, keepdims = self._arguments(node, input=None, dim=None, keepdim=False)
            switches.note(FIX_ID)
            values = self._reduced(op, x, axis, keepdims)
            searched = self._astype(x, "int8") if dtype_of(x) == "bool" else x
            indices = self.block_builder.emit(index_op(searched, axis, keepdims))
            return relax.Tuple([values, self._astype(indices, "int64")])

        return convert

    def _extremum(self, op: Callable[..., relax.Expr]) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, axes, keepdims = self._arguments(node, input=None, dim=(), keepdim=False)
            switches.note(FIX_ID)
            axes = [axes] if isinstance(axes, int) else list(axes or ())
            return self._reduced(op, x, axes or None, keepdims)

        return convert

    def _softmax_converter(self, op: Callable[..., relax.Expr]) -> Convert:
        """Return a converter that casts before `op`, as PyTorch does; TVM ignores `dtype`."""

        def convert(node: fx.Node) -> relax.Expr:
            x, axis, _ = self._arguments(node, input=None, dim=-1, dtype=None)
            dtype = self._convert_data_type(node.meta["val"].dtype)
            if dtype != dtype_of(x):
                switches.note(FIX_ID)
            return self.block_builder.emit(op(self._astype(x, dtype), axis))

        return convert

    def _vector_norm(self, node: fx.Node) -> relax.Expr:
        """Convert a norm; like PyTorch, sum in the accumulation dtype, so that squares fit."""
        switches.note(FIX_ID)
        x, order, axes, keepdims, _ = self._arguments(
            node, input=None, ord=2, dim=None, keepdim=False, dtype=None
        )
        dtype = self._convert_data_type(node.meta["val"].dtype)
        inner = accumulation_dtype(dtype)
        emit = self.block_builder.emit
        values = emit(relax.op.abs(self._astype(x, inner)))
        axes = [axes] if isinstance(axes, int) else list(axes or ()) or None
        extents = x.ty.shape.values if x.ty.shape is not None else ()
        reduced = [extents[axis] for axis in axes or range(len(extents))] if extents else []
        if order != 0 and reduced and all(map(is_one, reduced)):
            # The norm of one element is its magnitude, even if its square is 0 or infinite.
            order = 1
        if math.isinf(order):
            extremum = relax.op.max if order > 0 else relax.op.min
            return self._astype(emit(extremum(values, axes, keepdims)), dtype)
        if order == 0:
            values = self._astype(emit(relax.op.not_equal(values, relax.const(0, inner))), inner)
        elif order == 2:
            values = emit(relax.op.multiply(values, values))
        elif order != 1:
            values = emit(relax.op.power(values, relax.const(order, inner)))
        total = emit(relax.op.sum(values, axes, keepdims))
        if order == 2:
            total = emit(relax.op.sqrt(total))
        elif order not in (0, 1):
            total = emit(relax.op.power(total, relax.const(1 / order, inner)))
        return self._astype(total, dtype)

    def _scan_converter(self, op: Callable[..., relax.Expr], stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, axis = self._arguments(node, input=None, dim=None)
            dtype = self._convert_data_type(node.meta["val"].dtype)
            inner = accumulation_dtype(dtype)
            if x.ty.ndim != 0 and inner == dtype:
                return stock(node)
            switches.note(FIX_ID)
            if x.ty.ndim == 0:
                return self._astype(x, dtype)
            # A scan of 16-bit elements sums in float32 and rounds once.
            return self._astype(self.block_builder.emit(op(self._astype(x, inner), axis)), dtype)

        return convert

    def _of_any_rank(self, convert: Convert, positions: tuple[int, ...] = (0,)) -> Convert:
        """Wrap `convert` to reshape arguments of rank 0 at `positions` to one element."""

        def convert_any(node: fx.Node) -> relax.Expr:
            arguments = [node.args[i] for i in positions if i < len(node.args)]
            scalars = {
                argument: x
                for argument in arguments
                if isinstance(getattr(x := self.env.get(argument), "ty", None), relax.TensorType)
                and x.ty.ndim == 0
            }
            if not scalars:
                return convert(node)
            switches.note(FIX_ID)
            emit = self.block_builder.emit
            reshaped = {scalar: emit(relax.op.reshape(x, [1])) for scalar, x in scalars.items()}
            self.env.update(reshaped)
            try:
                result = convert(node)
            finally:
                self.env.update(scalars)
            values = node.meta["val"]
            if not isinstance(values, tuple | list):
                return self._without_axes(result, values.ndim)
            result = emit(result)
            fields = [emit(relax.TupleGetItem(result, i)) for i in range(len(values))]
            shaped = [self._without_axes(f, v.ndim) for f, v in zip(fields, values, strict=True)]
            return relax.Tuple(shaped)

        return convert_any

    def _without_axes(self, value: relax.Expr, rank: int) -> relax.Expr:
        if rank != 0:
            return value
        value = self.block_builder.emit(value) if isinstance(value, relax.Call) else value
        return value if value.ty.ndim == 0 else self.block_builder.emit(relax.op.reshape(value, []))
