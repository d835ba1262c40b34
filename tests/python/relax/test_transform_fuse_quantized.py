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
"""FuseQuantized: the rewritten calls, exact sums, and the calls that it does not change."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.grids import few
from helpers.relax_modules import build, calls, count, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import FuseQuantized
from tvm_fixes.relax.transform.fuse_quantized import QuantizedProduct
from tvm_fixes.support import ambient


def scalar(value: float, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.array(value, dtype))


def vector(*values: float, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.array(values, dtype))


def random(*shape: int, dtype: str = "int8", seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape, dtype)


def quantized(
    emit: Callable[..., relax.Expr], *shapes: tuple[int, ...], dtype: str = "uint8"
) -> tvm.IRModule:
    """A module with 8-bit inputs."""
    return build(
        {f"x{index}": tensor(*shape, dtype=dtype) for index, shape in enumerate(shapes)}, emit
    )


def test_product():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3, 8), "uint8"), w: R.Tensor((8, 4), "int8")) -> R.Tensor(
            (3, 4), "float32"
        ):
            with R.dataflow():
                lhs = R.dequantize(x, R.const(0.5, "float32"), R.const(7, "uint8"), axis=0)
                rhs = R.dequantize(w, R.const(0.25, "float32"), R.const(0, "int8"), axis=0)
                y = R.matmul(lhs, rhs)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3, 8), "uint8"), w: R.Tensor((8, 4), "int8")) -> R.Tensor(
            (3, 4), "float32"
        ):
            with R.dataflow():
                wide = R.astype(x, "int16")
                zero = R.astype(R.const(7, "uint8"), "int16")
                lhs = R.subtract(wide, zero)
                total = R.matmul(lhs, w, out_dtype="int32")
                sums = R.astype(total, "float32")
                y = R.multiply(sums, R.const(0.125, "float32"))
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(FuseQuantized()(Before), Expected)


def test_quantized_product_is_scaled_once():
    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data = bb.emit(relax.op.dequantize(x, scalar(0.5), scalar(128, "uint8"), 0))
        weight = relax.const(random(8, 4))
        scales, zeros = vector(0.1, 0.2, 0.3, 0.4), vector(0, 0, 0, 0, dtype="int8")
        weight = bb.emit(relax.op.dequantize(weight, scales, zeros, 1))
        bias = vector(100, -200, 300, 0, dtype="int32")
        scales = vector(*(np.float32([0.1, 0.2, 0.3, 0.4]) * np.float32(0.5)))
        zeros = vector(0, 0, 0, 0, dtype="int32")
        bias = bb.emit(relax.op.dequantize(bias, scales, zeros, 0))
        y = bb.emit(relax.op.add(bb.emit(relax.op.matmul(data, weight)), bias))
        y = bb.emit(relax.op.nn.relu(y))
        return relax.op.quantize(y, scalar(2.0), scalar(10, "uint8"), 0, "uint8")

    mod = quantized(emit, (3, 8))
    fused = FuseQuantized()(mod)
    for operator in ("relax.dequantize", "relax.quantize", "relax.nn.relu"):
        assert count(fused, operator) == 0
    x = random(3, 8, dtype="uint8", seed=1)
    total = (x.astype("int32") - 128) @ random(8, 4).astype("int32") + [100, -200, 300, 0]
    factor = np.float32([0.1, 0.2, 0.3, 0.4]) * np.float32(0.5) / np.float32(2)
    scaled = np.round(total.astype("float32") * factor) + 10
    got = run(mod, x, pipeline=pipeline())
    np.testing.assert_array_equal(got, np.clip(scaled, 10, 255).astype("uint8"))


def conv_module(
    shape: tuple[int, ...],
    weight: np.ndarray,
    scales: relax.Expr,
    *,
    axis: int = 0,
    zero: int = 0,
    operator: str = "conv2d",
    **attributes,
) -> tvm.IRModule:
    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data = bb.emit(relax.op.dequantize(x, scalar(0.5), scalar(zero, "uint8"), 0))
        zeros = relax.const(np.zeros(tuple(map(int, scales.ty.shape)), str(weight.dtype)))
        dequantized = relax.op.dequantize(relax.const(weight), scales, zeros, axis)
        return getattr(relax.op.nn, operator)(data, bb.emit(dequantized), **attributes)

    return quantized(emit, shape)


def as_float64(weight: np.ndarray, scales: np.ndarray, axis: int) -> np.ndarray:
    shape = [1] * weight.ndim
    if scales.ndim:
        shape[axis] = -1
    return weight.astype("float64") * scales.reshape(shape)


@few(3)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("shape", "weight", "attributes"),
    [
        ((2, 8, 7, 7), (12, 8, 3, 3), {"padding": 1}),
        ((2, 8, 7, 7), (12, 2, 3, 3), {"groups": 4, "strides": 2}),
        ((2, 8, 7, 7), (8, 1, 3, 3), {"groups": 8, "padding": 1}),
        ((2, 8, 9), (12, 8, 3), {"operator": "conv1d"}),
    ],
    ids=["plain", "grouped", "depthwise", "1-D"],
)
def test_convolution(shape, weight, attributes, per_channel) -> None:
    """The sums are those of integers; the padding is the zero point."""
    array = random(*weight)
    scales = np.linspace(0.25, 1, weight[0]).astype("float32") if per_channel else np.float32(0.5)
    mod = conv_module(shape, array, relax.const(np.array(scales)), zero=100, **attributes)
    assert count(FuseQuantized()(mod), "relax.dequantize") == 0
    x = random(*shape, dtype="uint8", seed=1)
    attributes = {"strides": 1, "padding": 0, "groups": 1, "operator": "conv2d"} | attributes
    expected = getattr(torch.nn.functional, attributes["operator"])(
        torch.from_numpy((x.astype("float64") - 100) * 0.5),
        torch.from_numpy(as_float64(array, np.array(scales), 0)),
        stride=attributes["strides"],
        padding=attributes["padding"],
        groups=attributes["groups"],
    )
    np.testing.assert_allclose(run(mod, x, pipeline=pipeline()), expected, rtol=2e-7)


def test_unsigned_weights_with_a_zero_point_become_signed() -> None:
    weight = random(8, 4, dtype="uint8")

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data = bb.emit(relax.op.dequantize(x, scalar(1.0), scalar(3, "uint8"), 0))
        other = relax.op.dequantize(relax.const(weight), scalar(1.0), scalar(128, "uint8"), 0)
        return relax.op.matmul(data, bb.emit(other))

    mod = quantized(emit, (3, 8))
    [product] = calls(FuseQuantized()(mod), "relax.matmul")
    assert str(product.args[1].ty.dtype) == "int8"
    x = random(3, 8, dtype="uint8", seed=1)
    expected = (x.astype("int32") - 3) @ (weight.astype("int32") - 128)
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), expected)


@few(3)
@pytest.mark.parametrize(
    "move",
    [
        lambda x: relax.op.reshape(x, [2, 4, 12, 1]),
        lambda x: relax.op.permute_dims(x, [0, 2, 3, 1]),
        lambda x: relax.op.nn.max_pool2d(x, [2, 2], padding=1),
        lambda x: relax.op.strided_slice(x, [2], [1], [3]),
        lambda x: relax.op.concat([x, x], 1),
        lambda x: relax.op.nn.relu(x),
    ],
    ids=["reshape", "permute_dims", "max_pool2d", "strided_slice", "concat", "relu"],
)
def test_quantization_moves_through(move) -> None:
    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parameters = scalar(0.5), scalar(100, "uint8")
        moved = bb.emit(move(bb.emit(relax.op.dequantize(x, *parameters, 0))))
        return relax.op.quantize(moved, *parameters, 0, "uint8")

    mod = quantized(emit, (2, 4, 3, 4))
    fused = FuseQuantized()(mod)
    assert count(fused, "relax.dequantize") == count(fused, "relax.quantize") == 0
    x = random(2, 4, 3, 4, dtype="uint8")
    np.testing.assert_array_equal(run(fused, x), run(mod, x))


def test_integer_products_are_narrowed() -> None:
    """The form of ConvInteger and MatMulInteger, with zero points that are known at run time."""

    def emit(bb, x, zero):
        wide = bb.emit(relax.op.astype(x, "int32"))
        data = bb.emit(relax.op.subtract(wide, bb.emit(relax.op.astype(zero, "int32"))))
        weight = bb.emit(relax.op.astype(relax.const(random(8, 4)), "int32"))
        return relax.op.matmul(data, weight, out_dtype="int32")

    mod = quantized(emit, (3, 8), (), dtype="uint8")
    [product] = calls(FuseQuantized()(mod), "relax.matmul")
    assert [str(operand.ty.dtype) for operand in product.args] == ["int16", "int8"]
    x, zero = random(3, 8, dtype="uint8", seed=1), np.array(200, "uint8")
    expected = (x.astype("int32") - 200) @ random(8, 4).astype("int32")
    np.testing.assert_array_equal(run(mod, x, zero, pipeline=pipeline()), expected)


def test_weights_with_a_zero_point_per_channel() -> None:
    """As in QLinearConv: a vector of zero points that is reshaped for the channels."""
    weight, zeros = random(4, 3, 3, 3, dtype="uint8"), np.array([128, 128, 127, 129], "uint8")

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data, w, zero = (
            bb.emit(relax.op.astype(operand, "int32"))
            for operand in (x, relax.const(weight), relax.const(zeros))
        )
        zero = bb.emit(relax.op.reshape(zero, [-1, 1, 1, 1]))
        return relax.op.nn.conv2d(data, bb.emit(relax.op.subtract(w, zero)), out_dtype="int32")

    mod = quantized(emit, (1, 3, 5, 5))
    [product] = calls(FuseQuantized()(mod), "relax.nn.conv2d")
    assert str(product.args[1].ty.dtype) == "int16"
    assert count(FuseQuantized()(mod), "relax.subtract") == 0
    x = random(1, 3, 5, 5, dtype="uint8", seed=1)
    signed = weight.astype("float64") - zeros.reshape(-1, 1, 1, 1)
    expected = torch.nn.functional.conv2d(*map(torch.from_numpy, (x.astype("float64"), signed)))
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), expected.numpy())


def test_a_result_is_also_used_as_float() -> None:
    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parameters = scalar(0.5), scalar(100, "uint8")
        data = bb.emit(relax.op.dequantize(x, *parameters, 0))
        weight = bb.emit(
            relax.op.dequantize(relax.const(random(8, 8)), scalar(0.0123), scalar(0, "int8"), 0)
        )
        y = bb.emit(relax.op.matmul(data, weight))
        q = bb.emit(relax.op.quantize(y, *parameters, 0, "uint8"))
        back = bb.emit(relax.op.dequantize(q, *parameters, 0))
        return relax.op.subtract(bb.emit(relax.op.add(back, y)), data)

    mod = quantized(emit, (3, 8))
    x = random(3, 8, dtype="uint8", seed=1)
    np.testing.assert_allclose(run(mod, x, pipeline=pipeline()), run(mod, x), rtol=1e-5, atol=1e-5)


@few(2)
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("zero", [0, 128])
def test_weight_only(zero: int, is_transposed: bool) -> None:
    """The library stores the integers; the result is scaled."""
    weight = random(64, 40, dtype="uint8" if zero else "int8")
    scales = np.linspace(0.01, 0.02, 40).astype("float32")

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        zeros = relax.const(np.full(40, zero, weight.dtype))
        array = weight.T.copy() if is_transposed else weight
        axis = 0 if is_transposed else 1
        matrix = bb.emit(relax.op.dequantize(relax.const(array), relax.const(scales), zeros, axis))
        return relax.op.matmul(
            x, bb.emit(relax.op.permute_dims(matrix)) if is_transposed else matrix
        )

    mod = quantized(emit, (3, 64), dtype="float32")
    [product] = calls(FuseQuantized()(mod), "relax.matmul")
    assert [str(operand.ty.dtype) for operand in product.args] == ["float32", "int8"]
    x = np.random.default_rng(0).standard_normal((3, 64)).astype("float32")
    expected = x.astype("float64") @ ((weight.astype("float64") - zero) * scales)
    np.testing.assert_allclose(run(mod, x, pipeline=pipeline()), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("moves_first", [False, True])
def test_weight_that_is_scaled_after_the_product(moves_first: bool) -> None:
    """The form of torchao's weight-only linear layers."""
    weight = random(40, 64)

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        steps = [lambda y: relax.op.astype(y, "float32"), relax.op.permute_dims]
        matrix = relax.const(weight)
        for step in steps[::-1] if moves_first else steps:
            matrix = bb.emit(step(matrix))
        return relax.op.multiply(bb.emit(relax.op.matmul(x, matrix)), scalar(0.5))

    mod = quantized(emit, (3, 64), dtype="float32")
    [product] = calls(FuseQuantized()(mod), "relax.matmul")
    assert [str(operand.ty.dtype) for operand in product.args] == ["float32", "int8"]
    x = np.random.default_rng(0).standard_normal((3, 64)).astype("float32")
    expected = x.astype("float64") @ weight.T * 0.5
    np.testing.assert_allclose(run(mod, x, pipeline=pipeline()), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "scales", "axis", "reason"),
    [
        ("int16", scalar(0.5), 0, "the weight is int16, not of 8 bits"),
        (
            "int8",
            vector(*range(1, 9)),
            0,
            "the scales of the weight are not one per output channel",
        ),
    ],
    ids=["16-bit weight", "scales of the common axis"],
)
def test_other_products_are_kept(dtype: str, scales: relax.Expr, axis: int, reason: str) -> None:
    weight = random(8, 4).astype(dtype)

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data = bb.emit(relax.op.dequantize(x, scalar(0.5), scalar(0, "uint8"), 0))
        zeros = relax.const(np.zeros(tuple(map(int, scales.ty.shape)), dtype))
        other = bb.emit(relax.op.dequantize(relax.const(weight), scales, zeros, axis))
        return relax.op.matmul(data, other)

    mod = quantized(emit, (3, 8))
    with ambient.collect() as facts:
        assert FuseQuantized()(mod).same_as(mod)
    assert [product.obstacle for product in facts.of(QuantizedProduct)] == [reason]
    x = random(3, 8, dtype="uint8", seed=1)
    expected = x * 0.5 @ as_float64(weight, scales.value.numpy(), axis)
    np.testing.assert_allclose(run(mod, x, pipeline=pipeline()), expected, rtol=1e-6)


