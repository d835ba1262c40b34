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
"""A compiled model: run, saved and loaded."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import tvm
from tvm import relax

from .. import target as targets
from ..errors import ArtifactError, InputError, summarize
from ..support.tensors import dtype_of, from_tvm, is_torch, to_device, to_tvm
from . import after_fork
from .manifest import (
    LIBRARY,
    MANIFEST,
    WEIGHTS,
    Manifest,
    TensorSpec,
    describe_shape,
    hash_file,
    load_whole,
    read_manifest,
)
from .staging import check_destination, staged, write_manifest
from .weights import read_weights


class CompiledModel:
    """A model as a library that this process can run.

    It is made by :func:`tvm_fixes.compile` or :meth:`load`.

    Parameters
    ----------
    directory : path
        Where the library ``model.so`` lies.
    manifest : Manifest
        What it holds.
    owner : tempfile.TemporaryDirectory, optional
        Keeps `directory` for as long as the model lives.

    Attributes
    ----------
    report : Report or None
        What the compilation found; :meth:`save` writes it too.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        manifest: Manifest,
        *,
        owner: tempfile.TemporaryDirectory[str] | None = None,
    ):
        self._directory = Path(directory)
        self._manifest = manifest
        self._owner = owner
        # The virtual machine has one stack of frames, and gives other threads way while it runs.
        self._lock = threading.Lock()
        after_fork.renew(self)
        self.report = manifest.report

    def _renew(self) -> None:
        """Start afresh in a forked child: the thread that held the lock is not there."""
        self._lock = threading.Lock()

    @property
    def _device(self) -> tvm.runtime.Device:
        """Where the function's arguments are to be."""
        return tvm.cuda() if self._manifest.target["kind"] == "cuda" else tvm.cpu()

    @cached_property
    def _machine(self) -> relax.VirtualMachine:
        """The library, loaded when it is first needed: one for another CPU can be saved."""
        problem = targets.why_not_here(
            self._manifest.target, self._manifest.triple, self._manifest.cpu_features
        )
        if problem:
            raise ArtifactError(f"{self._directory} cannot run here: {problem}")
        try:
            library = _load_library(self._directory / LIBRARY)
            return relax.VirtualMachine(library, self._device)
        except Exception as error:
            raise ArtifactError(
                f"{self._directory / LIBRARY} cannot be loaded: {summarize(error)}"
            ) from error

    @cached_property
    def _function(self) -> Callable[..., Any]:
        try:
            function = self._machine[self._manifest.function]
        except AttributeError as error:
            raise ArtifactError(
                f"{self._directory / LIBRARY} cannot be loaded: {summarize(error)}"
            ) from error
        weights = [to_device(weight, self._device) for weight in self._map_weights()]
        self._check_arity(len(self._manifest.inputs) + len(weights))
        return lambda *inputs: after_fork.call(function, *inputs, *weights)

    def _check_arity(self, number: int) -> None:
        name = self._manifest.function
        expected = int(self._machine.module["get_function_arity"](name))
        if number != expected:
            raise ArtifactError(
                f"{self._directory / LIBRARY}: {name} takes {expected} tensors, its {MANIFEST} "
                f"describes {number}"
            )

    def _map_weights(self, *, check: bool = False) -> list[tvm.runtime.Tensor]:
        """The weights that the function takes behind the inputs, as views of their file."""
        record = self._manifest.weights
        return (
            [] if record is None else read_weights(self._directory / WEIGHTS, record, check=check)
        )

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs, in the order that :meth:`run` takes them."""
        return self._manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, in the order that :meth:`run` returns them."""
        return self._manifest.outputs

    @property
    def manifest(self) -> Manifest:
        """What the library holds and what made it."""
        return replace(self._manifest, report=self.report)

    def __repr__(self) -> str:
        inputs, outputs = (
            "; ".join(map(str, specs)) for specs in (self._manifest.inputs, self._manifest.outputs)
        )
        return f"CompiledModel({inputs} -> {outputs})"

    def run(self, /, *args: Any, **named: Any) -> Any:
        """Run the model; calls from several threads take turns.

        Parameters
        ----------
        *args : numpy.ndarray or torch.Tensor
            Inputs in order.  They may be strided as they like; PyTorch tensors are on the CPU.
        **named : numpy.ndarray or torch.Tensor
            Inputs by name; ``**{"input.1": x}`` gives one whose name is not an identifier.

        Returns
        -------
        outputs : array, or tuple of arrays
            The one output of a model that has one, else a tuple in the order of :attr:`outputs`.
            PyTorch tensors if an input is one, NumPy arrays otherwise; never views of the inputs.

        Raises
        ------
        InputError
            If there are too many, too few or unknown inputs, or one has another shape or dtype
            than the model's.  Nothing has run then.
        ArtifactError
            If the library is for another CPU.
        """
        values = self._bind(args, named)
        self._check(values)
        as_torch = any(map(is_torch, values))
        function = self._function
        tensors = [to_device(to_tvm(value), self._device) for value in values]
        with self._lock:
            result = function(*tensors)
        return returned(result, as_torch=as_torch)

    def _bind(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        names = [spec.name for spec in self.inputs]
        listing = f"({', '.join(names)})"
        if len(args) > len(names):
            raise InputError(f"expected {len(names)} inputs {listing}, got {len(args)}")
        bound = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in names:
                raise InputError(f"unknown input {name!r}; the model's inputs: {listing}")
            if name in bound:
                raise InputError(f"input {name!r} is given twice, by position and by name")
            bound[name] = value
        missing = [name for name in names if name not in bound]
        if missing:
            raise InputError(f"missing input {', '.join(map(repr, missing))} of {listing}")
        return [bound[name] for name in names]

    def _check(self, values: list[Any]) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for spec, value in zip(self.inputs, values, strict=True):
            if not is_torch(value) and not isinstance(value, np.ndarray | np.generic):
                raise InputError(
                    f"input {spec.name!r}: expected a NumPy array or a PyTorch tensor, "
                    f"got {type(value).__name__}"
                )
            if is_torch(value) and value.device.type != "cpu":
                raise InputError(
                    f"input {spec.name!r}: expected a tensor on the CPU, got one on {value.device}"
                )
            if dtype_of(value) != spec.dtype:
                raise InputError(
                    f"input {spec.name!r}: expected dtype {spec.dtype}, got {dtype_of(value)}"
                )
            self._check_shape(spec, tuple(value.shape), sizes)

    def _check_shape(
        self, spec: TensorSpec, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]]
    ) -> None:
        """Hold `shape` against the input's, and each symbolic dim against what it was before."""
        if spec.shape is None:
            return
        problem = "" if len(shape) == len(spec.shape) else "another rank"
        for axis, (want, got) in enumerate(zip(spec.shape, shape, strict=False)):
            if isinstance(want, int):
                problem = problem or ("" if want == got else f"axis {axis}")
                continue
            low, high = self._manifest.bounds.get(want, (0, None))
            if got < low or (high is not None and got > high):
                bound = f"at least {low}" if high is None else f"from {low} to {high}"
                problem = problem or f"{want} must be {bound}"
            # An expression of dims is checked by the library itself, before it computes.
            if want.isidentifier():
                size, where = sizes.setdefault(want, (got, spec.name))
                if size != got:
                    problem = problem or f"{want} is {size} in input {where!r}"
        if problem:
            raise InputError(
                f"input {spec.name!r}: expected shape {describe_shape(spec.shape)}, "
                f"got {describe_shape(shape)}: {problem}"
            )

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the artifact to `directory`, at once or not at all.

        Parameters
        ----------
        directory : path
            A new directory, an empty one, or an earlier artifact, which is replaced.  Missing
            parents are made.

        Raises
        ------
        UsageError
            If `directory` holds anything else, or its parent cannot be written.
        ArtifactError
            If writing fails, such as on a full disk.
        """
        check_destination(directory)
        with staged(directory) as staging:
            self._copy_library(staging)
            if self._manifest.weights is not None:
                self._copy(WEIGHTS, self._manifest.weights.sha256, staging)
            write_manifest(staging, self.manifest.to_json())

    def _copy_library(self, staging: Path) -> None:
        """Copy the library to `staging`, where whoever may read it may run it."""
        self._copy(LIBRARY, self._manifest.sha256, staging)
        mode = (staging / LIBRARY).stat().st_mode
        (staging / LIBRARY).chmod(mode | (mode & 0o444) >> 2)

    def _copy(self, name: str, sha256: str, staging: Path) -> None:
        try:
            shutil.copyfile(self._directory / name, staging / name)
        except FileNotFoundError as error:
            raise ArtifactError(
                f"{self._directory / name}: has gone since it was loaded"
            ) from error
        # Another model may have been saved to where this one was loaded from.
        if hash_file(staging / name) != sha256:
            raise ArtifactError(f"{self._directory / name}: has changed since it was loaded")

    def check_weights(self) -> None:
        """Read all of the weights beside the library, if any, and compare their SHA-256.

        To load a model compares their size and the SHA-256 of their header alone.

        Raises
        ------
        ArtifactError
            If they are not those that the manifest describes.
        """
        self._map_weights(check=True)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Load what :meth:`save` wrote.

        Weights beside the library are mapped, and read when the model is run; see
        :meth:`check_weights`.  Prepared weights of a ``LiftedModule`` are checked.

        Raises
        ------
        ArtifactError
            If `directory` is not a whole artifact, its files are not those that its manifest
            describes, or it cannot run on this CPU.
        """
        path = Path(directory)
        return load_whole(path, lambda: cls._load(path))

    @classmethod
    def _load(cls, path: Path) -> Self:
        manifest = read_manifest(path)
        check_library(path, manifest)
        model = cls(path, manifest)
        _ = model._function
        return model


_identities: dict[str, tuple[int, int, int]] = {}


def _load_library(path: Path) -> Any:
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


def check_library(directory: Path, manifest: Manifest) -> None:
    """Make sure that the library in `directory` is the one of `manifest`.

    Raises
    ------
    ArtifactError
        If it is not there, or its SHA-256 is another one.
    """
    try:
        digest = hash_file(directory / LIBRARY)
    except OSError as error:
        raise ArtifactError(f"{directory}: not an artifact: {summarize(error)}") from error
    if digest != manifest.sha256:
        raise ArtifactError(
            f"{directory / LIBRARY}: not the library of {MANIFEST}: expected SHA-256 "
            f"{manifest.sha256}, got {digest}"
        )


def returned(result: Any, *, as_torch: bool) -> Any:
    """What a model's function has returned, as :meth:`CompiledModel.run` returns it."""
    # A shape is a tuple of its dims as well.
    if isinstance(result, tvm.runtime.Tensor | tvm.runtime.ShapeTuple):
        return from_tvm(result, as_torch=as_torch)
    outputs = tuple(from_tvm(value, as_torch=as_torch) for value in result)
    return outputs[0] if len(outputs) == 1 else outputs
