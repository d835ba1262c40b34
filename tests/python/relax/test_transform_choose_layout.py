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
"""The choice of a layout."""

import itertools

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.grids import few, is_full
from helpers.relax_modules import build, calls, run, tensor
from tvm_fixes.fixes.matmul import MATMUL_LEGALIZE
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.analysis import activation_transforms
from tvm_fixes.relax.transform import choose_layout
from tvm_fixes.relax.transform.choose_layout import FIX_ID, ChooseLayout
from tvm_fixes.support import switches
from tvm_fixes.target import resolve

AVX512 = {"kind": "llvm", "mcpu": "znver4", "mtriple": "x86_64-linux-gnu"}
AVX2 = {"kind": "llvm", "mcpu": "znver3", "mtriple": "x86_64-linux-gnu"}
VNNI = {"kind": "llvm", "mcpu": "alderlake", "mtriple": "x86_64-linux-gnu"}
RNG = np.random.default_rng(0)
KERNELS = [RNG.standard_normal((32, c, 3, 3)).astype("float32") / 9 for c in (3, 32, 32)]


def choose(mod, target=AVX512):
    with tvm.target.Target(target):
        return ChooseLayout()(mod)


def network(between=lambda x: relax.op.nn.relu(x), shape=(1, 3, 9, 10), count=3, dtype="float32"):
    """Convolutions with something between them, and a mean over the pixels at the end."""

    def emit(builder, x):
        for kernel in KERNELS[:count]:
            weight = relax.const(kernel.astype(dtype))
            x = builder.emit(relax.op.nn.conv2d(x, weight, padding=1))
            x = builder.emit(between(x))
        return relax.op.mean(x, [2, 3])

    return build({"x": tensor(*shape, dtype=dtype)}, emit)


def halves(x):
    """The halves of the channels, the second one first."""
    return [
        relax.op.strided_slice(x, [1], [16], [1 << 40]),
        relax.op.strided_slice(x, [-3], [0], [-16]),
    ]


def layouts(mod):
    return [str(call.attrs.data_layout) for call in calls(mod, "relax.nn.conv2d")]


def test_channels_stay_in_blocks():
    """All channels except the input's three."""
    assert layouts(choose(network())) == ["NCHW", "NCHW16c", "NCHW16c"]


@pytest.mark.parametrize(
    "between",
    [
        lambda x: relax.op.add(x, relax.op.tanh(x)),
        lambda x: relax.op.nn.max_pool2d(x, 2, 1),
        lambda x: relax.op.nn.leakyrelu(x),
        lambda x: relax.op.concat(halves(x), 1),
    ],
)
def test_operators_that_keep_blocks(between):
    chosen = choose(network(between))
    assert "NCHW16c" in layouts(chosen)
    assert not activation_transforms(chosen)


@pytest.mark.parametrize("window", (1, 4))
def test_layout_transforms_of_few_elements_are_accepted(window):
    """A softmax over pixels needs channels-first; it has an 18th of the elements, or all."""

    def emit(builder, x):
        for kernel in KERNELS[:2]:
            x = builder.emit(relax.op.nn.conv2d(x, relax.const(kernel), padding=1))
        x = builder.emit(relax.op.nn.max_pool2d(x, window, window))
        return relax.op.nn.softmax(relax.op.reshape(x, (1, 32, -1)), -1)

    chosen = choose(build({"x": tensor(1, 3, 8, 12)}, emit))
    assert ("NCHW16c" in layouts(chosen)) == (window == 4)


def inverted_residuals():
    """Two blocks of MobileNetV2: the first convolution widens, the second one is depthwise."""
    first, widening, depthwise, narrowing = (
        relax.const(RNG.standard_normal(shape).astype("float32") / 4)
        for shape in ((16, 3, 1, 1), (32, 16, 1, 1), (32, 1, 3, 3), (16, 32, 1, 1))
    )

    def emit(builder, x):
        def conv2d(x, kernel, **attrs):
            return builder.emit(relax.op.nn.conv2d(x, kernel, **attrs))

        x = conv2d(x, first)
        for _ in range(2):
            wide = builder.emit(relax.op.clip(conv2d(x, widening), 0, 6))
            deep = builder.emit(relax.op.clip(conv2d(wide, depthwise, padding=1, groups=32), 0, 6))
            x = builder.emit(relax.op.add(x, conv2d(deep, narrowing)))
        return relax.op.mean(x, [2, 3])

    return build({"x": tensor(1, 3, 9, 10)}, emit)


def test_depthwise_convolutions_keep_blocks():
    mod = inverted_residuals()
    chosen = choose(mod)
    assert layouts(chosen) == ["NCHW", *["NCHW16c"] * 6]
    x = RNG.standard_normal((1, 3, 9, 10)).astype("float32")
    np.testing.assert_allclose(
        run(chosen, x, pipeline=pipeline()), run(mod, x, pipeline=pipeline()), rtol=1e-5, atol=1e-6
    )


