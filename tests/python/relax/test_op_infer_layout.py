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
"""FRelaxInferLayout of reshape, permute_dims, squeeze and reverse_sequence."""

import numpy as np
import pytest
import tvm
import tvm.testing
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from helpers.grids import batched, few, is_full
from helpers.relax_modules import build, call, calls, count, cpu, integers, merge, run, tensor
from tvm_fixes import transform
from tvm_fixes.support import switches

pytestmark = pytest.mark.native

CONV2D_NHWC = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
CONV2D_NCHW4C = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}


def convert(mod: tvm.IRModule, desired) -> tvm.IRModule:
    after = relax.transform.ConvertLayout(desired)(mod)
    after = transform.PrepareLayout()(after)
    assert relax.analysis.check_well_formed(after)
    return after


def between_convs(shape, emit) -> tvm.IRModule:
    """A module with `emit` between two 3x3 convolutions of NCHW data of `shape`."""

    def emit_all(builder, x, w, v):
        y = emit(builder, builder.emit(relax.op.nn.conv2d(x, w, padding=1)))
        return builder.emit(relax.op.nn.conv2d(y, v, padding=1))

    channels = shape[1]
    weight = tensor(channels, channels, 3, 3)
    return build({"x": tensor(*shape), "w": weight, "v": weight}, emit_all)


class TestReshape:
    @pytest.mark.parametrize(
        "shape, middle, converted",
        [
            ((1, 8, 6, 7), (1, 8, 42), (1, 42, 8)),
            (("n", 8, 6, 7), ("n", 8, 42), ("n", 42, 8)),
            (("n", 8, "h", 7), ("n", 2, 4, "h", 7), ("n", "h", 7, 2, 4)),
            ((2, 8, 6, 7), (2, 1, 8, 42), (2, 1, 42, 8)),
            ((2, 8, 1, 6), (2, 8, 6), (2, 6, 8)),
            ((2, 8, 6, 7), (2, 8, 6, 7, 1), (2, 6, 7, 1, 8)),
        ],
    )
    def test_keeps_the_layout(self, shape, middle, converted):
        symbols = {name: tvm.tirx.Var(name, "int64") for name in "nh"}

        def dims(names):
            return [symbols.get(name, name) for name in names]

        def emit(builder, x):
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.reshape(x, dims(middle)))))
            return builder.emit(relax.op.reshape(y, dims(shape)))

        after = convert(between_convs(dims(shape), emit), CONV2D_NHWC)
        assert count(after, "relax.permute_dims") == 4
        first = calls(after, "relax.reshape")[0]
        tvm.ir.assert_structural_equal(first.ty, tensor(*dims(converted)))

    @pytest.mark.parametrize("middle", [(16, 42), (2, 336), (2, 4, 12, 7)])
    def test_gives_up_where_axes_do_not_stay_together(self, middle):
        shape = (2, 8, 6, 7)

        def emit(builder, x):
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.reshape(x, middle))))
            return builder.emit(relax.op.reshape(y, shape))

        before = between_convs(shape, emit)
        after = convert(before, CONV2D_NHWC)
        assert count(after, "relax.permute_dims") == 6
        args = integers(*shape), integers(8, 8, 3, 3, seed=1), integers(8, 8, 3, 3, seed=2)
        np.testing.assert_array_equal(run(after, *args), run(before, *args))

    def test_symbolic_extents_are_merged_and_split(self):
        n, h, w = (tvm.tirx.Var(name, "int64") for name in "nhw")

        def emit(builder, x):
            flat = builder.emit(relax.op.reshape(x, (n, 8, h * w)))
            return builder.emit(relax.op.reshape(builder.emit(relax.op.nn.relu(flat)), x.ty.shape))

        before = between_convs((n, 8, h, w), emit)
        after = convert(before, CONV2D_NHWC)
        assert count(after, "relax.permute_dims") == 4
        first = calls(after, "relax.reshape")[0]
        tvm.ir.assert_structural_equal(first.ty, tensor(n, h * w, 8))

    def test_unknown_shape(self):
        def emit(builder, x, w, shape):
            return relax.op.reshape(builder.emit(relax.op.nn.conv2d(x, w)), shape)

        shape = relax.ShapeType(ndim=3)
        before = build({"x": tensor(2, 8, 6, 7), "w": tensor(8, 8, 1, 1), "shape": shape}, emit)
        after = convert(before, CONV2D_NHWC)
        assert after["main"].ret_ty.ndim == 3
        args = integers(2, 8, 6, 7), integers(8, 8, 1, 1, seed=1), tvm_ffi.Shape((4, 4, 42))
        np.testing.assert_array_equal(run(after, *args), run(before, *args))

    def test_switch(self, monkeypatch):
        monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "reshape-infer-layout")

        def emit(builder, x):
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.reshape(x, (2, 8, 42)))))
            return builder.emit(relax.op.reshape(y, (2, 8, 6, 7)))

        assert (
            count(convert(between_convs((2, 8, 6, 7), emit), CONV2D_NHWC), "relax.permute_dims")
            == 6
        )


