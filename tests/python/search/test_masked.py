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
"""Values that differ although later operators mask it."""

import shlex

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.grids import from_tier
from helpers.planted_faults import graph, plant, swap_operands, wrong_schedule
from helpers.preparation import prepare_forks
from tvm_fixes.errors import UsageError
from tvm_fixes.search import bisection, reduction
from tvm_fixes.search.bisection import bisect
from tvm_fixes.search.reduction import reduce
from tvm_fixes.search.trial import Settings
from tvm_fixes_cli import main


@pytest.fixture(scope="module", autouse=True)
def prepared():
    prepare_forks()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model that multiplies a difference by zero."""
    nodes = "d = Sub (x, y) z = Mul (d, zero) r = Add (z, y)"
    zero = np.zeros(1, "float32")
    found = graph("float[4,8] x, float[4,8] y", "float[4,8] r", nodes, zero=zero)
    onnx.save(found, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def wrong_kernel(monkeypatch):
    """A wrong kernel of the difference."""
    plant(monkeypatch, schedules=wrong_schedule)


@from_tier("ci")
@pytest.mark.usefixtures("wrong_kernel")
def test_the_first_value_that_differs_is_searched(folder, capfd):
    found = bisect("model.onnx", over=["kernels"])
    assert found.shows and found.value == "d" and found.what.startswith("d: ")
    assert "subtract" in found.culprits[0].names[0]
    reduced = reduce("model.onnx", output=folder / "reduced")
    assert reduced.operators == ["Sub"] and reduced.value == "d"


@from_tier("ci")
def test_a_user_s_pass_may_be_the_cause(folder):
    settings = Settings(passes=[(swap_operands, "before=Legalize")])
    found = bisect("model.onnx", over=["passes"], settings=settings)
    assert found.shows and found.value == "d"
    assert "SwapOperands" in found.culprits[0].names[0]


@from_tier("ci")
@pytest.mark.usefixtures("wrong_kernel")
def test_compare_prints_the_next_command(folder, capfd):
    assert main(["compare", "model.onnx", "-q", "--seed", "2"]) == 1
    out = capfd.readouterr().out
    assert "outputs           1 of 1 equal" in out
    line = "tvm-fixes bisect model.onnx --value d --seed 2"
    assert f"next: {line}\n" in out and f"next: {line.replace('bisect', 'reduce')}\n" in out
    assert main([*shlex.split(line)[1:], "-q", "--over", "kernels"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("not equal to the reference: yes; d: ")
    assert "value       d, instead of the outputs" in out
    assert "again: tvm-fixes bisect model.onnx --over kernels --value d --seed 2" in out


@pytest.mark.parametrize("module", [bisection, reduction])
def test_the_inputs_are_those_of_the_whole_model(tmp_path, monkeypatch, module):
    """Its outputs are finite only for positive inputs; the difference accepts any."""
    nodes = "d = Sub (x, y) l = Log (x) m = Log (y) r = Add (l, m)"
    found = graph("float[4,8] x, float[4,8] y", "float[4,8] r", nodes)
    onnx.save(found, tmp_path / "model.onnx")
    seen = []

    def observe(_problem, subject, *_, **__):
        seen.extend(subject.inputs)
        raise InterruptedError

    monkeypatch.setattr(module, "observe", observe)
    monkeypatch.chdir(tmp_path)
    search = bisect if module is bisection else reduce
    with pytest.raises(InterruptedError):
        search("model.onnx", settings=Settings(value="d"))
    assert len(seen) == 2 and min(map(np.min, seen)) >= 0


@pytest.mark.parametrize(
    "value, hint", [("D", r"did you mean d\?"), ("far away", "its values are d, z, r$")]
)
def test_an_unknown_value(folder, value, hint):
    with pytest.raises(UsageError, match=f"no value '{value}'; {hint}"):
        Settings(value=value).open("model.onnx")


if __name__ == "__main__":
    tvm.testing.main()
