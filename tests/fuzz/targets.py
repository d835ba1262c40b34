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
"""The targets that the campaigns compile for."""

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax

from tvm_fixes.lowering import pipeline
from tvm_fixes.target import cuda, resolve

TARGETS = ("llvm", "native", "haswell", "layout")
"""Generic LLVM, this CPU, a CPU with AVX2, and generic LLVM with NHWC convolutions."""

KNOWN = (*TARGETS, "cuda")
"""Also the GPU of this machine."""

TVM = "tvm"
"""Generic LLVM, with TVM's own pipeline."""

Compiled = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""The function ``main`` of a module, from inputs to outputs."""

_only: list[str] = []


def use_only(name: str) -> None:
    """Compile all cases for `name`, one of :data:`KNOWN`, instead of :data:`TARGETS` in turn."""
    _only[:] = [name]


def only_target() -> str | None:
    """The argument of :func:`use_only`; None if it was not called."""
    return _only[0] if _only else None


def target_for(seed: int) -> str:
    """The name of the target of a case."""
    return only_target() or TARGETS[seed % len(TARGETS)]


def compiled(mod: tvm.IRModule, name: str) -> Compiled:
    """Build a module for `name`, one of :data:`KNOWN` or :data:`TVM`."""
    lowering: tvm.transform.Pass | str = pipeline(layout="NHWC" if name == "layout" else None)
    if name == TVM:
        lowering = "default"
    build = cuda.build if name == "cuda" else relax.build
    device = tvm.cuda() if name == "cuda" else tvm.cpu()
    machine = relax.VirtualMachine(build(mod, _target(name), relax_pipeline=lowering), device)

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        result = machine["main"](*(tvm.runtime.tensor(array, device) for array in inputs))
        fields = [result] if hasattr(result, "numpy") else list(result)
        return [field.numpy() for field in fields]

    return run


def _target(name: str) -> tvm.target.Target:
    if name == "haswell":
        return tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})
    return resolve("llvm" if name in ("layout", TVM) else name)
