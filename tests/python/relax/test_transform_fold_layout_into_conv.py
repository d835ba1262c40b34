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
"""The pass FoldLayoutIntoConv."""

from itertools import product

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

from helpers import references
from helpers.grids import sample
from helpers.relax_modules import build, call, calls, cpu, integers, merge, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.layouts import SPATIAL_AXES, Layout
from tvm_fixes.relax.transform import FoldLayoutIntoConv

pytestmark = pytest.mark.native

FOLD = tvm.transform.Sequential([FoldLayoutIntoConv(), relax.transform.DeadCodeElimination()])
EXTENTS = {"N": 2, "C": 8, "D": 4, "H": 3, "W": 5}
SYMBOLS = {axis: tirx.Var(axis.lower(), "int64") for axis in "NDHW"}

# The layout of a value, and the layout after ConvertLayout.
MOVES = [
    ("NCHW", "NHWC"),
    ("NHWC", "NCHW"),
    ("NCHW", "NCHW4c"),
    ("NCHW", "NCHW8c"),
    ("NCHW4c", "NCHW"),
    ("NCHW8c", "NCHW"),
    ("NHWC", "NCHW4c"),
    ("NCHW4c", "NHWC"),
    ("NCHW8c", "NCHW4c"),
    ("NCHW2c", "NCHW4c"),
    ("NCW", "NWC"),
    ("NCW4c", "NCW"),
    ("NCDHW", "NDHWC"),
    ("NCDHW", "NCDHW4c"),
]
CASES = list(product(MOVES, (False, True), (False, True)))


def type_in(layout: str, *, dynamic: bool = False, **extents: int) -> relax.TensorType:
    """The type of data in a layout, with :data:`EXTENTS` overridden by `extents`."""
    shape = Layout(layout).shape(
        {a: tirx.const(e, "int64") for a, e in (EXTENTS | extents).items()}
        | (SYMBOLS if dynamic else {})
    )
    return tensor(*shape)


def moved(x: relax.Expr, present: str, layout: str) -> relax.Expr:
    """A permute if `layout` has the axes of `present`, otherwise a layout_transform."""
    if sorted(present) == sorted(layout):
        return op.permute_dims(x, [present.index(axis) for axis in layout])
    blocks = Layout(layout).blocks

    def index_map(*position):
        at = Layout(present).element(position)
        return [
            at[axis.upper()] % block if block else at[axis] // blocks.get(axis, 1)
            for axis, block in Layout(layout).axes
        ]

    ndim = len(Layout(present).axes)
    return op.layout_transform(
        x, tirx.IndexMap.from_func(index_map, ndim=ndim, index_dtype="int64")
    )


def convolve(
    x: relax.Expr, data: str, out: str, *, channels: int = 8, transposed: bool = False
) -> relax.Call:
    """A convolution with a constant kernel, to 8 channels."""
    rank = len(Layout(data).plain) - 2
    suffix = "_transpose" if transposed else ""
    kernel = integers(*((channels, 8) if transposed else (8, channels)), *(3, 2, 2)[:rank], seed=1)
    spatial = SPATIAL_AXES[rank]
    return getattr(op.nn, f"conv{rank}d{suffix}")(
        x,
        relax.const(kernel),
        padding=1,
        data_layout=data,
        kernel_layout=f"IO{spatial}" if transposed else f"OI{spatial}",
        out_layout=out,
    )


def mixed(layout: str) -> str:
    """A packed layout of the rank of `layout` that no other test uses."""
    return f"NC{SPATIAL_AXES[len(Layout(layout).plain) - 2]}16c"


@pytest.mark.parametrize("move, dynamic, transposed", sample(CASES, 16, seed=1))
def test_a_convolution_reads_its_data_in_place(move, dynamic, transposed):
    present, layout = move

    def emit(builder, x):
        x = builder.emit(moved(x, present, layout))
        return convolve(x, layout, mixed(layout), transposed=transposed)

    x = {"x": type_in(present, dynamic=dynamic)}
    expected = build(x, lambda _, x: convolve(x, present, mixed(layout), transposed=transposed))
    tvm.ir.assert_structural_equal(FOLD(build(x, emit)), expected)


@pytest.mark.parametrize("move, dynamic, transposed", sample(CASES, 16, seed=2))
def test_a_convolution_writes_its_output_in_the_final_layout(move, dynamic, transposed):
    layout, wanted = move

    def emit(builder, x):
        y = builder.emit(convolve(x, mixed(layout), layout, channels=16, transposed=transposed))
        return moved(y, layout, wanted)

    x = {"x": type_in(mixed(layout), dynamic=dynamic, C=16)}
    expected = build(
        x,
        lambda _, x: convolve(x, mixed(layout), wanted, channels=16, transposed=transposed),
    )
    tvm.ir.assert_structural_equal(FOLD(build(x, emit)), expected)


