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

The docstring of ``sizes`` describes the faults of TVM's converters.
"""

from collections.abc import Callable

import torch
from torch import fx
from tvm import relax

from ...errors import OpNotImplemented
from ...fixes.torch_importer import DYNAMIC_SHAPES as FIX_ID
from ...support import switches
from ..dtypes import dtype_of
from .corrections import Converters
from .promotion import value_of
from .slices import Slices

__all__ = ["FoundElements"]

Convert = Callable[[fx.Node], relax.Expr]


class FoundElements(Slices):
    """Converters of operators that select elements by value."""

    def searching_converters(self, stock: Converters) -> Converters:
        """Return converters that replace those of `stock`, or wrap them."""
        return {
            "index.Tensor": self._index_converter(stock["index.Tensor"]),
            "nonzero.default": self._nonzero_indices,
            "masked_select.default": self._selected_by_mask,
            "topk.default": self._top_k_converter(stock["topk.default"]),
        }

    def _nonzero_indices(self, node: fx.Node) -> relax.Expr:
        switches.note(FIX_ID)
        return self._emit_nonzero(self.env[node.args[0]], node.meta["val"].shape[0])

    def _selected_by_mask(self, node: fx.Node) -> relax.Expr:
        switches.note(FIX_ID)
        x, mask = node.args
        sizes = torch.broadcast_shapes(value_of(x).shape, value_of(mask).shape)
        shape = relax.ShapeExpr(self._symbols.shape(sizes))
        if not sizes:
            shape = relax.ShapeExpr([1])
        emit = self.block_builder.emit
        x, mask = (emit(relax.op.broadcast_to(self.env[value], shape)) for value in (x, mask))
        return emit(relax.op.gather_nd(x, self._emit_nonzero(mask, node.meta["val"].shape[0])))

    def _emit_nonzero(self, x: relax.Expr, count: torch.SymInt) -> relax.Expr:
        """Emit the indices of the `count` nonzero elements, one row per element."""
        if x.ty.ndim == 0:
            rows = self._emit_nonzero(self.block_builder.emit(relax.op.reshape(x, (1,))), count)
            return self._emit_slice(rows, 1, 0, 0)
        shape = [x.ty.ndim, self._symbols.convert(count)]
        columns = self.block_builder.match_cast(
            self.block_builder.emit(relax.op.nonzero(x)), relax.TensorType(shape, "int64")
        )
        return self.block_builder.emit(relax.op.permute_dims(columns))

    def _index_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, indices = self.retrieve_args(node)
            masks = [i for i in indices if i is not None and dtype_of(i) == "bool"]
            if not masks:
                return stock(node)
            if len(masks) < len(indices) or len(masks) > 1:
                raise OpNotImplemented(
                    f"{node.target} {node.name!r}: the dtypes of the indices are "
                    f"{[None if i is None else dtype_of(i) for i in indices]}; "
                    "expected integers, or only one tensor of booleans"
                )
            switches.note(FIX_ID)
            positions = self._emit_nonzero(masks[0], node.meta["val"].shape[0])
            return self.block_builder.emit(relax.op.gather_nd(x, positions))

        return convert

    def _top_k_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, k, axis, largest, is_sorted = self._arguments(
                node, input=None, k=None, dim=-1, largest=True, sorted=True
            )
            if isinstance(k, int) and is_sorted:
                return stock(node)
            switches.note(FIX_ID)
            emit = self.block_builder.emit
            if isinstance(k, int):
                # Any order is correct.
                return emit(relax.op.topk(x, k, axis, "both", largest, "int64"))
            every = emit(relax.op.topk(x, -1, axis, "both", largest, "int64"))
            parts = [emit(relax.TupleGetItem(every, index)) for index in range(2)]
            axis %= x.ty.ndim
            return emit(relax.Tuple([self._emit_slice(part, axis, 0, k) for part in parts]))

        return convert
