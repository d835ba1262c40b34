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
"""A check of whether a model can be imported, before anything is compiled."""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import CompileError, UsageError
from ..frontend.operators import Operator
from . import Params, Shapes, open_source
from .base import existing
from .onnx import read_model
from .relay_file import is_program_name, reader
from .tflite import describe_operators
from .torch import TorchSource


@dataclass(frozen=True)
class Preflight:
    """The operators of a model, and whether it can be imported.

    Attributes
    ----------
    name : str
        The name of the model.
    operators : list of Operator
        The unsupported ones first, then by the number of calls.  Empty for a Relax module.
    problem : str
        Why the import fails although all operators are supported, for example because of an
        attribute; empty otherwise.
    """

    name: str
    operators: list[Operator]
    problem: str

    @property
    def unsupported(self) -> list[Operator]:
        """The operators that no converter imports."""
        return [operator for operator in self.operators if operator.problem]

    @property
    def ok(self) -> bool:
        """Whether the model can be imported."""
        return not self.unsupported and not self.problem

    def to_json(self) -> str:
        """The result as one JSON object, indented."""
        return json.dumps(asdict(self) | {"ok": self.ok}, indent=2)


def check(
    source: Any,
    shapes: Shapes | None = None,
    *,
    trust: bool = False,
    params: Params | None = None,
) -> Preflight:
    """Find the operators of a model that cannot be imported, without compiling it.

    If all are supported, the model is imported, which also finds unsupported attributes and types.

    Parameters
    ----------
    source, shapes, trust, params
        As for :func:`tvm_fixes.compile`.

    Raises
    ------
    UsageError
        If there is no such model, or `shapes` do not fit its inputs.
    UntrustedError
        If a file may run code and `trust` is not set.
    CompileError
        If a file cannot be read or a program cannot be exported.
    """
    name, operators = _operators(source, shapes, trust, params)
    problem = ""
    if not any(operator.problem for operator in operators):
        try:
            open_source(source, shapes, trust=trust, params=params).to_relax()
        except UsageError:
            raise
        except CompileError as error:
            problem = error.message
    return Preflight(name, operators, problem)


def _operators(
    source: Any, shapes: Shapes | None, trust: bool, params: Params | None
) -> tuple[str, list[Operator]]:
    """The name of a model and its operators; those of ONNX, TFLite and Relay without an import."""
    model, name = source, ""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        name = path.name
        if is_program_name(path):
            return name, reader().describe_file(path).operators
        if path.suffix == ".onnx":
            model = read_model(existing(path))
        if path.suffix == ".tflite":
            return name, describe_operators(existing(path))
    onnx = sys.modules.get("onnx")
    if onnx is not None and isinstance(model, onnx.ModelProto):
        from ..frontend.onnx.graph.preflight import operators_of

        return name or model.graph.name or "ONNX model", operators_of(model)
    opened = open_source(source, shapes, trust=trust, params=params)
    return opened.name, opened.operators() if isinstance(opened, TorchSource) else []
