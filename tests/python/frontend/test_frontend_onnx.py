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
"""The entry point ``tvm_fixes.frontend.onnx.from_onnx``: its options, switches and branches."""

import inspect
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
import tvm.testing
from onnx import TensorProto, helper
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.models import FLOAT, onnx_model
from helpers.onnx_graphs import text_model
from helpers.relax_modules import calls, run
from tvm_fixes import pipeline
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

FIX_ID = "onnx-conv-transpose-output-shape"


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]],
    weights: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A float32 model from `inputs` to ``y``, which has the rank of ``x``."""
    values = [(name, FLOAT, shape) for name, shape in inputs.items()]
    return onnx_model(nodes, values, [("y", FLOAT, [None] * len(inputs["x"]))], weights, opset=18)


def conv_transpose(inputs: Sequence[str] = ("x", "w"), **attributes: object) -> onnx.NodeProto:
    return helper.make_node("ConvTranspose", inputs, ["y"], name="upsample", **attributes)


def random(shape: Sequence[int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, "float32")


def check(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray], pipeline: str | None = None
) -> None:
    """Import, build and run `model`; compare shape and numbers with ONNX Runtime."""
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=providers)
    [expected] = session.run(None, inputs)
    got = run(from_onnx(model), *inputs.values(), pipeline=pipeline)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_output_shape_in_a_branch() -> None:
    branches = {
        name: helper.make_graph(
            [conv_transpose(strides=[2, 2], output_shape=[8, 9], auto_pad=auto_pad)],
            name,
            [],
            [helper.make_tensor_value_info("y", FLOAT, [None] * 4)],
        )
        for name, auto_pad in (("then_branch", "SAME_UPPER"), ("else_branch", "SAME_LOWER"))
    }
    node = helper.make_node("If", ["condition"], ["y"], **branches)
    model = model_of([node], {"x": (1, 2, 4, 5)}, {"w": random((2, 3, 3, 3), 0)})
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, ())
    model.graph.input.append(condition)
    convolutions = calls(from_onnx(model), "relax.nn.conv2d_transpose")
    padding = [[int(pad) for pad in call.attrs.padding] for call in convolutions]
    assert padding == [[0, 1, 1, 1], [1, 1, 0, 1]]
    for taken in (True, False):
        inputs = {"x": random((1, 2, 4, 5), 1), "condition": np.array(taken)}
        # TVM's memory planner lets one branch use storage that the other allocates.
        check(model, inputs, pipeline="tvm_fixes")


def test_output_shape_with_symbolic_batch() -> None:
    node = conv_transpose(strides=[2, 2], output_shape=[8, 9])
    model = model_of([node], {"x": ("batch", 2, 4, 5)}, {"w": random((2, 3, 3, 3), 0)})
    check(model, {"x": random((3, 2, 4, 5), 1)})


def upsampling() -> onnx.ModelProto:
    """A model with explicit padding, which needs no fix."""
    node = conv_transpose(strides=[2, 2], pads=[1, 0, 0, 1], output_padding=[1, 0])
    return model_of([node], {"x": (1, 2, 4, 5)}, {"w": random((2, 3, 3, 3), 0)})


@pytest.mark.parametrize(
    "options",
    (
        {},
        {"shape_dict": {"x": [3, 2, 6, 7]}},
        {"dtype_dict": {"x": "float32"}},
        {"keep_params_in_input": True},
        {"sanitize_input_names": False},
        {"opset": 18},
    ),
    ids=str,
)
def test_other_models_are_imported_as_by_tvm(options: dict) -> None:
    with switches.collect() as acted:
        ours = from_onnx(upsampling(), **options)
    tvm.ir.assert_structural_equal(ours, tvm_onnx.from_onnx(upsampling(), **options))
    assert acted == set()


@pytest.mark.parametrize("unnamed", ("?", "", None, -1), ids=repr)
def test_unnamed_dims_of_the_caller(unnamed: str | int | None) -> None:
    """They may differ from each other."""
    model = text_model("(float[2, 2] x, float[m, m] z) => (float[a, b] y) { y = Relu(x) }")
    mod = from_onnx(model, shape_dict={"x": [unnamed, unnamed]})
    array = random((3, 4), 0)
    np.testing.assert_array_equal(run(mod, array, random((5, 5), 1)), np.maximum(array, 0))


def test_symbol_that_becomes_constant_after_its_use() -> None:
    """The Concat makes n 3; the product is computed before, and fused with what follows."""
    model = text_model(
        """(float[n,n] x, float[n,d,n] y, float[k,3] w) => (float[a,b,c] p, float[e,f] q) {
            product = Mul(y, x)
            p = Neg(product)
            q = Concat<axis=0>(w, x)
        }"""
    )
    x, y, w = random((3, 3), 0), random((3, 1, 3), 1), random((2, 3), 2)
    for lowering in ("default", pipeline()):
        product, joined = run(from_onnx(model), x, y, w, pipeline=lowering)
        np.testing.assert_array_equal(product, -(y * x))
        np.testing.assert_array_equal(joined, np.concatenate([w, x]))


def test_signature_is_that_of_tvm() -> None:
    def parameters(function: Callable) -> list:
        signature = inspect.signature(function)
        return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

    assert parameters(from_onnx) == parameters(tvm_onnx.from_onnx)


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    node = conv_transpose(strides=[2, 2], output_shape=[8, 9])
    model = model_of([node], {"x": (1, 2, 4, 5)}, {"w": random((2, 3, 3, 3), 0)})
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert [int(extent) for extent in ours["main"].ret_ty.shape] == [1, 3, 8, 9]
    assert acted == {FIX_ID}
    stock = tvm_onnx.from_onnx(model)
    assert [int(extent) for extent in stock["main"].ret_ty.shape] == [1, 3, 9, 11]
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(from_onnx(model), stock)


def test_too_old_a_model() -> None:
    model = upsampling()
    model.ir_version = 2
    with pytest.raises(ValueError, match="IR version 2 is not supported; expected 3"):
        from_onnx(model)


def test_older_opset_than_the_model_warns() -> None:
    with pytest.warns(UserWarning, match="the model has opset 18 and is read as opset 11"):
        from_onnx(upsampling(), opset=11)


def test_checker_rejection_is_a_warning() -> None:
    model = upsampling()
    model.graph.name = ""
    with pytest.warns(UserWarning, match="name"):
        mod = from_onnx(model)
    tvm.ir.assert_structural_equal(mod, from_onnx(upsampling()))


if __name__ == "__main__":
    tvm.testing.main()
