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
"""A directory that is written at once or not at all, whatever ends its writer.

A writer fills a directory ``.tvm-fixes-*`` beside the destination and then exchanges the two in one
system call, ``renameat2`` with ``RENAME_EXCHANGE``.  The destination holds the old artifact or the
new one at every moment; of several writers, the last one's stays.

A killed writer leaves its directory.  Each writer holds a lock (``flock``) on its own, which ends
with its process, and the next one to the same destination removes what is not locked.

Where the file system cannot exchange (NFS, some FUSE), the old artifact is renamed to
``.tvm-fixes-*.old`` and the new one takes its place.  Between these two steps there is no
destination; if the writer is killed there, the next one renames the old artifact back before it
does anything else.  Where the file system cannot lock, nothing of another writer is removed.
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import ArtifactError, UsageError
from ..support.files import existing_parent, read_text, sync
from ..support.signals import interrupts_deferred
from .lifted_manifest import FORMAT as LIFTED_FORMAT
from .lifted_manifest import LiftedManifest
from .manifest import LIBRARY, MANIFEST, WEIGHTS, Manifest

_PREFIX = ".tvm-fixes-"
_OLD = ".old"
# A manifest has this name until it is whole.
_PART = f"{MANIFEST}.part"
# How often to try what another writer can thwart.
_ATTEMPTS = 1000

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)

_FOREIGN = "holds files that are not an artifact's; remove it"

_written: set[Path] = set()


def is_written(directory: str | os.PathLike[str]) -> bool:
    """Whether this process has put an artifact at `directory`."""
    return _absolute(directory) in _written


@contextmanager
def staged(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """A directory that takes the place of `directory` when all is written, or goes.

    Raises
    ------
    UsageError
        If `directory` holds what is not an artifact.
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
            reason = "it is a mount point; name a directory in it"
        raise ArtifactError(f"{directory}: cannot be written: {reason}") from error
    finally:
        with interrupts_deferred():
            staging.close()


def write_manifest(directory: Path, text: str) -> None:
    """Write the manifest of an artifact, whole or not at all."""
    (directory / _PART).write_text(text)
    (directory / _PART).rename(directory / MANIFEST)


def check_destination(directory: str | os.PathLike[str], size: int = 0) -> None:
    """Make sure that an artifact may be written to `directory`.

    Parameters
    ----------
    directory : path
        Where to.
    size : int
        The bytes that it needs at least.

    Raises
    ------
    UsageError
        If it is not a directory, holds what is not an artifact or cannot be replaced, or if its
        parent cannot be written or has no room.
    """
    if not os.fspath(directory):
        raise UsageError("the name of the directory to write is empty")
    try:
        path = _absolute(directory)
        _check_existing(path, directory)
        parent = existing_parent(path)
        if not parent.is_dir():
            raise UsageError(f"{directory}: {parent} is not a directory")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise UsageError(f"{directory}: {parent} cannot be written")
        limit = os.pathconf(parent, "PC_NAME_MAX")
        if any(len(os.fsencode(part)) > limit for part in path.parts):
            raise UsageError(f"{directory}: a name has more than {limit} bytes")
        room = os.statvfs(parent)
    except UsageError:  # which is a ValueError
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{directory}: cannot be written: {reason}") from error
    free = room.f_bavail * room.f_frsize
    if free < size:
        raise UsageError(
            f"{directory}: no space left: expected at least {size} bytes, {free} are free"
        )


def _check_existing(path: Path, directory: str | os.PathLike[str]) -> None:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(status.st_mode):
        raise UsageError(f"{directory}: exists and is not a directory but a symbolic link")
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{directory}: exists and is not a directory")
    if os.path.ismount(path):
        raise UsageError(
            f"{directory}: is a mount point, which cannot be replaced; name a directory in it"
        )
    if os.path.samestat(status, os.stat(os.curdir)):
        raise UsageError(
            f"{directory}: is the working directory, which cannot be replaced; name a directory "
            "in it"
        )
    if not _is_replaceable(path):
        raise UsageError(f"{directory}: {_FOREIGN}")


