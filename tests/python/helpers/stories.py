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
"""Pages that show commands with their output: a test runs them and compares the words."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tvm_fixes_cli import main


def programs(page: Path) -> list[str]:
    """The Python programs of a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def stories(page: Path) -> dict[str, list[tuple[str, str]]]:
    """For each section with commands: the commands, with the output that the page shows."""
    _, *parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    console = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    found = {title: console.findall(text) for title, text in zip(*[iter(parts)] * 2, strict=True)}
    return {title: commands for title, commands in found.items() if commands}


def words(line: str) -> list[str]:
    """The words of a line, without numbers, units and the borders of tables."""
    number = r"[\d.e+-]+%?,?|[µm]?s,?"
    return [w for w in re.split(r"[\s│┃]+", line) if w and not re.fullmatch(number, w)]


def _pattern(line: str) -> str:
    """A regular expression for the words of a line; "…" matches any words."""
    parts = (re.escape(" ".join(words(part))) for part in line.split("…"))
    return " ?.*".join(parts)


def run(command: str, monkeypatch: Any, capsys: Any) -> str:
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


def check(commands: list[tuple[str, str]], monkeypatch: Any, capsys: Any) -> None:
    """Run commands in order; each prints the lines shown, perhaps with others between them."""
    for command, shown in commands:
        lines = [" ".join(words(line)) for line in run(command, monkeypatch, capsys).splitlines()]
        monkeypatch.delenv("TVM_FIXES_DISABLE", raising=False)
        expected = [_pattern(line) for line in shown.splitlines() if line[0] not in "┏┡└"]
        left = iter(lines)
        for line in expected:
            assert any(re.fullmatch(line, other) for other in left), (line, lines)
