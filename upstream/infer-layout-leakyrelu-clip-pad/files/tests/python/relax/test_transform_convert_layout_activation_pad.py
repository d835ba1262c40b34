# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.

import numpy as np
import pytest

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.transform import ConvertLayout, Normalize
from tvm.script import ir as I
from tvm.script import relax as R

DESIRED = {"relax.nn.conv2d": ["NHWC", "OHWI"]}


@I.ir_module
class Leakyrelu:
    @R.function
    def main(
        x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
    ) -> R.Tensor((2, 4, 6, 6), "float32"):
        with R.dataflow():
            lv = R.nn.conv2d(x, w, out_dtype="float32")
            gv = R.nn.leakyrelu(lv, alpha=0.25)
            R.output(gv)
        return gv


@I.ir_module
class LeakyreluExpected:
    @R.function
    def main(
        x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
    ) -> R.Tensor((2, 4, 6, 6), "float32"):
        with R.dataflow():
            lv = R.permute_dims(x, axes=[0, 2, 3, 1])
            lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
            lv2 = R.nn.conv2d(
                lv,
                lv1,
                data_layout="NHWC",
                kernel_layout="OHWI",
                out_layout="NHWC",
                out_dtype="float32",
            )
            lv3 = R.nn.leakyrelu(lv2, alpha=0.25)
            gv = R.permute_dims(lv3, axes=[0, 3, 1, 2])
            R.output(gv)
        return gv


@I.ir_module
class Clip:
    @R.function
    def main(
        x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
    ) -> R.Tensor((2, 4, 6, 6), "float32"):
        with R.dataflow():
            lv = R.nn.conv2d(x, w, out_dtype="float32")
            gv = R.clip(lv, -1, 6)
            R.output(gv)
        return gv


@I.ir_module
class ClipExpected:
    @R.function
    def main(
        x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
    ) -> R.Tensor((2, 4, 6, 6), "float32"):
        with R.dataflow():
            lv = R.permute_dims(x, axes=[0, 2, 3, 1])
            lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
            lv2 = R.nn.conv2d(
                lv,
                lv1,
                data_layout="NHWC",
                kernel_layout="OHWI",
                out_layout="NHWC",
                out_dtype="float32",
            )
            lv3 = R.clip(lv2, -1, 6)
            gv = R.permute_dims(lv3, axes=[0, 3, 1, 2])
            R.output(gv)
        return gv


@I.ir_module
class Pad:
    @R.function
    def main(
        x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
    ) -> R.Tensor((3, 5, 10, 9), "float32"):
        with R.dataflow():
            lv = R.nn.conv2d(x, w, out_dtype="float32")
            gv = R.nn.pad(lv, (0, 1, 1, 0, 1, 3, 2, 1), pad_value=0.5)
            R.output(gv)
        return gv


@I.ir_module
class PadExpected:
    @R.function
    def main(
        x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
    ) -> R.Tensor((3, 5, 10, 9), "float32"):
        with R.dataflow():
            lv = R.permute_dims(x, axes=[0, 2, 3, 1])
            lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
            lv2 = R.nn.conv2d(
                lv,
                lv1,
                data_layout="NHWC",
                kernel_layout="OHWI",
                out_layout="NHWC",
                out_dtype="float32",
            )
            lv3 = R.nn.pad(lv2, (0, 1, 1, 3, 2, 1, 1, 0), pad_value=0.5)
            gv = R.permute_dims(lv3, axes=[0, 3, 1, 2])
            R.output(gv)
        return gv


CASES = [(Leakyrelu, LeakyreluExpected), (Clip, ClipExpected), (Pad, PadExpected)]


@pytest.mark.parametrize("before, expected", CASES, ids=["leakyrelu", "clip", "pad"])
def test_follows_conv2d(before, expected):
    mod = ConvertLayout(DESIRED)(before)
    tvm.ir.assert_structural_equal(Normalize()(mod), expected)


def test_pad_of_a_packed_value():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 4, 6, 6), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")
        ) -> R.Tensor((1, 5, 6, 6), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, w, out_dtype="float32")
                lv1 = R.clip(lv, 0, 1)
                gv = R.nn.pad(lv1, (0, 0, 1, 0, 0, 0, 0, 0))
                R.output(gv)
            return gv

    mod = ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]})(Before)
    calls = [binding.value for binding in mod["main"].body.blocks[0].bindings]
    clip, pad = (next(c for c in calls if c.op.name == n) for n in ("relax.clip", "relax.nn.pad"))
    # clip keeps the packed layout; pad needs the initial one.
    assert clip.args[0].ty.ndim == 5
    tvm.ir.assert_structural_equal(pad.args[0].ty, Before["main"].params[0].ty)
    assert list(pad.attrs.pad_width) == [0, 0, 1, 0, 0, 0, 0, 0]


def test_run():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3, 8, 8), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            v: R.Tensor((2, 4, 2, 2), "float32"),
        ) -> R.Tensor((2, 2, 9, 6), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, w, out_dtype="float32")
                lv1 = R.nn.leakyrelu(lv, alpha=0.25)
                lv2 = R.clip(lv1, -1, 6)
                lv3 = R.nn.pad(lv2, (0, 0, 0, 0, 1, 3, 0, 1))
                gv = R.nn.conv2d(lv3, v, out_dtype="float32")
                R.output(gv)
            return gv

    after = ConvertLayout(DESIRED)(Before)
    names = [binding.value.op.name for binding in after["main"].body.blocks[0].bindings]
    # Transposes of the data, both weights and the result.
    assert names.count("relax.permute_dims") == 4

    rng = np.random.default_rng(0)
    shapes = [(2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 2, 2)]
    inputs = [tvm.runtime.tensor(rng.standard_normal(shape, "float32")) for shape in shapes]
    expected, got = (
        relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())["main"](*inputs).numpy()
        for mod in (Before, after)
    )
    tvm.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    tvm.testing.main()
