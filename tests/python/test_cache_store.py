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
"""The files of the cache: damage, owners, concurrent writers, full disks, and eviction."""

import errno
import logging
import os
import time
from pathlib import Path

import pytest
import tvm.testing

from tvm_fixes.compiler.cache import eviction, files, place
from tvm_fixes.compiler.cache.store import Store, key_of
from tvm_fixes.errors import UsageError

KEY = key_of({"model": 1})
CONTENT = bytes(range(256)) * 40


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 1 << 20)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "made"
    path.write_bytes(CONTENT)
    return path


def put(store: Store, file: Path, key: str = KEY, content: bytes = CONTENT) -> bool:
    file.write_bytes(content)
    return store.put(key, {"source": "a"}, {"value": [1, None, "x"]}, {"model.so": file})


def every_file(store: Store) -> list[Path]:
    return [store.entries / KEY, *store.blobs.iterdir()]


def test_an_entry_is_found_with_its_files(store: Store, file: Path) -> None:
    assert store.find(KEY) is None
    assert put(store, file)
    found = store.find(KEY)
    assert found.data == {"value": [1, None, "x"]}
    assert [path.name for path in found.directory.iterdir()] == ["model.so"]
    assert (found.directory / "model.so").read_bytes() == CONTENT
    assert store.find(key_of({"model": 2})) is None
    for path in (store.root, *store.root.iterdir(), *every_file(store)):
        assert not path.stat().st_mode & 0o077


def test_equal_files_are_stored_once_and_survive_the_first_entry(store: Store, file: Path) -> None:
    other = key_of({"model": 2})
    put(store, file)
    put(store, file, other)
    assert len(list(store.blobs.iterdir())) == 1
    (store.entries / KEY).unlink()
    eviction.shrink(store)
    assert store.find(other) is not None


