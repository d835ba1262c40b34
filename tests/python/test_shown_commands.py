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
"""The commands that the pages and the helps show run as they stand."""

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing

from helpers.grids import is_full
from helpers.planted_faults import graph
from helpers.printed_commands import MODULE
from tvm_fixes.source.module_file import open_module
from tvm_fixes_cli import _parser, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# With a file or a placeholder that no test has, or tested by other files.
ELSEWHERE = re.compile(
    r"cuda|transformers|aarch64|skylake|\.relay|old\.json|print-completion|doctor|PASS|GPU"
    r"|(detector|classifier|layer|encoder|sensor)\.onnx|artifact"
)

# Cheap ones, of each kind of page.
QUICK = re.compile(r"opt --list|check model.onnx|opt --passes LegalizeOps,\w+ module|--trace")

_FACTORY = """
import torch


def factory():
    return torch.nn.Conv2d(3, 4, 1).eval(), (torch.ones(1, 3, 8, 8),)


make = factory
"""

_PASS = """
import tvm

MyPass = tvm.transform.module_pass(lambda mod, _: mod, opt_level=0, name="MyPass")
"""


def commands() -> dict[str, str]:
    """Each command in a block of a page, or in a help, with where it stands."""
    found = {}
    for page in PAGES:
        for line in re.findall(r"^(?:    )?(?:\$ |    )(.*)$", page.read_text(), re.MULTILINE):
            match = re.match(r"(?:\.venv/bin/)?((?:\w+=\S+ )?tvm-fixes .*)", line)
            if match:
                found.setdefault(
                    match[1].partition("  # ")[0].partition(" # ")[0].strip(), page.name
                )
    for name, parser in _parser()._subparsers._group_actions[0].choices.items():
        for line in re.findall(r"^  (tvm-fixes .*)$", parser.epilog or "", re.MULTILINE):
            found.setdefault(line.strip(), f"{name} --help")
    return found


def words_of(line: str) -> list[str]:
    """The arguments of a command, without what a shell reads or writes for it."""
    words = shlex.split(re.split(r" [<>] ", line)[0])
    while words[0] != "tvm-fixes":
        words.pop(0)
    return words[1:]


COMMANDS = commands()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = graph("float[1,3,8,8] image", "float[1,3,8,8] r", "e = Exp (image) r = Relu (e)")
    dynamic = graph("float[N,3,H,W] image", "float[N,3,H,W] r", "e = Exp (image) r = Relu (e)")
    onnx.save(model, "model.onnx")
    onnx.save(dynamic, "dynamic.onnx")
    np.savez("inputs.npz", image=np.ones((1, 3, 8, 8), "float32"))
    (tmp_path / "package").mkdir()
    for name in ("package/module.py", "net.py"):
        (tmp_path / name).write_text(_FACTORY)
    (tmp_path / "my_pass.py").write_text(_PASS)
    check = tmp_path / "shows-problem.sh"
    check.write_text("#!/bin/sh\nexit 0\n")
    check.chmod(0o755)
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "module.json").write_text(tvm.ir.save_json(open_module("module.py")))
    return tmp_path


def test_all_are_found():
    assert len(COMMANDS) > 60
    pages = set(COMMANDS.values())
    assert {"README.md", "cli.md", "debugging.md", "bisect --help", "opt --help"} <= pages


@pytest.mark.parametrize("line", COMMANDS)
def test_its_words_are_known(line):
    try:
        _parser().parse_args(words_of(line))
    except SystemExit as end:
        assert end.code == 0


@pytest.mark.parametrize(
    "line",
    [one for one in COMMANDS if not ELSEWHERE.search(one) and (is_full() or QUICK.search(one))],
)
def test_it_runs(line, folder, monkeypatch, capfd):
    words = words_of(line)
    is_read = "out/" in words and (words[0] == "report" or "-o" not in words)
    if is_read or any("out/model.so" in word for word in words):
        assert main(["compile", "model.onnx", "-o", "out/", "-q", "--no-compare"]) == 0
    if "model.pt2" in words:
        torch = pytest.importorskip("torch")
        linear = torch.nn.Linear(4, 2)
        torch.export.save(torch.export.export(linear, (torch.ones(2, 4),)), "model.pt2")
    if "<" in line:
        monkeypatch.setattr("sys.stdin", open(line.rpartition(" < ")[2]))
    capfd.readouterr()
    status = main(words)
    out, err = capfd.readouterr()
    # Without a problem, there is nothing to reduce.
    is_fine = re.search(r"expected: .*; found: |makes a difference|must crash|: no; ", out + err)
    assert status == 0 or (status == 1 and words[0] in ("reduce", "bisect") and is_fine), err


if __name__ == "__main__":
    tvm.testing.main()
