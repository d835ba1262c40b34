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
"""Which nodes of a graph can be compiled."""

import operator
from collections.abc import Container, Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils import _pytree as pytree

from ..frontend.torch.functional_graph import is_random
from ..frontend.torch.graph.decompositions import is_known, name_of
from ..frontend.torch.values.memory_order import has_gaps

__all__ = ["Capability", "is_compute", "is_view"]

_DTYPES = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8),
}

# These read memory, whose order only PyTorch's own results have.
_READ_MEMORY = {torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default}

_NORMS = {
    torch.ops.aten.layer_norm.default: (0, 2, 3),
    torch.ops.aten.native_layer_norm.default: (0, 2, 3),
    torch.ops.aten.native_group_norm.default: (0, 1, 2),
    torch.ops.aten.instance_norm.default: (0, 1, 2),
}

# PyTorch's kernels reject these operands of several dtypes; its meta functions, which traces use,
# do not.
_OF_ONE_DTYPE = {
    **dict.fromkeys((torch.ops.aten.mm.default, torch.ops.aten.matmul.default), (0, 1)),
    **dict.fromkeys((torch.ops.aten.linear.default, torch.ops.aten.addmm.default), (0, 1, 2)),
    **dict.fromkeys((torch.ops.aten.index_add.default, torch.ops.aten.index_copy.default), (0, 3)),
    torch.ops.aten.index_put.default: (0, 2),
    torch.ops.aten.grid_sampler_2d.default: (0, 1),
    **_NORMS,
}

# They copy the operand as it is.
_COPIES = {"_unsafe_view.default", "clone.default", "lift_fresh_copy.default"}


def is_view(node: fx.Node) -> bool:
    """Whether a node is a view, or one of several views, of its first operand."""
    if node.target is operator.getitem:
        return is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    aliases = [value.alias_info for value in node.target._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def is_compute(node: fx.Node) -> bool:
    """Whether a node does more than to view, take or copy its operand."""
    is_taken = node.target is operator.getitem
    return not (is_taken or is_view(node) or node.target.__name__ in _COPIES)


class Capability(OperatorSupportBase):
    """Tells which nodes of a graph can be compiled.

    Parameters
    ----------
    known : container of str
        The names of the operators with a converter.
    excluded : mapping of str to str
        The names of nodes that cannot be compiled for another reason, and the reasons.
    """

    def __init__(self, known: Container[str], excluded: Mapping[str, str]) -> None:
        self._known = known
        self._excluded = excluded

    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        """Whether `node` can be compiled; `submodules` does not matter."""
        return node.op == "call_function" and self.obstacle(node) is None

    def obstacle(self, node: fx.Node) -> str | None:
        """Why a call cannot be compiled; None if it can."""
        if node.name in self._excluded:
            return self._excluded[node.name]
        if node.target is operator.getitem:
            return self.obstacle(node.args[0])
        if not isinstance(node.target, torch._ops.OpOverload):
            return f"{name_of(node.target)}: not an operator of tensors"
        return self._of_operator(node) or _of_values(node)

    def _of_operator(self, node: fx.Node) -> str | None:
        name = name_of(node.target)
        if node.target._schema.is_mutable:
            return f"{name}: writes to a tensor"
        if is_random(node):
            return f"{name}: PyTorch draws the random numbers"
        if not is_known(node, self._known):
            return f"{name}: no converter"
        if any(user.target in _READ_MEMORY for user in node.users):
            return f"{name}: its reader needs PyTorch's strides"
        return None


def _of_values(node: fx.Node) -> str | None:
    """Why the operands or the results of a call do not fit."""
    results = node.meta.get("val")
    if isinstance(results, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
        return f"{name_of(node.target)}: a number"
    operands = [arg.meta.get("val") for arg in node.all_input_nodes]
    if any(isinstance(operand, torch.SymFloat | torch.SymBool) for operand in operands):
        return f"{name_of(node.target)}: a number that is not an integer"
    values = [*_tensors(results), *_tensors(operands)]
    if _are_unlike(node):
        return f"{name_of(node.target)}: operands of several dtypes"
    if results is None:
        return f"{name_of(node.target)}: a check of elements"
    if not _tensors(results):
        return f"{name_of(node.target)}: no tensor"
    for value in values:
        obstacle = _of_tensor(value)
        if obstacle:
            return f"{name_of(node.target)}: {obstacle}"
    if any(map(free_unbacked_symbols, values)):
        return f"{name_of(node.target)}: sizes that depend on data"
    if not is_view(node) and any(map(has_gaps, _tensors(results))):
        return f"{name_of(node.target)}: a result with gaps in memory"
    return None


def _are_unlike(node: fx.Node) -> bool:
    """Whether dtypes of operands differ; a norm of 16-bit floats may have float32 parameters."""
    places = _OF_ONE_DTYPE.get(node.target, ())
    operands = [node.args[place] for place in places if place < len(node.args)]
    values = [operand.meta["val"] for operand in operands if isinstance(operand, fx.Node)]
    dtypes = {value.dtype for value in values}
    is_mixed = node.target in _NORMS and values[0].dtype in (torch.float16, torch.bfloat16)
    return len(dtypes) > 1 and not (is_mixed and dtypes == {values[0].dtype, torch.float32})


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]


def _of_tensor(value: torch.Tensor) -> str | None:
    if value.layout is not torch.strided or value.is_quantized:
        return f"a tensor of layout {value.layout}"
    if value.dtype not in _DTYPES:
        return str(value.dtype)
    return None if value.device.type == "cpu" else f"a tensor on {value.device}"
