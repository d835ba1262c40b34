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
"""Files of the cache that were damaged, exchanged or replaced: never a wrong hit, nor an error."""

import os
import random
import shutil
from pathlib import Path

from tvm_fixes.compiler.cache import eviction
from tvm_fixes.compiler.cache.store import Store

from .cache_files import KEYS, LARGE, check_the_end, folders, is_found, put

_KINDS = (
    *("flip", "flip", "truncate", "extend", "zeros", "other", "exchange", "rename"),
    *("remove", "directory", "link", "pipe", "mode"),
)


def run_case(seed: int) -> str | None:
    """Damage some files, and use the cache; entry point of the runner."""
    rng = random.Random(seed)
    with folders() as (root, work):
        store = Store(root, LARGE)
        for key in KEYS:
            put(store, work, key)
        for _ in range(rng.randint(1, 4)):
            paths = [path for folder in (store.entries, store.blobs) for path in folder.iterdir()]
            regular = [path for path in sorted(paths) if path.is_file() and not path.is_symlink()]
            if regular:
                damage(rng, regular, work)
        for key in rng.sample(KEYS, len(KEYS)):
            is_found(store, key)
            put(store, work, key)
            is_found(store, key)
        eviction.shrink(store)
        eviction.entries_of(store)
        for folder in (store.entries, store.blobs):
            for path in folder.iterdir():
                if path.is_dir():
                    path.rmdir()
        check_the_end(store, work)
    return None


def damage(rng: random.Random, paths: list[Path], work: Path) -> None:
    """Damage one of the files, or two."""
    kind, path = rng.choice(_KINDS), rng.choice(paths)
    data = bytearray(path.read_bytes())
    if kind == "flip" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    elif kind == "truncate":
        os.truncate(path, rng.randrange(len(data) + 1))
    elif kind == "extend":
        path.write_bytes(data + rng.randbytes(rng.randint(1, 5)))
    elif kind == "zeros":
        path.write_bytes(bytes(len(data)))
    elif kind == "other":
        path.write_bytes(rng.choice(paths).read_bytes())
    elif kind == "exchange":
        other = rng.choice(paths)
        old = other.read_bytes()
        other.write_bytes(data)
        path.write_bytes(old)
    elif kind == "rename":
        path.rename(rng.choice(paths))
    elif kind == "mode":
        path.chmod(rng.choice((0o666, 0o620, 0o400, 0o000)))
    elif kind in ("remove", "directory", "link", "pipe"):
        path.unlink()
        if kind == "directory":
            path.mkdir()
        elif kind == "link":
            shutil.copyfile(rng.choice([p for p in paths if p.exists()] or [__file__]), work / "x")
            path.symlink_to(work / "x")
        elif kind == "pipe":
            os.mkfifo(path)
