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
"""Parallel element-wise kernels, poolings and copies."""

import itertools

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from helpers.grids import batched, few, is_full
from helpers.relax_modules import build, call, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve
from tvm_fixes.tirx.transform import ScheduleElementwise
from tvm_fixes.tirx.util import contains

torch = pytest.importorskip("torch")


def schedule(mod: tvm.IRModule) -> tvm.IRModule:
    with tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"}):
        return ScheduleElementwise()(mod)


def loops(mod: tvm.IRModule, kind: int) -> list[tirx.For]:
    found: list[tirx.For] = []
    for _, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(function.body, (tirx.For, found.append))
    return [loop for loop in found if loop.kind == kind]


def parallel_extents(mod: tvm.IRModule) -> list[tirx.Expr]:
    with resolve("native"):
        mod = pipeline()(mod)
    return [loop.extent for loop in loops(mod, tirx.ForKind.PARALLEL)]


@I.ir_module
class Doubled:
    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((T.int64(4), T.int64(32), T.int64(512)), "float32"),
        y: T.Buffer((T.int64(4), T.int64(32), T.int64(512)), "float32"),
    ):
        for i, j, k in T.grid(T.int64(4), T.int64(32), T.int64(512)):
            with T.sblock("y"):
                v_i, v_j, v_k = T.axis.remap("SSS", [i, j, k])
                y[v_i, v_j, v_k] = x[v_i, v_j, v_k] * T.float32(2)


def test_enough_outer_loops_are_one_parallel_loop():
    @I.ir_module
    class Expected:
        @T.prim_func(s_tir=True)
        def main(
            x: T.Buffer((T.int64(4), T.int64(32), T.int64(512)), "float32"),
            y: T.Buffer((T.int64(4), T.int64(32), T.int64(512)), "float32"),
        ):
            for n in T.parallel(T.int64(128)):
                with T.sblock("y"):
                    T.reads(x[n // T.int64(32), n % T.int64(32), T.int64(0) : T.int64(512)])
                    T.writes(y[n // T.int64(32), n % T.int64(32), T.int64(0) : T.int64(512)])
                    for vector in range(T.int64(128)):
                        for lane in T.vectorized(T.int64(4)):
                            y[
                                n // T.int64(32),
                                n % T.int64(32),
                                vector * T.int64(4) + lane,
                            ] = x[
                                n // T.int64(32),
                                n % T.int64(32),
                                vector * T.int64(4) + lane,
                            ] * T.float32(2)

    tvm.ir.assert_structural_equal(schedule(Doubled), Expected)


def test_other_machines_and_the_switch_leave_the_loops(monkeypatch):
    assert ScheduleElementwise()(Doubled).same_as(Doubled)
    with tvm.target.Target("cuda"):
        assert ScheduleElementwise()(Doubled).same_as(Doubled)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "elementwise-schedule")
    assert schedule(Doubled).same_as(Doubled)


def test_loops_whose_iterations_share_an_element_are_left():
    @I.ir_module
    class Shared:
        @T.prim_func(s_tir=True)
        def main(
            x: T.Buffer((T.int64(512), T.int64(512)), "float32"),
            y: T.Buffer((T.int64(512),), "float32"),
        ):
            for i, j in T.grid(T.int64(512), T.int64(512)):
                with T.sblock("y"):
                    v_i = T.axis.opaque(T.int64(512), i)
                    v_j = T.axis.spatial(T.int64(512), j)
                    y[v_j] = x[v_i, v_j]

    assert not loops(schedule(Shared), tirx.ForKind.PARALLEL)


CASES = {
    "elementwise": ([(64, 1024)], lambda x: relax.op.nn.relu(x), lambda x: x.relu()),
    "one axis": ([(100_000,)], lambda x: relax.op.exp(x), lambda x: x.exp()),
    "two rows": ([(2, 50_000)], lambda x: relax.op.nn.gelu(x), torch.nn.functional.gelu),
    "outer": (
        [(300, 1), (1, 301)],
        lambda x, y: relax.op.multiply(x, y),
        lambda x, y: x * y,
    ),
    "max_pool": (
        [(2, 40, 34, 35)],
        lambda x: relax.op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)),
        lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1),
    ),
    "avg_pool": (
        [(2, 40, 34, 36)],
        lambda x: relax.op.nn.avg_pool2d(x, (2, 2), (2, 2)),
        lambda x: torch.nn.functional.avg_pool2d(x, 2),
    ),
    "concat": (
        [(2, 20, 41, 37), (2, 30, 41, 37)],
        lambda x, y: relax.op.concat([x, y], 1),
        lambda x, y: torch.cat([x, y], 1),
    ),
    "repeat": (
        [(20, 31, 33)],
        lambda x: relax.op.repeat(x, 4, 1),
        lambda x: x.repeat_interleave(4, 1),
    ),
    "transpose": ([(257, 259)], lambda x: relax.op.permute_dims(x), lambda x: x.T),
    "heads": (
        [(2, 65, 8 * 64)],
        lambda x: relax.op.permute_dims(relax.op.reshape(x, (2, 65, 8, 64)), (0, 2, 1, 3)),
        lambda x: x.reshape(2, 65, 8, 64).permute(0, 2, 1, 3),
    ),
}


