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
"""Plants known faults in copies of the package, and looks for them with the documented commands.

    make check-faults ARGS="--only threads"

A fault is a change of one line of the package, with a model that shows it and the words that a
tool must print: the node, and the fix, pass, kernel or other place.  :mod:`tests.faults.catalog`
lists them.  The commands are those of docs/debugging.md: ``compare`` first, then ``bisect`` and
what a tool suggests.  The copy records that the changed expression is evaluated; if the commands
never reach it, the catalog is wrong.  The exit status is 1 then, or if a smaller share than
:data:`LEAST` is named.
"""

import argparse
import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .catalog import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
LEAST = 28 / 30
"""The share of faults that the tools must name."""

_SECONDS = 900

_REACHED = "reached"

_DIFFERENCE = re.compile(r" {12}(@@|[-+ #])")
"""A line of a difference between two modules, in the output of ``bisect``."""

# The finder of an editable installation would import the package of this checkout.
_SITE = f"""import builtins, pathlib, sys
editable = "ScikitBuildInplaceFinder"
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != editable]

def reached(value):
    pathlib.Path(__file__).with_name("{_REACHED}").touch()
    return value

builtins.fault_reached = reached
"""


@dataclass(frozen=True)
class Outcome:
    """The output of the tools about a planted fault.

    Attributes
    ----------
    printed : str
        The commands and what they print.
    missing : tuple of str
        The words that no command prints.
    unseen : bool
        Whether the first command reports no difference.
    reached : bool
        Whether the changed expression was evaluated.
    seconds : float
    """

    printed: str
    missing: tuple[str, ...]
    unseen: bool
    reached: bool
    seconds: float

    @property
    def verdict(self) -> str:
        """``"named"``, ``"seen"``, ``"not seen"`` or ``"not reached"``."""
        if not self.reached:
            return "not reached"
        if not self.missing:
            return "named"
        return "not seen" if self.unseen else "seen"


def planted(fault: Fault, folder: Path) -> None:
    """Copy the package into a folder, and plant a fault in the copy.

    Raises
    ------
    ValueError
        If the package does not contain the changed text exactly once.
    """
    shutil.copytree(
        ROOT / "python", folder / "python", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "python" / "sitecustomize.py").write_text(_SITE)
    (folder / "build").symlink_to(ROOT / "build")
    path = folder / "python" / fault.file
    text = path.read_text()
    if text.count(fault.right) != 1:
        raise ValueError(f"{fault.name}: expected once in {fault.file}: {fault.right}")
    wrong = text.replace(fault.right, fault.wrong)
    start = text.index(fault.right) + _common(fault.right, fault.wrong)
    tail = _common(fault.right[::-1], fault.wrong[::-1])
    end = max(start, text.index(fault.right) + len(fault.wrong) - tail)
    path.write_text(recorded(wrong, start, end))


def _common(first: str, second: str) -> int:
    """The number of leading characters that two strings share."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def recorded(source: str, start: int, end: int) -> str:
    """Let a program call ``fault_reached`` where it evaluates a part of its source.

    Parameters
    ----------
    source : str
        A Python program.
    start, end : int
        The part.  The call surrounds the smallest expression that contains it, or stands before
        the statement if there is none.  Of a part of several statements, only the start counts.
    """
    data = source.encode()
    begin, stop = len(source[:start].encode()), len(source[:end].encode())
    spans = _spans(source)
    around = [span for span in spans if span[0] <= begin and stop <= span[1]]
    around = around or [span for span in spans if span[0] <= begin <= span[1]]
    first, last, is_statement = min(around, key=lambda span: (span[1] - span[0], span[2]))
    if is_statement:
        changed = b"fault_reached(None); " + data[first:last]
    else:
        changed = b"fault_reached((" + data[first:last] + b"))"
    return (data[:first] + changed + data[last:]).decode()


def _spans(source: str) -> list[tuple[int, int, bool]]:
    """Where expressions and simple statements begin and end, and whether they are statements."""
    lines = source.encode().splitlines(keepends=True)
    begins = list(itertools.accumulate(map(len, lines), initial=0))
    spans = []
    for node in ast.walk(ast.parse(source)):
        is_compound = hasattr(node, "body") and not isinstance(node, ast.expr)
        is_written = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        if not isinstance(node, ast.expr | ast.stmt) or isinstance(node, ast.Starred | ast.Slice):
            continue
        if not (is_compound or is_written):
            first = begins[node.lineno - 1] + node.col_offset
            last = begins[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            spans.append((first, last, isinstance(node, ast.stmt)))
    return spans


def search(fault: Fault) -> Outcome:
    """Run the commands of a fault until one prints the last word."""
    start = time.monotonic()
    printed, said, statuses, missing = "", "", [], fault.words
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        planted(fault, folder)
        model = fault.model(folder)
        for command in fault.commands:
            words = ["tvm-fixes", *(word.format(model=model) for word in command.split())]
            status, text, errors = _run(words, folder)
            printed += f"$ {' '.join(words)}\n{text}{errors}(exit status {status})\n"
            said += concluded(text, errors)
            statuses.append(status)
            missing = tuple(word for word in fault.words if word not in said)
            if not missing:
                break
        reached = (folder / "python" / _REACHED).exists()
    return Outcome(printed, missing, statuses[0] == 0, reached, time.monotonic() - start)


def concluded(text: str, errors: str) -> str:
    """The conclusions of a command: its output without differences of modules, and its error.

    The trials of a search name all fixes, and a difference many operators.
    """
    lines = [line for line in text.splitlines() if not _DIFFERENCE.match(line)]
    _, error, message = errors.partition("tvm-fixes: error:")
    return " ".join([*lines, error, *message.split("\n")])


def _run(words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    # One thread, the default for two cores, has no races. Lines are not wrapped.
    environment = os.environ | {
        "PYTHONPATH": str(folder / "python"),
        "TVM_NUM_THREADS": "4",
        "COLUMNS": "1000",
    }
    command = [sys.executable, "-m", "tvm_fixes_cli", *words[1:]]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, timeout=_SECONDS, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"no end after {_SECONDS} s\n"
    return done.returncode, done.stdout, done.stderr


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make check-faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="only faults with TEXT in a name"
    )
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time (default: 2)")
    parser.add_argument("--verbose", action="store_true", help="show what all commands print")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Plant each fault, and show which ones the tools name."""
    arguments, console = _parse(argv), Console()
    faults = [fault for fault in FAULTS if arguments.only in fault.name]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = list(pool.map(partial(_shown, console=console), faults))
    table = Table("fault", "place", "verdict", "missing", "seconds")
    for fault, outcome in zip(faults, outcomes, strict=True):
        missing = ", ".join(outcome.missing)
        table.add_row(fault.name, fault.kind, outcome.verdict, missing, f"{outcome.seconds:.0f}")
        if arguments.verbose or outcome.verdict != "named":
            text = f"\n{fault.name}\n{outcome.printed}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    named = sum(outcome.verdict == "named" for outcome in outcomes)
    console.print(f"{named} of {len(faults)} faults are named")
    is_reached = all(outcome.reached for outcome in outcomes)
    return 0 if is_reached and named >= LEAST * len(faults) else 1


def _shown(fault: Fault, console: Console) -> Outcome:
    outcome = search(fault)
    console.print(f"{fault.name}: {outcome.verdict} ({outcome.seconds:.0f} s)", markup=False)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
