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
"""Scans of lines by a GPU."""

from collections.abc import Callable

from tvm import tirx
from tvm.script import tirx as T

from .gpu_kernel import skip_empty_grids

# The number of threads of a block, and of consecutive elements that each of them combines.
_MIN_THREADS, _MAX_THREADS = 32, 256
_PER_THREAD = 8


def scan_kernel(
    dtype: str,
    result_dtype: str,
    initial: int,
    combine: Callable[[tirx.Expr, tirx.Expr], tirx.Expr],
    *,
    is_exclusive: bool,
    length: int | None,
) -> tirx.PrimFunc:
    """Make the kernel that scans the middle axis of a tensor of three axes.

    A thread block scans a line, part by part. In a part, each thread combines a few elements, the
    block scans these totals in shared memory, and each thread computes its results from them.

    Parameters
    ----------
    dtype, result_dtype : str
        The dtypes of the elements and of the results.
    initial : int
        The neutral element of `combine`.
    combine : callable
        An associative function of two expressions of `result_dtype`.
    is_exclusive : bool
        Whether a result excludes the element at its own position.
    length : int, optional
        The extent of the middle axis, if it is known.

    Returns
    -------
    tirx.PrimFunc
        A scheduled kernel; its parameters are the tensor and the result.
    """
    needed = _MAX_THREADS if length is None else -(-length // _PER_THREAD)
    steps = (min(max(needed, _MIN_THREADS), _MAX_THREADS) - 1).bit_length()
    threads = 1 << steps
    neutral = tirx.const(initial, result_dtype)

    def place(part: tirx.Expr, thread: tirx.Expr, i: tirx.Expr) -> tirx.Expr:
        return (part * threads + thread) * _PER_THREAD + i

    def combined(total: tirx.Expr, data: tirx.Buffer, line: tirx.Expr, at: tirx.Expr) -> tirx.Expr:
        inner = data.shape[2]
        element = tirx.BufferLoad(
            data, [tirx.floordiv(line, inner), at, tirx.floormod(line, inner)]
        )
        return combine(total, element.astype(result_dtype))

    # TVM inserts the barriers between accesses to the totals.
    @T.prim_func(private=True, s_tir=True)
    def scan(var_data: T.handle, var_result: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        outer, extent, inner = T.int64(), T.int64(), T.int64()
        data = T.match_buffer(var_data, (outer, extent, inner), dtype)
        result = T.match_buffer(var_result, (outer, extent, inner), result_dtype)
        for line in T.thread_binding(outer * inner, thread="blockIdx.x"):
            for thread in T.thread_binding(T.int64(threads), thread="threadIdx.x"):
                with T.sblock("scan"):
                    totals = T.sblock_alloc_buffer((threads,), result_dtype, scope="shared")
                    running = T.sblock_alloc_buffer((1,), result_dtype, scope="local")
                    before = T.sblock_alloc_buffer((1,), result_dtype, scope="local")
                    before[0] = neutral
                    for part in range(T.ceildiv(extent, threads * _PER_THREAD)):
                        running[0] = neutral
                        for i in range(T.int64(_PER_THREAD)):
                            if place(part, thread, i) < extent:
                                running[0] = combined(
                                    running[0], data, line, place(part, thread, i)
                                )
                        totals[thread] = running[0]
                        for step in T.unroll(T.int64(steps)):
                            if thread >= (T.int64(1) << step):
                                running[0] = combine(
                                    totals[thread - (T.int64(1) << step)], running[0]
                                )
                            totals[thread] = running[0]
                        running[0] = before[0]
                        if thread > 0:
                            running[0] = combine(before[0], totals[thread - 1])
                        before[0] = combine(before[0], totals[threads - 1])
                        for i in range(T.int64(_PER_THREAD)):
                            if place(part, thread, i) < extent:
                                if is_exclusive:
                                    result[line // inner, place(part, thread, i), line % inner] = (
                                        running[0]
                                    )
                                running[0] = combined(
                                    running[0], data, line, place(part, thread, i)
                                )
                                if not is_exclusive:
                                    result[line // inner, place(part, thread, i), line % inner] = (
                                        running[0]
                                    )

    return skip_empty_grids(scan)
