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
"""The intermediate values of exported programs, and programs that return some of them."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .base import ModelValue

if TYPE_CHECKING:
    import torch
    from torch import fx

# Operators whose results are not worth a comparison: they compute nothing.
_COPIES = ("alias", "clone", "contiguous", "detach", "dropout", "empty", "empty_like", "lift_fresh")


def program_values(program: "torch.export.ExportedProgram") -> Iterator[ModelValue]:
    """The tensors that the nodes of a program compute, in their order."""
    import torch

    from ..frontend.torch.graph.source_nodes import source_node

    for node in program.graph.nodes:
        tensor = node.meta.get("val")
        if node.op != "call_function" or not isinstance(tensor, torch.Tensor) or not node.users:
            continue
        name = str(getattr(node.target, "__name__", "")).partition(".")[0]
        if name in _COPIES or tensor.layout is not torch.strided:
            continue
        yield ModelValue(node.name, source_node(node), _nbytes(tensor))


def may_write(program: "torch.export.ExportedProgram") -> bool:
    """Whether a program may write to its inputs; whether it does, the import tells."""
    from torch.export.graph_signature import OutputKind

    specs = program.graph_signature.output_specs
    return any(spec.kind is OutputKind.USER_INPUT_MUTATION for spec in specs) or any(
        schema.is_mutable
        for module in program.graph_module.modules()
        for node in getattr(getattr(module, "graph", None), "nodes", ())
        if (schema := getattr(node.target, "_schema", None)) is not None
    )


def with_program_outputs(
    program: "torch.export.ExportedProgram", names: Sequence[str]
) -> "torch.export.ExportedProgram":
    """A program with the same inputs that returns the results of the nodes `names`.

    A complex one is returned as a real tensor whose last axis holds the parts.
    """
    from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

    by_name = {node.name: node for node in program.graph.nodes}
    specs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=name), None) for name in names]
    return _with_outputs(program, [by_name[name] for name in names], specs, as_real=True)


def without_results(
    program: "torch.export.ExportedProgram", vanishes: Sequence[bool]
) -> "torch.export.ExportedProgram":
    """A program without some of its results, for example those that are None."""
    from torch.export.graph_signature import OutputKind

    output = next(node for node in program.graph.nodes if node.op == "output")
    specs = program.graph_signature.output_specs
    dropped = iter(vanishes)
    kept = [
        (value, spec)
        for value, spec in zip(output.args[0], specs, strict=True)
        if spec.kind is not OutputKind.USER_OUTPUT or not next(dropped)
    ]
    return _with_outputs(program, [value for value, _ in kept], [spec for _, spec in kept])


def _with_outputs(
    program: "torch.export.ExportedProgram",
    values: Sequence[Any],
    specs: Sequence[Any],
    *,
    as_real: bool = False,
) -> "torch.export.ExportedProgram":
    """A program that returns `values`, which are nodes of its graph or constants."""
    from torch import fx
    from torch.export.graph_signature import ExportGraphSignature, OutputKind
    from torch.utils import _pytree as pytree

    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(program.graph, copies)
    returned = [copies[v] if isinstance(v, fx.Node) else v for v in values]
    _rename(copies)
    for index, value in enumerate(returned):
        if as_real and value.meta["val"].is_complex():
            returned[index] = _real_view(graph, value)
            specs[index].arg.name = returned[index].name
    graph.output(tuple(returned))
    graph.eliminate_dead_code()
    pairs = zip(returned, specs, strict=True)
    results = tuple(value for value, spec in pairs if spec.kind is OutputKind.USER_OUTPUT)
    _, out_spec = pytree.tree_flatten(results)
    root = program.module_call_graph[0]
    # Like torch.export, name no outputs: a decomposition may rename them.
    called = replace(root.signature, outputs=[], out_spec=out_spec)
    changed = copy.copy(program)
    changed._graph_module = fx.GraphModule(program.graph_module, graph)
    changed._graph_signature = ExportGraphSignature(
        program.graph_signature.input_specs, list(specs)
    )
    changed._module_call_graph = [replace(root, signature=called)]
    return changed


def _real_view(graph: "fx.Graph", node: "fx.Node") -> "fx.Node":
    """A new node with the real and imaginary parts of the complex result of another."""
    import torch

    for operator in (torch.ops.aten.resolve_conj.default, torch.ops.aten.view_as_real.default):
        value = operator(node.meta["val"])
        name = f"{node.name}_{operator._schema.name.rpartition('::')[2]}"
        node = graph.create_node("call_function", operator, (node,), name=name)
        node.meta["val"] = value
    return node


def number_to_tensor(value: Any) -> "torch.Tensor":
    """A result of a module as a tensor, with the dtype that the importer gives a number."""
    import torch

    if isinstance(value, torch.Tensor):
        return value
    dtype = {bool: torch.bool, int: torch.int64, float: torch.float64}[type(value)]
    return torch.tensor(value, dtype=dtype)


def _rename(copies: "dict[fx.Node, fx.Node]") -> None:
    """Give the copies of nodes the names that the signature of the program refers to."""
    for node, duplicate in copies.items():
        # A graph renames a new node whose name is that of a builtin, such as ``input``.
        duplicate.name = node.name


def _nbytes(tensor: Any) -> int | None:
    count = tensor.element_size()
    for extent in tensor.shape:
        hint = extent if isinstance(extent, int) else getattr(extent.node, "hint", None)
        if hint is None:
            return None
        count *= int(hint)
    return int(count)
