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
"""Import of graphs of ATen operators without state, as AOTAutograd makes them."""

import functools
import math
import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import sympy
import torch
import tvm
from torch import fx
from torch._export.utils import _is_cia_op
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from ...relax.source_nodes import spread
from ...support import switches
from ...support.serial import in_turn
from .exported_program import core_rules
from .graph.decompositions import further_rules
from .graph.recurrent_shapes import RECURRENT
from .importer import ExportedProgramImporter
from .values.memory_order import has_gaps, long_axes, memory_order

__all__ = [
    "NodeError",
    "copied",
    "from_functional_graph",
    "is_random",
    "rules_of_graphs",
    "shapes_of",
]


# PyTorch's kernels reject operands of several dtypes, which their decompositions accept.
_OF_ONE_DTYPE = (
    *(torch.ops.aten.mv.default, torch.ops.aten.linalg_cross.default),
    torch.ops.aten.heaviside.default,
    *(torch.ops.aten._cdist_forward.default, torch.ops.aten.binary_cross_entropy.default),
)


class NodeError(Exception):
    """A node of a graph cannot be imported; the cause says why.

    Parameters
    ----------
    node : str
        The name of the node.
    """

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node!r} cannot be imported")
        self.node = node


def is_random(node: fx.Node) -> bool:
    """Whether a call of an operator draws random numbers."""
    if node.target is torch.ops.aten.scaled_dot_product_attention.default:
        return bool(node.kwargs.get("dropout_p", (*node.args, *[0.0] * 5)[4]))
    if node.target in RECURRENT:
        names = [argument.name for argument in node.target._schema.arguments]
        return all(node.args[names.index(name)] for name in ("dropout", "train"))
    return _is_tagged(node.target)


def _is_tagged(target: Any) -> bool:
    overloaded = isinstance(target, torch._ops.OpOverload)
    return overloaded and torch.Tag.nondeterministic_seeded in target.tags


def rules_of_graphs(
    known: frozenset[str],
) -> tuple[dict[torch._ops.OpOverload, Callable[..., Any]], list[torch._ops.OpOverload]]:
    """The decompositions for graphs, and the composite operators that stay whole.

    Random operators have no decomposition: PyTorch draws their numbers.

    Parameters
    ----------
    known : frozenset of str
        The names of the operators with a converter.
    """
    rules, whole = _rules_of_graphs(known, switches.disabled())
    return dict(rules), list(whole)


@functools.cache
def _rules_of_graphs(known: frozenset[str], disabled: frozenset[str]) -> tuple[Any, Any]:
    """The rules, which depend on the `disabled` fixes; PyTorch takes 0.2 s to list its own."""
    rules = core_rules(known)
    whole = [
        overload
        for overload in torch.export.default_decompositions()
        if overload not in rules and _is_cia_op(overload)
    ]
    further = {o: rule for o, rule in further_rules().items() if o.__name__ not in known}
    chosen = {**further, **rules}
    # PyTorch makes their operand, a constant, a fake tensor itself.
    for name in ("lift", "lift_fresh", "lift_fresh_copy"):
        chosen.pop(getattr(torch.ops.aten, name).default, None)
    rules = {o: _with_own_memory(o, rule) for o, rule in chosen.items() if not _is_tagged(o)}
    return rules, whole


def _with_own_memory(
    overload: torch._ops.OperatorBase, rule: Callable[..., Any]
) -> Callable[..., Any]:
    """A decomposition whose results lie in memory as those of its operator.

    They share memory with nothing else.  An operator stays whole if its results have gaps in
    memory, or if its kernel rejects the operands.
    """
    schema = getattr(overload, "_schema", None)
    if schema is None or any(value.alias_info is not None for value in schema.returns):
        return rule
    if "unsafe" in overload.__name__:  # These return views, but their schemas do not say so.
        return rule

    @functools.wraps(rule)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if overload in _OF_ONE_DTYPE and len({tensor.dtype for tensor in tensors}) > 1:
            return NotImplemented
        memories = {_memory(tensor) for tensor in tensors}
        wanted = _recorded(overload, args, kwargs)
        if any(isinstance(value, torch.Tensor) and has_gaps(value) for value in wanted):
            return NotImplemented

        def own(value: Any, like: Any) -> Any:
            if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
                return value
            value = _in_order_of(value, like)
            if _fills_its_memory(value) and _memory(value) not in memories:
                memories.add(_memory(value))
                return value
            return value.clone()

        leaves, structure = pytree.tree_flatten(rule(*args, **kwargs))
        if len(wanted) != len(leaves):
            wanted = leaves
        return pytree.tree_unflatten(map(own, leaves, wanted), structure)

    return decomposed


