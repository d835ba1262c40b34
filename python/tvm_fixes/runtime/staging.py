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
"""Atomic replacement of a directory, even if the writer is killed.

A writer fills a directory ``.tvm-fixes-*`` next to the destination, then exchanges the two with one
system call, ``renameat2`` with ``RENAME_EXCHANGE``.  At every moment, the destination is either the
old artifact or the new one.  The last of several concurrent writers wins.

A killed writer leaves its directory behind.  Each writer holds a lock (``flock``) on its own
directory, which the system releases when the process ends.  The next writer to the same destination
removes directories that are not locked.

If the file system cannot exchange directories (NFS, some FUSE), the writer renames the old artifact
to ``.tvm-fixes-*.old`` and moves the new one to its place.  Between these steps, the destination
does not exist; if the writer is killed there, the next writer first renames the old artifact back.
If the file system cannot lock, nothing of another writer is removed.
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import ArtifactError, UsageError
from ..support.files import check_folder, existing_parent, read_text, sync
from ..support.signals import interrupts_deferred
from .lifted_manifest import FORMAT as LIFTED_FORMAT
from .lifted_manifest import LiftedManifest
from .manifest import LIBRARY, MANIFEST, WEIGHTS, Manifest

_PREFIX = ".tvm-fixes-"
_OLD = ".old"
# The name of a manifest until it is complete.
_PART = f"{MANIFEST}.part"
# Limit of retries when other writers interfere.
_MAX_ATTEMPTS = 1000

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)

_FOREIGN = "contains files that are not an artifact; remove it"

_written: set[Path] = set()


def is_written(directory: str | os.PathLike[str]) -> bool:
    """Whether this process has written an artifact to `directory`."""
    return _absolute(directory) in _written


@contextmanager
def staged(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a directory that replaces `directory` at the end, or is removed on an error.

    Raises
    ------
    UsageError
        If `directory` contains anything but an artifact.
    ArtifactError
        If writing fails.
    """
    destination = _absolute(directory)
    staging = _Staging(destination)
    try:
        with interrupts_deferred():
            staging.make()
        yield staging.path
        for path in staging.path.iterdir():
            sync(path)
        sync(staging.path)
        with interrupts_deferred():
            staging.commit()
            _written.add(destination)
    except OSError as error:
        reason = error.strerror
        if error.errno == errno.EBUSY:
            reason = "it is a mount point; choose a directory inside it"
        raise ArtifactError(f"{directory}: cannot write: {reason}") from error
    finally:
        with interrupts_deferred():
            staging.close()


def write_manifest(directory: Path, text: str) -> None:
    """Write the manifest of an artifact atomically."""
    (directory / _PART).write_text(text)
    (directory / _PART).rename(directory / MANIFEST)


def check_destination(directory: str | os.PathLike[str], size: int = 0) -> None:
    """Check that an artifact can be written to `directory`.

    Parameters
    ----------
    directory : path
        The destination.
    size : int
        The minimum number of free bytes.

    Raises
    ------
    UsageError
        If it is not a directory, contains anything but an artifact, or cannot be replaced, or if
        its parent is not writable or has too little space.
    """
    if not os.fspath(directory):
        raise UsageError("the name of the output directory is empty")
    try:
        path = _absolute(directory)
        _check_existing(path, directory)
        parent = existing_parent(path)
        check_folder(parent, directory)
        limit = os.pathconf(parent, "PC_NAME_MAX")
        if any(len(os.fsencode(part)) > limit for part in path.parts):
            raise UsageError(f"{directory}: a name has more than {limit} bytes")
        room = os.statvfs(parent)
        if not room.f_blocks:
            _check_writable(parent, directory)
            return
    except UsageError:  # a subclass of ValueError
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{directory}: cannot write: {reason}") from error
    free = room.f_bavail * room.f_frsize
    if free < size:
        raise UsageError(
            f"{directory}: no space left: expected at least {size} free bytes, got {free}"
        )


