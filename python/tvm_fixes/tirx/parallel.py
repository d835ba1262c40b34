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
"""Parallelization of the loops of a schedule."""

from tvm import s_tir, tirx
from tvm.s_tir import SBlockRealize

MIN_PARALLEL_WORK = 1 << 16
"""The minimum number of elements or products to compute in parallel: with fewer, waking the threads
takes longer than they save."""


def is_worth_threads(work: int | tirx.Expr | None) -> bool:
    """Whether a kernel that computes `work` elements, or products, should run in parallel.

    A kernel with unknown extents should.
    """
    work = int(work) if isinstance(work, tirx.IntImm) else work
    return not isinstance(work, int) or work >= MIN_PARALLEL_WORK


def parallelize(sch: s_tir.Schedule, loops: list[s_tir.schedule.LoopRV]) -> None:
    """Fuse `loops` and run them in parallel, unless the first one computes too little.

    Call it after all other blocks have been moved into the loops.  If an inner extent is symbolic,
    only the first two loops are fused: TVM must recover the loop variables from the fused one, and
    for i < n * (2*h - 1) * 2 it fails to prove that 4*h - 2 is a multiple of 2*h - 1.
    """
    if not loops or not is_worth_threads(_work_of(sch.get(loops[0]))):
        return
    is_static = all(isinstance(sch.get(loop).extent, tirx.IntImm) for loop in loops[1:])
    sch.parallel(sch.fuse(*(loops if is_static else loops[:2])))


def _work_of(stmt: tirx.Stmt) -> int | None:
    """The number of elements, or products, that a statement computes; None if it is unknown."""
    if isinstance(stmt, tirx.BufferStore):
        return 1
    if isinstance(stmt, SBlockRealize):
        return _work_of(stmt.block.body)
    if isinstance(stmt, tirx.For):
        inner = _work_of(stmt.body)
        if inner is None or not isinstance(stmt.extent, tirx.IntImm):
            return None
        return inner * int(stmt.extent)
    if isinstance(stmt, tirx.SeqStmt | tirx.IfThenElse):
        is_sequence = isinstance(stmt, tirx.SeqStmt)
        parts = stmt.seq if is_sequence else (stmt.then_case, stmt.else_case)
        works = [_work_of(part) for part in parts if part is not None]
        known = [work for work in works if work is not None]
        return sum(known) if len(known) == len(works) else None
    return None
