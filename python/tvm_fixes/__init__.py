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
"""Compiler passes, operator rules and importers that fix Apache TVM.

Importing this package loads the native library and enables the fixes of operators and of the memory
planner for all pipelines of the process. ``TVM_FIXES_DISABLE=id,id`` turns fixes off.
"""

from importlib import import_module as _import_module
from importlib import metadata as _metadata
from types import ModuleType as _ModuleType

from . import _ffi

_ffi.load()

from . import debug, frontend, testing, transform  # noqa: E402
from .compiler import build, compile  # noqa: E402
from .compiler.lifting import lift  # noqa: E402
from .compiler.optimizing import opt  # noqa: E402
from .errors import CompileError, VerifyError  # noqa: E402
from .lowering import pipeline  # noqa: E402
from .lowering import register as _register_pipeline  # noqa: E402
from .relax import block_builder as _block_builder  # noqa: E402
from .relax import legalize as _legalize  # noqa: E402
from .relax.signature_guard import SignatureGuard  # noqa: E402
from .relax.transform import static_plan_block_memory as _memory  # noqa: E402
from .runtime import CompiledModel, LiftedModule  # noqa: E402
from .source.preflight import Preflight, check  # noqa: E402
from .support import numpy_types as _numpy_types  # noqa: E402
from .target import codegen as _codegen  # noqa: E402
from .verifier import Diagnostic, Diagnostics, VerifyEach, verify  # noqa: E402

try:
    __version__ = _metadata.version("tvm-fixes")
except _metadata.PackageNotFoundError:  # a source tree on the search path
    __version__ = "0+unknown"

_block_builder.register()
_codegen.register()
_legalize.register()
_memory.register()
_numpy_types.register()
_register_pipeline()

__all__ = [
    "CompileError",
    "CompiledModel",
    "Diagnostic",
    "Diagnostics",
    "LiftedModule",
    "Preflight",
    "SignatureGuard",
    "VerifyEach",
    "VerifyError",
    "__version__",
    "build",
    "check",
    "compile",
    "debug",
    "frontend",
    "lift",
    "opt",
    "pipeline",
    "relay",
    "testing",
    "transform",
    "verify",
]


def __getattr__(name: str) -> _ModuleType:
    # It loads a library of its own.
    if name == "relay":
        return _import_module(".relay", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
