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

import pytest
import tvm
import tvm.testing
from tvm import tirx

from tvm_fixes.relax.legalize.conv.cpu_channels import choose_tile_of_channels
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


def of_each_cpu(choose):
    return tuple(choose(CPUS[name]) for name in ("haswell", "znver4", "x86-64"))


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


@pytest.mark.parametrize(
    ("dtype", "columns", "channels", "phases", "may_pad", "expected"),
    [
        ("float32", 1, 64, 1, True, ((1, 16, 4), (1, 16, 4), (1, 8, 4))),
        ("float32", 7, 64, 1, True, ((4, 16, 1), (7, 16, 2), (4, 8, 1))),
        ("float32", 14, 64, 1, False, ((5, 16, 1), (14, 16, 2), (5, 8, 1))),
        ("float32", 28, 24, 1, False, ((4, 8, 3), (14, 8, 3), (4, 8, 1))),
        ("float32", 30, 20, 1, True, ((3, 8, 3), (10, 16, 2), (10, 4, 1))),
        ("float32", 31, 9, 1, True, ((4, 16, 1), (11, 16, 1), (4, 4, 3))),
        ("float32", 56, 32, 1, True, ((4, 16, 1), (14, 16, 2), (4, 8, 1))),
        ("float32", 112, 17, 1, True, ((4, 8, 3), (14, 16, 2), (14, 4, 1))),
        ("float32", 224, 3, 1, True, ((14, 8, 1), (28, 8, 1), (14, 4, 1))),
        ("float32", 224, 3, 1, False, ((8, 1, 1), (8, 1, 1), (8, 1, 1))),
        ("float32", 56, 8, 1, False, ((14, 8, 1), (28, 8, 1), (4, 8, 1))),
        ("float32", N, 64, 1, True, ((4, 16, 1), (4, 16, 4), (4, 8, 1))),
        ("float32", N, 8, 1, False, ((8, 8, 1), (8, 8, 1), (4, 8, 1))),
        ("float32", N, N, 1, True, ((8, 1, 1), (8, 1, 1), (8, 1, 1))),
        ("float32", 28, 32, 2, True, ((4, 16, 1), (14, 16, 2), (4, 8, 1))),
        ("float32", 31, 32, 3, True, ((6, 16, 1), (12, 16, 2), (6, 8, 1))),
        ("float32", N, 64, 3, True, ((6, 16, 1), (6, 16, 4), (6, 8, 1))),
        ("float64", 56, 32, 1, True, ((4, 8, 1), (14, 8, 2), (4, 4, 1))),
        ("float64", 14, 4, 1, False, ((14, 4, 1), (14, 4, 1), (5, 4, 1))),
    ],
)
def test_convolution_in_vectors_of_channels(dtype, columns, channels, phases, may_pad, expected):
    """Columns, channels and vectors, for each CPU."""

    def choose(cpu):
        extents = extent(columns), extent(channels)
        tile = choose_tile_of_channels(
            cpu, dtype, *extents, phases=phases, may_pad=may_pad, max_vectors=4
        )
        return tile.columns, tile.channels, tile.vectors

    assert of_each_cpu(choose) == expected


