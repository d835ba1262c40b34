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
"""DecomposeConvTranspose."""

import itertools

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch.nn import functional
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.gpu_kernels import GPU, functions
from helpers.grids import few, is_full
from helpers.lowering import lowered_before
from helpers.relax_modules import build, calls, count, run, tensor
from tvm_fixes.lowering import stages
from tvm_fixes.relax.layouts import SPATIAL_AXES
from tvm_fixes.relax.transform import DecomposeConvTranspose

OPERATORS = {rank: f"conv{rank}d_transpose" for rank in SPATIAL_AXES}
TORCH = {rank: getattr(functional, f"conv_transpose{rank}d") for rank in SPATIAL_AXES}


def transposed(x, w, *, dtype="float32", bias=None, cast=None, **options):
    """A transposed convolution of data and a kernel of the given shapes."""
    rank = len(w) - 2
    types = {"x": tensor(*x, dtype=dtype), "w": tensor(*w, dtype=dtype)}
    if bias is not None:
        types["b"] = tensor(*bias)

    def emit(bb, x, w, *bias):
        y = bb.emit(getattr(relax.op.nn, OPERATORS[rank])(x, w, **options))
        for each in bias:
            y = bb.emit(relax.op.add(y, each))
        return y if cast is None else relax.op.astype(y, cast)

    return build(types, emit)


def is_decomposed(mod, rank):
    after = DecomposeConvTranspose()(mod)
    left, made = (count(after, f"relax.nn.conv{rank}d{end}") for end in ("_transpose", ""))
    assert left + made == 1
    return bool(made)


def operands(*shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def by_torch(x, w, **options):
    x, w = (torch.from_numpy(each.astype("float64")) for each in (x, w))
    return TORCH[x.ndim - 2](x, w, **options).numpy()


# Kernel, stride, padding, output padding.
AXES = [
    (2, 2, 0, 0),
    (4, 2, 1, 0),
    (3, 2, 1, 1),
    (3, 2, 0, 1),
    (3, 1, 1, 0),
    (5, 3, 4, 2),
    (7, 2, 5, 0),
    (3, 1, 4, 0),
    (2, 2, 0, 1),
]


# Each geometry, and each rank in each dtype, is in every fourth case too.
VALUES = list(
    itertools.product([("float32", 1e-4), ("float16", 1e-2)], SPATIAL_AXES, range(len(AXES)))
)


@few(5)
@pytest.mark.parametrize("precision, rank, first", VALUES if is_full() else VALUES[::4])
def test_values(precision, rank, first):
    dtype, tolerance = precision
    kernel, stride, padding, more = zip(
        *(AXES[(first + 4 * axis) % len(AXES)] for axis in range(rank)), strict=True
    )
    x, w = operands((4, 3, *(16, 8, 7)[:rank]), (3, 5, *kernel), dtype=dtype)
    options = {"padding": padding, "output_padding": more}
    mod = transposed(x.shape, w.shape, dtype=dtype, strides=stride, out_dtype="float32", **options)
    assert is_decomposed(mod, rank)
    got = run(DecomposeConvTranspose()(mod), x, w)
    assert got.dtype == "float32"
    expected = by_torch(x, w, stride=stride, **options)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_two_by_two():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3, 4, 6), "float32"), w: R.Tensor((3, 5, 2, 2), "float32")
        ) -> R.Tensor((2, 5, 8, 12), "float32"):
            with R.dataflow():
                y = R.nn.conv2d_transpose(x, w, strides=[2, 2])
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 3, 4, 6), "float32"), w: R.Tensor((3, 5, 2, 2), "float32")
        ) -> R.Tensor((2, 5, 8, 12), "float32"):
            with R.dataflow():
                w1 = R.reshape(w, [3, 5, 1, 2, 1, 2])
                w2 = R.permute_dims(w1, [3, 5, 1, 0, 2, 4])
                w3 = R.reshape(w2, [20, 3, 1, 1])
                phases = R.nn.conv2d(x, w3, out_dtype="float32")
                y1 = R.reshape(phases, [2, 2, 2, 5, 4, 6])
                y2 = R.permute_dims(y1, [0, 3, 4, 1, 5, 2])
                y3 = R.reshape(y2, [2, 5, 8, 12])
                y = y3
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(DecomposeConvTranspose()(Before), Expected)


