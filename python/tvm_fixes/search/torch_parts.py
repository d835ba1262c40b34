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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from ..frontend.torch.graph.signature import call_arguments
from ..support.tensors import to_numpy, to_torch
from .parts import Candidate, Parts, Text, describe

Arrays = Mapping[str, np.ndarray]
Ranges: TypeAlias = Mapping[int, tuple[int, int | None]]
"""The smallest and the largest size of each symbolic axis; None is no limit."""

# A larger limit does not count.
_MAX_SIZE = 1 << 31
# Marks the nodes of a part that compute a size: they are no operators of the model.
_SIZE, _VIEW = "tvm_fixes.size", "tvm_fixes.view"
_HELPERS = {_SIZE, _VIEW}
"""The marks of calls that compute sizes, or view complex numbers as real ones or reversely."""


class TorchParts(Parts):
    """The operators of a PyTorch program.

    A ``getitem`` belongs to the operator whose result it reads.  Numbers at a cut become literals,
    except for sizes: a part computes them again, so that its symbolic dims remain symbolic.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    inputs : sequence of numpy.ndarray
        The values of all inputs, in order.
    """

    def __init__(self, program: torch.export.ExportedProgram, inputs: Sequence[np.ndarray]) -> None:
        module = program.module()
        self._module, graph = module, module.graph
        self._ranges = program.range_constraints
        self._nodes = list(graph.nodes)
        self._results = _Recorder(module).record(program, inputs)
        self._sizes = {n for n in self._nodes if _is_size(n)}
        starts = [n for n in self._nodes if n.op == "call_function" and not _is_part(n)]
        starts = [n for n in starts if n not in self._sizes and not _is_check(n)]
        place = {node: number for number, node in enumerate(starts)}
        for node in self._nodes:
            if _is_part(node) and node.args[0] in place:
                place[node] = place[node.args[0]]
        self._place: dict[fx.Node, int] = place
        self.operators = [_name_of(node) for node in starts]

    def cut(self, kept: Sequence[int]) -> "TorchCandidate | None":
        wanted = set(kept)
        inside = {n for n in self._nodes if self._place.get(n) in wanted}
        if not inside:
            return None
        read, sizes = self._read(inside)
        graph = fx.Graph()
        made: dict[fx.Node, Any] = {}
        inputs: dict[str, np.ndarray] = {}
        tensors: dict[str, torch.Tensor] = {}
        for node in read:
            value = self._results.get(node)
            if isinstance(value, torch.Tensor):
                if node.op == "get_attr":
                    tensors[node.name] = value
                    made[node] = graph.get_attr(node.name)
                else:
                    inputs[node.name] = to_numpy(_as_real(value))
                    made[node] = graph.placeholder(node.name)
            elif isinstance(value, int | float | bool):
                made[node] = value
            else:
                return None
        for node in read:
            if node.name in inputs and self._results[node].is_complex():
                made[node] = _viewed(graph, made[node], torch.ops.aten.view_as_complex.default)
        for node in self._nodes:
            if node in inside or node in sizes:
                call = sizes.get(node, (node.target, node.args, node.kwargs))
                made[node] = _copied(graph, node, call, made)
        outputs = [node for node in self._nodes if node in inside and self._is_result(node, inside)]
        if not outputs:
            return None
        for node in outputs:
            if self._results[node].is_complex():
                plain = _viewed(graph, made[node], torch.ops.aten.resolve_conj.default)
                made[node] = _viewed(graph, plain, torch.ops.aten.view_as_real.default)
        graph.output(tuple(made[node] for node in outputs))
        return TorchCandidate(
            f"operators {describe(kept)}",
            inputs,
            graph=graph,
            tensors=tensors,
            ranges={node.name: self._ranges_of(node) for node in read if node.name in inputs},
            hints={n.name: shape for n in read if n.name in inputs and (shape := _hint(n))},
        )

    def _read(
        self, inside: set[fx.Node]
    ) -> tuple[dict[fx.Node, None], dict[fx.Node, tuple[Any, Any, Any]]]:
        """The values that a part reads of the rest, and the calls that compute its sizes."""
        pending = list(
            dict.fromkeys(one for n in self._nodes if n in inside for one in n.all_input_nodes)
        )
        read = dict.fromkeys(n for n in pending if n not in inside and n not in self._sizes)
        pending = [node for node in pending if node in self._sizes]
        sizes: dict[fx.Node, tuple[Any, Any, Any]] = {}
        while pending:
            size = pending.pop()
            if size in sizes:
                continue
            found = next(self._equal_dims(size, read), None)
            if found is not None:
                sizes[size] = (torch.ops.aten.sym_size.int, found, {})
                continue
            if size.op == "placeholder":
                read[size] = None
                continue
            sizes[size] = (size.target, size.args, size.kwargs)
            for node in size.all_input_nodes:
                if node in self._sizes:
                    pending.append(node)
                elif node not in inside:
                    read[node] = None
        return read, sizes

    def _equal_dims(self, size: fx.Node, read: Iterable[fx.Node]) -> Iterator[tuple[fx.Node, int]]:
        """The dims of tensors that always have a size."""
        for node in read:
            for axis, dim in enumerate(_symbolic_shape(node)):
                if isinstance(dim, torch.SymInt) and dim.node.expr == size.meta["val"].node.expr:
                    yield node, axis

    def _is_result(self, node: fx.Node, inside: set[fx.Node]) -> bool:
        readers = [user for user in node.users if user not in self._sizes]
        is_read = not readers or any(user not in inside for user in readers)
        return is_read and isinstance(self._results.get(node), torch.Tensor)

    def _ranges_of(self, node: fx.Node) -> Ranges:
        ranges: dict[int, tuple[int, int | None]] = {}
        for axis, dim in enumerate(_symbolic_shape(node)):
            if isinstance(dim, torch.SymInt) and dim.node.has_hint():
                limits = self._ranges.get(dim.node.expr)
                low = int(limits.lower) if limits else 0
                has_end = limits is not None and limits.upper < _MAX_SIZE
                ranges[axis] = low, int(limits.upper) if has_end else None
        return ranges


