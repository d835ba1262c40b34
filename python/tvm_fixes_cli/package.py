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
"""The loading of the package, which takes seconds, and its errors."""

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from . import terminal
from .terminal import FAILED, WRONG_USE, Failure


def import_package(with_torch: bool) -> None:
    # TVM imports PyTorch if it can, which takes longer than everything else.
    is_hidden = not with_torch and "torch" not in sys.modules
    if is_hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]
    # What an import makes stays, and looking for garbage in it takes a quarter of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        import tvm_fixes  # noqa: F401
    finally:
        if collects:
            gc.enable()
        if is_hidden:
            del sys.modules["torch"]


def import_doctor() -> ModuleType:
    try:
        from tvm_fixes import doctor
    except ImportError:
        # The doctor reports why the package does not load. It needs only the package's modules.
        without_init()
        from tvm_fixes import doctor
    return doctor


def without_init() -> None:
    """Let modules of the package be imported although the package's own code has not run."""
    spec = importlib.util.find_spec("tvm_fixes")
    if spec is None:
        raise ImportError("tvm_fixes")
    sys.modules["tvm_fixes"] = importlib.util.module_from_spec(spec)


def package_module(path: str) -> ModuleType:
    """A module of the package that needs none of the others, without loading the package."""
    package = importlib.util.find_spec("tvm_fixes")
    if package is None or not package.submodule_search_locations:
        raise ImportError("tvm_fixes")
    file = os.path.join(package.submodule_search_locations[0], path)
    spec = importlib.util.spec_from_file_location(f"tvm_fixes_cli.{os.path.basename(path)}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def loaded(*, with_torch: bool, imports: Sequence[str] = ()) -> Iterator[None]:
    """Load the package and import modules of the user, then run the ``with`` block.

    What models and libraries print goes to standard error.  An error of the package becomes a
    failure with its exit status.
    """
    with terminal.stdout_to_stderr(), terminal.without_warnings():
        with terminal.loading():
            import_package(with_torch)
        from tvm_fixes.errors import CompileError, UsageError, VerifyError

        try:
            if imports:
                from tvm_fixes.source.user_code import import_named

                for name in imports:
                    import_named(name)
            yield
        except CompileError as error:
            status = WRONG_USE if isinstance(error, UsageError) else FAILED
            lines = isinstance(error, VerifyError)
            raise Failure(error.message, status, error.stage, lines=lines) from error
        except ImportError as error:
            if not (error.name or "").startswith("tvm_fixes"):
                raise
            raise terminal.not_loaded(error) from error
