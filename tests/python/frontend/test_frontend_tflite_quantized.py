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
"""Quantized operators of TFLite: against real arithmetic, and LiteRT's reference kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional

from helpers.tflite_models import Case
from tvm_fixes.errors import UnsupportedOperatorError
from tvm_fixes.frontend.tflite import from_tflite
from tvm_fixes.relax.transform.fuse_quantized import FuseQuantized, QuantizedProduct
from tvm_fixes.support import ambient

_X = 0.0437, 5
_Y = 0.0291, -11


def integers(*shape: int, seed: int = 0, dtype: str = "int8") -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def real(values: np.ndarray, scale: Any, zero: int = 0) -> np.ndarray:
    return (values.astype("float64") - zero) * np.float32(scale).astype("float64")


def rounded(values: np.ndarray, scale: float, zero: int = 0, dtype: str = "int8") -> np.ndarray:
    """Real numbers as integers, halves away from zero."""
    scaled = values / np.float64(np.float32(scale))
    whole = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5) + zero
    limits = np.iinfo(dtype)
    return np.clip(whole, limits.min, limits.max).astype(dtype)


class Quantized(Case):
    """A model of quantized operators, whose results may be one step off."""

    max_steps, min_equal, min_equal_litert = 1, 0.98, 0.98

    def adds(
        self,
        name: str,
        inputs: list[int],
        value: np.ndarray,
        scale: float,
        zero: int = 0,
        options: Any = None,
        *,
        dtype: str = "int8",
        version: int = 1,
    ) -> None:
        """Add an operator whose real result is given."""
        expected = rounded(value, scale, zero, dtype)
        self.add(name, inputs, expected, options, scale=scale, zero=zero, version=version)


def test_elementwise():
    case = Quantized()
    x, y = integers(2, 50, 6), integers(1, 50, 1, seed=1)
    a, b = case.quantized(x, *_X), case.quantized(y, *_Y)
    p, q = real(x, *_X), real(y, *_Y)
    relu = {"fused_activation_function": "RELU"}
    case.adds("ADD", [a, b], p + q, 0.0623, 3, ("AddOptions", {}))
    case.adds("SUB", [a, b], np.maximum(p - q, 0), 0.0433, -128, ("SubOptions", relu))
    case.adds(
        "MUL",
        [a, b],
        np.clip(p * q, 0, 6),
        0.0291,
        -60,
        ("MulOptions", {"fused_activation_function": "RELU6"}),
    )
    case.adds("SQUARED_DIFFERENCE", [a, b], (p - q) ** 2, 0.31, -128)
    case.adds("ABS", [a], np.abs(p), 0.0437, 5)
    case.adds("PRELU", [a, b], np.where(p < 0, p * q, p), 0.0811, 7)
    same = case.quantized(integers(2, 50, 6, seed=2), *_X)
    z = case.values[-1]
    case.add("MAXIMUM", [a, same], np.maximum(x, z), scale=_X[0], zero=_X[1])
    case.add("GREATER", [a, same], x > z)
    case.add(
        "SELECT_V2", [case.input(x > 0), a, same], np.where(x > 0, x, z), scale=_X[0], zero=_X[1]
    )
    case.check()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_functions_of_one_element_are_exact(dtype):
    case = Quantized()
    # LiteRT rounds products twice.
    case.min_equal, case.min_equal_litert = 0.85, 1.0
    limits = np.iinfo(dtype)
    x = np.arange(limits.min, limits.max + 1).astype(dtype).reshape(4, 64)
    zero = int(limits.min) + 131
    a = case.quantized(x, 0.0437, zero)
    p = real(x, 0.0437, zero)
    functions: dict[str, tuple[Callable[..., Any], float, int]] = {
        "LOGISTIC": (lambda v: 1 / (1 + np.exp(-v)), 1 / 256, int(limits.min)),
        "TANH": (np.tanh, 1 / 128, int(limits.min) + 128),
    }
    if dtype == "int8":
        functions["ELU"] = (lambda v: np.where(v < 0, np.expm1(v), v), 0.031, -90)
        functions["EXP"] = (np.exp, 0.91, -128)
    for name, (function, scale, start) in functions.items():
        expected = rounded(function(p), scale, start, dtype)
        case.add(name, [a], expected, scale=scale, zero=start)
    leaky = rounded(np.where(p < 0, np.float32(0.3) * p, p), 0.0391, zero, dtype)
    case.add(
        "LEAKY_RELU", [a], leaky, ("LeakyReluOptions", {"alpha": 0.3}), scale=0.0391, zero=zero
    )
    swish = p * np.clip(p + 3, 0, 6) / 6
    start = zero - 100
    expected = rounded(swish, 0.0341, start, dtype)
    case.add("HARD_SWISH", [a], expected, scale=0.0341, zero=start)
    for name, low, high in [("RELU", 0, None), ("RELU6", 0, 6), ("RELU_N1_TO_1", -1, 1)]:
        same = rounded(np.clip(p, low, high), 0.0437, zero, dtype)
        case.add(name, [a], same, scale=0.0437, zero=zero)
        other = rounded(np.clip(p, low, high), 0.0631, zero - 3, dtype)
        case.add(name, [a], other, scale=0.0631, zero=zero - 3)
    case.check()


def test_convolutions_are_products_of_integers():
    case = Quantized()
    x = integers(2, 9, 8, 4)
    a = case.quantized(x, *_X)
    p = torch.from_numpy(real(x, *_X)).permute(0, 3, 1, 2)
    rng = np.random.default_rng(3)
    scales = rng.uniform(0.003, 0.01, 8).astype("float32")
    w, bias = integers(8, 3, 3, 4, seed=1), rng.integers(-2000, 2000, 8).astype("int32")
    weight = case.constant(w, scale=scales, axis=0)
    added = case.constant(bias, scale=np.float32(_X[0]) * scales, axis=0)
    real_w = torch.from_numpy(real(w, scales[:, None, None, None])).permute(0, 3, 1, 2)
    real_b = torch.from_numpy(bias * (np.float32(_X[0]) * scales).astype("float64"))
    same = {"stride_w": 1, "stride_h": 1, "padding": "SAME", "fused_activation_function": "RELU6"}
    found = functional.conv2d(p, real_w, real_b, padding=1).clamp(0, 6)
    case.adds(
        "CONV_2D",
        [a, weight, added],
        found.permute(0, 2, 3, 1).numpy(),
        0.0236,
        -128,
        ("Conv2DOptions", same),
    )
    deep = integers(1, 3, 3, 4, seed=2)
    depthwise = case.constant(deep, scale=scales[:4], axis=3)
    small = case.constant(bias[:4], scale=np.float32(_X[0]) * scales[:4], axis=0)
    real_d = torch.from_numpy(real(deep, scales[:4])).permute(3, 0, 1, 2)
    found = functional.conv2d(p, real_d, real_b[:4], stride=2, groups=4)
    options = {"stride_w": 2, "stride_h": 2, "padding": "VALID", "depth_multiplier": 1}
    case.adds(
        "DEPTHWISE_CONV_2D",
        [a, depthwise, small],
        found.permute(0, 2, 3, 1).numpy(),
        0.071,
        9,
        ("DepthwiseConv2DOptions", options),
    )
    flat, rows = integers(3, 40, seed=4), integers(6, 40, seed=5)
    f, m = case.quantized(flat, *_Y), case.constant(rows, scale=0.0071)
    offset = case.constant(bias[:6], scale=np.float32(_Y[0]) * np.float32(0.0071))
    found = real(flat, *_Y) @ real(rows, 0.0071).T + bias[:6] * np.float64(
        np.float32(_Y[0]) * np.float32(0.0071)
    )
    case.adds("FULLY_CONNECTED", [f, m, offset], found, 0.093, -4, ("FullyConnectedOptions", {}))
    up = integers(5, 3, 3, 4, seed=6)
    kernel = case.constant(up, scale=0.0062)
    real_u = torch.from_numpy(real(up, 0.0062)).permute(3, 0, 1, 2)
    found = functional.conv_transpose2d(p, real_u, stride=2).permute(0, 2, 3, 1).numpy()
    shape = case.constant(np.array([2, 19, 17, 5], "int32"))
    options = {"stride_w": 2, "stride_h": 2, "padding": "VALID"}
    case.adds(
        "TRANSPOSE_CONV", [shape, kernel, a], found, 0.087, 2, ("TransposeConvOptions", options)
    )
    left, right = integers(2, 5, 16, seed=7), integers(2, 16, 6, seed=8)
    found = real(left, *_X) @ real(right, *_Y)
    batched = [case.quantized(left, *_X), case.quantized(right, *_Y)]
    case.adds("BATCH_MATMUL", batched, found, 0.9, 3, ("BatchMatMulOptions", {}))
    case.check()
    with ambient.collect() as facts:
        FuseQuantized()(from_tflite(case.file()))
    products = facts.of(QuantizedProduct)
    assert len(products) == 5
    assert [one for one in products if one.obstacle is not None] == []


def test_products_of_unsigned_integers():
    case = Quantized()
    x, w = integers(1, 6, 6, 3, dtype="uint8"), integers(4, 3, 3, 3, seed=1, dtype="uint8")
    a, weight = case.quantized(x, 0.0291, 120), case.constant(w, scale=0.0113, zero=133)
    bias = np.array([-900, 3, 77, 1500], "int32")
    factor = np.float32(0.0291) * np.float32(0.0113)
    p = torch.from_numpy(real(x, 0.0291, 120)).permute(0, 3, 1, 2)
    real_w = torch.from_numpy(real(w, 0.0113, 133)).permute(0, 3, 1, 2)
    found = functional.conv2d(p, real_w, torch.from_numpy(bias * np.float64(factor)), padding=1)
    options = {"stride_w": 1, "stride_h": 1, "padding": "SAME"}
    operands = [a, weight, case.constant(bias, scale=factor)]
    case.adds(
        "CONV_2D",
        operands,
        found.permute(0, 2, 3, 1).numpy(),
        0.05,
        126,
        ("Conv2DOptions", options),
        dtype="uint8",
    )
    case.check()


def test_pooling_and_means_round_half_away_from_zero():
    case = Case()
    x = integers(2, 6, 6, 8)
    a = case.quantized(x, *_X)
    pool = {"stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2, "padding": "VALID"}
    windows = x.reshape(2, 3, 2, 3, 2, 8).astype("float64")
    parameters = {"scale": _X[0], "zero": _X[1]}
    case.add(
        "AVERAGE_POOL_2D",
        [a],
        rounded(windows.mean((2, 4)), 1),
        ("Pool2DOptions", pool),
        **parameters,
    )
    case.add(
        "MAX_POOL_2D",
        [a],
        windows.max((2, 4)).astype("int8"),
        ("Pool2DOptions", pool),
        **parameters,
    )
    relu = {**pool, "fused_activation_function": "RELU"}
    case.add(
        "MAX_POOL_2D",
        [a],
        np.maximum(windows.max((2, 4)), 5).astype("int8"),
        ("Pool2DOptions", relu),
        **parameters,
    )
    axes = case.constant(np.array([1, 2], "int32"))
    centered = (x.astype("float64") - 5).mean((1, 2))
    case.add(
        "MEAN",
        [a, axes],
        rounded(centered, 1, 5),
        ("ReducerOptions", {"keep_dims": False}),
        **parameters,
    )
    case.add(
        "REDUCE_MAX",
        [a, axes],
        x.max((1, 2)),
        ("ReducerOptions", {"keep_dims": False}),
        **parameters,
    )
    case.check()


def test_sums_and_norms():
    case = Quantized()
    x = integers(20, 10)
    a = case.quantized(x, *_X)
    p = real(x, *_X)
    axes = case.constant(np.array([1], "int32"))
    keep = ("ReducerOptions", {"keep_dims": True})
    case.adds("MEAN", [a, axes], p.mean(1, keepdims=True), 0.0211, -3, keep)
    # LiteRT's reference kernel reads sums of int8 as uint8.
    u = integers(20, 10, seed=1, dtype="uint8")
    total = real(u, 0.0437, 120).sum(1, keepdims=True)
    b = case.quantized(u, 0.0437, 120)
    case.adds("SUM", [b, axes], total, 0.311, 130, keep, dtype="uint8")
    soft = np.exp(p) / np.exp(p).sum(1, keepdims=True)
    case.adds("SOFTMAX", [a], soft, 1 / 256, -128, ("SoftmaxOptions", {"beta": 1.0}))
    case.adds("LOG_SOFTMAX", [a], np.log(soft), 16 / 256, 127)
    centered = case.quantized(x, 0.0437, 0)
    length = np.sqrt((x.astype("float64") ** 2).sum(1, keepdims=True))
    case.adds("L2_NORMALIZATION", [centered], x / length, 1 / 128, 0, ("L2NormOptions", {}))
    # LiteRT rounds means twice, and its softmax is in fixed point.
    case.min_equal, case.min_equal_litert = 0.6, 0.9
    case.check()


def test_moved_integers():
    case = Case()
    x, y = integers(1, 4, 6, 4), integers(1, 4, 6, 4, seed=1)
    a, b = case.quantized(x, *_X), case.quantized(y, *_X)
    same = {"scale": _X[0], "zero": _X[1]}

    def ints(*values: Any) -> int:
        return case.constant(np.array(values, "int32"))

    pads = ints([0, 0], [1, 1], [0, 2], [0, 0])
    widths = [(0, 0), (1, 1), (0, 2), (0, 0)]
    case.add("PAD", [a, pads], np.pad(x, widths, constant_values=5), **same)
    case.add("TRANSPOSE", [a, ints(0, 3, 1, 2)], x.transpose(0, 3, 1, 2), **same)
    case.add("RESHAPE", [a, ints(4, -1)], x.reshape(4, 24), **same)
    case.add("SLICE", [a, ints(0, 1, 1, 0), ints(1, 2, -1, 4)], x[:, 1:3, 1:], **same)
    case.add("SPLIT", [ints(2), a], np.split(x, 2, 2), ("SplitOptions", {"num_splits": 2}), **same)
    case.add(
        "PACK", [a, b], np.stack([x, y]), ("PackOptions", {"axis": 0, "values_count": 2}), **same
    )
    case.add(
        "CONCATENATION",
        [a, b],
        np.concatenate([x, y], 3),
        ("ConcatenationOptions", {"axis": 3}),
        **same,
    )
    case.add("GATHER", [a, ints(3, 1)], x[:, [3, 1]], ("GatherOptions", {"axis": 1}), **same)
    case.add(
        "SPACE_TO_DEPTH",
        [a],
        x.reshape(1, 2, 2, 3, 2, 4).transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 3, 16),
        ("SpaceToDepthOptions", {"block_size": 2}),
        **same,
    )
    size = case.constant(np.array([8, 12], "int32"))
    doubled = x.repeat(2, 1).repeat(2, 2)
    nearest = ("ResizeNearestNeighborOptions", {"half_pixel_centers": True})
    case.add("RESIZE_NEAREST_NEIGHBOR", [a, size], doubled, nearest, **same)
    case.check()


def test_requantization():
    case = Quantized()
    # LiteRT computes places between pixels with 10 bits.
    case.min_equal = 0.9
    x = integers(4, 40)
    a, floats = (
        case.quantized(x, *_X),
        np.random.default_rng(1).standard_normal((4, 40)).astype("float32"),
    )
    case.add("DEQUANTIZE", [a], real(x, *_X).astype("float32"))
    case.adds("QUANTIZE", [a], real(x, *_X), *_Y, ("QuantizeOptions", {}))
    case.adds("QUANTIZE", [a], real(x, *_X), _X[0], 133, ("QuantizeOptions", {}), dtype="uint8")
    case.adds("QUANTIZE", [case.input(floats)], floats, 0.021, 3, ("QuantizeOptions", {}))
    u, v = (integers(4, 40, seed=seed, dtype="uint8") for seed in (2, 3))
    joined = np.concatenate([real(u, 0.03, 120), real(v, 0.04, 99)], 1)
    both = [case.quantized(u, 0.03, 120), case.quantized(v, 0.04, 99)]
    axis = ("ConcatenationOptions", {"axis": 1})
    case.adds("CONCATENATION", both, joined, 0.05, 101, axis, dtype="uint8")
    resized = case.quantized(integers(1, 4, 5, 3, seed=3), *_X)
    p = torch.from_numpy(case.values[-1].astype("float64")).permute(0, 3, 1, 2)
    found = functional.interpolate(p, size=(7, 10), mode="bilinear").permute(0, 2, 3, 1).numpy()
    options = ("ResizeBilinearOptions", {"half_pixel_centers": True})
    size = case.constant(np.array([7, 10], "int32"))
    case.add(
        "RESIZE_BILINEAR", [resized, size], rounded(found, 1), options, scale=_X[0], zero=_X[1]
    )
    narrow = ("FakeQuantOptions", {"min": -1.5, "max": 2.0, "num_bits": 8})
    scale = 3.5 / 255
    steps = np.floor((np.clip(floats, -109 * scale, 146 * scale) + 109 * scale) / scale + 0.5)
    case.add("FAKE_QUANT", [case.input(floats)], ((steps - 109) * scale).astype("float32"), narrow)
    case.check()


def test_small_constants_stand_for_real_numbers() -> None:
    """Only integers without a scale are computed at import as they are."""
    case = Quantized()
    data, other = np.array([[10, -20, 30]], "int8"), np.array([[5, 6, -7]], "int8")
    x = case.constant(data, scale=0.5, zero=3)
    y = case.constant(other, scale=0.25, zero=-1)
    a, b = real(data, 0.5, 3), real(other, 0.25, -1)
    case.adds("ADD", [x, y], a + b, 0.35, 7, ("AddOptions", {}))
    # LiteRT's sum reads int8 as uint8.
    unsigned = np.array([[10, 200, 30]], "uint8")
    summed = [case.constant(unsigned, scale=0.1, zero=90), case.constant(np.array([1], "int32"))]
    total = real(unsigned, 0.1, 90).sum(1)
    options = ("ReducerOptions", {"keep_dims": False})
    case.adds("SUM", summed, total, 0.3, 20, options, dtype="uint8")
    case.check()


@pytest.mark.parametrize(
    "weight, message",
    [
        ({"scale": 0.1}, "dynamic-range quantization"),
        ({"scale": [0.0, 0.1]}, "expected positive scales"),
    ],
)
def test_rejected_products(weight, message):
    case = Case()
    a = case.input(np.zeros((1, 4), "float32"))
    if message.startswith("expected"):
        a = case.quantized(np.zeros((1, 4), "int8"), 0.1)
    w = case.constant(np.ones((2, 4), "int8"), **weight)
    out = np.zeros((1, 2), "int8" if message.startswith("expected") else "float32")
    parameters = {"scale": 0.1} if out.dtype == "int8" else {}
    case.add("FULLY_CONNECTED", [a, w], out, ("FullyConnectedOptions", {}), **parameters)
    with pytest.raises(UnsupportedOperatorError, match=message):
        from_tflite(case.file())


if __name__ == "__main__":
    tvm.testing.main()
