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
"""The commands that commands print have the options that make the problem appear."""

import os
import shlex
import subprocess
import sys

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.grids import from_tier
from helpers.planted_faults import double_scatter_add, model
from tvm_fixes.search import bisection
from tvm_fixes.search.problem import Observed
from tvm_fixes_cli import _parser, main
from tvm_fixes_cli.again import UNRELATED, command_line

# Of each option, words that change its value.
WORDS = {
    "source": ["a model.onnx"],
    "params": ["--params", "a.params"],
    "target": ["--target", '{"kind": "llvm", "mcpu": "cortex-a76"}'],
    "layout": ["--layout", "NHWC"],
    "shape": ["--shape", "x=n,3,4", "--shape", "y=7,16"],
    "size": ["--size", "N=7", "--size", "2*M=8"],
    "inputs": ["--inputs", "some inputs.npz"],
    "trust": ["--trust"],
    "imports": ["--import", "transformers.modeling_outputs", "--import", "own types.py"],
    "static": ["--static"],
    "compare": ["--no-compare"],
    "rtol": ["--rtol", "1e-07"],
    "atol": ["--atol", "0.1"],
    "seed": ["--seed", "3"],
    "magnitude": ["--magnitude", "0.015625"],
    "verify": ["--no-verify"],
    "verify_each": ["--verify-each"],
    "runtime_checks": ["--runtime-checks"],
    "unsafe_indices": ["--unsafe-indices"],
    "max_growth": ["--max-growth", "3"],
    "max_size_ratio": ["--max-size-ratio", "2"],
    "weights": ["--weights", "outside"],
    "strip": ["--strip"],
    "dump_ir": ["--dump-ir", "dump"],
    "explain": ["--explain"],
    "time_passes": ["--time-passes"],
    "fill_memory": ["--fill-memory"],
    "repeat": ["--repeat", "5"],
    "max_bytes": ["--max-bytes", "100"],
    "timeout": ["--timeout", "9.5"],
    "memory": ["--memory", "2"],
    "crashes": ["--crashes"],
    "fails": ["--fails"],
    "slower_than": ["--slower-than", "3"],
    "larger_than": ["--larger-than", "1e6"],
    "value": ["--value", "a/b c"],
    "user_passes": ["--pass", "my_pass.py:Mine@after=Legalize", "--pass", "a.b:Other"],
    "check": ["--check", "grep -q 'a b'"],
}

# Of the printed commands, the options of the command that prints them and that they do not have.
PRINTS = {
    ("bisect", "bisect"): set(),
    ("bisect", "compile"): {
        *("timeout", "memory", "crashes", "fails", "slower_than", "larger_than", "check"),
        "value",
    },
    ("bisect", "compare"): {
        *("memory", "crashes", "fails", "slower_than", "larger_than", "check"),
        "value",
    },
    ("compare", "bisect"): {"max_bytes", "repeat", "fill_memory"},
    ("compare", "reduce"): {"max_bytes", "repeat", "fill_memory"},
    ("compare", "opt"): {
        *("inputs", "rtol", "atol", "seed", "magnitude", "runtime_checks", "unsafe_indices"),
        *("max_growth", "weights", "fill_memory", "repeat", "max_bytes", "timeout", "layout"),
        "verify",
    },
    ("compile", "compare"): {
        *("params", "compare", "verify_each", "strip", "max_size_ratio", "dump_ir", "explain"),
        "time_passes",
    },
}


def options_of(command):
    """The destinations of the options of a command that matter for a problem."""
    actions = _parser()._subparsers._group_actions[0].choices[command]._actions
    return sorted({action.dest for action in actions} - UNRELATED)


CASES = [
    (*pair, option, lacking) for pair, lacking in PRINTS.items() for option in options_of(pair[0])
]


@pytest.mark.parametrize("command, printed, option, lacking", CASES)
def test_every_option_is_printed(command, printed, option, lacking):
    words = [command, *WORDS["source"], *(WORDS[option] if option != "source" else [])]
    arguments = _parser().parse_args(words)
    line = shlex.split(command_line(arguments, printed))
    assert line[:2] == ["tvm-fixes", printed]
    again = vars(_parser().parse_args(line[1:]))
    assert again["source"] == "a model.onnx"
    if option in lacking:
        assert option not in options_of(printed)
    else:
        assert again[option] == vars(arguments)[option]


@pytest.mark.parametrize(
    "started, expected",
    [
        ("tvm-fixes", "tvm-fixes"),
        ("other/tvm-fixes", "other/tvm-fixes"),
        ("{bin}/tvm-fixes", "tvm-fixes"),
        ("{lib}/tvm_fixes/__main__.py", f"{shlex.quote(sys.executable)} -m tvm_fixes"),
        ("{lib}/pytest/__main__.py", "tvm-fixes"),
    ],
)
def test_the_program_is_started_as_before(tmp_path, monkeypatch, started, expected):
    program = tmp_path / "bin" / "tvm-fixes"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(program.parent))
    arguments = _parser().parse_args(["compile", "m.onnx"])
    begin = started.format(bin=program.parent, lib="lib")
    is_found = begin == str(program) or begin == "tvm-fixes"
    monkeypatch.setattr(sys, "argv", [str(program) if is_found else begin])
    assert command_line(arguments, "compare") == f"{expected} compare m.onnx"


