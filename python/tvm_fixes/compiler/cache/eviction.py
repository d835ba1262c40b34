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
"""The limit of the size of the cache: what was used longest ago is removed.

Files that no entry refers to are removed when they are old: a writer stores them before its entry.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .entries import Entry, Folders, read_entry
from .files import PARTIAL, log

_OLD_SECONDS = 3600.0


class Removed(NamedTuple):
    """The number of entries that were removed, and the bytes of all files."""

    entries: int
    size: int


def entries_of(cache: Folders) -> list[Entry]:
    """The entries of a cache that can be read, the last used first; others are removed."""
    entries = []
    for path, _ in _files(cache.entries):
        try:
            entries.append(read_entry(path))
        except (OSError, ValueError) as error:
            log.warning("an entry of the cache is removed: %s: %s", path, error)
            with suppress(OSError):
                path.unlink()
    return sorted(entries, key=lambda entry: -entry.used)


def size_of(cache: Folders) -> int:
    """The bytes of all files of a cache."""
    folders = (cache.entries, cache.blobs, cache.root / PARTIAL)
    return sum(status.st_size for folder in folders for _, status in _files(folder))


def shrink(cache: Folders) -> None:
    """Remove what was used longest ago until the cache is within its limit."""
    if size_of(cache) <= cache.limit:
        _sweep(cache)
        return
    left, kept = cache.limit, []
    blobs: dict[str, int] = {}
    for entry in entries_of(cache):
        new = {blob.sha256: blob.size for blob in entry.blobs.values()}
        added = {name: size for name, size in new.items() if name not in blobs}
        left -= sum(added.values()) + _size(cache.entries / entry.key)
        if left < 0:
            break
        blobs |= added
        kept.append(entry.key)
    _remove_others(cache, set(kept), time.time() - _OLD_SECONDS)
    if size_of(cache) > cache.limit:
        _sweep(cache, old=time.time())  # if a writer needs one of them, its entry is a miss


def clear(cache: Folders, unused_seconds: float = 0.0) -> Removed:
    """Remove all entries, or those that were not used for some time."""
    before = size_of(cache)
    entries = entries_of(cache)
    limit = time.time() - unused_seconds
    kept = {entry.key for entry in entries if unused_seconds and entry.used >= limit}
    _remove_others(cache, kept, limit if kept else time.time())
    return Removed(len(entries) - len(kept), max(before - size_of(cache), 0))


def _remove_others(cache: Folders, kept: set[str], old: float) -> None:
    """Remove the entries except `kept`, and the files that no entry refers to.

    Of files that no entry referred to before, only those that were written before `old`.
    """
    entries = entries_of(cache)
    for entry in entries:
        if entry.key not in kept:
            with suppress(OSError):
                (cache.entries / entry.key).unlink()
    freed = {blob.sha256 for entry in entries for blob in entry.blobs.values()}
    _sweep(cache, freed, old)


def drop(cache: Folders, blobs: Iterable[str]) -> None:
    """Remove files, unless an entry refers to them."""
    _sweep(cache, set(blobs))


def _sweep(cache: Folders, freed: set[str] | None = None, old: float | None = None) -> None:
    """Remove what killed writers left, and the files that no entry refers to."""
    limit = time.time() - _OLD_SECONDS if old is None else old
    for path, status in _files(cache.root / PARTIAL):
        if status.st_mtime < limit:
            with suppress(OSError):
                path.unlink()
    unused = [
        path
        for path, status in _files(cache.blobs)
        if path.name in (freed or ()) or status.st_mtime < limit
    ]
    if not unused:
        return
    used = {blob.sha256 for entry in entries_of(cache) for blob in entry.blobs.values()}
    for path in unused:
        if path.name not in used:
            with suppress(OSError):
                path.unlink()


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The files in a folder; it may not exist, and others may remove files at the same time."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(folder))
    for name in names:
        with suppress(OSError):
            yield folder / name, os.lstat(folder / name)


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
