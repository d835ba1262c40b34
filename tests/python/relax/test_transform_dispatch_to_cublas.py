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
"""DispatchToCublas."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.cuda_libraries import TARGET, stand_ins
from helpers.grids import few
from helpers.relax_modules import build, count, integers, run, tensor
from tvm_fixes.relax.transform import DispatchToCublas

op = relax.op


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor((2, 3, 4), "float32"),
        w: R.Tensor((5, 4), "float32"),
        bias: R.Tensor((5,), "float32"),
    ) -> R.Tensor((2, 3, 5), "float32"):
        with R.dataflow():
            wt = R.permute_dims(w)
            lv = R.matmul(x, wt)
            y = R.add(lv, bias)
            R.output(y)
        return y


@I.ir_module
class Expected:
    @R.function
    def main(
        x: R.Tensor((2, 3, 4), "float32"),
        w: R.Tensor((5, 4), "float32"),
        bias: R.Tensor((5,), "float32"),
    ) -> R.Tensor((2, 3, 5), "float32"):
        with R.dataflow():
            lv = R.call_dps_packed(
                "tvm_fixes_cublas_matmul",
                (x, w, bias, R.shape([0, 1])),
                out_ty=[R.Tensor((2, 3, 5), "float32"), R.Tensor((33554432,), "uint8")],
            )
            y: R.Tensor((2, 3, 5), "float32") = lv[0]
            R.output(y)
        return y


def dispatched(mod: tvm.IRModule) -> tvm.IRModule:
    with TARGET:
        return DispatchToCublas()(mod)


def test_a_linear_layer():
    tvm.ir.assert_structural_equal(dispatched(Before), Expected)


def test_other_targets_keep_the_matmul():
    assert DispatchToCublas()(Before).same_as(Before)
    without = tvm.target.Target({"kind": "cuda", "arch": "sm_90", "libs": ["cudnn"]})
    with without:
        assert DispatchToCublas()(Before).same_as(Before)


def product(lhs, rhs, flips="nn", rest=None):
    def emit(builder, a, b, *others):
        def flipped(x, flip):
            axes = list(range(x.ty.ndim))
            return builder.emit(op.permute_dims(x, [*axes[:-2], axes[-1], axes[-2]])) if flip else x

        a, b = (flipped(x, flip == "t") for x, flip in zip((a, b), flips, strict=True))
        y = builder.emit(op.matmul(a, b))
        return rest(builder, y, *others) if rest else y

    return build({"a": tensor(*lhs), "b": tensor(*rhs)}, emit)


@few(8)
@pytest.mark.parametrize("flips", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "lhs, rhs",
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 6, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((1, 1, 3, 4), (2, 6, 4, 5)),
        ((1, 2, 3, 4), (2, 4, 5)),
    ],
)
def test_values(lhs, rhs, flips):
    def stored(shape, flip):
        return (*shape[:-2], shape[-1], shape[-2]) if flip == "t" else shape

    lhs, rhs = stored(lhs, flips[0]), stored(rhs, flips[1])
    mod = product(lhs, rhs, flips)
    after = dispatched(mod)
    assert count(after, "relax.matmul") == count(after, "relax.permute_dims") == 0
    a, b = integers(*lhs, seed=1), integers(*rhs, seed=2)
    with stand_ins() as called:
        np.testing.assert_array_equal(run(after, a, b), run(mod, a, b))
    assert called == ["cublas_matmul"]


def test_symbolic_rows_and_batch():
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    mod = product((n, m, 4), (n, 4, 5))
    a, b = integers(2, 3, 4, seed=1), integers(2, 4, 5, seed=2)
    with stand_ins() as called:
        np.testing.assert_array_equal(run(dispatched(mod), a, b), a @ b)
    assert called == ["cublas_matmul"]


@pytest.mark.parametrize(
    "lhs, rhs",
    [
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 1, 3, 4), (1, 6, 4, 5)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
    ],
)
def test_products_that_are_kept(lhs, rhs):
    mod = product(lhs, rhs)
    tvm.ir.assert_structural_equal(dispatched(mod), mod)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int8"])
def test_dtypes_that_are_kept(dtype):
    types = {"a": tensor(3, 4, dtype=dtype), "b": tensor(4, 5, dtype=dtype)}
    mod = build(types, lambda builder, a, b: op.matmul(a, b))
    tvm.ir.assert_structural_equal(dispatched(mod), mod)


HALVES = {
    "a": tensor(3, 4, dtype="float16"),
    "b": tensor(4, 5, dtype="float16"),
    "bias": tensor(5, dtype="float16"),
}


def halves():
    shapes = (3, 4), (4, 5), (5,)
    return [integers(*shape, seed=i).astype("float16") for i, shape in enumerate(shapes)]


def linear_of_halves(builder, a, b, bias):
    """A 16-bit linear layer, as the importers write it."""
    y = builder.emit(op.matmul(a, b, out_dtype="float32"))
    wide = builder.emit(op.astype(bias, "float32"))
    return builder.emit(op.astype(builder.emit(op.add(y, wide)), "float16"))


def test_a_product_in_float32_of_halves():
    types = {name: HALVES[name] for name in ("a", "b")}
    mod = build(types, lambda bb, a, b: op.matmul(a, b, out_dtype="float32"))
    a, b, _ = halves()
    with stand_ins() as called:
        got = run(dispatched(mod), a, b)
    assert called == ["cublas_matmul"] and got.dtype == "float32"
    np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize("has_relu", [False, True])
def test_the_rounding_of_halves_is_part_of_the_call(has_relu):
    def emit(builder, a, b, bias):
        y = linear_of_halves(builder, a, b, bias)
        return op.nn.relu(y) if has_relu else y

    mod = build(HALVES, emit)
    after = dispatched(mod)
    assert count(after, "relax.astype") == count(after, "relax.add") == 0
    with stand_ins() as called:
        np.testing.assert_array_equal(run(after, *halves()), run(mod, *halves()))
    assert called == ["cublas_matmul"]


def test_a_bias_in_float32_is_added_before_the_rounding():
    types = {**HALVES, "bias": tensor(5)}

    def emit(builder, a, b, bias):
        y = builder.emit(op.matmul(a, b, out_dtype="float32"))
        return op.astype(builder.emit(op.add(y, bias)), "float16")

    mod = build(types, emit)
    a, b, _ = halves()
    bias = np.linspace(0, 1, 5, dtype="float32")
    after = dispatched(mod)
    assert count(after, "relax.astype") == 1
    with stand_ins() as called:
        np.testing.assert_array_equal(run(after, a, b, bias), run(mod, a, b, bias))
    assert called == ["cublas_matmul"]


def with_epilogue(emit, *bias_shape):
    types = {"a": tensor(3, 4), "b": tensor(4, 5), "bias": tensor(*bias_shape)}
    return build(types, emit)


@pytest.mark.parametrize("swaps", [False, True])
def test_bias_and_relu(swaps):
    def emit(builder, a, b, bias):
        y = builder.emit(op.matmul(a, b))
        y = builder.emit(op.add(bias, y) if swaps else op.add(y, bias))
        return op.nn.relu(y)

    mod = with_epilogue(emit, 5)
    after = dispatched(mod)
    # cuBLAS may lose a NaN in its ReLU.
    assert count(after, "relax.add") == 0 and count(after, "relax.nn.relu") == 1
    arguments = integers(3, 4, seed=1), integers(4, 5, seed=2), integers(5, seed=3)
    with stand_ins() as called:
        np.testing.assert_array_equal(run(after, *arguments), run(mod, *arguments))
    assert called == ["cublas_matmul"]


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (3, 1), (1,)])
def test_only_row_vectors_become_a_bias(shape):
    mod = with_epilogue(lambda bb, a, b, c: op.add(bb.emit(op.matmul(a, b)), c), *shape)
    after = dispatched(mod)
    assert count(after, "relax.add") == 1 and count(after, "relax.matmul") == 0
    arguments = integers(3, 4, seed=1), integers(4, 5, seed=2), integers(*shape, seed=3)
    with stand_ins():
        np.testing.assert_array_equal(run(after, *arguments), run(mod, *arguments))


def test_a_product_with_another_reader_is_computed_once():
    def emit(builder, a, b, bias):
        y = builder.emit(op.matmul(a, b))
        return op.multiply(builder.emit(op.add(y, bias)), y)

    mod = with_epilogue(emit, 5)
    arguments = integers(3, 4, seed=1), integers(4, 5, seed=2), integers(5, seed=3)
    with stand_ins() as called:
        np.testing.assert_array_equal(run(dispatched(mod), *arguments), run(mod, *arguments))
    assert called == ["cublas_matmul"]


def test_a_product_with_itself():
    mod = build({"a": tensor(3, 3)}, lambda bb, a: op.matmul(a, bb.emit(op.permute_dims(a))))
    a = integers(3, 3)
    with stand_ins():
        np.testing.assert_array_equal(run(dispatched(mod), a), a @ a.T)


@I.ir_module
class TwoBlocks:
    @R.function
    def main(
        flag: R.Tensor((), "bool"), x: R.Tensor((3, 4), "float32"), w: R.Tensor((5, 4), "float32")
    ) -> R.Tensor((3, 5), "float32"):
        with R.dataflow():
            doubled = R.add(w, w)
            wt = R.permute_dims(doubled)
            R.output(wt)
        if flag:
            y = R.matmul(x, wt)
        else:
            y = R.nn.relu(R.matmul(x, wt))
        return y


def test_operands_are_read_in_their_own_block():
    after = dispatched(TwoBlocks)
    relax.analysis.well_formed(after)
    assert count(after, "relax.permute_dims") == 1
    assert count(after, "relax.call_dps_packed") == 2


if __name__ == "__main__":
    tvm.testing.main()