class TestPermuteDims:
    def test_pair_of_permutes_vanishes(self):
        def emit(builder, x):
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.permute_dims(x, [0, 2, 1, 3]))))
            return builder.emit(relax.op.permute_dims(y, [0, 2, 1, 3]))

        after = convert(between_convs((2, 8, 8, 7), emit), CONV2D_NHWC)
        # What is left: the input, both kernels and the output.
        assert count(after, "relax.permute_dims") == 4

    def test_a_packed_value_is_unpacked_in_the_order_that_is_asked_for(self):
        def emit(builder, x, w):
            y = builder.emit(relax.op.nn.conv2d(x, w))
            return builder.emit(relax.op.permute_dims(y, [0, 2, 3, 1]))

        before = build({"x": tensor(2, 8, 4, 5), "w": tensor(8, 8, 3, 3)}, emit)
        after = convert(before, CONV2D_NCHW4C)
        assert count(after, "relax.layout_transform") == 3  # the input, the kernel and the output
        assert count(after, "relax.permute_dims") == 0
        args = integers(2, 8, 4, 5), integers(8, 8, 3, 3, seed=1)
        np.testing.assert_array_equal(run(after, *args), run(before, *args))

    def test_reader_in_the_original_order_gets_it(self):
        def emit(builder, x, w):
            y = builder.emit(relax.op.nn.conv2d(x, w))
            y = builder.emit(relax.op.permute_dims(y, [0, 2, 3, 1]))
            return builder.emit(
                relax.op.matmul(y, builder.emit(relax.op.permute_dims(y, [0, 1, 3, 2])))
            )

        before = build({"x": tensor(2, 6, 4, 4), "w": tensor(6, 6, 3, 3)}, emit)
        after = convert(before, CONV2D_NHWC)
        # The input, the kernel, and the true transposition of the second operand.
        assert count(after, "relax.permute_dims") == 3
        args = integers(2, 6, 4, 4), integers(6, 6, 3, 3, seed=1)
        np.testing.assert_array_equal(run(after, *args), run(before, *args))

    def test_switch(self, monkeypatch):
        monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "permute-dims-infer-layout")

        def emit(builder, x):
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.permute_dims(x, [0, 2, 1, 3]))))
            return builder.emit(relax.op.permute_dims(y, [0, 2, 1, 3]))

        assert (
            count(convert(between_convs((2, 8, 8, 7), emit), CONV2D_NHWC), "relax.permute_dims") > 4
        )


