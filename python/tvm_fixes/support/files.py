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
"""Files from untrusted sources: opened only if they are regular, read up to a limit.

Reading a FIFO or a device instead of a file would block or never end.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from ..errors import CompileError, UsageError

MAX_TEXT = 256 << 20
"""The maximum size of a text file, such as a manifest, in bytes."""


def open_regular(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> BufferedReader:
    """Open a regular file for reading, or a symbolic link to one.

    Parameters
    ----------
    path : path
        The file.
    dir_fd : int, optional
        An open directory that a relative `path` starts from.

    Raises
    ------
    OSError
        If it cannot be opened or is not a regular file; nothing is read in that case.
    """
    # O_NONBLOCK: opening a FIFO would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> str:
    """Read a small UTF-8 file; the parameters are those of :func:`open_regular`.

    Raises
    ------
    OSError
        As :func:`open_regular`, or if it has more than :data:`MAX_TEXT` bytes.
    UnicodeDecodeError
        If it is not UTF-8.
    """
    with open_regular(path, dir_fd=dir_fd) as file:
        data = file.read(MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise OSError(errno.EFBIG, f"more than {MAX_TEXT >> 20} MiB", os.fspath(path))
    return data.decode()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: a reader sees the old text, or the whole new one."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that :func:`replace_text` can write a file.

    Raises
    ------
    UsageError
        If it is not a regular file, or its directory is missing or not writable.
    """
    target = Path(os.path.realpath(path))
    if not os.fspath(path):
        raise UsageError("the name of the output file is empty")
    if os.path.lexists(target) and not target.is_file():
        raise UsageError(f"{os.fspath(path)}: not a regular file")
    check_folder(target.parent, path)


def check_folder(folder: Path, path: str | os.PathLike[str]) -> None:
    """Check that files can be created in the folder of a path that the user gave.

    Raises
    ------
    UsageError
        If it is not a directory, or not writable; the message begins with `path`.
    """
    if not folder.is_dir():
        raise UsageError(f"{os.fspath(path)}: {folder} is not a directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{os.fspath(path)}: {folder} is not writable")


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file named by the user, as :func:`write_text` does; keep a symbolic link to it.

    Raises
    ------
    CompileError
        If writing fails, for example because the disk is full; an old file is kept.
    """
    try:
        write_text(Path(os.path.realpath(path)), text)
    except OSError as error:
        raise CompileError(f"{os.fspath(path)}: cannot write: {error.strerror}") from error


def sync(path: str | os.PathLike[str]) -> None:
    """Flush a file or a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot flush a directory.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(descriptor)


def existing_parent(path: Path) -> Path:
    """The nearest existing parent of an absolute `path`."""
    return next(parent for parent in [*path.parents, path] if os.path.lexists(parent))
