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
"""Results whose memory the caller keeps: large ones are not copied.

When the caller drops such a result, its memory returns to the pool of TVM:
``src/runtime/lent_results.cc`` limits how much of it stays there.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from ..support.tensors import array_view, assign, fields_of, from_tvm
from .input_buffers import MAX_BYTES

MAX_IDLE_BYTES = 1 << 26
"""The memory of dropped results that may always stay in the pool."""

_clear = tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")

# A name of its own: to look it up takes a while, too.
_ONE_OUTPUT = (tvm.runtime.Tensor, tvm.runtime.ShapeTuple)


def lending(
    function: Callable[..., Any], last: Sequence[Any], owned: Sequence[int]
) -> Callable[..., Any] | None:
    """A model's function with its last arguments, whose caller may keep the memory of its results.

    Parameters
    ----------
    function : callable
        The function of the virtual machine.
    last : sequence
        Its last arguments.
    owned : sequence of int
        The indices of the outputs that share no memory with anything else.

    Returns
    -------
    lending : callable or None
        None if the native library of a checkout was built before there was one.
    """
    lend = tvm_ffi.get_global_func("tvm_fixes.runtime.Lending", allow_missing=True)
    if lend is None:
        return None
    places = tvm_ffi.Shape(owned)
    return lend(function, tvm_ffi.convert(last), places, MAX_BYTES + 1, MAX_IDLE_BYTES, _clear)


def returned(result: Any, owned: Collection[int], *, as_torch: bool) -> Any:
    """Convert the result of a model's function to that of :meth:`CompiledModel.run`.

    Parameters
    ----------
    result : object
        What the function of :func:`lending` returns.
    owned : collection of int
        The indices of the outputs that share no memory with anything else.
    as_torch : bool
        Whether outputs are PyTorch tensors.

    Returns
    -------
    outputs : array, or tuple of arrays
        In memory of their own: large ones in `owned` in that of the result, the others are copies.
    """
    if type(result) is tvm.runtime.Tensor and owned and not as_torch:
        # The usual case; after a large model has run, Python's code comes from memory.
        try:
            array = np.from_dlpack(result)
        except (BufferError, RuntimeError):
            pass
        else:
            if array.nbytes > MAX_BYTES and array.flags.writeable:
                return array
    # Not a tuple of outputs: a ShapeTuple is a single output, too.
    fields = [result] if isinstance(result, _ONE_OUTPUT) else fields_of(result)
    outputs = _arrays(fields, owned, as_torch)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def updated(
    result: Any,
    new: Mapping[int, Any],
    number: int,
    owned: Collection[int],
    *,
    as_torch: bool,
) -> Any:
    """Write new values into inputs, and return the first `number` results.

    Parameters
    ----------
    result : object
        The result of a model's function.
    new : mapping of int to array
        For the index of a result, the input that gets the value.
    number : int
    owned, as_torch
        As for :func:`returned`.
    """
    fields = [result] if isinstance(result, tvm.runtime.Tensor) else fields_of(result)
    others = [index for index in range(number) if index not in new]
    places = [place for place, index in enumerate(others) if index in owned]
    # Outputs may be views of inputs: convert all before any input changes.
    arrays = iter(_arrays([fields[index] for index in others], places, as_torch))
    outputs = [new[index] if index in new else next(arrays) for index in range(number)]
    for index, value in new.items():
        assign(value, fields[index])
    return outputs[0] if number == 1 else tuple(outputs)


def _arrays(fields: Sequence[Any], owned: Collection[int], as_torch: bool) -> list[Any]:
    """Results as arrays in memory of their own."""
    outputs = []
    for index, value in enumerate(fields):
        array = array_view(value, as_torch=as_torch)
        if array is None:
            array = from_tvm(value, as_torch=as_torch)
        elif index not in owned or array.nbytes <= MAX_BYTES:
            array = array.clone() if as_torch else array.copy()
        elif not (as_torch or array.flags.writeable):  # before NumPy 2.1
            array = array.copy()
        outputs.append(array)
    return outputs
