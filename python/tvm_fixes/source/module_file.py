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
"""Reads Relax modules from files of TVMScript or TVM's JSON."""

import importlib
import json
import os
import re
import resource
import runpy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.tirx.layout import Axis

from .. import verifier
from ..errors import CompileError, UsageError, summarize
from ..support.isolate import OutcomeKind, run_forked
from . import Shapes, Source, open_made, open_source
from .base import existing
from .relay_file import SUFFIXES, Params, is_program
from .user_code import imports_from, place_of

# The Python modules in which `@I.ir_module`, `@R.function` and `@T.prim_func` look up `parse`.
_DECORATORS = (
    "tvm.script.parser.ir.entry",
    "tvm.relax.script.parser.entry",
    "tvm.tirx.script.parser.entry",
)

# The node types allowed in TVM's JSON: IR and plain values.
_DATA = re.compile(
    r"None|bool|int|float|DataType|Device"
    r"|ffi\.(?:Array|Bytes|Dict|List|Map|Shape|SmallBytes|SmallStr|String|Tensor)"
    r"|(?:arith|ir|prim|relax|s_tir|script|sym|target|te|tir|tirx|transform)\.[\w.]+"
)

# Limits for reading and verifying a module: base seconds, file bytes per additional second, and
# base memory.
_READ_SECONDS, _BYTES_PER_SECOND, _READ_BYTES = 20.0, 1 << 16, 4 << 30

# Names that TVM's TVMScript printer uses without importing.
_NAMES = {"tvm": tvm, "I": I, "R": R, "T": T, "TypeVar": TypeVar, "Axis": Axis}


def read_module(
    source: str | os.PathLike[str],
    shapes: Shapes | None = None,
    *,
    trust: bool = False,
    params: Params | None = None,
) -> tvm.IRModule:
    """Read a module from a file, or import a model, without verifying it: see :func:`open_module`.

    Returns
    -------
    module : tvm.IRModule
    """
    opened = open_module(source, shapes, trust=trust, params=params)
    return opened.to_relax() if isinstance(opened, Source) else opened


def open_module(
    source: str | os.PathLike[str],
    shapes: Shapes | None = None,
    *,
    trust: bool = False,
    params: Params | None = None,
) -> tvm.IRModule | Source:
    """Read a module from a file, or open a model.

    Parameters
    ----------
    source : str or path
        A ``.py`` file of TVMScript, which is executed (``model.py:Name`` selects one of several
        modules, or a factory, which is called), a ``.json`` file written by ``tvm.ir.save_json``, a
        Relay program from TVM 0.6 to 0.19, which is translated, or a model in any form that
        :func:`tvm_fixes.compile` accepts.
    shapes : mapping of str to sequence of int, optional
        As for :func:`tvm_fixes.compile`.
    trust, params
        As for :func:`tvm_fixes.compile`.

    Raises
    ------
    UsageError
        If the file or the module in it does not exist, or if `shapes` is given for a module.
    UntrustedError
        If a ``.pt2`` file may run code when loaded, and `trust` is not set.
    CompileError
        If the source cannot be read or imported.
    """
    name = os.fspath(source)
    path = Path(name)
    if path.suffix in SUFFIXES or (path.suffix == ".json" and is_program(existing(path))):
        return open_source(source, shapes, params=params)
    if params is not None:
        raise UsageError("parameters can be given only for a Relay program")
    stem, colon, attribute = name.rpartition(":")
    if colon and stem.endswith(".py"):
        values = _run_script(existing(Path(stem)))
        if callable(values.get(attribute)):
            return open_made(values[attribute], name, shapes)
        module = _chosen(Path(stem), values, attribute)
    if shapes and (stem if colon else name).endswith((".py", ".json")):
        raise UsageError(
            f"{name}: input shapes can be given only for a model, not for a module: {dict(shapes)}"
        )
    if colon and stem.endswith(".py"):
        return module
    if name.endswith(".py"):
        return _chosen(Path(name), _run_script(existing(Path(name))))
    if name.endswith(".json"):
        return _read_json(existing(Path(name)))
    if os.path.exists(path) and path.suffix not in (".onnx", ".pt2", ".tflite"):
        raise UsageError(
            f"{name}: expected a file that ends in .onnx, .pt2, .tflite, .relay, .txt, .json or "
            ".py, or a factory: package.module:name or FILE.py:name"
        )
    return open_source(source, shapes, trust=trust)


