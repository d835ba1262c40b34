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
"""DFT, STFT and MelWeightMatrix, compared with onnx's evaluator."""

import math

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing

from helpers.grids import few, is_full
from helpers.growth import assert_linear
from helpers.onnx_graphs import (
    Arrays,
    assert_as_reference,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
)
from helpers.relax_modules import calls
from tvm_fixes.frontend.onnx import from_onnx

Case = tuple[onnx.ModelProto, Arrays]


def case(operator: str, inputs: Arrays, attributes: dict, rank: int, opset: int, **kw) -> Case:
    kw.setdefault("outputs", {"y": ("float32", rank)})
    return node_model(operator, inputs, attributes, opset=opset, **kw), inputs


def dft(shape: tuple[int, ...], opset: int, dims=None, operands: Arrays = {}, **attributes) -> Case:  # noqa: B006
    inputs = {"x": normal(*shape)} | dict(operands)
    names = ["x", *(name if name in operands else "" for name in ("length", "axis"))]
    while not names[-1]:
        names.pop()
    shapes = {"x": dims} if dims else None
    return case("DFT", inputs, attributes, len(shape), opset, operands=names, shapes=shapes)


def test_dft() -> None:
    """Real and complex, padded and cut, both directions, axes as attribute, constant and input."""
    number = lambda value: np.array(value, "int64")  # noqa: E731
    cases = {
        "real": dft((2, 5, 1), 20),
        "complex": dft((2, 6, 2), 20),
        "onesided": dft((2, 6, 3, 1), 20, operands={"axis": number(0)}, onesided=1),
        "padded": dft((2, 5, 1), 20, operands={"length": number(8)}),
        "cut": dft((2, 5, 2), 20, operands={"length": number(3), "axis": number(-2)}, inverse=1),
        "dynamic": dft((2, 5, 2), 20, dims=(None, None, 2), inverse=1),
        "one": dft((1, 1, 2), 20),
    }
    assert_as_reference(from_onnx, cases, rtol=1e-6)


def test_dft_17() -> None:
    cases = {
        "axis": dft((3, 4, 5, 1), 17, axis=2),
        "default": dft((3, 4, 2), 17, inverse=1),
        "onesided": dft((3, 7, 1), 17, dims=(None, None, 1), onesided=1),
    }
    assert_as_reference(from_onnx, cases, rtol=1e-6)


LENGTHS = (2, 97, 514, 1000, 2048, 81, 128, 257)


