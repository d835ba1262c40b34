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

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.transform import ConvertLayout, Normalize
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


def test_conv2d_transpose():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 8, 6, 6), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")
        ) -> R.Tensor((2, 4, 8, 8), "float32"):
            with R.dataflow():
                gv = R.nn.conv2d_transpose(x, w, out_dtype="float32")
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 8, 6, 6), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")
        ) -> R.Tensor((2, 4, 8, 8), "float32"):
            with R.dataflow():
                lv = R.layout_transform(
                    x,
                    index_map=T.index_map(
                        lambda n, c, h, w: (n, c // 4, h, w, c % 4), index_dtype="int32"
                    ),
                )
                lv1 = R.layout_transform(
                    w,
                    index_map=T.index_map(
                        lambda i, o, h, w: (i, o // 4, h, w, o % 4), index_dtype="int32"
                    ),
                )
                lv2 = R.nn.conv2d_transpose(
                    lv,
                    lv1,
                    data_layout="NCHW4c",
                    kernel_layout="IOHW4o",
                    out_layout="NCHW4c",
                    out_dtype="float32",
                )
                gv = R.layout_transform(
                    lv2,
                    index_map=T.index_map(
                        lambda n, c, h, w, b: (n, c * 4 + b, h, w), index_dtype="int32"
                    ),
                )
                R.output(gv)
            return gv

    mod = ConvertLayout({"relax.nn.conv2d_transpose": ["NCHW4c", "IOHW4o"]})(Before)
    tvm.ir.assert_structural_equal(Normalize()(mod), Expected)


def test_conv3d_transpose():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 4, 2, 3, 3), "float32"), w: R.Tensor((4, 8, 1, 2, 2), "float32")
        ) -> R.Tensor((1, 8, 2, 4, 4), "float32"):
            with R.dataflow():
                gv = R.nn.conv3d_transpose(x, w, out_dtype="float32")
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((1, 4, 2, 3, 3), "float32"), w: R.Tensor((4, 8, 1, 2, 2), "float32")
        ) -> R.Tensor((1, 8, 2, 4, 4), "float32"):
            with R.dataflow():
                lv = R.layout_transform(
                    x,
                    index_map=T.index_map(
                        lambda n, c, d, h, w: (n, c // 4, d, h, w, c % 4), index_dtype="int32"
                    ),
                )
                lv1 = R.layout_transform(
                    w,
                    index_map=T.index_map(
                        lambda i, o, d, h, w: (i, o // 4, d, h, w, o % 4), index_dtype="int32"
                    ),
                )
                lv2 = R.nn.conv3d_transpose(
                    lv,
                    lv1,
                    data_layout="NCDHW4c",
                    kernel_layout="IODHW4o",
                    out_layout="NCDHW4c",
                    out_dtype="float32",
                )
                gv = R.layout_transform(
                    lv2,
                    index_map=T.index_map(
                        lambda n, c, d, h, w, b: (n, c * 4 + b, d, h, w), index_dtype="int32"
                    ),
                )
                R.output(gv)
            return gv

    mod = ConvertLayout({"relax.nn.conv3d_transpose": ["NCDHW4c", "IODHW4o"]})(Before)
    tvm.ir.assert_structural_equal(Normalize()(mod), Expected)


def test_channels_that_are_no_multiple_of_the_block():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 3, 4, 4), "float32"), w: R.Tensor((3, 2, 2, 2), "float32")
        ) -> R.Tensor((1, 2, 8, 8), "float32"):
            with R.dataflow():
                gv = R.nn.conv2d_transpose(x, w, strides=(2, 2), out_dtype="float32")
                R.output(gv)
            return gv

    mod = ConvertLayout({"relax.nn.conv2d_transpose": ["NCHW4c", "IOHW4o"]})(Before)
    tvm.ir.assert_structural_equal(Normalize()(mod), Before)

    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 3, 4, 4), "float32")
    w = rng.standard_normal((3, 2, 2, 2), "float32")
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
    # A kernel as large as its stride: the windows do not overlap.
    expected = np.einsum("nihw,ioab->nohawb", x, w).reshape(1, 2, 8, 8)
    tvm.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
