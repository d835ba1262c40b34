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
"""FRelaxInferLayout of conv2d_transpose, reshape and permute_dims, and the type of the first."""

from itertools import permutations

import numpy as np
import pytest
import tvm
import tvm.testing
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from grids import batched
from relax_helpers import build, call, calls, count, integers, merge, run, tensor
from tvm_fixes import switches, transform

pytestmark = pytest.mark.native

CONV2D_NHWC = {"relax.nn.conv2d": ["NHWC", "OHWI"]}


def convert(mod: tvm.IRModule, desired) -> tvm.IRModule:
    after = relax.transform.ConvertLayout(desired)(mod)
    after = transform.PrepareLayout()(after)
    assert relax.analysis.check_well_formed(after)
    return after


def conv_transpose(data=(2, 8, 5, 6), kernel=(8, 4, 3, 3), **attrs) -> tvm.IRModule:
    def emit(builder, x, w):
        y = builder.emit(relax.op.nn.conv2d_transpose(x, w, **attrs))
        return builder.emit(relax.op.nn.relu(y))

    return build({"x": tensor(*data), "w": tensor(*kernel)}, emit)


class TestConv2dTranspose:
    OP = "relax.nn.conv2d_transpose"

    @pytest.mark.parametrize("kernel", ["IOHW", "OIHW", "HWIO", "HWOI", "OHWI"])
    @pytest.mark.parametrize("out", [None, "NCHW", "NHWC", "CHWN"])
    def test_follows_what_is_asked_for(self, kernel, out):
        desired = ["NHWC", kernel] + ([out] if out else [])
        before = conv_transpose(strides=2)
        after = convert(before, {self.OP: desired})
        (call,) = calls(after, self.OP)
        assert call.attrs.data_layout == "NHWC"
        assert call.attrs.kernel_layout == kernel
        assert call.attrs.out_layout == (out or "NHWC")
        args = integers(2, 8, 5, 6), integers(8, 4, 3, 3, seed=1)
        np.testing.assert_array_equal(run(after, *args), run(before, *args))

    def test_every_order_of_axes(self):
        for layout in map("".join, permutations("NCHW")):
            after = convert(conv_transpose(), {self.OP: [layout, "IOHW"]})
            (call,) = calls(after, self.OP)
            assert (call.attrs.data_layout, call.attrs.out_layout) == (layout, layout)
            assert after["main"].ret_ty == conv_transpose()["main"].ret_ty

    def test_dynamic_batch_and_extent(self):
        n, h = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("h", "int64")
        before = conv_transpose(data=(n, 8, h, 6), strides=2)
        after = convert(before, {self.OP: ["NHWC", "HWOI"]})
        (call,) = calls(after, self.OP)
        assert call.attrs.out_layout == "NHWC"
        for batch, extent in ((1, 1), (3, 5)):
            args = integers(batch, 8, extent, 6), integers(8, 4, 3, 3, seed=1)
            np.testing.assert_array_equal(run(after, *args), run(before, *args))

    @pytest.mark.parametrize(
        "desired", [["NCHW4c", "IOHW4i4o"], ["NCHW16c", "IOHW"], ["NHWC", "IOHW4o", "NHWC"]]
    )
    def test_what_splits_an_axis_leaves_the_call(self, desired):
        before = conv_transpose()
        tvm.ir.assert_structural_equal(convert(before, {self.OP: desired}), convert(before, {}))

    def test_packed_input_is_unpacked(self):
        def emit(builder, x, w, v):
            y = builder.emit(relax.op.nn.conv2d(x, w))
            return builder.emit(relax.op.nn.conv2d_transpose(y, v))

        inputs = {"x": tensor(1, 8, 6, 6), "w": tensor(8, 8, 3, 3), "v": tensor(8, 4, 2, 2)}
        after = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]})(
            build(inputs, emit)
        )
        assert relax.analysis.check_well_formed(after)
        (call,) = calls(after, self.OP)
        assert (call.attrs.data_layout, call.attrs.kernel_layout) == ("NCHW", "IOHW")
        assert count(after, "relax.layout_transform") == 3

    def test_unlisted_call_follows_its_input(self):
        def emit(builder, x, w, v):
            y = builder.emit(relax.op.nn.conv2d(x, w))
            return builder.emit(relax.op.nn.conv2d_transpose(y, v))

        inputs = {"x": tensor(1, 8, 6, 6), "w": tensor(8, 8, 3, 3), "v": tensor(8, 4, 2, 2)}
        (call,) = calls(convert(build(inputs, emit), CONV2D_NHWC), self.OP)
        assert (call.attrs.data_layout, call.attrs.kernel_layout) == ("NHWC", "IOHW")

    def test_wrong_number_of_layouts(self):
        message = r"relax.nn.conv2d_transpose: expected two or three desired layouts .*, got 1"
        with pytest.raises(ValueError, match=message):
            relax.transform.ConvertLayout({self.OP: ["NHWC"]})(conv_transpose())

    def test_output_padding_between_stride_and_dilation(self):
        attrs = {"strides": [1, 2], "dilation": [3, 2], "output_padding": [2, 1]}
        mod = conv_transpose(**attrs)
        assert [int(dim) for dim in mod["main"].ret_ty.shape] == [2, 4, 13, 16]
        n = tvm.tirx.Var("n", "int64")
        symbolic = conv_transpose(data=(n, 8, n, 6), **attrs)
        expected = [n, 4, n + 8, 16]
        tvm.ir.assert_structural_equal(symbolic["main"].ret_ty, tensor(*expected))

    @pytest.mark.parametrize("output_padding", [[2, 0], [0, 2], [5, 5]])
    def test_output_padding_beyond_stride_and_dilation(self, output_padding):
        with pytest.raises(ValueError, match="less than the larger of strides"):
            conv_transpose(strides=2, dilation=1, output_padding=output_padding)

    def test_switches(self, monkeypatch):
        monkeypatch.setenv(
            switches.ENVIRONMENT_VARIABLE,
            "conv2d-transpose-infer-layout,conv2d-transpose-output-padding",
        )
        with pytest.raises(Exception, match="Layouts must have the same size"):
            relax.transform.ConvertLayout({self.OP: ["NCHW4c", "IOHW4i4o"]})(conv_transpose())
        with pytest.raises(ValueError, match="output padding less than the strides"):
            conv_transpose(dilation=2, output_padding=1)


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


