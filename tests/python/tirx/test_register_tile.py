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
"""tvm_fixes.tirx.register_tile, and the tiles of convolutions and matmuls."""

import itertools

import pytest
import tvm
import tvm.testing
from tvm import tirx

from helpers.grids import few
from tvm_fixes.relax.legalize.conv.cpu_channels import choose_tile_of_channels, max_vector_bytes
from tvm_fixes.relax.legalize.conv.cpu_columns import choose_tile_of_columns
from tvm_fixes.relax.legalize.matmul import tiles, transposed
from tvm_fixes.target.cpu import Cpu
from tvm_fixes.tirx.register_tile import even_part, max_columns

TARGETS = {
    "haswell": {"mtriple": "x86_64-linux-gnu", "mcpu": "haswell"},
    "znver4": {"mtriple": "x86_64-linux-gnu", "mcpu": "znver4"},
    "x86-64": {"mtriple": "x86_64-linux-gnu"},
    "aarch64": {"mtriple": "aarch64-linux-gnu"},
}
CPUS = {
    name: Cpu.of(tvm.target.Target({"kind": "llvm", **target})) for name, target in TARGETS.items()
}

N = tirx.Var("n", "int64")
FEW = N % 4
"""A symbolic number of rows with an upper bound of three."""


def extent(value: int | tirx.Expr) -> tirx.Expr:
    return tirx.const(value, "int64") if isinstance(value, int) else value


@pytest.mark.parametrize("cpu", CPUS.values(), ids=CPUS)
@pytest.mark.parametrize("rows", range(1, 8))
@pytest.mark.parametrize("scale", [0.5, 1, 2])
@pytest.mark.parametrize("operands_per_column", [0, 1])
def test_the_largest_tile_that_fits(cpu, rows, scale, operands_per_column):
    size, other = int(scale * cpu.vector_bytes), 2

    def fits(columns):
        accumulators = rows * columns
        operands = operands_per_column * columns
        registers = (accumulators + operands) * max(int(scale), 1) + other
        in_registers = registers <= cpu.vector_registers
        return in_registers and accumulators * size <= cpu.max_stack_buffer_bytes

    columns = max_columns(
        cpu,
        rows=rows,
        accumulator_bytes=size,
        operands_per_column=operands_per_column,
        other_operands=other,
    )
    assert not fits(columns + 1)
    assert fits(columns) or columns == 1


def test_an_accumulator_is_a_register():
    cpu = CPUS["haswell"]
    expected = max_columns(cpu, accumulator_bytes=cpu.vector_bytes, other_operands=1)
    assert max_columns(cpu, other_operands=1) == expected == 15


def test_at_least_one_column():
    assert max_columns(CPUS["x86-64"], rows=100, other_operands=3) == 1


def test_buffers_on_the_stack_have_a_limit():
    """AVX-512 has room for 31 accumulators next to an operand, in 1984 bytes."""
    assert max_columns(CPUS["znver4"], other_operands=1) == 15