@few(2)
@pytest.mark.parametrize("length", LENGTHS if is_full() else LENGTHS[:4])
def test_long_transforms(length: int) -> None:
    """Small and large primes, numbers with factors, powers of two; relative to the largest."""
    real, pairs = normal(3, length, 1), normal(2, length, 2, 2, seed=1)
    numbers = pairs[..., 0] + 1j * pairs[..., 1]
    number = {"length": np.array(length, "int64"), "axis": np.array(1, "int64")}
    half = normal(2, length // 2 + 1, 2, seed=2)
    cases = {
        "onesided": (real, {"onesided": 1}, 20, np.fft.rfft(real[..., 0])),
        "complex": (pairs, {"axis": 1}, 17, np.fft.fft(numbers, axis=1)),
        "inverse": (pairs, {"inverse": 1}, 20, np.fft.ifft(numbers, axis=1)),
        "real": (
            half,
            {"inverse": 1, "onesided": 1},
            20,
            np.fft.irfft(half[..., 0] + 1j * half[..., 1], length)[..., None],
        ),
    }
    for name, (x, attributes, opset, expected) in cases.items():
        if np.iscomplexobj(expected):
            expected = np.stack([expected.real, expected.imag], -1)
        inputs, constants = {"x": x}, number if opset == 20 else {}
        model = node_model(
            "DFT",
            inputs,
            attributes,
            constants=constants,
            operands=["x", *constants],
            outputs={"y": ("float32", x.ndim)},
            opset=opset,
        )
        [got] = imported_and_run(from_onnx, model, x)
        assert got.shape == expected.shape, name
        assert np.abs(got - expected).max() <= 1e-6 * np.abs(expected).max(), name


def test_the_time_of_transforms_is_not_quadratic() -> None:
    """The constants of a transform, whose elements are multiplied, grow as its length does."""
    sizes = {}
    for blocks in (1, 2, 4, 8):
        mod = from_onnx(dft((1, 1024 * blocks, 2), 20)[0])
        weights = [call.args[1] for call in calls(mod, "relax.matmul")]
        sizes[blocks] = sum(math.prod(map(int, weight.ty.shape.values)) for weight in weights)
    assert_linear(sizes, factor=1.5)


def test_stft() -> None:
    """With and without a window, which may be an input; steps that leave a rest."""
    step = {"step": np.array(3, "int64")}
    length = {"length": np.array(4, "int64")}
    window = {"window": np.abs(normal(5, seed=1))}
    signal = {"x": normal(2, 12, 1, seed=2)}
    outputs = {"y": ("float32", 4)}
    cases = {
        "window": (
            node_model("STFT", signal | step | window, outputs=outputs),
            signal | step | window,
        ),
        "length": (
            node_model(
                "STFT",
                signal,
                {"onesided": 0},
                constants=step | length,
                operands=["x", "step", "", "length"],
                outputs=outputs,
            ),
            signal,
        ),
    }
    assert_as_reference(from_onnx, cases, rtol=1e-6)


@pytest.mark.parametrize("computed", (False, True))
def test_mel_weight_matrix(computed: bool) -> None:
    operands = {
        "count": np.array(6, "int64"),
        "length": np.array(33, "int64"),
        "rate": np.array(8000, "int64"),
        "low": np.array(50, "float32"),
        "high": np.array(3900, "float32"),
    }
    inputs = operands if computed else {"high": operands["high"]}
    constants = {name: array for name, array in operands.items() if name not in inputs}
    model = node_model(
        "MelWeightMatrix",
        inputs,
        constants=constants,
        operands=list(operands),
        outputs={"y": ("float32", 2)},
    )
    assert_follows_onnx_runtime(
        from_onnx, model, list(inputs.values()), pipeline="tvm_fixes", rtol=1e-6
    )


def test_dynamic_in_the_pipeline() -> None:
    """One program for any length and number of frames, with fused kernels."""
    step, window = np.array(2, "int64"), np.abs(normal(4, seed=1))
    inputs = {"x": normal(1, 9, 1), "step": step, "window": window}
    shapes = {"x": ("b", "n", 1), "window": ("w",)}
    model = node_model("STFT", inputs, shapes=shapes, outputs={"y": ("float32", 4)})
    runs = (
        [normal(2, n, 1, seed=n), step, np.abs(normal(w, seed=2))] for n, w in ((9, 4), (12, 5))
    )
    assert_follows_onnx_runtime(from_onnx, model, *runs, pipeline="tvm_fixes", rtol=1e-5)


def test_computed_length_in_the_pipeline() -> None:
    inputs = {"x": normal(2, 8, 1), "length": np.array(5)}
    model = node_model("DFT", inputs, {"onesided": 1}, outputs={"g": ("float32", 3)}, opset=20)
    model.graph.node.append(onnx.helper.make_node("Relu", ["g"], ["y"]))
    model.graph.output[0].name = "y"
    runs = ([inputs["x"], np.array(length)] for length in (5, 8, 1))
    assert_follows_onnx_runtime(from_onnx, model, *runs, pipeline="tvm_fixes", rtol=1e-5)


def test_rejected() -> None:
    x = {"x": normal(2, 5, 3)}
    model = node_model("DFT", x, opset=20)
    assert_rejected(from_onnx, model, "DFT 'node': shape of input is [2, 5, 3]; expected rank 2")
    model = node_model("DFT", {"x": normal(2, 5, 2)}, {"onesided": 1}, opset=20)
    assert_rejected(from_onnx, model, "attribute onesided is 1; expected 0 for complex numbers")
    model = node_model("DFT", {"x": normal(2, 5, 1)}, {"axis": 2}, opset=17)
    assert_rejected(from_onnx, model, "attribute axis is 2; expected an axis other than the last")


if __name__ == "__main__":
    tvm.testing.main()