OPS = relax.op
GUARDED = {
    "layer_norm of all but the batch": lambda x: OPS.nn.layer_norm(
        x, *[relax.const(integers(6, 3, 2, seed=seed)) for seed in (1, 2)], [-3, -2, -1]
    ),
    "layer_norm of the last axis": lambda x: OPS.nn.layer_norm(
        x, *[relax.const(integers(2, seed=seed)) for seed in (1, 2)], [-1]
    ),
    "rms_norm": lambda x: OPS.nn.rms_norm(x, relax.const(integers(2, seed=1)), -1),
    "repeat": lambda x: OPS.repeat(x, 2),
    "repeat along an axis": lambda x: OPS.repeat(x, 2, axis=1),
    "resize2d": lambda x: OPS.image.resize2d(x, (6, 4), layout="NCHW", method="nearest_neighbor"),
    "resize2d, channels last": lambda x: OPS.image.resize2d(x, (4, 6), layout="NHWC"),
    "softmax": lambda x: OPS.nn.softmax(x, axis=-1),
    "mean": lambda x: OPS.mean(x, axis=[-1], keepdims=False),
    "concat": lambda x: OPS.concat([x, x], axis=-1),
    "split": lambda x: relax.TupleGetItem(relax.BlockBuilder().normalize(OPS.split(x, 2, 1)), 1),
    "strided_slice": lambda x: OPS.strided_slice(x, [1], [0], [4], [2]),
    "cumsum": lambda x: OPS.cumsum(x),
    "add of a lower rank": lambda x: OPS.add(x, relax.const(integers(6, 1, 1, seed=3))),
    "max_pool2d": lambda x: OPS.nn.max_pool2d(x, (2, 2)),
    "group_norm": lambda x: OPS.nn.group_norm(
        x, *[relax.const(integers(6, seed=seed)) for seed in (1, 2)], 3, 1, [2, 3]
    ),
    "matmul": lambda x: OPS.matmul(x, relax.const(integers(2, 5, seed=1))),
    "flip": lambda x: OPS.flip(x, -1),
    "expand_dims": lambda x: OPS.expand_dims(x, [-1, 1]),
}


