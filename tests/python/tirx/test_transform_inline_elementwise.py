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

import numpy as np
import onnx.parser
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from helpers.grids import is_full
from helpers.relax_modules import build, run, tensor
from tvm_fixes.fixes.memory import TILES_ON_STACK
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve
from tvm_fixes.tirx.transform import InlineElementwise

torch = pytest.importorskip("torch")


def inline(mod: tvm.IRModule, target: str = "llvm") -> tvm.IRModule:
    with tvm.target.Target(target):
        return InlineElementwise()(mod)


def lowered(mod: tvm.IRModule) -> tvm.IRModule:
    with resolve("native"):
        return pipeline()(mod)


def block_names(mod: tvm.IRModule) -> list[str]:
    """The names of the blocks in the kernels of a module, except the root blocks."""
    names: list[str] = []
    for _, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(
                function.body, (tvm.s_tir.SBlock, lambda block: names.append(str(block.name_hint)))
            )
    return [name for name in names if name != "root"]


@I.ir_module
class Steps:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"tirx.noalias": True})
        doubled = T.sblock_alloc_buffer((4, 8))
        shifted = T.sblock_alloc_buffer((4, 8))
        for i, j in T.grid(4, 8):
            with T.sblock("doubled"):
                vi, vj = T.axis.remap("SS", [i, j])
                doubled[vi, vj] = x[vi, vj] * T.float32(2)
        for i, j in T.grid(4, 8):
            with T.sblock("shifted"):
                vi, vj = T.axis.remap("SS", [i, j])
                shifted[vi, vj] = doubled[vi, vj] + T.float32(1)
        for i, j in T.grid(4, 8):
            with T.sblock("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.exp(shifted[vi, vj]) - doubled[vi, vj]


def test_steps_become_one():
    @I.ir_module
    class Expected:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
            T.func_attr({"tirx.noalias": True})
            for i, j in T.grid(4, 8):
                with T.sblock("y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = T.exp(x[vi, vj] * T.float32(2) + T.float32(1)) - x[
                        vi, vj
                    ] * T.float32(2)

    tvm.ir.assert_structural_equal(inline(Steps), Expected)


def test_other_machines_and_the_switch_leave_the_steps(monkeypatch):
    assert InlineElementwise()(Steps).same_as(Steps)
    assert inline(Steps, "cuda").same_as(Steps)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "inline-elementwise")
    assert inline(Steps).same_as(Steps)


PARTS = {
    "the halves of RoPE": lambda x: relax.op.concat(
        [
            relax.op.negative(relax.op.strided_slice(x, [1], [20], [40])),
            relax.op.strided_slice(x, [1], [0], [20]),
        ],
        1,
    ),
    "a slice of a slice": lambda x: relax.op.strided_slice(
        relax.op.strided_slice(x, [0], [1], [6]), [1], [3], [39]
    ),
    "pairs": lambda x: relax.op.concat([relax.op.expand_dims(x, 2), relax.op.expand_dims(x, 2)], 2),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_read_where_they_are_joined(name):
    def emit(builder, x):
        return builder.normalize(PARTS[name](x))

    mod = build({"x": tensor(6, 40)}, emit)
    assert len(set(block_names(lowered(mod)))) == 1
    x = np.random.default_rng(0).standard_normal((6, 40)).astype("float32")
    stock = run(mod, x, pipeline="default")
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), stock)


STAYING = {
    # Values computed once and read by every row, by every window, or by another row.
    "broadcast": lambda x: relax.op.add(x, relax.op.exp(relax.op.strided_slice(x, [0], [0], [1]))),
    "pool": lambda x: relax.op.nn.avg_pool1d(relax.op.expand_dims(relax.op.exp(x), 0), 3),
    "transpose": lambda x: relax.op.permute_dims(relax.op.exp(x)),
}


