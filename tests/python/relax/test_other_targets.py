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
"""Fixes of operators reach only the targets that they were written for, and kernels of devices."""

import numpy as np
import pytest
import tvm
import tvm.testing
import tvm_ffi
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.relax_modules import build, tensor
from tvm_fixes.support import switches

pytestmark = pytest.mark.native

op = relax.op
OTHERS = {
    "c": "c",
    "hexagon": "qcom/hexagon-v68",
    "metal": "metal",
    "opencl": "opencl",
    "adreno": {"kind": "opencl", "device": "adreno"},
}


def layers():
    """Operators of which each has a lowering of this package on a CPU."""

    def emit(builder, x, kernel, matrix):
        x = builder.emit(op.nn.relu(op.nn.conv2d(x, kernel, padding=1)))
        x = builder.emit(op.nn.avg_pool2d(op.nn.softmax(x), pool_size=2, strides=2))
        x = builder.emit(op.take(op.matmul(op.reshape(x, (16, 8)), matrix), op.arange(4), axis=0))
        x = builder.emit(op.nn.layer_norm(x, op.sum(x, 0), op.mean(x, 0), axes=-1))
        return op.floor_divide(op.cumsum(x, 1), op.strided_slice(x, [0], [0], [1]))

    inputs = {"x": tensor(1, 8, 8, 8), "kernel": tensor(8, 8, 3, 3), "matrix": tensor(8, 8)}
    return build(inputs, emit)


def lowered(mod, target):
    with tvm.target.Target(target):
        return relax.transform.LegalizeOps()(mod)


@pytest.mark.parametrize("name", OTHERS)
def test_other_backends_keep_lowerings(name):
    with switches.without(switches.FIX_IDS):
        stock = lowered(layers(), OTHERS[name])
    tvm.ir.assert_structural_equal(lowered(layers(), OTHERS[name]), stock)


def test_supported_targets_have_own_lowerings():
    with switches.without(switches.FIX_IDS):
        stock = lowered(layers(), "llvm")
    assert not tvm_ffi.structural_equal(lowered(layers(), "llvm"), stock)


def test_source_in_c_is_compiled(tmp_path):
    """Kernels with vectors have no form in C."""
    executable = relax.build(layers(), tvm.target.Target("c", host="c"))
    executable.export_library(str(tmp_path / "model.so"))
    library = tvm.runtime.load_module(str(tmp_path / "model.so"))
    random = np.random.default_rng(0)
    shapes = [(1, 8, 8, 8), (8, 8, 3, 3), (8, 8)]
    inputs = [random.uniform(0.5, 1, shape).astype("float32") for shape in shapes]
    got, expected = (
        relax.VirtualMachine(built, tvm.cpu())["main"](*map(tvm.runtime.tensor, inputs)).numpy()
        for built in (library, relax.build(layers(), "llvm"))
    )
    np.testing.assert_allclose(got, expected, rtol=1e-3)


def chain():
    """Convolutions in blocks, with operators between them that can follow their layout."""

    def emit(builder, x, kernel, scale, mean):
        x = builder.emit(op.nn.conv2d(x, kernel, padding=1))
        x = builder.emit(op.ewise_fma(x, scale, scale))
        x = builder.emit(op.add(mean, x))
        x = builder.emit(op.nn.conv2d(op.permute_dims(x, [0, 1, 3, 2]), kernel, padding=1))
        return op.squeeze(x, [0])

    inputs = {
        "x": tensor(1, 8, 8, 8),
        "kernel": tensor(8, 8, 3, 3),
        "scale": tensor(1, 8, 8, 8),
        "mean": tensor(1, 1, 8, 8),
    }
    return build(inputs, emit)


def converted(target):
    blocks = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o", "NCHW4c"]})
    with tvm.target.Target(target):
        return blocks(chain())


@pytest.mark.parametrize("name", OTHERS)
def test_other_backends_keep_layouts(name):
    with switches.without(switches.FIX_IDS):
        stock = converted(OTHERS[name])
    tvm.ir.assert_structural_equal(converted(OTHERS[name]), stock)


def test_supported_targets_have_own_layouts():
    with switches.without(switches.FIX_IDS):
        stock = converted("llvm")
    assert not tvm_ffi.structural_equal(converted("llvm"), stock)


def test_negative_squeeze_is_safe_on_other_backends():
    def emit(builder, x, kernel):
        return op.squeeze(builder.emit(op.nn.conv2d(x, kernel)), [-1])

    mod = build({"x": tensor(1, 8, 3, 3), "kernel": tensor(8, 8, 3, 3)}, emit)
    blocks = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o", "NCHW4c"]})
    with tvm.target.Target(OTHERS["adreno"]):
        after = blocks(mod)
    assert [int(extent) for extent in after["main"].ret_ty.shape] == [1, 8, 1]


@I.ir_module
class OnTwoDevices:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        y: R.Tensor((3, 4), "float32"),
        z: R.Tensor((4, 5), "float32"),
    ) -> R.Tensor((2, 5), "float32"):
        with R.dataflow():
            first = R.hint_on_device(R.matmul(x, y), tvm.cpu(0))
            moved: R.Tensor((2, 4), "float32", "llvm:1") = R.to_vdevice(first, "llvm:1")
            out = R.nn.softmax(R.floor_divide(R.matmul(moved, z), R.const(2.0, "float32")))
            R.output(out)
        return out


def test_kernels_of_devices_have_targets():
    mod = relax.transform.LegalizeOps()(relax.transform.RealizeVDevice()(OnTwoDevices))
    kernels = [f for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)]
    assert len(kernels) >= 3
    assert all(kernel.attrs["target"].kind.name == "llvm" for kernel in kernels)
    mod = tvm.s_tir.transform.DefaultGPUSchedule()(mod)
    vm = relax.VirtualMachine(tvm.compile(mod), [tvm.cpu(0), tvm.cpu(1)])
    random = np.random.default_rng(0)
    x, y, z = (random.uniform(0, 4, s).astype("float32") for s in [(2, 3), (3, 4), (4, 5)])
    on_first = (tvm.runtime.tensor(array, tvm.cpu(0)) for array in (x, y))
    got = vm["main"](*on_first, tvm.runtime.tensor(z, tvm.cpu(1))).numpy()
    floor = np.floor_divide(x @ y @ z, 2)
    powers = np.exp(floor - floor.max(-1, keepdims=True))
    np.testing.assert_allclose(got, powers / powers.sum(-1, keepdims=True), rtol=1e-4)


def test_kernels_of_one_name_serve_one_device():
    """The same product without a device does not get the kernel of one with a device."""

    @I.ir_module
    class Mixed:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(
            x: R.Tensor((4, 4), "float32"), y: R.Tensor((4, 4), "float32", "llvm:1")
        ) -> R.Tuple(R.Tensor((4, 4), "float32"), R.Tensor((4, 4), "float32", "llvm:1")):
            with R.dataflow():
                first = R.matmul(x, x)
                second = R.matmul(y, y)
                third = R.matmul(first, x)
                out = (third, second)
                R.output(out)
            return out

    with tvm.target.Target("llvm"):
        mod = relax.transform.LegalizeOps()(Mixed)
    kernels = [f for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)]
    assert sorted("target" in kernel.attrs for kernel in kernels) == [False, True]


if __name__ == "__main__":
    tvm.testing.main()
