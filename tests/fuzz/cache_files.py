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
"""A cache of random files, for the campaigns of the cache.

The content for a key follows from the key, so a wrong hit shows; no content is a library.
"""

import errno
import hashlib
import os
import random
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tvm_fixes.compiler.cache import eviction, files
from tvm_fixes.compiler.cache.store import Store, key_of

KEYS = [key_of({"model": number}) for number in range(6)]
LARGE = 1 << 30


def content_of(key: str) -> dict[str, bytes]:
    """The files for a key; half of the keys share one."""
    rng = random.Random(key)
    shared = random.Random(int(key[:2], 16) % 2).randbytes(5000)
    return {"model.so": shared, "weights.safetensors": rng.randbytes(rng.randrange(9000))}


def put(store: Store, folder: Path, key: str) -> bool:
    """Store the files for a key, which are written to `folder` first."""
    made = Path(tempfile.mkdtemp(dir=folder))
    paths = {name: made / name for name in content_of(key)}
    for name, data in content_of(key).items():
        paths[name].write_bytes(data)
    return store.put(key, {"source": key}, {"key": key}, paths)


def is_found(store: Store, key: str) -> bool:
    """Whether there is an entry for a key.

    Raises
    ------
    AssertionError
        If it is a wrong one.
    """
    found = store.find(key)
    if found is None:
        return False
    assert found.data == {"key": key}, f"the data of another entry: {found.data}"
    got = {path.name: path.read_bytes() for path in found.directory.iterdir()}
    assert got == content_of(key), "a wrong hit"
    return True


def act(store: Store, folder: Path, rng: random.Random) -> None:
    """Store, look up, or remove something."""
    key = rng.choice(KEYS)
    action = rng.choice(("put", "put", "find", "find", "shrink", "clear"))
    if action == "put":
        put(store, folder, key)
    elif action == "find":
        is_found(store, key)
    elif action == "shrink":
        eviction.shrink(store)
    elif rng.random() < 0.3:
        eviction.clear(store, rng.choice((0.0, 1000.0)))


def check_the_end(store: Store, folder: Path) -> None:
    """Check that the cache works, and that nothing is left behind."""
    for key in KEYS:
        is_found(store, key)
        assert put(store, folder, key), "cannot store"
        assert is_found(store, key), "not found"
    for path in [*(store.root / files.PARTIAL).iterdir(), *store.blobs.iterdir()]:
        os.utime(path, (0, 0))
    eviction.shrink(store)
    assert not list((store.root / files.PARTIAL).iterdir()), "left behind"
    used = {blob.sha256 for entry in eviction.entries_of(store) for blob in entry.blobs.values()}
    assert {path.name for path in store.blobs.iterdir()} == used, "files without an entry"
    assert eviction.clear(store).entries == len(KEYS)
    assert eviction.size_of(store) == 0


@contextmanager
def folders() -> Iterator[tuple[Path, Path]]:
    """A directory for a cache, and one for other files."""
    root = Path(tempfile.mkdtemp(prefix="tvm-fixes-fuzz-"))
    try:
        (root / "work").mkdir()
        # Files of found entries belong to this case.
        with mock.patch.object(tempfile, "tempdir", str(root / "work")):
            yield root / "cache", root / "work"
    finally:
        shutil.rmtree(root, ignore_errors=True)


def limited(size: int) -> Callable[[Path], int]:
    """A replacement of ``files._create`` for a disk that is full after `size` files."""
    left, create = [size], files._create

    def limited_create(path: Path) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return create(path)

    return limited_create


def limit_cores() -> None:
    """Write no core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def hash_of(path: Path) -> str:
    """The SHA-256 of a file, without the code under test."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