def depthwise_pairs(*channels, rows=None, size=3):
    """A depthwise convolution of each number of channels, after a pointwise one."""
    pairs, before = [], 3
    for count in channels:
        shapes = (count, before, 1, 1), (count, 1, size, size)
        pairs.append([RNG.standard_normal(shape).astype("float32") / 4 for shape in shapes])
        before = count

    def emit(builder, x):
        for wide, deep in pairs:
            x = builder.emit(relax.op.nn.conv2d(x, relax.const(wide)))
            options = {"padding": size // 2, "groups": len(deep), "strides": (2, 1)}
            x = builder.emit(relax.op.nn.conv2d(x, relax.const(deep), **options))
            x = builder.emit(relax.op.nn.relu(x))
        return relax.op.mean(x, [2, 3])

    batch, height, width = (tirx.Var(name, "int64") for name in "bhw")
    return pairs, build({"x": tensor(batch, 3, rows or height, width)}, emit)


@pytest.mark.parametrize(
    ("channels", "rows", "block"),
    [
        ((24, 40), None, 8),
        ((24, 40, 16), None, 8),  # most of the work
        ((24, 64), None, 16),
        ((32, 48), None, 16),
        ((24, 40), 12, None),  # a known number of rows: channels-first
    ],
)
def test_blocks_divide_the_channels_of_most_depthwise_work(channels, rows, block):
    _, mod = depthwise_pairs(*channels, rows=rows)
    chosen = layouts(choose(mod))
    assert set(chosen[1:]) - {"NCHW"} == ({f"NCHW{block}c"} if block else set())
    # Shorter vectors need no blocks.
    assert set(layouts(choose(mod, AVX2))) == {"NCHW"}


def test_depthwise_blocks_of_half_a_vector_are_right():
    """For images of a row, of the size of a tile, and one more or less."""
    pairs, mod = depthwise_pairs(24, 40, size=5)
    chosen = choose(mod)
    assert "NCHW8c" in layouts(chosen)
    built = relax.build(chosen, resolve("native"), relax_pipeline=pipeline())
    machine = relax.VirtualMachine(built, tvm.cpu())
    sizes = [(1, 1), (1, 9), (2, 96), (7, 7), (8, 16), (9, 17), (31, 5)]
    for batch, extents in itertools.product((1, 3), sizes):
        x = torch.randn(batch, 3, *extents)
        expected = x
        for wide, deep in pairs:
            expected = torch.nn.functional.conv2d(expected, torch.from_numpy(wide))
            options = {"padding": 2, "groups": len(deep), "stride": (2, 1)}
            expected = torch.nn.functional.conv2d(expected, torch.from_numpy(deep), **options)
            expected = expected.relu()
        actual = machine["main"](tvm.runtime.tensor(x.numpy())).numpy()
        np.testing.assert_allclose(actual, expected.mean((2, 3)).numpy(), rtol=1e-4, atol=1e-5)


KEPT = {
    "one convolution": network(count=1),
    "a norm": network(
        lambda x: relax.op.nn.instance_norm(
            x,
            relax.const(np.ones(32, "float32")),
            relax.const(np.zeros(32, "float32")),
            channel_axis=1,
            axes=[2, 3],
        )
    ),
    "a softmax over rows of pixels": network(
        lambda x: relax.op.reshape(
            relax.op.nn.softmax(relax.op.reshape(x, (1, 320, 9)), -1), (1, 32, 9, 10)
        )
    ),
    "float16": network(dtype="float16"),
}


@pytest.mark.parametrize("reason", KEPT)
def test_the_layout_is_kept(reason):
    assert choose(KEPT[reason]).same_as(KEPT[reason])


def quantized(kernels):
    """Convolutions of integers, each with a requantization; depthwise ones in float32."""

    def emit(builder, x):
        for kernel in kernels:
            is_depthwise = kernel[1] == 1
            dtype = "float32" if is_depthwise else "int8"
            weight = relax.const(RNG.integers(-9, 9, kernel).astype(dtype))
            if is_depthwise:
                x = builder.emit(relax.op.astype(x, "float32"))
            sums = relax.op.nn.conv2d(
                x,
                weight,
                padding=kernel[2] // 2,
                groups=kernel[0] if is_depthwise else 1,
                out_dtype="int32",
            )
            scaled = builder.emit(relax.op.astype(builder.emit(sums), "float32"))
            scaled = builder.emit(relax.op.round(relax.op.multiply(scaled, relax.const(0.05))))
            x = builder.emit(relax.op.astype(relax.op.clip(scaled, 0, 255), "uint8"))
        return relax.op.nn.max_pool2d(x, 3, 2, 1)

    return build({"x": tensor(1, 16, 9, 10, dtype="uint8")}, emit)


POINTWISE, DEPTHWISE, WIDE = (24, 16, 1, 1), (16, 1, 3, 3), (16, 16, 3, 3)


@pytest.mark.parametrize(
    ("target", "kernels", "expected"),
    [
        (AVX512, [POINTWISE], ["NHWC"]),
        (AVX2, [DEPTHWISE, POINTWISE], ["NCHW"] * 2),
        (VNNI, [WIDE, DEPTHWISE, POINTWISE], ["NHWC"] * 3),
    ]
    + (
        [
            (AVX512, [DEPTHWISE], ["NCHW"]),
            (AVX2, [POINTWISE], ["NHWC"]),
            (AVX2, [WIDE, DEPTHWISE, POINTWISE], ["NHWC"] * 3),
        ]
        if is_full()
        else []
    ),
)
def test_channels_of_integers_become_the_last_axis(target, kernels, expected):
    mod = quantized(kernels)
    chosen = choose(mod, target)
    assert layouts(chosen) == expected
    x = RNG.integers(0, 255, (1, 16, 9, 10)).astype("uint8")
    np.testing.assert_array_equal(run(chosen, x, pipeline=pipeline()), run(mod, x))


@pytest.mark.parametrize(
    ("groups", "data", "out"),
    [(8, 32, 8), (4, 16, 8)] + ([(8, 64, 8), (2, 16, 16), (16, 32, 16)] if is_full() else []),
)
def test_groups_of_integers(groups, data, out):
    """With one output channel per group, the channels of a vector read different data."""
    kernel = RNG.integers(-99, 99, (out, data // groups, 3, 3)).astype("int8")
    x = RNG.integers(0, 255, (1, data, 9, 10))
    operands = torch.tensor(x, dtype=torch.float64), torch.tensor(kernel, dtype=torch.float64)
    expected = torch.nn.functional.conv2d(*operands, padding=1, groups=groups).numpy()
    for dtype, target in (("int16", AVX2), ("uint8", VNNI), ("uint8", AVX512)):
        mod = build(
            {"x": tensor(*x.shape, dtype=dtype)},
            lambda _, x: relax.op.nn.conv2d(
                x, relax.const(kernel), padding=1, groups=groups, out_dtype="int32"
            ),
        )
        chosen = choose(mod, target)
        assert layouts(chosen) == ["NHWC"]
        relax.build(chosen, tvm.target.Target(target), relax_pipeline=pipeline())
        got = run(chosen, x.astype(dtype), target=resolve("native"), pipeline=pipeline())
        np.testing.assert_array_equal(got, expected)


def test_floats_between_integers_keep_the_layout():
    kernels = [
        relax.const(RNG.integers(-9, 9, WIDE).astype(dtype)) for dtype in ("int8", "float32")
    ]

    def emit(builder, x):
        sums = builder.emit(relax.op.nn.conv2d(x, kernels[0], padding=1, out_dtype="int32"))
        return relax.op.nn.conv2d(builder.emit(relax.op.astype(sums, "float32")), kernels[1])

    mod = build({"x": tensor(1, 16, 9, 10, dtype="uint8")}, emit)
    assert choose(mod, AVX2).same_as(mod)


def classifier():
    """Convolutions and a linear layer over an unknown number of columns."""
    weight = relax.const(RNG.standard_normal((40, 64)).astype("float32") / 8)

    def emit(builder, x):
        for kernel in KERNELS[:2]:
            x = builder.emit(
                relax.op.nn.relu(relax.op.nn.conv2d(x, relax.const(kernel), padding=1))
            )
        width = x.ty.shape.values[3]
        rows = builder.emit(relax.op.permute_dims(x, [0, 3, 1, 2]))
        rows = builder.emit(relax.op.reshape(rows, [width, 64]))
        transposed = builder.emit(relax.op.permute_dims(weight))
        return relax.op.matmul(rows, transposed)

    return build({"x": tensor(1, 3, 2, tirx.Var("w", "int64"))}, emit)


def kernel_names(mod):
    return {str(var.name_hint) for var, _ in mod.functions_items()}


def test_a_linear_layer_after_convolutions_has_a_packed_weight(monkeypatch):
    """TVM's fused kernel would read its rows, one sum after the other."""
    mod = classifier()
    chosen = choose(mod)
    assert layouts(chosen) == ["NCHW", "NCHW16c"]
    assert "NT_matmul" not in kernel_names(chosen)
    assert len(calls(chosen, "relax.matmul")) == 1
    with tvm.target.Target(AVX512):
        kernels = kernel_names(pipeline()(mod))
    assert any("matmul" in name for name in kernels)
    assert not any("NT_matmul" in name for name in kernels)
    x = RNG.standard_normal((1, 3, 2, 7)).astype("float32")
    np.testing.assert_allclose(
        run(chosen, x, pipeline=pipeline()), run(mod, x), rtol=1e-4, atol=1e-5
    )
    monkeypatch.setenv("TVM_FIXES_DISABLE", MATMUL_LEGALIZE)
    assert "NT_matmul" in kernel_names(choose(mod))


def test_other_machines_and_the_switch_keep_it(monkeypatch):
    mod = network()
    assert choose(mod, AVX2).same_as(mod)
    assert choose(mod, "cuda").same_as(mod)
    assert ChooseLayout()(mod).same_as(mod)
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    assert choose(mod).same_as(mod)


def test_a_conversion_that_is_dropped_is_no_fix_in_force():
    with switches.collect() as fixes:
        choose(KEPT["a softmax over rows of pixels"])
    assert not fixes
    with switches.collect() as fixes:
        choose(network())
    assert FIX_ID in fixes


def test_a_conversion_that_fails_is_dropped(monkeypatch):
    def fail(_layout):
        raise tvm.error.InternalError("for the test")

    monkeypatch.setattr(choose_layout, "convert_layout", fail)
    mod = network()
    assert choose(mod).same_as(mod)


def test_results_whose_bounds_are_lost_keep_the_layout(caplog):
    """Without k >= 0 the extent of the slice has another form, which TVM rejects."""
    k = tirx.Var("k", "int64")
    kernel = relax.const(np.ones((3, 2, 1, 1), "float32"))

    def emit(builder, x, y):
        one = tirx.min(tirx.const(1, "int64"), k)
        part = builder.emit(relax.op.strided_slice(y, [0], [one], [k]))
        return relax.Tuple([builder.emit(relax.op.nn.conv2d(x, kernel)), part])

    mod = build({"x": tensor(1, 2, 4, 4), "y": tensor(k)}, emit)
    x, y = RNG.standard_normal((1, 2, 4, 4)).astype("float32"), np.arange(5, dtype="float32")
    got, part = run(mod, x, y, pipeline=pipeline(layout="NHWC"))
    np.testing.assert_allclose(got, np.repeat(x.sum(1, keepdims=True), 3, 1), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(part, y[1:])
    assert "convolutions are not converted" in caplog.text


def test_a_module_without_convolutions_is_unchanged():
    """ConvertLayout infers types without bounds of dims, so the output type would change."""
    s, t = (tirx.Var(name, "int64") for name in "st")
    shorter = relax.ShapeExpr([tirx.max(tirx.const(0, "int64"), tirx.min(s, t))])

    def emit(builder, x):
        whole = builder.emit(relax.op.permute_dims(x))
        return builder.emit(relax.op.strided_slice(whole, [0], [0], list(shorter.values)))

    mod = build({"x": tensor(s, t)}, emit)
    assert choose_layout.convert_layout("NHWC")(mod).same_as(mod)
    x = RNG.standard_normal((2, 5)).astype("float32")
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline(layout="NHWC")), x.T[:2])


EXTENTS = ["1 9 10", "2 9 10", "n 9 10", "1 h w", "n h w"]


@few(1)
@pytest.mark.parametrize("extents", EXTENTS if is_full() else EXTENTS[::2])
def test_results_are_the_same(extents):
    dims = [int(dim) if dim.isdigit() else tirx.Var(dim, "int64") for dim in extents.split()]
    mod = network(lambda x: relax.op.nn.max_pool2d(x, 2, 1), shape=(dims[0], 3, *dims[1:]))
    chosen = choose(mod)
    assert layouts(chosen) == ["NCHW", "NCHW16c", "NCHW16c"]
    shape = [
        int(dim) if dim.isdigit() else size
        for dim, size in zip(extents.split(), (3, 9, 10), strict=True)
    ]
    x = RNG.standard_normal((shape[0], 3, *shape[1:])).astype("float32")
    np.testing.assert_allclose(
        run(chosen, x, pipeline=pipeline()), run(mod, x, pipeline=pipeline()), rtol=1e-5, atol=1e-6
    )


def test_an_unknown_number_of_channels_keeps_it():
    mod = build(
        {"x": tensor(1, tirx.Var("c", "int64"), 9, 10), "w": tensor(32, 32, 3, 3)},
        lambda b, x, w: relax.op.nn.conv2d(b.emit(relax.op.nn.conv2d(x, w)), w),
    )
    assert choose(mod).same_as(mod)


if __name__ == "__main__":
    tvm.testing.main()
