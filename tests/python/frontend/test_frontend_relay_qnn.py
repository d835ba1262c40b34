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
"""The elementwise operators of Relay's QNN dialect, bit by bit against NumPy."""

import math

import numpy as np
import pytest
import tvm.testing

from helpers.relay_calls import Program, assert_same
from helpers.relay_numpy.qnn import away, clipped, quantized, requantized, scaled
from tvm_fixes.errors import RelayError

RNG = np.random.default_rng(7)
F32, I32 = np.float32, np.int32


def whole(*shape: int, dtype: str = "int8") -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def test_quantize() -> None:
    program, expected = Program(), {}
    data = np.concatenate([RNG.normal(0, 90, (2, 3, 4)), [[[0.5, -0.5, 2.5, -2.5]] * 3]]).astype(
        F32
    )
    x = program.input(data)
    for dtype in ("int8", "uint8", "int16", "uint16", "int32"):
        program.call("qnn.quantize", [x, F32(0.7), I32(3)], out_dtype=dtype)
        expected[dtype] = quantized(data, F32(0.7), 3, dtype)
    scale, zero = np.array([0.5, 1, 0.3], F32), np.array([1, -2, 30], I32)
    for axis in (1, -2):
        program.call("qnn.quantize", [x, scale, zero], out_dtype="int8", axis=axis)
        expected[f"axis {axis}"] = quantized(data, scale[:, None], zero[:, None], "int8")
    program.call("qnn.quantize", [x, program.input(scale), zero], out_dtype="uint8", axis=1)
    expected["variable"] = quantized(data, scale[:, None], zero[:, None], "uint8")
    program.call("qnn.quantize", [x, F32(1e-9), I32(0)], out_dtype="int32")
    expected["int32 saturates"] = np.where(
        np.abs(data / F32(1e-9)) < 2**31,
        np.clip(away(data / F32(1e-9)), -(2.0**31), 2.0**31 - 128),
        np.where(data > 0, 2**31 - 1, -(2**31)),
    ).astype(I32)
    assert_same(program.run(), expected)


def test_dequantize() -> None:
    program, expected = Program(), {}
    for dtype in ("int8", "uint8", "int16", "uint16", "int32"):
        data = whole(3, 5, dtype=dtype) // (4 if dtype == "int32" else 1)
        program.call("qnn.dequantize", [program.input(data), F32(0.13), I32(-7)])
        expected[dtype] = (data.astype(I32) + 7).astype(F32) * F32(0.13)
    data = whole(3, 5)
    scale, zero = np.array([0.5, 1, 0.3], F32), np.array([1, -2, 30], I32)
    program.call("qnn.dequantize", [program.input(data), scale, zero], axis=0)
    expected["axis"] = (data.astype(I32) - zero[:, None]).astype(F32) * scale[:, None]
    program.call("qnn.dequantize", [program.input(data), F32(999.0), I32(0)], out_dtype="float16")
    floats = data.astype(F32) * F32(999.0)
    expected["float16"] = np.clip(floats, -65504, 65504).astype("float16")
    assert_same(program.run(), expected)


