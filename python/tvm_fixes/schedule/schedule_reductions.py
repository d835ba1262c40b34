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
"""ScheduleReductions: norms, softmax and other reductions on CPUs, row by row and in vectors.

Upstream
    None known.
Versions
    Seen in 0.27.0.post1.
Trigger
    A softmax, a norm, or a sum, mean or extremum along any axes of many elements, for a CPU.
Symptom
    It takes up to eight times as long as PyTorch's.  Of a large number and many small ones the sum
    is the large one.
Mechanism
    TVM's pipeline for CPUs schedules nothing: a sum is one addition after the other, which LLVM
    must not change the order of; and what is computed for the rows of the data goes through memory
    for all rows before the next step begins.
How to remove
    When TVM passes the tests of this package, and ``make bench`` shows no difference, delete the
    package, its tests, its line in :mod:`tvm_fixes.pipeline` and the fix id ``reduction-schedule``.
"""

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, ScheduleError
from tvm_ffi import structural_walk

from .. import switches
from .lanes import vectorize
from .rows import by_rows

FIX_ID = "reduction-schedule"


def ScheduleReductions() -> tvm.transform.Pass:
    """Schedule the kernels that reduce adjacent elements, or the columns of matrices.

    All steps are done for one row after the other, rows in parallel, and each in vectors: see
    :func:`~tvm_fixes.schedule.rows.by_rows` and :func:`~tvm_fixes.schedule.lanes.vectorize`.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs that nobody has scheduled, for a target that is a CPU.
        Fusion knows reductions by their initial values, which are gone then; so it has its place
        behind the fusion.  Kernels of other forms stay as they are.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        if not switches.enabled(FIX_ID) or target is None or "cpu" not in target.keys:
            return mod
        scheduled = {}
        for variable, function in mod.functions_items():
            if isinstance(function, tirx.PrimFunc) and _is_unscheduled_reduction(function):
                new = _schedule(function, target)
                if not new.same_as(function):
                    scheduled[variable] = new
        if not scheduled:
            return mod
        switches.note(FIX_ID)
        return tvm.IRModule({**dict(mod.functions_items()), **scheduled}, attrs=mod.attrs)

    return tvm.transform.module_pass(run, opt_level=0, name="ScheduleReductions")


def _schedule(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """`function` itself where TVM refuses a step of the schedule, or vectors do not fit."""
    try:
        rows = by_rows(function)
    except (ScheduleError, tvm.error.InternalError):
        return function
    if rows is None:
        return function
    vectorized = vectorize(rows, target)
    # Of a reduction that is left, DecomposeReduction would have to know the loops.
    return function if _has_reduction(vectorized) else vectorized


def _is_unscheduled_reduction(function: tirx.PrimFunc) -> bool:
    """Whether a PrimFunc has a reduction, and nothing but plain loops."""
    serial: list[bool] = []

    def look(loop: tirx.For) -> None:
        serial.append(loop.kind == tirx.ForKind.SERIAL)

    structural_walk(function.body, (tirx.For, look))
    return all(serial) and _has_reduction(function)


def _has_reduction(function: tirx.PrimFunc) -> bool:
    initialized: list[bool] = []
    structural_walk(
        function.body, (SBlock, lambda block: initialized.append(block.init is not None))
    )
    return any(initialized)