def test_sums_that_might_overflow_are_kept() -> None:
    mod = quantized(
        lambda bb, x, y: relax.op.matmul(
            bb.emit(relax.op.dequantize(x, scalar(1.0), scalar(0, "uint8"), 0)),
            bb.emit(relax.op.dequantize(y, scalar(1.0), scalar(0, "uint8"), 0)),
        ),
        (1, 40000),
        (40000, 1),
    )
    assert FuseQuantized()(mod).same_as(mod)
    x = np.full((1, 40000), 255, "uint8")
    assert run(mod, x, x.T.copy(), pipeline=pipeline()) == pytest.approx(40000 * 255**2, rel=1e-4)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_FIXES_DISABLE", "fuse-quantized")
    mod = conv_module((1, 4, 5, 5), random(4, 4, 3, 3), scalar(0.5))
    assert FuseQuantized()(mod).same_as(mod)


def test_rows_of_a_table_are_dequantized_after_they_are_taken():
    table = random(1000, 8, dtype="uint8")

    def emit(bb: relax.BlockBuilder, tokens: relax.Var) -> relax.Expr:
        parameters = scalar(0.5), scalar(3, "uint8")
        rows = bb.emit(relax.op.dequantize(relax.const(table), *parameters, 0))
        taken = bb.emit(relax.op.take(rows, tokens, axis=0))
        quantized = bb.emit(relax.op.quantize(taken, *parameters, 0, "uint8"))
        return relax.Tuple([taken, quantized])

    mod = build({"tokens": tensor(2, 5, dtype="int64")}, emit)
    fused = FuseQuantized()(mod)
    [dequantize] = calls(fused, "relax.dequantize")
    assert [int(extent) for extent in dequantize.ty.shape] == [2, 5, 8]
    assert count(fused, "relax.quantize") == 0
    tokens = np.random.default_rng(1).integers(0, 1000, (2, 5))
    taken, quantized = run(mod, tokens, pipeline=pipeline())
    np.testing.assert_array_equal(quantized, table[tokens])
    np.testing.assert_array_equal(taken, (table[tokens] - np.float32(3)) * np.float32(0.5))