def test_a_second_copy_in_one_process_is_another_file(store: Store, file: Path) -> None:
    put(store, file)
    one, other = store.find(KEY), store.find(KEY)
    paths = [found.directory / "model.so" for found in (one, other)]
    assert not os.path.samefile(*paths)
    assert paths[0].read_bytes() == paths[1].read_bytes() == CONTENT


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("damage", ["first", "middle", "last", "short", "empty", "long", "gone"])
def test_what_is_damaged_is_a_miss_and_replaced(
    store: Store, file: Path, which: int, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, file)
    path = every_file(store)[which]
    data = bytearray(path.read_bytes())
    if damage in ("first", "middle", "last"):
        data[{"first": 0, "middle": len(data) // 2, "last": -1}[damage]] ^= 1
    changed = {"short": data[:-1], "empty": b"", "long": data + b"\0"}.get(damage, data)
    path.unlink() if damage == "gone" else path.write_bytes(changed)
    with caplog.at_level(logging.WARNING):
        assert store.find(KEY) is None
    assert bool(caplog.messages) == (damage != "gone" or which == 1)
    assert not (store.entries / KEY).exists()
    put(store, file)
    found = store.find(KEY)
    assert (found.directory / "model.so").read_bytes() == CONTENT


def test_an_entry_under_another_name_is_a_miss(store: Store, file: Path) -> None:
    put(store, file)
    other = key_of({"model": 2})
    (store.entries / KEY).rename(store.entries / other)
    assert store.find(other) is None


def test_what_others_may_write_to_is_not_used(store: Store, file: Path) -> None:
    for which in (0, 1):
        put(store, file)
        every_file(store)[which].chmod(0o622)
        assert store.find(KEY) is None
    put(store, file)
    kept = every_file(store)[1]
    kept.rename(file)
    kept.symlink_to(file)
    assert store.find(KEY) is None


@pytest.mark.parametrize("folder", ["", "entries", "blobs", "partial"])
def test_a_directory_that_others_may_write_to_is_not_used(
    store: Store,
    file: Path,
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(store, file)
    monkeypatch.setenv("TVM_FIXES_CACHE", str(store.root))
    assert place.opened() is not None
    (store.root / folder).chmod(0o777)
    files.warn_once.cache_clear()
    assert place.opened() is None and place.opened() is None
    (message,) = caplog.messages
    assert message.endswith(f"not used: others may write to {store.root / folder}".rstrip("/"))
    assert not put(store, file, key_of({"model": 3}))
    with pytest.raises(UsageError, match="others may write to"):
        place.existing()


def test_what_belongs_to_another_user_is_not_used(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, file)
    user = os.geteuid()
    monkeypatch.setattr(files.os, "geteuid", lambda: user + 1)
    monkeypatch.setenv("TVM_FIXES_CACHE", str(store.root))
    files.warn_once.cache_clear()
    assert place.opened() is None
    with pytest.raises(UsageError, match=f"{store.root} belongs to another user"):
        place.existing()
    with pytest.raises(files.ForeignError):
        files.open_own(store.entries / KEY)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("after", [0, 1])
def test_what_cannot_be_written_costs_one_line(
    store: Store,
    file: Path,
    number: int,
    after: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    files.warn_once.cache_clear()
    put(store, file)
    create, calls = files._create, []

    def fail(path: Path) -> int:
        calls.append(path)
        if len(calls) > after:
            raise OSError(number, os.strerror(number), str(path))
        return create(path)

    monkeypatch.setattr(files, "_create", fail)
    other = key_of({"model": 2})
    assert not put(store, file, other, b"other") and not put(store, file, other, b"other")
    (message,) = caplog.messages
    assert message.endswith(f"{store.root}: {os.strerror(number)}")
    assert store.find(other) is None
    assert store.find(KEY) is not None
    assert not list((store.root / "partial").iterdir())


def test_a_home_that_is_a_file_or_missing_is_no_cache(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.write_text("")
    monkeypatch.setenv("TVM_FIXES_CACHE", str(home / "cache"))
    assert place.opened() is None
    monkeypatch.delenv("TVM_FIXES_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place.opened().root == tmp_path / ".cache" / "tvm-fixes"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert place.opened().root == tmp_path / "xdg" / "tvm-fixes"
    monkeypatch.setenv("TVM_FIXES_CACHE", "0")
    assert place.opened() is None
    with pytest.raises(UsageError, match="the cache is off"):
        place.existing()


def test_what_was_used_longest_ago_is_removed_first(tmp_path: Path, file: Path) -> None:
    store = Store(tmp_path / "cache", 40_000)
    keys = [key_of({"model": number}) for number in range(4)]
    now = time.time()
    for number, key in enumerate(keys[:3]):
        assert put(store, file, key, bytes([number]) * 11_000)
        os.utime(store.entries / key, (now - 100 + number,) * 2)
    assert store.find(keys[0]) is not None  # used now
    assert put(store, file, keys[3], b"3" * 11_000)
    assert {entry.key for entry in eviction.entries_of(store)} == {keys[0], keys[2], keys[3]}
    assert len(list(store.blobs.iterdir())) == 3
    assert eviction.size_of(store) <= store.limit
    assert not put(store, file, KEY, b"large" * 10_000)


def test_what_killed_writers_left_is_removed_when_it_is_old(store: Store, file: Path) -> None:
    put(store, file)
    left = [store.root / "partial" / "a", store.blobs / "b"]
    for path in left:
        path.write_bytes(b"x")
    eviction.shrink(store)
    assert all(path.exists() for path in left)
    for path in left:
        os.utime(path, (0, 0))
    eviction.shrink(store)
    assert not any(path.exists() for path in left)
    assert store.find(KEY) is not None


def test_clear_removes_everything_or_what_was_not_used(store: Store, file: Path) -> None:
    old = key_of({"model": 2})
    put(store, file)
    put(store, file, old, b"old")
    os.utime(store.entries / old, (time.time() - 100,) * 2)
    assert eviction.clear(store, 50.0).entries == 1
    assert store.find(old) is None and store.find(KEY) is not None
    assert len(list(store.blobs.iterdir())) == 1
    removed = eviction.clear(store)
    assert removed.entries == 1 and removed.size > len(CONTENT)
    assert eviction.size_of(store) == 0


@pytest.mark.parametrize(
    ("text", "size"), [("", 10 << 30), ("20G", 20 << 30), ("5 MiB", 5 << 20), ("70", 70)]
)
def test_size_limit(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_FIXES_CACHE_SIZE", text)
    assert place.size_limit() == size


def test_a_size_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVM_FIXES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TVM_FIXES_CACHE_SIZE", "much")
    files.warn_once.cache_clear()
    assert place.opened() is None
    with pytest.raises(UsageError, match="expected a size such as 20G, got 'much'"):
        place.existing()


if __name__ == "__main__":
    tvm.testing.main()
