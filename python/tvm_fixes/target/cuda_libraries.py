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
"""NVIDIA's libraries: how to link a model that calls them, and how to load them at run time."""

import ctypes
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tvm

from .. import _ffi


@dataclass(frozen=True)
class _Library:
    """A library: the function of ``src/cuda_libraries`` that calls it, its file, its wheel.

    The wheel has the file in a folder of the package ``nvidia``.
    """

    function: str
    file: str
    wheel: str
    folder: str


_LIBRARIES = {
    "cublas": _Library("cublas_matmul", "libcublasLt.so.13", "nvidia-cublas", "cu13/lib"),
    "cudnn": _Library("cudnn_convolution", "libcudnn.so.9", "nvidia-cudnn-cu13", "cudnn/lib"),
}

LIBRARIES = tuple(_LIBRARIES)
"""The libraries that the ``libs`` of a target may contain."""


def link_arguments(target: tvm.target.Target) -> dict[str, list[str]]:
    """The arguments of ``export_library`` that link the calls of the libraries of `target`."""
    used = _used(target)
    if not used:
        return {}
    # An archive: the linker takes only the named functions.
    symbols = [f"-Wl,-u,__tvm_ffi_tvm_fixes_{_LIBRARIES[name].function}" for name in used]
    return {"addons": [str(_archive())], "options": symbols}


def needs_libcxx(target: tvm.target.Target) -> bool:
    """Whether a library for `target` needs LLVM's C++ library, with which zig builds the wheels."""
    return bool(_used(target)) and b"NSt3__1" in _archive().read_bytes()  # std::__1, mangled


def _used(target: tvm.target.Target) -> list[str]:
    return [name for name in map(str, target.attrs.get("libs", ())) if name in _LIBRARIES]


def _archive() -> Path:
    """The archive of the functions that call the libraries."""
    return _ffi.library_path().parent / _ffi.CUDA_ARCHIVE_NAME


def load(names: Iterable[str]) -> str | None:
    """Load libraries; return why a model that needs them cannot run here, or None if it can.

    The system's loader or NVIDIA's wheels provide a library. Once it is loaded, a model finds it by
    its file name.
    """
    for library in (_LIBRARIES[name] for name in names):
        if not any(map(loads, (library.file, *_in_wheels(library)))):
            return f"{library.file} is missing; pip install {library.wheel} provides it"
    return None


def _in_wheels(library: _Library) -> Iterator[str]:
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        yield str(Path(folder, library.folder, library.file))


def loads(file: str) -> bool:
    """Whether a shared library loads; it stays loaded."""
    try:
        ctypes.CDLL(file)
    except OSError:
        return False
    return True