@pytest.mark.parametrize("name", STAYING)
def test_values_read_at_other_indices_are_kept(name):
    mod = lowered(build({"x": tensor(6, 40)}, lambda _builder, x: STAYING[name](x)))
    assert len(block_names(mod)) > 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_an_element_of_16_bits_is_widened_where_it_is_read(dtype):
    @I.ir_module
    class Before:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((4, 8), "float32"), bias: T.Buffer((8,), dtype), y: T.Buffer((4, 8))):
            T.func_attr({"tirx.noalias": True})
            wide = T.sblock_alloc_buffer((8,))
            for j in range(8):
                with T.sblock("wide"):
                    vj = T.axis.spatial(8, j)
                    wide[vj] = T.Cast("float32", bias[vj])
            for i, j in T.grid(4, 8):
                with T.sblock("y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = x[vi, vj] + wide[vj]

    @I.ir_module
    class Expected:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((4, 8), "float32"), bias: T.Buffer((8,), dtype), y: T.Buffer((4, 8))):
            T.func_attr({"tirx.noalias": True})
            for i, j in T.grid(4, 8):
                with T.sblock("y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = x[vi, vj] + T.Cast("float32", bias[vj])

    tvm.ir.assert_structural_equal(inline(Before), Expected)


def square_often(_builder, x):
    for _ in range(40):
        x = relax.op.multiply(x, x)
    return x


def test_a_chain_after_tiles_is_bounded():
    product = lambda x: relax.op.matmul(x, relax.const(np.eye(16, dtype="float32")))  # noqa: E731
    mod = build({"x": tensor(3, 16)}, lambda builder, x: square_often(builder, product(x)))
    data = np.random.default_rng(0).uniform(0.9, 1, (3, 16)).astype("float32")
    np.testing.assert_allclose(
        run(mod, data, pipeline=pipeline()), data.astype("float64") ** 2.0**40, atol=1e-6
    )


def test_a_chain_is_bounded():
    mod = build({"x": tensor(3, 5)}, square_often)
    assert 1 < len(block_names(lowered(mod))) < 40
    data = np.random.default_rng(0).uniform(0.9, 1, (3, 5)).astype("float32")
    np.testing.assert_allclose(
        run(mod, data, pipeline=pipeline()), data.astype("float64") ** 2.0**40, atol=1e-6
    )


def test_a_long_chain_is_several_blocks():
    """The simplifier takes minutes for expressions nested a hundred deep."""

    def emit(_builder, x):
        for _ in range(40):
            x = relax.op.nn.relu(relax.op.negative(x))
        return x

    names = block_names(lowered(build({"x": tensor(3, 5)}, emit)))
    assert 4 < len(names) < 20


def test_choices_that_decide_each_other_are_several_blocks():
    """Each nested select makes the simplifier 15 times slower."""

    def emit(_builder, x):
        for bound in range(8):
            is_more = relax.op.greater(x, relax.const(bound, "float32"))
            x = relax.op.where(is_more, relax.op.negative(x), x)
        return x

    mod = build({"x": tensor(64)}, emit)
    assert 2 < len(block_names(lowered(mod))) < 16
    data = np.linspace(-9, 9, 64, dtype="float32")
    want = data
    for bound in range(8):
        want = np.where(want > bound, -want, want)
    np.testing.assert_array_equal(run(mod, data, pipeline=pipeline()), want)


def test_a_function_of_a_function_is_a_step_of_its_own():
    """TVM takes minutes to compile both in one expression."""
    nested = build({"x": tensor(3, 5)}, lambda _, x: relax.op.nn.silu(relax.op.nn.gelu(x)))
    assert len(block_names(lowered(nested))) == 2
    beside = build(
        {"x": tensor(3, 5)}, lambda _, x: relax.op.add(relax.op.tanh(x), relax.op.erf(x))
    )
    assert len(block_names(lowered(beside))) == 1


def test_a_function_that_is_compared_and_read_again_is_a_step_of_its_own():
    """TVM takes minutes to compile the four of them in one expression."""

    def clip(builder, x):
        out = builder.emit(relax.op.erf(x))
        for bound, compare in ((-0.5, relax.op.less), (0.5, relax.op.greater)):
            limit = relax.const(bound, "float32")
            out = builder.emit(relax.op.where(compare(out, limit), limit, out))
        return out

    mod = build({"x": tensor(64)}, clip)
    assert len(block_names(lowered(mod))) == 2
    data = np.linspace(-2, 2, 64, dtype="float32")
    want = torch.erf(torch.from_numpy(data)).clip(-0.5, 0.5).numpy()
    np.testing.assert_allclose(run(mod, data, pipeline=pipeline()), want, rtol=1e-6)


def test_squeeze_and_excitation():
    """The epilogue of a one-pixel convolution has axes of 1, which TVM's inlining loses."""
    weight = np.random.default_rng(0).standard_normal((144, 6, 1, 1)).astype("float32")
    bias = np.random.default_rng(1).standard_normal((1, 144, 1, 1)).astype("float32")

    def excite(builder, squeezed, data):
        excited = builder.emit(relax.op.nn.conv2d(squeezed, relax.const(weight)))
        excited = builder.emit(relax.op.add(excited, relax.const(bias)))
        return relax.op.multiply(data, builder.emit(relax.op.sigmoid(excited)))

    mod = build({"squeezed": tensor(1, 6, 1, 1), "data": tensor(1, 144, 9, 9)}, excite)
    rng = np.random.default_rng(2)
    squeezed, data = (
        rng.standard_normal(shape).astype("float32") for shape in ((1, 6, 1, 1), (1, 144, 9, 9))
    )
    excited = np.einsum("oi,bi->bo", weight[..., 0, 0], squeezed[..., 0, 0])[..., None, None] + bias
    executable = relax.build(mod, resolve("native"), relax_pipeline=pipeline())
    got = relax.VirtualMachine(executable, tvm.cpu())["main"](
        tvm.runtime.tensor(squeezed), tvm.runtime.tensor(data)
    )
    np.testing.assert_allclose(got.numpy(), data / (1 + np.exp(-excited)), rtol=1e-5, atol=1e-6)


def test_values_read_twice_are_not_inlined():
    """A concatenation reads the transposed value twice: unchanged and reversed."""

    def emit(builder, x):
        x = builder.emit(relax.op.permute_dims(x))
        both = builder.emit(relax.op.concat([x, builder.emit(relax.op.flip(x, 0))], 0))
        return relax.op.multiply(both, relax.const(2, "float32"))

    x = np.arange(600, dtype="float32").reshape(20, 30)
    got = run(build({"x": tensor(20, 30)}, emit), x, pipeline=pipeline())
    np.testing.assert_array_equal(got, 2 * np.concatenate([x.T, x.T[::-1]]))


def test_tiles_that_are_read_twice_are_written():
    """As in hardswish, which reads the value and its clipped copy."""
    weight = np.random.default_rng(0).standard_normal((16, 16, 1, 1)).astype("float32")

    def emit(builder, x):
        y = builder.emit(relax.op.sigmoid(builder.emit(relax.op.nn.conv2d(x, relax.const(weight)))))
        return relax.op.multiply(y, builder.emit(relax.op.clip(y, 0.25, 0.75)))

    x = np.random.default_rng(1).standard_normal((1, 16, 13, 9)).astype("float32")
    y = 1 / (1 + np.exp(-np.einsum("oi,bihw->bohw", weight[..., 0, 0], x)))
    got = run(build({"x": tensor(*x.shape)}, emit), x, pipeline=pipeline())
    np.testing.assert_allclose(got, y * np.clip(y, 0.25, 0.75), rtol=1e-5, atol=1e-6)


def test_blocks_of_one_name_are_left():
    steps = Steps["main"].script().replace('"shifted"', '"doubled"', 1)
    mod = tvm.IRModule({"main": tvm.script.from_source(steps)})
    assert inline(mod).same_as(mod)


WEIGHT = np.random.default_rng(1).standard_normal((16, 8, 3, 3)).astype("float32")


def _residual(x: relax.Expr) -> relax.Expr:
    conv = relax.op.nn.conv2d(x, relax.const(WEIGHT), padding=1)
    biased = relax.op.add(conv, relax.const(np.arange(16, dtype="float32").reshape(1, 16, 1, 1)))
    return relax.op.nn.relu(biased)


@pytest.mark.parametrize("width", [1, 5, 12, None] if is_full() else [5, None])
def test_the_epilogue_of_a_convolution_is_fused_into_its_tiles(width, monkeypatch):
    extent = tirx.Var("w", "int64") if width is None else width
    mod = build({"x": tensor(1, 8, 6, extent)}, lambda _builder, x: _residual(x))
    with monkeypatch.context() as patch:
        patch.setenv("TVM_FIXES_DISABLE", TILES_ON_STACK)  # it removes blocks
        padded, _begin, _sum, out = block_names(lowered(mod))
    assert (padded, out) == ("padded", "out")
    data = np.random.default_rng(0).standard_normal((1, 8, 6, width or 7)).astype("float32")
    got = run(mod, data, pipeline=pipeline())
    conv = torch.nn.functional.conv2d(*map(torch.from_numpy, (data, WEIGHT)), padding=1)
    want = torch.relu(conv + torch.arange(16.0).reshape(1, 16, 1, 1)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 7, None] if is_full() else [7, None])
