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
"""A model whose weights are prepared once, and which is called as before they were lifted."""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import tvm

from ..errors import ArtifactError, InputError, UsageError
from ..relax.constants.growth import MAX_GROWTH, WEIGHTS_ALLOWANCE
from ..relax.constants.provenance import Weight
from ..support.tensors import dtype_of, duplicate, is_torch, nbytes_of, raw_bytes, to_tvm
from . import after_fork
from .compiled_model import CompiledModel, check_library, returned
from .lifted_manifest import LiftedManifest, PreparedSpec, WeightSpec
from .manifest import MANIFEST, WEIGHTS, TensorSpec
from .staging import check_destination, staged, write_manifest
from .weights import read_weights, write_weights

_HELD = "held"


@dataclass(frozen=True)
class LiftReport:
    """The memory that weights take.

    Attributes
    ----------
    before, after : int
        The bytes of the weights, and of the prepared ones.
    """

    before: int
    after: int

    @property
    def ratio(self) -> float | None:
        """`after` over `before`; None for a model without weights."""
        return self.after / self.before if self.before else None

    def __str__(self) -> str:
        ratio = f" ({self.ratio:.2f} times)" if self.ratio is not None else ""
        return f"weights of {self.before} bytes, prepared {self.after} bytes{ratio}"


class LiftedModule(CompiledModel):
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

    Attributes
    ----------
    lift_report : LiftReport or None
        The memory that the weights take; None until they are prepared.
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
        super().__init__(directory, manifest.model, owner=owner)
        self._lifted = manifest
        self._weights = weights
        self._loaded = prepared
        self._check_weights = check_weights
        # The weights that were prepared last, and what became of them.
        self._last: tuple[str, list[Any]] | None = None
        self.lift_report: LiftReport | None = None
        if prepared is not None:
            self._report(manifest.weights_bytes, prepared)
        if weights is not None:
            self._check_names(weights)
            with self._lock:
                self._prepare(weights, is_held=True)

    @property
    def weights(self) -> tuple[TensorSpec, ...]:
        """The weights, in the order of the function's parameters; the fields of a tuple singly."""
        return tuple(spec for weight in self._lifted.weights for spec in weight.tensors)

    @property
    def lifted_manifest(self) -> LiftedManifest:
        """What the library holds."""
        return self._lifted

    def __repr__(self) -> str:
        weights = "; ".join(map(str, self.weights))
        return f"LiftedModule({super().__repr__()}, weights {weights})"

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
        self._check(inputs)
        weights = self._complete(given)
        as_torch = any(map(is_torch, inputs))
        tensors = [to_tvm(value) for value in inputs]
        with self._lock:
            prepared = self._loaded if weights is None else self._prepare(weights, not given)
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
        with self._lock:
            held = self._weights
            prepared = self._loaded if held is None else self._prepare(held, is_held=True)
            before = self.lift_report.before if self.lift_report else 0
        if prepared is None:
            raise UsageError("there are no weights to save: give them to lift()")
        check_destination(directory)
        with staged(directory) as staging:
            tensors = enumerate(tensor for value in prepared for tensor in _tensors_of(value))
            manifest = replace(
                self._lifted,
                prepared=tuple(map(_spec_of, prepared)),
                file=write_weights(
                    staging / WEIGHTS,
                    {f"prepared.{index}": Weight(tensor, (), "") for index, tensor in tensors},
                ),
                weights_bytes=before,
            )
            self._copy_library(staging)
            write_manifest(staging, manifest.to_json())

    @classmethod
    def _load(cls, path: Path) -> Self:
        manifest = LiftedManifest.read(path)
        if manifest.file is None:
            raise ArtifactError(f"{path / MANIFEST}: there are no weights")
        check_library(path, manifest.model)
        tensors = iter(read_weights(path / WEIGHTS, manifest.file, check=True))
        prepared = [_prepared_of(spec, tensors) for spec in manifest.prepared]
        model = cls(path, manifest, prepared=prepared)
        _ = model._function
        return model

    def _check_arity(self, number: int) -> None:
        # Until weights are prepared, it is not known how many there will be.
        if self._lifted.prepared:
            super()._check_arity(number + len(self._lifted.prepared))

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
        return self._bind(args[:number], inputs), given

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

    def _prepare(self, weights: Mapping[str, Any], is_held: bool) -> list[Any]:
        """Prepare the weights, unless they are those that were prepared last."""
        leaves = _Leaves(self._lifted.weights, weights)
        is_trusted = is_held and not self._check_weights
        if is_trusted and self._last is not None and self._last[0] == _HELD:
            return self._last[1]
        self._check_leaves(leaves)
        if not is_trusted and self._last is not None and self._last[0] == leaves.fingerprint():
            return self._last[1]
        transform = partial(after_fork.call, self._machine[self._lifted.transform])
        # The fingerprint is that of the copies that are prepared: others may write to the weights
        # meanwhile.
        fingerprint = _Fingerprint(leaves)
        if self._lifted.lazy:
            prepared = _prepare_lazily(transform, fingerprint)
        else:
            prepared = list(transform([fingerprint.argument(i) for i in range(leaves.number)]))
        self._last = _HELD if is_trusted else fingerprint.text(), prepared
        self._report(sum(nbytes_of(v.shape, spec.dtype) for spec, v in leaves), prepared)
        return prepared

    def _check_leaves(self, leaves: "_Leaves") -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for spec, value in leaves:
            if not is_torch(value) and not isinstance(value, np.ndarray | np.generic):
                raise InputError(
                    f"weight {spec.name!r}: expected a NumPy array, a PyTorch tensor or TVM's, got "
                    f"{type(value).__name__}"
                )
            if is_torch(value) and value.device.type != "cpu":
                raise InputError(
                    f"weight {spec.name!r}: expected a tensor on the CPU, got one on {value.device}"
                )
            if dtype_of(value) != spec.dtype:
                raise InputError(
                    f"weight {spec.name!r}: expected dtype {spec.dtype}, got {dtype_of(value)}"
                )
            try:
                self._check_shape(spec, tuple(value.shape), sizes)
            except InputError as error:
                raise InputError(error.message.replace("input", "weight", 1)) from None

    def _report(self, before: int, prepared: list[Any]) -> None:
        after = sum(
            nbytes_of(tensor.shape, str(tensor.dtype))
            for value in prepared
            for tensor in _tensors_of(value)
        )
        self.lift_report = LiftReport(before, after)
        if before and after > before * MAX_GROWTH and after - before > WEIGHTS_ALLOWANCE:
            warnings.warn(f"{self.lift_report}", stacklevel=2)


