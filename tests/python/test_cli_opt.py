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
"""The command ``opt``, and ``compile --dump-ir``."""

import io
import json
import os
import subprocess
import sys

import onnx
import pytest
import tvm
import tvm.testing

from helpers.grids import from_tier
from helpers.models import onnx_conv
from helpers.planted_faults import graph
from helpers.unused_binding import SCRIPT
from tvm_fixes.passes import make
from tvm_fixes.source.module_file import read_module
from tvm_fixes.target import native
from tvm_fixes_cli import main


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(SCRIPT)
    return path


def opt(*arguments: object) -> int:
    return main(["opt", *map(str, arguments)])


class TestOpt:
    def test_the_module_is_printed(self, script, capfd):
        assert opt("--passes", "DeadCodeElimination", script) == 0
        out, err = capfd.readouterr()
        assert "R.nn.relu(x)" in out and "R.add" not in out
        assert err == ""

    def test_without_passes_the_import_is_printed(self, tmp_path, capfd):
        onnx.save(onnx_conv(), tmp_path / "model.onnx")
        assert opt(tmp_path / "model.onnx") == 0
        out, err = capfd.readouterr()
        assert "R.nn.conv2d(" in out and "call_tir" not in out and err == ""

    def test_dims_are_static_with_sizes(self, tmp_path, capfd):
        path = tmp_path / "model.onnx"
        onnx.save(graph("float[N,8] x", "float[N,8] r", "r = Relu (x)"), path)
        assert opt(path, "--size", "N=7") == 0
        assert "x: R.Tensor((N, 8)" in capfd.readouterr().out
        assert opt(path, "--static", "--shape", "x=7,8") == 0
        assert "x: R.Tensor((7, 8)" in capfd.readouterr().out
        (tmp_path / "module.py").write_text(SCRIPT)
        assert opt(tmp_path / "module.py", "--static") == 2
        assert "only for a model" in capfd.readouterr().err

    def test_without_passes_the_import_is_verified(self, tmp_path, capfd):
        path = tmp_path / "module.py"
        path.write_text(SCRIPT.replace("R.nn.relu(x)", "R.nn.conv2d(x, x)"))
        assert opt(path) == 1
        assert capfd.readouterr().out == ""

    def test_changes(self, script, capfd):
        passes = "Normalize,DeadCodeElimination,LegalizeOps"
        assert opt("--passes", passes, "--print-changed", script) == 0
        out, err = capfd.readouterr()
        assert "call_tir" in out and "R.add" not in out
        names = [line for line in err.splitlines() if line.startswith("# ")]
        assert names == ["# DeadCodeElimination", "# LegalizeOps"]
        assert '\n-            unused: R.Tensor((2, 3), dtype="float32") = R.add(x, x)\n' in err

    @pytest.mark.parametrize("name, passes", [("o.py", "Normalize"), ("o.json", "LegalizeOps")])
    def test_a_file_with_constants_can_be_read_again(self, tmp_path, capfd, name, passes):
        onnx.save(onnx_conv(), tmp_path / "model.onnx")
        out = tmp_path / name
        assert opt("--passes", passes, tmp_path / "model.onnx", "-o", out) == 0
        assert capfd.readouterr().out == ""
        with native():
            expected = make(passes)(read_module(tmp_path / "model.onnx"))
        tvm.ir.assert_structural_equal(read_module(out), expected)
        assert opt("--passes", "FuseOps", out, "--constants") == 0
        assert "metadata = " in capfd.readouterr().out

    @pytest.mark.parametrize("form", ["script", "json"])
    def test_standard_input(self, script, capfd, monkeypatch, form):
        text = SCRIPT if form == "script" else tvm.ir.save_json(read_module(script))
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert opt("--passes", "DeadCodeElimination", "-", "--json") == 0
        document = json.loads(capfd.readouterr().out)
        assert document["passes"][0]["changes"] == ["DeadCodeElimination"]
        assert "R.nn.relu(x)" in document["module"] and "R.add" not in document["module"]

    @pytest.mark.parametrize(
        "arguments, status, message",
        [
            (
                ["--passes", "Normalize"],
                2,
                "opt needs a file, or --list or --print-pipeline",
            ),
            (["no.py"], 2, "no.py: no such file"),
            (["--passes", "Normalize", "no.py"], 2, "no.py: no such file"),
            (["--passes", "Normalise", "{script}"], 2, "did you mean Normalize?"),
            (["--passes", "Normalize", "{script}", "--target", "{{"], 2, "target '{': "),
            (["--passes", "Normalize", "{script}", "-o", "/no/x"], 1, "/no/x: No such file"),
            (["--passes", "FuseTIR,MakePackedAPI", "-"], 1, "standard input: not valid TVM JSON"),
        ],
    )
    def test_error_is_one_line(self, script, capfd, monkeypatch, arguments, status, message):
        monkeypatch.setattr("sys.stdin", io.StringIO("{"))
        assert opt(*(argument.format(script=script) for argument in arguments)) == status
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("tvm-fixes: error: ") and err.count("\n") == 1
        assert message in err

    def test_list(self, capfd):
        assert opt("--list") == 0
        out = capfd.readouterr().out
        assert "\nLegalizeOps " in out and "\nrelax.FoldConstant " in out
        assert "NarrowDataType" not in out  # has a required argument
        assert opt("--list", "--json") == 0
        rows = json.loads(capfd.readouterr().out)
        assert len(rows) == len(out.splitlines())


class TestDumpIR:
    def test_compile(self, tmp_path, capfd):
        onnx.save(onnx_conv(), tmp_path / "model.onnx")
        command = ["compile", str(tmp_path / "model.onnx"), "--no-compare", "-q", "--dump-ir"]
        assert main([*command, str(tmp_path / "dump")]) == 0
        assert (tmp_path / "dump" / "000-import.py").exists()
        assert list((tmp_path / "dump").glob("*-Legalize-LegalizeOps.diff"))
        assert main([*command, str(tmp_path)]) == 2
        assert "contains files that are not of an earlier dump" in capfd.readouterr().err

    @from_tier("ci")
    def test_interrupted(self, script, tmp_path):
        """The files written before the interrupt can be read."""
        program = (
            "import signal, sys, tvm_fixes\n"
            "from tvm_fixes.compiler import steps\n"
            "def build(*_):\n"
            "    signal.raise_signal(signal.SIGINT)\n"
            "steps.build_executable = build\n"
            "from tvm_fixes_cli import main\n"
            "sys.exit(main(['compile', 'model.onnx', '--no-compare', '-q', '--dump-ir', 'dump']))\n"
        )
        onnx.save(onnx_conv(), tmp_path / "model.onnx")
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 130, done.stderr
        index = json.loads((tmp_path / "dump" / "index.json").read_text())
        listed = [name for module in index["modules"] for name in module["files"]]
        assert sorted([*listed, "index.json"]) == sorted(os.listdir(tmp_path / "dump"))
        assert len(listed) > 5


if __name__ == "__main__":
    tvm.testing.main()