def test_every_reader_of_a_transform_is_folded():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 4, 6, 5), "float32"),
            w: R.Tensor((4, 4, 3, 3), "float32"),
            v: R.Tensor((4, 4, 3, 3), "float32"),
        ) -> R.Tensor(("n", 4, 3, 4), "float32"):
            with R.dataflow():
                lv = R.permute_dims(x, [0, 2, 3, 1])
                lv1 = R.nn.conv2d(lv, w, data_layout="NHWC", kernel_layout="OIHW")
                lv2 = R.nn.conv2d(lv, v, data_layout="NHWC", kernel_layout="OIHW")
                lv3 = R.add(lv1, lv2)
                out = R.permute_dims(lv3, [0, 3, 2, 1])
                R.output(out)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 4, 6, 5), "float32"),
            w: R.Tensor((4, 4, 3, 3), "float32"),
            v: R.Tensor((4, 4, 3, 3), "float32"),
        ) -> R.Tensor(("n", 4, 3, 4), "float32"):
            with R.dataflow():
                lv1 = R.nn.conv2d(x, w, data_layout="NCHW", kernel_layout="OIHW", out_layout="NHWC")
                lv2 = R.nn.conv2d(x, v, data_layout="NCHW", kernel_layout="OIHW", out_layout="NHWC")
                lv3 = R.add(lv1, lv2)
                out = R.permute_dims(lv3, [0, 3, 2, 1])
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(FOLD(Before), Expected)


@pytest.mark.parametrize(
    "shape, permutation, layout, read",
    [
        ((1, 8, 1, 5), [0, 2, 3, 1], "NHWC", "NCHW"),
        ((1, 4, 3, 5), [1, 0, 2, 3], "CNHW", "NCHW"),
        ((1, 3, 1, 8), [0, 3, 1, 2], "NCHW", "NHWC"),
    ],
)
def test_axes_of_one_element_can_go_anywhere(shape, permutation, layout, read):
    x = {"x": tensor(*shape)}
    channels = shape[read.index("C")]

    def emit(builder, x):
        x = builder.emit(op.permute_dims(x, permutation))
        return convolve(x, layout, "NCHW2c", channels=channels)

    before = build(x, emit)
    after = FOLD(before)
    (call_after,) = calls(after)
    assert call_after.attrs.data_layout == read
    tvm.ir.assert_structural_equal(after["main"].ret_ty, before["main"].ret_ty)
    data = integers(*shape)
    np.testing.assert_array_equal(
        run(after, data, pipeline=pipeline()), run(before, data, pipeline=pipeline())
    )


def test_channels_of_one_block():
    x = {"x": type_in("NCHW", C=4)}

    def emit(builder, x):
        first = builder.emit(convolve(x, "NCHW", "NCHW2c", channels=4))
        return moved(first, "NCHW2c", "NCHW8c")

    expected = build(x, lambda _, x: convolve(x, "NCHW", "NCHW8c", channels=4))
    tvm.ir.assert_structural_equal(FOLD(build(x, emit)), expected)


def stays(inputs, emit):
    before = build(inputs, emit)
    assert FoldLayoutIntoConv()(before)["main"].same_as(before["main"])


def read_by_another(b, x):
    y = b.emit(moved(x, "NCHW", "NHWC"))
    return relax.Tuple([b.emit(convolve(y, "NHWC", "NHWC")), b.emit(op.nn.relu(y))])


def out_read_by_another(b, x):
    y = b.emit(convolve(x, "NCHW", "NHWC"))
    return relax.Tuple([b.emit(moved(y, "NHWC", "NCHW4c")), y])


def transform_given_out(b, x):
    y = b.emit(moved(x, "NCHW", "NHWC"))
    return relax.Tuple([b.emit(convolve(y, "NHWC", "NHWC")), y])


def kernel_given_by_transform(b, x):
    kernel = b.emit(op.permute_dims(x, [1, 0, 3, 2]))
    return op.nn.conv2d(relax.const(integers(2, 2, 9, 9)), kernel)


def in_groups(b, x):
    y = b.emit(moved(x, "NCHW", "NHWC"))
    kernel = relax.const(integers(8, 2, 3, 2))
    return op.nn.conv2d(y, kernel, groups=4, data_layout="NHWC", kernel_layout="OIHW")


def left_in_one_plain_layout(b, x):
    y = b.emit(moved(x, "NCHW", "NHWC"))
    return convolve(y, "NHWC", "NCHW")


def merged_axes(b, x):
    y = b.emit(op.layout_transform(x, lambda n, c, h, w: (n, h * 5 + w, c)))
    return op.nn.conv1d(y, relax.const(integers(8, 8, 3)), data_layout="NWC", kernel_layout="OIW")


