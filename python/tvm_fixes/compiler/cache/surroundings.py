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
"""Everything but the model that compiled code depends on, as values of JSON."""

import importlib.metadata
import os
import platform
import shutil
import sys
from dataclasses import asdict
from functools import cache, lru_cache
from typing import Any

import tvm
from tvm.target import codegen

from ... import target as targets
from ...errors import CompileError
from ...support import switches
from ...target.cpu import Cpu
from ...target.linker import linker_for
from .files import log
from .installed import installed_digest
from .place import SIZE_VARIABLE, VARIABLE
from .store import Store

_PACKAGES = (
    *("apache-tvm", "apache-tvm-ffi", "tvm-fixes"),
    *("numpy", "ml_dtypes", "onnx", "torch", "torchvision"),
)

# These say where, and with how many threads.
_IGNORED = (VARIABLE, SIZE_VARIABLE, "TVM_NUM_THREADS", "TVM_BIND_THREADS")

_COMPILERS = ("CXX", "CC")


def surroundings(store: Store, target: tvm.target.Target) -> dict[str, Any] | None:
    """The parts of a key besides the model and its options; None if nothing may be cached.

    Reasons are an instrument in TVM's pass context, which may skip passes, and code that changed
    since this process started.

    Parameters
    ----------
    store : Store
    target : tvm.target.Target
        A CPU.
    """
    context = tvm.transform.PassContext.current()
    if context.instruments:
        log.info("not cached: the current PassContext has instruments")
        return None
    installed = installed_digest(store)
    if installed is None or target.kind.name != "llvm":
        return None
    return {
        "installed": installed,
        "versions": _versions(),
        "target": _described(target),
        "fixes off": sorted(switches.disabled()),
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name in _COMPILERS or (name.startswith("TVM_") and name not in _IGNORED)
        },
        "pass context": {
            "level": int(context.opt_level),
            "required": sorted(map(str, context.required_pass)),
            "disabled": sorted(map(str, context.disabled_pass)),
            "config": {str(name): str(value) for name, value in context.config.items()},
        },
    }


@cache
def _versions() -> dict[str, str]:
    versions = {"python": sys.version, "libc": " ".join(platform.libc_ver())}
    versions["llvm"] = str(codegen.llvm_version_major())
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@lru_cache(maxsize=64)
def _described(target: tvm.target.Target) -> dict[str, Any]:
    return {
        "config": str(target),
        "triple": targets.triple_of(target),
        "features": sorted(map(str, codegen.llvm_get_cpu_features(target))),
        "cpu": asdict(Cpu.of(target)),
        "linker": _linker(target),
    }


def _linker(target: tvm.target.Target) -> list[Any]:
    """The compiler that links, and its file; an empty list without a compiler."""
    try:
        command = linker_for(target).command
    except CompileError:
        return []
    path = os.path.realpath(shutil.which(command[0]) or command[0])
    try:
        status = os.stat(path)
    except OSError:
        return [*command]
    return [*command, path, status.st_size, status.st_mtime_ns]
