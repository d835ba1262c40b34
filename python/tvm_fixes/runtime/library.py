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
"""The library of an artifact: loaded on demand, called by one thread at a time."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import tvm
from tvm import relax

from .. import target as targets
from ..errors import ArtifactError, summarize
from ..support.temporary import TemporaryDirectory
from . import after_fork
from .manifest import LIBRARY, MANIFEST, Manifest, hash_file
from .results import lending


class Library:
    """A library and its directory.

    Parameters
    ----------
    directory : path
        The directory of the library ``model.so``.
    manifest : Manifest
        The manifest of the library.
    owner : TemporaryDirectory, optional
        Keeps `directory` as long as the library exists.

    Attributes
    ----------
    directory : Path
    manifest : Manifest
    lock : threading.RLock
        Held during each call: the virtual machine has only one stack of frames, and releases the
        GIL while it runs.
    """

    lock: threading.RLock

    def __init__(
        self,
        directory: str | os.PathLike[str],
        manifest: Manifest,
        owner: TemporaryDirectory | None = None,
    ):
        self.directory = Path(directory)
        self.manifest = manifest
        self._owner = owner
        after_fork.give_lock(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a compiled model cannot be pickled: save it, and load it where it runs")

    @cached_property
    def device(self) -> tvm.runtime.Device:
        """The device of the arguments of its functions."""
        return tvm.cuda() if self.manifest.target["kind"] == "cuda" else tvm.cpu()

    @cached_property
    def machine(self) -> relax.VirtualMachine:
        """The loaded library, loaded on first use, so that one for another CPU can be saved.

        Raises
        ------
        ArtifactError
            If it cannot be loaded or does not run on this machine.
        """
        problem = targets.why_not_here(
            self.manifest.target, self.manifest.triple, self.manifest.cpu_features
        )
        if problem:
            raise ArtifactError(f"{self.directory} cannot run here: {problem}")
        after_fork.check()
        try:
            return relax.VirtualMachine(_load(self.directory / LIBRARY), self.device)
        except Exception as error:
            raise self._not_loaded(error) from error

    def function(self, name: str, *last: Any) -> Callable[..., Any]:
        """A function of the library, with its last arguments; that of the model lends its results.

        Raises
        ------
        ArtifactError
            If no function has this name, or the library cannot be loaded or run.
        """
        try:
            function = self.machine[name]
        except AttributeError as error:
            raise self._not_loaded(error) from error
        if name == self.manifest.function:
            lent = lending(function, last, self.manifest.owned_outputs)
            if lent is not None:
                return after_fork.guarded(lent)
        return after_fork.guarded(function, *last)

    @contextmanager
    def instrumented(self, instrument: Callable[..., Any]) -> Iterator[None]:
        """Call `instrument` around each call of the machine within the ``with`` block."""
        self.machine.set_instrument(instrument)
        try:
            yield
        finally:
            # Not through Python's method, which rejects None.
            self.machine.module["set_instrument"](None)

    def check_arity(self, number: int) -> None:
        """Check that the model's function takes `number` arguments.

        Raises
        ------
        ArtifactError
            If it does not.
        """
        name = self.manifest.function
        expected = int(self.machine.module["get_function_arity"](name))
        if number != expected:
            raise ArtifactError(
                f"{self.directory / LIBRARY}: {name} takes {expected} tensors, its {MANIFEST} "
                f"describes {number}"
            )

    def check_file(self) -> None:
        """Check the file against the manifest.

        Raises
        ------
        ArtifactError
            If it is missing or its SHA-256 differs.
        """
        try:
            digest = hash_file(self.directory / LIBRARY)
        except OSError as error:
            raise ArtifactError(f"{self.directory}: not an artifact: {summarize(error)}") from error
        if digest != self.manifest.sha256:
            raise ArtifactError(
                f"{self.directory / LIBRARY}: not the library of {MANIFEST}: expected SHA-256 "
                f"{self.manifest.sha256}, got {digest}"
            )

    def copy(self, staging: Path) -> None:
        """Copy the library to `staging`, and make it executable for all who may read it."""
        self.copy_file(LIBRARY, self.manifest.sha256, staging)
        mode = (staging / LIBRARY).stat().st_mode
        (staging / LIBRARY).chmod(mode | (mode & 0o444) >> 2)

    def copy_file(self, name: str, sha256: str, staging: Path) -> None:
        """Copy a file of the artifact to `staging`.

        Raises
        ------
        ArtifactError
            If it is gone or its SHA-256 differs.
        """
        try:
            shutil.copyfile(self.directory / name, staging / name)
        except FileNotFoundError as error:
            raise ArtifactError(f"{self.directory / name}: removed since it was loaded") from error
        # Another model may have been saved to this directory since.
        if hash_file(staging / name) != sha256:
            raise ArtifactError(f"{self.directory / name}: changed since it was loaded")

    def _not_loaded(self, error: Exception) -> ArtifactError:
        reason = summarize(error)
        with suppress(OSError):
            if os.statvfs(self.directory).f_flag & os.ST_NOEXEC:
                reason = (
                    "its file system is mounted noexec; use another directory, for temporary files "
                    "by TMPDIR"
                )
        return ArtifactError(f"{self.directory / LIBRARY} cannot be loaded: {reason}")


_identities: dict[str, tuple[int, int, int]] = {}


def _load(path: Path) -> Any:
    """Load a library, even if another one was loaded from the same path before.

    The loader identifies libraries by path, and would return the earlier one.
    """
    real = os.path.realpath(path)
    status = os.stat(real)
    identity = status.st_dev, status.st_ino, status.st_mtime_ns
    if _identities.setdefault(real, identity) == identity:
        return tvm.runtime.load_module(real)
    with tempfile.TemporaryDirectory(prefix="tvm-fixes-") as folder:
        return tvm.runtime.load_module(shutil.copyfile(real, os.path.join(folder, LIBRARY)))
