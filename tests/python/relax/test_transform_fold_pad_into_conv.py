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

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from hypothesis import given
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import FoldPadIntoConv


@I.ir_module
class Padded:
    @R.function
    def main(
        x: R.Tensor(("n", 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
    ) -> R.Tensor(("n", 4, 4, 4), "float32"):
        n = T.int64()
        with R.dataflow():
            padded: R.Tensor((n, 3, 9, 10), "float32") = R.nn.pad(
                x, pad_width=[0, 0, 0, 0, 0, 1, 0, 2]
            )
            y: R.Tensor((n, 4, 4, 4), "float32") = R.nn.conv2d(
                padded, w, strides=[2, 3], padding=[0, 1, 0, 1]
            )
            R.output(y)
        return y


def test_both_paddings_are_one():
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
        ) -> R.Tensor(("n", 4, 4, 4), "float32"):
            n = T.int64()
            with R.dataflow():
                y: R.Tensor((n, 4, 4, 4), "float32") = R.nn.conv2d(
                    x, w, strides=[2, 3], padding=[0, 1, 1, 3]
                )
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(FoldPadIntoConv()(Padded), Expected)


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", "fold-pad-into-conv")
    assert FoldPadIntoConv()(Padded).same_as(Padded)


@pytest.mark.parametrize(
    "options",
    [
        {"pad_width": [0, 0, 0, 0, 1, 1, 1, 1], "pad_value": 1.0},
        {"pad_width": [0, 0, 0, 0, 1, 1, 1, 1], "pad_value": float("-inf")},
        {"pad_width": [0, 0, 0, 0, 1, 1, 1, 1], "pad_mode": "reflect"},
        {"pad_width": [0, 0, 1, 0, 0, 0, 0, 0]},
        {"pad_width": [1, 0, 0, 0, 0, 0, 0, 0]},
    ],
    ids=str,
)
def test_others_are_kept(options):
    """Pad values other than 0, and pads of non-spatial axes."""
    channels = 3 + sum(options["pad_width"][2:4])

    def emit(builder, x, w):
        return relax.op.nn.conv2d(builder.emit(relax.op.nn.pad(x, **options)), w)

    mod = build({"x": tensor(2, 3, 8, 8), "w": tensor(4, channels, 3, 3)}, emit)
    assert FoldPadIntoConv()(mod).same_as(mod)


def test_a_transposed_convolution_keeps_its_padding():
    """Padding of a transposed convolution crops the result."""

    def emit(builder, x, w):
        padded = builder.emit(relax.op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]))
        return relax.op.nn.conv2d_transpose(padded, w)

    mod = build({"x": tensor(2, 3, 8, 8), "w": tensor(3, 4, 3, 3)}, emit)
    assert FoldPadIntoConv()(mod).same_as(mod)


def test_a_pad_with_another_reader_is_kept():
    def emit(builder, x, w):
        padded = builder.emit(relax.op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]))
        return relax.op.add(builder.emit(relax.op.nn.conv2d(padded, w, padding=1)), padded)

    mod = build({"x": tensor(1, 3, 6, 6), "w": tensor(3, 3, 3, 3)}, emit)
    folded = FoldPadIntoConv()(mod)
    script = folded.script()
    assert "R.nn.conv2d(x, w" in script
    assert "R.nn.pad(x" in script
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((1, 3, 6, 6), (3, 3, 3, 3)))
    padded = torch.nn.functional.pad(torch.from_numpy(x), (1, 1, 1, 1))
    want = torch.conv2d(padded, torch.from_numpy(w), padding=1) + padded
    np.testing.assert_allclose(run(folded, x, w, pipeline=pipeline()), want, rtol=1e-5, atol=1e-5)


def test_in_a_branch():
    @I.ir_module
    class Branch:
        @R.function
        def main(
            x: R.Tensor((1, 3, 8, 8), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            c: R.Tensor((), "bool"),
        ) -> R.Tensor((1, 4, 8, 8), "float32"):
            padded = R.nn.pad(x, pad_width=[0, 0, 0, 0, 1, 1, 1, 1])
            if c:
                y = R.nn.conv2d(padded, w)
                z = y
            else:
                y = R.nn.conv2d(padded, w)
                z = R.negative(y)
            return z

    folded = FoldPadIntoConv()(Branch)
    assert "R.nn.pad" not in folded.script()
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((1, 3, 8, 8), (4, 3, 3, 3)))
    want = torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1).numpy()
    for condition, sign in ((True, 1), (False, -1)):
        got = run(folded, x, w, np.array(condition), pipeline=pipeline())
        np.testing.assert_allclose(got, sign * want, rtol=1e-5, atol=1e-5)


@given(st.data())
def test_ranks_and_layouts(data):
    """Random pads before a convolution that has random padding of its own."""
    rank = data.draw(st.integers(1, 3), "rank")
    axes = "DHW"[-rank:]
    layout = data.draw(st.sampled_from([f"NC{axes}", f"N{axes}C"]), "layout")
    pads = [(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))) for _ in axes]
    own = [data.draw(st.integers(0, 2)) for _ in range(2 * rank)]
    strides = [data.draw(st.integers(1, 2)) for _ in axes]
    groups = data.draw(st.sampled_from([1, 4]), "groups")
    extents = {"N": 2, "C": 4} | {axis: data.draw(st.integers(3, 9)) for axis in axes}
    of_axis = dict(zip(axes, pads, strict=True))
    widths = [width for letter in layout for width in of_axis.get(letter, (0, 0))]

    def emit(builder, x, w):
        padded = builder.emit(relax.op.nn.pad(x, widths))
        operator = getattr(relax.op.nn, f"conv{rank}d")
        return operator(
            padded,
            w,
            strides=strides,
            padding=own,
            groups=groups,
            data_layout=layout,
            kernel_layout=f"OI{axes}",
        )

    shapes = [extents[letter] for letter in layout], [4, 4 // groups, *[3] * rank]
    mod = build({"x": tensor(*shapes[0]), "w": tensor(*shapes[1])}, emit)
    folded = FoldPadIntoConv()(mod)
    assert "R.nn.pad" not in folded.script()
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    channels_first = torch.from_numpy(x)
    if layout.endswith("C"):
        channels_first = channels_first.movedim(-1, 1)
    total = [
        (before + first, after + last)
        for (before, after), first, last in zip(pads, own[:rank], own[rank:], strict=True)
    ]
    flat = [width for pair in reversed(total) for width in pair]
    want = getattr(torch, f"conv{rank}d")(
        torch.nn.functional.pad(channels_first, flat),
        torch.from_numpy(w),
        stride=strides,
        groups=groups,
    )
    if layout.endswith("C"):
        want = want.movedim(1, -1)
    got = run(folded, x, w, pipeline=pipeline())
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
