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
"""Lowering of relax.nn.pixel_shuffle."""

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import few
from helpers.relax_modules import build, run, tensor

N, H, W = (tvm.tirx.Var(name, "int64") for name in "nhw")


def pixel_shuffle(shape, factor, dtype="float32"):
    return build(
        {"x": tensor(*shape, dtype=dtype)}, lambda _, x: relax.op.nn.pixel_shuffle(x, factor)
    )


@few(2)
@pytest.mark.parametrize(
    "shape, factor, dtype",
    [
        ((2, 8, 3, 5), 2, "float32"),
        ((18, 2, 3), 3, "float16"),
        ((2, 1, 4, 3, 2), 2, "float64"),
        ((1, 3, 4, 5), 1, "int8"),
        ((2, 4, 0, 3), 2, "float32"),
    ],
)
def test_matches_pytorch(shape, factor, dtype):
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    got = run(pixel_shuffle(shape, factor, dtype), x)
    assert got.dtype == x.dtype
    expected = torch.nn.functional.pixel_shuffle(torch.from_numpy(x), factor).numpy()
    np.testing.assert_array_equal(got, expected)


def test_symbolic_batch_height_and_width():
    x = np.arange(2 * 12 * 3 * 4, dtype="float32").reshape(2, 12, 3, 4)
    got = run(pixel_shuffle((N, 12, H, W), 2), x)
    expected = torch.nn.functional.pixel_shuffle(torch.from_numpy(x), 2).numpy()
    np.testing.assert_array_equal(got, expected)


if __name__ == "__main__":
    tvm.testing.main()
