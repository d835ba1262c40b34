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
from functools import cached_property
from typing import Any, TypeAlias

import sympy
import torch
import tvm
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from tvm import relax, tirx
from tvm.ir import PrimType

from .corrections import Corrections
from .symbols import Symbols

__all__ = ["Captured", "NestedGraphs", "Operand", "is_number", "nodes_of"]

Operand: TypeAlias = Any
"""A tensor as relax.Expr, or a number: a tirx.Expr, an int, a float or a bool."""


def nodes_of(module: torch.nn.Module) -> Iterator[fx.Node]:
    """Yield the nodes of a graph and of the graphs in it."""
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            yield from part.graph.nodes


def is_number(value: Any) -> bool:
    """Whether PyTorch recorded an integer, not a tensor."""
    return isinstance(value, int | torch.SymInt)


class NestedGraphs(Corrections):
    """Conversion of graphs within a program, with the sizes that PyTorch recorded there."""

    _symbols: Symbols
    _program: ExportedProgram
    env: dict[fx.Node, Any]
    # The parameters, buffers and constants that become constants, by the names of their nodes.
    _known: dict[str, torch.Tensor]
    _custom_operators: frozenset[str] = frozenset()

    @cached_property
    def _bound_values(self) -> dict[relax.Expr, torch.Tensor]:
        """The values of the parameters, buffers and constants that become constants of main."""
        return {}

    def create_input_vars(self, exported_program: ExportedProgram) -> Any:
        self._program = exported_program
        created = super().create_input_vars(exported_program)
        for name, value in self._known.items():
            self._bound_values[created[0][name]] = value
        return created

    def _translate_fx_graph(
        self, graph_module: Any, nodes: Any, inputs_vars: Any, custom_ops: Any = None
    ) -> tuple[relax.Expr, ...]:
        self._custom_operators = frozenset(custom_ops or ())
        return super()._translate_fx_graph(graph_module, nodes, inputs_vars, custom_ops)

    def _check_unsupported_func_type(self, nodes: Any) -> None:
        super()._check_unsupported_func_type(list(nodes_of(self._program.graph_module)))

    @staticmethod
    def _has_cond_op(nodes: Any) -> bool:
        """Whether the program has branches, which may not be in a dataflow block."""
        first = next(iter(nodes), None)
        module = None if first is None else first.graph.owning_module
        every = nodes if module is None else nodes_of(module)
        return any(n.op == "call_function" and n.target.__name__ == "cond" for n in every)

    def constant_of(self, value: Any) -> Any:
        """A value that does not depend on the inputs, as nested graphs read it; otherwise None."""
        if isinstance(value, int | float | tvm.ir.GenericConst):
            return value
        if isinstance(value, relax.Var) and value in self._bound_values:
            tensor = self._convert_pytorch_tensor_to_tvm(self._bound_values[value])
            return self._constants.setdefault(value, relax.const(tensor))
        return None

    @cached_property
    def _constants(self) -> dict[relax.Expr, relax.Expr]:
        return {}

    def convert_graph(self, graph: fx.GraphModule, operands: Sequence[Operand]) -> list[Operand]:
        """Convert a nested graph into the current function, and return its results.

        Call it within :meth:`Captured.bound`.
        """
        kept, self.env = self.env, {}
        try:
            given = iter(operands)
            for node in graph.graph.nodes:
                if node.op == "output":
                    return pytree.tree_leaves(self._retrieve_args(node.args[0]))
                if node.op == "placeholder":
                    self.env[node] = self._graph_operand(node, next(given))
                elif node.op == "get_attr":
                    value = getattr(graph, node.target)
                    if isinstance(value, torch.Tensor):
                        value = relax.const(self._convert_pytorch_tensor_to_tvm(value))
                    self.env[node] = value
                else:
                    name = node.target.__name__
                    own = (self,) if name in self._custom_operators else ()
                    self.env[node] = self.convert_map[name](node, *own)
        finally:
            self.env = kept
        raise ValueError("a graph without an output")

    def _graph_operand(self, node: fx.Node, value: Operand) -> Operand:
        """Give an operand of a nested graph the extents that PyTorch recorded there."""
        recorded = node.meta.get("val")
        if is_number(recorded):
            self._symbols.bind(recorded, value)
        if not isinstance(recorded, torch.Tensor) or recorded.dtype.is_complex:
            return value
        for size, extent in zip(recorded.shape, value.ty.shape, strict=True):
            self._symbols.bind(size, extent)
        expected = self._symbols.shape(recorded.shape)
        if all(map(self._symbols.equal, expected, value.ty.shape)):
            return value
        ty = relax.TensorType(expected, value.ty.dtype)
        return self.block_builder.match_cast(value, ty)


class Captured:
    """The values that nested graphs read from around them.

    Attributes
    ----------
    operands : list of relax.Expr
        The tensors, and the sizes and other numbers as one shape expression.
    """

    def __init__(
        self, importer: NestedGraphs, graphs: Sequence[fx.GraphModule], values: Sequence[Any]
    ) -> None:
        self._importer = importer
        self._fixed = [importer.constant_of(value) for value in values]
        free = [v for v, fixed in zip(values, self._fixed, strict=True) if fixed is None]
        self._is_number = [isinstance(value.ty, PrimType) for value in free]
        pairs = list(zip(free, self._is_number, strict=True))
        numbers = [value for value, is_number in pairs if is_number]
        self._symbols = [s for s in _symbols_in(graphs) if importer._symbols.knows(s)]
        numbers += importer._symbols.shape(self._symbols)
        tensors = [value for value, is_number in pairs if not is_number]
        self.operands = [*tensors, *([relax.ShapeExpr(numbers)] if numbers else [])]

    @contextmanager
    def bound(self, operands: Sequence[relax.Expr]) -> Iterator[list[Operand]]:
        """Convert with these operands until exit; gives the values of the graphs' operands."""
        importer = self._importer
        numbers = iter(operands[-1].values if operands and _is_shape(operands[-1]) else ())
        tensors = iter(operands)
        free = [next(numbers if is_number else tensors) for is_number in self._is_number]
        symbols = Symbols()
        for symbol, number in zip(self._symbols, numbers, strict=True):
            symbols.bind(symbol, int(number) if isinstance(number, tirx.IntImm) else number)
        for symbol, limits in importer._program.range_constraints.items():
            if limits.lower >= 0:
                symbols.restrict(symbol, limits.lower, limits.upper)
        kept = importer._symbols, importer._transposed_weights
        importer._symbols, importer._transposed_weights = symbols, {}
        try:
            values = iter(free)
            yield [next(values) if fixed is None else fixed for fixed in self._fixed]
        finally:
            importer._symbols, importer._transposed_weights = kept


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
