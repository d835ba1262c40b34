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
"""tvm_fixes.tirx.gpu_elementwise."""

import re

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.s_tir import Schedule

from helpers.gpu_kernels import GPU, functions, kernels, one_after_another
from helpers.grids import few
from tvm_fixes.tirx import gpu_elementwise
from tvm_fixes.tirx.gpu_elementwise import Elementwise

op = relax.op


@pytest.fixture(autouse=True)
def small_gpu(monkeypatch):
    """A small kernel fills the GPU too."""
    monkeypatch.setattr(gpu_elementwise, "_MIN_BLOCKS", 1)


def scheduled(emit, shape, dtype="float32") -> tuple[tvm.tirx.PrimFunc, Schedule | None]:
    [function] = functions(kernels(emit, shape, dtype)).values()
    return function, Elementwise().apply(function, GPU, False)


def lanes(schedule: Schedule) -> set[int]:
    """The lengths of the vectorized loops."""
    lengths = re.findall(r"T\.vectorized\(T\.int64\((\d+)\)\)", schedule.mod["main"].script())
    return set(map(int, lengths))


def pad(builder, x):
    return op.nn.pad(x, (0, 0, 1, 2, 8, 8))


def broadcast(builder, x):
    row = relax.const(np.arange(x.ty.shape[-1].value, dtype="float32"))
    return builder.emit(op.multiply(builder.emit(op.add(x, row)), relax.const(2.0)))


CASES = {
    "gelu": (lambda bb, x: op.nn.gelu(x), (6, 8, 64), "float32", 4),
    "half": (lambda bb, x: op.multiply(x, x), (6, 8, 64), "float16", 8),
    "odd rows": (lambda bb, x: op.exp(x), (3, 5, 76), "float32", 4),
    "half of a vector": (lambda bb, x: op.negative(x), (3, 7, 74), "float32", 2),
    "broadcast": (broadcast, (3, 7, 64), "float32", 4),
    "moved rows": (lambda bb, x: op.permute_dims(x, [1, 0, 2]), (5, 9, 64), "float32", 4),
    "pad": (pad, (3, 9, 64), "float32", 4),
    "concat": (lambda bb, x: op.concat([x, x], axis=2), (3, 9, 64), "float32", 4),
    "bool": (lambda bb, x: op.greater(x, relax.const(0.0)), (3, 9, 64), "float32", 4),
}


@few(3)
@pytest.mark.parametrize("name", CASES)
def test_vectors_and_values(name):
    emit, shape, dtype, expected = CASES[name]
    function, schedule = scheduled(emit, shape, dtype)
    assert schedule is not None and lanes(schedule) == {expected}
    kernel = schedule.mod["main"]
    tvm.tirx.build(tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")}), GPU)
    before, after = (
        tvm.tirx.build(tvm.IRModule({"kernel": some}), "llvm")["kernel"]
        for some in (function.with_attr("global_symbol", "kernel"), one_after_another(kernel))
    )
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([int(n) for n in param.shape]).astype(str(param.dtype))
        for param in function.params
    ]
    results = []
    for built in (before, after):
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        built(*tensors)
        results.append([tensor.numpy() for tensor in tensors])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "emit, shape",
    [
        (lambda bb, x: op.permute_dims(x, [0, 2, 1]), (3, 64, 64)),
        (lambda bb, x: op.negative(x), (3, 9, 63)),
        (lambda bb, x: op.sum(x, axis=2), (3, 9, 64)),
        (lambda bb, x: op.nn.pad(x, (0, 0, 0, 0, 1, 1)), (3, 9, 62)),
        (lambda bb, x: op.strided_slice(x, [2], [1], [63], [2]), (3, 9, 64)),
    ],
)
def test_kernels_without_whole_vectors_are_kept(emit, shape):
    assert scheduled(emit, shape)[1] is None


def test_a_small_kernel_is_kept(monkeypatch):
    monkeypatch.setattr(gpu_elementwise, "_MIN_BLOCKS", 256)
    assert scheduled(lambda bb, x: op.negative(x), (3, 64))[1] is None


if __name__ == "__main__":
    tvm.testing.main()
