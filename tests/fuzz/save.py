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
"""Concurrent writers of one artifact, some killed while they save.

Four processes save to one directory repeatedly.  Some are killed after a random time, or before a
random line of the code that saves.  After each kill, the directory must contain a complete
artifact.  After all processes end, the next save must leave only this directory.
"""

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import tvm

from tvm_fixes.errors import CompileError
from tvm_fixes.relax.constants.provenance import Weight
from tvm_fixes.runtime import CompiledModel, LiftedModule, staging
from tvm_fixes.runtime.lifted_manifest import LiftedManifest
from tvm_fixes.runtime.manifest import LIBRARY, WEIGHTS, Manifest
from tvm_fixes.runtime.weights import write_weights

WRITERS = 4
_SAVES = 8
_MAX_LINES = 400
_MAX_DELAY = 0.08

_TRACED = (
    *("staging.py", "compiled_model.py", "lifted_module.py", "library.py"),
    *("files.py", "weights.py"),
)


@dataclass
class Counts:
    """Event counts of a case."""

    saves: int = 0
    refused: int = 0
    kills: int = 0
    in_between: int = 0
    """Kills that left something for the next save to remove."""


def run_case(seed: int) -> str | None:
    """Run one round; entry point of the runner."""
    play(seed)
    return None


def play(seed: int) -> Counts:
    """Run four writers that save, and kill some of them.

    Raises
    ------
    AssertionError
        If an artifact is lost, damaged or left behind, or a writer ends in any other way.
    """
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="tvm-fixes-fuzz-"))
    try:
        # Without an atomic exchange, the old artifact briefly has another name.
        with mock.patch.object(staging, "_renameat2", staging._renameat2):
            can_exchange = rng.random() < 0.75
            if not can_exchange:
                staging._renameat2 = lambda: None
            return _Round(rng, folder, can_exchange).play()
    finally:
        shutil.rmtree(folder)


def make_models(folder: Path, seed: int) -> list[CompiledModel | LiftedModule]:
    """One model per kind of artifact; libraries are random bytes, because none runs."""
    rng = np.random.default_rng(seed)
    models: list[CompiledModel | LiftedModule] = []
    for kind in ("plain", "weights", "lifted"):
        source = folder / f"{kind}-{seed}"
        source.mkdir()
        library = rng.bytes(int(rng.integers(1, 20_000)))
        (source / LIBRARY).write_bytes(library)
        digest = hashlib.sha256(library).hexdigest()
        manifest = Manifest((), (), {}, {"kind": "llvm"}, "x86_64", [], {}, digest, len(library))
        tensor = tvm.runtime.tensor(rng.standard_normal(int(rng.integers(1, 9000))))
        if kind == "lifted":
            lifted = LiftedManifest(manifest, "transform", False, ())
            models.append(LiftedModule(source, lifted, prepared=[tensor]))
            continue
        if kind == "weights":
            weights = write_weights(source / WEIGHTS, {"w": Weight(tensor, (), "")})
            manifest = replace(manifest, weights=weights)
        models.append(CompiledModel(source, manifest))
    return models


def is_complete(directory: Path) -> bool:
    """Whether `directory` contains exactly the files that its manifest describes.

    Does not use the code under test.
    """
    while True:
        try:
            opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return False
        try:
            is_complete = _is_complete(Path(f"/proc/self/fd/{opened}"))
            # Retry if the directory was replaced meanwhile.
            if is_complete or os.path.samestat(os.fstat(opened), os.stat(directory)):
                return is_complete
        except FileNotFoundError:
            continue
        finally:
            os.close(opened)


def _is_complete(directory: Path) -> bool:
    names = sorted(os.listdir(directory))
    if "manifest.json" not in names:
        return False
    try:
        values = json.loads((directory / "manifest.json").read_text())
        model, record = values.get("model", values), values.get("file") or values.get("weights")
        hashes = {LIBRARY: model["sha256"]} | ({WEIGHTS: record["sha256"]} if record else {})
        return names == sorted([*hashes, "manifest.json"]) and all(
            hashlib.sha256((directory / name).read_bytes()).hexdigest() == digest
            for name, digest in hashes.items()
        )
    except FileNotFoundError:
        return False


