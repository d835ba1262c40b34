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
"""A description of a Relay program, made without a translation."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .... import _ffi, relay
from ....errors import RelayError
from ....support.tensors import nbytes_of
from ...operators import Operator, counted
from ..call import CONVERTERS
from ..values.types import type_of


@dataclass(frozen=True)
class ProgramDescription:
    """The inputs, contents and operators of a Relay program.

    Attributes
    ----------
    name : str
        The name of the file.
    inputs, parameters : dict of str to str
        The parameters of "main" without and with a value, and their types.
    result : str
        The type of the result, or "unknown".
    functions : list of str
        The names of the functions.
    constant_bytes, parameter_bytes : int
        The sizes of the constants in the program, and of the values given for parameters.
    operators : list of Operator
        The unsupported ones first, then by the number of calls.
    type_error : str
        Why types cannot be inferred; empty if they can. With an error, types are those in the text.
    """

    name: str
    inputs: dict[str, str]
    parameters: dict[str, str]
    result: str
    functions: list[str]
    constant_bytes: int
    parameter_bytes: int
    operators: list[Operator]
    type_error: str

    def to_json(self) -> str:
        """The description as one JSON object, indented."""
        return json.dumps(asdict(self), indent=2)


def unsupported(name: str) -> str | None:
    """Why an operator cannot be translated; None if it can."""
    info = relay.operators().get(name)
    if info is not None and info.effect == "rejected":
        return info.rejection
    if (info is None or info.effect == "computes") and not CONVERTERS.has(name):
        return "TVM 0.19 has no such operator" if info is None else "there is no translation"
    return None


def named_as_in(
    main: relay.Function, params: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Return values by the names that "main" has for them.

    In text, TVM puts a v before a name that does not begin with a letter, such as 0.weight.
    """
    names = {var.name for var in main.params}

    def name_of(name: str) -> str:
        is_plain = name[:1].isascii() and name[:1].isalpha()
        return f"v{name}" if not is_plain and name not in names and f"v{name}" in names else name

    return {name_of(name): value for name, value in params.items()}


def describe_program(
    mod: relay.IRModule, params: Mapping[str, np.ndarray[Any, Any]] | None = None, name: str = ""
) -> ProgramDescription:
    """Describe a program; unsupported operators and ill-typed programs are not errors.

    Parameters
    ----------
    mod : relay.IRModule
        The program.
    params : mapping of str to numpy.ndarray, optional
        Values of parameters of "main".
    name : str
        The name of the program in the description.

    Raises
    ------
    RelayError
        If there is no "main".
    """
    if "main" not in mod.functions:
        raise RelayError('the Relay module has no function "main"')
    params = named_as_in(mod["main"], params or {})
    type_error = ""
    try:
        mod = relay.transform.InferType()(mod)
    except RelayError as error:
        type_error = error.message
    main = mod["main"]
    types = {
        var.name: str(var.type_annotation if type_error else type_of(var)) for var in main.params
    }
    return ProgramDescription(
        name=name,
        inputs={key: ty for key, ty in types.items() if key not in params},
        parameters={key: ty for key, ty in types.items() if key in params},
        result="unknown" if type_error else str(type_of(main.body)),
        functions=list(mod.functions),
        constant_bytes=_constant_bytes(mod),
        parameter_bytes=sum(value.nbytes for value in params.values()),
        operators=counted(
            (name, str(span), unsupported(name) or "") for name, span in relay.operator_uses(mod)
        ),
        type_error=type_error,
    )


def _constant_bytes(mod: relay.IRModule) -> int:
    nodes = _ffi.get("tvm_fixes.relay.PostOrder")
    constants = {
        node: nbytes_of(node.data.shape, str(node.data.dtype))
        for function in mod.functions.values()
        for node in nodes(function)
        if isinstance(node, relay.Constant)
    }
    return sum(constants.values())
