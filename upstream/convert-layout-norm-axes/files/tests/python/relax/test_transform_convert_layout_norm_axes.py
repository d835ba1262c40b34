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
"""Norms over several axes, whose order a converted layout changes."""

import numpy as np
import pytest

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.transform import ConvertLayout, Normalize
from tvm.script import ir as I
from tvm.script import relax as R


def test_layer_norm():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3, 5, 6), "float32"),
            w: R.Tensor((4, 3, 1, 1), "float32"),
            gamma: R.Tensor((4, 5, 6), "float32"),
            beta: R.Tensor((4, 5, 6), "float32"),
        ) -> R.Tensor((2, 4, 5, 6), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, w)
                gv = R.nn.layer_norm(lv, gamma, beta, axes=[1, 2, 3])
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 3, 5, 6), "float32"),
            w: R.Tensor((4, 3, 1, 1), "float32"),
            gamma: R.Tensor((4, 5, 6), "float32"),
            beta: R.Tensor((4, 5, 6), "float32"),
        ) -> R.Tensor((2, 4, 5, 6), "float32"):
            with R.dataflow():
                lv = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
                lv2 = R.nn.conv2d(lv, lv1, data_layout="NHWC", kernel_layout="OHWI")
                lv3 = R.permute_dims(lv2, axes=[0, 3, 1, 2])
                gv = R.nn.layer_norm(lv3, gamma, beta, axes=[1, 2, 3])
                R.output(gv)
            return gv

    mod = ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(Before)
    tvm.ir.assert_structural_equal(Normalize()(mod), Expected)


def run(mod, arrays):
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    return vm["main"](*(tvm.runtime.tensor(array) for array in arrays)).numpy()


@pytest.mark.parametrize(
    "norm, num_params", [(relax.op.nn.layer_norm, 2), (relax.op.nn.rms_norm, 1)]
)
def test_run(norm, num_params):
    rng = np.random.default_rng(0)
    shapes = [(2, 3, 5, 6), (4, 3, 1, 1)] + [(4, 5, 6)] * num_params
    arrays = [rng.standard_normal(shape, "float32") for shape in shapes]
    args = [relax.Var(f"arg{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    bb = relax.BlockBuilder()
    with bb.function("main", args):
        with bb.dataflow():
            conv = bb.emit(relax.op.nn.conv2d(*args[:2]))
            gv = bb.emit_output(norm(conv, *args[2:], axes=[-3, -2, -1]))
        bb.emit_func_output(gv)
    mod = ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(bb.get())
    tvm.testing.assert_allclose(run(mod, arrays), run(bb.get(), arrays), rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    tvm.testing.main()
