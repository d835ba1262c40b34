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
"""PrepareLayout on operators that move data: permutes, layout transforms and pixel shuffles."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.relax import op
from tvm.relax.transform import ConvertLayout
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.relax_modules import build, calls, integers, run, tensor
from tvm_fixes.relax.transform import PrepareLayout

pytestmark = pytest.mark.native


def pack(n, c, h, w):
    return n, c // 4, h, w, c % 4


def unpack(n, c, h, w, block):
    return n, c * 4 + block, h, w


def unpack_to_channels_last(n, c, h, w, block):
    return n, h, w, c * 4 + block


N = tvm.tirx.Var("n", "int64")


@pytest.mark.parametrize(
    "shape, index_map, expected",
    [
        ((2, 8, 1, 1), pack, (2, 2, 1, 1, 4)),
        ((N, 8, 1, 1), pack, (N, 2, 1, 1, 4)),
        ((2, 4, 1, 1), pack, (2, 1, 1, 1, 4)),
        ((2, 2, 1, 1, 4), unpack, (2, 8, 1, 1)),
        ((N, 2, 1, 1, 4), unpack, (N, 8, 1, 1)),
        ((2, 1, 3, 5, 4), unpack_to_channels_last, (2, 3, 5, 4)),
    ],
)
def test_a_layout_transform_that_leaves_every_element_is_a_reshape(shape, index_map, expected):
    x = {"x": tensor(*shape)}
    before = build(x, lambda _, x: op.layout_transform(x, index_map))
    after = PrepareLayout()(before)
    tvm.ir.assert_structural_equal(
        after, build(x, lambda _, x: op.reshape(x, relax.ShapeExpr(expected)))
    )


@pytest.mark.parametrize(
    "shape, index_map",
    [
        ((2, 8, 2, 1), pack),
        ((2, 8, 1, N), pack),
        ((2, 2, 3, 1, 4), unpack),
        # One element more than the argument, which is padding.
        ((1, 7, 1, 1), pack),
    ],
)
def test_any_other_layout_transform_is_kept(shape, index_map):
    before = build({"x": tensor(*shape)}, lambda _, x: op.layout_transform(x, index_map, 0.0))
    assert PrepareLayout()(before)["main"].same_as(before["main"])


def test_a_layout_transform_of_a_constant_bias_is_folded():
    bias = np.arange(8, dtype="float32").reshape(1, 8, 1, 1)
    x = {"x": tensor(2, 2, 3, 3, 4)}
    before = build(x, lambda b, x: op.add(x, b.emit(op.layout_transform(relax.const(bias), pack))))
    folded = relax.const(bias.reshape(1, 2, 1, 1, 4))
    tvm.ir.assert_structural_equal(
        PrepareLayout()(before), build(x, lambda _, x: op.add(x, folded))
    )


def test_a_pixel_shuffle_is_a_permute_between_reshapes():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 12, "h", 5), "float32")) -> R.Tensor(
            ("n", 3, "h * 2", 10), "float32"
        ):
            with R.dataflow():
                gv = R.nn.pixel_shuffle(x, 2)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 12, "h", 5), "float32")) -> R.Tensor(
            ("n", 3, "h * 2", 10), "float32"
        ):
            n, h = T.int64(), T.int64()
            with R.dataflow():
                split = R.reshape(x, R.shape([n, 3, 2, 2, h, 5]))
                pixels = R.permute_dims(split, [0, 1, 4, 2, 5, 3])
                gv = R.reshape(pixels, R.shape([n, 3, h * 2, 10]))
                R.output(gv)
            return gv

    after = PrepareLayout()(Before)
    tvm.ir.assert_structural_equal(after, Expected)
    x = integers(2, 12, 3, 5)
    np.testing.assert_array_equal(run(after, x), run(Before, x))


def test_a_pixel_shuffle_between_convolutions_is_one_permute():
    """In NHWC: one permute at each end, and one for the shuffle."""
    kernels = [relax.const(integers(*shape)) for shape in ((8, 4, 1, 1), (4, 2, 1, 1))]

    def emit(builder, x):
        shuffled = op.nn.pixel_shuffle(builder.emit(op.nn.conv2d(x, kernels[0])), 2)
        return op.nn.conv2d(builder.emit(shuffled), kernels[1])

    before = build({"x": tensor(1, 4, 3, 5)}, emit)
    after = before
    for step in (PrepareLayout(), ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})):
        after = step(after)
    after = PrepareLayout()(after)
    permutes = [found for found in calls(after, "relax.permute_dims") if found.args[0].ty.ndim > 4]
    assert len(permutes) == 1
    assert [list(found.attrs.axes) for found in permutes] == [[0, 1, 4, 2, 5, 3]]
    x = integers(1, 4, 3, 5)
    np.testing.assert_array_equal(run(after, x), run(before, x))


def test_moves_of_no_elements_are_kept():
    """In the target shape of a reshape, 0 copies an extent of the data."""

    def emit(builder, x):
        moved = builder.emit(op.permute_dims(x, [3, 1, 2, 0]))
        wider = builder.emit(op.expand_dims(moved, [0, 3]))
        return builder.emit(op.permute_dims(wider, [0, 1, 2, 4, 3, 5]))

    before = build({"x": tensor(0, 1, N, 4)}, emit)
    tvm.ir.assert_structural_equal(PrepareLayout()(before), before)


if __name__ == "__main__":
    tvm.testing.main()
