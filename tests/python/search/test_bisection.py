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
"""``bisect`` names the fix, the pass or the kernel of a planted fault."""

import json
import re

import numpy as np
import onnx
import pytest
import torch
import tvm.testing
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.grids import from_tier
from helpers.planted_faults import (
    double_scatter_add,
    graph,
    model,
    plant,
    plant_wrong_softmax,
    swap_operands,
    wrong_schedule,
)
from helpers.preparation import prepare_forks
from tvm_fixes.errors import CompileError, UsageError
from tvm_fixes.report.layers import compare
from tvm_fixes.search import bisection, variants
from tvm_fixes.search.bisection import bisect
from tvm_fixes.search.culprit import Culprit
from tvm_fixes.search.problem import Degree, Kind, Measure, Observed, Problem
from tvm_fixes.search.reduction import reduce
from tvm_fixes.search.trial import ReferencedModule, Settings


@pytest.fixture(scope="module", autouse=True)
def prepared():
    prepare_forks()


def test_a_pass_that_swaps_operands(monkeypatch):
    plant(monkeypatch, operators=swap_operands)
    trials = []
    small = graph("float[4,8] x, float[4,8] y", "float[4,8] r", "d = Sub (y, x) r = Relu (d)")
    found = bisect(small, over=["passes"], progress=trials.append)
    assert found.shows and found.what.startswith("r: ")
    [culprit] = found.culprits
    assert culprit.names == ["SwapOperands"]
    assert "R.subtract(x, " in culprit.diff
    assert len(trials) == found.trials <= 9
    assert trials[0].label == "all fixes on"


def test_a_fix_that_changes_a_result(monkeypatch):
    plant_wrong_softmax(monkeypatch)
    found = bisect(model(), over=["fixes"])
    [culprit] = found.culprits
    assert culprit.names == ["softmax-legalize"]
    assert culprit.degrees[1].value > 1 > culprit.degrees_without[1].value
    assert json.loads(found.to_json())["culprits"][0]["names"] == ["softmax-legalize"]


def test_a_wrong_kernel(monkeypatch):
    plant(monkeypatch, schedules=wrong_schedule)
    found = bisect(model(), over=["kernels"])
    [culprit] = found.culprits
    assert len(culprit.names) == 1 and "subtract" in culprit.names[0]
    assert any(line.startswith("+") and " - " in line for line in culprit.diff.splitlines())


class Updating(torch.nn.Module):
    def forward(self, cache, row):
        cache.add_(row)
        return cache * 2


@from_tier("ci")
def test_a_model_that_updates_an_input():
    example = torch.zeros(2, 3), torch.ones(2, 3)
    found = bisect(torch.export.export(Updating(), example), over=["fixes"])
    assert not found.shows and found.what.startswith("equal with usual inputs; ")


@from_tier("ci")
def test_a_factory_with_other_weights_each_time(tmp_path, monkeypatch):
    """Ours and the reference are one model, not the results of two calls of the factory."""
    (tmp_path / "unseeded.py").write_text(
        "import torch\ndef make():\n    torch.seed()\n"
        "    return torch.nn.Linear(4, 4).eval(), (torch.ones(1, 4),)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = bisect("unseeded:make", over=["fixes"])
    assert not found.shows and found.what.startswith("equal with usual inputs; ")


class Added(torch.nn.Module):
    def forward(self, x, at, values):
        return torch.scatter_add(x, 0, at, values)


@from_tier("ci")
def test_the_only_converter_of_an_operator(monkeypatch):
    """Without its fix there is nothing to compare, so the import itself may be at fault."""
    double_scatter_add(monkeypatch)
    example = torch.ones(3, 2), torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2)
    program = torch.export.export(Added(), example)
    found = bisect(program, over=["fixes", "passes"])
    [culprit, passes] = found.culprits
    assert culprit.names == ["torch-indexing"] and "scatter_add" in culprit.node
    assert culprit.what.startswith(f"the import of {culprit.node} by torch-indexing is probably at")
    assert passes.what.startswith("no pass is at fault: ") and passes.names == []
    # Each fix is tried by itself, but no pass.
    assert found.trials <= 10
    assert compare(program).fixes["torch-indexing"] == ["import"]


def test_passes_of_a_compilation(monkeypatch):
    """Constants are merged in a compilation, so in a trial, too."""
    pipelines = [str(stage.info.name) for stage in variants._stages(Settings())]
    assert "MergeEqualConstants" in pipelines


def faked(monkeypatch, shows):
    """Let `shows` decide from the fixes that are off, instead of a trial."""

    def observe(_problem, _subject, _settings, *, off):
        return Observed(shows(off), "as told", fixes=("relu-legalize", "pad-legalize", "verifier"))

    monkeypatch.setattr(bisection, "observe", observe)


