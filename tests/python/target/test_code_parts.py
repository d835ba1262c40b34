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

import os

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

import tvm_fixes
from tvm_fixes.compiler import steps
from tvm_fixes.fixes.elements import SLP_VECTORIZER
from tvm_fixes.support import switches
from tvm_fixes.target.code_parts import at_once, divisible, parts_of

CPU = tvm.target.Target({"kind": "llvm", "opt-level": 0})


def with_cpus(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of modules with machine code of each model that is built."""
    counts: list[int] = []
    build = steps.build_executable

    def counted(mod: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
        executable = build(mod, target)
        counts.append(len(executable.mod._collect_dso_modules()))
        return executable

    monkeypatch.setattr(steps, "build_executable", counted)
    return counts


def test_the_library_does_not_depend_on_the_cpus(
    parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(size, size + 1) for size in range(40, 47))).eval()

    def compiled(cpus: int) -> tvm_fixes.CompiledModel:
        with_cpus(cpus, monkeypatch)
        return tvm_fixes.compile((layers, (torch.ones(64, 40),)), target=CPU, compare=False)

    one, two = compiled(1), compiled(2)
    assert one.manifest.sha256 == two.manifest.sha256
    monkeypatch.setattr(steps, "divisible", lambda mod: mod)
    whole = compiled(2)
    assert parts[0] == parts[1] > parts[2] == 1
    x = np.random.default_rng(0).standard_normal((64, 40)).astype("float32")
    np.testing.assert_array_equal(two(x), whole(x))


def many() -> tvm.IRModule:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def z_helper(a: T.int32) -> T.int32:
            return a + 1

        @T.prim_func
        def a_caller(a: T.Buffer((4,), "int32")):
            for i in range(4):
                a[i] = Module.z_helper(a[i])

        @T.prim_func
        def b_caller(a: T.Buffer((4,), "int32")):
            a[0] = T.call_extern("int32", "kernel0", a[1])

    def kernel(index: int) -> tirx.PrimFunc:
        @T.prim_func
        def add(a: T.Buffer((4,), "int32")):
            for i in range(4):
                a[i] = a[i] + index

        return add.with_attr("global_symbol", f"kernel{index}")

    for index in range(6):
        Module[f"kernel{index}"] = kernel(index)
    return Module


def test_functions_that_refer_to_each_other_stay_together() -> None:
    mod = many()
    assert parts_of(mod) == [mod]
    parts = [{var.name_hint for var in part.get_global_vars()} for part in parts_of(divisible(mod))]
    assert len(parts) > 1
    assert sorted(name for part in parts for name in part) == sorted(
        var.name_hint for var in mod.get_global_vars()
    )
    for pair in ({"a_caller", "z_helper"}, {"b_caller", "kernel0"}):
        assert any(pair <= part for part in parts)


def test_an_error_of_llvm_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cpus(2, monkeypatch)
    target = tvm.target.Target({"kind": "llvm", "cl-opt": ["-slp-threshold=100"]})
    with pytest.raises(tvm.error.InternalError, match="parsing command-line options"):
        tvm.tirx.build(divisible(many()), target)


@pytest.mark.parametrize("cpus", [1, 2])
def test_calls_at_once(cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are in order, and so are errors; the context is that of the caller."""
    with_cpus(cpus, monkeypatch)

    def call(item: int) -> int:
        if item < 0:
            raise ValueError(str(item))
        switches.note(SLP_VECTORIZER)
        return 2 * item

    with switches.collect() as used:
        assert at_once(call, range(5)) == [0, 2, 4, 6, 8]
    assert SLP_VECTORIZER in used
    with pytest.raises(ValueError, match="-1"):
        at_once(call, [3, -1, -2])


if __name__ == "__main__":
    tvm.testing.main()
