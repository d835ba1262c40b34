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
"""Results on disk, one per line, so that an interrupted search can resume."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file; none if it does not exist."""
    if not path.exists():
        return
    with path.open() as file:
        for line in file:
            # The last line of a killed run may be incomplete.
            if line.endswith("\n"):
                yield json.loads(line)


def append_line(path: Path, fields: Mapping[str, Any]) -> None:
    """Append an object to a file, after a line that a killed run left incomplete."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.seek(0)
                kept = file.read().rfind(b"\n") + 1
                file.truncate(kept)
        file.write(json.dumps(fields).encode() + b"\n")


class Journal:
    """The results of the trials of one search, by label.

    Parameters
    ----------
    path : Path or None
        None for a journal in memory.
    fingerprint : str
        Identifies the search.  A file of another search is replaced.
    """

    def __init__(self, path: Path | None, fingerprint: str) -> None:
        self._path = path
        self._results: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        lines = list(read_lines(path))
        if lines and lines[0] == {"fingerprint": fingerprint}:
            self._results = {line.pop("label"): line for line in lines[1:]}
            return
        path.unlink(missing_ok=True)
        append_line(path, {"fingerprint": fingerprint})

    def __len__(self) -> int:
        return len(self._results)

    def find(self, label: str) -> dict[str, Any] | None:
        """The result of the trial `label`, if it has run."""
        return self._results.get(label)

    def add(self, label: str, result: Mapping[str, Any]) -> None:
        """Record a result."""
        self._results[label] = dict(result)
        if self._path is not None:
            append_line(self._path, {"label": label, **result})
