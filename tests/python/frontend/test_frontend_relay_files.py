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
"""Compile and verify saved Relay programs through the command line."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import tvm.testing

import tvm_fixes
from helpers.relay_json import SavedGraph
from tvm_fixes import relay
from tvm_fixes.errors import CompileError, RelayError, UsageError
from tvm_fixes.source import open_source
from tvm_fixes.source.module_file import read_module
from tvm_fixes_cli import main

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(3), float32]) {
  nn.relu(add(%x, %w))
}
"""
W = np.array([1, -2, 3], "float32")
X = np.array([[0, 1, -5], [-1, 5, 0.5]], "float32")


def saved_json() -> str:
    """The program of TEXT, as TVM 0.8 saved it."""
    graph = SavedGraph("0.8.0")
    x, w = graph.var("x", graph.static_type([2, 3])), graph.var("w", graph.static_type([3]))
    body = graph.call("nn.relu", [graph.call("add", [x, w])])
    return graph.text(graph.module({"main": graph.function([x, w], body)}))


@pytest.fixture(name="files")
def make_files(tmp_path: Path) -> Path:
    (tmp_path / "old.relay").write_text(TEXT)
    (tmp_path / "old.txt").write_text(TEXT)
    (tmp_path / "old.json").write_text(saved_json())
    (tmp_path / "old.params").write_bytes(relay.save_params({"w": W}))
    return tmp_path


@pytest.mark.parametrize("name", ["old.relay", "old.txt", "old.json"])
def test_source_has_the_remaining_inputs(files, name):
    source = open_source(files / name, params=files / "old.params")
    assert [(spec.name, spec.shape) for spec in source.inputs] == [("x", (2, 3))]
    assert not source.has_reference
    assert source.parameter_bytes >= W.nbytes
    assert "w" in dict(source.parameters())


def test_compiled_model_computes_the_program(files):
    model = tvm_fixes.compile(files / "old.json", params=files / "old.params")
    y = model.run(X)
    np.testing.assert_array_equal(y, np.maximum(X + W, 0))
    assert model.report.equal is None


def test_commands(files, capsys):
    params = ["--params", str(files / "old.params")]
    output = files / "out"
    program = str(files / "old.relay")
    assert main(["compile", program, *params, "-o", str(output), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] is None
    assert main(["inspect", str(output), "--json"]) == 0
    assert "w" in capsys.readouterr().out
    assert main(["verify", str(files / "old.json"), *params]) == 0


def test_inspection(files, capsys):
    params = ["--params", str(files / "old.params")]
    assert main(["inspect", str(files / "old.json"), *params]) == 0
    shown = capsys.readouterr().out
    assert "x: Tensor[(2, 3), float32]" in shown
    assert "nn.relu" in shown
    line = ["tvm-fixes", "compile", str(files / "old.json"), *params, "--output", "out/"]
    assert f"next: {shlex.join(line)}\n" in shown
    assert main(["inspect", str(files / "old.relay"), "--json", *params]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == {"x": "Tensor[(2, 3), float32]"}
    assert found["parameters"] == {"w": "Tensor[(3,), float32]"}
    assert found["parameter_bytes"] == W.nbytes
    assert found["result"] == "Tensor[(2, 3), float32]"
    assert [row["name"] for row in found["operators"]] == ["add", "nn.relu"]


def test_inspection_of_what_cannot_be_translated(files, capsys):
    (files / "bad.relay").write_text(
        "def @main(%x: Tensor[(?, 2), float32]) {\n  %0 = foo.bar(%x, 1f);\n  nn.relu(%0)\n}"
    )
    assert main(["inspect", str(files / "bad.relay"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["operators"][0] == {
        "name": "foo.bar",
        "calls": 1,
        "places": ["2:8"],
        "problem": "TVM 0.19 has no such operator",
    }
    assert "foo.bar" in found["type_error"]
    assert found["constant_bytes"] == 4
    assert main(["inspect", str(files / "bad.relay")]) == 0
    assert "next: " not in capsys.readouterr().out
    (files / "worse.relay").write_text("def @main( {")
    for arguments, status, problem in (
        (["worse.relay"], 1, "worse.relay: line 1, column 12"),
        (["none.txt"], 2, "no such file"),
        (["old.json", "--params", "none"], 2, "none: "),
        ([".", "--params", "old.params"], 2, "only for a Relay program"),
    ):
        paths = [a if a.startswith("--") else str(files / a) for a in arguments]
        assert main(["inspect", *paths]) == status
        assert problem in capsys.readouterr().err


def test_errors_name_the_file(files, capsys):
    (files / "bad.relay").write_text("def @main() { (1, 2 }")
    with pytest.raises(RelayError, match=r"bad\.relay: .*1:"):
        read_module(files / "bad.relay")
    (files / "graph.json").write_text(json.dumps(
        {"nodes": [{"op": "null", "name": "x", "inputs": []}], "arg_nodes": [0], "heads": []}
    ))  # fmt: skip
    assert main(["verify", str(files / "graph.json")]) == 1
    assert "graph executor" in capsys.readouterr().err
    (files / "bad.params").write_bytes(b"x" * 40)
    with pytest.raises(RelayError, match=r"bad\.params: .*magic number"):
        open_source(files / "old.relay", params=files / "bad.params")
    with pytest.raises(UsageError, match="no-such"):
        open_source(files / "old.relay", params=files / "no-such")
    with pytest.raises(CompileError, match="parameters that main does not have: z"):
        open_source(files / "old.relay", params={"z": W})
    with pytest.raises(UsageError, match="only for a Relay program"):
        open_source("model.onnx", params={"z": W})


def test_example_of_the_documentation(files, monkeypatch):
    page = Path(__file__).parents[3] / "docs" / "relay.md"
    code = page.read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(files)
    np.save("x.npy", X)
    exec(compile(code, str(page), "exec"), {})


if __name__ == "__main__":
    tvm.testing.main()
