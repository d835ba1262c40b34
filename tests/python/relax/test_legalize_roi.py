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
import tvm.testing
from tvm import relax, tirx

import tvm_fixes  # noqa: F401  puts the lowerings in force
from helpers.relax_modules import build, run, tensor

op = relax.op


def test_roi_batch_indices_are_clamped():
    n = tirx.Var("n", "int64")
    mod = build(
        {"x": tensor(n, 1, 4, 4), "r": tensor(4, 5)},
        lambda _, x, r: op.vision.roi_align(x, r, (2, 2), 1.0, 2, False, "NCHW"),
    )
    x = np.random.default_rng(0).standard_normal((2, 1, 4, 4)).astype("float32")
    regions = np.array([[b, 0, 0, 3, 3] for b in (0, 1, 1e30, -7)], "float32")
    got = run(mod, x, regions)
    np.testing.assert_array_equal(got[2], got[1])
    np.testing.assert_array_equal(got[3], got[0])
    assert (got[0] != got[1]).any()


@pytest.mark.parametrize("operator", ["roi_align", "roi_pool"])
def test_regions_of_no_images_are_zero(operator):
    def emit(_, x, r):
        if operator == "roi_align":
            return op.vision.roi_align(x, r, (2, 2), 1.0, 2, False, "NCHW")
        return op.vision.roi_pool(x, r, (2, 2), 1.0, "NCHW")

    regions = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 1, 1]], "float32")
    for extent in (0, tirx.Var("n", "int64")):
        mod = build({"x": tensor(extent, 1, 4, 4), "r": tensor(2, 5)}, emit)
        got = run(mod, np.zeros((0, 1, 4, 4), "float32"), regions)
        np.testing.assert_array_equal(got, np.zeros((2, 1, 2, 2)))


if __name__ == "__main__":
    tvm.testing.main()
