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
"""Sparse initializers and constants become dense."""

import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import helper, numpy_helper

from helpers.grids import few
from helpers.onnx_graphs import imported_and_run, normal
from tvm_fixes.frontend.onnx import from_onnx

X = normal(3, 4)
DENSE = np.zeros((4, 2), "float32")
DENSE[0, 1], DENSE[3, 0] = 2, -1


def sparse(places: list, dims: tuple[int, ...] = (4, 2)) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([2, -1], "float32"), "w")
    return helper.make_sparse_tensor(
        values, numpy_helper.from_array(np.array(places, "int64"), "places"), dims
    )


def product(
    weight: onnx.SparseTensorProto, *, constant: bool = False, branch: bool = False
) -> onnx.ModelProto:
    """A product with a sparse initializer or constant, perhaps both in branches."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="node")]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=weight, name="c"))
    outputs = [helper.make_tensor_value_info("y", 1, [3, 2])]
    initializers = [] if constant else [weight]
    inputs = [helper.make_tensor_value_info("x", 1, X.shape)]
    graph = helper.make_graph(nodes, "g", [] if branch else inputs, outputs)
    graph.sparse_initializer.extend(initializers)
    if branch:
        condition = helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "g", [*inputs, condition], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@few(3)
@pytest.mark.parametrize("places", ([1, 6], [[0, 1], [3, 0]]))
@pytest.mark.parametrize("constant", (False, True))
@pytest.mark.parametrize("branch", (False, True))
def test_sparse_tensors(places: list, constant: bool, branch: bool) -> None:
    model = product(sparse(places), constant=constant, branch=branch)
    before = model.SerializeToString()
    inputs = [X, np.array(True)][: 1 + branch]
    [got] = imported_and_run(from_onnx, model, *inputs)
    np.testing.assert_allclose(got, X @ DENSE, rtol=1e-6)
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    "weight, message",
    (
        (sparse([1, 6], (4, 1 << 40)), "takes 17592186044416 bytes in dense form; expected at"),
        (sparse([1, 8]), "indices are not within the 8 elements"),
        (sparse([[0, 2], [3, 0]]), r"indices are not within the shape \[4, 2\]"),
        (sparse([1, 6, 7]), "expected one index per value"),
    ),
)
def test_invalid_sparse_tensors(weight: onnx.SparseTensorProto, message: str) -> None:
    with pytest.raises(ValueError, match=f"sparse initializer 'w': .*{message}"):
        from_onnx(product(weight))
    with pytest.raises(ValueError, match=f"Constant at node 'c': .*{message}"):
        from_onnx(product(weight, constant=True))


if __name__ == "__main__":
    tvm.testing.main()
