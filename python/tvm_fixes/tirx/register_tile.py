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
"""How large a register tile is: the sums that a microkernel keeps in registers.

A register tile is a matrix of accumulators.  Each step of its microkernel loads some operands,
and adds a product to every accumulator; the larger the tile, the fewer loads there are for a
product.  An accumulator that finds no register goes through memory at each step.
"""

from ..target.cpu import Cpu


def max_columns(
    cpu: Cpu,
    *,
    rows: int = 1,
    accumulator_bytes: int | None = None,
    operands_per_column: int = 0,
    other_operands: int,
) -> int:
    """The most columns of a register tile whose accumulators and operands fit into the registers.

    Parameters
    ----------
    cpu : Cpu
    rows : int
        The rows of the tile.
    accumulator_bytes : int, optional
        The size of an accumulator, by default that of a vector register.  A larger one takes
        several registers.
    operands_per_column : int
        How many operands each column loads, of the size of an accumulator.
    other_operands : int
        How many registers the other operands take.

    Returns
    -------
    int
        At least 1.  The accumulators are one buffer: TVM puts it on the stack, from where LLVM
        takes it into registers.
    """
    size = cpu.vector_bytes if accumulator_bytes is None else accumulator_bytes
    registers = -(-size // cpu.vector_bytes)
    free = cpu.vector_registers - other_operands
    by_registers = free // ((rows + operands_per_column) * registers)
    by_stack = cpu.max_stack_buffer_bytes // (rows * size)
    return max(min(by_registers, by_stack), 1)


def even_part(extent: int, limit: int) -> int:
    """The size of a tile, at most `limit`, if as few tiles as possible share `extent` evenly."""
    return -(-extent // -(-extent // limit))
