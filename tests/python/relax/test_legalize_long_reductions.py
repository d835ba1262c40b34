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
"""On a GPU, a maximum or argmax of long rows is computed in several steps."""

from itertools import product

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.gpu_kernels import GPU
from helpers.gpu_modules import run_on_gpu
from helpers.grids import few, is_full
from helpers.relax_modules import build, tensor
from tvm_fixes.relax.legalize.long_reductions import parts_of

RNG = np.random.default_rng(0)
OPERATORS = ["max", "min", "argmax", "argmin"]


def module(name, shape, axis=None, keepdims=False, dtype="float32"):
    types = {"x": tensor(*shape, dtype=dtype)}
    reduce = getattr(relax.op, name)
    return build(types, lambda _, x: reduce(x, axis, keepdims))


def steps(shape, axes, target=GPU):
    mod = module("max", shape, axes)
    with target:
        return parts_of(mod["main"].body.blocks[0].bindings[0].value, axes)


def test_the_numbers_of_parts():
    n = tirx.Var("n", "int64")
    assert steps((1, 50257), [1]) == [4096, 64]
    assert steps((1, 1 << 20), [1]) == [16384, 512, 16]
    assert steps((1000, 50257), [1]) == [32]
    assert steps((n, 50257), [1]) == [4096, 64]
    assert steps((1, 255), [1]) == []
    assert steps((5000, 3), [0]) == [512, 16]
    assert steps((5000, 1 << 14), [0]) == []
    assert steps((5000, n), [1]) == []
    assert steps((1, 50257), [1], tvm.target.Target("llvm")) == []


SHAPES = [((3, 5000), 1), ((2, 4097), 1), ((5000, 3), 0), ((2, 40, 60), (1, 2)), ((17, 300), None)]
VALUES = list(product(OPERATORS, SHAPES))


@few(3)
@pytest.mark.parametrize("name, data", VALUES if is_full() else VALUES[::3])
def test_values(name, data):
    shape, axes = data
    if "arg" in name and isinstance(axes, tuple):
        shape, axes = (2, 2400), 1
    x = RNG.integers(-50, 50, shape).astype("float32")
    expected = getattr(np, name)(x, axes)
    np.testing.assert_array_equal(run_on_gpu(module(name, shape, axes), x), expected)


KEPT = list(product(OPERATORS, [True, False]))


@pytest.mark.parametrize("name, keepdims", KEPT if is_full() else KEPT[::3])
def test_nan_wins_and_infinities_count(name, keepdims):
    x = RNG.standard_normal((4, 1000)).astype("float32")
    x[0, [700, 900]] = np.nan
    x[1] = np.inf if "min" in name else -np.inf
    x[2, 999] = -np.inf if "min" in name else np.inf
    expected = getattr(np, name)(x, 1, keepdims=keepdims)
    got = run_on_gpu(module(name, x.shape, 1, keepdims), x)
    np.testing.assert_array_equal(got, expected)


TYPED = list(product(OPERATORS, ["float16", "int32", "uint8", "bool"]))


@few(2)
@pytest.mark.parametrize("name, dtype", TYPED if is_full() else TYPED[::5])
def test_dtypes(name, dtype):
    x = np.zeros((2, 777), dtype)
    x[1] = 1
    x[0, 5], x[1, 600] = 1, 0
    got = run_on_gpu(module(name, x.shape, 1, dtype=dtype), x)
    assert got.dtype == ("int64" if "arg" in name else dtype)
    np.testing.assert_array_equal(got, getattr(np, name)(x, 1))


if __name__ == "__main__":
    tvm.testing.main()
