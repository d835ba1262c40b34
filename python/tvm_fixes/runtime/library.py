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
"""The library of an artifact: loaded when first needed, called by one thread at a time."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from .. import target as targets
from ..errors import ArtifactError, summarize
from . import after_fork
from .manifest import LIBRARY, MANIFEST, Manifest, hash_file


class Library:
    """A library, and the directory where it lies.

    Parameters
    ----------
    directory : path
        Where the library ``model.so`` lies.
    manifest : Manifest
        What it holds.
    owner : tempfile.TemporaryDirectory, optional
        Keeps `directory` for as long as the library lives.

    Attributes
    ----------
    directory : Path
    manifest : Manifest
    lock : threading.Lock
        Held by the thread that calls the library: the virtual machine has one stack of frames, and
        gives other threads way while it runs.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        manifest: Manifest,
        owner: tempfile.TemporaryDirectory[str] | None = None,
    ):
        self.directory = Path(directory)
        self.manifest = manifest
        self.lock = threading.Lock()
        self._owner = owner
        after_fork.renew(self)

    def _renew(self) -> None:
        """Start afresh in a forked child: the thread that held the lock is not there."""
        self.lock = threading.Lock()

    @property
    def device(self) -> tvm.runtime.Device:
        """Where the arguments of its functions are to be."""
        return tvm.cuda() if self.manifest.target["kind"] == "cuda" else tvm.cpu()

    @cached_property
    def machine(self) -> relax.VirtualMachine:
        """The loaded library; one for another CPU can still be saved.

        Raises
        ------
        ArtifactError
            If it cannot be loaded, or not run here.
        """
        problem = targets.why_not_here(
            self.manifest.target, self.manifest.triple, self.manifest.cpu_features
        )
        if problem:
            raise ArtifactError(f"{self.directory} cannot run here: {problem}")
        try:
            return relax.VirtualMachine(_load(self.directory / LIBRARY), self.device)
        except Exception as error:
            raise self._not_loaded(error) from error

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the library.

        Raises
        ------
        ArtifactError
            If there is none of this name, or the library cannot be loaded or run.
        """
        try:
            function = self.machine[name]
        except AttributeError as error:
            raise self._not_loaded(error) from error
        return lambda *arguments: after_fork.call(function, *arguments)

    def check_arity(self, number: int) -> None:
        """Make sure that the model's function takes `number` arguments.

        Raises
        ------
        ArtifactError
            If it takes another number.
        """
        name = self.manifest.function
        expected = int(self.machine.module["get_function_arity"](name))
        if number != expected:
            raise ArtifactError(
                f"{self.directory / LIBRARY}: {name} takes {expected} tensors, its {MANIFEST} "
                f"describes {number}"
            )

    def check_file(self) -> None:
        """Make sure that the file is the one of the manifest.

        Raises
        ------
        ArtifactError
            If it is not there, or its SHA-256 is another one.
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
        """Copy the library to `staging`, where whoever may read it may run it."""
        self.copy_file(LIBRARY, self.manifest.sha256, staging)
        mode = (staging / LIBRARY).stat().st_mode
        (staging / LIBRARY).chmod(mode | (mode & 0o444) >> 2)

    def copy_file(self, name: str, sha256: str, staging: Path) -> None:
        """Copy a file of the artifact to `staging`.

        Raises
        ------
        ArtifactError
            If it is not there any more, or has another SHA-256.
        """
        try:
            shutil.copyfile(self.directory / name, staging / name)
        except FileNotFoundError as error:
            raise ArtifactError(f"{self.directory / name}: has gone since it was loaded") from error
        # Another model may have been saved to where this one was loaded from.
        if hash_file(staging / name) != sha256:
            raise ArtifactError(f"{self.directory / name}: has changed since it was loaded")

    def _not_loaded(self, error: Exception) -> ArtifactError:
        return ArtifactError(f"{self.directory / LIBRARY} cannot be loaded: {summarize(error)}")


_identities: dict[str, tuple[int, int, int]] = {}


def _load(path: Path) -> Any:
    """Load a library, also where another one that lay there before has been loaded.

    The loader knows libraries by their paths, and would give the earlier one.
    """
    real = os.path.realpath(path)
    status = os.stat(real)
    identity = status.st_dev, status.st_ino, status.st_mtime_ns
    if _identities.setdefault(real, identity) == identity:
        return tvm.runtime.load_module(real)
    with tempfile.TemporaryDirectory(prefix="tvm-fixes-") as folder:
        return tvm.runtime.load_module(shutil.copyfile(real, os.path.join(folder, LIBRARY)))
