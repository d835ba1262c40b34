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
"""Calls of ATen operators, and the list of what wraps their converters.

How to remove
    When TVM's importer passes the tests of this package, use it; delete the package, its tests and
    the fix ids ``torch-*``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
import tvm
from torch import fx
from tvm import relax

from ...errors import OpNotImplemented
from ...fixes.torch_importer import DTYPE, RANDOM
from ...support import switches
from ...support.tensors import to_tvm
from .. import convert
from ..convert import OPERATOR, Converters
from ..dtypes import dtype_of
from .graph.source_nodes import source_node
from .stock import STOCK, Stock, dtype_name
from .values.symbols import Symbols

__all__ = ["CONVERTERS", "PLACES", "Call", "Context", "converts", "known_operators"]

PLACES = {
    "source": "First: what all others emit, note and reject belongs to the node of the model.",
    "errors": "Around all others: an internal error of any of them names the node.",
    "complex": "Before types: Relax has no complex dtype, so a complex result has no type there.",
    "parts": "After complex: other operators apply to each part, or are rejected.",
    "types": "Around the converter of an operator: the result has the type that PyTorch recorded.",
    "rank 0": "Before sizes and promotion, which read ranks: a scalar becomes a row.",
    "sizes": "Before promotion: slices, views and masks of symbolic extents need no promotion.",
    "integers": "Before promotion, which would promote integers to the operands of TVM's powers.",
    "promotion": "Last: the converter of the operator gets operands of the dtype of the result.",
    OPERATOR: "The converter itself.",
}
"""The places in a chain of converters, outermost first, and why each stands there."""

# At these places a converter needs no other one after it.
_WHOLE = ("complex", OPERATOR)


class Context:
    """The state that the calls of one import share.

    Parameters
    ----------
    custom : mapping of str to callable
        The caller's converters by operator, called with a node and `importer`.

    Attributes
    ----------
    importer : Stock
        TVM's importer, whose converters read its environment and emit with its builder.
    symbols : Symbols
        The map from PyTorch's symbols to variables of the function under construction.
    transposed_weights : dict
        The transposes of weights, which layers share.
    random_tensors : int
        The number of random tensors so far.
    known : dict
        The parameters, buffers and constants that become constants, by the names of their nodes.
    copies : bool
        Copy the tensors of the program, so that a later change does not reach the module.
    node : fx.Node or None
        The node under conversion.
    """

    def __init__(self, custom: Mapping[str, Callable[..., Any]]) -> None:
        self.custom = dict(custom)
        self.symbols = Symbols()
        self.importer = Stock(self.symbols, self.convert_nodes)
        self.transposed_weights: dict[relax.Expr, relax.Expr] = {}
        self.random_tensors = 0
        self.known: dict[str, torch.Tensor] = {}
        self.constants: dict[relax.Expr, relax.Expr] = {}
        self.bound: dict[relax.Expr, torch.Tensor] = {}
        self.range_constraints: Mapping[Any, Any] = {}
        self.copies = False
        self.node: fx.Node | None = None

    @property
    def builder(self) -> relax.BlockBuilder:
        """The builder of the function under construction."""
        builder: relax.BlockBuilder = self.importer.block_builder
        return builder

    @property
    def env(self) -> dict[fx.Node, Any]:
        """The values of the nodes of the graph under conversion."""
        env: dict[fx.Node, Any] = self.importer.env
        return env

    @property
    def is_in_branch(self) -> bool:
        """Whether TVM converts a branch of ``torch.cond``: a function with its own variables."""
        return self.importer.is_in_branch

    def convert_nodes(self, module: fx.GraphModule, nodes: Iterable[fx.Node]) -> Any:
        """Convert the nodes of a graph whose placeholders are set; return its outputs."""
        for node in nodes:
            if node.op == "output":
                return self.values(node.args[0])
            if node.op == "get_attr":
                value = getattr(module, node.target)
                is_tensor = isinstance(value, torch.Tensor)
                self.env[node] = relax.const(self.tensor(value)) if is_tensor else value
            elif node.op != "placeholder":
                self.node = node
                self.env[node] = self.convert_node(node)
        raise ValueError("a graph without an output")

    def convert_node(self, node: fx.Node) -> Any:
        """Convert a call of an operator with the caller's converter, or with its chain."""
        if node.target.__name__ in self.custom:
            return self.custom[node.target.__name__](node, self.importer)
        return self.convert(self.call(node))

    def convert(self, call: "Call") -> Any:
        """Convert a call with the whole chain of its operator."""
        is_new = call.operator not in self.importer.convert_map
        return CONVERTERS.convert(call, self._convert_stock, is_new=is_new)

    def _convert_stock(self, call: "Call") -> Any:
        if call.operator not in self.importer.convert_map:
            raise OpNotImplemented(
                f"{call.where}: computes a number from tensor elements; "
                "expected only sizes of the program"
            )
        # TVM's converters take a node: they read its operands in the environment.
        with self.reading(dict(_changed(self.env, call.node.args, call.operands))):
            return self.importer.convert_map[call.operator](call.node)

    @contextmanager
    def reading(self, values: Mapping[fx.Node, Any]) -> Iterator[None]:
        """Give nodes other values in the environment within the ``with`` block."""
        env = self.env
        kept = {node: env[node] for node in values}
        env.update(values)
        try:
            yield
        finally:
            env.update(kept)

    def call(self, node: fx.Node) -> "Call":
        """The call of a node whose arguments are converted."""
        return Call(
            operator=node.target.__name__,
            operands=self.values(node.args),
            attributes=self.values(dict(node.kwargs)),
            version=0,
            source=source_node(node),
            context=self,
            node=node,
        )

    def values(self, arguments: Any) -> Any:
        """Arguments of a node, with the values of nodes in their places."""
        return self.importer._retrieve_args(arguments)

    def scalar_tensor(self, value: relax.Expr, dtype: str) -> relax.Expr:
        """A number as a tensor of rank 0."""
        return self.importer._prim_value_to_scalar_tensor(value, dtype)

    def dtype(self, dtype: torch.dtype) -> str:
        """The dtype in Relax; that of a complex tensor is the dtype of its parts."""
        return dtype_name(dtype)

    def tensor(self, value: torch.Tensor) -> tvm.runtime.Tensor:
        """A weight as a tensor of TVM; the last axis of a complex one holds its two parts."""
        if self.copies:
            value = value.detach().clone()
        if value.is_complex():
            value = torch.view_as_real(value.detach().resolve_conj())
        if not switches.enabled(DTYPE):
            return self.importer._convert_pytorch_tensor_to_tvm(value)
        if value.layout is not torch.strided:
            value = value.to_dense()
        # TVM's goes through NumPy, without bfloat16 and float8, if a tensor is not aligned.
        return to_tvm(value.cpu())


