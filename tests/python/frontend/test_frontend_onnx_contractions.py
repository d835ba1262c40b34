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

import pytest
import tvm.testing

from onnx_helpers import (
    assert_follows_onnx_runtime,
    assert_refused,
    integers,
    node_model,
    normal,
    program,
)
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")


@pytest.mark.parametrize(
    "operator, attributes", (("MatMul", {}), ("Gemm", {}), ("Einsum", {"equation": "ab,bc->ac"}))
)
def test_symbolic_extents_that_are_summed_over(operator: str, attributes: dict) -> None:
    """Another extent than the constant's is an error; of an Einsum, 1 broadcasts elsewhere."""
    model = program(
        {"y": (operator, ["x", "c"], attributes)},
        {"x": ("float32", ("n", "k"))},
        {"c": integers(4, 3)},
    )
    sizes = (4, 7, 3) if operator == "Einsum" else (4, 7, 1)
    runs = [[integers(2, k)] for k in sizes]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_extents_that_differ_are_refused() -> None:
    operands = {"x": normal(2, 4), "c": normal(5, 3)}
    shapes = {"x": ("n", 4), "c": (5, "m")}
    message = "MatMul 'node': the inner extents is [4, 5]; expected equal extents"
    assert_refused(from_onnx, node_model("MatMul", operands, shapes=shapes), message)
    message = "Einsum 'node': the extents of 'b' is [4, 5]; expected equal extents"
    model = node_model("Einsum", operands, {"equation": "ab,bc"}, shapes=shapes)
    assert_refused(from_onnx, model, message)


if __name__ == "__main__":
    tvm.testing.main()