@pytest.mark.parametrize(
    ("dtype", "spatial", "stride", "expected"),
    [
        ("float32", [224], 1, ((1, 80), (1, 224), (1, 48))),
        ("float32", [7], 1, ((1, 8), (1, 8), (1, 8))),
        ("float32", [N], 1, ((1, 16), (1, 32), (1, 8))),
        ("float32", [7, 7], 1, ((7, 8), (7, 8), (4, 8))),
        ("float32", [14, 14], 1, ((5, 16), (14, 16), (3, 16))),
        ("float32", [14, 14], 2, ((3, 32), (7, 32), (3, 16))),
        ("float32", [112, 112], 1, ((2, 40), (2, 112), (2, 24))),
        ("float32", [112, 112], 2, ((2, 48), (2, 112), (2, 24))),
        ("float32", [3, 3], 1, ((3, 4), (3, 8), (3, 4))),
        ("float32", [2, 2], 2, ((2, 4), (2, 8), (2, 4))),
        ("float32", [N, 56], 1, ((3, 32), (3, 64), (2, 20))),
        ("float32", [14, N], 1, ((7, 8), (14, 16), (7, 4))),
        ("float32", [3, 7, 33], 1, ((2, 40), (4, 48), (2, 20))),
        ("float64", [14, 14], 1, ((3, 16), (7, 16), (3, 8))),
        ("float64", [56], 2, ((1, 40), (1, 112), (1, 24))),
    ],
)
def test_convolution_in_vectors_of_columns(dtype, spatial, stride, expected):
    """Rows and columns, for each CPU."""

    def choose(cpu):
        tile = choose_tile_of_columns(cpu, dtype, [extent(one) for one in spatial], stride)
        return tile.rows, tile.columns

    assert of_each_cpu(choose) == expected


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "packed", "expected"),
    [
        ("float32", 1, 768, True, ((1, 56), (1, 128), (1, 28))),
        ("float32", 1, 768, False, ((1, 48), (1, 128), (1, 24))),
        ("float32", 1, 45, False, ((1, None), (1, None), (1, None))),
        ("float32", 2, 64, True, ((2, 32), (2, 64), (2, 16))),
        ("float32", 3, 130, False, ((3, None), (3, None), (3, None))),
        ("float32", 4, 31, True, ((4, 16), (4, 32), (4, 8))),
        ("float32", 5, 200, True, ((5, 16), (5, 80), (5, 8))),
        ("float32", 6, 768, True, ((6, 16), (6, 64), (6, 8))),
        ("float32", 7, 96, False, ((4, 16), (4, 96), (4, 8))),
        ("float32", 8, 112, False, ((4, 16), (4, 64), (4, 8))),
        ("float32", 13, 48, True, ((5, 16), (5, 48), (5, 8))),
        ("float32", 64, 3, True, ((6, 8), (6, 16), (6, 4))),
        ("float32", 64, 24, False, ((6, 16), (6, 32), (6, 8))),
        ("float32", 130, 130, False, ((6, 16), (6, 48), (6, 8))),
        ("float32", N, 768, True, ((6, 16), (6, 64), (6, 8))),
        ("float32", N, N, False, ((6, 16), (6, 64), (6, 8))),
        ("float32", FEW, 768, True, ((1, 56), (1, 128), (1, 28))),
        ("float64", 6, 768, True, ((6, 8), (6, 32), (6, 4))),
        ("float64", 1, 9, False, ((1, None), (1, None), (1, None))),
    ],
)
def test_matrix_product(dtype, rows, columns, packed, expected):
    """Rows and columns, for each CPU."""

    def choose(cpu):
        tile = tiles.choose_tile(cpu, dtype, extent(rows), extent(columns), packed=packed)
        return tile.rows, tile.columns

    assert of_each_cpu(choose) == expected


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        (1, 1000, ((1, 7), (1, 15), (1, 7))),
        (2, 1000, ((2, 5), (2, 7), (2, 5))),
        (3, 5, ((3, 3), (3, 5), (3, 3))),
        (3, 1000, ((3, 3), (3, 5), (3, 3))),
        (4, 1000, ((4, 3), (4, 3), (4, 3))),
        (5, 20, ((3, 3), (3, 5), (3, 3))),
        (6, 2, ((3, 2), (3, 2), (3, 2))),
        (7, 1000, ((4, 3), (4, 3), (4, 3))),
        (9, 1000, ((3, 3), (3, 5), (3, 3))),
        (100, 1, ((4, 1), (4, 1), (4, 1))),
        (N, 1000, ((4, 3), (4, 3), (4, 3))),
    ],
)
def test_transposed_matrix_product(rows, columns, expected):
    """Rows and columns, for each CPU."""
    assert of_each_cpu(lambda cpu: transposed.choose_tile(cpu, extent(rows), columns)) == expected


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