if __name__ == "__main__":
    tvm.testing.main()


@pytest.mark.parametrize("number", (2**31 - 1 - 8 * 255 * 128, 2**31 - 8 * 255 * 128, -(2**31)))
def test_a_bias_that_overflows_is_added_in_float(number: int) -> None:
    """The quantizers of PyTorch and ONNX Runtime clip large biases to the limits of int32."""

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data = bb.emit(relax.op.dequantize(x, scalar(0.5), scalar(0, "uint8"), 0))
        weight = relax.const(np.full((8, 1), -128 if number < 0 else 127, "int8"))
        weight = bb.emit(relax.op.dequantize(weight, scalar(0.5), scalar(0, "int8"), 0))
        bias = bb.emit(
            relax.op.dequantize(vector(number, dtype="int32"), scalar(0.25), scalar(0, "int32"), 0)
        )
        bias = bb.emit(relax.op.reshape(bias, [1, 1]))
        return relax.op.add(bb.emit(relax.op.matmul(data, weight)), bias)

    mod = quantized(emit, (1, 8))
    fits = abs(number) + 8 * 255 * 128 < 2**31
    assert count(FuseQuantized()(mod), "relax.dequantize") == (0 if fits else 1)
    expected = (8 * 255.0 * (-128 if number < 0 else 127) + number) / 4
    got = run(mod, np.full((1, 8), 255, "uint8"), pipeline=pipeline())
    np.testing.assert_allclose(got, [[expected]], rtol=1e-6)


