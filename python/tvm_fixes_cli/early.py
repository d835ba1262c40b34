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
"""Checks of arguments that need neither TVM nor PyTorch, whose import takes seconds.

The package checks the same, and raises the same messages, for its callers in Python.
"""

import argparse
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from .arguments import did_you_mean
from .description import check_kind
from .terminal import DISABLE, WRONG_USE, Failure

RELAY = (".relay", ".txt", ".json")
MODELS = (".onnx", ".pt2", ".tflite", *RELAY)
"""The suffixes of models."""

_MAKER = re.compile(r"^(?:def|class) ([A-Z]\w*)", re.MULTILINE)

# A file with one of these may bind a name that its text does not show.
_DYNAMIC = re.compile(r"import \*|globals|__getattr__|setattr|exec|__dict__|sys\.modules|vars")


def check(
    arguments: argparse.Namespace, model: str | None, others: Iterable[str] = (".py",)
) -> None:
    """Check the names of files, the model, the target, and the limits of numbers.

    Parameters
    ----------
    arguments : argparse.Namespace
        The arguments of a command.
    model : str or None
        The model or module among them.
    others : iterable of str
        The accepted suffixes of files beside :data:`MODELS`.

    Raises
    ------
    Failure
        If one of them is wrong.
    """
    options = vars(arguments)
    if (options.get("seed") or 0) < 0:
        _reject(f"seed must be >= 0, got {options['seed']}")
    if not options.get("max_growth", 0) >= 0:
        _reject(f"max_growth must be >= 0, got {options['max_growth']}")
    if model is not None:
        _check_model(model, (*MODELS, *others))
        if options.get("params") is not None:
            if not model.endswith(RELAY):
                _reject("parameters can be given only for a Relay program")
            _check_file(options["params"])
    if options.get("inputs") is not None:
        _check_file(options["inputs"])
    for name in options.get("imports", ()):
        if name.endswith(".py"):
            _check_file(name)
        else:
            _check_module(name)
    target = options.get("target", "native")
    if target != "native":

        def resolve() -> None:
            from tvm_fixes.target.resolution import resolve

            resolve(target)

        apart(resolve)
    if options.get("passes") or options.get("user_passes"):
        check_passes(options.get("passes") or "", options.get("user_passes", ()))
    if os.environ.get(DISABLE):
        check_fixes(())


def check_fixes(ids: Sequence[str]) -> None:
    """Check that fixes exist, and those that the environment turns off."""

    def check() -> None:
        from tvm_fixes.support import switches

        switches.disabled()
        switches.check_known(ids)

    apart(check)


def check_passes(passes: str, user_passes: Sequence[str]) -> None:
    """Look for the names of passes, and for the places of a user's, in the text that defines them.

    Nothing is checked if TVM is loaded already.
    """
    if "tvm" in sys.modules:
        return
    folders = [
        Path(spec.origin).parent
        for name in ("tvm_fixes", "tvm")
        if (spec := find_spec(name)) is not None and spec.origin is not None
    ]
    pipeline = _text(str(folders[0] / "pipeline.py"))
    files = (file for folder in folders for file in folder.glob("*/transform/*.py"))
    known = {"pipeline", *re.findall(r'Stage\(\s*"(\w+)"', pipeline)}
    known.update(name for file in files for name in _MAKER.findall(_text(str(file))))
    plain = re.sub(r"\([^()]*\)", "", passes)
    for one in plain.split(",") if "(" not in plain else []:
        name = one.strip()
        if ":" not in name and name and name.rpartition(".")[2] not in known:
            hint = did_you_mean(name, known) or "; `tvm-fixes opt --list` shows all"
            _reject(f"unknown pass {name!r}{hint}")
    for one in user_passes:
        origin, _, place = one.rpartition("@")
        anchor = re.split("[=/]", place)[-1]
        if "=" in place and f'"{anchor}"' not in pipeline:
            quoted = re.findall(r'"(\w+)"', pipeline)
            hint = did_you_mean(anchor, quoted) or (
                "; `tvm-fixes opt --print-pipeline` lists its passes"
            )
            _reject(f"pass {origin}: no pass {place.partition('=')[2]!r} in the pipeline{hint}")


