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
"""tvm_fixes.tirx.accumulation: accumulator dtypes, and the product of a pair of elements."""

import pytest
import tvm
import tvm.testing
from tvm import tirx

from helpers.grids import few
from tvm_fixes.target import resolve
from tvm_fixes.target.cpu import Cpu
from tvm_fixes.tirx.accumulation import accumulator_dtype, choose_multiply_accumulate


@few(6)
@pytest.mark.parametrize(
    ("data", "weight", "out", "expected"),
    [
        ("float32", "float32", "float32", "float32"),
        ("float16", "float16", "float16", "float32"),
        ("bfloat16", "bfloat16", "bfloat16", "float32"),
        ("float16", "float16", "float32", "float32"),
        ("float32", "float32", "float64", "float64"),
        ("float64", "float64", "float32", "float64"),
        ("int8", "int8", "int32", "int32"),
        ("uint8", "int8", "int32", "int32"),
        ("int8", "int8", "int8", "int8"),
    ],
)
@pytest.mark.parametrize("cpu", [None, Cpu.of(resolve("native"))], ids=["unknown", "native"])
def test_operands_are_widened_to_the_accumulator(data, weight, out, expected, cpu):
    assert accumulator_dtype(data, weight, out) == expected
    multiply_accumulate = choose_multiply_accumulate(data, weight, out, cpu)
    assert multiply_accumulate.accumulator == expected
    x, y = tirx.Var("x", data), tirx.Var("y", weight)
    product = multiply_accumulate.product(x, y)
    tvm.ir.assert_structural_equal(product, x.astype(expected) * y.astype(expected))


if __name__ == "__main__":
    tvm.testing.main()