@pytest.mark.parametrize("dtype, number", [("int8", 3), ("int32", 300), ("float16", 2.5)])
def test_zero_point_of_another_dtype(dtype: str, number: float) -> None:
    """TVM accepts zero points that the data cannot have, and then computes with them."""

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data = bb.emit(relax.op.dequantize(x, scalar(0.5), scalar(number, dtype), 0))
        data = bb.emit(relax.op.nn.relu(data))
        weight = bb.emit(
            relax.op.dequantize(relax.const(random(8, 4)), scalar(0.25), scalar(0, "int8"), 0)
        )
        return relax.op.matmul(data, weight)

    mod = quantized(emit, (3, 8))
    assert count(FuseQuantized()(mod), "relax.dequantize") == (0 if number == 3 else 1)
    x = random(3, 8, dtype="uint8", seed=1)
    data = np.maximum(x.astype("float64") - number, 0)
    got = run(mod, x, pipeline=pipeline())
    np.testing.assert_allclose(got, data @ random(8, 4).astype("float64") / 8, rtol=1e-5)


@few(2)
@pytest.mark.parametrize(
    "scales, out_scale",
    [((1e25, 1e25), 1.0), ((1e-20, 1e-20), 1.0), ((0.5, 0.5), np.inf), ((0.5, 0.5), 1e-40)],
)
def test_scales_beyond_float32(scales: tuple[float, float], out_scale: float) -> None:
    """The product and the ratio of scales are computed in float32."""

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data = bb.emit(relax.op.dequantize(x, scalar(scales[0]), scalar(7, "uint8"), 0))
        weight = relax.const(random(8, 4))
        weight = bb.emit(relax.op.dequantize(weight, scalar(scales[1]), scalar(0, "int8"), 0))
        y = bb.emit(relax.op.matmul(data, weight))
        return relax.op.quantize(y, scalar(out_scale), scalar(3, "int8"), 0, "int8")

    mod = quantized(emit, (3, 8))
    assert count(FuseQuantized()(mod), "relax.quantize") == 1
    # Sums of zeros; infinite scales would make them NaN.
    got = run(mod, np.full((3, 8), 7, "uint8"), pipeline=pipeline())
    np.testing.assert_array_equal(got, np.full((3, 4), 3, "int8"))


