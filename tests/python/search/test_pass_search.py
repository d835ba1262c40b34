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
"""`bisect` names the pass that makes a problem larger, even if stock TVM shows it, too."""

import json
import math

import numpy as np
import pytest
import tvm.testing
from tvm import tirx

from helpers.grids import from_tier
from helpers.planted_faults import (
    FAULTS,
    after_call,
    as_pass,
    graph,
    in_kernels,
    model,
    plant,
    swap_operands,
)
from helpers.preparation import prepare_forks
from tvm_fixes.search import bisection, variants
from tvm_fixes.search.bisection import bisect
from tvm_fixes.search.problem import Degree, Kind, Measure, Observed, Problem
from tvm_fixes.search.trial import Settings
from tvm_fixes.search.variants import PassRun

SLOW = Problem(Kind.SLOWER, 2.0)

RUNS = [PassRun(at, name, name, 1) for at, name in enumerate("ABCDEFGHIJKLMNOP")]


@pytest.fixture(scope="module", autouse=True)
def prepared():
    prepare_forks()


def test_what_follows_the_passes(monkeypatch):
    """A fault in what is made of the module, such as the weights outside the library."""

    def observe(_problem, subject, _settings, *, off):
        return Observed(getattr(subject.build, "__name__", "") == "_compile", "as told")

    monkeypatch.setattr(bisection, "observe", observe)
    [culprit] = bisect(model(), over=["passes"]).culprits
    assert culprit.names == [] and "what follows them may be at fault" in culprit.what


def times(monkeypatch, seed, *, up_to, without=None, sigma=0.02):
    """Replace passes and trials: the latencies are those told, with noise.

    Parameters
    ----------
    up_to : callable
        The latency after a number of passes, with TVM's own for the rest.
    without : mapping of str to float
        The latency of all passes but one; else that of all passes.
    """
    rng = np.random.default_rng(seed)

    def observe(_problem, subject, _settings, *, off):
        told = getattr(subject.build, "keywords", {})
        median = up_to(len(RUNS))
        if "last" in told:
            median = up_to(0 if told["last"] is None else RUNS.index(told["last"]) + 1)
        elif told.get("run") is not None:
            median = (without or {}).get(told["run"].name, median)
        value = median * math.exp(rng.normal(0, sigma))
        noise = value * abs(rng.normal(0, sigma))
        degree = Degree(Measure.LATENCY, value, value - noise, value + noise)
        return Observed(value > SLOW.limit, "as told", degrees=(degree,))

    monkeypatch.setattr(bisection, "observe", observe)
    monkeypatch.setattr(variants, "passes_of", lambda *_, **__: RUNS)
    monkeypatch.setattr(variants, "diff_of", lambda *_, run: f"the diff of {run}")


@pytest.mark.parametrize("seed", range(4))
def test_the_pass_that_makes_a_slow_model_slower(monkeypatch, seed):
    times(monkeypatch, seed, up_to=lambda number: 60 if number > 9 else 49)
    found = bisect(model(), SLOW, over=["passes"])
    [culprit] = found.culprits
    assert culprit.names == ["J"] and culprit.diff == "the diff of J"
    assert culprit.what.startswith("before J, the problem is smaller: ")
    assert " instead of " in culprit.what and culprit.what.endswith("with TVM's own pipeline")
    [worse], [better] = culprit.degrees, culprit.degrees_without
    assert 55 < worse.value < 65 and 45 < better.value < 53
    fields = json.loads(found.to_json())
    assert fields["degrees"][0]["measure"] == "latency"
    assert fields["culprits"][0]["degrees"][0]["value"] == worse.value


@pytest.mark.parametrize("seed", range(4))
def test_a_pass_within_a_pipeline_that_is_faster_than_stock(monkeypatch, seed):
    """Only its absence shows it: with TVM's passes for the rest, each variant is slow."""
    without = {"C": 2.2, "D": 2.9, "E": 50}
    latencies = [*[100] * len(RUNS), 3.2]
    times(monkeypatch, seed, up_to=lambda number: latencies[number], without=without)
    [culprit] = bisect(model(), SLOW, over=["passes"]).culprits
    assert culprit.names == ["C"] and culprit.diff == "the diff of C"
    assert culprit.what.startswith("without C, the problem is smaller: 2.")
    assert "instead of 3." in culprit.what