def check_converted(before: tvm.IRModule, *args: np.ndarray, desired=CONV2D_NHWC) -> tvm.IRModule:
    """Convert, run both, compare; the converted module."""
    after = convert(before, desired)
    for got, expected in zip(
        np.atleast_1d(run(after, *args)), np.atleast_1d(run(before, *args)), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    return after


class TestSqueeze:
    @pytest.mark.parametrize("axes", [[-1], [-2], [2], [-1, -2], [2, -1], None])
    def test_axes_from_either_end(self, axes):
        def emit(builder, x, w):
            y = builder.emit(relax.op.nn.conv2d(x, w))
            return builder.emit(relax.op.nn.relu(builder.emit(relax.op.squeeze(y, axes))))

        before = build({"x": tensor(2, 4, 3, 3), "w": tensor(5, 4, 3, 3)}, emit)
        after = check_converted(before, integers(2, 4, 3, 3), integers(5, 4, 3, 3))
        (call,) = calls(after, "relax.squeeze")
        assert all(int(axis) in (1, 2) for axis in call.attrs.axis)


class TestReverseSequence:
    """A reverse_sequence between two convolutions of data (2, 8, 6, 5)."""

    SHAPE = (2, 8, 6, 5)
    N = tvm.tirx.Var("n", "int64")

    def module(self, emit, batch_axis=0, dtype="int64", shape=SHAPE) -> tvm.IRModule:
        kernel = tensor(8, 8, 1, 1)
        lengths = tensor(shape[batch_axis], dtype=dtype)
        return build({"x": tensor(*shape), "w": kernel, "v": kernel, "lengths": lengths}, emit)

    def before(self, seq_axis, batch_axis, **types) -> tvm.IRModule:
        def emit(builder, x, w, v, lengths):
            y = builder.emit(relax.op.nn.conv2d(x, w))
            y = builder.emit(relax.op.reverse_sequence(y, lengths, seq_axis, batch_axis))
            return relax.op.nn.conv2d(y, v)

        return self.module(emit, batch_axis, **types)

    def expected(self, given, converted, restored=False, **types) -> tvm.IRModule:
        """The module in NHWC, with the axes `converted`; with two more transposes if `restored`."""

        def channels_last(builder, x):
            return builder.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))

        def channels_first(builder, x):
            return builder.emit(relax.op.permute_dims(x, [0, 3, 1, 2]))

        def convolve(builder, x, w):
            layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
            return builder.emit(relax.op.nn.conv2d(x, w, **layouts))

        def emit(builder, x, w, v, lengths):
            x = channels_last(builder, x)
            y = convolve(builder, x, channels_last(builder, w))
            y = channels_first(builder, y) if restored else y
            y = builder.emit(relax.op.reverse_sequence(y, lengths, *converted))
            y = channels_last(builder, y) if restored else y
            y = convolve(builder, y, channels_last(builder, v))
            return relax.op.permute_dims(y, [0, 3, 1, 2])

        return self.module(emit, given[1], **types)

    @pytest.mark.parametrize(
        "given, converted",
        [
            ((2, 0), (1, 0)),
            ((1, 0), (3, 0)),
            ((0, 1), (0, 3)),
            ((3, 2), (2, 1)),
            ((-1, 0), (2, 0)),
            ((-2, -4), (1, 0)),
            ((-3, -1), (3, 2)),
            ((1, -2), (3, 1)),
        ],
    )
    def test_both_axes_move(self, given, converted):
        after = relax.transform.ConvertLayout(CONV2D_NHWC)(self.before(*given))
        tvm.ir.assert_structural_equal(after, self.expected(given, converted))

    def test_lengths_of_another_dtype_and_a_symbolic_batch(self):
        types = {"dtype": "int32", "shape": (self.N, 8, 6, 5)}
        after = relax.transform.ConvertLayout(CONV2D_NHWC)(self.before(2, 0, **types))
        tvm.ir.assert_structural_equal(after, self.expected((2, 0), (1, 0), **types))

    @pytest.mark.parametrize("axes", [(2, 0), (-1, -2), (0, 3)])
    def test_a_packed_value_is_followed(self, axes):
        after = convert(self.before(*axes), CONV2D_NCHW4C)
        (reversed_,) = calls(after, "relax.reverse_sequence")
        tvm.ir.assert_structural_equal(reversed_.ty, tensor(2, 2, 6, 5, 4))
        moved = int(reversed_.attrs.seq_axis), int(reversed_.attrs.batch_axis)
        assert moved == (axes[0] % 4, axes[1] % 4)

    @pytest.mark.parametrize("axes", [(1, 0), (0, -3)])
    def test_a_split_axis_is_restored(self, axes):
        after = convert(self.before(*axes), CONV2D_NCHW4C)
        (reversed_,) = calls(after, "relax.reverse_sequence")
        tvm.ir.assert_structural_equal(reversed_.ty, tensor(*self.SHAPE))
        assert (int(reversed_.attrs.seq_axis), int(reversed_.attrs.batch_axis)) == axes

    @pytest.mark.parametrize("data", [tensor(*SHAPE), relax.TensorType(dtype="float32")])
    def test_a_value_in_its_original_layout_is_kept(self, data):
        def emit(builder, x, lengths):
            return relax.op.reverse_sequence(x, lengths, -2, -4)

        before = build({"x": data, "lengths": tensor(2, dtype="int64")}, emit)
        tvm.ir.assert_structural_equal(convert(before, CONV2D_NHWC), before)

    @few(3)
    @pytest.mark.parametrize("desired", [CONV2D_NHWC, CONV2D_NCHW4C])
    @pytest.mark.parametrize("axes", [(2, 0), (-3, 0), (-1, 1), (0, -1)])
    def test_values(self, axes, desired):
        # Lengths below, at and beyond the extent.
        lengths = np.arange(self.SHAPE[axes[1]]) * 3 % (self.SHAPE[axes[0]] + 2)
        kernels = (integers(8, 8, 1, 1, seed=seed) for seed in (1, 2))
        check_converted(
            self.before(*axes), integers(*self.SHAPE), *kernels, lengths, desired=desired
        )

    def test_switch(self, monkeypatch):
        monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "reverse-sequence-infer-layout")
        after = relax.transform.ConvertLayout(CONV2D_NHWC)(self.before(-2, 0))
        tvm.ir.assert_structural_equal(after, self.expected((-2, 0), (-2, 0), restored=True))