@few(4)
@pytest.mark.parametrize("name", CASES)
def test_large_kernels_run_in_parallel(name):
    shapes, emit, reference = CASES[name]
    inputs = {f"x{i}": tensor(*shape) for i, shape in enumerate(shapes)}
    mod = build(inputs, lambda _, *xs: emit(*xs))
    extents = parallel_extents(mod)
    assert extents
    assert all(int(extent) > 1 for extent in extents)
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    expected = reference(*map(torch.from_numpy, data)).numpy()
    np.testing.assert_allclose(run(mod, *data, pipeline=pipeline()), expected, rtol=1e-5, atol=1e-5)


def test_loops_within_a_block_count_as_work():
    """Both versions, in parallel and serial, have a local buffer of their own."""
    rows = tirx.Var("rows", "int64")

    @T.prim_func(s_tir=True)
    def walk(x: T.Buffer((rows, 2048), "float32"), y: T.Buffer((rows,), "float32")):
        for i in range(rows):
            with T.sblock("y"):
                row = T.axis.spatial(rows, i)
                T.reads(x[row, 0:2048])
                T.writes(y[row])
                total = T.alloc_buffer((1,), "float32", scope="local")
                total[0] = T.float32(0)
                for j in range(2048):
                    total[0] = T.max(total[0], x[row, j])
                y[row] = total[0]

    mod = schedule(tvm.IRModule({"main": walk}))
    assert len(loops(mod, tirx.ForKind.PARALLEL)) == 1
    buffers: list[tirx.Var] = []
    structural_walk(mod["main"].body, (tirx.AllocBuffer, lambda one: buffers.append(one.buffer)))
    assert len(buffers) == len(set(buffers)) == 2
    built = tvm.compile(mod, target="llvm")
    for count in (1, 33):
        data = np.random.default_rng(count).random((count, 2048), "float32")
        out = tvm.runtime.tensor(np.empty(count, "float32"))
        built["main"](tvm.runtime.tensor(data), out)
        np.testing.assert_array_equal(out.numpy(), data.max(axis=1))


def test_small_kernels_do_not():
    mod = build({"x": tensor(60, 1000)}, lambda _, x: relax.op.nn.relu(x))
    assert not parallel_extents(mod)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "bool"])
def test_elements_of_other_sizes(dtype):
    mod = build(
        {"x": tensor(70, 1001, dtype=dtype), "y": tensor(70, 1001, dtype=dtype)},
        lambda _, x, y: relax.op.where(relax.op.equal(x, y), x, y),
    )
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 2, (70, 1001)).astype(np.dtype(dtype)) for _ in range(2))
    np.testing.assert_array_equal(run(mod, x, y, pipeline=pipeline()), np.where(x == y, x, y))


FUNCTIONS = list(
    itertools.product(["float16", "bfloat16", "float64"], ["gelu", "silu", "tanh", "exp"])
)


# Each function and each dtype is among every third case.
@few(2)
@pytest.mark.parametrize("dtype, name", FUNCTIONS if is_full() else FUNCTIONS[::3])
def test_functions_in_other_dtypes(name, dtype):
    functions = {"gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu}
    emit = {"gelu": relax.op.nn.gelu, "silu": relax.op.nn.silu}.get(name) or getattr(relax.op, name)
    x = torch.randn(70, 999, dtype=getattr(torch, dtype))
    reference = functions.get(name) or getattr(torch, name)
    mod = build({"x": tensor(70, 999, dtype=dtype)}, lambda _, x: emit(x))
    got = torch.from_dlpack(
        relax.VirtualMachine(relax.build(mod, "llvm", relax_pipeline=pipeline()), tvm.cpu())[
            "main"
        ](tvm.runtime.from_dlpack(x))
    )
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-12}[dtype]
    torch.testing.assert_close(got, reference(x), rtol=tolerance, atol=tolerance)


