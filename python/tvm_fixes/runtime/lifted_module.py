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
"""A model whose weights are prepared once, and again when they change."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ..errors import ArtifactError, InputError, UsageError
from ..relax.constants.provenance import Weight
from ..support.temporary import TemporaryDirectory
from ..support.tensors import is_torch, shared
from .arguments import INPUT, bind, check_arrays
from .library import Library
from .lifted_manifest import LiftedManifest
from .manifest import MANIFEST, WEIGHTS, TensorSpec, load_whole
from .preparation import LiftReport, Preparation, prepared_of, spec_of, tensors_of
from .results import returned
from .staging import check_destination, staged, write_manifest
from .weights import read_weights, write_weights


class LiftedModule:
    """A lifted model, called with the parameters of the original function.

    :func:`tvm_fixes.lift` and :meth:`load` return it.  It prepares the weights when they are first
    needed, and again when their contents change.

    Parameters
    ----------
    directory : path
        The directory of the library ``model.so``.
    manifest : LiftedManifest
        The manifest of the library.
    owner : TemporaryDirectory, optional
        Keeps `directory` as long as the model exists.
    weights : mapping of str to array, or to a sequence of arrays for a tuple, optional
        The weights by name.  They are not copied, but read whenever they are compared.
    prepared : list, optional
        Prepared weights, for a model without original weights.
    check_weights : bool
        Whether each call compares the contents of the weights.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        manifest: LiftedManifest,
        *,
        owner: TemporaryDirectory | None = None,
        weights: Mapping[str, Any] | None = None,
        prepared: list[Any] | None = None,
        check_weights: bool = True,
    ):
        self._library = Library(directory, manifest.model, owner)
        self._lifted = manifest
        self._weights = weights
        self._loaded = prepared
        self._preparation = Preparation(self._library, manifest, check_weights)
        if prepared is not None:
            self._preparation.measure(manifest.weights_bytes, prepared)
        if weights is not None:
            self._check_names(weights)
            with self._library.lock:
                self._preparation.prepare(weights, is_held=True)

    @cached_property
    def _function(self) -> Callable[..., Any]:
        function = self._library.function(self._lifted.model.function)
        # The number of prepared weights is unknown until they are prepared.
        if self._lifted.prepared:
            self._library.check_arity(len(self.inputs) + len(self._lifted.prepared))
        return function

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs, in the order that :meth:`run` takes them."""
        return self._lifted.model.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, in the order that :meth:`run` returns them."""
        return self._lifted.model.outputs

    @property
    def weights(self) -> tuple[TensorSpec, ...]:
        """The weights, in the order of the function's parameters; tuples are flattened."""
        return tuple(spec for weight in self._lifted.weights for spec in weight.tensors)

    @property
    def lifted_manifest(self) -> LiftedManifest:
        """The manifest of the library."""
        return self._lifted

    @property
    def lift_report(self) -> LiftReport | None:
        """The memory that the weights take; None until they are prepared."""
        return self._preparation.report

    def __repr__(self) -> str:
        inputs, outputs, weights = (
            "; ".join(map(str, specs)) for specs in (self.inputs, self.outputs, self.weights)
        )
        return f"LiftedModule({inputs} -> {outputs}, weights {weights})"

    def run(self, /, *args: Any, **named: Any) -> Any:
        """Run the model with the parameters of the original function.

        Parameters
        ----------
        *args : numpy.ndarray or torch.Tensor
            The inputs, then the weights, in order.
        **named : numpy.ndarray or torch.Tensor
            Inputs and weights by name.  Weights that are passed are used for this call only; the
            model's own weights replace missing ones.

        Returns
        -------
        outputs : array, or tuple of arrays
            As for :meth:`CompiledModel.run`.

        Raises
        ------
        InputError
            If there are too many, too few or unknown inputs or weights, or if the shape or dtype of
            one does not fit the model; the message names it.  The model does not run in that case.
        ArtifactError
            If the library does not run on this machine.

        Notes
        -----
        Each call computes a fingerprint of the weights (SHA-256, about 1 GB/s), unless
        ``check_weights`` is off, or no weights are passed and the model has only prepared ones.
        The model keeps the prepared weights of the last set.
        """
        inputs, new_weights = self._split(args, named)
        check_arrays(zip(self.inputs, inputs, strict=True), self._lifted.model.bounds, INPUT)
        weights = self._complete(new_weights)
        as_torch = any(map(is_torch, inputs))
        model = self._lifted.model
        tensors = [shared(value, model.alignment) for value in inputs]
        with self._library.lock:
            prepared = self._prepared(weights, is_held=not new_weights)
            result = self._function(*tensors, *(prepared or ()))
            return returned(result, model.owned_outputs, as_torch=as_torch)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write library, prepared weights and manifest to `directory` atomically.

        Parameters
        ----------
        directory : path
            A new or empty directory, or an earlier artifact, which is replaced.  Missing parents
            are created.

        Raises
        ------
        UsageError
            If the model has no weights, `directory` contains anything else, or its parent is not
            writable.
        ArtifactError
            If writing fails, for example because the disk is full.
        """
        with self._library.lock:
            prepared = self._prepared(self._weights, is_held=True)
            before = self.lift_report.before if self.lift_report else 0
        if prepared is None:
            raise UsageError("no weights to save: pass them to lift()")
        check_destination(directory)
        with staged(directory) as staging:
            tensors = enumerate(tensor for value in prepared for tensor in tensors_of(value))
            manifest = replace(
                self._lifted,
                prepared=tuple(map(spec_of, prepared)),
                file=write_weights(
                    staging / WEIGHTS,
                    {f"prepared.{index}": Weight(tensor, (), "") for index, tensor in tensors},
                ),
                weights_bytes=before,
            )
            self._library.copy(staging)
            write_manifest(staging, manifest.to_json())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Load an artifact that :meth:`save` wrote, and check the SHA-256 of all files.

        Raises
        ------
        ArtifactError
            If `directory` is not a complete artifact of a lifted model, its files differ from its
            manifest, or it does not run on this machine.
        """
        path = Path(directory)
        return load_whole(path, lambda: cls._load(path))

    @classmethod
    def _load(cls, path: Path) -> Self:
        manifest = LiftedManifest.read(path)
        if manifest.file is None:
            raise ArtifactError(f"{path / MANIFEST}: no weights")
        Library(path, manifest.model).check_file()
        tensors = iter(read_weights(path / WEIGHTS, manifest.file, check=True))
        prepared = [prepared_of(spec, tensors) for spec in manifest.prepared]
        model = cls(path, manifest, prepared=prepared)
        _ = model._function
        return model

    def _prepared(self, weights: Mapping[str, Any] | None, is_held: bool) -> list[Any] | None:
        """The prepared weights for the function; None as `weights` means the loaded ones."""
        return self._loaded if weights is None else self._preparation.prepare(weights, is_held)

    def _split(
        self, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The inputs in order, and the passed weights by name."""
        names = [weight.name for weight in self._lifted.weights]
        number = len(self.inputs)
        if len(args) > number + len(names):
            expected = ", ".join([*(spec.name for spec in self.inputs), *names])
            raise InputError(
                f"expected {number} inputs and {len(names)} weights ({expected}), got {len(args)}"
            )
        weights = dict(zip(names, args[number:], strict=False))
        inputs = {}
        for name, value in named.items():
            if name not in names:
                inputs[name] = value
            elif name in weights:
                raise InputError(f"weight {name!r} is given twice, by position and by name")
            else:
                weights[name] = value
        known = [spec.name for spec in self.inputs]
        unknown = next((name for name in inputs if name not in known), None)
        if unknown is not None:
            raise InputError(
                f"unknown input or weight {unknown!r}; the model's inputs: ({', '.join(known)}), "
                f"weights: ({', '.join(names)})"
            )
        return bind(self.inputs, args[:number], inputs), weights

    def _complete(self, weights: dict[str, Any]) -> Mapping[str, Any] | None:
        """All weights by name; None if the model has only prepared ones and none are passed."""
        held = self._weights
        if not weights and (held is not None or self._loaded is not None):
            return held
        if held is not None:
            names = [weight.name for weight in self._lifted.weights]
            return {name: weights[name] if name in weights else held[name] for name in names}
        self._check_names(weights)
        return weights

    def _check_names(self, weights: Mapping[str, Any]) -> None:
        names = [weight.name for weight in self._lifted.weights]
        listing = f"({', '.join(names)})"
        unknown = [name for name in weights if name not in names]
        if unknown:
            raise InputError(f"unknown weight {unknown[0]!r}; the model's weights: {listing}")
        missing = [name for name in names if name not in weights]
        if missing:
            raise InputError(f"missing weight {', '.join(map(repr, missing))} of {listing}")