def killed_at_line(
    line: int, function: Callable[[], Any], traced: tuple[str, ...] = _TRACED
) -> None:
    """Call `function`; kill this process with SIGKILL at the `line`-th line of `traced` files."""
    left = line

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(traced):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)


def fork(function: Callable[[], None]) -> int:
    """Call `function` in a child process, which exits with 1 if it raises; return its pid."""
    child = os.fork()
    if child:
        return child
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        function()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


class _Round:
    """Four writers and their directory."""

    def __init__(self, rng: random.Random, folder: Path, can_exchange: bool):
        self._rng = rng
        self._can_exchange = can_exchange
        (folder / "sources").mkdir()
        (folder / "parent").mkdir()
        self._parent = folder / "parent"
        self._destination = self._parent / "out"
        self._tally = folder / "tally"
        self._models = [
            model
            for n in range(2)
            for model in make_models(folder / "sources", rng.getrandbits(32) + n)
        ]
        self.counts = Counts()

    def play(self) -> Counts:
        existed = self._rng.random() < 0.8
        if existed:
            self._rng.choice(self._models).save(self._destination)
        victims = self._rng.randint(1, WRITERS)
        writers = {fork(self._writer(n < victims)): n < victims for n in range(WRITERS)}
        by_time = [
            child for child, victim in writers.items() if victim and self._rng.random() < 0.5
        ]
        for child in by_time:
            time.sleep(self._rng.random() * _MAX_DELAY)
            os.kill(child, signal.SIGKILL)
        for _ in writers:
            child, status = os.waitpid(-1, 0)
            killed = os.WIFSIGNALED(status)
            assert killed or status == 0, f"writer exited with status {status}"
            assert not killed or writers[child], f"writer died from signal {os.WTERMSIG(status)}"
            self.counts.kills += killed
            # Not before the first artifact exists, nor while it may have another name.
            if killed and existed and self._can_exchange:
                assert is_complete(self._destination), "no complete artifact after a kill"
        self._check_the_end(existed)
        tally = self._tally.read_bytes() if self._tally.exists() else b""
        self.counts.saves, self.counts.refused = tally.count(b"s"), tally.count(b"r")
        return self.counts

    def _writer(self, may_be_killed: bool) -> Callable[[], None]:
        rng = random.Random(self._rng.getrandbits(32))
        at_line = may_be_killed and rng.random() < 0.7

        def save() -> None:
            tally = os.open(self._tally, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for _ in range(_SAVES):
                try:
                    rng.choice(self._models).save(self._destination)
                    os.write(tally, b"s")
                except CompileError as error:
                    assert str(error).startswith(str(self._destination)), error
                    os.write(tally, b"r")

        if at_line:
            return lambda: killed_at_line(rng.randrange(_MAX_LINES * 2), save)
        return save

    def _check_the_end(self, existed: bool) -> None:
        left = sorted(os.listdir(self._parent))
        self.counts.in_between += left not in ([], ["out"])
        if existed and not is_complete(self._destination):
            assert not self._can_exchange, f"no complete artifact at the end: {left}"
            old = [name for name in left if name.endswith(".old")]
            assert any(is_complete(self._parent / name) for name in old), (
                f"no complete artifact: {left}"
            )
        last = self._rng.choice(self._models)
        last.save(self._destination)
        assert os.listdir(self._parent) == ["out"], f"left behind: {os.listdir(self._parent)}"
        assert is_complete(self._destination), "the last save is incomplete"


def table(seeds: range) -> str:
    """Run many rounds; return a summary."""
    start, total = time.monotonic(), Counts()
    for seed in seeds:
        counts = asdict(play(seed))
        total = Counts(**{name: value + counts[name] for name, value in asdict(total).items()})
    return f"{len(seeds)} rounds, {total}, {time.monotonic() - start:.0f} s"


if __name__ == "__main__":
    print(table(range(int(sys.argv[1]), int(sys.argv[2]))))
