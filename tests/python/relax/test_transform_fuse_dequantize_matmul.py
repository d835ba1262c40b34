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
"""FuseDequantizeMatmul: matrices in blocks, the rewritten products, and their results."""

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import relax as R

from helpers.grids import few, is_full
from helpers.relax_modules import build, count, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.constants.provenance import constants_of
from tvm_fixes.relax.quantized_blocks import BlockMatrix
from tvm_fixes.relax.transform import FuseDequantizeMatmul
from tvm_fixes.target import resolve

Emit = Callable[[relax.BlockBuilder], relax.Expr]


def integers(*shape: int, bits: int = 4, seed: int = 0) -> np.ndarray:
    limit = 2 ** (bits - 1)
    return np.random.default_rng(seed).integers(-limit, limit, shape, "int8")


def uniform(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1, shape).astype("float32")


def spread(array: np.ndarray, block: int, rows: int) -> np.ndarray:
    return np.repeat(array, block, 0)[:rows]


class TestBlockMatrix:
    @pytest.mark.parametrize("bits", [2, 4, 8])
    @pytest.mark.parametrize("depth", [96, 80])
    @pytest.mark.parametrize("has_zero", [False, True])
    def test_elements(self, bits: int, depth: int, has_zero: bool):
        """The last block is filled up."""
        data, scale = integers(depth, 5, bits=bits), uniform(3, 5)
        zero = integers(3, 5, bits=bits, seed=2).astype("float32") if has_zero else 0 * scale
        factors = data - spread(zero, 32, depth)
        matrix = BlockMatrix.of(factors, spread(scale, 32, depth))
        assert matrix is not None
        assert (matrix.bits, matrix.block, matrix.data.shape) == (bits, 32, (96, 5))
        assert (matrix.zero is not None) == has_zero
        assert matrix.zero is None or matrix.zero.dtype.kind == "i"
        assert matrix.data.min() >= -(2 ** (bits - 1)) and matrix.data.max() < 2 ** (bits - 1)
        points = np.zeros_like(scale) if matrix.zero is None else matrix.zero
        got = (matrix.data - spread(points, 32, 96).astype("float32"))[:depth]
        np.testing.assert_array_equal(got, factors)
        np.testing.assert_array_equal(matrix.scale, scale)

    def test_zero_points_far_away(self):
        factors = integers(64, 4) + np.full((64, 4), 1e6, "float32")
        matrix = BlockMatrix.of(factors, np.ones((64, 4), "float32"))
        assert matrix is not None and matrix.zero is not None
        assert (matrix.bits, matrix.zero.dtype) == (4, "float32")
        np.testing.assert_array_equal(matrix.data - spread(matrix.zero, 64, 64), factors)

    def test_equal_scales_with_other_zero_points(self):
        data, zero = integers(64, 4), np.array([[0], [100], [-100], [50]])
        matrix = BlockMatrix.of(data - spread(zero, 16, 64), np.ones((64, 4), "float32"))
        assert matrix is not None
        assert (matrix.bits, matrix.block) == (4, 16)

    @pytest.mark.parametrize(
        ("factors", "scale"),
        [
            (integers(64, 4) + np.float32(0.5), np.ones((64, 4), "float32")),
            (1000.0 * integers(64, 4), np.ones((64, 4), "float32")),
            (np.full((64, 4), np.nan, "float32"), np.ones((64, 4), "float32")),
            (integers(64, 4), np.full((64, 4), np.inf, "float32")),
            (integers(64, 4), spread(uniform(8, 4), 8, 64)),
            (integers(64, 4), uniform(64, 4)),
        ],
        ids=["fractions", "wide", "nan", "infinite scale", "blocks of 8", "no blocks"],
    )
    def test_others(self, factors: np.ndarray, scale: np.ndarray):
        assert BlockMatrix.of(factors, scale) is None


