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
"""The signature of an exported PyTorch program: its arguments and results as the module names them.

Upstream
    No thread is known.
Versions
    Seen in 0.27.0.post1.
Trigger
    A program with a number, a string or None among its arguments, as ``export(m, (x, 3))`` makes
    it, also a dynamic int; or one that returns numbers or strings.
Symptom
    ``AttributeError: 'int' object has no attribute 'shape'``; ``Unsupported output type in exported
    graph output``.
Mechanism
    TVM's importer reads the shape and the dtype of each placeholder, and converts only tensors and
    None to outputs.
How to remove
    When TVM's importer accepts such programs, delete what ``Sizes`` overrides for them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from torch.utils import _pytree as pytree

from ....support.tensors import leaves_with_paths

__all__ = [
    "Argument",
    "Result",
    "arguments_of",
    "call_arguments",
    "constant_inputs",
    "results_of",
]

Path: TypeAlias = tuple[str | int, ...]
Constant: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True)
class Argument:
    """A leaf of the arguments that a program is called with.

    Attributes
    ----------
    path : tuple of (str or int)
        The name of the parameter, and the keys and places that lead to a nested leaf.
    node : str
        The name of its placeholder in the graph.
    is_constant : bool
        Whether the program was exported for `value` and accepts no other.
    value : bool, int, float, str or None
        The value of a constant.
    """

    path: Path
    node: str
    is_constant: bool
    value: Constant

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path))


@dataclass(frozen=True)
class Result:
    """A leaf of what a program returns: its name, and its value if that is a constant."""

    name: str
    is_constant: bool
    value: Constant

    @property
    def vanishes(self) -> bool:
        """Whether it has no tensor: it is None or a string."""
        return self.is_constant and (self.value is None or isinstance(self.value, str))


def arguments_of(program: ExportedProgram) -> list[Argument]:
    """The leaves of the arguments, in the order of the program's placeholders."""
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    paths = list(_argument_paths(program))
    if len(paths) != len(specs):
        paths = [(spec.arg.name,) for spec in specs]
    return [_argument(path, spec) for path, spec in zip(paths, specs, strict=True)]


def _argument(path: Path, spec: InputSpec) -> Argument:
    is_constant = isinstance(spec.arg, ConstantArgument)
    return Argument(path, spec.arg.name, is_constant, spec.arg.value if is_constant else None)


def _argument_paths(program: ExportedProgram) -> Iterator[Path]:
    """The path of each leaf of the program's call."""
    spec = program.call_spec.in_spec
    names = getattr(program.module_call_graph[0].signature, "forward_arg_names", None) or []
    inputs = [s.arg for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    for part, name, *rest in _paths(program, spec, inputs):
        if part == 0:
            # Each positional argument has a name, also those of ``*args``.
            assert isinstance(name, int)
            name = names[name] if name < len(names) else f"arg{name}"
        yield (name, *rest)


def _paths(program: ExportedProgram, spec: Any, arguments: Sequence[Any]) -> list[Path]:
    """The path of each leaf of a structure."""
    try:
        made = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        # Some classes, such as the caches of transformers, are made only of tensors that fit.
        nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
        made = pytree.tree_unflatten([_like(nodes.get(each.name)) for each in arguments], spec)
    return [path for path, _ in leaves_with_paths(made)]


def _like(value: Any) -> Any:
    """A tensor of the shape of another, without elements in memory."""
    if not isinstance(value, torch.Tensor):
        return value
    shape = [dim if isinstance(dim, int) else 2 for dim in value.shape]
    return torch.empty(shape, dtype=value.dtype, device="meta")


def results_of(program: ExportedProgram) -> list[Result]:
    """The leaves of the outputs; those without a key are called ``output`` and their place."""
    spec = program.call_spec.out_spec
    specs = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    found: list[Result] = []
    paths = _paths(program, spec, [output.arg for output in specs])
    for path, output in zip(paths, specs, strict=True):
        name = ".".join(map(str, path))
        found.append(_result(name if name and not name[0].isdigit() else f"output{name}", output))
    return found


def _result(name: str, spec: OutputSpec) -> Result:
    is_constant = isinstance(spec.arg, ConstantArgument)
    return Result(name, is_constant, spec.arg.value if is_constant else None)


def call_arguments(
    program: ExportedProgram, values: Sequence[torch.Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments of a call with `values`, which leave out constants."""
    rest = iter(values)
    sizes = {
        node.name
        for node in program.graph.find_nodes(op="placeholder")
        if isinstance(node.meta.get("val"), torch.SymInt)
    }
    leaves: list[Any] = []
    value: Any
    for argument in arguments_of(program):
        value = argument.value if argument.is_constant else next(rest)
        leaves.append(value.item() if argument.node in sizes else value)
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return args, kwargs


def constant_inputs(program: ExportedProgram) -> dict[str, Constant]:
    """The placeholders of a program's inputs that are constants, and their values."""
    return {a.node: a.value for a in arguments_of(program) if a.is_constant}
