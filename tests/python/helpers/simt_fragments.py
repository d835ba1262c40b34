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
"""The fragments of tensor cores, for the interpreter of GPU kernels in ``simt``."""

import math
from typing import Any

import numpy as np
import tvm
from tvm import tirx

_SIDE = 16
_WARP = 32
_PER_LANE = _SIDE * _SIDE // _WARP

CALLS = frozenset(
    f"tvm_{name}" for name in ("fill_fragment", "load_matrix_sync", "mma_sync", "store_matrix_sync")
)
"""The calls that :class:`Fragments` executes, by their names without the dialect."""


class Fragments:
    """Matrices of 16 x 16 elements; each lane of a warp holds 8 of them, in row-major order.

    Parameters
    ----------
    machine : object
        The interpreter, whose memory and lanes they use.
    """

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.values: dict[Any, np.ndarray] = {}

    def allocate(self, buffer: Any) -> None:
        """Allocate the fragments of a buffer of scope ``wmma.*``; they are NaN."""
        count = math.prod(map(int, buffer.shape)) // (_SIDE * _SIDE)
        self.values[buffer] = np.full((len(self.machine.active), count, _PER_LANE), np.nan)

    def call(self, name: str, args: Any) -> np.ndarray:
        """Execute one of :data:`CALLS`."""
        getattr(self, f"_{name.removeprefix('tvm_')}")(*args)
        return np.zeros(1, np.int32)

    def _at(self, data: Any, index: Any) -> tuple[np.ndarray, tuple[Any, Any]]:
        """The fragments of a buffer, and the place of one of them for each active lane."""
        lanes = np.flatnonzero(self.machine.active)
        indices = np.broadcast_to(self.machine.value(index), self.machine.active.shape)
        return self.values[_buffer(data)], (lanes, indices[lanes])

    def _fill_fragment(self, data: Any, _m: Any, _n: Any, _k: Any, index: Any, value: Any) -> None:
        values, place = self._at(data, index)
        values[place] = self.machine.scalar(value)

    def _load_matrix_sync(
        self,
        data: Any,
        _m: Any,
        _n: Any,
        _k: Any,
        index: Any,
        pointer: Any,
        stride: Any,
        layout: Any,
    ) -> None:
        values, place = self._at(data, index)
        memory, rows, at, mask, dtype = self._elements(pointer, stride, layout)
        self.machine.check_use(memory, rows, at, mask, dtype, is_write=False)
        values[place] = memory.bytes.view(dtype)[rows, at][self.machine.active].astype(float)

    def _store_matrix_sync(
        self,
        data: Any,
        _m: Any,
        _n: Any,
        _k: Any,
        index: Any,
        pointer: Any,
        stride: Any,
        layout: Any,
    ) -> None:
        values, place = self._at(data, index)
        memory, rows, at, mask, dtype = self._elements(pointer, stride, layout)
        self.machine.check_use(memory, rows, at, mask, dtype, is_write=True)
        memory.bytes.view(dtype)[rows[mask], at[mask]] = values[place].reshape(-1).astype(dtype)

    def _mma_sync(self, *args: Any) -> None:
        out, lhs, rhs, add = (self._at(*args[i : i + 2]) for i in range(0, 8, 2))
        a, b, c = (
            values[place].reshape(-1, _SIDE, _SIDE).astype(np.float32)
            for values, place in (lhs, rhs, add)
        )
        values, place = out
        values[place] = (a @ b + c).reshape(-1, _PER_LANE)

    def _elements(self, pointer: Any, stride: Any, layout: Any) -> tuple[Any, ...]:
        """The elements of a matrix in memory, as ``position`` of the interpreter returns them."""
        machine = self.machine
        buffer, offset = _buffer(pointer.args[1]), machine.value(pointer.args[2])
        start = np.broadcast_to(offset.astype(np.int64), machine.active.shape)
        element = (machine.thread % _WARP)[:, None] * _PER_LANE + np.arange(_PER_LANE)
        row, column = element // _SIDE, element % _SIDE
        if str(layout.value) == "col_major":
            row, column = column, row
        place = start[:, None] + row * machine.scalar(stride) + column
        return machine.vector_position(buffer, place)


def _buffer(data: Any) -> tirx.Var:
    while isinstance(data, tvm.ir.Call):
        data = data.args[0]
    return data
