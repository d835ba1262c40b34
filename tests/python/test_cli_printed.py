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
"""Every command that a command prints runs, and shows the same problem."""

import os
import re
import runpy
import shlex
import sys
from dataclasses import replace

import pytest
import tvm.testing

from helpers.grids import from_tier, is_full
from helpers.preparation import prepare_forks
from helpers.printed_commands import SCENARIOS, write_files
from tvm_fixes.search import bisection
from tvm_fixes.search.culprit import Culprit
from tvm_fixes.support.isolate import run_forked
from tvm_fixes_cli import main

_COMMAND = re.compile(r"(?:\w+=\S+ )?tvm-fixes (?!error:).*")

# The commands find the problem.
_STATUS = {"inspect": 0, "compile": 1, "compare": 1, "bisect": 0, "reduce": 0}


@pytest.fixture(scope="module", autouse=True)
def prepared():
    prepare_forks()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "it's a folder"
    path.mkdir()
    write_files(path)
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def brief(monkeypatch):
    """Below the full tier, searches end after their first trial, with a pass as the culprit."""
    if is_full():
        return
    whole = bisection.bisect

    def bisect(*args, over, **options):
        if "passes" not in over:
            return whole(*args, over=over, **options)
        found = whole(*args, over=(), **options)
        culprit = Culprit("passes", ["Pass"], "not searched")
        return replace(found, culprits=[culprit])

    monkeypatch.setattr(bisection, "bisect", bisect)


def run(line, monkeypatch, capfd):
    """Run a command in this process; return its status and what it prints."""
    words = shlex.split(line)
    with monkeypatch.context() as patch:
        while "=" in words[0]:
            patch.setenv(*words.pop(0).split("=", 1))
        assert words.pop(0) == "tvm-fixes", line
        try:
            status = main(words)
        except SystemExit as error:
            status = error.code
    return status, "".join(capfd.readouterr())


def end_of(script):
    """How a script ends that runs in another directory."""

    def run():
        os.chdir("/")
        sys.path[0] = str(script.parent)
        runpy.run_path(str(script), run_name="__main__")

    return " ".join(str(run_forked(run, timeout=30)).split())


# The one that takes the fewest trials is in every tier.
names = [
    name if name == "error" else pytest.param(name, marks=from_tier("ci"))
    for name, one in SCENARIOS.items()
    if is_full() or one.is_quick
]


@pytest.mark.parametrize("name", names)
def test_what_is_printed_shows_the_problem(name, folder, brief, monkeypatch, capfd):
    scenario = SCENARIOS[name]
    first = scenario.command
    left = [first if "tvm-fixes" in first else f"tvm-fixes {first}"]
    done, printed, wrong = [], set(), []
    while left:
        line = left.pop(0)
        done.append(line)
        command = re.search(r"tvm-fixes (\w+)", line)[1]
        status, text = run(line, monkeypatch, capfd)
        pattern = scenario.place if command == "compare" else scenario.finding
        if status != _STATUS[command] or not re.search(pattern, text):
            wrong.append(f"{line}: {status}\n{text}")
        found = _COMMAND.findall(text)
        left += [one for one in dict.fromkeys(found) if one not in done + left]
        printed |= {re.search(r"tvm-fixes (\w+)", one)[1] for one in found}
        for path in re.findall(r"^script +(.*)$", text, re.MULTILINE):
            printed.add("script")
            script = folder / path
            if not re.search(scenario.error, end := end_of(script)):
                wrong.append(f"{script}: {end}\n{script.read_text()}")
    assert not wrong, "\n\n".join(wrong)
    assert printed == set(scenario.printed.split())


if __name__ == "__main__":
    tvm.testing.main()
