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

Upstream
    See the files of the operator families.
How to remove
    When TVM's importer passes the tests of this package, use it; delete the package, its tests and
    the fix ids ``torch-*``.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from tvm import relax

from .. import convert
from ..convert import OPERATOR, Converters
from ..dtypes import dtype_of
from .source_nodes import source_node
from .symbols import Symbols

__all__ = ["CONVERTERS", "PLACES", "Call", "Context", "converts"]

PLACES = {
    "source": "First: what all others emit, note and reject belongs to the node of the model.",
    "errors": "Around all others: an internal error of any of them names the node.",
    "complex": "Before types: Relax has no complex dtype, and the others see only real parts.",
    "types": "Around the converter of an operator: the result has the type that PyTorch recorded.",
    "rank 0": "Before sizes and promotion, which read ranks: a scalar becomes a row.",
    "sizes": "Before promotion: slices, views and masks of symbolic extents need no promotion.",
    "integers": "Before promotion, which would promote integers to the operands of TVM's powers.",
    "promotion": "Last: the converter of the operator gets operands of the dtype of the result.",
    OPERATOR: "The converter itself.",
}
"""The places in a chain of converters, outermost first, and why each stands there."""


class Context:
    """The state that the calls of one import share.

    Parameters
    ----------
    importer
        TVM's importer, whose converters read its environment and emit with its builder.
    """

    def __init__(self, importer: Any) -> None:
        self.importer = importer
        self.sources: dict[fx.Node, Any] = {}
        self.random_tensors = 0

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
    def symbols(self) -> Symbols:
        """The map from PyTorch's symbols to variables of the function under construction."""
        symbols: Symbols = self.importer._symbols
        return symbols

    def call(self, node: fx.Node) -> "Call":
        """The call of a node whose arguments are converted."""
        if node not in self.sources:
            self.sources[node] = source_node(node)
        return Call(
            operator=node.target.__name__,
            operands=self.values(node.args),
            attributes=self.values(dict(node.kwargs)),
            version=0,
            source=self.sources[node],
            context=self,
            node=node,
        )

    def values(self, arguments: Any) -> Any:
        """Arguments of a node, with the values of nodes in their places."""
        return self.importer._retrieve_args(arguments)

    def dtype(self, dtype: torch.dtype) -> str:
        """The dtype in Relax; that of a complex tensor is the dtype of its parts."""
        name: str = self.importer._convert_data_type(dtype)
        return name


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


CONVERTERS: Converters[Call] = Converters("tvm_fixes.frontend.torch", PLACES)
"""The converters that correct or extend TVM's."""

converts = CONVERTERS.converts


@contextmanager
def reading(call: Call) -> Iterator[None]:
    """Let converters that take a node read the operands of `call` instead of its arguments."""
    changed: dict[fx.Node, Any] = {}
    _compare(call.context.env, call.node.args, call.operands, changed)
    kept = {node: call.context.env[node] for node in changed}
    call.context.env.update(changed)
    try:
        yield
    finally:
        call.context.env.update(kept)


def _compare(
    env: Mapping[fx.Node, Any], argument: Any, operand: Any, changed: dict[fx.Node, Any]
) -> None:
    if isinstance(argument, fx.Node):
        if env[argument] is not operand:
            changed[argument] = operand
    elif isinstance(argument, list | tuple):
        for part, value in zip(argument, operand, strict=True):
            _compare(env, part, value, changed)