@pytest.mark.parametrize("limit", range(1, 9))
@pytest.mark.parametrize("whole", range(1, 20))
def test_even_parts(whole, limit):
    part = even_part(whole, limit)
    count = -(-whole // limit)
    assert part <= limit
    assert (count - 1) * part < whole <= count * part
    assert part == 1 or count * (part - 1) < whole


EXTENTS = (1, 2, 3, 7, 9, 14, 24, 31, 56, 64, 112, 130, 768, N)


def uses_registers(cpu, sums, operands):
    """Whether the vectors of a tile fit into registers."""
    return sums + operands <= cpu.vector_registers


def is_even(whole, part):
    """Whether no smaller part needs as few parts."""
    count = -(-whole // part)
    return part == 1 or count * (part - 1) < whole


@few(10)
@pytest.mark.parametrize("cpu", CPUS.values(), ids=CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("may_pad", [False, True])
@pytest.mark.parametrize("max_vectors", [1, 4])
def test_convolution_in_vectors_of_channels(cpu, dtype, may_pad, max_vectors):
    element = tvm.DataType(dtype).bits // 8
    half_a_vector = max_vector_bytes(cpu) // element // 2
    for columns, channels, phases in itertools.product(EXTENTS, EXTENTS, (1, 2, 3)):
        tile = choose_tile_of_channels(
            cpu,
            dtype,
            extent(columns),
            extent(channels),
            phases=phases,
            may_pad=may_pad,
            max_vectors=max_vectors,
        )
        case = columns, channels, phases, tile
        is_known = isinstance(channels, int)
        assert 1 <= tile.vectors <= max_vectors, case
        assert columns is N or tile.columns <= columns, case
        if tile.channels == 1:
            assert not is_known or channels < half_a_vector or channels % half_a_vector, case
            continue
        assert may_pad or (is_known and channels % tile.channels == 0), case
        if is_known:
            assert -(-channels // tile.channels) % tile.vectors == 0, case
        size = tile.channels * element
        registers = tile.vectors * -(-size // cpu.vector_bytes)
        # Two halves of a vector of 64 bytes count as one register.
        sums = -(-tile.columns * tile.vectors * size // cpu.vector_bytes)
        assert tile.columns == 1 or uses_registers(cpu, sums, 1 + registers), case
        assert tile.columns * size <= cpu.max_stack_buffer_bytes, case
        assert tile.columns % phases == 0 or tile.columns < phases or columns is not N, case


@few(5)
@pytest.mark.parametrize("cpu", CPUS.values(), ids=CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_in_vectors_of_columns(cpu, dtype, stride):
    for columns, rows in itertools.product(EXTENTS, (None, *EXTENTS)):
        spatial = [extent(one) for one in (rows, columns) if one is not None]
        tile = choose_tile_of_columns(cpu, dtype, spatial, stride)
        case = rows, columns, tile
        lanes = cpu.vector_bytes // (tvm.DataType(dtype).bits // 8)
        if columns is not N:
            covered = (columns - 1) * stride + 1
            # Half a vector for few columns.
            lanes = lanes if 2 * covered > lanes else max(lanes // 2, stride)
            assert is_even(-(-covered // lanes), tile.columns // lanes), case
        assert tile.columns % lanes == 0, case
        assert uses_registers(cpu, tile.rows * tile.columns // lanes, 3), case
        assert rows is not None or tile.rows == 1, case
        assert rows in (None, N) or is_even(rows, tile.rows), case


@few(5)
@pytest.mark.parametrize("cpu", CPUS.values(), ids=CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("packed", [False, True])
def test_matrix_product(cpu, dtype, packed):
    lanes = cpu.vector_bytes // (tvm.DataType(dtype).bits // 8)
    for rows, columns in itertools.product((*EXTENTS, FEW), EXTENTS):
        tile = tiles.choose_tile(cpu, dtype, extent(rows), extent(columns), packed=packed)
        case = rows, columns, tile
        assert not isinstance(rows, int) or 1 <= tile.rows <= rows, case
        if tile.columns is None:
            # Packing would take as long as the product.
            assert not packed and isinstance(rows, int) and rows <= 4, case
            continue
        vectors, rest = divmod(tile.columns, lanes)
        assert rest == 0, case
        assert uses_registers(cpu, tile.rows * vectors, vectors + 2), case
        if isinstance(columns, int):
            assert vectors <= -(-columns // lanes), case


@few(2)
@pytest.mark.parametrize("cpu", CPUS.values(), ids=CPUS)
def test_transposed_matrix_product(cpu):
    for rows, columns in itertools.product(EXTENTS, (1, 2, 5, 20, 1000)):
        tile_rows, tile_columns = transposed.choose_tile(cpu, extent(rows), columns)
        case = rows, columns, tile_rows, tile_columns
        assert tile_columns <= columns, case
        assert rows is N or is_even(rows, tile_rows), case
        assert uses_registers(cpu, tile_rows * tile_columns, tile_columns + 1), case
        if tile_columns < columns:
            assert not uses_registers(cpu, tile_rows * (tile_columns + 1), tile_columns + 2) or (
                tile_rows * (tile_columns + 1) * cpu.vector_bytes > cpu.max_stack_buffer_bytes
            ), case


def test_usual_layers_use_most_registers():
    """The sums of a tile are at least half of the registers, on each CPU."""
    for cpu in CPUS.values():
        few = cpu.vector_registers // 2
        limit = min(few, cpu.max_stack_buffer_bytes // cpu.vector_bytes // 2)
        lanes = cpu.vector_bytes // 4
        channels = choose_tile_of_channels(
            cpu, "float32", extent(56), extent(64), phases=1, may_pad=True, max_vectors=4
        )
        registers = -(-channels.channels // lanes) * channels.vectors
        assert channels.columns * registers >= limit
        columns = choose_tile_of_columns(cpu, "float32", [extent(56), extent(56)], 1)
        assert columns.rows * columns.columns // lanes >= limit
        product = tiles.choose_tile(cpu, "float32", extent(96), extent(768), packed=True)
        assert product.rows * product.columns // lanes >= limit
        rows, partial = transposed.choose_tile(cpu, extent(96), 768)
        assert rows * partial >= limit


def test_tiles_for_32_registers_of_16_bytes():
    """On aarch64 a tile has about twice as many sums as on a CPU with 16 such registers."""
    cpu, small = CPUS["aarch64"], CPUS["x86-64"]
    rows, columns = extent(96), extent(768)
    arguments = "float32", rows, columns
    assert tiles.choose_tile(cpu, *arguments, packed=True).columns == 16
    assert tiles.choose_tile(small, *arguments, packed=True).columns == 8
    assert transposed.choose_tile(cpu, rows, 768) == (4, 6)
    assert transposed.choose_tile(small, rows, 768) == (4, 3)


if __name__ == "__main__":
    tvm.testing.main()
