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
"""Whether two modules are the same function, by running both on random data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from tvm_fixes.support.isolate import OutcomeKind, run_forked

EQUAL = "equal"
_TIMEOUT = 120.0
_SEED = 0
# The sizes of symbolic dims, in order of appearance, by attempt: distinct and no multiple of a
# vector; equal, for operands that must fit; large enough for a window.
_SIZES = ((9, 11, 5, 7, 13, 10), (4,), (16,))
# Of the largest value: rounding that depends on the order of a sum.
_TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}

_NUMBERS = {"int64": 1, "float32": 1.5, "bool": True}


class NotComparable(Exception):
    """The modules cannot be run here; the text says why."""


def same_function(lhs: object, rhs: object) -> str:
    """Return ``"equal"`` if both modules compute the same from random data.

    Both are built with TVM's default pipeline for this machine's CPU, in a child process.

    Returns
    -------
    result : str
        ``"equal"``; ``"different: …"`` with the function and the values; or ``"not compared: …"``
        with the reason.
    """
    outcome = run_forked(lambda: _compare(lhs, rhs), timeout=_TIMEOUT)
    if outcome.kind is OutcomeKind.VALUE:
        return str(outcome.value)
    if outcome.name == NotComparable.__name__:
        return f"not compared: {outcome.message}"
    return f"not compared: {str(outcome).splitlines()[0][:200]}"


def _compare(lhs: object, rhs: object) -> str:
    modules = [_module(side) for side in (lhs, rhs)]
    names = [
        variable.name_hint
        for variable, function in modules[0].functions.items()
        if isinstance(function, relax.Function) and "global_symbol" in (function.attrs or {})
    ]
    common = [name for name in names if any(v.name_hint == name for v in modules[1].functions)]
    if not common:
        raise NotComparable("no Relax function in both")
    machines = [_machine(module) for module in modules]
    for name in common:
        first, second = (module[name] for module in modules)
        if len(first.params) != len(second.params):
            raise NotComparable("other parameters")
        problem = _difference(*_results(machines, name, first))
        if problem:
            return f"different: {name}: {problem}"
    return EQUAL


def _results(
    machines: Sequence[relax.VirtualMachine], name: str, function: relax.Function
) -> list[list[np.ndarray]]:
    """Return what both compute, with the first sizes that both accept."""
    for sizes in _SIZES:
        results = []
        errors = []
        for machine in machines:
            arguments = _Arguments(sizes)
            values = [arguments.of(parameter.ty) for parameter in function.params]
            try:
                results.append(list(_tensors(machine[name](*values))))
            except (ValueError, RuntimeError) as error:
                errors.append(str(error).strip().splitlines()[0])
        if not errors:
            return results
    raise NotComparable(f"{('one of them fails', 'both fail')[len(errors) - 1]}: {errors[0]}")


def _module(side: object) -> tvm.IRModule:
    if isinstance(side, relax.Function):
        return tvm.IRModule({"main": side.with_attr("global_symbol", "main")})
    if not isinstance(side, tvm.IRModule):
        raise NotComparable(f"a {type(side).__name__}, not a module")
    return side


def _machine(module: tvm.IRModule) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(module, tvm.target.Target("llvm")), tvm.cpu())


class _Arguments:
    """Random arguments for the parameters of a function; equal symbols have equal sizes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._choices = sizes
        self._random = np.random.default_rng(_SEED)
        self._sizes: dict[tirx.Var, int] = {}
        self._analyzer = Analyzer()

    def _extent(self, extent: Any) -> int:
        for symbol in tirx.analysis.undefined_vars(extent):
            if symbol not in self._sizes:
                self._sizes[symbol] = self._choices[len(self._sizes) % len(self._choices)]
                self._analyzer.bind(symbol, tirx.IntImm(symbol.ty.dtype, self._sizes[symbol]))
        value = self._analyzer.simplify(extent)
        if not isinstance(value, tirx.IntImm):
            raise NotComparable(f"the extent {extent}")
        return int(value.value)

    def of(self, ty: tvm.ir.Type) -> Any:
        """Return a value of type `ty`."""
        if isinstance(ty, relax.TensorType):
            if ty.shape is None or not ty.dtype:
                raise NotComparable("a parameter of unknown shape")
            shape = [self._extent(each) for each in ty.shape]
            return tvm.runtime.tensor(self._array(shape, str(ty.dtype)))
        if isinstance(ty, relax.ShapeType) and ty.values is not None:
            return tvm.runtime.ShapeTuple([self._extent(each) for each in ty.values])
        if isinstance(ty, tvm.ir.PrimType) and ty.dtype in _NUMBERS:
            return _NUMBERS[ty.dtype]
        if isinstance(ty, tvm.ir.TupleType):
            return [self.of(field) for field in ty.fields]
        raise NotComparable(f"a parameter of type {ty}")

    def _array(self, shape: list[int], dtype: str) -> np.ndarray:
        if dtype == "bool":
            return self._random.integers(0, 2, shape).astype(bool)
        if dtype.startswith(("int", "uint")):
            return self._random.integers(0, 2, shape).astype(dtype)  # masks and indices too
        if dtype not in _TOLERANCES:
            raise NotComparable(f"a parameter of {dtype}")
        return self._random.uniform(-2, 2, shape).astype(dtype)


def _tensors(result: Any) -> list[np.ndarray]:
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    if isinstance(result, int | float | bool):
        return [np.asarray(result)]
    if isinstance(result, tvm.runtime.ShapeTuple):
        return [np.asarray(list(result), "int64")]
    return [tensor for field in result for tensor in _tensors(field)]


def _difference(left: list[np.ndarray], right: list[np.ndarray]) -> str:
    """Return how two results differ; empty if they do not."""
    if len(left) != len(right):
        return f"{len(left)} and {len(right)} results"
    for index, (a, b) in enumerate(zip(left, right, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {index}: {a.dtype}{a.shape} and {b.dtype}{b.shape}"
        tolerance = _TOLERANCES.get(str(a.dtype), 0.0)
        x, y = a.astype("float64"), b.astype("float64")
        scale = np.abs(x[np.isfinite(x)]).max(initial=0.0)
        if not np.allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return f"result {index}: largest difference {np.nanmax(np.abs(x - y)):.3g}"
    return ""
