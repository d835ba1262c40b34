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
"""Inputs that a program mutates, such as the cache of a language model.

Mechanism
    ``torch.export`` makes each written input an extra output; TVM's importer drops it.
How to remove
    When TVM's importer can return these outputs, use its option, and delete this file, its test and
    the fix id ``torch-mutations``.
"""

import copy
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec

from ....errors import OpNotImplemented

__all__ = ["check_buffers", "check_windows", "returning_updates", "without_updates"]


def check_windows(program: ExportedProgram) -> None:
    """Check that the program does not write through ``unfold``.

    PyTorch's decomposition of such a write sets the elements between the windows to 0, and adds
    the elements that windows share.

    Parameters
    ----------
    program : ExportedProgram
        A program before its decomposition.

    Raises
    ------
    tvm.error.OpNotImplemented
        If it does, unless the windows are a partition of the axis; the message names the node.
    """
    for node in program.graph.nodes:
        for view in _written(node):
            while isinstance(view, fx.Node) and _aliases(view):
                if view.target is torch.ops.aten.unfold.default and not _is_partition(view):
                    raise OpNotImplemented(
                        f"{node.target} {node.name!r} writes to the windows of {view.name!r} "
                        f"(aten.unfold), which PyTorch decomposes to other values; write to slices"
                    )
                view = view.args[0]


def _written(node: fx.Node) -> list[Any]:
    """The arguments that a node writes to."""
    schema = getattr(node.target, "_schema", None)
    arguments = [] if schema is None else zip(schema.arguments, node.args, strict=False)
    return [value for of, value in arguments if of.alias_info and of.alias_info.is_write]


def _aliases(node: fx.Node) -> bool:
    """Whether the result of a node is its first argument, or a view of it."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info for result in schema.returns)


def _is_partition(unfold: fx.Node) -> bool:
    data, axis, size, step = unfold.args
    extent = data.meta["val"].shape[axis]
    return bool(size == step and extent % size == 0)


def check_buffers(program: ExportedProgram) -> None:
    """Check that no output depends on a buffer that the program writes to.

    The compiled program does not keep what it writes for the next run.  Statistics that it only
    counts, such as those of a batch norm in training mode, are not read.

    Parameters
    ----------
    program : ExportedProgram
        A decomposed program; its mutations are in the graph's signature.

    Raises
    ------
    tvm.error.OpNotImplemented
        If one does; the message names the buffer.
    """
    signature = program.graph_signature
    written = set(signature.buffers_to_mutate.values())
    output = next(node for node in program.graph.nodes if node.op == "output")
    kept = [
        value
        for spec, value in zip(signature.output_specs, output.args[0], strict=True)
        if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.USER_INPUT_MUTATION)
    ]
    read = {node for node in kept if isinstance(node, fx.Node)}
    for node in reversed(program.graph.nodes):
        if node in read:
            read.update(node.all_input_nodes)
    for node in read:
        name = signature.inputs_to_buffers.get(node.name)
        if name in written:
            raise OpNotImplemented(
                f"the program reads the buffer {name!r} and writes to it, and the compiled model "
                "does not keep the new value for the next run; make it an input"
            )


def returning_updates(program: ExportedProgram) -> tuple[ExportedProgram, dict[str, int]]:
    """The program with the final values of mutated inputs as additional, last outputs.

    Parameters
    ----------
    program : ExportedProgram
        A decomposed program; its mutations are in the graph's signature.

    Returns
    -------
    program : ExportedProgram
        The same one if it mutates no input.
    updates : dict of str to int
        For each mutated input, the index of the output with its final value.
    """
    signature = program.graph_signature
    output = next(node for node in program.graph.nodes if node.op == "output")
    pairs = list(zip(signature.output_specs, output.args[0], strict=True))
    mutated = [pair for pair in pairs if pair[0].kind is OutputKind.USER_INPUT_MUTATION]
    if not mutated:
        return program, {}
    kept = [pair for pair in pairs if pair[0].kind is OutputKind.USER_OUTPUT]
    updates = {str(spec.target): len(kept) + n for n, (spec, _) in enumerate(mutated)}
    returned = [
        *kept,
        *((OutputSpec(OutputKind.USER_OUTPUT, s.arg, None), value) for s, value in mutated),
    ]
    return _with_outputs(program, returned), updates


def without_updates(program: ExportedProgram) -> ExportedProgram:
    """The program without the final values of what it mutates."""
    output = next(node for node in program.graph.nodes if node.op == "output")
    pairs = list(zip(program.graph_signature.output_specs, output.args[0], strict=True))
    kept = [pair for pair in pairs if pair[0].kind is OutputKind.USER_OUTPUT]
    return program if len(kept) == len(pairs) else _with_outputs(program, kept)


def _with_outputs(
    program: ExportedProgram, returned: list[tuple[OutputSpec, Any]]
) -> ExportedProgram:
    """The program with other outputs."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(program.graph, copies)
    graph.output(tuple(fx.map_arg(value, copies.__getitem__) for _, value in returned))
    changed = copy.copy(program)
    changed._graph_module = fx.GraphModule(program.graph_module, graph)
    changed._graph_signature = ExportGraphSignature(
        program.graph_signature.input_specs, [spec for spec, _ in returned]
    )
    return changed
