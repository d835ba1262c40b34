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
"""The size of register tiles.

A register tile is a matrix of accumulators that a microkernel keeps in registers.  Each step loads
some operands, and adds a product to every accumulator; a larger tile needs fewer loads per product.
An accumulator that does not fit into the registers goes through memory at each step.
"""

from tvm import s_tir, tirx

from ..fixes.memory import TILES_ON_STACK
from ..support import switches
from ..target.cpu import Cpu


def max_columns(
    cpu: Cpu,
    *,
    rows: int = 1,
    accumulator_bytes: int | None = None,
    operands_per_column: int = 0,
    other_operands: int,
    parts: int = 1,
) -> int:
    """The maximum number of columns of a register tile whose accumulators and operands fit.

    Parameters
    ----------
    cpu : Cpu
    rows : int
        The number of rows of the tile.
    accumulator_bytes : int, optional
        The size of an accumulator, by default that of a vector register.  A larger accumulator
        takes several registers.
    operands_per_column : int
        The number of operands per column, each of the size of an accumulator.
    other_operands : int
        The number of registers for other operands.
    parts : int
        The number of buffers that :func:`~tvm_fixes.tirx.transform.KeepTilesOnStack` can divide the
        accumulators into.

    Returns
    -------
    int
        At least 1.  Each buffer must fit on TVM's stack; LLVM promotes it to registers.
    """
    size = cpu.vector_bytes if accumulator_bytes is None else accumulator_bytes
    registers = -(-size // cpu.vector_bytes)
    free = cpu.vector_registers - other_operands
    by_registers = free // ((rows + operands_per_column) * registers)
    parts = parts if switches.enabled(TILES_ON_STACK) else 1
    by_stack = parts * cpu.max_stack_buffer_bytes // (rows * size)
    return max(min(by_registers, by_stack), 1)


def even_part(extent: int, limit: int) -> int:
    """The tile size, at most `limit`, that divides `extent` evenly among the fewest tiles."""
    return -(-extent // -(-extent // limit))


def vectorize_in_powers_of_two(sch: s_tir.Schedule, loop: s_tir.schedule.LoopRV) -> None:
    """Vectorize by the largest power of two that divides a loop: LLVM scalarizes other lengths.

    A loop whose extent is an expression is vectorized as a whole.
    """
    extent = sch.get(loop).extent
    if isinstance(extent, tirx.IntImm):
        vectors, loop = sch.split(loop, [None, extent.value & -extent.value])
        sch.unroll(vectors)
    sch.vectorize(loop)