@pytest.mark.parametrize(
    "shows, names",
    [
        (lambda off: "verifier" not in off, ["verifier"]),
        (lambda off: "verifier" in off, ["verifier"]),
        (lambda off: not {"verifier", "pad-legalize"} <= off, ["pad-legalize", "verifier"]),
        # Without all of them, it does not compile.
        (
            lambda off: None if len(off) > 1 else not off,
            ["relu-legalize", "pad-legalize", "verifier"],
        ),
        # A fix that does not report its use.
        (lambda off: "long-loops" not in off, ["long-loops"]),
        (lambda off: True, []),
    ],
)
def test_the_fixes_that_change_the_outcome(monkeypatch, shows, names):
    faked(monkeypatch, shows)
    [culprit] = bisect(model(), over=["fixes"]).culprits
    assert culprit.names == names


@pytest.mark.parametrize(
    "hides, names, what",
    [
        ({"pad-legalize", "verify-types"}, ["pad-legalize"], "without pad-legalize, "),
        ({"verify-types"}, ["verify-types"], "no fix but verify-types makes a difference: "),
    ],
)
def test_the_verifier_only_reports_a_failure(monkeypatch, hides, names, what):
    applied = ("relu-legalize", "pad-legalize", "verify-types", "verify-operators")

    def observe(_problem, _subject, _settings, *, off):
        return Observed(not off & hides, "verify: relax.nn.relu: as told", fixes=applied)

    monkeypatch.setattr(bisection, "observe", observe)
    [culprit] = bisect(model(), Problem(Kind.FAILS), over=["fixes"]).culprits
    assert culprit.names == names and culprit.what.startswith(what)


@from_tier("ci")
def test_results_that_the_reference_returns_besides(tmp_path):
    """Without the fix, the compiled program does not return the new value of the input."""
    program = torch.export.export(Updating(), (torch.zeros(2, 3), torch.ones(2, 3)))
    trials = []
    bisect(program, over=["fixes"], progress=trials.append)
    [without] = [one.observed.what for one in trials if one.label == "without torch-mutations"]
    assert "expected 2 results, those of the reference" in without and "has 1: " in without


@pytest.mark.parametrize(
    "off_alone, names, what",
    [
        (
            {"fold-pad-into-conv"},
            ["fold-pad-into-conv"],
            "FoldPadIntoConv belongs to fold-pad-into-conv; without only this fix, the model does "
            "not show the problem (nor without onnx-pad)",
        ),
        (set(), ["onnx-pad"], "without onnx-pad, the model does not show the problem"),
    ],
)
def test_a_fix_that_enables_the_pass_at_fault(monkeypatch, off_alone, names, what):
    """Without the importer's fix there is no such operator, but the pass is at fault."""
    applied = ("fold-pad-into-conv", "relu-legalize", "onnx-pad")

    def observe(_problem, _subject, _settings, *, off):
        return Observed(not off & {"onnx-pad", *off_alone}, "as told", fixes=applied)

    monkeypatch.setattr(bisection, "observe", observe)
    found_pass = Culprit("passes", ["FoldPadIntoConv"], "as told")
    monkeypatch.setattr(bisection.PassSearch, "find", lambda _: found_pass)
    padding = graph(
        "float[1,1,6,6] x",
        "float[1,1,6,6] r",
        "p = Pad (x, pads) r = Conv (p, w)",
        pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        w=np.ones((1, 1, 3, 3), "float32"),
    )
    fixes, passes = bisect(padding, over=["fixes", "passes"]).culprits
    assert passes is found_pass
    assert fixes.names == names and fixes.what == what


def test_the_size_that_shows_the_problem_is_searched(monkeypatch):
    """Once a size of the symbolic dim shows it, no other one is compared."""
    seen = []

    def observe(_problem, subject, _settings, *, off):
        further = (drawn.arrays for group in subject.further for drawn in group)
        seen.append([inputs[0].shape[0] for inputs in (subject.inputs, *further)])
        return Observed(not off, "as told", fixes=("verifier",), sizes={"n": seen[0][1]})

    monkeypatch.setattr(bisection, "observe", observe)
    [culprit] = bisect(model(rows="n"), over=["fixes"]).culprits
    assert culprit.names == ["verifier"]
    first, *others = seen
    assert len(first) > 2 and others == [[first[1]]] * len(others)


