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
"""The tests of what changed, for ``make test-changed``: read from the source, git and the last run.

A test file is linked to a changed file

0. if it is the changed file, or has its name (``onnx/pad.py`` and ``test_frontend_onnx_pad.py``);
1. if it imports the changed file, names a fix of the changed file, or names the file itself;
2. if one module or header is between the two, if small commits often changed both, or if it is the
   test of a package that the changed file is in;
3. if it is in the folder of the changed C++ file.

The nearest run, as long as their time in the last complete run is within a limit.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from helpers import durations
from helpers.import_graph import graph, modules

ROOT = Path(__file__).parents[3]
_PROBES = "tests/python/probes/test_probes.py"
_PROBE = "test_stock_fails_as_recorded_and_the_fix_corrects_it"
_STRUCTURE = "tests/python/test_structure.py"
_ALL = re.compile(r"conftest\.py$|^(pyproject\.toml|constraints\.txt|CMakeLists\.txt|Makefile)$")
# A folder of src whose tests are in a folder of another name.
_FOLDERS = {"artifact": "runtime", "cuda_libraries": "target"}
_COMMITS, _FILES_OF_A_SMALL_COMMIT, _OFTEN = 40, 12, 2
_SECONDS_IF_UNKNOWN = 8.0


@dataclass(frozen=True, order=True)
class Link:
    """Why a test runs; the nearest one is the reason."""

    distance: int
    reason: str


class Repository:
    """The links of test files to other files; paths are relative to the root.

    Parameters
    ----------
    root : Path
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def tests(self) -> dict[str, str]:
        """The text of each test file."""
        files = sorted((self.root / "tests/python").rglob("test_*.py"))
        return {self._path(file): file.read_text(encoding="utf-8") for file in files}

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """The Python files that import a file."""
        files = {}
        for folder in ("python", "tests/python"):
            files |= modules(self.root / folder, "**/*.py")
        for pattern in ("tests/[ft]*/**/*.py", "*s/**/*.py", "upstream/**/*.py"):
            files = modules(self.root, pattern) | files
        importers = defaultdict(set)
        for module, imported in graph(files).items():
            for other in imported:
                importers[self._path(files[other])].add(self._path(files[module]))
        return importers

    @cached_property
    def fixes(self) -> dict[str, str]:
        """The id of each fix by the name of its constant."""
        text = "".join(
            file.read_text(encoding="utf-8")
            for file in sorted((self.root / "python/tvm_fixes/fixes").glob("*.py"))
        )
        return dict(re.findall(r'^(\w+) = declare\(\s*"([^"]+)"', text, re.MULTILINE))

    def fixes_of(self, path: str) -> list[str]:
        """The ids that a source file imports, or spells out."""
        text = self._text(path)
        if path.endswith(".py"):
            names = re.findall(r"^from [.\w]*\bfixes[.\w]* import ([^(\n]+|\([^)]*\))", text, re.M)
            return [self.fixes[w] for w in re.findall(r"\w+", " ".join(names)) if w in self.fixes]
        return [id_ for id_ in self.fixes.values() if f'"{id_}"' in text]

    def includers(self, path: str) -> Iterator[str]:
        """The C++ files that include a header."""
        for file in sorted((self.root / "src").rglob("*.[ch]*")):
            included = re.findall(r'#include "([^"]+)"', file.read_text(encoding="utf-8"))
            if any(f"/{path}".endswith(f"/{name.removeprefix('../')}") for name in included):
                yield self._path(file)

    def changed_together(self, path: str) -> Counter[str]:
        """The number of the last small commits that changed a file, for each test file in them."""
        log = self.git(
            "log", "--full-diff", "--name-only", f"-{_COMMITS}", "--format=%x00", "--", path
        )
        counts: Counter[str] = Counter()
        for commit in log.split("\0"):
            files = commit.split()
            if len(files) <= _FILES_OF_A_SMALL_COMMIT:
                counts.update(file for file in files if file in self.tests)
        return counts

    def changed(self, base: str) -> list[str]:
        """The files that the working tree and the commits since `base` change."""
        since = self.git("diff", "--name-only", self.git("merge-base", base, "HEAD").strip())
        untracked = self.git("ls-files", "--others", "--exclude-standard")
        return sorted({*since.splitlines(), *untracked.splitlines()})

    def git(self, *arguments: str) -> str:
        """The output of a git command."""
        command = ["git", "-C", str(self.root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def _path(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()

    def _text(self, path: str) -> str:
        file = self.root / path
        return file.read_text(encoding="utf-8") if file.exists() else ""


def links(repository: Repository, path: str) -> Iterator[tuple[str, Link]]:
    """The tests of one changed file, and why."""
    if path in repository.tests:
        yield path, Link(0, "changed")
        return
    is_python, is_native = path.endswith(".py"), path.startswith("src/")
    if is_python or is_native:
        for test in _of_the_same_name(path, repository.tests):
            yield test, Link(0, f"is of {path}")
    if path.startswith("python/") and is_python:
        yield _STRUCTURE, Link(1, f"imports of {path}")
    if is_python:
        yield from _of_importers(repository, path)
    elif not is_native:
        for test, text in repository.tests.items():
            if f'"{path}"' in text or f'"{Path(path).name}"' in text:
                yield test, Link(1, f"names {path}")
    if path.startswith(("python/tvm_fixes/", "src/")) and "/fixes/" not in path:
        yield from _of_fixes(repository, path)
        for test, count in repository.changed_together(path).items():
            if count >= _OFTEN:
                yield test, Link(2, f"{count} small commits changed it and {path}")
        for test in _of_the_packages(path, repository.tests):
            yield test, Link(2, f"is of a package of {path}")
    if is_native:
        for includer in repository.includers(path):
            for test in _of_the_same_name(includer, repository.tests):
                yield test, Link(2, f"is of {includer}, which includes {path}")
            yield from _of_fixes(repository, includer, 2)
        for test in _of_the_folder(repository, path):
            yield test, Link(3, f"is in the folder of {path}")


def _of_the_same_name(path: str, tests: Iterable[str]) -> list[str]:
    """The tests whose name contains that of the file, and most of the names of its folders."""
    file = Path(path)
    folders = {word for part in file.parts[:-1] for word in part.split("_")}
    named = {}
    for test in tests:
        words = f"_{Path(test).stem.removeprefix('test_')}_"
        if f"_{file.stem}_" in words:
            rest = {*words.split("_"), *Path(test).parts[2:-1]}
            named[test] = len(folders & rest)
    most = max(named.values(), default=0)
    return [test for test, count in named.items() if count == most > 0]


def _of_the_packages(path: str, tests: Iterable[str]) -> list[str]:
    """The tests that are named like folders of the file, such as ``test_frontend_onnx.py``."""
    folders = Path(path).parts[:-1]
    names = {
        "_".join(folders[start:end]) for end in range(len(folders) + 1) for start in range(end)
    }
    return [test for test in tests if Path(test).stem.removeprefix("test_") in names]


def _of_importers(repository: Repository, path: str) -> Iterator[tuple[str, Link]]:
    for first in repository.importers[path]:
        if first in repository.tests:
            yield first, Link(1, f"imports {path}")
        # A package's own __init__ passes on what others import from the package.
        for second in repository.importers[first]:
            if second in repository.tests:
                yield second, Link(2, f"imports {first}, which imports {path}")


def _of_fixes(repository: Repository, path: str, distance: int = 1) -> Iterator[tuple[str, Link]]:
    for fix in repository.fixes_of(path):
        yield f"{_PROBES}::{_PROBE}[{fix}]", Link(distance, f"probe of {fix}, a fix of {path}")
        for test, text in repository.tests.items():
            if f'"{fix}"' in text:
                yield test, Link(distance, f"names {fix}, a fix of {path}")


def _of_the_folder(repository: Repository, path: str) -> list[str]:
    for folder in reversed(Path(path).parts[1:-1]):
        under = f"tests/python/{_FOLDERS.get(folder, folder)}/"
        if tests := [test for test in repository.tests if test.startswith(under)]:
            return tests
    return []


def affected(repository: Repository, changed: Iterable[str]) -> dict[str, Link]:
    """The nearest link of each affected test."""
    nearest: dict[str, Link] = {}
    for path in changed:
        for test, link in links(repository, path):
            if (repository.root / durations.file_of(test)).exists():
                nearest[test] = min(link, nearest.get(test, link))
    return nearest


def choose(
    tests: dict[str, Link], seconds: dict[str, float], limit: float
) -> tuple[list[str], list[str]]:
    """Divide tests into those that run and those that are beyond the limit.

    Parameters
    ----------
    tests : dict of str to Link
    seconds : dict of str to float
        The time of each test file in an earlier run.
    limit : float
        The sum of the seconds; the tests of distance 0 run whatever they take.
    """
    chosen, left, total = [], [], 0.0
    order = sorted(tests, key=lambda test: (tests[test].distance, _seconds(test, seconds), test))
    for test in order:
        total_with = total + _seconds(test, seconds)
        if tests[test].distance == 0 or total_with <= limit:
            chosen.append(test)
            total = total_with
        else:
            left.append(test)
    return chosen, left


def _seconds(test: str, seconds: dict[str, float]) -> float:
    return 1.0 if "::" in test else seconds.get(test, _SECONDS_IF_UNKNOWN)


def _base(repository: Repository) -> str:
    for name in ("origin/main", "main"):
        if repository.git("branch", "--all", "--list", name, f"*/{name}").strip():
            return name
    return "HEAD"


def main(arguments: list[str] | None = None) -> int:
    """Print the chosen tests with the reasons, and run them."""
    parser = argparse.ArgumentParser(prog="make test-changed", description=main.__doc__)
    parser.add_argument("--base", help="the commit to compare with (default: origin/main, or main)")
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds (default: 60)")
    parser.add_argument("--dry-run", action="store_true", help="only print the tests")
    options, rest = parser.parse_known_args(arguments)
    repository = Repository(ROOT)
    changed = repository.changed(options.base or _base(repository))
    tests = affected(repository, changed)
    seconds = durations.by_file(durations.read(ROOT / durations.FILE))
    chosen, left = choose(tests, seconds, options.limit)
    for test in chosen:
        print(f"{_seconds(test, seconds):5.0f} s  {test}: {tests[test].reason}")
    if left:
        total = sum(_seconds(test, seconds) for test in left)
        print(f"Beyond the limit of {options.limit:.0f} s, {total:.0f} s: {', '.join(left)}")
    for path in filter(_ALL.search, changed):
        print(f"{path} can change every test: make test")
    if not chosen:
        print(f"No test is linked to the changed files: {', '.join(changed) or 'none'}")
    if not chosen or options.dry_run:
        return 0
    expected = sum(_seconds(test, seconds) for test in chosen)
    # Every worker loads PyTorch and TVM first.
    workers = ["-n", "auto", "--dist", "worksteal"] if expected > 20 else []
    # Of so few files, every test.
    command = [sys.executable, "-m", "pytest", "--tier=ci", *workers, *chosen, *rest]
    return subprocess.run(command, cwd=ROOT, env=os.environ).returncode


if __name__ == "__main__":
    sys.exit(main())
