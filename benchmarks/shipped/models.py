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
"""Models: their origin, their inputs, and the expected outcome."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .data import Case


@dataclass(frozen=True)
class Package:
    """A file of a package registry that contains models.

    Attributes
    ----------
    registry : str
        ``pypi`` or ``npm``.
    name, version : str
        The package.
    file : str
        The name of the file.
    sha256 : str
        Its checksum.
    license : str
        The license of the package.
    """

    registry: str
    name: str
    version: str
    file: str
    sha256: str
    license: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Model:
    """A model.

    Attributes
    ----------
    name : str
        Its name in the table.
    kind : str
        What it does.
    cases : tuple of Case
        Its inputs.  The first case is timed.
    package : Package, optional
        The package that ships it.
    path : str
        The file in the package.
    chunks : str
        If `path` is an index of chunks in JSON, the entry of the model.
    make : callable, optional
        Writes the model to a path, in a process of its own, if no package ships it.
    maker : str
        The library and exporter behind `make`.
    suffix : str
        The kind of file: ``.onnx``, or ``.pt2``, which PyTorch runs.
    lacks : str
        For a model that must be rejected, a part of the error, which names what is missing.
    """

    name: str
    kind: str
    cases: tuple[Case, ...]
    package: Package | None = None
    path: str = ""
    chunks: str = ""
    make: Callable[[Path], None] | None = None
    maker: str = ""
    suffix: str = ".onnx"
    lacks: str = ""

    @property
    def origin(self) -> str:
        """The package or the exporter that the model comes from."""
        return str(self.package) if self.package else self.maker
