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
"""Models that ``onnxruntime.quantization`` has quantized, compared with ONNX Runtime.

ONNX Runtime's optimizer is off: its integer kernels saturate on CPUs without VNNI.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from onnx import TensorProto, helper
from onnxruntime import quantization
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from tvm import relax

import tvm_fixes
from helpers.grids import few, is_full
from helpers.models import onnx_model
from helpers.onnx_graphs import normal, onnx_runtime
from helpers.relax_modules import call
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")

FLOAT = TensorProto.FLOAT

QDQ, QOPERATOR = quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator

INT8, UINT8 = quantization.QuantType.QInt8, quantization.QuantType.QUInt8
UINT16 = quantization.QuantType.QUInt16


def weight(*shape: int, seed: int = 0, fan_in: int | None = None) -> np.ndarray:
    return normal(*shape, seed=seed) / np.float32(np.sqrt(fan_in or np.prod(shape[1:])))


def convolutions() -> onnx.ModelProto:
    """Convolutions, one of them depthwise, pooling, elementwise operators and a linear layer."""
    node = helper.make_node
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["conv"], name="conv", **pads),
        node("Relu", ["conv"], ["relu"], name="relu"),
        node("Conv", ["relu", "w2"], ["depthwise"], name="depthwise", group=8, **pads),
        node("Add", ["depthwise", "relu"], ["sum"], name="add"),
        node("LeakyRelu", ["sum"], ["leaky"], name="leaky", alpha=0.1),
        node("MaxPool", ["leaky"], ["max"], name="max", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["max"], ["average"], name="average", kernel_shape=[2, 2]),
        node("Sigmoid", ["average"], ["gate"], name="sigmoid"),
        node("Mul", ["average", "gate"], ["swish"], name="mul"),
        node("Concat", ["average", "swish"], ["joined"], name="concat", axis=1),
        node("GlobalAveragePool", ["joined"], ["global"], name="global"),
        node("Flatten", ["global"], ["flat"], name="flatten"),
        node("Gemm", ["flat", "w3", "b3"], ["y"], name="gemm", transB=1),
    ]
    weights = {
        "w1": weight(8, 3, 3, 3),
        "b1": weight(8, seed=1, fan_in=100),
        "w2": weight(8, 1, 3, 3, seed=2),
        "w3": weight(5, 16, seed=3),
        "b3": weight(5, seed=4, fan_in=100),
    }
    return onnx_model(nodes, [("x", FLOAT, [1, 3, 8, 8])], [("y", FLOAT, [1, 5])], weights)


def perceptron() -> onnx.ModelProto:
    """A Gemm, and a MatMul with an Add."""
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["hidden"], name="gemm", transB=1),
        node("Relu", ["hidden"], ["relu"], name="relu"),
        node("MatMul", ["relu", "w2"], ["product"], name="matmul"),
        node("Add", ["product", "b2"], ["y"], name="add"),
    ]
    weights = {
        "w1": weight(32, 20),
        "b1": weight(32, seed=1, fan_in=100),
        "w2": weight(32, 7, seed=2, fan_in=32),
        "b2": weight(7, seed=3, fan_in=100),
    }
    return onnx_model(nodes, [("x", FLOAT, [3, 20])], [("y", FLOAT, [3, 7])], weights)


def transformer(*, fused: bool = False) -> onnx.ModelProto:
    """Self-attention, fused as com.microsoft.Attention or not, and a residual linear layer."""
    node, width, heads = helper.make_node, 16, 2
    weights = {
        "gain": np.ones(width, "float32"),
        "bias": np.zeros(width, "float32"),
        "wo": weight(width, width, seed=7),
        "wf": weight(width, width, seed=8),
    }
    nodes = [node("LayerNormalization", ["x", "gain", "bias"], ["norm"], name="norm")]
    if fused:
        weights |= {"w": weight(width, 3 * width, fan_in=width), "b": weight(3 * width, fan_in=100)}
        attributes = {"domain": "com.microsoft", "num_heads": heads}
        nodes.append(node("Attention", ["norm", "w", "b"], ["heads"], name="heads", **attributes))
    else:
        weights |= {
            "scale": np.array(np.sqrt(heads / width), "float32"),
            "split": np.array([0, 0, heads, width // heads]),
            "join": np.array([0, 0, width]),
        }
        for seed, name in enumerate("qkv"):
            weights[f"w{name}"] = weight(width, width, seed=seed)
            order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
            nodes += [
                node("MatMul", ["norm", f"w{name}"], [f"m{name}"], name=f"m{name}"),
                node("Reshape", [f"m{name}", "split"], [f"r{name}"], name=f"r{name}"),
                node("Transpose", [f"r{name}"], [name], name=f"t{name}", perm=order),
            ]
        nodes += [
            node("MatMul", ["q", "k"], ["scores"], name="scores"),
            node("Mul", ["scores", "scale"], ["scaled"], name="scaled"),
            node("Softmax", ["scaled"], ["p"], name="softmax"),
            node("MatMul", ["p", "v"], ["o"], name="context"),
            node("Transpose", ["o"], ["turned"], name="turned", perm=[0, 2, 1, 3]),
            node("Reshape", ["turned", "join"], ["heads"], name="joined"),
        ]
    nodes += [
        node("MatMul", ["heads", "wo"], ["out"], name="out"),
        node("Add", ["out", "x"], ["residual"], name="residual"),
        node("MatMul", ["residual", "wf"], ["linear"], name="linear"),
        node("Add", ["linear", "residual"], ["y"], name="sum"),
    ]
    shape = [1, 6, width]
    model = onnx_model(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], weights)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


class Samples(quantization.CalibrationDataReader):
    """Random inputs of a model, for calibration."""

    def __init__(self, model: onnx.ModelProto) -> None:
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        self.arrays = [normal(*shape, seed=seed) for seed in range(3)]
        self._pending: Iterator[np.ndarray] = iter(self.arrays)

    def get_next(self) -> dict[str, np.ndarray] | None:
        array = next(self._pending, None)
        return None if array is None else {"x": array}


Quantize = Callable[[onnx.ModelProto, Path], onnx.ModelProto]


def static(
    form, activation=UINT8, *, per_channel: bool = True, reduce_range: bool = True
) -> Quantize:
    """Quantize weights and activations."""

    def quantize(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
        quantization.quantize_static(
            model,
            folder / "quantized.onnx",
            Samples(model),
            quant_format=form,
            per_channel=per_channel,
            # To 7 bits, so that ONNX Runtime's kernels do not saturate.
            reduce_range=reduce_range,
            activation_type=activation,
            weight_type=INT8,
        )
        return onnx.load(folder / "quantized.onnx")

    return quantize


def dynamic(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Quantize weights; the model quantizes activations."""
    onnx.save(model, folder / "float.onnx")
    quantization.quantize_dynamic(
        folder / "float.onnx",
        folder / "quantized.onnx",
        per_channel=True,
        reduce_range=True,
        weight_type=INT8,
        extra_options={"DefaultTensorType": FLOAT},
    )
    return onnx.load(folder / "quantized.onnx")


