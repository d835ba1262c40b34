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

MIN_PARALLEL_WORK = 1 << 16
"""The minimum number of elements or products to compute in parallel: with fewer, waking the threads
costs more than they save."""


def is_worth_threads(work: tirx.Expr) -> bool:
    """Whether a kernel that computes `work` elements, or products, should run in parallel.

    A kernel with unknown extents should.
    """
    return not isinstance(work, tirx.IntImm) or work.value >= MIN_PARALLEL_WORK


def parallelize(sch: s_tir.Schedule, loops: list[s_tir.schedule.LoopRV]) -> None:
    """Fuse `loops` and run them in parallel; only the first two if an inner extent is symbolic.

    TVM must recover the loop variables from the fused one: for i < n * (2*h - 1) * 2 it fails to
    prove that 4*h - 2 is a multiple of 2*h - 1.
    """
    is_static = all(isinstance(sch.get(loop).extent, tirx.IntImm) for loop in loops[1:])
    sch.parallel(sch.fuse(*(loops if is_static else loops[:2])))