def test_the_epilogue_of_a_matmul_is_fused_into_its_tiles(rows):
    weight = np.random.default_rng(1).standard_normal((24, 40)).astype("float32")
    bias = np.arange(40, dtype="float32")

    def linear(_builder, x):
        product = relax.op.matmul(x, relax.const(weight))
        return relax.op.nn.gelu(relax.op.add(product, relax.const(bias)))

    extent = tirx.Var("n", "int64") if rows is None else rows
    mod = build({"x": tensor(extent, 24)}, linear)
    data = np.random.default_rng(0).standard_normal((rows or 9, 24)).astype("float32")
    want = torch.nn.functional.gelu(torch.from_numpy(data @ weight + bias)).numpy()
    np.testing.assert_allclose(run(mod, data, pipeline=pipeline()), want, rtol=1e-5, atol=1e-4)


def test_the_condition_of_a_tile_is_kept() -> None:
    """TVM cannot prove that the rows of the product, the last of each three, are positive."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 23]>
        slice (float[m,16,3,1] x, float[1,19] w) => (float[a,b,c,d] y)
        <int64[1] begin = {-1}, int64[1] end = {9223372036854775807}, int64[1] axis = {0},
         int64[1] step = {3}> {
           last = Slice (x, begin, end, axis, step)
           y = MatMul (last, w)
        }"""
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 16, 3, 1)).astype("float32")
    w = rng.standard_normal((1, 19)).astype("float32")
    got = run(from_onnx(model), x, w, pipeline=pipeline())
    np.testing.assert_allclose(got, x[-1::3] @ w, rtol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
