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
"""Products of quantized states, as in ONNX Runtime's DynamicQuantizeLSTM.

Each step quantizes the states of all sequences to uint8, so that the range covers 0 and all
elements.  Their product with 8-bit weights is an integer; it is scaled to float32 afterwards.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from ..target.cpu import Cpu
from .accumulation import choose_multiply_accumulate
from .dot_product import DotProduct
from .loop_kernels import Outputs, cast
from .recurrence_schedule import At, CpuSchedule, Multiply, Part, Schedule, int64
from .register_tile import even_part

__all__ = ["QuantizedCpuSchedule", "QuantizedSchedule"]

_LEVELS = 255


class _States:
    """The states of all sequences, quantized.

    Attributes
    ----------
    integers : buffer
        The quantized states in uint8, with the elements of the padding.
    sums : buffer
        The sum of the quantized states of each sequence, with the padding, in int32.
    scale, zero : buffer
        The parameters, in float32 and int32.
    """

    def __init__(self, schedule: Schedule, rows: Any, hidden: int) -> None:
        self._schedule, self._rows, self._hidden = schedule, rows, hidden
        self.width = schedule.rounded(hidden)
        self.integers = schedule.buffer(rows, self.width, "uint8")
        self.sums = schedule.buffer(rows, 1, "int32")
        self.scale = schedule.registers_for(1, "float32")
        self.zero = schedule.registers_for(1, "int32")

    def quantize(self, states: Any) -> None:
        """Quantize states, whose padding becomes 0."""
        low, high = self._bounds(states)
        width, levels = high[0] - low[0], cast(_LEVELS, "float32")
        one = cast(1.0, "float32")
        is_zero = width.equal(cast(0.0, "float32"))
        self.scale[0] = tirx.Select(is_zero, one, width / levels)
        zero = tirx.nearbyint(-low[0] / self.scale[0])
        self.zero[0] = _clipped(zero).astype("int32")
        start = self._schedule.registers_for(1, "float32", self.zero[0].astype("float32"))
        scale = self._schedule.registers_for(1, "float32", self.scale[0])
        with T.serial(0, self._rows) as row:

            def element(at: At) -> None:
                level = tirx.nearbyint(states[row, at.place] / scale[0]) + start[0]
                self.integers[row, at.place] = _clipped(level).astype("uint8")

            self._schedule.each(self.width, element)
            total = self._schedule.registers_for(1, "int32", 0)
            with T.serial(0, int64(self.width)) as at:
                total[0] = total[0] + self.integers[row, at].astype("int32")
            self.sums[row, int64(0)] = total[0]

    def _bounds(self, states: Any) -> tuple[Any, Any]:
        """The least and the greatest of all states and 0; the padding of the states becomes 0."""
        lanes = self._schedule.lanes
        small = self._schedule.registers_for
        low, high = (small(lanes, "float32", 0.0) for _ in range(2))
        functions = ((low, tirx.min), (high, tirx.max))
        with T.serial(0, self._rows) as row:
            with T.serial(int64(self._hidden), int64(self.width)) as at:
                states[row, at] = cast(0.0, "float32")
            with T.serial(0, int64(self.width // lanes)) as part:
                for vector, choose in functions:
                    with T.vectorized(0, int64(lanes)) as lane:
                        vector[lane] = choose(vector[lane], states[row, part * lanes + lane])
        bounds = small(1, "float32", 0.0), small(1, "float32", 0.0)
        with T.serial(0, int64(lanes)) as lane:
            for bound, (vector, choose) in zip(bounds, functions, strict=True):
                bound[0] = choose(bound[0], vector[lane])
        return bounds


@dataclass
class QuantizedSchedule(Schedule):
    """Scalar loops, for any target.

    The operands are the weights, of shape (gates * hidden, hidden), their scales in float32, and
    their zero points in int32, each of shape (gates * hidden,).
    """

    _given: Iterator[Any] = field(default_factory=lambda: iter(()), init=False)

    @property
    def is_one_block(self) -> bool:
        return True

    def operands(self, products: int) -> int:
        return 3

    def workspaces(self, batch: Any, hidden: int, states: int, gates: int) -> Outputs:
        # A kernel of a GPU cannot allocate memory of symbolic size.
        columns = int64(gates * hidden + (states + gates) * hidden)
        return [
            ((batch, columns), "float32"),
            ((batch, int64(hidden)), "uint8"),
            ((batch, int64(1)), "int32"),
        ]

    def use(self, workspaces: Sequence[Any]) -> None:
        self._given = iter(workspaces)

    def buffer(self, rows: Any, columns: int, dtype: str) -> Any:
        return next(self._given)

    def multiplier(self, weights: Sequence[Any], rows: Any, hidden: int) -> Multiply:
        matrix, scales, zeros = weights
        quantized = _States(self, rows, hidden)

        def multiply(states: Any, results: Any, part: Part) -> None:
            quantized.quantize(states)
            with T.serial(0, rows) as row, T.serial(0, int64(part.rows)) as column:
                total = self.registers_for(1, "int32", 0)
                with T.serial(0, int64(hidden)) as k:
                    level = quantized.integers[row, k].astype("int32") - quantized.zero[0]
                    weight = matrix[column, k].astype("int32") - zeros[column]
                    total[0] = total[0] + level * weight
                factor = quantized.scale[0] * scales[column]
                results[row, column] = total[0].astype("float32") * factor

        return multiply


@dataclass
class QuantizedCpuSchedule(CpuSchedule):
    """Vectors and register tiles, with dot products of bytes if the CPU has them.

    The operands are the weights in int8, of shape (tiles, ceil(hidden / depth), columns of a tile *
    depth), the scales, the zero points, and the sum of the weights of each column minus its zero
    point for each element of the padded states.  The zero points are those of int8.

    Attributes
    ----------
    dot_product : DotProduct, optional
    """

    dot_product: DotProduct | None = None

    @classmethod
    def of(cls, cpu: Cpu, dtype: str, batch: tirx.Expr) -> Self:
        plain = CpuSchedule.of(cpu, dtype, batch)
        chosen = choose_multiply_accumulate("uint8", "int8", "int32", cpu).dot_product
        return cls(plain.lanes, plain.rows, plain.registers, chosen)

    @property
    def depth(self) -> int:
        """The number of products that are added to a sum at once."""
        return 1 if self.dot_product is None else self.dot_product.depth

    @property
    def is_one_block(self) -> bool:
        return True

    def operands(self, products: int) -> int:
        return 4

    def multiplier(self, weights: Sequence[Any], rows: Any, hidden: int) -> Multiply:
        matrix, scales, zeros, offsets = weights
        quantized = _States(self, rows, hidden)
        totals = self.buffer(rows, self.padded(int(scales.shape[0])), "int32")

        def multiply(states: Any, results: Any, part: Part) -> None:
            quantized.quantize(states)
            _in_tiles(
                rows,
                self.rows,
                lambda first, count: self._product(quantized, matrix, totals, first, count),
            )
            zero = self.registers_for(1, "int32", quantized.zero[0])
            scale = self.registers_for(1, "float32", quantized.scale[0])
            with T.serial(0, rows) as row:
                of_row = self.registers_for(1, "int32", quantized.sums[row, int64(0)])

                def element(at: At) -> None:
                    extra = zero[0] * offsets[at.index] + zeros[at.index] * of_row[0]
                    total = (totals[row, at.place] - extra).astype("float32")
                    results[row, at.place] = total * (scale[0] * scales[at.index])

                self.each(part.rows, element)

        return multiply

    def _product(self, quantized: _States, matrix: Any, totals: Any, first: Any, rows: int) -> None:
        """Store the integer products of some sequences."""
        tiles, _, in_tile = matrix.shape
        width = int(in_tile) // self.depth
        vectors = width // self.lanes
        at_once = even_part(vectors, max((self.registers - 2) // (rows + 1), 1))
        with T.serial(0, tiles) as tile:
            for begin in range(0, vectors, at_once):
                count, column = min(at_once, vectors - begin), begin * self.lanes
                sums = self._sums(quantized, matrix, tile, (first, rows), (column, count))
                for row, total in enumerate(sums):
                    with self.each_vector(count) as at:
                        totals[first + row, tile * width + column + at] = total[at]

    def _sums(
        self,
        quantized: _States,
        matrix: Any,
        tile: Any,
        rows: tuple[Any, int],
        columns: tuple[int, int],
    ) -> list[Any]:
        """Multiply by a register tile; return the sums of each row.

        Parameters
        ----------
        rows : pair
            The first sequence, and the number of sequences.
        columns : pair of int
            The first column in the tile, and the number of vectors.
        """
        (first, row_count), (column, vectors) = rows, columns
        sums = [self.registers_for(vectors * self.lanes, "int32") for _ in range(row_count)]
        for total in sums:
            with self.each_vector(vectors) as at:
                total[at] = cast(0, "int32")
        integers, lanes, dot = quantized.integers, self.lanes, self.dot_product
        with T.serial(0, matrix.shape[1]) as k:
            for row, total in enumerate(sums):
                if dot is None:
                    with self.each_vector(vectors) as at:
                        weight = matrix[tile, k, at + column].astype("int32")
                        total[at] = total[at] + integers[first + row, k].astype("int32") * weight
                    continue
                bytes_of_step = integers[[first + row, tirx.Ramp(k * dot.depth, 1, dot.depth)]]
                data = tirx.reinterpret("int32", bytes_of_step)
                with T.unroll(0, int64(vectors)) as vector:
                    place = tirx.Ramp(vector * lanes, int64(1), lanes)
                    begin = (vector * lanes + column) * dot.depth
                    of_vector = tirx.Ramp(begin, int64(1), lanes * dot.depth)
                    total[[place]] = dot.added(total[[place]], data, matrix[[tile, k, of_vector]])
        return sums


def _in_tiles(rows: Any, tile: int, emit: Callable[[Any, int], None]) -> None:
    """Emit statements for tiles of rows; the rows that are left are tiles of their own."""
    whole = rows // tile
    with T.serial(0, whole) as number:
        emit(number * tile, tile)
    if not isinstance(rows, tirx.IntImm) or int(rows) % tile:
        with T.serial(whole * tile, rows) as row:
            emit(row, 1)


def _clipped(level: Any) -> Any:
    """A level within the range of uint8."""
    return tirx.max(tirx.min(level, cast(_LEVELS, "float32")), cast(0.0, "float32"))
