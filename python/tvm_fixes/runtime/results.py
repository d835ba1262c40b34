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

import tvm
import tvm_ffi

from ..support.tensors import array_view, assign, fields_of, from_tvm, is_writable
from .input_buffers import MAX_BYTES

MAX_IDLE_BYTES = 1 << 26
"""The memory of dropped results that may always stay in the pool."""

_clear = tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")

# A name of its own: to look it up takes a while, too.
_ONE_OUTPUT = (tvm.runtime.Tensor, tvm.runtime.ShapeTuple)


class _Loan(weakref.ref[Any]):
    """A reference to a result in memory of the pool."""

    __slots__ = ("max_idle_bytes", "nbytes")

    nbytes: int
    max_idle_bytes: int


class _Pool:
    """The memory of results in the pool of TVM.

    Without a lock, which a fork might leave held: if two threads change a number at the same time,
    the pool is cleared a bit too early or too late.
    """

    def __init__(self) -> None:
        self.loans: dict[int, _Loan] = {}
        self.idle_bytes = 0
        """The memory of dropped results that no later result has."""
        self._idle: dict[int, int] = {}
        """The number of such results by size."""

    def lend(self, arrays: Sequence[Any]) -> None:
        """Note that the caller has results of one call."""
        limit = max(MAX_IDLE_BYTES, 2 * sum([array.nbytes for array in arrays]))
        for array in arrays:
            nbytes = array.nbytes
            loan = _Loan(array, self._take_back)
            loan.nbytes, loan.max_idle_bytes = nbytes, limit
            self.loans[id(loan)] = loan
            if self._idle.get(nbytes):
                self._idle[nbytes] -= 1
                self.idle_bytes -= nbytes

    def _take_back(self, loan: _Loan) -> None:
        self.loans.pop(id(loan), None)
        nbytes = loan.nbytes
        self._idle[nbytes] = self._idle.get(nbytes, 0) + 1
        self.idle_bytes += nbytes
        if self.idle_bytes > loan.max_idle_bytes:
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