class TestLayoutGuards:
    @pytest.mark.parametrize("operator", GUARDED)
    def test_after_a_convolution_and_after_a_permute(self, operator):
        def after_convolution(builder, x, w):
            y = builder.emit(relax.op.nn.conv2d(x, w))
            return builder.emit(GUARDED[operator](y))

        def after_permute(axes):
            def emit(builder, x, w):
                source = tuple(np.array([2, 6, 3, 2])[np.argsort(axes)])
                y = builder.emit(relax.op.reshape(x, source))
                y = builder.emit(relax.op.permute_dims(y, axes))
                return builder.emit(GUARDED[operator](y))

            return emit

        weight = {"w": tensor(6, 4, 3, 3)}
        args = integers(6, 4, 3, 3, seed=5)
        check_converted(
            build({"x": tensor(2, 4, 5, 4)} | weight, after_convolution), integers(2, 4, 5, 4), args
        )
        for axes in ([0, 2, 3, 1], [0, 2, 1, 3], [3, 1, 0, 2]):
            before = build({"x": tensor(72)} | weight, after_permute(axes))
            check_converted(before, integers(72), args)

    def test_unlisted_transposed_convolution_keeps_its_layout(self):
        def emit(builder, x, w, v):
            y = builder.emit(relax.op.nn.conv1d(x, w))
            return builder.emit(relax.op.nn.conv1d_transpose(y, v))

        inputs = {"x": tensor(2, 4, 9), "w": tensor(4, 4, 3), "v": tensor(4, 3, 2)}
        args = integers(2, 4, 9), integers(4, 4, 3, seed=1), integers(4, 3, 2, seed=2)
        desired = {"relax.nn.conv1d": ["NWC", "OWI"]}
        after = check_converted(build(inputs, emit), *args, desired=desired)
        (call,) = calls(after, "relax.nn.conv1d_transpose")
        assert call.attrs.data_layout == "NCW"

    def test_switch(self, monkeypatch):
        monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "layout-guards")

        def emit(builder, x, w):
            return builder.emit(relax.op.repeat(builder.emit(relax.op.nn.conv2d(x, w)), 2))

        before = build({"x": tensor(2, 4, 5, 4), "w": tensor(6, 4, 3, 3)}, emit)
        args = integers(2, 4, 5, 4), integers(6, 4, 3, 3, seed=5)
        assert not np.array_equal(run(convert(before, CONV2D_NHWC), *args), run(before, *args))


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


@batched(5)
@given(st.lists(random_graph(), min_size=5, max_size=5))
def test_random_graphs_keep_their_values(graphs):
    versions = {}
    for i, (before, _) in enumerate(graphs):
        versions |= {f"before{i}": before, f"after{i}": convert(before, CONV2D_NHWC)}
    vm = relax.VirtualMachine(relax.build(merge(versions), "llvm"), tvm.cpu())
    for i, (before, shape) in enumerate(graphs):
        args = integers(*shape), integers(4, 4, 3, 3, seed=1), integers(4, 4, 3, 3, seed=2)
        expected, got = call(vm, f"before{i}", *args), call(vm, f"after{i}", *args)
        np.testing.assert_array_equal(got, expected, err_msg=str(before))


if __name__ == "__main__":
    tvm.testing.main()
