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
"""A directory with the module after each pass that changed it."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm

from ..errors import ArtifactError, UsageError
from ..support.files import read_text, write_text
from ..support.instruments import watched_by
from .changes import Change, WatchChanges, text_of

_INDEX = "index.json"
_FORMAT = "tvm-fixes dump"
_OWN = re.compile(r"\d{3,}-[^/]*\.(py|diff)|\..*\.part|index\.json")

_MAX_NAME = 100


class DumpIR:
    """Writes modules to a directory: ``000-import.py``, ``001-Legalize-FuseOps.py`` and so on.

    Next to each, a file ``.diff`` has the difference from the one before.  ``index.json`` lists the
    files.  Each file is written at once, so those of an interrupted compilation can be read.

    Parameters
    ----------
    directory : path
        A new or empty directory, or that of an earlier dump, whose files are removed.

    Raises
    ------
    UsageError
        If `directory` has other files, or cannot be written.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        self._directory = Path(directory)
        self._files: list[dict[str, Any]] = []
        self._written: set[int] = set()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            old = [path.name for path in self._directory.iterdir()]
            if old and not (_is_dump(self._directory) and all(map(_OWN.fullmatch, old))):
                raise UsageError(
                    f"{directory}: contains files that are not of an earlier dump; choose an empty "
                    "directory"
                )
            # The index goes last: it shows that the others may be removed.
            for name in sorted(old, key=_INDEX.__eq__):
                (self._directory / name).unlink()
            self._write_index()
        except OSError as error:
            raise UsageError(f"{directory}: cannot write: {error.strerror}") from error

    @contextmanager
    def watching(self, mod: tvm.IRModule) -> Iterator[None]:
        """Write a module, and the results of the passes that run in the ``with`` block.

        Raises
        ------
        ArtifactError
            If a file cannot be written, for example because the disk is full.
        """
        self._write("import", text_of(mod))
        with watched_by(WatchChanges(self._write_change, mod)):
            yield

    def _write_change(self, change: Change) -> None:
        is_old = hash(change.after) in self._written
        if is_old and change.is_whole:  # the build took kernels away, and goes on with the others
            return
        text = None if change.after == change.before else change.after
        self._write(change.name, text, None if change.is_whole else change.diff)

    def _write(self, name: str, text: str | None, diff: str | None = None) -> None:
        plain = re.sub(r"[^\w.]+", "-", name)[:_MAX_NAME]
        stem = f"{len(self._files):03}-{plain}"
        named = {f"{stem}.py": text, f"{stem}.diff": diff}
        files = {file: content for file, content in named.items() if content is not None}
        if text is not None:
            self._written.add(hash(text))
        try:
            for file, content in files.items():
                write_text(self._directory / file, content)
            self._files.append({"pass": name, "files": list(files)})
            self._write_index()
        except OSError as error:
            raise ArtifactError(f"{self._directory}: cannot write: {error.strerror}") from error

    def _write_index(self) -> None:
        document = {"format": _FORMAT, "modules": self._files}
        write_text(self._directory / _INDEX, json.dumps(document, indent=2) + "\n")


def _is_dump(directory: Path) -> bool:
    try:
        document = json.loads(read_text(directory / _INDEX))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("format") == _FORMAT
