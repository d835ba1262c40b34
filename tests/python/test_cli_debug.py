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
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import parser

from helpers import grids, stories
from helpers.onnx_ml import Split, listed, ml_model
from helpers.planted_faults import as_pass, plant, rewriting
from helpers.reports import data_of
from tvm_fixes.runtime.report import REFERENCE_OFF
from tvm_fixes_cli import main

PAGE = Path(__file__).parents[2] / "docs" / "debugging.md"
PROGRAMS = stories.programs(PAGE)
STORIES = stories.stories(PAGE)

# These sections compile a model several times.
_LONG = {
    "NaN scores: an overflow",
    "A slow layer",
    "Wrong scores: from symptom to cause",
    "A model that does not build",
}


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for program in PROGRAMS:
        exec(program, {})


@pytest.mark.parametrize(
    "title", [title for title in STORIES if grids.is_full() or title not in _LONG]
)
def test_a_story_of_the_page(title, models, monkeypatch, capsys):
    stories.check(STORIES[title], monkeypatch, capsys)


def test_the_page_has_four_stories():
    assert len(PROGRAMS) == 4 and set(STORIES) > _LONG


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


@grids.from_tier("ci")
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
    for label in ("outputs", "values"):
        assert re.search(f"{label} 0 of 1 equal; 1 {off}", shown)
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
    shown = [stories.words(line) for line in capsys.readouterr().out.splitlines()]
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
        ([".", "-o", "missing/page.html"], 2, "missing is not a directory"),
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
