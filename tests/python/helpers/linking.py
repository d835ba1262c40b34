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
"""Loads built modules as linked libraries.

TVM's JIT optimizes the machine code of every module, whatever the ``opt-level`` of its target.  An
object file follows the level: for unoptimized kernels, to write, link and load one takes a third of
the time.
"""

import functools
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.runtime import Executable, Module

_PROGRAM, _KERNELS = "relax.VMExecutable", "llvm"


_STOCK = Executable.jit


@contextmanager
def without_linker() -> Iterator[None]:
    """Let TVM's JIT load executables within the ``with`` block."""
    current, Executable.jit = Executable.jit, _STOCK
    try:
        yield
    finally:
        Executable.jit = current


@functools.cache
def use_linker() -> None:
    """Make TVM link the kernels of an executable before it runs; a second call is a no-op."""

    def jit(executable: Executable, *args: Any, **options: Any) -> Module:
        if executable._jitted_mod is None and not args and not options:
            executable._jitted_mod = linked(executable.mod)
        if executable._jitted_mod is None or args or options:
            return _STOCK(executable, *args, **options)
        return executable._jitted_mod

    Executable.jit = jit


def linked(mod: Module) -> Module | None:
    """A copy of a built module that runs its kernels from a library.

    Returns
    -------
    Module or None
        None if the module holds more than LLVM's kernels and a program of the virtual machine.
    """
    kinds = [mod.kind, *(kernels.kind for kernels in mod.imports)]
    with tempfile.TemporaryDirectory() as directory:
        if kinds == [_KERNELS]:
            return _library(mod, Path(directory))
        if kinds != [_PROGRAM, _KERNELS] or mod.imports[0].imports:
            return None
        path = str(Path(directory, "program"))
        mod.write_to_file(path, _PROGRAM)
        copy = tvm_ffi.get_global_func(f"ffi.Module.load_from_file.{_PROGRAM}")(path)
        copy.import_module(_library(mod.imports[0], Path(directory)))
        return copy


def _library(kernels: Module, directory: Path) -> Module:
    object_file, library = str(directory / "kernels.o"), str(directory / "kernels.so")
    kernels.write_to_file(object_file, "o")
    # A missing symbol is an error of the load, not the end of the process at the call.
    subprocess.run(
        ["ld", "-shared", "-z", "now", "-o", library, object_file, _runtime_of_compiler()],
        check=True,
    )
    return tvm.runtime.load_module(library)


@functools.cache
def _runtime_of_compiler() -> str:
    command = ["cc", "-print-libgcc-file-name"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
