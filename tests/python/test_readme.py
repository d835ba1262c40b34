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
"""The README: its length, its programs as printed, its quick start."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.grids import is_full
from helpers.models import onnx_conv
from tvm_fixes.support.switches import FIX_IDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MAX_WORDS = 900


def programs_of(page: str, language: str = "python") -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(directory: Path, *arguments: str | Path) -> str:
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_it_is_short():
    text = re.sub(r"<!--.*?-->", "", README, flags=re.DOTALL)
    assert len(text.split()) <= MAX_WORDS


def test_its_fixes_exist():
    listed = re.findall(r"^\| `([^`]+)` \|", README, re.MULTILINE)
    assert len(listed) == 6
    assert set(listed) <= set(FIX_IDS)


def test_its_times_are_those_of_the_demo():
    """The models of the demo in its order, with ratios of the shown times."""
    pytest.importorskip("torch")
    from examples import demo

    cells = r"\| *".join([r"^\| (\w+) ", *[r"([\d.]+) "] * 3, "$"])
    rows = re.findall(cells, README, re.MULTILINE)
    assert tuple(model for model, *_ in rows) == demo.MODELS
    for model, ours, reference, ratio in rows:
        low, high = ((float(ours) - x * 0.005) / (float(reference) + x * 0.005) for x in (1, -1))
        assert low - 0.005 <= float(ratio) <= high + 0.005, model


def test_before_and_after(tmp_path):
    pytest.importorskip("torch")
    before, after = programs_of("README.md")
    *_, call, shown = before.splitlines()
    error, start = re.fullmatch(r"# (\w+): (.*) …", shown).groups()
    setup = before.removesuffix(f"{call}\n{shown}\n")
    raises = (
        f"try:\n    {call}\nexcept {error} as error:\n"
        f"    assert str(error).startswith({start!r}), error\n"
        f"else:\n    raise SystemExit('TVM imports it')\n"
    )
    largest = re.search(r"# (\S+)$", after.rstrip())[1]
    assert run(tmp_path, "-c", setup + raises + after).split() == [largest]


@pytest.mark.skipif(not is_full(), reason="three processes; test_cli.py tests their output")
def test_quick_start(tmp_path):
    """The output of the quick start; numbers may differ, and fixes depend on the CPU."""
    pytest.importorskip("onnxruntime")
    make, compile_model = re.findall(r"^    \.venv/bin/(\S+ .*)$", README, re.MULTILINE)
    [shown] = programs_of("README.md", "text")
    python, program, *arguments = make.split()
    assert python == "python"
    run(tmp_path, ROOT / program, *arguments)
    command, *arguments = compile_model.split()
    assert command == "tvm-fixes"
    printed = run(tmp_path, "-m", "tvm_fixes", *arguments)
    lines, expected = (
        [re.split(" {2,}", line.strip()) for line in text.splitlines()] for text in (printed, shown)
    )
    assert [label for label, _ in lines] == [label for label, _ in expected]
    fixes = next(label for label, _ in lines if label.startswith("fixes"))
    masked, masked_shown = (
        {label: re.sub(r"\d[\d.e+-]*", "0", value) for label, value in table if label != fixes}
        for table in (lines, expected)
    )
    assert masked == masked_shown
    assert set(dict(expected)[fixes].split(", ")) <= set(FIX_IDS)


@pytest.mark.skipif(not is_full(), reason="two pages are long programs")
def test_the_programs_run(tmp_path):
    """Run docs/passes.md as one program, and that of docs/deploying.md without this package."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    onnx.save(onnx_conv((1, 3, 64, 64)), tmp_path / "model.onnx")
    programs = programs_of("docs/passes.md")
    [alone] = programs_of("docs/deploying.md")
    assert len(programs) == 7
    save = "\nnp.save({!r}, output if isinstance(output, np.ndarray) else output.numpy())\n"
    lifted = (
        "assert (right == 50).all() and (right - wrong == 10).all() and (same == right).all()\n"
        "assert (more == 60).all() and (again == more).all()\n"
    )
    with_tvm_fixes = "\n".join([*programs, lifted]) + save.format("with.npy")
    run(tmp_path, "-c", with_tvm_fixes)
    without = "import sys\nsys.modules['tvm_fixes'] = None\n"  # its import would raise
    run(tmp_path, "-c", without + alone + save.format("without.npy"))
    output = np.load(tmp_path / "with.npy")
    assert np.abs(output).max() > 0
    np.testing.assert_array_equal(output, np.load(tmp_path / "without.npy"))


if __name__ == "__main__":
    tvm.testing.main()
