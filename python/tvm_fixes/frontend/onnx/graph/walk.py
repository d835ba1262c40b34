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
"""The walk over the nodes of a graph."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
import tvm
from tvm import relax

from ....fixes.onnx_importer import IF, QUANTIZED
from ....support import switches
from ..call import Call, Context
from ..ops.narrow import carried, check_output, narrow_dtype
from ..stock import convert_stock
from ..values.known import KnownValues, Params, Value
from .conditions import Condition
from .control_flow import convert_rest
from .external import Read
from .liveness import live_nodes
from .steps import convert_node

__all__ = ["Walk"]


class Walk:
    """The walk over a graph and the graphs of its nodes; see :class:`~.interface.GraphWalk`.

    Parameters
    ----------
    opset : int
        The version of the default operator set.
    params : mapping
        The parameters of the function under construction.
    read : callable
        Returns the elements of an initializer.
    """

    def __init__(self, opset: int, params: Params, read: Read) -> None:
        self.opset = opset
        self.builder = relax.BlockBuilder()
        self.known = KnownValues(params)
        self.context = Context(self.builder, self.known, self._convert_stock)
        self.narrow: dict[str, str | None] = {}
        self.ranks: Mapping[str, int] = {}
        self.conditions: dict[str, Condition] = {}
        self._params = params
        self._read = read
        self._names: dict[str, Any] = {}

    def array(self, tensor: onnx.TensorProto) -> tvm.runtime.Tensor:
        """The elements of an initializer; those of fewer than 8 bits are stored in 8."""
        if switches.enabled(QUANTIZED):
            self.narrow[tensor.name] = narrow_dtype(tensor.data_type)
            tensor = carried(tensor)
        return self._read(tensor)

    def convert_nodes(self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> None:
        """Convert nodes into the builder's current block, and bind the names of their results."""
        for place, node in enumerate(nodes):
            results = convert_node(self, node)
            named = zip(node.output, results, strict=False)
            self.bind({name: result for name, result in named if name})
            if switches.enabled(IF) and node.op_type == "If":
                bodies = {a.name: a.g for a in node.attribute if a.HasField("g")}
                branches = [bodies["then_branch"], bodies["else_branch"]]
                condition = self.tensor(node.input[0]), self.conditions.get(node.input[0])
                following = nodes[place + 1 :]
                if following and convert_rest(self, node, *condition, branches, following, outputs):
                    return

    def convert_branch(
        self,
        graph: onnx.GraphProto,
        inputs: Mapping[str, Any] | None = None,
        as_tensors: bool = False,
    ) -> list[Any]:
        """Convert a branch into the builder's current block, in its own scope of names."""
        own = {tensor.name: relax.const(self.array(tensor)) for tensor in graph.initializer}
        with self.bound(own | dict(inputs or {})):
            names = [output.name for output in graph.output]
            self.convert_nodes(live_nodes(graph), names)
            for name in names:
                check_output(name, self.narrow.get(name))
            return [self.tensor(name) if as_tensors else self.operand(name) for name in names]

    @contextmanager
    def bound(self, names: Mapping[str, Any]) -> Iterator[None]:
        """Bind `names` to Relax expressions or values; on exit, drop names bound since entry."""
        outer = self._names
        self._names = outer | dict(names)
        try:
            yield
        finally:
            self._names = outer

    def bind(self, names: Mapping[str, Any]) -> None:
        """Bind `names` to Relax expressions or values in the current scope."""
        self._names.update(names)

    def is_bound(self, name: str) -> bool:
        """Whether a name is bound in the current scope."""
        return name in self._names

    def operand(self, name: str) -> Any:
        """The Relax expression or value that a name is bound to."""
        return self._names[name]

    def tensor(self, name: str) -> relax.Expr:
        """The tensor that a name is bound to; a value is bound to its tensor from now on."""
        self._names[name] = self.as_tensor(self._names[name])
        return self._names[name]

    def as_tensor(self, operand: Any) -> relax.Expr:
        """`operand` as a Relax expression; a value becomes a tensor."""
        if not isinstance(operand, Value):
            return operand
        tensor = operand.tensor(self.builder)
        if isinstance(tensor, relax.Var):
            self.known.remember(tensor, operand)
        return tensor

    def _convert_stock(self, call: Call) -> Any:
        return convert_stock(call, self._names, self._params)