class _Leaves:
    """The tensors of weights: the field of a tuple is one of its own."""

    def __init__(self, specs: Sequence[WeightSpec], weights: Mapping[str, Any]):
        self._specs = specs
        self._weights = weights

    def __iter__(self) -> Iterator[tuple[TensorSpec, Any]]:
        for weight in self._specs:
            value = self._weights[weight.name]
            if not weight.is_tuple:
                yield weight.tensors[0], _as_array(value)
                continue
            if not isinstance(value, list | tuple) or len(value) != len(weight.tensors):
                raise InputError(
                    f"weight {weight.name!r}: expected a list of {len(weight.tensors)} arrays"
                )
            yield from zip(weight.tensors, map(_as_array, value), strict=True)

    def fingerprint(self) -> str:
        """The SHA-256 of dtypes, shapes and contents."""
        return _joined(self.digest(index) for index in range(self.number))

    def digest(self, index: int) -> bytes:
        """The part of the fingerprint that one argument is."""
        return _digest(self._at(index))

    def argument(self, index: int) -> Any:
        """What the transform takes at a place, in memory of its own."""
        value = self._at(index)
        return list(map(_copied, value)) if isinstance(value, list) else _copied(value)

    @property
    def number(self) -> int:
        """How many arguments the transform takes."""
        return len(self._specs[0].tensors) if self._is_one_tuple else len(self._specs)

    def _at(self, index: int) -> Any:
        """An array, or a list of arrays."""
        if self._is_one_tuple:
            return _as_array(self._weights[self._specs[0].name][index])
        value = self._weights[self._specs[index].name]
        return list(map(_as_array, value)) if self._specs[index].is_tuple else _as_array(value)

    @property
    def _is_one_tuple(self) -> bool:
        return len(self._specs) == 1 and self._specs[0].is_tuple