def test_zero_point_beyond_the_dtype_of_the_data() -> None:
    """Sums of many products of such differences are inexact in float32."""
    x, weight = (np.full(shape, -128, "int8") for shape in ((1, 2, 16, 17), (2, 1, 16, 16)))
    x[..., ::3] = -127

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        operands = [
            bb.emit(
                relax.op.subtract(bb.emit(relax.op.astype(each, "int32")), scalar(255, "int32"))
            )
            for each in (x, relax.const(weight))
        ]
        return relax.op.nn.conv2d(*operands, groups=2, out_dtype="int32")

    got = run(quantized(emit, x.shape, dtype="int8"), x, pipeline=pipeline())
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("int64") - 255, (16, 16), (2, 3))
    np.testing.assert_array_equal(got, (windows * (-128 - 255)).sum((4, 5)))


def test_scales_of_blocked_channels() -> None:
    """The scales of the channels are no vector along an axis of the output."""

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data = bb.emit(relax.op.dequantize(x, scalar(0.5), scalar(3, "uint8"), 0))
        scales, zeros = np.linspace(0.1, 0.8, 8).astype("float32"), np.zeros(8, "int8")
        weight = relax.op.dequantize(
            relax.const(random(8, 8, 1, 1)), relax.const(scales), relax.const(zeros), 0
        )
        layouts = {"data_layout": "NCHW4c", "out_layout": "NCHW4c"}
        return relax.op.nn.conv2d(data, bb.emit(weight), **layouts)

    x = random(1, 2, 5, 5, 4, dtype="uint8", seed=1)
    got = run(quantized(emit, x.shape), x, pipeline=pipeline())
    data = (x.astype("float64") - 3).transpose(0, 1, 4, 2, 3).reshape(8, 25) / 2
    weight = random(8, 8).astype("float64") * np.linspace(0.1, 0.8, 8)[:, None]
    expected = (weight @ data).reshape(1, 2, 4, 5, 5).transpose(0, 1, 3, 4, 2)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
