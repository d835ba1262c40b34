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
"""Tests of the comparison of models under ``torch.compile``."""

from dataclasses import replace

import pytest
import torch
import tvm.testing
from torch import nn

from benchmarks.shipped.data import normal
from benchmarks.shipped.table import Results
from benchmarks.torch_compile import __main__ as command
from benchmarks.torch_compile.models import SUBJECTS, Subject
from benchmarks.torch_compile.rows import Row
from benchmarks.torch_compile.table import markdown, summary
from benchmarks.torch_compile.worker import Measured

OURS = Row("resnet18", "tvm_fixes", "abc", cold=2.0, warm=1.0, ms=5.0, eager_ms=10.0, ratio=0.5)
INDUCTOR = replace(OURS, backend="inductor", cold=8.0, warm=4.0, ms=8.0, ratio=0.8)

LINEAR = Subject(
    "linear", "torchvision", lambda: nn.Linear(4, 3), lambda k: {"x": normal(k + 1, 4)}
)


@pytest.fixture
def fresh_dynamo():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def measured(backend):
    found = Measured(LINEAR, backend)
    with torch.inference_mode():
        found.first()
        found.steady()
        found.other_sizes()
    return found.row


def test_sixty_models_of_four_libraries():
    assert len(SUBJECTS) == 60
    libraries = {subject.library for subject in SUBJECTS.values()}
    assert libraries == {"transformers", "torchvision", "timm", "diffusers"}


def test_a_model_is_measured_at_three_sizes(fresh_dynamo):
    row = measured("tvm_fixes")
    assert row["wrong"] == "" and row["compiled"] == row["graphs"] == row["partitions"] == 1
    assert row["recompiled"] == 0 and row["eager"] == row["skipped"] == []
    assert row["cold"] >= row["in_backend"] > 0 and row["ratio"] > 0 and 0 < row["share"] <= 1
    again = OURS.measured(row)
    assert again.problem == "" and again.ms == row["ms"] and again.cold == row["cold"]


def test_wrong_results_are_found_at_each_size(fresh_dynamo):
    def wrong_for_two(module, inputs):
        return lambda *values: tuple(
            value + 0.01 * (value.shape[0] == 2) for value in module(*values)
        )

    row = measured(wrong_for_two)
    assert row["wrong"].startswith("size 1: output '0': error 0.01")


def test_a_run_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "_OUT", tmp_path)
    monkeypatch.setattr(command, "SUBJECTS", {"resnet18": SUBJECTS["resnet18"]})
    asked = []

    def measure(name, backend, arguments):
        asked.append(backend)
        return OURS if backend == "tvm_fixes" else INDUCTOR

    monkeypatch.setattr(command, "measure", measure)
    table = tmp_path / "table.md"
    assert command.main(["--table", str(table)]) == 0
    assert command.main(["--table", str(table)]) == 0
    assert asked == ["tvm_fixes", "inductor"]
    assert "| torchvision | resnet18 | right | 5 | 10 | 8 | 0.62 |" in table.read_text()
    assert "0.62 of Inductor's; first call 0.25 of Inductor's, and 0.25" in capsys.readouterr().out


def test_a_failure_decides_the_exit_status(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_OUT", tmp_path)
    monkeypatch.setattr(command, "SUBJECTS", {"resnet18": SUBJECTS["resnet18"]})
    monkeypatch.setattr(command, "measure", lambda name, backend, _: OURS.failed("wrong"))
    options = ["--backends", "tvm_fixes", "--table", str(tmp_path / "table.md")]
    assert command.main(options) == 1
    with pytest.raises(SystemExit):
        command.main(["resnet1"])


def test_rows_are_kept(tmp_path):
    results = Results(tmp_path / "rows.jsonl", Row)
    results.add(OURS)
    results.add(replace(OURS, cold=3.0))
    assert Results(tmp_path / "rows.jsonl", Row).all() == [replace(OURS, cold=3.0)]


def test_the_table_shows_failures():
    rows = [OURS.failed("size 1: wrong"), INDUCTOR]
    assert summary(rows) == "0 of 1 models right."
    assert "| resnet18 | size 1: wrong |" in markdown(rows, 60)
    assert "59 more are not measured yet." in markdown(rows, 60)


if __name__ == "__main__":
    tvm.testing.main()
