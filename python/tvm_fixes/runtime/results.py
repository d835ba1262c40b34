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

When the caller drops such a result, its memory returns to the pool of TVM, which keeps it for the
next tensor of that size.  A caller that keeps many results at the same time would leave as many
pieces of memory there.  Therefore, the pool is cleared if it has too much of it.
"""

import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from ..support.tensors import array_view, assign, fields_of, from_tvm, is_writable
from .input_buffers import MAX_BYTES

MAX_IDLE_BYTES = 1 << 26
"""The memory of dropped results that may always stay in the pool."""

_clear = tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")

# A name of its own: to look it up takes a while, too.
_ONE_OUTPUT = (tvm.runtime.Tensor, tvm.runtime.ShapeTuple)


class _Pool:
    """The memory of results in the pool of TVM.

    Without a lock, which a fork might leave held: if two threads change a number at the same time,
    the pool is cleared a bit too early or too late.
    """

    def __init__(self) -> None:
        self.loans: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        """For each result that the caller has, its size, and the memory that may be idle then."""
        self.idle_bytes = 0
        """The memory of dropped results that no later result has."""
        self._idle: dict[int, int] = {}
        """The number of such results by size."""

    def lend(self, arrays: Sequence[Any]) -> None:
        """Note that the caller has results of one call."""
        total = sum([array.nbytes for array in arrays])
        for array in arrays:
            self.lend_one(array, array.nbytes, total)

    def lend_one(self, array: Any, nbytes: int, total: int) -> None:
        """Note that the caller has a result of a call whose results have `total` bytes."""
        loan = weakref.ref(array, self._take_back)
        self.loans[id(loan)] = loan, nbytes, total
        idle = self._idle
        if idle.get(nbytes):
            idle[nbytes] -= 1
            self.idle_bytes -= nbytes

    def _take_back(self, loan: weakref.ref[Any]) -> None:
        _, nbytes, total = self.loans.pop(id(loan))
        idle = self._idle
        idle[nbytes] = idle.get(nbytes, 0) + 1
        self.idle_bytes += nbytes
        if self.idle_bytes > MAX_IDLE_BYTES and self.idle_bytes > 2 * total:
            self.idle_bytes = 0
            self._idle.clear()
            _clear()


_pool = _Pool()


def returned(result: Any, owned: Collection[int], *, as_torch: bool) -> Any:
    """Convert the result of a model's function to that of :meth:`CompiledModel.run`.

    Parameters
    ----------
    result : object
        What the virtual machine returns.
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
            nbytes = array.nbytes
            if nbytes > MAX_BYTES and array.flags.writeable:
                _pool.lend_one(array, nbytes, nbytes)
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
    outputs, lent = [], []
    for index, value in enumerate(fields):
        array = array_view(value, as_torch=as_torch)
        if array is None:
            array = from_tvm(value, as_torch=as_torch)
        elif index in owned and array.nbytes > MAX_BYTES and is_writable(array):
            lent.append(array)
        else:
            array = array.clone() if as_torch else array.copy()
        outputs.append(array)
    if lent:
        _pool.lend(lent)
    return outputs
