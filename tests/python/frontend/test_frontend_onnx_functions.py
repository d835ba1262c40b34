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
"""Functions of the model and of ONNX's schemas, compared with ONNX Runtime."""

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from onnx import helper, numpy_helper, parser
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.onnx_graphs import imported_and_run, node_model, normal, onnx_runtime
from helpers.relax_modules import run
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.graph.functions import expand_functions
from tvm_fixes.support import switches

FIX_ID = "onnx-functions"

NESTED = """
<ir_version: 9, opset_import: ["": 18, "local": 1]>
graph (float[2, 3] x, bool condition) => (float[2, 3] y) {
    a = local.scaled <factor: float = 3.0> (x)
    y = If (condition) <
        then_branch = then () => (float[2, 3] b) { b = local.scaled (a) },
        else_branch = else () => (float[2, 3] c) { c = local.Relu (a) }
    >
}
<domain: "local", opset_import: ["": 18, "local": 1]>
scaled <factor: float = 2.0> (x) => (y) {
    factor = Constant <value_float: float = @factor> ()
    negative = local.Relu (x)
    y = Mul (negative, factor)
}
<domain: "local", opset_import: ["": 18]>
Relu (x) => (y) { y = Neg (x) }
"""
"""Nested functions, in a branch, and a function named like an operator."""


def check(model: onnx.ModelProto, *inputs: np.ndarray) -> None:
    [expected] = onnx_runtime(model, *inputs)
    # TVM's memory planner lets one branch use storage that the other allocates.
    got = run(from_onnx(model), *inputs, pipeline="tvm_fixes")
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("condition", (True, False))
def test_functions_of_the_model(condition: bool) -> None:
    check(parser.parse_model(NESTED), normal(2, 3), np.array(condition))


def test_operators_of_a_function_use_its_opset() -> None:
    """Axes are an attribute of Squeeze in opset 11, and an operand in opset 18."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18, "local": 1]>
        graph (float[2, 1, 3] x) => (float[2, 3] y) { y = local.squeezed (x) }
        <domain: "local", opset_import: ["": 11]>
        squeezed (x) => (y) { y = Squeeze <axes = [1]> (x) }
    """)
    [got] = imported_and_run(from_onnx, model, normal(2, 1, 3))
    np.testing.assert_array_equal(got, normal(2, 3))


def test_function_of_a_newer_version_is_rejected() -> None:
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18, "local": 1]>
        graph (float[2] x) => (float[2] y) { y = local.gated (x) }
        <domain: "local", opset_import: ["": 24]>
        gated (x) => (y) { y = Swish (x) }
    """)
    with pytest.raises(tvm.error.OpNotImplemented, match=r"local\.gated: cannot inline the body"):
        from_onnx(model)


def likelihoods() -> onnx.ModelProto:
    """An operator whose body depends on the types of its operands, weights among them."""
    operands = {"scores": normal(4, 3), "labels": np.array([2, 0, 1, 2])}
    weights = {"weights": np.array([0.5, 1, 2], "float32")}
    attributes = {"reduction": "mean"}
    model = node_model("NegativeLogLikelihoodLoss", operands, attributes, constants=weights)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    return model


def test_operator_with_a_constant_body() -> None:
    check(node_model("Swish", {"x": normal(2, 3)}, {"alpha": 0.5}, opset=24), normal(2, 3))


def test_operator_with_a_body() -> None:
    check(likelihoods(), normal(4, 3), np.array([2, 0, 1, 2]))


def test_initializers_are_unchanged() -> None:
    model = parser.parse_model(NESTED)
    model.graph.initializer.append(numpy_helper.from_array(normal(40, 40), "weight"))
    model.graph.node.append(helper.make_node("Sum", ["weight"], ["unused"]))
    before = model.SerializeToString()
    kept = {"Neg", "Mul", "If", "Constant", "Sum"}
    expanded = expand_functions(model, lambda node: node.op_type in kept)
    assert model.SerializeToString() == before
    assert list(expanded.graph.initializer) == list(model.graph.initializer)
    onnx.checker.check_model(expanded)
    assert not expanded.functions


def test_nothing_to_expand() -> None:
    model = node_model("Relu", {"x": normal(2)})
    with switches.collect() as acted:
        assert expand_functions(model, lambda node: node.op_type == "Relu") is model
    assert acted == set()


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model = likelihoods()
    with switches.collect() as acted:
        from_onnx(model)
    assert FIX_ID in acted
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    for importer in (from_onnx, tvm_onnx.from_onnx):
        with pytest.raises(tvm.error.OpNotImplemented, match="NegativeLogLikelihoodLoss"):
            importer(model)


if __name__ == "__main__":
    tvm.testing.main()
