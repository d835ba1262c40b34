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
"""tvm_fixes.search.kernel_parts: the reduction of kernels."""

import os
import re
import signal

import pytest
import tvm
import tvm.testing
from tvm import tirx
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm_ffi import structural_map

from helpers.grids import is_full
from helpers.planted_faults import as_pass, in_kernels, plant
from tvm_fixes.errors import UsageError
from tvm_fixes.search import reduction
from tvm_fixes.search.kernel_parts import (
    shrunk,
    simpler_modules,
    statements_of,
    with_main,
    without_statements,
)
from tvm_fixes.search.problem import Kind, Observed, Problem
from tvm_fixes.search.reduction import reduce
from tvm_fixes.search.relax_parts import is_defined
from tvm_fixes.search.trial import Settings
from tvm_fixes.source.module_file import read_module

SOURCE = """
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def chain(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32"),
          C: T.Buffer((8, 6), "float32")):
    D = T.alloc_buffer((8, 6), "float32")
    E = T.alloc_buffer((8, 6), "float32")
    for i, j in T.grid(8, 6):
        with T.sblock("d"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.exp(A[vi, vj])
    for i, j in T.grid(8, 6):
        with T.sblock("e"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = T.max(D[vi, vj], T.float32(0)) - B[vi, vj]
    for i, j in T.grid(8, 6):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = E[vi, vj] * T.float32(3)
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(SOURCE)
    return file


@pytest.fixture
def mod(path):
    return with_main(read_module(path))


def test_a_main_calls_the_kernels_of_a_module(mod):
    assert [str(param.name) for param in mod["main"].params] == ["A", "B"]
    assert with_main(mod).same_as(mod)
    both = with_main(tvm.IRModule({"main": mod["chain"], "other": mod["chain"]}))
    assert len(both["main"].params) == 4 and len(both["main"].ret_ty.fields) == 2


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("C[vi, vj] = E", "A[vi, vj] = E", "must write to its last parameters only"),
        ("D[vi, vj] = T.exp", "C[vi, vj] = T.exp", None),
        ("B: T.Buffer", "n: T.int64, B: T.Buffer", "'n' .*: expected a tensor with known extents"),
    ],
)
def test_kernels_whose_results_cannot_be_told(old, new, problem, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(SOURCE.replace(old, new))
    if problem is None:
        assert with_main(read_module(file))["main"]
        return
    with pytest.raises(UsageError, match=problem):
        with_main(read_module(file))


def test_reads_of_a_dropped_statement_are_a_constant(mod):
    first, second, last = statements_of(mod)
    text = without_statements(mod, [first])["chain"].script()
    assert "T.float32(1.0)" in text and "D" not in text.replace("DType", "").split("E = ")[1]
    text = without_statements(mod, [first, second])["chain"].script()
    assert text.count("T.grid") == 1 and "alloc_buffer" not in text
    assert without_statements(mod, [last]) is None, "the result is written by nothing"


def test_loops_blocks_and_values_become_simpler(mod):
    small = shrunk(mod, 8, 1)
    assert [int(size) for size in small["main"].params[0].ty.shape] == [1, 6]
    texts = [one["chain"].script() for _, one in simpler_modules(small)]
    assert any(text.count("T.grid(1, 6)") == 2 for text in texts), "a loop with one iteration"
    blocks = small["chain"].script().count("T.sblock")
    assert any(text.count("T.sblock") == blocks - 1 for text in texts), "a block"
    assert any("T.exp" not in text for text in texts), "a value"


def test_results_that_depend_on_new_memory_are_not_defined(mod):
    inputs = Settings().draw_inputs(Settings().open(mod))
    assert is_defined(mod, inputs)
    half = structural_map(
        mod["chain"], (tirx.For, lambda loop: loop if int(loop.extent) == 6 else _half(loop))
    )
    assert not is_defined(with_main(tvm.IRModule({"chain": half})), inputs)


def _half(loop: tirx.For) -> tirx.For:
    return tirx.For(
        loop.loop_var, loop.min, tirx.IntImm(loop.extent.ty.dtype, 4), loop.kind, loop.body
    )


def _with_swapped_differences(function: tirx.PrimFunc) -> tirx.PrimFunc:
    def swapped(node: tirx.Sub) -> tirx.Sub:
        return tirx.Sub(node.b, node.a) if "float" in str(node.a.ty) else node

    return structural_map(function, (tirx.Sub, swapped))


def told(_problem, subject, _settings):
    """The observation of a module whose result depends on a subtraction."""
    mod = subject.open().to_relax()
    given, expected = (list(map(int, mod[f].params[0].ty.shape)) for f in ("main", "chain"))
    text = mod["chain"].script()
    is_constant = re.search(r" C\[.*\] = T.float32\([\d.]+\)$", text, re.MULTILINE)
    return Observed(" - " in text and not is_constant and given == expected, "as told")


@pytest.mark.parametrize("is_run", [False, True] if is_full() else [False])
def test_a_wrong_schedule_of_a_kernel(is_run, path, monkeypatch, tmp_path):
    if is_run:
        wrong = as_pass("Wrong", in_kernels("chain", _with_swapped_differences))
        plant(monkeypatch, schedules=wrong)
    else:
        monkeypatch.setattr(reduction, "observe", told)
        monkeypatch.setattr(reduction, "is_defined", lambda *_: True)
    found = reduce(path, output=tmp_path / "reduced")
    text = open(found.script).read()
    kernel = text[text.index("def chain") : text.index("@R.function")]
    assert "for " not in kernel and "T.exp" not in kernel
    assert " - " in kernel and "alloc_buffer" not in kernel
    assert "T.Buffer((1, 1)" in kernel


@pytest.mark.skipif(not is_full(), reason="about fifty compilations; --tier full")
def test_a_kernel_that_crashes_the_compiler(path, monkeypatch, tmp_path):
    def crash(function: tirx.PrimFunc) -> tirx.PrimFunc:
        if ".exp" in function.script():
            os.kill(os.getpid(), signal.SIGSEGV)
        return function

    plant(monkeypatch, operators=as_pass("Crash", in_kernels("chain", crash)))
    found = reduce(path, Problem(Kind.CRASHES), output=tmp_path / "reduced")
    text = open(found.script).read()
    assert found.what == "SIGSEGV: crashed" and "T.exp" in text and "T.max" not in text


@I.ir_module
class Scaled:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in T.serial(4):
            with T.sblock("b"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)


def test_a_prim_func_is_a_model():
    source = Settings().open(Scaled["main"])
    (x,) = Settings().draw_inputs(source)
    _, run = source.reference()
    tvm.testing.assert_allclose(run([x])[0], 2 * x)
    names = {str(var.name_hint) for var in Settings().open(Scaled).to_relax().get_global_vars()}
    assert names == {"kernel", "main"}


if __name__ == "__main__":
    tvm.testing.main()