@pytest.mark.parametrize("seed", range(4))
def test_passes_that_cannot_be_told_from_stock(monkeypatch, seed):
    times(monkeypatch, seed, up_to=lambda number: 60)
    [culprit] = bisect(model(), SLOW, over=["passes"]).culprits
    assert culprit.names == [] and culprit.diff == ""
    assert culprit.what.startswith("no pass is at fault: ")
    assert culprit.what.count(" x the reference (noise: ") == 2
    assert culprit.what.endswith(f"not smaller without any one of {len(RUNS)}")
    [ours], [stock] = culprit.degrees, culprit.degrees_without
    assert 54 < ours.value < 66 and 54 < stock.value < 66


@pytest.mark.parametrize("seed", range(4))
def test_latencies_at_the_limit_leave_several_passes(monkeypatch, seed):
    """C makes the model as slow as the limit, and the last pass slower."""
    latencies = [0.5, 0.5, 0.5, *[2.0] * (len(RUNS) - 3), 2.6]
    times(monkeypatch, seed, up_to=lambda number: latencies[number], sigma=0.05)
    [culprit] = bisect(model(), SLOW, over=["passes"]).culprits
    assert len(culprit.names) > 1
    assert culprit.what.startswith("not after ")


SOFTMAX = "s = Softmax (x) d = Sub (y, s) r = Relu (d)"


@from_tier("ci")
def test_a_pass_that_makes_an_inexact_result_wrong(monkeypatch):
    """By the tolerance, the rounding errors of stock TVM are wrong results, too."""
    plant(monkeypatch, operators=swap_operands)
    inexact = graph("float[4,8] x, float[4,8] y", "float[4,8] r", SOFTMAX)
    found = bisect(inexact, over=["passes"], settings=Settings(rtol=1e-9, atol=0.0))
    [culprit] = found.culprits
    assert culprit.names == ["SwapOperands"] and "R.subtract(" in culprit.diff
    assert "x the tolerance with TVM's own pipeline" in culprit.what
    ours, before = (
        {degree.measure: degree.value for degree in degrees}
        for degrees in (culprit.degrees, culprit.degrees_without)
    )
    assert ours[Measure.ERROR] > 1e6 > 1e4 > before[Measure.ERROR] > 1


@from_tier("ci")
def test_a_pass_in_a_model_that_stock_tvm_computes_worse(monkeypatch):
    """Stock TVM overflows where ours does not, so no variant with its passes shows the fault."""
    plant(monkeypatch, operators=swap_operands)
    nodes = """a = Abs (x) b = Mul (a, gain) d = Sub (b, x)
               r = AveragePool<kernel_shape = [14, 14]> (d)"""
    pooled = graph(
        "float16[1,3,14,14] x", "float16[1,3,1,1] r", nodes, gain=np.array(1000, "float16")
    )
    settings = Settings(rtol=1e-2, atol=1.0)
    [culprit] = bisect(pooled, over=["passes"], settings=settings).culprits
    assert culprit.names == ["SwapOperands"] and "R.subtract(" in culprit.diff
    assert culprit.what.startswith("without SwapOperands, the problem is smaller: ")
    assert "no finite error at " in culprit.what


def test_a_fault_of_the_importer(monkeypatch):
    """All passes and stock TVM's show it to one degree."""
    fault = FAULTS["a wrong axis in an importer"]
    fault.plant(monkeypatch)
    settings = Settings(rtol=1e-4, atol=1e-5)
    [culprit] = bisect(fault.model(), over=["passes"], settings=settings).culprits
    assert culprit.names == []
    assert culprit.what.startswith("no pass is at fault: ")
    assert culprit.degrees == culprit.degrees_without


@from_tier("ci")
def test_a_slow_pass_of_a_user(monkeypatch):
    """Stock TVM takes longer than the limit; with the pass, it is a thousand times more."""
    wait = tirx.call_extern("int32", "usleep", 5_000)
    slow = as_pass("Wait", in_kernels("matmul", lambda kernel: after_call(kernel, wait)))
    nodes = "s = MatMul (x, y) r = Relu (s)"
    small = graph("float[4,8] x, float[8,8] y", "float[4,8] r", nodes)
    settings = Settings(passes=[(slow, "after=Legalize")])
    [culprit] = bisect(
        small, Problem(Kind.SLOWER, 1e-3), over=["passes"], settings=settings
    ).culprits
    assert culprit.names == ["Wait (ModulePass@after=Legalize)"]
    assert "; without ModulePass@after=Legalize, the problem is smaller: " in culprit.what
    [worse], [better] = culprit.degrees, culprit.degrees_without
    assert worse.value > 10 * better.value


if __name__ == "__main__":
    tvm.testing.main()
