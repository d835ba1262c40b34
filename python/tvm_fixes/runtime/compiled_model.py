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
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import tvm

from ..support.tensors import from_tvm, is_torch, to_device, to_tvm
from .arguments import INPUT, bind, check_arrays
from .library import Library
from .manifest import WEIGHTS, Manifest, TensorSpec, load_whole, read_manifest
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
        self._library = Library(directory, manifest, owner)
        self.report = manifest.report

    @property
    def _manifest(self) -> Manifest:
        return self._library.manifest

    @cached_property
    def _function(self) -> Callable[..., Any]:
        function = self._library.function(self._manifest.function)
        weights = [to_device(weight, self._library.device) for weight in self._map_weights()]
        self._library.check_arity(len(self._manifest.inputs) + len(weights))
        return lambda *inputs: function(*inputs, *weights)

    def _map_weights(self, *, check: bool = False) -> list[tvm.runtime.Tensor]:
        """The weights that the function takes behind the inputs, as views of their file."""
        record = self._manifest.weights
        if record is None:
            return []
        return read_weights(self._library.directory / WEIGHTS, record, check=check)

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
        values = bind(self.inputs, args, named)
        check_arrays(zip(self.inputs, values, strict=True), self._manifest.bounds, INPUT)
        as_torch = any(map(is_torch, values))
        function = self._function
        tensors = [to_device(to_tvm(value), self._library.device) for value in values]
        with self._library.lock:
            result = function(*tensors)
        return returned(result, as_torch=as_torch)

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
            self._library.copy(staging)
            if self._manifest.weights is not None:
                self._library.copy_file(WEIGHTS, self._manifest.weights.sha256, staging)
            write_manifest(staging, self.manifest.to_json())

    def check_weights(self) -> None:
        """Read all of the weights beside the library, if any, and compare their SHA-256.

        :meth:`load` compares only their size and the SHA-256 of their header.

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
        model = cls(path, read_manifest(path))
        model._library.check_file()
        _ = model._function
        return model


def returned(result: Any, *, as_torch: bool) -> Any:
    """What a model's function has returned, as :meth:`CompiledModel.run` returns it."""
    # A shape is a tuple of its dims as well.
    if isinstance(result, tvm.runtime.Tensor | tvm.runtime.ShapeTuple):
        return from_tvm(result, as_torch=as_torch)
    outputs = tuple(from_tvm(value, as_torch=as_torch) for value in result)
    return outputs[0] if len(outputs) == 1 else outputs
