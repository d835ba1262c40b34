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
"""ApplyGpuSchedule: TVM's schedules for a GPU, with a fallback for kernels that they break.

Upstream
    None known.
Versions
    Seen in 0.27.0.post1.
Trigger
    A grouped convolution, or an argmax with a reducer other than TVM's own, for a GPU.  A product
    of 16-bit matrices.
Symptom
    ``relax.build`` fails with "Cross-thread reduction requires …", "No matched reducer" or "Cannot
    allocate global memory".  The first product of matrices takes minutes to compile.
Mechanism
    A schedule splits a reduction among threads in a way that lowering later rejects, or leaves an
    intermediate result in global memory.  TVM's tensor intrinsics are parsed on first use, and for
    each of them Python searches all modules for the sources of the importing frames.
How to remove
    When TVM passes the tests of this file, delete it, its tests and the fix id ``gpu-schedule``,
    and use TVM's ``ApplyDefaultSchedule`` in :mod:`tvm_fixes.pipeline`.
"""

import inspect

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.dlight import normalize_prim_func, try_inline
from tvm_ffi import structural_walk

from ...fixes.elements import DECOMPOSE_REDUCTION
from ...fixes.gpu import GPU_SCHEDULE as FIX_ID
from ...support import switches
from . import decompose_reduction

# The modules of the frames of an import; they have no source files.
_IMPORTING_MODULES = ("importlib._bootstrap", "importlib._bootstrap_external")


def ApplyGpuSchedule(schedule: tvm.transform.Pass) -> tvm.transform.Pass:
    """Schedule the kernels for a GPU.

    Parameters
    ----------
    schedule : tvm.transform.Pass
        TVM's ``ApplyDefaultSchedule`` with its rules for the target.  A scheduled kernel is kept if
        it can be lowered, and if it sets the result of an empty reduction.  Otherwise the fallback
        schedule is used: each thread computes one element of the result and all its intermediate
        values.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs that are not scheduled yet.  It needs a current target.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not switches.enabled(FIX_ID):
            return schedule(mod)
        _prepare_import_of_intrinsics()
        target = tvm.target.Target.current()
        # TVM's pass changes the module that it is given.
        before = dict(mod.functions_items())
        scheduled = schedule(mod)
        for variable, function in list(scheduled.functions_items()):
            is_new = isinstance(function, tirx.PrimFunc) and not function.same_as(before[variable])
            if is_new and not (_lowers(function) and _sets_every_result(function)):
                simple = _one_element_per_thread(before[variable], target)
                if switches.enabled(DECOMPOSE_REDUCTION):
                    simple = decompose_reduction.decompose(simple)
                scheduled.update_func(variable, simple.with_attr("tirx.is_scheduled", True))
                switches.note(FIX_ID)
        return scheduled

    return tvm.transform.module_pass(run, opt_level=0, name="ApplyGpuSchedule")


def _prepare_import_of_intrinsics() -> None:
    for name in _IMPORTING_MODULES:
        inspect.modulesbyfile.setdefault(f"<frozen {name}>", name)


def _lowers(function: tirx.PrimFunc) -> bool:
    """Whether TVM can lower the cross-thread reductions, and no kernel allocates global memory."""
    passes = [
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
    ]
    try:
        lowered = tvm.transform.Sequential(passes)(tvm.IRModule({"main": function}))
    except Exception:
        return False
    scopes: list[str] = []

    def look(loop: tirx.For) -> None:
        if loop.thread_binding is not None:
            structural_walk(loop.body, (SBlock, lambda block: scopes.extend(_scopes(block))))

    structural_walk(lowered["main"].body, (tirx.For, look))
    return "global" not in scopes


def _sets_every_result(function: tirx.PrimFunc) -> bool:
    """Whether no reduction can be empty; always true if the fix for empty reductions is off."""
    if not switches.enabled(DECOMPOSE_REDUCTION):
        return True
    return not decompose_reduction.possibly_empty(Schedule(function))


def _scopes(block: SBlock) -> list[str]:
    return [buffer.scope() for buffer in block.alloc_buffers]


def _one_element_per_thread(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Schedule a kernel with independent threads, with intermediate results in local memory."""
    schedule = Schedule(function)
    *producers, result = try_inline(schedule, normalize_prim_func(schedule))
    spatial = [loop.loop_rv for loop in result.iters if loop.kind == "S"]
    reduced = [loop.loop_rv for loop in result.iters if loop.kind != "S"]
    schedule.reorder(*spatial, *reduced)
    every = schedule.fuse(*spatial) if spatial else schedule.add_unit_loop(result.block_rv)
    outer, inner = schedule.split(every, [None, int(target.attrs["max_num_threads"])])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    for producer in reversed(producers):
        schedule.compute_at(producer.block_rv, inner)
    allocated = schedule.get(schedule.get_sblock("root")).alloc_buffers
    for block in (*producers, result):
        for index, region in enumerate(schedule.get(block.block_rv).writes):
            if any(region.source.same_as(buffer) for buffer in allocated):
                schedule.set_scope(block.block_rv, index, "local")
    return schedule.mod["main"]
