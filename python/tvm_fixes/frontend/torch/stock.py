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
"""TVM's importer, whose converters end the chains of ours."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import sympy
import torch
from torch import fx
from tvm import relax, te, tirx
from tvm.relax.frontend.torch.base_fx_graph_translator import BaseFXGraphImporter
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from ...fixes.torch_importer import DYNAMIC_SHAPES, PROMOTION
from ...support import switches
from .values.symbols import Symbols

__all__ = ["STOCK", "Stock", "dtype_name"]

STOCK = frozenset(ExportedProgramImporter().convert_map)
"""The operators that TVM has a converter for."""

_PARTS = {torch.complex32: "float16", torch.complex64: "float32", torch.complex128: "float64"}


def dtype_name(dtype: Any, env: Any = None) -> str:
    """Return a dtype in Relax; that of a complex tensor is the dtype of its parts."""
    if dtype in _PARTS:
        return _PARTS[dtype]
    name: str = BaseFXGraphImporter._convert_data_type(dtype, env)
    return name


def _max_pool_method(rank: int) -> Callable[..., relax.Expr]:
    stock = getattr(BaseFXGraphImporter, f"_max_pool{rank}d_impl")

    def convert(
        self: Any, x: relax.Expr, kernel_size: Any, stride: Any = None, *options: Any
    ) -> relax.Expr:
        # ATen writes [] for omitted strides.
        return stock(self, x, kernel_size, stride or None, *options)

    return convert


class Stock(ExportedProgramImporter):
    """TVM's importer, with the methods that its converters call on themselves.

    Each override states why a converter in a chain cannot do the same.

    Parameters
    ----------
    symbols : Symbols
        The map from PyTorch's symbols to variables.
    convert_nodes : callable
        Converts the nodes of a graph with the chains, and returns its outputs.
    """

    def __init__(
        self, symbols: Symbols, convert_nodes: Callable[[fx.GraphModule, Iterable[fx.Node]], Any]
    ) -> None:
        super().__init__()
        self.is_in_branch = False
        # For input sizes that are multiples such as 2*s: the variable of each size.
        self.multiples: dict[sympy.Expr, tirx.Var] = {}
        self._symbols = symbols
        self._convert_nodes = convert_nodes

    # A converter reads the strides of the node, which a chain cannot change.
    _max_pool1d_impl, _max_pool2d_impl, _max_pool3d_impl = map(_max_pool_method, (1, 2, 3))

    # TVM's converters of casts and fills get the dtype of a complex result.
    _convert_data_type = staticmethod(dtype_name)

    def _prim_value_to_scalar_tensor(self, value: relax.Expr, dtype: str) -> relax.Expr:
        """Convert a number; TVM's converters of fills reject a float from sizes."""
        if not (str(value.ty).startswith("float") and switches.enabled(DYNAMIC_SHAPES)):
            return super()._prim_value_to_scalar_tensor(value, dtype)
        switches.note(DYNAMIC_SHAPES)
        return self.block_builder.emit_te(
            lambda number: te.compute((), lambda: number.astype(dtype), name="number"), value
        )

    def _convert_scalar_fill_value(self, value: Any, dtype: str) -> relax.Expr:
        """Convert a fill value; TVM's eight converters of fills reject one that does not fit."""
        is_number = isinstance(value, int | float) and "int" in dtype
        if not is_number or not switches.enabled(PROMOTION) or _fits(value, dtype):
            return super()._convert_scalar_fill_value(value, dtype)
        switches.note(PROMOTION)
        return relax.const(torch.tensor(value).to(getattr(torch, dtype)).numpy(), dtype)

    def _process_derived_symbol(
        self, symbol: sympy.Expr, torch_symbol_to_relax_var: dict[str, tirx.Var]
    ) -> tuple[str, tirx.Expr | None]:
        """Return the name and the expression of an input's size, which may be any expression."""
        if symbol in self.multiples:
            return str(symbol), self.multiples[symbol]
        if isinstance(symbol, sympy.Symbol) or not switches.enabled(DYNAMIC_SHAPES):
            return super()._process_derived_symbol(symbol, torch_symbol_to_relax_var)
        for free in symbol.free_symbols:
            variable = tirx.Var(str(free), "int64")
            self._symbols.bind(free, torch_symbol_to_relax_var.setdefault(str(free), variable))
        return str(symbol), self._symbols.convert(symbol)

    def _import_branch_subgraph(self, *args: Any, **kwargs: Any) -> Any:
        """Import a branch of ``torch.cond``, a function with its own variables."""
        was_in_branch, self.is_in_branch = self.is_in_branch, True
        try:
            return super()._import_branch_subgraph(*args, **kwargs)
        finally:
            self.is_in_branch = was_in_branch

    def _translate_fx_graph(
        self, graph_module: fx.GraphModule, nodes: Any, inputs_vars: Any, custom_ops: Any = None
    ) -> Any:
        """Convert the nodes of a branch with the chains."""
        return self._flatten_output_args(self._convert_nodes(graph_module, nodes))


def _fits(value: float, dtype: str) -> bool:
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)
