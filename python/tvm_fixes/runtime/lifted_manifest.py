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
"""The manifest of a lifted model's artifact: its signature and its prepared weights."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import ArtifactError
from ..support.files import read_text
from .manifest import (
    MANIFEST,
    Manifest,
    TensorSpec,
    WeightsRecord,
    read_spec,
    read_weights_record,
)
from .typed import MALFORMED, check_types

FORMAT = "tvm-fixes-lifted/1"


@dataclass(frozen=True)
class WeightSpec:
    """A weight, as a parameter of the original function.

    Attributes
    ----------
    name : str
        The name of the parameter.
    tensors : tuple of TensorSpec
        The tensor, or the fields of a tuple.
    is_tuple : bool
    """

    name: str
    tensors: tuple[TensorSpec, ...]
    is_tuple: bool


@dataclass(frozen=True)
class PreparedSpec:
    """One of the prepared weights.

    Attributes
    ----------
    kind : str
        ``"tensor"``; ``"shape"``, the values of symbolic dims; or ``"tuple"`` of tensors.
    number : int
        The number of its tensors in the weights file.
    shape : tuple of int
        The values of a shape.
    """

    kind: str
    number: int
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class LiftedManifest:
    """The content of ``manifest.json`` in a lifted model's artifact.

    Attributes
    ----------
    model : Manifest
        The library, its function, and the inputs and outputs.
    transform : str
        The name of the function that prepares weights.
    lazy : bool
        Whether that function gets each weight through a callback.
    weights : tuple of WeightSpec
        The weights, in the order of the function's parameters.
    prepared : tuple of PreparedSpec
        The prepared weights that replace them; empty before weights are prepared.
    file : WeightsRecord or None
        The weights file; None before weights are prepared.
    weights_bytes : int
        The size of the weights before preparation.
    """

    model: Manifest
    transform: str
    lazy: bool
    weights: tuple[WeightSpec, ...]
    prepared: tuple[PreparedSpec, ...] = ()
    file: WeightsRecord | None = None
    weights_bytes: int = 0

    @property
    def signature(self) -> str:
        """The SHA-256 of the function's signature, before and after it was lifted."""
        tensors = () if self.file is None else self.file.tensors
        values = [
            [asdict(spec) for spec in group]
            for group in (
                self.model.inputs,
                self.model.outputs,
                self.weights,
                self.prepared,
                tensors,
            )
        ]
        text = json.dumps([values, self.model.function, self.transform, self.lazy])
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        """The manifest as one JSON object, indented."""
        values = asdict(self) | {
            "format": FORMAT,
            "signature": self.signature,
            "model": json.loads(self.model.to_json()),
        }
        return json.dumps(values, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "LiftedManifest":
        """Parse the output of :meth:`to_json`.

        Raises
        ------
        ArtifactError
            If `text` is not a manifest, has another format, or its signature does not match its
            content.
        """
        try:
            values = json.loads(text)
            if not isinstance(values, dict) or "format" not in values:
                raise ArtifactError("not a manifest of a lifted model")
            if values["format"] != FORMAT:
                raise ArtifactError(f"format {values['format']!r}; expected {FORMAT!r}")
            manifest = cls(
                model=Manifest.from_json(json.dumps(values["model"])),
                transform=str(values["transform"]),
                lazy=bool(values["lazy"]),
                weights=tuple(map(_read_weight, values["weights"])),
                prepared=tuple(map(_read_prepared, values["prepared"])),
                file=read_weights_record(values["file"]) if values["file"] else None,
                weights_bytes=int(values["weights_bytes"]),
            )
            check_types(manifest)
            _check_prepared(manifest)
            signature = values["signature"]
        except ArtifactError:
            raise
        except MALFORMED as error:
            raise ArtifactError(f"malformed manifest: {error!r}") from error
        if signature != manifest.signature:
            raise ArtifactError(f"signature: expected {manifest.signature}, got {signature}")
        return manifest

    @classmethod
    def read(cls, directory: Path) -> "LiftedManifest":
        """Read the manifest in `directory`.

        Raises
        ------
        ArtifactError
            As for :meth:`from_json`, or if it cannot be read.
        """
        path = directory / MANIFEST
        try:
            return cls.from_json(read_text(path))
        except (OSError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{directory}: not an artifact: {error}") from error
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error.message}") from error


def is_lifted(directory: Path) -> bool:
    """Whether `directory` contains the manifest of a lifted model."""
    try:
        return bool(json.loads(read_text(directory / MANIFEST))["format"] == FORMAT)
    except (OSError, *MALFORMED):
        return False


def _check_prepared(manifest: LiftedManifest) -> None:
    counts = {"tensor": (1,), "shape": (0,)}
    for spec in manifest.prepared:
        if spec.kind not in ("tensor", "shape", "tuple"):
            raise ValueError(f"prepared: unknown kind {spec.kind!r}")
        if spec.number < 0 or spec.number not in counts.get(spec.kind, (spec.number,)):
            raise ValueError(f"prepared: {spec.number} tensors of kind {spec.kind!r}")
    expected = sum(spec.number for spec in manifest.prepared)
    got = 0 if manifest.file is None else len(manifest.file.tensors)
    if expected != got:
        raise ValueError(f"prepared: expected {expected} tensors in the weights file, got {got}")


def _read_weight(value: Mapping[str, Any]) -> WeightSpec:
    return WeightSpec(value["name"], tuple(map(read_spec, value["tensors"])), value["is_tuple"])


def _read_prepared(value: Mapping[str, Any]) -> PreparedSpec:
    return PreparedSpec(value["kind"], int(value["number"]), tuple(value["shape"]))
