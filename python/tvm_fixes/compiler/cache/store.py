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
"""The files of the cache: entries by key, and what they refer to by SHA-256."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...support.temporary import TemporaryDirectory
from . import eviction
from .entries import FORMAT, Blob, Folders, read_entry
from .files import (
    DamagedError,
    copy_whole,
    log,
    open_own,
    sha256_of,
    warn_once,
    write_checked,
)

# A library is loaded once per file: the loader returns the one that is loaded already.
_given_out: set[tuple[int, int]] = set()


class Found(NamedTuple):
    """An entry with its files, whose hashes have been checked.

    Attributes
    ----------
    data : dict
    directory : Path
        A directory with the files of the entry and nothing else.
    owner : TemporaryDirectory
        Removes `directory` when it is garbage-collected.
    """

    data: dict[str, Any]
    directory: Path
    owner: TemporaryDirectory


def key_of(parts: Mapping[str, Any]) -> str:
    """The key of an entry: the SHA-256 of a text of `parts`, values of JSON."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _copy(source: Path, path: Path) -> None:
    with open_own(source) as read, open(path, "xb") as written:
        path.chmod(0o600)
        shutil.copyfileobj(read, written, 1 << 22)


class Store(Folders):
    """A cache: a directory of entries.

    Parameters
    ----------
    root : Path
    limit : int
        The size in bytes that :meth:`put` keeps to.
    """

    def find(self, key: str) -> Found | None:
        """The entry for `key`, or None; one that is damaged is removed."""
        path = self.entries / key
        try:
            entry = read_entry(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._discard(path, error)
            return None
        owner = TemporaryDirectory()
        try:
            for name, blob in entry.blobs.items():
                self._provide(blob, Path(owner.name, name))
        except (OSError, ValueError) as error:
            owner.cleanup()
            self._discard(path, error)
            return None
        except BaseException:
            owner.cleanup()
            raise
        with suppress(OSError):  # it may be read-only
            os.utime(path)
        log.info("found %s (%s)", key, entry.made.get("source", ""))
        return Found(entry.data, Path(owner.name), owner)

    def _provide(self, blob: Blob, path: Path) -> None:
        """Link or copy a file to `path`, and check its hash there.

        Raises
        ------
        OSError
            If it cannot be read or written.
        DamagedError
            If its hash differs.
        """
        kept = self.blobs / blob.sha256
        try:
            os.link(kept, path, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without links
            _copy(kept, path)
        status = os.lstat(path)
        identity = status.st_dev, status.st_ino
        if identity in _given_out:
            path.unlink()
            _copy(kept, path)
        _given_out.add(identity)
        if path.stat().st_size != blob.size or sha256_of(path) != blob.sha256:
            path.unlink()
            with suppress(OSError):
                kept.unlink()
            raise DamagedError(f"the checksum of {kept} differs")

    def _discard(self, path: Path, error: Exception) -> None:
        log.warning("an entry of the cache is not used, and compiled again: %s: %s", path, error)
        with suppress(OSError):
            path.unlink()

    def put(
        self,
        key: str,
        made: Mapping[str, Any],
        data: Mapping[str, Any],
        files: Mapping[str, Path],
    ) -> bool:
        """Store an entry, and remove those that were not used for longest beyond the limit.

        If it cannot be written, for example because the disk is full, that is logged.

        Parameters
        ----------
        key : str
        made, data
            As for :class:`Entry`; values of JSON.
        files : mapping of str to Path
            The files, which are copied, by the names that they get in :attr:`Found.directory`.

        Returns
        -------
        is_stored : bool
        """
        blobs: dict[str, tuple[str, int]] = {}
        try:
            size = sum(path.stat().st_size for path in files.values())
            if size > self.limit:
                log.info("not stored: %d bytes are more than the limit of the cache", size)
                return False
            self.make()
            self.check()
            for name, path in files.items():
                blobs[name] = copy_whole(self.root, path, self.blobs)
            values = {
                "format": FORMAT,
                "key": key,
                "made": {**made, "time": round(time.time())},
                "data": data,
                "blobs": blobs,
            }
            text = json.dumps(values, sort_keys=True).encode()
            write_checked(self.root, self.entries / key, text)
            eviction.shrink(self)
        except OSError as error:
            reason = error.strerror or str(error)
            eviction.drop(self, (sha256 for sha256, _ in blobs.values()))
            warn_once(f"compiled models are not stored in the cache {self.root}: {reason}")
            return False
        return True
