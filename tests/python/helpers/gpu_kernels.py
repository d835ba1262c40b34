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
"""Kernels of a GPU, and their execution on a CPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm_ffi import structural_map, structural_walk

from tvm_fixes.lowering import stages
from tvm_fixes.target import cuda

from .lowering import lowered_before
from .relax_modules import build, tensor

GPU = tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host={"kind": "llvm"})


def kernels(
    emit: Callable[..., Any], shape: tuple[Any, ...], dtype: str = "float32"
) -> tvm.IRModule:
    """An operator lowered by the stages before scheduling."""
    mod = build({"x": tensor(*shape, dtype=dtype)}, emit)
    lowering = stages("gpu")
    with GPU:
        return lowered_before(mod, lowering, "Lower")


def functions(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    """The kernels of a module by name."""
    found = mod.functions_items()
    return {var.name_hint: func for var, func in found if isinstance(func, tirx.PrimFunc)}


def thread_extents(function: tirx.PrimFunc) -> dict[str, int]:
    """The extents of the threads of a kernel by their tags."""
    found = {}

    def look(loop: tirx.For) -> None:
        if loop.thread_binding is not None:
            found[str(loop.thread_binding.thread_tag)] = int(loop.extent)

    structural_walk(function.body, (tirx.For, look))
    return found


def one_after_another(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with serialized threads, for a CPU; valid without synchronization.

    Like TVM's runtime, it launches at least one block.
    """

    def serialize(loop: tirx.For) -> tirx.For:
        if loop.thread_binding is None:
            return loop
        extent = tirx.max(loop.extent, tirx.const(1, loop.extent.ty.dtype))
        return tirx.For(loop.loop_var, loop.min, extent, tirx.ForKind.SERIAL, loop.body)

    serial = structural_map(function, (tirx.For, serialize))
    return serial.with_attr("global_symbol", "kernel")


def run(function: tirx.PrimFunc, *arrays: np.ndarray) -> None:
    """Run a kernel on a CPU; `arrays` are its arguments, and the last one is its result."""
    built = tvm.tirx.build(tvm.IRModule({"kernel": one_after_another(function)}), "llvm")
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    built["kernel"](*tensors)
    arrays[-1][...] = tensors[-1].numpy()


def sources(module: tvm.runtime.Module) -> list[str]:
    """The CUDA source that a module and its imports contain; see :func:`cuda.placeholders`."""
    own = [inner.inspect_source() for inner in module.imports if inner.kind == "cuda"]
    return [*own, *(source for inner in module.imports for source in sources(inner))]


def build_sources(mod: tvm.IRModule, target: tvm.target.Target) -> list[str]:
    """The CUDA source of a lowered module."""
    with cuda.placeholders():
        return sources(relax.build(mod, target, relax_pipeline=None).mod)