class _Fingerprint:
    """The fingerprint of what the transform gets, which is copied as it asks for it."""

    def __init__(self, leaves: _Leaves):
        self._leaves = leaves
        self._digests: dict[int, bytes] = {}

    def argument(self, index: int) -> Any:
        """A copy of a weight."""
        copy = self._leaves.argument(index)
        digest = _digest(copy)
        # One that is asked for again and has changed: of no weights that will be seen.
        self._digests[index] = digest if self._digests.get(index, digest) == digest else b""
        return copy

    def text(self) -> str:
        """The fingerprint; what nobody asked for makes no difference to what is prepared."""
        return _joined(
            self._digests[index] if index in self._digests else self._leaves.digest(index)
            for index in range(self._leaves.number)
        )


def _joined(digests: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _digest(value: Any) -> bytes:
    """The SHA-256 of an array or of a list of arrays."""
    digest = hashlib.sha256()
    for array in value if isinstance(value, list) else [value]:
        is_tvms = isinstance(array, tvm.runtime.Tensor)
        dtype = str(array.dtype) if is_tvms else dtype_of(array)
        digest.update(repr((dtype, tuple(map(int, array.shape)))).encode())
        digest.update(_bytes_of(array))
    return digest.digest()


def _prepare_lazily(transform: Any, leaves: _Fingerprint) -> list[Any]:
    """Have the transform ask for each weight; what it hands out is copied."""
    prepared: dict[int, Any] = {}
    failed: list[BaseException] = []

    def get(index: int, _name: str) -> Any:
        try:
            return leaves.argument(index)
        except BaseException as error:
            failed.append(error)
            raise

    def put(index: int, value: Any) -> None:
        # Its memory is the transform's, which may use it again.
        prepared[index] = duplicate(value)

    try:
        transform(tvm.runtime.convert(get), tvm.runtime.convert(put))
    except Exception:
        if failed:
            raise failed[0] from None
        raise
    return [prepared[index] for index in sorted(prepared)]


def _tensors_of(value: Any) -> list[tvm.runtime.Tensor]:
    """The tensors that the virtual machine takes at one place."""
    if isinstance(value, tvm.runtime.Tensor):
        return [value]
    return [] if isinstance(value, tvm.runtime.ShapeTuple) else list(value)


def _spec_of(value: Any) -> PreparedSpec:
    if isinstance(value, tvm.runtime.ShapeTuple):
        return PreparedSpec("shape", 0, tuple(map(int, value)))
    kind = "tensor" if isinstance(value, tvm.runtime.Tensor) else "tuple"
    return PreparedSpec(kind, len(_tensors_of(value)))


def _prepared_of(spec: PreparedSpec, tensors: Iterator[tvm.runtime.Tensor]) -> Any:
    """What :func:`_spec_of` described, of the next tensors."""
    if spec.kind == "shape":
        return tvm.runtime.ShapeTuple(spec.shape)
    found = list(islice(tensors, spec.number))
    return found[0] if spec.kind == "tensor" else found


def _as_array(value: Any) -> Any:
    return value.numpy() if isinstance(value, tvm.runtime.Tensor) else value


def _copied(value: Any) -> tvm.runtime.Tensor:
    """Memory of its own: what is passed through unchanged is not to change with the caller's."""
    return to_tvm(value.clone() if is_torch(value) else value)


def _bytes_of(value: Any) -> memoryview:
    if isinstance(value, tvm.runtime.Tensor):
        return raw_bytes(value).data
    if is_torch(value):
        import torch

        flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().data
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
