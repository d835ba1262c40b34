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
"""The commands ``reduce`` and ``bisect``."""

import json
import signal

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.planted_faults import model
from tvm_fixes import debug
from tvm_fixes.search import bisection, reduction, trial, variants
from tvm_fixes.search.problem import Kind, Observed
from tvm_fixes_cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    onnx.save(model(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def faked(monkeypatch, answer):
    """Let `answer` decide instead of a trial; return the problems and settings of the trials."""
    seen = []

    def observe(problem, subject, settings, *, off=frozenset()):
        seen.append((problem, settings, subject.inputs))
        names = [node.op_type for node in subject.open()._model.graph.node]
        return Observed(answer(names, off), "as told", 1.5, ("verifier", "long-loops"))

    monkeypatch.setattr(bisection, "observe", observe)
    monkeypatch.setattr(reduction, "observe", observe)
    return seen


def test_reduce(folder, monkeypatch, capfd):
    faked(monkeypatch, lambda names, off: "Exp" in names)
    assert main(["reduce", "model.onnx", "-o", "out"]) == 0
    out, err = capfd.readouterr()
    assert "problem     not equal to the reference: as told" in out
    assert "operators   1 of 7\n            Exp\n" in out
    assert "problem    1.5 s  operators 5: as told" in err
    assert "fine       1.5 s  operators 6: as told" in err
    assert "script      out/reproduce.py" in out
    assert main(["reduce", "model.onnx", "-o", "out", "--json", "-q"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["operators"] == ["Exp"] and json.loads(out)["trials"] == 0
    assert err == ""


def test_an_interrupted_reduction_keeps_the_smallest(folder, monkeypatch, capfd):
    def answer(names, off):
        if len(names) <= 2:
            signal.raise_signal(signal.SIGINT)
        return "Exp" in names

    faked(monkeypatch, answer)
    assert main(["reduce", "model.onnx"]) == 130
    out, _ = capfd.readouterr()
    assert "(interrupted)" in out
    assert len(onnx.load("reduced/model.onnx").graph.node) in (3, 4)


def test_bisect(folder, monkeypatch, capfd):
    faked(monkeypatch, lambda names, off: "verifier" not in off)
    assert main(["bisect", "model.onnx", "--over", "fixes"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("not equal to the reference: yes; as told\n")
    assert "fixes       without verifier, the model does not show the problem\n" in out
    assert "again: TVM_FIXES_DISABLE=verifier tvm-fixes compile model.onnx\n" in out
    assert "problem    1.5 s  all fixes on: as told" in err
    faked(monkeypatch, lambda names, off: True)
    assert main(["bisect", "model.onnx", "--over", "fixes", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["culprits"][0]["names"] == []


@pytest.mark.parametrize(
    "options, kind, limit, command",
    [
        ([], Kind.WRONG, 0, ""),
        (["--crashes"], Kind.CRASHES, 0, ""),
        (["--fails"], Kind.FAILS, 0, ""),
        (["--slower-than", "2.5"], Kind.SLOWER, 2.5, ""),
        (["--larger-than", "1e6"], Kind.LARGER, 1e6, ""),
        (["--check", "grep -q x"], Kind.CHECK, 0, "grep -q x"),
    ],
)
def test_problems(folder, monkeypatch, options, kind, limit, command):
    seen = faked(monkeypatch, lambda names, off: "Exp" in names)
    assert main(["reduce", "model.onnx", "-q", *options]) == 0
    problem, _, _ = seen[0]
    assert (problem.kind, problem.limit, problem.command) == (kind, limit, command)


def test_a_memory_limit_that_no_trial_can_meet_is_rejected_at_once(folder, capfd):
    for command in ("bisect", "reduce"):
        assert main([command, "model.onnx", "--memory", "0.001"]) == 2
        assert "a memory limit of 0.001 GiB is too small" in capfd.readouterr().err


def test_settings(folder, monkeypatch):
    x = np.arange(32, dtype="float32").reshape(4, 8)
    np.savez("inputs.npz", x=x, y=x.reshape(8, 4))
    seen = faked(monkeypatch, lambda names, off: "Exp" in names)
    options = ["--inputs", "inputs.npz", "--target", "llvm", "--layout", "NHWC", "--seed", "3"]
    options += ["--rtol", "0.5", "--timeout", "9", "--memory", "2", "--stock"]
    assert main(["reduce", "model.onnx", "-q", *options]) == 0
    _, settings, inputs = seen[0]
    np.testing.assert_array_equal(inputs[0], x)
    assert (settings.target, settings.layout, settings.rtol) == ("llvm", "NHWC", 0.5)
    assert (settings.seconds, settings.gigabytes, settings.stock) == (9, 2, True)


BUILDING = ["--no-verify", "--runtime-checks", "--unsafe-indices", "--max-growth", "3"]


@pytest.mark.parametrize("command, module", [("bisect", bisection), ("reduce", reduction)])
def test_models_are_built_as_told(tmp_path, monkeypatch, command, module):
    monkeypatch.chdir(tmp_path)
    onnx.save(model(rows="N"), "model.onnx")
    compiled, staged = [], []

    def observe(_problem, subject, settings, **_):
        source = subject.open()
        assert [spec.shape for spec in source.chosen_inputs()] == [(4, 8), (8, 4)]
        subject.build(source)
        variants._stages(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "observe", observe)
    monkeypatch.setattr(trial, "compile", lambda _, **options: compiled.append(options))
    monkeypatch.setattr(variants, "stages", lambda **options: staged.append(options))
    shapes = ["--static", "--shape", "x=4,8", "--shape", "y=8,4", "--weights", "outside"]
    assert main([command, "model.onnx", *shapes, *BUILDING]) == 130
    told = {"runtime_checks": True, "unsafe_indices": True, "max_growth": 3.0}
    assert told.items() <= staged[0].items()
    assert (told | {"verify": False, "weights": "outside"}).items() <= compiled[0].items()


def test_values_are_compared_as_built(folder, monkeypatch):
    built = {}
    monkeypatch.setattr(debug, "compare", lambda _, **options: built.update(options) or 1 / 0)
    assert main(["compare", "model.onnx", "--static", "--weights", "outside", *BUILDING]) == 1
    told = {"runtime_checks": True, "unsafe_indices": True, "max_growth": 3.0, "verify": False}
    assert (told | {"static": True, "weights": "outside"}).items() <= built.items()


@pytest.mark.parametrize(
    "command, message",
    [
        (["reduce", "none.onnx"], "none.onnx: no such file"),
        (["reduce", "model.onnx", "--check", " "], "check: expected a command, got an empty one"),
        (["reduce", "model.onnx", "--inputs", "model.onnx"], "not a readable .npz file"),
        (["reduce", "model.onnx", "--check", "no-such-command"], "cannot run the command"),
    ],
)
def test_usage_errors(folder, capfd, command, message):
    assert main(command) == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize("option", ["--slower-than", "--larger-than"])
def test_a_limit_below_0(folder, capfd, option):
    with pytest.raises(SystemExit):
        main(["bisect", "model.onnx", option, "-1"])
    assert f"argument {option}: expected a number > 0, got '-1'" in capfd.readouterr().err


def test_a_model_without_the_problem(folder, monkeypatch, capfd):
    faked(monkeypatch, lambda names, off: False)
    assert main(["reduce", "model.onnx"]) == 1
    expected = "error: model.onnx: expected: not equal to the reference; found: as told\n"
    assert expected in capfd.readouterr().err


if __name__ == "__main__":
    tvm.testing.main()