def test_bfloat16_constants_are_not_vectorized():
    """Symbolic extents prevent folding; TVM cannot store vectors of a constant."""
    n = tirx.Var("n", "int64")
    fill = relax.const(2.5, "bfloat16")

    def emit(builder, x):
        shape = relax.ShapeExpr([n, 24])
        results = [
            relax.op.full_like(x, fill),
            relax.op.zeros(shape, "bfloat16"),
            relax.op.triu(builder.emit(relax.op.full(shape, fill)), 1),
            relax.op.astype(relax.op.arange(0, n, 1, "int64"), "bfloat16"),
            relax.op.nn.pad(x, [1, 1, 0, 8], pad_value=2.5),
            relax.op.max(x, [1]),
        ]
        return relax.Tuple([builder.emit(one) for one in results])

    mod = build({"x": tensor(n, 24, dtype="bfloat16")}, emit)
    x = np.random.default_rng(0).integers(-4, 5, (5, 24)).astype(ml_dtypes.bfloat16)
    filled = np.full((5, 24), 2.5)
    expected = [
        filled,
        np.zeros((5, 24)),
        np.triu(filled, 1),
        np.arange(5),
        np.pad(x.astype("float32"), [(1, 1), (0, 8)], constant_values=2.5),
        x.max(1).astype("float32"),
    ]
    for got, want in zip(run(mod, x, pipeline=pipeline()), expected, strict=True):
        np.testing.assert_array_equal(got.astype("float32"), want)


def test_bfloat16_that_is_zero_in_each_row():
    """No element is below the diagonal, which only the bounds of the loops show."""
    mod = build(
        {"x": tensor(2, 4, 1, 4, dtype="bfloat16")},
        lambda builder, x: relax.op.tril(builder.emit(relax.op.min(x, [0], keepdims=True)), -2),
    )
    x = np.ones((2, 4, 1, 4), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), np.zeros_like(x[:1]))


def test_bfloat16_that_is_repeated():
    """TVM cannot store vectors of one element, either."""
    mod = build(
        {"x": tensor(4, 1, dtype="bfloat16")}, lambda _, x: relax.op.broadcast_to(x, [4, 64])
    )
    x = np.arange(4).reshape(4, 1).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), np.repeat(x, 64, 1))