def _check_writable(parent: Path, directory: str | os.PathLike[str]) -> None:
    """Check a file system without a size, such as /proc, by a trial."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot write: {parent} is in a file system that stores no files"
        ) from error


def _check_existing(path: Path, directory: str | os.PathLike[str]) -> None:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(status.st_mode):
        raise UsageError(f"{directory}: is a symbolic link; expected a directory")
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{directory}: is not a directory")
    if os.path.ismount(path):
        raise UsageError(
            f"{directory}: is a mount point, which cannot be replaced; choose a directory inside it"
        )
    if os.path.samestat(status, os.stat(os.curdir)):
        raise UsageError(
            f"{directory}: is the working directory, which cannot be replaced; choose a directory "
            "inside it"
        )
    if not _is_replaceable(path):
        raise UsageError(f"{directory}: {_FOREIGN}")


class _Staging:
    """A writer's own, locked directory next to its destination."""

    def __init__(self, destination: Path):
        self._destination = destination
        # A hash: the name itself may already have the maximum length.
        digest = hashlib.sha256(os.fsencode(destination.name)).hexdigest()[:16]
        self._prefix = f"{_PREFIX}{digest}-"
        self._lock: int | None = None
        self._made_parents: list[Path] = []
        self._is_done = False
        self.path = self._new_path()

    def _new_path(self, suffix: str = "") -> Path:
        return self._destination.with_name(f"{self._prefix}{secrets.token_hex(8)}{suffix}")

    def make(self) -> None:
        """Make the directory, and remove those of killed writers."""
        self._make_parents()
        self._sweep()
        for _ in range(_MAX_ATTEMPTS):
            self.path.mkdir()
            # Until it is locked, another writer may remove it as a leftover.
            with suppress(FileNotFoundError):
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                if _lock(self._lock) is not False and _is_at(self._lock, self.path):
                    return
                os.close(self._lock)
            self._lock, self.path = None, self._new_path()
        raise _gave_up(self._destination)

    def commit(self) -> None:
        """Replace the destination by the directory, and remove the old one."""
        old = None
        for _ in range(_MAX_ATTEMPTS):
            self._take_mode()
            if self._take_empty_place():
                break
            if not _is_replaceable(self._destination):
                raise UsageError(f"{self._destination}: {_FOREIGN}")
            # Other writers may interfere.
            with suppress(FileNotFoundError):
                old = self._take_place()
            if old is not None:
                break
        else:
            raise _gave_up(self._destination)
        self._is_done = True
        with suppress(PermissionError):  # nothing else needs read permission on the parent
            sync(self._destination.parent)
        if old is not None:
            _remove(old)

    def _take_mode(self) -> None:
        """Take over the mode of the old directory, and its group if permitted."""
        try:
            old = os.lstat(self._destination)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(old.st_mode):
            return
        mode = stat.S_IMODE(old.st_mode) | stat.S_IRWXU
        if os.lstat(self.path).st_gid != old.st_gid:
            try:
                os.chown(self.path, -1, old.st_gid)
            except OSError:  # give a different group only the permissions of others
                mode &= ~(stat.S_IRWXG | stat.S_ISGID)
                mode |= (mode & stat.S_IRWXO) << 3
        with suppress(OSError):  # a file system without modes
            os.chmod(self.path, mode)

    def _take_empty_place(self) -> bool:
        """Rename to the destination if it is missing or empty; return whether this worked."""
        try:
            os.rename(self.path, self._destination)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True

    def _take_place(self) -> Path | None:
        """Replace the destination; return where the old artifact is, or None to try again."""
        if _exchange(self.path, self._destination):
            # It may be gone: another writer may have removed it as a leftover.
            if _is_replaceable(self.path):
                return self.path
            # A foreign file has appeared in the destination since the last check.
            _exchange(self.path, self._destination)
            return None
        old = self._new_path(_OLD)
        os.rename(self._destination, old)
        try:
            if _is_replaceable(old) and self._take_empty_place():
                return old
        except OSError:
            _put_back(old, self._destination)
            raise
        _put_back(old, self._destination)
        return None

    def close(self) -> None:
        """Remove the directory if it is not at the destination; release the lock."""
        if not self._is_done:
            _remove(self.path)
            for parent in reversed(self._made_parents):
                with suppress(OSError):
                    parent.rmdir()
        if self._lock is not None:
            os.close(self._lock)

    def _make_parents(self) -> None:
        parent = existing_parent(self._destination)
        for part in self._destination.parent.relative_to(parent).parts:
            parent /= part
            with suppress(FileExistsError):
                parent.mkdir()
                self._made_parents.append(parent)
                sync(parent.parent)

    def _sweep(self) -> None:
        """Remove the directories of killed writers; restore an artifact that they moved away."""
        names: list[str] = []
        with suppress(PermissionError):
            names = os.listdir(self._destination.parent)
        for name in names:
            if name.startswith(self._prefix):
                with suppress(OSError):
                    self._sweep_one(self._destination.with_name(name))

    def _sweep_one(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not _lock(descriptor) or not _is_at(descriptor, path):
                return
            if not _is_leftover(descriptor) or os.fstat(descriptor).st_uid != os.geteuid():
                return
            is_old = path.name.endswith(_OLD) and _is_artifact(descriptor, whole=True)
            if is_old and not os.path.lexists(self._destination):
                os.rename(path, self._destination)
            else:
                _remove(path)
        finally:
            os.close(descriptor)


def _gave_up(destination: Path) -> ArtifactError:
    return ArtifactError(f"{destination}: gave up: other processes keep replacing it")


def _absolute(directory: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(directory))


def _lock(descriptor: int) -> bool | None:
    """Lock an open directory; False if another process holds the lock, None if unsupported."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether `path` is the open directory."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    return False


def _is_replaceable(path: Path) -> bool:
    """Whether `path` is missing, empty, or holds an artifact and nothing else."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            # A removed directory cannot be listed.
            with suppress(FileNotFoundError):
                is_replaceable = _is_artifact(descriptor) or not os.listdir(descriptor)
                # If another writer has replaced it in the meantime, look again.
                if is_replaceable or _is_at(descriptor, path):
                    return is_replaceable
        finally:
            os.close(descriptor)


def _put_back(path: Path, destination: Path) -> None:
    # If another writer's artifact is there already, remove this one.
    try:
        os.rename(path, destination)
    except OSError:
        if _is_replaceable(path):
            _remove(path)


def _is_artifact(descriptor: int, *, whole: bool = False) -> bool:
    """Whether an open directory contains a manifest, files that it lists, and nothing else.

    With `whole`, all files that it lists must be there.
    """
    names = set(os.listdir(descriptor))
    try:
        files = _listed(read_text(MANIFEST, dir_fd=descriptor))
    except (OSError, ValueError, ArtifactError):
        return False
    is_all = names == files if whole else names <= files
    modes = _modes(descriptor, names)
    # A missing file was removed by another writer, which removes the manifest last.
    return is_all and all(map(stat.S_ISREG, modes)) and not (whole and len(modes) < len(names))


def _is_leftover(descriptor: int) -> bool:
    """Whether an open directory is unfinished, or partly removed."""
    names = set(os.listdir(descriptor))
    if MANIFEST in names:
        return _is_artifact(descriptor)
    modes = _modes(descriptor, names)
    return names <= {LIBRARY, WEIGHTS, _PART} and all(map(stat.S_ISREG, modes))


def _modes(descriptor: int, names: set[str]) -> list[int]:
    """The modes of the files `names` that still exist."""
    modes = []
    for name in names:
        with suppress(FileNotFoundError):
            modes.append(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)
    return modes


def _listed(text: str) -> set[str]:
    """The files that a manifest lists, including itself.

    Raises
    ------
    ValueError, ArtifactError
        If it is not a manifest.
    """
    try:
        values: Any = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if isinstance(values, dict) and values.get("format") == LIFTED_FORMAT:
        weights = LiftedManifest.from_json(text).file
    else:
        weights = Manifest.from_json(text).weights
    return {MANIFEST, LIBRARY} | ({WEIGHTS} if weights is not None else set())


def _remove(path: Path) -> None:
    """Remove the files of an artifact, the manifest last, and their directory.

    This way, a partly removed artifact can still be recognized.
    """
    for name in (_PART, LIBRARY, WEIGHTS, MANIFEST):
        with suppress(OSError):
            (path / name).unlink()
    with suppress(OSError):
        path.rmdir()


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories atomically; return whether the system supports it."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if not renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), os.fspath(other))


@cache
def _renameat2() -> Any:
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        function.argtypes = (
            *(ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p),
            ctypes.c_uint,
        )
    return function
