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
"""Parts of PyTorch programs."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from ..frontend.torch.graph.signature import call_arguments
from ..support.tensors import to_numpy, to_torch
from .parts import Candidate, Parts, Text, describe

Arrays = Mapping[str, np.ndarray]


class TorchParts(Parts):
    """The operators of a PyTorch program, with all dims static.

    A ``getitem`` belongs to the operator whose result it reads.  Numbers at a cut become literals.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    inputs : sequence of numpy.ndarray
        The values of all inputs, in order.
    """

    def __init__(self, program: torch.export.ExportedProgram, inputs: Sequence[np.ndarray]) -> None:
        module = program.module()
        self._module, graph = module, module.graph
        self._nodes = list(graph.nodes)
        self._results = _Recorder(module).record(program, inputs)
        starts = [n for n in self._nodes if n.op == "call_function" and not _is_part(n)]
        starts = [n for n in starts if not _is_check(n)]
        place = {node: number for number, node in enumerate(starts)}
        for node in self._nodes:
            if _is_part(node) and node.args[0] in place:
                place[node] = place[node.args[0]]
        self._place: dict[fx.Node, int] = place
        self.operators = [_name_of(node) for node in starts]

    def cut(self, kept: Sequence[int]) -> "TorchCandidate | None":
        wanted = set(kept)
        nodes = [n for n in self._nodes if self._place.get(n) in wanted]
        if not nodes:
            return None
        graph = fx.Graph()
        made: dict[fx.Node, Any] = {}
        inputs: dict[str, np.ndarray] = {}
        tensors: dict[str, torch.Tensor] = {}
        read = dict.fromkeys(
            one for node in nodes for one in node.all_input_nodes if one not in set(nodes)
        )
        for node in read:
            value = self._results.get(node)
            if isinstance(value, torch.Tensor):
                if node.op == "get_attr":
                    tensors[node.name] = value
                    made[node] = graph.get_attr(node.name)
                else:
                    inputs[node.name] = to_numpy(value)
                    made[node] = graph.placeholder(node.name)
            elif isinstance(value, int | float | bool):
                made[node] = value
            else:
                return None
        for node in nodes:
            made[node] = graph.create_node(
                node.op,
                node.target,
                fx.map_arg(node.args, made.__getitem__),
                fx.map_arg(node.kwargs, made.__getitem__),
                node.name,
            )
        outputs = [
            node
            for node in nodes
            if isinstance(self._results.get(node), torch.Tensor)
            and (not node.users or any(user not in set(nodes) for user in node.users))
        ]
        if not outputs:
            return None
        graph.output(tuple(made[node] for node in outputs))
        return TorchCandidate(f"operators {describe(kept)}", inputs, graph=graph, tensors=tensors)


class _Recorder(fx.Interpreter):
    """Runs a program, and keeps copies of all values."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.results: dict[fx.Node, Any] = {}

    def run_node(self, node: fx.Node) -> Any:
        result = super().run_node(node)
        # A later operator may write to it.
        self.results[node] = pytree.tree_map_only(torch.Tensor, lambda t: t.clone(), result)
        return result

    def record(
        self, program: torch.export.ExportedProgram, inputs: Sequence[np.ndarray]
    ) -> dict[fx.Node, Any]:
        args, kwargs = call_arguments(program, [to_torch(value) for value in inputs])
        with torch.no_grad():
            self.run(*pytree.tree_leaves((args, kwargs)))
        return self.results


