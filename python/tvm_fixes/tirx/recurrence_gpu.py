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
"""The schedule of recurrent layers for a GPU.

A thread block computes a sequence.  Each thread keeps its elements of the states, and of all gates,
in registers; the block shares the states that the next product reads.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from .gpu_threads import WARP
from .loop_kernels import cast, when
from .recurrence_schedule import At, Multiply, Part, Schedule, int64

__all__ = ["GpuSchedule"]

_MAX_THREADS = 1024


@dataclass
class GpuSchedule(Schedule):
    """A thread block for each sequence.

    The operand with the weights is transposed, so that adjacent threads read adjacent elements.

    Attributes
    ----------
    threads : int
        The threads of a block.
    """

    threads: int = _MAX_THREADS
    _thread: Any = field(default=None, init=False)

    @classmethod
    def of(cls, hidden: int) -> Self:
        """The schedule for states of `hidden` elements."""
        return cls(threads=min(-(-hidden // WARP) * WARP, _MAX_THREADS))

    @property
    def has_padding(self) -> bool:
        return False

    def rounded(self, extent: int) -> int:
        return -(-extent // self.threads)

    def columns(self, parts: Sequence[Part], hidden: int) -> int:
        return sum(part.rows for part in parts) // hidden * self.rounded(hidden)

    def stride(self, hidden: int) -> int:
        return self.rounded(hidden)

    def buffer(self, rows: Any, columns: int, dtype: str) -> Any:
        return T.buffer_proxy(T.alloc_buffer((rows, int64(columns)), dtype, scope="local"))

    @contextmanager
    def blocks(self, count: tirx.Expr) -> Iterator[Any]:
        with (
            T.thread_binding(0, count, thread="blockIdx.x") as block,
            T.thread_binding(0, int64(self.threads), thread="threadIdx.x") as thread,
        ):
            self._thread = thread
            yield block

    def each(self, extent: int, body: Callable[[At], None]) -> None:
        # Threads beyond the last element compute it again.
        with T.unroll(0, int64(self.rounded(extent))) as part:
            body(At(tirx.min(self._element(part), int64(extent - 1)), part))

    def each_place(self, extent: int, body: Callable[[At], None]) -> None:
        self.each(extent, body)

    def each_result(self, extent: int, body: Callable[[At], None]) -> None:
        with T.unroll(0, int64(self.rounded(extent))) as part, when(self._element(part) < extent):
            body(At(self._element(part), part))

    def _element(self, part: Any) -> Any:
        return part * self.threads + self._thread

    def multiplier(self, weights: Sequence[Any], rows: Any, hidden: int) -> Multiply:
        [matrix] = weights
        count, dtype = self.rounded(hidden), str(matrix.dtype)
        shape = (int64(count * self.threads),)
        shared = T.buffer_proxy(T.alloc_buffer(shape, dtype, scope="shared"))

        def multiply(states: Any, results: Any, part: Part) -> None:
            first, gates = part.first // hidden, part.rows // hidden
            # TVM inserts the barriers between accesses to the shared states.
            with T.unroll(0, int64(count)) as own:
                shared[self._element(own)] = states[int64(0), own]
            for gate in range(first, first + gates):
                self.each(hidden, _setter(results, gate * count, dtype))
            with T.serial(0, int64(hidden)) as k:
                for gate in range(first, first + gates):

                    def add(at: At, gate: int = gate) -> None:
                        place = at.place + gate * count
                        weight = matrix[k, at.index + gate * hidden]
                        results[int64(0), place] = results[int64(0), place] + shared[k] * weight

                    self.each(hidden, add)

        return multiply


def _setter(results: Any, first: int, dtype: str) -> Callable[[At], None]:
    """Set the sums from `first` on to 0."""

    def element(at: At) -> None:
        results[int64(0), at.place + first] = cast(0.0, dtype)

    return element
