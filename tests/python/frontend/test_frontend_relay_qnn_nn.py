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
"""Relay's quantized convolutions, products and pooling, bit by bit against NumPy."""

import itertools

import numpy as np
import pytest
import tvm.testing

from helpers.relay_calls import Program, assert_same
from tvm_fixes import relay
from tvm_fixes.errors import UnsupportedOperatorError
from tvm_fixes.relax.transform.fuse_quantized import QuantizedProduct
from tvm_fixes.support import ambient

RNG = np.random.default_rng(11)
F32, I32 = np.float32, np.int32
ONE = F32(1)


def whole(*shape: int, dtype: str = "int8") -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def windows(x: np.ndarray, size, strides, dilation):
    """Pairs of the tap and what it sees, for NCHW that is padded."""
    extents = [
        (x.shape[2 + i] - (size[i] - 1) * dilation[i] - 1) // strides[i] + 1 for i in range(2)
    ]
    for tap in itertools.product(range(size[0]), range(size[1])):
        slices = [
            slice(
                tap[i] * dilation[i],
                tap[i] * dilation[i] + (extents[i] - 1) * strides[i] + 1,
                strides[i],
            )
            for i in range(2)
        ]
        yield tap, x[:, :, slices[0], slices[1]]


def padded(x: np.ndarray, pads) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))


def convolved(x, weight, strides=(1, 1), pads=(0, 0, 0, 0), dilation=(1, 1), groups=1):
    """Convolution of NCHW by OIHW in int64."""
    x = padded(x, pads)
    result = []
    per_group = weight.shape[0] // groups
    for group, part in enumerate(np.split(x, groups, 1)):
        kernel = weight[group * per_group : (group + 1) * per_group]
        result.append(
            sum(
                np.einsum("nchw,oc->nohw", seen, kernel[:, :, tap[0], tap[1]])
                for tap, seen in windows(part, kernel.shape[2:], strides, dilation)
            )
        )
    return np.concatenate(result, 1)


def transposed(x, weight, strides, pads, extra, dilation, groups):
    """Transposed convolution of NCHW by IOHW in int64: each element is scattered."""
    size = weight.shape[2:]
    full = [
        (x.shape[2 + i] - 1) * strides[i] + (size[i] - 1) * dilation[i] + 1 + extra[i]
        for i in range(2)
    ]
    outputs = weight.shape[1]
    result = np.zeros((x.shape[0], outputs * groups, *full), "int64")
    inputs = x.shape[1] // groups
    for group in range(groups):
        part = x[:, group * inputs : (group + 1) * inputs]
        kernel = weight[group * inputs : (group + 1) * inputs]
        for u, v in itertools.product(range(size[0]), range(size[1])):
            scattered = result[
                :,
                group * outputs : (group + 1) * outputs,
                u * dilation[0] : u * dilation[0] + (x.shape[2] - 1) * strides[0] + 1 : strides[0],
                v * dilation[1] : v * dilation[1] + (x.shape[3] - 1) * strides[1] + 1 : strides[1],
            ]
            scattered += np.einsum("nchw,co->nohw", part, kernel[:, :, u, v])
    return result[:, :, pads[0] : full[0] - pads[2], pads[1] : full[1] - pads[3]]


def ordered(x: np.ndarray, source: str, target: str) -> np.ndarray:
    return np.ascontiguousarray(np.transpose(x, [source.index(axis) for axis in target]))


