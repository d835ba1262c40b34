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
"""Finds, checks and loads the native libraries, and gives access to the functions they register.

Relay has a library of its own, which is loaded when :mod:`tvm_fixes.relay` is imported.
"""

import importlib.util
import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from . import versions

LIBRARY_NAME = "libtvm_fixes.so"
RELAY_LIBRARY_NAME = "libtvm_fixes_relay.so"
CUDA_ARCHIVE_NAME = "libtvm_fixes_cuda.a"
LIBRARY_VARIABLE = "TVM_FIXES_LIBRARY"
EXTENSION_NAME = "_artifact"

# A TVM that differs in more places is another release, and the places are of no interest.
MAX_LISTED_DIFFERENCES = 10


def library_path() -> Path:
    """Return the path of the native library.

    It is the value of ``TVM_FIXES_LIBRARY`` if set, else the installed library, else that of the
    build tree.

    Raises
    ------
    ImportError
        If the library is missing.
    """
    chosen = os.environ.get(LIBRARY_VARIABLE)
    package = Path(__file__).resolve().parent
    candidates = (
        [Path(chosen)]
        if chosen
        else [package / "lib" / LIBRARY_NAME, package.parents[1] / "build" / LIBRARY_NAME]
    )
    for path in candidates:
        if path.is_file():
            return path
    places = " or ".join(map(str, candidates))
    raise ImportError(f"the native library of tvm-fixes is missing: expected {places}")


def load(size_overrides: dict[str, int] | None = None) -> Path:
    """Load the native library and register its passes and operator attributes with TVM.

    A second call changes nothing.

    Parameters
    ----------
    size_overrides : dict of str to int, optional
        Field sizes in bytes, by ``type_key.field``, that replace those that TVM reports. Tests use
        them to simulate a TVM that does not fit.

    Returns
    -------
    Path
        The path of the library.

    Raises
    ------
    ImportError
        If the library is missing or broken, if TVM runs without its compiler, if tvm-ffi is too
        old, or if the layout of TVM's classes does not fit. In these cases, nothing is registered.
    """
    import tvm
    import tvm_ffi

    if tvm.base._RUNTIME_ONLY:
        raise ImportError(
            f"tvm-fixes needs TVM's compiler, but apache-tvm {tvm.__version__} at "
            f"{Path(tvm.__file__).parent} is loaded without it (runtime only)"
        )
    if not hasattr(tvm_ffi, "structural_map"):
        raise ImportError(
            f"tvm-fixes needs apache-tvm-ffi {versions.OLDEST_TVM_FFI} or newer, but "
            f"{tvm_ffi.__version__} at {Path(tvm_ffi.__file__).parent} is loaded"
        )
    from .support import logs, switches

    path = library_path()
    module = _open(path)
    try:
        module.init(tvm.__version__, size_overrides or {})
    except RuntimeError as error:
        raise ImportError(_explain_mismatch(str(error), tvm.__version__)) from None
    for function in (switches.enabled, switches.note, logs.enabled, logs.debug):
        module = function.__module__.rpartition(".")[2]
        name = f"tvm_fixes.{module}.{function.__name__}"
        tvm_ffi.register_global_func(name, function, override=True)
    return path


def load_relay() -> Path:
    """Load the native library, then that of Relay, a file next to it.

    Returns
    -------
    Path
        The path of the library of Relay.

    Raises
    ------
    ImportError
        If a library is missing or broken, or for any reason of :func:`load`.
    """
    path = load().parent / RELAY_LIBRARY_NAME
    if not path.is_file():
        raise ImportError(
            f"the native library of Relay is missing: expected {path}; 'make native-relay' builds "
            "it in a checkout"
        )
    _open(path).init()
    return path


def _open(path: Path) -> Any:
    import tvm_ffi

    from .errors import summarize

    try:
        return tvm_ffi.load_module(str(path), keep_module_alive=True)
    except (OSError, RuntimeError) as error:
        raise ImportError(f"the native library cannot be loaded: {summarize(error)}") from None


def _explain_mismatch(problems: str, tvm_version: str) -> str:
    """Return `problems`, one a line below a heading, in one sentence if they are many."""
    _, *differences = problems.splitlines()
    if len(differences) <= MAX_LISTED_DIFFERENCES:
        return problems
    return (
        f"tvm-fixes needs the classes of apache-tvm {versions.OLDEST_TVM} or newer, but "
        f"{len(differences)} classes and fields of the loaded {tvm_version} differ, such as "
        f"{differences[0].strip()}"
    )


@cache
def artifact_extension() -> ModuleType:
    """Return the extension module ``_artifact``, a file next to the native library.

    Raises
    ------
    ImportError
        If the module is missing for this interpreter, or does not load.
    """
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    path = library_path().parent / f"{EXTENSION_NAME}{suffix}"
    if not path.is_file():
        raise ImportError(
            f"the extension module that reads artifacts is missing: Python "
            f"{sys.version_info.major}.{sys.version_info.minor} expects {path}; 'make native' "
            "builds it in a checkout; elsewhere, run 'pip install .' with this interpreter"
        )
    spec = importlib.util.spec_from_file_location(EXTENSION_NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ImportError(f"the extension module {path} cannot be loaded: {error}") from None
    return module


@cache
def get(name: str) -> Any:
    """Return the global function `name`, which TVM or the native library registers.

    Raises
    ------
    ValueError
        If no function has this name.
    """
    import tvm_ffi

    return tvm_ffi.get_global_func(name)


def layout() -> list[tuple[str, str, int, int]]:
    """Return the bound fields of TVM's classes as (type key, field, offset, size in bytes)."""
    rows = get("tvm_fixes.ffi.Layout")()
    return [(str(key), str(field), int(offset), int(size)) for key, field, offset, size in rows]


@dataclass(frozen=True)
class NativeStatus:
    """The state of the native library, and of that of Relay.

    Attributes
    ----------
    path : str or None
        The path of the library; None if it is missing.
    checked_types, checked_fields : int
        The number of TVM's classes and of their fields whose layout the library has bound.
    problem : str or None
        Why the library does not load; None if it loads.
    relay_problem : str or None
        Why that of Relay does not load; None if it loads.
    """

    path: str | None
    checked_types: int = 0
    checked_fields: int = 0
    problem: str | None = None
    relay_problem: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the library is loaded."""
        return self.problem is None


def native_status() -> NativeStatus:
    """Load the native libraries and return their state."""
    path = None
    try:
        path = str(library_path())
        load()
    except ImportError as error:
        return NativeStatus(path, problem=str(error), relay_problem=str(error))
    relay_problem = None
    try:
        load_relay()
    except ImportError as error:
        relay_problem = str(error)
    rows = layout()
    return NativeStatus(path, len({row[0] for row in rows}), len(rows), None, relay_problem)
