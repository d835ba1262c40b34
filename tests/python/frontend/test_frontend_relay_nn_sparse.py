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
"""Relay's operators on sparse matrices against NumPy."""

import numpy as np
import pytest
import tvm.testing

from helpers.relax_modules import integers
from helpers.relay_checks import check_program, run_program
from tvm_fixes.errors import RelayError


def compressed(matrix: np.ndarray, height: int = 1, width: int = 1) -> list[np.ndarray]:
    """The blocks that are not zero, their columns, and where each row begins."""
    rows, columns = matrix.shape[0] // height, matrix.shape[1] // width
    blocks = matrix.reshape(rows, height, columns, width).transpose(0, 2, 1, 3)
    used = blocks.any((2, 3))
    begins = np.concatenate([[0], used.sum(1).cumsum()]).astype("int32")
    return [blocks[used], np.nonzero(used)[1].astype("int32"), begins]


def sparse(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 2, (rows // 2, columns // 3)).repeat(2, 0).repeat(3, 1)
    return (blocks * rng.integers(1, 9, (rows, columns))).astype("float32")


def test_sparse_dense():
    dense, matrix = integers(5, 12), sparse(8, 12)
    values, columns, begins = compressed(matrix)
    blocks = compressed(matrix, 2, 3)
    check_program(
        {
            "nn.sparse_dense(%x0, %x1, %x2, %x3)": dense @ matrix.T,
            "nn.sparse_dense(%x0, %x1, %x2, %x3, sparse_lhs=True)": matrix @ dense.T,
            "nn.sparse_dense(%x0, %x4, %x5, %x6)": dense @ matrix.T,
            "nn.sparse_dense(%x0, %x4, %x5, %x6, sparse_lhs=True)": matrix @ dense.T,
        },
        *[dense, values.reshape(-1), columns, begins, *blocks],
        shapes=[("?", 12), ("?",), ("?",), (9,), ("?", 2, 3), ("?",), ("?",)],
    )


def test_sparse_add_and_transpose():
    dense, matrix = integers(8, 12), sparse(8, 12)
    square = sparse(6, 6, seed=1)
    values, columns, begins = compressed(matrix)
    other = compressed(square)
    transposed = compressed(square.T)
    check_program(
        {
            "nn.sparse_add(%x0, %x1, %x2, %x3)": dense + matrix,
            "nn.sparse_transpose(%x4, %x5, %x6).0": transposed[0].reshape(-1),
            "nn.sparse_transpose(%x4, %x5, %x6).1": transposed[1],
            "nn.sparse_transpose(%x4, %x5, %x6).2": transposed[2],
        },
        *[dense, values.reshape(-1), columns, begins, other[0].reshape(-1), *other[1:]],
    )


def test_columns_out_of_range_are_errors_at_run_time():
    x, values = integers(2, 3), integers(1)
    begins = np.array([0, 1, 1], "int32")
    for body in ("nn.sparse_dense(%x0, %x1, %x2, %x3)", "nn.sparse_add(%x0, %x1, %x2, %x3)"):
        with pytest.raises(AssertionError, match="index 3 is out of range for axis 0 of 3"):
            run_program(body, x, values, np.array([3], "int32"), begins)
        with pytest.raises(AssertionError, match="index 5 is out of range for axis 0 of 2"):
            run_program(body, x, values, np.array([1], "int32"), np.array([0, 5, 5], "int32"))


@pytest.mark.parametrize(
    "shape, message", [((4, 3, 2), "divide the dense input"), ((4, 3), "1 or 3 dimensions")]
)
def test_blocks_that_do_not_fit(shape, message):
    index = np.zeros(4, "int32")
    with pytest.raises(RelayError, match=f"nn.sparse_dense at 1:.*{message}"):
        run_program(
            "nn.sparse_dense(%x0, %x1, %x2, %x3)", integers(2, 3), integers(*shape), index, index
        )


if __name__ == "__main__":
    tvm.testing.main()
