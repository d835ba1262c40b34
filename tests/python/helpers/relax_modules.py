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
"""Helpers that build, run and inspect Relax modules."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm_ffi import structural_map

from helpers.grids import is_full

UNOPTIMIZED_CPU = tvm.target.Target({"kind": "llvm", "opt-level": 0})


def cpu() -> tvm.target.Target:
    """The target of tests of numbers.

    LLVM's optimizations take most of the time of a build: only the full tier runs them.
    """
    return tvm.target.Target("llvm") if is_full() else UNOPTIMIZED_CPU


def tensor(*shape: Any, dtype: str = "float32") -> relax.TensorType:
    """The type of a tensor; a dimension is an int or a ``tirx.Var``."""
    return relax.TensorType(shape, dtype)


def build(inputs: dict[str, tvm.ir.Type], emit: Callable[..., relax.Expr]) -> tvm.IRModule:
    """A module whose ``main`` is one dataflow block.

    Parameters
    ----------
    inputs : dict of str to Type
        The parameters by name.
    emit : callable
        Maps the block builder and the parameters to the output.
    """
    builder = relax.BlockBuilder()
    params = [relax.Var(name, ty) for name, ty in inputs.items()]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(emit(builder, *params))
        builder.emit_func_output(out)
    return builder.get()


def merge(mods: dict[str, tvm.IRModule]) -> tvm.IRModule:
    """Merge the ``main`` functions of several modules, by name, to build them at once.

    The functions that they call are renamed, since modules have kernels of the same name.
    """
    functions: dict[str | tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    for name, mod in mods.items():
        renamed = {
            var.name_hint: tvm.ir.GlobalVar(f"{name}_{var.name_hint}")
            for var in mod.get_global_vars()
            if var.name_hint != "main"
        }
        for old, new in renamed.items():
            relax.expr._update_type(new, mod.get_global_var(old).ty)
        for var, function in mod.functions_items():
            if renamed:
                naming = (tvm.ir.GlobalVar, lambda v, to=renamed: to.get(v.name_hint, v))
                function = structural_map(function, naming)
            if var.name_hint == "main":
                functions[name] = function.with_attr("global_symbol", name)
            else:
                functions[renamed[var.name_hint]] = function
    return tvm.IRModule(functions)


def run(
    mod: tvm.IRModule,
    *arguments: Any,
    pipeline: str | tvm.transform.Pass | None = None,
    name: str = "main",
    target: str | tvm.target.Target | None = None,
) -> Any:
    """Build `mod` for the CPU and call its function `name`.

    Parameters
    ----------
    arguments : np.ndarray, or other arguments of the virtual machine
    pipeline : str or Pass, optional
        The lowering pipeline; by default TVM's own for the target.
    target : str or Target, optional
        By default that of :func:`cpu`.

    Returns
    -------
    np.ndarray or list of np.ndarray
        The result, a list where the function returns a tuple.
    """
    executable = relax.build(mod, target or cpu(), relax_pipeline=pipeline or "default")
    return call(relax.VirtualMachine(executable, tvm.cpu()), name, *arguments)


def call(vm: relax.VirtualMachine, name: str, *arguments: Any) -> Any:
    """Call a function of a built module; the result is as of :func:`run`."""
    result = vm[name](
        *(tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments)
    )
    return _arrays(result)


def _arrays(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else [_arrays(field) for field in value]


def calls(mod: tvm.IRModule, operator: str | None = None) -> list[relax.Call]:
    """The calls of `operator`, or of any, in program order, including branches."""
    found: list[relax.Call] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            if operator in (None, expr.op.name):
                found.append(expr)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return found


def count(mod: tvm.IRModule, operator: str) -> int:
    """The number of calls of `operator`, including branches."""
    return len(calls(mod, operator))


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    """Small integers as float32, with sums and products that are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")
