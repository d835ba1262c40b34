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

"""A text of a graph that Dynamo traced, which two share only if AOTAutograd makes one of them.

AOTAutograd reads the calls with their operands, the metadata of inputs, and PyTorch's state; the
text has all of these.  It is refused for whatever depends on anything else: functions that are not
PyTorch's, operators of libraries, graphs within graphs, sizes that change between calls.
"""

import os
import re
import sys
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo import config as dynamo_config
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch.fx.experimental import _config as shapes_config
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from .graph_text import FUNCTIONS, operands_text, state_of_pytorch, target_text, value_text

__all__ = ["dynamo_text"]

_LIBRARIES = {"aten", "prims", "prim"}

_FOLDER = os.path.dirname(torch.__file__) + os.sep

_MODULES = (
    *("torch", "torch._C._nn", "torch._C._fft", "torch._C._linalg", "torch._C._special"),
    *("torch.nn.functional", "torch.functional", "_operator", "builtins", "math"),
)

_CONFIGS = functorch_config, dynamo_config, inductor_config, shapes_config

# A pass that only Inductor runs, such as torchao registers when it is imported.
_OWN_PASS = re.compile("custom.*_pass$")
# In the text of an object, which differs in each process.
_ADDRESS = re.compile(" at 0x[0-9a-f]+>")

# Attention is another operator with another of them.
_ATTENTION = "flash_sdp", "math_sdp", "mem_efficient_sdp", "cudnn_sdp", "overrideable_sdp"


def dynamo_text(module: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """The graph, its inputs and the state of PyTorch as values of JSON.

    Raises
    ------
    TypeError
        If they have no text.
    """
    if any(True for _ in (*module.parameters(), *module.buffers())):
        raise TypeError("a graph with parameters of its own")
    nodes = [_node(module, node) for node in module.graph.nodes]
    placeholders = module.graph.find_nodes(op="placeholder")
    return [_state(), nodes, _inputs(placeholders, inputs)]


def _state() -> list[Any]:
    """The state that AOTAutograd reads besides a graph and its inputs."""
    layers = torch._C._functorch.peek_interpreter_stack()
    if _len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or layers is not None:
        raise TypeError("a mode that PyTorch's dispatcher calls")
    devices = torch._C._autocast_supported_devices()
    # A graph may enter an autocast of the default dtype.
    autocast = [[d, torch.is_autocast_enabled(d), _autocast_dtype(d)] for d in devices]
    flags = [
        *(torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        torch.is_autocast_cache_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch._C._get_mkldnn_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        *(getattr(torch._C, f"_get_{name}_enabled", bool)() for name in _ATTENTION),
    ]
    order = [str(backend) for backend in torch._C._get_sdp_priority_order()]
    einsum = torch.backends.opt_einsum
    path = [einsum.is_available(), einsum.enabled, einsum.strategy]
    device = str(torch.get_default_device())
    configs = list(map(_settings, _CONFIGS))
    return [*state_of_pytorch(), autocast, flags, order, path, configs, device]


def _autocast_dtype(device: str) -> str:
    return str(torch.get_autocast_dtype(device))


def _settings(config: Any) -> list[list[str]]:
    """The settings of a module of PyTorch's, except those that do not change what is traced."""
    settings = config.get_config_copy()
    names = sorted(settings.keys() - config._compile_ignored_keys)
    return [[name, _setting(settings[name])] for name in names if not _OWN_PASS.search(name)]


def _setting(value: Any) -> str:
    # The order of a set differs between processes.
    text = str(sorted(map(repr, value))) if isinstance(value, set | frozenset) else repr(value)
    if _ADDRESS.search(text):
        raise TypeError(f"a setting of PyTorch that has no text: {text}")
    return text


def _node(module: fx.GraphModule, node: fx.Node) -> list[Any]:
    return [node.op, node.name, _target(module, node), *operands_text(node)]


def _target(module: fx.GraphModule, node: fx.Node) -> Any:
    target = node.target
    if node.op in ("placeholder", "output"):
        return str(target)
    if node.op == "call_method" and type(target) is str:
        return target
    if node.op == "call_function":
        if isinstance(target, torch._ops.OpOverload) and target.namespace in _LIBRARIES:
            return target_text(module, node)
        if isinstance(target, torch._ops.OpOverloadPacket) and _library(target) in _LIBRARIES:
            return ["packet", str(target)]
        if target in FUNCTIONS:
            return FUNCTIONS[target]
        name = _name(target)
        if name:
            return ["function", name]
    raise TypeError(f"{node.op} of {target!r}")


def _library(packet: torch._ops.OpOverloadPacket) -> str:
    return str(packet._qualified_op_name).partition("::")[0]


def _name(function: Any) -> str:
    """The name by which PyTorch's own function is found; empty if it is not one."""
    if isinstance(function, types.FunctionType):
        if not function.__code__.co_filename.startswith(_FOLDER):
            return ""
    elif not isinstance(function, types.BuiltinFunctionType):
        return ""
    own, name = str(function.__module__), str(function.__name__)
    for module in (*_MODULES, *([own] if own.startswith("torch.") else [])):
        if getattr(sys.modules.get(module), name, None) is function:
            return f"{module}.{name}"
    return ""


def _inputs(placeholders: Sequence[fx.Node], inputs: Sequence[Any]) -> list[Any]:
    """The metadata of the inputs, and which of them share memory."""
    memories: dict[int, int] = {}
    texts = []
    for node, given in zip(placeholders, inputs, strict=True):
        value = node.meta["example_value"]
        if type(given) not in (torch.Tensor, nn.Parameter):
            raise TypeError(f"an input that is a {type(given).__name__}")
        text = value_text(value)
        memory = value.untyped_storage()
        numbers = [*value.shape, *value.stride(), value.storage_offset(), memory.nbytes()]
        if any(type(number) is not int for number in numbers):
            raise TypeError("a size that changes between calls")
        place = memories.setdefault(given.untyped_storage()._cdata, len(memories))
        fake_place = memories.setdefault(memory._cdata, len(memories))
        keys = [str(torch._C._dispatch_keys(tensor)) for tensor in (value, given)]
        kinds = [type(given).__name__, given.is_leaf, given.is_inference()]
        layout = [str(given.dtype), *map(list, (given.shape, given.stride()))]
        texts.append([node.name, text, memory.nbytes(), place, fake_place, keys, kinds, layout])
    return texts
