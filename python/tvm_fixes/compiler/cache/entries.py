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
"""Entries of the cache, and the folders that they are in."""

import json
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from .files import PARTIAL, DamagedError, ForeignError, check_own, read_checked

FORMAT = "tvm-fixes-cache/1"


class Blob(NamedTuple):
    """A file that entries refer to.

    Attributes
    ----------
    sha256 : str
        The hash of its bytes, which is its name.
    size : int
    """

    sha256: str
    size: int


@dataclass(frozen=True)
class Entry:
    """The content for a key.

    Attributes
    ----------
    key : str
    made : dict
        Where it comes from, for people.
    data : dict
        What its user stored, as values of JSON.
    blobs : dict of str to Blob
        The files by the names that they have for their user.
    used : float
        When it was last used, in seconds since the epoch.
    """

    key: str
    made: dict[str, Any]
    data: dict[str, Any]
    blobs: dict[str, Blob]
    used: float


@dataclass(frozen=True)
class Folders:
    """The folders of a cache.

    Attributes
    ----------
    root : Path
    limit : int
        The maximum size in bytes.
    """

    root: Path
    limit: int

    @cached_property
    def entries(self) -> Path:
        """The folder of the entries."""
        return self.root / "entries"

    @cached_property
    def blobs(self) -> Path:
        """The folder of the files that entries refer to."""
        return self.root / "blobs"

    @cached_property
    def _folders(self) -> tuple[Path, ...]:
        return self.root, self.entries, self.blobs, self.root / PARTIAL

    def check(self) -> None:
        """Check that only this user can have written to it, if it exists.

        Raises
        ------
        OSError
            If it is not a directory, belongs to another user, or others may write to it.
        """
        for path in self._folders:
            try:
                status = os.stat(path) if path == self.root else os.lstat(path)
            except FileNotFoundError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                raise ForeignError(f"{path} is not a directory")
            check_own(path, status)

    def make(self) -> None:
        """Create its folders.

        Raises
        ------
        OSError
            If they cannot be created.
        """
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for path in self._folders:
            path.mkdir(mode=0o700, exist_ok=True)


def read_entry(path: Path) -> Entry:
    """Read the entry in a file.

    Raises
    ------
    OSError
        If it cannot be read, or may have been written by others.
    DamagedError
        If it is not what was written.
    """
    text, status = read_checked(path)
    values = json.loads(text)
    if values.get("format") != FORMAT or values["key"] != path.name:
        raise DamagedError(f"it is the {values.get('format')} entry of {values.get('key')}")
    blobs = {name: Blob(*blob) for name, blob in values["blobs"].items()}
    return Entry(values["key"], values["made"], values["data"], blobs, status.st_mtime)