def _recorded(overload: Any, args: Any, kwargs: Any) -> list[Any]:
    """The fake results of an operator, which is not traced; none if PyTorch cannot tell them."""
    mode = torch._guards.detect_fake_mode(pytree.tree_leaves((args, kwargs)))
    shapes = None if mode is None else mode.shape_env
    try:
        with (
            disable_proxy_modes_tracing(),
            nullcontext() if shapes is None else shapes.ignore_fresh_unbacked_symbols(),
        ):
            return pytree.tree_leaves(overload(*args, **kwargs))
    except Exception:  # PyTorch's kernels for fake tensors raise many kinds
        return []


def _in_order_of(value: torch.Tensor, like: Any) -> torch.Tensor:
    """A tensor whose elements have the order in memory of those of another one."""
    if not isinstance(like, torch.Tensor) or long_axes(value) == long_axes(like):
        return value
    order = memory_order(like)
    back = [order.index(axis) for axis in range(len(order))]
    return value.permute(order).clone(memory_format=torch.contiguous_format).permute(back)


def _fills_its_memory(value: torch.Tensor) -> bool:
    """Whether a tensor is known to have the size of its memory, by formulas: PyTorch traces."""
    formulas = (size.node.expr if isinstance(size, torch.SymInt) else size for size in value.shape)
    nbytes = value.untyped_storage().nbytes()
    held = nbytes.node.expr if isinstance(nbytes, torch.SymInt) else nbytes
    return bool(sympy.expand(held - math.prod(formulas, start=value.element_size())) == 0)


def _memory(value: Any) -> int | None:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return int(value.untyped_storage()._cdata)


@in_turn
def from_functional_graph(module: fx.GraphModule) -> tvm.IRModule:
    """Import a graph whose nodes have converters.

    Parameters
    ----------
    module : torch.fx.GraphModule
        A graph of calls of ATen operators that write to no tensor.  The ``meta["val"]`` of each
        node is its fake tensor or symbolic number.  Inputs and outputs are tensors, and inputs may
        be symbolic numbers, which must follow the inputs that determine their symbols.

    Returns
    -------
    tvm.IRModule
        The graph as the function ``main``, which returns a tuple.  Inputs that are expressions of
        symbols are no parameters of it: it computes them.

    Raises
    ------
    NodeError
        If a node cannot be imported.
    """
    importer = ExportedProgramImporter()
    shapes = shapes_of(module)
    for guard in [] if shapes is None else shapes.guards:
        if isinstance(guard.expr, sympy.Eq):
            importer.context.symbols.assume_equal(*guard.expr.args)
    try:
        mod = importer.import_program(_program(_with_computed_numbers(module)))
    except Exception as error:
        node = importer.context.node
        if node is None:
            raise
        raise NodeError(node.name) from error
    spread(mod)
    return mod


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """A graph with nodes of its own."""
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        values[node] = graph.node_copy(node, values.__getitem__)
    return fx.GraphModule(module, graph)


def _with_computed_numbers(module: fx.GraphModule) -> fx.GraphModule:
    """The graph with nodes instead of the inputs that are expressions of symbols."""
    module = copied(module)
    for node in module.graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        if isinstance(value, torch.SymInt) and not value.node.expr.is_Symbol:
            # The importer reads the recorded value of a number, not the call.
            with module.graph.inserting_after(node):
                number = module.graph.call_function(operator.add, (0, 0))
            number.meta = node.meta
            node.replace_all_uses_with(number)
            module.graph.erase_node(node)
    return module


def _program(module: fx.GraphModule) -> ExportedProgram:
    """The graph as an exported program without parameters."""
    placeholders = module.graph.find_nodes(op="placeholder")
    results = module.graph.output_node().args[0]
    inputs = [InputSpec(InputKind.USER_INPUT, _argument(node), None) for node in placeholders]
    outputs = [
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=node.name), None) for node in results
    ]
    # The numbers stand for the leaves of the arguments and the results.
    signature = ModuleCallSignature(
        [],
        [],
        pytree.tree_structure((tuple(range(len(inputs))), {})),
        pytree.tree_structure(tuple(range(len(outputs)))),
    )
    shapes = shapes_of(module)
    return ExportedProgram(
        module,
        module.graph,
        ExportGraphSignature(inputs, outputs),
        {},
        {} if shapes is None else dict(shapes.var_to_range),
        [ModuleCallEntry("", signature)],
    )


def shapes_of(module: fx.GraphModule) -> ShapeEnv | None:
    """The symbols of a graph, with guards that are true for each call."""
    values = [node.meta.get("val") for node in module.graph.nodes]
    mode = torch._guards.detect_fake_mode(pytree.tree_leaves(values))
    return None if mode is None else mode.shape_env


def _argument(node: fx.Node) -> ArgumentSpec:
    if isinstance(node.meta["val"], torch.Tensor):
        return TensorArgument(name=node.name)
    return SymIntArgument(name=node.name)
