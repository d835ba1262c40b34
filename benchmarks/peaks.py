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
"""Kernels that reach the machine's peaks: FMA chains in registers, and a memory triad."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .protocol import Job

# Two FMA units with a latency of five cycles need ten independent chains, which fit, together with
# the factor, in 16 registers.
_CHAINS = 10
_STEPS = 200_000

_MIN_ARRAY_BYTES = 64 << 20
"""The minimum size of an array of the triad."""


@dataclass(frozen=True)
class Kernel:
    """A kernel with its data.

    Attributes
    ----------
    run : callable
        Runs the kernel once, and returns its output.
    expected : numpy.ndarray
        The output after any number of runs.
    amount : float
        The FLOPs or bytes of one run.
    """

    run: Callable[[], Any]
    expected: np.ndarray
    amount: float


def fused_multiply_add(job: Job) -> Kernel:
    """Return a kernel of independent chains of ``x = x * f + f`` in registers; amount in FLOP."""
    import tvm
    from tvm.script import tirx as T
    from tvm.target import codegen

    target = tvm.target.Target(dict(job.target))
    lanes = 16 if codegen.target_has_features("avx512f", target) else 8
    threads = job.threads

    @T.prim_func
    def main(
        factor: T.Buffer((lanes,), "float32"), out: T.Buffer((threads, _CHAINS, lanes), "float32")
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for thread in T.parallel(threads):
            sums = T.alloc_buffer((_CHAINS, lanes), "float32", scope="local")
            for chain in T.unroll(_CHAINS):
                for lane in T.vectorized(lanes):
                    sums[chain, lane] = out[thread, chain, lane]
            for _ in range(_STEPS):
                for chain in T.unroll(_CHAINS):
                    for lane in T.vectorized(lanes):
                        sums[chain, lane] = sums[chain, lane] * factor[lane] + factor[lane]
            for chain in T.unroll(_CHAINS):
                for lane in T.vectorized(lanes):
                    out[thread, chain, lane] = sums[chain, lane]

    # With f = 0.5, every chain converges to its fixed point 1.
    factor = np.full(lanes, 0.5, "float32")
    expected = np.ones((threads, _CHAINS, lanes), "float32")
    amount = 2.0 * threads * _CHAINS * lanes * _STEPS
    return _kernel(main, target, [factor], expected, amount)


def triad(job: Job) -> Kernel:
    """Return ``a = b + 3 c`` on arrays of twice the largest cache; amount in bytes moved."""
    import tvm
    from tvm.script import tirx as T

    threads = job.threads
    length = max(_MIN_ARRAY_BYTES, 2 * _largest_cache()) // (4 * 16 * threads)

    @T.prim_func
    def main(
        b: T.Buffer((threads, length, 16), "float32"),
        c: T.Buffer((threads, length, 16), "float32"),
        a: T.Buffer((threads, length, 16), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for thread in T.parallel(threads):
            for index in range(length):
                for lane in T.vectorized(16):
                    a[thread, index, lane] = (
                        b[thread, index, lane] + T.float32(3) * c[thread, index, lane]
                    )

    shape = (threads, length, 16)
    b, c = np.full(shape, 1, "float32"), np.full(shape, 2, "float32")
    expected = np.broadcast_to(np.float32(7), shape)
    return _kernel(main, tvm.target.Target(dict(job.target)), [b, c], expected, 3.0 * b.nbytes)


def _kernel(
    function: Any, target: Any, inputs: list[np.ndarray], expected: np.ndarray, amount: float
) -> Kernel:
    import tvm

    main = tvm.compile(function, target)["main"]
    arguments = [tvm.runtime.tensor(array) for array in inputs]
    out = tvm.runtime.tensor(np.zeros(expected.shape, "float32"))

    def run() -> Any:
        main(*arguments, out)
        return out

    return Kernel(run, expected, amount)


def _largest_cache() -> int:
    """Return the size of this machine's largest cache in bytes, or 0 if it is unknown."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    units = {"K": 1 << 10, "M": 1 << 20}
    texts = [path.read_text().strip() for path in sizes]
    return max(
        (int(text[:-1]) * units[text[-1]] for text in texts if text[-1:] in units), default=0
    )
