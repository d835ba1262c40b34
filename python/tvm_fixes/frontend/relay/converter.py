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
"""The converters: one function for each operator that computes a value.

A module ``ops_<family>.py`` registers the converters of one family of operators::

    @converter("nn.softmax")
    def softmax(call: OpCall) -> relax.Expr:
        return call.emit(relax.op.nn.softmax(call.inputs[0], call.attrs["axis"]))
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tvm import relax

from ... import relay
from ...errors import RelayError
from .values import constant_value

Converted = Any
"""A relax.Expr, or a tuple of Converted for an operator that returns a tuple."""

Converter = Callable[["OpCall"], Converted]

_CONVERTERS: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register a function as the converter of operators.

    Parameters
    ----------
    *names : str
        The operators' names.
    """

    def register(function: Converter) -> Converter:
        for name in names:
            if name in _CONVERTERS:
                raise ValueError(f"operator {name} has two converters")
            _CONVERTERS[name] = function
        return function

    return register


@cache
def converters() -> Mapping[str, Converter]:
    """Import all modules ``ops_*`` of the package, and return the converters by operator."""
    package = __package__
    assert package is not None
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if module.name.startswith("ops_"):
            importlib.import_module(f"{package}.{module.name}")
    return _CONVERTERS


@dataclass(frozen=True)
class OpCall:
    """One call of an operator, as its converter sees it.

    Attributes
    ----------
    name : str
        The operator.
    inputs : list
        The converted inputs: relax.Expr, or tuples of them.
    attrs : mapping of str to value
        The attributes of the declared kinds, with the defaults.
    input_types : list of relay.Type
        The Relay types of the inputs.
    type : relay.Type
        The Relay type of the result.
    builder : relax.BlockBuilder
        Receives the bindings.
    call : relay.Call
        The call itself.
    """

    name: str
    inputs: list[Any]
    attrs: Mapping[str, Any]
    input_types: list[relay.Type]
    type: relay.Type
    builder: relax.BlockBuilder
    call: relay.Call

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind an expression to a new variable."""
        return self.builder.emit(expr)

    def emit_te(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> relax.Expr:
        """Compute the result by a TE function."""
        return self.builder.emit_te(function, *args, **kwargs)

    def ints(self, attr: str, count: int | None = None) -> list[int]:
        """Return an attribute that is an array of ints; a single int is repeated `count` times."""
        values = [int(value) for value in self.attrs[attr]]
        return values * count if count is not None and len(values) == 1 else values

    def constant_input(self, index: int) -> np.ndarray[Any, Any] | None:
        """Return the value of an input that is a constant, else None."""
        return constant_value(self.inputs[index])

    def fail(self, message: str) -> RelayError:
        """Return an error that names the operator and its place."""
        return RelayError(f"{self.name} at {self.call.span}: {message}")
