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
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ..errors import ArtifactError, InputError, UsageError
from ..relax.constants.provenance import Weight
from ..support.tensors import is_torch, to_tvm
from .arguments import INPUT, bind, check_arrays
from .compiled_model import returned
from .library import Library
from .lifted_manifest import LiftedManifest
from .manifest import MANIFEST, WEIGHTS, TensorSpec, load_whole
from .preparation import LiftReport, Preparation, prepared_of, spec_of, tensors_of
from .staging import check_destination, staged, write_manifest
from .weights import read_weights, write_weights


class LiftedModule:
    """A model as a library, called with the parameters that its function had.

    It is made by :func:`tvm_fixes.lift` or :meth:`load`.  The weights are prepared when they are
    first needed, and again when their contents are others.

    Parameters
    ----------
    directory : path
        Where the library ``model.so`` lies.
    manifest : LiftedManifest
        What it holds.
    owner : tempfile.TemporaryDirectory, optional
        Keeps `directory` for as long as the model lives.
    weights : mapping of str to array, or to a sequence of arrays for a tuple, optional
        The weights by name.  They are not copied: each is read when weights are looked at.
    prepared : list, optional
        Prepared weights, where there are no others.
    check_weights : bool
        Whether each call looks at the contents of the weights.

    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        manifest: LiftedManifest,
        *,
        owner: tempfile.TemporaryDirectory[str] | None = None,
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
        # Until weights are prepared, it is not known how many there will be.
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
        """The weights, in the order of the function's parameters; the fields of a tuple singly."""
        return tuple(spec for weight in self._lifted.weights for spec in weight.tensors)

    @property
    def lifted_manifest(self) -> LiftedManifest:
        """What the library holds."""
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
        """Run the model, with the parameters that its function had before it was lifted.

        Parameters
        ----------
        *args : numpy.ndarray or torch.Tensor
            The inputs, and the weights behind them, in order.
        **named : numpy.ndarray or torch.Tensor
            Inputs and weights by name.  Weights that are not given are those that the model holds;
            those that are given are for this call.

        Returns
        -------
        outputs : array, or tuple of arrays
            As :meth:`CompiledModel.run`.

        Raises
        ------
        InputError
            If there are too many, too few or unknown inputs or weights, or one has another shape
            or dtype than the model's; the message names it.  Nothing has run then.
        ArtifactError
            If the library is for another CPU.

        Notes
        -----
        Each call reads the weights once for a fingerprint (SHA-256, about a gigabyte a second),
        unless ``check_weights`` is off, or none is given and the model holds prepared ones alone.
        The prepared weights of the last set are kept.
        """
        inputs, given = self._split(args, named)
        check_arrays(zip(self.inputs, inputs, strict=True), self._lifted.model.bounds, INPUT)
        weights = self._complete(given)
        as_torch = any(map(is_torch, inputs))
        tensors = [to_tvm(value) for value in inputs]
        with self._library.lock:
            prepared = self._prepared(weights, is_held=not given)
            result = self._function(*tensors, *(prepared or ()))
            return returned(result, as_torch=as_torch)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write library, prepared weights and manifest to `directory`, at once or not at all.

        Parameters
        ----------
        directory : path
            A new directory, an empty one, or an earlier artifact, which is replaced.  Missing
            parents are made.

        Raises
        ------
        UsageError
            If no weights are prepared; if `directory` holds anything else, or its parent cannot be
            written.
        ArtifactError
            If writing fails, such as on a full disk.
        """
        with self._library.lock:
            prepared = self._prepared(self._weights, is_held=True)
            before = self.lift_report.before if self.lift_report else 0
        if prepared is None:
            raise UsageError("there are no weights to save: give them to lift()")
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
        """Load what :meth:`save` wrote; all files are compared with their SHA-256.

        Raises
        ------
        ArtifactError
            If `directory` is not a whole artifact of a lifted model, its files are not those that
            its manifest describes, or it cannot run on this CPU.
        """
        path = Path(directory)
        return load_whole(path, lambda: cls._load(path))

    @classmethod
    def _load(cls, path: Path) -> Self:
        manifest = LiftedManifest.read(path)
        if manifest.file is None:
            raise ArtifactError(f"{path / MANIFEST}: there are no weights")
        Library(path, manifest.model).check_file()
        tensors = iter(read_weights(path / WEIGHTS, manifest.file, check=True))
        prepared = [prepared_of(spec, tensors) for spec in manifest.prepared]
        model = cls(path, manifest, prepared=prepared)
        _ = model._function
        return model

    def _prepared(self, weights: Mapping[str, Any] | None, is_held: bool) -> list[Any] | None:
        """What the function takes behind the inputs; `weights` of None are the loaded ones."""
        return self._loaded if weights is None else self._preparation.prepare(weights, is_held)

    def _split(
        self, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The inputs in order, and the weights that are given by name."""
        names = [weight.name for weight in self._lifted.weights]
        number = len(self.inputs)
        if len(args) > number + len(names):
            expected = ", ".join([*(spec.name for spec in self.inputs), *names])
            raise InputError(
                f"expected {number} inputs and {len(names)} weights ({expected}), got {len(args)}"
            )
        given = dict(zip(names, args[number:], strict=False))
        inputs = {}
        for name, value in named.items():
            if name not in names:
                inputs[name] = value
            elif name in given:
                raise InputError(f"weight {name!r} is given twice, by position and by name")
            else:
                given[name] = value
        known = [spec.name for spec in self.inputs]
        unknown = next((name for name in inputs if name not in known), None)
        if unknown is not None:
            raise InputError(
                f"unknown input or weight {unknown!r}; the model's inputs: ({', '.join(known)}), "
                f"weights: ({', '.join(names)})"
            )
        return bind(self.inputs, args[:number], inputs), given

    def _complete(self, given: dict[str, Any]) -> Mapping[str, Any] | None:
        """All weights by name; None where the prepared ones are all there is."""
        held = self._weights
        if not given and (held is not None or self._loaded is not None):
            return held
        if held is not None:
            names = [weight.name for weight in self._lifted.weights]
            return {name: given[name] if name in given else held[name] for name in names}
        self._check_names(given)
        return given

    def _check_names(self, weights: Mapping[str, Any]) -> None:
        names = [weight.name for weight in self._lifted.weights]
        listing = f"({', '.join(names)})"
        unknown = [name for name in weights if name not in names]
        if unknown:
            raise InputError(f"unknown weight {unknown[0]!r}; the model's weights: {listing}")
        missing = [name for name in names if name not in weights]
        if missing:
            raise InputError(f"missing weight {', '.join(map(repr, missing))} of {listing}")
