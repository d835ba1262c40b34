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
"""The program that links a library for a target."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm.support import cc

from ..errors import CompileError
from . import cuda_libraries
from .resolution import architecture, triple_of

_OLDEST_GLIBC = "2.28"
"""The oldest glibc for libraries linked with zig: that of TVM's wheels."""

_ZIG_CACHE = "ZIG_GLOBAL_CACHE_DIR"


@dataclass(frozen=True)
class Linker:
    """A compiler that links shared libraries; TVM's ``export_library`` takes it as `fcompile`.

    Attributes
    ----------
    command : tuple of str
        The compiler, with the options that select its target.
    libraries : tuple of str
        Options for libraries that it does not link by default.
    environment : tuple of (str, str)
        Additional environment variables for it.
    """

    command: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join(self.command)

    def __call__(self, output: str, objects: Sequence[str], options: Sequence[str] = ()) -> None:
        """Link object files and archives.

        Raises
        ------
        CompileError
            If the compiler fails; the message is the first line that it prints.
        """
        arguments = ["-shared", "-fPIC", "-o", output, *options, *objects, *self.libraries]
        done = subprocess.run(
            [*self.command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | dict(self.environment),
        )
        if done.returncode:
            said = next(filter(None, done.stdout.splitlines()), f"exit status {done.returncode}")
            raise CompileError(said)


def linker_for(target: tvm.target.Target) -> Linker:
    """Find the compiler that links for the CPU of `target`.

    It is the first of: ``CXX`` or ``CC`` in the environment, the system's compiler or cross
    compiler, and zig, which links for all CPUs.

    Raises
    ------
    CompileError
        If no compiler links for this CPU, or if ``CXX`` or ``CC`` names one that does not run or
        that links for another CPU.
    """
    triple = triple_of(target)
    needs_libcxx = cuda_libraries.needs_libcxx(target)
    if not needs_libcxx:
        if os.environ.get("CXX") or os.environ.get("CC"):
            compiler = cc.get_cc()
            _check(compiler, triple)
            return Linker((compiler,))
        compiler = _system_compiler(triple)
        if compiler is not None:
            return Linker((compiler,))
    if importlib.util.find_spec("ziglang") is not None:
        return _zig(triple, "c++" if needs_libcxx else "cc")
    cpu = architecture(triple) or triple
    if needs_libcxx:
        raise CompileError(
            "only zig links models that call NVIDIA's libraries with this build of tvm-fixes: "
            "pip install ziglang"
        )
    package = "g++" if _is_native(triple) else f"g++-{cpu.replace('_', '-')}-linux-gnu"
    raise CompileError(
        f"no compiler links for {triple}: install {package}, pip install ziglang, or set CXX"
    )


def _system_compiler(triple: str) -> str | None:
    if _is_native(triple):
        return cc.get_cc()
    cpu = architecture(triple)
    names = (f"{cpu}-linux-gnu-{name}" for name in ("g++", "gcc"))
    return next(filter(None, map(shutil.which, names)), None)


def _is_native(triple: str) -> bool:
    return architecture(triple) == architecture(triple_of(tvm.target.Target("llvm")))


def _zig(triple: str, language: str) -> Linker:
    system = triple.split("-")[-1]
    abi = system if system.startswith("musl") else f"gnu.{_OLDEST_GLIBC}"
    target = f"{architecture(triple)}-linux-{abi}"
    command = (sys.executable, "-m", "ziglang", language, "-target", target)
    libraries = ["-lm"]
    if language == "c++":
        # With zig's start-up code, unloading a library does not run its destructors, so exit()
        # would call unmapped code.
        libraries.append("-Wl,-z,nodelete")
    return Linker(command, tuple(libraries), tuple(_zig_cache().items()))


def _zig_cache() -> dict[str, str]:
    """The variable that moves zig's cache, if its default folder is not writable."""
    # Path's own functions raise if there is no home folder, or if it may not be searched.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    existing = next(path for path in (cache, *cache.parents) if os.path.exists(path))
    is_writable = os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)
    if os.environ.get(_ZIG_CACHE) or (is_writable and os.environ.get("HOME")):
        return {}
    folder = Path(tempfile.gettempdir(), f"tvm-fixes-zig-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:  # others may write to it
        folder = Path(tempfile.mkdtemp(prefix="tvm-fixes-zig-"))
    return {_ZIG_CACHE: str(folder)}


def _check(compiler: str, triple: str) -> None:
    """Check that a compiler exists and links for the CPU of `triple`."""
    try:
        done = subprocess.run(
            [compiler, "-dumpmachine"], capture_output=True, text=True, errors="replace", timeout=10
        )
    except OSError as error:
        raise CompileError(
            f"cannot run {compiler} to link the library: {error.strerror}; set CXX to another "
            "compiler"
        ) from error
    except subprocess.TimeoutExpired:
        return
    machine = done.stdout.strip()
    ours, theirs = map(architecture, (triple, machine))
    # Accept a compiler that does not name its machine.
    if done.returncode == 0 and ours and theirs and ours != theirs:
        raise CompileError(
            f"{compiler} links for {machine} and cannot link for {triple}; set CXX to a compiler "
            f"for {triple}"
        )
