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
"""PrepareLayout on chains of permutes, layout transforms and reshapes."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.grids import batched
from helpers.relax_modules import build, call, count, cpu, integers, merge, run, tensor
from tvm_fixes.relax.transform import FuseTransposeMatmul, PrepareLayout

pytestmark = pytest.mark.native

N = tvm.tirx.Var("n", "int64")
Step = tuple[Callable[..., relax.Expr], Any]


def chain(shape: tuple, *steps: Step) -> tvm.IRModule:
    """A function that applies a chain of unary operators."""

    def emit(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for operator, attribute in steps:
            x = builder.emit(operator(x, attribute))
        return x

    return build({"x": tensor(*shape)}, emit)


def moves(mod: tvm.IRModule) -> int:
    return count(mod, "relax.permute_dims") + count(mod, "relax.layout_transform")


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = PrepareLayout()(before)
    assert relax.analysis.check_well_formed(after)
    tvm.ir.assert_structural_equal(after, expected)
    assert PrepareLayout()(after)["main"].same_as(after["main"])


def pack(n, c, h, w):
    return n, c // 4, h, w, c % 4


def unpack(n, c, h, w, block):
    return n, c * 4 + block, h, w


def to_channels_last(n, c, h, w, block):
    return n, h, w, c * 4 + block


@pytest.mark.parametrize(
    "shape, steps, expected",
    [
        pytest.param(
            (2, 3, 4, 5),
            [(op.permute_dims, [1, 2, 3, 0]), (op.permute_dims, [2, 0, 1, 3])],
            [(op.permute_dims, [3, 1, 2, 0])],
            id="permutes",
        ),
        pytest.param(
            (2, 3, 4), [(op.permute_dims, [2, 0, 1]), (op.permute_dims, [1, 2, 0])], [], id="none"
        ),
        pytest.param(
            (2, 3, 4, 5),
            [
                (op.permute_dims, [0, 2, 3, 1]),
                (op.reshape, (2, 20, 3)),
                (op.permute_dims, [1, 0, 2]),
            ],
            [(op.permute_dims, [2, 3, 0, 1]), (op.reshape, (20, 2, 3))],
            id="past a merge",
        ),
        pytest.param(
            (4, 6),
            [(op.permute_dims, [1, 0]), (op.reshape, (2, 3, 4)), (op.permute_dims, [1, 2, 0])],
            [(op.reshape, (4, 2, 3)), (op.permute_dims, [2, 0, 1])],
            id="past a split",
        ),
        pytest.param(
            (N, 8, 3, 1),
            [(op.layout_transform, pack), (op.layout_transform, unpack)],
            [],
            id="there and back",
        ),
        pytest.param(
            (N, 8, 3, 5),
            [(op.layout_transform, pack), (op.layout_transform, to_channels_last)],
            [(op.permute_dims, [0, 2, 3, 1])],
            id="from one layout to another",
        ),
        pytest.param(
            (2, 2, 3, 5, 4),
            [(op.layout_transform, to_channels_last), (op.permute_dims, [0, 1, 2, 3])],
            [(op.layout_transform, to_channels_last)],
            id="one alone, and one that moves nothing",
        ),
        pytest.param(
            (N, 4, 3, 5),
            [
                (op.permute_dims, [0, 2, 3, 1]),
                (op.layout_transform, lambda n, h, w, c: (n, c // 4, h, w, c % 4)),
            ],
            [(op.permute_dims, [0, 2, 3, 1]), (op.reshape, relax.ShapeExpr([N, 1, 3, 5, 4]))],
            id="one axis of the result has one element",
        ),
        pytest.param(
            (N, 2, 3, 4),
            [
                (op.layout_transform, lambda n, c, h, b: (n, (c * 4 + b) // 2, h, (c * 4 + b) % 2)),
                (op.permute_dims, [0, 2, 1, 3]),
            ],
            [
                (op.permute_dims, [0, 2, 1, 3]),
                (op.reshape, relax.ShapeExpr([N, 3, 4, 2])),
            ],
            id="axes merged and split in one map",
        ),
        pytest.param(
            (2, N, 4),
            [
                (op.reshape, relax.ShapeExpr([2 * N, 4])),
                (op.permute_dims, [1, 0]),
                (op.reshape, relax.ShapeExpr([4, 2 * N])),
                (op.reshape, relax.ShapeExpr([4, 2, N])),
                (op.permute_dims, [1, 2, 0]),
            ],
            [],
            id="a symbolic extent merged and split",
        ),
        pytest.param(
            (2, 12),
            [(op.reshape, (2, 3, 4)), (op.reshape, (6, 4)), (op.squeeze, None)],
            [(op.reshape, (6, 4))],
            id="reshapes",
        ),
    ],
)
def test_chains_of_moves_are_merged(shape, steps, expected):
    check(chain(shape, *steps), chain(shape, *expected))


@pytest.mark.parametrize("factors", [(2, 2), (3, 1)])
def test_an_unpack_is_a_part_of_the_pixel_shuffle_behind_it(factors):
    """With blocks of 4, each holding a 2 x 2 square of pixels or channels of several squares."""
    blocks, side = factors[0] * factors[1], 2

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", blocks, "h", 5, 4), "float32")) -> R.Tensor(
            ("n", blocks, "h * 2", 10), "float32"
        ):
            n, h = T.int64(), T.int64()
            with R.dataflow():
                lv = R.layout_transform(x, lambda n, c, h, w, b: (n, c * 4 + b, h, w))
                lv1 = R.reshape(lv, R.shape([n, blocks, side, side, h, 5]))
                lv2 = R.permute_dims(lv1, [0, 1, 4, 2, 5, 3])
                gv = R.reshape(lv2, R.shape([n, blocks, h * 2, 10]))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", blocks, "h", 5, 4), "float32")) -> R.Tensor(
            ("n", blocks, "h * 2", 10), "float32"
        ):
            n, h = T.int64(), T.int64()
            with R.dataflow():
                lv = R.reshape(x, R.shape([n, blocks, h, 5, 2, 2]))
                lv1 = R.permute_dims(lv, [0, 1, 2, 4, 3, 5])
                gv = R.reshape(lv1, R.shape([n, blocks, h * 2, 10]))
                R.output(gv)
            return gv

    check(Before, Expected)
    x = integers(2, blocks, 3, 5, 4)
    np.testing.assert_array_equal(run(PrepareLayout()(Before), x), run(Before, x))


@pytest.mark.parametrize(
    "shape, steps",
    [
        pytest.param(
            (4, 6),
            [(op.permute_dims, [1, 0]), (op.reshape, (8, 3)), (op.permute_dims, [1, 0])],
            id="axes that share no factors",
        ),
        pytest.param(
            (3, 2 * N),
            [
                (op.permute_dims, [1, 0]),
                (op.reshape, relax.ShapeExpr([N, 6])),
                (op.permute_dims, [1, 0]),
            ],
            id="a symbolic extent of which no shape has the factors",
        ),
        pytest.param(
            (1, 6, 3, 5),
            [(op.layout_transform, pack), (op.permute_dims, [0, 2, 3, 1, 4])],
            id="padding",
        ),
        pytest.param(
            (4, 6),
            [
                (op.layout_transform, lambda i, j: (j, (i + j) % 4)),
                (op.permute_dims, [1, 0]),
            ],
            id="a skewed map",
        ),
        pytest.param(
            (4, 6),
            [(op.layout_transform, lambda i, j: (j, i % 2 * 2 + i % 2)), (op.permute_dims, [1, 0])],
            id="a map that is no bijection",
        ),
    ],
)
def test_unchanged(shape, steps):
    before = chain(shape, *steps)
    assert PrepareLayout()(before)["main"].same_as(before["main"])


def test_a_transpose_is_left_to_the_matmul_that_reads_it():
    def emit(builder, x, y):
        heads = builder.emit(op.permute_dims(y, [0, 2, 1, 3]))
        return op.matmul(x, builder.emit(op.permute_dims(heads, [0, 1, 3, 2])))

    before = build({"x": tensor(2, 3, 4, 5), "y": tensor(2, 6, 3, 5)}, emit)
    after = PrepareLayout()(before)
    assert after["main"].same_as(before["main"])
    fused = relax.transform.DeadCodeElimination()(FuseTransposeMatmul()(after))
    assert count(fused, "relax.permute_dims") == 1


def test_a_value_with_other_readers_is_kept():
    def emit(joins):
        def emit(builder, x):
            packed = builder.emit(op.layout_transform(x, pack))
            first = builder.emit(op.nn.relu(packed))
            back = x if joins else builder.emit(op.layout_transform(packed, unpack))
            return builder.emit(relax.Tuple([first, builder.emit(op.nn.relu(back))]))

        return emit

    x = {"x": tensor(2, 8, 3, 5)}
    check(build(x, emit(joins=False)), build(x, emit(joins=True)))


def test_local_values_of_a_dataflow_block_are_not_read_after_it():
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor(2, 3, 4))
    with builder.function("main", [x]):
        with builder.dataflow():
            inner = builder.emit(op.nn.relu(x))
            outer = builder.emit_output(op.permute_dims(inner, [1, 2, 0]))
        builder.emit_func_output(builder.emit(op.permute_dims(outer, [2, 0, 1])))
    before = builder.get()
    after = PrepareLayout()(before)
    assert relax.analysis.check_well_formed(after)
    assert after["main"].same_as(before["main"])


BATCH = 3


@dataclass
class Chain:
    """Random steps that split, permute and merge factors of a shape, for Relax and NumPy.

    ``axes`` holds the factors of each axis; 0 stands for the symbolic batch, which stays a separate
    axis.
    """

    axes: list[list[int]]
    batch: tvm.tirx.Var = field(default_factory=lambda: tvm.tirx.Var("n", "int64"))
    steps: list[Step] = field(default_factory=list)
    numpy: list[tuple[str, list[int]]] = field(default_factory=list)

    def shape(self, batch: Any) -> list:
        return [batch if 0 in axis else math.prod(axis) for axis in self.axes]

    def merge(self, cuts: list[bool]) -> None:
        """Begin a new axis at each factor marked in `cuts`."""
        axes: list[list[int]] = []
        for factor, cut in zip(itertools.chain.from_iterable(self.axes), cuts, strict=True):
            if cut or not axes or 0 in (factor, axes[-1][-1]):
                axes.append([])
            axes[-1].append(factor)
        self.axes = axes

    def reshape(self, cuts: list[bool]) -> None:
        self.merge(cuts)
        self.steps.append((op.reshape, self.shape(self.batch)))
        self.numpy.append(("reshape", self.shape(BATCH)))

    def permute(self, order: list[int]) -> None:
        order = [axis for axis in order if axis < len(self.axes)]
        self.axes = [self.axes[axis] for axis in order]
        self.steps.append((op.permute_dims, order))
        self.numpy.append(("transpose", order))

    def transform(self, order: list[int], cuts: list[bool]) -> None:
        """Split every axis into its factors, permute and merge them, by one index map."""
        before = self.axes
        factors = list(itertools.chain.from_iterable(before))
        self.numpy.append(("reshape", [factor or BATCH for factor in factors]))
        self.numpy.append(("transpose", order))
        self.axes = [[factors[place]] for place in order]
        self.merge(cuts)
        self.numpy.append(("reshape", self.shape(BATCH)))
        lengths = [len(axis) for axis in self.axes]

        def index_map(*indices: tvm.tirx.Var) -> list:
            digits = []
            for index, axis in zip(indices, before, strict=True):
                for place, factor in enumerate(axis):
                    inner = math.prod(axis[place + 1 :])
                    digits.append(index // inner % factor if len(axis) > 1 else index)
            permuted = iter([(digits[place], factors[place]) for place in order])
            merged = []
            for length in lengths:
                value = 0
                for digit, factor in itertools.islice(permuted, length):
                    value = value * factor + digit
                merged.append(value)
            return merged

        made = tvm.tirx.IndexMap.from_func(index_map, ndim=len(before), index_dtype="int64")
        self.steps.append((op.layout_transform, made))


@st.composite
def chains(draw):
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 4]), min_size=2, max_size=5))
    if draw(st.booleans()):
        factors.insert(0, 0)
    order = st.permutations(range(len(factors)))
    cuts = st.lists(st.booleans(), min_size=len(factors), max_size=len(factors))
    made = Chain([[factor] for factor in factors])
    made.merge(draw(cuts))
    shape, extents = made.shape(made.batch), made.shape(BATCH)
    for _ in range(draw(st.integers(2, 6))):
        step = draw(st.sampled_from([made.permute, made.reshape, made.transform]))
        step(*(draw(order if name == "order" else cuts) for name in signature(step).parameters))
    return shape, extents, made


@batched(10)
@given(st.lists(chains(), min_size=10, max_size=10))
def test_any_chain_moves_data_once(cases):
    mods, arguments, expected = {}, {}, {}
    for index, (shape, extents, made) in enumerate(cases):
        name = f"case{index}"
        mods[name] = chain(shape, *made.steps)
        arguments[name] = value = np.arange(math.prod(extents), dtype="float32").reshape(extents)
        for method, attribute in made.numpy:
            value = getattr(value, method)(attribute)
        expected[name] = value
    after = PrepareLayout()(merge(mods))
    assert relax.analysis.check_well_formed(after)
    for name in mods:
        assert moves(tvm.IRModule({"main": after[name]})) <= 1
    vm = relax.VirtualMachine(relax.build(after, cpu()), tvm.cpu())
    for name, argument in arguments.items():
        np.testing.assert_array_equal(call(vm, name, argument), expected[name])


@st.composite
def loose_chains(draw):
    """A shape, and permutes and reshapes that need not share factors."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=2, max_size=4))
    present, steps = shape, []
    for _ in range(draw(st.integers(2, 5))):
        if draw(st.booleans()):
            axes = draw(st.permutations(range(len(present))))
            present = [present[axis] for axis in axes]
            steps.append((op.permute_dims, axes))
            continue
        left, present = math.prod(present), []
        while left > 1 or not present:
            present.append(
                draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0] or [1]))
            )
            left //= present[-1]
        steps.append((op.reshape, present))
    return shape, steps


@batched(10)
@given(st.lists(loose_chains(), min_size=10, max_size=10))
def test_a_partially_merged_chain_keeps_its_numbers(cases):
    mods = {f"case{index}": chain(shape, *steps) for index, (shape, steps) in enumerate(cases)}
    after = PrepareLayout()(merge(mods))
    assert relax.analysis.check_well_formed(after)
    vm = relax.VirtualMachine(relax.build(after, cpu()), tvm.cpu())
    for (name, before), (shape, steps) in zip(mods.items(), cases, strict=True):
        assert moves(tvm.IRModule({"main": after[name]})) <= moves(before)
        argument = np.arange(math.prod(shape), dtype="float32").reshape(shape)
        expected = argument
        for operator, attribute in steps:
            method = np.transpose if operator is op.permute_dims else np.reshape
            expected = method(expected, attribute)
        np.testing.assert_array_equal(call(vm, name, argument), expected)


if __name__ == "__main__":
    tvm.testing.main()
