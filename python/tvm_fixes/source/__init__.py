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
"""Sources of models, with their references: ONNX, PyTorch, TFLite, Relay and Relax modules."""

import os
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tvm

from ..errors import CompileError, UsageError, summarize
from .base import Reference, Shapes, Source, existing, import_extra
from .onnx import OnnxSource
from .relax import RelaxSource
from .relay_file import SUFFIXES, Params, is_program, reader
from .tflite import TfliteSource
from .torch import TorchSource
from .user_code import import_named, place_of

__all__ = ["Params", "Reference", "Shapes", "Source", "open_source"]


_FACTORY_RESULTS = (
    "(module, args), (module, kwargs), (module, args, kwargs), (module, args, kwargs, "
    "dynamic_shapes) or an ExportedProgram, where args is a tuple and kwargs a dict"
)


def open_source(
    source: Any,
    shapes: Shapes | None = None,
    *,
    trust: bool = False,
    params: Params | None = None,
) -> Source:
    """Open `source` in any of the forms that :func:`tvm_fixes.compile` accepts.

    Parameters
    ----------
    source, shapes, trust, params
        As for :func:`tvm_fixes.compile`.

    Raises
    ------
    UsageError
        If the file or factory does not exist, or `source` has another form.
    UntrustedError
        If a file may run code and `trust` is not set.
    CompileError
        If a file cannot be read or a program cannot be exported.
    """
    if isinstance(source, Source):
        return source
    # An object of a library that is not loaded cannot exist.
    relay, onnx, torch = map(sys.modules.get, ("tvm_fixes.relay", "onnx", "torch"))
    if relay is not None and isinstance(source, relay.IRModule):
        return reader().RelaySource(source, shapes=shapes, params=params)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.suffix in (*SUFFIXES, ".json"):
            return _open_relay(existing(path), shapes, params)
    if params is not None:
        raise UsageError("parameters can be given only for a Relay program")
    if isinstance(source, str | os.PathLike):
        return _open_named(os.fspath(source), shapes, trust)
    if isinstance(source, tvm.IRModule):
        if shapes:
            raise UsageError("cannot set shapes of a Relax module; change the module instead")
        return RelaxSource(source)
    if onnx is not None and isinstance(source, onnx.ModelProto):
        return OnnxSource(source, source.graph.name or "ONNX model", shapes)
    if torch is not None and isinstance(source, torch.export.ExportedProgram):
        return TorchSource(source, "ExportedProgram", shapes)
    if torch is not None and _is_module_and_inputs(source, torch):
        return _export(source, type(source[0]).__name__, shapes)
    raise UsageError(
        "expected a path, 'package.module:factory', an onnx.ModelProto, an ExportedProgram, "
        "(nn.Module, example inputs), with keyword arguments last, an IRModule or a "
        f"relay.IRModule, got {_described(source)}"
    )


def _open_named(source: str, shapes: Shapes | None, trust: bool) -> Source:
    path = Path(source)
    if path.suffix == ".onnx":
        return OnnxSource.load(existing(path), shapes)
    if path.suffix == ".tflite":
        return TfliteSource.load(existing(path), shapes)
    if path.suffix == ".pt2":
        return TorchSource.load(existing(path), shapes, trust=trust)
    if ":" in source and not os.path.lexists(path):
        return _open_factory(source, shapes)
    existing(path)
    raise UsageError(
        f"{source}: expected a file that ends in .onnx, .pt2, .tflite, .relay, .txt or .json, "
        "or a factory: package.module:name or FILE.py:name"
    )


def _open_relay(path: Path, shapes: Shapes | None, params: Params | None) -> Source:
    if path.suffix == ".json" and not is_program(path):
        raise UsageError(
            f"{path}: expected a Relay program that tvm.ir.save_json of TVM 0.6 to 0.19 wrote"
        )
    return reader().RelaySource.load(path, shapes, params)


def _open_factory(source: str, shapes: Shapes | None) -> Source:
    module_name, _, attribute = source.rpartition(":")
    factory = getattr(import_named(module_name), attribute, None)
    if not callable(factory):
        problem = "no such attribute" if factory is None else "not callable"
        raise UsageError(f"{source}: {attribute!r} of {module_name}: {problem}")
    return open_made(factory, source, shapes)


def open_made(factory: Callable[[], Any], source: str, shapes: Shapes | None) -> Source:
    """Open what a factory returns; `source` names it."""
    try:
        made = factory()
    except (Exception, SystemExit) as error:
        raise CompileError(
            f"{source}: the factory failed: {summarize(error)} ({place_of(error)})"
        ) from error
    torch = import_extra("torch", source)
    if isinstance(made, torch.export.ExportedProgram):
        return TorchSource(made, source, shapes)
    if not _is_module_and_inputs(made, torch):
        raise UsageError(
            f"{source}: expected a factory that returns {_FACTORY_RESULTS}; got {_described(made)}"
        )
    return _export(made, source, shapes)


def _export(made: tuple[Any, ...], name: str, shapes: Shapes | None) -> TorchSource:
    """Export a module with its example inputs and ``dynamic_shapes``."""
    module, *inputs = made
    if len(inputs) == 1:
        inputs = [(), *inputs] if isinstance(inputs[0], Mapping) else [*inputs, {}]
    args, kwargs, *dynamic = inputs
    return TorchSource.export(module, args, name, shapes, kwargs, *dynamic)


def _is_module_and_inputs(value: object, torch: types.ModuleType) -> bool:
    """Whether `value` is one of :data:`_FACTORY_RESULTS`, except for a program."""
    if not (isinstance(value, tuple) and value and isinstance(value[0], torch.nn.Module)):
        return False
    inputs = value[1:]
    if len(inputs) == 1:
        return isinstance(inputs[0], tuple | Mapping)
    kinds = (tuple, Mapping | None, Mapping | tuple | list | None)
    return len(inputs) in (2, 3) and all(map(isinstance, inputs, kinds))


def _described(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(item).__name__ for item in value)}{',' * (len(value) == 1)})"
    return type(value).__name__
