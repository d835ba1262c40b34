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
"""Results that depend on memory that nothing wrote.

A model runs several times with the same inputs, and its new memory holds something else each time.
The library is the same, so only such memory can make its results differ.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm

from ..errors import summarize
from ..relax.kernel_calls import KernelCalls
from ..runtime.compiled_model import CompiledModel
from ..support import ambient
from ..support.ambient import Fill
from ..support.tensors import array_of, arrays_of, raw_bytes
from ..tirx.transform.fill_allocations import LARGE
from .repetition import disagreements

# Memory of a fresh process holds zeros, which hide a missing initial value.
_FILLS = (Fill.NONE, Fill.NAN, Fill.LARGE)

# The rounds of runs with each content of the memory, before a result is said to depend on it.
_ROUNDS = 4

MAX_REPEATED_SECONDS = 2.0
"""A model that runs longer is not run again, unless a user asks for it."""

_VIRTUAL_MACHINE = "vm.builtin."
_ALLOCATION = "vm.builtin.alloc_tensor"


def unwritten_memory(
    model: CompiledModel, inputs: Sequence[np.ndarray], max_seconds: float = math.inf
) -> dict[str, str]:
    """The outputs that depend on memory that nothing wrote, each with a sentence.

    Parameters
    ----------
    model : CompiledModel
    inputs : sequence of numpy.ndarray
    max_seconds : float
        The longest run to repeat.

    Notes
    -----
    The virtual machine's tensors are filled when they are allocated; the memory within kernels is
    filled if the model was compiled with
    :func:`~tvm_fixes.tirx.transform.fill_allocations.FillAllocations`.  Empty for a model for
    a GPU, or whose results differ anyway, such as random numbers.
    """
    if model.manifest.target["kind"] != "llvm":
        return {}
    start = time.monotonic()
    first = _run(model, inputs, Fill.NONE)
    if time.monotonic() - start > max_seconds:
        return {}
    updated = {index: name for name, index in model.manifest.updates.items()}
    outputs = dict(enumerate(spec.name for spec in model.outputs))
    names = [(outputs | updated)[place] for place in range(len(first))]
    fills = iter(_FILLS[1:])
    try:
        sentences = disagreements(
            names, first, lambda: _run(model, inputs, next(fills)), runs=len(_FILLS)
        )
    except Exception as error:
        problem = f"fails if new memory holds other numbers: {summarize(error)}"
        return {names[0]: problem}
    if not sentences or not _is_of_memory(model, inputs):
        return {}
    where = _first_kernel(model, inputs)
    return {
        name: f"depends on memory that nothing wrote{where}; {sentence}"
        for name, sentence in sentences.items()
    }


def varying(
    names: Sequence[str], model: CompiledModel, inputs: Sequence[np.ndarray], runs: int
) -> dict[str, str]:
    """The outputs that differ among runs in which all new memory holds NaN, each with a sentence.

    Without that, a thread that is too early finds the right values of the run before.  Empty for a
    model for a GPU.

    Parameters
    ----------
    names : sequence of str
        The names of the outputs.
    model : CompiledModel
    inputs : sequence of numpy.ndarray
    runs : int
    """
    if runs < 2 or model.manifest.target["kind"] != "llvm":
        return {}
    first = _run(model, inputs, Fill.NAN)
    return disagreements(names, first, lambda: _run(model, inputs, Fill.NAN), runs)


def _is_of_memory(model: CompiledModel, inputs: Sequence[np.ndarray]) -> bool:
    """Whether the memory, and nothing else, makes results differ: again each time, and always to
    the same results.  Those of a race change by themselves, but maybe seldom."""
    known: dict[Fill, list[bytes]] = {}
    for _ in range(_ROUNDS):
        runs = {fill: [array.tobytes() for array in _run(model, inputs, fill)] for fill in _FILLS}
        if all(run == runs[Fill.NONE] for run in runs.values()):
            return False
        if any(known.setdefault(fill, runs[fill]) != runs[fill] for fill in _FILLS[1:]):
            return False
    return True


def _run(
    model: CompiledModel,
    inputs: Sequence[np.ndarray],
    fill: Fill,
    see: Callable[[str, Sequence[Any]], None] = lambda name, arguments: None,
) -> list[np.ndarray]:
    """The results of a run; `see` is called after each kernel."""

    def instrument(_: Any, name: str, is_before: bool, result: Any, *arguments: Any) -> None:
        if is_before:
            return
        if name == _ALLOCATION:
            _fill(result, fill)
        elif not name.startswith(_VIRTUAL_MACHINE):
            see(name, arguments)

    run = model.bound(*(value.copy() for value in inputs))
    with ambient.within(fill=fill), model.instrumented(instrument):
        return arrays_of(run())


def _fill(tensor: tvm.runtime.Tensor, fill: Fill) -> None:
    dtype = str(tensor.dtype)
    is_large = fill is Fill.LARGE
    if fill is Fill.NONE or 0 in tensor.shape:
        return
    if dtype in LARGE:
        array_of(tensor)[...] = LARGE[dtype] if is_large else np.nan
    elif dtype == "bool":
        array_of(tensor)[...] = not is_large
    elif dtype.startswith(("int", "uint")) and tvm.DataType(dtype).bits >= 8:
        array = array_of(tensor)
        limits = np.iinfo(array.dtype)
        array[...] = limits.max // 2 if is_large else limits.max
    else:
        raw_bytes(tensor)[...] = 0x55 if is_large else 0xFF


def _first_kernel(model: CompiledModel, inputs: Sequence[np.ndarray]) -> str:
    """The first kernel whose tensors depend on the memory after its call, with its nodes."""
    runs: list[list[tuple[str, int]]] = []
    for fill in _FILLS[1:]:
        seen: list[tuple[str, int]] = []

        def see(name: str, arguments: Sequence[Any], seen: list[tuple[str, int]] = seen) -> None:
            tensors = [value for value in arguments if isinstance(value, tvm.runtime.Tensor)]
            seen.append((name, hash(tuple(raw_bytes(value).tobytes() for value in tensors))))

        _run(model, inputs, fill, see)
        runs.append(seen)
    names = [name for name, _ in runs[0]]
    place = next(
        (at for at, pair in enumerate(zip(*runs, strict=False)) if pair[0] != pair[1]), None
    )
    return "" if place is None else f" in kernel {_described(names, place, model.manifest.kernels)}"


def _described(names: Sequence[str], place: int, known: KernelCalls) -> str:
    calls, _ = known.of_run(names)
    nodes = ", ".join(map(str, known.nodes_of(calls[place])))
    return f"{names[place]} ({nodes})" if nodes else names[place]
