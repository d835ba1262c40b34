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
"""The inputs and outputs of a subgraph: their names and shapes."""

from collections.abc import Mapping, Sequence

from ....errors import UsageError
from ..file.model import SubGraph

__all__ = ["dims_of", "input_names", "output_names"]

_BATCH = "batch"


def input_names(graph: SubGraph) -> list[str]:
    """The names of the inputs: those of their tensors, made unique."""
    return _names(graph, graph.inputs, "input")


def output_names(graph: SubGraph) -> list[str]:
    """The names of the outputs: those of their tensors, made unique."""
    return _names(graph, graph.outputs, "output")


def _names(graph: SubGraph, indices: Sequence[int], kind: str) -> list[str]:
    names: list[str] = []
    for place, index in enumerate(indices):
        name = graph.tensors[index].name or f"{kind}_{place}"
        while name in names:
            name += "_"
        names.append(name)
    return names


def dims_of(
    graph: SubGraph, shapes: Mapping[str, Sequence[int | str]]
) -> dict[str, tuple[int | str, ...]]:
    """The shapes of the inputs by name; `shapes` set sizes and names of open dims.

    An open first dim is called ``batch`` in all inputs, another one after its input and axis.

    Raises
    ------
    UsageError
        If an input is unknown, or a shape does not fit the declared one.
    """
    names = input_names(graph)
    unknown = [name for name in shapes if name not in names]
    if unknown:
        raise UsageError(
            f"shape given for unknown input {unknown[0]!r}; inputs: {', '.join(names)}"
        )
    dims: dict[str, tuple[int | str, ...]] = {}
    for place, (name, index) in enumerate(zip(names, graph.inputs, strict=True)):
        declared = graph.tensors[index].signature
        default = tuple(
            dim if dim >= 0 else _BATCH if axis == 0 else f"dim_{place}_{axis}"
            for axis, dim in enumerate(declared)
        )
        given = tuple(shapes.get(name, default))
        fits = len(given) == len(declared) and all(
            want < 0 or want == got for got, want in zip(given, declared, strict=True)
        )
        if not fits:
            raise UsageError(f"input {name!r}: expected shape {list(default)}, got {list(given)}")
        dims[name] = given
    return dims