def _copied(
    graph: fx.Graph, node: fx.Node, call: tuple[Any, Any, Any], made: Mapping[fx.Node, Any]
) -> fx.Node:
    """A copy of a node, or of another call in its place."""
    target, args, kwargs = call
    copied = graph.create_node(
        "call_function",
        target,
        fx.map_arg(args, made.__getitem__),
        fx.map_arg(kwargs, made.__getitem__),
        node.name,
    )
    if _is_size(node):
        copied.meta[_SIZE] = True
    return copied


def _viewed(graph: fx.Graph, node: fx.Node, operator: Any) -> fx.Node:
    """A view of a value: inputs and outputs of a part are real."""
    view = graph.call_function(operator, (node,))
    view.meta[_VIEW] = True
    return view


def _as_real(value: torch.Tensor) -> torch.Tensor:
    """A tensor; a complex one with an axis for its parts."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


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
    ranges : mapping of str to Ranges
        The symbolic axes of each input.
    hints : mapping of str to tuple of int
        The shapes of inputs in the example of the model.
    """

    graph: fx.Graph = field(default_factory=fx.Graph)
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)
    ranges: Mapping[str, Ranges] = field(default_factory=dict)
    hints: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def operators(self) -> list[str]:
        calls = [node for node in self.graph.nodes if node.op == "call_function"]
        calls = [node for node in calls if not _is_part(node) and not _HELPERS & node.meta.keys()]
        return [_name_of(node) for node in calls]

    @property
    def symbolic(self) -> dict[str, tuple[int, ...]]:
        axes = {name: tuple(self.ranges.get(name, ())) for name in self.inputs}
        return {name: one for name, one in axes.items() if one}

    def _module(self) -> fx.GraphModule:
        root = nn.Module()
        for name, tensor in self.tensors.items():
            root.register_buffer(name, tensor)
        return fx.GraphModule(root, self.graph).eval()

    def model(self) -> tuple[Any, ...]:
        module, shapes = self._module(), self._example_shapes()
        if not self.symbolic:
            return module, tuple(map(to_torch, self.inputs.values()))
        inputs = {
            name: array if array.shape == shapes[name] else np.zeros(shapes[name], array.dtype)
            for name, array in self.inputs.items()
        }
        return module, tuple(map(to_torch, inputs.values())), None, self._dynamic_shapes()

    def _example_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs for the export: PyTorch makes dims of sizes 0 and 1 static."""
        shapes = {name: array.shape for name, array in self.inputs.items()}
        sizes = [shapes[name][axis] for name, axes in self.symbolic.items() for axis in axes]
        return shapes if min(sizes, default=2) > 1 else {**shapes, **self.hints}

    def _dynamic_shapes(self) -> tuple[Any, ...]:
        auto = torch.export.Dim.AUTO
        return tuple(
            {axis: auto(min=low or None, max=high) for axis, (low, high) in ranges.items()} or None
            for ranges in (self.ranges.get(name, {}) for name in self.inputs)
        )

    def save(self, folder: Path) -> Path:
        path = folder / "model.pt2"
        module, inputs, *rest = self.model()
        dynamic = rest[1] if rest else None
        torch.export.save(torch.export.export(module, inputs, dynamic_shapes=dynamic), path)
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
        arguments = "*model[:2], dynamic_shapes=model[3]" if self.symbolic else "*model"
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
            stock=[f"mod = from_exported_program(torch.export.export({arguments}))"],
            reference=[
                "",
                "",
                "def reference():",
                "    with torch.no_grad():",
                f"        return [{got} for one in model[0](*tensors)]",
                "",
                "",
                "expected = reference()",
            ],
            inputs=dict(self.inputs),
            constants=self.constants(),
            drawn=dict(self.drawn),
            wrap=[f"tensors = ({''.join(f'{one}, ' for one in tensors)})", *self._wrap()],
        )

    def _wrap(self) -> list[str]:
        """The lines that define `model`, given `tensors`."""
        if not self.symbolic:
            return ["model = (Model().eval(), tensors)"]
        shapes = self._example_shapes()
        example = "tensors"
        if any(array.shape != shapes[name] for name, array in self.inputs.items()):
            pairs = zip(shapes.values(), range(len(shapes)), strict=True)
            made = [f"torch.zeros({shape}, dtype=tensors[{n}].dtype), " for shape, n in pairs]
            example = f"({''.join(made)})"
        dims = [
            ", ".join(f"{axis}: {_dim(*limits)}" for axis, limits in ranges.items())
            for ranges in (self.ranges.get(name, {}) for name in self.inputs)
        ]
        dynamic = "".join(f"{{{one}}}, " if one else "None, " for one in dims)
        return [f"model = (Model().eval(), {example}, None, ({dynamic}))"]


def _dim(low: int, high: int | None) -> str:
    """The text of a symbolic dim."""
    limits = [f"min={low}"] if low else []
    limits += [] if high is None else [f"max={high}"]
    return f"torch.export.Dim.AUTO{'(' + ', '.join(limits) + ')' if limits else ''}"


def _tensor(expression: str, array: np.ndarray) -> str:
    """The text that makes a tensor of an array."""
    if array.dtype.name == "bfloat16":  # PyTorch does not read that of ml_dtypes
        return f"torch.tensor({expression}.astype('float32')).bfloat16()"
    return f"torch.tensor({expression})"


def _is_part(node: fx.Node) -> bool:
    """Whether a node reads a field of an operator's result."""
    return node.target is operator.getitem


def _is_size(node: fx.Node) -> bool:
    """Whether a node computes a number from the sizes of dims."""
    value = node.meta.get("val")
    return isinstance(value, torch.SymInt) and value.node.has_hint()


def _symbolic_shape(node: fx.Node) -> Sequence[int | torch.SymInt]:
    value = node.meta.get("val")
    return value.shape if isinstance(value, torch.Tensor) else ()


def _hint(node: fx.Node) -> tuple[int, ...] | None:
    """The shape of a tensor in the example of the program; None if it is unknown."""
    dims = _symbolic_shape(node)
    if any(isinstance(dim, torch.SymInt) and not dim.node.has_hint() for dim in dims):
        return None
    parts = (2,) if dims and node.meta["val"].is_complex() else ()
    return *(dim if isinstance(dim, int) else int(dim.node.hint) for dim in dims), *parts


def _is_check(node: fx.Node) -> bool:
    """Whether a node only checks values."""
    name = str(node.target)
    return "_assert" in name or "sym_constrain" in name


def _name_of(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target)).removesuffix(".default")
