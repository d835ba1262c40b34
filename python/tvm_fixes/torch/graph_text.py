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
"""A text of a graph that two graphs share only if the importer makes the same module of them.

The importer reads the operators with their schemas, the operands, the recorded values of the nodes,
and what is known of the symbols; the text has all of these.  It is refused for anything else, such
as a graph within a graph.
"""

import hashlib
import operator
import struct
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ..frontend.torch.functional_graph import shapes_of

__all__ = [
    "FUNCTIONS",
    "graph_text",
    "operands_text",
    "state_of_pytorch",
    "target_text",
    "value_text",
]

_PLAIN = (torch.dtype, torch.device, torch.layout, torch.memory_format)

_TENSORS = (FakeTensor, torch.Tensor, torch.nn.Parameter)

FUNCTIONS = {
    getattr(operator, name): f"operator.{name}"
    for name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg", "truediv", "pow")
}


def graph_text(module: fx.GraphModule) -> list[Any]:
    """The graph as values of JSON.

    Raises
    ------
    TypeError
        If it has a value without a text.
    """
    nodes = [_node(module, node) for node in module.graph.nodes]
    return [state_of_pytorch(), _symbols_text(shapes_of(module)), nodes]


def _symbols_text(shapes: ShapeEnv | None) -> list[Any]:
    """The ranges, examples and relations of symbols."""
    if shapes is None:
        return []
    guards = [str(guard.expr) for guard in shapes.guards]
    asserts = [
        [str(symbol), [str(one.expr) for one in each]]
        for symbol, each in shapes.deferred_runtime_asserts.items()
    ]
    tables = (shapes.var_to_range, shapes.replacements, shapes.axioms, _examples(shapes))
    known = [sorted([str(name), str(value)] for name, value in each.items()) for each in tables]
    return [*known, sorted(map(str, shapes.divisible)), guards, asserts]


def _examples(shapes: ShapeEnv) -> Any:
    # Its name in PyTorch before 2.10.
    found = getattr(shapes, "backed_var_to_val", None)
    return shapes.var_to_val if found is None else found


def state_of_pytorch() -> list[str]:
    """The state of PyTorch that operators read, for constants that the importer computes."""
    return [
        str(torch.version.git_version),
        str(torch.get_default_dtype()),
        torch.get_float32_matmul_precision(),
        str(torch.are_deterministic_algorithms_enabled()),
        str(torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")),
    ]


def _node(module: fx.GraphModule, node: fx.Node) -> list[Any]:
    recorded = [value_text(node.meta.get(name)) for name in ("val", "tensor_meta")]
    return [node.op, node.name, target_text(module, node), *operands_text(node), *recorded]


def operands_text(node: fx.Node) -> list[Any]:
    """The operands of a node by place, and those by name."""
    return [[value_text(operand) for operand in node.args], value_text(node.kwargs)]


def target_text(module: fx.GraphModule, node: fx.Node) -> Any:
    """The text of what a node calls or reads.

    Raises
    ------
    TypeError
        If it has no text.
    """
    target = node.target
    if node.op == "get_attr":
        value = module
        for part in str(target).split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            return [str(target), _tensor(value), _hash(value)]
    elif isinstance(target, str):
        return target
    elif isinstance(target, torch._ops.OpOverload):
        return [str(target), str(target._schema)]
    elif target in FUNCTIONS:
        return FUNCTIONS[target]
    raise TypeError(f"{node.op} of {target!r}")


def _hash(tensor: torch.Tensor) -> str:
    elements = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(elements.numpy().data).hexdigest()


def value_text(value: Any) -> Any:
    """A value, with the name of its kind if JSON has another one like it.

    Raises
    ------
    TypeError
        If it has no text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return ["float", _bits(value)]
    if isinstance(value, complex):
        return ["complex", _bits(value.real), _bits(value.imag)]
    if isinstance(value, fx.Node):
        return ["node", value.name]
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return [type(value).__name__, _expression(value), str(value.node.hint)]
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, _PLAIN):
        return [type(value).__name__, str(value)]
    if isinstance(value, slice):
        return ["slice", *map(value_text, (value.start, value.stop, value.step))]
    if isinstance(value, dict):
        return ["dict", *([value_text(key), value_text(one)] for key, one in value.items())]
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(value_text, value)]
    raise TypeError(f"a {type(value).__name__}")


def _bits(number: float) -> str:
    # The sign of a NaN is read, too, for example by copysign.
    return struct.pack(">d", number).hex()


def _expression(number: Any) -> str:
    # With the assumptions about its symbols.
    return str(sympy.srepr(number.node.expr))


def _tensor(value: torch.Tensor) -> list[Any]:
    if type(value) not in _TENSORS or value.layout is not torch.strided:
        raise TypeError(f"a {type(value).__name__} of layout {value.layout}")
    if getattr(value, "constant", None) is not None:
        raise TypeError("a tensor with known elements")
    return [
        type(value).__name__,
        [str(value.dtype), str(value.device), str(value.layout), value.requires_grad],
        [value_text(size) for size in value.shape],
        [value_text(step) for step in value.stride()],
        [value_text(value.storage_offset()), value.is_conj(), value.is_neg()],
    ]
