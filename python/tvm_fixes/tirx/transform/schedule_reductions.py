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
"""ScheduleReductions: schedule norms, softmax and other reductions on CPUs by rows and vectors.

Mechanism
    TVM's pipeline for CPUs has no schedules: a sum is a sequence of additions, which LLVM must not
    reorder; and each step goes through memory for all rows before the next step begins.
How to remove
    When TVM passes the tests of this file, and ``make bench`` shows no difference, delete it,
    ``row_schedule.py``, their tests, its line in :mod:`tvm_fixes.pipeline` and the fix id
    ``reduction-schedule``.
"""

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, ScheduleError

from ...fixes.elements import REDUCTION_SCHEDULE as FIX_ID
from ..non_temporal import use_non_temporal_stores
from ..row_schedule import schedule_rows
from ..util import contains, prim_func_pass
from ..vectorize import vectorize


def ScheduleReductions() -> tvm.transform.Pass:
    """Schedule the kernels that reduce adjacent elements, or the columns of matrices.

    For each row, all steps run before the next row; rows run in parallel, and each step is
    vectorized: see :func:`~tvm_fixes.tirx.row_schedule.schedule_rows`,
    :func:`~tvm_fixes.tirx.vectorize.vectorize`, and
    :func:`~tvm_fixes.tirx.non_temporal.use_non_temporal_stores` for large tensors.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs that are not scheduled yet, for a CPU target.  Run it after
        fusion, which recognizes reductions by their initial values; the schedule removes these.
        Kernels of other forms stay unchanged.
    """

    return prim_func_pass("ScheduleReductions", FIX_ID, _schedule)


def _schedule(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Schedule `function`; return it unchanged if TVM or the vectorizer rejects a step."""
    if not _is_unscheduled(function) or not _has_reduction(function):
        return function
    try:
        rows = schedule_rows(function)
    except (ScheduleError, tvm.error.InternalError):
        return function
    if rows is None:
        return function
    vectorized = vectorize(rows, target)
    # DecomposeReduction could not find the loops of a reduction that is left.
    if _has_reduction(vectorized):
        return function
    return vectorized.with_body(use_non_temporal_stores(vectorized.body, vectorized, target))


def _is_unscheduled(function: tirx.PrimFunc) -> bool:
    """Whether a PrimFunc has nothing but plain loops."""
    return not contains(function.body, tirx.For, lambda loop: loop.kind != tirx.ForKind.SERIAL)


def _has_reduction(function: tirx.PrimFunc) -> bool:
    return contains(function.body, SBlock, lambda block: block.init is not None)