def _read_json(path: Path) -> tvm.IRModule:
    """Read a file written by ``tvm.ir.save_json``.

    TVM's reader does not check field types, and may crash.  Therefore, a forked child process first
    reads and verifies the module.
    """
    try:
        text = path.read_text(encoding="utf-8")
        _check_nodes(json.loads(text))
    except (OSError, ValueError, RecursionError) as error:
        raise CompileError(f"{path}: not valid TVM JSON: {summarize(error)}") from error
    seconds = _READ_SECONDS + len(text) / _BYTES_PER_SECOND
    outcome = run_forked(partial(_try_json, text), timeout=seconds)
    if outcome.kind is OutcomeKind.VALUE and outcome.value:
        raise UsageError(f"{path}: expected an IRModule, got {outcome.value}")
    if outcome.kind is not OutcomeKind.VALUE:
        said = outcome.message if outcome.kind is OutcomeKind.EXCEPTION else str(outcome)
        reason = " ".join(line.strip() for line in said.splitlines()) or outcome.name
        raise CompileError(
            f"{path}: not valid TVM JSON, or written by an incompatible TVM version: {reason[:600]}"
        )
    module = tvm.ir.load_json(text)
    assert isinstance(module, tvm.IRModule)
    return module


def _try_json(text: str) -> str:
    """Read and verify a module.

    Returns an empty string, or the type name if the value is not an IRModule.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _READ_BYTES + 64 * len(text)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    module = tvm.ir.load_json(text)
    if not isinstance(module, tvm.IRModule):
        return type(module).__name__
    verifier.verify(module)
    return ""


def _check_nodes(document: Any) -> None:
    """Check that the nodes are data, not functions or libraries.

    Raises
    ------
    ValueError
        If the document has no list of nodes, or if the type of a node is not allowed.
    """
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list) or not isinstance(document.get("root_index"), int):
        raise ValueError("expected a list 'nodes' and an integer 'root_index'")
    for node in nodes:
        kind = node.get("type") if isinstance(node, dict) else None
        if not isinstance(kind, str) or not _DATA.fullmatch(kind):
            raise ValueError(f"unexpected node of type {kind!r:.80}")


def _run_script(path: Path) -> dict[str, Any]:
    try:
        with _parsing_only(), imports_from(str(path.resolve().parent)):
            return runpy.run_path(str(path), dict(_NAMES))
    except (Exception, SystemExit) as error:
        raise CompileError(f"{path}: {summarize(error, 2000)} ({place_of(error)})") from error


def _chosen(path: Path, values: Mapping[str, Any], name: str | None = None) -> tvm.IRModule:
    """The module of this name among the values of a script, or its only one."""
    modules = {key: module for key, value in values.items() if (module := _module_of(value))}
    if name is not None and name not in modules:
        raise UsageError(f"{path}: no module {name!r}; modules: {', '.join(modules) or 'none'}")
    if name is None and len(modules) != 1:
        if not modules:
            raise UsageError(f"{path}: expected one module, got none")
        listed = ", ".join(modules)
        raise UsageError(f"{path}: expected one module, got {listed}; select one with {path}:NAME")
    return modules[name or next(iter(modules))]


def _module_of(value: Any) -> tvm.IRModule | None:
    if isinstance(value, tvm.IRModule):
        return value
    if isinstance(value, tvm.relax.Function | tvm.tirx.PrimFunc):
        return tvm.IRModule.from_expr(value)
    return None


@contextmanager
def _parsing_only() -> Iterator[None]:
    """Parse TVMScript without TVM's well-formedness check, which stops at the first violation."""
    decorators = [importlib.import_module(name) for name in _DECORATORS]
    parsers = [vars(module)["parse"] for module in decorators]
    try:
        for module, parse in zip(decorators, parsers, strict=True):
            vars(module)["parse"] = _unchecked(parse)
        yield
    finally:
        for module, parse in zip(decorators, parsers, strict=True):
            vars(module)["parse"] = parse


def _unchecked(parse: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(parse)
    def parse_only(*args: Any, **kwargs: Any) -> Any:
        return parse(*args, **kwargs | {"check_well_formed": False})

    return parse_only
