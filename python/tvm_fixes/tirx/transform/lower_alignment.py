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
"""Kernels assume only the alignment that every allocator gives.

Trigger
    An array of NumPy, whose memory ``malloc`` aligns to 16 bytes, as an input without a copy.
Mechanism
    TVM declares the buffers of a kernel with an alignment of 64 bytes.  LLVM loads and stores
    vectors with instructions that require it, and nothing checks it at run time.  With AVX, the
    instructions that do not are as fast where memory is aligned; vectors of SSE have 16 bytes.
"""

import tvm
from tvm import tirx
from tvm.s_tir import SBlock
from tvm_ffi import structural_walk

from ...fixes.memory import MALLOC_ALIGNMENT as FIX_ID
from ...support.tensors import MALLOC_ALIGNMENT
from ..parameters import redeclared, with_parameters
from ..util import prim_func_pass


def LowerAlignment() -> tvm.transform.Pass:
    """Let kernels take tensors that are aligned to 16 bytes instead of 64.

    Before::

        def kernel(x: T.Buffer((n,), align=64)): ...

    and after::

        def kernel(x: T.Buffer((n,), align=16)): ...

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs for a CPU.  Run it after the passes that read alignments.
    """
    return prim_func_pass("LowerAlignment", FIX_ID, _lower)


def _lower(function: tirx.PrimFunc, _target: tvm.target.Target) -> tirx.PrimFunc:
    buffers = [p for p in function.params if isinstance(p.ty, tirx.BufferType)]
    # A part of a buffer that a block matches must not need more than the buffer.
    structural_walk(
        function.body,
        (SBlock, lambda block: buffers.extend(match.buffer for match in block.match_buffers)),
    )
    replaced = {
        buffer: redeclared(buffer, data_alignment=MALLOC_ALIGNMENT)
        for buffer in buffers
        if buffer.data_alignment > MALLOC_ALIGNMENT
    }
    return with_parameters(function, replaced) if replaced else function


def alignment_of(mod: tvm.IRModule) -> int:
    """The alignment that the kernels of a module assume of tensors, in bytes."""
    return max(
        (
            int(parameter.data_alignment)
            for function in mod.functions.values()
            if isinstance(function, tirx.PrimFunc)
            for parameter in function.params
            if isinstance(parameter.ty, tirx.BufferType)
        ),
        default=1,
    )