def test_requantize_in_fixed_point() -> None:
    program, expected = Program(), {}
    data = np.concatenate([whole(37, dtype="int16") * 3, np.arange(-20, 20)]).astype(I32)
    data = data.reshape(7, 11)
    x = program.input(data)
    for rounding, dtypes in (
        ("UPWARD", ("int8", "int32")),
        ("TONEAREST", ("uint8", "int32")),
        ("None", ("int16",)),
    ):
        for scale, target in ((0.5, 1.0), (0.25, 8.0), (3.0, 0.7), (0.1, 0.1), (1e-12, 1.0)):
            for dtype in dtypes:
                attrs = {"rounding": rounding, "out_dtype": dtype, "compute_dtype": "int64"}
                program.call(
                    "qnn.requantize", [x, F32(scale), I32(5), F32(target), I32(-3)], **attrs
                )
                expected[f"{scale} {target} {dtype} {rounding}"] = requantized(
                    data, F32(scale), 5, F32(target), -3, dtype, rounding
                )
    for rounding in ("UPWARD", "TONEAREST"):
        scales, zeros = np.linspace(0.01, 9, 7).astype(F32), np.arange(7).astype(I32)
        program.call(
            "qnn.requantize",
            [x, scales, zeros, F32(2.0), I32(1)],
            axis=0,
            rounding=rounding,
            out_dtype="int16",
        )
        expected[f"channels {rounding}"] = requantized(
            data, scales, zeros, F32(2.0), 1, "int16", rounding, axis=0
        )
    assert_same(program.run(), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_requantize_in_floats(dtype: str) -> None:
    program, expected = Program(), {}
    data = np.concatenate([whole(29), np.arange(-20, 20)]).astype("int16").reshape(3, 23)
    scales = np.array([0.5, 0.25, 0.37], F32)
    for rounding in ("UPWARD", "TONEAREST"):
        for scale in (F32(0.5), scales):
            ratio = (np.asarray(scale, "float64") / np.float64(F32(0.8))).astype(dtype)
            ratio = ratio[:, None] if ratio.ndim else ratio
            value = (data.astype(dtype) - 4) * ratio + np.array(2, dtype)
            value = (
                away(value) if rounding == "TONEAREST" else np.floor(value + np.array(0.5, dtype))
            )
            program.call(
                "qnn.requantize",
                [program.input(data), scale, I32(4), F32(0.8), I32(2)],
                axis=0,
                rounding=rounding,
                compute_dtype=dtype,
                out_dtype="int8",
            )
            expected[f"{rounding} {scale}"] = clipped(value, "int8")
    assert_same(program.run(), expected)


def test_simulated() -> None:
    program, expected = Program(), {}
    data = RNG.normal(0, 200, (3, 4)).astype(F32)
    scale, zero = np.array([0.5, 2, 0.3], F32), np.array([1, -2, 30], I32)
    x = program.input(data)
    for number, dtype in enumerate(("disable", "int8", "uint8", "int32")):
        code = program.input(np.array(number, I32))
        program.call("qnn.simulated_quantize", [x, code, scale, zero], axis=0)
        values = away(data / scale[:, None]) + zero[:, None].astype(F32)
        if number:
            values = np.clip(values, np.iinfo(dtype).min, np.iinfo(dtype).max)
        expected[f"to {dtype}"] = (values if number else data).astype(F32)
        program.call("qnn.simulated_dequantize", [x, code, scale[:1], zero[:1]], axis=-1)
        values = (data - zero[0].astype(F32)) * scale[0]
        expected[f"from {dtype}"] = values if number else data
    assert_same(program.run(), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_binary(dtype: str) -> None:
    program, expected = Program(), {}
    lhs, rhs = whole(2, 5, 3, dtype=dtype), whole(5, 1, dtype=dtype)
    a, b = program.input(lhs), program.input(rhs)
    same = (F32(0.5), I32(4))
    cases = {
        "different": ((F32(0.02), I32(3)), (F32(0.3), I32(-1)), (F32(0.1), I32(7))),
        "same": (same, same, same),
        "zero": ((F32(0.02), I32(0)), (F32(0.3), I32(0)), (F32(0.02), I32(0))),
    }
    for name, (left, right, out) in cases.items():
        for operator in ("add", "subtract", "mul"):
            program.call(f"qnn.{operator}", [a, b, *left, *right, *out])
            x = requantized(lhs, *left, *out).astype("int64")
            y = requantized(rhs, *right, *out).astype("int64")
            zero = int(out[1])
            if operator == "mul":
                product = (lhs.astype("int64") - left[1]) * (rhs.astype("int64") - right[1])
                value = requantized(product, left[0] * right[0], 0, *out)
            else:
                value = x + y - zero if operator == "add" else x - y + zero
            expected[f"{operator} {name}"] = clipped(value, dtype)
    assert_same(program.run(), expected)


def test_binary_with_channels() -> None:
    program, expected = Program(), {}
    lhs, rhs = whole(2, 5, 3), whole(2, 5, 3)
    left = (np.linspace(0.1, 2, 5).astype(F32), np.arange(5).astype(I32))
    right = (np.linspace(3, 0.2, 5).astype(F32), np.arange(-5, 0).astype(I32))
    out = (F32(0.9), I32(-4))
    for operator in ("add", "subtract", "mul"):
        args = [program.input(lhs), program.input(rhs), *left, *right, *out]
        program.call(f"qnn.{operator}", args, lhs_axis=1, rhs_axis=1)
        x = requantized(lhs, *left, *out, axis=1).astype("int64")
        y = requantized(rhs, *right, *out, axis=1).astype("int64")
        value = x + y + 4 if operator == "add" else x - y - 4
        if operator == "mul":
            product = (lhs - left[1][:, None].astype("int64")) * (
                rhs - right[1][:, None].astype("int64")
            )
            scale = (left[0].astype("float64") * right[0].astype("float64")).astype(F32)
            value = requantized(product, scale, 0, *out, axis=1)
        expected[operator] = clipped(value, "int8")
    assert_same(program.run(), expected)


FUNCTIONS = {
    "abs": np.abs,
    "erf": np.vectorize(math.erf),
    "exp": np.exp,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_unary(dtype: str) -> None:
    program = Program()
    limits = np.iinfo(dtype)
    data = np.arange(limits.min, limits.max + 1).astype(dtype).reshape(4, 8, 8)
    parameters = [F32(0.043), I32(limits.min + 100), F32(0.017), I32(limits.min + 3)]
    for name in FUNCTIONS:
        program.call(f"qnn.{name}", [program.input(data), *parameters])
    reals = (data.astype("float64") - parameters[1]) * np.float64(F32(0.043))
    for name, result in zip(FUNCTIONS, program.run(), strict=True):
        assert result.dtype == data.dtype and result.shape == data.shape
        with np.errstate(all="ignore"):
            exact = FUNCTIONS[name](reals) / np.float64(F32(0.017)) + parameters[3]
        exact = np.clip(np.nan_to_num(exact, nan=limits.max), limits.min, limits.max)
        # The table is made in float32: near a half it may go either way.
        assert np.max(np.abs(result - exact)) < 0.5001, name


def test_concatenate() -> None:
    program = Program()
    parts = [whole(2, n, dtype="uint8") for n in (1, 3, 2)]
    scales, zeros = (F32(0.1), F32(0.5), F32(0.2)), (I32(3), I32(9), I32(2))
    out = (F32(0.5), I32(9))
    inputs = tuple(program.input(part) for part in parts)
    program.call("qnn.concatenate", [inputs, scales, zeros, *out], axis=-1)
    expected = [
        requantized(part, scale, zero, *out, dtype="uint8")
        for part, scale, zero in zip(parts, scales, zeros, strict=True)
    ]
    assert_same(program.run(), {"concatenate": np.concatenate(expected, -1)})


def test_leaky_relu() -> None:
    program, expected = Program(), {}
    data = np.arange(256).astype("uint8").reshape(16, 16)
    for out in ((F32(0.4), I32(20)), (F32(0.3), I32(100))):
        for alpha in (0.1, 0.25, 0.9):
            program.call(
                "qnn.leaky_relu", [program.input(data), F32(0.3), I32(100), *out], alpha=alpha
            )
            value = requantized(data, F32(0.3), 100, *out)
            below = scaled(value, alpha) + scaled(np.array([int(out[1])]), 1 - alpha)
            expected[f"{out} {alpha}"] = clipped(np.where(data < 100, below, value), "uint8")
    assert_same(program.run(), expected)


def test_softmax() -> None:
    program, expected = Program(), {}
    data = whole(3, 4, 5)
    for axis in (0, 1, -1):
        program.call(
            "qnn.softmax",
            [program.input(data), F32(0.09), I32(10), F32(1 / 256), I32(-128)],
            axis=axis,
        )
        x = data.astype(I32) - 10
        x = x - x.max(axis, keepdims=True)
        power = x + (x >> 1) - (x >> 4)
        quotient = np.clip(power // -11, 0, 20)
        base = ((power + quotient * 11) >> 1) + 11
        exps = base << (quotient.max(axis, keepdims=True) - quotient)
        share = (1 << 30) // exps.sum(axis, keepdims=True, dtype=I32)
        result = requantized((share * exps) >> 23, F32(1 / 128), 0, F32(1 / 256), -128, "int8")
        expected[f"axis {axis}"] = result
        reals = np.exp(x * 0.09)
        exact = reals / reals.sum(axis, keepdims=True)
        assert np.max(np.abs((result + 128.0) / 256 - exact)) < 0.05
    assert_same(program.run(), expected)


def test_scales_must_be_constant() -> None:
    program = Program()
    scale = program.input(F32(0.5))
    program.call("qnn.requantize", [whole(3), scale, I32(0), F32(1), I32(0)], out_dtype="int8")
    with pytest.raises(RelayError, match=r"qnn\.requantize .*input scale must be a constant"):
        program.run()


if __name__ == "__main__":
    tvm.testing.main()