def test_conv2d() -> None:
    program, expected = Program(), {}
    cases = {
        "plain": ("int8", "int8", 0, 0, {}),
        "input zero": ("uint8", "int8", 131, 0, {"padding": [1, 2]}),
        "weight zero": ("int8", "uint8", 0, 7, {"strides": [2, 1]}),
        "both": ("uint8", "uint8", 3, 9, {"padding": [1, 0, 2, 1], "dilation": [2, 1]}),
        "groups": ("int8", "int8", 5, -6, {"groups": 2, "padding": [1]}),
        "int64": ("int16", "int16", 5, 2, {"out_dtype": "int64"}),
        "int16": ("int8", "int8", 0, 0, {"out_dtype": "int16"}),
    }
    for name, (dtype, weight_dtype, zero, weight_zero, attrs) in cases.items():
        data, groups = whole(2, 4, 9, 8, dtype=dtype), attrs.get("groups", 1)
        weight = whole(6, 4 // groups, 3, 2, dtype=weight_dtype)
        attrs = {"channels": 6, "kernel_size": [3, 2], "out_dtype": "int32"} | attrs
        args = [program.input(data), program.input(weight), I32(zero), I32(weight_zero), ONE, ONE]
        program.call("qnn.conv2d", args, **attrs)
        pads = attrs.get("padding", [0])
        pads = pads * 4 if len(pads) == 1 else pads * 2 if len(pads) == 2 else pads
        total = convolved(
            data.astype("int64") - zero,
            weight.astype("int64") - weight_zero,
            attrs.get("strides", (1, 1)),
            pads,
            attrs.get("dilation", (1, 1)),
            groups,
        )
        expected[name] = total.astype(attrs["out_dtype"])
    assert_same(program.run(), expected)


def test_conv2d_with_one_output_per_group() -> None:
    program = Program()
    data, weight = whole(1, 4, 5, 5), whole(2, 2, 3, 3)
    args = [program.input(data), program.input(weight), I32(0), I32(0), ONE, ONE]
    program.call("qnn.conv2d", args, groups=2, channels=2, kernel_size=[3, 3], out_dtype="int32")
    total = convolved(data.astype("int64"), weight.astype("int64"), groups=2)
    assert_same(program.run(), {"groups": total.astype(I32)})


def test_conv2d_layouts() -> None:
    program, expected = Program(), {}
    data, weight = whole(1, 4, 6, 5, dtype="uint8"), whole(6, 4, 3, 3)
    zeros = np.arange(-3, 3).astype(I32)
    total = convolved(
        data.astype("int64") - 10,
        weight.astype("int64") - zeros[:, None, None, None],
        pads=(1, 1, 1, 1),
    ).astype(I32)
    for layout, kernel, out in (
        ("NHWC", "HWIO", ""),
        ("NHWC", "OHWI", "NCHW"),
        ("NCHW", "HWOI", ""),
        ("NCHW", "OIHW", "NHWC"),
    ):
        program.call(
            "qnn.conv2d",
            [
                program.input(ordered(data, "NCHW", layout)),
                program.input(ordered(weight, "OIHW", kernel)),
                I32(10),
                zeros,
                ONE,
                np.ones(6, F32),
            ],
            padding=[1, 1],
            data_layout=layout,
            kernel_layout=kernel,
            out_layout=out,
            out_dtype="int32",
        )
        expected[f"{layout} {kernel} {out}"] = ordered(total, "NCHW", out or layout)
    assert_same(program.run(), expected)


@pytest.mark.parametrize(("layout", "kernel"), [("NCHW", "OIHW"), ("NHWC", "HWOI")])
def test_depthwise_conv2d(layout: str, kernel: str) -> None:
    program, expected = Program(), {}
    for multiplier in (1, 2):
        data, weight = whole(1, 4, 6, 5, dtype="uint8"), whole(4, multiplier, 3, 3)
        args = [
            program.input(ordered(data, "NCHW", layout)),
            program.input(ordered(weight, "OIHW", kernel)),
        ]
        program.call(
            "qnn.conv2d",
            [*args, I32(99), I32(-4), ONE, ONE],
            padding=[1, 1],
            strides=[2, 2],
            groups=4,
            channels=4 * multiplier,
            kernel_size=[3, 3],
            data_layout=layout,
            kernel_layout=kernel,
            out_dtype="int32",
        )
        total = convolved(
            data.astype("int64") - 99,
            weight.astype("int64").reshape(-1, 1, 3, 3) + 4,
            (2, 2),
            (1, 1, 1, 1),
            groups=4,
        )
        expected[f"{multiplier}"] = ordered(total.astype(I32), "NCHW", layout)
    assert_same(program.run(), expected)


@pytest.mark.parametrize("groups", [1, 8])
def test_constant_weights_are_multiplied_in_integers(groups: int) -> None:
    program, expected = Program(), {}
    for dtype, zero in (("uint8", 255), ("uint8", 3), ("int8", -128), ("int8", 0)):
        for weight_dtype, weight_zero in (("uint8", 127), ("uint8", 255), ("int8", 0)):
            data = whole(1, 8, 6, 5, dtype=dtype)
            weight = whole(16 if groups == 1 else 8, 8 // groups, 3, 3, dtype=weight_dtype)
            # Relay calls the channels of a depthwise weight O.
            kernel = "HWIO" if groups == 1 else "HWOI"
            args = [program.input(ordered(data, "NCHW", "NHWC")), ordered(weight, "OIHW", kernel)]
            program.call(
                "qnn.conv2d",
                [*args, I32(zero), I32(weight_zero), ONE, ONE],
                padding=[1, 1],
                groups=groups,
                channels=weight.shape[0],
                kernel_size=[3, 3],
                data_layout="NHWC",
                kernel_layout=kernel,
                out_dtype="int32",
            )
            total = convolved(
                data.astype("int64") - zero,
                weight.astype("int64") - weight_zero,
                pads=(1, 1, 1, 1),
                groups=groups,
            )
            name = f"{dtype} {zero} {weight_dtype} {weight_zero}"
            expected[name] = ordered(total.astype(I32), "NCHW", "NHWC")
    rows, matrix = whole(3, 8, dtype="uint8"), whole(16, 8, dtype="uint8")
    args = [program.input(rows), matrix, I32(7), I32(130), ONE, ONE]
    program.call("qnn.dense", args, units=16, out_dtype="int32")
    total = (rows.astype("int64") - 7) @ (matrix.astype("int64") - 130).T
    expected["dense"] = total.astype(I32)
    with ambient.collect() as facts:
        assert_same(program.run(), expected)
    obstacles = [product.obstacle for product in facts.of(QuantizedProduct)]
    assert obstacles == [None] * len(expected)


def test_conv2d_transpose() -> None:
    program, expected = Program(), {}
    cases = {
        "plain": ("NCHW", "IOHW", {}),
        "strides": ("NCHW", "IOHW", {"strides": [2, 3], "output_padding": [1, 2]}),
        "groups": ("NCHW", "IOHW", {"groups": 2, "padding": [1, 0, 0, 2]}),
        "dilation": ("NCHW", "IOHW", {"dilation": [2, 1]}),
        "layouts": ("NHWC", "HWOI", {"strides": [2, 2], "padding": [1, 1, 1, 1]}),
    }
    for name, (layout, kernel, attrs) in cases.items():
        groups = attrs.get("groups", 1)
        data, weight = whole(2, 4, 5, 4, dtype="uint8"), whole(4, 3, 3, 2)
        args = [
            program.input(ordered(data, "NCHW", layout)),
            program.input(ordered(weight, "IOHW", kernel)),
        ]
        program.call(
            "qnn.conv2d_transpose",
            [*args, I32(120), I32(3), ONE, ONE],
            channels=3 * groups,
            kernel_size=[3, 2],
            data_layout=layout,
            kernel_layout=kernel,
            out_dtype="int32",
            **attrs,
        )
        total = transposed(
            data.astype("int64") - 120,
            weight.astype("int64") - 3,
            attrs.get("strides", (1, 1)),
            attrs.get("padding", (0, 0, 0, 0)),
            attrs.get("output_padding", (0, 0)),
            attrs.get("dilation", (1, 1)),
            groups,
        )
        expected[name] = ordered(total.astype(I32), "NCHW", layout)
    assert_same(program.run(), expected)


def test_products() -> None:
    program, expected = Program(), {}
    for dtype, out_dtype in (("int8", "int32"), ("uint8", "int32"), ("int16", "int64")):
        data, weight = whole(3, 7, dtype=dtype), whole(5, 7)
        for zeros in (I32(3), np.arange(5).astype(I32)):
            args = [program.input(data), program.input(weight), I32(-9), zeros, ONE, ONE]
            program.call("qnn.dense", args, units=5, out_dtype=out_dtype)
            shift = zeros[:, None] if zeros.ndim else zeros
            total = (data.astype("int64") + 9) @ (weight.astype("int64") - shift).T
            expected[f"dense {dtype} {zeros}"] = total.astype(out_dtype)
    for batch in (1, 2):
        x, y = whole(2, 3, 7, dtype="uint8"), whole(batch, 4, 7)
        args = [program.input(x), program.input(y), I32(128), I32(-2), ONE, ONE]
        program.call("qnn.batch_matmul", args, out_dtype="int32", transpose_b=True)
        total = (x.astype("int64") - 128) @ (y.astype("int64") + 2).transpose(0, 2, 1)
        expected[f"batch_matmul {batch}"] = total.astype(I32)
    assert_same(program.run(), expected)


def test_unknown_extents() -> None:
    program = Program()
    data, weight = whole(3, 4, 6, 5), whole(6, 4, 3, 3)
    x = program.input(data, [relay.Any(), 4, relay.Any(), 5])
    args = [x, program.input(weight), I32(3), I32(1), ONE, ONE]
    program.call("qnn.conv2d", args, padding=[1, 1], out_dtype="int32")
    rows = whole(5, 7)
    args = [program.input(rows, [relay.Any(), 7]), program.input(whole(2, 7)), I32(1), I32(0)]
    program.call("qnn.dense", [*args, ONE, ONE], out_dtype="int32")
    assert program.types()[1] == "Tensor[(?, 2), int32]"
    total = convolved(data.astype("int64") - 3, weight.astype("int64") - 1, pads=(1, 1, 1, 1))
    dense = (rows.astype("int64") - 1) @ program.arrays[3].T.astype("int64")
    expected = {"conv2d": total.astype(I32), "dense": dense.astype(I32)}
    assert_same(program.run(), expected)


@pytest.mark.parametrize("count_pads", [False, True])
def test_avg_pool2d(count_pads: bool) -> None:
    program, expected = Program(), {}
    data = whole(2, 3, 7, 8)
    same = (F32(0.5), I32(2), F32(0.5), I32(2))
    for name, layout, parameters, attrs in (
        ("pads", "NCHW", same, {"padding": [1, 1], "strides": [2, 2]}),
        ("ceil", "NHWC", same, {"padding": [1, 0, 0, 1], "strides": [2, 3], "ceil_mode": True}),
        ("requantize", "NHWC", (F32(0.5), I32(2), F32(1), I32(-3)), {"dilation": [2, 1]}),
    ):
        program.call(
            "qnn.avg_pool2d",
            [program.input(ordered(data, "NCHW", layout)), *parameters],
            pool_size=[3, 2],
            layout=layout,
            count_include_pad=count_pads,
            **attrs,
        )
        values = data.astype("int64")
        if parameters != same:
            values = ((values - 2 + 1) >> 1) - 3
        means = pooled(values, count_pads, **attrs)
        expected[name] = ordered(np.clip(means, -128, 127).astype("int8"), "NCHW", layout)
    assert_same(program.run(), expected)


def pooled(x, count_pads, padding=(0, 0), strides=(1, 1), dilation=(1, 1), ceil_mode=False):
    """Means of windows of 3 by 2, rounded towards 0."""
    pads = list(padding) * (4 // len(padding))
    more = [pads[0], pads[1]] + [pads[2 + i] + (strides[i] - 1) * ceil_mode for i in range(2)]
    counted = np.ones_like(x)
    counted = padded(counted, pads) + (padded(counted, pads) == 0) * count_pads
    counted = padded(counted, [0, 0, more[2] - pads[2], more[3] - pads[3]])
    total = sum(seen for _, seen in windows(padded(x, more), (3, 2), strides, dilation))
    count = sum(seen for _, seen in windows(counted, (3, 2), strides, dilation))
    return np.trunc(total / np.maximum(count, 1))


def test_packed_dense_is_rejected() -> None:
    program = Program()
    weight = whole(1, 1, 1, 1)
    program.call("qnn.contrib_dense_pack", [whole(1, 1), weight, I32(0), I32(0), ONE, ONE])
    with pytest.raises(UnsupportedOperatorError, match="Hexagon"):
        program.run()


if __name__ == "__main__":
    tvm.testing.main()