class _Staging:
    """A writer's own directory beside its destination, which it holds locked."""

    def __init__(self, destination: Path):
        self._destination = destination
        # Not the name itself, which may be as long as a name can be.
        digest = hashlib.sha256(os.fsencode(destination.name)).hexdigest()[:16]
        self._prefix = f"{_PREFIX}{digest}-"
        self._lock: int | None = None
        self._made_parents: list[Path] = []
        self._is_done = False
        self.path = self._new_path()

    def _new_path(self, suffix: str = "") -> Path:
        return self._destination.with_name(f"{self._prefix}{secrets.token_hex(8)}{suffix}")

    def make(self) -> None:
        """Make the directory, and remove what killed writers have left."""
        self._make_parents()
        self._sweep()
        for _ in range(_ATTEMPTS):
            self.path.mkdir()
            # Before it is locked, another writer may take it for a killed one's.
            with suppress(FileNotFoundError):
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                if _lock(self._lock) is not False and _is_at(self._lock, self.path):
                    return
                os.close(self._lock)
            self._lock, self.path = None, self._new_path()
        raise _gave_up(self._destination)

    def commit(self) -> None:
        """Put the directory in the destination's place, and remove what was there."""
        old = None
        for _ in range(_ATTEMPTS):
            self._take_mode()
            if self._take_empty_place():
                break
            if not _is_replaceable(self._destination):
                raise UsageError(f"{self._destination}: {_FOREIGN}")
            # Other writers may have come in between.
            with suppress(FileNotFoundError):
                old = self._take_place()
            if old is not None:
                break
        else:
            raise _gave_up(self._destination)
        self._is_done = True
        with suppress(PermissionError):  # to read the parent is not needed for anything else
            sync(self._destination.parent)
        if old is not None:
            _remove(old)

    def _take_mode(self) -> None:
        """Have the mode of the directory that is replaced, and its group where that is allowed."""
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
            except OSError:  # another group gets no more than everybody
                mode &= ~(stat.S_IRWXG | stat.S_ISGID)
                mode |= (mode & stat.S_IRWXO) << 3
        with suppress(OSError):  # a file system without modes
            os.chmod(self.path, mode)

    def _take_empty_place(self) -> bool:
        """Become the destination where there is none, or an empty one; whether this worked."""
        try:
            os.rename(self.path, self._destination)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True

    def _take_place(self) -> Path | None:
        """Become the destination; where the artifact that was there is then, None: try again."""
        if _exchange(self.path, self._destination):
            # Where another writer has taken it for a killed one's, it is gone already.
            if _is_replaceable(self.path):
                return self.path
            # Somebody has put a file there since it was looked at.
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
        """Remove what is not at the destination; let go of the lock."""
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
        """Remove what killed writers have left; where they have moved the artifact, restore it."""
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
    """Lock an open directory; False: another process has, None: this file system cannot."""
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
            # A directory that is removed meanwhile cannot be listed.
            with suppress(FileNotFoundError):
                is_replaceable = _is_artifact(descriptor) or not os.listdir(descriptor)
                # What another writer has replaced meanwhile is being removed.
                if is_replaceable or _is_at(descriptor, path):
                    return is_replaceable
        finally:
            os.close(descriptor)


def _put_back(path: Path, destination: Path) -> None:
    # Where another writer's is there already, this one is to go.
    try:
        os.rename(path, destination)
    except OSError:
        if _is_replaceable(path):
            _remove(path)


def _is_artifact(descriptor: int, *, whole: bool = False) -> bool:
    """Whether an open directory holds a manifest of ours, files that it lists, and nothing else.

    With `whole`, all that it lists.
    """
    names = set(os.listdir(descriptor))
    try:
        files = _listed(read_text(MANIFEST, dir_fd=descriptor))
    except (OSError, ValueError, ArtifactError):
        return False
    is_all = names == files if whole else names <= files
    kinds = _kinds(descriptor, names)
    # A file that is gone by now was removed by another writer, which leaves the manifest for last.
    return is_all and all(map(stat.S_ISREG, kinds)) and not (whole and len(kinds) < len(names))


def _is_leftover(descriptor: int) -> bool:
    """Whether an open directory holds what a writer has begun, or what was to be removed."""
    names = set(os.listdir(descriptor))
    if MANIFEST in names:
        return _is_artifact(descriptor)
    kinds = _kinds(descriptor, names)
    return names <= {LIBRARY, WEIGHTS, _PART} and all(map(stat.S_ISREG, kinds))


def _kinds(descriptor: int, names: set[str]) -> list[int]:
    """The modes of those of the files `names` that are still there."""
    kinds = []
    for name in names:
        with suppress(FileNotFoundError):
            kinds.append(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)
    return kinds


def _listed(text: str) -> set[str]:
    """The files of the artifact whose manifest this is.

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
    """Remove the files of an artifact and their directory, the manifest last.

    Whoever comes upon a part of it can tell until the end what it is.
    """
    for name in (_PART, LIBRARY, WEIGHTS, MANIFEST):
        with suppress(OSError):
            (path / name).unlink()
    with suppress(OSError):
        path.rmdir()


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories in one step; whether the system can."""
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
