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
"""Code generation for other machines."""

import re

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import few
from helpers.relax_modules import build, tensor
from tvm_fixes.lowering import pipeline

X86, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu"

# The multiply instruction and its vector registers.
MACHINES = {
    "x86-64-v2": ({"mtriple": X86, "mcpu": "x86-64-v2"}, r"mulps\s.*%xmm"),
    "haswell": ({"mtriple": X86, "mcpu": "haswell"}, r"vfmadd\w+ps\s.*%ymm"),
    "skylake-avx512": ({"mtriple": X86, "mcpu": "skylake-avx512"}, r"vfmadd\w+ps\s.*%zmm"),
    "aarch64": ({"mtriple": ARM}, r"fmla\s.*\.4s"),
}

KERNELS = {
    "matmul": lambda x: relax.op.matmul(x, relax.const(np.ones((64, 64), "float32"))),
    "conv2d": lambda x: relax.op.nn.conv2d(
        relax.op.reshape(x, (1, 16, 8, 16)),
        relax.const(np.ones((64, 16, 3, 3), "float32")),
        padding=1,
    ),
    "conv2d_transpose": lambda x: relax.op.nn.conv2d_transpose(
        relax.op.reshape(x, (1, 16, 8, 16)),
        relax.const(np.ones((16, 64, 4, 4), "float32")),
        strides=2,
        padding=1,
    ),
}


def assembly(emit, machine: dict[str, str], dtype: str = "float32") -> str:
    mod = build({"x": tensor(32, 64, dtype=dtype)}, lambda _builder, x: emit(x))
    target = tvm.target.Target({"kind": "llvm", **machine})
    executable = relax.build(mod, target, relax_pipeline=pipeline())
    return "\n".join(module.inspect_source("s") for module in executable.mod.imports)


@few(4)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_widest_vectors_are_used(kernel, machine):
    target, multiplies = MACHINES[machine]
    # At least eight independent sums hide the instruction latency.
    assert len(re.findall(multiplies, assembly(KERNELS[kernel], target))) >= 8


@few(2)
@pytest.mark.parametrize("machine", MACHINES)
def test_elementary_functions_are_vectors(machine):
    target, multiplies = MACHINES[machine]
    # LLVM avoids 512-bit vectors for short kernels.
    multiplies = multiplies.replace("%zmm", "%[yz]mm")
    text = assembly(relax.op.nn.gelu, target)
    assert re.search(multiplies, text)
    assert "erff" not in text


@few(4)
@pytest.mark.parametrize(
    ("triple", "mcpu", "dtype", "instruction"),
    [
        ("x86_64-linux-gnu", "cascadelake", "uint8", r"vpdpbusd\b.*%zmm"),
        ("x86_64-linux-gnu", "alderlake", "uint8", r"vpdpbusd\b.*%ymm"),
        ("x86_64-linux-gnu", "cascadelake", "int16", r"vpdpwssd\b.*%zmm"),
        ("x86_64-linux-gnu", "skylake-avx512", "int16", r"vpmaddwd\b.*%zmm"),
        ("x86_64-linux-gnu", "haswell", "int16", r"vpmaddwd\b.*%ymm"),
        ("aarch64-linux-gnu", "neoverse-n1", "int8", r"sdot\b"),
        ("x86_64-linux-gnu", "cooperlake", "bfloat16", r"vdpbf16ps\b.*%zmm"),
        ("aarch64-linux-gnu", "neoverse-v1", "bfloat16", r"bfdot\b"),
    ],
)
def test_dot_products(triple, mcpu, dtype, instruction):
    of_floats = dtype == "bfloat16"
    weight = relax.const(np.ones((64, 48), "float32"), "bfloat16" if of_floats else "int8")
    text = assembly(
        lambda x: relax.op.matmul(x, weight, out_dtype="float32" if of_floats else "int32"),
        {"mtriple": triple, "mcpu": mcpu},
        dtype,
    )
    assert len(re.findall(instruction, text)) >= 8


if __name__ == "__main__":
    tvm.testing.main()
