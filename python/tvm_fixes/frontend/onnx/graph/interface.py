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
"""The walk over a graph, as steps and converters of nodes with nested graphs see it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import onnx
from tvm import relax

from ..call import Context
from ..values.known import KnownValues
from .conditions import Condition


class GraphWalk(Protocol):
    """The walk over a graph and the graphs of its nodes.

    A name of the graph is bound to a Relax expression, or to a value.  A value becomes a tensor
    when an operator first needs the tensor.

    Attributes
    ----------
    builder : relax.BlockBuilder
        The builder that expressions are emitted into.
    known : KnownValues
        The known elements and extents of tensors at import time.
    opset : int
        The version of the default operator set.
    context : Context
        What the calls of converters share.
    narrow : dict
        The dtypes of less than 8 bits by the names of their tensors; see
        :mod:`tvm_fixes.frontend.onnx.ops.narrow`.
    ranks : mapping
        The ranks that the graph declares, by name.
    conditions : dict
        The extents that a tensor compares, by its name.
    """

    builder: relax.BlockBuilder
    known: KnownValues
    opset: int
    context: Context
    narrow: dict[str, str | None]
    ranks: Mapping[str, int]
    conditions: dict[str, Condition]

    def bound(self, names: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Bind `names` to Relax expressions or values; on exit, drop names bound since entry."""

    def bind(self, names: Mapping[str, Any]) -> None:
        """Bind `names` to Relax expressions or values in the current scope."""

    def is_bound(self, name: str) -> bool:
        """Whether a name is bound in the current scope."""

    def convert_branch(
        self,
        graph: onnx.GraphProto,
        inputs: Mapping[str, Any] | None = None,
        as_tensors: bool = False,
    ) -> list[Any]:
        """Convert a branch into the builder's current block, in its own scope of names."""

    def convert_nodes(self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> None:
        """Convert nodes into the builder's current block, and bind the names of their results.

        Parameters
        ----------
        outputs : sequence of str
            The results of the graph that the nodes belong to.
        """

    def operand(self, name: str) -> Any:
        """The Relax expression or value that a name is bound to."""

    def tensor(self, name: str) -> relax.Expr:
        """The tensor that a name is bound to; a value is bound to its tensor from now on."""

    def as_tensor(self, operand: Any) -> relax.Expr:
        """`operand` as a Relax expression; a value becomes a tensor."""
