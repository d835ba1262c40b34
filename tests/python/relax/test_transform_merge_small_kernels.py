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
"""MergeSmallKernels."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, te, tirx
from tvm.script import tirx as T

from helpers.grids import few
from helpers.relax_modules import build, call, calls, cpu, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.kernel_calls import kernel_calls
from tvm_fixes.relax.source_nodes import SourceNode, mark, spread
from tvm_fixes.relax.transform import MergeSmallKernels, merge_small_kernels
from tvm_fixes.relax.transform.merge_small_kernels import (
    FIX_ID,
    MAX_ELEMENTS,
    MAX_KERNELS,
    MAX_SYMBOLIC_LOCAL,
)
from tvm_fixes.support import ambient, switches
from tvm_fixes.support.declined import NotDone
from tvm_fixes.support.isolate import run_forked

op = relax.op
N = tirx.Var("n", "int64")


def merged(inputs, emit):
    """A module of kernels before and after the pass."""
    mod = relax.transform.LegalizeOps()(build(inputs, emit))
    return mod, MergeSmallKernels()(mod)


def kernels(mod):
    return len(calls(mod, "relax.call_tir"))


def outputs_of(mod, *arguments):
    machine = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    result = call(machine, "main", *arguments)
    return result if isinstance(result, list) else [result]


def rows(builder, x):
    """A softmax, its largest place and its sum, through seven operators."""
    scaled = builder.emit(op.multiply(builder.emit(op.subtract(x, relax.const(0.5))), x))
    share = builder.emit(op.nn.softmax(scaled))
    best = builder.emit(op.argmax(share, 1))
    total = builder.emit(op.sum(builder.emit(op.abs(share)), 1, keepdims=True))
    return builder.emit(relax.Tuple([best, builder.emit(op.divide(share, total)), total]))


def rows_of(x):
    scaled = (x - np.float32(0.5)) * x
    share = np.exp(scaled - scaled.max(axis=1, keepdims=True, initial=-np.inf))
    share = share / share.sum(axis=1, keepdims=True)
    total = np.abs(share).sum(axis=1, keepdims=True)
    return share.argmax(axis=1), share / total, total


def test_kernels_in_a_row_become_one():
    before, after = merged({"x": tensor(N, 4)}, rows)
    assert (kernels(before), kernels(after)) == (7, 1)


@few(2)
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_of_symbolic_extents(count, symbolic_rows):
    x = np.random.default_rng(count).normal(size=(count, 4)).astype("float32")
    best, share, total = call(symbolic_rows, "main", x)
    expected = rows_of(x)
    np.testing.assert_array_equal(best, expected[0])
    np.testing.assert_allclose(share, expected[1], rtol=1e-6)
    np.testing.assert_allclose(total, expected[2], rtol=1e-6)


@pytest.fixture(scope="module")
def symbolic_rows():
    executable = relax.build(build({"x": tensor(N, 4)}, rows), cpu(), relax_pipeline=pipeline())
    return relax.VirtualMachine(executable, tvm.cpu())


def chain(number):
    def emit(builder, x):
        for _ in range(number):
            x = builder.emit(op.sum(x, 1, keepdims=True))
        return x

    return emit


def test_a_kernel_that_nothing_reads_is_dropped_with_its_operands():
    def emit(builder, x, y):
        builder.emit(op.add(x, y))
        return op.exp(builder.emit(op.abs(y)))

    _, after = merged({"x": tensor(4), "y": tensor(4)}, emit)
    (only,) = calls(after, "relax.call_tir")
    assert [operand.name for operand in only.args[1].fields] == ["y"]
    assert len(after[only.args[0]].params) == 2


def test_large_groups_are_split():
    _, after = merged({"x": tensor(2, 3)}, chain(2 * MAX_KERNELS + 1))
    assert kernels(after) == 3


def test_large_tensors_are_unchanged():
    small, large = MAX_ELEMENTS // 2, MAX_ELEMENTS + 1
    for extent, expected in ((small, 1), (large, 2)):
        _, after = merged({"x": tensor(extent)}, lambda b, x: op.exp(b.emit(op.negative(x))))
        assert kernels(after) == expected


def test_long_results_of_symbolic_extents_are_left_to_the_planner():
    """Their memory would not be used again."""
    for extent, expected in ((MAX_SYMBOLIC_LOCAL // 2, 1), (MAX_SYMBOLIC_LOCAL, 2)):
        inputs = {"x": tensor(N, extent)}
        _, after = merged(inputs, lambda b, x: op.exp(b.emit(op.negative(x))))
        assert kernels(after) == expected


def test_a_kernel_that_reads_a_large_result_begins_a_group():
    def emit(builder, x, y):
        a = builder.emit(op.exp(builder.emit(op.negative(x))))
        wide = builder.emit(op.broadcast_to(a, (MAX_ELEMENTS, 2)))
        b = builder.emit(op.sum(wide))
        return builder.emit(op.add(builder.emit(op.negative(b)), y))

    before, after = merged({"x": tensor(2), "y": tensor()}, emit)
    assert (kernels(before), kernels(after)) == (6, 4)  # exp∘negative, broadcast, sum, two more
    x, y = np.array([0.1, 0.2], "float32"), np.array(3, "float32")
    (got,) = outputs_of(before, x, y)
    np.testing.assert_allclose(got, y - MAX_ELEMENTS * np.exp(-x).sum(), rtol=1e-4)


def test_symbols_that_no_operand_has_are_unchanged():
    m = tirx.Var("m", "int64")

    def emit(builder, x):
        builder.match_cast(
            builder.emit(op.call_pure_packed("sizes", x, ty_args=[relax.ShapeType(ndim=1)])),
            relax.ShapeType([m]),
        )
        a = builder.emit(op.full((m,), relax.const(1.0)))
        return builder.emit(op.concat([a, builder.emit(op.full((m,), relax.const(2.0)))]))

    before, after = merged({"x": tensor(2)}, emit)
    assert kernels(after) == kernels(before)


def test_kernels_in_branches():
    def branch(builder, x, factor):
        return builder.emit(op.exp(builder.emit(op.multiply(x, relax.const(factor)))))

    builder = relax.BlockBuilder()
    flag, x = relax.Var("flag", tensor(dtype="bool")), relax.Var("x", tensor(N, 2))
    with builder.function("main", [flag, x]):
        parts = []
        for factor in (2.0, 3.0):
            inner = relax.BlockBuilder()
            with inner.function("f", [x]):
                inner.emit_func_output(branch(inner, x, factor))
            parts.append(inner.get()["f"].body)
        builder.emit_func_output(builder.emit(relax.If(flag, *parts)))
    before = relax.transform.LegalizeOps()(builder.get())
    assert (kernels(before), kernels(MergeSmallKernels()(before))) == (4, 2)
    value = np.ones((3, 2), "float32")
    for chosen, factor in ((True, 2), (False, 3)):
        (got,) = outputs_of(before, np.array(chosen), value)
        np.testing.assert_allclose(got, np.exp(value * factor), rtol=1e-6)


def test_extents_of_32_bits():
    """FuseTIR demands the types of the tensors, whose extents have 64 bits."""

    @T.prim_func(private=True, s_tir=True)
    def double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")) -> None:
        T.func_attr({"tirx.noalias": True})
        for i in range(4):
            with T.sblock("double"):
                at = T.axis.spatial(4, i)
                y[at] = x[at] * T.float32(2)

    def emit(builder, x):
        kernel = builder.add_func(double, "double")
        twice = builder.emit(relax.call_tir(kernel, [x], tensor(4)))
        return builder.emit(relax.call_tir(kernel, [twice], tensor(4)))

    before, after = merged({"x": tensor(4)}, emit)
    assert kernels(after) == 1
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(outputs_of(before, x)[0], 4 * x)


def test_a_result_that_is_read_twice_is_computed_once():
    def emit(builder, x):
        a = builder.emit(op.negative(x))
        return builder.emit(relax.Tuple([a, builder.emit(op.add(a, x)), a]))

    _, after = merged({"x": tensor(3)}, emit)
    assert kernels(after) == 1
    x = np.arange(3, dtype="float32")
    got = outputs_of(after, x)
    for value, expected in zip(got, (-x, 0 * x, -x), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_merged_kernel_has_the_nodes_of_its_parts():
    before, _ = merged({"x": tensor(3)}, lambda b, x: op.exp(b.emit(op.negative(x))))
    first, second = (SourceNode(name, name) for name in ("a", "b"))
    for binding, node in zip(before["main"].body.blocks[0].bindings, (first, second), strict=False):
        mark(binding.var, node)
    spread(before)
    merged_calls = kernel_calls(MergeSmallKernels()(before))
    assert merged_calls.nodes == (first, second)
    assert [call.nodes for call in merged_calls.calls] == [(0, 1)]


def test_buffers_with_an_offset_of_their_own():
    """Those of ``te.extern``; FuseTIR joins only buffers that are alike."""

    def emit(builder, x):
        shifted = builder.emit(op.add(x, relax.const(1.0)))
        order = builder.emit(op.sort(shifted, 1))
        return builder.emit(op.multiply(order, shifted))

    x = np.random.default_rng(0).standard_normal((2, 5), "float32")
    [got] = outputs_of(build({"x": tensor(2, 5)}, emit), x)
    np.testing.assert_array_equal(got, np.sort(x + 1, 1) * (x + 1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_softmax_of_16_bits_behind_another_kernel(dtype):
    """The kernel of a bfloat16 softmax reads the bits of its operand."""
    x = np.linspace(-2, 2, 15).reshape(3, 5).astype(dtype)
    inputs = {"x": tensor(3, 5, dtype=dtype)}
    mod = build(inputs, lambda bb, x: op.nn.softmax(bb.emit(op.negative(x)), -1))
    [got] = outputs_of(mod, x)
    exact = np.exp(-x.astype("float64"))
    expected = exact / exact.sum(-1, keepdims=True)
    np.testing.assert_allclose(got.astype("float64"), expected, rtol=1e-2)


def test_a_reduction_over_symbolic_axes_without_elements():
    """Its kernel divides by n for the indices, and the slice before it may be empty."""

    def emit(builder, x):
        part = builder.emit(op.strided_slice(x, [0, 2], [0, 0], [N, N], assume_inbound=True))
        return builder.emit(op.max(part, keepdims=True))

    mod = build({"x": tensor(N, 5, N, dtype="int32")}, emit)
    machine = relax.VirtualMachine(relax.build(mod, "llvm", relax_pipeline=pipeline()), tvm.cpu())
    for size in (0, 1, 3):
        x = np.arange(5 * size * size, dtype="int32").reshape(size, 5, size)
        largest = run_forked(lambda x=x: int(call(machine, "main", x).reshape(())), timeout=60)
        assert largest.value == x.max(initial=-(2**31))


def test_what_fuse_tir_rejects_is_unchanged(monkeypatch):
    def fail(_groups):
        raise tvm.error.InternalError("for the test")

    monkeypatch.setattr(merge_small_kernels, "_merged_kernels", fail)
    with ambient.collect() as facts:
        before, after = merged({"x": tensor(N, 4)}, rows)
    tvm.ir.assert_structural_equal(after, before)
    assert "FuseTIR rejects them: for the test" in facts.of(NotDone)[0].reason


def test_switched_off(monkeypatch):
    mod, _ = merged({"x": tensor(3)}, lambda b, x: op.exp(b.emit(op.negative(x))))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert MergeSmallKernels()(mod).same_as(mod)


def test_equal_groups_share_a_kernel():
    """A model of equal layers does not get one kernel for each of them."""

    def emit(builder, x):
        for _ in range(3):
            x = builder.emit(op.exp(builder.emit(op.negative(x))))
            wide = builder.emit_te(lambda a: te.compute((2 * MAX_ELEMENTS,), lambda _: a[0]), x)
            x = builder.emit_te(lambda a: te.compute((3,), lambda i: a[i]), wide)
        return x

    _, after = merged({"x": tensor(3)}, emit)
    names = {str(call.args[0].name_hint) for call in calls(after, "relax.call_tir")}
    assert len([name for name in names if "negative" in name]) == 1


if __name__ == "__main__":
    tvm.testing.main()