def weight(depth: int, columns: int, *, block: int = 32, bits: int = 4, seed: int = 0) -> Emit:
    """Emits a matrix of shape (depth, columns), from factors of shape (columns, blocks, block)."""
    blocks = -(-depth // block)
    factors = integers(columns, blocks, block, bits=bits, seed=seed)
    scale = uniform(columns, blocks, 1)

    def emit(bb: relax.BlockBuilder) -> relax.Expr:
        wide = bb.emit(relax.op.astype(relax.const(factors), "float32"))
        matrix = bb.emit(relax.op.multiply(wide, relax.const(scale)))
        rows = bb.emit(relax.op.reshape(matrix, (columns, blocks * block)))
        if blocks * block > depth:
            rows = bb.emit(relax.op.strided_slice(rows, [1], [0], [depth]))
        return bb.emit(relax.op.permute_dims(rows))

    return emit


def array_of(make: Emit) -> np.ndarray:
    """The matrix that TVM computes."""
    return run(build({}, make))


def product(shape: tuple, make: Emit) -> tvm.IRModule:
    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.matmul(x, make(bb))

    extents = [tirx.Var(n, "int64") if isinstance(n, str) else n for n in shape]
    return build({"x": tensor(*extents)}, emit)


def fused(mod: tvm.IRModule, target: str = "llvm", **options: float) -> tvm.IRModule:
    with resolve(target):
        return FuseDequantizeMatmul(**options)(mod)


def assert_products(got: np.ndarray, x: np.ndarray, matrix: np.ndarray) -> None:
    """Compare with the product in float64, up to the rounding of sums of that magnitude."""
    magnitude = np.abs(x) @ np.abs(matrix) if x.size else np.zeros(1)
    np.testing.assert_allclose(
        got, x @ matrix.astype("float64"), rtol=0, atol=1e-6 * magnitude.max()
    )


def test_product():
    mod = product((1, 96), weight(96, 64))
    after = fused(mod)
    kernel = after["matmul_blocks"]

    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((1, 96), "float32"))
    with builder.function("main", [x]):
        function = builder.add_func(kernel, "matmul_blocks")
        with builder.dataflow():
            constants = constants_of(after)
            args = [x, *map(relax.const, constants)]
            call = builder.emit(relax.call_tir(function, args, R.Tensor((1, 64), "float32")))
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    tvm.ir.assert_structural_equal(after, builder.get())
    words, scale = (array.numpy() for array in constants)
    columns = words.shape[-1]
    assert words.dtype == "int32" and scale.shape == (64 // columns, 3, columns)
    first = integers(64, 3, 32)[:columns, 0, :8]
    for place in range(8):
        np.testing.assert_array_equal(words[0, 0] << (28 - 4 * place) >> 28, first[:, place])


@few(3)
@pytest.mark.parametrize(
    ("shape", "depth", "columns", "block", "bits", "target"),
    [
        ((1, 96), 96, 64, 32, 4, "native"),
        ((1, 96), 96, 64, 32, 4, "llvm"),
        ((2, 3, 80), 80, 50, 32, 2, "native"),
        ((6, 128), 128, 50, 64, 8, "native"),
        ((40, 512), 512, 300, 64, 4, "native"),
        *([((40, 512), 512, 300, 64, 8, "llvm")] if is_full() else []),
        (("n", 128), 128, 65, 16, 4, "native"),
        *([(("n", 512), 512, 256, 128, 2, "native")] if is_full() else []),
        (("n", "m", 96), 96, 70, 32, 4, "native"),
    ],
)
def test_results(shape: tuple, depth: int, columns: int, block: int, bits: int, target: str):
    """Few rows and many, known or not; tiles and blocks that are not full."""
    make = weight(depth, columns, block=block, bits=bits)
    mod = product(shape, make)
    assert count(fused(mod, target), "relax.matmul") == 0
    executable = relax.build(mod, resolve(target), relax_pipeline=pipeline())
    vm, matrix = relax.VirtualMachine(executable, tvm.cpu()), array_of(make)
    counts = (0, 1, 7, 33) if is_full() else (0, 7)
    for rows in counts if "n" in shape else (None,):
        sizes = {"n": rows, "m": min(rows, 2)} if "n" in shape else {}
        x = np.random.default_rng(3).standard_normal([sizes.get(n, n) for n in shape])
        got = vm["main"](tvm.runtime.tensor(x.astype("float32"))).numpy()
        assert_products(got, x, matrix)


def test_two_products_share_a_matrix():
    make = weight(96, 640)

    def emit(bb: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
        matrix = make(bb)
        first, second = (bb.emit(relax.op.matmul(value, matrix)) for value in (x, y))
        return relax.op.add(first, second)

    mod = build({"x": tensor(1, 96), "y": tensor(1, 96)}, emit)
    after = fused(mod)
    assert count(after, "relax.matmul") == 0
    assert len({tuple(array.shape) for array in constants_of(after)}) == 2
    x, y = (uniform(1, 96, seed=seed) for seed in (4, 5))
    got = run(mod, x, y, pipeline=pipeline())
    assert_products(got, x + y, array_of(make))


def test_dequantize_with_zero_points():
    """Rows of groups, as torchao's linear layers have them."""
    data, scale = integers(3 * 50, 32), uniform(150)
    zero = integers(150, seed=6)

    def make(bb: relax.BlockBuilder) -> relax.Expr:
        operands = map(relax.const, (data, scale, zero))
        matrix = bb.emit(relax.op.dequantize(*operands, axis=0))
        return bb.emit(relax.op.permute_dims(bb.emit(relax.op.reshape(matrix, (50, 96)))))

    mod = product((4, 96), make)
    after = fused(mod, max_growth=0)
    assert count(after, "relax.dequantize") == 0
    x = uniform(4, 96, seed=7)
    got = run(mod, x, pipeline=pipeline(max_growth=0))
    matrix = ((data - zero[:, None].astype("int32")) * scale[:, None]).reshape(50, 96).T
    assert_products(got, x, matrix)


def test_special_values():
    """An infinity in a row of the data has no effect on another."""
    make = weight(96, 64)
    x = uniform(3, 96, seed=8)
    x[1, 5], x[2, 7] = np.inf, np.nan
    got = run(product((3, 96), make), x, pipeline=pipeline())
    matrix = array_of(make)
    assert_products(got[0], x[0], matrix)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got[1], x[1] @ matrix)
    assert np.isnan(got[2]).all()


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (weight(96, 64, block=8), {}),
        (weight(96, 64), {"max_growth": 100}),
        (weight(96, 4), {}),
    ],
    ids=["small blocks", "folded", "small"],
)
def test_others_are_unchanged(make: Emit, options: dict):
    mod = product((1, 96), make)
    assert fused(mod, **options).same_as(mod)


