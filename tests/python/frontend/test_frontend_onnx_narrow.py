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
"""Integers of 4 and 2 bits."""

import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from helpers.models import onnx_model
from helpers.onnx_graphs import imported_and_run, onnx_runtime
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")

FLOAT = TensorProto.FLOAT


def limits(name: str) -> tuple[int, int]:
    bits = int(name[-1])
    return (0, 2**bits - 1) if name[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def narrow_tensor(name: str, element_type: str, shape: list[int], seed: int = 0):
    """A random tensor, which also has the extremes of its type if it has enough elements."""
    low, high = limits(element_type)
    values = np.random.default_rng(seed).integers(low, high + 1, shape)
    values.flat[:2] = (low, high)[: values.size]
    return helper.make_tensor(name, getattr(TensorProto, element_type), shape, values.ravel())


def model_of(nodes, inputs, outputs, tensors, element_type: str) -> onnx.ModelProto:
    """A model of an opset that has the element type."""
    model = onnx_model(nodes, inputs, outputs, opset=21 if element_type.endswith("4") else 25)
    model.graph.initializer.extend(tensors)
    model.ir_version = 10 if element_type.endswith("4") else 13
    return model


def scale(*values: float) -> onnx.TensorProto:
    array = np.array(values if len(values) > 1 else values[0], "float32")
    return onnx.numpy_helper.from_array(array, "scale")


def assert_equal(model: onnx.ModelProto, *inputs: np.ndarray) -> None:
    got = imported_and_run(from_onnx, model, *inputs, optimize=False)
    for value, expected in zip(got, onnx_runtime(model, *inputs, optimize=False), strict=True):
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("name", ("INT4", "UINT2"))
def test_initializers(name: str) -> None:
    """Even and odd numbers of elements, zero points, reshaped and transposed weights, Constant."""
    node = helper.make_node
    nodes = [
        node("DequantizeLinear", ["even", "scale"], ["y0"]),
        node("DequantizeLinear", ["odd", "scale", "zero"], ["y1"]),
        node("Transpose", ["odd"], ["turned"], perm=[1, 0]),
        node("Reshape", ["turned", "shape"], ["flat"]),
        node("DequantizeLinear", ["flat", "scale", "zero"], ["y2"]),
        node("Constant", [], ["constant"], value=narrow_tensor("", name, [3], seed=2)),
        node("DequantizeLinear", ["constant", "scale"], ["y3"]),
        node("Cast", ["odd"], ["y4"], to=FLOAT),
        node("Add", ["x", "y3"], ["y5"]),
    ]
    tensors = [
        narrow_tensor("even", name, [2, 6]),
        narrow_tensor("odd", name, [5, 3], seed=1),
        narrow_tensor("zero", name, [], seed=3),
        onnx.numpy_helper.from_array(np.array([15]), "shape"),
        scale(0.25),
    ]
    outputs = [(f"y{index}", FLOAT, None) for index in range(6)]
    model = model_of(nodes, [("x", FLOAT, [3])], outputs, tensors, name)
    x = np.ones(3, "float32")
    # ONNX Runtime cannot move these elements.
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    for value, wanted in zip(
        imported_and_run(from_onnx, model, x, optimize=False), expected, strict=True
    ):
        np.testing.assert_array_equal(value, wanted)


@pytest.mark.parametrize("name", ("UINT4", "INT2"))
def test_quantize(name: str) -> None:
    """The zero point or ``output_dtype`` determines the limits; also per axis and in blocks."""
    node = helper.make_node
    number = getattr(TensorProto, name)
    nodes, tensors, outputs = [], [scale(0.75)], []
    blocked = {"axis": 1, "block_size": 2}
    for index, (parameters, attributes) in enumerate(
        (
            (["scale", "zero"], {}),
            (["scale"], {"output_dtype": number}),
            (["scales", "zeros"], {"axis": 1}),
            (["blocks", "block_zeros"], blocked),
        )
    ):
        back = {k: v for k, v in attributes.items() if k != "output_dtype"}
        nodes += [
            node("QuantizeLinear", ["x", *parameters], [f"q{index}"], **attributes),
            node("DequantizeLinear", [f"q{index}", *parameters], [f"y{index}"], **back),
        ]
        outputs.append((f"y{index}", FLOAT, None))
    generator = np.random.default_rng(0)
    for tensor, shape in (("scales", (5,)), ("blocks", (4, 3))):
        array = generator.uniform(0.5, 2, shape).astype("float32")
        tensors.append(onnx.numpy_helper.from_array(array, tensor))
    for tensor, shape in (("zero", []), ("zeros", [5]), ("block_zeros", [4, 3])):
        tensors.append(narrow_tensor(tensor, name, shape, seed=3))
    x = (6 * generator.standard_normal((4, 5))).astype("float32")
    x[0, :4] = [0.375, 1.125, 1e4, -1e4]
    assert_equal(model_of(nodes, [("x", FLOAT, [4, 5])], outputs, tensors, name), x)


@pytest.mark.parametrize("name", ("INT4", "UINT4", "INT2"))
def test_casts(name: str) -> None:
    """Floats are rounded half away from zero; the lowest bits are kept."""
    node = helper.make_node
    wide = TensorProto.UINT8 if name.startswith("U") else TensorProto.INT8
    numbers = [
        -300,
        -129,
        -20,
        -9,
        -8.5,
        -8,
        -3.5,
        -0.5,
        0,
        0.5,
        1.5,
        2.5,
        7.5,
        8,
        15.5,
        16,
        0.49999997,
    ]
    x = np.array(numbers, "float32")
    nodes, inputs, outputs = [], [], []
    for kind in ("float32", "float16", "int32", "int8"):
        element_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        nodes += [
            node("Cast", [kind], [f"{kind}_narrow"], to=getattr(TensorProto, name)),
            node("Cast", [f"{kind}_narrow"], [f"{kind}_y"], to=wide),
        ]
        inputs.append((kind, element_type, x.shape))
        outputs.append((f"{kind}_y", wide, None))
    nodes += [
        node("CastLike", ["float32", "like"], ["like_narrow"]),
        node("Cast", ["like_narrow"], ["like_y"], to=wide),
        node("Cast", ["known"], ["known_narrow"], to=getattr(TensorProto, name)),
        node("Cast", ["known_narrow"], ["known_y"], to=wide),
    ]
    outputs += [("like_y", wide, None), ("known_y", wide, None)]
    known = onnx.numpy_helper.from_array(np.array([5, -7, 19]), "known")
    model = model_of(nodes, inputs, outputs, [narrow_tensor("like", name, [1]), known], name)
    with np.errstate(invalid="ignore"):
        assert_equal(model, *(x.astype(kind) for kind, *_ in inputs))


def test_branch_with_narrow_weight() -> None:
    """A branch has its own initializers."""
    node = helper.make_node

    def branch(name: str, seed: int) -> onnx.GraphProto:
        output = helper.make_tensor_value_info(name, FLOAT, None)
        nodes = [node("DequantizeLinear", ["weight", "scale"], [name])]
        return helper.make_graph(
            nodes, name, [], [output], [narrow_tensor("weight", "INT4", [5], seed)]
        )

    branches = {"then_branch": branch("then", 1), "else_branch": branch("else", 2)}
    nodes = [node("If", ["c"], ["y"], **branches)]
    model = model_of(
        nodes, [("c", TensorProto.BOOL, [])], [("y", FLOAT, [5])], [scale(0.5)], "INT4"
    )
    for condition in (True, False):
        assert_equal(model, np.array(condition))


def test_parameters_as_inputs() -> None:
    """The value of a parameter has one element per byte."""
    nodes = [helper.make_node("DequantizeLinear", ["w", "scale"], ["y"])]
    model = model_of(nodes, [], [("y", FLOAT, [3])], [narrow_tensor("w", "INT4", [3])], "INT4")
    model.graph.initializer.append(scale(0.5))
    mod = from_onnx(model, keep_params_in_input=True)
    values = {str(value.shape): value.dtype for value in mod["main"].attrs["params"]}
    assert values == {"(3,)": "int8", "()": "float32"}


def test_inputs_and_outputs() -> None:
    """Tensors of 8 bits carry them; of an input that is out of range, the lowest bits count."""
    names = ("INT4", "UINT4", "INT2", "UINT2")
    nodes, inputs, outputs = [], [], []
    for name in names:
        number = getattr(TensorProto, name)
        nodes.append(helper.make_node("Transpose", [name], [f"{name}_y"]))
        nodes.append(helper.make_node("Cast", [name], [f"{name}_z"], to=FLOAT))
        inputs.append((name, number, [3, 5]))
        outputs += [(f"{name}_y", number, [5, 3]), (f"{name}_z", FLOAT, [3, 5])]
    model = model_of(nodes, inputs, outputs, [], "INT2")
    generator = np.random.default_rng(0)
    arrays = [
        generator.integers(0, 256, (3, 5)).astype("uint8").view(name.lower()[:-1] + "8")
        for name in names
    ]
    results = iter(imported_and_run(from_onnx, model, *arrays))
    for name, array in zip(names, arrays, strict=True):
        bits, signed = int(name[-1]), name.startswith("I")
        wanted = array.astype("int64") % 2**bits
        wanted -= signed * 2**bits * (wanted >= 2 ** (bits - 1))
        moved = next(results)
        assert moved.dtype == array.dtype
        np.testing.assert_array_equal(moved, wanted.T)
        np.testing.assert_array_equal(next(results), wanted)


# Errors


def test_wrong_number_of_bytes() -> None:
    nodes = [helper.make_node("DequantizeLinear", ["w", "scale"], ["y"])]
    raw = TensorProto(name="w", data_type=TensorProto.INT4, dims=[5], raw_data=b"12")
    numbers = TensorProto(name="w", data_type=TensorProto.UINT4, dims=[5], int32_data=[1] * 5)
    for tensor, got in ((raw, 2), (numbers, 5)):
        model = model_of(nodes, [], [("y", FLOAT, [5])], [tensor, scale(1)], "INT4")
        message = rf"initializer 'w': shape \[5\] needs 3 bytes, got {got}"
        with pytest.raises(ValueError, match=message):
            from_onnx(model)


def test_other_operators() -> None:
    """They have no narrow type outside weights and quantization."""
    weight = narrow_tensor("w", "INT4", [5])
    nodes = [helper.make_node("Relu", ["w"], ["y"], name="node")]
    model = model_of(nodes, [], [("y", FLOAT, [5])], [weight], "INT4")
    message = "Relu 'node': an operand is of dtype int4; expected 8 bits or more"
    with pytest.raises(tvm.error.OpAttributeInvalid, match=message):
        from_onnx(model)


def test_zero_point_of_another_dtype() -> None:
    nodes = [helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["y"], name="node")]
    tensors = [narrow_tensor("w", "INT4", [5]), scale(1)]
    for zero, name in ((narrow_tensor("zero", "UINT4", []), "uint4"), (None, "int8")):
        zero = zero or onnx.numpy_helper.from_array(np.array(1, "int8"), "zero")
        model = model_of(nodes, [], [("y", FLOAT, [5])], [*tensors, zero], "INT4")
        message = f"dtype of x_zero_point is {name}; expected int4, the dtype of x"
        with pytest.raises(tvm.error.OpAttributeInvalid, match=message):
            from_onnx(model)


if __name__ == "__main__":
    tvm.testing.main()
