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
"""Runs TVM's tests in processes that may crash, and keeps the outcome of each test."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_fixes.search.journal import append_line, read_lines

from .plugin import JOURNAL_VARIABLE, KNOWN_VARIABLE, WAY_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
# Few enough that the memory of a process stays small, many enough that its start is cheap.
_FILES_PER_PROCESS = 16
# Seconds without a line in the journal after which a test counts as hung; a busy machine is slow.
_LIMIT = 900.0
_POLL = 0.2
# Of pytest: all passed, some failed, no test left.
_ENDED = (0, 1, 5)


@dataclass(frozen=True)
class Result:
    """The outcome of one test.

    Attributes
    ----------
    test : str
        Its pytest id, relative to ``tests/python`` of TVM; for a file that cannot be imported, or
        that ends the process on import, the file.
    outcome : str
        ``passed``, ``failed``, ``skipped``, or ``crashed`` if the process ended or hung.
    message : str
        The first line of the error.
    comparisons : tuple of str
        What :func:`~.same_function.same_function` said of each unexpected IR.
    """

    test: str
    outcome: str
    message: str = ""
    comparisons: tuple[str, ...] = ()


def results_of(folder: Path, way: str) -> dict[str, Result]:
    """Return what the journals of `way` in `folder` say, by test."""
    found: dict[str, Result] = {}
    for journal in sorted(folder.glob(f"{way}.*.jsonl")):
        for fields in read_lines(journal):
            if "outcome" in fields:
                comparisons = tuple(fields.pop("comparisons", ()))
                found[fields["test"]] = Result(**fields, comparisons=comparisons)
    return found


def files_of(tests: Path, paths: Sequence[str]) -> list[str]:
    """Return the test files in `paths`, which are patterns of files and folders in `tests`."""
    found: set[Path] = set()
    for path in (match for each in paths for match in tests.glob(each)):
        found.update([path] if path.is_file() else path.rglob("test_*.py"))
    return sorted(str(path.relative_to(tests)) for path in found)


def run(tests: Path, files: Sequence[str], way: str, folder: Path, jobs: int) -> dict[str, Result]:
    """Run test files one way; return the outcome of each test.

    Parameters
    ----------
    tests : Path
        ``tests/python`` of a checkout of TVM.  Nothing is written there.
    files : sequence of str
        Test files, relative to `tests`.
    way : str
        One of :data:`~.plugin.WAYS`.
    folder : Path
        For the journals.  Tests with an outcome there do not run again.
    jobs : int
        Processes at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chunks = [files[i : i + _FILES_PER_PROCESS] for i in range(0, len(files), _FILES_PER_PROCESS)]
    with ThreadPoolExecutor(jobs) as pool:
        waits = [
            pool.submit(_run_all, tests, chunk, way, folder / f"{way}.{number}.jsonl")
            for number, chunk in enumerate(chunks)
        ]
        for wait in waits:
            wait.result()
    return results_of(folder, way)


def _run_all(tests: Path, files: Sequence[str], way: str, journal: Path) -> None:
    """Run `files`, and go on after each crash; nothing if these files have ended before."""
    digest = _digest(tests, files)
    if any(fields.get("ended") == digest for fields in read_lines(journal)):
        return
    while (status := _run_once(tests, files, way, journal)) not in _ENDED:
        lines = [fields for fields in read_lines(journal) if "test" in fields]
        waits = {fields["test"]: "outcome" not in fields for fields in lines}
        begun = [test for test, is_waiting in waits.items() if is_waiting]
        message = f"the process ended with status {status}"
        # If no test had begun, it was while the files were imported.
        for test in begun or files:
            append_line(journal, {"test": test, "outcome": "crashed", "message": message})
        if not begun:
            break
    append_line(journal, {"ended": digest})


def _digest(tests: Path, files: Sequence[str]) -> str:
    """Identify the files by their names and contents."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.encode() + b"\0" + (tests / file).read_bytes() + b"\0")
    return digest.hexdigest()


def _run_once(tests: Path, files: Sequence[str], way: str, journal: Path) -> int | None:
    """Run `files` in one process; return its exit status, None if it hung."""
    environment = os.environ | {
        WAY_VARIABLE: way,
        JOURNAL_VARIABLE: str(journal),
        KNOWN_VARIABLE: "known",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.tvm_tests.plugin"]
    command += ["-p", "no:cacheprovider", "--continue-on-collection-errors", "-c", os.devnull]
    command += [
        "--rootdir",
        str(tests),
        "--import-mode=importlib",
        *map(str, map(tests.joinpath, files)),
    ]
    with TemporaryDirectory() as folder, open(journal.with_suffix(".log"), "ab") as log:
        Path(folder, "known").write_text("\n".join(results_of(journal.parent, way)))
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        start = time.time()
        while process.poll() is None:
            last = journal.stat().st_mtime if journal.exists() else start
            if time.time() - max(last, start) > _LIMIT:
                process.kill()
                process.wait()
                return None
            time.sleep(_POLL)
    return process.returncode
