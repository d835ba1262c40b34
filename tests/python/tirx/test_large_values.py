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
"""Steps that would grow exponentially if they were inlined into each other."""

import time

import numpy as np
import pytest
import tvm.testing
from tvm import relax, tirx

from helpers.gpu_kernels import GPU
from helpers.gpu_modules import run_on_gpu, scheduled
from helpers.grids import is_full
from helpers.relax_modules import build, tensor
from tvm_fixes.support import ambient
from tvm_fixes.tirx.large_values import keep_large_values
from tvm_fixes.tirx.transform.apply_gpu_schedule import ScheduledKernel

op = relax.op


def quotients(count, dtype="float32"):
    """A chain of divisions. Each of them reads its operands several times."""

    def emit(builder, x, y):
        for _ in range(count):
            x = builder.emit(op.floor_divide(x, y))
        return x

    types = {"x": tensor(3, 5, dtype=dtype), "y": tensor(3, 5, dtype=dtype)}
    return build(types, emit)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_agree_with_numpy(dtype):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((3, 5)) * 1000).astype(dtype)
    y = rng.uniform(0.5, 3, (3, 5)).astype(dtype)
    with ambient.collect() as facts:
        got = run_on_gpu(quotients(2, dtype), x, y)
    np.testing.assert_array_equal(got, np.floor_divide(np.floor_divide(x, y), y))
    assert {kernel.rule for kernel in facts.of(ScheduledKernel)} == {"ElementPerThread"}


def test_compile_time_grows_with_the_number_of_quotients():
    def seconds(count):
        mod = quotients(count)
        start = time.process_time()
        scheduled(mod)
        return time.process_time() - start

    seconds(1)
    if is_full():
        assert seconds(4) < 8 * seconds(2)
    # At most cubic growth; without the variables, two quotients take minutes.
    assert seconds(3) < 1.5**3 * seconds(2)


def test_small_kernels_are_unchanged():
    mod = build({"x": tensor(8)}, lambda builder, x: builder.emit(op.nn.gelu(x)))
    with GPU:
        lowered = relax.transform.LegalizeOps()(mod)
    functions = [f for _, f in lowered.functions_items() if isinstance(f, tirx.PrimFunc)]
    assert functions
    assert all(keep_large_values(function) is function for function in functions)


if __name__ == "__main__":
    tvm.testing.main()
