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
"""Schedules of the kernels of recurrent layers: loops over elements, and matrix products."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from ..target.cpu import Cpu
from .loop_kernels import Outputs, cast
from .register_tile import even_part

__all__ = ["At", "CpuSchedule", "Part", "Schedule", "int64"]

_MAX_ROWS = 4
_MAX_ROWS_OF_FEW_REGISTERS = 2
_MAX_VECTORS = 8


def int64(number: int) -> tirx.Expr:
    """A number as an extent or an index."""
    return tirx.const(number, "int64")


class Part(NamedTuple):
    """The gates that a product computes.

    Attributes
    ----------
    number : int
        The index of the product.
    first, rows : int
        The first row of the weights, and their number.
    """

    number: int
    first: int
    rows: int


class At(NamedTuple):
    """The position of an element of a row.

    Attributes
    ----------
    index : tirx.Expr
        In tensors, which are operands and results.
    place : tirx.Expr
        In the buffers of a block.
    """

    index: Any
    place: Any


Multiply: TypeAlias = Callable[[Any, Any, Part], None]
"""Emits a product: of a buffer with states, stored in another buffer."""


@dataclass
class Schedule:
    """Scalar loops over unpacked weights, for any target.

    Attributes
    ----------
    lanes : int
        The elements of a vector.
    rows : int
        The sequences of a block.
    """

    lanes: int = 1
    rows: int = 1

    scope: ClassVar[str] = "local"
    """The scope of small buffers."""

    @property
    def is_one_block(self) -> bool:
        """Whether all sequences are one block, of any number of rows."""
        return False

    @property
    def has_padding(self) -> bool:
        """Whether rows of buffers have elements beyond the last column, which are computed, too."""
        return True

    def stride(self, hidden: int) -> int:
        """The distance of the gates in the sums."""
        return hidden

    def workspaces(self, batch: Any, hidden: int, states: int, gates: int) -> Outputs:
        """Shape and dtype of the results that serve as buffers, in the order of their use."""
        return []

    def use(self, workspaces: Sequence[Any]) -> None:
        """Take the buffers of :meth:`workspaces`."""

    def buffer(self, rows: Any, columns: int, dtype: str) -> Any:
        """A buffer of the block."""
        return T.buffer_proxy(T.alloc_buffer((rows, int64(columns)), dtype))

    def registers_for(self, count: int, dtype: str, value: Any = None) -> Any:
        """A small buffer, which LLVM or nvcc keeps in registers; all elements are `value`."""
        buffer = T.buffer_proxy(T.alloc_buffer((count,), dtype, scope=self.scope))
        if value is not None:
            with T.vectorized(0, int64(count)) if count > 1 else T.serial(0, int64(1)) as at:
                buffer[at] = cast(value, dtype)
        return buffer

    def operands(self, products: int) -> int:
        """The number of operands that have the weights of all products."""
        return 1

    def padded(self, columns: int) -> int:
        """The columns that a product writes, of which the first `columns` matter."""
        return columns

    def columns(self, parts: Sequence[Part], hidden: int) -> int:
        """The columns of the sums, with padding for the products and for vectors of each gate."""
        last = parts[-1].first + parts[-1].rows - hidden
        written = [part.first + self.padded(part.rows) for part in parts]
        return max(*written, self.rounded(last + self.rounded(hidden)))

    def rounded(self, extent: int) -> int:
        """`extent`, rounded up to whole vectors."""
        return -(-extent // self.lanes) * self.lanes

    def blocks(self, count: tirx.Expr) -> AbstractContextManager[Any]:
        """A loop over the blocks of sequences."""
        return T.serial(0, count)

    def each_place(self, extent: int, body: Callable[[At], None]) -> None:
        """Run `body`, which stores to a buffer, for each element and those of the padding."""
        self.each(self.rounded(extent), body)

    def each_result(self, extent: int, body: Callable[[At], None]) -> None:
        """Run `body`, which stores to a result, for each element below `extent`."""
        self.each(extent, body)

    def each(self, extent: int, body: Callable[[At], None]) -> None:
        """Run `body`, which stores to one buffer, for each element below `extent`."""
        done = 0
        lanes = self.lanes
        while done < extent:
            count = (extent - done) // lanes
            if count:
                with T.serial(0, int64(count)) as vector, T.vectorized(0, int64(lanes)) as lane:
                    at = int64(done) + vector * lanes + lane
                    body(At(at, at))
                done += count * lanes
            lanes //= 2

    def multiplier(self, weights: Sequence[Any], rows: Any, hidden: int) -> Multiply:
        """Prepare products of a block of sequences.

        Parameters
        ----------
        weights : sequence of buffers
            The operands with weights.
        rows : tirx.Expr
            The number of sequences.
        hidden : int
            The elements of a state.
        """

        def multiply(states: Any, results: Any, part: Part) -> None:
            self.multiply(states, results, weights, int(rows), part)

        return multiply

    def multiply(
        self, states: Any, results: Any, weights: Sequence[Any], rows: int, part: Part
    ) -> None:
        """Store the product of `states` and weights in columns of `results`.

        Parameters
        ----------
        states, results : buffer
            Each has `rows` rows.
        weights : sequence of buffers
            The operands with weights.
        rows : int
        part : Part
            The rows of the weights, and the columns of the results.
        """
        [matrix] = weights
        with T.serial(0, int64(rows)) as row, T.serial(0, int64(part.rows)) as column:
            total = self.registers_for(1, str(results.dtype), 0.0)
            with T.serial(0, matrix.shape[1]) as k:
                total[0] = total[0] + states[row, k] * matrix[column + part.first, k]
            results[row, column + part.first] = total[0]


@dataclass
class CpuSchedule(Schedule):
    """Vectors, register tiles, and packed weights.

    Each product has an operand of its own, of shape (tiles, hidden, columns of a tile).

    Attributes
    ----------
    registers : int
        The number of vector registers.
    """

    registers: int = 16

    # TVM puts those of scope "local" on the heap.
    scope: ClassVar[str] = "global"

    @classmethod
    def of(cls, cpu: Cpu, dtype: str, batch: tirx.Expr) -> Self:
        """The schedule for states of `dtype`."""
        lanes = cpu.vector_bytes // (tvm.DataType(dtype).bits // 8)
        limit = _MAX_ROWS if cpu.vector_registers > 16 else _MAX_ROWS_OF_FEW_REGISTERS
        rows = even_part(int(batch), limit) if isinstance(batch, tirx.IntImm) and batch else limit
        return cls(lanes, rows, cpu.vector_registers)

    def tile_columns(self, columns: int) -> int:
        """The columns of a tile of a product."""
        return even_part(-(-columns // self.lanes), _MAX_VECTORS) * self.lanes

    def operands(self, products: int) -> int:
        return products

    def padded(self, columns: int) -> int:
        width = self.tile_columns(columns)
        return -(-columns // width) * width

    def blocks(self, count: tirx.Expr) -> AbstractContextManager[Any]:
        if isinstance(count, tirx.IntImm) and int(count) == 1:
            return nullcontext(int64(0))
        return T.parallel(0, count)

    def multiply(
        self, states: Any, results: Any, weights: Sequence[Any], rows: int, part: Part
    ) -> None:
        matrix = weights[part.number]
        tiles, _, width = matrix.shape
        vectors = int(width) // self.lanes
        # Registers: `at_once` vectors of sums for each row, and as many of weights, which all rows
        # share: at_once * (rows + 1); one more has the broadcast state, and one is spare.
        at_once = even_part(vectors, max((self.registers - 2) // (rows + 1), 1))
        with T.serial(0, tiles) as tile:
            for begin in range(0, vectors, at_once):
                count, first = min(at_once, vectors - begin), int64(begin * self.lanes)
                sums = self._tile(states, matrix, tile, first, rows, count)
                for row, total in enumerate(sums):
                    with self.each_vector(count) as at:
                        results[row, tile * width + (first + part.first) + at] = total[at]

    def _tile(
        self, states: Any, matrix: Any, tile: Any, first: Any, rows: int, vectors: int
    ) -> list[Any]:
        """Multiply by a register tile; return the sums of each row.

        1. Clear the sums, one buffer of `vectors` vectors for each row.
        2. For each state k, load `vectors` vectors of weights, and add their products with state k
           of each row to the sums of the row.
        """
        # A buffer for each row: TVM puts larger ones on the heap.
        count, dtype = vectors * self.lanes, str(states.dtype)
        sums = [self.registers_for(count, dtype) for _ in range(rows)]
        for total in sums:
            with self.each_vector(vectors) as at:
                total[at] = cast(0.0, dtype)
        with T.serial(0, matrix.shape[1]) as k:
            for row, total in enumerate(sums):
                with self.each_vector(vectors) as at:
                    total[at] = total[at] + states[int64(row), k] * matrix[tile, k, first + at]
        return sums

    @contextmanager
    def each_vector(self, count: int) -> Iterator[Any]:
        """Run the statements of the ``with`` block for each element of `count` vectors."""
        with T.unroll(0, int64(count)) as vector, T.vectorized(0, int64(self.lanes)) as lane:
            yield vector * self.lanes + lane
