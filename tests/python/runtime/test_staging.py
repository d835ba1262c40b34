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
"""tvm_fixes.runtime.staging: artifacts are written atomically."""

import errno
import fcntl
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest
import tvm.testing

from helpers.grids import is_full
from tests.fuzz import save as campaign
from tvm_fixes.errors import ArtifactError, UsageError
from tvm_fixes.runtime import CompiledModel, LiftedModule, staging

PLAIN, WITH_WEIGHTS, LIFTED = range(3)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[CompiledModel]:
    """Two artifacts of each kind, which cannot run."""
    folder = tmp_path_factory.mktemp("sources")
    return [model for seed in (1, 2) for model in campaign.make_models(folder, seed)]


@pytest.fixture(params=["exchange", "two renames"])
def way(request, monkeypatch) -> str:
    """The mechanism that replaces one directory by another."""
    if request.param == "two renames":
        monkeypatch.setattr(staging, "_renameat2", lambda: None)
    return request.param


@pytest.fixture
def no_sync(monkeypatch):
    """Skip fsync: killing a process does not lose cached writes."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


def digests(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def leftover(directory: Path, name: str = "") -> Path:
    """The path of leftovers of a killed writer to `directory`."""
    return staging._Staging(directory)._new_path(name)


@pytest.mark.usefixtures("no_sync")
class TestKilled:
    """SIGKILL at every line of a save."""

    def lines(self, models, tmp_path, old, new) -> int:
        """The number of lines that a save executes."""
        seen = [0]

        def trace(frame, event, _argument):
            seen[0] += event == "line"
            return trace if frame.f_code.co_filename.endswith(campaign._TRACED) else None

        models[old].save(tmp_path / "count")
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            models[new].save(tmp_path / "count")
        finally:
            sys.settrace(before)
        shutil.rmtree(tmp_path / "count")
        return seen[0]

    @pytest.mark.parametrize("old, new", [(PLAIN, 4), (WITH_WEIGHTS, 3), (LIFTED, 5)])
    def test_a_killed_writer_leaves_the_old_or_the_new_artifact(
        self, models, tmp_path, way, old, new
    ):
        destination = tmp_path / "out"
        lines = self.lines(models, tmp_path, old, new)
        killed = 0
        # Each kind executes different lines; `make fuzz` covers all.
        step = (11 if way == "exchange" else 23) if is_full() else 41
        for line in range(old, lines, step):
            models[old].save(destination)
            before = digests(destination)
            child = campaign.fork(
                lambda: campaign.killed_at_line(line, lambda: models[new].save(destination))  # noqa: B023
            )
            status = os.waitpid(child, 0)[1]
            killed += os.WIFSIGNALED(status)
            assert os.WIFSIGNALED(status) or status == 0
            if way == "exchange":
                assert campaign.is_complete(destination)
            # The next writer also starts from a consistent state.
            staging._Staging(destination)._sweep()
            assert campaign.is_complete(destination)
            assert digests(destination) == before or len(os.listdir(tmp_path)) == 1
            models[old].save(destination)
            assert os.listdir(tmp_path) == ["out"]
        assert killed > (10 if is_full() else 4)

    def test_four_writers_and_kills(self):
        total = campaign.Counts()
        for seed in range(6):
            counts = campaign.play(seed)
            total.kills += counts.kills
            total.refused += counts.refused
            total.saves += counts.saves
        assert total.kills >= 6 and total.saves >= 20
        assert total.refused == 0


class TestSeveralWriters:
    def test_all_succeed_in_turn(self, models, tmp_path, way):
        failed = []

        def save(model):
            try:
                for _ in range(5):
                    model.save(tmp_path / "out")
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=save, args=(model,)) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert os.listdir(tmp_path) == ["out"]
        assert campaign.is_complete(tmp_path / "out")

    @pytest.mark.parametrize("left", [["manifest.json"], []])
    def test_files_removed_by_another_writer_are_not_foreign(
        self, models, tmp_path, way, monkeypatch, left
    ):
        """Otherwise it would be restored to a partially deleted destination."""
        out = tmp_path / "out"
        models[0].save(out)
        read_text = staging.read_text

        def read_while_it_goes(name, **where):
            text = read_text(name, **where)
            for path in list(out.iterdir()):
                if path.name not in left:
                    path.unlink()
            if not left:
                out.rmdir()
            return text

        monkeypatch.setattr(staging, "read_text", read_while_it_goes)
        assert staging._is_replaceable(out)

    def test_a_living_writer_keeps_its_directory(self, models, tmp_path):
        with staging.staged(tmp_path / "out") as first:
            models[0].save(tmp_path / "out")
            assert first.is_dir()
            for path in (tmp_path / "out").iterdir():
                shutil.copy(path, first)
        assert os.listdir(tmp_path) == ["out"]

    def test_leftovers_of_dead_writers_are_removed(self, models, tmp_path):
        models[LIFTED].save(tmp_path / "other")
        kinds = {
            "empty": {},
            "begun": {"model.so": b"x"},
            "torn": {"model.so": b"x", "manifest.json.part": b'{"for'},
            "old": digests(tmp_path / "other"),
            "removed in part": {"manifest.json": (tmp_path / "other/manifest.json").read_bytes()},
        }
        for files in kinds.values():
            path = leftover(tmp_path / "out")
            path.mkdir()
            for name, data in files.items():
                (path / name).write_bytes(data)
        of_another = leftover(tmp_path / "another")
        of_another.mkdir()
        models[0].save(tmp_path / "out")
        assert sorted(os.listdir(tmp_path)) == sorted([of_another.name, "other", "out"])

    @pytest.mark.parametrize("kind", ["file", "directory", "link", "locked"])
    def test_foreign_files_are_kept(self, models, tmp_path, kind):
        path = leftover(tmp_path / "out")
        if kind == "link":
            (tmp_path / "mine").mkdir()
            path.symlink_to(tmp_path / "mine")
        else:
            path.mkdir()
            if kind == "file":
                (path / "notes.txt").write_text("precious")
            if kind == "directory":
                (path / "model.so").mkdir()
        lock = os.open(tmp_path if kind != "locked" else path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        models[0].save(tmp_path / "out")
        os.close(lock)
        assert os.path.lexists(path)

    def test_an_old_one_that_was_moved_is_restored(self, models, tmp_path):
        models[0].save(tmp_path / "out")
        before = digests(tmp_path / "out")
        (tmp_path / "out").rename(leftover(tmp_path / "out", ".old"))
        with pytest.raises(ZeroDivisionError), staging.staged(tmp_path / "out"):
            raise ZeroDivisionError
        assert digests(tmp_path / "out") == before
        assert os.listdir(tmp_path) == ["out"]


class TestFailures:
    @pytest.mark.parametrize("replaced", [False, True])
    @pytest.mark.parametrize("step", ["sync", "rename", "_exchange", "_lock", "mkdir"])
    def test_the_previous_artifact_is_kept(self, models, tmp_path, monkeypatch, step, replaced):
        destination = tmp_path / "out" if replaced else tmp_path / "new" / "parents" / "out"
        models[0].save(tmp_path / "out")
        before = digests(tmp_path / "out")

        def fail(*_args, **_kwargs):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        owner = {"rename": os, "mkdir": Path}.get(step, staging)
        if step == "_exchange" and not replaced:
            pytest.skip("there is nothing to exchange with")
        monkeypatch.setattr(owner, step, fail)
        with pytest.raises(ArtifactError, match="cannot write: No space left on device"):
            models[1].save(destination)
        monkeypatch.undo()
        assert os.listdir(tmp_path) == ["out"]
        assert digests(tmp_path / "out") == before

    def test_a_file_that_comes_while_it_is_replaced_is_kept(
        self, models, tmp_path, monkeypatch, way
    ):
        models[0].save(tmp_path / "out")
        before = digests(tmp_path / "out")
        real = staging._exchange

        def exchange(one, other):
            if not any(path.name == "notes.txt" for path in tmp_path.glob("*/*")):
                (tmp_path / "out" / "notes.txt").write_text("precious")
            return real(one, other)

        monkeypatch.setattr(staging, "_exchange", exchange)
        with pytest.raises(UsageError, match="contains files that are not an artifact"):
            models[1].save(tmp_path / "out")
        assert os.listdir(tmp_path) == ["out"]
        assert digests(tmp_path / "out") == before | {"notes.txt": b"precious"}

    def test_a_manifest_that_is_nested_too_deep_is_not_an_artifact_s(self, models, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "manifest.json").write_text("[" * 100_000)
        with pytest.raises(UsageError, match="contains files that are not an artifact"):
            models[1].save(tmp_path / "out")

    def test_the_umask_counts(self, models, tmp_path):
        mask = os.umask(0o027)
        try:
            models[WITH_WEIGHTS].save(tmp_path / "out")
        finally:
            os.umask(mask)
        modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "out").iterdir()}
        assert modes == {"model.so": 0o750, "manifest.json": 0o640, "weights.safetensors": 0o640}
        assert (tmp_path / "out").stat().st_mode & 0o777 == 0o750


@pytest.mark.usefixtures("no_sync")
class TestInterrupted:
    """Ctrl-C at any line leaves one complete artifact and nothing else."""

    @pytest.mark.parametrize("old, new", [(PLAIN, 4), (WITH_WEIGHTS, 5)])
    def test_at_every_line(self, models, tmp_path, way, old, new):
        destination = tmp_path / "out"
        models[old].save(destination)
        interrupted = finished = 0
        for line in range(old, 4000, 13):
            before = digests(destination)
            staging._written.clear()
            try:
                self.interrupt_at(line, lambda: models[new].save(destination))
                finished += 1
            except KeyboardInterrupt:
                interrupted += 1
            assert os.listdir(tmp_path) == ["out"]
            assert campaign.is_complete(destination)
            assert staging.is_written(destination) == (digests(destination) != before)
            models[old].save(destination)
            if finished:
                break
        assert interrupted > 10 and finished == 1

    def interrupt_at(self, line, function):
        left = line

        def trace(frame, event, _argument):
            nonlocal left
            if not frame.f_code.co_filename.endswith(campaign._TRACED):
                return None
            left -= event == "line"
            if left == 0:
                left = -1
                signal.raise_signal(signal.SIGINT)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(before)


class TestDestination:
    @pytest.mark.parametrize(
        "name, message",
        [
            ("", "the name of the output directory is empty"),
            (".", "is the working directory"),
            ("/", "is a mount point"),
            ("file", "is not a directory"),
            ("file/below", "file is not a directory"),
            ("link", "is a symbolic link; expected a directory"),
            ("nowhere", "is a symbolic link; expected a directory"),
            ("full", "contains files that are not an artifact"),
            ("n" * 256, "cannot write: File name too long"),
            ("new/" + "n" * 256, "a name has more than 255 bytes"),
            ("n/" * 3000, "cannot write: File name too long"),
            ("a\0b", "cannot write: embedded null byte"),
            ("/proc/self/out", "/proc/self is not writable"),
        ],
    )
    def test_rejected(self, models, tmp_path, monkeypatch, name, message):
        monkeypatch.chdir(tmp_path)
        Path("file").write_text("precious")
        Path("link").symlink_to("full")
        Path("nowhere").symlink_to("not-there")
        Path("full").mkdir()
        Path("full/notes.txt").write_text("precious")
        before = sorted(os.listdir())
        if name == "/proc/self/out" and os.geteuid() == 0:
            message = "cannot write|is not writable"
        with pytest.raises(UsageError, match=message) as refused:
            staging.check_destination(name)
        assert str(refused.value).count(": ") <= 2
        with pytest.raises(UsageError, match=message):
            models[0].save(name)
        assert sorted(os.listdir()) == before

    def test_room(self, tmp_path):
        with pytest.raises(UsageError, match="no space left: expected at least 1125899906842624 f"):
            staging.check_destination(tmp_path / "out", 1 << 50)

    def test_a_file_system_without_files(self):
        """It has no blocks; an error about space would mislead."""
        message = "is in a file system that stores no files|is not writable"
        with pytest.raises(UsageError, match=message):
            staging.check_destination("/proc/tvm-fixes-out", 1 << 20)

    @pytest.mark.parametrize("size", [250, 255])
    def test_long_names(self, models, tmp_path, size):
        models[LIFTED].save(tmp_path / ("n" * size))
        models[PLAIN].save(tmp_path / ("n" * size))
        assert os.listdir(tmp_path) == ["n" * size]

    def test_names_that_are_not_utf_8(self, models, tmp_path):
        directory = os.fsdecode(os.fsencode(tmp_path) + b"/out\xff")
        models[PLAIN].save(directory)
        models[LIFTED].save(directory)
        assert os.listdir(os.fsencode(tmp_path)) == [b"out\xff"]

    @pytest.mark.parametrize("name", ["weights.safetensors", "model.so.bak", "manifest.json.part"])
    def test_a_file_that_the_manifest_does_not_list_is_kept(self, models, tmp_path, name):
        models[PLAIN].save(tmp_path / "out")
        (tmp_path / "out" / name).write_text("precious")
        for model in models:
            with pytest.raises(UsageError, match="contains files that are not an artifact"):
                model.save(tmp_path / "out")
        assert (tmp_path / "out" / name).read_text() == "precious"

    def test_special_files_are_kept(self, models, tmp_path):
        models[PLAIN].save(tmp_path / "out")
        for make in (os.mkdir, os.mkfifo, lambda path: os.symlink("/", path)):
            library = tmp_path / "out" / "model.so"
            library.unlink()
            make(library)
            with pytest.raises(UsageError, match="contains files that are not an artifact"):
                models[PLAIN].save(tmp_path / "out")
            library.rmdir() if library.is_dir() and not library.is_symlink() else library.unlink()
            library.write_bytes(b"")

    @pytest.mark.parametrize("old", range(3))
    @pytest.mark.parametrize("new", range(3))
    def test_any_kind_replaces_any_other(self, models, tmp_path, old, new):
        models[old].save(tmp_path / "out")
        models[new].save(tmp_path / "out")
        assert campaign.is_complete(tmp_path / "out")
        assert isinstance(models[new], LiftedModule) == (new == LIFTED)


@pytest.mark.parametrize("content", [True, False])
def test_the_mode_is_kept(tmp_path, models, way, content):
    destination = tmp_path / "out"
    if content:
        models[PLAIN].save(destination)
    else:
        destination.mkdir()
    destination.chmod(0o2770)
    models[PLAIN].save(destination)
    assert destination.stat().st_mode & 0o7777 == 0o2770


def test_it_gives_up(tmp_path, models, monkeypatch):
    """The error must not blame a mount point."""
    models[PLAIN].save(tmp_path / "out")
    monkeypatch.setattr(staging._Staging, "_take_place", lambda self: None)
    with pytest.raises(ArtifactError, match="gave up: other processes keep replacing it") as raised:
        models[PLAIN].save(tmp_path / "out")
    assert "mount" not in str(raised.value)


if __name__ == "__main__":
    tvm.testing.main()