@few(2)
@pytest.mark.parametrize("size, padding, windows", [(4, 1, 9), (4, 2, 7), (6, 2, 8), (2, 0, 8)])
def test_number_of_windows(size, padding, windows):
    mod = transposed((1, 3, 8, 8), (3, 5, size, size), strides=2, padding=padding)
    (convolution,) = calls(DecomposeConvTranspose()(mod), "relax.nn.conv2d")
    assert [int(extent) for extent in convolution.args[1].ty.shape] == [20, 3, *[size // 2] * 2]
    assert [int(extent) for extent in convolution.ty.shape] == [1, 20, windows, windows]


@pytest.mark.parametrize(
    "data, kernel, out", [("NCHW", "IOHW", "NHWC"), ("NHWC", "HWIO", ""), ("NHWC", "OHWI", "NCHW")]
)
def test_layouts(data, kernel, out):
    x, w = operands((2, 3, 5, 7), (3, 4, 3, 5))
    options = {"strides": (2, 3), "padding": (1, 2)}
    layouts = {"data_layout": data, "kernel_layout": kernel, "out_layout": out or None}
    arranged = [
        x.transpose(["NCHW".index(axis) for axis in data]),
        w.transpose(["IOHW".index(axis) for axis in kernel]),
    ]
    mod = transposed(*(each.shape for each in arranged), **options, **layouts)
    assert is_decomposed(mod, 2)
    got = run(DecomposeConvTranspose()(mod), *arranged, pipeline="tvm_fixes")
    expected = by_torch(x, w, stride=(2, 3), padding=(1, 2))
    expected = expected.transpose(["NCHW".index(axis) for axis in out or data])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding, output_padding", [(0, 0), (1, 1), (3, 2)])
def test_symbolic_extents(padding, output_padding):
    n, h = tirx.Var("n", "int64"), tirx.Var("h", "int64")
    options = {"padding": padding, "output_padding": output_padding}
    mod = transposed((n, 3, h, h), (3, 5, 5, 5), strides=3, **options)
    assert is_decomposed(mod, 2)
    x, w = operands((2, 3, 6, 6), (3, 5, 5, 5))
    got = run(DecomposeConvTranspose()(mod), x, w)
    expected = by_torch(x, w, stride=3, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_all_elements_are_taken_without_checks():
    """TVM cannot prove that a slice of (n - 1) // 2 + 1 windows is in bounds."""
    h = tirx.Var("h", "int64")
    mod = transposed((1, 3, 6, tirx.floordiv(h - 1, 2) + 1), (3, 5, 4, 4), strides=2, padding=1)
    (interleaved,) = calls(DecomposeConvTranspose()(mod), "relax.strided_slice")
    analyzer = tvm.sym.Analyzer()
    assert analyzer.can_prove_equal(interleaved.ty.shape[3], tirx.floordiv(h - 1, 2) * 2 + 2)


@pytest.mark.parametrize("strides", [1, 2, 7])
def test_one_element(strides):
    """All outputs are phases of one window, so nothing is multiplied by zero."""
    options = {"padding": (1, 0), "output_padding": (0, strides - 1)}
    mod = transposed((1, 8, 1, 1), (8, 5, 4, 4), strides=strides, **options)
    (convolution,) = calls(DecomposeConvTranspose()(mod), "relax.nn.conv2d")
    assert [int(extent) for extent in convolution.args[1].ty.shape] == [80, 8, 1, 1]
    x, w = operands((1, 8, 1, 1), (8, 5, 4, 4))
    expected = by_torch(x, w, stride=strides, **options)
    np.testing.assert_allclose(
        run(DecomposeConvTranspose()(mod), x, w), expected, rtol=1e-4, atol=1e-4
    )


def test_phases_are_rounded_before_they_are_interleaved():
    shapes = (2, 8, 6, 6), (8, 5, 4, 4), (1, 5, 1, 1)
    mod = transposed(
        *shapes[:2],
        bias=shapes[2],
        dtype="float16",
        cast="float16",
        strides=2,
        padding=1,
        out_dtype="float32",
    )
    after = DecomposeConvTranspose()(mod)
    *_, permute = calls(after, "relax.permute_dims")
    assert permute.ty.dtype == "float16" and count(after, "relax.astype") == 1
    x, w = operands(*shapes[:2], dtype="float16")
    (b,) = operands(shapes[2])
    got = run(after, x, w, b)
    assert got.dtype == "float16"
    np.testing.assert_allclose(got, run(mod, x, w, b, pipeline="tvm_fixes"), rtol=1e-3, atol=1e-3)
    expected = by_torch(x, w, stride=2, padding=1) + b
    np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bits_are_float32(dtype):
    mod = transposed((2, 8, 6, 6), (8, 5, 4, 4), dtype=dtype, strides=2)
    after = DecomposeConvTranspose()(mod)
    (convolution,) = calls(after, "relax.nn.conv2d")
    (rounded,) = calls(after, "relax.astype")
    assert convolution.ty.dtype == "float32" and rounded.ty.dtype == dtype
    tvm.ir.assert_structural_equal(after["main"].ret_ty, mod["main"].ret_ty)


def test_sums_that_are_read_twice():
    """They are read in float32 too, and the sum with a tensor is no bias."""

    def emit(bb, x, w, z):
        y = bb.emit(relax.op.nn.conv2d_transpose(x, w, strides=2, out_dtype="float32"))
        rounded = bb.emit(relax.op.astype(y, "float16"))
        other = bb.emit(relax.op.nn.conv2d_transpose(x, w, strides=2, out_dtype="float32"))
        return relax.Tuple([y, rounded, bb.emit(relax.op.add(other, z))])

    shapes = (2, 8, 6, 6), (8, 5, 3, 3), (2, 5, 13, 13)
    types = {
        name: tensor(*shape, dtype="float16") for name, shape in zip("xw", shapes[:2], strict=True)
    }
    mod = build(types | {"z": tensor(*shapes[2])}, emit)
    (x, w), (z,) = operands(*shapes[:2], dtype="float16"), operands(shapes[2])
    got = run(DecomposeConvTranspose()(mod), x, w, z)
    expected = by_torch(x, w, stride=2)
    for each, wanted, tolerance in zip(
        got, (expected, expected, expected + z), (1e-2, 2e-2, 1e-2), strict=True
    ):
        np.testing.assert_allclose(each, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((2, 4, 8, 8), (4, 3, 2, 2), {"groups": 2}),
        ((2, 4, 8, 8), (4, 3, 2, 2), {"dilation": 2}),
        ((2, 4, 8, 8), (4, 3, 2, 1), {"strides": 2}),
        ((2, 4, 8, 8), (4, 3, 2, tirx.Var("k", "int64")), {"strides": 2}),
        ((1, 4, 4, 4), (4, 3, 4, 4), {"strides": 2}),
        ((2, 4, 8, 8), (4, 3, 2, 2), {"dtype": "float64", "strides": 2}),
        ((0, 4, 8, 8), (4, 3, 2, 2), {"strides": 2}),
        (
            (2, 1, 8, 8, 4),
            (4, 4, 2, 2),
            {"strides": 2, "data_layout": "NCHW4c", "kernel_layout": "IOHW"},
        ),
    ],
)
def test_convolutions_that_are_kept(x, w, options):
    mod = transposed(x, w, **({"strides": 1} | options))
    tvm.ir.assert_structural_equal(DecomposeConvTranspose()(mod), mod)


def lowered(target, name=None):
    """The names of the kernels of a model with a constant weight."""
    (w,) = operands((32, 32, 4, 4), dtype="float16")
    weight = relax.const(w)
    mod = build(
        {"x": tensor(2, 32, 8, 8, dtype="float16")},
        lambda bb, x: relax.op.astype(
            bb.emit(
                relax.op.nn.conv2d_transpose(x, weight, strides=2, padding=1, out_dtype="float32")
            ),
            "float16",
        ),
    )
    lowering = stages(name)
    with target:
        return set(functions(lowered_before(mod, lowering, "Lower")))


def test_only_for_a_gpu_without_cudnn():
    assert all("transpose" in kernel for kernel in lowered(tvm.target.Target("llvm")))
    # The weight is rearranged when the model is compiled.
    convolution, shuffle = sorted(lowered(GPU, "gpu"))
    assert "conv2d_cast" in convolution and "reshape" in shuffle and "strided_slice" in shuffle
    config = {"kind": "cuda", "arch": "sm_90", "libs": ["cudnn"]}
    cudnn = tvm.target.Target(config, host={"kind": "llvm"})
    assert not any("conv2d" in kernel for kernel in lowered(cudnn, "gpu"))


if __name__ == "__main__":
    tvm.testing.main()
