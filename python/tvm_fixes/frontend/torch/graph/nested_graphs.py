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
"""Graphs within a program: the bodies of loops, and the branches of ``torch.cond``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import sympy
import torch
import tvm
from torch import fx
from torch.utils import _pytree as pytree
from tvm import relax, tirx
from tvm.ir import PrimType

from ..call import Context
from ..values.symbols import Symbols

__all__ = ["Captured", "Operand", "convert_graph", "has_branches", "is_number", "nodes_of"]

Operand: TypeAlias = Any
"""A tensor as relax.Expr, or a number: a tirx.Expr, an int, a float or a bool."""


def nodes_of(module: torch.nn.Module) -> Iterator[fx.Node]:
    """Yield the nodes of a graph and of the graphs in it."""
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            yield from part.graph.nodes


def has_branches(module: fx.GraphModule) -> bool:
    """Whether the program has branches, which may not be in a dataflow block."""
    nodes = nodes_of(module)
    return any(n.op == "call_function" and n.target.__name__ == "cond" for n in nodes)


def is_number(value: Any) -> bool:
    """Whether PyTorch recorded an integer, not a tensor."""
    return isinstance(value, int | torch.SymInt)


def constant_of(context: Context, value: Any) -> Any:
    """A value that does not depend on the inputs, as nested graphs read it; otherwise None."""
    if isinstance(value, int | float | tvm.ir.GenericConst):
        return value
    if isinstance(value, relax.Var) and value in context.bound:
        tensor = context.tensor(context.bound[value])
        return context.constants.setdefault(value, relax.const(tensor))
    return None


def convert_graph(
    context: Context, graph: fx.GraphModule, operands: Sequence[Operand]
) -> list[Operand]:
    """Convert a nested graph into the current function, and return its results.

    Call it within :meth:`Captured.bound`.
    """
    kept, context.importer.env = context.env, {}
    try:
        values = iter(operands)
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                context.env[node] = _graph_operand(context, node, next(values))
        return pytree.tree_leaves(context.convert_nodes(graph, graph.graph.nodes))
    finally:
        context.importer.env = kept


def _graph_operand(context: Context, node: fx.Node, value: Operand) -> Operand:
    """Give an operand of a nested graph the extents that PyTorch recorded there."""
    recorded = node.meta.get("val")
    if is_number(recorded):
        context.symbols.bind(recorded, value)
    if not isinstance(recorded, torch.Tensor) or recorded.dtype.is_complex:
        return value
    for size, extent in zip(recorded.shape, value.ty.shape, strict=True):
        context.symbols.bind(size, extent)
    expected = context.symbols.shape(recorded.shape)
    if all(map(context.symbols.equal, expected, value.ty.shape)):
        return value
    return context.builder.match_cast(value, relax.TensorType(expected, value.ty.dtype))


class Captured:
    """The values that nested graphs read from around them.

    Attributes
    ----------
    operands : list of relax.Expr
        The tensors, and the sizes and other numbers as one shape expression.
    """

    def __init__(
        self, context: Context, graphs: Sequence[fx.GraphModule], values: Sequence[Any]
    ) -> None:
        self._context = context
        self._fixed = [constant_of(context, value) for value in values]
        free = [v for v, fixed in zip(values, self._fixed, strict=True) if fixed is None]
        self._is_number = [isinstance(value.ty, PrimType) for value in free]
        pairs = list(zip(free, self._is_number, strict=True))
        numbers = [value for value, is_number in pairs if is_number]
        self._symbols = [s for s in _symbols_in(graphs) if context.symbols.knows(s)]
        numbers += context.symbols.shape(self._symbols)
        tensors = [value for value, is_number in pairs if not is_number]
        self.operands = [*tensors, *([relax.ShapeExpr(numbers)] if numbers else [])]

    @contextmanager
    def bound(self, operands: Sequence[relax.Expr]) -> Iterator[list[Operand]]:
        """Convert with these operands until exit; gives the values of the graphs' operands."""
        context = self._context
        numbers = iter(operands[-1].values if operands and _is_shape(operands[-1]) else ())
        tensors = iter(operands)
        free = [next(numbers if is_number else tensors) for is_number in self._is_number]
        symbols = Symbols()
        for symbol, number in zip(self._symbols, numbers, strict=True):
            symbols.bind(symbol, int(number) if isinstance(number, tirx.IntImm) else number)
        for symbol, limits in context.range_constraints.items():
            if limits.lower >= 0:
                symbols.restrict(symbol, limits.lower, limits.upper)
        kept = context.symbols, context.transposed_weights
        context.symbols, context.transposed_weights = symbols, {}
        try:
            values = iter(free)
            yield [next(values) if fixed is None else fixed for fixed in self._fixed]
        finally:
            context.symbols, context.transposed_weights = kept


def _is_shape(operand: relax.Expr) -> bool:
    return isinstance(operand, relax.ShapeExpr)


def _symbols_in(graphs: Sequence[fx.GraphModule]) -> list[sympy.Symbol]:
    """The symbols of the sizes in graphs and in the graphs in them."""
    found: dict[sympy.Symbol, None] = {}
    for graph in graphs:
        for node in nodes_of(graph):
            for value in pytree.tree_leaves(node.meta.get("val")):
                sizes = value.shape if isinstance(value, torch.Tensor) else [value]
                for size in sizes:
                    if isinstance(size, torch.SymInt | torch.SymBool | torch.SymFloat):
                        found.update(dict.fromkeys(sorted(size.node.expr.free_symbols, key=str)))
    return list(found)
