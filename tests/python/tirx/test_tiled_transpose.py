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
"""Tiled transposes."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

from helpers.conv_cases import numpy_dtype
from helpers.grids import few, is_full
from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve
from tvm_fixes.tirx.transform import ScheduleElementwise

# Vectors of 16 bytes: 4 lanes of float32.
TARGET = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"})


def test_tiles_that_overlap():
    """6 columns are two tiles of 4."""

    @I.ir_module
    class Before:
        @T.prim_func(s_tir=True)
        def main(
            x: T.Buffer((T.int64(8), T.int64(6)), "float32"),
            y: T.Buffer((T.int64(6), T.int64(8)), "float32"),
        ):
            for i, j in T.grid(T.int64(6), T.int64(8)):
                with T.sblock("y"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    y[v_i, v_j] = x[v_j, v_i] + T.float32(1)

    @I.ir_module
    class Expected:
        @T.prim_func(s_tir=True)
        def main(
            x: T.Buffer((T.int64(8), T.int64(6)), "float32"),
            y: T.Buffer((T.int64(6), T.int64(8)), "float32"),
        ):
            for i, j in T.grid(T.int64(2), T.int64(2)):
                with T.sblock("y"):
                    T.reads(
                        x[
                            j * T.int64(4) : j * T.int64(4) + T.int64(4),
                            T.min(i * T.int64(4), T.int64(2)) : T.min(i * T.int64(4), T.int64(2))
                            + T.int64(4),
                        ]
                    )
                    T.writes(
                        y[
                            T.min(i * T.int64(4), T.int64(2)) : T.min(i * T.int64(4), T.int64(2))
                            + T.int64(4),
                            j * T.int64(4) : j * T.int64(4) + T.int64(4),
                        ]
                    )
                    row0 = T.sblock_alloc_buffer((T.int64(4),))
                    row1 = T.sblock_alloc_buffer((T.int64(4),))
                    row2 = T.sblock_alloc_buffer((T.int64(4),))
                    row3 = T.sblock_alloc_buffer((T.int64(4),))
                    for k in T.vectorized(T.int64(4)):
                        row0[k] = x[j * T.int64(4), T.min(i * T.int64(4), T.int64(2)) + k]
                    for k in T.vectorized(T.int64(4)):
                        row1[k] = x[
                            j * T.int64(4) + T.int64(1), T.min(i * T.int64(4), T.int64(2)) + k
                        ]
                    for k in T.vectorized(T.int64(4)):
                        row2[k] = x[
                            j * T.int64(4) + T.int64(2), T.min(i * T.int64(4), T.int64(2)) + k
                        ]
                    for k in T.vectorized(T.int64(4)):
                        row3[k] = x[
                            j * T.int64(4) + T.int64(3), T.min(i * T.int64(4), T.int64(2)) + k
                        ]
                    left0: T.let[T.float32x4] = T.Shuffle(
                        [
                            row0[T.Ramp(T.int64(0), T.int64(1), 4)],
                            row2[T.Ramp(T.int64(0), T.int64(1), 4)],
                        ],
                        [0, 1, 4, 5],
                    )
                    right0: T.let[T.float32x4] = T.Shuffle(
                        [
                            row0[T.Ramp(T.int64(0), T.int64(1), 4)],
                            row2[T.Ramp(T.int64(0), T.int64(1), 4)],
                        ],
                        [2, 3, 6, 7],
                    )
                    left1: T.let[T.float32x4] = T.Shuffle(
                        [
                            row1[T.Ramp(T.int64(0), T.int64(1), 4)],
                            row3[T.Ramp(T.int64(0), T.int64(1), 4)],
                        ],
                        [0, 1, 4, 5],
                    )
                    right1: T.let[T.float32x4] = T.Shuffle(
                        [
                            row1[T.Ramp(T.int64(0), T.int64(1), 4)],
                            row3[T.Ramp(T.int64(0), T.int64(1), 4)],
                        ],
                        [2, 3, 6, 7],
                    )
                    column0: T.let[T.float32x4] = T.Shuffle([left0, left1], [0, 4, 2, 6])
                    column1: T.let[T.float32x4] = T.Shuffle([left0, left1], [1, 5, 3, 7])
                    column2: T.let[T.float32x4] = T.Shuffle([right0, right1], [0, 4, 2, 6])
                    column3: T.let[T.float32x4] = T.Shuffle([right0, right1], [1, 5, 3, 7])
                    row0[T.int64(0) : T.int64(4)] = column0
                    row1[T.int64(0) : T.int64(4)] = column1
                    row2[T.int64(0) : T.int64(4)] = column2
                    row3[T.int64(0) : T.int64(4)] = column3
                    for k in T.vectorized(T.int64(4)):
                        y[T.min(i * T.int64(4), T.int64(2)), j * T.int64(4) + k] = row0[
                            k
                        ] + T.float32(1)
                    for k in T.vectorized(T.int64(4)):
                        y[T.min(i * T.int64(4), T.int64(2)) + T.int64(1), j * T.int64(4) + k] = (
                            row1[k] + T.float32(1)
                        )
                    for k in T.vectorized(T.int64(4)):
                        y[T.min(i * T.int64(4), T.int64(2)) + T.int64(2), j * T.int64(4) + k] = (
                            row2[k] + T.float32(1)
                        )
                    for k in T.vectorized(T.int64(4)):
                        y[T.min(i * T.int64(4), T.int64(2)) + T.int64(3), j * T.int64(4) + k] = (
                            row3[k] + T.float32(1)
                        )

    with TARGET:
        tvm.ir.assert_structural_equal(ScheduleElementwise()(Before), Expected)


def shuffles(mod: tvm.IRModule, target: str = "native") -> int:
    """The number of shuffles in the kernels of a module."""
    with resolve(target):
        lowered = pipeline()(mod)
    found: list[tvm.Object] = []
    for _, function in lowered.functions_items():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(function.body, (tirx.Shuffle, found.append))
    return len(found)


def permuted(shape: tuple, axes: tuple[int, ...], dtype: str = "float32") -> tvm.IRModule:
    return build(
        {"x": tensor(*shape, dtype=dtype)}, lambda _, x: relax.op.permute_dims(x, list(axes))
    )


@few(4)
@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((2, 6, 7, 9), (0, 2, 3, 1), "float32"),
        ((2, 7, 9, 6), (0, 3, 1, 2), "float32"),
        ((5, 4, 6), (2, 1, 0), "float32"),
        ((5, 8, 6), (1, 2, 0), "int32"),
        ((17, 33), (1, 0), "float64"),
        ((65, 31), (1, 0), "int64"),
        ((9, 9), (1, 0), "float16"),
        ((2, 6, 7, 9), (0, 2, 3, 1), "bfloat16"),
        ((33, 40), (1, 0), "int16"),
        ((4, 5), (1, 0), "int8"),
        ((2, 33, 47), (2, 0, 1), "uint8"),
        ((31, 16), (1, 0), "float8_e4m3fn"),
    ],
)
def test_permutations_that_move_the_last_axis_are_tiled(shape, axes, dtype):
    mod = permuted(shape, axes, dtype)
    assert shuffles(mod) > 0
    x = np.random.default_rng(0).integers(0, 1000, shape).astype(numpy_dtype(dtype))
    assert run(mod, x, pipeline=pipeline()).tobytes() == x.transpose(axes).tobytes()


@few(2)
@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((1024, 36), (1, 0), "float32"),
        ((1100, 5), (1, 0), "float32"),
        ((1037, 1025), (1, 0), "float32"),
        ((3, 1600, 41), (0, 2, 1), "int32"),
        ((7, 1543, 2, 11), (2, 3, 0, 1), "float64"),
    ],
)
def test_many_columns_are_tiled_by_panels(shape, axes, dtype):
    """Two or more panels, with a full or a partial last panel."""
    mod = permuted(shape, axes, dtype)
    with resolve("native"):
        lowered = tvm.transform.Sequential([relax.transform.LegalizeOps(), ScheduleElementwise()])
        functions = [f for _, f in lowered(mod).functions_items() if isinstance(f, tirx.PrimFunc)]
    tiles: list[tirx.Expr] = []

    def look(loop: tirx.For) -> None:
        if loop.loop_var.name == "column_tile":
            tiles.append(loop.extent)

    for function in functions:
        structural_walk(function.body, (tirx.For, look))
    assert tiles
    # A tile has 4 columns at least.
    assert all(Analyzer().can_prove(extent * 4 <= 1024) for extent in tiles)
    x = np.random.default_rng(0).integers(-1000, 1000, shape).astype(dtype)
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), x.transpose(axes))


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((3, 5, 8), (1, 0, 2), "float32"),
        ((3, 70), (1, 0), "float32"),
        ((9, 9), (1, 0), "bool"),
    ],
)
def test_others_are_not(shape, axes, dtype):
    """The last axis stays, is shorter than a vector, or LLVM packs its elements."""
    mod = permuted(shape, axes, dtype)
    assert shuffles(mod) == 0
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), x.transpose(axes))


@few(3)
@pytest.mark.parametrize("extents", [(1, 1), (3, 40), (40, 3), (4, 4), (16, 16), (33, 47), (0, 5)])
def test_symbolic_extents(extents):
    """Including matrices smaller than a tile."""
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    mod = permuted((n, m), (1, 0))
    assert shuffles(mod) > 0
    x = np.random.default_rng(0).standard_normal(extents).astype("float32")
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), x.T)


def test_indices_of_a_chain_of_reshapes_are_simple():
    """Complex indices, repeated in each vector of a tile, would take minutes to compile."""

    def emit(builder, x):
        wide = builder.emit(relax.op.broadcast_to(x, (3, 5, 4, 5, 5, 10)))
        joined = builder.emit(relax.op.reshape(wide, (15, 4, 5, 5, 10)))
        return relax.op.permute_dims(joined, (0, 1, 4, 2, 3))

    mod = build({"x": tensor(3, 1, 4, 5, 5, 10)}, emit)
    with resolve("native"):
        lowered = pipeline()(mod)
    kernels = [f for _, f in lowered.functions_items() if isinstance(f, tirx.PrimFunc)]
    divisions: list[tirx.Expr] = []
    for kernel in kernels:
        structural_walk(kernel.body, (tirx.FloorDiv, divisions.append))
    assert len(divisions) < 200
    x = np.random.default_rng(0).standard_normal((3, 1, 4, 5, 5, 10)).astype("float32")
    expected = x.repeat(5, 1).reshape(15, 4, 5, 5, 10).transpose(0, 1, 4, 2, 3)
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), expected)


def test_one_operand_of_several_is_transposed():
    """The bias is read along the rows of the result, the scale down its columns."""
    inputs = {"x": tensor(40, 24), "y": tensor(24, 40), "bias": tensor(40), "scale": tensor(24, 1)}

    def emit(_, x, y, bias, scale):
        transposed = relax.op.permute_dims(x)
        return relax.op.add(relax.op.multiply(relax.op.add(transposed, y), scale), bias)

    mod = build(inputs, emit)
    assert shuffles(mod) > 0
    rng = np.random.default_rng(0)
    x, y, bias, scale = (
        rng.standard_normal([int(n) for n in ty.shape]).astype("float32") for ty in inputs.values()
    )
    got = run(mod, x, y, bias, scale, pipeline=pipeline())
    np.testing.assert_allclose(got, (x.T + y) * scale + bias, rtol=1e-6, atol=1e-6)


def test_nan_and_infinity_pass():
    x = np.random.default_rng(0).standard_normal((20, 21)).astype("float32")
    x[::3, ::2], x[1::3, ::2], x[2::3, ::2] = np.nan, np.inf, -np.inf
    np.testing.assert_array_equal(run(permuted((20, 21), (1, 0)), x, pipeline=pipeline()), x.T)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_16_bits_pass(dtype):
    """Including subnormal numbers and signaling NaNs."""
    bits = np.arange(1 << 16, dtype="uint16").reshape(256, 256)
    got = run(
        permuted((256, 256), (1, 0), dtype), bits.view(numpy_dtype(dtype)), pipeline=pipeline()
    )
    np.testing.assert_array_equal(got.view("uint16"), bits.T)


@pytest.mark.parametrize(
    ("channels", "target"),
    list(itertools.product((5, 16, 33), ("llvm", "native")))
    if is_full()
    else [(5, "native"), (33, "llvm")],
)
def test_elements_change_their_size(channels, target):
    """A quantized tensor is shuffled after its computation, what is dequantized before."""
    zero, axis = relax.const(np.uint8(120)), 1

    def emit(builder, x, scale):
        q = builder.emit(relax.op.quantize(x, scale, zero, axis, "uint8"))
        last = builder.emit(relax.op.permute_dims(q, [0, 2, 3, 1]))
        first = builder.emit(
            relax.op.permute_dims(builder.emit(relax.op.bitwise_not(last)), [0, 3, 1, 2])
        )
        return relax.Tuple([last, builder.emit(relax.op.dequantize(first, scale, zero, axis))])

    shape = (2, channels, 7, 9)
    mod = build({"x": tensor(*shape), "scale": tensor(channels)}, emit)
    assert shuffles(mod, target) > 0
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype("float32") * 9
    scale = rng.uniform(0.05, 0.2, channels).astype("float32")
    got = run(mod, x, scale, target=resolve(target), pipeline=pipeline())
    factors = scale[:, None, None]
    quantized = np.clip(np.round(x / factors) + 120, 0, 255).astype("uint8")
    np.testing.assert_array_equal(got[0], quantized.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(got[1], ((~quantized).astype("float32") - 120) * factors)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_elements_of_16_bits_within_a_kernel(dtype):
    """TVM keeps bfloat16 in float32 there."""

    def emit(builder, x, y):
        rounded = builder.emit(relax.op.astype(x, dtype))
        joined = builder.emit(relax.op.concat([y, rounded], 1))
        first = builder.emit(relax.op.permute_dims(joined))
        second = builder.emit(relax.op.permute_dims(builder.emit(relax.op.exp(rounded))))
        back = builder.emit(relax.op.permute_dims(builder.emit(relax.op.astype(first, "float32"))))
        return relax.Tuple([first, second, builder.emit(relax.op.astype(back, dtype))])

    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype("float32") for shape in ((24, 33), (24, 16)))
    y = y.astype(numpy_dtype(dtype))
    mod = build({"x": tensor(24, 33), "y": tensor(24, 16, dtype=dtype)}, emit)
    first, second, back = run(mod, x, y, target=resolve("native"), pipeline=pipeline())
    expected = np.concatenate([y, x.astype(y.dtype)], 1)
    np.testing.assert_array_equal(first, expected.T)
    np.testing.assert_array_equal(back, expected)
    wanted = np.exp(expected[:, 16:].astype("float32")).T
    np.testing.assert_allclose(second.astype("float32"), wanted, rtol=0.01)


def test_a_tile_does_not_read_what_another_has_written():
    """TVM reuses the memory of an operand read at the same indices for the result."""

    def emit(builder, x, y):
        def fall(value):
            return builder.emit(relax.op.exp(builder.emit(relax.op.negative(value))))

        inner = builder.emit(relax.op.add(fall(fall(x)), relax.op.permute_dims(y)))
        return relax.op.exp(builder.emit(relax.op.negative(inner)))

    x, y = (
        np.random.default_rng(0).standard_normal(shape).astype("float32")
        for shape in ((20, 21), (21, 20))
    )
    expected = np.exp(-(np.exp(-np.exp(-x.astype("float64"))) + y.T))
    got = run(build({"x": tensor(20, 21), "y": tensor(21, 20)}, emit), x, y, pipeline=pipeline())
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@given(st.data())
def test_random_permutations_with_reshapes(data):
    """Split, permute and merge, as in attention heads and channel shuffles."""
    shape = data.draw(st.lists(st.integers(1, 19), min_size=1, max_size=4), "shape")
    axes = data.draw(st.permutations(range(len(shape))), "axes")
    is_flat = data.draw(st.booleans(), "is_flat")
    size = int(np.prod(shape))
    dtype = data.draw(st.sampled_from(["float32", "int64", "float16", "int8", "uint16"]), "dtype")

    def emit(builder, x):
        x = relax.op.permute_dims(builder.emit(relax.op.reshape(x, shape)), axes)
        x = builder.emit(relax.op.multiply(builder.emit(x), relax.const(2, dtype)))
        return relax.op.reshape(x, [size]) if is_flat else x

    x = np.arange(size).astype(dtype)
    expected = x.reshape(shape).transpose(axes) * np.dtype(dtype).type(2)
    got = run(build({"x": tensor(size, dtype=dtype)}, emit), x, pipeline=pipeline())
    np.testing.assert_array_equal(got, expected.reshape(-1) if is_flat else expected)


if __name__ == "__main__":
    tvm.testing.main()