@pytest.mark.parametrize("rows", [0, 1, 100] if is_full() else [0, 100])
def test_an_unknown_number_of_rows(rows):
    n = tirx.Var("n", "int64")
    mod = build({"x": tensor(n, 768)}, lambda _, x: relax.op.nn.silu(x))
    x = np.random.default_rng(0).standard_normal((rows, 768)).astype("float32")
    expected = torch.nn.functional.silu(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(run(mod, x, pipeline=pipeline()), expected, rtol=1e-5, atol=1e-6)


@batched(1 if is_full() else 2)
@given(st.data())
def test_random_broadcasts(data):
    """Axes of 1 among others, in two operands."""
    shape = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=4), "shape")
    shapes = [
        [n if data.draw(st.booleans()) else 1 for n in shape[data.draw(st.integers(0, 1)) :]]
        for _ in range(2)
    ]
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(own).astype("float32") for own in shapes)
    mod = build(
        {"x": tensor(*shapes[0]), "y": tensor(*shapes[1])},
        lambda _, x, y: relax.op.add(x, relax.op.multiply(x, y)),
    )
    np.testing.assert_allclose(run(mod, x, y, pipeline=pipeline()), x + x * y, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("extent", [17, 257])
def test_the_last_vector_does_not_read_what_is_done(extent):
    """TVM reuses the memory of the first result for the second, and the last vectors overlap."""

    def emit(builder, x):
        for _ in range(3):
            x = builder.emit(relax.op.tanh(x))
        return x

    x = np.random.default_rng(0).standard_normal((3, extent)).astype("float32")
    expected = np.tanh(np.tanh(np.tanh(x.astype("float64"))))
    got = run(build({"x": tensor(3, extent)}, emit), x, pipeline=pipeline())
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_positions_have_no_divisions():
    """A loop of a second stage, whose rows are no whole vectors, but whose channels are."""

    def emit(builder, x):
        largest = builder.emit(relax.op.nn.max_pool2d(x, (3, 3), padding=(1, 1)))
        return relax.op.multiply(relax.op.astype(largest, "int32"), relax.const(3, "int32"))

    lowered = []

    @tvm.instrument.pass_instrument
    class Keep:
        def run_after_pass(self, mod, info):
            if info.name == "tirx.VectorizeLoop":
                lowered.append(mod)

    with tvm.transform.PassContext(instruments=[Keep()]):
        mod = build({"x": tensor(1, 24, 10, 10, dtype="uint8")}, emit)
        relax.build(mod, tvm.target.Target("llvm"), relax_pipeline=pipeline())
    functions = [function for mod in lowered for _, function in mod.functions_items()]
    divided = (tirx.FloorDiv, tirx.FloorMod)
    for function in functions:
        assert not contains(function.body, divided, lambda node: str(node.ty) != "int32")
    assert any(contains(function.body, tirx.Ramp) for function in functions)


def test_of_unknown_extents_few_elements_are_not_shared_by_threads():
    n = tirx.Var("n", "int64")
    mod = build({"x": tensor(n, 3)}, lambda _, x: relax.op.nn.relu(x))
    with resolve("native"):
        kernel = ScheduleElementwise()(relax.transform.LegalizeOps()(mod))["relu"]
    conditions: list[tirx.IfThenElse] = []
    structural_walk(kernel.body, (tirx.IfThenElse, conditions.append))
    in_parallel = [
        [
            contains(branch, tirx.For, lambda loop: loop.kind == tirx.ForKind.PARALLEL)
            for branch in (condition.then_case, condition.else_case)
            if branch is not None
        ]
        for condition in conditions
    ]
    assert [True, False] in in_parallel


def test_rows_that_are_large_are_always_shared_by_threads():
    """TVM rejects a remainder modulo 2 * n where it can prove that n is 0."""

    def emit(bb, x):
        twice = bb.emit(relax.op.concat([x, x]))
        return relax.op.negative(bb.emit(relax.op.reshape(twice, (n * 2, 320, 16, 8))))

    n = tirx.Var("n", "int64")
    mod = build({"x": tensor(n, 16, 320, 8)}, emit)
    x = np.random.default_rng(0).random((2, 16, 320, 8), dtype="float32")
    expected = -np.concatenate([x, x]).reshape(4, 320, 16, 8)
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), expected)
    assert run(mod, x[:0], pipeline=pipeline()).shape == (0, 320, 16, 8)


def test_divisors_that_are_zero_for_large_kernels():
    """TVM rejects a division by the second extent where it can prove that n >= 65536."""

    def emit(bb, x):
        columns = tirx.max(tirx.min(tirx.min(n, 5 - n) - 1, 0) // 2 + 1, 0)
        part = bb.emit(relax.op.strided_slice(x, (1,), (n - 1,), (n - 1 + columns,)))
        part = bb.match_cast(part, tensor(n, columns))
        return relax.op.reshape(part, (n,))

    n = tirx.Var("n", "int64")
    mod = build({"x": tensor(n, n)}, emit)
    x = np.arange(16, dtype="float32").reshape(4, 4)
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), x[:, 3])


@pytest.mark.parametrize("extent", [0, 1, 5, 130] if is_full() else [0, 130])
def test_images_of_an_unknown_side(extent):
    """Only the largest images are split among threads."""
    n, side = tirx.Var("n", "int64"), tirx.Var("side", "int64")
    mod = build({"x": tensor(n, 4, side, side)}, lambda _, x: relax.op.nn.relu(x))
    x = np.random.default_rng(0).standard_normal((2, 4, extent, extent)).astype("float32")
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), np.maximum(x, 0))


@pytest.mark.parametrize("shape", [(18, 2), (2, 3, 3, 2), (3, 3, 7, 2), (5, 13, 3)])
def test_few_elements_are_left_to_llvm(shape):
    """LLVM's SLP vectorizer turns unrolled vectors of 18 elements into invalid code."""
    ones, zeros = (relax.const(np.full(shape[-1:], v, "float32")) for v in (1, 0))
    mod = build(
        {"x": tensor(*shape)}, lambda _, x: relax.op.nn.layer_norm(x, ones, zeros, axes=[-1])
    )
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    deviation = np.sqrt(x.var(-1, keepdims=True, dtype="float64") + 1e-5)
    expected = (x - x.mean(-1, keepdims=True, dtype="float64")) / deviation
    executable = relax.build(mod, resolve("native"), relax_pipeline=pipeline())
    got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
