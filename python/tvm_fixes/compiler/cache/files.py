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
"""Files of the cache: read only if they are the user's own, written whole or not at all."""

import hashlib
import logging
import os
import secrets
import stat
from functools import cache
from io import BufferedReader
from pathlib import Path

log = logging.getLogger("tvm_fixes.cache")

PARTIAL = "partial"
"""The folder for files until they are complete."""

SETTLED_SECONDS = 2.0
"""The system sets the times of files in steps: one that changes soon after may keep its time."""

_CHUNK = 1 << 22
_WRITABLE_BY_OTHERS = 0o022


class ForeignError(OSError):
    """A file or a directory that others own, or may write to."""


class DamagedError(ValueError):
    """A file of the cache differs from what was written."""


def check_own(path: str | os.PathLike[str], status: os.stat_result) -> None:
    """Check that only this user can have written what is at `path`: a library runs code.

    Raises
    ------
    ForeignError
        If another user owns it, or others may write to it.
    """
    if status.st_uid != os.geteuid():
        raise ForeignError(f"{os.fspath(path)} belongs to another user")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise ForeignError(f"others may write to {os.fspath(path)}")


def open_own(path: Path) -> BufferedReader:
    """Open a regular file of this user for reading.

    Raises
    ------
    OSError
        If it cannot be opened, or is not regular; :class:`ForeignError` as for :func:`check_own`.
    """
    # O_NONBLOCK: opening a FIFO would wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        check_own(path, status)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file of this user."""
    with open_own(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(root: Path, path: Path, data: bytes) -> None:
    """Write a file of the cache `root`, which gets its name when it is complete."""
    part = _new_part(root)
    try:
        with os.fdopen(_create(part), "wb") as file:
            file.write(data)
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


def write_checked(root: Path, path: Path, text: bytes) -> None:
    """Write `text` as :func:`write_whole` does, after its SHA-256."""
    write_whole(root, path, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)


def read_checked(path: Path) -> tuple[bytes, os.stat_result]:
    """Read what :func:`write_checked` wrote.

    Returns
    -------
    text, status : bytes, os.stat_result

    Raises
    ------
    OSError
        As for :func:`open_own`.
    DamagedError
        If it is not what was written.
    """
    with open_own(path) as file:
        digest, _, text = file.read().partition(b"\n")
        status = os.fstat(file.fileno())
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise DamagedError("its checksum differs")
    return text, status


def copy_whole(root: Path, source: Path, folder: Path) -> tuple[str, int]:
    """Copy a file to `folder` of the cache `root`, by the name of its SHA-256.

    Returns
    -------
    sha256, size : str, int
    """
    part, digest, size = _new_part(root), hashlib.sha256(), 0
    try:
        with open(source, "rb") as read, os.fdopen(_create(part), "wb") as file:
            while chunk := read.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        part.rename(folder / digest.hexdigest())
    finally:
        part.unlink(missing_ok=True)
    return digest.hexdigest(), size


def _new_part(root: Path) -> Path:
    return root / PARTIAL / secrets.token_hex(16)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


@cache
def warn_once(message: str) -> None:
    """Log a warning, once per process."""
    log.warning("%s", message)
