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
"""Creation of tensors: ``arange`` and ``empty``.

Trigger
    ``arange`` with a negative step, of a floating-point dtype, with arguments of a dtype other
    than that of the result, or empty; ``empty`` of symbolic sizes, which a circular pad fills.
Mechanism
    The type of an ``arange`` assumes a positive step; the converter of ``empty`` uses the
    arguments of PyTorch's graph without converting them.
How to remove
    See ``corrections``.
"""

from typing import Any

from torch import fx
from tvm import relax, te, tirx

from ...fixes.torch_importer import CREATION as FIX_ID
from ...support import switches
from ..dtypes import accumulation_dtype
from .corrections import Converters, Corrections, static_extent
from .symbols import Symbols

__all__ = ["Creation"]


class Creation(Corrections):
    """The converters of ``arange`` and ``empty``."""

    _symbols: Symbols

    def creating_converters(self, stock: Converters) -> Converters:
        """Return converters that replace those of `stock`, or wrap them."""
        return {
            **{
                name: self._arange_converter(stock[name])
                for name in ("arange.default", "arange.start", "arange.start_step")
            },
            **{
                name: self._empty_of_sizes
                for name in ("empty.memory_format", "empty_permuted.default")
            },
        }

    def _arange_converter(self, stock: Any) -> Any:
        def convert(node: fx.Node) -> relax.Expr:
            names = ("start", "end", "step")
            given = node.args if len(node.args) > 1 else (0, *node.args)
            options = dict(zip(names, given, strict=False)) | node.kwargs
            start, step = (
                self._retrieve_args(options.get(name, number))
                for name, number in (("start", 0), ("step", 1))
            )
            dtype = self._convert_data_type(node.meta["val"].dtype)
            count = node.meta["val"].shape[0]
            numbers = [self._retrieve_args(options.get("end")), start, step]
            if not self._symbols.knows(count):
                return stock(node)
            length = self._symbols.convert(count)
            is_plain = all(_is_integer(number) for number in numbers) and "int" in dtype
            if is_plain and static_extent(step) == 1 and length != 0:
                return stock(node)
            switches.note(FIX_ID)
            # PyTorch computes in the dtype of the elements, but float32 elements in float64.
            inner = "int64" if "int" in dtype else accumulation_dtype(dtype)
            inner = "float64" if inner == "float32" and dtype == "float32" else inner

            def element(index: tirx.Var) -> tirx.Expr:
                first, stride = (_cast(number, inner) for number in (start, step))
                return (first + index.astype(inner) * stride).astype(dtype)

            def compute() -> te.Tensor:
                return te.compute((length,), element, name="arange")

            return self.block_builder.emit_te(compute, primfunc_name_hint="arange")

        return convert

    def _empty_of_sizes(self, node: fx.Node) -> relax.Expr:
        switches.note(FIX_ID)
        shape = self._symbols.shape(node.meta["val"].shape)
        dtype = self._convert_data_type(node.meta["val"].dtype)
        return self.block_builder.emit(relax.op.zeros(relax.ShapeExpr(shape), dtype))


def _is_integer(number: Any) -> bool:
    if isinstance(number, relax.Expr):
        return "int" in str(number.ty)
    return isinstance(number, int)


def _cast(number: Any, dtype: str) -> tirx.Expr:
    """Cast a number or an expression of sizes to `dtype`; an integer dtype drops the fraction."""
    if isinstance(number, relax.Expr):
        return number.astype(dtype)
    return tirx.const(int(number) if "int" in dtype else float(number), dtype)