def split_twice(b, x):
    y = b.emit(op.layout_transform(x, lambda n, c, h, w: (n, c // 4, h, w, c % 4)))
    y = b.emit(op.nn.conv2d(y, relax.const(integers(8, 8, 1, 1)), data_layout="NCHW4c"))
    return op.layout_transform(y, lambda n, c, h, w, b: (n, b // 2, c, h, w, b % 2))


def padded(b, x):
    y = b.emit(op.layout_transform(x, lambda n, c, h, w: (n, c // 3, h, w, c % 3), pad_value=0))
    return convolve(y, "NCHW3c", "NHWC", channels=9)


@pytest.mark.parametrize(
    "emit",
    [
        read_by_another,
        out_read_by_another,
        transform_given_out,
        kernel_given_by_transform,
        in_groups,
        left_in_one_plain_layout,
        merged_axes,
        padded,
    ],
)
def test_a_transform_is_kept(emit):
    stays({"x": type_in("NCHW")}, emit)


def test_a_block_that_is_split_is_kept():
    x = {"x": type_in("NCHW")}
    before = build(x, split_twice)
    expected = build(
        x,
        lambda b, x: op.layout_transform(
            b.emit(convolve_packed(x)), lambda n, c, h, w, b: (n, b // 2, c, h, w, b % 2)
        ),
    )
    tvm.ir.assert_structural_equal(FOLD(before), expected)


def convolve_packed(x):
    kernel = relax.const(integers(8, 8, 1, 1))
    return op.nn.conv2d(x, kernel, data_layout="NCHW", out_layout="NCHW4c")


@pytest.mark.parametrize("channels, folds", [(8, True), (9, False)])
def test_many_channels_are_read_innermost(channels, folds):
    def emit(builder, x):
        y = builder.emit(moved(x, "NCHW", "NHWC"))
        return convolve(y, "NHWC", "NHWC", channels=channels)

    before = build({"x": type_in("NCHW", C=channels)}, emit)
    assert FoldLayoutIntoConv()(before)["main"].same_as(before["main"]) is not folds


@pytest.mark.parametrize("unknown", ["channels", "kernel", "shape"])
def test_unknown_values_are_kept(unknown):
    n = tirx.Var("n", "int64")
    shape = (2, n, 3, 5) if unknown == "channels" else (2, 8, 3, 5)
    data = relax.TensorType(ndim=4, dtype="float32") if unknown == "shape" else tensor(*shape)
    kernel = tensor(8, n if unknown == "channels" else 8, n if unknown == "kernel" else 3, 3)

    def emit(builder, x, kernel):
        x = builder.emit(op.permute_dims(x, [0, 2, 3, 1]))
        return op.nn.conv2d(x, kernel, data_layout="NHWC", kernel_layout="OIHW")

    stays({"x": data, "kernel": kernel}, emit)


def test_what_is_out_of_scope_is_not_read():
    builder = relax.BlockBuilder()
    x = relax.Var("x", type_in("NCHW"))
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(op.nn.relu(x))
            transformed = builder.emit_output(moved(hidden, "NCHW", "NHWC"))
        builder.emit_func_output(builder.emit(convolve(transformed, "NHWC", "NHWC")))
    before = builder.get()
    assert FoldLayoutIntoConv()(before)["main"].same_as(before["main"])


@pytest.mark.parametrize("fix_id", ["fold-layout-into-conv", "conv-legalize"])
def test_switched_off(fix_id, monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", fix_id)

    def emit(builder, x):
        return convolve(builder.emit(moved(x, "NCHW", "NHWC")), "NHWC", "NHWC")

    stays({"x": type_in("NCHW")}, emit)


def ends(present: str, layout: str, wanted: str, transposed: bool):
    """A convolution between two transforms."""

    def emit(builder, x):
        y = builder.emit(moved(x, present, layout))
        y = builder.emit(convolve(y, layout, layout, transposed=transposed))
        return moved(y, layout, wanted)

    return emit


def test_the_numbers_are_kept():
    """With and without the pass; sums of integers are exact."""
    before, arrays = {}, {}
    for (present, layout), transposed in sample(list(product(MOVES, (False, True))), 3, seed=4):
        wanted = "NHWC" if present == "NCHW" and layout != "NHWC" else present
        name = f"f{len(before)}"
        before[name] = build({"x": type_in(present)}, ends(present, layout, wanted, transposed))
        axes = "NC" + SPATIAL_AXES[len(Layout(layout).plain) - 2]
        plain = integers(*(EXTENTS[axis] for axis in axes), seed=len(before))
        arrays[name] = references.laid_out(plain, axes, present)
    after = {name: FOLD(mod) for name, mod in before.items()}
    assert all(len(calls(after[name])) < len(calls(mod)) for name, mod in before.items())
    vms = [
        relax.VirtualMachine(relax.build(merge(mods), cpu(), relax_pipeline=pipeline()), tvm.cpu())
        for mods in (before, after)
    ]
    for name, x in arrays.items():
        unfolded, folded = (call(vm, name, x) for vm in vms)
        np.testing.assert_array_equal(folded, unfolded, err_msg=name)


if __name__ == "__main__":
    tvm.testing.main()
