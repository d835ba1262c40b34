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
"""Example inputs of a traced module, from the shapes and dtypes that ``from_fx`` takes."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import fx
from tvm import tirx
from tvm.sym import Analyzer

from ....errors import OpAttributeInvalid
from ...extents import static_extent

__all__ = ["Dim", "Example", "TracedInputs", "is_number"]

Dim: TypeAlias = int | tirx.Expr

# The first extent of the symbolic dims in each attempt to export; a module may need a multiple of
# a power of two, an image of some size, a short sequence, or extents without common divisors.
_FIRST_EXTENTS = (8, 64, 320, 2, 11)


def is_number(placeholder: fx.Node) -> bool:
    """Whether Dynamo made a placeholder for an extent, which ``from_fx`` takes no input for."""
    argument = placeholder.meta.get("grapharg")
    if argument is not None and argument.fake_tensor is None:
        return True
    return isinstance(placeholder.meta.get("example_value"), torch.SymInt)


@dataclass(frozen=True)
class Example:
    """Inputs to export with, and their dynamic dims.

    Attributes
    ----------
    inputs : tuple of torch.Tensor
        Uninitialized tensors.
    dynamic : tuple of dict
        For each input, PyTorch's dims by axis.
    """

    inputs: tuple[torch.Tensor, ...]
    dynamic: tuple[dict[int, Any], ...]


@dataclass(frozen=True)
class TracedInputs:
    """The inputs of a traced module.

    Attributes
    ----------
    shapes : list of list of int or tirx.Expr
    dtypes : list of torch.dtype
    device : torch.device
        The device of the module.
    hints : mapping of str to int
        The extents that Dynamo traced with, by the names of their variables.
    """

    shapes: list[list[Dim]]
    dtypes: list[torch.dtype]
    device: torch.device
    hints: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(
        model: fx.GraphModule, input_info: Sequence[tuple[Sequence[Any], Any]]
    ) -> "TracedInputs":
        """Read the ``input_info`` of ``from_fx``."""
        shapes = [[_dim(extent) for extent in shape] for shape, _ in input_info]
        dtypes = [_torch_dtype(dtype) for _, dtype in input_info]
        return TracedInputs(shapes, dtypes, _device_of(model), _hints_of(model))

    def places(self) -> dict[str, tuple[int, int]]:
        """The input and the axis of the first dim that is each variable, by its name."""
        found: dict[str, tuple[int, int]] = {}
        for index, axis, dim in self._symbolic():
            if isinstance(dim, tirx.Var):
                found.setdefault(dim.name, (index, axis))
        return found

    def examples(self) -> Iterator[Example]:
        """Yield the examples to try, the most general ones first."""
        dims = {str(dim): dim for _, _, dim in self._symbolic()}
        if not dims:
            yield self._example({}, {})
            return
        names = dict(zip(dims, _names(dims), strict=True))
        attempts = [_extents(dims, first, {}) for first in _FIRST_EXTENTS]
        if self.hints:
            # The last one: PyTorch takes dims of equal extents for equal.
            attempts.append(_extents(dims, _FIRST_EXTENTS[0], self.hints))
        named = {text: torch.export.Dim(name, min=0) for text, name in names.items()}
        yield self._example(attempts[0], named)
        for extents in attempts:
            # PyTorch finds relations between the dims.
            yield self._example(extents, dict.fromkeys(dims, torch.export.Dim.AUTO))

    def _symbolic(self) -> Iterator[tuple[int, int, tirx.Expr]]:
        for index, shape in enumerate(self.shapes):
            for axis, dim in enumerate(shape):
                if not isinstance(dim, int):
                    yield index, axis, dim

    def _example(self, extents: Mapping[str, int], dims: Mapping[str, Any]) -> Example:
        shapes = [
            [dim if isinstance(dim, int) else extents[str(dim)] for dim in shape]
            for shape in self.shapes
        ]
        inputs = tuple(
            torch.empty(shape, dtype=dtype, device=self.device)
            for shape, dtype in zip(shapes, self.dtypes, strict=True)
        )
        dynamic: tuple[dict[int, Any], ...] = tuple({} for _ in inputs)
        for index, axis, dim in self._symbolic():
            dynamic[index][axis] = dims[str(dim)]
        return Example(inputs, dynamic)


def _dim(extent: Any) -> Dim:
    """Return an extent of ``input_info`` as an int or an expression."""
    static = static_extent(extent)
    if static is not None:
        return static
    return extent if isinstance(extent, tirx.Expr) else int(extent)


def _torch_dtype(dtype: Any) -> torch.dtype:
    name = str(dtype).removeprefix("torch.")
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise OpAttributeInvalid(
            f"from_fx: input_info has the dtype {dtype}; expected the name of a dtype of PyTorch"
        )
    return found


def _device_of(model: fx.GraphModule) -> torch.device:
    for node in model.graph.find_nodes(op="placeholder"):
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            return value.device
    tensors = itertools.chain(model.parameters(), model.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def _hints_of(model: fx.GraphModule) -> dict[str, int]:
    """The extents that Dynamo traced `model` with."""
    hints: dict[str, int] = {}
    for node in model.graph.find_nodes(op="placeholder"):
        value = node.meta.get("example_value")
        sizes = value.shape if isinstance(value, torch.Tensor) else [value]
        for size in sizes:
            if isinstance(size, torch.SymInt) and size.node.hint is not None:
                hints[str(size)] = size.node.hint
    return hints


def _names(dims: Mapping[str, tirx.Expr]) -> Iterator[str]:
    """A distinct name of a dim of PyTorch for each of `dims`, which its messages use."""
    taken: set[str] = set()
    for number, text in enumerate(dims):
        name = text if text.isidentifier() and text not in taken else f"dim{number}"
        taken.add(name)
        yield name


def _extents(dims: Mapping[str, tirx.Expr], first: int, hints: Mapping[str, int]) -> dict[str, int]:
    """An extent for each of `dims`; those of different variables differ."""
    analyzer, taken = Analyzer(), set[str]()
    for dim in dims.values():
        for variable in tirx.analysis.undefined_vars(dim):
            if variable.name not in taken:
                value = hints.get(variable.name, first * (len(taken) + 1))
                analyzer.bind(variable, tirx.const(value, str(variable.ty.dtype)))
                taken.add(variable.name)
    return {text: int(analyzer.simplify(dim)) for text, dim in dims.items()}