def four_bits(form) -> Quantize:
    """Quantize weights to 4 bits in blocks."""

    def quantize(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
        quantizer = MatMulNBitsQuantizer(
            model, block_size=16, is_symmetric=form is QDQ, quant_format=form
        )
        quantizer.process()
        return quantizer.model.model

    return quantize


CASES: Mapping[str, tuple[onnx.ModelProto, Quantize, set[str]]] = {
    "convolutions QDQ": (convolutions(), static(QDQ), {"QuantizeLinear", "Conv"}),
    "convolutions QDQ 16 bits": (convolutions(), static(QDQ, UINT16), {"QuantizeLinear"}),
    "convolutions QOperator": (
        convolutions(),
        static(QOPERATOR, INT8),
        {"QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearMul"}
        | {"QGemm", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearSigmoid"},
    ),
    "perceptron QDQ": (perceptron(), static(QDQ, INT8, per_channel=False), {"QuantizeLinear"}),
    "perceptron QOperator": (perceptron(), static(QOPERATOR), {"QGemm", "QLinearMatMul"}),
    "perceptron dynamic": (perceptron(), dynamic, {"DynamicQuantizeLinear", "MatMulInteger"}),
    "transformer QDQ": (transformer(), static(QDQ, INT8), {"QuantizeLinear", "Softmax"}),
    "transformer dynamic": (transformer(fused=True), dynamic, {"QAttention", "MatMulInteger"}),
    "transformer 4 bits": (transformer(), four_bits(QOPERATOR), {"MatMulNBits"}),
    "transformer 4 bits QDQ": (transformer(), four_bits(QDQ), {"DequantizeLinear"}),
}


@pytest.fixture(scope="session")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], onnx.ModelProto]:
    """Returns the quantized model of a case."""

    def model_of(name: str) -> onnx.ModelProto:
        model, quantize, _ = CASES[name]
        return quantize(model, tmp_path_factory.mktemp("quantized"))

    return model_of


QUICK = ("convolutions QOperator", "perceptron dynamic", "transformer QDQ", "transformer 4 bits")


@few(2)
@pytest.mark.parametrize("name", CASES if is_full() else QUICK)
def test_quantized_model(name: str, quantized: Callable[[str], onnx.ModelProto]) -> None:
    """All elements are as in ONNX Runtime, up to one step of a quantized output."""
    source, _, operators = CASES[name]
    model = quantized(name)
    assert operators <= {node.op_type for node in model.graph.node}
    executable = relax.build(from_onnx(model), "llvm", relax_pipeline=tvm_fixes.pipeline("cpu"))
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for array in Samples(source).arrays:
        [expected] = onnx_runtime(model, array, optimize=False)
        got = call(vm, "main", array)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 + step_of(model))


def test_reference_does_not_saturate(tmp_path: Path) -> None:
    """Weights of 8 bits: the comparison of ``compile`` uses exact kernels of ONNX Runtime."""
    model = static(QOPERATOR, reduce_range=False)(perceptron(), tmp_path)
    assert tvm_fixes.compile(model).report.equal


def step_of(model: onnx.ModelProto) -> float:
    """The scale of the output, if it is dequantized; else 0."""
    last = model.graph.node[-1]
    if last.op_type != "DequantizeLinear":
        return 0.0
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    return float(constants[last.input[1]])


if __name__ == "__main__":
    tvm.testing.main()