@dataclass(frozen=True)
class Call(convert.Call):
    """A call of an ATen operator whose arguments are converted.

    ``operands`` are the positional arguments and ``attributes`` the keyword arguments: tensors and
    sizes as Relax and TIR expressions, numbers, strings, dtypes, None, and lists of these.

    Attributes
    ----------
    node : fx.Node
        The node, whose ``args`` are PyTorch's.
    """

    node: fx.Node = field(kw_only=True)

    @property
    def recorded(self) -> Any:
        """The result that PyTorch recorded: a fake tensor, a number, or several of these."""
        return self.node.meta["val"]

    @property
    def dtype(self) -> str:
        """The dtype of the result that PyTorch recorded."""
        name: str = self.context.dtype(self.recorded.dtype)
        return name

    @property
    def shape(self) -> list[Any]:
        """The shape of the result that PyTorch recorded."""
        return self.symbols.shape(self.recorded.shape)

    @property
    def symbols(self) -> Symbols:
        """The map from PyTorch's symbols to variables of the function under construction."""
        symbols: Symbols = self.context.symbols
        return symbols

    def renewed(self) -> Self:
        """This call with the operands that the environment has now."""
        return replace(
            self,
            operands=self.context.values(self.node.args),
            attributes=self.context.values(dict(self.node.kwargs)),
        )

    @property
    def where(self) -> str:
        """The operator and the node, as messages name them."""
        return f"{self.node.target} {self.node.name!r}"

    def arguments(self, **defaults: Any) -> list[Any]:
        """The positional and keyword arguments in the order of `defaults`."""
        named = dict(zip(defaults, self.operands, strict=False)) | dict(self.attributes)
        return [named.get(name, value) for name, value in defaults.items()]

    def astype(self, value: relax.Expr, dtype: str) -> relax.Expr:
        """Cast `value` if its dtype differs."""
        if dtype_of(value) == dtype:
            return value
        return self.emit(relax.op.astype(value, dtype))

    def scale(self, value: relax.Expr, factor: float) -> relax.Expr:
        """Multiply `value` by a number."""
        if factor == 1:
            return value
        return self.emit(relax.op.multiply(value, relax.const(factor, dtype_of(value))))


CONVERTERS: Converters[Call] = Converters("tvm_fixes.frontend.torch.ops", PLACES)
"""The converters that correct or extend TVM's."""

converts = CONVERTERS.converts

_WITHDRAWN = ("bernoulli.p", "exponential.default", "native_dropout.default")
"""Operators whose converters of TVM are wrong in training mode; ``rules`` replaces them."""


def known_operators() -> frozenset[str]:
    """The operators with a converter of TVM, or with one of an enabled fix."""
    stock = STOCK.difference(_WITHDRAWN if switches.enabled(RANDOM) else ())
    own = (name for name in CONVERTERS.operators() if CONVERTERS.has(name, _WHOLE))
    return stock.union(own)


def _changed(
    env: Mapping[fx.Node, Any], argument: Any, operand: Any
) -> Iterator[tuple[fx.Node, Any]]:
    """The nodes in an argument whose values the operand replaces, and the new values."""
    if isinstance(argument, fx.Node):
        if env[argument] is not operand:
            yield argument, operand
    elif isinstance(argument, list | tuple):
        for part, value in zip(argument, operand, strict=True):
            yield from _changed(env, part, value)
