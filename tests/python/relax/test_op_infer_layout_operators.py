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
"""Operators without a layout rule in TVM follow the layout of their data."""

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm.testing
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from helpers.grids import batched, is_full, sample
from helpers.layout_cases import Case, check_conversion, check_values, convert, module, ways
from helpers.layout_operator_cases import (
    BOUNDARIES,
    FOLLOWED,
    RESTORED,
    SHAPES,
    cases_of_rank,
    indices,
)
from helpers.relax_modules import build, calls, integers, run, tensor
from tvm_fixes.support import switches

pytestmark = pytest.mark.native

CONV2D_NHWC = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
CONV2D_NCHW4C = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}


def channels_last(before: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.ConvertLayout(CONV2D_NHWC)(before)


def after_convolution(emit: Callable[[relax.Expr], relax.Expr]) -> tvm.IRModule:
    def emit_all(builder, x, w):
        return emit(builder.emit(op.nn.conv2d(x, w)))

    return build({"x": tensor(2, 8, 6, 5), "w": tensor(8, 8, 1, 1)}, emit_all)


def expect_channels_last(
    emit: Callable[[relax.Expr], relax.Expr], back: tuple[int, ...], restored: bool = False
) -> tvm.IRModule:
    """Return :func:`after_convolution` in NHWC."""

    def emit_all(builder, x, w):
        x, w = (builder.emit(op.permute_dims(operand, [0, 2, 3, 1])) for operand in (x, w))
        y = builder.emit(op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI"))
        if restored:
            return emit(builder.emit(op.permute_dims(y, back)))
        y = emit(y)
        return y if list(back) == sorted(back) else op.permute_dims(builder.emit(y), back)

    return build({"x": tensor(2, 8, 6, 5), "w": tensor(8, 8, 1, 1)}, emit_all)


class TestChannelsLast:
    @pytest.mark.parametrize("name", FOLLOWED)
    def test_followed(self, name):
        case = FOLLOWED[name]
        after = channels_last(after_convolution(case.emit))
        tvm.ir.assert_structural_equal(after, expect_channels_last(case.nhwc, case.back))

    @pytest.mark.parametrize("name", RESTORED)
    def test_restored(self, name):
        after = channels_last(after_convolution(RESTORED[name]))
        expected = expect_channels_last(RESTORED[name], (0, 3, 1, 2), restored=True)
        tvm.ir.assert_structural_equal(after, expected)


class TestPacked:
    @pytest.mark.parametrize("name", FOLLOWED)
    def test_followed_unless_the_split_axis_counts(self, name):
        before = after_convolution(FOLLOWED[name].emit)
        after = check_conversion(before, {"w": CONV2D_NCHW4C["relax.nn.conv2d"]})
        (operator,) = {made.op.name for made in calls(before)} - {"relax.nn.conv2d"}
        (got,) = calls(after, operator)
        shape = (2, 2, 6, 5, 4) if FOLLOWED[name].packed else (2, 8, 6, 5)
        emit = FOLLOWED[name].packed or FOLLOWED[name].emit
        (expected,) = calls(build({"x": tensor(*shape)}, lambda _, x: emit(x)))
        tvm.ir.assert_structural_equal(got.attrs, expected.attrs)
        for got_value, expected_value in zip(
            [got, *got.args], [expected, *expected.args], strict=True
        ):
            tvm.ir.assert_structural_equal(got_value.ty, expected_value.ty)


def grid() -> list[tuple[Case, tuple[str, ...]]]:
    """Every case of every rank with operands that arrive in every way."""
    rng = np.random.default_rng(0)
    cases = []
    for ndim in SHAPES:
        for case in cases_of_rank(ndim):
            by_operand = [
                ways(shape) + ["".join(map(str, rng.permutation(len(shape))))] * (len(shape) > 1)
                for shape in case.shapes
            ]
            widest = max(range(len(by_operand)), key=lambda i: len(by_operand[i]))
            for way in by_operand[widest]:
                arrivals = [str(rng.choice(operand)) for operand in by_operand]
                arrivals[widest] = way
                cases.append((case, tuple(arrivals)))
    return cases


GRID = grid()
DYNAMIC_GRID = [
    (case, arrivals)
    for case, arrivals in GRID
    if not case.static and len(case.shapes[0]) == 4 and {"N*C", "NC*4c", "3102"} & set(arrivals)
]
# Cases per module: build time grows faster than the number of functions.
BATCH = 24


class TestValues:
    @pytest.mark.parametrize("dynamic", [False, True])
    def test_grid(self, dynamic):
        chosen = sample(DYNAMIC_GRID, BATCH // 2) if dynamic else sample(GRID, BATCH)
        for start in range(0, len(chosen), BATCH):
            check_values(
                {
                    f"{case.id} {arrivals}": module(case, arrivals, dynamic)
                    for case, arrivals in chosen[start : start + BATCH]
                }
            )


class TestUnknownShapes:
    # Type inference of these operators requires the shape.
    UNTYPED = ("relax.quantize", "relax.dequantize", "relax.broadcast_to")

    @pytest.mark.parametrize("ndim", SHAPES)
    def test_rank_alone_is_known(self, ndim):
        for case in cases_of_rank(ndim):
            if case.operator not in self.UNTYPED:
                arrivals = ["543210"[6 - len(shape) :] or "plain" for shape in case.shapes]
                before, _, _ = module(case, arrivals, known_shapes=False)
                check_conversion(before, {})

    @pytest.mark.parametrize("name", ["clip", "argmax", "sort", "topk", "where"])
    def test_unknown_rank(self, name):
        def emit(builder, x):
            return FOLLOWED[name].emit(builder.emit(op.permute_dims(x)))

        before = build({"x": relax.TensorType(dtype="float32")}, emit)
        tvm.ir.assert_structural_equal(check_conversion(before, {}), before)


def test_two_packings_of_one_call_are_unpacked():
    def emit(builder, x, w, v):
        y = builder.emit(op.nn.conv2d(x, w))
        z = builder.emit(op.nn.conv2d(x, v))
        condition = builder.emit(op.greater(y, relax.const(0.0)))
        return op.where(condition, y, z)

    kernel = tensor(8, 8, 1, 1)
    before = build({"x": tensor(2, 8, 6, 5), "w": kernel, "v": kernel}, emit)
    after = convert(before, {"w": ["NCHW4c", "OIHW4i4o"], "v": ["NCHW8c", "OIHW8i8o"]})
    assert relax.analysis.check_well_formed(after)
    (where,) = calls(after, "relax.where")
    assert [len(arg.ty.shape) for arg in where.args] == [4, 4, 4]


def test_switch(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "operators-infer-layout")
    for name in ("clip", "pad", "cumsum", "where, per channel", "broadcast_to"):
        after = channels_last(after_convolution(FOLLOWED[name].emit))
        expected = expect_channels_last(FOLLOWED[name].emit, (0, 3, 1, 2), restored=True)
        tvm.ir.assert_structural_equal(after, expected)


class TestPackedShapes:
    """Reshape, squeeze and permute_dims of packed data."""

    @pytest.mark.parametrize(
        "emit, packed",
        [
            (lambda x: op.reshape(x, (2, 8, 30)), (2, 2, 30, 4)),
            (lambda x: op.reshape(x, (2, 1, 8, 6, 5)), (2, 1, 2, 6, 5, 4)),
            (lambda x: op.reshape(x, (2, 4, 2, 6, 5)), None),
            (lambda x: op.reshape(x, (16, 6, 5)), None),
            (lambda x: op.reshape(x, (2, 8, 5, 6)), (2, 2, 5, 6, 4)),
            (lambda x: op.squeeze(op.max(x, [2], keepdims=True), [2]), (2, 2, 5, 4)),
            (lambda x: op.squeeze(op.max(x, [-2, -1], keepdims=True)), (2, 2, 4)),
            # An axis with an extent other than 1 is kept.
            (lambda x: op.squeeze(op.max(x, [2], keepdims=True), [1, 2, 3]), (2, 2, 5, 4)),
            (lambda x: op.permute_dims(x, [0, 2, 3, 1]), None),
            (lambda x: op.permute_dims(x, [0, -2, -1, 1]), None),
            (lambda x: op.permute_dims(x), None),
        ],
    )
    def test_split_axis_must_stay_whole(self, emit, packed):
        before = after_convolution(emit)
        after = relax.transform.ConvertLayout(CONV2D_NCHW4C)(before)
        last = calls(after)[-1] if packed is None else calls(after)[-2]
        assert (last.op.name == "relax.layout_transform") is False
        shape = before["main"].ret_ty.shape if packed is None else packed
        assert [int(dim) for dim in last.ty.shape] == [int(dim) for dim in shape]
        args = integers(2, 8, 6, 5), integers(8, 8, 1, 1, seed=1)
        np.testing.assert_array_equal(run(after, *args), run(before, *args))


def reshaped(draw, x: relax.Expr, dims: list[int]) -> relax.Expr:
    """Merge two axes, split one, or make one of extent 1."""
    at = draw(st.integers(0, len(dims) - 1))
    kind = draw(st.sampled_from(["merge", "split", "unit"]))
    if kind == "merge" and at > 0:
        dims[at - 1 : at + 1] = [dims[at - 1] * dims[at]]
    elif kind == "split" and dims[at] % 2 == 0:
        dims[at : at + 1] = [2, dims[at] // 2]
    else:
        dims.insert(at, 1)
    return op.reshape(x, dims)


def padded(draw, x: relax.Expr, dims: list[int]) -> relax.Expr:
    widths = [draw(st.integers(0, min(dim - 1, 2))) for dim in dims for _ in range(2)]
    mode = draw(st.sampled_from(["constant", "reflect", "replicate", "circular"]))
    return op.nn.pad(x, widths, mode)


def quantized(draw, x: relax.Expr, dims: list[int]) -> relax.Expr:
    axis = draw(st.integers(-len(dims), len(dims) - 1))
    shape = draw(st.sampled_from([(), (dims[axis],)]))
    scale = relax.const(2.0 ** np.clip(integers(*shape, seed=1), -1, 1))
    zero = relax.const(integers(*shape, seed=2).astype("int8"))
    return op.dequantize(op.quantize(x, scale, zero, axis), scale, zero, axis)


def along_an_axis(draw, x: relax.Expr, dims: list[int]) -> relax.Expr:
    axis = draw(st.integers(-len(dims), len(dims) - 1))
    batch = (axis + 1) % len(dims)
    keepdims = draw(st.booleans())
    emit = draw(
        st.sampled_from(
            [
                lambda: op.round(op.nn.log_softmax(x, axis)),
                lambda: op.astype(op.argmax(x, axis, keepdims), "float32"),
                lambda: op.astype(op.argmin(x, axis, keepdims), "float32"),
                lambda: op.cumsum(x, axis),
                lambda: op.cumprod(op.sign(x), axis, exclusive=keepdims),
                lambda: op.sort(x, axis, keepdims),
                lambda: op.astype(op.argsort(x, axis, keepdims), "float32"),
                lambda: op.topk(x, 1, axis, "values"),
                lambda: relax.TupleGetItem(op.topk(x, dims[axis], axis), 0),
                lambda: op.take(x, indices(2), axis, "clip"),
                lambda: op.take(x, indices(2, 1), axis, "clip"),
                lambda: op.take(x, indices(), axis, "clip"),
                lambda: op.reverse_sequence(x, indices(dims[batch]), axis, batch),
            ]
        )
    )
    return emit()


def elementwise(draw, x: relax.Expr, _: list[int]) -> relax.Expr:
    emit = draw(
        st.sampled_from(
            [
                lambda: op.nn.relu(x),
                lambda: op.nn.leakyrelu(x, 0.5),
                lambda: op.clip(x, -1, 3),
                lambda: op.round(op.nn.softplus(x)),
                lambda: op.add(op.ones_like(x), x),
                lambda: op.multiply(op.full_like(x, relax.const(2.0)), op.zeros_like(x)),
                lambda: op.astype(op.bucketize(x, BOUNDARIES), "float32"),
            ]
        )
    )
    return emit()


def broadcast(draw, x: relax.Expr, dims: list[int]) -> relax.Expr:
    wider = [3 if dim == 1 and draw(st.booleans()) else dim for dim in dims]
    leading = draw(st.sampled_from([[], [2], [1, 2]]))
    return op.broadcast_to(x, leading + wider)


def triangular(draw, x: relax.Expr, dims: list[int]) -> relax.Expr:
    if len(dims) > 2 and dims[-3] % 4 == 0 and draw(st.booleans()):
        return op.nn.pixel_shuffle(x, 2)
    if len(dims) < 2:
        return x
    return draw(st.sampled_from([op.tril, op.triu]))(x, draw(st.integers(-1, 2)))


def permuted(draw, x: relax.Expr, dims: list[int]) -> relax.Expr:
    return op.permute_dims(x, draw(st.permutations(range(len(dims)))))


STEPS = (
    reshaped,
    padded,
    quantized,
    along_an_axis,
    elementwise,
    broadcast,
    triangular,
    permuted,
    "where",
    "squeeze",
)
MAX_ELEMENTS, MAX_AXES = 4000, 6


@st.composite
def random_graph(draw):
    """Operators of this file, permutes and reshapes after one convolution, and before another."""
    shape = (2, 8, draw(st.sampled_from([1, 2, 3])), 2)

    def emit(builder, x, w, v):
        values = [builder.emit(op.nn.conv2d(x, w))]
        for step in draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=8)):
            x = draw(st.sampled_from(values[-2:]))
            dims = [int(dim) for dim in x.ty.shape]
            if step == "where":
                other = draw(st.sampled_from(values))
                same_shape = tvm_ffi.structural_equal(other.ty, x.ty)
                condition = op.greater(x, relax.const(0.0))
                x = op.where(condition, x, other if same_shape else relax.const(-1.0))
            elif not dims or step == "squeeze":
                x = op.squeeze(x)
            else:
                x = step(draw, x, dims)
            x = builder.emit(op.clip(x, -4, 4))
            if (
                len(x.ty.shape) <= MAX_AXES
                and np.prod([int(d) for d in x.ty.shape]) <= MAX_ELEMENTS
            ):
                values.append(x)
        out = values[-1]
        joins = len(out.ty.shape) == 4 and int(out.ty.shape[1]) == 8
        return op.nn.conv2d(out, v) if joins else out

    kernel = tensor(8, 8, 1, 1)
    before = build({"x": tensor(*shape), "w": kernel, "v": kernel}, emit)
    layouts = draw(st.sampled_from([["NHWC", "OHWI"], ["NCHW4c", "OIHW4i4o"]]))
    return before, shape, {"w": layouts, "v": layouts}


@batched(8 if is_full() else 16)
@given(st.lists(random_graph(), min_size=8, max_size=8))
def test_random_graphs_keep_their_values(graphs):
    kernels = [integers(8, 8, 1, 1, seed=seed) for seed in (1, 2)]
    check_values(
        {
            f"{i}: {before}": (before, [integers(*shape), *kernels], layouts)
            for i, (before, shape, layouts) in enumerate(graphs)
        }
    )


if __name__ == "__main__":
    tvm.testing.main()
