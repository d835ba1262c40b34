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
"""tvm_fixes.target."""

import pytest
import tvm
import tvm.testing

from tvm_fixes import target
from tvm_fixes.errors import UsageError
from tvm_fixes.target import cuda, resolution


def test_native():
    native = target.native()
    assert native.attrs["mcpu"] == tvm.target.codegen.llvm_get_system_cpu()
    assert target.missing_features(target.instruction_sets(native)) == []


@pytest.mark.parametrize(("cpu", "expected"), [("znver4", True), ("cascadelake", False)])
def test_cpus_with_slow_gathers_load_elements_one_by_one(monkeypatch, cpu, expected):
    monkeypatch.setattr(resolution.codegen, "llvm_get_system_cpu", lambda: cpu)
    monkeypatch.setattr(
        resolution.codegen, "llvm_get_system_triple", lambda: "x86_64-unknown-linux-gnu"
    )
    attributes = map(str, target.native().attrs.get("mattr", ()))
    assert ("+prefer-no-gather" in attributes) == expected


def test_a_withheld_instruction_set_is_switched_off(monkeypatch):
    if not target.instruction_sets(target.native()):
        pytest.skip("the instruction sets of this architecture are not told apart")
    flags = resolution._linux_cpu_flags() - {"avx2", "fma"}
    monkeypatch.setattr(resolution, "_linux_cpu_flags", lambda: flags)
    native = target.native()
    assert {"-avx2", "-fma"} <= set(map(str, native.attrs["mattr"]))
    assert not {"avx2", "fma"} & set(target.instruction_sets(native))


@pytest.mark.parametrize(
    "value",
    [
        "llvm",
        {"kind": "llvm", "mattr": ["+fma"]},
        '{"kind": "llvm"}',
        tvm.target.Target("llvm"),
    ],
)
def test_forms(value):
    assert target.resolve(value).kind.name == "llvm"


@pytest.mark.parametrize(
    "value, triple, cpu",
    [
        ("aarch64/cortex-a76", "aarch64-linux-gnu", "cortex-a76"),
        ("x86_64/x86-64-v3", "x86_64-linux-gnu", "x86-64-v3"),
        ("riscv64/sifive-u74", "riscv64-linux-gnu", "sifive-u74"),
    ],
)
def test_a_cpu(value, triple, cpu):
    resolved = target.resolve(value)
    assert target.triple_of(resolved) == triple
    assert resolved.attrs["mcpu"] == cpu


@pytest.mark.parametrize(
    "value, message",
    [
        ('{"kind": "llvm", ', "Failed to parse target JSON config"),
        ("nonsense", '"nonsense" is not defined'),
        ("lvm", "target 'lvm': did you mean llvm?"),
        ("aws/cpu/c5.larg", "did you mean aws/cpu/c5.large?"),
        ({"kind": "llvm", "mcpu": "zork"}, "LLVM does not know mcpu 'zork' for"),
        ({"kind": "llvm", "zork": 1}, "zork"),
        ("aarch64/zork", "LLVM does not know mcpu 'zork' for aarch64-linux-gnu"),
        ("x86_64/", '"x86_64/" is not defined'),
        ("vulkan", "expected a CPU (kind llvm) or a GPU with CUDA (kind cuda), got kind vulkan"),
        ("cuda/sm_50", "expected an architecture of CUDA 13 (sm_75 or later), got sm_50"),
        ("cuda/sm_9", "expected an architecture of CUDA 13 (sm_75 or later), got sm_9"),
        ("cuda/zork", "invalid CUDA arch: -arch=zork"),
        (tvm.target.Target({"kind": "cuda", "arch": "sm_70"}), "(sm_75 or later), got sm_70"),
    ],
)
def test_wrong_target(value, message):
    with pytest.raises(UsageError) as raised:
        target.resolve(value)
    assert message in raised.value.message
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    "value, arch",
    [
        ("cuda/sm_90", "sm_90"),
        ({"kind": "cuda", "arch": "sm_100a"}, "sm_100a"),
        ('{"kind": "cuda", "arch": "sm_75"}', "sm_75"),
        ("nvidia/nvidia-a100", "sm_80"),
    ],
)
def test_a_gpu_has_this_kind_of_machine_as_its_host(value, arch):
    resolved = target.resolve(value)
    assert (resolved.kind.name, resolved.attrs["arch"]) == ("cuda", arch)
    assert target.triple_of(resolved) == tvm.target.codegen.llvm_get_system_triple()
    # Any CPU of this kind runs it.
    assert target.missing_features(target.instruction_sets(resolved)) == []
    assert "mcpu" not in target.cpu_of(resolved).attrs


def test_an_explicit_host_is_kept():
    host = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    resolved = target.resolve({"kind": "cuda", "arch": "sm_90", "host": host})
    assert target.triple_of(resolved) == "aarch64-linux-gnu"


@pytest.mark.parametrize("value", ["cuda", {"kind": "cuda"}, '{"kind": "cuda"}'])
def test_without_a_gpu_the_architecture_must_be_named(monkeypatch, value):
    monkeypatch.setattr(cuda, "has_device", lambda: False)
    with pytest.raises(UsageError, match=r"no CUDA device found; .* e\.g\. 'cuda/sm_90'"):
        target.resolve(value)


def test_a_target_of_another_kind_is_rejected():
    with pytest.raises(UsageError, match=r"expected a CPU \(kind llvm\), got kind cuda"):
        target.resolve("cuda/sm_90", kinds=["llvm"])


def test_why_not_here_asks_for_the_gpu(monkeypatch):
    monkeypatch.setattr(cuda, "why_not_here", lambda arch, libs: f"no {arch}, {list(libs)}")
    config = target.to_json(target.resolve("cuda/sm_90"))
    triple = target.triple_of(target.native())
    assert target.why_not_here(config, triple, []) == "no sm_90, []"
    assert target.why_not_here({"kind": "llvm"}, triple, []) is None


if __name__ == "__main__":
    tvm.testing.main()
