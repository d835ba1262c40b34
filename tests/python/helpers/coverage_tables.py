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
"""Coverage tables: the numbers of cases of each kind that ran and passed."""

import importlib.metadata
import platform
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "torch", "onnx", "onnxruntime", "numpy")


class CoverageTable:
    """Counts the cases of one grid by kind.

    Parameters
    ----------
    name : str
        The name of the table and its file.

    Examples
    --------
    A case is counted when its block is entered, and as passed when it leaves without an exception::

        with coverage_table("conv2d_transpose").case(data="NCHW", kernel="IOHW"):
            assert_equals_reference(...)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._columns: tuple[str, ...] | None = None
        self._cases: Counter[tuple[str, ...]] = Counter()
        self._passed: Counter[tuple[str, ...]] = Counter()

    @contextmanager
    def case(self, **kind: object) -> Iterator[None]:
        """Count one case of a `kind`, which has the same keys throughout a table.

        Raises
        ------
        ValueError
            If the keys differ from those of an earlier case.
        """
        columns = tuple(kind)
        if self._columns not in (None, columns):
            raise ValueError(f"table {self.name!r} has columns {self._columns}, got {columns}")
        self._columns = columns
        row = tuple(map(str, kind.values()))
        self._cases[row] += 1
        yield
        self._passed[row] += 1

    def markdown(self, origin: str) -> str:
        """The table, sorted by kind, under a line with the origin of its numbers."""
        assert self._columns is not None, "a table without a case"
        rows = [
            (*row, str(count), str(self._passed[row])) for row, count in sorted(self._cases.items())
        ]
        total = (str(self._cases.total()), str(self._passed.total()))
        rows.append(("total", *[""] * (len(self._columns) - 1), *total))
        header = [*(column.replace("_", " ") for column in self._columns), "cases", "passed"]
        lines = [header, ["---"] * len(header), *rows]
        body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"# {self.name}\n\n{origin}\n\n{body}\n"


class OutcomeTable:
    """Counts the outcomes of cases, by kind and by configuration.

    Parameters
    ----------
    name : str
        The name of the table and its file.
    outcomes : sequence of str
        The possible outcomes of a case.
    """

    def __init__(self, name: str, outcomes: Sequence[str]) -> None:
        self.name = name
        self._outcomes = tuple(outcomes)
        self._columns: tuple[str, ...] = ()
        self._counts: dict[tuple[str, ...], Counter[tuple[str, str]]] = {}

    def count(self, way: str, outcome: str, **kind: object) -> None:
        """Count one case of a `kind`, run in configuration `way`; all kinds have the same keys.

        Raises
        ------
        ValueError
            If the keys differ from those of an earlier case, or the outcome is unknown.
        """
        if (self._columns or tuple(kind)) != tuple(kind):
            raise ValueError(f"table {self.name!r} has columns {self._columns}, got {tuple(kind)}")
        if outcome not in self._outcomes:
            raise ValueError(f"unknown outcome {outcome!r}; expected one of {self._outcomes}")
        self._columns = tuple(kind)
        row = tuple(map(str, kind.values()))
        self._counts.setdefault(row, Counter())[way, outcome] += 1

    def markdown(self, origin: str) -> str:
        """The table, sorted by kind, under a line with the origin of its numbers."""
        assert self._counts, "a table without a case"
        ways = sorted({way for counts in self._counts.values() for way, _ in counts})
        pairs = [(way, outcome) for way in ways for outcome in self._outcomes]
        total: Counter[tuple[str, str]] = sum(self._counts.values(), Counter())
        empty = [""] * (len(self._columns) - 1)
        rows = [
            [*row, *(str(counts[pair]) for pair in pairs)]
            for row, counts in (*sorted(self._counts.items()), (("total", *empty), total))
        ]
        header = [*self._columns, *(f"{way}: {outcome}" for way, outcome in pairs)]
        lines = [header, ["---"] * len(header), *rows]
        body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"# {self.name}\n\n{origin}\n\n{body}\n"


class MeasurementTable:
    """A table of measurements, one row per subject.

    Parameters
    ----------
    name : str
        The name of the table and its file.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._rows: list[dict[str, str]] = []

    def add(self, **row: object) -> None:
        """Add a row, which has the same keys throughout a table.

        Raises
        ------
        ValueError
            If the keys differ from those of an earlier row.
        """
        if self._rows and tuple(self._rows[0]) != tuple(row):
            raise ValueError(
                f"table {self.name!r} has columns {tuple(self._rows[0])}, got {tuple(row)}"
            )
        self._rows.append({key: str(value) for key, value in row.items()})

    def markdown(self, origin: str) -> str:
        """The table, in row order, under a line with its origin."""
        assert self._rows, "a table without a row"
        header = [column.replace("_", " ") for column in self._rows[0]]
        lines = [header, ["---"] * len(header), *(list(row.values()) for row in self._rows)]
        body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"# {self.name}\n\n{origin}\n\n{body}\n"


class CoverageTables:
    """The tables of one test session, by name."""

    def __init__(self) -> None:
        self._tables: dict[str, CoverageTable] = {}
        self._outcomes: dict[str, OutcomeTable] = {}
        self._measured: dict[str, MeasurementTable] = {}

    def __call__(self, name: str) -> CoverageTable:
        """The table `name`, created on first use."""
        return self._tables.setdefault(name, CoverageTable(name))

    def outcome_table(self, name: str, outcomes: Sequence[str]) -> OutcomeTable:
        """The table `name` of `outcomes`, created on first use."""
        return self._outcomes.setdefault(name, OutcomeTable(name, outcomes))

    def measurement_table(self, name: str) -> MeasurementTable:
        """The table `name` of measurements, created on first use."""
        return self._measured.setdefault(name, MeasurementTable(name))

    def write(self, folder: Path) -> list[Path]:
        """Write each table to ``folder/<name>.md``, with the revision and versions in use."""
        folder.mkdir(parents=True, exist_ok=True)
        origin = _origin(folder)
        paths = []
        tables = (*self._tables.values(), *self._outcomes.values(), *self._measured.values())
        for table in tables:
            paths.append(folder / f"{table.name}.md")
            paths[-1].write_text(table.markdown(origin), encoding="utf-8")
        return paths


def _origin(written: Path) -> str:
    versions = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} absent")
    return f"Revision {_revision(written)}; {', '.join(versions)}."


def _revision(written: Path) -> str:
    """The current commit, and whether files other than the tables differ from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--", ":/", f":(exclude){written.resolve()}")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit} with changes" if changed else commit
