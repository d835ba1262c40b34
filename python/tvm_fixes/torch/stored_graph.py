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

"""Graphs of ATen operators as values of JSON, from which they are made again."""

import keyword
import struct
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from .graph_text import FUNCTIONS, operands_text, target_text

__all__ = ["graph_of", "values_of_graph"]

_MAX_CONSTANT_BYTES = 1 << 16

_BY_NAME = {name: function for function, name in FUNCTIONS.items()}

_KINDS: dict[str, type] = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


def values_of_graph(module: fx.GraphModule) -> dict[str, Any]:
    """A graph as values of JSON, without the modules that it calls.

    Raises
    ------
    TypeError
        If it has a value that cannot be written.
    """
    constants: dict[str, Any] = {}
    nodes = []
    for node in module.graph.nodes:
        if node.op == "get_attr":
            target: Any = str(node.target)
            constants[target] = _constant_values(getattr(module, target, None))
        else:
            target = target_text(module, node)
        nodes.append([node.op, node.name, target, *operands_text(node)])
    return {"nodes": nodes, "constants": constants}


def graph_of(values: Mapping[str, Any], modules: Mapping[str, nn.Module]) -> fx.GraphModule:
    """The graph that `values` stand for.

    Parameters
    ----------
    values : mapping
        The result of :func:`values_of_graph`.
    modules : mapping of str to torch.nn.Module
        The modules that the graph calls.

    Raises
    ------
    ValueError
        If they do not stand for a graph here.
    """
    root = nn.Module()
    for name, module in modules.items():
        root.add_module(name, module)
    for name, constant in values["constants"].items():
        setattr(root, name, _constant(*constant))
    graph = fx.Graph()
    nodes: dict[str, fx.Node] = {}
    for op, name, target, args, kwargs in values["nodes"]:
        operands = tuple(_read(arg, nodes) for arg in args)
        named = {_identifier(key): value for key, value in _read(kwargs, nodes).items()}
        called = _called(target) if op == "call_function" else _identifier(target)
        nodes[name] = graph.create_node(op, called, operands, named, name)
    return fx.GraphModule(root, graph)


def _constant_values(tensor: Any) -> list[Any]:
    if not isinstance(tensor, torch.Tensor) or type(tensor) not in (torch.Tensor, nn.Parameter):
        raise TypeError(f"a {type(tensor).__name__}")
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided
    if not plain or not tensor.is_contiguous() or tensor.nbytes > _MAX_CONSTANT_BYTES:
        raise TypeError(f"a constant of {tensor.nbytes} bytes on {tensor.device}")
    elements = tensor.detach().clone().reshape(-1).view(torch.uint8)
    return [str(tensor.dtype), list(tensor.shape), elements.numpy().tobytes().hex()]


def _constant(dtype: str, shape: list[int], elements: str) -> torch.Tensor:
    data = torch.tensor([*bytes.fromhex(elements)], dtype=torch.uint8)
    return data.view(_named("dtype", dtype)).reshape(shape)


def _identifier(name: str) -> str:
    """The name, which becomes a part of the Python code of a graph."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is not a name")
    return name


def _called(target: Any) -> Any:
    """The function that has a text."""
    if isinstance(target, str):
        return _BY_NAME[target]
    name, schema = target
    operator: Any = torch.ops
    for part in name.split("."):
        operator = getattr(operator, part)
    if str(operator._schema) != schema:
        raise ValueError(f"the schema of {name} differs")
    return operator


def _named(kind: str, name: str) -> Any:
    value = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(value, _KINDS[kind]):
        raise ValueError(f"{name!r} is not a {kind}")
    return value


def _number(bits: str) -> float:
    return float(struct.unpack(">d", bytes.fromhex(bits))[0])


def _read(value: Any, nodes: Mapping[str, fx.Node]) -> Any:
    """The value that has a text."""
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == "node":
        return nodes[rest[0]]
    if kind == "float":
        return _number(rest[0])
    if kind == "complex":
        return complex(*map(_number, rest))
    if kind == "device":
        return torch.device(rest[0])
    if kind in _KINDS:
        return _named(kind, rest[0])
    parts = [_read(part, nodes) for part in rest if kind != "dict"]
    if kind == "slice":
        return slice(*parts)
    if kind == "dict":
        return {_read(key, nodes): _read(item, nodes) for key, item in rest}
    if kind == "tuple":
        return tuple(parts)
    if kind in ("list", "immutable_list"):
        return parts
    raise ValueError(f"a {kind}")
