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
"""Stores the rows of a run on disk, so that a later run with the same identity can resume it."""

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tvm_fixes.errors import UsageError

_ROOT = Path(__file__).parents[1]
_SOURCES = ("python/tvm_fixes/**/*.py", "build/libtvm_fixes.so", "benchmarks/*.py")
# These modules do not affect measurements, so changing them does not invalidate rows.
_NOT_MEASURED = ("report.py", "tables.py", "plot.py", "speed.py", "__main__.py", "results.py")
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnxruntime", "torch", "transformers")


def identity(settings: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything a measurement depends on: settings, target, machine, versions, sources."""
    return {
        "settings": dict(settings),
        "target": dict(target),
        "cpu": cpu_name(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "sources": _hash_sources(),
    }


def key(identity: Mapping[str, Any]) -> str:
    """Return the hash of an :func:`identity`."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


class Store:
    """A file of rows, one JSON object per line, each with the key of its identity.

    A line ``{"key": …, "run_identity": …}`` precedes the first row with that key.

    Parameters
    ----------
    path : Path
        The file.
    run_identity : mapping, optional
        The :func:`identity` of this run; by default, that of the last row in the file.  Rows with
        another identity are kept but ignored.

    Raises
    ------
    UsageError
        If `run_identity` is not given and the file has no rows.
    """

    def __init__(self, path: Path, run_identity: Mapping[str, Any] | None = None):
        lines = [json.loads(line) for line in _whole_lines(path)]
        known = {line["key"]: line["run_identity"] for line in lines if "run_identity" in line}
        if run_identity is None:
            if not known:
                raise UsageError(f"{path}: no results found; run without --report first")
            run_identity = known[lines[-1]["key"]]
        self.run_identity = dict(run_identity)
        self._path, self._key = path, key(run_identity)
        self._is_known = self._key in known
        rows = [line for line in lines if "case" in line]
        self.rows = [row for row in rows if row["key"] == self._key]
        self.others = len(rows) - len(self.rows)

    def has(self, case: str, threads: int) -> bool:
        """Whether the file has a row for this case and number of threads."""
        return any((row["case"], row["threads"]) == (case, threads) for row in self.rows)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row in memory and to the file."""
        line = json.dumps({"key": self._key, **row})
        with self._path.open("a") as file:
            if not self._is_known:
                file.write(json.dumps({"key": self._key, "run_identity": self.run_identity}) + "\n")
                self._is_known = True
            file.write(line + "\n")
        self.rows.append(json.loads(line))


def _whole_lines(path: Path) -> list[str]:
    """Return the complete lines; remove a partial last line left by an interrupted run."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return whole.splitlines()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _hash_sources() -> str:
    digest = hashlib.sha256()
    for pattern in _SOURCES:
        for path in sorted(_ROOT.glob(pattern)):
            if path.parent.name != "benchmarks" or path.name not in _NOT_MEASURED:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
