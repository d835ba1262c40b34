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
"""Recompilation without the SLP vectorizer of modules that LLVM miscompiles.

Trigger
    A kernel of few elements whose loops LLVM unrolls, such as an average pooling of
    ``(1, 4, 4, 3)`` with a dilation of 2, for a CPU without AVX-512.
Mechanism
    The vectorizer of straight-line code (SLP) of LLVM 22 places a shuffle after its use.
How to remove
    When TVM passes the tests of this file, delete it, its tests, its call in :mod:`tvm_fixes` and
    the fix id ``slp-vectorizer``.
"""

import functools

import tvm
import tvm_ffi

from ..fixes.elements import SLP_VECTORIZER as FIX_ID
from ..support import switches
from .code_parts import at_once, joined, parts_of

_BUILD = "target.build.llvm"
_OPTION = "-vectorize-slp=false"


@functools.cache
def register() -> None:
    """Make TVM compile a module again if LLVM miscompiles it; a second call is a no-op."""
    stock = tvm_ffi.get_global_func(_BUILD)

    def build(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        return joined(at_once(lambda part: build_part(part, target), parts_of(mod)))

    def build_part(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        try:
            return stock(mod, target)
        except tvm.error.InternalError as error:
            is_broken = "LLVM module verification failed" in str(error)
            if not is_broken or not switches.enabled(FIX_ID):
                raise
        switches.note(FIX_ID)
        attributes = dict(target.export())
        attributes["cl-opt"] = [*attributes.get("cl-opt", []), _OPTION]
        return stock(mod, tvm.target.Target(attributes))

    tvm.register_global_func(_BUILD, build, override=True)
