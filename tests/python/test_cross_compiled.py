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
"""Kernels for aarch64, run in an emulator and compared with native kernels."""

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm.testing
import tvm_ffi
from tvm import relax, tirx

from helpers.emulated_cpu import emulated_cpu
from helpers.lowering import lowered_before
from helpers.relax_modules import build, tensor
from tvm_fixes.lowering import stages
from tvm_fixes.target import resolve

CC, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
AARCH64 = tvm.target.Target(
    {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon", "+fp-armv8"]}
)
RUNNER = Path(__file__).parent / "helpers" / "kernel_runner.c"
RNG = np.random.default_rng(0)

pytestmark = pytest.mark.skipif(
    not (shutil.which(CC) and shutil.which(EMULATOR)),
    reason=f"{CC} and {EMULATOR} are not installed (gcc-aarch64-linux-gnu and qemu-user)",
)


def constant(*shape):
    return relax.const(RNG.standard_normal(shape).astype("float32"))


def norm(x):
    return relax.op.nn.layer_norm(x, constant(77), constant(77), axes=[-1])


OPERATORS = {
    "linear": ([(7, 70)], lambda x: relax.op.matmul(x, constant(70, 45))),
    "long sums": ([(40, 768)], lambda x: relax.op.matmul(x, constant(768, 200))),
    "attention": ([(3, 19, 33), (3, 33, 21)], lambda x, y: relax.op.matmul(x, y)),
    "conv2d": ([(1, 5, 13, 11)], lambda x: relax.op.nn.conv2d(x, constant(18, 5, 3, 3), padding=1)),
    "strided": (
        [(1, 8, 13, 11)],
        lambda x: relax.op.nn.conv2d(x, constant(18, 8, 3, 3), strides=2),
    ),
    "depthwise": (
        [(1, 18, 13, 11)],
        lambda x: relax.op.nn.conv2d(x, constant(18, 1, 5, 5), padding=2, groups=18),
    ),
    "to three channels": (
        [(1, 24, 13, 17)],
        lambda x: relax.op.nn.conv2d(x, constant(3, 24, 3, 3), padding=1),
    ),
    "conv2d_transpose": (
        [(1, 12, 7, 9)],
        lambda x: relax.op.nn.conv2d_transpose(x, constant(12, 9, 4, 4), strides=2, padding=1),
    ),
    "softmax": ([(9, 77)], lambda x: relax.op.nn.softmax(x)),
    "layer_norm": ([(9, 77)], norm),
    "gelu": ([(9, 77)], lambda x: relax.op.nn.gelu(x)),
    "tanh": ([(300, 301)], lambda x: relax.op.tanh(x)),
    "transpose": ([(29, 31)], lambda x: relax.op.permute_dims(x)),
    "max_pool2d": ([(1, 4, 13, 12)], lambda x: relax.op.nn.max_pool2d(x, 3, 2, 1)),
    "concat": ([(3, 9), (4, 9)], lambda x, y: relax.op.concat([x, y], 0)),
}


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """Links the runner with an object file, and gives the path of the program."""
    folder = tmp_path_factory.mktemp("aarch64")
    include = tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()

    def link(obj):
        program = folder / f"{obj.stem}.out"
        options = ["-O1", "-static", "-Wall", "-Wextra", "-Werror", *(f"-I{p}" for p in include)]
        subprocess.run([CC, *options, RUNNER, obj, "-lm", "-o", program], check=True)
        return program

    return link


def kernels(mod, target=AARCH64):
    """The kernels of a module, lowered as for aarch64."""
    lowering = stages()
    with target:
        mod = lowered_before(mod, lowering, "Lower")
    return [
        tvm.IRModule({"kernel": function.with_attr("global_symbol", "kernel")})
        for _, function in mod.functions_items()
        if isinstance(function, tirx.PrimFunc)
    ]


def emulate(program, path, arrays):
    """The arrays after the kernel."""
    with path.open("wb") as file:
        file.write(struct.pack("<q", len(arrays)))
        for array in arrays:
            code = 4 if array.dtype == "bfloat16" else {"f": 2, "i": 0, "u": 1}[array.dtype.kind]
            header = [code, array.dtype.itemsize * 8, array.ndim, *array.shape]
            file.write(struct.pack(f"<{len(header)}q", *header) + array.tobytes())
    subprocess.run([EMULATOR, program, path], check=True, timeout=60)
    content, at, results = path.read_bytes(), 8, []
    for array in arrays:
        at += 8 * (3 + array.ndim)
        results.append(np.frombuffer(content, array.dtype, array.size, at).reshape(array.shape))
        at += array.nbytes
    return results


@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_for_aarch64(name, runner, tmp_path):
    shapes, emit = OPERATORS[name]
    inputs = {f"x{i}": tensor(*shape) for i, shape in enumerate(shapes)}
    found = kernels(build(inputs, lambda _, *xs: emit(*xs)))
    assert found
    for number, kernel in enumerate(found):
        arrays = [
            RNG.standard_normal([int(n) for n in param.shape]).astype(str(param.dtype))
            for param in kernel["kernel"].params
        ]
        here = [tvm.runtime.tensor(array) for array in arrays]
        tvm.compile(kernel, resolve("native"))["kernel"](*here)
        obj = tmp_path / f"{name.replace(' ', '_')}{number}.o"
        tvm.compile(kernel, AARCH64).mod.write_to_file(str(obj), "o")
        there = emulate(runner(obj), tmp_path / "tensors", arrays)
        assert not np.array_equal(there[-1], arrays[-1])
        for one, other in zip(here, there, strict=True):
            np.testing.assert_allclose(other, one.numpy(), rtol=1e-5, atol=1e-5)


def product(name, dtype):
    """A product with sums in 32 bits, of a constant weight."""
    sums = "float32" if dtype == "bfloat16" else "int32"
    if name == "linear":
        weight = relax.const(numbers((70, 45), dtype), dtype)
        return build(
            {"x": tensor(7, 70, dtype=dtype)},
            lambda _, x: relax.op.matmul(x, weight, out_dtype=sums),
        )
    weight = relax.const(numbers((18, 5, 3, 3), dtype), dtype)
    return build(
        {"x": tensor(1, 5, 13, 11, dtype=dtype)},
        lambda _, x: relax.op.nn.conv2d(x, weight, padding=1, out_dtype=sums),
    )


def numbers(shape, dtype):
    """Integers whose products and sums are exact."""
    return RNG.integers(-128, 128, shape).astype(dtype)


@pytest.mark.parametrize("name", ["linear", "conv2d"])
@pytest.mark.parametrize(("dtype", "instruction"), [("int8", "sdot"), ("bfloat16", "bfdot")])
def test_dot_products(name, dtype, instruction, runner, tmp_path):
    """The instruction adds the same products as loops."""
    machine = {"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-v1"}
    target = tvm.target.Target({"kind": "llvm", **machine})
    mod = product(name, dtype)
    with emulated_cpu():
        in_loops = kernels(mod, target)
    found = kernels(mod, target)
    text = ""
    for number, (kernel, loops) in enumerate(zip(found, in_loops, strict=True)):
        arrays = [
            numbers([int(n) for n in param.shape], str(param.dtype))
            for param in kernel["kernel"].params
        ]
        here = [tvm.runtime.tensor(array) for array in arrays]
        tvm.compile(loops, resolve("native"))["kernel"](*here)
        obj = tmp_path / f"{name}{number}.o"
        compiled = tvm.compile(kernel, target).mod
        compiled.write_to_file(str(obj), "o")
        text += compiled.inspect_source("s")
        there = emulate(runner(obj), tmp_path / "tensors", arrays)
        for one, other in zip(here, there, strict=True):
            np.testing.assert_array_equal(other, one.numpy())
    assert instruction in text


if __name__ == "__main__":
    tvm.testing.main()
