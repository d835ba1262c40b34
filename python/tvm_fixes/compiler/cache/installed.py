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
"""A digest of the code that compiles: the files of this package and of TVM.

A version is no proof, because a source tree changes without one.  The files are hashed once; the
result is kept with their sizes, times and numbers, in which a change of a file shows.  What a
process has loaded differs from files that changed after it started, so there is no digest then.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tvm
import tvm_ffi

from ... import _ffi
from .files import SETTLED_SECONDS, log, read_checked, warn_once, write_checked
from .store import Store

_MEMO = "installed"
_MAX_KEPT = 16
# The steps of the start of a process and of the times of files.
_TICK_SECONDS = 0.1

Line = tuple[str, int, int, int, int, int]
"""Path, size, times of the last change of content and of inode, device and inode."""


def installed_digest(store: Store) -> str | None:
    """The digest of the installed code, or None if it changed since this process started."""
    listing = _listing()
    changed = _changed(listing)
    if changed:
        warn_once(f"the cache of compiled models is not used: {changed} changed since the start")
        return None
    return _digest(store, listing)


def is_unchanged() -> bool:
    """Whether no file of the installed code has changed since :func:`installed_digest`."""
    return _listing() == _list()


@cache
def _listing() -> tuple[Line, ...]:
    return _list()


def _list() -> tuple[Line, ...]:
    packages = [Path(__file__).resolve().parents[2]]
    packages += [Path(module.__file__ or "").resolve().parent for module in (tvm, tvm_ffi)]
    libraries = [_ffi.library_path(), *(lib._name for lib in tvm.base._LOADED_LIBS.values())]
    natives = {Path(library).resolve().parent for library in libraries}
    lines = [line for package in packages for line in _lines(package, is_package=True)]
    lines += [line for folder in natives for line in _lines(folder, is_package=False)]
    return tuple(sorted(set(lines)))


def _lines(folder: Path, *, is_package: bool) -> Iterator[Line]:
    """The code in a folder, and in those below if it is a package."""
    pending = [os.fspath(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                name = entry.name
                if is_package and name != "__pycache__" and entry.is_dir():
                    pending.append(entry.path)
                elif name.endswith((".py", ".a")) or ".so" in name:
                    status = entry.stat()
                    times = status.st_mtime_ns, status.st_ctime_ns
                    yield entry.path, status.st_size, *times, status.st_dev, status.st_ino


@cache
def _digest(store: Store, listing: tuple[Line, ...]) -> str:
    name = hashlib.sha256(json.dumps(listing).encode()).hexdigest()
    memo = _read_memo(store)
    if name not in memo:
        whole = hashlib.sha256()
        for path, *_ in listing:
            with open(path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            whole.update(json.dumps([Path(path).name, content]).encode())
        newest = max(line[3] for line in listing) / 1e9
        if abs(time.time() - newest) < SETTLED_SECONDS:
            return whole.hexdigest()
        kept = dict([*memo.items(), (name, whole.hexdigest())][-_MAX_KEPT:])
        _write_memo(store, kept)
        return whole.hexdigest()
    return memo[name]


def _read_memo(store: Store) -> dict[str, str]:
    try:
        memo: dict[str, str] = json.loads(read_checked(store.root / _MEMO)[0])
        return memo
    except (OSError, ValueError):
        return {}


def _write_memo(store: Store, memo: dict[str, str]) -> None:
    text = json.dumps(memo).encode()
    try:
        store.make()
        store.check()
        write_checked(store.root, store.root / _MEMO, text)
    except OSError as error:
        log.info("the digest of the installed code is not kept: %s", error)


def _changed(listing: tuple[Line, ...]) -> str:
    """A file that changed since this process started; empty if none did."""
    for path, _, modified, changed, *_ in listing:
        if max(modified, changed) / 1e9 > _started():
            return path
    return ""


@cache
def _started() -> float:
    """When this process started, or a little earlier, in seconds since the epoch."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return _IMPORTED
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age - _TICK_SECONDS


_IMPORTED = time.time()
_started()
