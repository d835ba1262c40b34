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
"""tvm_fixes.target.cpu: the CPU properties that schedules use."""

import pytest
import tvm
import tvm.testing

from tvm_fixes.target import resolve
from tvm_fixes.target.cpu import Cpu, is_cpu

X86, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu"


def target(triple, **options):
    return tvm.target.Target({"kind": "llvm", "mtriple": triple, **options})


@pytest.mark.parametrize(
    ("triple", "mcpu", "vector_bytes", "vector_registers"),
    [
        (X86, "x86-64", 16, 16),
        (X86, "nehalem", 16, 16),
        (X86, "sandybridge", 32, 16),
        (X86, "haswell", 32, 16),
        (X86, "skylake-avx512", 64, 32),
        (X86, "znver4", 64, 32),
        (ARM, "generic", 16, 32),
        (ARM, "cortex-a76", 16, 32),
        ("arm64-apple-darwin", "apple-m1", 16, 32),
        ("armv7-linux-gnueabihf", "cortex-a9", 16, 16),
    ],
)
def test_vectors(triple, mcpu, vector_bytes, vector_registers):
    cpu = Cpu.of(target(triple, mcpu=mcpu))
    assert (cpu.vector_bytes, cpu.vector_registers) == (vector_bytes, vector_registers)


@pytest.mark.parametrize(
    ("triple", "mcpu", "expected"),
    [
        (X86, "haswell", set()),
        (X86, "skylake-avx512", set()),
        (X86, "cascadelake", {"vnni"}),
        (X86, "alderlake", {"vnni"}),  # AVX-VNNI, without AVX-512
        (X86, "cooperlake", {"vnni", "bfloat16"}),
        (X86, "znver4", {"vnni", "bfloat16"}),
        (ARM, "generic", set()),
        (ARM, "cortex-a76", {"dotprod"}),
        (ARM, "neoverse-v1", {"dotprod", "bfloat16"}),
    ],
)
def test_dot_products(triple, mcpu, expected):
    cpu = Cpu.of(target(triple, mcpu=mcpu))
    names = ("vnni", "bfloat16", "dotprod")
    assert {name for name in names if getattr(cpu, f"has_{name}")} == expected


def test_features_that_are_switched_off():
    without = Cpu.of(target(X86, mcpu="znver4", mattr=["-avx512f"]))
    assert (without.vector_bytes, without.vector_registers) == (32, 16)


def test_equal_for_equal_targets():
    """Kernel caches use it as a key."""
    one, other = (Cpu.of(target(X86, mcpu="haswell")) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Cpu.of(target(X86))


def test_is_cpu():
    assert is_cpu(resolve("native"))
    assert is_cpu(tvm.target.Target("c"))
    assert Cpu.of(tvm.target.Target("c")).vector_bytes == 16
    assert not is_cpu(tvm.target.Target({"kind": "cuda", "arch": "sm_80"}))
    assert not is_cpu(None)


if __name__ == "__main__":
    tvm.testing.main()
