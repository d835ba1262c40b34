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
"""GuardLongLoops: keep TVM from unrolling long loops.

Mechanism
    ``UnrollLoop`` multiplies the iterations by the stores in 32 bits. The product is negative, and
    so below any unrolling limit.
"""

import tvm
from tvm import tirx
from tvm_ffi import structural_map

from ...fixes.memory import LONG_LOOPS as FIX_ID
from ..util import contains, prim_func_pass

# A shorter loop would need 2048 stores in its body for the product to reach 2**31.
_LONG = 1 << 20


def GuardLongLoops() -> tvm.transform.Pass:
    """Hide the extents of a CPU's loops of 2**20 iterations or more from TVM.

    Before::

        for i in range(2147483647): y[0] = y[0] + x[i]

    and after::

        for i in range(T.reinterpret("int64", T.uint64(2147483647))): y[0] = y[0] + x[i]

    LLVM folds the reinterpretation, so the code is the same.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs of a CPU target.  Run it after all schedules.
    """
    return prim_func_pass("GuardLongLoops", FIX_ID, _guard)


def _guard(function: tirx.PrimFunc, _target: tvm.target.Target) -> tirx.PrimFunc:
    if not contains(function.body, tirx.For, _is_long):
        return function
    return structural_map(function, (tirx.For, _hide_extent))


def _is_long(loop: tirx.For) -> bool:
    is_known = isinstance(loop.extent, tirx.IntImm) and loop.extent.value >= _LONG
    is_signed = str(loop.extent.ty).startswith("int")
    return is_known and is_signed and loop.kind == tirx.ForKind.SERIAL


def _hide_extent(loop: tirx.For) -> tirx.For:
    if not _is_long(loop):
        return loop
    dtype = str(loop.extent.ty)
    extent = tirx.reinterpret(dtype, tirx.IntImm(f"u{dtype}", loop.extent.value))
    return tirx.For(
        loop.loop_var,
        loop.min,
        extent,
        loop.kind,
        loop.body,
        loop.thread_binding,
        loop.annotations,
        loop.step,
        loop.span,
    )