@dataclass(frozen=True)
class TorchCandidate(Candidate):
    """A part of a PyTorch program.

    Attributes
    ----------
    graph : torch.fx.Graph
    tensors : mapping of str to torch.Tensor
        The parameters and buffers by name.
    """

    graph: fx.Graph = field(default_factory=fx.Graph)
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def operators(self) -> list[str]:
        calls = [node for node in self.graph.nodes if node.op == "call_function"]
        return [_name_of(node) for node in calls if not _is_part(node)]

    def _module(self) -> fx.GraphModule:
        root = nn.Module()
        for name, tensor in self.tensors.items():
            root.register_buffer(name, tensor)
        return fx.GraphModule(root, self.graph).eval()

    def model(self) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        return self._module(), tuple(map(to_torch, self.inputs.values()))

    def save(self, folder: Path) -> Path:
        path = folder / "model.pt2"
        module, inputs = self.model()
        torch.export.save(torch.export.export(module, inputs), path)
        return path

    def simpler(self) -> "Iterator[TorchCandidate]":
        """With one of the outputs."""
        [results] = self.graph.output_node().args
        assert isinstance(results, tuple)
        for number, result in enumerate(results if len(results) > 1 else ()):
            graph = fx.Graph()
            copies: dict[fx.Node, Any] = {}
            graph.graph_copy(self.graph, copies)
            graph.output((copies[result],))
            graph.eliminate_dead_code()
            for node in list(graph.nodes):
                if node.op in ("placeholder", "get_attr") and not node.users:
                    graph.erase_node(node)
            left = {node.name for node in graph.nodes}
            yield replace(
                self,
                label=f"{self.label}; output {number}",
                graph=graph,
                inputs={name: value for name, value in self.inputs.items() if name in left},
                tensors={name: value for name, value in self.tensors.items() if name in left},
            )

    def constants(self) -> dict[str, np.ndarray]:
        return {name: to_numpy(tensor) for name, tensor in self.tensors.items()}

    def _with_constants(self, new: Arrays) -> Self:
        changed = {name: to_torch(array) for name, array in new.items() if name in self.tensors}
        return replace(self, tensors={**self.tensors, **changed})

    def text(self) -> Text:
        code = self.graph.python_code("self")
        body = [line for line in code.src.splitlines() if line.strip()]
        arrays = {**self.inputs, **self.constants()}
        got = "one.numpy()"
        if "bfloat16" in " ".join([code.src, *(array.dtype.name for array in arrays.values())]):
            got += " if one.dtype != torch.bfloat16 else one.float().numpy()"
        tensors = [_tensor(f"inputs[{name!r}]", array) for name, array in self.inputs.items()]
        buffers = {
            name: _tensor(f"constants[{name!r}]", array) for name, array in self.constants().items()
        }
        return Text(
            name="PyTorch",
            imports=("torch",),
            reference_imports=(),
            stock_imports=("from tvm.relax.frontend.torch import from_exported_program",),
            model=[
                "",
                "",
                "class Model(torch.nn.Module):",
                "    def __init__(self):",
                "        super().__init__()",
                *(
                    f"        self.register_buffer({name!r}, {one})"
                    for name, one in buffers.items()
                ),
                "",
                *(f"    {line}".replace(" : torch.Tensor", "") for line in body),
                "",
                "",
            ],
            stock=["mod = from_exported_program(torch.export.export(*model))"],
            reference=[
                "",
                "",
                "def reference():",
                "    with torch.no_grad():",
                f"        return [{got} for one in model[0](*model[1])]",
                "",
                "",
                "expected = reference()",
            ],
            inputs=dict(self.inputs),
            constants=self.constants(),
            drawn=dict(self.drawn),
            wrap=[f"model = (Model().eval(), ({''.join(f'{one}, ' for one in tensors)}))"],
        )


def _tensor(expression: str, array: np.ndarray) -> str:
    """The text that makes a tensor of an array."""
    if array.dtype.name == "bfloat16":  # PyTorch does not read that of ml_dtypes
        return f"torch.tensor({expression}.astype('float32')).bfloat16()"
    return f"torch.tensor({expression})"


def _is_part(node: fx.Node) -> bool:
    """Whether a node reads a field of an operator's result."""
    return node.target is operator.getitem


def _is_check(node: fx.Node) -> bool:
    """Whether a node only checks values."""
    name = str(node.target)
    return "_assert" in name or "sym_constrain" in name


def _name_of(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target)).removesuffix(".default")
