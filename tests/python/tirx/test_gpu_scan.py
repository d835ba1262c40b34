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
"""tvm_fixes.tirx.gpu_scan."""

import operator

import numpy as np
import pytest
import tvm.testing

from helpers.grids import few
from helpers.simt import execute
from tvm_fixes.tirx.gpu_scan import scan_kernel


@few(3)
@pytest.mark.parametrize("is_static", (True, False))
@pytest.mark.parametrize("shape", [(2, 1, 3), (1, 31, 2), (2, 257, 1), (1, 4097, 2), (3, 2048, 1)])
def test_sums_of_lines(shape: tuple[int, ...], is_static: bool) -> None:
    length = shape[1] if is_static else None
    x = np.random.default_rng(0).integers(-9, 9, shape).astype("int8")
    sums = np.cumsum(x, 1, dtype="int32")
    for is_exclusive in (False, True):
        kernel = scan_kernel(
            "int8", "int32", 0, operator.add, is_exclusive=is_exclusive, length=length
        )
        got = np.full(shape, -1, "int32")
        execute(kernel, [x, got])
        np.testing.assert_array_equal(got, sums - x if is_exclusive else sums)


def test_order_of_operands() -> None:
    """The function need not be commutative: that of matrices (a, b; 0, 1) modulo 256 is not."""

    def combine(first, second):
        a, b, c, d = first >> 8, first & 255, second >> 8, second & 255
        return (a * c % 256 << 8) + (a * d + b) % 256

    x = np.random.default_rng(0).integers(0, 1 << 16, (1, 600, 1)).astype("int32") | 256
    want, total = np.empty_like(x), 256
    for i, element in enumerate(x[0, :, 0]):
        total = combine(total, int(element))
        want[0, i, 0] = total
    got = np.empty_like(x)
    execute(scan_kernel("int32", "int32", 256, combine, is_exclusive=False, length=None), [x, got])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 5, 0), (2, 0, 3)])
def test_nothing_is_written_without_elements(shape: tuple[int, ...]) -> None:
    kernel = scan_kernel("int32", "int32", 0, operator.add, is_exclusive=True, length=None)
    execute(kernel, [np.zeros(shape, "int32"), np.zeros(shape, "int32")])


if __name__ == "__main__":
    tvm.testing.main()
