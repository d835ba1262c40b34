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
"""Values that the schedules of a GPU must not inline into each other."""

from contextlib import suppress

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm_ffi import structural_map, structural_walk

from .expression_size import is_large, node_count, with_values
from .util import with_parts


def keep_large_values(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Keep the steps of a kernel apart whose expressions would become too large in one another.

    The rules for a GPU inline all steps that they can; of a value that is read twice by each step,
    the size and the compile time then grow exponentially. Before::

        a[i] = x[i] * x[i]

    and after, which TVM does not inline::

        v = x[i] * x[i]
        a[i] = v
    """
    kept: list[tirx.Buffer] = []
    values: dict[tirx.Buffer, tirx.Expr] = {}

    def look(block: SBlock) -> None:
        if not isinstance(block.body, tirx.BufferStore) or block.init is not None:
            return
        store = block.body
        value = with_values(store.value, values)
        if is_large(value):
            # From the largest operand on, until the rest is small enough.
            read = [load.source for load in _loads(store.value) if load.source in values]
            for buffer in sorted(set(read), key=lambda b: node_count(values[b]), reverse=True):
                kept.append(buffer)
                del values[buffer]
                value = with_values(store.value, values)
                if not is_large(value):
                    break
        values[store.buffer] = value

    structural_walk(function.body, (SBlock, look))
    if not kept:
        return function

    def keep(block: SBlock) -> SBlock:
        store = block.body
        if not isinstance(store, tirx.BufferStore) or store.buffer not in kept:
            return block
        variable = tirx.Var(f"{store.buffer.name}_value", store.value.ty)
        stored = tirx.BufferStore(store.buffer, variable, store.indices)
        return with_parts(block, body=tirx.SeqStmt([tirx.Bind(variable, store.value), stored]))

    return _inlined(function.with_body(structural_map(function.body, (SBlock, keep))))


def _inlined(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Inline each step that can be, once; a rule begins again after each step."""
    schedule = Schedule(function)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        with suppress(ScheduleError):
            schedule.compute_inline(block)
    return schedule.mod["main"]


def _loads(value: tirx.Expr) -> list[tvm.ir.TensorLoad]:
    loads: list[tvm.ir.TensorLoad] = []
    structural_walk(value, (tvm.ir.TensorLoad, loads.append))
    return loads
