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
"""``tvm-fixes compare``, ``profile`` and ``report``: their options, output and status."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import parser

from helpers import grids
from helpers.onnx_ml import Split, listed, ml_model
from helpers.planted_faults import as_pass, plant, rewriting
from helpers.reports import data_of
from tvm_fixes.runtime.report import REFERENCE_OFF
from tvm_fixes_cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text()


PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

# These sections compile a model several times.
_LONG = {
    "NaN scores: an overflow",
    "A slow layer",
    "Wrong scores: from symptom to cause",
    "A model that does not build",
}


def stories() -> dict[str, list[tuple[str, str]]]:
    """For each section with commands: the commands, with the output that the page shows."""
    _, *parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    console = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    found = {title: console.findall(text) for title, text in zip(*[iter(parts)] * 2, strict=True)}
    return {title: commands for title, commands in found.items() if commands}


def words(line: str) -> list[str]:
    """The words of a line, without numbers, units and the borders of tables."""
    number = r"[\d.e+-]+%?,?|[µm]?s,?"
    return [w for w in re.split(r"[\s│┃]+", line) if w and not re.fullmatch(number, w)]


def pattern(line: str) -> str:
    """A regular expression for the words of a line; "…" matches any words."""
    parts = (re.escape(" ".join(words(part))) for part in line.split("…"))
    return " ?.*".join(parts)


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for program in PROGRAMS:
        exec(program, {})


def run(command: str, monkeypatch, capsys) -> str:
    """The output of a command, which may set an environment variable first."""
    before, is_ours, arguments = command.partition("tvm-fixes ")
    if is_ours:
        for assignment in before.split():
            monkeypatch.setenv(*assignment.split("="))
        main(arguments.split())
        return capsys.readouterr().out
    _, *arguments = command.split()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "title", [title for title in stories() if grids.is_full() or title not in _LONG]
)
def test_a_story_of_the_page(title, models, monkeypatch, capsys):
    for command, shown in stories()[title]:
        lines = [" ".join(words(line)) for line in run(command, monkeypatch, capsys).splitlines()]
        monkeypatch.delenv("TVM_FIXES_DISABLE", raising=False)
        expected = [pattern(line) for line in shown.splitlines() if line[0] not in "┏┡└"]
        left = iter(lines)
        for line in expected:
            assert any(re.fullmatch(line, other) for other in left), (line, lines)


def test_the_page_has_four_stories():
    assert len(PROGRAMS) == 4 and set(stories()) > _LONG


@pytest.fixture
def model(tmp_path):
    found = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2, 4] x) => (float[2, 4] y) { e = Exp(x) y = Neg(e) }"""
    )
    path = tmp_path / "model.onnx"
    onnx.save(found, path)
    return path


