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

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.relax_modules import build, run, tensor
from tvm_fixes.relax.legalize.strided_slice import FIX_ID
from tvm_fixes.support import switches


def sliced(axes, begin, end, strides=None):
    n = tvm.tirx.Var("n", "int64")
    return build(
        {"x": tensor(n, 6, 5)},
        lambda _, x: relax.op.strided_slice(x, axes, begin, end, strides),
    )


@pytest.mark.parametrize(
    "axes, begin, end, strides, expected",
    [
        ([-1], [0], [3], None, np.s_[:, :, :3]),
        ([-2, -1], [1, 4], [9, 0], [2, -1], np.s_[:, 1:9:2, 4:0:-1]),
        ([-3], [1], [3], None, np.s_[1:3]),
        ([0, -1], [1, -2], [2, 5], None, np.s_[1:2, :, -2:5]),
    ],
)
def test_axes_from_the_last_one(axes, begin, end, strides, expected):
    x = np.arange(4 * 6 * 5, dtype="float32").reshape(4, 6, 5)
    with switches.collect() as used:
        np.testing.assert_array_equal(run(sliced(axes, begin, end, strides), x), x[expected])
    assert FIX_ID in used


def test_axes_from_the_first_one_are_lowered_by_tvm():
    x = np.arange(4 * 6 * 5, dtype="float32").reshape(4, 6, 5)
    with switches.collect() as used:
        np.testing.assert_array_equal(run(sliced([1], [0], [3]), x), x[:, :3])
    assert FIX_ID not in used


@pytest.mark.parametrize("dtype", ("float32", "bool", "bfloat16"))
@pytest.mark.parametrize(
    "begin, end, strides", [([3, 1], [4, 4], [-2, 1]), ([2, 4], [2, 9], None), ([2], [4], [-3])]
)
def test_nothing_between_the_bounds(begin, end, strides, dtype):
    axes = [1, 2][: len(begin)]
    mod = build(
        {"x": tensor(4, 6, 5, dtype=dtype)},
        lambda _, x: relax.op.strided_slice(x, axes, begin, end, strides),
    )
    bounds = zip(begin, end, strides or [1, 1], strict=False)
    expected = np.zeros((4, 6, 5))[(np.s_[:], *(slice(*each) for each in bounds))]
    got = run(mod, tvm.runtime.empty((4, 6, 5), dtype))
    assert (got.shape, str(got.dtype)) == (expected.shape, dtype)


def test_nothing_between_the_bounds_with_the_pipeline_of_tvm():
    """A kernel without arguments becomes an empty constant, which TVM writes but cannot load."""
    mod = build({"x": tensor(4, 6, 5)}, lambda _, x: relax.op.strided_slice(x, [2], [0], [1], [-2]))
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(np.zeros((4, 6, 5), "float32")))
    assert got.numpy().shape == (4, 6, 0)


if __name__ == "__main__":
    tvm.testing.main()