def needs_torch(model: str | None) -> bool:
    """Whether a model is a program of PyTorch, or a script that may use PyTorch."""
    if model is None or model == "-":
        return False
    path, colon, _ = model.rpartition(":")
    if (path if colon else model).endswith(".py"):
        return "torch" in _text(path if colon else model)
    return model.endswith(".pt2") or (bool(colon) and not os.path.lexists(model))


def apart(check: Callable[[], None]) -> None:
    """Run a check in a child process that loads a part of the package, without PyTorch.

    Nothing is checked if TVM is loaded already, because then the package checks it as quickly.

    Raises
    ------
    Failure
        If the check raises a ValueError.
    """
    if "tvm" in sys.modules or "tvm_ffi" in sys.modules:
        return
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LLVM's warnings
            from .package import without_init

            sys.modules["torch"] = None  # type: ignore[assignment]
            without_init()
            check()
        except ValueError as error:
            os.write(writer, str(error).encode(errors="replace"))
        finally:
            os._exit(0)  # what else fails is reported when the package is loaded
    os.close(writer)
    with open(reader, "rb") as pipe:
        message = pipe.read().decode(errors="replace")
    os.waitpid(child, 0)
    if message:
        _reject(message)


def _check_model(source: str, suffixes: tuple[str, ...]) -> None:
    if source.endswith(suffixes):
        _check_file(source)
        if source.endswith((".onnx", ".pt2")):
            check_kind(source)
        return
    module, colon, attribute = source.rpartition(":")
    if colon and not os.path.lexists(source):
        if module.endswith(".py"):
            _check_file(module)
            if needs_torch(source):
                _check_attribute(source, module, attribute)
        else:
            spec = _check_module(module)
            if spec is not None and (spec.origin or "").endswith(".py"):
                _check_attribute(source, str(spec.origin), attribute)
        return
    _check_file(source)
    *most, last = suffixes
    _reject(
        f"{source}: expected a file that ends in {', '.join(most)} or {last}, or a factory: "
        "package.module:name or FILE.py:name"
    )


def _check_file(path: str) -> None:
    try:
        kind = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        _reject(f"{path}: no such file")
    except (OSError, ValueError):
        return  # the package reports it
    if not stat.S_ISREG(kind):
        _reject(f"{path}: not a file")


def _check_module(name: str) -> ModuleSpec | None:
    """Look for a module, without running it; None if it is loaded or only an import finds it."""
    if name in sys.modules:
        return None
    try:
        directory = os.getcwd()
    except OSError:
        return None
    sys.path.insert(0, directory)
    try:
        spec = _spec_of(name)
    except (ImportError, ValueError, AttributeError):
        return None
    finally:
        sys.path.remove(directory)
    if spec is None:
        _reject(f"{name}: no such module in {directory} or on the path")
    return spec


def _check_attribute(source: str, path: str, attribute: str) -> None:
    """Look for a name in the text of a module."""
    text = _text(path)
    if text and not re.search(rf"\b{re.escape(attribute)}\b", text) and not _DYNAMIC.search(text):
        module = source.rpartition(":")[0]
        _reject(f"{source}: {attribute!r} of {module}: no such attribute")


def _spec_of(name: str) -> ModuleSpec | None:
    """The place of a module, for which its packages are not run; None if there is none."""
    first, *rest = name.split(".")
    spec, path = find_spec(first), first
    for part in rest:
        if spec is None:
            return None
        path = f"{path}.{part}"
        places, parent = spec.submodule_search_locations, spec
        if places is None and path not in sys.modules:
            raise ImportError(path)  # only an import shows whether a module has modules
        found = (finder.find_spec(path, places) for finder in sys.meta_path)
        spec = next(filter(None, found), None)
        if spec is None and parent.origin and _DYNAMIC.search(_text(parent.origin)):
            raise ImportError(path)
    return spec


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _reject(message: str) -> NoReturn:
    raise Failure(message, WRONG_USE)