@st.composite
def random_graph(draw):
    """Reshapes, permutes and element-wise operators between two convolutions."""
    shape = (draw(st.sampled_from([1, 2])), 4, draw(st.sampled_from([1, 2, 3])), 2)

    def emit(builder, x):
        values = [x]
        for _ in range(draw(st.integers(1, 6))):
            value = draw(st.sampled_from(values))
            dims = [int(dim) for dim in value.ty.shape]
            kind = draw(st.sampled_from(["merge", "split", "permute", "add", "unit", "relu"]))
            if kind == "merge" and len(dims) > 1:
                at = draw(st.integers(0, len(dims) - 2))
                dims[at : at + 2] = [dims[at] * dims[at + 1]]
                value = relax.op.reshape(value, dims)
            elif kind == "split" and len(dims) < 6:
                at = draw(st.integers(0, len(dims) - 1))
                parts = [2, dims[at] // 2] if dims[at] % 2 == 0 else [1, dims[at]]
                dims[at : at + 1] = parts
                value = relax.op.reshape(value, dims)
            elif kind == "unit" and len(dims) < 6:
                dims.insert(draw(st.integers(0, len(dims))), 1)
                value = relax.op.reshape(value, dims)
            elif kind == "permute":
                value = relax.op.permute_dims(value, draw(st.permutations(range(len(dims)))))
            elif kind == "add":
                same = [v for v in values if tvm_ffi.structural_equal(v.ty, value.ty)]
                value = relax.op.add(value, draw(st.sampled_from(same)))
            else:
                value = relax.op.nn.relu(value)
            values.append(builder.emit(value))
        total = builder.emit(relax.op.reshape(values[-1], shape))
        return builder.emit(relax.op.add(total, x))

    return between_convs(shape, emit), shape


@batched(5 if is_full() else 10)
@given(st.lists(random_graph(), min_size=5, max_size=5))
def test_random_graphs_keep_their_values(graphs):
    versions = {}
    for i, (before, _) in enumerate(graphs):
        versions |= {f"before{i}": before, f"after{i}": convert(before, CONV2D_NHWC)}
    vm = relax.VirtualMachine(relax.build(merge(versions), cpu()), tvm.cpu())
    for i, (before, shape) in enumerate(graphs):
        args = integers(*shape), integers(4, 4, 3, 3, seed=1), integers(4, 4, 3, 3, seed=2)
        expected, got = call(vm, f"before{i}", *args), call(vm, f"after{i}", *args)
        np.testing.assert_array_equal(got, expected, err_msg=str(before))


if __name__ == "__main__":
    tvm.testing.main()