def test_a_scale_per_column():
    """A product with floats; FuseQuantized multiplies dequantized data as integers."""
    make = weight(96, 64, block=96, bits=8)
    mod = product((4, 96), make)
    assert not fused(mod).same_as(mod)
    x = uniform(4, 96, seed=9)
    assert_products(run(mod, x, pipeline=pipeline()), x, array_of(make))

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        data = bb.emit(relax.op.astype(x, "float32"))
        data = bb.emit(relax.op.multiply(relax.const(0.5, "float32"), data))
        return relax.op.matmul(data, make(bb))

    mod = build({"x": tensor(4, 96, dtype="int8")}, emit)
    assert fused(mod).same_as(mod)


def test_symbolic_depth_is_unchanged():
    make = weight(96, 64)
    mod = product((2, tirx.Var("m", "int64")), make)
    assert fused(mod).same_as(mod)
    x = uniform(2, 96, seed=9)
    assert_products(run(mod, x, pipeline=pipeline()), x, array_of(make))


def test_other_dtypes_and_targets_are_unchanged():
    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        matrix = bb.emit(relax.op.astype(weight(96, 64)(bb), "float16"))
        return relax.op.matmul(x, matrix)

    mod = build({"x": tensor(1, 96, dtype="float16")}, emit)
    assert fused(mod).same_as(mod)
    mod = product((1, 96), weight(96, 64))
    assert FuseDequantizeMatmul()(mod).same_as(mod)


def test_switch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", "fuse-dequantize-matmul")
    mod = product((1, 96), weight(96, 64))
    assert fused(mod).same_as(mod)


if __name__ == "__main__":
    tvm.testing.main()
