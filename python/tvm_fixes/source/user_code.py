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
"""Imports of a user's Python code: modules by name, and files."""

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ..errors import CompileError, UsageError, summarize
from .base import existing

__all__ = ["import_named", "imports_from", "place_of"]


def import_named(name: str) -> ModuleType:
    """Import a module by its name, ``package.module``, or a file, ``FILE.py``.

    Raises
    ------
    UsageError
        If there is no such module or file.
    CompileError
        If the import fails.
    """
    return _import_file(existing(Path(name))) if name.endswith(".py") else _import_module(name)


def _import_module(name: str) -> ModuleType:
    """Import a module from the working directory or from the path.

    Raises
    ------
    UsageError
        If there is no such module.
    CompileError
        If the import fails.
    """
    try:
        directory = os.getcwd()
    except OSError as error:
        raise UsageError(f"{name}: no working directory: {summarize(error)}") from error
    try:
        with imports_from(directory):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"{name}: no such module in {directory} or on the path") from error
        raise CompileError(f"{name}: cannot import: {summarize(error)}") from error
    except (Exception, SystemExit) as error:
        raise _failure(name, error) from error


def _import_file(path: Path) -> ModuleType:
    """Run a file as a module, which may import others from its folder.

    Raises
    ------
    CompileError
        If the file fails.
    """
    file = path.resolve()
    # Dataclasses look their module up; one that is loaded may have the name of the file.
    name = path.stem if path.stem not in sys.modules else f"{path.stem} of {file.parent}"
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        with imports_from(str(file.parent)):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _failure(str(path), error) from error
    return module


@contextmanager
def imports_from(folder: str) -> Iterator[None]:
    """Look for modules in a folder first, as Python does in that of the main script."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def place_of(error: BaseException) -> str:
    """The file and the line that raise an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _failure(name: str, error: BaseException) -> CompileError:
    return CompileError(f"{name}: cannot import: {summarize(error)} ({place_of(error)})")
