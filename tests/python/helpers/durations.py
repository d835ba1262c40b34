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

"""The CPU time of each test, which does not depend on what else the machine does."""

import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

FILE = Path("build", "test-durations.txt")
"""Where a run writes them, below the root of the repository."""

_SHOWN = 30

BUDGET = 1130
"""The CPU seconds of the whole quick tier, with the loading of the tests: ten minutes of two cores,
of which the last tests leave one idle."""

_LONG = 3.0
"""Longer tests than this have a shorter sibling, or they are worth it."""


def _cpu_seconds() -> float:
    """The CPU time of this process, and of the processes that it started and that ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Durations:
    """Plugin that measures each test, and keeps the results from one run to the next.

    A run replaces the results of the files that it runs as a whole; the quick tier keeps those of
    the tests that it leaves out.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._file = config.rootpath / FILE
        self._root = config.rootpath
        options = config.option
        self._is_quick = getattr(options, "tier", "") == "quick"
        self._is_all = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        self._of_workers = 0.0
        self._output: dict[str, object] = getattr(config, "workeroutput", {})
        self._is_whole = not (
            options.keyword or options.markexpr or options.collectonly
        ) and not any("::" in argument for argument in config.args)
        self._is_worker = hasattr(config, "workerinput")
        self._seconds: dict[str, float] = defaultdict(float)
        self._last = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._last = _cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the time since the report of the phase before; it travels with the report."""
        report = yield
        now = _cpu_seconds()
        report.cpu_seconds = now - self._last
        self._last = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += getattr(report, "cpu_seconds", 0.0)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Send the time of this process, with that of the loading of the tests."""
        self._output["cpu_seconds"] = _cpu_seconds()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the time of a worker of xdist; one that crashed has sent none."""
        self._of_workers += getattr(node, "workeroutput", {}).get("cpu_seconds", 0.0)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        completed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if not self._seconds or self._is_worker:
            return
        if self._is_whole and completed:
            self._keep()
        if self._is_quick and self._is_all and self._is_whole:
            self._compare_with_budget(terminalreporter)
        slowest = sorted(self._seconds.items(), key=lambda entry: -entry[1])[:_SHOWN]
        if sum(self._seconds.values()) < 60:
            return
        terminalreporter.section("slowest tests, in CPU seconds")
        for test, seconds in slowest:
            terminalreporter.write_line(f"{seconds:8.1f} {test}")
        terminalreporter.write_line(
            f"{sum(self._seconds.values()):8.1f} all {len(self._seconds)} tests; by file in {FILE}"
        )

    def _compare_with_budget(self, reporter: pytest.TerminalReporter) -> None:
        # With workers, this process only distributes the tests.
        total = self._of_workers or _cpu_seconds()
        reporter.section("time of the quick tier")
        reporter.write_line(f"quick tier: {total:,.1f} CPU s of at most {BUDGET:,}")
        long = sorted(test for test, seconds in self._seconds.items() if seconds > _LONG)
        if long and total > BUDGET:
            reporter.write_line(
                f"longer than {_LONG:g} CPU s; see CONTRIBUTING.md, Tiers of the tests:"
            )
            for test in long:
                reporter.write_line(f"  {test}")

    def _keep(self) -> None:
        files = set() if self._is_quick else {file_of(test) for test in self._seconds}
        kept = {
            test: seconds
            for test, seconds in read(self._file).items()
            if file_of(test) not in files and (self._root / file_of(test)).exists()
        }
        self._file.parent.mkdir(exist_ok=True)
        temporary = self._file.with_suffix(f".{os.getpid()}")
        temporary.write_text(table(kept | self._seconds), encoding="utf-8")
        temporary.replace(self._file)


def file_of(test: str) -> str:
    """The file of a test's id."""
    return test.partition("::")[0]


def by_file(seconds: Mapping[str, float]) -> dict[str, float]:
    """The sum of each file."""
    sums: dict[str, float] = defaultdict(float)
    for test, value in seconds.items():
        sums[file_of(test)] += value
    return dict(sums)


def table(seconds: Mapping[str, float]) -> str:
    """The text of the file: seconds and names, the files first, the slowest of both first."""
    rows = [
        f"{value:.2f} {name}\n"
        for values in (by_file(seconds), seconds)
        for name, value in sorted(values.items(), key=lambda entry: (-entry[1], entry[0]))
    ]
    return "".join(rows)


def read(file: Path) -> dict[str, float]:
    """The seconds of each test in a file of :func:`table`; nothing if there is no such file."""
    if not file.exists():
        return {}
    rows = (line.split(" ", 1) for line in file.read_text(encoding="utf-8").splitlines())
    return {name: float(value) for value, name in rows if "::" in name}