def slow(monkeypatch, latency_of):
    """Let `latency_of` decide from the fixes that are off and the build, within 2 percent."""
    rng = np.random.default_rng(0)

    def observe(_problem, subject, _settings, *, off):
        value = latency_of(off, getattr(subject.build, "keywords", {})) * rng.uniform(0.98, 1.02)
        degree = Degree(Measure.LATENCY, value, 0.99 * value, 1.01 * value)
        return Observed(value > 2, "as told", fixes=("verifier", "long-loops"), degrees=(degree,))

    monkeypatch.setattr(bisection, "observe", observe)
    monkeypatch.setattr(variants, "scheduled_kernels", lambda *_: ["conv", "matmul", "add"])
    monkeypatch.setattr(variants, "diff_of_kernel", lambda *_, name: f"the diff of {name}")


@pytest.mark.parametrize(
    "latencies, names, what",
    (
        ({"verifier": 49, "long-loops": 60, "both": 49}, ["verifier"], r"smaller: 4\d.* of [56]"),
        # Without all fixes, it is slower.
        ({"verifier": 50, "long-loops": 58, "both": 90}, ["verifier"], r"smaller: 5\d.* of [56]"),
        # Only without both, it is faster.
        ({"both": 30}, ["verifier", "long-loops"], r"smaller: [23]\d.* of [56]"),
        ({}, [], "none of the 2 fixes makes a difference: .* and .* without them"),
    ),
)
def test_the_fixes_that_make_a_slow_model_slower(monkeypatch, latencies, names, what):
    def latency_of(off, _build):
        known = {"verifier", "long-loops"} & off
        return latencies.get("both" if len(known) == 2 else "".join(known), 60)

    slow(monkeypatch, latency_of)
    [culprit] = bisect(model(), Problem(Kind.SLOWER, 2.0), over=["fixes"]).culprits
    assert culprit.names == names and re.search(what, culprit.what)
    assert culprit.degrees[0].value == pytest.approx(60, rel=0.03)


@pytest.mark.parametrize(
    "seconds, names, what",
    (
        # The seconds without a schedule, and those with one.
        ({"conv": (40, 20), "matmul": (5, 30)}, ["matmul"], "without the schedule of matmul, "),
        ({"conv": (10, 11), "matmul": (30, 60)}, ["matmul"], "without the schedule of matmul, "),
        ({"conv": (20, 20)}, [], "no schedule is at fault: "),
        ({"conv": (50, 20)}, [], "no schedule is at fault: "),
        ({"conv": (1, 20)}, ["conv"], "only with the schedule of conv"),
    ),
)
def test_the_kernels_that_make_a_slow_model_slower(monkeypatch, seconds, names, what):
    def latency_of(_off, build):
        scheduled = build.get("kernels", seconds)
        return sum(pair[name in scheduled] for name, pair in seconds.items())

    slow(monkeypatch, latency_of)
    [culprit] = bisect(model(), Problem(Kind.SLOWER, 2.0), over=["kernels"]).culprits
    assert culprit.names == names and culprit.what.startswith(what)
    assert culprit.diff == "".join(f"the diff of {name}" for name in names)
    assert len(culprit.degrees) == len(culprit.degrees_without) == 1


def test_another_problem_is_reported():
    with pytest.raises(CompileError, match=r"expected: not equal.*found: timed out after 0.1 s"):
        bisect(model(), settings=Settings(seconds=0.1, inputs={}))


@pytest.mark.parametrize(
    "given, message",
    (
        (["a"], "expected the inputs a, b, got a: missing b"),
        (["a", "b", "c"], "expected the inputs a, b, got a, b, c: unknown c"),
    ),
)
@pytest.mark.parametrize("search", (bisect, reduce))
def test_inputs_are_complete(search, given, message):
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> m (float[3] a, float[3] b) => (float[3] y) '
        "{ y = Add (a, b) }"
    )
    inputs = {name: np.ones(3, "float32") for name in given}
    with pytest.raises(UsageError, match=message):
        search(proto, settings=Settings(inputs=inputs))


def test_unknown_list():
    with pytest.raises(UsageError, match="cannot bisect over words"):
        bisect(model(), over=["words"])


def test_reference_of_a_module_that_tvm_does_not_build():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 2, 3), "float32")):
            with R.dataflow():
                y = R.nn.pixel_shuffle(x, 2)
                R.output(y)
            return y

    x = np.arange(24, dtype="float32").reshape(1, 4, 2, 3)
    name, run = ReferencedModule(Module).reference()
    assert name == "TVM's own pipeline after PrepareLayout"
    expected = x.reshape(1, 1, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 1, 4, 6)
    np.testing.assert_array_equal(run([x])[0], expected)


if __name__ == "__main__":
    tvm.testing.main()
