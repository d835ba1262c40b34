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


def test_native():
    native = target.native()
    assert native.attrs["mcpu"] == tvm.target.codegen.llvm_get_system_cpu()
    assert target.missing_features(target.instruction_sets(native)) == []


def test_a_withheld_instruction_set_is_switched_off(monkeypatch):
    if not target.instruction_sets(target.native()):
        pytest.skip("the instruction sets of this architecture are not told apart")
    flags = target._linux_cpu_flags() - {"avx2", "fma"}
    monkeypatch.setattr(target, "_linux_cpu_flags", lambda: flags)
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
    "value, message",
    [
        ('{"kind": "llvm", ', "Failed to parse target JSON config"),
        ("nonsense", '"nonsense" is not defined'),
        ({"kind": "llvm", "mcpu": "zork"}, "LLVM knows no mcpu 'zork' for"),
        ({"kind": "llvm", "zork": 1}, "zork"),
        ("nvidia/nvidia-a100", "expected a CPU target (kind llvm), got kind cuda"),
    ],
)
def test_wrong_target(value, message):
    with pytest.raises(UsageError) as raised:
        target.resolve(value)
    assert message in raised.value.message
    assert "\n" not in raised.value.message


if __name__ == "__main__":
    tvm.testing.main()