@pytest.mark.parametrize("name", ["it's.onnx", "a b.onnx", "esc\x1b[1m\n'\\.onnx", "\udcff.onnx"])
def test_a_shell_reads_the_names_of_files(name):
    arguments = _parser().parse_args(["bisect", name])
    line = command_line(arguments, "compare")
    assert line.isprintable()
    script = f'tvm-fixes() {{ printf %s "$2"; }}; {line}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert os.fsdecode(done.stdout) == name


def test_fixes_that_are_off_stay_off(monkeypatch):
    arguments = _parser().parse_args(["bisect", "m.onnx", "-q", "--json", "--over", "passes"])
    monkeypatch.setenv("TVM_FIXES_DISABLE", "onnx-resize")
    line = command_line(arguments, "compile", off=["average-pool"])
    assert line == "TVM_FIXES_DISABLE=onnx-resize,average-pool tvm-fixes compile m.onnx"
    monkeypatch.delenv("TVM_FIXES_DISABLE")
    assert command_line(arguments, "bisect", over=["fixes"]) == (
        "tvm-fixes bisect m.onnx --over fixes"
    )


def printed_line(out, label):
    [line] = [line for line in out.splitlines() if line.strip().startswith(f"{label}: ")]
    return line.strip().removeprefix(f"{label}: ")


def run_printed(line, monkeypatch):
    """Run a printed command in this process."""
    words = shlex.split(line)
    while "=" in words[0] and words[0] != "tvm-fixes":
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    assert words[0] == "tvm-fixes"
    return main(words[1:])


@pytest.mark.parametrize("options", [[], ["--check", "test -e"]])
def test_what_bisect_prints_reproduces(tmp_path, monkeypatch, capfd, options):
    """The inputs and the seed are those of the search; ``compile`` has the fix off."""
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "model.onnx")
    x = np.arange(32, dtype="float32").reshape(4, 8)
    np.savez("the inputs.npz", x=x, y=x.reshape(8, 4))
    seen = []

    def observe(problem, subject, settings, *, off=frozenset()):
        seen.append((problem, settings.seed, [value.tolist() for value in subject.inputs]))
        return Observed("verifier" not in off, "as told", 1.0, ("verifier",))

    monkeypatch.setattr(bisection, "observe", observe)
    words = ["--inputs", "the inputs.npz", "--seed", "4", "--over", "fixes", "-q", *options]
    assert main(["bisect", "model.onnx", *words]) == 0
    line = printed_line(capfd.readouterr().out, "again")
    first = seen[0]
    seen.clear()
    status = run_printed(line, monkeypatch)
    if not options:
        assert line.startswith("TVM_FIXES_DISABLE=verifier tvm-fixes compile model.onnx")
        assert status == 0 and "equal to ONNX Runtime" in capfd.readouterr().out
    else:
        assert seen[0] == first


@from_tier("ci")
def test_compare_prints_how_to_see_a_wrong_import(tmp_path, monkeypatch, capfd):
    """Only if an importer's fix is among those of the first difference."""
    (tmp_path / "added.py").write_text(
        "import torch\nclass Added(torch.nn.Module):\n    def forward(self, x, at, values):\n"
        "        return torch.scatter_add(x, 0, at, values)\ndef make():\n    at = torch.zeros"
        "(1, 2, dtype=torch.int64)\n    return Added().eval(), (torch.ones(3, 2), at, "
        "torch.ones(1, 2))\n"
    )
    monkeypatch.chdir(tmp_path)
    double_scatter_add(monkeypatch)
    assert main(["compare", "added.py:make", "--trust", "-q"]) == 1
    *_, line, purpose = capfd.readouterr().out.splitlines()
    assert line == "next: tvm-fixes opt added.py:make --trust"
    assert purpose.strip() == "prints the imported module"
    assert run_printed(line.removeprefix("next: "), monkeypatch) == 0
    assert "R.scatter_elements(" in capfd.readouterr().out
    onnx.save(model(), "model.onnx")
    assert main(["compare", "model.onnx", "-q", "--rtol", "0", "--atol", "0"]) == 1
    assert "tvm-fixes opt" not in capfd.readouterr().out


def test_what_compile_prints_reproduces(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    onnx.save(model(rows="N"), "model.onnx")
    assert main(["compile", "model.onnx", "-q", "--rtol", "0", "--atol", "0", "--size", "N=3"]) == 1
    line = printed_line(capfd.readouterr().out, "next")
    assert run_printed(f"{line} -q", monkeypatch) == 1
    assert "compared with     N=3" in capfd.readouterr().out


if __name__ == "__main__":
    tvm.testing.main()
