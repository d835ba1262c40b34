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
"""Models whose runs disagree."""

import json
import re
from functools import partial

import numpy as np
import onnx
import pytest
import tvm.testing

import tvm_fixes
from helpers.grids import few, from_tier
from helpers.planted_faults import graph, model
from tvm_fixes.errors import CompileError
from tvm_fixes.observe import unwritten
from tvm_fixes.observe.repetition import disagreements
from tvm_fixes.observe.unwritten import varying
from tvm_fixes.report.layers import compare
from tvm_fixes.runtime.compiled_model import CompiledModel
from tvm_fixes.search import bisection, reduction
from tvm_fixes.search.bisection import bisect
from tvm_fixes.search.problem import Observed
from tvm_fixes.search.reduction import reduce
from tvm_fixes.search.trial import REPEAT
from tvm_fixes.support.ambient import Fill
from tvm_fixes_cli import main


def test_results_that_differ():
    first = [np.zeros((2, 3), "float32"), np.full(2, np.nan)]
    calls = iter([0.0, 0.5, 0.25, 0.5])

    def run():
        y = np.zeros((2, 3), "float32")
        y[1, 2] = next(calls)
        return [y, np.full(2, np.nan)]

    found = disagreements(["y", "z"], first, run, 5)
    assert found == {"y": "3 different results in 5 runs: at [1, 2] 0.0, 0.5, 0.25"}
    assert disagreements(["y"], first[:1], run, 1) == {}


@from_tier("ci")
def test_compare_repeats_runs(monkeypatch, tmp_path, capfd):
    onnx.save(model(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    words = ["compare", "model.onnx", "-q", "--repeat", "3"]
    assert main(words) == 0
    assert "not deterministic" not in capfd.readouterr().out
    right, runs = CompiledModel.run, []

    def run(self, *args, **kwargs):
        result = right(self, *args, **kwargs)
        runs.append(1)
        for array in result if isinstance(result, tuple) else [result]:
            array[(0,) * array.ndim] += 1e-7 * len(runs) * abs(array).max()
        return result

    monkeypatch.setattr(CompiledModel, "run", run)
    assert main(words) == 1
    assert "r: 3 different results in 3 runs: at [0, 0] " in " ".join(
        capfd.readouterr().out.split()
    )
    assert main([*words, "--json"]) == 1
    assert "r" in json.loads(capfd.readouterr().out)["unstable"]
    assert main(["compare", "model.onnx", "--repeat", "0"]) == 2


def random_numbers():
    nodes = "n = RandomUniformLike (x) t = Tanh (x) r = Add (t, n)"
    return graph("float[4,8] x", "float[4,8] r", nodes)


def test_a_reference_that_varies():
    """ONNX Runtime draws other numbers in each run."""
    found = compare(random_numbers())
    assert found.accepted and not found.equal and found.first is None
    assert [value.name for value in found.varying] == ["n", "r"]
    assert found.varying[0].result.variation.startswith("2 different results in 2 runs: at [0, 0] ")
    assert found.to_dict()["varying"] == ["n", "r"]


@pytest.mark.parametrize("search", [partial(bisect, over=["fixes"]), reduce])
def test_no_search_with_a_reference_that_varies(search, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = (
        r"found: not comparable: ONNX Runtime \S+ is not deterministic: r: 2 different .* at \["
    )
    with pytest.raises(CompileError, match=message):
        search(random_numbers())


def vary(monkeypatch):
    """Let each run add another number."""
    right, runs = CompiledModel.run, []

    def run(self, *args, **kwargs):
        result = right(self, *args, **kwargs)
        runs.append(1)
        return result + np.float32(len(runs))

    monkeypatch.setattr(CompiledModel, "run", run)


@few(1)
@pytest.mark.parametrize("search", ["bisect --over fixes", "reduce"])
def test_searches_say_that_the_model_varies(search, monkeypatch, tmp_path, capfd):
    small = graph("float[4] x, float[4] z", "float[4] r", "t = Tanh (x) r = Sub (t, z)")
    onnx.save(small, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    vary(monkeypatch)
    command, *options = search.split()
    main([command, "model.onnx", *options, "-q"])
    sentence, line = capfd.readouterr().out.partition("not deterministic: ")[2].splitlines()[:2]
    assert re.match(r"r: 5 different results in 5 runs: at \[0\] (\S+, ){4}…", sentence)
    assert re.match(r"next: tvm-fixes compare model.onnx .*--repeat 10$", line)


def test_reduce_says_that_the_smallest_part_varies(monkeypatch, tmp_path):
    trials = []

    def observe(problem, subject, settings):
        trials.append(subject.repeat)
        unstable = "not deterministic: r" if len(trials) > 1 and subject.repeat > 1 else ""
        return Observed(True, "r is off", unstable=unstable)

    monkeypatch.setattr(reduction, "observe", observe)
    assert reduce(model(), output=tmp_path).unstable == "not deterministic: r"
    assert trials[0] == trials[-1] == REPEAT and set(trials[1:-1]) == {1}


def test_reduce_says_that_trials_of_the_model_disagree(monkeypatch, tmp_path):
    shows = iter([False, True])
    monkeypatch.setattr(
        reduction, "observe", lambda *_: Observed(next(shows), "r is off", accepted=True)
    )
    monkeypatch.setattr(reduction, "with_masked_value", lambda _, settings, *__: settings)
    with pytest.raises(CompileError, match="not deterministic: two trials of the model find: "):
        reduce(model(), output=tmp_path)


@pytest.mark.parametrize("shows, is_stable", [((True, False), False), ((True, True), True)])
def test_trials_that_disagree(monkeypatch, shows, is_stable):
    left = list(shows)

    def observe(problem, subject, settings, *, off=frozenset()):
        return Observed(False if off else left.pop(0), f"r is off by {len(left)}", 1.0)

    monkeypatch.setattr(bisection, "observe", observe)
    found = bisect(model(), over=["fixes"])
    sentence = "not deterministic: two trials of the model find: r is off by 1; r is off by 0"
    assert found.unstable == ("" if is_stable else sentence)


def test_bisect_names_the_command_that_repeats(monkeypatch, tmp_path, capfd):
    onnx.save(model(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    shows = [True, False]

    def observe(problem, subject, settings, *, off=frozenset()):
        return Observed(False if off else shows.pop(0), "r is off", 1.0)

    monkeypatch.setattr(bisection, "observe", observe)
    main(["bisect", "model.onnx", "--over", "fixes", "--quiet"])
    command = r"^next: tvm-fixes compare model.onnx .*--repeat 10$"
    assert re.search(command, capfd.readouterr().out, re.MULTILINE)


def test_runs_in_new_memory(monkeypatch):
    small = graph("float[4] x", "float[4] y", "t = Tanh (x) y = Add (x, t)")
    compiled = tvm_fixes.compile(small, compare=False)
    inputs = [np.ones(4, "float32")]
    assert varying(["y"], compiled, inputs, 3) == {}
    right, fills = unwritten._run, []

    def run(model, inputs, fill):
        fills.append(fill)
        return [array + len(fills) for array in right(model, inputs, fill)]

    monkeypatch.setattr(unwritten, "_run", run)
    assert "3 different results in 3 runs" in varying(["y"], compiled, inputs, 3)["y"]
    assert fills == [Fill.NAN] * 3
    assert varying(["y"], compiled, inputs, 1) == {}


if __name__ == "__main__":
    tvm.testing.main()
