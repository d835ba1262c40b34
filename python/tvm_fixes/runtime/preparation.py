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
"""Preparation of the weights of a lifted model."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import tvm

from ..relax.constants.growth import MAX_GROWTH, WEIGHTS_ALLOWANCE
from ..support.tensors import duplicate, nbytes_of
from .arguments import WEIGHT, check_arrays
from .library import Library
from .lifted_manifest import LiftedManifest, PreparedSpec
from .weight_arrays import FingerprintOfCopies, WeightArrays

_HELD = "held"


@dataclass(frozen=True)
class LiftReport:
    """The memory of the weights.

    Attributes
    ----------
    before, after : int
        The bytes of the weights before and after preparation.
    """

    before: int
    after: int

    @property
    def ratio(self) -> float | None:
        """`after` divided by `before`; None for a model without weights."""
        return self.after / self.before if self.before else None

    def __str__(self) -> str:
        ratio = f" ({self.ratio:.2f} x)" if self.ratio is not None else ""
        return f"weights: {self.before} bytes, prepared: {self.after} bytes{ratio}"


class Preparation:
    """Prepares weights with the library's transform, and keeps the last result.

    Parameters
    ----------
    library : Library
    manifest : LiftedManifest
    check_weights : bool
        Whether to compare the model's own weights with those prepared last.

    Attributes
    ----------
    report : LiftReport or None
        The memory of the weights; None until some are prepared.
    """

    def __init__(self, library: Library, manifest: LiftedManifest, check_weights: bool):
        self._library = library
        self._manifest = manifest
        self._check_weights = check_weights
        # The fingerprint of the last weights, and the result.
        self._last: tuple[str, list[Any]] | None = None
        self.report: LiftReport | None = None

    def prepare(self, weights: Mapping[str, Any], is_held: bool) -> list[Any]:
        """Prepare weights, unless they are the same as the last ones.

        Parameters
        ----------
        weights : mapping of str to array, or to a list of arrays for a tuple
            All weights.
        is_held : bool
            Whether they are the model's own weights.

        Raises
        ------
        InputError
            If a weight does not fit the model.
        """
        arrays = WeightArrays(self._manifest.weights, weights)
        is_trusted = is_held and not self._check_weights
        if is_trusted and self._last is not None and self._last[0] == _HELD:
            return self._last[1]
        check_arrays(arrays, self._manifest.model.bounds, WEIGHT)
        if not is_trusted and self._last is not None and self._last[0] == arrays.fingerprint():
            return self._last[1]
        transform = self._library.function(self._manifest.transform)
        copies = FingerprintOfCopies(arrays)
        if self._manifest.lazy:
            prepared = _prepare_lazily(transform, copies)
        else:
            prepared = list(transform([copies.argument(i) for i in range(arrays.number)]))
        self._last = _HELD if is_trusted else copies.text(), prepared
        self.measure(sum(nbytes_of(v.shape, spec.dtype) for spec, v in arrays), prepared)
        return prepared

    def measure(self, before: int, prepared: list[Any]) -> None:
        """Report the memory of prepared weights that replace weights of `before` bytes."""
        after = sum(
            nbytes_of(tensor.shape, str(tensor.dtype))
            for value in prepared
            for tensor in tensors_of(value)
        )
        self.report = LiftReport(before, after)
        if before and after > before * MAX_GROWTH and after - before > WEIGHTS_ALLOWANCE:
            warnings.warn(f"{self.report}", stacklevel=2)


def _prepare_lazily(transform: Callable[..., Any], weights: FingerprintOfCopies) -> list[Any]:
    """Run a transform that gets weights and sets results through callbacks; copy the results."""
    prepared: dict[int, Any] = {}
    failed: list[BaseException] = []

    def get(index: int, _name: str) -> Any:
        try:
            return weights.argument(index)
        except BaseException as error:
            failed.append(error)
            raise

    def put(index: int, value: Any) -> None:
        # Copy: the transform may reuse the memory.
        prepared[index] = duplicate(value)

    try:
        transform(tvm.runtime.convert(get), tvm.runtime.convert(put))
    except Exception:
        if failed:
            raise failed[0] from None
        raise
    return [prepared[index] for index in sorted(prepared)]


def tensors_of(value: Any) -> list[tvm.runtime.Tensor]:
    """The tensors in a prepared weight."""
    if isinstance(value, tvm.runtime.Tensor):
        return [value]
    return [] if isinstance(value, tvm.runtime.ShapeTuple) else list(value)


def spec_of(value: Any) -> PreparedSpec:
    """Describe a prepared weight."""
    if isinstance(value, tvm.runtime.ShapeTuple):
        return PreparedSpec("shape", 0, tuple(map(int, value)))
    kind = "tensor" if isinstance(value, tvm.runtime.Tensor) else "tuple"
    return PreparedSpec(kind, len(tensors_of(value)))


def prepared_of(spec: PreparedSpec, tensors: Iterator[tvm.runtime.Tensor]) -> Any:
    """Make the prepared weight that `spec` describes from the next `tensors`."""
    if spec.kind == "shape":
        return tvm.runtime.ShapeTuple(spec.shape)
    own = list(islice(tensors, spec.number))
    return own[0] if spec.kind == "tensor" else own
