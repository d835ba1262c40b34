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
"""Relay programs of TVM 0.6 to 0.19: text or saved JSON, with saved parameters."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tvm

from .. import relay
from ..errors import CompileError, RelayError, UsageError, summarize
from ..frontend.relay import ProgramDescription, describe_program, from_relay
from ..relax.constants.provenance import constants_of
from ..runtime.manifest import describe_function
from ..support.tensors import raw_bytes
from .base import Reference, Shapes, Source, existing
from .relay_file import Params


class RelaySource(Source):
    """A Relay program, which has no reference.

    Parameters
    ----------
    module : relay.IRModule
        The program.
    name : str
        Its name in messages.
    shapes : mapping of str to sequence of int and str, optional
        Shapes of inputs by name.
    params : mapping of str to numpy.ndarray, or path, optional
        Values of parameters of "main", or a file of ``relay.save_param_dict``.
    """

    has_reference = False

    def __init__(
        self,
        module: relay.IRModule,
        name: str = "Relay program",
        shapes: Shapes | None = None,
        params: Params | None = None,
    ):
        super().__init__(name, shapes)
        self._params = read_params(params) if isinstance(params, str | os.PathLike) else params
        try:
            self._module = from_relay(module, self._params)
        except CompileError as error:
            raise type(error)(f"{name}: {error.message}") from error
        signature = describe_function(self._module["main"])
        self.inputs = signature.inputs
        self.output_names = tuple(spec.name for spec in signature.outputs)
        self.parameter_bytes = sum(raw_bytes(tensor).size for tensor in constants_of(self._module))
        self.check_shapes()

    @classmethod
    def load(
        cls, path: Path, shapes: Shapes | None = None, params: Params | None = None
    ) -> "RelaySource":
        """Read a file of Relay's text, or of ``tvm.ir.save_json``.

        Raises
        ------
        RelayError
            If the file is malformed or ill-typed.
        UsageError
            If parameters or shapes do not fit the program.
        """
        return cls(read_program(path), path.name, shapes, params)

    def to_relax(self) -> tvm.IRModule:
        return self._bind_dims(self._module)

    def parameters(self) -> Iterator[tuple[str, np.ndarray]]:
        for name, array in (self._params or {}).items():
            yield name, np.ascontiguousarray(array).reshape(-1).view("uint8")
        for tensor in constants_of(self._module):
            yield "", raw_bytes(tensor)

    def reference(self) -> tuple[str, Reference]:
        raise UsageError("a Relay program has no reference to compare with: pass compare=False")


def read_program(path: Path) -> relay.IRModule:
    """Read Relay's text or saved JSON.

    Raises
    ------
    RelayError
        If the file is malformed; the message begins with its name.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return relay.load_json(text) if text.lstrip()[:1] == "{" else relay.parse(text)
    except RelayError as error:
        raise RelayError(f"{path}: {error.message}") from error
    except (OSError, ValueError) as error:
        raise CompileError(f"{path}: {summarize(error)}") from error


def read_params(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read a file of ``relay.save_param_dict``.

    Raises
    ------
    RelayError
        If the file is malformed; the message begins with its name.
    UsageError
        If it cannot be opened.
    """
    try:
        return relay.load_params(Path(path).read_bytes())
    except RelayError as error:
        raise RelayError(f"{os.fspath(path)}: {error.message}") from error
    except OSError as error:
        raise UsageError(f"{os.fspath(path)}: {error.strerror or summarize(error)}") from error


def describe_file(
    path: str | os.PathLike[str], params: str | os.PathLike[str] | None = None
) -> ProgramDescription:
    """Describe a file of a Relay program, and a file of its parameters.

    Raises
    ------
    RelayError
        If a file is malformed, or there is no "main".
    UsageError
        If a file cannot be opened.
    """
    location = existing(Path(path))
    values = None if params is None else read_params(params)
    return describe_program(read_program(location), values, location.name)