def test_json_and_the_files_of_inputs(model, tmp_path, capsys):
    inputs = tmp_path / "inputs.npz"
    assert main(["compare", str(model), "--json", "--save-inputs", str(inputs), "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["equal"] and [v["result"]["name"] for v in document["values"]] == ["e", "y"]
    np.savez(inputs, x=np.full((2, 4), 1e3, "float32"))
    assert main(["compare", str(model), "--inputs", str(inputs), "--all"]) == 0
    captured = capsys.readouterr()
    assert "first infinity  Exp e (value e); in the reference: Exp e (value e)" in captured.out
    assert "values 1 to 2" in captured.err or captured.err == ""


def target_without_weights() -> onnx.ModelProto:
    """A tree for the first of two targets, of which the second has a base value."""
    tree = Split(0, "LEQ", 0.0, False, [(0, 8.0)], [(0, 8.0)])
    attributes = {"n_targets": 2, "base_values": [0.0, 4.0], **listed([tree], "target")}
    x = np.zeros((3, 1), "float32")
    return ml_model("TreeEnsembleRegressor", {"x": x}, attributes, outputs={"y": ("float32", 2)})


def test_a_reference_that_is_off(tmp_path, capsys):
    """ONNX Runtime leaves out the base value of a target without weights."""
    path, artifact = tmp_path / "trees.onnx", str(tmp_path / "out")
    onnx.save(target_without_weights(), path)
    off = r"differs from ONNX Runtime \S+ by 4; the float64 run agrees with ours"
    assert main(["compile", str(path), "-o", artifact, "-q"]) == 0
    shown = capsys.readouterr().out
    assert re.search(f"outputs +{off}", shown) and "equal" not in shown
    assert main(["compare", str(path), "-q"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(f"outputs 0 of 1 equal; 1 {off} values 0 of 1 equal; 1 {off}", shown)
    assert "reference off first at ai.onnx.ml.TreeEnsembleRegressor" in shown
    assert main(["compare", str(path), "--json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["equal"], document["accepted"], document["reference_off"]) == (
        False,
        True,
        ["y"],
    )
    page = str(tmp_path / "page.html")
    assert main(["report", artifact, "--compare", str(path), "--json", "-q", "-o", page]) == 0
    [call] = json.loads(capsys.readouterr().out)["graph"]
    assert call["verdict"] == REFERENCE_OFF


def test_a_model_that_crashes(model, monkeypatch, capsys):
    fault = rewriting("relax.negative", lambda _: os.kill(os.getpid(), signal.SIGSEGV))
    plant(monkeypatch, operators=as_pass("Crash", fault))
    assert main(["compare", str(model), "--timeout", "60"]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"values +1 of 1 equal", shown) and "outputs" not in shown
    assert re.search(r"first failure +Neg y \(value y\)\s+SIGSEGV: crashed", shown)


@pytest.mark.parametrize(
    "options, status, problem",
    [
        (["--inputs", "missing.npz"], 2, "missing.npz: no such file"),
        (["--max-bytes", "0"], 2, "expected a positive number"),
        (["--layout", "NHWC", "--shape", "z=1"], 2, "unknown input 'z'"),
        (["--save-inputs", "/missing/inputs.npz"], 1, "No such file or directory"),
    ],
)
def test_failures(model, options, status, problem, capsys):
    assert main(["compare", str(model), *options]) == status
    assert problem in capsys.readouterr().err


def test_a_missing_model_is_a_usage_error(capsys):
    assert main(["compare", "missing.onnx"]) == 2
    assert "missing.onnx: no such file" in capsys.readouterr().err


def test_explain(model, capsys):
    assert main(["compile", str(model), "--explain", "--json", "--no-compare", "-q"]) == 0
    explained = json.loads(capsys.readouterr().out)["explanation"]
    [fix] = [one for one in explained["fixes"] if one["fix"] == "elementary-functions"]
    assert fix["nodes"] == ["Exp e", "Neg y"] and fix["times"] == 2
    assert fix["by"] == ["LowerElementaryFunctions"] and "cost" in fix["plain_tvm"]


def test_profile(model, tmp_path, capsys):
    trace, out = tmp_path / "trace.json", tmp_path / "out"
    assert main(["compile", str(model), "-o", str(out), "-q", "--no-compare"]) == 0
    capsys.readouterr()
    assert main(["profile", str(out), "--seconds", "0", "--trace", str(trace)]) == 0
    shown = capsys.readouterr().out
    assert "attributed   100% of the time of kernels" in shown
    assert "e: Exp; y: Neg" in shown
    (event,) = json.loads(trace.read_text())["traceEvents"]
    assert event["name"] == "Exp, Neg"
    assert main(["profile", str(model), "--seconds", "0", "--no-compare", "-q"]) == 0
    assert "reference    not measured: not requested" in capsys.readouterr().out
    compared = ["profile", str(out), "--compare", str(model), "--seconds", "0", "-q"]
    assert main(compared) == 0
    shown = capsys.readouterr().out
    assert "ONNX Runtime" in shown and "matched      100% of the time of its nodes" in shown
    assert main(["profile", str(model), "--seconds", "0", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["attributed"] == 1


@pytest.mark.parametrize(
    "options, status, problem",
    [
        (["missing"], 2, "missing: no such file"),
        (["."], 1, "not an artifact"),
        (["{model}", "--seed", "-1"], 2, "seed must be >= 0"),
        (["{model}", "--seconds", "0", "--trace", "/missing/trace.json"], 1, "/missing/trace.json"),
    ],
)
def test_failures_of_profile(model, options, status, problem, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", *(option.format(model=model) for option in options)]) == status
    assert problem in capsys.readouterr().err


def test_report(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compile", str(model), "-o", "out", "-q"]) == 0
    capsys.readouterr()
    assert main(["report", "out", "--compare", str(model), "--seconds", "0"]) == 0
    shown = [words(line) for line in capsys.readouterr().out.splitlines()]
    assert ["values", "of", "equal"] in shown
    page = data_of((tmp_path / "report.html").read_text())
    assert page["comparison"]["equal"] and page["profile"]["attributed"] == 1
    assert page["compilation"]["equal"] and page["name"] == "model.onnx"
    assert main(["report", "out", "-o", "other.html", "--no-profile", "--json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["profile"] is None and document["no_profile"] == "not requested"
    assert document == data_of((tmp_path / "other.html").read_text())


@pytest.mark.parametrize(
    "options, status, problem",
    [
        (["missing"], 2, "missing: no such directory; expected an artifact"),
        (["."], 1, "not an artifact"),
        (["missing", "-o", "missing/page.html"], 2, "missing is not a directory"),
        ([".", "-o", "."], 2, ".: not a regular file"),
        (["out", "--compare", "missing.onnx", "--no-profile"], 2, "missing.onnx: no such file"),
        (["out", "--compare", "{other}", "--no-profile"], 2, "not the model of the artifact"),
        (["out", "--seconds", "-1"], 2, "expected a number >= 0"),
    ],
)
def test_failures_of_report(model, options, status, problem, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if "out" in options:
        assert main(["compile", str(model), "-o", "out", "-q", "--no-compare"]) == 0
    other = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2, 4] z) => (float[2, 4] y) { y = Exp(z) }"""
    )
    onnx.save(other, "other.onnx")
    before = sorted(tmp_path.iterdir())
    arguments = ["report", *(option.format(other="other.onnx") for option in options)]
    try:
        found = main(arguments)
    except SystemExit as error:
        found = error.code
    assert found == status
    assert problem in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before, "nothing is written"


if __name__ == "__main__":
    tvm.testing.main()
